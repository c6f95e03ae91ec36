"""Several messages in quick succession are one turn."""

import asyncio
from datetime import datetime, timedelta

import pytest

from scheduler import settle
from scheduler.clock import Clock, MovableClock
from scheduler.gather import LONGEST, gather_turn
from scheduler.task import Task
from store import messages
from store.database import Database
from tests.support.claims import fields, take
from tests.support.factories import a_conversation, states

PAUSE = timedelta(seconds=2)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def write(
    database: Database, clock: Clock, conversation: int, *, pause: timedelta = PAUSE, reply_to: str | None = None
) -> int:
    """A customer's message comes in, as the inbox records it."""
    async with database.transaction() as connection:
        await messages.add(connection, "acme", conversation, "customer", "message", "hola", now=clock.override())
        return await gather_turn(
            connection, clock, tenant="acme", conversation=conversation, channel="web", reply_to=reply_to, pause=pause
        )


async def due(database: Database, task: int) -> datetime:
    (at,) = await fields(database, task, "due_at")
    assert isinstance(at, datetime)
    return at


async def test_messages_in_quick_succession_join_one_turn_which_waits_until_they_pause(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    turn = await write(database, clock, conversation, reply_to="m1")
    assert await due(database, turn) == clock.at + PAUSE
    clock.move(SECOND)
    assert await write(database, clock, conversation, reply_to="m2") == turn
    assert await due(database, turn) == clock.at + PAUSE
    assert await fields(database, turn, "reply_to", "lane", "kind") == ("m1", True, "turn")
    assert await states(database) == {turn: "scheduled"}
    clock.move(PAUSE)
    assert [task.id for task in await take(database, clock)] == [turn]


async def test_somebody_who_never_stops_typing_is_answered_all_the_same(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    began = clock.at
    turn = await write(database, clock, conversation)
    for _ in range(10):
        clock.move(SECOND)
        assert await write(database, clock, conversation) == turn
    assert await due(database, turn) == began + LONGEST


async def test_a_further_message_never_makes_a_turn_due_earlier(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    turn = await write(database, clock, conversation)
    assert await write(database, clock, conversation, pause=timedelta()) == turn
    assert await due(database, turn) == clock.at + PAUSE


async def test_a_message_that_comes_while_a_turn_is_being_answered_gets_a_turn_of_its_own(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    first = await write(database, clock, conversation, pause=timedelta())
    (answering,) = await take(database, clock)
    second = await write(database, clock, conversation)
    assert second != first
    assert await write(database, clock, conversation) == second
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, answering, 2)
    clock.move(PAUSE)
    assert [task.id for task in await take(database, clock)] == [second]


async def test_a_turn_whose_answer_is_written_is_not_joined_since_it_would_not_answer_the_new_message(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    first = await write(database, clock, conversation, pause=timedelta())
    (answering,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, answering, hold="channel paused", words="written before")
    assert await write(database, clock, conversation) != first


async def test_a_turn_that_backs_off_is_joined_and_not_hurried(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    first = await write(database, clock, conversation, pause=timedelta())
    (answering,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, answering, delay=timedelta(minutes=1), error="the model is down")
    assert await write(database, clock, conversation) == first
    assert await due(database, first) == clock.at + timedelta(minutes=1)


async def test_each_conversation_has_its_own_turn(database: Database, clock: MovableClock, conversation: int) -> None:
    async with database.transaction() as connection:
        other = await a_conversation(connection, address="bea")
    assert await write(database, clock, conversation) != await write(database, clock, other)


async def test_twenty_messages_at_once_are_one_turn(database: Database, clock: MovableClock, conversation: int) -> None:
    assert len(set(await asyncio.gather(*(write(database, clock, conversation) for _ in range(20))))) == 1
    assert len(await states(database)) == 1


async def test_a_message_joins_no_turn_whose_worker_has_read_without_it(database: Database, conversation: int) -> None:
    clock = Clock()

    async def work() -> tuple[list[Task], int]:
        claimed = await take(database, clock)
        async with database.transaction() as connection:
            return claimed, len(await messages.read(connection, "acme", conversation, limit=1000))

    said = 0
    for _ in range(15):
        turn = await write(database, clock, conversation, pause=timedelta())
        joined, (claimed, read) = await asyncio.gather(write(database, clock, conversation, pause=timedelta()), work())
        said += 2
        if claimed and joined == turn:
            assert read == said
        while claimed := claimed or await take(database, clock):
            async with database.transaction() as connection:
                await settle.deliver(connection, clock, claimed.pop(), None)
        assert set((await states(database)).values()) == {"fired"}
