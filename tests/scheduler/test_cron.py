"""Cron: what an expression means, and what becomes of it when the clocks change."""

import random
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cron import MACROS, Cron, parse
from scheduler.errors import BadSchedule
from tests.zones.expressions import an_expression
from tests.zones.oracle import changes, minutes_of, walk

ZONES = sorted(available_timezones())
MADRID, NEW_YORK, BERLIN = ZoneInfo("Europe/Madrid"), ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")
SANTIAGO, LORD_HOWE, APIA = ZoneInfo("America/Santiago"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")
CASABLANCA, KATHMANDU = ZoneInfo("Africa/Casablanca"), ZoneInfo("Asia/Kathmandu")


def local_runs(expression: str, zone: ZoneInfo, start: str, count: int) -> list[str]:
    """The next runs after a local time, as the clock on the wall shows them, `>` before those that were moved."""
    after = datetime.fromisoformat(start).replace(tzinfo=zone) - timedelta(microseconds=1)
    return [
        f"{'>' if run.is_moved else ''}{run.at.astimezone(zone):%m-%d %H:%M%z}"
        for run in islice(parse(expression, zone).runs(after), count)
    ]


@pytest.mark.parametrize(
    ("expression", "zone", "start", "runs"),
    [
        # A fixed hour that the clocks skip comes later by what is skipped, once.
        ("30 2 * * *", MADRID, "2027-03-27", ["03-27 02:30+0100", ">03-28 03:30+0200", "03-29 02:30+0200"]),
        ("30 2 * * *", BERLIN, "2027-03-28", [">03-28 03:30+0200", "03-29 02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2027-03-14", [">03-14 03:30-0400", "03-15 02:30-0400"]),
        ("30 2 * * 0", MADRID, "2027-03-28", [">03-28 03:30+0200", "04-04 02:30+0200"]),
        # Where it falls on another of its times, both are one.
        ("30 2,3 * * *", MADRID, "2027-03-28", ["03-28 03:30+0200", "03-29 02:30+0200"]),
        # They stay in their order, though one is moved past another.
        ("0,15,40 2 * * *", LORD_HOWE, "2026-10-04", [">10-04 02:30+1100", "10-04 02:40+1100", ">10-04 02:45+1100"]),
        # One that comes twice is the first.
        ("30 2 * * *", MADRID, "2026-10-25", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-11-01", ["11-01 01:30-0400", "11-02 01:30-0500"]),
        ("45 1 * * *", LORD_HOWE, "2027-04-04", ["04-04 01:45+1100", "04-05 01:45+1030"]),
        # An hour that begins with a star goes by what the clock shows: skipped is skipped, twice is twice.
        ("30 * * * *", MADRID, "2027-03-28T01:00", ["03-28 01:30+0100", "03-28 03:30+0200"]),
        ("0 */2 * * *", MADRID, "2027-03-28T00:00", ["03-28 00:00+0100", "03-28 04:00+0200"]),
        ("30 * * * *", MADRID, "2026-10-25T02:00", ["10-25 02:30+0200", "10-25 02:30+0100", "10-25 03:30+0100"]),
        ("*/30 * * * *", LORD_HOWE, "2026-10-04T01:30", ["10-04 01:30+1030", "10-04 02:30+1100", "10-04 03:00+1100"]),
        ("*/30 * * * *", LORD_HOWE, "2027-04-04T01:30", ["04-04 01:30+1100", "04-04 01:30+1030", "04-04 02:00+1030"]),
        # Midnight is skipped in Santiago: at one, on that day.
        ("0 0 * * *", SANTIAGO, "2026-09-05", ["09-05 00:00-0400", ">09-06 01:00-0300", "09-07 00:00-0300"]),
        ("0 0 6 9 *", SANTIAGO, "2026-09-05", [">09-06 01:00-0300"]),
        ("0 0 * * 0", SANTIAGO, "2026-09-05", [">09-06 01:00-0300", "09-13 00:00-0300"]),
        ("30 23 * * *", SANTIAGO, "2026-04-04", ["04-04 23:30-0300", "04-05 23:30-0400"]),
        ("*/30 * * * *", SANTIAGO, "2026-09-05T23:30", ["09-05 23:30-0400", "09-06 01:00-0300"]),
        # A whole day is skipped in Apia: what stood on it falls on the next, once.
        ("0 9 * * *", APIA, "2011-12-29", ["12-29 09:00-1000", "12-31 09:00+1400", "01-01 09:00+1400"]),
        ("0 9 30 12 *", APIA, "2011-12-01", [">12-31 09:00+1400"]),
        # In Casablanca the clocks go back for Ramadan, and forward again.
        ("30 2 * * *", CASABLANCA, "2027-02-07", ["02-07 02:30+0100", "02-08 02:30+0000"]),
        ("30 2 * * *", CASABLANCA, "2027-03-13", ["03-13 02:30+0000", ">03-14 03:30+0100", "03-15 02:30+0100"]),
        # What comes on weekdays at nine stays at nine.
        ("0 9 * * 1-5", MADRID, "2026-10-23", ["10-23 09:00+0200", "10-26 09:00+0100"]),
        ("0 9 * * 1-5", MADRID, "2027-03-26", ["03-26 09:00+0100", "03-29 09:00+0200"]),
        # Quarters of an hour from Greenwich are nothing special.
        ("0 9 * * *", KATHMANDU, "2026-12-01", ["12-01 09:00+0545", "12-02 09:00+0545"]),
    ],
)
def test_when_the_clocks_change(expression: str, zone: ZoneInfo, start: str, runs: list[str]) -> None:
    assert local_runs(expression, zone, start, len(runs)) == runs


@pytest.mark.parametrize(
    ("expression", "runs"),
    [
        ("0 9 13 * 5", ["01-01 09:00", "01-08 09:00", "01-13 09:00", "01-15 09:00"]),  # the 13th, and every Friday
        ("0 9 */2 * 1", ["01-11 09:00", "01-25 09:00", "02-01 09:00"]),  # odd days that are Mondays
        ("0 9 1-7 * *", ["01-01 09:00", "01-02 09:00"]),
        ("0 0 * */3 *", ["01-01 00:00", "01-02 00:00"]),
        ("0 0 1 */3 *", ["01-01 00:00", "04-01 00:00", "07-01 00:00", "10-01 00:00"]),
        ("0 9 * * 1-5", ["01-01 09:00", "01-04 09:00"]),
        ("0 9 * * mon-FRI", ["01-01 09:00", "01-04 09:00"]),
        ("0 9 1 Feb,oct *", ["02-01 09:00", "10-01 09:00"]),
        ("0 9 * * 0", ["01-03 09:00"]),
        ("0 9 * * 7", ["01-03 09:00"]),
        ("0 9 * * 5-7", ["01-01 09:00", "01-02 09:00", "01-03 09:00", "01-08 09:00"]),
        ("1-30/5 0 * * *", ["01-01 00:01", "01-01 00:06"]),
        (" 5  4 * * * ", ["01-01 04:05"]),
        *[(macro, [f"01-{day} 00:00"]) for macro, day in (("@daily", "01"), ("@midnight", "01"), ("@weekly", "03"))],
        ("@hourly", ["01-01 00:00", "01-01 01:00"]),
        ("@Monthly", ["01-01 00:00", "02-01 00:00"]),
        *[(macro, ["01-01 00:00"]) for macro in ("@yearly", "@annually")],
    ],
)
def test_what_an_expression_means(expression: str, runs: list[str]) -> None:
    found = local_runs(expression, ZoneInfo("UTC"), "2027-01-01", len(runs))
    assert found == [f"{run}+0000" for run in runs]


def test_a_number_is_as_large_as_it_is_written_however_many_digits_it_has() -> None:
    assert parse("000000000059 * * * *", ZoneInfo("UTC")).minutes[0] == 59
    assert parse("*/0000000020 0 * * *", ZoneInfo("UTC")).minutes == (0, 20, 40)
    assert parse(f"*/{'9' * 5000} 0 * * *", ZoneInfo("UTC")).minutes == (0,)


def test_the_29th_of_february_comes_even_where_a_leap_year_falls_out() -> None:
    cron = parse("0 0 29 2 *", ZoneInfo("UTC"))
    assert cron.next_run(datetime(2028, 3, 1, tzinfo=UTC)).at.year == 2032
    assert cron.next_run(datetime(2096, 3, 1, tzinfo=UTC)).at.year == 2104


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("60 * * * *", "the minute '60'"),
        ("* 24 * * *", "the hour '24'"),
        ("* * 0 * *", "the day of month '0'"),
        ("* * 32 * *", "the day of month '32'"),
        ("* * * 13 *", "the month '13'"),
        ("* * * * 8", "the weekday '8'"),
        ("*/0 * * * *", "a step of 0"),
        ("5-1 * * * *", "runs backwards"),
        ("0 0 30 2 *", "the day of month '30' in '0 0 30 2 *' never comes in month '2'"),
        ("0 0 31 feb,APR *", "never comes in month 'feb,APR'"),
        ("0 0 30,31 2 */2", "never comes"),
        ("5/10 * * * *", "a step without a range: write */10 or 5-59/10"),
        ("1,,2 * * * *", "the minute '1,,2'"),
        ("-1 * * * *", "the minute '-1'"),
        ("1.5 * * * *", "the minute '1.5'"),
        ("٣ * * * *", "the minute '٣'"),
        ("*/٣ * * * *", "the minute '*/٣'"),
        ("x * * * *", "'x' is not a number"),
        ("* * * * moon", "'moon' is not a number or a name such as sun"),
        ("* * L * *", "'l' is not a number"),
        ("* * * * 5#2", "the weekday '5#2'"),
        ("* * * * sat-sun", "runs backwards"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("@reboot", "known are @hourly, @daily"),
        ("* * * * \x00", "the weekday"),
        ("9" * 5000 + " * * * *", "the minute"),
    ],
)
def test_what_can_never_fire_is_refused_by_its_field(expression: str, words: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        parse(expression, ZoneInfo("UTC"))
    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


def test_each_macro_is_what_it_stands_for() -> None:
    for macro, fields in MACROS.items():
        one, other = parse(macro, MADRID), parse(fields, MADRID)
        assert one.expression == macro
        assert [*islice(one.runs(datetime(2027, 1, 1, tzinfo=UTC)), 3)] == [
            *islice(other.runs(datetime(2027, 1, 1, tzinfo=UTC)), 3)
        ]


@given(st.data(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_around_any_change_it_is_as_if_every_minute_had_been_looked_at(
    data: st.DataObject, dice: random.Random
) -> None:
    """Sampled here; all changes of all zones are looked at by `python -m tests.zones`."""
    zone = ZoneInfo(data.draw(st.sampled_from(ZONES)))
    year = data.draw(st.sampled_from([2011, 2026]) if zone.key == "Pacific/Apia" else st.integers(2000, 2035))
    all_changes = list(changes(zone, year, year + 1))
    change = data.draw(st.sampled_from(all_changes)) if all_changes else datetime(year, 3, 1, tzinfo=UTC)
    expression, fields = an_expression(dice, near=(change - timedelta(minutes=1)).astimezone(zone).hour)
    try:
        cron = parse(expression, zone)
    except BadSchedule:
        return  # a day that no month has
    start, end = change - timedelta(hours=20), change + timedelta(hours=20)
    expected = walk(fields, minutes_of(zone, start, end), start)
    assert _between(cron, start, end) == expected
    # From wherever one looks, the next is the next.
    point = start + data.draw(st.timedeltas(timedelta(), end - start))
    following = [at for at in expected if at > point]
    if following:
        assert cron.next_run(point).at == following[0]


def _between(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    for run in cron.runs(start - timedelta(microseconds=1)):
        if run.at >= end:
            break
        assert not found or run.at > found[-1]
        found.append(run.at)
    return found


@given(st.randoms(use_true_random=False), st.datetimes(datetime(2001, 1, 1), datetime(2090, 1, 1)))  # noqa: DTZ001
@settings(max_examples=300, deadline=None)
def test_where_no_clock_changes_it_is_as_another_library_has_it(dice: random.Random, start: datetime) -> None:
    expression, _ = an_expression(dice)
    after = start.replace(tzinfo=UTC)
    try:
        cron = parse(expression, ZoneInfo("UTC"))
    except BadSchedule:
        return
    theirs = CronSim(expression, after)
    for run in islice(cron.runs(after), 5):
        assert run.at == next(theirs)
