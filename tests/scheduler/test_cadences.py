"""Cadences: when the steps around a due day come."""

from datetime import date, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cadences import Offset, Past, Step, offset, plan
from scheduler.errors import BadOffset
from scheduler.open_hours import OpenHours
from tests.scheduler.test_open_hours import BOGOTA, MADRID, OFFICE, local

ALWAYS = OpenHours()
STEPS = [
    Step("six weeks", offset("-6w"), time(10)),
    Step("two weeks", offset("-2w"), time(10)),
    Step("-3d", offset("-3d"), time(10)),
]
LONG_AGO = datetime(2020, 1, 1, tzinfo=MADRID)


def days(given: list[str], due: str, hours: OpenHours = ALWAYS) -> list[str]:
    steps = [Step(text, offset(text), time(10)) for text in given]
    return [
        str(one.at.astimezone(MADRID).date()) for one in plan(steps, date.fromisoformat(due), MADRID, hours, LONG_AGO)
    ]


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("-42d", Offset(-42, "day")),
        ("-6w", Offset(-6, "week")),
        ("0d", Offset(0, "day")),
        ("+7d", Offset(7, "day")),
        ("7 days", Offset(7, "day")),
        ("-1 month", Offset(-1, "month")),
        ("-1mo", Offset(-1, "month")),
        ("+1Y", Offset(1, "year")),
        ("-5bd", Offset(-5, "business day")),
        ("-5 business days", Offset(-5, "business day")),
    ],
)
def test_an_offset_is_read_as_people_write_it(given: str, means: Offset) -> None:
    assert offset(given) == means
    assert offset(means.text) == means


@pytest.mark.parametrize(
    "given", ["", "-", "6", "-6 fortnights", "-6m", "1.5d", "--6d", "-6w3d", "9999w", "-11y", "\u0667d"]
)
def test_what_is_no_offset_is_refused_with_how_to_write_one(given: str) -> None:
    with pytest.raises(BadOffset, match=r"such as -6w|from the due day"):
        offset(given)


def test_the_steps_of_a_policy_come_six_weeks_two_weeks_and_three_days_before() -> None:
    planned = plan(STEPS, date(2027, 3, 1), MADRID, ALWAYS, local("2026-12-01 09:00"))
    assert [(one.step.name, one.at) for one in planned] == [
        ("six weeks", local("2027-01-18 10:00")),
        ("two weeks", local("2027-02-15 10:00")),
        ("-3d", local("2027-02-26 10:00")),
    ]


@pytest.mark.parametrize(
    ("due", "given", "comes"),
    [
        ("2028-02-29", "-1mo", "2028-01-29"),
        ("2028-02-29", "+1y", "2029-02-28"),
        ("2028-02-29", "-1y", "2027-02-28"),
        ("2027-03-31", "-1mo", "2027-02-28"),
        ("2028-03-31", "-1mo", "2028-02-29"),
        ("2027-01-31", "-2mo", "2026-11-30"),
        ("2027-01-01", "-1d", "2026-12-31"),
    ],
)
def test_a_month_back_is_the_same_day_or_the_last_of_the_month(due: str, given: str, comes: str) -> None:
    assert days([given], due) == [comes]


def test_what_falls_on_a_quiet_day_comes_at_the_next_open_hour() -> None:
    assert days(["-1d"], "2026-12-07", OFFICE) == ["2026-12-07"]  # the day before is a Sunday
    assert days(["0d"], "2026-12-25", OFFICE) == ["2026-12-26"]


def test_what_must_not_come_after_the_due_day_comes_on_the_open_day_before() -> None:
    late = Step("last call", offset("0d"), time(12), by_due=True)
    (planned,) = plan([late], date(2026, 12, 6), MADRID, OFFICE, LONG_AGO)
    assert planned.at == local("2026-12-05 12:00")


def test_business_days_leave_out_the_days_on_which_it_is_closed() -> None:
    assert days(["-2bd"], "2026-12-28", OFFICE) == ["2026-12-24"]


def test_a_step_comes_by_the_clock_of_whoever_is_written_to() -> None:
    (there,) = plan(STEPS[:1], date(2027, 3, 1), BOGOTA, ALWAYS, LONG_AGO)
    assert there.at == local("2027-01-18 10:00", BOGOTA)


@pytest.mark.parametrize(
    ("past", "names"),
    [("skip", ["-3d"]), ("latest", ["two weeks", "-3d"]), ("all", ["six weeks", "two weeks", "-3d"])],
)
def test_what_is_past_at_enrolment_is_left_out_or_made_up_for_at_the_next_open_hour(
    past: Past, names: list[str]
) -> None:
    now = local("2027-02-20 20:00")  # a Saturday evening
    planned = plan(STEPS, date(2027, 3, 1), MADRID, OFFICE, now, past=past)
    assert [one.step.name for one in planned] == names
    assert {one.at for one in planned[:-1]} <= {local("2027-02-22 09:00")}


def test_what_must_come_by_the_due_day_is_not_made_up_for_once_that_is_past() -> None:
    late = Step("last call", offset("0d"), time(12), by_due=True)
    assert plan([late], date(2026, 12, 1), MADRID, ALWAYS, local("2026-12-02 09:00"), past="all") == []


def test_a_step_that_has_no_open_hour_or_no_day_is_left_out() -> None:
    assert plan(STEPS, date(2027, 3, 1), MADRID, OpenHours({}), LONG_AGO) == []
    assert days(["-6w", "+10y"], "9998-01-01") == ["9997-11-20"]


ZONES = st.sampled_from([MADRID, BOGOTA, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")])
OFFSETS = st.sampled_from(["-6w", "-2w", "-3d", "0d", "+7d", "-1mo", "-5bd", "+1y", "+2bd"])


@given(st.dates(date(2026, 1, 1), date(2032, 12, 31)), st.lists(OFFSETS, unique=True, min_size=1), ZONES, st.booleans())
def test_every_step_comes_once_in_an_open_hour_and_where_it_is_said_to_by_the_due_day(
    due: date, given: list[str], zone: ZoneInfo, by_due: bool
) -> None:
    steps = [Step(text, offset(text), time(10), by_due and not text.startswith("+")) for text in given]
    planned = plan(steps, due, zone, OFFICE, LONG_AGO)
    assert sorted(one.step.name for one in planned) == sorted(given)
    assert planned == sorted(planned, key=lambda one: one.at)
    for one in planned:
        assert OFFICE.is_open(one.at, zone)
        assert not one.step.by_due or one.at.astimezone(zone).date() <= due
