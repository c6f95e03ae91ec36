"""Sending no faster than a provider takes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.pace import KEPT, SWEEP, Pace, Rate, within

FAST = Rate(1000, 0.001)


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def sends(pace: Pace, clock: Seconds, *addresses: str) -> list[float]:
    """Send to each in turn, as early as allowed; return when each began, in seconds from now."""
    began, at = [], clock.at
    for address in addresses:
        while wait := pace.wait(address):
            clock.at += wait
        pace.take(address)
        began.append(round(clock.at - at, 2))
    return began


def test_a_recipient_has_a_burst_and_then_one_each_so_many_seconds(clock: Seconds) -> None:
    pace = Pace(FAST, lambda _: Rate(3, 6), clock)
    assert sends(pace, clock, *["ana"] * 6) == [0, 0, 0, 6, 12, 18]
    clock.at += 60
    assert sends(pace, clock, *["ana"] * 4) == [0, 0, 0, 6], "after a while the burst is whole again, and no larger"


def test_one_recipients_queue_keeps_no_other_waiting(clock: Seconds) -> None:
    pace = Pace(FAST, lambda _: Rate(3, 6), clock)
    sends(pace, clock, *["ana"] * 3)
    for _ in range(100):
        assert pace.wait("ana") == pytest.approx(6)
    assert sends(pace, clock, "ben", "cy", "dora") == [0, 0, 0]


def test_to_ask_again_costs_nothing_more(clock: Seconds) -> None:
    pace = Pace(Rate(2, 1), lambda _: FAST, clock)
    assert [pace.wait("ana") for _ in range(5)] == [0] * 5
    assert pace.wait("ben") == 0
    assert pace.wait("cy") == pytest.approx(1)


def test_of_all_who_ask_in_one_moment_no_more_go_ahead_than_may(clock: Seconds) -> None:
    pace = Pace(within(80, 8), lambda _: Rate(3, 6), clock)
    assert [pace.wait(f"person {n}") for n in range(64)].count(0) == 8


def test_a_place_that_nobody_took_is_not_kept_for_ever(clock: Seconds) -> None:
    pace = Pace(Rate(1, 60), lambda _: FAST, clock)
    assert pace.wait("ana") == 0
    clock.at += KEPT + 1
    assert pace.wait("ana") == pytest.approx(60 - KEPT - 1)


def test_a_send_that_nobody_asked_for_counts_as_well(clock: Seconds) -> None:
    pace = Pace(Rate(1, 60), lambda _: FAST, clock)
    pace.take("ana")
    pace.take("ana")
    assert pace.wait("ben") == pytest.approx(120)


def test_a_provider_that_asks_for_time_gets_it_from_the_whole_sender(clock: Seconds) -> None:
    pace = Pace(FAST, lambda _: FAST, clock)
    assert pace.wait("ana") == 0
    pace.close(90)
    pace.close(5)
    assert [pace.wait("ana"), pace.wait("ben")] == [pytest.approx(90)] * 2
    clock.at += 90
    assert pace.wait("ben") == 0


def test_recipients_are_forgotten_once_their_burst_is_free_again(clock: Seconds) -> None:
    pace = Pace(FAST, lambda _: Rate(3, 6), clock)
    sends(pace, clock, *(f"person {n}" for n in range(500)))
    clock.at += SWEEP
    sends(pace, clock, "ana")
    assert len(pace._made_up_for) == 1
    assert len(pace._kept) <= 1


@given(
    limit=st.integers(1, 500),
    share=st.integers(1, 10),
    asked=st.lists(st.floats(0, 0.3), min_size=1, max_size=600),
)
def test_no_second_ever_holds_more_than_the_limit(limit: int, share: int, asked: list[float]) -> None:
    clock, began = Seconds(), []
    pace = Pace(within(limit, max(1, limit // (5 * share))), lambda _: FAST, clock)
    for number, pause in enumerate(asked):
        clock.at += pause if number % 50 == 0 else 0
        sends(pace, clock, f"person {number}")
        began.append(clock.at)
    for number, at in enumerate(began[limit:]):
        assert at - began[number] > 1 - 0.005
