"""pgqueuer 1.6 on asyncpg and uvloop; tuned as its documentation says: several managers, large batches, its autovacuum settings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped]
from pgqueuer.domain.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from benchmarks.contestants.contestant import Signal, Started

MANAGERS = 3
BATCH = 300
PAYLOAD = b'{"about": "call Ana"}'


class _Client:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def book(self, number: int, delay: timedelta) -> None:
        await self._queries.enqueue("noop", PAYLOAD, execute_after=delay)

    async def book_many(self, numbers: Sequence[int], delay: timedelta) -> None:
        many = len(numbers)
        await self._queries.enqueue(["noop"] * many, [PAYLOAD] * many, [0] * many, [delay] * many)


class PgQueuer:
    """One table, rows deleted when done and written to a log table."""

    name = "pgqueuer"
    has_uvloop = True
    share = 1.0
    is_busy = (
        "select exists (select from pgqueuer where status = 'picked')"
        " or exists (select from pgqueuer where entrypoint = 'noop' and status = 'queued' and execute_after <= now())"
    )
    booked = "select count(*) from pgqueuer"
    finished = "select count(*) from pgqueuer_log where status = 'successful'"

    async def fill(self, url: str, due: int, future: int) -> None:
        """Enqueue with its own bulk call."""
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        client = _Client(queries)
        for count, delay in ((future, timedelta(days=30)), (due, timedelta())):
            for first in range(0, count, 1000):
                await client.book_many(range(min(1000, count - first)), delay)
        await connection.close()

    @asynccontextmanager
    async def client(self, url: str, at_once: int) -> AsyncIterator[_Client]:
        """Book through a pool."""
        async with asyncpg.create_pool(url, min_size=at_once, max_size=at_once) as pool:
            yield _Client(Queries.from_asyncpg_pool(pool))

    async def work(self, url: str, started: Started, go: Signal, stop: Signal, *, is_tuned: bool) -> None:
        """Run managers side by side, each on a connection of its own."""

        async def noop(job: Job) -> None:
            started(job.execute_after)

        managers = []
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MANAGERS if is_tuned else 1):
                connection = await asyncpg.connect(url)
                stack.push_async_callback(connection.close)
                manager = QueueManager(Queries.from_asyncpg_connection(connection))
                manager.entrypoint("noop")(noop)
                managers.append(manager)
            await go()
            batch = BATCH if is_tuned else 10  # the default
            running = [asyncio.create_task(manager.run(batch_size=batch)) for manager in managers]
            await stop()
            for manager in managers:
                manager.shutdown.set()
            await asyncio.gather(*running)


CONTESTANT = PgQueuer()
