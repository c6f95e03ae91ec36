"""The ordered log of a conversation: what was said, by whom, with a sequence number that has no holes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from sqlalchemy.ext.asyncio import AsyncConnection

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
    # When what it says was asked for, where that was long before: kept here, since tasks are deleted.
    Column("asked_at", DateTime(timezone=True)),
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
    asked_at: datetime | None = None
    """When a follow-up was asked for; not known of each."""
    inbound_key: str | None = None
    """Under which a customer's message was taken in; only where a log is read."""


OF_INBOUND = text("""
select conversation, seq from messages where bucket = :bucket and tenant = :tenant and inbound_key = :inbound_key
""")

# The conversation's row stays locked until the transaction ends, so numbers have no holes and no two meet.
ADD = text("""
with numbered as (
    update conversations
       set last_seq = last_seq + 1,
           last_inbound_at = case when cast(:role as text) = 'customer'
                                  then coalesce(cast(:now as timestamptz), now()) else last_inbound_at end
     where bucket = :bucket and tenant = :tenant and id = :conversation
 returning bucket, tenant, id, last_seq)
insert into messages (bucket, tenant, conversation, seq, role, kind, text, at, inbound_key, task, asked_at)
select bucket, tenant, id, last_seq, cast(:role as text), cast(:kind as text), cast(:words as text),
       coalesce(cast(:now as timestamptz), now()), cast(:inbound_key as text), cast(:task as bigint),
       cast(:asked_at as timestamptz)
  from numbered
returning seq
""")

TO_ANSWER = text("""
with of_it as not materialized (
    select seq, role, kind, text, at from messages
     where bucket = :bucket and tenant = :tenant and conversation = :conversation),
unanswered as (
    select * from of_it where seq > :answered_seq and role = 'customer' order by seq desc limit :most),
other as (
    select * from of_it where seq not in (select seq from unanswered) order by seq desc limit :history)
select true as is_unanswered, * from unanswered union all select false, * from other order by seq
""")


async def seq_of_inbound(connection: AsyncConnection, tenant: str, inbound_key: str) -> tuple[int, int] | None:
    """Return (conversation, seq) of an inbound message already recorded under this key, or None."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "inbound_key": inbound_key}
    row = (await connection.execute(OF_INBOUND, given)).first()
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
    asked_at: datetime | None = None,
) -> int:
    """Add a message at the end of the conversation and return its sequence number.

    Raises sqlalchemy.exc.IntegrityError when `inbound_key` was recorded before.
    """
    added = await connection.execute(
        ADD,
        {
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "conversation": conversation,
            "role": role,
            "kind": kind,
            "words": words,
            "now": now,
            "inbound_key": inbound_key,
            "task": task,
            "asked_at": asked_at,
        },
    )
    return int(added.scalar_one())


async def to_answer(
    connection: AsyncConnection, tenant: str, conversation: int, answered_seq: int, *, most: int, history: int
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the last `history` messages beside the unanswered, and the unanswered, both in order.

    Those are what the customer has said after `answered_seq`: the last `most` of it.
    """
    rows = await connection.execute(
        TO_ANSWER,
        {
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "conversation": conversation,
            "answered_seq": answered_seq,
            "most": most,
            "history": history,
        },
    )
    beside: list[Message] = []
    unanswered: list[Message] = []
    for is_unanswered, *message in rows:
        (unanswered if is_unanswered else beside).append(Message(*message))
    return beside, unanswered


# Looks at the last of it alone, since there is no index by time: whoever writes much is answered little.
FULL_UNTIL = text("""
select max(oldest.at) + cast(:span as interval) - coalesce(cast(:now as timestamptz), now()) as wait
  from (select at
          from (select role, at from messages
                 where bucket = :bucket and tenant = :tenant and conversation = :conversation
                 order by seq desc
                 limit 4 * :most) as last
         where role = 'customer' and at > coalesce(cast(:now as timestamptz), now()) - cast(:span as interval)
         order by at desc
        offset :most - 1
         limit 1) as oldest
""")


async def full_for(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    *,
    most: int,
    span: timedelta,
    now: datetime | None = None,
) -> timedelta | None:
    """Return after how long the customer's next message is one of `most` within `span`; None when it is now."""
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "conversation": conversation,
        "most": most,
        "span": span,
        "now": now,
    }
    wait: timedelta | None = await connection.scalar(FULL_UNTIL, given)
    return wait


async def replace(
    connection: AsyncConnection, tenant: str, conversation: int, seq: int, before: str, words: str
) -> None:
    """Put other words into the place of what a message says, if it still says what it did before."""
    await connection.execute(
        update(messages)
        .where(*_of(tenant, conversation), messages.c.seq == seq, messages.c.text == before)
        .values(text=words)
    )


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
        select(*(messages.c[name] for name in ("seq", "role", "kind", "text", "at", "asked_at", "inbound_key")))
        .where(*chosen)
        .order_by(messages.c.seq if is_forward else messages.c.seq.desc())
        .limit(limit)
    )
    return [Message(*tuple(row)) for row in rows]


async def notices_since(connection: AsyncConnection, tenant: str, conversation: int, since: datetime) -> int:
    """Return how many notices have been said in a conversation since an instant."""
    chosen = [*_of(tenant, conversation), messages.c.kind == "notice", messages.c.at >= since]
    return int(await connection.scalar(select(func.count()).select_from(messages).where(*chosen)) or 0)
