"""The log of a conversation."""

import asyncio
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from store import conversations, messages
from store.database import Database
from store.messages import Kind, Role
from tests.support.factories import a_conversation

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def say(
    database: Database, conversation: int, words: str = "hola", *, tenant: str = "acme", key: str | None = None
) -> int:
    async with database.transaction() as connection:
        return await messages.add(
            connection, tenant, conversation, "customer", "message", words, now=NOON, inbound_key=key
        )


async def test_messages_written_at_once_are_numbered_without_holes(database: Database, conversation: int) -> None:
    numbers = await asyncio.gather(*(say(database, conversation, str(n)) for n in range(20)))
    assert sorted(numbers) == list(range(1, 21))
    async with database.transaction() as connection:
        log = await messages.read(connection, "acme", conversation)
    assert {line.seq: line.text for line in log} == {seq: str(n) for n, seq in enumerate(numbers)}


async def test_a_message_that_is_rolled_back_leaves_no_hole(database: Database, conversation: int) -> None:
    async def change_ones_mind() -> None:
        async with database.transaction() as connection:
            assert await messages.add(connection, "acme", conversation, "assistant", "reply", "no") == 2
            raise RuntimeError("changed my mind")

    await say(database, conversation)
    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_ones_mind()
    assert await say(database, conversation) == 2


async def test_a_repeated_webhook_stops_at_its_key_and_changes_nothing(database: Database, conversation: int) -> None:
    await say(database, conversation, "first", key="telegram 7")
    with pytest.raises(IntegrityError, match="messages_of_inbound"):
        await say(database, conversation, "again", key="telegram 7")
    async with database.transaction() as connection:
        assert [line.text for line in await messages.read(connection, "acme", conversation)] == ["first"]
        assert await messages.seq_of_inbound(connection, "acme", "telegram 7") == (conversation, 1)
        assert await messages.seq_of_inbound(connection, "acme", "telegram 8") is None
    assert await say(database, conversation, "next", key="telegram 8") == 2


async def test_of_one_webhook_delivered_ten_times_at_once_one_message_is_recorded(
    database: Database, conversation: int
) -> None:
    done = await asyncio.gather(
        *(say(database, conversation, key="telegram 7") for _ in range(10)), return_exceptions=True
    )
    assert [one for one in done if not isinstance(one, IntegrityError)] == [1]


async def test_two_tenants_may_be_given_the_same_provider_id(database: Database, conversation: int) -> None:
    async with database.transaction() as connection:
        other = await a_conversation(connection, "rival")
    await say(database, conversation, key="telegram 7")
    await say(database, other, tenant="rival", key="telegram 7")
    async with database.transaction() as connection:
        assert await messages.seq_of_inbound(connection, "rival", "telegram 7") == (other, 1)
        assert await messages.read(connection, "rival", conversation) == []


async def test_reading_goes_on_from_a_number_or_back_from_one(database: Database, conversation: int) -> None:
    for n in range(10):
        await say(database, conversation, str(n + 1))

    async def read(**chosen: int) -> list[int]:
        async with database.transaction() as connection:
            return [line.seq for line in await messages.read(connection, "acme", conversation, **chosen)]

    assert await read() == list(range(1, 11))
    assert await read(after=7) == [8, 9, 10]
    assert await read(after=3, limit=2) == [4, 5]
    assert await read(before=4) == [1, 2, 3]
    assert await read(before=8, limit=3) == [5, 6, 7]
    assert await read(after=2, before=5) == [3, 4]
    assert await read(after=10) == await read(before=1) == []


async def test_what_is_to_be_answered_is_read_with_what_was_said_beside_it(
    database: Database, conversation: int
) -> None:
    async with database.transaction() as connection:
        for words in "cccaccaac":
            role: tuple[Role, Kind] = ("customer", "message") if words == "c" else ("assistant", "followup")
            await messages.add(connection, "acme", conversation, *role, words)

    async def to_answer(answered: int, most: int, history: int, tenant: str = "acme") -> tuple[list[int], list[int]]:
        async with database.transaction() as connection:
            read = await messages.to_answer(connection, tenant, conversation, answered, most=most, history=history)
        return [line.seq for line in read[0]], [line.seq for line in read[1]]

    assert await to_answer(2, 50, 3) == ([4, 7, 8], [3, 5, 6, 9])
    assert await to_answer(2, 2, 4) == ([4, 5, 7, 8], [6, 9]), "what one answer cannot be to stands beside it"
    assert await to_answer(9, 50, 2) == ([8, 9], [])
    assert await to_answer(0, 50, 50, "rival") == ([], [])


async def test_only_the_customer_moves_the_time_of_the_last_word_from_outside(
    database: Database, conversation: int
) -> None:
    await say(database, conversation)
    async with database.transaction() as connection:
        await messages.add(connection, "acme", conversation, "assistant", "followup", "¡volví!", task=5)
        it = await conversations.find(connection, "acme", conversation)
        tasks = (await connection.execute(text("select task from messages order by seq"))).scalars().all()
    assert it is not None
    assert (it.last_inbound_at, it.last_seq) == (NOON, 2)
    assert tasks == [None, 5]


async def test_a_text_comes_back_as_it_was_said(database: Database, conversation: int) -> None:
    words = " ¿Qué tal?\n\t👩‍👩‍👧 \u202eabc\u202c 'quoted' \\ %s :name \U0001f9ff "
    await say(database, conversation, words)
    async with database.transaction() as connection:
        (line,) = await messages.read(connection, "acme", conversation)
    assert (line.text, line.at, line.role, line.kind) == (words, NOON, "customer", "message")


@pytest.mark.parametrize(("role", "kind"), [("customer", "reply"), ("assistant", "message")])
async def test_nobody_speaks_in_anothers_place(database: Database, conversation: int, role: Role, kind: Kind) -> None:
    with pytest.raises(IntegrityError, match="kind_of_role"):
        async with database.transaction() as connection:
            await messages.add(connection, "acme", conversation, role, kind, "hola")
