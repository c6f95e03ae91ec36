"""Claiming: taking due tasks so that nobody else does.

One statement a pool: for tasks that speak; for those that are to be written, in time or in the background; for those that need
something which not every worker has. Each can be pasted into psql.

To speak, a task needs its conversation's lane. The statement goes in steps, and the order of the steps is the point:
1. candidates: what is due, joined to conversations whose lane is free, and more of it than is wanted. Without the join a
   conversation with thousands of due rows behind a held lane would fill the candidates and starve everybody else.
2. the first of each conversation, chosen without a look at locks: where somebody holds that very row, the conversation is
   left alone, since its second must not pass the first.
3. that row and its conversation's are locked together, by their keys, skipping what is locked, and both are looked at
   again as they are once locked; no more than are wanted. (A partial unique index instead of the lane would fail a whole
   batch when two due rows share a conversation; a NOT EXISTS alone would let an earlier row that arrives late slip by.)
4. task and lane are updated together.

Follow-ups booked for a time are said in the order of their times, although they are written side by side: one waits
while an elder of its conversation, booked for an earlier time, is still being written, but no longer than PATIENCE after
the elder was due. Work that was not booked for a time (a check that takes minutes) is nobody's elder.

A batch is fair: afterwards no tenant holds more than about as much as is left free, so that one whose model hangs cannot
take all (the dynamic threshold of Choudhury and Hahne, 1998).
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import note
from scheduler.task import CLAIMED, Pool, Task, task_of
from store.database import sql

PATIENCE = timedelta(seconds=30)
LOOK = 64
"""Due tasks looked at beyond what is wanted, so that a few in conversations that somebody holds do not hide all others."""

# `t` speaks; `elder` is still being written. Within a CASE it is looked up for each row: as a condition of its own the
# planner makes it a join, and reads the whole table for it.
NO_ELDER = f"""
case when t.kind = 'turn' then true else not exists (
    select from tasks elder
     where elder.bucket = t.bucket and elder.tenant = t.tenant and elder.conversation = t.conversation
       and elder.state in ('scheduled', 'firing') and elder.kind <> 'schedule' and not elder.lane and elder.hold is null
       and (elder.due_at, elder.id) < (t.due_at, t.id)
       and elder.booked_for > elder.created_at
       and elder.due_at > {NOW} - cast(:patience as interval)) end
"""

DUE_TO_SPEAK = f"t.state = 'scheduled' and t.hold is null and t.lane and t.due_at <= {NOW} and {NO_ELDER}"

# What a tenant holds afterwards must not exceed what is left free; one that holds as much already is not looked at.
BUSY = "unnest(cast(:busy as text[]), cast(:held as int[])) as busy (tenant, held) using (tenant)"
IN_SHARE = "nth = 1 or coalesce(held, 0) + nth <= :free - nth"
NTH = "row_number() over (partition by tenant order by due_at, id) as nth"


def _claimed(of: str, lease: str = "cast(:lease as interval)") -> str:
    return f"""
claimed as (
    update tasks t
       set state = 'firing', fence = t.fence + 1, attempt = t.attempt + 1, worker = :worker,
           claimed_at = {NOW}, lease_until = {NOW} + {lease}
      from pick
     where t.bucket = pick.bucket and t.tenant = pick.tenant and t.id = pick.id {of.format("t")}
 returning t.*),
noted as ({note("'claimed'", "claimed", "e.worker")})
"""


# Each is planned once for whatever it is given, and must then read what is due in its order, however large the tables are.
# So the planner is told as a number how few rows are wanted; is kept from beginning with the conversations; and must not
# think that hardly a tenant is left.
NOT_FULL = "case when t.tenant = any(cast(:full as text[])) then false else true end"
SINCE = "t.due_at >= coalesce(cast(:since as timestamptz), '-infinity')"


def _to_speak(of: str, most: int) -> str:
    return f"""
with due as materialized (
    select t.bucket, t.tenant, t.conversation, t.due_at, t.id
      from tasks t
     cross join lateral (
         select from conversations c
          where c.bucket = t.bucket and c.tenant = t.tenant and c.id = t.conversation and c.lane_task is null
            {of.format("c")}
         offset 0) as lane
     where {DUE_TO_SPEAK} and {SINCE} and {NOT_FULL} {of.format("t")}
     order by t.due_at, t.id
     limit {most + LOOK}),
first as (
    select distinct on (bucket, tenant, conversation) * from due order by bucket, tenant, conversation, due_at, id),
free as materialized (
    select first.*
      from (select * from first order by due_at, id) as first
     cross join lateral (
         select from tasks t
           join conversations c on c.bucket = t.bucket and c.tenant = t.tenant and c.id = t.conversation
          where t.bucket = first.bucket and t.tenant = first.tenant and t.id = first.id
            and t.state || '' = 'scheduled' and t.hold is null and t.due_at <= {NOW} and c.lane_task is null
            {of.format("t")} {of.format("c")}
            for no key update of t, c skip locked) as mine
     limit :slots),
pick as materialized (
    select bucket, tenant, id from (select *, {NTH} from free) as ranked left join {BUSY} where {IN_SHARE}),
{_claimed(of)},
held as (
    update conversations c
       set lane_task = claimed.id, lane_fence = claimed.fence
      from claimed
     where c.bucket = claimed.bucket and c.tenant = claimed.tenant and c.id = claimed.conversation
       {of.format("c")})
select {CLAIMED} from claimed order by due_at, id
"""


# What nobody here offers stays where it is, and is walked over; there may be thousands of it, beside as many that are offered.
# They are looked up in a hash: in an array that is no constant each row would be compared with all of them. Within a CASE
# the planner does not make it a join.
OFFERED = "case when t.needs in (select unnest(cast(:offers as text[]))) then true else false end"
WITHOUT_LANE: dict[Pool, str] = {
    "timed": "not t.lane and t.needs is null and t.booked_for > t.created_at",
    "background": "not t.lane and t.needs is null and t.booked_for <= t.created_at",
    "application": f"t.needs is not null and {OFFERED}",
}
OWN_LEASE = "coalesce(cast(t.payload ->> 'lease' as float) * interval '1 second', cast(:lease as interval))"


def _without_lane(of: str, most: int, pool: Pool) -> str:
    return f"""
with due as materialized (
    select t.bucket, t.tenant, t.due_at, t.id
      from tasks t
     where t.state = 'scheduled' and t.hold is null and t.due_at <= {NOW} and {WITHOUT_LANE[pool]}
       and {SINCE} and {NOT_FULL} {of.format("t")}
     order by t.due_at, t.id
     limit {most}
       for update skip locked),
pick as materialized (
    select * from (select *, {NTH} from due) as ranked left join {BUSY} where {IN_SHARE} order by due_at, id limit :slots),
{_claimed(of, OWN_LEASE) if pool == "application" else _claimed(of)}
select {CLAIMED} from claimed order by due_at, id
"""


EVERYWHERE, IN_BUCKET = "", "and {0}.bucket = :bucket"
"""Where a claim looks: in the whole table; or in one bucket that it names in every part, as a distributed table wants it."""


@functools.cache
def claim_statement(pool: Pool, *, in_bucket: bool, most: int) -> str:
    """Return the statement that claims at most `most` tasks, a power of two, or as many fewer as it is given."""
    of = IN_BUCKET if in_bucket else EVERYWHERE
    return _to_speak(of, most) if pool == "speak" else _without_lane(of, most, pool)


DUE_BUCKETS = f"""
select bucket from tasks where state = 'scheduled' and hold is null and due_at <= {NOW}
 group by bucket order by min(due_at)
"""

# Every part is a minimum, which an index answers at once; for an EXISTS the planner trusts that a match comes soon, and
# reads the whole table when there is none.
NEXT_DUE = f"""
select {NOW} as now,
       (select min(due_at) from tasks where state = 'scheduled' and hold is null and lane) as to_speak,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and not lane and needs is null and booked_for > created_at) as timed,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and not lane and needs is null and booked_for <= created_at) as background,
       (select min(due_at) from tasks where state = 'scheduled' and hold is null and needs is not null) as with_needs,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and lane and due_at > {NOW}) as to_speak_later,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and not lane and needs is null and booked_for > created_at
           and due_at > {NOW}) as timed_later,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and not lane and needs is null and booked_for <= created_at
           and due_at > {NOW}) as background_later,
       (select min(due_at) from tasks
         where state = 'scheduled' and hold is null and needs is not null and due_at > {NOW}) as with_needs_later
"""


def full(held: Mapping[str, int], limit: int) -> list[str]:
    """Return the tenants that hold their share, when at most `limit` tasks are claimed."""
    return [tenant for tenant, count in held.items() if count + 1 > 2 * limit - 1]


async def claim(
    connection: AsyncConnection,
    clock: Clock,
    worker: str,
    lease: timedelta,
    pool: Pool,
    limit: int,
    held: Mapping[str, int] | None = None,
    bucket: int | None = None,
    *,
    since: datetime | None = None,
    offers: Collection[str] = (),
) -> Sequence[Task]:
    """Claim at most `limit` tasks of one pool, the longest due first, under a lease, their own if they have one, and a new
    fencing token.

    `limit` is half of the worker's free slots of that pool; `held` says how many of the others each tenant holds.
    With a `bucket` only that one is looked at, with `since` only what fell due from then on. Of the pool `application` what
    needs one of `offers` is claimed.
    """
    held = held or {}
    given: dict[str, object] = {
        "now": clock.override(),
        "worker": worker,
        "lease": lease,
        "slots": limit,
        "free": 2 * limit,
        "full": full(held, limit),
        "since": since,
        "busy": list(held),
        "held": list(held.values()),
    }
    if bucket is not None:
        given["bucket"] = bucket
    if pool == "speak":
        given["patience"] = PATIENCE
    if pool == "application":
        given["offers"] = list(offers)
    most = 1 << max(limit - 1, 0).bit_length()
    statement = claim_statement(pool, in_bucket=bucket is not None, most=most)
    return [task_of(row) for row in await connection.execute(sql(statement), given)]


async def due_buckets(connection: AsyncConnection, clock: Clock) -> Sequence[int]:
    """Return the buckets in which something is due, the longest waiting first."""
    return list((await connection.execute(sql(DUE_BUCKETS), {"now": clock.override()})).scalars())


@dataclass(frozen=True, slots=True)
class NextDue:
    """When something is due next, by the clock that decides it."""

    now: datetime
    to_speak: datetime | None
    timed: datetime | None
    background: datetime | None
    with_needs: datetime | None
    later: datetime | None
    """The first that is not due yet."""

    def is_due(self, at: datetime | None) -> bool:
        """Tell whether one of those times has come."""
        return at is not None and at <= self.now


async def next_due(connection: AsyncConnection, clock: Clock) -> NextDue:
    """Look what is due and what will be next."""
    row = (await connection.execute(sql(NEXT_DUE), {"now": clock.override()})).one()
    later = [row.to_speak_later, row.timed_later, row.background_later, row.with_needs_later]
    first = min((at for at in later if at is not None), default=None)
    return NextDue(row.now, row.to_speak, row.timed, row.background, row.with_needs, first)
