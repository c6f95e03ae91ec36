"""When to try again: growing pauses with jitter, and a budget."""

import random
from datetime import timedelta

BUDGET = 5
"""Attempts at one thing (writing, or sending) before it is given up."""
QUARANTINE = 2 * BUDGET
"""Attempts after which a task that seems to kill its workers is not performed any more. Past BUDGET whoever performs it
still has the chance to do the least that was promised, without what may have killed them."""
FIRST = timedelta(seconds=1)
LONGEST = timedelta(minutes=5)


def backoff(attempt: int, at_least: float | None = None) -> timedelta:
    """Return how long to wait after a failed attempt, the first being 1; never less than a provider asked, in seconds.

    Full doubling with jitter between a half and the whole, so that what failed together does not return together.
    """
    pause: timedelta = min(FIRST * 2 ** min(attempt - 1, 20), LONGEST) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    return max(pause, timedelta(seconds=at_least or 0))
