"""Renewals: what of a customer's ends on a day, and what the business has agreed with them about being written to.

One open renewal a subject. When it is renewed or lost it is closed, and the next one under the same subject is another row, so that
what was said for one year says nothing of the next.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

State = Literal["open", "renewed", "lost", "withdrawn"]
"""`withdrawn`: it was taken back without a word of what became of it."""

renewals = Table(
    "renewals",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("subject", Text, nullable=False),
    Column("due", Date, nullable=False),
    Column("cadence", Text, nullable=False),
    # Where they may be reached, by channel.
    Column("addresses", JSONB, nullable=False),
    Column("name", Text),
    Column("language", Text),
    Column("time_zone", Text),
    # What the message may say.
    Column("fields", JSONB, nullable=False, server_default=text("'{}'")),
    # Whether they agreed to be written to.
    Column("agreed", Boolean, nullable=False, server_default=text("false")),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    # Why no further step comes, though it is open.
    Column("stopped", Text),
    # The steps that were said, or begun, for this renewal.
    Column("said", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    # The conversation in which it was last spoken of, and since when, in this plan.
    Column("conversation", BigInteger),
    Column("spoken_at", DateTime(timezone=True)),
    # By which hours and steps its tasks were planned.
    Column("planned_by", Text, nullable=False),
    # How often it was planned: tasks of different plans have different keys.
    Column("plan", BigInteger, nullable=False, server_default=text("1")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("closed_at", DateTime(timezone=True)),
    CheckConstraint("state in ('open', 'renewed', 'lost', 'withdrawn')", name="state"),
    CheckConstraint("(state = 'open') = (closed_at is null)", name="closed_when_not_open"),
    ForeignKeyConstraint(["bucket", "tenant"], ["tenants.bucket", "tenants.tenant"]),
    Index("renewals_open", "bucket", "tenant", "subject", unique=True, postgresql_where=text("state = 'open'")),
    Index(
        "renewals_in_conversation",
        "bucket",
        "tenant",
        "conversation",
        postgresql_where=text("state = 'open' and conversation is not null"),
    ),
)

renewal_events = Table(
    "renewal_events",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("renewal", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("event", Text, nullable=False),
    # Who did it.
    Column("by", Text, nullable=False),
    Column("detail", Text),
    ForeignKeyConstraint(
        ["bucket", "tenant", "renewal"], ["renewals.bucket", "renewals.tenant", "renewals.id"], ondelete="CASCADE"
    ),
    Index("renewal_events_of", "bucket", "tenant", "renewal", "id"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A renewal as somebody wants it to be."""

    subject: str
    due: date
    cadence: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    """As they are written to, by channel."""
    name: str | None = None
    language: str | None = None
    time_zone: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    agreed: bool = False


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewal as it is."""

    tenant: str
    id: int
    subject: str
    due: date
    cadence: str
    addresses: Mapping[str, str]
    name: str | None
    language: str | None
    time_zone: str | None
    fields: Mapping[str, str]
    agreed: bool
    state: State
    stopped: str | None
    said: Sequence[str]
    conversation: int | None
    spoken_at: datetime | None
    planned_by: str
    plan: int
    created_at: datetime
    closed_at: datetime | None

    @property
    def wanted(self) -> Wanted:
        """What was wanted of it last."""
        return Wanted(
            self.subject,
            self.due,
            self.cadence,
            self.addresses,
            self.name,
            self.language,
            self.time_zone,
            self.fields,
            self.agreed,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a renewal's story."""

    at: datetime
    event: str
    by: str
    detail: str | None


_FIELDS = (
    "tenant, id, subject, due, cadence, addresses, name, language, time_zone, fields, agreed, state, stopped, said, conversation,"
    " spoken_at, planned_by, plan, created_at, closed_at"
)
_NOW = "coalesce(cast(:now as timestamptz), now())"
_OF = "bucket = :bucket and tenant = :tenant"

# In the order of their subjects, as everybody locks and writes them who has many.
_LOCK = f"""
select {_FIELDS} from renewals
 where {_OF} and state = 'open' and subject = any(cast(:subjects as text[]))
 order by subject for update
"""
_INSERT = f"""
insert into renewals (bucket, tenant, subject, due, cadence, addresses, name, language, time_zone, fields, agreed, planned_by,
                      created_at)
select :bucket, :tenant, g.subject, g.due, g.cadence, cast(g.addresses as jsonb), g.name, g.language, g.time_zone,
       cast(g.fields as jsonb), g.agreed, g.planned_by, {_NOW}
  from unnest(cast(:subject as text[]), cast(:due as date[]), cast(:cadence as text[]), cast(:addresses as text[]),
              cast(:name as text[]), cast(:language as text[]), cast(:time_zone as text[]), cast(:fields as text[]),
              cast(:agreed as boolean[]), cast(:planned_by as text[]))
    as g (subject, due, cadence, addresses, name, language, time_zone, fields, agreed, planned_by)
 order by g.subject
    on conflict (bucket, tenant, subject) where state = 'open' do nothing
returning id, subject
"""
# The ids once more as an array: where many are expected to be open, a join would read them all.
_CHANGE = """
update renewals r
   set due = g.due, cadence = g.cadence, addresses = cast(g.addresses as jsonb), name = g.name, language = g.language,
       time_zone = g.time_zone, fields = cast(g.fields as jsonb), agreed = g.agreed, planned_by = g.planned_by,
       plan = r.plan + cast(g.is_replanned as integer), stopped = case when g.is_new_round then null else r.stopped end,
       spoken_at = case when g.is_new_round then null else r.spoken_at end,
       said = (select coalesce(array_agg(distinct one), '{}')
                 from (select unnest(r.said) union select jsonb_array_elements_text(cast(g.raced as jsonb))) as each (one))
  from unnest(cast(:id as bigint[]), cast(:due as date[]), cast(:cadence as text[]), cast(:addresses as text[]),
              cast(:name as text[]), cast(:language as text[]), cast(:time_zone as text[]), cast(:fields as text[]),
              cast(:agreed as boolean[]), cast(:planned_by as text[]), cast(:is_replanned as boolean[]),
              cast(:is_new_round as boolean[]), cast(:raced as text[]))
    as g (id, due, cadence, addresses, name, language, time_zone, fields, agreed, planned_by, is_replanned, is_new_round,
          raced)
 where r.bucket = :bucket and r.tenant = :tenant and r.id = g.id and r.state = 'open'
   and r.id = any(cast(:id as bigint[]))
returning r.id, r.plan
"""
_CLOSE = (
    f"update renewals set state = :state, closed_at = {_NOW} where {_OF} and id = :id and state = 'open' returning id"
)
_STOP = (
    f"update renewals set stopped = :why where {_OF} and id = :id and state = 'open' and stopped is null returning id"
)
_SAID = f"""
update renewals
   set said = array_append(said, cast(:step as text)), conversation = :conversation, spoken_at = coalesce(spoken_at, {_NOW})
 where {_OF} and id = :id and not said @> array[cast(:step as text)]
returning id
"""
_NOTE = f"""
insert into renewal_events (bucket, tenant, renewal, at, event, by, detail)
select :bucket, :tenant, g.renewal, {_NOW}, :event, :by, g.detail
  from unnest(cast(:renewals as bigint[]), cast(:details as text[])) as g (renewal, detail)
"""


async def lock_open(connection: AsyncConnection, tenant: str, subjects: Sequence[str]) -> Mapping[str, Renewal]:
    """Return the open renewals under these subjects, by subject, and keep them from changing until the transaction ends."""
    given = {**_whose(tenant), "subjects": list(subjects)}
    return {row.subject: _renewal(row) for row in await connection.execute(sql(_LOCK), given)}


async def insert(
    connection: AsyncConnection, tenant: str, wanted: Sequence[tuple[Wanted, str]], *, now: datetime | None
) -> Mapping[str, int]:
    """Open renewals, each with what it is planned by; return the new ids by subject. What is open already is not among them."""
    if not wanted:
        return {}
    given = {**_columns([one for one, _ in wanted]), "planned_by": [planned_by for _, planned_by in wanted]}
    given["subject"] = [one.subject for one, _ in wanted]
    rows = await connection.execute(sql(_INSERT), {**_whose(tenant), "now": now, **given})
    return {row.subject: row.id for row in rows}


def _columns(wanted: Sequence[Wanted]) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: [getattr(one, name) for one in wanted]
        for name in ("due", "cadence", "name", "language", "time_zone", "agreed")
    }
    given["addresses"] = [json.dumps(dict(one.addresses)) for one in wanted]
    given["fields"] = [json.dumps(dict(one.fields)) for one in wanted]
    return given


@dataclass(frozen=True, slots=True)
class Change:
    """What an open renewal is to become."""

    renewal: int
    wanted: Wanted
    planned_by: str
    is_replanned: bool
    is_new_round: bool
    """Whether it is not stopped, nor answered, any more."""
    raced: Sequence[str] = ()
    """Steps that had begun when they were to be taken back: they count as said."""


async def change_many(connection: AsyncConnection, tenant: str, changes: Sequence[Change]) -> Mapping[int, int]:
    """Change open renewals that are locked; return each one's plan's number by its id."""
    given = {
        **_whose(tenant),
        **_columns([one.wanted for one in changes]),
        "id": [one.renewal for one in changes],
        "planned_by": [one.planned_by for one in changes],
        "is_replanned": [one.is_replanned for one in changes],
        "is_new_round": [one.is_new_round for one in changes],
        "raced": [json.dumps(list(one.raced)) for one in changes],
    }
    return {row.id: row.plan for row in await connection.execute(sql(_CHANGE), given)}


async def close(connection: AsyncConnection, tenant: str, renewal: int, state: State, *, now: datetime | None) -> bool:
    """Close an open renewal; False when it is not open."""
    given = {**_whose(tenant), "id": renewal, "state": state, "now": now}
    return (await connection.execute(sql(_CLOSE), given)).first() is not None


async def stop(connection: AsyncConnection, tenant: str, renewal: int, why: str) -> bool:
    """Note why no further step comes of an open renewal; False when that was noted already, or it is not open."""
    return (await connection.execute(sql(_STOP), {**_whose(tenant), "id": renewal, "why": why})).first() is not None


async def note_said(
    connection: AsyncConnection, tenant: str, renewal: int, step: str, conversation: int, *, now: datetime | None
) -> bool:
    """Note that a step is being said in a conversation; False when it was before."""
    given = {**_whose(tenant), "id": renewal, "step": step, "conversation": conversation, "now": now}
    return (await connection.execute(sql(_SAID), given)).first() is not None


async def get(connection: AsyncConnection, tenant: str, renewal: int, *, lock: bool = False) -> Renewal | None:
    """Return one renewal, kept from changing until the transaction ends if it is locked."""
    statement = f"select {_FIELDS} from renewals where {_OF} and id = :id {'for update' if lock else ''}"
    row = (await connection.execute(sql(statement), {**_whose(tenant), "id": renewal})).first()
    return None if row is None else _renewal(row)


async def open_in(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[Renewal]:
    """Return the open renewals that were last spoken of in a conversation, the first due first."""
    statement = f"select {_FIELDS} from renewals where {_OF} and state = 'open' and conversation = :conversation order by due, id"
    rows = await connection.execute(sql(statement), {**_whose(tenant), "conversation": conversation})
    return [_renewal(row) for row in rows]


async def planned_otherwise(
    connection: AsyncConnection, tenant: str, cadence: str, planned_by: str, *, after: int, limit: int
) -> Sequence[Renewal]:
    """Return open renewals of a cadence that are planned by anything else, in the order of their numbers, and lock them."""
    statement = (
        f"select {_FIELDS} from renewals where {_OF} and state = 'open' and stopped is null and cadence = :cadence"
        " and planned_by <> :planned_by and id > :after order by id limit :limit for update"
    )
    given = {**_whose(tenant), "cadence": cadence, "planned_by": planned_by, "after": after, "limit": limit}
    return [_renewal(row) for row in await connection.execute(sql(statement), given)]


async def under(connection: AsyncConnection, tenant: str, subject: str) -> Sequence[Renewal]:
    """Return all renewals there were under a subject, the latest first."""
    statement = f"select {_FIELDS} from renewals where {_OF} and subject = :subject order by id desc"
    return [_renewal(row) for row in await connection.execute(sql(statement), {**_whose(tenant), "subject": subject})]


async def analyze_if_new(connection: AsyncConnection) -> None:
    """Have the database look at its tables if it never has: until then it expects one row of a tenant, and reads all it finds.

    By itself it looks within a minute or two, in which many thousands may be written.
    """
    if await connection.scalar(text("select reltuples < 0 from pg_class where oid = cast('renewals' as regclass)")):
        await connection.execute(text("analyze renewals, tasks"))


async def find(
    connection: AsyncConnection,
    tenant: str,
    *,
    state: State | None = None,
    due_before: date | None = None,
    limit: int = 50,
) -> Sequence[Renewal]:
    """Return a tenant's renewals, the first due first; `due_before` leaves out that day and what is due later."""
    statement = f"""
select {_FIELDS} from renewals
 where {_OF} and (cast(:state as text) is null or state = :state)
   and (cast(:due_before as date) is null or due < :due_before)
 order by due, id limit :limit
"""
    given = {**_whose(tenant), "state": state, "due_before": due_before, "limit": limit}
    return [_renewal(row) for row in await connection.execute(sql(statement), given)]


async def note(
    connection: AsyncConnection,
    tenant: str,
    event: str,
    by: str,
    details: Mapping[int, str | None],
    *,
    now: datetime | None,
) -> None:
    """Write a line into the stories of renewals, each with its detail."""
    given = {**_whose(tenant), "event": event, "by": by, "now": now}
    if details:
        await connection.execute(sql(_NOTE), {**given, "renewals": list(details), "details": list(details.values())})


async def story(connection: AsyncConnection, tenant: str, renewal: int) -> Sequence[Event]:
    """Return a renewal's story, in its order."""
    statement = f"select at, event, by, detail from renewal_events where {_OF} and renewal = :id order by id"
    return [Event(*row) for row in await connection.execute(sql(statement), {**_whose(tenant), "id": renewal})]


def _whose(tenant: str) -> dict[str, Any]:
    return {"bucket": bucket_of(tenant), "tenant": tenant}


def _renewal(row: Row[Any]) -> Renewal:
    return Renewal(*tuple(row))
