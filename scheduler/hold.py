"""Holds: a task that is due but must wait for something other than time. Whoever brings that about releases it."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from store.database import bucket_of

CHANNEL_PAUSED = "channel paused"
"""The tenant has no working sender on the channel; ends when its configuration is applied."""
WINDOW_CLOSED = "window closed"
"""The channel carries no free text now; ends when the customer writes."""

RELEASE = f"""
update tasks
   set hold = null, due_at = least(due_at, {NOW})
 where bucket = :bucket and tenant = :tenant and state = 'scheduled' and hold = :hold
   and (cast(:conversation as bigint) is null or conversation = :conversation)
returning id
"""


async def release(
    connection: AsyncConnection, clock: Clock, tenant: str, hold: str, *, conversation: int | None = None
) -> int:
    """End a hold on a tenant's tasks, or on one conversation's; return how many may be claimed again."""
    rows = await connection.execute(
        text(RELEASE),
        {
            "now": clock.override(),
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "hold": hold,
            "conversation": conversation,
        },
    )
    return len(rows.all())
