"""Settling: what becomes of a claimed task, committed by the worker that holds it.

Every statement names the fence of the claim. One that changes no row means that the claim is another's by now: LostClaim
is raised, and with it the caller's whole transaction is undone, the message it may have written included.
Whatever leaves `firing` frees its conversation's lane, and only where task and fence still match.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.errors import LostClaim
from scheduler.events import Became, became, note
from scheduler.promises import fate_of
from scheduler.task import State, Task
from store.database import sql, tell_on_commit

HELD = "t.bucket = :bucket and t.tenant = :tenant and t.id = :id and t.fence = :fence and t.state = 'firing'"

FREE_LANE = """
update conversations c
   set lane_task = null, lane_fence = null
  from settled
 where c.bucket = settled.bucket and c.tenant = settled.tenant and c.id = settled.conversation
   and c.lane_task = settled.id and c.lane_fence = settled.fence
"""


def _leave(assignments: str, event: str, detail: str = "null") -> str:
    """Return the statement that takes a task out of `firing`."""
    return f"""
with settled as (
    update tasks t set worker = null, lease_until = null, {assignments}
     where {HELD} returning t.*),
freed as ({FREE_LANE}),
noted as ({note(event, "settled", detail)})
select state from settled
"""


# One task or hundreds, locked first in the order in which a cancel of many locks them, so that the two never wait for each
# other in a circle. The state is compared as an expression: the planner knows that few rows are `firing`, takes hundreds of
# given keys for as few, and reads the whole table to join them.
END = f"""
with held as materialized (
    select t.bucket, t.tenant, t.id, h.becomes, h.outcome, h.error, h.message_seq
      from unnest(cast(:buckets as smallint[]), cast(:tenants as text[]), cast(:ids as bigint[]), cast(:fences as bigint[]),
                  cast(:states as text[]), cast(:outcomes as text[]), cast(:errors as text[]), cast(:seqs as integer[]))
        as h (bucket, tenant, id, fence, becomes, outcome, error, message_seq)
      join tasks t on t.bucket = h.bucket and t.tenant = h.tenant and t.id = h.id and t.fence = h.fence
     where t.state || '' = 'firing'
     order by t.id
       for update of t),
settled as (
    update tasks t
       set worker = null, lease_until = null, state = held.becomes, outcome = held.outcome, error = held.error,
           message_seq = coalesce(held.message_seq, t.message_seq), sending = false, ended_at = {NOW}
      from held
     where t.bucket = held.bucket and t.tenant = held.tenant and t.id = held.id
 returning t.*),
freed as ({FREE_LANE}),
noted as ({note("e.state", "settled", "coalesce(e.error, e.outcome)")})
select tenant, id, ended_at from settled
"""
STOPS = "t.cancel_requested and not (t.sending and not :is_unsent)"
GIVE_BACK = _leave(
    f"state = case when {STOPS} then 'cancelled' else 'scheduled' end,"
    f" ended_at = case when {STOPS} then {NOW} end,"
    f" hold = case when {STOPS} then null else cast(:hold as text) end,"
    f" due_at = case when cast(:delay as interval) is null then t.due_at else {NOW} + cast(:delay as interval) end,"
    " attempt = case when :is_fault then t.attempt else t.attempt - 1 end,"
    " error = case when not :is_mended then coalesce(:error, t.error) end, sending = t.sending and not :is_unsent,"
    f" expires_at = coalesce(t.expires_at, {NOW} + cast(:keep as interval)),"
    " text = coalesce(cast(:words as text), t.text), message_seq = coalesce(cast(:message_seq as integer), t.message_seq)",
    "case e.state when 'scheduled' then 'returned' else e.state end",
    "coalesce(cast(:error as text), e.hold)",
)
KEEP_TEXT = _leave(
    "state = case when t.cancel_requested then 'cancelled' else 'scheduled' end,"
    f" ended_at = case when t.cancel_requested then {NOW} end,"
    " text = :words, lane = true, attempt = 0,"
    " conversation = coalesce(cast(:conversation as bigint), t.conversation),"
    " channel = coalesce(cast(:channel as text), t.channel), payload = t.payload || cast(:more as jsonb)",
    "case e.state when 'scheduled' then 'written' else e.state end",
)
# Many that were given back in the same moment would come back in any order.
QUEUE_UP = """
update tasks t
   set due_at = greatest(t.due_at, (
       select max(before.due_at) + interval '1 microsecond' from tasks before
        where before.bucket = :bucket and before.tenant = :tenant and before.conversation = t.conversation
          and before.state = 'scheduled' and before.lane and before.hold is null and before.error = t.error
          and before.id <> t.id))
 where t.bucket = :bucket and t.tenant = :tenant and t.id = :id and t.state = 'scheduled'
"""
LOOK = f"select t.cancel_requested from tasks t where {HELD} for update"
LOOK_AT_DOOR = f"select t.sending from tasks t where {HELD} for update"
OPEN_DOOR = f"""
with opened as (update tasks t set sending = true, text = :words where {HELD} returning t.*),
noted as ({note("'sending'", "opened")})
select id from opened
"""


def _held(task: Task) -> dict[str, Any]:
    return {"bucket": task.bucket, "tenant": task.tenant, "id": task.id, "fence": task.fence}


async def execute(connection: AsyncConnection, statement: str, task: Task, **given: Any) -> Any:
    """Execute a statement on a claimed task, and return the first column of its row. Raises LostClaim."""
    row = (await connection.execute(sql(statement), {**_held(task), **given})).first()
    if row is None:
        raise LostClaim(_lost(task))
    return row[0]


async def is_cancelled(connection: AsyncConnection, task: Task) -> bool:
    """Lock the task for the rest of the transaction and tell whether a cancel was requested meanwhile."""
    return bool(await execute(connection, LOOK, task))


async def is_sending(connection: AsyncConnection, task: Task) -> bool:
    """Lock the task for the rest of the transaction and tell whether it has passed the second door."""
    return bool(await execute(connection, LOOK_AT_DOOR, task))


async def open_door(connection: AsyncConnection, clock: Clock, task: Task, words: str) -> None:
    """Pass the second door: keep the text and say that a send begins. Commit before calling the provider."""
    await execute(connection, OPEN_DOOR, task, words=words, now=clock.override())


async def keep_text(
    connection: AsyncConnection,
    clock: Clock,
    task: Task,
    words: str,
    *,
    conversation: int | None = None,
    channel: str | None = None,
    more: Mapping[str, Any] = {},
) -> str:
    """Keep what was written and let the task wait for its turn to speak; return the state it is in then.

    One that was of no conversation is told where it is said, and on which channel; `more` is added to its payload.
    """
    given = {"words": words, "conversation": conversation, "channel": channel, "more": json.dumps(more)}
    return _back(connection, task, await execute(connection, KEEP_TEXT, task, **given, now=clock.override()))


async def give_back(
    connection: AsyncConnection,
    clock: Clock,
    task: Task,
    *,
    delay: timedelta | None = None,
    hold: str | None = None,
    error: str | None = None,
    is_fault: bool = True,
    is_unsent: bool = False,
    is_mended: bool = False,
    words: str | None = None,
    message_seq: int | None = None,
    keep: timedelta | None = None,
) -> str:
    """Return the task to `scheduled`, due again after `delay`, or held until what it names ends.

    `error` counts the attempt, unless it `is_fault` of nobody; without one the attempt is not counted. `is_unsent` says
    that what was begun behind the second door certainly did not go out, `is_mended` that the last error is over. `words` are
    kept as its text, `message_seq` as the message it is taken for already. After `keep` it expires, if it has no such time
    yet. Returns the state it is in then: `cancelled` where a cancel was requested.
    """
    state = await execute(
        connection,
        GIVE_BACK,
        task,
        delay=delay,
        hold=hold,
        error=error,
        is_fault=error is not None and is_fault,
        is_unsent=is_unsent,
        is_mended=is_mended,
        words=words,
        message_seq=message_seq,
        keep=keep,
        now=clock.override(),
    )
    return _back(connection, task, state)


async def queue_up(connection: AsyncConnection, task: Task) -> None:
    """Let a task that this transaction has given back come after those of its conversation that wait for the same reason."""
    await connection.execute(sql(QUEUE_UP), {"bucket": task.bucket, "tenant": task.tenant, "id": task.id})


def _back(connection: AsyncConnection, task: Task, state: str) -> str:
    if state == "cancelled":
        became(connection, task.tenant, task.kind, state)
    return state


@dataclass(frozen=True, slots=True)
class End:
    """How a claimed task ends."""

    task: Task
    state: State
    outcome: str | None = None
    error: str | None = None
    message_seq: int | None = None


async def end_each(connection: AsyncConnection, ends: Sequence[End], clock: Clock) -> Sequence[LostClaim | None]:
    """End claimed tasks in one statement; return a LostClaim for each whose claim is another's by now: it is left alone."""
    rows = await connection.execute(
        sql(END),
        {
            "now": clock.override(),
            "buckets": [end.task.bucket for end in ends],
            "tenants": [end.task.tenant for end in ends],
            "ids": [end.task.id for end in ends],
            "fences": [end.task.fence for end in ends],
            "states": [end.state for end in ends],
            "outcomes": [end.outcome for end in ends],
            "errors": [end.error for end in ends],
            "seqs": [end.message_seq for end in ends],
        },
    )
    settled = {(row.tenant, row.id): row.ended_at for row in rows}
    for end in ends:
        task, at = end.task, settled.get((end.task.tenant, end.task.id))
        if at is not None:
            promise = fate_of(task, end.state, end.outcome, at)
            tell_on_commit(connection, Became(task.tenant, task.kind, end.state, end.outcome, promise))
    return [None if (end.task.tenant, end.task.id) in settled else LostClaim(_lost(end.task)) for end in ends]


async def _end(connection: AsyncConnection, clock: Clock, task: Task, state: State, **how: Any) -> None:
    (lost,) = await end_each(connection, [End(task, state, **how)], clock)
    if lost is not None:
        raise lost


def _lost(task: Task) -> str:
    return f"task {task.id} of tenant {task.tenant} is no longer held with fence {task.fence}"


async def deliver(connection: AsyncConnection, clock: Clock, task: Task, message_seq: int | None) -> None:
    """The task did what it was for; `message_seq` is the message it became."""
    await _end(connection, clock, task, "fired", outcome="delivered", message_seq=message_seq)


async def skip(
    connection: AsyncConnection, clock: Clock, task: Task, guard: str, message_seq: int | None = None
) -> None:
    """A guard that is named said no. `message_seq` is what was said of it before in part."""
    await _end(connection, clock, task, "fired", outcome=f"skipped: {guard}", message_seq=message_seq)


async def fail(
    connection: AsyncConnection, clock: Clock, task: Task, error: str, message_seq: int | None = None
) -> None:
    """The task failed for good; `error` is in words an operator can act on. `message_seq` is what was said of it in part."""
    await _end(connection, clock, task, "failed", error=error, message_seq=message_seq)


async def leave_uncertain(
    connection: AsyncConnection, clock: Clock, task: Task, error: str, message_seq: int | None = None
) -> None:
    """A send was begun and nobody can tell whether it went out. It is shown, and not sent again.

    `message_seq` is the message that it is taken for.
    """
    await _end(connection, clock, task, "uncertain", error=error, message_seq=message_seq)


async def cancel(connection: AsyncConnection, clock: Clock, task: Task) -> None:
    """A cancel was requested and nothing has left the house."""
    await _end(connection, clock, task, "cancelled")


async def expire(connection: AsyncConnection, clock: Clock, task: Task) -> None:
    """It is not worth saying any more."""
    await _end(connection, clock, task, "expired")
