"""Moving: what is pending in a conversation whose chat is at another address now.

The customer's messages have other numbers there, so nothing is a reply to them any more. Where the chat goes on in
another conversation, what is to come goes there, to be listed and cancelled with the rest. What has the old one's lane, or
may have gone out from it in part, ends where it is.
"""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, sql

# In the order in which a cancel of many locks them, so that the two never wait for each other in a circle.
LOCK_PENDING = """
select id from tasks
 where bucket = :bucket and tenant = :tenant and conversation = any(cast(:conversations as bigint[]))
   and state in ('scheduled', 'firing')
 order by id
   for update
"""
MOVE_PENDING = """
update tasks
   set reply_to = null,
       conversation = case when kind in ('followup', 'notice') and not sending and (state = 'scheduled' or not lane)
                           then :to else conversation end
 where bucket = :bucket and tenant = :tenant and conversation = :conversation and state in ('scheduled', 'firing')
"""


async def lock_pending(connection: AsyncConnection, tenant: str, conversations: Sequence[int]) -> None:
    """Lock what is pending in all the conversations of a chat, before any of it is moved, or settled by whoever moves it."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversations": list(conversations)}
    await connection.execute(sql(LOCK_PENDING), given)


async def move_pending(connection: AsyncConnection, tenant: str, conversation: int, to: int) -> None:
    """Let what is pending in a conversation, locked already, go on in another, or in the same one at another address."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "to": to}
    await connection.execute(sql(MOVE_PENDING), given)
