"""For unit tests of a developer's functions: a context that books and says nothing, and remembers what it was asked.

    mock = MockContext()
    await abandoned_cart(Cart(user="ana", cart="c1"), mock)
    (booked,) = mock.called("schedule")
    assert (booked["path"], booked["in_"]) == ("/send-followup", "24h")

No network, no database, nothing to set up. What is given is checked as in the service, apart from what only a database knows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.context import Booking, CancelledRuns, Context, Deferral, Deferrals
from app.deferred import Run, check_page, check_time, one_of
from scheduler.cancel import Cancelled
from scheduler.limits import LimitsSection


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a method of the context, as it was made."""

    name: str
    given: Mapping[str, Any]


class MockContext(Context):
    """A context whose answers a test sets, and whose calls it looks at."""

    def __init__(
        self,
        *,
        tenant: str = "test",
        path: str = "/",
        is_scheduled_fire: bool = False,
        channel: str | None = None,
        attempt: int = 1,
        now: datetime | None = None,
    ) -> None:
        """`is_scheduled_fire` makes it that of a booked run, which has no channel; a call comes by `channel`, or by the web."""
        self.now = now or datetime.now(UTC)
        """What delays are counted from."""
        self.calls: list[Call] = []
        """All that was called and not refused, in order."""
        self.is_replay = False
        """Whether bookings are told to have been booked before."""
        self.found: Sequence[Deferral] = ()
        """What `find_deferred` finds."""
        self.cancelled: Sequence[int] = ()
        """What `cancel_deferred` cancels."""
        self.raced: Sequence[int] = ()
        """What it finds running already."""
        self.has_template: bool | Collection[str] = True
        """Whether every template may be sent, or which may."""
        task = 1 if is_scheduled_fire else None
        super().__init__(
            tenant,
            path,
            f"run:{task}" if task else "call:test",
            _Recorder(self),
            task_id=task,
            scheduled_at=self.now if task else None,
            attempt=attempt,
            _channel=channel or (None if is_scheduled_fire else "web"),
        )

    def called(self, name: str) -> list[Mapping[str, Any]]:
        """Return what each call of a method was given, by the names of its arguments."""
        return [call.given for call in self.calls if call.name == name]

    @property
    def channel(self) -> str:
        """The channel by which the call came. Raises NoChannel where there is none. A test may set it."""
        return super().channel

    @channel.setter
    def channel(self, name: str | None) -> None:
        self._channel = name

    def log(self, words: str, **fields: object) -> None:
        """Remember a line."""
        super().log(words, **fields)
        self._remember("log", words=words, **fields)

    async def schedule(self, **given: Any) -> Booking:
        """Remember a booking. Raises BadBooking, PayloadTooLarge."""
        booking = await super().schedule(**given)
        self._remember("schedule", **given)
        return booking

    async def schedule_at(self, **given: Any) -> Booking:
        """Remember a booking. Raises BadBooking, PayloadTooLarge."""
        booking = await super().schedule_at(**given)
        self._remember("schedule_at", **given)
        return booking

    async def find_deferred(self, **given: Any) -> Deferrals:
        """Return `found`. Raises BadBooking."""
        found = await super().find_deferred(**given)
        self._remember("find_deferred", **given)
        return found

    async def cancel_deferred(self, **given: Any) -> CancelledRuns:
        """Return `cancelled` and `raced`, or how many would be cancelled. Raises BadBooking."""
        done = await super().cancel_deferred(**given)
        self._remember("cancel_deferred", **given)
        return done

    async def reschedule(self, task: int, **given: Any) -> Booking:
        """Remember a move. Raises BadBooking."""
        booking = await super().reschedule(task, **given)
        self._remember("reschedule", task=task, **given)
        return booking

    async def send(self, conversation: int, words: str) -> None:
        """Remember what is said."""
        await super().send(conversation, words)
        self._remember("send", conversation=conversation, words=words)

    async def send_template(self, **given: Any) -> None:
        """Remember a template. Raises NoChannel."""
        await super().send_template(**given)
        self._remember("send_template", **given)

    def _remember(self, method: str, /, **given: Any) -> None:
        self.calls.append(Call(method, given))


class _Recorder:
    """Answers what a mock is set to."""

    def __init__(self, mock: MockContext) -> None:
        self._mock, self._numbers = mock, count(1)

    async def book(self, run: Run, *, pin_deployment: bool, connection: AsyncConnection | None) -> Booking:
        return self._booked(run.due, is_replay=self._mock.is_replay)

    async def find(self, **how: Any) -> Deferrals:
        check_page(**how)
        return Deferrals(self._mock.found, len(self._mock.found))

    async def cancel(self, **labels: str | None) -> Cancelled:
        one_of(**labels)
        return Cancelled(self._mock.cancelled, self._mock.raced)

    async def would_cancel(self, **labels: str | None) -> int:
        one_of(**labels)
        return len(self._mock.cancelled)

    async def reschedule(self, task: int, due: datetime | timedelta) -> Booking:
        return self._booked(due)

    async def send(self, conversation: int, words: str, key: str) -> None:
        pass

    async def has_template(self, channel: str, name: str) -> bool:
        there = self._mock.has_template
        return there if isinstance(there, bool) else name in there

    async def send_template(self, channel: str, template: str, to: str, params: Mapping[str, str], key: str) -> None:
        pass

    def _booked(self, due: datetime | timedelta, *, is_replay: bool = False) -> Booking:
        check_time(due, self._mock.now, LimitsSection().lead)
        at = due if isinstance(due, datetime) else self._mock.now + due
        return Booking(next(self._numbers), at, is_replay)
