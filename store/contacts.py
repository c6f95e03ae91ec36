"""Contacts: a person, or a group, as one tenant knows them on one channel."""

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
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

from store.database import bucket_of, metadata

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
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
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


async def move(connection: AsyncConnection, tenant: str, channel: str, old_key: str, address: str) -> None:
    """Give a contact another address: conversation and pending tasks move along, since they ask here.

    Where somebody has already written from there, that contact stays who it is, and this one is only answered there.
    """
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
        .values(address=address, address_key=case((is_known, contacts.c.address_key), else_=address))
    )
