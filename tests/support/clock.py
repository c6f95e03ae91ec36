"""A clock that a test moves."""

import asyncio
from datetime import UTC, datetime, timedelta

from scheduler.clock import Clock


class MovableClock(Clock):
    """Stands still until it is moved; every statement of the service is told this time."""

    def __init__(self, at: datetime = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)) -> None:
        self.at = at
        self.sleepers: dict[asyncio.Event, datetime] = {}
        """Who sleeps, and until when."""

    def override(self) -> datetime | None:
        return self.at

    def steady(self) -> float:
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
