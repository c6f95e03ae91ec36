"""Contacts: a person, or a group, as one tenant knows them on one channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    case,
    exists,
    func,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

contacts = Table(
    "contacts",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("channel", Text, nullable=False),
    # As it came in, byte for byte: this is what is answered to.
    Column("address", Text, nullable=False),
    # The same person under every form of the address: for matching only.
    Column("address_key", Text, nullable=False),
    Column("name", Text),
    Column("language", Text),
    Column("time_zone", Text),
    # Nothing is sent there that was not just asked for: the customer said so, or the provider, whom they told.
    Column("stopped", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("stopped in ('customer', 'provider')", name="stopped"),
    UniqueConstraint("bucket", "tenant", "channel", "address_key", name="contacts_of_address"),
    ForeignKeyConstraint(["bucket", "tenant"], ["tenants.bucket", "tenants.tenant"]),
)


@dataclass(frozen=True, slots=True)
class Contact:
    """What a channel tells of the person who writes."""

    tenant: str
    channel: str
    address: str
    address_key: str
    name: str | None = None
    language: str | None = None
    time_zone: str | None = None


async def meet(connection: AsyncConnection, contact: Contact) -> int:
    """Return the contact's id, known or new. The newest form of the address wins; what is newly told replaces."""
    statement = insert(contacts).values(
        bucket=bucket_of(contact.tenant),
        tenant=contact.tenant,
        channel=contact.channel,
        address=contact.address,
        address_key=contact.address_key,
        name=contact.name,
        language=contact.language,
        time_zone=contact.time_zone,
    )
    told = statement.excluded
    known = statement.on_conflict_do_update(
        constraint="contacts_of_address",
        set_={
            "address": told.address,
            "name": func.coalesce(told.name, contacts.c.name),
            "language": func.coalesce(told.language, contacts.c.language),
            "time_zone": func.coalesce(told.time_zone, contacts.c.time_zone),
        },
    ).returning(contacts.c.id)
    return int((await connection.execute(known)).scalar_one())


async def become(connection: AsyncConnection, tenant: str, contact: int, address: str) -> None:
    """Give a contact the address of somebody whom nobody has met yet: they turned out to be the same.

    Raises sqlalchemy.exc.IntegrityError when somebody is met there at this very moment.
    """
    await connection.execute(
        update(contacts)
        .where(contacts.c.bucket == bucket_of(tenant), contacts.c.tenant == tenant, contacts.c.id == contact)
        .values(address=address, address_key=address)
    )


STOPPED_BEFORE = """
update contacts c set stopped = old.stopped
  from contacts old
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = :channel and c.address_key = :address
   and old.bucket = c.bucket and old.tenant = c.tenant and old.channel = c.channel and old.address_key = :old_key
   and old.stopped = 'customer'
"""


async def move(connection: AsyncConnection, tenant: str, channel: str, old_key: str, address: str) -> None:
    """Give a contact another address: conversation and pending tasks move along, since they ask here.

    Where somebody has already written from there, that contact stays who it is, and this one is only answered there; the
    customer's word that nothing more is to be sent goes over to it. That the old address is shut means nothing any more.
    """
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "channel": channel, "old_key": old_key, "address": address}
    await connection.execute(sql(STOPPED_BEFORE), given)
    other = contacts.alias()
    is_known = exists().where(
        other.c.bucket == bucket_of(tenant),
        other.c.tenant == tenant,
        other.c.channel == channel,
        other.c.address_key == address,
    )
    await connection.execute(
        update(contacts)
        .where(
            contacts.c.bucket == bucket_of(tenant),
            contacts.c.tenant == tenant,
            contacts.c.channel == channel,
            contacts.c.address_key == old_key,
        )
        .values(
            address=address,
            address_key=case((is_known, contacts.c.address_key), else_=address),
            # Not told again, should word of the move come again when they have taken it back.
            stopped=case((is_known, None), else_=func.nullif(contacts.c.stopped, "provider")),
        )
    )


Stopped = Literal["customer", "provider"]
"""Who has said that nothing more is to be sent: the customer, until they take it back; or the provider, until they write."""

LOCK = """
select c.id from contacts c
  join conversations v on c.bucket = v.bucket and c.tenant = v.tenant and c.id = v.contact
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :conversation
   for no key update of c
"""
LOCK_IF_FREE = f"{LOCK} skip locked"
STOP = """
update contacts c set stopped = :by
  from conversations v
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :conversation
   and c.bucket = v.bucket and c.tenant = v.tenant and c.id = v.contact
   and coalesce(c.stopped, '') not in (:by, 'customer')
   and (cast(:since as timestamptz) is null or v.last_inbound_at is null or v.last_inbound_at <= :since)
returning c.id
"""
GO_ON = """
update contacts c set stopped = null
  from conversations v
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :conversation
   and c.bucket = v.bucket and c.tenant = v.tenant and c.id = v.contact and c.stopped = :by
returning c.id
"""


async def lock(connection: AsyncConnection, tenant: str, conversation: int) -> None:
    """Keep whatever would change the contact of a conversation waiting until this transaction ends.

    Whoever takes a message in has the contact before the tasks that it releases.
    """
    await connection.execute(sql(LOCK), {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation})


async def stop(
    connection: AsyncConnection, tenant: str, conversation: int, by: Stopped, *, since: datetime | None = None
) -> bool:
    """Note that the contact of a conversation is to be sent nothing more; False when that was known already.

    Or when they have written there after `since`, when it was so. Whoever has the contact just now takes a message of theirs
    in, or changes it in another way that makes a word of `since` old: that is not waited for, by those who have tasks already.
    """
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "by": by, "since": since}
    if since is not None and (await connection.execute(sql(LOCK_IF_FREE), given)).first() is None:
        return False
    return (await connection.execute(sql(STOP), given)).first() is not None


async def go_on(connection: AsyncConnection, tenant: str, conversation: int, by: Stopped) -> bool:
    """Take back what `by` has said; False when nothing of theirs stood in the way."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "by": by}
    return (await connection.execute(sql(GO_ON), given)).first() is not None


ZONES = """
select c.channel, c.address_key, c.time_zone
  from contacts c
  join unnest(cast(:channels as text[]), cast(:keys as text[])) as g (channel, address_key)
    on g.channel = c.channel and g.address_key = c.address_key
 where c.bucket = :bucket and c.tenant = :tenant and c.time_zone is not null
   and c.channel = any(cast(:channels as text[])) and c.address_key = any(cast(:keys as text[]))
"""


async def zones(
    connection: AsyncConnection, tenant: str, addresses: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], str]:
    """Return the time zones that channels have told, by channel and address key."""
    if not addresses:
        return {}
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "channels": [channel for channel, _ in addresses],
        "keys": [key for _, key in addresses],
    }
    return {(row.channel, row.address_key): row.time_zone for row in await connection.execute(sql(ZONES), given)}
