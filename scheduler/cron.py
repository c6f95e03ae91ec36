"""Cron expressions: five fields, read in a named zone, and what happens to them when the clocks change.

    minute (0-59)  hour (0-23)  day of month (1-31)  month (1-12, jan-dec)  weekday (0-7, sun-sat; 0 and 7 are Sunday)

A field is `*`, a number, a range (`1-5`), a step (`*/15`, `1-30/5`), or several of those between commas; a `*` with a step
counts from the field's lowest value. `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly` and `@yearly` (`@annually`)
stand for five fields. Where both day of month and weekday are restricted, a day of either is meant; where one of them begins
with `*`, only days of both (crontab(5)).

When clocks change (after RFC 5545, section 3.3.10, and `compatible` of Temporal):

| | a fixed hour, `30 2 * * *` | an hour that begins with `*`, `*/15 * * * *` |
|---|---|---|
| the local time is skipped | once, later by as much as is skipped: 02:30 becomes 03:30 | not at all |
| the local time comes twice | once, the first time | both times |

Day, weekday and month are those of the calendar day on which the time stands, even where it is moved past its end. Times
that fall together are one, and they are always strictly increasing.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from scheduler.errors import BadSchedule

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST_SEARCH = 12 * 366
"""Days. Whatever can fire does so within this: 29 February waits eight years around 2100, and days that are asked for both
by date and by weekday include the first of a month, which is on any weekday within eleven or twelve."""
_LAST_DAY = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_ITEM = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/([0-9]+))?")
_DAY = timedelta(days=1)


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: dict[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("weekday", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


class Run(NamedTuple):
    """One time at which an expression fires."""

    at: datetime
    """UTC."""
    is_moved: bool
    """Whether the local time it was meant for does not exist that day, so that it comes later."""


@dataclass(frozen=True)
class Cron:
    """An expression that can fire, read in a zone."""

    expression: str
    """Five fields with single spaces, as given; a macro stays one."""
    zone: ZoneInfo
    minutes: tuple[int, ...]
    """Minutes of the day, ascending."""
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    needs_both: bool
    """Whether a day must be of `days` and of `weekdays`, not of either."""
    is_any_hour: bool
    """Whether the hour begins with `*`."""

    def next_run(self, after: datetime) -> Run:
        """Return the first run after an instant (aware).

        Raises OverflowError beyond the year 9999.
        """
        after = after.astimezone(UTC)
        # The day before may reach past midnight, where the clocks skip it.
        day = after.astimezone(self.zone).date() - _DAY
        best: Run | None = None
        for _ in range(LONGEST_SEARCH):
            day = self._matching_day(day)
            offset = _offset_all_day(self.zone, day)
            run = self._first_of_plain(day, offset, after) if offset is not None else self._first_of(day, after)
            if run is not None and (best is None or run < best):  # of two at once, the one that is not moved
                best = run
            # What stands on a day of change may come later than the first of the next.
            if best is not None and offset is not None:
                return best
            day += _DAY
        if best is None:
            raise AssertionError(f"{self.expression} was taken for one that can fire")
        return best

    def runs(self, after: datetime) -> Iterator[Run]:
        """Yield the runs after an instant, one after another."""
        while True:
            run = self.next_run(after)
            yield run
            after = run.at

    def _matching_day(self, day: date) -> date:
        """Return the first day from this one on that is meant."""
        while True:
            if day.month not in self.months:
                day = (day.replace(day=1) + 32 * _DAY).replace(day=1)
                continue
            is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
            if (is_day and is_weekday) if self.needs_both else (is_day or is_weekday):
                return day
            day += _DAY

    def _first_of_plain(self, day: date, offset: timedelta, after: datetime) -> Run | None:
        """Return the first run after an instant on a day on which the clocks do not change."""
        midnight = datetime.combine(day, time(), UTC) - offset
        passed = (after - midnight) // timedelta(minutes=1)
        place = bisect_right(self.minutes, passed)
        return Run(midnight + timedelta(minutes=self.minutes[place]), False) if place < len(self.minutes) else None

    def _first_of(self, day: date, after: datetime) -> Run | None:
        """Return the first run after an instant on a day on which they do."""
        runs = _runs_on_change(self.minutes, self.is_any_hour, self.zone, day)
        place = bisect_right(runs, after, key=lambda run: run.at)
        return runs[place] if place < len(runs) else None


def parse(expression: str, zone: ZoneInfo) -> Cron:
    """Read an expression.

    Raises BadSchedule, naming the field, for what is none or can never fire.
    """
    words = expression.split()
    if len(words) == 1 and words[0].startswith("@"):
        written = MACROS.get(words[0].lower())
        if written is None:
            raise BadSchedule(f"{words[0][:40]!r} is not known; known are {', '.join(MACROS)}")
        fields = written.split()
    else:
        fields = words
    if len(fields) != len(_FIELDS):
        raise BadSchedule(
            f"{expression[:60]!r} has {len(fields)} fields, and cron has five: minute, hour, day of month, month, weekday"
        )
    minutes, hours, days, months, weekdays = (
        _read(field, given.lower(), expression) for field, given in zip(_FIELDS, fields, strict=True)
    )
    needs_both = fields[2].startswith("*") or fields[4].startswith("*")
    if needs_both and not any(day <= _LAST_DAY[month - 1] for day in days for month in months):
        raise BadSchedule(f"the day of month {fields[2]!r} in {expression[:60]!r} never comes in month {fields[3]!r}")
    return Cron(
        expression=" ".join(words),
        zone=zone,
        minutes=tuple(hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        needs_both=needs_both,
        is_any_hour=fields[1].startswith("*"),
    )


def _read(field: _Field, given: str, expression: str) -> set[int]:
    """Return the values that a field means."""

    def refuse(words: str) -> BadSchedule:
        return BadSchedule(f"the {field.name} {given[:40]!r} in {expression[:60]!r} {words}")

    def number(word: str) -> int:
        if word in field.names:
            return field.names[word]
        if not (word.isascii() and word.isdigit()):
            known = f" or a name such as {next(iter(field.names))}" if field.names else ""
            raise refuse(f"is none: {word[:20]!r} is not a number{known}")
        value = _number(word)
        if not field.first <= value <= field.last:
            raise refuse(f"can never come: it goes from {field.first} to {field.last}")
        return value

    values: set[int] = set()
    for item in given.split(","):
        found = _ITEM.fullmatch(item)
        if found is None:
            raise refuse("is none: write *, a number, a range 1-5, a step */15, or several with commas between")
        star, begin, end, step = found.groups()
        if step is not None and _number(step) == 0:
            raise refuse("has a step of 0, with which it never goes on")
        if star:
            first, last = field.first, field.last
        else:
            first = number(begin)
            last = number(end) if end is not None else first
            if step is not None and end is None:
                raise refuse(f"has a step without a range: write */{step} or {begin}-{field.last}/{step}")
        if first > last:
            raise refuse(f"has a range that runs backwards, {begin}-{end}: write two, with a comma between")
        values.update(range(first, last + 1, _number(step or "1")))
    return values


def _number(digits: str) -> int:
    """Return what is written, or something as much too large."""
    return int(digits.lstrip("0")[:9] or "0")


@functools.lru_cache(maxsize=4096)
def _offset_all_day(zone: ZoneInfo, day: date) -> timedelta | None:
    """Return the zone's offset on a day, or None where it changes on it."""
    midnight, end = datetime.combine(day, time(), zone), datetime.combine(day + _DAY, time(), zone)
    offsets = {at.replace(fold=fold).utcoffset() for at in (midnight, end) for fold in (0, 1)}
    return offsets.pop() if len(offsets) == 1 else None


@functools.lru_cache(maxsize=64)
def _runs_on_change(minutes: tuple[int, ...], is_any_hour: bool, zone: ZoneInfo, day: date) -> list[Run]:
    """Return all runs of a day on which the clocks change, in their order."""
    runs = []
    for minute in minutes:
        wall = datetime.combine(day, time(minute // 60, minute % 60), zone)
        # Skipped, the earlier offset still counts with fold=0: so it comes later by what is skipped. Twice, it is the first.
        first, second = wall.astimezone(UTC), wall.replace(fold=1).astimezone(UTC)
        is_skipped = first > second
        if not (is_any_hour and is_skipped):
            runs.append(Run(first, is_skipped))
        if is_any_hour and first < second:
            runs.append(Run(second, False))
    return sorted(runs)
