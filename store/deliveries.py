"""Deliveries: one attempt to put one part of a message on a network channel, with its outcome.

The row is committed before the provider is called. `outcome` is null while the call is under way; a process that dies
then leaves a row whose outcome nobody wrote, and that is how recovery knows that something may have gone out.

The web channel has none: its bubble is the message's row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    case,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata

deliveries = Table(
    "deliveries",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("conversation", BigInteger, nullable=False),
    Column("task", BigInteger, nullable=False),
    Column("part", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("channel", Text, nullable=False),
    Column("outcome", Text),
    Column("reason", Text),
    Column("provider_id", Text),
    Column("provider_status", Text),
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("outcome in ('accepted', 'rejected', 'not_sent', 'unknown')", name="outcome"),
    CheckConstraint("outcome <> 'accepted' or provider_id is not null", name="accepted_has_an_id"),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    Index("deliveries_of_task", "bucket", "tenant", "task", "part"),
    Index(
        "deliveries_of_provider_id",
        "bucket",
        "tenant",
        "provider_id",
        postgresql_where=text("provider_id is not null"),
    ),
)

RANKS = {"sending": 1, "sent": 2, "delivered": 3, "read": 4, "failed": 5, "undelivered": 5, "canceled": 5}
"""How far each status of a provider is along a message's way; what is not here is its beginning."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt at one part."""

    id: int
    part: int
    attempt: int
    outcome: str | None
    reason: str | None
    provider_id: str | None


async def start(connection: AsyncConnection, tenant: str, conversation: int, task: int, part: int, channel: str) -> int:
    """Record that one part is about to be sent and return the delivery's id."""
    earlier = (
        select(func.count())
        .select_from(deliveries)
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.task == task,
            deliveries.c.part == part,
        )
        .scalar_subquery()
    )
    row = insert(deliveries).values(
        bucket=bucket_of(tenant),
        tenant=tenant,
        conversation=conversation,
        task=task,
        part=part,
        attempt=earlier + 1,
        channel=channel,
    )
    return int((await connection.execute(row.returning(deliveries.c.id))).scalar_one())


async def end(
    connection: AsyncConnection, tenant: str, delivery: int, outcome: str, reason: str | None, provider_id: str | None
) -> None:
    """Record what became of an attempt. An outcome once known is not overwritten."""
    await connection.execute(
        update(deliveries)
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.id == delivery,
            deliveries.c.outcome.is_(None) | (deliveries.c.outcome == "unknown"),
        )
        .values(outcome=outcome, reason=reason, provider_id=provider_id, ended_at=func.now())
    )


async def of_task(connection: AsyncConnection, tenant: str, task: int) -> Sequence[Delivery]:
    """Return every attempt of a task, in order."""
    rows = await connection.execute(
        select(
            deliveries.c.id,
            deliveries.c.part,
            deliveries.c.attempt,
            deliveries.c.outcome,
            deliveries.c.reason,
            deliveries.c.provider_id,
        )
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.task == task,
        )
        .order_by(deliveries.c.part, deliveries.c.id)
    )
    return [Delivery(row.id, row.part, row.attempt, row.outcome, row.reason, row.provider_id) for row in rows]


async def note_status(
    connection: AsyncConnection, tenant: str, delivery: int, provider_id: str, status: str, reason: str | None
) -> bool:
    """Keep what the provider said later of a delivery; a reason once known is kept. False when there is none such.

    Callbacks come in any order, and a status never goes back: nothing follows a failure. A callback proves that the message exists, so an attempt whose outcome nobody knew becomes accepted.
    """
    known = case(RANKS, value=deliveries.c.provider_status, else_=0)
    changed = await connection.execute(
        update(deliveries)
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.id == delivery,
        )
        .values(
            provider_status=case((known <= RANKS.get(status, 0), status), else_=deliveries.c.provider_status),
            provider_id=func.coalesce(deliveries.c.provider_id, provider_id),
            reason=func.coalesce(reason, deliveries.c.reason),
            outcome=text(
                "case when deliveries.outcome is null or deliveries.outcome = 'unknown'"
                " then 'accepted' else deliveries.outcome end"
            ),
        )
        .returning(deliveries.c.id)
    )
    return changed.first() is not None
