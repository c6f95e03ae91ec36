"""Merging two conversations: what was said in one stands in the other, behind what was said there, and the one is no more.

In this order, as everybody locks them: contacts, then tasks, then both conversations (`lock`); then tasks are moved, and
then all else (`merge`). What still refers to the one when it goes, goes with it.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, sql

LOCK = """
select id, last_seq from conversations
 where bucket = :bucket and tenant = :tenant and id in (:conversation, :to)
 order by id
   for update
"""

# Up to where it is answered is one number. Where something said in the other is not answered yet, that stays so, and
# what is behind it counts as unanswered once more, with its answers beside it.
CARRY_ON = """
update conversations v
   set last_seq = v.last_seq + one.last_seq,
       answered_seq = case when exists (
                               select from messages m
                                where m.bucket = v.bucket and m.tenant = v.tenant and m.conversation = v.id
                                  and m.seq > v.answered_seq and m.role = 'customer')
                           then v.answered_seq else v.last_seq + one.answered_seq end,
       seen_seq = case when v.seen_seq = v.last_seq then v.last_seq + one.seen_seq else v.seen_seq end,
       last_inbound_at = greatest(v.last_inbound_at, one.last_inbound_at),
       with_person_since = least(v.with_person_since, one.with_person_since),
       with_person_why = coalesce(v.with_person_why, one.with_person_why)
  from conversations one
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :to
   and one.bucket = :bucket and one.tenant = :tenant and one.id = :conversation
"""

# A message that is sent again, since its answer was lost, must be known in its new place too. Where another is known by
# that very name there, it keeps its old one, which is nobody else's.
MOVE = """
update messages m
   set conversation = :to, seq = m.seq + :behind,
       inbound_key = case when starts_with(m.inbound_key, :known_as) and not exists (
                                select from messages other
                                 where other.bucket = :bucket and other.tenant = :tenant
                                   and other.inbound_key = :to_be_known_as || substr(m.inbound_key, length(:known_as) + 1))
                          then :to_be_known_as || substr(m.inbound_key, length(:known_as) + 1) else m.inbound_key end
 where m.bucket = :bucket and m.tenant = :tenant and m.conversation = :conversation
"""
FORGET = """
with gone as (
    delete from conversations where bucket = :bucket and tenant = :tenant and id = :conversation returning contact)
select contact from gone
"""
FORGET_CONTACT = """
delete from contacts c
 where c.bucket = :bucket and c.tenant = :tenant and c.id = :contact
   and not exists (select from conversations v where v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id)
"""


async def lock(connection: AsyncConnection, tenant: str, conversation: int, to: int) -> int:
    """Lock both conversations, and return behind which sequence number the one comes to stand in the other."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation, "to": to}
    found = {row.id: row.last_seq for row in await connection.execute(sql(LOCK), given)}
    return int(found[to])


async def merge(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    to: int,
    behind: int,
    *,
    known_as: str,
    to_be_known_as: str,
) -> None:
    """Move everything said in a conversation into another, behind a sequence number, and forget the one and its contact.

    `known_as` is how the keys of what came in begin in the one, `to_be_known_as` how they do in the other.
    """
    of = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    await connection.execute(sql(CARRY_ON), {**of, "to": to})
    keys = {"known_as": known_as, "to_be_known_as": to_be_known_as}
    await connection.execute(sql(MOVE), {**of, **keys, "to": to, "behind": behind})
    contact = await connection.scalar(sql(FORGET), of)
    await connection.execute(sql(FORGET_CONTACT), {"bucket": of["bucket"], "tenant": tenant, "contact": contact})
