"""Erasing a contact at their word: what is to come is cancelled, words, addresses and names go, counts stay.

All of it is one transaction. What is being said to them at this moment is waited for, after it has been asked to stop: nothing is
said to them once the erasure is committed. Of what is only being worked at nothing comes any more.

What their words led to elsewhere is not known here: a deferred run with their data in its payload is found by its labels, and
a provider keeps what it was given.
"""

import asyncio
from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app.renewals import KEY
from channels.whatsapp import address as whatsapp
from scheduler import erase as tasks
from scheduler import find
from scheduler.cancel import cancel
from scheduler.clock import Clock
from scheduler.task import ACTIVE
from store import erase as people
from store import renewals as renewing
from store.database import Database
from web_widget import sessions

LOOKS, PAUSE = 600, 0.2
"""How often it is looked whether something is being said, and seconds between: an answer may take a minute to write."""


class Speaking(Exception):
    """Something is being said to the contact at this moment, or has been for longer than anybody waits."""

    def __init__(self, tasks: Sequence[int]) -> None:
        super().__init__(
            "something is being said to them at this moment, and it was waited for in vain: nothing was erased; try again"
        )
        self.tasks = tasks


def key_of(channel: str, address: str) -> str:
    """Return the key under which a contact is known; a WhatsApp number may be given without the channel's name."""
    if channel != "whatsapp":
        return address
    return whatsapp.key(address if address.startswith("whatsapp:") else f"whatsapp:{address}")


async def erase(
    database: Database, clock: Clock, tenant: str, contacts: Sequence[int], *, looks: int = LOOKS
) -> Mapping[str, int]:
    """Erase contacts; return how many rows of each table were emptied, and how many tasks were `cancelled`. Raises Speaking."""
    while True:
        try:
            async with database.transaction() as connection:
                return await _erase(connection, clock, tenant, contacts)
        except Speaking as speaking:
            if looks <= 1:
                raise
            looks -= 1
            async with database.transaction() as connection:
                await cancel(connection, clock, tenant, speaking.tasks, by=tasks.BY)
            await asyncio.sleep(PAUSE)


async def _erase(connection: AsyncConnection, clock: Clock, tenant: str, contacts: Sequence[int]) -> Mapping[str, int]:
    renewals, talks = await people.lock(connection, tenant, contacts, key_of)
    ids: Sequence[int] = []
    for _ in range(2):  # what a turn books while it is waited for is not among what the first has seen
        planned = [one.id for renewal in renewals for one in await _planned(connection, tenant, renewal)]
        ids = await tasks.lock(connection, tenant, talks, planned)
    if await tasks.is_speaking(connection, clock, tenant, ids):
        raise Speaking(ids)
    cancelled = await tasks.erase(connection, clock, tenant, ids)
    await sessions.forget(connection, tenant, talks)
    now = clock.override()
    counts = await people.erase(connection, tenant, contacts, talks, renewals, now=now)
    await renewing.note(connection, tenant, "erased", "an operator", dict.fromkeys(renewals), now=now)
    return {**counts, "tasks": len(ids), "cancelled": cancelled}


async def _planned(connection: AsyncConnection, tenant: str, renewal: int) -> Sequence[find.Found]:
    return await find.search(connection, tenant=tenant, states=ACTIVE, key_prefix=f"{KEY}{renewal}:", limit=1000)
