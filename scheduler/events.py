"""The story of a task: a line for each thing that became of it, written by the very statement that did it.

| event | detail |
|---|---|
| booked | its kind |
| claimed | the worker |
| written | |
| sending | |
| returned | why it is not done yet: an error, or the hold it waits under |
| released | the hold that ended |
| recovered | |
| cancel requested, cancelled | who asked, where it is known |
| fired | `delivered` or `skipped: …` |
| failed, uncertain | the error |
| expired | |
| planned | a schedule's next slot, where it was registered first or its times have changed |
| ran | the slot that a schedule was run for, and its error |
| missed | the slots of a schedule that were not run in time, and what its policy made of them |
| retried, discarded, settled | the operator, and why |
| resumed | whose word has come about a send nobody knew of |
| reopened | whose word has come that what counted as delivered was not |
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, DateTime, Identity, SmallInteger, Table, Text, select
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW
from store.database import bucket_of, metadata, tell_on_commit

# No foreign key: it would lock the task's row once more for every line. Retention deletes both together.
task_events = Table(
    "task_events",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("task", BigInteger, primary_key=True, autoincrement=False),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("event", Text, nullable=False),
    # The claim under which it happened.
    Column("fence", BigInteger, nullable=False),
    Column("detail", Text),
)


def note(event: str, source: str, detail: str = "null") -> str:
    """Return the statement, to stand in a WITH, that writes a line for every row of `source`, which has a task's columns.

    `event` and `detail` are SQL over the row `e`.
    """
    return f"""
    insert into task_events (bucket, tenant, task, at, event, fence, detail)
    select e.bucket, e.tenant, e.id, {NOW}, {event}, e.fence, {detail} from {source} e"""


@dataclass(frozen=True, slots=True)
class Became:
    """What is counted of a task's story: that it has ended, in which state, or was recovered."""

    tenant: str
    kind: str
    event: str
    outcome: str | None = None
    promise: str | None = None
    """What became of the promise, where it was one (`promises.py`)."""


def became(connection: AsyncConnection, tenant: str, kind: str, event: str, outcome: str | None = None) -> None:
    """Have it counted once this transaction is committed."""
    tell_on_commit(connection, Became(tenant, kind, event, outcome))


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a task's story."""

    at: datetime
    event: str
    fence: int
    detail: str | None


async def story(connection: AsyncConnection, tenant: str, task: int) -> list[Event]:
    """Return what became of a task, line by line."""
    rows = await connection.execute(
        select(task_events.c.at, task_events.c.event, task_events.c.fence, task_events.c.detail)
        .where(task_events.c.bucket == bucket_of(tenant), task_events.c.tenant == tenant, task_events.c.task == task)
        .order_by(task_events.c.id)
    )
    return [Event(*tuple(row)) for row in rows]
