"""What a function is handed beside its input: who called it, and how to book, look, cancel, check and speak."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from app.deferred import BadBooking, NoSuchTask, Run, checked
from app.guard import Guard
from scheduler.cancel import Cancelled
from scheduler.find import Found

log = logging.getLogger("vuelvo.functions")

LONGEST_WORDS = 16_000
DONE = "done: "
"""Before a function's result, in its task's outcome."""


class NoChannel(Exception):
    """There is no channel that the call came by."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A run that is booked."""

    id: int
    scheduled_at: datetime
    """UTC."""
    idempotent_replay: bool
    """Whether an earlier booking with the same idempotency key is what this is."""


@dataclass(frozen=True, slots=True)
class Deferral:
    """A run as it is found."""

    id: int
    function: str
    status: str
    scheduled_at: datetime
    key: str | None
    subject: str | None
    payload: Any
    attempt: int
    result: Any
    """What the function returned, as it is read from JSON; `{"skipped": NAME}` where a check said no."""
    error: str | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Deferrals:
    """A page of runs, and how many there are in all."""

    data: Sequence[Deferral]
    total: int


SKIPPED = "skipped: "
"""How the outcome of what a check has stopped begins."""


def result_of(outcome: str | None) -> Any:
    """Return what a run's outcome says that it returned; None for what has not run."""
    if outcome is not None and outcome.startswith(SKIPPED):
        return {"skipped": outcome.removeprefix(SKIPPED)}
    if outcome is None or not outcome.startswith(DONE):
        return None
    try:
        return json.loads(outcome.removeprefix(DONE))
    except ValueError:  # a row that was damaged is shown all the same
        return outcome.removeprefix(DONE)


def sayable(words: str) -> str:
    """Return words as they can be said. Raises ValueError for what is empty or too long."""
    words = words.replace("\0", "").strip()
    if not words or len(words) > LONGEST_WORDS:
        raise ValueError(f"there must be 1 to {LONGEST_WORDS} characters to say, and there are {len(words)}")
    return words


def deferral_of(found: Found) -> Deferral:
    """Return a task as a function sees it."""
    return Deferral(
        found.id,
        str(found.kept.get("path", "")),
        found.state,
        found.booked_for.astimezone(UTC),
        found.key,
        found.subject,
        found.kept.get("payload"),
        found.attempt,
        result_of(found.outcome),
        found.error,
        found.created_at,
        found.ended_at,
    )


@dataclass(frozen=True, slots=True)
class CancelledRuns:
    """What a cancel has met: each task is in one of the two. A dry run only says how many there would be."""

    cancelled: Sequence[int] = ()
    raced: Sequence[int] = ()
    """Already running: the checks in the function are the last that can stop them."""
    would_cancel_count: int | None = None


class Booker(Protocol):
    """What a context books with: the service, a simulation of it, or a recorder of calls."""

    async def book(self, run: Run, *, pin_deployment: bool, connection: AsyncConnection | None) -> Booking:
        """Book a run."""

    async def find(self, **how: Any) -> Deferrals:
        """Find runs."""

    async def cancel(self, *, subject: str | None, key: str | None, key_prefix: str | None) -> Cancelled:
        """Cancel by a label."""

    async def would_cancel(self, *, subject: str | None, key: str | None, key_prefix: str | None) -> int:
        """Count what that would cancel."""

    async def reschedule(self, task: int, due: datetime | timedelta) -> Booking:
        """Book anew for another time."""

    async def send(self, conversation: int, words: str, key: str) -> None:
        """Say words in a conversation, once for a key."""

    async def has_template(self, channel: str, name: str) -> bool:
        """Tell whether a tenant's template may be sent now."""

    async def send_template(self, channel: str, template: str, to: str, params: Mapping[str, str], key: str) -> None:
        """Send a template to somebody who has written before, once for a key."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The templates of one channel."""

    channel: str
    _booker: Booker = field(repr=False)

    async def has(self, name: str) -> bool:
        """Tell whether a template, by its number at Twilio, is in the tenant's file and approved as far as is known."""
        return await self._booker.has_template(self.channel, name)


@dataclass(frozen=True, slots=True)
class TemplateRegistry:
    """The templates of a tenant's channels."""

    _ctx: "Context" = field(repr=False)

    def for_(self, channel: str | None = None) -> Templates:
        """Return the templates of a channel; without one of that by which the call came. Raises NoChannel."""
        return Templates(channel or self._ctx.channel, self._ctx._booker)


@dataclass(slots=True)
class Context:
    """One call of a function."""

    tenant: str
    path: str
    run_id: str
    """The same for every attempt at this run: use it as an idempotency key."""
    _booker: Booker = field(repr=False)
    task_id: int | None = None
    """The number of the booking; None for a call over HTTP."""
    scheduled_at: datetime | None = None
    """What the run was booked for; None for a call over HTTP."""
    attempt: int = 1
    _channel: str | None = None
    _guards: list[Guard] = field(default_factory=list, repr=False)
    _said: int = 0

    @property
    def is_scheduled_fire(self) -> bool:
        """Whether this is a booked run, at its time, rather than a call."""
        return self.task_id is not None

    @property
    def channel(self) -> str:
        """The channel that a call names, or the tenant's only one. Raises NoChannel, at a fire always."""
        if self._channel is not None:
            return self._channel
        if self.is_scheduled_fire:
            raise NoChannel(
                "a booked run comes by no channel: put the channel into the payload when you book, and use"
                " ctx.templates.for_(payload.channel)"
            )
        raise NoChannel("the call names no channel and the tenant has several: send it in the header Vuelvo-Channel")

    @property
    def templates(self) -> TemplateRegistry:
        """The templates of the tenant's channels."""
        return TemplateRegistry(self)

    @property
    def guard(self) -> Guard:
        """A fresh chain of checks."""
        self._guards.append(Guard())
        return self._guards[-1]

    def complain(self) -> None:
        """Raise GuardNotRun for a chain of checks that was made and never run."""
        for guard in self._guards:
            guard.complain()

    def log(self, words: str, **fields: object) -> None:
        """Write a line to the service's log, with the function's path and the run."""
        told = "".join(f" {name}={value!r}" for name, value in fields.items())
        log.info("%s %s: %s%s", self.path, self.run_id, words, told)

    async def schedule(
        self,
        *,
        in_: str | float | timedelta,
        path: str,
        payload: object = None,
        key: str | None = None,
        subject: str | None = None,
        idempotency_key: str | None = None,
        pin_deployment: bool = False,
        connection: AsyncConnection | None = None,
    ) -> Booking:
        """Book a function for a time from now: a duration (`24h`, `1h30m`) or a number of seconds, as the server's clock runs.

        With a `connection` (SQLAlchemy's, to the same database) it is booked in the caller's own transaction.

        Raises BadBooking, PayloadTooLarge, NoSuchFunction, LimitReached, and KeyReused for a known idempotency key with another payload.
        """
        run = checked(path, payload, in_=in_, key=key, subject=subject, idempotency_key=idempotency_key)
        return await self._booker.book(run, pin_deployment=pin_deployment, connection=connection)

    async def schedule_at(
        self,
        *,
        at: str | datetime,
        path: str,
        payload: object = None,
        key: str | None = None,
        subject: str | None = None,
        idempotency_key: str | None = None,
        pin_deployment: bool = False,
        connection: AsyncConnection | None = None,
    ) -> Booking:
        """Book a function for an instant: aware, or ISO 8601 with an offset. Raises as `schedule`; BadBooking for what is past."""
        run = checked(path, payload, at=at, key=key, subject=subject, idempotency_key=idempotency_key)
        return await self._booker.book(run, pin_deployment=pin_deployment, connection=connection)

    async def find_deferred(
        self,
        *,
        key: str | None = None,
        subject: str | None = None,
        status: str = "active",
        function: str | None = None,
        page: int = 1,
        per_page: int = 20,
    ) -> Deferrals:
        """Return the tenant's runs, of every function unless one is named by its path. Raises BadBooking."""
        return await self._booker.find(
            key=key, subject=subject, status=status, function=function, page=page, per_page=per_page
        )

    async def cancel_deferred(
        self,
        *,
        subject: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        dry_run: bool = False,
    ) -> CancelledRuns:
        """Cancel what is booked under one label. What is running by then is in `raced`, and runs.

        Raises BadBooking unless exactly one is given, TooMany for more than 10,000.
        """
        if dry_run:
            count = await self._booker.would_cancel(subject=subject, key=key, key_prefix=key_prefix)
            return CancelledRuns(would_cancel_count=count)
        done = await self._booker.cancel(subject=subject, key=key, key_prefix=key_prefix)
        return CancelledRuns(done.cancelled, done.raced)

    async def reschedule(
        self, task: int, *, in_: str | float | timedelta | None = None, at: str | datetime | None = None
    ) -> Booking:
        """Cancel a run and book it anew for another time, in one transaction; the new one has another number.

        Raises NoSuchTask, Raced when it has begun or ended, BadBooking.
        """
        if isinstance(task, bool) or not isinstance(task, int):
            raise NoSuchTask(f"a run has a number, and {task!r:.40} is none")
        return await self._booker.reschedule(task, checked("/", None, in_=in_, at=at).due)

    async def send(self, conversation: int, words: str) -> None:
        """Say something in a conversation, on its channel, as its assistant. Run again, a run says it once all the same.

        Raises LookupError where there is no such conversation, ValueError for what is empty or too long, KeyReused where
        the run said something else in this place when it ran before.
        """
        await self._booker.send(conversation, sayable(words), self._next_key())

    async def send_template(
        self,
        *,
        template: str,
        to: str,
        params: Sequence[str] | Mapping[str, str] = (),
        channel: str | None = None,
    ) -> None:
        """Send a template to somebody who has written to the tenant before. Run again, a run sends it once all the same.

        Raises NoChannel, LookupError where nobody of that address has written, BadBooking for a template that is not the tenant's.
        """
        if not isinstance(params, Mapping):
            params = {str(number): value for number, value in enumerate(params, 1)}
        if any(not isinstance(value, str) or not value.strip() or "\0" in value for value in params.values()):
            raise BadBooking("what stands in a template's places is text, and not empty")
        await self._booker.send_template(channel or self.channel, template, to, params, self._next_key())

    def _next_key(self) -> str:
        self._said += 1
        # Never the key of a booking, which is `run:` and whatever its caller likes.
        return f"said:{self.run_id}#{self._said}"
