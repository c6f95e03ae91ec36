"""What each contestant can do."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol

Started = Callable[[datetime], None]
"""Called by a handler as it begins, with the time its job was due."""
Signal = Callable[[], Awaitable[object]]


class Client(Protocol):
    """Books jobs."""

    async def book(self, number: int, delay: timedelta) -> None:
        """Book one job, committed when this returns."""
        ...

    async def book_many(self, numbers: Sequence[int], delay: timedelta) -> None:
        """Book many in the fastest way there is."""
        ...


class Contestant(Protocol):
    """A queue on PostgreSQL."""

    name: str
    has_uvloop: bool
    """Whether its processes run on uvloop."""
    share: float
    """Which part of the rows it is given where all of them would take too long."""
    is_busy: str
    """A query: whether anything due is not finished yet."""
    booked: str
    """A query: how many jobs are on the table."""
    finished: str
    """A query: how many jobs are finished, by the rows that say so."""

    async def fill(self, url: str, due: int, future: int) -> None:
        """Make the schema and put jobs on the table that are due now, and others due in a month."""
        ...

    def client(self, url: str, at_once: int) -> AbstractAsyncContextManager[Client]:
        """Connect, to book `at_once` jobs at a time."""
        ...

    async def work(self, url: str, started: Started, go: Signal, stop: Signal, *, is_tuned: bool) -> None:
        """Connect, wait for `go`, perform jobs until `stop` returns, and end in good order.

        Tuned for draining, or with the defaults.
        """
        ...
