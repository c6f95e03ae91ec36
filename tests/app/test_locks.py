"""Whoever meets in one chat at the same moment: one waits for the other, and never each for the other."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.moved import follow
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.hold import TOPIC_GONE, release
from store import contacts, conversations, messages
from store.contacts import Contact
from store.conversations import Conversation, Opened
from store.database import Database
from tests.app.test_telegram import (
    BOOKED,
    DUE,
    IN_TOPIC,
    IS_NOW_A_SUPERGROUP,
    a_followup_whose_topic_is_gone,
    an_office,
    asked_and_answered,
    goes_by,
    hands_in,
    sends,
    until_answered,
    update,
)
from tests.support.house import House
from tests.support.model import books
from tests.support.telegram_faults import HOLD, TelegramFaults, refused, telegram_faults
from tests.support.wait import eventually, waits_for_a_lock

GROUP, TOPIC = "-1007", "15"
BLOCKED = refused(403, "Forbidden: bot was blocked by the user")


@pytest.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


async def is_met(connection: AsyncConnection, address: str, name: str, thread: str | None = None) -> Opened:
    """Somebody's message begins to be taken in."""
    return await conversations.open_with(connection, Contact("acme", "telegram", address, address, name), thread)


async def writes(connection: AsyncConnection, conversation: int) -> None:
    """Their message is numbered."""
    await messages.add(connection, "acme", conversation, "customer", "message", "hello")


async def begins(database: Database, other: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Let another begin, and return when it waits for a lock."""
    begun = asyncio.create_task(other)
    await eventually(lambda: waits_for_a_lock(database))
    return begun


async def stopped(house: House, conversation: int) -> str | None:
    async with house.service.database.transaction() as connection:
        found = await conversations.find(connection, "acme", conversation)
    assert found is not None
    return found.stopped


async def test_a_block_found_in_sending_while_the_customer_writes_stops_nothing(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        talk = await asked_and_answered(house, clock)
        (task,) = await house.tasks()
        faults.fallbacks["sendMessage"] = HOLD
        await goes_by(house, clock, DUE)
        await eventually(lambda: len(sends(faults)) == 2)
        async with database.transaction() as writing:
            await is_met(writing, "42", "Ana Maria")
            faults.let_go(BLOCKED)
            await house.until_state(task.id, "failed")
            await writes(writing, talk.id)
        assert await stopped(house, talk.id) is None


async def test_two_messages_of_somebody_who_had_blocked_the_bot_are_both_taken_in(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, "Hello.") as house:
        talk = await asked_and_answered(house, clock)
        async with database.transaction() as connection:
            await contacts.stop(connection, "acme", talk.id, "provider")
        async with database.transaction() as writing:
            await is_met(writing, "42", "Ana")
            await writes(writing, talk.id)
            again = house.says("hello", channel="telegram", address="42", name="Ana Maria")
            other = await begins(database, again)
            assert await contacts.go_on(writing, "acme", talk.id, "provider")
        assert (await other).is_new


async def test_a_command_that_cancels_what_waits_for_its_topic_and_a_message_in_that_topic_are_both_obeyed(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        (task,) = await house.tasks()
        async with database.transaction() as writing:
            await is_met(writing, GROUP, "Ana", TOPIC)
            assert (await cancel(writing, clock, "acme", [task.id])).cancelled == [task.id]
            hello = house.says("hello", channel="telegram", address=GROUP, thread=TOPIC, name="Ana")
            other = await begins(database, hello)
            await writes(writing, task.conversation or 0)
        assert (await other).is_new
        assert (await house.until_state(task.id, "cancelled")).hold is None


async def test_a_group_that_moves_while_somebody_writes_in_it_takes_their_message_along(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        (task,) = await house.tasks()

        async def move() -> None:
            async with database.transaction() as moving:
                await follow(moving, "acme", "telegram", GROUP, "-100777")

        async with database.transaction() as writing:
            await is_met(writing, GROUP, "Bea", TOPIC)
            await writes(writing, task.conversation or 0)
            moved = await begins(database, move())
            assert await release(writing, clock, "acme", TOPIC_GONE, conversation=task.conversation) == 1
        await moved
        async with database.transaction() as connection:
            assert await conversations.of_address(connection, "acme", "telegram", "-100777") == task.conversation


async def test_a_move_found_out_in_sending_while_somebody_writes_there_waits_for_them(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        talk = await asked_and_answered(house, clock, chat={"id": -7, "type": "group"}, text="/remind me")
        (task,) = await house.tasks()
        faults.fallbacks["sendMessage"] = HOLD
        await goes_by(house, clock, DUE)
        await eventually(lambda: len(sends(faults)) == 2)
        async with database.transaction() as writing:
            await is_met(writing, "-7", "Bea")
            faults.fallbacks.clear()
            faults.let_go(refused(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=-100777))
            await eventually(lambda: waits_for_a_lock(database))
            await writes(writing, talk.id)
        assert (await house.until_state(task.id, "fired")).outcome == "delivered"
        assert sends(faults)[-1].fields["chat_id"] == "-100777"


async def meets(database: Database, other: Callable[[], object], first: int, last: int) -> None:
    """Somebody has the first of two tasks when the other begins, and takes the last; else each would wait for the other."""
    lock = text("select id from tasks where id = :id for update")
    async with database.transaction() as connection:
        await connection.execute(lock, {"id": first})
        other()
        await eventually(lambda: waits_for_a_lock(database))
        await connection.execute(lock, {"id": last})


@asynccontextmanager
async def a_followup_in_each_of_two_topics(
    database: Database, directory: Path, clock: MovableClock, faults: TelegramFaults
) -> AsyncIterator[tuple[House, Conversation, list[int]]]:
    """The group, where one falls due in the topic that was opened first, and has the higher number."""
    lines = ("Hello.", books("call Bea", delay="1 hour"), "Booked.", *BOOKED)
    async with an_office(database, directory, clock, faults, *lines) as house:
        talk = await asked_and_answered(house, clock, **{**IN_TOPIC, "text": "/hello"})
        await hands_in(house, update(1002, **{**IN_TOPIC, "message_thread_id": 16}))
        await until_answered(house, clock)
        await hands_in(house, update(1003, **IN_TOPIC))
        await until_answered(house, clock)
        yield house, talk, sorted(task.id for task in await house.tasks())


async def test_what_is_pending_in_all_topics_of_a_group_that_moves_is_taken_in_the_order_in_which_others_take_it(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_in_each_of_two_topics(database, tmp_path, clock, faults) as (_, talk, (other, due)):

        async def move() -> None:
            async with database.transaction() as moving:
                await follow(moving, "acme", "telegram", GROUP, "-100777")

        moving = list[asyncio.Task[None]]()
        await meets(database, lambda: moving.append(asyncio.create_task(move())), other, due)
        await moving[0]
        async with database.transaction() as connection:
            assert await conversations.of_address(connection, "acme", "telegram", "-100777") == talk.id


async def test_so_it_is_when_the_move_is_found_out_in_sending(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_in_each_of_two_topics(database, tmp_path, clock, faults) as (house, _, (other, due)):
        faults.fallbacks["sendMessage"] = HOLD
        before = len(sends(faults))
        await goes_by(house, clock, DUE)
        await eventually(lambda: len(sends(faults)) > before)
        faults.fallbacks.clear()
        await meets(database, lambda: faults.let_go(IS_NOW_A_SUPERGROUP), other, due)
        assert (await house.until_state(due, "fired")).outcome == "delivered"
        assert sends(faults)[-1].fields["chat_id"] == "-100777"
