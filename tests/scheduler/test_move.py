"""What is pending goes along when its chat moves, but for what is being said."""

from sqlalchemy import update

from scheduler import settle
from scheduler.clock import Clock
from scheduler.move import move_pending
from scheduler.task import tasks
from store.database import Database
from tests.support.claims import fields, take
from tests.support.factories import a_conversation, a_followup, a_turn


async def test_what_is_to_come_or_being_written_goes_on_in_the_other_conversation_and_is_no_reply_any_more(
    database: Database, clock: Clock
) -> None:
    async with database.transaction() as connection:
        here, there = await a_conversation(connection), await a_conversation(connection, address="bea")
        written = (await a_followup(connection, clock, here, reply_to="5")).id
    await take(database, clock)
    async with database.transaction() as connection:
        to_come = (await a_followup(connection, clock, here, reply_to="6")).id
        await move_pending(connection, "acme", here, there)
    for task in (written, to_come):
        assert await fields(database, task, "conversation", "reply_to") == (there, None)


async def test_what_has_the_lane_or_may_have_gone_out_in_part_ends_where_it_is(
    database: Database, clock: Clock
) -> None:
    async with database.transaction() as connection:
        here, there = await a_conversation(connection), await a_conversation(connection, address="bea")
        said = (await a_followup(connection, clock, here, reply_to="5", lane=True)).id
    (claimed,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, claimed, "one, two")
        turn = (await a_turn(connection, clock, here)).id
        await move_pending(connection, "acme", here, there)
    assert await fields(database, said, "conversation", "state", "reply_to") == (here, "firing", None)
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, claimed, error="the second part waits")
        await move_pending(connection, "acme", here, there)
    assert await fields(database, said, "conversation", "state", "sending") == (here, "scheduled", True)
    assert await fields(database, turn, "conversation") == (here,)


async def test_what_has_ended_stays_as_it_was(database: Database, clock: Clock) -> None:
    async with database.transaction() as connection:
        here, there = await a_conversation(connection), await a_conversation(connection, address="bea")
        ended = (await a_followup(connection, clock, here, reply_to="5")).id
        await connection.execute(
            update(tasks).where(tasks.c.id == ended).values(state="cancelled", ended_at=await clock.now(connection))
        )
        await move_pending(connection, "acme", here, there)
    assert await fields(database, ended, "conversation", "reply_to") == (here, "5")
