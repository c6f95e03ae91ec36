"""Finding tasks: what is pending in a conversation, one task whole, many by what they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW
from scheduler.task import ACTIVE, tasks
from store.database import bucket_of
from store.tenants import tenants


@dataclass(frozen=True, slots=True)
class Found:
    """A task as it is shown."""

    tenant: str
    id: int
    kind: str
    state: str
    hold: str | None
    conversation: int | None
    channel: str | None
    payload: Mapping[str, Any]
    booked_for: datetime
    due_at: datetime
    created_at: datetime
    ended_at: datetime | None
    attempt: int
    outcome: str | None
    error: str | None
    message_seq: int | None
    parent: int | None


_NAMES = [field.name for field in fields(Found)]
_SHOWN = [tasks.c[name] for name in _NAMES]

# Of every state: each half of it is an index.
BOOKED_FOR_THE_SAME = text(f"""
select {", ".join(f"t.{name}" for name in _NAMES)}
  from tasks t
  join tasks parent on parent.bucket = t.bucket and parent.tenant = t.tenant and parent.id = t.parent
 where t.bucket = :bucket and t.tenant = :tenant and t.conversation = :conversation
   and (t.state in ('scheduled', 'firing') or t.ended_at is not null)
   and t.created_at >= :since and t.kind = 'followup' and t.state <> 'cancelled'
   and (parent.id = :turn or parent.state not in ('fired', 'uncertain'))
 order by t.id
""")

# Two questions, since there are two indexes of what is due.
OLDEST_DUE = f"""
select extract(epoch from {NOW} - least(
           (select min(due_at) from tasks where state = 'scheduled' and hold is null and lane),
           (select min(due_at) from tasks where state = 'scheduled' and hold is null and not lane)))
"""


FAILED = """
select tenant, id from tasks
 where state = 'failed' and (cast(:tenant as text) is null or tenant = :tenant)
 order by ended_at, id
"""
COUNT_TROUBLED = "select state, count(*) as tasks from tasks where state in ('failed', 'uncertain') group by state"


async def _found(connection: AsyncConnection, question: Select[Any]) -> list[Found]:
    return [Found(*tuple(row)) for row in await connection.execute(question)]


async def pending_followups(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[Found]:
    """Return a conversation's follow-ups that are still to come, the next first."""
    return await _found(
        connection,
        select(*_SHOWN)
        .where(
            *_of_conversation(tenant, conversation),
            tasks.c.kind.in_(("followup", "notice")),
            tasks.c.state.in_(ACTIVE),
        )
        .order_by(tasks.c.booked_for, tasks.c.id),
    )


def _of_conversation(tenant: str, conversation: int) -> list[ColumnElement[bool]]:
    return [tasks.c.bucket == bucket_of(tenant), tasks.c.tenant == tenant, tasks.c.conversation == conversation]


async def booked_for_the_same(
    connection: AsyncConnection, tenant: str, conversation: int, *, turn: int, since: datetime
) -> Sequence[Found]:
    """Return the follow-ups that answering these very messages, the oldest from `since`, has booked already.

    By an earlier attempt at this turn, or by another turn that has not answered: cut off, or ended without a word after
    it had booked. One that was said meanwhile counts, since to book it again is to say it twice; one cancelled does not.
    """
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "conversation": conversation,
        "since": since,
        "turn": turn,
    }
    return [Found(*tuple(row)) for row in await connection.execute(BOOKED_FOR_THE_SAME, given)]


async def get(connection: AsyncConnection, tenant: str | None, task: int) -> Found | None:
    """Return one task, of this tenant or (None) of any."""
    found = await _found(connection, search_for_one(tenant, task))
    return found[0] if found else None


def search_for_one(tenant: str | None, task: int) -> Select[Any]:
    """Return the question that `get` asks."""
    return select(*_SHOWN).where(_of(tenant), tasks.c.id == task)


def _of(tenant: str | None) -> ColumnElement[bool]:
    # Of any tenant: by each one's part of an index, of which the number or the label alone is not the beginning.
    whose = select(tenants.c.bucket, tenants.c.tenant) if tenant is None else [(bucket_of(tenant), tenant)]
    return tuple_(tasks.c.bucket, tasks.c.tenant).in_(whose)


async def search(
    connection: AsyncConnection,
    *,
    tenant: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    limit: int = 20,
) -> Sequence[Found]:
    """Return tasks by what they are: the next due first, or, of those that have ended, the last ended first.

    Labels are looked for exactly as given; among the tasks that have ended there is no index of them.
    """
    question = search_for(
        tenant=tenant, states=states, kind=kind, subject=subject, key=key, key_prefix=key_prefix, limit=limit
    )
    return await _found(connection, question)


def search_for(
    *,
    tenant: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    limit: int = 20,
) -> Select[Any]:
    """Return the question that `search` asks."""
    chosen: list[ColumnElement[bool]] = []
    if subject is not None:
        chosen.append(tasks.c.subject == subject)
    if key is not None:
        chosen.append(tasks.c.key == key)
    if key_prefix is not None:
        chosen += [tasks.c.key.bool_op("~>=~")(key_prefix), tasks.c.key.bool_op("~<~")(beyond(key_prefix))]
    if tenant is not None or chosen:
        chosen.append(_of(tenant))
    if states:
        # As words of the statement, whatever it is planned for: an index of some states is only used where they are known.
        chosen.append(tasks.c.state.in_(bindparam("states", states, expanding=True, literal_execute=True)))
    if kind is not None:
        chosen.append(tasks.c.kind == kind)
    order: list[ColumnElement[Any]] = [tasks.c.due_at, tasks.c.id]
    if not states or not set(states) <= set(ACTIVE):  # else none has ended, and an index may have them in this order
        order.insert(0, tasks.c.ended_at.desc().nulls_first())
    return select(*_SHOWN).where(*chosen).order_by(*order).limit(limit)


def beyond(prefix: str) -> str:
    """Return the least text that comes after all that begin with `prefix`, in the order of `~<~`, which is of bytes.

    A range of two bounds is looked up by index in every plan; `like` and `starts_with` only where it is made for one prefix.
    """
    before = prefix.rstrip("\U0010ffff")
    if not before:
        raise ValueError(
            "a key prefix is at least one character, and not U+10FFFF alone: give what the keys begin with"
        )
    after = ord(before[-1]) + 1
    return before[:-1] + chr(0xE000 if after == 0xD800 else after)  # past the surrogates, which are not characters


async def failed(connection: AsyncConnection, tenant: str | None) -> Sequence[tuple[str, int]]:
    """Return tenant and number of every failed task, of one tenant or (None) of all, the first that failed first."""
    return [(row.tenant, row.id) for row in await connection.execute(text(FAILED), {"tenant": tenant})]


async def count_troubled(connection: AsyncConnection) -> Mapping[str, int]:
    """Return how many tasks wait for an operator, by state."""
    return {row.state: row.tasks for row in await connection.execute(text(COUNT_TROUBLED))}


async def oldest_due(connection: AsyncConnection, now: datetime | None) -> float:
    """Return for how many seconds the longest waiting due task has been due; 0 when nothing waits."""
    return max(float(await connection.scalar(text(OLDEST_DUE), {"now": now}) or 0), 0.0)
