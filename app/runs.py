"""Running functions: at the time that was booked, or at once for a call over HTTP.

A run is done at least once. Where its worker dies it is run again; where it raises it is tried again, later each time, until its
attempts are used up; then it has failed, and an operator may retry it. Where another server is down, which is no fault of
the run, it is tried again for a day. What is not wanted any more says so by a guard, or by raising Stop.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.called import Called
from app.context import DONE, Booker, Booking, Context, Deferrals, NoChannel, deferral_of
from app.deferred import BadBooking, Deferred, NoSuchFunction, Run
from app.functions import App, BadInput, Function, Later, Stop, written
from app.guard import GuardNotRun
from app.outside import NotNow, OutsideError
from app.service import Service, chosen_template
from app.tenants_file import TenantConfig
from channels.channel import Channel
from channels.message import Filled
from channels.whatsapp import address
from scheduler import settle
from scheduler.book import Booked, book
from scheduler.book import Booking as Scheduled
from scheduler.cancel import Cancelled
from scheduler.errors import TryAgain
from scheduler.poller import DUE, storable
from scheduler.put_off import is_over, put_off
from scheduler.scheduled import Send
from scheduler.settle import End
from scheduler.task import Task
from store import conversations

log = logging.getLogger(__name__)

BY = "a function"
"""Who cancels, in a task's story."""


class TookTooLong(TimeoutError):
    """A function took longer than it is given; what it waited for in vain by itself is its own TimeoutError."""


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of an installation, and what they are run with."""

    app: App
    service: Service
    deferred: Deferred
    send: Send
    deployment: str | None = None
    """Which of several versions side by side this process is."""

    async def find(self, tenant: TenantConfig, path: str) -> Function | Called:
        """Return what is called at a path: the tenant's own before the application's. Raises NoSuchFunction.

        A tenant's file that was applied a moment ago, maybe by another process, is read anew before there is said to be none.
        """
        found = self._find(tenant, path)
        if found is None and (fresh := await self.service.tenant(tenant.tenant, is_fresh=True)) is not None:
            tenant, found = fresh, self._find(fresh, path)
        if found is None:
            known = ", ".join(sorted({*self.app.functions, *tenant.functions})) or "none"
            raise NoSuchFunction(
                f"there is no function at {path[:60]!r} (there are: {known}): register it with app.function, or write"
                " where it is called under functions in the tenant's file"
            )
        return found

    def _find(self, tenant: TenantConfig, path: str) -> Function | Called | None:
        if (section := tenant.functions.get(path)) is not None:
            return Called(path, tenant.tenant, section, tenant.calls, self.service.outside)
        return self.app.functions.get(path)

    async def book(
        self, tenant: TenantConfig, run: Run, *, pin: bool = False, connection: AsyncConnection | None = None
    ) -> Booked:
        """Book a run of a function that there is, with a payload that it takes.

        Raises NoSuchFunction, BadInput, BadBooking where it is pinned and this process is of no deployment, and as `Deferred.book`.
        """
        function = await self.find(tenant, run.path)
        function.read(run.payload)
        if pin and self.deployment is None:
            raise BadBooking(
                "a run is pinned to the deployment that books it, and this one has no name: set VUELVO_DEPLOYMENT"
            )
        if pin:
            run = Run(run.path, run.due, run.payload, run.key, run.subject, run.idempotency_key, self.deployment)
        is_called = isinstance(function, Called)
        return await self.deferred.book(tenant.tenant, run, tenant.limits, is_called=is_called, connection=connection)

    def booker(self, tenant: TenantConfig) -> Booker:
        """Return what books in a tenant's name."""
        return _Booker(self, tenant)

    async def call(self, tenant: TenantConfig, path: str, payload: object, channel: str | None = None) -> Any:
        """Call a function at once and return its result.

        Raises NoSuchFunction, BadInput, TookTooLong after the function's own time, and whatever the function raises:
        OutsideError for one elsewhere.
        """
        function = await self.find(tenant, path)
        ctx = Context(tenant.tenant, path, f"call:{secrets.token_hex(12)}", self.booker(tenant), _channel=channel)
        try:
            async with asyncio.timeout(function.timeout.total_seconds()) as limit:
                return await function.call(function.read(payload), ctx)
        except TimeoutError as problem:
            if not limit.expired():
                raise
            raise TookTooLong(f"{path} took longer than {function.timeout}") from problem

    async def run(self, task: Task) -> End | None:
        """Run what is due, and return how it ends; None where that is settled already.

        Raises TryAgain, or what the function raises, for what is to be tried again; WrongKey, TenantFileError when its tenant
        cannot be used.
        """
        tenant = await self.service.tenant_of(task)
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, task):
                await settle.cancel(connection, self.service.clock, task)
                return None
        try:
            path, payload = str(task.payload["path"]), task.payload["payload"]
        except (KeyError, TypeError) as problem:
            return End(task, "failed", error=f"what is kept of the run cannot be read: {_name(problem)}")
        try:
            function = await self.find(tenant, path)
            given = function.read(payload)
        except (NoSuchFunction, BadInput) as problem:
            return End(task, "failed", error=str(problem))
        ctx = Context(
            tenant.tenant,
            path,
            f"run:{task.id}",
            self.booker(tenant),
            task_id=task.id,
            scheduled_at=task.booked_for,
            attempt=task.attempt,
        )
        try:
            async with asyncio.timeout(function.timeout.total_seconds()) as limit:
                result = await function.call(given, ctx)
        except (Stop, GuardNotRun, NoChannel) as problem:
            return End(task, "failed", error=storable(_name(problem)))
        except (NotNow, Later) as problem:
            return await self._later(task, storable(str(problem)), problem.retry_after)
        except OutsideError as problem:
            return End(task, "failed", error=str(problem))
        except TimeoutError as problem:
            if not limit.expired():
                raise
            raise TryAgain(f"it took longer than {function.timeout}, the time it is given") from problem
        return End(task, "fired", outcome=outcome_of(task, result))

    async def _later(self, task: Task, why: str, at_least: float | None) -> End | None:
        """Give a run back that cannot be done for now; where that has been so for too long, it has failed."""
        if is_over(task):
            return End(task, "failed", error=why)
        async with self.service.database.transaction() as connection:
            await put_off(connection, self.service.clock, task, why, at_least)
        return None


def outcome_of(task: Task, result: object) -> str:
    """Return what is kept of a result; a run that has a result no row can keep has run all the same."""
    try:
        text = written(result)
    except ValueError as problem:
        log.warning("task %d of tenant %s has run; %s", task.id, task.tenant, problem)
        return DONE + "null"
    if isinstance(result, Mapping) and set(result) == {"skipped"} and isinstance(result["skipped"], str):
        return f"skipped: {storable(result['skipped'])[:200]}"
    return DONE + text


def _name(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


@dataclass(frozen=True, slots=True)
class _Booker:
    """What a function books with, in the name of its tenant."""

    functions: Functions
    tenant: TenantConfig

    async def book(self, run: Run, *, pin_deployment: bool, connection: AsyncConnection | None) -> Booking:
        booked = await self.functions.book(self.tenant, run, pin=pin_deployment, connection=connection)
        return Booking(booked.id, booked.due_at, booked.replay)

    async def find(self, **how: Any) -> Deferrals:
        found = await self.functions.deferred.find(self.tenant.tenant, **how)
        return Deferrals([deferral_of(one) for one in found.data], found.total)

    async def cancel(self, *, subject: str | None, key: str | None, key_prefix: str | None) -> Cancelled:
        return await self.functions.deferred.cancel(
            self.tenant.tenant, subject=subject, key=key, key_prefix=key_prefix, by=BY
        )

    async def would_cancel(self, *, subject: str | None, key: str | None, key_prefix: str | None) -> int:
        return await self.functions.deferred.would_cancel(
            self.tenant.tenant, subject=subject, key=key, key_prefix=key_prefix
        )

    async def reschedule(self, task: int, due: datetime | timedelta) -> Booking:
        booked = await self.functions.deferred.reschedule(self.tenant.tenant, task, due, self.tenant.limits, by=BY)
        return Booking(booked.id, booked.due_at, booked.replay)

    async def send(self, conversation: int, words: str, key: str) -> None:
        await self.functions.send(self.tenant.tenant, conversation, words, key)

    async def has_template(self, channel: str, name: str) -> bool:
        sender = await self._sender(channel)
        return isinstance(await sender.check(chosen_template(self.tenant, name, {})), Filled)

    async def send_template(self, channel: str, template: str, to: str, params: Mapping[str, str], key: str) -> None:
        service, tenant = self.functions.service, self.tenant.tenant
        section = self.tenant.channels.whatsapp
        await self._sender(channel)
        if section is None or all(one.sid != template for one in section.templates):
            raise BadBooking(f"the template {template[:60]!r} is not in the tenant's file: name it there, and apply it")
        values = dict(params)
        keys = address.forms(to if to.startswith("whatsapp:") else f"whatsapp:{to}")
        async with service.database.transaction() as connection:
            conversation = await conversations.latest(connection, tenant, channel, keys)
            if conversation is None:
                raise LookupError("nobody of that address has written to the tenant: only who has may be written to")
            notice = Scheduled(
                tenant,
                "notice",
                timedelta(),
                conversation,
                channel,
                payload={
                    "words": " · ".join(values.values()) or template,
                    "template": {"id": template, "values": values},
                },
                idempotency_key=key,
                lane=True,  # there is nothing to write
            )
            await book(connection, service.clock, notice)
        service.signals.hint(DUE)

    async def _sender(self, channel: str) -> Channel:
        sender = await self.functions.service.channel(self.tenant, channel) if channel == "whatsapp" else None
        if sender is None:
            raise BadBooking(
                f"the tenant has no templates on {channel[:40]!r}: WhatsApp alone has any, where the tenant's file has it"
            )
        return sender
