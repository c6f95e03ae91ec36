"""Doing many small things in one statement: what comes while one is under way goes with the next. Alone, it goes at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import OUTAGES, Database

log = logging.getLogger(__name__)

MOST = 500
"""Things in one statement."""

Given = TypeVar("Given")
Got = TypeVar("Got")


class Batch(Generic[Given, Got]):
    """One process's things of one kind on their way to the database."""

    def __init__(
        self,
        database: Database,
        statement: Callable[[AsyncConnection, Sequence[Given]], Awaitable[Sequence[Got | Exception]]],
        *,
        is_single: bool = False,
    ) -> None:
        """`statement` does all that it is given and returns what came of each, in their order.

        `is_single` says that it is one statement and no more, which needs no transaction around it.
        """
        self._lend = database.autocommit if is_single else database.transaction
        self._statement = statement
        self._waiting: list[tuple[Given, asyncio.Future[Got]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def do(self, given: Given) -> Got:
        """Do one thing; return or raise what came of it, once it is committed."""
        future: asyncio.Future[Got] = asyncio.get_running_loop().create_future()
        self._waiting.append((given, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="batch")
        return await future

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                results = await self._try([given for given, _ in batch])
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():
                        continue  # whoever waited was cancelled
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._sending = None

    async def _try(self, batch: Sequence[Given]) -> Sequence[Got | Exception]:
        try:
            async with self._lend() as connection:
                return await self._statement(connection, batch)
        except Exception as problem:
            if len(batch) == 1 or isinstance(problem, OUTAGES):
                return [problem] * len(batch)
            # One that cannot be done spoils nobody else's.
            log.warning("a batch of %d is done one by one (%s)", len(batch), type(problem).__name__)
            return [result for one in batch for result in await self._try([one])]
