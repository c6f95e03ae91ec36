"""How the offline model reads times: durations, days and clock times in English, Spanish and Portuguese.

Everything is read from folded text (small letters, no accents, every position as in the original), and only what is written
counts: "at 9" is nine in the morning of today, even when that is past, since whoever books refuses what is past. Numbers are
handed on as they are written, however large, and no date is checked here.
"""

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from agent.language import Language
from agent.offline_rhythm import rhythm
from agent.offline_time_words import WORDS, TimeWords

Kind = Literal["delay", "day", "clock", "part", "every", "until", "times", "vague"]

_BEFORE = 30
"""Characters before a day in which it may be said that it is the last one."""
ROLL_OVER = timedelta(days=31)
"""A date without a year that is longer past than this means next year's."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A stretch of text that speaks of time."""

    kind: Kind
    start: int
    end: int
    value: str = ""
    """delay: "2 hours"; day: "2026-12-01"; clock: "9:30"; part: am, pm, morning, afternoon or night.

    until: the last day; times: a number; every: a rhythm as `offline_rhythm` reads it, or nothing for one that is not known."""
    is_exact_date: bool = False
    """Whether a day was given by its date, which counts more than the weekday beside it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Mentions with nothing between them but a word such as "at"."""

    mentions: tuple[Mention, ...]

    @property
    def start(self) -> int:
        """Where the first mention begins."""
        return self.mentions[0].start

    @property
    def end(self) -> int:
        """Where the last mention ends."""
        return self.mentions[-1].end

    def has(self, *kinds: Kind) -> bool:
        """Tell whether there is a mention of one of these kinds."""
        return any(mention.kind in kinds for mention in self.mentions)


def clusters(folded: str, language: Language, now: datetime) -> list[Cluster]:
    """Return what a folded text says of time, in order. `now` is the wall time where the customer is, without a zone."""
    found: list[list[Mention]] = []
    for mention in _without_overlap(_mentions(folded, WORDS[language], now)):
        if found and only_joins(folded, found[-1][-1].end, mention.start, language):
            found[-1].append(mention)
        else:
            found.append([mention])
    return [Cluster(tuple(mentions)) for mentions in found]


def only_joins(folded: str, start: int, end: int, language: Language) -> bool:
    """Tell whether a stretch of text holds nothing but words such as "at" and "on"."""
    return WORDS[language].joint.fullmatch(folded, start, end) is not None


def due(mentions: Sequence[Mention], now: datetime) -> tuple[str | None, str | None]:
    """Return the delay or the wall time that mentions add up to; neither when they lack the time of day or are vague.

    Without a day it is today, and midnight of today is the one that ends the day.
    """
    delay = next((mention.value for mention in mentions if mention.kind == "delay"), None)
    clock = next((mention.value for mention in mentions if mention.kind == "clock"), None)
    if delay is not None:
        if not is_in_days(delay) or (clock is None and not _is_in_months(delay)):
            return delay, None
        day, clock = _day_after(delay, now), clock or f"{now:%H:%M}"
    else:
        days = sorted((mention for mention in mentions if mention.kind == "day"), key=lambda day: not day.is_exact_date)
        is_vague = any(mention.kind == "vague" for mention in mentions)
        if clock is None or (is_vague and not days):
            return None, None
        day = days[0].value if days else f"{now:%Y-%m-%d}"
    part = next((mention.value for mention in mentions if mention.kind == "part"), "")
    return None, _wall_time(day, clock, part, now)


def _wall_time(day: str, clock: str, part: str, now: datetime) -> str:
    hour, _, minute = clock.partition(":")
    if hour == "24" or (hour == "12" and part == "night"):
        return f"{now + timedelta(days=1):%Y-%m-%d} 00:{minute}" if day == f"{now:%Y-%m-%d}" else f"{day} 00:{minute}"
    return f"{day} {_hour_of_day(int(hour), part):02}:{minute}"


def _hour_of_day(hour: int, part: str) -> int:
    if part == "am":
        return 24 if hour == 12 else hour
    is_second_half = part in ("pm", "afternoon") or (part == "night" and hour >= 6)
    return hour + 12 if is_second_half and 1 <= hour < 12 else hour


def is_in_days(delay: str) -> bool:
    """Tell whether a delay counts in whole days or more, so that a time of day may stand beside it."""
    number, _, unit = delay.partition(" ")
    return number.isdecimal() and len(number) <= 4 and unit.rstrip("s") in ("day", "week", "month", "year")


def _is_in_months(delay: str) -> bool:
    """The tools know no months, so a delay in them is counted here."""
    return delay.rstrip("s").endswith(("month", "year"))


def _day_after(delay: str, now: datetime) -> str:
    written, _, unit = delay.partition(" ")
    number = int(written)
    if not _is_in_months(delay):
        return f"{now.date() + timedelta(days=number * (7 if unit.startswith('week') else 1))}"
    years, month = divmod(now.month - 1 + number * (12 if unit.startswith("year") else 1), 12)
    last = calendar.monthrange(now.year + years, month + 1)[1]
    return f"{now.year + years}-{month + 1:02}-{min(now.day, last):02}"


def _without_overlap(mentions: Iterator[Mention]) -> Iterator[Mention]:
    """The earlier wins, then the longer: "el 24 de mayo" leaves nothing to "el 24"."""
    end = 0
    for mention in sorted(mentions, key=lambda each: (each.start, -each.end)):
        if mention.start >= end:
            yield mention
            end = mention.end


def _mentions(folded: str, words: TimeWords, now: datetime) -> Iterator[Mention]:
    for found in words.delay.finditer(folded):
        yield Mention("delay", *found.span(), _delay(found.group(), words))
    for pattern in words.clocks:
        for found in pattern.finditer(folded):
            yield Mention("clock", *found.span(), _clock(found.groupdict(), words))
    repeats = words.every.search(folded) is not None or words.of_month.search(folded) is not None
    for pattern in words.days:
        for found in pattern.finditer(folded):
            day = _day(found.groupdict(), words, now.date())
            before = max(found.start() - _BEFORE, 0)
            if day is None:
                yield Mention("vague", *found.span())
            elif repeats and (until := words.until.search(folded[before : found.start()])):
                yield Mention("until", before + until.start(), found.end(), day)
            else:
                yield Mention("day", *found.span(), day, is_exact_date="weekday" not in found.groupdict())
    for found in words.part.finditer(folded):
        yield Mention("part", *found.span(), words.parts[next(part for part in found.groups() if part)])
    for found in words.every.finditer(folded):
        yield Mention("every", *found.span(), rhythm(found.group(), words))
    for found in words.of_month.finditer(folded):
        number = next(day for day in found.groups() if day)
        yield Mention("every", *found.span(), f"date {int(number) if number.isdecimal() else 1}")
    for found in words.times.finditer(folded) if repeats else ():
        yield Mention("times", *found.span(), _number(found["number"], words))
    for found in words.vague.finditer(folded):
        yield Mention("vague", *found.span())


def _delay(phrase: str, words: TimeWords) -> str:
    """Return a duration in the words of the tools: "an hour and a half" is "1 hour 30 minutes"."""
    pieces: list[str] = []
    for found in words.piece.finditer(phrase):
        if found["quarter"]:
            pieces.append("45 minutes" if found["quarter"].startswith(("three", "tres")) else "15 minutes")
            continue
        unit = words.units[found["halved"] or found["unit"] or found["unit_and_half"]]
        if not found["halved"]:
            number = _number(found["number"] or found["number_and_half"], words)
            pieces.append(f"{number} {unit}" if number == "1" else f"{number} {unit}s")
        if found["minutes"]:
            pieces.append(f"{found['minutes']} minutes")
        if found["halved"] or found["unit_and_half"]:
            pieces.append(_HALVES[unit])
    return " ".join(pieces)


_HALVES = {
    "second": "0.5 seconds",
    "minute": "30 seconds",
    "hour": "30 minutes",
    "day": "12 hours",
    "week": "84 hours",
    "month": "15 days",
    "year": "26 weeks",
}


def _number(written: str | None, words: TimeWords) -> str:
    if written is None:
        return "1"
    return str(words.numbers[written]) if written in words.numbers else written.replace(",", ".")


def _clock(said: dict[str, str | None], words: TimeWords) -> str:
    if said.get("noon"):
        return "12:30" if said.get("half") else "12:00"
    if said.get("midnight"):
        return "24:00"
    hour, minute = int(_number(said["hour"], words)), said.get("minute") or "00"
    if said.get("half"):
        minute = "30"
    elif said.get("quarter"):
        minute = "15"
    elif said.get("plus"):
        minute = f"{int(_number(said['plus'], words)):02}"
    elif said.get("minus") is not None:
        before = 15 if str(said["minus"]).endswith(("quarter", "cuarto")) else int(_number(said["minus"], words))
        hour, minute = (hour - 1) % 24, f"{(60 - before) % 60:02}"
    half_of_the_day = f"{said['m']}m" if said.get("m") else ""
    return f"{_hour_of_day(hour, half_of_the_day)}:{minute}"


def _day(said: dict[str, str | None], words: TimeWords, today: date) -> str | None:
    if word := said.get("word"):
        return f"{today + timedelta(days=words.near_days[word])}"
    if weekday := said.get("weekday"):
        ahead = (words.weekdays[weekday[:3]] - today.weekday()) % 7 or 7
        return f"{today + timedelta(days=ahead)}"
    day = int(_number(said["day"], words))
    if "month" not in said:
        return _next_day_of_month(day, today)
    month = said["month"] or ""
    number = int(month) if month.isdecimal() else words.months[month[:3]]
    if said.get("slash") and words.month_may_come_first:
        if day <= 12 and number <= 12:
            return None  # 5/6 is May in one country and June in another
        if number > 12:
            day, number = number, day
    return _date(day, number, said.get("year"), today)


def _date(day: int, month: int, year: str | None, today: date) -> str:
    if year is not None:
        return f"{year if len(year) == 4 else '20' + year}-{month:02}-{day:02}"
    try:
        is_next_year = today - date(today.year, month, day) > ROLL_OVER
    except ValueError:
        is_next_year = False
    return f"{today.year + is_next_year}-{month:02}-{day:02}"


def _next_day_of_month(day: int, today: date) -> str:
    """Return the next day of that number, in a month that has it."""
    first = today.replace(day=1)
    for _ in range(3):
        if first + timedelta(days=day - 1) >= today and _has(first, day):
            break
        first = (first + timedelta(days=32)).replace(day=1)
    return f"{first.year}-{first.month:02}-{day:02}"


def _has(month: date, day: int) -> bool:
    return (month + timedelta(days=day - 1)).month == month.month and day > 0
