"""Keys to the API: what a tenant's server shows. Of each only a hash is kept; whoever has lost one makes another.

A key names its tenant and its own number, so that it is found without a look through others, and 256 random bits, so that
a plain SHA-256 of it is as good as a slow one (OWASP: session tokens).
"""

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Column, DateTime, ForeignKeyConstraint, LargeBinary, SmallInteger, Table, Text, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

api_keys = Table(
    "api_keys",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("revoked_at", DateTime(timezone=True)),
    ForeignKeyConstraint(["bucket", "tenant"], ["tenants.bucket", "tenants.tenant"], ondelete="CASCADE"),
)

SCOPES = ("book", "read", "cancel")
"""What a key may allow: to call and book; to find and look; to cancel."""

_TOKEN = re.compile(r"vk_([a-z0-9][a-z0-9-]{0,39})_([a-z0-9]{10})_[A-Za-z0-9_-]{43}", re.ASCII)
_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept."""

    tenant: str
    id: str
    name: str
    scopes: Sequence[str]
    created_at: datetime
    revoked_at: datetime | None


_SHOWN = "tenant, id, name, scopes, created_at, revoked_at"


async def create(
    connection: AsyncConnection, tenant: str, *, name: str = "", scopes: Sequence[str] = SCOPES
) -> tuple[str, str]:
    """Make a key of a tenant that there is; return its id, and the key itself, which nobody can be shown again."""
    number = "".join(secrets.choice(_LETTERS) for _ in range(10))
    token = f"vk_{tenant}_{number}_{secrets.token_urlsafe(32)}"
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "id": number,
        "hash": _hash(token),
        "name": name,
        "scopes": list(scopes),
    }
    statement = "insert into api_keys (bucket, tenant, id, hash, name, scopes) values (:bucket, :tenant, :id, :hash, :name, :scopes)"
    await connection.execute(sql(statement), given)
    return number, token


async def find(connection: AsyncConnection, token: str) -> ApiKey | None:
    """Return the key that a token is, unless it was revoked; None for what is none."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    given = {"bucket": bucket_of(parts[1]), "tenant": parts[1], "id": parts[2]}
    statement = f"select {_SHOWN}, hash from api_keys where bucket = :bucket and tenant = :tenant and id = :id and revoked_at is null"
    row = (await connection.execute(sql(statement), given)).first()
    if row is None or not hmac.compare_digest(bytes(row.hash), _hash(token)):
        return None
    return ApiKey(*tuple(row)[:-1])


async def all_of(connection: AsyncConnection, tenant: str | None) -> Sequence[ApiKey]:
    """Return a tenant's keys, or (None) all, the oldest first, those that were revoked too."""
    where = "" if tenant is None else "where bucket = :bucket and tenant = :tenant"
    given = {} if tenant is None else {"bucket": bucket_of(tenant), "tenant": tenant}
    rows = await connection.execute(
        sql(f"select {_SHOWN} from api_keys {where} order by tenant, created_at, id"), given
    )
    return [ApiKey(*row) for row in rows]


async def revoke(connection: AsyncConnection, tenant: str, number: str) -> bool:
    """Let a key open nothing any more; tell whether there was one that did."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "id": number}
    statement = (
        "update api_keys set revoked_at = now()"
        " where bucket = :bucket and tenant = :tenant and id = :id and revoked_at is null returning id"
    )
    return (await connection.execute(sql(statement), given)).first() is not None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
