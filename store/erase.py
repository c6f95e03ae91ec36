"""Erasing a contact: what was said with them, where they are reached and who they are. The rows stay, emptied.

Whoever writes from there afterwards is somebody new. In this order, as everybody locks them: renewals, the contact, tasks,
conversations.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, sql
from store.deliveries import ERASED

FIND = """
select id from contacts
 where bucket = :bucket and tenant = :tenant and channel = :channel and address_key = any(cast(:keys as text[]))
"""
CONTACT_OF = "select contact from conversations where bucket = :bucket and tenant = :tenant and id = :id"
CONTACTS = """
select c.id, c.channel, c.address_key from contacts c
 where c.bucket = :bucket and c.tenant = :tenant and c.id = any(cast(:contacts as bigint[]))
 order by c.id
"""
LOCK_CONTACTS = f"{CONTACTS} for update"
CONVERSATIONS = """
select id from conversations
 where bucket = :bucket and tenant = :tenant and contact = any(cast(:contacts as bigint[]))
 order by id
"""
# Where a customer is reached is written in any of its forms, so their keys are compared, and not here.
RENEWALS = """
select id, conversation, addresses ->> :channel as address from renewals
 where bucket = :bucket and tenant = :tenant
   and (jsonb_exists(addresses, :channel) or conversation = any(cast(:conversations as bigint[])))
"""
LOCK_RENEWALS = """
select id from renewals
 where bucket = :bucket and tenant = :tenant and id = any(cast(:renewals as bigint[]))
 order by subject, id
   for update
"""

OF_CONVERSATIONS = "bucket = :bucket and tenant = :tenant and conversation = any(cast(:conversations as bigint[]))"
EMPTY = (
    f"update messages set text = '', inbound_key = null where {OF_CONVERSATIONS}",
    f"delete from drafts where {OF_CONVERSATIONS}",
    f"""
update deliveries
   set reason = case when reason is not null then '{ERASED}' end,
       provider_id = '{ERASED}'
 where {OF_CONVERSATIONS}""",
    """
update renewals
   set name = null, fields = '{}', addresses = '{}', language = null, time_zone = null, conversation = null,
       state = case when state = 'open' then 'withdrawn' else state end,
       closed_at = coalesce(closed_at, coalesce(cast(:now as timestamptz), now()))
 where bucket = :bucket and tenant = :tenant and id = any(cast(:renewals as bigint[]))""",
    """
update renewal_events set detail = null
 where bucket = :bucket and tenant = :tenant and renewal = any(cast(:renewals as bigint[]))""",
    # All is answered: no turn finds anything there.
    """
update conversations
   set answered_seq = last_seq, seen_seq = last_seq, with_person_since = null, with_person_why = null
 where bucket = :bucket and tenant = :tenant and id = any(cast(:conversations as bigint[]))""",
    # What should come to life there all the same is sent nowhere.
    """
update contacts
   set address = '', address_key = 'erased:' || id, name = null, language = null, time_zone = null, stopped = 'customer'
 where bucket = :bucket and tenant = :tenant and id = any(cast(:contacts as bigint[]))""",
)


async def contacts_of(connection: AsyncConnection, tenant: str, channel: str, keys: Sequence[str]) -> Sequence[int]:
    """Return the contacts that are known under one of these keys of an address."""
    return list(await connection.scalars(sql(FIND), {**_whose(tenant), "channel": channel, "keys": list(keys)}))


async def contact_of(connection: AsyncConnection, tenant: str, conversation: int) -> int | None:
    """Return the contact that a conversation is held with."""
    found: int | None = await connection.scalar(sql(CONTACT_OF), {**_whose(tenant), "id": conversation})
    return found


async def theirs(
    connection: AsyncConnection, tenant: str, contacts: Sequence[int], key_of: Callable[[str, str], str]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the renewals of contacts, and their conversations.

    `key_of` is given a channel and an address, and returns its key.
    """
    of = {**_whose(tenant), "contacts": list(contacts)}
    known = (await connection.execute(sql(CONTACTS), of)).all()
    talks = list(await connection.scalars(sql(CONVERSATIONS), of))
    found: set[int] = set()
    for contact in known:
        rows = await connection.execute(
            sql(RENEWALS), {**_whose(tenant), "channel": contact.channel, "conversations": talks}
        )
        found |= {
            row.id
            for row in rows
            if row.conversation in talks
            or (row.address is not None and key_of(contact.channel, row.address) == contact.address_key)
        }
    return sorted(found), talks


async def lock(
    connection: AsyncConnection, tenant: str, contacts: Sequence[int], key_of: Callable[[str, str], str]
) -> tuple[Sequence[int], Sequence[int]]:
    """Lock the renewals of contacts and then the contacts; else as `theirs`."""
    of = {**_whose(tenant), "contacts": list(contacts)}
    renewals, _ = await theirs(connection, tenant, contacts, key_of)
    await connection.execute(sql(LOCK_RENEWALS), {**_whose(tenant), "renewals": list(renewals)})
    await connection.execute(sql(LOCK_CONTACTS), of)
    return renewals, list(await connection.scalars(sql(CONVERSATIONS), of))


async def erase(
    connection: AsyncConnection,
    tenant: str,
    contacts: Sequence[int],
    conversations: Sequence[int],
    renewals: Sequence[int],
    *,
    now: datetime | None,
) -> Mapping[str, int]:
    """Empty contacts, and what there is of them in conversations and renewals, all locked; return how many rows of each table."""
    given = {
        **_whose(tenant),
        "contacts": list(contacts),
        "conversations": list(conversations),
        "renewals": list(renewals),
        "now": now,
    }
    counts: dict[str, int] = {}
    for statement in EMPTY:
        table = statement.split("update " if "update " in statement else "from ")[1].split()[0]
        done = await connection.execute(sql(f"with done as ({statement} returning 1) select count(*) from done"), given)
        counts[table] = int(done.scalar_one())
    return counts


# What was said first is the oldest, but where two conversations were made one: there, up to what was said last in the other
# may be kept a little longer.
FORGET = """
with page as materialized (
    select id from conversations
     where bucket = :bucket and tenant = :tenant and id > :after
     order by id
     limit :batch),
old as materialized (
    select m.conversation, m.seq
      from page
     cross join lateral (
         select at from messages
          where bucket = :bucket and tenant = :tenant and conversation = page.id
          order by seq
          limit 1) as first
     cross join lateral (
         select conversation, seq from messages
          where bucket = :bucket and tenant = :tenant and conversation = page.id
            and at < coalesce(cast(:now as timestamptz), now()) - cast(:kept as interval)
          order by seq
          limit :batch
            for update skip locked) as m
     where first.at < coalesce(cast(:now as timestamptz), now()) - cast(:kept as interval)
     limit :batch),
gone as (
    delete from messages m
     using old
     where m.bucket = :bucket and m.tenant = :tenant and m.conversation = old.conversation and m.seq = old.seq)
select (select count(*) from old) as deleted, (select max(id) from page) as up_to,
       (select count(*) = :batch from page) as has_more
"""


async def forget(
    connection: AsyncConnection, tenant: str, kept: timedelta, *, after: int, batch: int, now: datetime | None
) -> tuple[int, int | None]:
    """Delete up to `batch` messages older than `kept`, on one page of a tenant's conversations; return how many, and where to go on.

    None where there is nothing more to look at.
    """
    given = {**_whose(tenant), "kept": kept, "after": after, "batch": batch, "now": now}
    row = (await connection.execute(sql(FORGET), given)).one()
    if row.deleted == batch:
        return row.deleted, after
    return row.deleted, row.up_to if row.has_more else None


def _whose(tenant: str) -> dict[str, Any]:
    return {"bucket": bucket_of(tenant), "tenant": tenant}
