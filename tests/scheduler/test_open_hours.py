"""Open hours: when customers may be written to, by their own clock."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.open_hours import MIDNIGHT, OpenHours, instant

MADRID, BOGOTA = ZoneInfo("Europe/Madrid"), ZoneInfo("America/Bogota")
NINE_TO_SEVEN = {day: ((time(9), time(19)),) for day in range(5)}
OFFICE = OpenHours({**NINE_TO_SEVEN, 5: ((time(10), time(14)),)}, frozenset({date(2026, 12, 25)}))


def local(words: str, zone: ZoneInfo = MADRID) -> datetime:
    return datetime.fromisoformat(words).replace(tzinfo=zone)


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        ("2026-12-01 09:00", "2026-12-01 09:00"),
        ("2026-12-01 18:59:59", "2026-12-01 18:59:59"),
        ("2026-12-01 19:00", "2026-12-02 09:00"),
        ("2026-12-01 23:30", "2026-12-02 09:00"),
        ("2026-12-02 01:00", "2026-12-02 09:00"),
        ("2026-12-05 14:00", "2026-12-07 09:00"),  # Saturday afternoon, over a quiet Sunday
        ("2026-12-06 10:00", "2026-12-07 09:00"),
        ("2026-12-24 20:00", "2026-12-26 10:00"),  # a day off, and then a Saturday
    ],
)
def test_what_falls_where_it_is_closed_waits_for_the_next_open_hour(at: str, opens: str) -> None:
    assert OFFICE.next_open(local(at), MADRID) == local(opens)


def test_hours_are_those_of_whoever_is_written_to() -> None:
    at = local("2026-12-01 09:30")  # half past three in the morning in Bogota
    assert OFFICE.is_open(at, MADRID)
    assert OFFICE.next_open(at, BOGOTA) == local("2026-12-01 09:00", BOGOTA)


def test_without_hours_it_is_always_open_but_on_days_off() -> None:
    hours = OpenHours(days_off=[date(2026, 12, 25)])
    assert hours.is_open(local("2026-12-06 03:00"), MADRID)
    assert hours.is_open(local("2026-12-24 23:59:59.999999"), MADRID)
    assert hours.next_open(local("2026-12-25 00:00"), MADRID) == local("2026-12-26 00:00")


def test_an_hour_that_the_clocks_skip_opens_when_it_is_over() -> None:
    hours = OpenHours({6: ((time(2, 30), time(4)),)})
    assert hours.next_open(local("2026-03-29 01:00"), MADRID) == local("2026-03-29 03:30")
    only_there = OpenHours({6: ((time(2), time(3)),)})  # it is skipped whole on that day
    assert only_there.next_open(local("2026-03-29 01:00"), MADRID) == local("2026-04-05 02:00")


def test_what_is_never_open_has_no_next_hour() -> None:
    assert OpenHours({}).next_open(local("2026-12-01 09:00"), MADRID) is None
    assert OpenHours({}).at_or_before(local("2026-12-01 09:00"), time(9), MADRID) is None


@pytest.mark.parametrize(
    ("before", "wanted", "is_at"),
    [
        ("2026-12-07 00:00", "10:30", "2026-12-05 10:30"),
        ("2026-12-07 00:00", "18:00", "2026-12-05 13:59"),
        ("2026-12-26 00:00", "08:00", "2026-12-24 09:00"),
        ("2026-12-05 10:00", "12:00", "2026-12-04 12:00"),
    ],
)
def test_what_must_come_before_comes_on_the_last_open_day_at_its_time_or_near_it(
    before: str, wanted: str, is_at: str
) -> None:
    assert OFFICE.at_or_before(local(before), time.fromisoformat(wanted), MADRID) == local(is_at)


def test_business_days_are_those_on_which_it_is_open() -> None:
    assert OFFICE.business_days(date(2026, 12, 28), -1) == date(2026, 12, 26)
    assert OFFICE.business_days(date(2026, 12, 28), -2) == date(2026, 12, 24)
    assert OFFICE.business_days(date(2026, 12, 24), 3) == date(2026, 12, 29)
    assert OFFICE.business_days(date(2026, 12, 25), 0) == date(2026, 12, 25)
    with pytest.raises(OverflowError):
        OpenHours({}).business_days(date(2026, 12, 25), 1)


SPANS = st.lists(st.integers(0, 48), min_size=2, max_size=4, unique=True).map(
    lambda marks: tuple(
        (_half_hour(start), _half_hour(end))
        for start, end in zip(sorted(marks)[::2], sorted(marks)[1::2], strict=False)
    )
)


def _half_hour(number: int) -> time:
    return MIDNIGHT if number == 48 else time(number // 2, number % 2 * 30)


@given(
    st.dictionaries(st.integers(0, 6), SPANS, min_size=1),
    st.integers(0, 16 * 24 * 60).map(lambda minutes: datetime(2026, 3, 20, tzinfo=UTC) + timedelta(minutes=minutes)),
    st.sampled_from([MADRID, BOGOTA, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kathmandu")]),
)
def test_the_next_open_hour_is_open_and_nothing_before_it_is(
    weekly: dict[int, object], start: datetime, zone: ZoneInfo
) -> None:
    hours = OpenHours(weekly)  # type: ignore[arg-type]
    opens = hours.next_open(start, zone)
    assert opens is not None
    assert hours.is_open(opens, zone)
    between = min(opens - start, timedelta(days=8))
    for number in range(int(between / timedelta(minutes=15))):
        assert not hours.is_open(start + number * timedelta(minutes=15), zone)


def test_a_wall_time_that_comes_twice_means_the_first() -> None:
    assert instant(date(2026, 10, 25), time(2, 30), MADRID) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
