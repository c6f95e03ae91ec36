"""Sessions: what lets one visitor's browser back into one conversation, and nobody else.

The token is 256 random bits. Only its hash is stored, so that a stolen copy of the table opens nothing.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from store import contacts, conversations
from store.contacts import Contact
from store.database import bucket_of, metadata

TIME_TO_READ = timedelta(days=30)
"""How long the last thing that can have been booked in a session stays to be read in it."""
NOTED_EVERY = timedelta(hours=1)
"""How often its use is written down, so that reading costs no writing."""

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("token_hash", LargeBinary, primary_key=True),
    Column("conversation", BigInteger, nullable=False),
    # The page's own origin, as the browser told it; null when the session was not opened by a browser.
    Column("origin", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    Index("web_sessions_of_conversation", "bucket", "tenant", "conversation"),
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session. Its token is told once and never stored."""

    token: str
    conversation: int
    seq: int


async def open_session(
    connection: AsyncConnection, tenant: str, *, origin: str | None, language: str | None, time_zone: str | None
) -> Opened:
    """Open a conversation with a new anonymous visitor, and a session in it."""
    visitor = f"visitor:{secrets.token_hex(16)}"
    contact = await contacts.meet(
        connection, Contact(tenant, "web", visitor, visitor, language=language, time_zone=time_zone)
    )
    conversation = await conversations.open_conversation(connection, tenant, contact, None)
    token = secrets.token_urlsafe(32)
    await connection.execute(
        insert(web_sessions).values(
            bucket=bucket_of(tenant),
            tenant=tenant,
            token_hash=_hash(token),
            conversation=conversation,
            origin=origin,
        )
    )
    return Opened(token, conversation, 0)


async def find_session(
    connection: AsyncConnection, tenant: str, token: str, *, origin: str | None, longest_lead: timedelta
) -> int | None:
    """Return the conversation a token opens for a request from an origin, or None; notes that it was used.

    A session lives as long as something booked in it may be to come (`longest_lead`) or to be read, counted from its last use.
    A request without an origin passes: browsers send none when a page reads from its own host.
    """
    key = (
        web_sessions.c.bucket == bucket_of(tenant),
        web_sessions.c.tenant == tenant,
        web_sessions.c.token_hash == _hash(token),
    )
    rows = await connection.execute(
        select(
            web_sessions.c.conversation,
            web_sessions.c.origin,
            (web_sessions.c.used_at < func.now() - NOTED_EVERY).label("is_to_note"),
        ).where(
            *key,
            web_sessions.c.used_at > func.now() - (longest_lead + TIME_TO_READ),
        )
    )
    row = rows.first()
    if row is None or (origin and row.origin and origin != row.origin):
        return None
    if row.is_to_note:
        await connection.execute(update(web_sessions).where(*key).values(used_at=func.now()))
    return int(row.conversation)


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
