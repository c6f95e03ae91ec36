"""Cron expressions, each with what it allows, found out here and not by the product."""

import random

from tests.zones.oracle import Fields


def an_expression(random: random.Random, near: int | None = None) -> tuple[str, Fields]:
    """Return an expression and its meaning; `near` is an hour that it should often be about."""
    minute, minutes = _field(random, 0, 59, None)
    hour, hours = _field(random, 0, 23, near)
    day, days = _rare(random, 1, 31)
    month, months = _rare(random, 1, 12)
    weekday, weekdays = _rare(random, 0, 7)
    fields = Fields(
        frozenset(minutes),
        frozenset(hours),
        frozenset(days),
        frozenset(months),
        frozenset(number % 7 for number in weekdays),
        (hour.startswith("*"), day.startswith("*"), weekday.startswith("*")),
    )
    return f"{minute} {hour} {day} {month} {weekday}", fields


def _rare(random: random.Random, first: int, last: int) -> tuple[str, set[int]]:
    return ("*", set(range(first, last + 1))) if random.random() < 0.7 else _field(random, first, last, None)


def _field(random: random.Random, first: int, last: int, near: int | None) -> tuple[str, set[int]]:
    kind = random.randrange(6)
    if kind == 0:
        return "*", set(range(first, last + 1))
    if kind == 1:
        step = random.randint(1, last)
        return f"*/{step}", set(range(first, last + 1, step))
    begin = near if near is not None and random.random() < 0.7 else random.randint(first, last)
    if kind == 2 and begin < last:
        end, step = random.randint(begin + 1, last), random.randint(1, 7)
        return f"{begin}-{end}/{step}", set(range(begin, end + 1, step))
    if kind == 3:
        end = random.randint(begin, last)
        return f"{begin}-{end}", set(range(begin, end + 1))
    if kind == 4:
        other = random.randint(first, last)
        return f"{begin},{other}", {begin, other}
    return str(begin), {begin}
