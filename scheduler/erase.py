"""Erasing what tasks say, and to whom: the rows stay, so that what is counted adds up, and nothing more comes of them.

What is to come is cancelled; what is being worked at is taken from its worker, whose commits count for nothing from then on. What
has its conversation's lane may be on its way out at this moment, so whoever erases waits until nothing has (`is_speaking`).
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import became, note
from store.database import bucket_of, sql

BY = "the customer, whose data was erased"
KEPT = ("renewal", "step", "is_work", "is_by_person")
"""What a payload keeps: what says of which kind the task was. A schedule's keeps all but what it is about."""
BARE_PAYLOAD = """
case when t.kind = 'schedule' then t.payload - 'about'
     else (select coalesce(jsonb_object_agg(name, value), '{}') from jsonb_each(t.payload) as kept (name, value)
            where name = any(cast(:kept as text[]))) end
"""

# Either half of it is an index.
OF_CONTACT = """
select id from tasks
 where bucket = :bucket and tenant = :tenant and id = any(cast(:others as bigint[]) || array(
     select id from tasks
      where bucket = :bucket and tenant = :tenant and conversation = any(cast(:conversations as bigint[]))
        and (state in ('scheduled', 'firing') or ended_at is not null)))
 order by id
   for update
"""
IS_SPEAKING = f"""
select exists (
    select from tasks
     where bucket = :bucket and tenant = :tenant and id = any(cast(:ids as bigint[])) and state = 'firing' and lane
       and lease_until > {NOW})
"""
END = f"""
with was as materialized (
    select id from tasks
     where bucket = :bucket and tenant = :tenant and id = any(cast(:ids as bigint[])) and state in ('scheduled', 'firing')),
freed as (
    update conversations c set lane_task = null, lane_fence = null
      from was
     where c.bucket = :bucket and c.tenant = :tenant and c.lane_task = was.id),
ended as (
    update tasks t
       set state = 'cancelled', ended_at = {NOW}, hold = null, sending = false, fence = t.fence + 1, worker = null,
           lease_until = null
      from was
     where t.bucket = :bucket and t.tenant = :tenant and t.id = was.id
 returning t.*),
noted as ({note("e.state", "ended", "cast(:by as text)")})
select kind from ended
"""
# A guard's name is ours, a function's result is not. A schedule always has a key, by which it is listed. Where no key is left
# there is nothing to compare a hash with.
EMPTY = f"""
with emptied as (
    update tasks t
       set payload = {BARE_PAYLOAD}, text = null, reply_to = null,
           key = case when t.kind = 'schedule' then 'erased:' || t.id end, subject = null, idempotency_key = null,
           payload_hash = null, error = case when t.error is not null then 'erased' end,
           outcome = case when t.kind = 'function' then split_part(t.outcome, ':', 1) else t.outcome end
     where t.bucket = :bucket and t.tenant = :tenant and t.id = any(cast(:ids as bigint[])))
update task_events
   set detail = case when event in ('booked', 'claimed') then detail
                     when detail ~ '^the customer($|[^a-z])' then 'the customer' end
 where bucket = :bucket and tenant = :tenant and task = any(cast(:ids as bigint[]))
"""


async def lock(
    connection: AsyncConnection, tenant: str, conversations: Sequence[int], others: Sequence[int]
) -> Sequence[int]:
    """Lock all tasks of conversations, whatever became of them, and the others; return them in order."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversations": list(conversations)}
    given["others"] = list(others)
    return list(await connection.scalars(sql(OF_CONTACT), given))


async def is_speaking(connection: AsyncConnection, clock: Clock, tenant: str, tasks: Sequence[int]) -> bool:
    """Tell whether a living worker has one of these tasks with the lane, and may be saying it."""
    given = {"now": clock.override(), "bucket": bucket_of(tenant), "tenant": tenant, "ids": list(tasks)}
    return bool(await connection.scalar(sql(IS_SPEAKING), given))


async def erase(connection: AsyncConnection, clock: Clock, tenant: str, tasks: Sequence[int]) -> int:
    """End those of these locked tasks that have not ended, and empty all of them; return how many were ended."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "ids": list(tasks)}
    ended = (await connection.execute(sql(END), {**given, "now": clock.override(), "by": BY})).all()
    for row in ended:
        became(connection, tenant, row.kind, "cancelled")
    await connection.execute(sql(EMPTY), {**given, "kept": list(KEPT)})
    return len(ended)


# Of what waits for an operator the words are needed still.
FORGET = f"""
with page as materialized (
    select id, created_at from tasks
     where bucket = :bucket and tenant = :tenant and id > :after
     order by id
     limit :batch),
old as materialized (
    select id from tasks t
     where t.bucket = :bucket and t.tenant = :tenant and t.id = any(array(select id from page))
       and t.kind in ('turn', 'followup', 'notice') and t.state in ('fired', 'cancelled', 'expired')
       and t.ended_at < {NOW} - cast(:kept_for as interval) and (t.text is not null or t.payload <> {BARE_PAYLOAD})
       for update skip locked),
emptied as (
    update tasks t set text = null, payload = {BARE_PAYLOAD}
     where t.bucket = :bucket and t.tenant = :tenant and t.id = any(array(select id from old)))
select (select count(*) from old) as emptied, (select max(id) from page) as up_to,
       (select count(*) = :batch and max(created_at) < {NOW} - cast(:kept_for as interval) from page) as has_more
"""


async def forget(
    connection: AsyncConnection, clock: Clock, tenant: str, kept: timedelta, *, after: int, batch: int
) -> tuple[int, int | None]:
    """Empty what was said longer than `kept` ago, on one page of a tenant's tasks; return how many, and where the next page begins.

    None where there is no next page.
    """
    given = {
        "now": clock.override(),
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "kept_for": kept,
        "kept": list(KEPT),
    }
    row = (await connection.execute(sql(FORGET), {**given, "after": after, "batch": batch})).one()
    return row.emptied, row.up_to if row.has_more else None
