"""Moving: what is pending in a conversation whose chat is at another address now.

The customer's messages have other numbers there, so nothing is a reply to them any more. Where the chat goes on in
another conversation, what is to come goes there, to be listed and cancelled with the rest. What has the old one's lane, or
may have gone out from it in part, ends where it is.

`take_along` is for a conversation that is no more afterwards, on a channel where saying something is one transaction. All
of its tasks go on in the other, with what has ended. What is in hand is taken from its worker, as from one that died, and
done again: nothing has left the house, and whatever that worker still commits settles nothing.
"""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import became, note
from scheduler.hold import WITH_PERSON
from store.database import bucket_of, sql

# In the order in which a cancel of many locks them, so that the two never wait for each other in a circle.
LOCK_PENDING = """
select id from tasks
 where bucket = :bucket and tenant = :tenant and conversation = any(cast(:conversations as bigint[]))
   and state in ('scheduled', 'firing')
 order by id
   for update
"""
# What waited for a person goes on in another conversation, which may be the agent's: it is looked at anew there.
GOES_ALONG = "kind in ('followup', 'notice', 'schedule') and not sending and (state = 'scheduled' or not lane)"
MOVE_PENDING = f"""
update tasks
   set reply_to = null,
       conversation = case when {GOES_ALONG} then :to else conversation end,
       hold = case when {GOES_ALONG} and conversation <> :to then nullif(hold, '{WITH_PERSON}') else hold end
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


TAKE_ALONG = f"""
with was as materialized (
    select id, state
      from tasks
     where bucket = :bucket and tenant = :tenant and conversation = :conversation
       and (state in ('scheduled', 'firing') or ended_at is not null)
     order by id
       for update),
moved as (
    update tasks t
       set conversation = :to, message_seq = t.message_seq + :behind
      from was
     where t.bucket = :bucket and t.tenant = :tenant and t.id = was.id and was.state <> 'firing'),
taken as (
    update tasks t
       set conversation = :to, message_seq = t.message_seq + :behind,
           state = case when t.cancel_requested then 'cancelled' else 'scheduled' end,
           ended_at = case when t.cancel_requested then {NOW} end,
           fence = t.fence + 1, attempt = t.attempt - 1, worker = null, lease_until = null
      from was
     where t.bucket = :bucket and t.tenant = :tenant and t.id = was.id and was.state = 'firing'
 returning t.*),
noted as ({note("case e.state when 'scheduled' then 'returned' else e.state end", "taken", "cast(:why as text)")})
select kind, state from taken
"""


async def take_along(
    connection: AsyncConnection, clock: Clock, tenant: str, conversation: int, to: int, *, behind: int, why: str
) -> None:
    """Let all tasks of a conversation go on in another, in which its messages come to stand behind a sequence number.

    `why` is written into the story of what is taken from its worker. Lock what is pending before, and then both
    conversations. Hint `due` after the commit.
    """
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "to": to}
    rows = await connection.execute(sql(TAKE_ALONG), {**given, "behind": behind, "why": why, "now": clock.override()})
    for row in rows:
        if row.state == "cancelled":
            became(connection, tenant, row.kind, row.state)
