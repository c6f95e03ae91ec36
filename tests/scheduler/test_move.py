"""What is pending goes along when its chat moves, but for what is being said."""

import pytest
from sqlalchemy import update

from scheduler import settle
from scheduler.cancel import cancel
from scheduler.clock import Clock
from scheduler.errors import LostClaim
from scheduler.events import story
from scheduler.move import move_pending, take_along
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


async def test_where_a_conversation_is_no_more_all_of_it_goes_along_and_what_is_in_hand_is_done_again(
    database: Database, clock: Clock
) -> None:
    async with database.transaction() as connection:
        here, there = await a_conversation(connection), await a_conversation(connection, address="bea")
        turn = (await a_turn(connection, clock, here)).id
        written = (await a_followup(connection, clock, here)).id
    in_hand = {task.id: task for task in await take(database, clock)}
    assert set(in_hand) == {turn, written}
    async with database.transaction() as connection:
        to_come = (await a_followup(connection, clock, here)).id
        ended = (await a_followup(connection, clock, here)).id
        given = {"state": "fired", "outcome": "delivered", "message_seq": 3, "ended_at": await clock.now(connection)}
        await connection.execute(update(tasks).where(tasks.c.id == ended).values(**given))
        assert (await cancel(connection, clock, "acme", [written])).raced == [written]
        await take_along(connection, clock, "acme", here, there, behind=40, why="they are one")
    of = ("conversation", "state", "message_seq", "fence", "attempt", "worker")
    assert await fields(database, turn, *of) == (there, "scheduled", None, 2, 0, None)
    assert await fields(database, written, *of) == (there, "cancelled", None, 2, 0, None)
    assert await fields(database, to_come, *of) == (there, "scheduled", None, 0, 0, None)
    assert await fields(database, ended, *of) == (there, "fired", 43, 0, 0, None)
    with pytest.raises(LostClaim):
        async with database.transaction() as connection:
            await settle.deliver(connection, clock, in_hand[turn], 1)
    async with database.transaction() as connection:
        last = (await story(connection, "acme", turn))[-1]
    assert (last.event, last.detail) == ("returned", "they are one")
    assert {task.id for task in await take(database, clock)} == {turn, to_come}
