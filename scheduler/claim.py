"""Claiming: taking due tasks so that nobody else does.

Two statements, one for tasks that work and one for tasks that speak; each can be pasted into psql.

To speak, a task needs its conversation's lane. The statement goes in steps, and the order of the steps is the point:
1. candidates: what is due, joined to conversations whose lane is free. Without the join a conversation with thousands of
   due rows behind a held lane would fill the candidates and starve everybody else.
2. those conversations' rows are locked, skipping what is locked, and the lane is looked at again on the locked row.
3. the first due task of each, locked likewise. (A partial unique index instead of the lane would fail a whole batch
   when two due rows share a conversation; a NOT EXISTS alone would let an earlier row that arrives late slip by.)
4. task and lane are updated together.

Follow-ups booked for a time are said in the order of their times, although they are written side by side: one waits
while an elder of its conversation, booked for an earlier time, is still being written, but no longer than PATIENCE after
the elder was due. Work that was not booked for a time (a check that takes minutes) is nobody's elder.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.task import CLAIMED, Task, task_of

PATIENCE = timedelta(seconds=30)

# `t` speaks; `elder` is still being written.
NO_ELDER = f"""
not exists (
    select from tasks elder
     where elder.bucket = t.bucket and elder.tenant = t.tenant and elder.conversation = t.conversation
       and elder.state in ('scheduled', 'firing') and not elder.lane and elder.hold is null and t.kind <> 'turn'
       and (elder.due_at, elder.id) < (t.due_at, t.id)
       and elder.booked_for > elder.created_at
       and elder.due_at > {NOW} - cast(:patience as interval))
"""

DUE_TO_SPEAK = f"t.state = 'scheduled' and t.hold is null and t.lane and t.due_at <= {NOW} and {NO_ELDER}"

CLAIM = f"""
claimed as (
    update tasks t
       set state = 'firing', fence = t.fence + 1, attempt = t.attempt + 1, worker = :worker,
           claimed_at = {NOW}, lease_until = {NOW} + cast(:lease as interval)
      from pick
     where t.bucket = pick.bucket and t.tenant = pick.tenant and t.id = pick.id
 returning t.*)
"""

CLAIM_TO_SPEAK = f"""
with candidate as materialized (
    select t.bucket, t.tenant, t.conversation
      from tasks t
      join conversations c on c.bucket = t.bucket and c.tenant = t.tenant and c.id = t.conversation
     where {DUE_TO_SPEAK} and c.lane_task is null
     order by t.due_at, t.id
     limit :slots),
lane as materialized (
    select c.bucket, c.tenant, c.id
      from conversations c
     where (c.bucket, c.tenant, c.id) in (select bucket, tenant, conversation from candidate)
       and c.lane_task is null
       for no key update skip locked),
pick as materialized (
    select first.*
      from lane
     cross join lateral (
         select t.bucket, t.tenant, t.id
           from tasks t
          where t.bucket = lane.bucket and t.tenant = lane.tenant and t.conversation = lane.id and {DUE_TO_SPEAK}
          order by t.due_at, t.id
          limit 1
            for update skip locked) as first),
{CLAIM},
held as (
    update conversations c
       set lane_task = claimed.id, lane_fence = claimed.fence
      from claimed
     where c.bucket = claimed.bucket and c.tenant = claimed.tenant and c.id = claimed.conversation)
select {CLAIMED} from claimed order by due_at, id
"""

CLAIM_TO_WORK = f"""
with pick as materialized (
    select t.bucket, t.tenant, t.id
      from tasks t
     where t.state = 'scheduled' and t.hold is null and not t.lane and t.due_at <= {NOW}
     order by t.due_at, t.id
     limit :slots
       for update skip locked),
{CLAIM}
select {CLAIMED} from claimed order by due_at, id
"""

# Every part is a minimum, which an index answers at once; for an EXISTS the planner trusts that a match comes soon, and
# reads the whole table when there is none.
NEXT_DUE = f"""
select {NOW} as now,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and lane and due_at > {NOW}) as to_speak,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and not lane and due_at > {NOW}) as to_work,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and lane and due_at <= {NOW}) is not null as is_waiting
"""


async def claim(
    connection: AsyncConnection, clock: Clock, worker: str, lease: timedelta, *, to_speak: int, to_work: int
) -> Sequence[Task]:
    """Claim at most so many tasks of each sort, the longest due first, under a lease and a new fencing token."""
    given = {"now": clock.override(), "worker": worker, "lease": lease}
    claimed: list[Task] = []
    if to_speak > 0:
        rows = await connection.execute(text(CLAIM_TO_SPEAK), {**given, "slots": to_speak, "patience": PATIENCE})
        claimed += map(task_of, rows)
    if to_work > 0:
        claimed += map(task_of, await connection.execute(text(CLAIM_TO_WORK), {**given, "slots": to_work}))
    return claimed


async def next_due(connection: AsyncConnection, clock: Clock) -> tuple[datetime, datetime | None, bool]:
    """Return the present, when the next task falls due (None: never), and whether a due one waits for its lane."""
    row = (await connection.execute(text(NEXT_DUE), {"now": clock.override()})).one()
    times = [at for at in (row.to_speak, row.to_work) if at is not None]
    return row.now, min(times, default=None), row.is_waiting
