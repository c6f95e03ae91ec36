"""Booking: one insert."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.errors import KeyReused
from scheduler.task import Kind
from store.database import bucket_of


@dataclass(frozen=True, slots=True)
class Booking:
    """What to do, when, and for whom."""

    tenant: str
    kind: Kind
    due: datetime | timedelta
    """An instant, or a time from now: then the database adds it to its own now."""
    conversation: int | None = None
    channel: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    reply_to: str | None = None
    parent: int | None = None
    expires_at: datetime | None = None
    key: str | None = None
    subject: str | None = None
    idempotency_key: str | None = None
    lane: bool = False


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking that is on the table; `replay` says that it was there before."""

    id: int
    due_at: datetime
    replay: bool
    state: str = "scheduled"
    """A replay may find it done or cancelled by now."""


BOOK = f"""
insert into tasks (bucket, tenant, kind, conversation, channel, reply_to, parent, payload, due_at, booked_for, expires_at, lane,
                   key, subject, idempotency_key, payload_hash, created_at)
select :bucket, :tenant, :kind, :conversation, :channel, :reply_to, :parent, cast(:payload as jsonb), due, due, :expires_at, :lane,
       :key, :subject, :idempotency_key, :payload_hash, {NOW}
  from (select coalesce(cast(:at as timestamptz), {NOW} + cast(:delay as interval)) as due) as booked
    on conflict (bucket, tenant, idempotency_key) where idempotency_key is not null do nothing
returning id, due_at
"""

BOOKED_BEFORE = """
select id, booked_for, payload_hash, state from tasks
 where bucket = :bucket and tenant = :tenant and idempotency_key = :idempotency_key
"""


def payload_hash(booking: Booking) -> bytes:
    """Return what two bookings under one idempotency key must share: kind, conversation and payload."""
    same = [booking.kind, booking.conversation, booking.payload]
    return hashlib.sha256(json.dumps(same, sort_keys=True, separators=(",", ":")).encode()).digest()


async def book(connection: AsyncConnection, clock: Clock, booking: Booking) -> Booked:
    """Insert a task. The same idempotency key and payload again returns the first booking.

    Raises KeyReused when the key is known with another payload. Hint `due` after the commit.
    """
    key = {"bucket": bucket_of(booking.tenant), "tenant": booking.tenant, "idempotency_key": booking.idempotency_key}
    hashed = payload_hash(booking) if booking.idempotency_key is not None else None
    is_instant = isinstance(booking.due, datetime)
    rows = await connection.execute(
        text(BOOK),
        {
            **key,
            "kind": booking.kind,
            "conversation": booking.conversation,
            "channel": booking.channel,
            "reply_to": booking.reply_to,
            "parent": booking.parent,
            "payload": json.dumps(booking.payload),
            "at": booking.due if is_instant else None,
            "delay": None if is_instant else booking.due,
            "expires_at": booking.expires_at,
            "lane": booking.lane,
            "key": booking.key,
            "subject": booking.subject,
            "payload_hash": hashed,
            "now": clock.override(),
        },
    )
    row = rows.first()
    if row is not None:
        return Booked(row.id, row.due_at, replay=False)
    before = (await connection.execute(text(BOOKED_BEFORE), key)).one()
    if bytes(before.payload_hash) != hashed:
        raise KeyReused(
            f"the idempotency key {booking.idempotency_key!r} was used with another payload (task {before.id}):"
            " use a new key for a new booking"
        )
    return Booked(before.id, before.booked_for, replay=True, state=before.state)
