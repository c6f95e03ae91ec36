"""What an operator may do to a task that has ended."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import operate, settle
from scheduler.clock import Clock, MovableClock
from scheduler.events import story
from scheduler.task import Task
from store.database import Database
from tests.support.claims import fields, take
from tests.support.factories import a_conversation, a_followup, a_turn

WHO = "eva: the token was renewed"
Move = Callable[[AsyncConnection, Clock, str, int, str], Awaitable[bool]]


async def arrived(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    return await operate.settle(connection, clock, tenant, task, by, is_delivered=True)


async def did_not_arrive(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
    return await operate.settle(connection, clock, tenant, task, by, is_delivered=False)


async def a_task_to_say(database: Database, clock: Clock) -> Task:
    async with database.transaction() as connection:
        await a_followup(connection, clock, await a_conversation(connection))
    (writing,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.keep_text(connection, clock, writing, "Call Ana")
    (saying,) = await take(database, clock)
    return saying


@pytest.mark.parametrize(
    ("move", "begins", "becomes", "event"),
    [
        (operate.retry, "failed", "scheduled", ("retried", WHO)),
        (operate.discard, "failed", "cancelled", ("discarded", WHO)),
        (arrived, "uncertain", "fired", ("settled", f"delivered, as {WHO}")),
        (did_not_arrive, "uncertain", "failed", ("settled", f"not delivered, as {WHO}")),
        (operate.resume, "uncertain", "scheduled", ("resumed", WHO)),
    ],
)
async def test_each_move_starts_from_its_own_state_and_is_recorded_with_who_and_why(
    database: Database, clock: MovableClock, move: Move, begins: str, becomes: str, event: tuple[str, str]
) -> None:
    saying = await a_task_to_say(database, clock)
    for state in ("firing", "failed", "uncertain"):
        async with database.transaction() as connection:
            if state == "failed":
                await settle.fail(connection, clock, saying, "refused")
            elif state == "uncertain":
                await operate.retry(connection, clock, "acme", saying.id, "to begin anew")
        if state == "uncertain":
            (saying,) = await take(database, clock)
            async with database.transaction() as connection:
                await settle.leave_uncertain(connection, clock, saying, "cut off")
        async with database.transaction() as connection:
            assert not await move(connection, clock, "rival", saying.id, WHO)
            moved = await move(connection, clock, "acme", saying.id, WHO)
        if moved:
            break
    assert state == begins
    assert await fields(database, saying.id, "state") == (becomes,)
    async with database.transaction() as connection:
        last = (await story(connection, "acme", saying.id))[-1]
    assert (last.event, last.detail) == event


async def test_a_retried_followup_is_said_in_the_words_it_had_with_all_its_attempts(
    database: Database, clock: MovableClock
) -> None:
    saying = await a_task_to_say(database, clock)
    async with database.transaction() as connection:
        await settle.fail(connection, clock, saying, "refused")
        assert await operate.retry(connection, clock, "acme", saying.id, WHO)
    (again,) = await take(database, clock)
    assert (again.id, again.text, again.lane, again.attempt, again.sending) == (saying.id, "Call Ana", True, 1, False)


async def test_a_retried_turn_says_what_it_had_since_nothing_is_left_to_answer(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, await a_conversation(connection))
    (turn,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, turn, "We open at nine.")
        await settle.fail(connection, clock, turn, "refused")
        assert await operate.retry(connection, clock, "acme", turn.id, WHO)
    (again,) = await take(database, clock)
    assert (again.id, again.text, again.sending) == (turn.id, "We open at nine.", False)


async def test_what_is_resumed_still_stands_behind_the_second_door(database: Database, clock: MovableClock) -> None:
    saying = await a_task_to_say(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, saying, "Call Ana")
        await settle.leave_uncertain(connection, clock, saying, "cut off")
        assert await operate.resume(connection, clock, "acme", saying.id, "Twilio: delivered")
    (again,) = await take(database, clock)
    assert (again.id, again.sending, again.text) == (saying.id, True, "Call Ana")


async def test_what_waits_behind_the_second_door_for_a_word_is_resumed_too_and_nothing_else_that_waits(
    database: Database, clock: MovableClock
) -> None:
    saying = await a_task_to_say(database, clock)
    for has_begun in (False, True):
        async with database.transaction() as connection:
            if has_begun:
                await settle.open_door(connection, clock, saying, "Call Ana")
            await settle.give_back(connection, clock, saying, delay=timedelta(minutes=5), error="lost", is_fault=False)
            assert await operate.resume(connection, clock, "acme", saying.id, "Twilio: sent") is has_begun
        assert bool(await take(database, clock)) is has_begun
        if not has_begun:
            clock.move(timedelta(minutes=5))
            (saying,) = await take(database, clock)
