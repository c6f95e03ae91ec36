"""Finding tasks: what is pending in a conversation, one task whole, many by what they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_args

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW
from scheduler.task import ACTIVE, OWN, Kind, State
from store.database import bucket_of, sql


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
    key: str | None
    subject: str | None
    needs: str | None

    @property
    def kept(self) -> Mapping[str, Any]:
        """The payload, or nothing where the row was damaged: it is shown all the same."""
        return self.payload if isinstance(self.payload, Mapping) else {}


_SHOWN = ", ".join(f"t.{field.name}" for field in fields(Found))

PENDING_FOLLOWUPS = f"""
select {_SHOWN} from tasks t
 where t.bucket = :bucket and t.tenant = :tenant and t.conversation = :conversation
   and t.kind in ('followup', 'notice', 'schedule') and t.state in ('scheduled', 'firing')
 order by t.booked_for, t.id
"""

# A recurring one with what of it is booked and not said yet; of any other that alone. In the order in which many are locked.
WHOLE = """
select t.id from tasks t
 where t.bucket = :bucket and t.tenant = :tenant and t.conversation = :conversation and t.state in ('scheduled', 'firing')
   and (t.id = :id and t.kind in ('followup', 'notice', 'schedule')
        or t.kind = 'followup' and t.parent = :id and exists (
            select from tasks s where s.bucket = :bucket and s.tenant = :tenant and s.id = :id and s.kind = 'schedule'))
 order by t.id
"""

# Either half of it is an index.
TEXTS_OF_UNKNOWN_FATE = """
select text from tasks
 where bucket = :bucket and tenant = :tenant and conversation = :conversation and id <> :but
   and (state in ('scheduled', 'firing') or ended_at is not null)
   and (state = 'scheduled' and sending or state = 'uncertain') and text is not null
 order by id
"""

# Of every state: each half of it is an index.
BOOKED_FOR_THE_SAME = f"""
select {_SHOWN}
  from tasks t
  join tasks parent on parent.bucket = t.bucket and parent.tenant = t.tenant and parent.id = t.parent
 where t.bucket = :bucket and t.tenant = :tenant and t.conversation = :conversation
   and (t.state in ('scheduled', 'firing') or t.ended_at is not null)
   and t.created_at >= :since and t.kind in ('followup', 'schedule') and t.state <> 'cancelled' and parent.kind = 'turn'
   and (parent.id = :turn or parent.state not in ('fired', 'uncertain'))
 order by t.id
"""

# Three questions, since there are three indexes of what is due. What needs something may wait for whoever has it.
OLDEST_DUE = f"""
select extract(epoch from {NOW} - least(
           (select min(due_at) from tasks where state = 'scheduled' and hold is null and lane),
           (select min(due_at) from tasks
             where state = 'scheduled' and hold is null and not lane and needs is null and booked_for > created_at),
           (select min(due_at) from tasks
             where state = 'scheduled' and hold is null and not lane and needs is null and booked_for <= created_at)))
"""


# That the key is not null is said for the index.
KEYED = f"""
select {_SHOWN} from tasks t
 where t.bucket = :bucket and t.tenant = :tenant and t.idempotency_key is not null
   and t.idempotency_key = any(cast(:keys as text[]))
 order by t.booked_for, t.id
"""

FAILED = """
select tenant, id from tasks
 where state = 'failed' and (cast(:tenant as text) is null or tenant = :tenant)
 order by ended_at, id
"""
COUNT_TROUBLED = "select state, count(*) as tasks from tasks where state in ('failed', 'uncertain') group by state"


async def _found(connection: AsyncConnection, question: str, given: Mapping[str, Any]) -> list[Found]:
    return [Found(*row) for row in await connection.execute(sql(question), given)]


async def texts_of_unknown_fate(
    connection: AsyncConnection, tenant: str, conversation: int, *, but: int
) -> Sequence[str]:
    """Return what other tasks of a conversation say of which a send was begun, and nobody knows what became of it."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "but": but}
    return list(await connection.scalars(sql(TEXTS_OF_UNKNOWN_FATE), given))


async def pending_followups(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[Found]:
    """Return a conversation's follow-ups that are still to come, the next first, and those that come again."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    return await _found(connection, PENDING_FOLLOWUPS, given)


WRITTEN_NOTICES = """
select id from tasks
 where bucket = :bucket and tenant = :tenant and conversation = :conversation and kind = 'notice' and lane
   and state in ('scheduled', 'firing')
"""


async def written_notices(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[int]:
    """Return the notices of a conversation that are about to be said."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    return list(await connection.scalars(sql(WRITTEN_NOTICES), given))


# A turn that only says a phrase answers nobody's question.
UNSAID_TURNS = """
select id from tasks
 where bucket = :bucket and tenant = :tenant and conversation = :conversation and kind = 'turn' and payload = '{}'
   and state in ('scheduled', 'firing')
 order by id
"""


async def unsaid_turns(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[int]:
    """Return the turns of a conversation that are still to answer what the customer has written."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    return list(await connection.scalars(sql(UNSAID_TURNS), given))


def each_once(pending: Sequence[Found]) -> Sequence[Found]:
    """Leave out what is booked of something recurring that is pending itself."""
    recurring = {found.id for found in pending if found.kind == "schedule"}
    return [found for found in pending if found.parent not in recurring]


async def whole(connection: AsyncConnection, tenant: str, conversation: int, task: int) -> Sequence[int]:
    """Return what is pending of one follow-up of a conversation: itself, and what is booked of one that comes again."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "id": task}
    return list((await connection.execute(sql(WHOLE), given)).scalars())


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
    return await _found(connection, BOOKED_FOR_THE_SAME, given)


async def get(connection: AsyncConnection, tenant: str | None, task: int) -> Found | None:
    """Return one task, of this tenant or (None) of any."""
    found = await _found(connection, *search_for_one(tenant, task))
    return found[0] if found else None


async def keyed(connection: AsyncConnection, tenant: str, idempotency_keys: Sequence[str]) -> Sequence[Found]:
    """Return the tasks, in whatever state, that were booked under these idempotency keys, by when they were promised."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "keys": list(idempotency_keys)}
    return await _found(connection, KEYED, given)


def search_for_one(tenant: str | None, task: int) -> tuple[str, dict[str, Any]]:
    """Return the question that `get` asks, and what it is given."""
    whose, given = _of(tenant)
    if tenant is None:  # the application's own is in no table of tenants
        own = "select cast(:own_bucket as smallint), cast(:own as text)"
        whose = f"(t.bucket, t.tenant) in (select bucket, tenant from tenants union all {own})"
        given = {"own_bucket": bucket_of(OWN), "own": OWN}
    return f"select {_SHOWN} from tasks t where {whose} and t.id = :id", {**given, "id": task}


def _of(tenant: str | None) -> tuple[str, dict[str, Any]]:
    if tenant is None:
        # By each one's part of an index, of which the number or the label alone is not the beginning.
        return "(t.bucket, t.tenant) in (select bucket, tenant from tenants)", {}
    return "t.bucket = :bucket and t.tenant = :tenant", {"bucket": bucket_of(tenant), "tenant": tenant}


async def search(
    connection: AsyncConnection,
    *,
    tenant: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    function: str | None = None,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    limit: int = 20,
) -> Sequence[Found]:
    """Return tasks by what they are: the next due first, or, of those that have ended, the last ended first.

    `function` is the path that a deferred run calls. Labels are looked for exactly as given; among the tasks that have ended there is no index of them.
    """
    question, given = search_for(
        tenant=tenant,
        states=states,
        kind=kind,
        function=function,
        subject=subject,
        key=key,
        key_prefix=key_prefix,
        limit=limit,
    )
    return await _found(connection, question, given)


def search_for(
    *,
    tenant: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    function: str | None = None,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    limit: int = 20,
) -> tuple[str, dict[str, Any]]:
    """Return the question that `search` asks, and what it is given."""
    chosen: list[str] = []
    given: dict[str, Any] = {"limit": limit}
    if subject is not None:
        chosen.append("t.subject = :subject")
        given["subject"] = subject
    if key is not None:
        chosen.append("t.key = :key")
        given["key"] = key
    if key_prefix is not None:
        chosen.append("t.key ~>=~ :key_prefix and t.key ~<~ :beyond")
        given |= {"key_prefix": key_prefix, "beyond": beyond(key_prefix)}
    if tenant is not None or chosen:
        whose, of = _of(tenant)
        chosen.append(whose)
        given |= of
    if states:
        # As words of the statement, whatever it is planned for: an index of some states is only used where they are known.
        if unknown := set(states) - set(get_args(State)):
            raise ValueError(
                f"there is no state {', '.join(sorted(unknown))}: give one of {', '.join(get_args(State))}"
            )
        words = ", ".join(f"'{state}'" for state in states)
        chosen.append(f"t.state in ({words})")
    if kind is not None:
        chosen.append("t.kind = :kind")
        given["kind"] = kind
    if function is not None:
        chosen.append("t.kind = 'function' and t.payload ->> 'path' = :function")
        given["function"] = function
    is_any_ended = not states or not set(states) <= set(ACTIVE)  # else an index may have them in their order
    return (
        f"select {_SHOWN} from tasks t {'where' if chosen else ''} {' and '.join(chosen)}"
        f" order by {'t.ended_at desc nulls first,' if is_any_ended else ''} t.due_at, t.id limit :limit"
    ), given


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


async def page_of(
    connection: AsyncConnection,
    tenant: str,
    *,
    kinds: Sequence[str],
    states: Sequence[str],
    function: str | None = None,
    key: str | None = None,
    subject: str | None = None,
    limit: int,
    offset: int,
) -> tuple[Sequence[Found], int]:
    """Return one page of a tenant's tasks, and how many there are: the next due first, or, of those that have ended, the last first."""
    (question, count), given = search_page(kinds=kinds, states=states, function=function, key=key, subject=subject)
    given |= {"bucket": bucket_of(tenant), "tenant": tenant}
    total = int(await connection.scalar(sql(count), given) or 0)
    rows = await _found(connection, question, {**given, "limit": limit, "offset": offset}) if total > offset else []
    return rows, total


def search_page(
    *, kinds: Sequence[str], states: Sequence[str], function: str | None, key: str | None, subject: str | None
) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the questions that `page_of` asks, for the page and for how many there are, and what both are given."""
    # Kinds and states are words of the statement, whatever it is planned for, so that an index of some can be used.
    assert set(states) <= set(get_args(State))
    assert set(kinds) <= set(get_args(Kind))
    chosen = [
        "t.bucket = :bucket and t.tenant = :tenant",
        f"t.kind in ({', '.join(map(repr, kinds))})" if len(kinds) > 1 else f"t.kind = {kinds[0]!r}",
        f"t.state in ({', '.join(map(repr, states))})",
    ]
    given: dict[str, Any] = {}
    for name, column, label in (
        ("function", "t.payload ->> 'path'", function),
        ("key", "t.key", key),
        ("subject", "t.subject", subject),
    ):
        if label is not None:
            chosen.append(f"{column} = :{name}")
            given[name] = label
    where = " and ".join(chosen)
    order = "t.due_at, t.id" if set(states) <= set(ACTIVE) else "t.ended_at desc, t.id desc"
    page = f"select {_SHOWN} from tasks t where {where} order by {order} limit :limit offset :offset"
    return (page, f"select count(*) from tasks t where {where}"), given


async def failed(connection: AsyncConnection, tenant: str | None) -> Sequence[tuple[str, int]]:
    """Return tenant and number of every failed task, of one tenant or (None) of all, the first that failed first."""
    return [(row.tenant, row.id) for row in await connection.execute(sql(FAILED), {"tenant": tenant})]


async def count_troubled(connection: AsyncConnection) -> Mapping[str, int]:
    """Return how many tasks wait for an operator, by state."""
    return {row.state: row.tasks for row in await connection.execute(sql(COUNT_TROUBLED))}


async def oldest_due(connection: AsyncConnection, now: datetime | None) -> float:
    """Return for how many seconds the longest waiting due task has been due; 0 when nothing waits."""
    return max(float(await connection.scalar(sql(OLDEST_DUE), {"now": now}) or 0), 0.0)
