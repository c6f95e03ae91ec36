from datetime import UTC, datetime, timedelta

from channels.whatsapp.window import closes_at, is_open

WROTE = datetime(2026, 3, 28, 16, 0, tzinfo=UTC)


def test_the_window_closes_five_minutes_before_a_day_is_over() -> None:
    assert closes_at(WROTE) == datetime(2026, 3, 29, 15, 55, tzinfo=UTC)


def test_the_window_is_open_until_it_closes() -> None:
    last_moment = closes_at(WROTE) - timedelta(microseconds=1)
    assert [is_open(WROTE, at) for at in (WROTE, last_moment, closes_at(WROTE))] == [True, True, False]


def test_the_window_of_a_customer_who_never_wrote_is_shut() -> None:
    assert not is_open(None, WROTE)
