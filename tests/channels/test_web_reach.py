"""What an anonymous visitor has to do to find what is said to them later."""

from datetime import UTC, datetime, timedelta

from channels.message import REACHABLE, Reach
from channels.web.reach import assess

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
VISITOR = "visitor:0123"


def reach(
    address: str = VISITOR, *, days: float, idle: int = 430, lives: int | None = 730, can_sign_in: bool = False
) -> Reach:
    until = None if lives is None else NOW + timedelta(days=lives)
    due = NOW + timedelta(days=days)
    return assess(address, due, NOW, lives_until=until, idle=timedelta(days=idle), can_sign_in=can_sign_in)


def test_within_a_week_there_is_nothing_to_say() -> None:
    assert reach(days=7) is REACHABLE
    assert reach(days=0.1) is REACHABLE


def test_beyond_a_week_they_have_to_come_back_every_week() -> None:
    told = reach(days=7.1)
    assert told.possible
    assert "in this browser at least once every week." in told.advice
    assert "sign in" not in told.advice
    assert told == reach(days=300)


def test_where_they_can_sign_in_that_is_said_too() -> None:
    assert "every week, or sign in on this page." in reach(days=42, can_sign_in=True).advice


def test_who_has_signed_in_or_writes_in_a_terminal_finds_back() -> None:
    for address in ("user:user-7", "terminal:ana"):
        assert reach(address, days=399, lives=1, idle=1) is REACHABLE


def test_a_session_that_is_forgotten_sooner_than_the_browser_forgets_it_is_told_as_it_is() -> None:
    assert reach(days=2, idle=3) is REACHABLE
    assert "at least once every 3 days." in reach(days=4, idle=3).advice
    assert "at least once every 24 hours." in reach(days=4, idle=1).advice


def test_what_comes_after_the_end_of_their_session_is_not_found_however_often_they_come() -> None:
    told = reach(days=3, lives=2)
    assert told.possible
    assert "closes for their browser on 2026-12-02" in told.advice
    assert "sign in" not in told.advice
    assert "unless they sign in on this page before that." in reach(days=3, lives=2, can_sign_in=True).advice
    assert reach(days=1, lives=2) is REACHABLE
    assert reach(days=1, lives=None) is REACHABLE
