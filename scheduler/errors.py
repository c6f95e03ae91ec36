"""What the scheduler refuses.

SchedulerError
├── BadTime       a time or a duration that cannot be booked; the message is fit for whoever asked
├── BadSchedule   a recurring time that is none, or can never come; the message names the part of it
├── BadOffset     a distance from a due day that is none, or too far
├── LimitReached  one more would be over a limit
├── KeyReused     the same idempotency key with another payload
├── TryAgain      what performs a task cannot do it now; the task is given back and tried again later
└── LostClaim     the claim is another worker's by now: whatever was done under it settles nothing
"""


class SchedulerError(Exception):
    """The scheduler will not do this."""


class BadTime(SchedulerError):
    """A time that is past, too far away, or not a time."""


class BadSchedule(SchedulerError, ValueError):
    """A cron expression, an interval or a zone that cannot be kept."""


class BadOffset(SchedulerError, ValueError):
    """A distance from a due day that cannot be kept."""


class LimitReached(SchedulerError):
    """One more booking would be over a limit; the message names it."""


class KeyReused(SchedulerError):
    """An idempotency key came back with another payload."""


class TryAgain(SchedulerError):
    """A task could not be performed now; the message is kept as its last error. It is not tried again before `at_least` seconds."""

    def __init__(self, words: str, at_least: float | None = None) -> None:
        super().__init__(words)
        self.at_least = at_least


class LostClaim(SchedulerError):
    """The task is no longer this worker's."""
