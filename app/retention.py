"""What is old besides tasks: sessions of the widget, and what was said, for as long as each tenant wants it kept.

Of what was said the messages are deleted, and the words that tasks keep of it are emptied. It goes through a tenant's
conversations and tasks by their keys, a page a transaction, and looks at the first message of each: no index of messages by
their time is kept for it. Any number of processes may do this at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from app.service import Service
from app.tenants_file import UNUSABLE
from scheduler import erase as tasks
from scheduler.retention import BATCH, KEPT, PAUSE
from store import erase as people
from store import tenants
from web_widget import sessions

log = logging.getLogger(__name__)

Page = Callable[[AsyncConnection, int], Awaitable[tuple[int, int | None]]]
"""Given where a page begins, does it; returns how many rows changed, and where the next begins."""


async def delete_old(service: Service) -> None:
    """Delete what is old. A tenant that cannot be used keeps what it has."""
    await sessions.delete_old(service.database)
    async with service.database.autocommit() as connection:
        rows = await tenants.find_all(connection)
    for row in rows:
        try:
            days = service.read(row).retention.messages_days
        except UNUSABLE:
            continue
        if days is not None:
            deleted = await forget(service, row.tenant, timedelta(days=days))
            if deleted:
                log.info("deleted %d messages of tenant %s that were older than %d days", deleted, row.tenant, days)


async def forget(service: Service, tenant: str, kept: timedelta, *, batch: int = BATCH, pause: float = PAUSE) -> int:
    """Delete what was said with a tenant longer than `kept` ago; return how many messages. `pause` is seconds."""
    clock = service.clock

    async def messages(connection: AsyncConnection, after: int) -> tuple[int, int | None]:
        return await people.forget(connection, tenant, kept, after=after, batch=batch, now=clock.override())

    async def words(connection: AsyncConnection, after: int) -> tuple[int, int | None]:
        return await tasks.forget(connection, clock, tenant, kept, after=after, batch=batch)

    every = partial(_every_page, service, pause=pause)
    deleted = await every(messages)
    if kept < KEPT:  # else they are deleted with their tasks
        await every(words)
    return deleted


async def _every_page(service: Service, page: Page, *, pause: float) -> int:
    changed, after = 0, 0
    while True:
        async with service.database.transaction() as connection:
            more, following = await page(connection, after)
        changed += more
        if following is None:
            return changed
        after = following
        await asyncio.sleep(pause)
