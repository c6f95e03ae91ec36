"""The ledger of promises: what the agent said that it would do, tied to the row that was booked for it.

A promise is a follow-up that was booked in a turn, or one of something that comes again. What became of it is derived from
its row, and kept nowhere else:

| | |
|---|---|
| kept | said, at most LATE after its time |
| late | said later than that |
| broken | failed, expired, cancelled or skipped, and not by the customer's own doing |
| unknown | a send was begun, and nobody can tell whether it went out |
| released | the customer took it back, has opted out, has shut us out, or has answered meanwhile |
| pending | still to come |

It knows what the table of tasks does: what has ended is deleted long after (`retention.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.task import Task
from store.database import sql

Fate = Literal["kept", "late", "broken", "unknown", "released"]
Span = Literal["day", "week", "month"]
LATE = timedelta(minutes=5)
OWN_DOING = ("skipped: opted out", "skipped: blocked", "skipped: no reply since")
"""Outcomes by which the customer has let us off."""
CUSTOMER = "the customer"
"""Who took a promise back, as a task's story begins to name them."""

# Whose story is read is cancelled, so there is a look at the events of those alone.
LEDGER = f"""
with judged as (
    select t.tenant, case cast(:span as text) when 'day' then date_trunc('day', t.booked_for at time zone 'UTC')
                                              when 'week' then date_trunc('week', t.booked_for at time zone 'UTC')
                                              when 'month' then date_trunc('month', t.booked_for at time zone 'UTC')
                                              end as since,
           case when t.state in ('scheduled', 'firing') then 'pending'
                when t.state = 'uncertain' then 'unknown'
                when t.state = 'fired' and t.outcome = 'delivered'
                then case when t.ended_at <= t.booked_for + cast(:late as interval) then 'kept' else 'late' end
                when t.state = 'fired' and t.outcome = any(cast(:own_doing as text[])) then 'released'
                when t.state = 'cancelled' and exists (
                    select from task_events e
                     where e.bucket = t.bucket and e.tenant = t.tenant and e.task = t.id
                       and e.event in ('cancelled', 'cancel requested')
                       and e.detail ~ '^{CUSTOMER}($|[^a-z])') then 'released'
                else 'broken' end as fate
      from tasks t
     where t.kind = 'followup' and t.parent is not null
       and (cast(:tenant as text) is null or t.tenant = :tenant)
       and (cast(:since as timestamptz) is null or t.booked_for >= :since)
       and (cast(:until as timestamptz) is null or t.booked_for < :until))
select tenant, since, count(*) as promised, count(*) filter (where fate = 'kept') as kept,
       count(*) filter (where fate = 'late') as late, count(*) filter (where fate = 'broken') as broken,
       count(*) filter (where fate = 'unknown') as unknown, count(*) filter (where fate = 'released') as released,
       count(*) filter (where fate = 'pending') as pending
  from judged
 group by tenant, since
 order by tenant, since
"""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a tenant's promises for a span of time, or for all of it."""

    tenant: str
    since: datetime | None
    """The first instant of the span, in UTC but without a zone; None where it is all of it."""
    promised: int
    kept: int
    late: int
    broken: int
    unknown: int
    released: int
    pending: int


async def ledger(
    connection: AsyncConnection,
    tenant: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    by: Span | None = None,
) -> Sequence[Line]:
    """Return what became of the promises for a time from `since` and before `until`, a line for each tenant and each span (UTC)."""
    given = {
        "tenant": tenant,
        "since": since,
        "until": until,
        "span": by,
        "late": LATE,
        "own_doing": list(OWN_DOING),
    }
    return [Line(*tuple(row)) for row in await connection.execute(sql(LEDGER), given)]


def fate_of(task: Task, state: str, outcome: str | None, ended_at: datetime) -> Fate | None:
    """Return what became of a promise that ends so while it is performed; None for what is none, and for what was cancelled.

    Who cancelled it is in its story alone.
    """
    if task.kind != "followup" or task.parent is None or state == "cancelled":
        return None
    if state == "uncertain":
        return "unknown"
    if state == "fired" and outcome == "delivered":
        return "kept" if ended_at <= task.booked_for + LATE else "late"
    return "released" if outcome in OWN_DOING else "broken"
