"""Pauses between attempts."""

from datetime import timedelta

import pytest

from scheduler.retry import FIRST, LONGEST, backoff


@pytest.mark.parametrize(("attempt", "whole"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (10**6, 300)])
def test_each_pause_doubles_up_to_the_longest_with_jitter_between_half_and_whole(attempt: int, whole: int) -> None:
    pauses = [backoff(attempt) for _ in range(200)]
    assert all(timedelta(seconds=whole / 2) <= pause <= timedelta(seconds=whole) for pause in pauses)
    assert len(set(pauses)) > 100, "what failed together does not come back together"


def test_the_first_and_the_longest_pause_are_what_they_are_called() -> None:
    assert FIRST / 2 <= backoff(1) <= FIRST
    assert LONGEST / 2 <= backoff(30) <= LONGEST


@pytest.mark.parametrize("asked", [30.0, 3600.0])
def test_a_provider_that_asks_for_more_gets_it(asked: float) -> None:
    assert backoff(1, at_least=asked) == timedelta(seconds=asked)


def test_a_provider_that_asks_for_less_does_not_make_it_sooner() -> None:
    assert backoff(5, at_least=0.1) >= timedelta(seconds=8)
