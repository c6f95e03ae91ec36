"""Claims as a worker makes them, and a task's row as it stands."""

from datetime import timedelta
from typing import Any

from sqlalchemy import RowMapping, select

from scheduler.claim import claim
from scheduler.clock import Clock
from scheduler.task import Pool, Task, tasks
from store.database import Database

LEASE = timedelta(seconds=60)


async def take(database: Database, clock: Clock, worker: str = "w", *, speak: int = 10, work: int = 10) -> list[Task]:
    """Claim what is due: at most so many tasks that speak, and so many of either sort that are to be written."""
    limits: dict[Pool, int] = {"speak": speak, "timed": work, "background": work}
    async with database.transaction() as connection:
        return [
            task
            for pool, limit in limits.items()
            if limit
            for task in await claim(connection, clock, worker, LEASE, pool, limit)
        ]


async def row_of(database: Database, task: int) -> RowMapping:
    """Return a task's whole row."""
    async with database.transaction() as connection:
        return (await connection.execute(select(tasks).where(tasks.c.id == task))).mappings().one()


async def fields(database: Database, task: int, *names: str) -> tuple[Any, ...]:
    """Return some of a task's columns."""
    row = await row_of(database, task)
    return tuple(row[name] for name in names)
