"""Conversations and the contacts they are held with."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

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


async def test_who_writes_is_met_and_their_conversation_opened_in_one_step(acme: Database) -> None:
    async def write(key: str = "5255", thread: str | None = None, tenant: str = "acme", **told: Any) -> Conversation:
        async with acme.transaction() as connection:
            contact = Contact(tenant, "whatsapp", told.pop("address", "+52 55"), key, **told)
            it = await conversations.open_with(connection, contact, thread)
        return await found(acme, it.id, tenant)

    async with acme.transaction() as connection:
        await a_tenant(connection, "rival")
    first = await write(name="Ana", language="es")
    again = await write(time_zone="America/Bogota")
    assert again == replace(first, time_zone="America/Bogota"), "what is not told again is kept"
    assert await write(address="+52 1 55", name="Eva") == replace(again, address="+52 1 55", name="Eva")
    others = [await write(key="other"), await write(thread="7"), await write(tenant="rival")]
    assert len({first.id, *(other.id for other in others)}) == 4
    assert (await write(thread="7")).id == others[1].id


async def test_for_how_long_a_customer_was_silent_is_told_by_the_given_time(acme: Database) -> None:
    contact = Contact("acme", "whatsapp", "+1", "1")

    async def write(now: datetime | None) -> timedelta | None:
        async with acme.transaction() as connection:
            it = await conversations.open_with(connection, contact, None, now=now)
            await messages.add(connection, "acme", it.id, "customer", "message", "hola", now=now)
            await messages.add(connection, "acme", it.id, "assistant", "reply", "hola", now=NOON + timedelta(days=9))
            return it.silence

    assert await write(NOON) is None, "never"
    assert await write(NOON + timedelta(hours=23)) == timedelta(hours=23)
    await write(None)
    silence = await write(None)
    assert silence is not None
    assert silence < timedelta(hours=1), "by the database's own clock"


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


async def test_of_the_conversations_with_an_address_the_first_is_found_and_of_nobody_elses(acme: Database) -> None:
    ana = await meet(acme, "whatsapp:+1", "+1")
    first, _ = await opened(acme, ana, "7"), await opened(acme, ana)
    async with acme.transaction() as connection:
        for asked, expected in [
            (("acme", "whatsapp", "+1"), first),
            (("acme", "whatsapp", "+2"), None),
            (("acme", "telegram", "+1"), None),
            (("globex", "whatsapp", "+1"), None),
        ]:
            assert await conversations.of_address(connection, *asked) == expected
