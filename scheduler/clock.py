"""One source of time for everything that is due.

The database's clock decides, so hosts with wrong clocks agree. Every statement takes `:now`; null means the database's
own `now()`. Tests hand in one they move.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import sql

NOW = "coalesce(cast(:now as timestamptz), now())"
"""The present, inside a statement that is given `:now`."""


class Clock:
    """The database's clock."""

    def override(self) -> datetime | None:
        """Return the time a test has set, or None for the database's own."""
        return None

    def steady(self) -> float:
        """Return seconds of this process's own, which never go back and mean nothing to another."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        await asyncio.sleep(seconds)

    async def now(self, connection: AsyncConnection) -> datetime:
        """Return the present, aware, as the database sees it."""
        found: datetime = (await connection.execute(sql(f"select {NOW}"), {"now": self.override()})).scalar_one()
        return found


class MovableClock(Clock):
    """A clock for tests: it stands still until it is moved, and every statement of the service is told this time."""

    def __init__(self, at: datetime = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)) -> None:
        self.at = at
        self.sleepers: dict[asyncio.Event, datetime] = {}
        """Who sleeps, and until when."""

    def override(self) -> datetime | None:
        """Return the time it was set to."""
        return self.at

    def steady(self) -> float:
        """Return it in seconds."""
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been moved so far."""
        woken = asyncio.Event()
        self.sleepers[woken] = self.at + timedelta(seconds=seconds)
        try:
            await woken.wait()
        finally:
            del self.sleepers[woken]

    def has_sleepers_due(self) -> bool:
        """Whether somebody sleeps whose time has come, and who is about to wake."""
        return any(until <= self.at for until in self.sleepers.values())

    def move(self, by: timedelta) -> None:
        """Let time pass."""
        self.set(self.at + by)

    def set(self, at: datetime) -> None:
        """Make it this time."""
        self.at = at
        for woken, until in self.sleepers.items():
            if until <= at:
                woken.set()
