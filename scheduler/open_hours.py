"""Open hours: when a business writes to customers by itself, by the clock of whoever is written to.

Weekly hours and days off are local wall time, so they stay what they are when clocks change. An hour that the clocks skip is
simply not there; one that comes twice is open twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

LOOKED_AT = 400
"""Days that are looked at for an open hour, both ways."""
MIDNIGHT = time(23, 59, 59, 999_999)
"""What a span that goes on to midnight ends with."""
DAY = timedelta(days=1)

Span = tuple[time, time]
"""From when to when on one day; the end is not in it, but for MIDNIGHT, which is."""


@dataclass(frozen=True, slots=True)
class OpenHours:
    """Weekly spans, and days on which none of them counts."""

    weekly: Mapping[int, Sequence[Span]] = field(
        default_factory=lambda: {day: ((time(), MIDNIGHT),) for day in range(7)}
    )
    """By weekday, 0 is Monday; the spans of a day in their order. A day that is not there is closed."""
    days_off: Collection[date] = frozenset()

    def spans(self, day: date) -> Sequence[Span]:
        """Return the spans of one day."""
        return () if day in self.days_off else self.weekly.get(day.weekday(), ())

    def is_open(self, at: datetime, zone: ZoneInfo) -> bool:
        """Tell whether it is open at an instant, in a zone."""
        local = at.astimezone(zone)
        now = local.timetz().replace(tzinfo=None, fold=0)
        return any(start <= now < end or now == end == MIDNIGHT for start, end in self.spans(local.date()))

    def next_open(self, at: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first instant (UTC), not before `at`, at which it is open; None where there is none within LOOKED_AT days."""
        if self.is_open(at, zone):
            return at.astimezone(UTC)
        first = at.astimezone(zone).date()
        for number in range(LOOKED_AT):
            day = first + number * DAY
            for start, _ in self.spans(day):
                opens = instant(day, start, zone)
                if opens >= at and self.is_open(opens, zone):
                    return opens
        return None

    def at_or_before(self, at: datetime, wanted: time, zone: ZoneInfo) -> datetime | None:
        """Return an open instant before `at`, on the last open day there: at the time that is wanted, or the nearest to it."""
        last = at.astimezone(zone).date()
        for number in range(LOOKED_AT):
            day = last - number * DAY
            near = [instant(day, min(max(wanted, start), _just_before(end)), zone) for start, end in self.spans(day)]
            if earlier := [one for one in near if one < at and self.is_open(one, zone)]:
                target = instant(day, wanted, zone)
                return min(earlier, key=lambda one: abs(one - target))
        return None

    def business_days(self, day: date, count: int) -> date:
        """Return the day that is `count` open days after a day, or before it where the count is negative; of 0 the day itself.

        Raises OverflowError where there are not so many within LOOKED_AT days for each.
        """
        step, left = (DAY if count > 0 else -DAY), abs(count)
        for _ in range(LOOKED_AT * max(left, 1)):
            if left == 0:
                return day
            day += step
            left -= bool(self.spans(day))
        raise OverflowError("there are not as many open days")


def instant(day: date, at: time, zone: ZoneInfo) -> datetime:
    """Return the instant (UTC) of a wall time; one that the clocks skip is moved on by the gap, of one that comes twice the first is meant.

    That is RFC 5545, section 3.3.5.
    """
    return datetime.combine(day, at, tzinfo=zone).astimezone(UTC)


def _just_before(end: time) -> time:
    """Return the last whole minute of a span."""
    return time(23, 59) if end == MIDNIGHT else (datetime.combine(date.min + DAY, end) - timedelta(minutes=1)).time()
