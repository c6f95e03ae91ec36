"""Booking: one insert, of one task or of many."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import NOW, Clock
from scheduler.errors import KeyReused
from scheduler.events import note
from scheduler.task import Kind
from store.database import bucket_of, sql

LONGEST_LABEL = 500
"""Characters of a key, a subject or an idempotency key: four bytes each, an index entry holds 2,700."""


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
    needs: str | None = None
    """What a worker must have to perform it."""
    asked_at: datetime | None = None
    """When it was asked for, where that was before: the row's `created_at`. None is now."""

    def __post_init__(self) -> None:
        """Raise ValueError for a label that no index could hold."""
        for name in ("key", "subject", "idempotency_key"):
            if len(getattr(self, name) or "") > LONGEST_LABEL:
                raise ValueError(f"{name} is longer than {LONGEST_LABEL} characters: give it a shorter name")


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking that is on the table; `replay` says that it was there before."""

    id: int
    due_at: datetime
    replay: bool
    state: str = "scheduled"
    """A replay may find it done or cancelled by now."""


# One row or thousands, one statement. The ids are drawn first, so that each booking knows its row; the rows go in by their
# keys, so that two statements with the same keys do not wait for each other.
BOOK = f"""
with given as materialized (
    select nextval('tasks_id_seq') as id, g.*
      from unnest(cast(:bucket as smallint[]), cast(:tenant as text[]), cast(:kind as text[]), cast(:conversation as bigint[]),
                  cast(:channel as text[]), cast(:reply_to as text[]), cast(:parent as bigint[]), cast(:payload as text[]),
                  cast(:at as timestamptz[]), cast(:delay as interval[]), cast(:expires_at as timestamptz[]),
                  cast(:lane as boolean[]), cast(:needs as text[]), cast(:key as text[]), cast(:subject as text[]),
                  cast(:idempotency_key as text[]), cast(:payload_hash as bytea[]),
                  cast(:asked_at as timestamptz[])) with ordinality
        as g (bucket, tenant, kind, conversation, channel, reply_to, parent, payload, at, delay, expires_at, lane, needs, key,
              subject, idempotency_key, payload_hash, asked_at, place)),
booked as (
    insert into tasks (bucket, tenant, id, kind, conversation, channel, reply_to, parent, payload, due_at, booked_for,
                       expires_at, lane, needs, key, subject, idempotency_key, payload_hash, created_at) overriding system value
    select bucket, tenant, id, kind, conversation, channel, reply_to, parent, cast(payload as jsonb),
           coalesce(at, {NOW} + delay), coalesce(at, {NOW} + delay), expires_at, lane, needs, key, subject, idempotency_key,
           payload_hash, coalesce(asked_at, {NOW})
      from given
     order by tenant, idempotency_key, place
        on conflict (bucket, tenant, idempotency_key) where idempotency_key is not null do nothing
 returning bucket, tenant, id, kind, fence, due_at),
noted as ({note("'booked'", "booked", "e.kind")})
select given.id, booked.due_at
  from given left join booked on booked.bucket = given.bucket and booked.tenant = given.tenant and booked.id = given.id
 order by given.place
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
    (booked,) = await book_many(connection, clock, [booking])
    return booked


async def book_many(connection: AsyncConnection, clock: Clock, bookings: Sequence[Booking]) -> list[Booked]:
    """Insert tasks in one statement and return what became of each booking, in their order; else as `book`."""
    results = await book_each(connection, bookings, clock)
    for result in results:
        if isinstance(result, KeyReused):
            raise result
    return [result for result in results if isinstance(result, Booked)]


async def book_each(connection: AsyncConnection, bookings: Sequence[Booking], clock: Clock) -> list[Booked | KeyReused]:
    """Insert tasks as `book_many`, but return a KeyReused in the place of a booking that cannot be made, the others made."""
    hashes = [payload_hash(booking) if booking.idempotency_key is not None else None for booking in bookings]
    rows = await connection.execute(
        sql(BOOK),
        {
            "bucket": [bucket_of(booking.tenant) for booking in bookings],
            "payload": [json.dumps(booking.payload) for booking in bookings],
            "at": [booking.due if isinstance(booking.due, datetime) else None for booking in bookings],
            "delay": [None if isinstance(booking.due, datetime) else booking.due for booking in bookings],
            "payload_hash": hashes,
            "now": clock.override(),
            **{name: [getattr(booking, name) for booking in bookings] for name in _AS_GIVEN},
        },
    )
    return [
        Booked(row.id, row.due_at, replay=False)
        if row.due_at is not None
        else await _booked_before(connection, booking, hashed)
        for row, booking, hashed in zip(rows.all(), bookings, hashes, strict=True)
    ]


_AS_GIVEN = (
    "tenant",
    "kind",
    "conversation",
    "channel",
    "reply_to",
    "parent",
    "expires_at",
    "lane",
    "needs",
    "key",
    "subject",
    "idempotency_key",
    "asked_at",
)


async def _booked_before(connection: AsyncConnection, booking: Booking, hashed: bytes | None) -> Booked | KeyReused:
    key = {"bucket": bucket_of(booking.tenant), "tenant": booking.tenant, "idempotency_key": booking.idempotency_key}
    before = (await connection.execute(sql(BOOKED_BEFORE), key)).one()
    if bytes(before.payload_hash) != hashed:
        return KeyReused(
            f"this idempotency key was used with another payload (task {before.id}): use a new key for a new booking"
        )
    return Booked(before.id, before.booked_for, replay=True, state=before.state)
