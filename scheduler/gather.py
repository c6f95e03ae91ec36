"""Booking a turn: several messages in quick succession are one turn.

A turn that waits to be claimed and has nothing to say yet will answer whatever has been said by then, so a further
message joins it and, while people are still typing, moves it back a little. The caller holds the conversation's row
locked (it has just numbered a message), and a claim needs that same row, so no turn is joined while it is being taken.
"""

from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.book import Booking, book
from scheduler.clock import NOW, Clock
from store.database import bucket_of, sql

LONGEST = timedelta(seconds=5)
"""Somebody who never stops typing is answered after so long all the same."""

JOIN = f"""
update tasks
   set due_at = greatest(due_at, least({NOW} + cast(:pause as interval), created_at + cast(:longest as interval)))
 where bucket = :bucket and tenant = :tenant and conversation = :conversation
   and kind = 'turn' and state = 'scheduled' and text is null and payload = '{{}}'
returning id
"""


HAS_TURN = """
select exists (
    select from tasks
     where bucket = :bucket and tenant = :tenant and conversation = :conversation
       and kind = 'turn' and state in ('scheduled', 'firing'))
"""


async def has_turn(connection: AsyncConnection, tenant: str, conversation: int) -> bool:
    """Tell whether something said in a conversation is still to be answered, or being answered."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    return bool(await connection.scalar(sql(HAS_TURN), given))


async def gather_turn(
    connection: AsyncConnection,
    clock: Clock,
    *,
    tenant: str,
    conversation: int,
    channel: str,
    reply_to: str | None,
    pause: timedelta,
) -> int:
    """Let a message just recorded join the turn that waits in its conversation, or book one; return the turn's id."""
    rows = await connection.execute(
        sql(JOIN),
        {
            "now": clock.override(),
            "pause": pause,
            "longest": LONGEST,
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "conversation": conversation,
        },
    )
    waiting = rows.first()
    if waiting is not None:
        return int(waiting.id)
    turn = Booking(tenant, "turn", pause, conversation, channel, reply_to=reply_to, lane=True)
    return (await book(connection, clock, turn)).id
