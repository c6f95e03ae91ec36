"""When a schedule comes: by cron, every so often, or once. Each has a text, which is what is stored and compared.

TZ=Europe/Madrid 0 9 * * 1-5      cron, in a zone
every 900s                        every so often: slots on a grid from the first on, which does not drift
in 7200s                          once
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from scheduler.cron import Cron, parse
from scheduler.errors import BadSchedule
from scheduler.when import known_zone
from store.durations import read_duration

SHORTEST = timedelta(seconds=1)
"""Of an interval: more often than a second is no schedule."""
LONGEST = timedelta(days=36_525)
_FORM = re.compile(r"TZ=(?P<zone>\S+) (?P<cron>.+)|every (?P<every>[0-9.]+)s|in (?P<once>[0-9.]+)s")


class Recurrence(Protocol):
    """What a schedule's times are."""

    @property
    def text(self) -> str:
        """What is stored; two with the same text come at the same times."""

    def first(self, now: datetime) -> datetime:
        """Return the first time, for one that is planned now; aware, UTC."""

    def after(self, slot: datetime, at: datetime) -> datetime | None:
        """Return the first time after `at`, not before it, on the grid of a `slot`; None where there is none any more."""


@dataclass(frozen=True, slots=True)
class ByCron:
    """Wall times in a zone."""

    cron: Cron

    @property
    def text(self) -> str:
        return f"TZ={self.cron.zone.key} {self.cron.expression}"

    def first(self, now: datetime) -> datetime:
        return self.cron.next_run(now).at

    def after(self, slot: datetime, at: datetime) -> datetime | None:
        return self.cron.next_run(max(slot, at)).at


@dataclass(frozen=True, slots=True)
class Every:
    """Elapsed time, whatever the clocks do."""

    interval: timedelta

    @property
    def text(self) -> str:
        return f"every {_seconds(self.interval)}s"

    def first(self, now: datetime) -> datetime:
        return now + self.interval

    def after(self, slot: datetime, at: datetime) -> datetime | None:
        return slot + max((at - slot) // self.interval + 1, 1) * self.interval


@dataclass(frozen=True, slots=True)
class Once:
    """One time, so long after it was planned first."""

    delay: timedelta

    @property
    def text(self) -> str:
        return f"in {_seconds(self.delay)}s"

    def first(self, now: datetime) -> datetime:
        return now + self.delay

    def after(self, slot: datetime, at: datetime) -> datetime | None:
        return None


def slots_until(recurrence: Recurrence, slot: datetime, until: datetime) -> Iterator[datetime]:
    """Yield a slot and those after it that are not later than `until`."""
    following: datetime | None = slot
    while following is not None and following <= until:
        yield following
        following = recurrence.after(slot, following)


def by_cron(expression: str, zone: str) -> ByCron:
    """Return what comes at wall times. Raises BadSchedule for an expression that can never fire, or an unknown zone."""
    return ByCron(parse(expression, zone_called(zone)))


def every(interval: str | float | timedelta) -> Every:
    """Return what comes every so often. Raises BadSchedule for less than a second or more than a hundred years."""
    length = _length(interval, "an interval")
    if length < SHORTEST:
        raise BadSchedule(f"{interval!r} is too short for an interval: at least a second")
    return Every(length)


def once(delay: str | float | timedelta) -> Once:
    """Return what comes once, after so long; after nothing is now. Raises BadSchedule for what is no delay."""
    return Once(_length(delay, "a delay"))


def read(stored: str) -> Recurrence:
    """Read the text of one. Raises BadSchedule for what is none, or was made in a zone that is not known here."""
    found = _FORM.fullmatch(stored)
    if found is None:
        raise BadSchedule(f"{stored[:60]!r} is no schedule")
    if found["cron"]:
        return by_cron(found["cron"], found["zone"])
    # As they stand: a number of few microseconds would be written with an exponent.
    return every(f"{found['every']}s") if found["every"] else once(f"{found['once']}s")


def zone_called(name: str) -> ZoneInfo:
    """Return a zone by its IANA name. Raises BadSchedule for one that is not known here."""
    zone = known_zone(name)
    if zone is None:
        raise BadSchedule(f"{name[:60]!r} is not a time zone known here: write an IANA name such as Europe/Madrid")
    return zone


def _length(given: str | float | timedelta, what: str) -> timedelta:
    if isinstance(given, bool) or not isinstance(given, str | int | float | timedelta):
        raise BadSchedule(f"{given!r} is not {what}: write 30s, 1h30m, a number of seconds or a timedelta")
    try:
        length = given if isinstance(given, timedelta) else read_duration(given)
    except ValueError as problem:
        raise BadSchedule(str(problem)) from problem
    except OverflowError:
        length = timedelta.max
    if length < timedelta() or length > LONGEST:
        raise BadSchedule(f"{str(given)[:60]!r} is not {what}: it must be between nothing and a hundred years")
    return length


def _seconds(length: timedelta) -> str:
    whole, rest = divmod(length, timedelta(seconds=1))
    return f"{whole}.{rest.microseconds:06d}".rstrip("0").rstrip(".") if rest else str(whole)
