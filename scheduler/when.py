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

LONGEST_LEAD = timedelta(days=400)
SHORT = "%Y-%m-%d %H:%M:%S"

_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)?\s*(?:,|and\b)?\s*")
_EXAMPLES = "write for example 30s, 5m, 2h, 1d, 1h30m, 10 seconds or a number of seconds"


def duration(given: str | float) -> timedelta:
    """Return the duration that a text (`2h`, `1h30m`, `10 seconds`) or a number of seconds means.

    Raises BadTime for what is not one, is negative, or is longer than may be booked.
    """
    words = str(given).strip().lower()
    if len(words) > 60:
        raise BadTime(f"{words[:60]!r}… is too long for a duration: {_EXAMPLES}")
    if words.startswith("-"):
        raise BadTime(f"{words!r} is negative: a delay lies in the future")
    total, place, rank = timedelta(), 0, "~"
    order = "wdhms"
    while place < len(words):
        piece = _PIECE.match(words, place)
        if piece is None:
            raise BadTime(f"{words[place:]!r} in {words!r} is not a part of a duration: {_EXAMPLES}")
        number, word = piece.groups()
        if word is None and (place > 0 or piece.end() < len(words)):
            raise BadTime(f"{number!r} in {words!r} lacks its unit: {_EXAMPLES}")
        unit = _WORDS.get(word or "s")
        if unit is None:
            raise BadTime(f"{word!r} in {words!r} is not a unit of time: {_EXAMPLES}")
        if rank != "~" and order.index(unit) <= order.index(rank):
            raise BadTime(f"the parts of {words!r} must go from the largest to the smallest unit, each once")
        try:
            total += _UNITS[unit] * float(number)
        except OverflowError as problem:
            raise BadTime(
                f"{words!r} is longer than {LONGEST_LEAD.days} days, the longest that can be booked"
            ) from problem
        place, rank = piece.end(), unit
    if place == 0:
        raise BadTime(f"an empty text is not a duration: {_EXAMPLES}")
    if total > LONGEST_LEAD:
        raise BadTime(f"{words!r} is longer than {LONGEST_LEAD.days} days, the longest that can be booked")
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


def known_zone(name: str | None) -> ZoneInfo | None:
    """Return the zone of an IANA name, or None for what is not one."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None
