"""Durations and local times, as people and models write them.

A duration is elapsed time, whatever the clocks do. A local time is wall time in a named zone: one that the clocks skip
is moved forward by the length of the gap, one that happens twice means the first (RFC 5545, section 3.3.5). A time that
is past, or further away than may be booked, is refused with the present in the message, so that whoever asked can ask
better.
"""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from scheduler.errors import BadTime
from store.durations import read_duration

LONGEST_LEAD = timedelta(days=400)
SHORT = "%Y-%m-%d %H:%M:%S"


def duration(given: str | float, longest: timedelta = LONGEST_LEAD) -> timedelta:
    """Return the duration that a text (`2h`, `1h30m`, `10 seconds`) or a number of seconds means.

    Raises BadTime for what is not one, is negative, or is longer than may be booked.
    """
    try:
        total = read_duration(given)
    except ValueError as problem:
        raise BadTime(str(problem)) from problem
    except OverflowError:
        total = timedelta.max
    if total > longest:
        words = str(given).strip().lower()[:60]
        raise BadTime(f"{words!r} is longer than {longest.days} days, the longest that can be booked")
    return total


_LOCAL = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})[ t]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")


def local_instant(given: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the instant (UTC) of a wall time `2026-12-01 09:30` in a zone.

    Raises BadTime, with the present in it, for what is not such a time, is past, or is too far away.
    """
    present = f"it is now {now.astimezone(zone):{SHORT}} in {zone.key}"
    found = _LOCAL.fullmatch(given.strip().lower())
    if found is None:
        raise BadTime(f"{given[:60]!r} is not a local date and time such as 2026-12-01 09:30; {present}")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    try:
        wall = datetime(year, month, day, hour, minute, second, tzinfo=zone)
        # When clocks go back an hour comes twice: the first is meant, or the second once the first is past.
        instant = next((at for at in (wall.astimezone(UTC), wall.replace(fold=1).astimezone(UTC)) if at > now), None)
    except (ValueError, OverflowError) as problem:
        raise BadTime(f"{given[:60]!r} is not a date and time that exists; {present}") from problem
    if instant is None:
        raise BadTime(f"{given} is past: {present}")
    if instant - now > LONGEST_LEAD:
        raise BadTime(f"{given} is more than {LONGEST_LEAD.days} days away, the longest that can be booked; {present}")
    return instant


_NO_NAME = re.compile(r"(posix|right)/|(localtime|posixrules|Factory)$")


def known_zone(name: str | None) -> ZoneInfo | None:
    """Return the zone of an IANA name, or None for what is not one.

    What is not is also what tz databases bring along: this machine's own zone, and those that count leap seconds.
    """
    try:
        return ZoneInfo(name) if name and not _NO_NAME.match(name) else None
    except (KeyError, ValueError, OSError):
        return None
