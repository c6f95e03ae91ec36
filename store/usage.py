"""What a tenant has used in a day of its own by runs that nobody watches: tokens of its model, messages said by itself."""

from dataclasses import dataclass
from datetime import date

from sqlalchemy import BigInteger, Column, Date, ForeignKeyConstraint, Integer, SmallInteger, Table, Text, text
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

usage = Table(
    "usage",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    # Of the tenant's own zone.
    Column("day", Date, primary_key=True),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("messages", Integer, nullable=False, server_default=text("0")),
    ForeignKeyConstraint(["bucket", "tenant"], ["tenants.bucket", "tenants.tenant"], ondelete="CASCADE"),
)


@dataclass(frozen=True, slots=True)
class Used:
    """How much."""

    tokens: int = 0
    messages: int = 0


_ADD = """
insert into usage (bucket, tenant, day, tokens, messages) values (:bucket, :tenant, :day, :tokens, :messages)
    on conflict (bucket, tenant, day)
    do update set tokens = usage.tokens + excluded.tokens, messages = usage.messages + excluded.messages
"""
_OF = "select tokens, messages from usage where bucket = :bucket and tenant = :tenant and day = :day"


async def add(connection: AsyncConnection, tenant: str, day: date, *, tokens: int = 0, messages: int = 0) -> None:
    """Count it. Everybody who counts for this tenant waits for this transaction: do it last."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "day": day, "tokens": tokens, "messages": messages}
    if tokens or messages:
        await connection.execute(sql(_ADD), given)


async def of(connection: AsyncConnection, tenant: str, day: date) -> Used:
    """Return what has been used on a day."""
    row = (await connection.execute(sql(_OF), {"bucket": bucket_of(tenant), "tenant": tenant, "day": day})).first()
    return Used(row.tokens, row.messages) if row else Used()
