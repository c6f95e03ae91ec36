"""A clock that a test moves."""

from datetime import UTC, datetime, timedelta

from scheduler.clock import Clock


class MovableClock(Clock):
    """Stands still until it is moved; every statement of the service is told this time."""

    def __init__(self, at: datetime = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)) -> None:
        self.at = at

    def override(self) -> datetime | None:
        return self.at

    def move(self, by: timedelta) -> None:
        """Let time pass."""
        self.at += by

    def set(self, at: datetime) -> None:
        """Make it this time."""
        self.at = at
