"""Conversations: tenant + channel + address (+ thread), and the lane.

The lane is two columns of the conversation's own row, `lane_task` and `lane_fence`. One row holds one owner, so the
database itself guarantees that one task at a time speaks in a conversation. `scheduler/claim.py` takes it,
`scheduler/settle.py` and `scheduler/recovery.py` free it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
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

from store.contacts import contacts
from store.database import bucket_of, metadata

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
    UniqueConstraint("bucket", "tenant", "contact", "thread", name="conversations_of_contact"),
    ForeignKeyConstraint(
        ["bucket", "tenant", "contact"], ["contacts.bucket", "contacts.tenant", "contacts.id"], ondelete="CASCADE"
    ),
    CheckConstraint("(lane_task is null) = (lane_fence is null)", name="lane_is_whole"),
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
    rows = await connection.execute(
        select(
            conversations.c.id,
            conversations.c.thread,
            conversations.c.last_seq,
            conversations.c.answered_seq,
            conversations.c.last_inbound_at,
            contacts.c.channel,
            contacts.c.address,
            contacts.c.address_key,
            contacts.c.name,
            contacts.c.language,
            contacts.c.time_zone,
        )
        .join_from(
            conversations,
            contacts,
            (contacts.c.bucket == conversations.c.bucket)
            & (contacts.c.tenant == conversations.c.tenant)
            & (contacts.c.id == conversations.c.contact),
        )
        .where(
            conversations.c.bucket == bucket_of(tenant),
            conversations.c.tenant == tenant,
            conversations.c.id == conversation,
        )
    )
    row = rows.first()
    if row is None:
        return None
    return Conversation(
        tenant=tenant,
        id=row.id,
        channel=row.channel,
        address=row.address,
        address_key=row.address_key,
        thread=row.thread or None,
        name=row.name,
        language=row.language,
        time_zone=row.time_zone,
        last_seq=row.last_seq,
        answered_seq=row.answered_seq,
        last_inbound_at=row.last_inbound_at,
    )


async def has_written_within(
    connection: AsyncConnection, tenant: str, conversation: int, span: timedelta, now: datetime | None
) -> bool:
    """Tell whether the customer wrote here within such a span before now."""
    found = await connection.scalar(
        select(conversations.c.id).where(
            conversations.c.bucket == bucket_of(tenant),
            conversations.c.tenant == tenant,
            conversations.c.id == conversation,
            conversations.c.last_inbound_at > func.coalesce(now, func.now()) - span,
        )
    )
    return found is not None


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
    await connection.execute(
        update(conversations)
        .where(
            conversations.c.bucket == bucket_of(tenant),
            conversations.c.tenant == tenant,
            conversations.c.id == conversation,
            conversations.c.answered_seq < seq,
        )
        .values(answered_seq=seq)
    )
