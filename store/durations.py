"""Durations as people and models write them: elapsed time, whatever the clocks do."""

import re
from datetime import timedelta

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


def read_duration(given: str | float) -> timedelta:
    """Return the duration that a text (`2h`, `1h30m`, `10 seconds`) or a number of seconds means.

    Raises ValueError for what is not one or is negative, OverflowError for one of more than two million years.
    """
    if not isinstance(given, str) and given > timedelta.max.total_seconds():
        raise OverflowError(f"{given:g} seconds are more than a duration can be")
    words = f"{given:f}" if isinstance(given, float) and abs(given) < 1e-3 else str(given).strip().lower()
    if len(words) > 60:
        raise ValueError(f"{words[:60]!r}… is too long for a duration: {_EXAMPLES}")
    if words.startswith("-"):
        raise ValueError(f"{words!r} is negative: a delay lies in the future")
    total, place, rank = timedelta(), 0, "~"
    order = "wdhms"
    while place < len(words):
        piece = _PIECE.match(words, place)
        if piece is None:
            raise ValueError(f"{words[place:]!r} in {words!r} is not a part of a duration: {_EXAMPLES}")
        number, word = piece.groups()
        if word is None and (place > 0 or piece.end() < len(words)):
            raise ValueError(f"{number!r} in {words!r} lacks its unit: {_EXAMPLES}")
        unit = _WORDS.get(word or "s")
        if unit is None:
            raise ValueError(f"{word!r} in {words!r} is not a unit of time: {_EXAMPLES}")
        if rank != "~" and order.index(unit) <= order.index(rank):
            raise ValueError(f"the parts of {words!r} must go from the largest to the smallest unit, each once")
        total += _UNITS[unit] * float(number)
        place, rank = piece.end(), unit
    if place == 0:
        raise ValueError(f"an empty text is not a duration: {_EXAMPLES}")
    return total
