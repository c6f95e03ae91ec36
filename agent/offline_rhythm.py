"""How the offline model reads what repeats: a rhythm, and what `schedule_recurring` is asked for.

A rhythm is one of these texts: `weekday 1` or `weekday 1-5` or `weekday 6,0`, as cron numbers them; `day`, `week`, `month` or
`year`; `date 1`, a day of every month; `2 hours`, elapsed time; a part of the day may stand behind it. What is none of
them (every third month) is an empty text.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime

from agent.offline_time_words import TimeWords


@dataclass(frozen=True, slots=True)
class Recurring:
    """What repeats, in the words of the tool."""

    cron: str | None = None
    every: str | None = None
    until: str | None = None
    times: int | None = None


def rhythm(phrase: str, words: TimeWords) -> str:
    """Return the rhythm that a folded phrase such as "every 2 hours" means, or an empty text."""
    if words.working.search(phrase):
        return "weekday 1-5"
    tokens = re.findall(r"[0-9]+|[a-z]+", phrase)
    known = next((words.rhythms[token] for token in tokens if token in words.rhythms), None)
    part = next((words.parts[token] for token in _singular(tokens) if token in words.parts), "")
    if known is not None or part:
        return f"{known or 'day'} {'night' if 'night' in _singular(tokens) else part}".strip()
    number = next((_count(token, words) for token in tokens[1:-1] if _count(token, words)), 1)
    unit = words.units.get(tokens[-1])
    if unit is None:
        weekday = next(
            (words.weekdays[token[:3]] for token in tokens if len(token) > 3 and token[:3] in words.weekdays), None
        )
        return "" if weekday is None or number > 1 else f"weekday {(weekday + 1) % 7}"
    if not all(_is_filler(token, words) for token in tokens[:-1]):
        return ""
    if unit in ("second", "minute", "hour") or (unit in ("day", "week") and number > 1):
        return f"{number} {unit}s"
    return unit if number == 1 else ""


_FILLERS = frozenset(
    ["every", "each", "single", "cada", "todos", "todas", "los", "las", "todo", "toda", "os", "as", "a"]
)


def _is_filler(token: str, words: TimeWords) -> bool:
    return token in _FILLERS or _count(token, words) > 0


def _count(word: str, words: TimeWords) -> int:
    """Return the number that a word stands for; 0 for none."""
    if word.isdecimal():
        return int(word[:6])
    return {"other": 2, "a": 0}.get(word, words.numbers.get(word, 0))


def _singular(tokens: list[str]) -> list[str]:
    return [token.removesuffix("s") for token in tokens]


def recurring(told: str, clock: str | None, weekdays: list[int], dates: list[date], now: datetime) -> Recurring | None:
    """Return what a rhythm asks for, with the time of day and the days beside it; None where it cannot be booked.

    `weekdays` are numbered as in cron. Without a clock where one is needed its `cron` and `every` are both None.
    """
    kind, _, value = told.partition(" ")
    if kind.isdecimal():
        return Recurring(every=told) if clock is None else None
    days = sorted(set(weekdays))
    fields = {
        "day": "* * *",
        "date": f"{value} * *",
        "weekday": f"* * {value}",
        "week": f"* * {_listed(days or [now.isoweekday() % 7])}",
        "month": f"{dates[0].day} * *" if dates else None,
        "year": f"{dates[0].day} {dates[0].month} *" if dates else None,
    }.get(kind)
    if fields is None:
        return None
    if kind == "weekday" and days and value.isdecimal():
        fields = f"* * {_listed(sorted({int(value), *days}))}"
    if clock is None:
        return Recurring()
    hour, _, minute = clock.partition(":")
    return Recurring(cron=f"{int(minute)} {int(hour)} {fields}")


def _listed(days: list[int]) -> str:
    return ",".join(str(day) for day in days)
