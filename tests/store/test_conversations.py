"""Conversations and the contacts they are held with."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from store import contacts, conversations, messages
from store.contacts import Contact
from store.conversations import Conversation
from store.database import Database
from tests.support.factories import a_conversation, a_tenant

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


async def meet(database: Database, address: str, key: str, **known: str) -> int:
    async with database.transaction() as connection:
        return await contacts.meet(connection, Contact("acme", "whatsapp", address, key, **known))


async def opened(database: Database, contact: int, thread: str | None = None) -> int:
    async with database.transaction() as connection:
        return await conversations.open_conversation(connection, "acme", contact, thread)


async def found(database: Database, conversation: int, tenant: str = "acme") -> Conversation:
    async with database.transaction() as connection:
        it = await conversations.find(connection, tenant, conversation)
    assert it is not None
    return it


@pytest.fixture
async def acme(database: Database) -> Database:
    async with database.transaction() as connection:
        await a_tenant(connection)
    return database


async def test_a_contact_is_met_once_and_the_newest_form_of_the_address_wins(acme: Database) -> None:
    first = await meet(acme, "+52 1 55", "5255", name="Ana", language="es")
    again = await meet(acme, "+52 55", "5255", time_zone="America/Bogota")
    assert again == first
    it = await found(acme, await opened(acme, first))
    assert (it.address, it.address_key) == ("+52 55", "5255")
    assert (it.name, it.language, it.time_zone) == ("Ana", "es", "America/Bogota"), "what is not told again is kept"
    await meet(acme, "+52 55", "5255", name="Ana María")
    assert (await found(acme, it.id)).name == "Ana María"


async def test_twenty_messages_of_a_new_customer_at_once_open_one_conversation(acme: Database) -> None:
    async def write() -> int:
        async with acme.transaction() as connection:
            contact = await contacts.meet(connection, Contact("acme", "whatsapp", "+1", "1"))
            return await conversations.open_conversation(connection, "acme", contact, None)

    assert len(set(await asyncio.gather(*(write() for _ in range(20))))) == 1


async def test_each_thread_is_a_conversation_of_its_own(acme: Database) -> None:
    contact = await meet(acme, "-100", "-100")
    plain, topic = await opened(acme, contact), await opened(acme, contact, "7")
    assert plain != topic
    assert await opened(acme, contact, "7") == topic
    assert await opened(acme, contact, "") == plain
    assert [(await found(acme, one)).thread for one in (plain, topic)] == [None, "7"]


async def test_another_tenant_does_not_see_a_conversation(database: Database) -> None:
    async with database.transaction() as connection:
        mine = await a_conversation(connection)
        await a_conversation(connection, "rival")
        assert await conversations.find(connection, "rival", mine) is None
        await conversations.mark_answered(connection, "rival", mine, 3)
        assert not await conversations.has_written_within(connection, "rival", mine, timedelta(days=999), NOON)
    assert (await found(database, mine)).answered_seq == 0


async def test_a_moved_group_is_answered_at_its_new_address_and_known_by_it(acme: Database) -> None:
    contact = await meet(acme, "-5", "-5", name="Family")
    conversation = await opened(acme, contact)
    async with acme.transaction() as connection:
        await contacts.move(connection, "acme", "whatsapp", "-5", "-1005")
    it = await found(acme, conversation)
    assert (it.address, it.address_key, it.name) == ("-1005", "-1005", "Family")
    assert await meet(acme, "-1005", "-1005") == contact


async def test_a_group_that_has_written_from_its_new_address_before_it_is_told_can_move_all_the_same(
    acme: Database,
) -> None:
    old, new = await meet(acme, "-5", "-5"), await meet(acme, "-1005", "-1005")
    before, after = await opened(acme, old), await opened(acme, new)
    async with acme.transaction() as connection:
        await contacts.move(connection, "acme", "whatsapp", "-5", "-1005")
    assert (await found(acme, before)).address == "-1005", "what was booked there still arrives"
    assert await meet(acme, "-1005", "-1005") == new
    assert await opened(acme, new) == after


async def test_whether_the_customer_has_written_lately_is_asked_of_the_given_time(acme: Database) -> None:
    conversation = await opened(acme, await meet(acme, "+1", "1"))
    day = timedelta(hours=24)

    async def has_written(now: datetime | None) -> bool:
        async with acme.transaction() as connection:
            return await conversations.has_written_within(connection, "acme", conversation, day, now)

    assert not await has_written(NOON), "never"
    async with acme.transaction() as connection:
        await messages.add(connection, "acme", conversation, "customer", "message", "hola", now=NOON)
    assert await has_written(NOON + timedelta(hours=23, minutes=59))
    assert not await has_written(NOON + day)
    async with acme.transaction() as connection:
        await messages.add(connection, "acme", conversation, "customer", "message", "hola")
    assert await has_written(None), "by the database's own clock"


async def test_seen_and_answered_go_forward_only_and_seen_never_past_the_last_message(acme: Database) -> None:
    conversation = await opened(acme, await meet(acme, "+1", "1"))
    async with acme.transaction() as connection:
        for _ in range(3):
            await messages.add(connection, "acme", conversation, "customer", "message", "hola")
    marks = []
    for seq in (2, 1, 99, 0):
        async with acme.transaction() as connection:
            await conversations.mark_seen(connection, "acme", conversation, seq)
            await conversations.mark_answered(connection, "acme", conversation, min(seq, 3))
            row = (await connection.execute(text("select seen_seq, answered_seq from conversations"))).one()
            marks.append((row.seen_seq, row.answered_seq))
    assert marks == [(2, 2), (2, 2), (3, 3), (3, 3)]


async def test_half_a_lane_cannot_be_written(acme: Database) -> None:
    await opened(acme, await meet(acme, "+1", "1"))
    with pytest.raises(IntegrityError, match="lane_is_whole"):
        async with acme.transaction() as connection:
            await connection.execute(text("update conversations set lane_task = 1"))
