"""The story of a task."""

from datetime import timedelta

import pytest

from scheduler import recovery, settle
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.events import story
from scheduler.hold import WINDOW_CLOSED, release
from store.database import Database
from tests.support.claims import LEASE, take
from tests.support.factories import a_conversation, a_followup

SECOND = timedelta(seconds=1)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def told(database: Database, task: int) -> list[tuple[str, int, str | None]]:
    async with database.transaction() as connection:
        return [(event.event, event.fence, event.detail) for event in await story(connection, "acme", task)]


async def test_the_story_of_a_followup_names_every_step_its_claim_and_its_time(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = await a_followup(connection, clock, conversation, due=SECOND)
    clock.move(SECOND)
    (writing,) = await take(database, clock, "one")
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, writing, delay=SECOND, error="the model did not answer: 503")
    clock.move(SECOND)
    (writing,) = await take(database, clock, "one")
    async with database.transaction() as connection:
        await settle.keep_text(connection, clock, writing, "Call Ana")
    (saying,) = await take(database, clock, "one")
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, saying, hold=WINDOW_CLOSED)
    async with database.transaction() as connection:
        assert await release(connection, clock, "acme", WINDOW_CLOSED) == 1
    await take(database, clock, "two")
    clock.move(LEASE + SECOND)
    async with database.transaction() as connection:
        assert await recovery.recover(connection, clock) == 1
    (saying,) = await take(database, clock, "three")
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, saying, "Call Ana")
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, saying, 1)
    assert await told(database, booked.id) == [
        ("booked", 0, "followup"),
        ("claimed", 1, "one"),
        ("returned", 1, "the model did not answer: 503"),
        ("claimed", 2, "one"),
        ("written", 2, None),
        ("claimed", 3, "one"),
        ("returned", 3, "window closed"),
        ("released", 3, "window closed"),
        ("claimed", 4, "two"),
        ("recovered", 5, None),
        ("claimed", 6, "three"),
        ("sending", 6, None),
        ("fired", 6, "delivered"),
    ]
    async with database.transaction() as connection:
        lines = await story(connection, "acme", booked.id)
        assert await story(connection, "rival", booked.id) == []
    assert [line.at - lines[0].at for line in lines][-3:] == [LEASE + 3 * SECOND] * 3


async def test_a_cancel_is_told_with_who_asked_and_a_raced_one_as_asked_for(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        now, later = [await a_followup(connection, clock, conversation, due=n * SECOND) for n in range(2)]
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        await cancel(connection, clock, "acme", [now.id, later.id], by="the customer")
    async with database.transaction() as connection:
        await settle.cancel(connection, clock, held)
    assert (await told(database, now.id))[2:] == [("cancel requested", 1, "the customer"), ("cancelled", 1, None)]
    assert (await told(database, later.id))[1:] == [("cancelled", 0, "the customer")]


async def test_what_settles_nothing_writes_no_line(database: Database, clock: MovableClock, conversation: int) -> None:
    async with database.transaction() as connection:
        booked = await a_followup(connection, clock, conversation)
    (dead,) = await take(database, clock)
    clock.move(LEASE + SECOND)
    async with database.transaction() as connection:
        await recovery.recover(connection, clock)
    before = await told(database, booked.id)
    with pytest.raises(LostClaim):
        async with database.transaction() as connection:
            await settle.fail(connection, clock, dead, "too late")
    assert await told(database, booked.id) == before
