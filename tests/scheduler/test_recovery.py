"""Recovery, where test_claim.py leaves off: both doors, many claims, and lanes that are another's by now."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest
from sqlalchemy import text

from scheduler import cancel, recovery, settle
from scheduler.clock import Clock, MovableClock
from scheduler.errors import LostClaim
from scheduler.lease import renew
from scheduler.task import Task
from store.database import Database
from tests.support.claims import LEASE, fields, take
from tests.support.factories import a_conversation, a_followup, a_turn, lanes, states
from tests.support.wait import eventually

MOMENT = timedelta(seconds=1)
MANY = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for, state, outcome, ended_at)
select bucket, tenant, 'followup', id, 'web', true, now(), now(), 'fired', 'delivered', now()
  from conversations, generate_series(1, 2000)
"""
WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


async def recover(database: Database, clock: Clock, *gone: str) -> int:
    async with database.transaction() as connection:
        return await recovery.recover(connection, clock, gone)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def test_a_claim_that_died_behind_the_second_door_comes_back_saying_so(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
    (dead,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, dead, "it may have gone out")
    clock.move(LEASE + MOMENT)
    assert await recover(database, clock) == 1
    assert await fields(database, dead.id, "state", "sending", "text", "worker", "lease_until") == (
        "scheduled",
        True,
        "it may have gone out",
        None,
        None,
    )
    (again,) = await take(database, clock)
    assert (again.sending, again.text, again.attempt, again.fence) == (True, "it may have gone out", 2, dead.fence + 2)


async def test_a_cancelled_task_that_died_behind_the_second_door_is_still_to_be_resolved(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        sending, writing = [await a_followup(connection, clock, conversation) for _ in range(2)]
    for task in await take(database, clock):
        async with database.transaction() as connection:
            if task.id == sending.id:
                await settle.open_door(connection, clock, task, "it may have gone out")
            assert (await cancel.cancel(connection, clock, "acme", [task.id])).raced == [task.id]
    clock.move(LEASE + MOMENT)
    assert await recover(database, clock) == 2
    assert await states(database) == {sending.id: "scheduled", writing.id: "cancelled"}
    assert await fields(database, writing.id, "ended_at") == (clock.at,)
    (again,) = await take(database, clock)
    async with database.transaction() as connection:
        assert await settle.is_cancelled(connection, again), "whoever resolves it still knows"


async def test_what_died_together_twice_comes_back_one_by_one(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        for _ in range(10):
            await a_followup(connection, clock, conversation)
    assert len(await take(database, clock)) == 10
    clock.move(LEASE + MOMENT)
    assert await recover(database, clock) == 10
    assert len(await take(database, clock)) == 10, "after the first time at once"
    for longest in (1, 2, 4):
        clock.move(LEASE + MOMENT)
        assert await recover(database, clock) == 10
        async with database.transaction() as connection:
            dues = list((await connection.execute(text("select due_at from tasks"))).scalars())
        assert len(set(dues)) == 10
        assert all(longest / 2 <= (due - clock.at).total_seconds() <= longest for due in dues)
        clock.move(timedelta(seconds=longest))
        assert len(await take(database, clock)) == 10


async def test_a_lease_that_was_renewed_is_not_recovered(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        for _ in range(3):
            await a_followup(connection, clock, conversation)
    kept, other, forgotten = await take(database, clock)
    clock.move(LEASE - MOMENT)
    async with database.transaction() as connection:
        assert await renew(connection, clock, [kept, other], LEASE) == []
    clock.move(2 * MOMENT)
    assert await recover(database, clock) == 1
    assert await states(database) == {kept.id: "firing", other.id: "firing", forgotten.id: "scheduled"}


async def test_a_renewal_tells_which_claims_are_lost_and_leaves_anothers_lease_alone(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        for _ in range(3):
            await a_followup(connection, clock, conversation)
    lost, settled, kept = await take(database, clock)
    async with database.transaction() as connection:
        await settle.fail(connection, clock, settled, "why")
        await settle.give_back(connection, clock, lost)
    (anothers,) = await take(database, clock, "other")
    assert anothers.id == lost.id
    lease = await fields(database, lost.id, "lease_until")
    clock.move(MOMENT)
    async with database.transaction() as connection:
        assert set(await renew(connection, clock, [lost, settled, kept], LEASE)) == {lost}, "the second ended by itself"
    assert await fields(database, lost.id, "lease_until") == lease
    assert await fields(database, kept.id, "lease_until") == (clock.at + LEASE,)


async def test_a_renewal_and_a_cancel_of_many_do_not_wait_for_each_other(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        younger = await a_conversation(connection, address="bea")
        # The other way round than by id, in whatever index a renewal may find them but the one of ids.
        for one in (younger, conversation):
            await a_followup(connection, clock, one)
        await connection.execute(text(MANY))
    async with database.transaction() as connection:
        await connection.execute(text("analyze tasks"))
    held = await take(database, clock)

    async def do_renew() -> Collection[Task]:
        async with database.transaction() as connection:
            return await renew(connection, clock, held[::-1], LEASE)

    async def is_waiting() -> bool:
        async with database.transaction() as connection:
            return bool(await connection.scalar(text(WAITING)))

    async with database.transaction() as connection:
        assert (await cancel.cancel(connection, clock, "acme", [held[0].id])).raced == [held[0].id]
        renewing = asyncio.create_task(do_renew())
        await eventually(is_waiting)
        assert (await cancel.cancel(connection, clock, "acme", [held[1].id])).raced == [held[1].id]
    assert await renewing == []


async def test_a_worker_that_claims_again_what_it_lost_learns_that_its_first_claim_is_void(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_followup(connection, clock, conversation)
    (first,) = await take(database, clock)
    clock.move(LEASE + MOMENT)
    await recover(database, clock)
    (second,) = await take(database, clock)
    assert second.id == first.id
    async with database.transaction() as connection:
        assert await renew(connection, clock, [first, second], LEASE) == [first]


async def test_a_renewal_and_a_recovery_at_the_same_time_agree_on_who_holds_the_task(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        for n in range(8):
            await a_turn(connection, clock, await a_conversation(connection, address=f"person {n}"))
    held = await take(database, clock)
    clock.move(LEASE + MOMENT)

    async def do_renew() -> set[int]:
        async with database.transaction() as connection:
            return {task.id for task in await renew(connection, clock, held, LEASE)}

    lost, recovered = await asyncio.gather(do_renew(), recover(database, clock))
    after = await states(database)
    assert {task for task, state in after.items() if state == "scheduled"} == lost
    assert len(lost) == recovered
    assert {holder for holder in (await lanes(database)).values() if holder} == set(after) - lost


async def test_recovering_twice_at_once_returns_each_claim_once(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        for n in range(20):
            await a_turn(connection, clock, await a_conversation(connection, address=f"person {n}"))
    assert len(await take(database, clock, speak=20)) == 20
    clock.move(LEASE + MOMENT)
    assert sum(await asyncio.gather(*(recover(database, clock) for _ in range(4)))) == 20
    assert set((await states(database)).values()) == {"scheduled"}
    assert set((await lanes(database)).values()) == {None}


async def test_only_the_workers_that_are_gone_lose_their_claims(database: Database, clock: MovableClock) -> None:
    claims = {}
    for worker in ("dead", "alive", "dead too"):
        async with database.transaction() as connection:
            await a_turn(connection, clock, await a_conversation(connection, address=worker))
        claims[worker] = (await take(database, clock, worker))[0].id
    async with database.transaction() as connection:
        assert sorted(await recovery.holders(connection)) == ["alive", "dead", "dead too"]
    assert await recover(database, clock, "dead", "dead too", "never seen") == 2
    assert await states(database) == {
        claims["dead"]: "scheduled",
        claims["alive"]: "firing",
        claims["dead too"]: "scheduled",
    }
    async with database.transaction() as connection:
        assert await recovery.holders(connection) == ["alive"]


async def test_a_dead_followup_that_held_no_lane_frees_nobodys(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_followup(connection, clock, conversation)
    (dead,) = await take(database, clock, "dead")
    async with database.transaction() as connection:
        turn = await a_turn(connection, clock, conversation)
    await take(database, clock, "alive")
    assert await recover(database, clock, "dead") == 1
    assert await states(database) == {dead.id: "scheduled", turn.id: "firing"}
    assert await lanes(database) == {conversation: turn.id}


async def test_what_a_dead_worker_did_not_settle_is_done_again_with_its_attempt_counted(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
    for attempt in (1, 2, 3):
        (task,) = await take(database, clock)
        assert task.attempt == attempt
        assert await recover(database, clock, "w") == 1
        clock.move(timedelta(minutes=2))
        with pytest.raises(LostClaim):
            async with database.transaction() as connection:
                await settle.fail(connection, clock, task, "from the grave")
