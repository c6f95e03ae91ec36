"""Waiting for something that sends no signal of its own: looks often, and fails loudly."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from store.database import Database


async def eventually(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 10) -> None:
    """Return as soon as something holds; raises TimeoutError when it does not within the time."""
    async with asyncio.timeout(seconds):
        while True:
            answer = holds()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)


async def waits_for_a_lock(database: Database) -> bool:
    """Tell whether anything waits for a lock in this database."""
    async with database.transaction() as connection:
        waiting = await connection.exec_driver_sql(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return bool(waiting.scalar_one())
