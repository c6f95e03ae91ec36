"""Holds: a task that is due but must wait for something other than time. Whoever brings that about releases it."""

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import settle
from scheduler.clock import NOW, Clock
from scheduler.events import note
from scheduler.task import Task
from store.database import bucket_of, sql

CHANNEL_PAUSED = "channel paused"
"""The tenant has no working sender on the channel; ends when its configuration is applied."""
WINDOW_CLOSED = "window closed"
"""The channel carries no free text now; ends when the customer writes."""
TOPIC_GONE = "topic gone"
"""The topic it belongs in is gone or closed; ends when somebody writes in that very topic, or the configuration is applied."""
WITH_PERSON = "with a person"
"""A person answers in that conversation; ends when they give it back to the agent, or the configuration is applied."""

# Locked first, in the order in which a cancel of many locks them, so that the two never wait for each other in a circle.
RELEASE = f"""
with chosen as materialized (
    select bucket, tenant, id, fence, hold from tasks
     where bucket = :bucket and tenant = :tenant and state = 'scheduled' and hold = any(cast(:holds as text[]))
       and (cast(:conversation as bigint) is null or conversation = :conversation)
     order by id
       for update),
released as (
    update tasks set hold = null, due_at = least(due_at, {NOW})
     where bucket = :bucket and tenant = :tenant and id = any(array(select id from chosen))),
noted as ({note("'released'", "chosen", "e.hold")})
select id from chosen
"""

# Whoever ends a hold changes this row first, in the same transaction.
CONVERSATION_AND_TENANT = """
    select from conversations v join tenants t on t.bucket = v.bucket and t.tenant = v.tenant
     where v.bucket = :bucket and v.tenant = :tenant and v.id = :conversation
       for no key update of v for share of t
"""
ENDED_BY = {
    CHANNEL_PAUSED: "select from tenants where bucket = :bucket and tenant = :tenant for share",
    WINDOW_CLOSED: """
        select from conversations where bucket = :bucket and tenant = :tenant and id = :conversation for no key update
    """,
    TOPIC_GONE: CONVERSATION_AND_TENANT,
    WITH_PERSON: CONVERSATION_AND_TENANT,
}


async def keep_waiting(connection: AsyncConnection, task: Task, hold: str) -> None:
    """Keep whoever would end such a hold waiting until this transaction ends, and wait for whoever was here first.

    Call it before a task is held, then look once more whether it must be: else what ends the hold can come between the
    look and the hold, find nothing held, and not come again. Raises LostClaim.
    """
    await settle.is_sending(connection, task)  # the task's row first, as everybody locks them
    await connection.execute(
        sql(ENDED_BY[hold]), {"bucket": task.bucket, "tenant": task.tenant, "conversation": task.conversation}
    )


async def release(
    connection: AsyncConnection, clock: Clock, tenant: str, *holds: str, conversation: int | None = None
) -> int:
    """End holds on a tenant's tasks, or on one conversation's; return how many may be claimed again."""
    rows = await connection.execute(
        sql(RELEASE),
        {
            "now": clock.override(),
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "holds": list(holds),
            "conversation": conversation,
        },
    )
    return len(rows.all())
