"""Cancelling: what is scheduled is cancelled at once; what is being performed is asked to stop, and named as raced."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import became, note
from store.database import bucket_of

# The rows are locked first, in one order, so that two cancels of many tasks do not wait for each other. What becomes of
# each is read from `t` alone: a row that was settled while this waited for its lock is first tried as it was, and half of
# the old and half of the new would be a row that the table's own rules refuse.
CANCEL = f"""
with chosen as materialized (
    select id from tasks
     where bucket = :bucket and tenant = :tenant and id = any(cast(:ids as bigint[]))
       and (cast(:conversation as bigint) is null or conversation = :conversation)
       and (cast(:kind as text) is null or kind = :kind)
       and state in ('scheduled', 'firing')
     order by id
       for update),
asked as (
update tasks t
   set state = case when t.state = 'scheduled' and not t.sending then 'cancelled' else t.state end,
       ended_at = case when t.state = 'scheduled' and not t.sending then {NOW} else t.ended_at end,
       hold = case when t.state = 'scheduled' and not t.sending then null else t.hold end,
       cancel_requested = t.state = 'firing' or t.sending
  from chosen
 where t.bucket = :bucket and t.tenant = :tenant and t.id = chosen.id
returning t.*),
noted as ({note("case e.state when 'cancelled' then e.state else 'cancel requested' end", "asked", "cast(:by as text)")})
select id, kind, state from asked
"""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Every task that was asked for and active is in exactly one of the two."""

    cancelled: Sequence[int]
    raced: Sequence[int]
    """Already being performed: it stops if nothing has left the house yet, otherwise it is done."""


async def cancel(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    ids: Sequence[int],
    *,
    conversation: int | None = None,
    kind: str | None = None,
    by: str | None = None,
) -> Cancelled:
    """Cancel these tasks of a tenant, as far as they are active and of this conversation and kind; `by` says who asked."""
    rows = await connection.execute(
        text(CANCEL),
        {
            "now": clock.override(),
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "ids": list(ids),
            "conversation": conversation,
            "kind": kind,
            "by": by,
        },
    )
    found = sorted((row.id, row.kind, row.state) for row in rows)
    for _, of_kind, state in found:
        if state == "cancelled":
            became(connection, tenant, of_kind, state)
    return Cancelled(
        cancelled=[task for task, _, state in found if state == "cancelled"],
        raced=[task for task, _, state in found if state != "cancelled"],
    )
