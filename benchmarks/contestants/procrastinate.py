"""procrastinate 3.10 on psycopg, with 10 jobs at a time where it is tuned; it has no batches to tune."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
import psycopg

from benchmarks.contestants.contestant import Signal, Started

CONCURRENCY = 10
PAYLOAD: dict[str, Any] = {"about": "call Ana"}

# Past its row triggers, which write an event and notify twice: a month's rows would take minutes.
FUTURE = """
begin;
alter table procrastinate_jobs disable trigger user;
insert into procrastinate_jobs (queue_name, task_name, priority, args, status, scheduled_at)
select 'default', 'noop', 0, '{"about": "call Ana"}', 'todo', now() + interval '30 days' + n * interval '1 second'
  from generate_series(1, %d) n;
alter table procrastinate_jobs enable trigger user;
commit
"""


def _app(url: str, connections: int) -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=connections))


class _Client:
    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    def _deferrer(self, delay: timedelta) -> Any:
        return self._app.configure_task("noop", schedule_in={"seconds": int(delay.total_seconds() * 1000) / 1000})

    async def book(self, number: int, delay: timedelta) -> None:
        await self._deferrer(delay).defer_async(**PAYLOAD)

    async def book_many(self, numbers: Sequence[int], delay: timedelta) -> None:
        await self._deferrer(delay).batch_defer_async(*[PAYLOAD for _ in numbers])


class Procrastinate:
    """Rows kept, an event row a state; claim and completion one job at a time."""

    name = "procrastinate"
    has_uvloop = False
    share = 1 / 40
    is_busy = (
        "select exists (select from procrastinate_jobs where status = 'doing'"
        " or status = 'todo' and coalesce(scheduled_at, now()) <= now())"
    )
    booked = "select count(*) from procrastinate_jobs"
    finished = "select count(*) from procrastinate_jobs where status = 'succeeded'"

    async def fill(self, url: str, due: int, future: int) -> None:
        """Defer what is due with its own bulk call; the rest as rows, before them."""
        app = _app(url, 2)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            if future:
                async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                    await connection.execute((FUTURE % future).encode())
            deferrer = app.configure_task("noop")
            for first in range(0, due, 1000):
                await deferrer.batch_defer_async(*[PAYLOAD for _ in range(min(1000, due - first))])

    @asynccontextmanager
    async def client(self, url: str, at_once: int) -> AsyncIterator[_Client]:
        """Book through its pool."""
        app = _app(url, at_once)
        async with app.open_async():
            yield _Client(app)

    async def work(self, url: str, started: Started, go: Signal, stop: Signal, *, is_tuned: bool) -> None:
        """Run one worker."""
        app = _app(url, CONCURRENCY)

        @app.task(name="noop", pass_context=True)
        async def noop(context: procrastinate.JobContext, /, **given: Any) -> None:
            started(context.job.scheduled_at or datetime.now(UTC))

        async with app.open_async():
            await go()
            more: dict[str, Any] = {"concurrency": CONCURRENCY} if is_tuned else {}
            running = asyncio.create_task(app.run_worker_async(install_signal_handlers=False, **more))
            await stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


CONTESTANT = Procrastinate()
