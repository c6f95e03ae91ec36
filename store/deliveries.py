"""Deliveries: one attempt to put one part of a message on a network channel, with its outcome.

The row is committed before the provider is called. `outcome` is null while the call is under way; a process that dies
then leaves a row whose outcome nobody wrote, and that is how recovery knows that something may have gone out.

The web channel has none: its bubble is the message's row.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

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
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

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
    # The provider's own number for why it failed.
    Column("code", Integer),
    # The approved text it was sent as, where free text is not carried.
    Column("template", Text),
    # How often the provider was asked for it, and how often it did not have it.
    Column("asked", Integer, nullable=False, server_default=text("0")),
    Column("not_found", Integer, nullable=False, server_default=text("0")),
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

NOTICE = -1
"""The part by which a customer is told that a message waits for them; the message's own parts are counted from 0."""

ERASED = "erased"
"""The provider's id of what was sent to a contact who has been erased: nothing that is said of it later is kept."""

RANKS = {"sending": 1, "sent": 2, "failed": 3, "undelivered": 3, "canceled": 3, "delivered": 4, "read": 5}
"""How far each status of a provider is along a message's way; what is not here is its beginning. That it arrived is proof, and
prevails over every word that it did not, earlier or later."""
FAILED, ARRIVED = 3, 4


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt at one part."""

    id: int
    part: int
    attempt: int
    outcome: str | None
    reason: str | None
    provider_id: str | None
    started_at: datetime
    asked: int
    not_found: int
    code: int | None
    template: str | None
    provider_status: str | None

    @property
    def has_left(self) -> bool:
        """Whether the provider has reported that it sent it on, or more."""
        return RANKS.get(self.provider_status or "", 0) >= RANKS["sent"]

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows what became of it; or not yet, while the provider is called."""
        return self.outcome in (None, "unknown")


async def start(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    task: int,
    part: int,
    channel: str,
    *,
    template: str | None = None,
    now: datetime | None = None,
) -> int:
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
        template=template,
        started_at=func.coalesce(now, func.now()),
    )
    return int((await connection.execute(row.returning(deliveries.c.id))).scalar_one())


async def end(
    connection: AsyncConnection,
    tenant: str,
    delivery: int,
    outcome: str,
    reason: str | None,
    provider_id: str | None,
    code: int | None = None,
) -> bool:
    """Record what became of an attempt; False when that was known already, which is not overwritten.

    Only that it was accepted after all prevails over `not_sent`, which may have been a conclusion.
    """
    open_to = deliveries.c.outcome.is_(None) | (deliveries.c.outcome == "unknown")
    if outcome == "accepted":
        open_to |= deliveries.c.outcome == "not_sent"
    ended = await connection.execute(
        update(deliveries)
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.id == delivery,
            open_to,
        )
        .values(outcome=outcome, reason=reason, provider_id=provider_id, code=code, ended_at=func.now())
    )
    return ended.rowcount > 0


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
            deliveries.c.started_at,
            deliveries.c.asked,
            deliveries.c.not_found,
            deliveries.c.code,
            deliveries.c.template,
            deliveries.c.provider_status,
        )
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.task == task,
        )
        .order_by(deliveries.c.part, deliveries.c.id)
    )
    return [Delivery(*tuple(row)) for row in rows]


async def task_of(connection: AsyncConnection, tenant: str, delivery: int) -> tuple[int, int] | None:
    """Return the task that a delivery is of, and its conversation; None when there is no such delivery."""
    found = await connection.execute(
        select(deliveries.c.task, deliveries.c.conversation).where(
            deliveries.c.bucket == bucket_of(tenant), deliveries.c.tenant == tenant, deliveries.c.id == delivery
        )
    )
    row = found.first()
    return None if row is None else (row.task, row.conversation)


async def known_ids(connection: AsyncConnection, tenant: str, provider_ids: Collection[str]) -> set[str]:
    """Return those of a provider's ids that belong to some delivery already."""
    rows = await connection.execute(
        select(deliveries.c.provider_id).where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.provider_id.in_(provider_ids),
        )
    )
    return set(rows.scalars())


async def note_asked(connection: AsyncConnection, tenant: str, delivery: int, *, is_missing: bool) -> None:
    """Count that the provider was asked for a delivery, and did not have it or could not tell."""
    await connection.execute(
        update(deliveries)
        .where(
            deliveries.c.bucket == bucket_of(tenant),
            deliveries.c.tenant == tenant,
            deliveries.c.id == delivery,
        )
        .values(asked=deliveries.c.asked + 1, not_found=deliveries.c.not_found + int(is_missing))
    )


@dataclass(frozen=True, slots=True)
class Noted:
    """What a status did to a delivery."""

    task: int
    is_news: bool
    """Whether its outcome is known only now."""
    is_turned: bool = False
    """Whether it was taken for accepted until now, and has failed after all."""
    has_left: bool = False
    """Whether it is known only now that the provider sent it on."""
    contradicts: bool = False
    """Whether the provider has said both that it arrived and that it did not."""


NOTE_STATUS = """
with before as (
    select id, outcome, provider_status from deliveries
     where bucket = :bucket and tenant = :tenant and id = :id and provider_id is distinct from :erased
       for update),
judged as (
    select id,
           coalesce(outcome, 'unknown') in ('unknown', 'not_sent') or outcome = 'rejected' and :rank >= :arrived as is_news,
           outcome = 'accepted' and :rank = cast(:failed as integer) and coalesce(known_rank, 0) < :arrived as is_turned,
           coalesce(known_rank, 0) <= :rank as is_further,
           coalesce(known_rank, 0) < :sent and cast(:rank as integer) >= :sent and :rank <> :failed as has_left,
           known_rank = :failed and :rank >= :arrived or known_rank >= cast(:arrived as integer) and :rank = :failed as contradicts
      from before, cast(cast(:ranks as jsonb) ->> provider_status as integer) as known_rank)
update deliveries d
   set provider_status = case when is_further then :status else d.provider_status end,
       provider_id = coalesce(d.provider_id, :provider_id),
       reason = coalesce(cast(:reason as text), case when (is_news and d.outcome is distinct from 'rejected') or is_turned
                                                      then cast(:words as text) else d.reason end),
       code = coalesce(cast(:code as integer), d.code),
       outcome = case when is_news or is_turned
                      then case when :rank = :failed then 'rejected' else 'accepted' end else d.outcome end,
       ended_at = case when is_turned then now() else coalesce(d.ended_at, now()) end
  from judged
 where d.bucket = :bucket and d.tenant = :tenant and d.id = judged.id
returning d.task, is_news, coalesce(is_turned, false), has_left, coalesce(contradicts, false)
"""


async def note_status(
    connection: AsyncConnection,
    tenant: str,
    delivery: int,
    provider_id: str,
    status: str,
    reason: str | None,
    code: int | None = None,
) -> Noted | None:
    """Keep what the provider said later of a delivery; a reason once known is kept. None when there is no such delivery.

    Statuses come in any order and never go back. One proves that the message exists, so an attempt whose outcome nobody
    knew, or that was taken for not sent, was accepted. A failure makes it rejected, whatever it was taken for, unless it is
    known to have arrived; that makes it accepted, whatever was said of it.
    """
    rank = RANKS.get(status, 0)
    changed = await connection.execute(
        sql(NOTE_STATUS),
        {
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "id": delivery,
            "rank": rank,
            "failed": FAILED,
            "sent": RANKS["sent"],
            "arrived": ARRIVED,
            "ranks": json.dumps(RANKS),
            "status": status,
            "provider_id": provider_id,
            "reason": reason,
            "words": f"the provider reports it as {status}" if rank == FAILED else None,
            "code": code,
            "erased": ERASED,
        },
    )
    row = changed.first()
    return None if row is None else Noted(*row)
