"""When cron fires, found by looking at every minute there is: slow, and written without a look at how the product does it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Fields:
    """What five fields allow, already as numbers; Sunday is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    stars: tuple[bool, bool, bool]
    """Whether hour, day of month and weekday begin with `*`."""

    def allow(self, wall: datetime) -> bool:
        """Tell whether a wall time is one that is meant."""
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        by_date, by_weekday = wall.day in self.days, (wall.weekday() + 1) % 7 in self.weekdays
        return (by_date and by_weekday) if self.stars[1] or self.stars[2] else (by_date or by_weekday)


Minutes = list[tuple[datetime, datetime]]
"""Instants (UTC), one after another, each with what the clock on the wall shows."""


def minutes_of(zone: ZoneInfo, start: datetime, end: datetime) -> Minutes:
    """Return the minutes of [start, end), and of two days before: what comes twice must be known, and what was skipped may
    reach in. Both are whole minutes in UTC."""
    first = start - timedelta(days=2)
    instants = (first + number * MINUTE for number in range((end - first) // MINUTE))
    return [(at, at.astimezone(zone).replace(tzinfo=None)) for at in instants]


def walk(fields: Fields, minutes: Minutes, start: datetime) -> list[datetime]:
    """Return every instant from `start` on at which the fields fire."""
    fired: set[datetime] = set()
    seen: set[datetime] = set()
    last: datetime | None = None
    for at, wall in minutes:
        if fields.stars[0]:
            if fields.allow(wall):
                fired.add(at)
        else:
            if last is not None and wall > last + MINUTE:
                skipped = last + MINUTE
                while skipped < wall:
                    if fields.allow(skipped):
                        fired.add(at + (skipped - last - MINUTE))
                    skipped += MINUTE
            if fields.allow(wall):
                if wall not in seen:
                    fired.add(at)
                seen.add(wall)
        last = wall
    return sorted(instant for instant in fired if start <= instant <= minutes[-1][0])


def changes(zone: ZoneInfo, first_year: int = 2000, last_year: int = 2037) -> Iterator[datetime]:
    """Yield the first minutes (UTC) of a new offset."""
    at, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year, 1, 1, tzinfo=UTC)
    step = timedelta(hours=6)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + step).astimezone(zone).utcoffset():
            before, after = at, at + step
            while after - before > MINUTE:
                middle = before + ((after - before) // 2 // MINUTE) * MINUTE
                if middle.astimezone(zone).utcoffset() == before.astimezone(zone).utcoffset():
                    before = middle
                else:
                    after = middle
            yield after
        at += step
