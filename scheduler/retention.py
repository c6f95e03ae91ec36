"""Retention: deletes what ended long ago, with its story and its deliveries.

    fired, cancelled, expired    deleted KEPT after they ended
    failed, uncertain            kept until somebody retries, discards or settles them
    scheduled, held, firing      kept
    schedules                    kept, whatever became of them: what has run once must not run again, and a fence never goes back;
                                 those of a conversation are deleted like its follow-ups, since nobody registers them again

It goes along the primary key, tenant by tenant, a page at a time. An index of what has ended by its time would do the
same with fewer reads, but every task would pay for it at its end, and the claim with it; this costs an hourly look at one
page for each tenant, and at what was booked long ago and is kept. Numbers grow with the time of booking, and nothing
ended before it was booked: at the first task that was booked after the cut, a tenant is done.

What others lock is left for the next pass, so any number of processes may do this at once. Nothing refers to a task but by
its number (its message, what was booked in its run), and whoever looks for it there finds that it is gone.
"""

import asyncio
from datetime import timedelta

from scheduler.clock import NOW, Clock
from store.database import Database, sql

KEPT = timedelta(days=90)
BATCH = 1000
PAUSE = 0.1
"""Seconds between two pages, in which others have the database to themselves."""

# The first key behind this tenant's is the next tenant's first.
NEXT_TENANT = """
select bucket, tenant from tasks where (bucket, tenant) > (:bucket, :tenant) order by bucket, tenant limit 1
"""

# An array, and not a join: the planner has no idea how many there are, and would read a whole table for a join.
DELETE = f"""
with page as materialized (
    select id, created_at
      from tasks
     where bucket = :bucket and tenant = :tenant and id > :after
     order by id
     limit :batch),
old as materialized (
    select id
      from tasks
     where bucket = :bucket and tenant = :tenant and id = any(array(select id from page))
       and state in ('fired', 'cancelled', 'expired') and (kind <> 'schedule' or conversation is not null)
       and ended_at < {NOW} - cast(:kept as interval)
       for update skip locked),
told as (
    delete from task_events
     where bucket = :bucket and tenant = :tenant and task = any(array(select id from old))),
sent as (
    delete from deliveries
     where bucket = :bucket and tenant = :tenant and task = any(array(select id from old))),
gone as (
    delete from tasks
     where bucket = :bucket and tenant = :tenant and id = any(array(select id from old)))
select (select count(*) from old) as deleted,
       (select max(id) from page) as up_to,
       (select count(*) = :batch and max(created_at) < {NOW} - cast(:kept as interval) from page) as has_more
"""


async def delete_old(
    database: Database, clock: Clock, *, kept: timedelta = KEPT, batch: int = BATCH, pause: float = PAUSE
) -> int:
    """Delete what ended longer than `kept` ago, each page in a transaction of its own; return how many tasks went.

    `pause` is seconds.
    """
    deleted, bucket, tenant = 0, -1, ""
    while True:
        async with database.transaction() as connection:
            following = (await connection.execute(sql(NEXT_TENANT), {"bucket": bucket, "tenant": tenant})).first()
        if following is None:
            return deleted
        (bucket, tenant), after, has_more = following, 0, True
        while has_more:
            async with database.transaction() as connection:
                page = (
                    await connection.execute(
                        sql(DELETE),
                        {
                            "now": clock.override(),
                            "bucket": bucket,
                            "tenant": tenant,
                            "after": after,
                            "batch": batch,
                            "kept": kept,
                        },
                    )
                ).one()
            deleted, after, has_more = deleted + page.deleted, page.up_to, page.has_more
            await asyncio.sleep(pause if has_more or page.deleted else 0)
