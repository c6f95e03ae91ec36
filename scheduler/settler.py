"""Ending tasks in batches: what ends while one statement is under way goes with the next. Alone, a task goes at once."""

import asyncio
from collections.abc import Sequence

from scheduler.clock import Clock
from scheduler.errors import LostClaim
from scheduler.settle import End, end_many
from store.database import Database

MOST = 500
"""Tasks in one statement."""


class Settler:
    """One worker's ends on their way to the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._waiting: list[tuple[End, asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def end(self, end: End) -> None:
        """End a task. Raises LostClaim when it is another worker's by now, or what the database raised."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="settler")
        await future

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: Sequence[tuple[End, asyncio.Future[None]]]) -> None:
        try:
            async with self._database.transaction() as connection:
                lost = {task.id for task in await end_many(connection, self._clock, [end for end, _ in batch])}
        except Exception as problem:
            for _, future in batch:
                if not future.done():
                    future.set_exception(problem)
            return
        for end, future in batch:
            if future.done():
                continue  # whoever waited was cancelled
            if end.task.id in lost:
                future.set_exception(LostClaim(f"task {end.task.id} of tenant {end.task.tenant} is no longer held"))
            else:
                future.set_result(None)
