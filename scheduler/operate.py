"""What an operator may do to a task that has ended, or that waits: each recorded with who and why.

    failed     -> scheduled   retry: with its attempts forgotten; a text that was written is kept and sent again
    failed     -> cancelled   discard: nothing more comes of it
    uncertain  -> fired       settle: it arrived, as somebody saw
    uncertain  -> failed      settle: it did not arrive; it may then be retried
    uncertain  -> scheduled   resume: the provider's word has come, and what is left is done; so does it that waits for it
    failed     -> scheduled   recall: the provider says that something of it has arrived after all; what is left is done
    fired      -> scheduled   reopen: the provider says that it did not arrive, and it may be sent again
    fired      -> failed      turn: the provider says that it did not arrive, and never will

Nothing here sends an uncertain task again by itself.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import became, note
from scheduler.hold import WINDOW_CLOSED
from store.database import bucket_of, sql

# For a function the time was written when it was first put off, and it is put off anew.
RETRY = """
state = 'scheduled', due_at = {now}, attempt = 0, hold = null, ended_at = null, sending = false, cancel_requested = false,
       expires_at = case when t.kind = 'function' then null else t.expires_at end"""
# What is over by somebody's word has ended when it was said: the record of it is kept as long as any.
DISCARD = "state = 'cancelled', ended_at = {now}"
ARRIVED = "state = 'fired', outcome = 'delivered', ended_at = {now}"
LOST = "state = 'failed', error = 'not delivered, as ' || cast(:by as text)"
RESUME = """
state = 'scheduled', due_at = {now} + cast(:delay as interval), attempt = 0, ended_at = null, sending = true"""

REOPEN = """
state = 'scheduled', outcome = null, ended_at = null, due_at = {now} + cast(:delay as interval), attempt = 0,
       hold = cast(:hold as text), error = cast(:error as text), sending = false"""
TURN = "state = 'failed', outcome = null, hold = null, error = cast(:error as text), ended_at = {now}"

# Said, or the customer was told that it waits for them.
STANDS = f"""
(t.state = 'fired' and t.outcome = 'delivered' or t.state = 'scheduled' and t.hold = '{WINDOW_CLOSED}' and not t.sending)"""
LOCK = """
select from tasks where bucket = :bucket and tenant = :tenant and id = any(cast(:ids as bigint[])) order by id for no key update
"""
# Locked first, in the order in which a cancel of many locks them.
NEED_INSTEAD = """
with chosen as materialized (
    select id from tasks
     where bucket = :bucket and tenant = :tenant and state in ('scheduled', 'firing') and needs = any(cast(:before as text[]))
     order by id
       for update)
update tasks set needs = :now where bucket = :bucket and tenant = :tenant and id = any(array(select id from chosen))
"""
FAILED, UNCERTAIN = "t.state = 'failed'", "t.state = 'uncertain'"
WAITS = "t.state = 'scheduled' and t.sending"


def _move(before: str, assignments: str, event: str, detail: str = "cast(:by as text)") -> str:
    return f"""
with moved as (
    update tasks t set {assignments.format(now=NOW)}
     where t.bucket = :bucket and t.tenant = :tenant and t.id = :id and {before}
 returning t.*),
noted as ({note(f"'{event}'", "moved", detail)})
select kind, state, outcome from moved
"""


async def _do(
    connection: AsyncConnection, clock: Clock, statement: str, tenant: str, task: int, by: str, **more: Any
) -> bool:
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": task, "by": by, "now": clock.override(), **more}
    moved = (await connection.execute(sql(statement), given)).first()
    if moved is not None and moved.state != "scheduled":
        became(connection, tenant, moved.kind, moved.state, moved.outcome)
    return moved is not None


async def lock(connection: AsyncConnection, tenant: str, *tasks: int) -> None:
    """Keep whoever performs tasks from settling them until this transaction ends, and wait for whoever is settling them.

    Call it before what became of their sends is noted: else each of the two can miss what the other writes. And before
    several are changed one after the other, since all others lock many in the order of their numbers.
    """
    await connection.execute(sql(LOCK), {"bucket": bucket_of(tenant), "tenant": tenant, "ids": list(tasks)})


async def retry(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Let a failed task be done now; False when it is not failed. `by` says who, and why. Hint `due` after the commit."""
    return await _do(connection, clock, _move(FAILED, RETRY, "retried"), tenant, task, by)


async def discard(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Put a failed task away; False when it is not failed."""
    return await _do(connection, clock, _move(FAILED, DISCARD, "discarded"), tenant, task, by)


async def need_instead(connection: AsyncConnection, tenant: str, before: Sequence[str], now: str) -> None:
    """Let what a tenant has booked that needs one of these need another instead. Hint `due` after the commit."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "before": list(before), "now": now}
    await connection.execute(sql(NEED_INSTEAD), given)


async def settle(
    connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str, *, is_delivered: bool
) -> bool:
    """Say of an uncertain task whether it arrived; False when it is not uncertain."""
    statement = _move(
        UNCERTAIN,
        ARRIVED if is_delivered else LOST,
        "settled",
        f"'{'delivered' if is_delivered else 'not delivered'}, as ' || cast(:by as text)",
    )
    return await _do(connection, clock, statement, tenant, task, by)


async def resume(
    connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str, *, delay: timedelta = timedelta()
) -> bool:
    """Let an uncertain task go on, whose sends have all become known, or one that waits to find out what became of them.

    It may after `delay`. False when it is neither. Hint `due` after the commit.
    """
    return await _do(
        connection,
        clock,
        _move(f"({UNCERTAIN} and t.text is not null or {WAITS})", RESUME, "resumed"),
        tenant,
        task,
        by,
        delay=delay,
    )


async def recall(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    """Let a failed task go on, of which something has arrived after all; False when it has not failed.

    Hint `due` after the commit.
    """
    statement = _move(f"{FAILED} and t.text is not null", RESUME, "resumed")
    return await _do(connection, clock, statement, tenant, task, by, delay=timedelta())


async def reopen(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    task: int,
    by: str,
    *,
    error: str,
    delay: timedelta = timedelta(),
    hold: str | None = None,
) -> bool:
    """Let a task be sent again after `delay`, or once what it is held for has ended, that stands as said.

    Or whose customer was told that it waits for them. False when it is neither. Hint `due` after the commit.
    """
    statement = _move(f"{STANDS} and t.text is not null", REOPEN, "reopened")
    return await _do(connection, clock, statement, tenant, task, by, error=error, delay=delay, hold=hold)


async def turn(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str, *, error: str) -> bool:
    """Fail a task that stands as said, or as told of; False when it is neither."""
    return await _do(connection, clock, _move(STANDS, TURN, "failed"), tenant, task, by, error=error)
