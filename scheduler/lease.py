"""Keeping a lease alive while its work runs."""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.task import Task
from store.database import sql

# What has just ended under its own fence is not lost: nobody has taken it. Locked first, in the order in which a cancel of
# many locks them, so that the two do not wait for each other.
RENEW = f"""
with mine as materialized (
    select t.bucket, t.tenant, t.id, t.fence, t.state
      from tasks t
      join unnest(cast(:buckets as smallint[]), cast(:tenants as text[]), cast(:ids as bigint[]),
                  cast(:fences as bigint[])) as held(bucket, tenant, id, fence)
        on t.bucket = held.bucket and t.tenant = held.tenant and t.id = held.id and t.fence = held.fence
     order by t.id
       for update of t),
renewed as (
    update tasks t
       set lease_until = {NOW} + cast(:lease as interval)
      from mine
     where t.bucket = mine.bucket and t.tenant = mine.tenant and t.id = mine.id and mine.state = 'firing')
select tenant, id, fence from mine
"""


async def renew(
    connection: AsyncConnection, clock: Clock, held: Collection[Task], lease: timedelta
) -> Collection[Task]:
    """Extend the leases of these tasks in one statement and return those whose claim is no longer ours."""
    rows = await connection.execute(
        sql(RENEW),
        {
            "now": clock.override(),
            "lease": lease,
            "buckets": [task.bucket for task in held],
            "tenants": [task.tenant for task in held],
            "ids": [task.id for task in held],
            "fences": [task.fence for task in held],
        },
    )
    alive = {tuple(row) for row in rows}
    return [task for task in held if (task.tenant, task.id, task.fence) not in alive]
