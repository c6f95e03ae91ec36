"""Cancelling: what is scheduled is cancelled at once; what is being performed is asked to stop, and named as raced."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.events import became, note
from scheduler.find import beyond, whole
from store.database import bucket_of, sql

_CHOSEN = "bucket = :bucket and tenant = :tenant and {which} and (cast(:kinds as text[]) is null or kind = any(cast(:kinds as text[])))"


# The rows are locked first, in one order, so that two cancels of many tasks do not wait for each other. What becomes of
# each is read from `t` alone: a row that was settled while this waited for its lock is first tried as it was, and half of
# the old and half of the new would be a row that the table's own rules refuse. The rows are found again as an array, by
# their key: where many are expected to be chosen, a join would read the whole table.
def _cancel(which: str) -> str:
    return f"""
with chosen as materialized (
    select id from tasks
     where {_CHOSEN.format(which=which)} and state in ('scheduled', 'firing')
     order by id
       for update),
asked as (
update tasks t
   set state = case when t.state = 'scheduled' and not t.sending then 'cancelled' else t.state end,
       ended_at = case when t.state = 'scheduled' and not t.sending then {NOW} else t.ended_at end,
       hold = case when t.state = 'scheduled' and not t.sending then null else t.hold end,
       cancel_requested = t.state = 'firing' or t.sending
 where t.bucket = :bucket and t.tenant = :tenant and t.id = any(array(select id from chosen))
returning t.*),
noted as ({note("case e.state when 'cancelled' then e.state else 'cancel requested' end", "asked", "cast(:by as text)")})
select id, kind, state from asked
"""


_LABELLED = {
    "subject": "subject = :subject",
    "key": "key = :key",
    "key_prefix": "key ~>=~ :key_prefix and key ~<~ :beyond",
}
CANCEL = _cancel(
    "id = any(cast(:ids as bigint[])) and (cast(:conversation as bigint) is null or conversation = :conversation)"
)
CANCEL_LABELLED = {name: _cancel(which) for name, which in _LABELLED.items()}
COUNT_LABELLED = {
    name: f"select count(*) from tasks where {_CHOSEN.format(which=which)} and state = 'scheduled' and not sending"
    for name, which in _LABELLED.items()
}

ACTIVE_LABELLED = {
    name: f"select id from tasks where {_CHOSEN.format(which=which)} and state in ('scheduled', 'firing')"
    for name, which in _LABELLED.items()
}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Every task that was asked for and active is in exactly one of the two."""

    cancelled: Sequence[int]
    raced: Sequence[int]
    """Already being performed: it stops if nothing has left the house yet, otherwise it is done."""


async def cancel(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    ids: Sequence[int],
    *,
    conversation: int | None = None,
    kinds: Sequence[str] | None = None,
    by: str | None = None,
) -> Cancelled:
    """Cancel these tasks of a tenant, as far as they are active and of this conversation and these kinds; `by` says who asked."""
    return await _execute(
        connection, clock, CANCEL, tenant, kinds=_list(kinds), by=by, ids=list(ids), conversation=conversation
    )


async def cancel_followup(
    connection: AsyncConnection, clock: Clock, tenant: str, conversation: int, task: int, *, by: str
) -> Cancelled:
    """Cancel one follow-up of a conversation; of one that comes again also what of it is booked and not said yet."""
    ids = await whole(connection, tenant, conversation, task)
    done = await cancel(connection, clock, tenant, ids, conversation=conversation, by=by)
    # What was being booked meanwhile is there by now: whoever did that held the recurring one.
    later = [one for one in await whole(connection, tenant, conversation, task) if one not in ids]
    more = await cancel(connection, clock, tenant, later, conversation=conversation, by=by)
    return Cancelled([*done.cancelled, *more.cancelled], [*done.raced, *more.raced])


async def cancel_labelled(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    *,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    kinds: Sequence[str] | None = None,
    by: str | None = None,
) -> Cancelled:
    """Cancel a tenant's tasks of one subject, of one key, or whose key begins so, exactly as given; else as `cancel`.

    Raises ValueError unless it is one of the three.
    """
    name, given = _label(subject=subject, key=key, key_prefix=key_prefix)
    return await _execute(connection, clock, CANCEL_LABELLED[name], tenant, kinds=_list(kinds), by=by, **given)


# Each prefix by its own part of the index: a join may be planned as one of all the tenant's tasks.
ACTIVE_PREFIXED = """
select unnest(array(
    select id from tasks
     where bucket = :bucket and tenant = :tenant and key ~>=~ g.prefix and key ~<~ g.beyond
       and state in ('scheduled', 'firing')))
  from unnest(cast(:prefixes as text[]), cast(:beyonds as text[])) as g (prefix, beyond)
"""


async def cancel_prefixed(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    prefixes: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    by: str | None = None,
) -> Cancelled:
    """Cancel a tenant's tasks whose keys begin with one of these; else as `cancel`. Nobody may be booking more of them meanwhile."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "prefixes": list(prefixes)}
    ids = await connection.scalars(sql(ACTIVE_PREFIXED), {**given, "beyonds": [beyond(one) for one in prefixes]})
    return await cancel(connection, clock, tenant, list(ids), kinds=kinds, by=by)


async def cancel_moving(
    connection: AsyncConnection,
    clock: Clock,
    tenant: str,
    *,
    kinds: Sequence[str] | None = None,
    by: str | None = None,
    **label: str,
) -> Cancelled:
    """Cancel as `cancel_labelled`, and also what was being moved to another time meanwhile."""
    done = await cancel_labelled(connection, clock, tenant, kinds=kinds, by=by, **label)
    name, given = _label(**label)
    # One that was being moved to another time is there under another number by now: whoever did that held it.
    met = {*done.cancelled, *done.raced}
    given |= {"bucket": bucket_of(tenant), "tenant": tenant, "kinds": _list(kinds)}
    active = await connection.scalars(sql(ACTIVE_LABELLED[name]), given)
    later = [task for task in active if task not in met]
    more = await cancel(connection, clock, tenant, later, kinds=kinds, by=by) if later else Cancelled([], [])
    return Cancelled([*done.cancelled, *more.cancelled], [*done.raced, *more.raced])


async def count_labelled(
    connection: AsyncConnection,
    tenant: str,
    *,
    subject: str | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    kinds: Sequence[str] | None = None,
) -> int:
    """Return how many tasks `cancel_labelled` would cancel now, those it would find raced not among them."""
    name, given = _label(subject=subject, key=key, key_prefix=key_prefix)
    given |= {"bucket": bucket_of(tenant), "tenant": tenant, "kinds": _list(kinds)}
    return int(await connection.scalar(sql(COUNT_LABELLED[name]), given) or 0)


def _list(kinds: Sequence[str] | None) -> list[str] | None:
    return None if kinds is None else list(kinds)


def _label(**labels: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name of the label that is given, and what its statement is given."""
    given: dict[str, Any] = {name: label for name, label in labels.items() if label is not None}
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(labels)}, not {' and '.join(given) or 'none'}")
    (name,) = given
    if name == "key_prefix":
        given["beyond"] = beyond(given[name])
    return name, given


async def _execute(connection: AsyncConnection, clock: Clock, statement: str, tenant: str, **given: Any) -> Cancelled:
    rows = await connection.execute(
        sql(statement), {"now": clock.override(), "bucket": bucket_of(tenant), "tenant": tenant, **given}
    )
    found = sorted((row.id, row.kind, row.state) for row in rows)
    for _, of_kind, state in found:
        if state == "cancelled":
            became(connection, tenant, of_kind, state)
    return Cancelled(
        cancelled=[task for task, _, state in found if state == "cancelled"],
        raced=[task for task, _, state in found if state != "cancelled"],
    )
