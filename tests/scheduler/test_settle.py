"""Settling, where test_claim.py leaves off: every way out of `firing`."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import cancel, settle
from scheduler.clock import Clock, MovableClock
from scheduler.errors import LostClaim
from scheduler.task import Task
from store import messages
from store.database import Database
from tests.support.claims import LEASE, fields, row_of, take
from tests.support.factories import a_conversation, a_followup, a_turn, lanes, states

MINUTE = timedelta(minutes=1)
Settle = Callable[[AsyncConnection, Clock, Task], Awaitable[object]]

ENDS: dict[str, Settle] = {
    "deliver": lambda connection, clock, task: settle.deliver(connection, clock, task, 7),
    "skip": lambda connection, clock, task: settle.skip(connection, clock, task, "opted out"),
    "fail": lambda connection, clock, task: settle.fail(connection, clock, task, "no such number"),
    "leave uncertain": lambda connection, clock, task: settle.leave_uncertain(connection, clock, task, "cut off"),
    "cancel": settle.cancel,
    "expire": settle.expire,
}
OTHER_WAYS: dict[str, Settle] = {
    "give back": settle.give_back,
    "keep the text": lambda connection, clock, task: settle.keep_text(connection, clock, task, "words"),
    "open the door": lambda connection, clock, task: settle.open_door(connection, clock, task, "words"),
    "ask for the door": lambda connection, _clock, task: settle.is_sending(connection, task),
    "ask for a cancel": lambda connection, _clock, task: settle.is_cancelled(connection, task),
}


async def a_claim(database: Database, clock: Clock) -> Task:
    """A turn that is being performed."""
    async with database.transaction() as connection:
        await a_turn(connection, clock, await a_conversation(connection))
    (task,) = await take(database, clock)
    return task


async def do(database: Database, what: Settle, clock: Clock, task: Task) -> object:
    async with database.transaction() as connection:
        return await what(connection, clock, task)


async def give_back(database: Database, clock: Clock, task: Task, **how: Any) -> str:
    async with database.transaction() as connection:
        return await settle.give_back(connection, clock, task, **how)


@pytest.mark.parametrize(
    ("end", "state", "outcome", "error", "message"),
    [
        ("deliver", "fired", "delivered", None, 7),
        ("skip", "fired", "skipped: opted out", None, None),
        ("fail", "failed", None, "no such number", None),
        ("leave uncertain", "uncertain", None, "cut off", None),
        ("cancel", "cancelled", None, None, None),
        ("expire", "expired", None, None, None),
    ],
)
async def test_every_end_says_what_became_of_the_task_and_frees_everything(
    database: Database, clock: MovableClock, end: str, state: str, outcome: str | None, error: str | None, message: int
) -> None:
    task = await a_claim(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, task, "words")
    clock.move(MINUTE)
    await do(database, ENDS[end], clock, task)
    row = await row_of(database, task.id)
    assert (row["state"], row["outcome"], row["error"], row["message_seq"]) == (state, outcome, error, message)
    assert (row["ended_at"], row["worker"], row["lease_until"], row["sending"]) == (clock.at, None, None, False)
    assert set((await lanes(database)).values()) == {None}


@pytest.mark.parametrize("name", [*ENDS, *OTHER_WAYS])
async def test_a_claim_that_has_ended_settles_nothing_more_and_undoes_what_came_with_it(
    database: Database, clock: MovableClock, name: str
) -> None:
    task = await a_claim(database, clock)
    assert task.conversation is not None
    await do(database, settle.expire, clock, task)
    before = await row_of(database, task.id)

    async def speak_and_settle() -> None:
        async with database.transaction() as connection:
            assert task.conversation is not None
            await messages.add(connection, "acme", task.conversation, "assistant", "reply", "said by nobody")
            await {**ENDS, **OTHER_WAYS}[name](connection, clock, task)

    with pytest.raises(LostClaim, match=f"task {task.id} of tenant acme is no longer held with fence 1"):
        await speak_and_settle()
    assert await row_of(database, task.id) == before
    async with database.transaction() as connection:
        assert await messages.read(connection, "acme", task.conversation) == []


async def test_a_retry_is_due_after_its_delay_with_the_attempt_and_the_error_kept(
    database: Database, clock: MovableClock
) -> None:
    task = await a_claim(database, clock)
    clock.move(MINUTE)
    assert await give_back(database, clock, task, delay=5 * MINUTE, error="the model is down") == "scheduled"
    row = await row_of(database, task.id)
    assert (row["due_at"], row["booked_for"]) == (clock.at + 5 * MINUTE, task.booked_for)
    assert (row["attempt"], row["error"], row["hold"], row["text"]) == (1, "the model is down", None, None)
    assert await take(database, clock) == []
    clock.move(5 * MINUTE)
    (again,) = await take(database, clock)
    assert (again.attempt, again.fence) == (2, 2)
    assert await give_back(database, clock, again) == "scheduled"
    assert await fields(database, task.id, "attempt", "error", "due_at") == (1, "the model is down", clock.at), (
        "without an error nothing was at fault: the attempt is not counted, and the last error is kept"
    )


async def test_what_is_given_back_at_once_keeps_its_place(database: Database, clock: MovableClock) -> None:
    task = await a_claim(database, clock)
    clock.move(MINUTE)
    async with database.transaction() as connection:
        await a_turn(connection, clock, task.conversation or 0)
    assert await give_back(database, clock, task) == "scheduled"
    assert [again.id for again in await take(database, clock)] == [task.id]


async def test_words_once_kept_are_not_lost_by_giving_back_without_any(database: Database, clock: MovableClock) -> None:
    task = await a_claim(database, clock)
    await give_back(database, clock, task, words="first")
    (task,) = await take(database, clock)
    assert task.text == "first"
    await give_back(database, clock, task)
    (task,) = await take(database, clock)
    await give_back(database, clock, task, words="second")
    assert await fields(database, task.id, "text") == ("second",)


async def test_what_is_nobodys_fault_is_told_and_not_counted_and_the_message_it_is_taken_for_is_kept(
    database: Database, clock: MovableClock
) -> None:
    task = await a_claim(database, clock)
    await give_back(database, clock, task, error="lost", is_fault=False, message_seq=7)
    assert await fields(database, task.id, "attempt", "error", "message_seq") == (0, "lost", 7)
    (task,) = await take(database, clock)
    await give_back(database, clock, task, error="busy")
    assert await fields(database, task.id, "attempt", "error", "message_seq") == (1, "busy", 7)


async def test_what_went_through_the_second_door_stays_there_unless_it_certainly_did_not_go_out(
    database: Database, clock: MovableClock
) -> None:
    task = await a_claim(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, task, "words")
    await give_back(database, clock, task, error="cut off")
    assert await fields(database, task.id, "sending", "text") == (True, "words")
    (task,) = await take(database, clock)
    assert task.sending
    await give_back(database, clock, task, error="busy", is_unsent=True)
    assert await fields(database, task.id, "sending", "text") == (False, "words")


@pytest.mark.parametrize(
    ("has_begun", "is_unsent", "state"),
    [(False, False, "cancelled"), (True, False, "scheduled"), (True, True, "cancelled")],
)
async def test_a_cancelled_task_that_is_given_back_is_cancelled_unless_something_may_have_gone_out(
    database: Database, clock: MovableClock, has_begun: bool, is_unsent: bool, state: str
) -> None:
    task = await a_claim(database, clock)
    async with database.transaction() as connection:
        if has_begun:
            await settle.open_door(connection, clock, task, "words")
        assert (await cancel.cancel(connection, clock, "acme", [task.id])).raced == [task.id]
    how = {"delay": MINUTE, "hold": "channel paused", "error": "refused", "is_unsent": is_unsent}
    assert await give_back(database, clock, task, **how) == state
    row = await row_of(database, task.id)
    assert row["state"] == state
    assert row["ended_at"] == (clock.at if state == "cancelled" else None)
    assert row["hold"] == (None if state == "cancelled" else "channel paused")
    assert set((await lanes(database)).values()) == {None}


async def test_a_kept_text_starts_its_attempts_anew_and_waits_for_the_lane(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        await a_followup(connection, clock, await a_conversation(connection))
    (writing,) = await take(database, clock)
    await give_back(database, clock, writing, error="again")
    (writing,) = await take(database, clock)
    assert writing.attempt == 2
    async with database.transaction() as connection:
        assert await settle.keep_text(connection, clock, writing, "Ana!") == "scheduled"
    assert await fields(database, writing.id, "text", "lane", "attempt", "state") == ("Ana!", True, 0, "scheduled")


async def test_a_cancel_is_seen_by_whoever_asks_and_waits_for_who_has_asked(
    database: Database, clock: MovableClock
) -> None:
    task = await a_claim(database, clock)
    async with database.transaction() as connection:
        assert not await settle.is_cancelled(connection, task)
        await settle.deliver(connection, clock, task, 1)
    async with database.transaction() as connection:
        done = await cancel.cancel(connection, clock, "acme", [task.id])
    assert (done.cancelled, done.raced) == ([], [])


async def test_the_lane_of_a_later_claim_is_not_freed_by_an_earlier_one(
    database: Database, clock: MovableClock
) -> None:
    first = await a_claim(database, clock)
    await give_back(database, clock, first)
    (second,) = await take(database, clock)
    with pytest.raises(LostClaim):
        await give_back(database, clock, first)
    assert await lanes(database) == {second.conversation: second.id}
    clock.move(LEASE * 2)
    await do(database, settle.expire, clock, second)
    assert await states(database) == {second.id: "expired"}, "nobody recovered it, so it is still this worker's"
