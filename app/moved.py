"""A chat goes on under another address: a group became a supergroup. Its conversation and what is pending go along.

A provider tells of it unasked, or when something is sent to the old address.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.move import lock_pending, move_pending
from store import contacts, conversations


async def follow(connection: AsyncConnection, tenant: str, channel: str, old_key: str, address: str) -> None:
    """Follow a chat to its new address. Told again, or of a chat in which nobody has spoken, it changes nothing."""
    if address == old_key:
        return
    moving = await conversations.moving(connection, tenant, channel, old_key, address)
    await lock_pending(connection, tenant, [conversation for conversation, _ in moving])
    for conversation, to in moving:
        await move_pending(connection, tenant, conversation, to)
    await contacts.move(connection, tenant, channel, old_key, address)
