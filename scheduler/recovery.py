"""Recovery: the pass that returns what a dead worker held.

A claim is dead when its lease has run out by the database's clock, or when its worker ran on this very machine and is
provably gone (`worker.py`), so that a restart need not wait for the lease. The fence is raised in the same statement:
should the worker be alive after all, nothing it commits counts.

A task that died before the second door is simply scheduled again. One that died behind it comes back with `sending`
still set: whoever claims it next must find out what became of the send, not repeat it.

The same pass ends what is held for something that did not come in time.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.claim import EVERYWHERE, IN_BUCKET
from scheduler.clock import NOW, Clock
from scheduler.events import Became, became, note
from store.database import sql, tell_on_commit

BATCH = 500
SPREAD = "interval '1 second' * (0.5 + random() / 2) * 2 ^ least(t.attempt - 2, 6)"
"""From the second death on a task comes back after a pause of its own, half a second to a minute: should one of those that
were in hand together be what kills the worker, the others are not in hand when it does so again."""


def _take_from(whose: str, assignments: str, of: str = EVERYWHERE) -> str:
    """Return the statement that returns claims to `scheduled`; `whose` chooses among the rows of `tasks`."""
    return f"""
with taken as materialized (
    select bucket, tenant, id, fence
      from tasks
     where lease_until is not null and ({whose})
       {of.format("tasks")}
     order by bucket, tenant, id
     limit :batch
       for update skip locked),
freed as (
    update conversations c
       set lane_task = null, lane_fence = null
      from taken
     where c.bucket = taken.bucket and c.tenant = taken.tenant and c.lane_task = taken.id and c.lane_fence = taken.fence
       {of.format("c")}),
back as (
    update tasks t
       set state = case when t.cancel_requested and not t.sending then 'cancelled' else 'scheduled' end,
           ended_at = case when t.cancel_requested and not t.sending then {NOW} end,
           fence = t.fence + 1, worker = null, lease_until = null, {assignments}
      from taken
     where t.bucket = taken.bucket and t.tenant = taken.tenant and t.id = taken.id {of.format("t")}
 returning t.*),
noted as ({note("case e.state when 'scheduled' then 'recovered' else e.state end", "back")})
select tenant, kind, case state when 'scheduled' then 'recovered' else state end as event from back
"""


def _recover(of: str) -> str:
    return _take_from(
        f"lease_until < {NOW} or worker = any(cast(:gone as text[]))",
        f"due_at = case when t.attempt < 2 or t.sending then t.due_at else greatest(t.due_at, {NOW} + {SPREAD}) end",
        of,
    )


RECOVER, RECOVER_IN_BUCKET = _recover(EVERYWHERE), _recover(IN_BUCKET)

# What is behind the second door is not over: what became of it must be found out.
EXPIRE_HELD = f"""
with over as materialized (
    select bucket, tenant, id, hold
      from tasks
     where state = 'scheduled' and hold is not null and expires_at <= {NOW} and not sending
     order by bucket, tenant, id
     limit :batch
       for update skip locked),
expired as (
    update tasks t set state = 'expired', hold = null, ended_at = {NOW}
      from over
     where t.bucket = over.bucket and t.tenant = over.tenant and t.id = over.id
 returning t.*, over.hold as held_for),
noted as ({note("e.state", "expired", "e.held_for")})
select tenant, kind, kind = 'followup' and parent is not null as is_promise from expired
"""

# The attempt is not counted: nothing was done in it.
TAKE_BACK = _take_from("worker = :worker and id <> all(cast(:held as bigint[]))", "attempt = t.attempt - 1")

CLAIMED_BUCKETS = "select distinct bucket from tasks where lease_until is not null"
HOLDERS = "select distinct worker from tasks where lease_until is not null"


async def holders(connection: AsyncConnection) -> Sequence[str]:
    """Return the workers that hold claims."""
    return list((await connection.execute(sql(HOLDERS))).scalars())


async def recover(
    connection: AsyncConnection, clock: Clock, gone: Sequence[str] = (), bucket: int | None = None
) -> int:
    """Return dead claims to `scheduled`, those of the workers in `gone` whatever their lease; return how many.

    With a `bucket` only that one is looked at.
    """
    given = {"now": clock.override(), "gone": list(gone), "batch": BATCH}
    if bucket is None:
        return await _count(connection, RECOVER, given)
    return await _count(connection, RECOVER_IN_BUCKET, {**given, "bucket": bucket})


async def _count(connection: AsyncConnection, statement: str, given: Mapping[str, object]) -> int:
    rows = (await connection.execute(sql(statement), given)).all()
    for row in rows:
        became(connection, row.tenant, row.kind, row.event)
    return len(rows)


async def expire_held(connection: AsyncConnection, clock: Clock) -> int:
    """Expire what was held until it was not worth saying any more; return how many."""
    rows = (await connection.execute(sql(EXPIRE_HELD), {"now": clock.override(), "batch": BATCH})).all()
    news = [Became(row.tenant, row.kind, "expired", promise="broken" if row.is_promise else None) for row in rows]
    tell_on_commit(connection, *news)
    return len(rows)


async def take_back(connection: AsyncConnection, clock: Clock, worker: str, held: Sequence[int]) -> int:
    """Return to `scheduled` what bears a living worker's name and is not among what it holds; return how many.

    Such are claims that were committed and whose answer never came. Call it while no claim of that worker is under way.
    """
    given = {"now": clock.override(), "worker": worker, "held": list(held), "batch": None}
    return await _count(connection, TAKE_BACK, given)


async def claimed_buckets(connection: AsyncConnection) -> Sequence[int]:
    """Return the buckets in which something is claimed."""
    return list((await connection.execute(sql(CLAIMED_BUCKETS))).scalars())
