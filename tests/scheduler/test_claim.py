"""Claiming, settling and recovery, one statement at a time."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import text

from scheduler import cancel, recovery, settle
from scheduler.claim import PATIENCE, claim
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.task import Pool
from store.database import Database
from tests.support.claims import LEASE, take
from tests.support.factories import a_conversation, a_followup, a_turn, lanes, states


async def test_what_is_not_due_is_not_claimed(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        await a_followup(connection, clock, conversation, due=timedelta(seconds=10))
    assert await take(database, clock) == []
    clock.move(timedelta(seconds=10))
    assert [task.kind for task in await take(database, clock)] == ["followup"]


async def test_two_turns_of_one_conversation_are_claimed_one_after_the_other(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        first = await a_turn(connection, clock, conversation)
        second = await a_turn(connection, clock, conversation)
    (held,) = await take(database, clock)
    assert held.id == first.id
    assert await lanes(database) == {conversation: first.id}
    assert await take(database, clock, "other") == []
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, held, 1)
    (next_held,) = await take(database, clock, "other")
    assert next_held.id == second.id


async def test_a_held_lane_with_thousands_of_due_rows_does_not_starve_other_conversations(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        busy = await a_conversation(connection, address="busy")
        await connection.execute(
            text(
                "insert into tasks (bucket, tenant, kind, conversation, channel, due_at, booked_for, lane)"
                " select bucket, tenant, 'turn', id, 'web', :at, :at, true from conversations, generate_series(1, 2000)"
            ),
            {"at": clock.at - timedelta(hours=1)},
        )
    assert len(await take(database, clock)) == 1
    async with database.transaction() as connection:
        others = [await a_conversation(connection, address=f"other {n}") for n in range(5)]
        for other in others:
            await a_turn(connection, clock, other)
    assert sorted(task.conversation or 0 for task in await take(database, clock)) == others
    assert busy not in others


async def test_a_younger_turn_never_passes_an_elder_whose_row_somebody_holds(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        elder, _ = [await a_turn(connection, clock, conversation) for _ in range(2)]
        elsewhere = await a_turn(connection, clock, await a_conversation(connection, address="somebody else"))
    async with database.transaction() as connection:
        await connection.execute(text("select from tasks where id = :id for update"), {"id": elder.id})
        assert [task.id for task in await take(database, clock)] == [elsewhere.id]
        assert (await lanes(database))[conversation] is None
    assert [task.id for task in await take(database, clock)] == [elder.id]


async def test_an_elder_that_ends_while_it_is_being_claimed_is_not_claimed(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        elder, younger = [await a_turn(connection, clock, conversation) for _ in range(2)]
        await cancel.cancel(connection, clock, "acme", [elder.id])
    assert [task.id for task in await take(database, clock)] == [younger.id]


@pytest.mark.parametrize("pool", ["speak", "timed", "background"])
async def test_a_tenant_is_given_no_more_than_is_left_free_and_the_next_one_its_share(
    database: Database, clock: MovableClock, pool: Pool
) -> None:
    async with database.transaction() as connection:
        for tenant, count in (("greedy", 40), ("modest", 2)):  # the greedy one's are due before
            for n in range(count):
                conversation = await a_conversation(connection, tenant, address=f"person {n}")
                if pool == "speak":
                    await a_turn(connection, clock, conversation, tenant=tenant)
                else:
                    due = timedelta(seconds=pool == "timed")
                    await a_followup(connection, clock, conversation, tenant=tenant, due=due)
    clock.move(timedelta(seconds=2))
    held: Counter[str] = Counter()
    while free := 16 - held.total():
        async with database.transaction() as connection:
            claimed = await claim(connection, clock, "w", LEASE, pool, (free + 1) // 2, held)
        if not claimed:
            break
        held.update(task.tenant for task in claimed)
    assert held == {"greedy": 8, "modest": 2}


async def test_with_one_slot_left_the_tenant_that_holds_nothing_gets_it(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        for tenant in ("busy", "new"):
            await a_turn(connection, clock, await a_conversation(connection, tenant), tenant=tenant)
    async with database.transaction() as connection:
        (claimed,) = await claim(connection, clock, "w", LEASE, "speak", 1, {"busy": 1})
    assert claimed.tenant == "new"


async def test_a_followup_is_written_outside_the_lane_and_said_inside_it(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        await a_followup(connection, clock, conversation)
    (writing,) = await take(database, clock)
    assert not writing.lane
    async with database.transaction() as connection:
        turn = await a_turn(connection, clock, conversation)
    (answering,) = await take(database, clock)
    assert answering.id == turn.id, "a customer is answered while a follow-up is being written"
    async with database.transaction() as connection:
        assert await settle.keep_text(connection, clock, writing, "Ana!") == "scheduled"
    assert await take(database, clock) == [], "it waits for the lane"
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, answering, 1)
    (saying,) = await take(database, clock)
    assert (saying.id, saying.text, saying.lane, saying.attempt) == (writing.id, "Ana!", True, 1)


async def test_followups_written_side_by_side_are_said_in_the_order_they_were_booked_for(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        for seconds in (1, 2, 3):
            await a_followup(connection, clock, conversation, due=timedelta(seconds=seconds))
    clock.move(timedelta(seconds=5))
    writing = await take(database, clock)
    assert len(writing) == 3
    said = []
    for task in reversed(writing):
        async with database.transaction() as connection:
            await settle.keep_text(connection, clock, task, f"number {task.id}")
        while saying := await take(database, clock):
            said += [task.id for task in saying]
            async with database.transaction() as connection:
                await settle.deliver(connection, clock, saying[0], None)
    assert said == [task.id for task in writing]


async def test_a_followup_waits_for_a_slow_elder_only_so_long(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        await a_followup(connection, clock, conversation, due=timedelta(seconds=1))
        await a_followup(connection, clock, conversation, due=timedelta(seconds=2))
    clock.move(timedelta(seconds=2))
    _slow, quick = await take(database, clock)
    async with database.transaction() as connection:
        await settle.keep_text(connection, clock, quick, "quick")
    assert await take(database, clock) == []
    clock.move(PATIENCE)
    assert [task.id for task in await take(database, clock)] == [quick.id]


async def test_a_check_that_takes_minutes_does_not_delay_a_reminder(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        await a_followup(connection, clock, conversation)
        reminder = await a_followup(connection, clock, conversation, due=timedelta(seconds=5))
    await take(database, clock)
    clock.move(timedelta(seconds=5))
    (writing,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.keep_text(connection, clock, writing, "now")
    assert [task.id for task in await take(database, clock)] == [reminder.id]


async def test_a_stale_fence_settles_nothing(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, await a_conversation(connection))
    (dead,) = await take(database, clock, "dead")
    clock.move(LEASE + timedelta(seconds=1))
    async with database.transaction() as connection:
        assert await recovery.recover(connection, clock) == 1
    (alive,) = await take(database, clock, "alive")
    with pytest.raises(LostClaim):
        async with database.transaction() as connection:
            await settle.deliver(connection, clock, dead, 1)
    assert await states(database) == {alive.id: "firing"}
    assert list((await lanes(database)).values()) == [alive.id]


async def test_a_dead_claim_returns_to_scheduled_and_frees_its_lane(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        await a_turn(connection, clock, conversation)
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        assert await recovery.recover(connection, clock) == 0, "its lease still runs"
    clock.move(LEASE + timedelta(seconds=1))
    async with database.transaction() as connection:
        assert await recovery.recover(connection, clock) == 1
    assert await states(database) == {held.id: "scheduled"}
    assert await lanes(database) == {conversation: None}


async def test_the_claims_of_a_worker_that_is_gone_return_before_their_lease_runs_out(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, await a_conversation(connection))
    (held,) = await take(database, clock, "gone")
    async with database.transaction() as connection:
        assert await recovery.holders(connection) == ["gone"]
        assert await recovery.recover(connection, clock, ["gone"]) == 1
    assert await states(database) == {held.id: "scheduled"}


async def test_a_cancel_that_meets_a_firing_task_is_raced_and_obeyed_when_it_comes_back(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        waiting = await a_followup(connection, clock, conversation, due=timedelta(hours=1))
        firing = await a_followup(connection, clock, conversation)
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        done = await cancel.cancel(connection, clock, "acme", [waiting.id, firing.id])
    assert (done.cancelled, done.raced) == ([waiting.id], [firing.id])
    async with database.transaction() as connection:
        assert await settle.is_cancelled(connection, held)
        assert await settle.keep_text(connection, clock, held, "too late") == "cancelled"
    assert set((await states(database)).values()) == {"cancelled"}


async def test_a_cancelled_task_stays_cancelled_when_a_dead_worker_returns(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        firing = await a_followup(connection, clock, await a_conversation(connection))
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        assert (await cancel.cancel(connection, clock, "acme", [firing.id])).raced == [firing.id]
    clock.move(LEASE + timedelta(seconds=1))
    async with database.transaction() as connection:
        await recovery.recover(connection, clock)
    with pytest.raises(LostClaim):
        async with database.transaction() as connection:
            await settle.keep_text(connection, clock, held, "back from the dead")
    assert await states(database) == {firing.id: "cancelled"}


async def test_another_tenants_task_cannot_be_cancelled(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        booked = await a_followup(connection, clock, await a_conversation(connection), due=timedelta(hours=1))
        await a_conversation(connection, "rival")
        done = await cancel.cancel(connection, clock, "rival", [booked.id])
    assert (done.cancelled, done.raced) == ([], [])
    assert await states(database) == {booked.id: "scheduled"}


async def test_two_workers_released_on_the_same_row_make_one_claim(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        await a_followup(connection, clock, await a_conversation(connection))
    claims = await asyncio.gather(*(take(database, clock, f"worker {n}") for n in range(4)))
    assert sorted(map(len, claims)) == [0, 0, 0, 1]


async def test_conversations_that_somebody_holds_do_not_hide_the_others_from_a_small_claim(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        held = [await a_conversation(connection, address=f"held {n}") for n in range(3)]
        for conversation in held:
            await a_turn(connection, clock, conversation)
        free = await a_turn(connection, clock, await a_conversation(connection, address="free"))
    async with database.transaction() as connection:
        await connection.execute(text("select from conversations where id = any(:held) for update"), {"held": held})
        assert [task.id for task in await take(database, clock, speak=1)] == [free.id]
