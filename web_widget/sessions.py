"""Sessions: what lets one visitor's browser back into one conversation, and nobody else.

A token is 256 random bits. Only its hash is stored, so that a stolen copy of the table opens nothing.

opened     for a new anonymous visitor, or for a user whose identity is proved: all of whose sessions open one conversation
rotated    another token takes its place, and it ends a minute after that is first used. An answer that was lost loses
           nothing: the old one is as good as before. All tokens that took each other's place are a chain; a session lives
           so long after its last use, and its chain so long in all.
ended      signed out, with its whole chain; or its visitor has signed in, and has another
"""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.web.reach import ANONYMOUS
from channels.web.section import ABSOLUTE, IDLE, SessionSection
from store import contacts, conversations
from store.contacts import Contact
from store.database import Database, bucket_of, metadata, sql
from web_widget.identity import Identity

_WITH_PORT = re.compile(r"\[(.+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")

ROTATE_AFTER = timedelta(days=1)
"""After how long a browser should ask for another token."""
GRACE = "interval '1 minute'"
"""How long a token lives once another that takes its place is used: other tabs still have it."""
MOST_TOKENS = 8
"""Tokens of one chain that are kept: of those beyond it the longest unused go."""
COUNTED_FOR = "interval '1 hour'"
"""In which span the sessions of one address are counted, and until when those that have ended are kept for it."""
BATCH = 1000

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("token_hash", LargeBinary, primary_key=True),
    Column("conversation", BigInteger, nullable=False),
    # The page's own origin, as the browser told it; null when the session was not opened by a browser.
    Column("origin", Text),
    # When its chain began.
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # The hash of the first token of its chain.
    Column("chain", LargeBinary, nullable=False),
    # The hash of the token whose place it takes, until it is first used.
    Column("replaces", LargeBinary),
    Column("ends_at", DateTime(timezone=True)),
    # Whether whoever opened it had proved to be the user whose conversation it is.
    Column("is_verified", Boolean, nullable=False, server_default=text("false")),
    # From where it was opened, as a keyed hash: it can be counted, and not be read.
    Column("address", LargeBinary),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    Index("web_sessions_of_conversation", "bucket", "tenant", "conversation"),
    Index("web_sessions_of_chain", "bucket", "tenant", "chain"),
    Index(
        "web_sessions_of_address",
        "bucket",
        "tenant",
        "address",
        "created_at",
        postgresql_where=text("address is not null"),
    ),
)

KEY = "bucket = :bucket and tenant = :tenant and token_hash = :token_hash"
# Not by the time at which the transaction began: it may have waited for whoever ended the session since.
LIVES = """
used_at > statement_timestamp() - cast(:idle as interval)
and created_at > statement_timestamp() - cast(:absolute as interval)
and (ends_at is null or ends_at > statement_timestamp())
"""

# Its use is written down once an hour, so that reading costs no writing; more often where it does not live much longer.
FIND = f"""
select conversation, origin, is_verified, replaces, chain,
       used_at < now() - least(interval '1 hour', cast(:idle as interval) / 10) as is_to_note
  from web_sessions
 where {KEY} and {LIVES}
"""
NOTE_USE = f"update web_sessions set used_at = now() where {KEY}"

# Of several rows at once whoever changes them locks them in their order, so that none waits for the other in a circle.
FIRST_USE = f"""
with pair as materialized (
    select token_hash from web_sessions
     where bucket = :bucket and tenant = :tenant and token_hash in (:token_hash, :replaces)
     order by token_hash
       for update),
replaced as (
    update web_sessions set ends_at = least(ends_at, now() + {GRACE})
     where bucket = :bucket and tenant = :tenant and token_hash = :replaces
       and token_hash in (select token_hash from pair))
update web_sessions set used_at = now(), replaces = null
 where {KEY} and token_hash in (select token_hash from pair)
"""
LOCK_CHAIN = """
select token_hash from web_sessions
 where bucket = :bucket and tenant = :tenant and chain = :chain
 order by token_hash
   for update
"""
ROTATE = f"""
insert into web_sessions (bucket, tenant, token_hash, conversation, origin, created_at, chain, replaces, is_verified, address)
select bucket, tenant, :new_hash, conversation, origin, created_at, chain, token_hash, is_verified, address
  from web_sessions
 where {KEY} and {LIVES}
returning conversation
"""
TRIM = """
delete from web_sessions
 where bucket = :bucket and tenant = :tenant and chain = :chain and token_hash not in (:token_hash, :new_hash)
   and (ends_at <= statement_timestamp()
        or token_hash not in (
            select token_hash from web_sessions
             where bucket = :bucket and tenant = :tenant and chain = :chain
             order by used_at desc, token_hash
             limit :most))
"""


def _end(which: str, also: str = "") -> str:
    return f"""
with ending as materialized (
    select token_hash from web_sessions
     where bucket = :bucket and tenant = :tenant and {which}
     order by token_hash
       for update)
update web_sessions s set ends_at = least(s.ends_at, now()), replaces = null {also}
  from ending
 where s.bucket = :bucket and s.tenant = :tenant and s.token_hash = ending.token_hash
"""


END_CHAIN = _end("chain = :chain")
END_IN_CONVERSATION = _end("conversation = :conversation", ", conversation = :to")

ADDRESS_FULL_FOR = f"""
select max(oldest.created_at) + {COUNTED_FOR} - now()
  from (select distinct chain, created_at from web_sessions
         where bucket = :bucket and tenant = :tenant and address = :address and created_at > now() - {COUNTED_FOR}
         order by created_at desc
        offset :most - 1
         limit 1) as oldest
"""
OPEN = """
insert into web_sessions (bucket, tenant, token_hash, conversation, origin, chain, is_verified, address)
values (:bucket, :tenant, :token_hash, :conversation, :origin, :token_hash, :is_verified, :address)
"""
LIVES_UNTIL = f"""
select max(created_at) + cast(:absolute as interval) from web_sessions
 where bucket = :bucket and tenant = :tenant and conversation = :conversation and {LIVES}
"""

# Both, in their order, before anything of theirs. Not for update: whoever changes a conversation for the second time in a
# transaction looks whether its contact is there, with their tasks and the conversation in hand that are locked after this.
LOCK_CONTACTS = """
select c.id, c.address_key, c.language, c.time_zone from contacts c
 where c.bucket = :bucket and c.tenant = :tenant and c.channel = 'web'
   and (c.address_key = :address
        or c.id = (select v.contact from conversations v
                    where v.bucket = :bucket and v.tenant = :tenant and v.id = cast(:conversation as bigint)))
 order by c.id
   for no key update
"""
STILL_LIVES = f"""
select true from web_sessions where {KEY} and conversation = :conversation and (ends_at is null or ends_at > statement_timestamp())
"""
DELETE_OLD = f"""
with old as materialized (
    select bucket, tenant, token_hash from web_sessions
     where ends_at < now() - {COUNTED_FOR}
        or used_at < now() - cast(:idle as interval)
        or created_at < now() - cast(:absolute as interval)
     limit :batch
       for update skip locked),
gone as (
    delete from web_sessions s using old
     where s.bucket = old.bucket and s.tenant = old.tenant and s.token_hash = old.token_hash)
select count(*) from old
"""


class TooManySessions(Exception):
    """More were opened from one address within an hour than are let in; the next is after `retry_after`."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(f"the next is let in after {retry_after}")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Visit:
    """From where a session is opened."""

    origin: str | None
    """As the browser told it."""
    address: bytes | None
    """What `address_hash` gives; None is not counted."""
    most: int
    """Sessions that may be opened from one address within an hour."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session that lives."""

    conversation: int
    is_verified: bool
    token_hash: bytes
    chain: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session. Its token is told once and never stored."""

    token: str
    conversation: int
    seq: int


Merge = Callable[[AsyncConnection, str, int, int], Awaitable[None]]
"""Moves a tenant's conversation, whole, into another; both contacts are locked."""


def address_hash(secret: bytes, tenant: str, host: str | None) -> bytes | None:
    """Return the keyed hash of the address of one who asks, another one for each tenant; of IPv6, of its network (/64).

    Some proxies name the port too. None for what is not an address of the internet: then nobody knows who asks.
    """
    host = host or ""
    if found := _WITH_PORT.fullmatch(host):
        host = found[1] or found[2]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        network = ipaddress.ip_network((address, 64), strict=False)
        address = address.ipv4_mapped or network.network_address
    return hmac.digest(secret, f"{tenant}\n{address}".encode(), "sha256")


async def open_session(
    connection: AsyncConnection, tenant: str, visit: Visit, *, language: str | None, time_zone: str | None
) -> Opened:
    """Open a conversation with a new anonymous visitor, and a session in it. Raises TooManySessions."""
    await _let_in(connection, tenant, visit)
    visitor = f"{ANONYMOUS}{secrets.token_hex(16)}"
    contact = Contact(tenant, "web", visitor, visitor, language=language, time_zone=time_zone)
    return await _open_with(connection, contact, visit, is_verified=False)


async def open_as(
    connection: AsyncConnection,
    tenant: str,
    identity: Identity,
    visit: Visit,
    *,
    language: str | None = None,
    time_zone: str | None = None,
) -> Opened:
    """Open a session in the user's conversation, known or new. Raises TooManySessions."""
    await _let_in(connection, tenant, visit)
    contact = Contact(tenant, "web", identity.address, identity.address, identity.name, language, time_zone)
    return await _open_with(connection, contact, visit, is_verified=True)


async def sign_in(
    connection: AsyncConnection, tenant: str, identity: Identity, held: Session | None, visit: Visit, merge: Merge
) -> Opened:
    """Open a session in the user's conversation in the place of the one that the browser had, if it had one.

    What an anonymous visitor has said and booked goes along: their conversation becomes the user's, or is merged into the one
    the user has. Then none of their sessions opens anything any more; what else is written there is not taken. Another user's
    session only ends.

    Raises TooManySessions; sqlalchemy.exc.IntegrityError when another device of the same new user does the same at this very
    moment: then do it again.
    """
    await _let_in(connection, tenant, visit)
    of = {"bucket": bucket_of(tenant), "tenant": tenant}
    is_to_merge = held is not None and not held.is_verified
    known: dict[str, Any] = {}
    if held is not None and is_to_merge:
        given = {**of, "address": identity.address, "conversation": held.conversation}
        known = {row.address_key: row for row in await connection.execute(sql(LOCK_CONTACTS), given)}
        # Nobody changes it from now on; but it may have been done while this waited.
        is_to_merge = await _still_lives(connection, tenant, held)
    language = time_zone = None
    if held is not None and is_to_merge:
        visitor = next(row for key, row in known.items() if key != identity.address)
        language, time_zone = visitor.language, visitor.time_zone
        if identity.address in known:
            to = await conversations.open_conversation(connection, tenant, known[identity.address].id, None)
            await connection.execute(sql(END_IN_CONVERSATION), {**of, "conversation": held.conversation, "to": to})
            await merge(connection, tenant, held.conversation, to)
        else:
            own = {"conversation": held.conversation, "to": held.conversation}
            await connection.execute(sql(END_IN_CONVERSATION), {**of, **own})
            await contacts.become(connection, tenant, visitor.id, identity.address)
    elif held is not None:
        await end_session(connection, tenant, held)
    contact = Contact(tenant, "web", identity.address, identity.address, identity.name, language, time_zone)
    return await _open_with(connection, contact, visit, is_verified=True)


async def find_session(
    connection: AsyncConnection, tenant: str, token: str, *, origin: str | None, life: SessionSection
) -> Session | None:
    """Return the session that a token opens for a request from an origin, or None; notes that it was used.

    A request without an origin passes: browsers send none when a page reads from its own host.
    """
    token_hash = _hash(token)
    key = {"bucket": bucket_of(tenant), "tenant": tenant, "token_hash": token_hash}
    given = {**key, "idle": life.idle, "absolute": life.absolute}
    row = (await connection.execute(sql(FIND), given)).first()
    if row is None or (origin and row.origin and origin != row.origin):
        return None
    if row.replaces is not None:
        await connection.execute(sql(FIRST_USE), {**key, "replaces": row.replaces})
    elif row.is_to_note:
        await connection.execute(sql(NOTE_USE), key)
    return Session(int(row.conversation), row.is_verified, token_hash, bytes(row.chain))


async def rotate(connection: AsyncConnection, tenant: str, held: Session, *, life: SessionSection) -> str | None:
    """Return another token for a session; None when it has ended meanwhile. The old one ends when that is used."""
    # Whoever signs its visitor in has the contact too, and ends all tokens there are.
    await contacts.lock(connection, tenant, held.conversation)
    token = secrets.token_urlsafe(32)
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "token_hash": held.token_hash,
        "chain": held.chain,
        "new_hash": _hash(token),
    }
    await connection.execute(sql(LOCK_CHAIN), given)
    rotated = await connection.execute(sql(ROTATE), {**given, "idle": life.idle, "absolute": life.absolute})
    if rotated.first() is None:
        return None
    await connection.execute(sql(TRIM), {**given, "most": MOST_TOKENS})
    return token


async def end_session(connection: AsyncConnection, tenant: str, held: Session) -> None:
    """End a session, with every token of its chain."""
    await connection.execute(sql(END_CHAIN), {"bucket": bucket_of(tenant), "tenant": tenant, "chain": held.chain})


async def lives_until(
    connection: AsyncConnection, tenant: str, conversation: int, life: SessionSection
) -> datetime | None:
    """Return when the last session of a conversation ends, however often it is used; None where none lives."""
    of = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    found: datetime | None = await connection.scalar(
        sql(LIVES_UNTIL), {**of, "idle": life.idle, "absolute": life.absolute}
    )
    return found


FORGET = """
delete from web_sessions
 where bucket = :bucket and tenant = :tenant and conversation = any(cast(:conversations as bigint[]))
"""


async def forget(connection: AsyncConnection, tenant: str, talks: Sequence[int]) -> None:
    """Delete every session in these conversations: whoever comes with its token is let in as nobody."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversations": list(talks)}
    await connection.execute(sql(FORGET), given)


async def delete_old(database: Database, *, batch: int = BATCH) -> int:
    """Delete the sessions that open nothing any more, a batch a transaction; return how many.

    Where a tenant lets them live less long than they may, they are kept as long all the same.
    """
    deleted = 0
    while True:
        async with database.transaction() as connection:
            given = {"idle": IDLE, "absolute": ABSOLUTE, "batch": batch}
            gone = int((await connection.execute(sql(DELETE_OLD), given)).scalar_one())
        deleted += gone
        if gone < batch:
            return deleted


async def _let_in(connection: AsyncConnection, tenant: str, visit: Visit) -> None:
    """Count the sessions of an address, one request at a time."""
    if visit.address is None:
        return
    turn = int.from_bytes(visit.address[:8], signed=True)
    await connection.execute(sql("select pg_advisory_xact_lock(:turn)"), {"turn": turn})
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "address": visit.address, "most": visit.most}
    wait: timedelta | None = await connection.scalar(sql(ADDRESS_FULL_FOR), given)
    if wait is not None:
        raise TooManySessions(wait)


async def _open_with(connection: AsyncConnection, contact: Contact, visit: Visit, *, is_verified: bool) -> Opened:
    tenant = contact.tenant
    conversation = await conversations.open_conversation(
        connection, tenant, await contacts.meet(connection, contact), None
    )
    token = secrets.token_urlsafe(32)
    await connection.execute(
        sql(OPEN),
        {
            "bucket": bucket_of(tenant),
            "tenant": tenant,
            "token_hash": _hash(token),
            "conversation": conversation,
            "origin": visit.origin,
            "is_verified": is_verified,
            "address": visit.address,
        },
    )
    found = await conversations.find(connection, tenant, conversation)
    assert found is not None  # it was opened just now
    return Opened(token, conversation, found.last_seq)


async def _still_lives(connection: AsyncConnection, tenant: str, held: Session) -> bool:
    of = {"bucket": bucket_of(tenant), "tenant": tenant, "token_hash": held.token_hash}
    return bool(await connection.scalar(sql(STILL_LIVES), {**of, "conversation": held.conversation}))


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
