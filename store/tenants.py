"""Tenants, as the service keeps them: a name and the applied configuration. What is inside is each package's own matter.

A sender (a bot, a phone number) belongs to one tenant in the whole installation: messages of two tenants through one
bot could not be told apart. That rule, and the lock for migrations, are the only global things.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    SmallInteger,
    Table,
    Text,
    cast,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata
from store.secrets import PREFIX

tenants = Table(
    "tenants",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("config", JSONB, nullable=False),
    Column("revision", BigInteger, nullable=False, server_default=text("1")),
    Column("applied_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

senders = Table(
    "senders",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("sender", Text, primary_key=True),
    Column("bucket", SmallInteger, nullable=False),
    Column("tenant", Text, nullable=False),
    # Only one process may ask a Telegram bot for its updates; who does, and until when it may.
    Column("receiver", Text),
    Column("receiver_until", DateTime(timezone=True)),
    ForeignKeyConstraint(["bucket", "tenant"], ["tenants.bucket", "tenants.tenant"], ondelete="CASCADE"),
    Index("senders_of_tenant", "bucket", "tenant"),
)


class SenderTaken(Exception):
    """A bot or number is already another tenant's."""

    def __init__(self, channel: str, sender: str, tenant: str) -> None:
        super().__init__(f"the {channel} sender {sender} already belongs to tenant {tenant!r}")
        self.channel, self.sender, self.tenant = channel, sender, tenant


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant as stored."""

    tenant: str
    config: Mapping[str, Any]
    revision: int


async def apply(
    connection: AsyncConnection, tenant: str, config: Mapping[str, Any], its_senders: Sequence[tuple[str, str]]
) -> bool:
    """Store a tenant's configuration and its senders `(channel, sender)`; return whether anything changed.

    Raises SenderTaken when one of them is another tenant's.
    """
    bucket = bucket_of(tenant)
    statement = insert(tenants).values(bucket=bucket, tenant=tenant, config=config)
    changed = await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["bucket", "tenant"],
            set_={"config": statement.excluded.config, "revision": tenants.c.revision + 1, "applied_at": func.now()},
            where=tenants.c.config != statement.excluded.config,
        ).returning(tenants.c.revision)
    )
    is_changed = changed.first() is not None
    for channel, sender in its_senders:
        row = insert(senders).values(channel=channel, sender=sender, bucket=bucket, tenant=tenant)
        # The update changes nothing: it locks a row that is there, and so tells its owner as of now.
        known = row.on_conflict_do_update(index_elements=["channel", "sender"], set_={"channel": row.excluded.channel})
        owner = await connection.scalar(known.returning(senders.c.tenant))
        if owner != tenant:
            raise SenderTaken(channel, sender, str(owner))
    kept = {f"{channel} {sender}" for channel, sender in its_senders}
    await connection.execute(
        delete(senders).where(
            senders.c.bucket == bucket,
            senders.c.tenant == tenant,
            (senders.c.channel + " " + senders.c.sender).not_in(kept) if kept else text("true"),
        )
    )
    return is_changed


async def find(connection: AsyncConnection, tenant: str) -> TenantRow | None:
    """Return a tenant, or None."""
    rows = await connection.execute(
        select(tenants.c.tenant, tenants.c.config, tenants.c.revision).where(
            tenants.c.bucket == bucket_of(tenant), tenants.c.tenant == tenant
        )
    )
    row = rows.first()
    return TenantRow(row.tenant, row.config, row.revision) if row else None


async def find_all(connection: AsyncConnection) -> list[TenantRow]:
    """Return every tenant, by name."""
    rows = await connection.execute(
        select(tenants.c.tenant, tenants.c.config, tenants.c.revision).order_by(tenants.c.tenant)
    )
    return [TenantRow(row.tenant, row.config, row.revision) for row in rows]


async def key_ids(connection: AsyncConnection) -> set[str]:
    """Return the ids of the secret keys with which anything of a tenant is sealed."""
    # A quotation mark within a text has a backslash before it, so this one begins a text.
    sealed = func.regexp_matches(cast(tenants.c.config, Text), rf'(?<!\\)"{PREFIX}([^:"]*):', "g")
    return {found[0] for found in await connection.scalars(select(sealed))}


async def hold_receiver(connection: AsyncConnection, channel: str, sender: str, receiver: str, seconds: float) -> bool:
    """Take or renew the right to ask for a sender's incoming messages; False while another process holds it."""
    until = func.now() + text("make_interval(secs => :seconds)").bindparams(seconds=seconds)
    rows = await connection.execute(
        update(senders)
        .where(
            senders.c.channel == channel,
            senders.c.sender == sender,
            (senders.c.receiver == receiver) | senders.c.receiver.is_(None) | (senders.c.receiver_until < func.now()),
        )
        .values(receiver=receiver, receiver_until=until)
        .returning(senders.c.sender)
    )
    return rows.first() is not None


async def release_receiver(connection: AsyncConnection, channel: str, sender: str, receiver: str) -> None:
    """Give the right back, so that another process need not wait for it to run out."""
    await connection.execute(
        update(senders)
        .where(senders.c.channel == channel, senders.c.sender == sender, senders.c.receiver == receiver)
        .values(receiver=None, receiver_until=None)
    )
