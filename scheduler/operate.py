"""What an operator may do to a task that has ended, or that waits: each recorded with who and why.

    failed     -> scheduled   retry: with its attempts forgotten; a text that was written is kept and sent again
    failed     -> cancelled   discard: nothing more comes of it
    uncertain  -> fired       settle: it arrived, as somebody saw
    uncertain  -> failed      settle: it did not arrive; it may then be retried
    uncertain  -> scheduled   resume: the provider's word has come, and what is left is done

Nothing here sends an uncertain task again by itself.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import note
from store.database import bucket_of

RETRY = """
state = 'scheduled', due_at = {now}, attempt = 0, hold = null, ended_at = null, sending = false, cancel_requested = false,
text = case when t.kind = 'turn' then null else t.text end"""
DISCARD = "state = 'cancelled'"
ARRIVED = "state = 'fired', outcome = 'delivered'"
LOST = "state = 'failed', error = 'not delivered, as ' || cast(:by as text)"
RESUME = "state = 'scheduled', due_at = {now}, attempt = 0, ended_at = null, sending = true"


def _move(before: str, assignments: str, event: str) -> str:
    return f"""
with moved as (
    update tasks t set {assignments.format(now=NOW)}
     where t.bucket = :bucket and t.tenant = :tenant and t.id = :id and t.state = '{before}'
 returning t.*),
noted as ({note(f"'{event}'", "moved", "cast(:by as text)")})
select state from moved
"""


async def _do(connection: AsyncConnection, clock: Clock, statement: str, tenant: str, task: int, by: str) -> bool:
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": task, "by": by, "now": clock.override()}
    return (await connection.execute(text(statement), given)).first() is not None


async def retry(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Let a failed task be done now; False when it is not failed. `by` says who, and why. Hint `due` after the commit."""
    return await _do(connection, clock, _move("failed", RETRY, "retried"), tenant, task, by)


async def discard(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Put a failed task away; False when it is not failed."""
    return await _do(connection, clock, _move("failed", DISCARD, "discarded"), tenant, task, by)


async def settle(
    connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str, *, is_delivered: bool
) -> bool:
    """Say of an uncertain task whether it arrived; False when it is not uncertain."""
    return await _do(
        connection, clock, _move("uncertain", ARRIVED if is_delivered else LOST, "settled"), tenant, task, by
    )


async def resume(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Let an uncertain task go on, whose sends have all become known; False when it is not uncertain."""
    return await _do(connection, clock, _move("uncertain", RESUME, "resumed"), tenant, task, by)
