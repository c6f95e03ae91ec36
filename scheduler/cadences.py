"""Cadences: when, around the day something is due, its steps come. Pure: knows days and times, and nothing of what is said.

A step stands at an offset from the due day, at a local time of whoever is written to. Offsets count days, weeks, calendar
months and years, or business days (`-42d`, `-2w`, `-1 month`, `+1y`, `-5bd`). A month back from a day that the other month has
not is its last one: from 31 March it is the last of February. A step whose time falls where nobody is written to moves to the
next open hour; one that must not come after the due day moves to the last open day before.
"""

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from scheduler.errors import BadOffset
from scheduler.open_hours import DAY, OpenHours, instant

Unit = Literal["day", "week", "month", "year", "business day"]
Past = Literal["skip", "latest", "all"]
"""What becomes of steps that are past when a renewal is enrolled: none is made up for, the latest, or all of them."""

_OFFSET = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<count>\d{1,4})\s*"
    r"(?:(?P<day>d|days?)|(?P<week>w|weeks?)|(?P<month>mo|months?)|(?P<year>y|years?)|(?P<business>bd|business days?))",
    re.IGNORECASE | re.ASCII,
)
_SHORT: dict[Unit, str] = {"day": "d", "week": "w", "month": "mo", "year": "y", "business day": "bd"}
FURTHEST = 3660
"""Days from the due day, either way."""


@dataclass(frozen=True, slots=True)
class Offset:
    """So far from the due day; before it where the count is negative."""

    count: int
    unit: Unit

    @property
    def text(self) -> str:
        """How it is written, the same for all ways of writing it."""
        return f"{self.count:+d}{_SHORT[self.unit]}" if self.count else "0d"

    def day(self, due: date, hours: OpenHours) -> date:
        """Return the day it means. Raises OverflowError for a day that is in no calendar."""
        if self.unit == "business day":
            return hours.business_days(due, self.count)
        if self.unit in ("day", "week"):
            return due + self.count * (7 if self.unit == "week" else 1) * DAY
        months = due.year * 12 + due.month - 1 + self.count * (12 if self.unit == "year" else 1)
        year, month = divmod(months, 12)
        if not date.min.year <= year <= date.max.year:
            raise OverflowError("there is no such year")
        return date(year, month + 1, min(due.day, calendar.monthrange(year, month + 1)[1]))


def offset(given: str) -> Offset:
    """Return the offset that a text means. Raises BadOffset."""
    found = _OFFSET.fullmatch(given.strip())
    if found is None:
        raise BadOffset(
            f"{given[:40]!r} is no offset: write a number of days, weeks, months, years or business days before or after the"
            " due day, such as -6w, -3d, 0d, +7d, -1mo or -5bd"
        )
    units: dict[str, Unit] = {
        "day": "day",
        "week": "week",
        "month": "month",
        "year": "year",
        "business": "business day",
    }
    unit = next(units[name] for name in units if found[name])
    count = int(found["count"]) * (-1 if found["sign"] == "-" else 1)
    days = {"day": 1, "week": 7, "month": 31, "year": 366, "business day": 1}[unit]
    if abs(count) * days > FURTHEST:
        raise BadOffset(f"{given[:40]!r} is more than {FURTHEST:,} days from the due day")
    return Offset(count, unit)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cadence: what it is called, when it comes."""

    name: str
    offset: Offset
    at: time
    """The local time."""
    by_due: bool = False
    """Whether it must not come after the due day."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A step of one renewal, and when it comes (UTC)."""

    step: Step
    at: datetime


def plan(
    steps: Sequence[Step], due: date, zone: ZoneInfo, hours: OpenHours, now: datetime, *, past: Past = "skip"
) -> list[Planned]:
    """Return when the steps of a renewal come that is due on a day, those to come and, as `past` says, of those that are past.

    In the order of their times. A step that cannot come (no open hour, no such day) is not among them.
    """
    all_of_them = sorted((one for step in steps if (one := _when(step, due, zone, hours))), key=lambda one: one.at)
    to_come = [one for one in all_of_them if one.at > now]
    gone = [one for one in all_of_them if one.at <= now and not (one.step.by_due and _is_over(due, zone, now))]
    made_up = {"skip": [], "latest": gone[-1:], "all": gone}[past]
    soon = hours.next_open(now, zone)
    return [Planned(one.step, soon) for one in made_up if soon is not None] + to_come


def _when(step: Step, due: date, zone: ZoneInfo, hours: OpenHours) -> Planned | None:
    try:
        wanted = instant(step.offset.day(due, hours), step.at, zone)
        at = hours.next_open(wanted, zone)
        if step.by_due and (at is None or _is_over(due, zone, at)):
            at = hours.at_or_before(instant(due + DAY, time(), zone), step.at, zone)
    except (OverflowError, ValueError):
        return None
    return None if at is None else Planned(step, at)


def _is_over(due: date, zone: ZoneInfo, at: datetime) -> bool:
    """Tell whether the due day has passed at an instant."""
    return at.astimezone(zone).date() > due


def next_day(at: datetime, zone: ZoneInfo) -> datetime:
    """Return when the day after an instant begins in a zone (UTC)."""
    return instant(at.astimezone(zone).date() + timedelta(days=1), time(), zone).astimezone(UTC)
