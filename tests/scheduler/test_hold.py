"""Holds, and what ends them."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scheduler import settle
from scheduler.clock import Clock, MovableClock
from scheduler.events import story
from scheduler.hold import CHANNEL_PAUSED, ENDED_BY, TOPIC_GONE, WINDOW_CLOSED, WITH_PERSON, keep_waiting, release
from store.database import Database
from tests.support.claims import fields, take
from tests.support.factories import a_conversation, a_turn, lanes, states
from tests.support.wait import eventually, waits_for_a_lock

HOUR = timedelta(hours=1)


async def held(database: Database, clock: Clock, conversation: int, reason: str, *, tenant: str = "acme") -> int:
    """A turn that was claimed and found that it has to wait."""
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation, tenant=tenant)
    (task,) = await take(database, clock)
    async with database.transaction() as connection:
        assert await settle.give_back(connection, clock, task, hold=reason, words="when you are back") == "scheduled"
    return task.id


async def do_release(database: Database, clock: Clock, reason: str, tenant: str = "acme", **chosen: int) -> int:
    async with database.transaction() as connection:
        return await release(connection, clock, tenant, reason, **chosen)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def test_a_held_task_is_not_claimed_keeps_its_words_and_leaves_the_lane_to_others(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    waiting = await held(database, clock, conversation, WINDOW_CLOSED)
    assert await lanes(database) == {conversation: None}
    clock.move(HOUR)
    assert await take(database, clock) == []
    async with database.transaction() as connection:
        turn = await a_turn(connection, clock, conversation)
    assert [task.id for task in await take(database, clock)] == [turn.id]
    assert await fields(database, waiting, "state", "hold", "text", "attempt", "error") == (
        "scheduled",
        WINDOW_CLOSED,
        "when you are back",
        0,
        None,
    )


async def test_a_released_task_is_due_at_once_and_is_said_as_it_was_written(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    waiting = await held(database, clock, conversation, WINDOW_CLOSED)
    booked = clock.at
    clock.move(HOUR)
    assert await do_release(database, clock, WINDOW_CLOSED) == 1
    (task,) = await take(database, clock)
    assert (task.id, task.text, task.booked_for, task.due_at) == (waiting, "when you are back", booked, booked)
    assert await fields(database, waiting, "hold") == (None,)


async def test_a_task_that_was_to_wait_longer_than_its_hold_is_due_when_the_hold_ends(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
    (task,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, task, hold=CHANNEL_PAUSED, delay=HOUR, error="refused")
    clock.move(timedelta(minutes=1))
    assert await do_release(database, clock, CHANNEL_PAUSED) == 1
    assert [again.id for again in await take(database, clock)] == [task.id]


async def test_a_release_ends_one_hold_of_one_tenant_and_if_named_one_conversation(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        ana, bea = [await a_conversation(connection, address=address) for address in ("ana", "bea")]
        theirs = await a_conversation(connection, "rival")
    of_ana = await held(database, clock, ana, WINDOW_CLOSED)
    of_bea = await held(database, clock, bea, WINDOW_CLOSED)
    paused = await held(database, clock, ana, CHANNEL_PAUSED)
    rivals = await held(database, clock, theirs, WINDOW_CLOSED, tenant="rival")

    async def still_held() -> set[int]:
        return {task for task in await states(database) if (await fields(database, task, "hold"))[0]}

    assert await do_release(database, clock, WINDOW_CLOSED, conversation=bea) == 1
    assert await still_held() == {of_ana, paused, rivals}
    assert await do_release(database, clock, WINDOW_CLOSED) == 1
    assert await still_held() == {paused, rivals}
    assert await do_release(database, clock, CHANNEL_PAUSED, tenant="rival") == 0
    assert await do_release(database, clock, WINDOW_CLOSED, tenant="rival") == 1
    assert await do_release(database, clock, CHANNEL_PAUSED) == 1
    assert await still_held() == set()
    assert {task.id for task in await take(database, clock)} == {of_ana, of_bea, rivals}, "each lane takes one"


@pytest.mark.parametrize("reasons", [(WINDOW_CLOSED, WINDOW_CLOSED), (TOPIC_GONE, WINDOW_CLOSED)])
async def test_what_is_released_is_locked_in_the_order_of_its_numbers_whenever_due_and_whatever_held_for(
    database: Database, clock: MovableClock, conversation: int, reasons: tuple[str, str]
) -> None:
    first, last = [await held(database, clock, conversation, reason) for reason in reasons]
    lock = text("select id from tasks where id = :id for update")

    async def do_release_all() -> int:
        async with database.transaction() as connection:
            return await release(connection, clock, "acme", WINDOW_CLOSED, TOPIC_GONE, conversation=conversation)

    async with database.transaction() as connection:
        later = text("update tasks set due_at = due_at + interval '1 hour' where id = :id")
        await connection.execute(later, {"id": first})
    async with database.transaction() as connection:
        await connection.execute(lock, {"id": first})
        releasing = asyncio.create_task(do_release_all())
        await eventually(lambda: waits_for_a_lock(database))
        await connection.execute(lock, {"id": last})  # else each would wait for the other
    assert await releasing == 2
    async with database.transaction() as connection:
        events = [(await story(connection, "acme", task))[-1] for task in (first, last)]
    assert [(event.event, event.detail) for event in events] == [("released", reason) for reason in reasons]


async def test_a_release_leaves_alone_what_is_not_held(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        later = await a_turn(connection, clock, conversation, due=HOUR)
    assert await do_release(database, clock, WINDOW_CLOSED) == 0
    assert await fields(database, later.id, "due_at") == (clock.at + HOUR,)


async def test_what_was_held_is_said_before_what_came_after_it(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    waiting = await held(database, clock, conversation, WINDOW_CLOSED)
    clock.move(HOUR)
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
    await do_release(database, clock, WINDOW_CLOSED)
    assert [task.id for task in await take(database, clock)] == [waiting]


@pytest.mark.parametrize(
    ("hold", "ended_by"),
    [
        (CHANNEL_PAUSED, {"tenants"}),
        (WINDOW_CLOSED, {"conversations"}),
        (TOPIC_GONE, {"tenants", "conversations"}),
        (WITH_PERSON, {"conversations", "tenants"}),
    ],
)
async def test_whoever_would_end_a_hold_waits_while_a_task_is_being_held_and_nobody_else_does(
    database: Database, clock: MovableClock, conversation: int, hold: str, ended_by: set[str]
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
    (task,) = await take(database, clock)
    changes = {
        "tenants": "update tenants set revision = revision + 1",
        "conversations": "update conversations set last_seq = last_seq + 1",
    }
    waits = set()
    async with database.transaction() as holding:
        await keep_waiting(holding, task, hold)
        for table, change in changes.items():
            try:
                async with database.transaction() as changing:
                    await changing.execute(text("set local lock_timeout = '20ms'"))
                    await changing.execute(text(change))
            except DBAPIError:
                waits.add(table)
    assert waits == ended_by
    assert set(ENDED_BY) == {CHANNEL_PAUSED, WINDOW_CLOSED, TOPIC_GONE, WITH_PERSON}
