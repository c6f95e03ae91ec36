"""Deliveries: attempts, their outcomes, and what providers say later."""

import asyncio

import pytest
from sqlalchemy import RowMapping, select
from sqlalchemy.exc import IntegrityError

from store import deliveries
from store.database import Database
from store.deliveries import Delivery, Noted
from tests.support.factories import a_conversation, a_tenant
from tests.support.wait import eventually, waits_for_a_lock

TASK = 12


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection, channel="whatsapp")


async def start(database: Database, conversation: int, part: int = 0, task: int = TASK) -> int:
    async with database.transaction() as connection:
        return await deliveries.start(connection, "acme", conversation, task, part, "whatsapp")


async def end(
    database: Database, delivery: int, outcome: str, reason: str | None = None, provider_id: str | None = None
) -> None:
    async with database.transaction() as connection:
        await deliveries.end(connection, "acme", delivery, outcome, reason, provider_id)


async def note(
    database: Database, delivery: int, status: str, *, tenant: str = "acme", reason: str | None = None
) -> Noted | None:
    async with database.transaction() as connection:
        return await deliveries.note_status(connection, tenant, delivery, "SM1", status, reason)


async def attempts(database: Database) -> list[Delivery]:
    async with database.transaction() as connection:
        return list(await deliveries.of_task(connection, "acme", TASK))


async def row_of(database: Database, delivery: int) -> RowMapping:
    async with database.transaction() as connection:
        rows = await connection.execute(select(deliveries.deliveries).where(deliveries.deliveries.c.id == delivery))
        return rows.mappings().one()


async def test_attempts_are_counted_part_by_part_and_told_in_order(database: Database, conversation: int) -> None:
    second = await start(database, conversation, part=1)
    first = await start(database, conversation, part=0)
    await end(database, second, "not_sent", "busy")
    again = await start(database, conversation, part=1)
    await start(database, conversation, part=1, task=TASK + 1)
    assert [(one.id, one.part, one.attempt, one.outcome) for one in await attempts(database)] == [
        (first, 0, 1, None),
        (second, 1, 1, "not_sent"),
        (again, 1, 2, None),
    ]


async def test_an_attempt_that_was_cut_off_has_no_outcome_and_no_end(database: Database, conversation: int) -> None:
    row = await row_of(database, await start(database, conversation))
    assert (row["outcome"], row["ended_at"], row["provider_id"]) == (None, None, None)
    assert row["started_at"] is not None


async def test_an_outcome_once_known_is_not_overwritten_and_an_unknown_one_is(
    database: Database, conversation: int
) -> None:
    became = {}
    for first in ("accepted", "rejected", "not_sent", "unknown"):
        delivery = await start(database, conversation)
        await end(database, delivery, first, "first", "SM1")
        await end(database, delivery, "rejected", "second")
        row = await row_of(database, delivery)
        assert row["ended_at"] is not None
        became[first] = (row["outcome"], row["reason"])
    assert became == {
        "accepted": ("accepted", "first"),
        "rejected": ("rejected", "first"),
        "not_sent": ("not_sent", "first"),
        "unknown": ("rejected", "second"),
    }


async def test_what_was_accepted_has_the_providers_id(database: Database, conversation: int) -> None:
    delivery = await start(database, conversation)
    with pytest.raises(IntegrityError, match="accepted_has_an_id"):
        await end(database, delivery, "accepted")
    with pytest.raises(IntegrityError, match="outcome"):
        await end(database, delivery, "perhaps", provider_id="SM1")
    assert (await row_of(database, delivery))["outcome"] is None


@pytest.mark.parametrize(
    ("status", "outcome"), [("sent", "accepted"), ("failed", "rejected"), ("canceled", "rejected")]
)
async def test_a_callback_tells_what_became_of_an_attempt_nobody_knew_about_or_thought_unsent(
    database: Database, conversation: int, status: str, outcome: str
) -> None:
    for before in (None, "unknown", "not_sent"):
        delivery = await start(database, conversation)
        if before is not None:
            await end(database, delivery, before, "it timed out")
        noted = await note(database, delivery, status, reason="error 63024")
        assert noted == Noted(TASK, is_news=True, has_left=status == "sent")
        assert await note(database, delivery, "sent") == Noted(TASK, is_news=False)
        row = await row_of(database, delivery)
        assert (row["outcome"], row["provider_id"], row["reason"]) == (outcome, "SM1", "error 63024")


async def test_a_callback_that_meets_the_end_of_a_send_waits_for_it_and_prevails(
    database: Database, conversation: int
) -> None:
    delivery = await start(database, conversation)
    async with database.transaction() as connection:
        await deliveries.end(connection, "acme", delivery, "unknown", "it timed out", None)
        callback = asyncio.create_task(note(database, delivery, "sent"))
        await eventually(lambda: waits_for_a_lock(database))
    assert await callback == Noted(TASK, is_news=True, has_left=True)
    row = await row_of(database, delivery)
    assert (row["outcome"], row["provider_id"], row["reason"]) == ("accepted", "SM1", None)


async def test_what_was_thought_unsent_may_turn_out_accepted(database: Database, conversation: int) -> None:
    delivery = await start(database, conversation)
    await end(database, delivery, "not_sent", "not found twice")
    async with database.transaction() as connection:
        assert not await deliveries.end(connection, "acme", delivery, "unknown", "hm", None)
        assert await deliveries.end(connection, "acme", delivery, "accepted", None, "SM1")
        assert not await deliveries.end(connection, "acme", delivery, "not_sent", "hm", None)
    assert (await row_of(database, delivery))["outcome"] == "accepted"


async def test_that_a_message_has_left_the_provider_is_told_once(database: Database, conversation: int) -> None:
    delivery = await start(database, conversation)
    await end(database, delivery, "accepted", provider_id="SM1")
    (before,) = await attempts(database)
    told = [await note(database, delivery, status) for status in ("queued", "sending", "delivered", "sent", "read")]
    assert [noted and noted.has_left for noted in told] == [False, False, True, False, False]
    (after,) = await attempts(database)
    assert (before.has_left, after.has_left) == (False, True)


async def test_a_providers_id_is_known_as_somebodys_within_its_tenant(database: Database, conversation: int) -> None:
    await end(database, await start(database, conversation), "accepted", provider_id="SM1")
    async with database.transaction() as connection:
        await a_tenant(connection, "rival")
        assert await deliveries.known_ids(connection, "acme", ["SM1", "SM2"]) == {"SM1"}
        assert await deliveries.known_ids(connection, "rival", ["SM1"]) == set()


async def test_what_was_accepted_and_then_failed_was_not_taken_after_all_and_a_reason_is_kept(
    database: Database, conversation: int
) -> None:
    accepted, refused = await start(database, conversation), await start(database, conversation)
    await end(database, accepted, "accepted", provider_id="SM0")
    await end(database, refused, "rejected", "error 21610")
    assert await note(database, accepted, "sent") == Noted(TASK, is_news=False, has_left=True)
    assert await note(database, accepted, "undelivered", reason="error 30003") == Noted(
        TASK, is_news=False, is_turned=True
    )
    assert await note(database, accepted, "undelivered") == Noted(TASK, is_news=False), "it is news once"
    assert await note(database, refused, "failed") == Noted(TASK, is_news=False)
    rows = [await row_of(database, delivery) for delivery in (accepted, refused)]
    assert [(row["outcome"], row["reason"], row["provider_id"], row["provider_status"]) for row in rows] == [
        ("rejected", "error 30003", "SM0", "undelivered"),
        ("rejected", "error 21610", "SM1", "failed"),
    ]


@pytest.mark.parametrize("proof", ["delivered", "read"])
async def test_what_has_arrived_has_arrived_whatever_else_is_said_and_the_reason_is_kept(
    database: Database, conversation: int, proof: str
) -> None:
    before, after = await start(database, conversation), await start(database, conversation)
    for delivery in (before, after):
        await end(database, delivery, "accepted", provider_id=f"SM{delivery}")
    assert await note(database, after, proof) == Noted(TASK, is_news=False, has_left=True)
    contradicted = Noted(TASK, is_news=False, contradicts=True)
    assert await note(database, after, "failed", reason="error 30003") == contradicted
    assert await note(database, before, "failed", reason="error 30003") == Noted(TASK, is_news=False, is_turned=True)
    assert await note(database, before, "sent") == Noted(TASK, is_news=False)
    assert await note(database, before, proof) == Noted(TASK, is_news=True, contradicts=True)
    for delivery in (before, after):
        row = await row_of(database, delivery)
        assert (row["outcome"], row["reason"], row["provider_status"]) == ("accepted", "error 30003", proof)


async def test_a_callback_for_no_delivery_or_another_tenants_is_not_kept(database: Database, conversation: int) -> None:
    async with database.transaction() as connection:
        await a_tenant(connection, "rival")
    delivery = await start(database, conversation)
    assert not await note(database, delivery, "delivered", tenant="rival")
    assert not await note(database, delivery + 1, "delivered")
    assert (await row_of(database, delivery))["outcome"] is None
