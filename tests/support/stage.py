"""Actors on one database, and one seeded order in which their statements and commits are taken.

Whatever an actor calls goes through the service's own code: before each statement, and before each commit, it waits until
it is chosen. What waits for a lock of another is told from what is done by asking the server.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import Connection, Database

_ACTOR: ContextVar[str | None] = ContextVar("actor", default=None)
"""Whose statement it is; what nobody on the stage does is not held up."""
ANSWER = 0.002
"""Seconds a statement is given to answer before the server is asked, again and again, whether it waits."""


class StagedDatabase(Database):
    """A database on which actors wait for their turns while there is a stage."""

    stage: "Stage | None" = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with super().transaction() as connection:
            self._hold_up(connection)
            yield connection
            await self._turn(connection)

    @asynccontextmanager
    async def autocommit(self, *, is_planned_once: bool = False) -> AsyncIterator[AsyncConnection]:
        async with super().autocommit(is_planned_once=is_planned_once) as connection:
            self._hold_up(connection)
            yield connection

    def _hold_up(self, connection: AsyncConnection) -> None:
        go_on = connection.execute

        async def execute(*words: Any, **options: Any) -> Any:
            await self._turn(connection)
            return await go_on(*words, **options)

        connection.execute = execute  # type: ignore[method-assign]

    async def _turn(self, connection: AsyncConnection) -> None:
        assert isinstance(connection, Connection)
        name = _ACTOR.get()
        if self.stage is not None and name is not None:
            await self.stage.turn(name, connection.driver.info.backend_pid)


class Stage:
    """One play: who waits for his turn, and whose it is next."""

    def __init__(self, seed: int, observer: psycopg.AsyncConnection[Any]) -> None:
        """`observer` is a connection of its own, which commits by itself."""
        self._random, self._observer = random.Random(seed), observer
        self._ready: dict[str, asyncio.Future[None]] = {}
        self._pids: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.taken: list[str] = []
        """The order so far."""

    async def turn(self, name: str, pid: int) -> None:
        """Wait for one's turn."""
        self._pids[name] = pid
        self._ready[name] = asyncio.get_running_loop().create_future()
        self._changed.set()
        await self._ready[name]

    async def play(self, actors: Mapping[str, Awaitable[object]]) -> dict[str, Any]:
        """Let all act, until all are done, and return for each what it returned or raised."""
        works = {name: asyncio.create_task(_as(name, actor)) for name, actor in actors.items()}
        weights = {name: self._random.choice([1, 1, 8]) for name in sorted(actors)}  # some are quicker than others
        for work in works.values():
            work.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                await self._until_all_stand(works)
                if not self._ready:
                    assert all(work.done() for work in works.values()), f"they wait for each other: {self.taken}"
                    break
                names = sorted(self._ready)
                (name,) = self._random.choices(names, [weights[name] for name in names])
                self.taken.append(name)
                self._ready.pop(name).set_result(None)
        finally:
            for work in works.values():
                work.cancel()
            found = await asyncio.gather(*works.values(), return_exceptions=True)
        return dict(zip(works, found, strict=True))

    async def _until_all_stand(self, works: Mapping[str, asyncio.Task[object]]) -> None:
        """Return when each is done, is ready, or waits for a lock of another."""
        while moving := [name for name, work in works.items() if not work.done() and name not in self._ready]:
            self._changed.clear()
            try:
                async with asyncio.timeout(ANSWER):
                    await self._changed.wait()
            except TimeoutError:
                pids = [self._pids[name] for name in moving if name in self._pids]
                question = "select count(*) from unnest(%s::int[]) as p where cardinality(pg_blocking_pids(p)) > 0"
                row = await (await self._observer.execute(question, [pids])).fetchone()
                if row and row[0] == len(moving) and not self._changed.is_set():
                    return


async def _as(name: str, actor: Awaitable[object]) -> object:
    _ACTOR.set(name)
    return await actor
