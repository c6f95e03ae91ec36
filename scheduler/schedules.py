"""Schedules: tasks that come again. One row a schedule, claimed, renewed, recovered and fenced like every other task.

    registered   its first slot is planned; registered again as it was, nothing changes, however many replicas do so
    changed      another text (another time, another zone): planned anew from now, and nothing is missed by the old one
    run          claimed when its slot is due, and put back with the next one, in the transaction that ends the run
    once         what comes only once stays as it ended, so that it does not run again when it is registered again
    forgotten    cancelled. The row stays, for its fence: it never goes back, though the schedule be made again

One that was asked for in a conversation has that, its channel, and what it is `about` in its payload. Nobody registers it
again: it is listed, cancelled and moved as the follow-ups there are, and deleted like them once it has ended.

The row's `key` is the schedule's id, `booked_for` its next slot, `payload.spec` its text. While a slot is run, `payload.run`
says which, and whether it was missed; so whoever claims it after a worker's death, or a retry, knows that it had begun.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.cancel import Cancelled, cancel
from scheduler.clock import NOW, Clock
from scheduler.errors import BadSchedule, LostClaim
from scheduler.events import became, note
from scheduler.missed import POLICIES, Policy
from scheduler.recurrence import Recurrence
from scheduler.settle import HELD
from scheduler.task import OWN, Task
from store.database import bucket_of, sql

LONGEST_ID = 400
LONGEST_STORY = 1000
"""Claims of a schedule that its story goes back: one that comes every second would write millions of lines."""
_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
MOST_UNDER_ONE_CLAIM = 100_000
"""Missed slots. A day of seconds; all of them are in memory while they are caught up."""
SHORTEST_LEASE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is registered."""

    id: str
    """Unique within the tenant."""
    recurrence: Recurrence
    policy: Policy = "skip"
    most_caught_up: int = 10
    lease: timedelta | None = None
    """How long a claim lasts without a sign of life; None is the worker's own."""
    needs: str | None = None
    """What a worker must have to run it."""
    tenant: str = OWN
    conversation: int | None = None
    channel: str | None = None
    parent: int | None = None
    """The task in whose run it was asked for."""
    more: Mapping[str, Any] | None = None
    """What else is kept in its payload."""

    def __post_init__(self) -> None:
        """Raise BadSchedule for what cannot be kept."""
        if not isinstance(self.id, str) or not 1 <= len(self.id) <= LONGEST_ID or _UNSTORABLE.search(self.id):
            raise BadSchedule(
                f"the id {str(self.id)[:40]!r} of a schedule must be a text of 1 to {LONGEST_ID} characters,"
                " none of them NUL or half of a surrogate pair"
            )
        if self.policy not in POLICIES:
            raise BadSchedule(f"{self.policy!r} is not what may be done with missed runs: {', '.join(POLICIES)}")
        if type(self.most_caught_up) is not int or not 1 <= self.most_caught_up <= MOST_UNDER_ONE_CLAIM:
            raise BadSchedule(
                f"{self.most_caught_up!r} is not how many to catch up: at least 1, at most {MOST_UNDER_ONE_CLAIM}"
            )
        if self.lease is not None and self.lease < SHORTEST_LEASE:
            raise BadSchedule(f"a lease of {self.lease.total_seconds():g} s is too short: at least a second")

    @property
    def payload(self) -> dict[str, Any]:
        """What is stored of it."""
        lease = None if self.lease is None else self.lease.total_seconds()
        kept = {
            "spec": self.recurrence.text,
            "missed": self.policy,
            "max_catch_up": self.most_caught_up,
            "lease": lease,
        }
        return {name: value for name, value in {**kept, **(self.more or {})}.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Registered:
    """A schedule as it is stored."""

    id: str
    task: int
    state: str
    next_run_at: datetime | None
    """None for what will not come any more."""
    fence: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A schedule as an operator sees it."""

    task: int
    tenant: str
    id: str
    spec: str
    state: str
    next_run_at: datetime | None
    policy: str
    error: str | None


# They are locked in the order in which a cancel and a renewal of many lock them, so that none of these wait for each other in a
# circle.
# What is stored may be changed where its text is another, or its row is cancelled; one that comes only once and has ended is
# not: it has run. What is firing stays so, and finds the new slot when it ends.
IS_ONCE = "t.payload ->> 'spec' like 'in %' and excluded.payload ->> 'spec' like 'in %'"
IS_GONE = f"(t.state = 'cancelled' or t.state not in ('scheduled', 'firing') and not ({IS_ONCE}))"
IS_ANEW = f"({IS_GONE} or t.state in ('scheduled', 'firing') and t.payload ->> 'spec' <> excluded.payload ->> 'spec')"
REGISTER = f"""
with given as materialized (
    select g.*
      from unnest(cast(:keys as text[]), cast(:payloads as text[]), cast(:slots as timestamptz[]), cast(:needs as text[]))
        as g (key, payload, slot, needs)
      left join tasks t
        on t.bucket = :bucket and t.tenant = :tenant and t.kind = 'schedule' and t.key = g.key
     order by t.id nulls last, g.key),
changed as (
    insert into tasks as t (bucket, tenant, kind, conversation, channel, parent, payload, due_at, booked_for, lane, key, needs,
                            idempotency_key, created_at)
    select :bucket, :tenant, 'schedule', cast(:conversation as bigint), cast(:channel as text), cast(:parent as bigint),
           cast(payload as jsonb), slot, slot, false, key, needs, 'schedule:' || key, {NOW}
      from given
        on conflict (bucket, tenant, idempotency_key) where idempotency_key is not null do update
       set payload = case when {IS_ANEW} then excluded.payload
                          else excluded.payload || jsonb_strip_nulls(jsonb_build_object('run', t.payload -> 'run')) end,
           due_at = case when {IS_ANEW} then excluded.due_at else t.due_at end,
           booked_for = case when {IS_ANEW} then excluded.booked_for else t.booked_for end,
           attempt = case when {IS_ANEW} and t.state <> 'firing' then 0 else t.attempt end,
           state = case when {IS_GONE} then 'scheduled' else t.state end,
           outcome = case when {IS_GONE} then null else t.outcome end,
           ended_at = case when {IS_GONE} then null else t.ended_at end,
           error = case when {IS_ANEW} then null else t.error end,
           hold = case when {IS_ANEW} then null else t.hold end,
           needs = excluded.needs,
           cancel_requested = false
     where {IS_ANEW} or t.cancel_requested or t.needs is distinct from excluded.needs
        or t.state in ('scheduled', 'firing') and t.payload - 'run' <> excluded.payload
 returning t.*),
noted as ({note("'planned'", "(select * from changed where payload -> 'run' is null and attempt = 0)", "e.payload ->> 'spec'")})
select count(*) from changed
"""
FIND = """
select key, id, state, booked_for, fence from tasks
 where bucket = :bucket and tenant = :tenant and kind = 'schedule' and key = any(cast(:keys as text[]))
"""
FIND_ALL = """
select id, tenant, key, payload ->> 'spec' as spec, state, booked_for, payload ->> 'missed' as policy, error from tasks
 where kind = 'schedule' and (:with_ended or state in ('scheduled', 'firing', 'failed'))
 order by tenant, key
"""
ORPHANS = """
select key from tasks
 where bucket = :bucket and tenant = :tenant and kind = 'schedule' and state in ('scheduled', 'firing')
   and needs <> all(cast(:offers as text[]))
 order by key
"""
BEGIN = f"""
update tasks t set payload = t.payload || jsonb_build_object('run', cast(:run as jsonb)) where {HELD} returning id
"""
# The text is another where the schedule was changed meanwhile: then its slot stands already.
IS_SAME = "t.payload ->> 'spec' = :spec"
IS_OVER = f"(cast(:becomes as text) is not null and {IS_SAME})"
GO_ON = f"""
with settled as (
    update tasks t
       set worker = null, lease_until = null, attempt = 0, error = cast(:error as text),
           payload = case when {IS_OVER} and :becomes = 'failed' then t.payload else t.payload - 'run' end || cast(:more as jsonb),
           due_at = case when {IS_SAME} then coalesce(cast(:slot as timestamptz), t.due_at) else t.due_at end,
           booked_for = case when {IS_SAME} then coalesce(cast(:slot as timestamptz), t.booked_for) else t.booked_for end,
           state = case when t.cancel_requested then 'cancelled' when {IS_OVER} then cast(:becomes as text) else 'scheduled' end,
           outcome = case when not t.cancel_requested and {IS_OVER} then cast(:outcome as text) end,
           ended_at = case when t.cancel_requested or {IS_OVER} then {NOW} end
     where {HELD} returning t.*),
told as (
    select * from unnest(cast(:events as text[]), cast(:details as text[])) with ordinality as told (event, words, place)
     union all select state, coalesce(error, outcome), 2147483647 from settled where ended_at is not null),
noted as ({note("e.event", "(select s.*, told.event, told.words from settled s cross join told order by place)", "e.words")}),
trimmed as (
    delete from task_events e using settled s
     where s.fence % 100 = 0 and e.bucket = s.bucket and e.tenant = s.tenant and e.task = s.id
       and e.fence < s.fence - {LONGEST_STORY})
select state from settled
"""
PURGE = f"""
with old as materialized (
    select bucket, tenant, id from tasks
     where kind = 'schedule' and state in ('fired', 'cancelled', 'expired', 'failed') and ended_at < {NOW} - cast(:kept as interval)
       for update skip locked),
told as (
    delete from task_events e using old where e.bucket = old.bucket and e.tenant = old.tenant and e.task = old.id),
gone as (
    delete from tasks t using old where t.bucket = old.bucket and t.tenant = old.tenant and t.id = old.id)
select count(*) from old
"""


async def register(
    connection: AsyncConnection, clock: Clock, schedules: Sequence[Schedule]
) -> Mapping[str, Registered]:
    """Store schedules, at least one, and return how each stands, by id; what is stored already keeps its next slot.

    All are of one tenant, and of one conversation or none. Hint `due` after the commit.
    """
    now, first, tenant = await clock.now(connection), schedules[0], schedules[0].tenant
    assert {(one.tenant, one.conversation, one.parent) for one in schedules} == {
        (tenant, first.conversation, first.parent)
    }
    await connection.execute(
        sql(REGISTER),
        {
            "now": now,
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "conversation": first.conversation,
            "channel": first.channel,
            "parent": first.parent,
            "keys": [one.id for one in schedules],
            "payloads": [json.dumps(one.payload) for one in schedules],
            "slots": [one.recurrence.first(now) for one in schedules],
            "needs": [one.needs for one in schedules],
        },
    )
    return await find(connection, [one.id for one in schedules], tenant=tenant)


async def find(connection: AsyncConnection, ids: Sequence[str], *, tenant: str = OWN) -> Mapping[str, Registered]:
    """Return how schedules stand, by id; those that were never stored are left out."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "keys": list(ids)}
    return {
        row.key: Registered(
            row.key, row.id, row.state, row.booked_for if row.state in ("scheduled", "firing") else None, row.fence
        )
        for row in await connection.execute(sql(FIND), given)
    }


async def find_all(connection: AsyncConnection, *, with_ended: bool = False) -> list[Listed]:
    """Return all schedules of all tenants that come or have failed; with `with_ended` also those that will not come any more."""
    return [
        Listed(
            row.id,
            row.tenant,
            row.key,
            row.spec,
            row.state,
            row.booked_for if row.state in ("scheduled", "firing") else None,
            row.policy,
            row.error,
        )
        for row in await connection.execute(sql(FIND_ALL), {"with_ended": with_ended})
    ]


async def orphans(connection: AsyncConnection, offers: Sequence[str], *, tenant: str = OWN) -> list[str]:
    """Return the ids of stored schedules that need something which is not offered."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "offers": list(offers)}
    return list((await connection.execute(sql(ORPHANS), given)).scalars())


async def forget(connection: AsyncConnection, clock: Clock, id: str, *, tenant: str = OWN) -> bool:
    """Take a schedule away, also one that came once and has run; tell whether there was any. A run in hand is its last."""
    found = (await find(connection, [id], tenant=tenant)).get(id)
    if found is None:
        return False
    done: Cancelled = await cancel(connection, clock, tenant, [found.task], kinds=["schedule"])
    if done.cancelled or done.raced:
        return True
    given = {"now": clock.override(), "bucket": bucket_of(tenant), "tenant": tenant, "id": found.task}
    return (await connection.execute(sql(FORGET_ENDED), given)).first() is not None


FORGET_ENDED = f"""
with gone as (
    update tasks t set state = 'cancelled', outcome = null, ended_at = {NOW}
     where bucket = :bucket and tenant = :tenant and id = :id and state in ('fired', 'failed', 'expired')
 returning t.*),
noted as ({note("e.state", "gone")})
select id from gone
"""


async def begin(connection: AsyncConnection, task: Task, slot: datetime, *, is_missed: bool) -> None:
    """Say that the run of a slot begins. Raises LostClaim."""
    await _held(connection, BEGIN, task, run=json.dumps({"slot": slot.isoformat(), "missed": is_missed}))


async def go_on(
    connection: AsyncConnection,
    clock: Clock,
    task: Task,
    slot: datetime | None,
    told: Sequence[tuple[str, str]],
    *,
    error: str | None = None,
    outcome: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> str:
    """Put a claimed schedule back until its next slot, with what is to be told of this one; return its state.

    Without a slot it ends: `fired` with an outcome, `failed` with an error and none; but not where it was changed meanwhile.
    One that failed keeps the mark of its run: retried, it is run as itself, however late.
    `more` is changed in its payload. `cancelled` where that was requested. Raises LostClaim.
    """
    becomes = None if slot is not None else "failed" if outcome is None else "fired"
    given = {
        "slot": slot,
        "spec": task.payload["spec"],
        "error": error,
        "becomes": becomes,
        "outcome": outcome,
        "more": json.dumps(dict(more or {})),
    }
    state = str(await _held(connection, GO_ON, task, now=clock.override(), **given, **_told(told)))
    if state != "scheduled":
        became(connection, task.tenant, task.kind, state, outcome if state == becomes else None)
    return state


async def purge(connection: AsyncConnection, clock: Clock, kept: timedelta) -> int:
    """Delete what ended longer ago; return how many. Their fences begin anew should they be made again."""
    return int((await connection.execute(sql(PURGE), {"now": clock.override(), "kept": kept})).scalar_one())


def _told(told: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {"events": [event for event, _ in told], "details": [words for _, words in told]}


async def _held(connection: AsyncConnection, statement: str, task: Task, **given: Any) -> Any:
    held = {"bucket": task.bucket, "tenant": task.tenant, "id": task.id, "fence": task.fence}
    row = (await connection.execute(sql(statement), {**held, **given})).first()
    if row is None:
        raise LostClaim(
            f"schedule {task.payload.get('spec')} (task {task.id}) is no longer held with fence {task.fence}"
        )
    return row[0]
