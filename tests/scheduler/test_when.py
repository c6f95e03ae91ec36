"""Durations and local times."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import BadTime
from scheduler.when import LONGEST_LEAD, duration, known_zone, local_instant

MADRID = ZoneInfo("Europe/Madrid")
NOW = datetime(2026, 11, 29, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("3w", timedelta(weeks=3)),
        ("1h30m", timedelta(minutes=90)),
        ("1w2d3h4m5s", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("1 hour, 30 minutes", timedelta(minutes=90)),
        ("1 hour and 30 mins", timedelta(minutes=90)),
        (" 10 Seconds ", timedelta(seconds=10)),
        ("2 weeks", timedelta(weeks=2)),
        ("1 hr", timedelta(hours=1)),
        ("90", timedelta(seconds=90)),
        (90, timedelta(seconds=90)),
        (0.5, timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("0.0000001s", timedelta()),
        ("0", timedelta()),
        (0, timedelta()),
        ("400 days", LONGEST_LEAD),
        ("9600h", LONGEST_LEAD),
    ],
)
def test_a_duration_means_what_people_mean_by_it(words: str | float, meant: timedelta) -> None:
    assert duration(words) == meant


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "an empty text"),
        ("   ", "an empty text"),
        ("-5m", "'-5m' is negative"),
        (-5, "'-5' is negative"),
        ("five minutes", "'five minutes' in 'five minutes' is not a part"),
        ("5 parsecs", "'parsecs' in '5 parsecs' is not a unit"),
        ("2h 5 parsecs", "'parsecs'"),
        ("1000 years", "'years' in '1000 years' is not a unit"),
        ("2 months", "'months'"),
        ("1h soon", "'soon' in '1h soon' is not a part"),
        ("1h -5m", "'-5m' in '1h -5m' is not a part"),
        ("30m1h", "'30m1h' must go from the largest to the smallest"),
        ("1h 1h", "'1h 1h' must go from the largest to the smallest unit, each once"),
        ("1h 30", "'30' in '1h 30' lacks its unit"),
        ("1 2h", "'1' in '1 2h' lacks its unit"),
        ("401d", "'401d' is longer than 400 days"),
        ("400d 1s", "longer than 400 days"),
        ("99999999999999 h", "'99999999999999 h' is longer than 400 days"),
        ("9" * 59 + "w", "longer than 400 days"),
        (10**12, "longer than 400 days"),
        ("nan", "'nan'"),
        (float("nan"), "'nan'"),
        ("inf", "'inf'"),
        (float("inf"), "'inf'"),
        (float("-inf"), "negative"),
        (1e300, "1e+300"),
        ("5m " * 1000, "too long for a duration"),
        ("1:30", "'1' in '1:30' lacks its unit"),
        ("2026-12-01 09:30", "2026"),
        ("½h", "'½h'"),
    ],
)
def test_what_is_no_duration_is_refused_and_the_part_that_is_wrong_is_named(words: str | float, named: str) -> None:
    with pytest.raises(BadTime) as refused:
        duration(words)
    assert named in str(refused.value)
    assert len(str(refused.value)) < 300


ALMOST = st.lists(
    st.one_of(
        st.sampled_from(["h", "m", "s", "d", "w", "hours", "and", ",", " ", ".", "-", "e", "٣", "İ", "\x00", "\ud800"]),
        st.integers(0, 10**15).map(str),
    ),
    max_size=12,
).map("".join)


@given(st.one_of(st.text(), ALMOST, st.floats(), st.integers(-(10**20), 10**20)))
def test_whatever_is_given_is_a_duration_that_can_be_booked_or_a_bad_time(words: str | float) -> None:
    try:
        meant = duration(words)
    except BadTime:
        return
    assert timedelta() <= meant <= LONGEST_LEAD


@given(st.integers(0, 9600), st.integers(0, 59), st.integers(0, 59))
def test_a_duration_written_out_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int) -> None:
    meant = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if meant <= LONGEST_LEAD:
        assert duration(f"{hours}h{minutes}m{seconds}s") == meant
        assert duration(f"{hours} hours, {minutes} minutes and {seconds} seconds") == meant
    assert duration(seconds) == duration(str(seconds)) == duration(f"{seconds}s")


@pytest.mark.parametrize(
    ("zone", "wall", "instant"),
    [
        ("Europe/Madrid", "2026-12-01 09:30", "2026-12-01T08:30:00"),
        ("Europe/Madrid", "2027-07-01 09:30", "2027-07-01T07:30:00"),
        ("America/Bogota", "2026-12-01 09:30:15", "2026-12-01T14:30:15"),
        ("America/Bogota", "2026-12-01T09:30", "2026-12-01T14:30:00"),
        ("America/Bogota", " 2026-12-1 9:30 ", "2026-12-01T14:30:00"),
        ("America/Bogota", "2026-12-01 09:30:15.999", "2026-12-01T14:30:15"),
        ("Asia/Kathmandu", "2026-12-01 09:30", "2026-12-01T03:45:00"),
        ("Pacific/Kiritimati", "2026-12-01 09:30", "2026-11-30T19:30:00"),
        ("UTC", "2027-02-28 23:59:59", "2027-02-28T23:59:59"),
    ],
)
def test_a_wall_time_is_an_instant_of_its_zone(zone: str, wall: str, instant: str) -> None:
    assert local_instant(wall, ZoneInfo(zone), NOW) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "wall", "becomes"),
    [
        ("Europe/Madrid", "2027-03-28 02:30", "03:30:00"),
        ("Europe/Madrid", "2027-03-28 02:00", "03:00:00"),
        ("America/Santiago", "2027-09-05 00:00", "01:00:00"),
        ("America/Santiago", "2027-09-05 00:30", "01:30:00"),
        ("Australia/Lord_Howe", "2027-10-03 02:15", "02:45:00"),
    ],
)
def test_a_wall_time_that_the_clocks_skip_moves_forward_by_the_gap(zone: str, wall: str, becomes: str) -> None:
    tz = ZoneInfo(zone)
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert f"{local_instant(wall, tz, now).astimezone(tz):%H:%M:%S}" == becomes


@pytest.mark.parametrize(
    ("zone", "wall", "instant"),
    [
        ("Europe/Madrid", "2027-10-31 02:30", "2027-10-31T00:30:00"),  # summer time, an hour before the second
        ("America/Santiago", "2027-04-03 23:30", "2027-04-04T02:30:00"),
        ("Australia/Lord_Howe", "2027-04-04 01:45", "2027-04-03T14:45:00"),
    ],
)
def test_a_wall_time_that_happens_twice_means_the_first(zone: str, wall: str, instant: str) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert local_instant(wall, ZoneInfo(zone), now) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


def test_a_wall_time_that_happens_twice_means_the_second_once_the_first_is_past() -> None:
    between = datetime(2026, 10, 25, 0, 45, tzinfo=UTC)
    assert local_instant("2026-10-25 02:30", MADRID, between) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    after = datetime(2026, 10, 25, 1, 45, tzinfo=UTC)
    with pytest.raises(BadTime, match=r"02:30 is past: it is now 2026-10-25 02:45:00 in Europe/Madrid"):
        local_instant("2026-10-25 02:30", MADRID, after)


@pytest.mark.parametrize("wall", ["2026-11-29 15:00", "2026-11-29 14:59:59", "2025-01-01 00:00", "0001-01-01 00:00"])
def test_a_wall_time_that_is_past_is_refused_with_the_present_and_its_zone(wall: str) -> None:
    with pytest.raises(BadTime, match="is past: it is now 2026-11-29 15:00:00 in Europe/Madrid"):
        local_instant(wall, MADRID, NOW)


@pytest.mark.parametrize("wall", ["2028-01-03 15:00:01", "2126-11-29 14:00", "9999-12-31 23:59"])
def test_a_wall_time_too_far_away_is_refused_with_the_limit_and_the_present(wall: str) -> None:
    with pytest.raises(BadTime, match=r"more than 400 days away.*it is now 2026-11-29 15:00:00 in Europe/Madrid"):
        local_instant(wall, MADRID, NOW)
    assert local_instant("2028-01-03 15:00:00", MADRID, NOW) == NOW + LONGEST_LEAD


@pytest.mark.parametrize(
    "wall",
    [
        "2027-02-29 10:00",
        "2026-13-01 10:00",
        "2026-12-32 10:00",
        "2026-12-01 24:00",
        "2026-12-01 10:60",
        "2026-12-01 10:00:61",
        "0000-01-01 00:00",
    ],
)
def test_a_date_that_does_not_exist_is_refused(wall: str) -> None:
    with pytest.raises(BadTime, match="not a date and time that exists; it is now 2026-11-29 15:00:00"):
        local_instant(wall, MADRID, NOW)


@pytest.mark.parametrize("wall", ["", "tomorrow at nine", "2026-12-01", "09:30", "2026-12-01 09:30Z", "2h", "x" * 500])
def test_what_is_no_wall_time_is_refused_with_the_present(wall: str) -> None:
    with pytest.raises(BadTime, match="such as 2026-12-01 09:30; it is now 2026-11-29 15:00:00") as refused:
        local_instant(wall, MADRID, NOW)
    assert len(str(refused.value)) < 250


ZONES = st.sampled_from(
    ["UTC", "Europe/Madrid", "America/Santiago", "Australia/Lord_Howe", "Pacific/Apia", "Etc/GMT+12"]
)


@given(
    st.one_of(st.text(), st.datetimes().map(str), st.from_regex(r"\d{1,5}-\d\d?-\d\d?[ Tt]+\d\d?:\d\d(:\d\d)?")), ZONES
)
def test_whatever_is_given_is_an_instant_that_can_be_booked_or_a_bad_time(wall: str, zone: str) -> None:
    try:
        instant = local_instant(wall, ZoneInfo(zone), NOW)
    except BadTime:
        return
    assert NOW < instant <= NOW + LONGEST_LEAD
    assert instant.tzinfo is UTC


FIRST, LAST = datetime.fromisoformat("2026-12-01"), datetime.fromisoformat("2027-12-31")


@given(st.datetimes(FIRST, LAST).map(lambda at: at.replace(microsecond=0)), ZONES)
def test_a_wall_time_that_exists_is_read_off_the_same_clock_at_that_instant(wall: datetime, zone: str) -> None:
    tz = ZoneInfo(zone)
    there = local_instant(str(wall), tz, NOW).astimezone(tz).replace(tzinfo=None)
    assert there - wall in (timedelta(), timedelta(minutes=30), timedelta(hours=1)), "itself, or moved over a gap"


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "Europe",
        "Madrid",
        "localtime",
        "posixrules",
        "posix/UTC",
        "right/UTC",
        "../etc/passwd",
        "/etc/passwd",
        "Europe/Madrid\x00",
        "x" * 5000,
        "\ud800",
    ],
)
def test_what_is_no_zone_is_none(name: str | None) -> None:
    assert known_zone(name) is None


def test_a_zone_is_known_by_its_name() -> None:
    assert known_zone("Australia/Lord_Howe") == ZoneInfo("Australia/Lord_Howe")
