"""A developer's functions in a test: the real service on a database of the test's own, with a clock that the test moves."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from app.context import Context, Deferral, deferral_of
from app.deferred import checked, offers
from app.functions import App, written
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import Running, apply_tenants, running
from scheduler import find
from scheduler.clock import MovableClock
from scheduler.find import Found
from scheduler.poller import DUE
from scheduler.when import duration
from store.database import sql

PATIENCE = 30.0
"""Seconds that what is due at one instant is waited for."""
DEPLOYMENT = "test"
RUN = ("fired", "failed")
"""What a run that has been performed to its end is."""
MOST = 10_000
"""Runs that are looked at, at most."""

# What waits for something that is not here, or is held, never comes by itself. One statement, so that none is claimed between
# the look at what is firing and the look at what is due.
LOOK = """
select (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and (needs is null or needs = any(cast(:offers as text[])))) as due,
       exists (select from tasks where state = 'firing') as is_firing
"""


class Rehearsal:
    """What a test does with functions: call them, let time pass, and look at what became of it."""

    def __init__(self, run: Running, clock: MovableClock, tenant: TenantConfig) -> None:
        self.clock = clock
        """Stands still unless it is moved, by `fire_due` or by hand."""
        self._run, self._tenant = run, tenant
        self._told: set[int] = set()
        self._offers = sorted(offers(run.functions.app.functions, DEPLOYMENT))

    @property
    def database_url(self) -> str:
        """The address of the database: for a connection of your own, to book in your own transaction."""
        return str(self._run.settings.database_url)

    def context(self, path: str = "/") -> Context:
        """Return a context such as a call of the function at a path is handed, to book, find and cancel by."""
        booker = self._run.functions.booker(self._tenant)
        return Context(self._tenant.tenant, path, f"call:{secrets.token_hex(12)}", booker, _channel=self._channel())

    async def call(self, path: str, payload: object = None, *, channel: str | None = None) -> Any:
        """Call a function now and return what a caller over HTTP is answered. Raises whatever it raises, and as booking does."""
        given = checked(path, payload, in_=0).payload
        result = await self._run.functions.call(self._tenant, path, given, channel or self._channel())
        return json.loads(written(result))

    async def fire_due(self, *, after: str | float | timedelta = 0) -> Sequence[Deferral]:
        """Let time pass, stopping at each instant at which something is due, until all of that has run; return what has run since the last time.

        `after` is a duration (`24h`), or seconds. A run that raised and is tried again later than this is not among it.
        What a run books is due as any other. Raises BadTime, and TimeoutError for what does not end within half a minute.
        """
        until = self.clock.at + (after if isinstance(after, timedelta) else duration(after))
        await self._until_quiet()
        while (due := (await self._look())[0]) is not None and due <= until:
            self.clock.set(due)
            await self._until_quiet()
        self.clock.set(until)
        ended = [task for task in await self._all() if task.state in RUN and task.id not in self._told]
        self._told |= {task.id for task in ended}
        return [deferral_of(task) for task in sorted(ended, key=lambda task: (task.ended_at or until, task.id))]

    async def tasks(self, function: str | None = None) -> Sequence[Deferral]:
        """Return all that was booked, or what was of one function, whatever became of it, in the order of booking."""
        return [deferral_of(task) for task in await self._all(function)]

    async def _all(self, function: str | None = None) -> Sequence[Found]:
        async with self._run.service.database.autocommit() as connection:
            found = await find.search(
                connection, tenant=self._tenant.tenant, kind="function", function=function, limit=MOST
            )
        return sorted(found, key=lambda task: task.id)

    async def _look(self) -> tuple[datetime | None, bool]:
        """Return when something is due next, and whether something is being performed."""
        async with self._run.service.database.autocommit() as connection:
            due, is_firing = (await connection.execute(sql(LOOK), {"offers": self._offers})).one()
        return due, is_firing

    async def _until_quiet(self) -> None:
        """Wait until nothing is due by now, and nothing is being performed."""
        signals = self._run.service.signals
        try:
            with signals.subscribe(DUE) as hints:
                async with asyncio.timeout(PATIENCE):
                    signals.hint(DUE)
                    while await self._is_busy():
                        await hints.wait(0.05)
        except TimeoutError as problem:
            told = [
                f"{task.payload.get('path')} (run {task.id}, attempt {task.attempt}, {task.state})"
                for task in await self._all()
                if task.state == "firing" or (task.state == "scheduled" and task.due_at <= self.clock.at)
            ]
            raise TimeoutError(
                f"after {PATIENCE:.0f} seconds there is still something due: {', '.join(told) or 'no function'}"
            ) from problem

    async def _is_busy(self) -> bool:
        due, is_firing = await self._look()
        return is_firing or (due is not None and due <= self.clock.at)

    def _channel(self) -> str | None:
        there = [name for name, section in self._tenant.channels if section is not None]
        return there[0] if len(there) == 1 else None


@asynccontextmanager
async def rehearsing(
    app: App, database_url: str, directory: Path, tenant: Mapping[str, Any]
) -> AsyncIterator[Rehearsal]:
    """Run an application's functions, without its schedules, on an empty database, for one tenant as its file says it.

    Raises pydantic.ValidationError for a tenant that is none.
    """
    config = TenantConfig.model_validate(tenant)
    functions = App(time_zone="UTC")
    functions.functions = app.functions
    settings = Settings(
        database_url=database_url,
        data_dir=directory,
        secret_key=SecretStr(secrets.token_hex(32)),
        deployment=DEPLOYMENT,
    )
    clock = MovableClock()
    async with running(settings, clock=clock, app=functions, is_patient=False) as run:
        await apply_tenants(run.service, [config])
        yield Rehearsal(run, clock, config)
