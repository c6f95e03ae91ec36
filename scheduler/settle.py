"""Settling: what becomes of a claimed task, committed by the worker that holds it.

Every statement names the fence of the claim. One that changes no row means that the claim is another's by now: LostClaim
is raised, and with it the caller's whole transaction is undone, the message it may have written included.
Whatever leaves `firing` frees its conversation's lane, and only where task and fence still match.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.errors import LostClaim
from scheduler.task import Task

HELD = "t.bucket = :bucket and t.tenant = :tenant and t.id = :id and t.fence = :fence and t.state = 'firing'"

FREE_LANE = """
update conversations c
   set lane_task = null, lane_fence = null
  from settled
 where c.bucket = settled.bucket and c.tenant = settled.tenant and c.id = settled.conversation
   and c.lane_task = settled.id and c.lane_fence = settled.fence
"""


def _leave(assignments: str) -> str:
    """Return the statement that takes a task out of `firing`."""
    return f"""
with settled as (
    update tasks t set worker = null, lease_until = null, {assignments}
     where {HELD} returning t.*),
freed as ({FREE_LANE})
select state from settled
"""


END = _leave(
    f"state = :state, outcome = :outcome, error = :error, message_seq = :message_seq, sending = false, ended_at = {NOW}"
)
STOPS = "t.cancel_requested and not (t.sending and not :is_unsent)"
GIVE_BACK = _leave(
    f"state = case when {STOPS} then 'cancelled' else 'scheduled' end,"
    f" ended_at = case when {STOPS} then {NOW} end,"
    f" hold = case when {STOPS} then null else cast(:hold as text) end,"
    f" due_at = case when cast(:delay as interval) is null then t.due_at else {NOW} + cast(:delay as interval) end,"
    " attempt = case when :is_fault then t.attempt else t.attempt - 1 end,"
    " error = coalesce(:error, t.error), sending = t.sending and not :is_unsent,"
    " text = coalesce(cast(:words as text), t.text)"
)
KEEP_TEXT = _leave(
    "state = case when t.cancel_requested then 'cancelled' else 'scheduled' end,"
    f" ended_at = case when t.cancel_requested then {NOW} end,"
    " text = :words, lane = true, attempt = 0"
)
LOOK = f"select t.cancel_requested from tasks t where {HELD} for update"
LOOK_AT_DOOR = f"select t.sending from tasks t where {HELD} for update"
OPEN_DOOR = f"update tasks t set sending = true, text = :words where {HELD} returning t.id"


def _held(task: Task) -> dict[str, Any]:
    return {"bucket": task.bucket, "tenant": task.tenant, "id": task.id, "fence": task.fence}


async def _execute(connection: AsyncConnection, statement: str, task: Task, **given: Any) -> Any:
    row = (await connection.execute(text(statement), {**_held(task), **given})).first()
    if row is None:
        raise LostClaim(f"task {task.id} of tenant {task.tenant} is no longer held with fence {task.fence}")
    return row[0]


async def is_cancelled(connection: AsyncConnection, task: Task) -> bool:
    """Lock the task for the rest of the transaction and tell whether a cancel was requested meanwhile."""
    return bool(await _execute(connection, LOOK, task))


async def is_sending(connection: AsyncConnection, task: Task) -> bool:
    """Lock the task for the rest of the transaction and tell whether it has passed the second door."""
    return bool(await _execute(connection, LOOK_AT_DOOR, task))


async def open_door(connection: AsyncConnection, task: Task, words: str) -> None:
    """Pass the second door: keep the text and say that a send begins. Commit before calling the provider."""
    await _execute(connection, OPEN_DOOR, task, words=words)


async def keep_text(connection: AsyncConnection, clock: Clock, task: Task, words: str) -> str:
    """Keep what was written and let the task wait for its turn to speak; return the state it is in then."""
    return str(await _execute(connection, KEEP_TEXT, task, words=words, now=clock.override()))


async def give_back(
    connection: AsyncConnection,
    clock: Clock,
    task: Task,
    *,
    delay: timedelta | None = None,
    hold: str | None = None,
    error: str | None = None,
    is_unsent: bool = False,
    words: str | None = None,
) -> str:
    """Return the task to `scheduled`, due again after `delay`, or held until what it names ends.

    `error` counts the attempt; without one nothing was at fault and the attempt is not counted. `is_unsent` says that
    what was begun behind the second door certainly did not go out. `words` are kept as its text. Returns the state it is in then: `cancelled` where a
    cancel was requested.
    """
    state = await _execute(
        connection,
        GIVE_BACK,
        task,
        delay=delay,
        hold=hold,
        error=error,
        is_fault=error is not None,
        is_unsent=is_unsent,
        words=words,
        now=clock.override(),
    )
    return str(state)


async def _end(
    connection: AsyncConnection,
    clock: Clock,
    task: Task,
    state: str,
    *,
    outcome: str | None = None,
    error: str | None = None,
    message_seq: int | None = None,
) -> None:
    await _execute(
        connection,
        END,
        task,
        state=state,
        outcome=outcome,
        error=error,
        message_seq=message_seq,
        now=clock.override(),
    )


async def deliver(connection: AsyncConnection, clock: Clock, task: Task, message_seq: int | None) -> None:
    """The task did what it was for; `message_seq` is the message it became."""
    await _end(connection, clock, task, "fired", outcome="delivered", message_seq=message_seq)


async def skip(connection: AsyncConnection, clock: Clock, task: Task, guard: str) -> None:
    """A guard that is named said no."""
    await _end(connection, clock, task, "fired", outcome=f"skipped: {guard}")


async def fail(connection: AsyncConnection, clock: Clock, task: Task, error: str) -> None:
    """The task failed for good; `error` is in words an operator can act on."""
    await _end(connection, clock, task, "failed", error=error)


async def leave_uncertain(connection: AsyncConnection, clock: Clock, task: Task, error: str) -> None:
    """A send was begun and nobody can tell whether it went out. It is shown, and not sent again."""
    await _end(connection, clock, task, "uncertain", error=error)


async def cancel(connection: AsyncConnection, clock: Clock, task: Task) -> None:
    """A cancel was requested and nothing has left the house."""
    await _end(connection, clock, task, "cancelled")


async def expire(connection: AsyncConnection, clock: Clock, task: Task) -> None:
    """It is not worth saying any more."""
    await _end(connection, clock, task, "expired")
