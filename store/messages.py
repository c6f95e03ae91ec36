"""The ordered log of a conversation: what was said, by whom, with a sequence number that has no holes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.conversations import conversations
from store.database import bucket_of, metadata

Role = Literal["customer", "assistant"]
Kind = Literal["message", "reply", "followup", "notice"]

messages = Table(
    "messages",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("conversation", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("role", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    # The provider's own id of what came in, with its channel: a repeated webhook stops here.
    Column("inbound_key", Text),
    # The task that said it.
    Column("task", BigInteger),
    CheckConstraint("role in ('customer', 'assistant')", name="role"),
    CheckConstraint("(role = 'customer') = (kind = 'message')", name="kind_of_role"),
    CheckConstraint("kind in ('message', 'reply', 'followup', 'notice')", name="kind"),
    CheckConstraint("seq > 0", name="seq"),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    Index(
        "messages_of_inbound",
        "bucket",
        "tenant",
        "inbound_key",
        unique=True,
        postgresql_where=text("inbound_key is not null"),
    ),
)


@dataclass(frozen=True, slots=True)
class Message:
    """One line of a conversation."""

    seq: int
    role: Role
    kind: Kind
    text: str
    at: datetime


async def seq_of_inbound(connection: AsyncConnection, tenant: str, inbound_key: str) -> tuple[int, int] | None:
    """Return (conversation, seq) of an inbound message already recorded under this key, or None."""
    rows = await connection.execute(
        select(messages.c.conversation, messages.c.seq).where(
            messages.c.bucket == bucket_of(tenant),
            messages.c.tenant == tenant,
            messages.c.inbound_key == inbound_key,
        )
    )
    row = rows.first()
    return (row.conversation, row.seq) if row else None


async def add(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    role: Role,
    kind: Kind,
    words: str,
    *,
    now: datetime | None = None,
    inbound_key: str | None = None,
    task: int | None = None,
) -> int:
    """Add a message at the end of the conversation and return its sequence number.

    The conversation's row stays locked until the transaction ends, so numbers have no holes and no two meet.
    Raises sqlalchemy.exc.IntegrityError when `inbound_key` was recorded before.
    """
    bucket = bucket_of(tenant)
    at = func.coalesce(now, func.now())
    last = {"last_seq": conversations.c.last_seq + 1}
    numbered = (
        update(conversations)
        .where(
            conversations.c.bucket == bucket,
            conversations.c.tenant == tenant,
            conversations.c.id == conversation,
        )
        .values(**last, **({"last_inbound_at": at} if role == "customer" else {}))
        .returning(conversations.c.last_seq)
    )
    seq = int((await connection.execute(numbered)).scalar_one())
    await connection.execute(
        insert(messages).values(
            bucket=bucket,
            tenant=tenant,
            conversation=conversation,
            seq=seq,
            role=role,
            kind=kind,
            text=words,
            at=at,
            inbound_key=inbound_key,
            task=task,
        )
    )
    return seq


async def unanswered(
    connection: AsyncConnection, tenant: str, conversation: int, answered_seq: int, limit: int
) -> Sequence[Message]:
    """Return what the customer has said after `answered_seq`, in order: the last `limit` of it."""
    chosen = [*_of(tenant, conversation), messages.c.seq > answered_seq, messages.c.role == "customer"]
    return (await _read(connection, chosen, limit))[::-1]


async def read(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
) -> Sequence[Message]:
    """Return messages in order: the first `limit` after a sequence number, or the last `limit` before one."""
    if before is None:
        return await _read(connection, [*_of(tenant, conversation), messages.c.seq > after], limit, is_forward=True)
    span = [*_of(tenant, conversation), messages.c.seq > after, messages.c.seq < before]
    return (await _read(connection, span, limit))[::-1]


def _of(tenant: str, conversation: int) -> list[ColumnElement[bool]]:
    return [
        messages.c.bucket == bucket_of(tenant),
        messages.c.tenant == tenant,
        messages.c.conversation == conversation,
    ]


async def _read(
    connection: AsyncConnection, chosen: Sequence[ColumnElement[bool]], limit: int, *, is_forward: bool = False
) -> list[Message]:
    rows = await connection.execute(
        select(messages.c.seq, messages.c.role, messages.c.kind, messages.c.text, messages.c.at)
        .where(*chosen)
        .order_by(messages.c.seq if is_forward else messages.c.seq.desc())
        .limit(limit)
    )
    return [Message(row.seq, row.role, row.kind, row.text, row.at) for row in rows]
