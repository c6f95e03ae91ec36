"""How the offline model reads what a customer wants: a booking, a list, a cancellation, a greeting, or something else."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal

from agent.language import LANGUAGES, Language, detect, fold
from agent.offline_request_words import NOISE, WORDS, RequestWords
from agent.offline_rhythm import Recurring, recurring
from agent.offline_time import Cluster, Mention, clusters, due, is_in_days, only_joins

LONGEST_LINE = 20_000
"""Characters in a line that are still read; nobody asks for a reminder at such length."""

Kind = Literal["booking", "no time", "no hour", "repeating", "list", "cancel", "hello", "other"]


@dataclass(frozen=True, slots=True)
class Request:
    """What one line asks for."""

    kind: Kind
    language: Language
    about: str = ""
    delay: str | None = None
    at: str | None = None
    """A booking with neither delay nor time is work that starts now."""
    words: str = ""
    """What is to be cancelled, as the customer calls it."""
    recurring: Recurring | None = None
    """How a booking repeats."""
    day: str = ""
    """The day that was named, as a text that can be read again; for a booking its date."""


def read(line: str, default: Language, now: datetime) -> Request:
    """Return what a line asks for. `now` is the wall time where the customer is, without a zone."""
    line = unicodedata.normalize("NFC", line.encode(errors="ignore").decode())  # half a character can be no argument
    if len(line) > LONGEST_LINE:
        return Request("other", default)
    folded = fold(line)
    told = detect(line, default)
    first = next((language for language in LANGUAGES if language == told), default)
    for language in (first, *(other for other in LANGUAGES if other != first)):
        request = _in_language(line, folded, language, now)
        if request is not None:
            return request
    return Request("other", first)


def complete(unfinished: Request, line: str, now: datetime) -> Request | None:
    """Return the request with the time that a line gives to it, or None when the line is more than a time.

    A day named before stays, unless the line names another; "9" may answer the question for the hour.
    """
    ask, at, within = _ASKING[unfinished.language]
    for words in (line, f"{at} {line}", f"{within} {line}"):
        for day in dict.fromkeys(("", unfinished.day)):
            given = read(f"{ask} {words} {day}", unfinished.language, now)
            keeps_the_day = day or not unfinished.day or _names_a_day(words, given.language, now)
            if given.kind in ("booking", "no hour") and not given.about and keeps_the_day:
                return replace(given, about=unfinished.about)
    return None


_ASKING: Mapping[Language, tuple[str, str, str]] = {
    "en": ("remind me", "at", "in"),
    "es": ("recuérdame", "a las", "en"),
    "pt": ("me lembre", "às", "em"),
}


def _names_a_day(line: str, language: Language, now: datetime) -> bool:
    return any(cluster.has("day", "delay", "every") for cluster in clusters(fold(line), language, now))


def to_cancel(words: str, pending: Sequence[Mapping[str, Any]]) -> tuple[list[int], bool]:
    """Return the ids that the customer's words may mean, and whether all of those are meant or one of them is asked for."""
    said = set(_telling_words(words))
    ids = [int(item["id"]) for item in pending]
    if said and all(word.isdecimal() for word in said):
        return [id_ for id_ in ids if str(id_) in said], True
    scores = [sum(_is_like(word, said) for word in set(_telling_words(str(item["about"])))) for item in pending]
    best = max(scores, default=0)
    meant = [id_ for id_, score in zip(ids, scores, strict=True) if not said or (best and score == best)]
    return meant, len(meant) == 1 or _ALL.search(fold(words)) is not None


_ALL = re.compile(r"\b(?:all|everything|both|todos?|todas?|tudo|ambos|ambas)\b")


def _telling_words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+", fold(text)) if word not in NOISE]


def _is_like(word: str, said: Iterable[str]) -> bool:
    """ "llamada" is like "llamar" and "calling" like "call": the same word, or the same first four letters."""
    return any(word == other or (len(word) > 3 and len(other) > 3 and word[:4] == other[:4]) for other in said)


def _in_language(line: str, folded: str, language: Language, now: datetime) -> Request | None:
    words = WORDS[language]
    if cancel := words.cancel.match(folded):
        return Request("cancel", language, words=line[cancel.end() :])
    if booking := _booking(line, folded, language, words, now):
        return booking
    if words.pending.search(folded):
        return Request("list", language)
    if words.hello.match(folded):
        return Request("hello", language)
    return None


def _booking(line: str, folded: str, language: Language, words: RequestWords, now: datetime) -> Request | None:
    tail = words.work_tail.search(folded) if words.work.match(folded) else None
    ask = words.remind.search(folded)
    is_work = tail is not None and not (ask is not None and ask.start() < tail.start())
    verb = tail if is_work else ask or words.tell.search(folded)
    if verb is None or (not is_work and words.pending.search(folded) and ask is None):
        return None
    times = [each for each in clusters(folded, language, now) if each.end <= verb.start() or each.start >= verb.end()]
    chosen = _choose(times, folded, language, words, verb)
    mentions = [mention for cluster in chosen for mention in cluster.mentions]
    delay, at = due(mentions, now)
    is_again = any(mention.kind == "every" for mention in mentions)
    has_time = delay is not None or at is not None or is_again
    if is_work and not has_time:
        chosen, mentions = [], []  # "check whether they open tomorrow": the day is what it is about
    elif not has_time and ask is None:
        return None  # "tell me a joke"
    about = _about(line, folded, language, words, verb, chosen)
    if is_again and mentions:
        repeats = _repeats(mentions, now)
        if repeats is None:
            return Request("repeating", language)
        if repeats.cron or repeats.every:
            return Request("booking", language, about, recurring=repeats)
    elif has_time or is_work:
        return Request("booking", language, about, delay, at, day=at[:10] if at else "")
    day = " ".join(line[mention.start : mention.end] for mention in mentions if mention.kind in _DAYS)
    return Request("no hour" if day else "no time", language, about, day=day)


_DAYS = ("day", "part", "every", "until", "times")
_PARTS = ("morning", "afternoon", "night")
_ONE_WEEKDAY = re.compile(r"weekday [0-6]")


def _repeats(mentions: Sequence[Mention], now: datetime) -> Recurring | None:
    """Return how what is booked repeats; None for a rhythm that cannot be booked. Without the hour it needs it has neither rule."""
    rhythms = list(dict.fromkeys(mention.value for mention in mentions if mention.kind == "every"))
    if len(rhythms) > 1 and not all(_ONE_WEEKDAY.fullmatch(each) for each in rhythms):
        return None
    told, _, last = rhythms[0].rpartition(" ")
    part = [Mention("part", 0, 0, last)] if last in _PARTS else []
    _, at = due([*(each for each in mentions if each.kind in ("clock", "part")), *part], now)
    try:
        days = [(date.fromisoformat(each.value), each.is_exact_date) for each in mentions if each.kind == "day"]
    except ValueError:
        return None  # the 32nd of every month
    found = recurring(
        told if part else rhythms[0],
        at[11:] if at else None,
        [day.isoweekday() % 7 for day, is_exact in days if not is_exact] + [int(each[-1]) for each in rhythms[1:]],
        [day for day, is_exact in days if is_exact],
        now,
    )
    until = next((mention.value for mention in mentions if mention.kind == "until"), None)
    times = next((int(mention.value) for mention in mentions if mention.kind == "times"), None)
    return found and replace(found, until=until, times=times)


def _choose(
    times: Sequence[Cluster], folded: str, language: Language, words: RequestWords, verb: re.Match[str]
) -> list[Cluster]:
    """Return the cluster that says when, and perhaps the one that completes it: the nearest to the verb counts most."""

    def rank(time: Cluster) -> int:
        """After the verb, before it, at the beginning, at the end, or in the middle, where it belongs to the subject."""
        if only_joins(folded, verb.end(), time.start, language):
            return 0
        if words.politeness.fullmatch(folded, time.end, verb.start()):
            return 1
        if words.politeness.fullmatch(folded, 0, time.start):
            return 2
        return 3 if words.politeness.fullmatch(folded, time.end) else 4

    ranked = sorted(times, key=lambda time: -1 if time.has("delay") and rank(time) < 3 else rank(time))
    chosen = _when(ranked, rank)
    if not any(time.has("day", "delay") and not time.has("every") for time in chosen):
        chosen += [time for time in ranked if time not in chosen and time.has("every") and rank(time) < 4]
    if any(time.has("every") for time in chosen):
        chosen += [time for time in ranked if time not in chosen and time.has("until", "times") and rank(time) < 4]
    return chosen


def _when(ranked: list[Cluster], rank: Callable[[Cluster], int]) -> list[Cluster]:
    """Return of the clusters, the best first, the one that says when, and perhaps the one that completes it."""
    if not ranked or (rank(ranked[0]) == 4 and not ranked[0].has("delay", "clock")):
        ranked = [time for time in ranked if time.has("delay", "clock")]
    if not ranked:
        return []
    chosen = ranked[0]
    if chosen.has("delay"):
        is_open = not chosen.has("clock") and any(is_in_days(mention.value) for mention in chosen.mentions)
        clocks = [each for each in ranked[1:] if each.has("clock") and not each.has("day") and rank(each) < 3]
        return [chosen, *clocks[:1]] if is_open else [chosen]
    if chosen.has("clock") and chosen.has("day"):
        return [chosen]
    for other in ranked[1:]:
        if other.has("delay"):
            continue
        if chosen.has("clock") and not other.has("clock") and other.has("day") and rank(other) < 4:
            return [chosen, other]
        if not chosen.has("clock") and other.has("clock") and not (chosen.has("day") and other.has("day")):
            return [chosen, other]
    return [chosen]


def _about(
    line: str, folded: str, language: Language, words: RequestWords, verb: re.Match[str], times: Iterable[Cluster]
) -> str:
    """Return what is left of the line when the request and the time are taken out, stripped to the bare action."""
    taken = [(verb.start(), verb.end())]
    for time in times:
        joins = only_joins(folded, verb.end(), time.start, language)
        taken.append((verb.end() if joins and time.start >= verb.end() else time.start, time.end))
    left = " ".join("".join(_between(line, taken)).split())
    lead = words.lead.match(fold(left))
    left = left[lead.end() :] if lead else left
    trail = words.trail.search(fold(left)[-60:])
    return (left[: len(left) - len(trail.group())] if trail else left).strip()


def _between(line: str, taken: Iterable[tuple[int, int]]) -> Iterator[str]:
    position = 0
    for start, end in sorted(taken):
        yield line[position : max(start, position)] + " "
        position = max(end, position)
    yield line[position:]
