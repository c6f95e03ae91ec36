"""Rows that say only what matters to a test."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.book import Booked, Booking, book
from scheduler.clock import Clock
from scheduler.task import tasks
from store import contacts, conversations, tenants
from store.contacts import Contact
from store.database import Database


async def a_tenant(connection: AsyncConnection, name: str = "acme", **config: Any) -> str:
    """Store a tenant and return its name."""
    await tenants.apply(connection, name, config, ())
    return name


async def a_conversation(
    connection: AsyncConnection, tenant: str = "acme", *, channel: str = "web", address: str = "ana", **known: str
) -> int:
    """Open a conversation (and its tenant) and return its id."""
    if await tenants.find(connection, tenant) is None:
        await a_tenant(connection, tenant)
    contact = await contacts.meet(connection, Contact(tenant, channel, address, address, **known))
    return await conversations.open_conversation(connection, tenant, contact, None)


async def a_turn(
    connection: AsyncConnection, clock: Clock, conversation: int, *, tenant: str = "acme", due: timedelta = timedelta()
) -> Booked:
    """Book a turn."""
    return await book(connection, clock, Booking(tenant, "turn", due, conversation, "web", lane=True))


async def a_followup(
    connection: AsyncConnection,
    clock: Clock,
    conversation: int,
    *,
    tenant: str = "acme",
    due: timedelta | datetime = timedelta(),
    about: str = "call Ana",
    **more: Any,
) -> Booked:
    """Book a follow-up."""
    return await book(
        connection, clock, Booking(tenant, "followup", due, conversation, "web", {"about": about}, **more)
    )


async def states(database: Database) -> dict[int, str]:
    """Return the state of every task."""
    async with database.transaction() as connection:
        rows = await connection.execute(select(tasks.c.id, tasks.c.state))
        return {row.id: row.state for row in rows}


async def lanes(database: Database) -> dict[int, int | None]:
    """Return who holds the lane of every conversation."""
    async with database.transaction() as connection:
        rows = await connection.execute(text("select id, lane_task from conversations"))
        return {row.id: row.lane_task for row in rows}
