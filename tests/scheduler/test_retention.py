"""What is deleted, and what is kept."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import operate
from scheduler.clock import Clock, MovableClock
from scheduler.retention import DELETE, KEPT, NEXT_TENANT, delete_old
from store import deliveries, messages
from store.database import Database, bucket_of
from tests.scheduler.test_plans import plan_for_these, plan_in_the_long_run
from tests.support.factories import a_conversation, a_followup, states

DAY = timedelta(days=1)
ENDED = {
    "fired": "outcome = 'delivered', ended_at = :at",
    "cancelled": "ended_at = :at",
    "expired": "ended_at = :at",
    "failed": "error = 'refused', ended_at = :at",
    "uncertain": "error = 'cut off', ended_at = :at",
    "scheduled": "hold = 'window closed'",
    "firing": "worker = 'w', lease_until = :at",
}


async def a_task(connection: AsyncConnection, clock: Clock, conversation: int, state: str, tenant: str = "acme") -> int:
    """Return a task that came to this state now, with a send."""
    task = (await a_followup(connection, clock, conversation, tenant=tenant)).id
    await connection.execute(
        text(f"update tasks set state = '{state}', {ENDED[state]} where id = :id"),
        {"id": task, "at": clock.override()},
    )
    await deliveries.start(connection, tenant, conversation, task, 0, "telegram")
    return task


async def left(database: Database, table: str, column: str = "task") -> set[int]:
    async with database.transaction() as connection:
        return set((await connection.execute(text(f"select {column} from {table}"))).scalars())


async def test_what_ended_long_ago_goes_with_its_story_and_sends_and_everything_else_stays(
    database: Database, clock: MovableClock
) -> None:
    old, new = {}, {}
    async with database.transaction() as connection:
        ana = await a_conversation(connection)
        bea = await a_conversation(connection, "rival")
        for state in ENDED:
            old[state] = await a_task(connection, clock, ana, state)
        theirs = await a_task(connection, clock, bea, "fired", "rival")
        clock.move(DAY)
        for state in ENDED:
            new[state] = await a_task(connection, clock, ana, state)
    clock.move(KEPT - DAY / 2)
    assert await delete_old(database, clock, pause=0) == 4
    kept = {old["failed"], old["uncertain"], old["scheduled"], old["firing"], *new.values()}
    assert set(await states(database)) == kept
    assert await left(database, "task_events") == await left(database, "deliveries") == kept
    assert theirs not in kept
    assert await delete_old(database, clock, pause=0) == 0


async def test_a_failed_task_that_is_put_away_is_kept_as_long_as_one_that_ends_today(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        failed, uncertain = [await a_task(connection, clock, conversation, state) for state in ("failed", "uncertain")]
        clock.move(2 * KEPT)
        await operate.discard(connection, clock, "acme", failed, "eva: too late")
        await operate.settle(connection, clock, "acme", uncertain, "eva: seen", is_delivered=True)
    assert await delete_old(database, clock, pause=0) == 0
    clock.move(KEPT + DAY)
    assert await delete_old(database, clock, pause=0) == 2


@pytest.mark.parametrize("batch", [1, 3, 7, 1000])
async def test_pages_of_any_size_find_everything(database: Database, clock: MovableClock, batch: int) -> None:
    async with database.transaction() as connection:
        for tenant in ("acme", "rival", "third"):
            conversation = await a_conversation(connection, tenant)
            for state in ("scheduled", "fired", "failed", "fired", "fired", "scheduled", "cancelled"):
                await a_task(connection, clock, conversation, state, tenant)
    clock.move(KEPT + DAY)
    assert await delete_old(database, clock, batch=batch, pause=0) == 12
    assert sorted((await states(database)).values()) == ["failed"] * 3 + ["scheduled"] * 6


async def test_a_tenant_is_left_at_the_first_task_that_is_not_old(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        first = await a_task(connection, clock, conversation, "fired")
        clock.move(KEPT + DAY)
        for _ in range(2):
            await a_task(connection, clock, conversation, "fired")
        given = {"now": clock.at, "bucket": bucket_of("acme"), "tenant": "acme", "after": 0, "batch": 2, "kept": KEPT}
        page = (await connection.execute(text(DELETE), given)).one()
    assert (page.deleted, page.up_to, page.has_more) == (1, first + 1, False)


async def test_two_processes_do_not_wait_for_each_other_nor_for_whoever_holds_a_row(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        tasks = [await a_task(connection, clock, conversation, "fired") for _ in range(20)]
    clock.move(KEPT + DAY)
    async with database.transaction() as connection:
        await connection.execute(text("select from tasks where id = :id for update"), {"id": tasks[3]})
        async with asyncio.timeout(10):
            assert await delete_old(database, clock, pause=0) == 19
    async with database.transaction() as connection:
        await delete_old_page(connection, clock)
        async with asyncio.timeout(10):
            assert await delete_old(database, clock, pause=0) == 0, "it is in another's hands"
    assert await states(database) == {}


async def delete_old_page(connection: AsyncConnection, clock: MovableClock) -> None:
    given = {"now": clock.at, "bucket": bucket_of("acme"), "tenant": "acme", "after": 0, "batch": 9, "kept": KEPT}
    assert (await connection.execute(text(DELETE), given)).one().deleted == 1


async def test_a_message_outlives_the_task_it_was(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        task = await a_task(connection, clock, conversation, "fired")
        await messages.add(connection, "acme", conversation, "assistant", "followup", "Call Ana", now=None, task=task)
    clock.move(KEPT + DAY)
    assert await delete_old(database, clock, pause=0) == 1
    async with database.transaction() as connection:
        (message,) = await messages.read(connection, "acme", conversation)
        later = await a_followup(connection, clock, conversation, parent=task)
    assert (message.text, await states(database)) == ("Call Ana", {later.id: "scheduled"})


FILL = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for, state, outcome, ended_at, created_at)
select bucket, tenant, 'followup', id, 'web', true, now(), now(), state, outcome, ended_at, booked
  from conversations, generate_series(1, 200) as n,
       (values ('scheduled', null, null, now()),
               ('fired', 'delivered', now() - interval '100 days', now() - interval '101 days'))
       as rows(state, outcome, ended_at, booked)
"""


async def test_no_table_is_read_through(database: Database) -> None:
    async with database.transaction() as connection:
        for n in range(100):
            await a_conversation(connection, address=f"person {n}")
        await connection.execute(text(FILL))
        await connection.execute(
            text(
                "insert into task_events (bucket, tenant, task, at, event, fence)"
                " select bucket, tenant, id, now(), 'booked', 0 from tasks"
            )
        )
        await connection.execute(
            text(
                "insert into deliveries (bucket, tenant, conversation, task, part, attempt, channel)"
                " select bucket, tenant, conversation, id, 0, 1, 'telegram' from tasks"
            )
        )
        for table in ("tasks", "task_events", "deliveries"):
            await connection.execute(text(f"analyze {table}"))
    where = {"bucket": bucket_of("acme"), "tenant": "acme"}
    page = {"now": None, **where, "after": 0, "batch": 1000, "kept": KEPT}
    for statement, given in ((NEXT_TENANT, where), (DELETE, page)):
        for plan_of in (plan_for_these, plan_in_the_long_run):
            async with database.transaction() as connection:
                plan = await plan_of(connection, statement, given)
            assert "Seq Scan" not in plan, plan
            assert "tasks_pkey" in plan, plan
