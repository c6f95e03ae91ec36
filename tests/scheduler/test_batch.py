"""Bookings and ends in batches: fewer statements, and nobody suffers for another's fault."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.batch import MOST, Batch
from scheduler.book import Booked, Booking, book_each
from scheduler.clock import Clock
from scheduler.errors import KeyReused, LostClaim
from scheduler.settle import End, end_each
from store.database import Database
from tests.support.claims import take
from tests.support.factories import a_conversation, a_turn, states

HOUR = timedelta(hours=1)


@pytest.fixture
async def booking(database: Database) -> Booking:
    async with database.transaction() as connection:
        return Booking("acme", "turn", HOUR, await a_conversation(connection), "web", {"n": 1}, lane=True)


def bookings_of(database: Database) -> tuple[Batch[Booking, Booked], list[int]]:
    """Make a batch of bookings, and a list of how many went in each statement."""
    sizes: list[int] = []

    async def statement(connection: AsyncConnection, given: Sequence[Booking]) -> Sequence[Booked | Exception]:
        sizes.append(len(given))
        return await book_each(connection, given, Clock())

    return Batch(database, statement), sizes


async def test_alone_it_goes_at_once_and_what_comes_meanwhile_goes_together(
    database: Database, booking: Booking
) -> None:
    bookings, sizes = bookings_of(database)
    first = asyncio.create_task(bookings.do(booking))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # its statement is under way
    booked = await asyncio.gather(first, *(bookings.do(booking) for _ in range(MOST + 9)))
    assert sizes == [1, MOST, 9]
    assert {one.id for one in booked} == set(await states(database))
    assert len({one.id for one in booked}) == MOST + 10


async def test_each_hears_of_its_own_booking(database: Database, booking: Booking) -> None:
    bookings, _ = bookings_of(database)
    again = replace(booking, idempotency_key="a")
    before = await bookings.do(again)
    replay, reused, new = await asyncio.gather(
        *(bookings.do(one) for one in (again, replace(again, payload={"n": 2}), booking)), return_exceptions=True
    )
    assert replay == replace(before, replay=True)
    assert isinstance(reused, KeyReused)
    assert isinstance(new, Booked)
    assert set(await states(database)) == {before.id, new.id}


async def test_one_that_cannot_be_done_spoils_nobody_elses(database: Database, booking: Booking) -> None:
    bookings, sizes = bookings_of(database)
    nowhere = replace(booking, conversation=999_999)
    first, second, third = await asyncio.gather(
        *(bookings.do(one) for one in (booking, nowhere, booking)), return_exceptions=True
    )
    assert isinstance(second, IntegrityError)
    assert isinstance(first, Booked)
    assert isinstance(third, Booked)
    assert sizes == [3, 1, 1, 1]
    assert set(await states(database)) == {first.id, third.id}


class AwayDatabase(Database):
    """A database that is counted on and does not answer."""

    asked = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        self.asked += 1
        raise OperationalError("begin", None, Exception("gone"))
        yield


async def test_an_outage_is_told_to_everybody_and_not_asked_after_for_each(booking: Booking) -> None:
    database = AwayDatabase("postgresql://nobody@127.0.0.1:1/nothing")
    bookings, _ = bookings_of(database)
    told = await asyncio.gather(*(bookings.do(booking) for _ in range(5)), return_exceptions=True)
    assert [type(problem) for problem in told] == [OperationalError] * 5
    assert database.asked == 1


async def test_who_no_longer_waits_keeps_nobody_else_waiting(database: Database, booking: Booking) -> None:
    bookings, _ = bookings_of(database)
    first, second = (asyncio.create_task(bookings.do(booking)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).id in await states(database)
    assert (await bookings.do(booking)).id in await states(database)


async def test_of_several_ends_only_whoever_lost_the_claim_is_told_so(database: Database) -> None:
    ends = Batch(database, partial(end_each, clock=Clock()), is_single=True)
    async with database.transaction() as connection:
        for address in ("ana", "eva"):
            await a_turn(connection, Clock(), await a_conversation(connection, address=address))
    first, second = await take(database, Clock())
    told = await asyncio.gather(
        ends.do(End(replace(first, fence=first.fence + 1), "fired", "delivered")),
        ends.do(End(second, "fired", "delivered")),
        return_exceptions=True,
    )
    assert isinstance(told[0], LostClaim)
    assert told[1] is None
    assert await states(database) == {first.id: "firing", second.id: "fired"}
