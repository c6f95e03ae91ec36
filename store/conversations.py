"""Conversations: tenant + channel + address (+ thread), and the lane.

The lane is two columns of the conversation's own row, `lane_task` and `lane_fence`. One row holds one owner, so the
database itself guarantees that one task at a time speaks in a conversation. `scheduler/claim.py` takes it,
`scheduler/settle.py` and `scheduler/recovery.py` free it.

A conversation is the agent's, or a person has taken it over (`with_person_since`): then the agent says nothing in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.contacts import Contact, Stopped, meet
from store.database import bucket_of, metadata, sql

conversations = Table(
    "conversations",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("contact", BigInteger, nullable=False),
    # A forum topic or the like; empty where the channel has none.
    Column("thread", Text, nullable=False, server_default=text("''")),
    Column("last_seq", Integer, nullable=False, server_default=text("0")),
    # Up to where the customer's messages have been answered.
    Column("answered_seq", Integer, nullable=False, server_default=text("0")),
    Column("seen_seq", Integer, nullable=False, server_default=text("0")),
    Column("last_inbound_at", DateTime(timezone=True)),
    Column("lane_task", BigInteger),
    Column("lane_fence", BigInteger),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # Since when a person answers in the agent's place, and why.
    Column("with_person_since", DateTime(timezone=True)),
    Column("with_person_why", Text),
    UniqueConstraint("bucket", "tenant", "contact", "thread", name="conversations_of_contact"),
    ForeignKeyConstraint(
        ["bucket", "tenant", "contact"], ["contacts.bucket", "contacts.tenant", "contacts.id"], ondelete="CASCADE"
    ),
    CheckConstraint("(lane_task is null) = (lane_fence is null)", name="lane_is_whole"),
    Index(
        "conversations_with_person",
        "bucket",
        "tenant",
        "with_person_since",
        postgresql_where=text("with_person_since is not null"),
    ),
    # Every message and every lane change rewrites this row; room on the page keeps those updates cheap.
    postgresql_with={"fillfactor": "80"},
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation together with the contact it is held with."""

    tenant: str
    id: int
    channel: str
    address: str
    address_key: str
    thread: str | None
    name: str | None
    language: str | None
    time_zone: str | None
    last_seq: int
    answered_seq: int
    last_inbound_at: datetime | None
    stopped: Stopped | None
    """Who has said that nothing is to be sent that was not just asked for."""
    with_person_since: datetime | None
    """Since when a person answers in the agent's place."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The conversation with whoever writes."""

    id: int
    silence: timedelta | None
    """For how long the customer had not written there; None when never before."""
    stopped: Stopped | None
    """Who had said that nothing more is to be sent there."""


# Finds nobody of whom anything is newly told. Whoever takes a message in has its contact first, then tasks, then the
# conversation; so of two that come in one chat the second waits here, and none can wait for the other in a circle.
KNOWN = text("""
select v.id, coalesce(cast(:now as timestamptz), now()) - v.last_inbound_at as silence, c.stopped
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = :channel and c.address_key = :address_key
   and c.address = :address and v.thread = :thread
   and (cast(:name as text) is null or c.name = :name)
   and (cast(:language as text) is null or c.language = :language)
   and (cast(:time_zone as text) is null or c.time_zone = :time_zone)
   for no key update of c
""")

FIND = text("""
select v.tenant, v.id, c.channel, c.address, c.address_key, nullif(v.thread, '') as thread, c.name, c.language,
       c.time_zone, v.last_seq, v.answered_seq, v.last_inbound_at, c.stopped, v.with_person_since
  from conversations v
  join contacts c on c.bucket = v.bucket and c.tenant = v.tenant and c.id = v.contact
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :id
""")

LOCK = text("""
select from conversations where bucket = :bucket and tenant = :tenant and id = :id for no key update
""")

ANSWERED = text("""
update conversations set answered_seq = :seq
 where bucket = :bucket and tenant = :tenant and id = :id and answered_seq < :seq
""")


async def open_with(
    connection: AsyncConnection, contact: Contact, thread: str | None, *, now: datetime | None = None
) -> Opened:
    """Return the conversation with whoever writes (in a thread), known or new, and keep what is newly told of them.

    The contact is locked until the transaction ends.
    """
    told = {
        "now": now,
        "bucket": bucket_of(contact.tenant),
        "tenant": contact.tenant,
        "channel": contact.channel,
        "address": contact.address,
        "address_key": contact.address_key,
        "name": contact.name,
        "language": contact.language,
        "time_zone": contact.time_zone,
        "thread": thread or "",
    }
    row = (await connection.execute(KNOWN, told)).first()
    if row is None:
        await open_conversation(connection, contact.tenant, await meet(connection, contact), thread)
        row = (await connection.execute(KNOWN, told)).one()
    return Opened(row.id, row.silence, row.stopped)


async def open_conversation(connection: AsyncConnection, tenant: str, contact: int, thread: str | None) -> int:
    """Return the id of the conversation with a contact (in a thread), known or new."""
    key = {"bucket": bucket_of(tenant), "tenant": tenant, "contact": contact, "thread": thread or ""}
    known = select(conversations.c.id).where(*(conversations.c[name] == value for name, value in key.items()))
    found = await connection.scalar(known)
    if found is None:
        new = insert(conversations).values(**key).on_conflict_do_nothing().returning(conversations.c.id)
        found = await connection.scalar(new)
    if found is None:  # another process opened it in between
        found = (await connection.execute(known)).scalar_one()
    return int(found)


async def find(connection: AsyncConnection, tenant: str, conversation: int) -> Conversation | None:
    """Return a conversation of this tenant, or None."""
    rows = await connection.execute(FIND, {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation})
    row = rows.first()
    return Conversation(*tuple(row)) if row else None


async def lock(connection: AsyncConnection, tenant: str, conversation: int) -> None:
    """Keep whoever would change a conversation waiting until the transaction ends. Lock none of its tasks after that."""
    await connection.execute(LOCK, {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation})


async def mark_seen(connection: AsyncConnection, tenant: str, conversation: int, seq: int) -> None:
    """Remember up to which message the customer has seen; never goes back, never past the last."""
    await connection.execute(
        update(conversations)
        .where(
            conversations.c.bucket == bucket_of(tenant),
            conversations.c.tenant == tenant,
            conversations.c.id == conversation,
            conversations.c.seen_seq < seq,
        )
        .values(seen_seq=func.least(seq, conversations.c.last_seq))
    )


async def mark_answered(connection: AsyncConnection, tenant: str, conversation: int, seq: int) -> None:
    """Remember up to which message the customer has been answered; never goes back."""
    await connection.execute(ANSWERED, {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation, "seq": seq})


OF_ADDRESS = """
select v.id
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = :channel and c.address_key = :address_key
 order by v.id
 limit 1
"""


async def of_address(connection: AsyncConnection, tenant: str, channel: str, address_key: str) -> int | None:
    """Return the first conversation with the contact of an address, in whatever thread; None with whom nobody has spoken."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "channel": channel, "address_key": address_key}
    found: int | None = await connection.scalar(sql(OF_ADDRESS), given)
    return found


OF_THE_SAME = """
select other.id
  from conversations v
  join conversations other on other.bucket = v.bucket and other.tenant = v.tenant and other.contact = v.contact
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :id
 order by other.id
"""


LATEST = """
select v.id
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = :channel and c.address_key = any(cast(:keys as text[]))
 order by v.last_inbound_at desc nulls last, v.id desc
 limit 1
"""


async def latest(connection: AsyncConnection, tenant: str, channel: str, keys: Sequence[str]) -> int | None:
    """Return the conversation in which somebody wrote last, under one of these keys of an address; None for a stranger."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "channel": channel, "keys": list(keys)}
    found: int | None = await connection.scalar(sql(LATEST), given)
    return found


LAST_OF = """
select v.id
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
  join unnest(cast(:channels as text[]), cast(:keys as text[])) as g (channel, address_key)
    on g.channel = c.channel and g.address_key = c.address_key
 where c.bucket = :bucket and c.tenant = :tenant
 order by v.last_inbound_at desc nulls last, v.id desc
 limit 1
"""


async def last_of(connection: AsyncConnection, tenant: str, addresses: Sequence[tuple[str, str]]) -> int | None:
    """Return the conversation in which somebody wrote last, who may be known on several channels; None for a stranger.

    `addresses` are channels and address keys.
    """
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "channels": [channel for channel, _ in addresses],
        "keys": [key for _, key in addresses],
    }
    found: int | None = await connection.scalar(sql(LAST_OF), given)
    return found


def unopened(tenant: str, channel: str, name: str | None, language: str | None, time_zone: str | None) -> Conversation:
    """Return the conversation that there would be with somebody who has not written yet."""
    return Conversation(tenant, 0, channel, "", "", None, name, language, time_zone, 0, 0, None, None, None)


SPOKEN_WITH = """
select distinct c.channel, c.address_key
  from contacts c
  join unnest(cast(:channels as text[]), cast(:keys as text[])) as g (channel, address_key)
    on g.channel = c.channel and g.address_key = c.address_key
 where c.bucket = :bucket and c.tenant = :tenant and c.address_key = any(cast(:keys as text[]))
   and c.channel = any(cast(:channels as text[]))
   and exists (select from conversations v where v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id)
"""


async def known(connection: AsyncConnection, tenant: str, addresses: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these channels and address keys with which there is a conversation."""
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "channels": [channel for channel, _ in addresses],
        "keys": [key for _, key in addresses],
    }
    return (
        {(row.channel, row.address_key) for row in await connection.execute(sql(SPOKEN_WITH), given)}
        if addresses
        else set()
    )


async def of_the_same(connection: AsyncConnection, tenant: str, conversation: int) -> Sequence[int]:
    """Return every conversation with the contact of this one, itself among them."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation}
    return list(await connection.scalars(sql(OF_THE_SAME), given))


MOVING = """
select v.id, v.thread, there.id as contact
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
  left join contacts there on there.bucket = c.bucket and there.tenant = c.tenant and there.channel = c.channel
                          and there.address_key = :address and there.id <> c.id
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = :channel and c.address_key = :old_key
 order by v.id
   for no key update of c
"""


async def moving(
    connection: AsyncConnection, tenant: str, channel: str, old_key: str, address: str
) -> Sequence[tuple[int, int]]:
    """Return the conversations of a contact that moves, each with the one that it goes on in.

    That is itself, unless somebody has already written from the new address: then it is theirs in the same thread, opened
    where there is none. The contact is locked until the transaction ends, before any of its tasks.
    """
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "channel": channel, "old_key": old_key, "address": address}
    return [
        (
            row.id,
            row.id
            if row.contact is None
            else await open_conversation(connection, tenant, row.contact, row.thread or None),
        )
        for row in (await connection.execute(sql(MOVING), given)).all()
    ]


HAND_OVER = """
update conversations set with_person_since = coalesce(cast(:now as timestamptz), now()), with_person_why = :why
 where bucket = :bucket and tenant = :tenant and id = :id and with_person_since is null
returning id
"""
TAKE_BACK = """
update conversations set with_person_since = null, with_person_why = null
 where bucket = :bucket and tenant = :tenant and id = :id and with_person_since is not null
returning id
"""


async def hand_over(
    connection: AsyncConnection, tenant: str, conversation: int, why: str | None, *, now: datetime | None = None
) -> bool:
    """Let a person answer from now on; False when one does already, and what is known of that stays."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation, "why": why, "now": now}
    return (await connection.execute(sql(HAND_OVER), given)).first() is not None


async def take_back(connection: AsyncConnection, tenant: str, conversation: int) -> bool:
    """Let the agent answer again; False when it does already."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation}
    return (await connection.execute(sql(TAKE_BACK), given)).first() is not None


@dataclass(frozen=True, slots=True)
class Listed:
    """A conversation as an operator lists it."""

    id: int
    tenant: str
    channel: str
    address: str
    last_inbound_at: datetime | None
    unanswered: int
    """Messages of the customer's that nobody has answered."""
    with_person_since: datetime | None
    with_person_why: str | None


LIST = """
select v.id, v.tenant, c.channel, c.address, v.last_inbound_at,
       (select count(*) from messages m
         where m.bucket = v.bucket and m.tenant = v.tenant and m.conversation = v.id and m.seq > v.answered_seq
           and m.role = 'customer') as unanswered,
       v.with_person_since, v.with_person_why
  from conversations v
  join contacts c on c.bucket = v.bucket and c.tenant = v.tenant and c.id = v.contact
 where v.bucket = :bucket and v.tenant = :tenant {chosen}
 order by {order}
 limit :limit
"""
LIST_ALL = LIST.format(chosen="", order="v.last_inbound_at desc nulls last, v.id desc")
LIST_WAITING = LIST.format(chosen="and v.with_person_since is not null", order="v.with_person_since, v.id")


async def listed(
    connection: AsyncConnection, tenant: str, *, is_waiting: bool = False, limit: int = 50
) -> Sequence[Listed]:
    """Return a tenant's conversations, the last written in first; or those with a person, the longest waiting first."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "limit": limit}
    rows = await connection.execute(sql(LIST_WAITING if is_waiting else LIST_ALL), given)
    return [Listed(*tuple(row)) for row in rows]


# By each one's part of the key, of which the number alone is not the beginning.
TENANT_OF = (
    "select tenant from conversations where (bucket, tenant) in (select bucket, tenant from tenants) and id = :id"
)
PERSON_WHY = "select with_person_why from conversations where bucket = :bucket and tenant = :tenant and id = :id"
COUNT_WITH_PERSON = """
select t.tenant, count(v.id) as waiting
  from tenants t
  left join conversations v on v.bucket = t.bucket and v.tenant = t.tenant and v.with_person_since is not null
 group by t.tenant
 order by t.tenant
"""


async def tenant_of(connection: AsyncConnection, conversation: int) -> str | None:
    """Return whose conversation has this number; None when nobody's has."""
    found: str | None = await connection.scalar(sql(TENANT_OF), {"id": conversation})
    return found


async def why_with_person(connection: AsyncConnection, tenant: str, conversation: int) -> str | None:
    """Return why a person has taken a conversation over, where one has and it was said."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": conversation}
    found: str | None = await connection.scalar(sql(PERSON_WHY), given)
    return found


async def count_with_person(connection: AsyncConnection) -> Sequence[tuple[str, int]]:
    """Return how many conversations of each tenant are with a person."""
    return [(row.tenant, row.waiting) for row in await connection.execute(sql(COUNT_WITH_PERSON))]
