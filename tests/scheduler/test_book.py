"""Booking."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from scheduler.book import LONGEST_LABEL, Booked, Booking, book, book_many
from scheduler.clock import Clock, MovableClock
from scheduler.errors import KeyReused
from store.database import Database
from tests.support.claims import fields, row_of
from tests.support.factories import a_conversation, a_followup, a_tenant, states

HOUR = timedelta(hours=1)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def followup(database: Database, clock: Clock, conversation: int, **more: Any) -> Booked:
    async with database.transaction() as connection:
        return await a_followup(connection, clock, conversation, **{"due": HOUR, **more})


async def test_a_delay_is_counted_from_the_databases_own_now(database: Database, conversation: int) -> None:
    async with database.transaction() as connection:
        now = await connection.scalar(text("select now()"))
        booked = await a_followup(connection, Clock(), conversation, due=HOUR)
    row = await row_of(database, booked.id)
    assert booked.due_at == row["due_at"] == row["booked_for"] == now + HOUR
    assert row["created_at"] == now


async def test_an_instant_is_kept_whatever_its_zone(database: Database, clock: MovableClock, conversation: int) -> None:
    at = datetime.fromisoformat("2026-12-01T09:30:00-05:00")
    booked = await followup(database, clock, conversation, due=at)
    assert booked.due_at == datetime(2026, 12, 1, 14, 30, tzinfo=UTC)
    assert await fields(database, booked.id, "booked_for", "created_at") == (at, clock.at)


async def test_a_booking_is_on_the_table_as_it_was_asked_for(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    booking = Booking(
        "acme",
        "followup",
        HOUR,
        conversation,
        "web",
        {"about": "¿la póliza?", "steps": [1, {"deep": None}]},
        reply_to="m7",
        parent=3,
        expires_at=clock.at + 2 * HOUR,
        key="policy 9",
        subject="ana",
    )
    async with database.transaction() as connection:
        booked = await book(connection, clock, booking)
    row = await row_of(database, booked.id)
    wanted = {name: getattr(booking, name) for name in ("tenant", "kind", "conversation", "channel", "payload")}
    wanted |= {"reply_to": "m7", "parent": 3, "expires_at": clock.at + 2 * HOUR, "key": "policy 9", "subject": "ana"}
    wanted |= {"state": "scheduled", "attempt": 0, "fence": 0, "hold": None, "text": None, "payload_hash": None}
    assert {name: row[name] for name in wanted} == wanted
    assert not booked.replay


async def test_the_same_key_and_payload_again_is_the_first_booking(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    first = await followup(database, clock, conversation, idempotency_key="k")
    clock.move(timedelta(minutes=5))
    again = await followup(database, clock, conversation, idempotency_key="k", due=2 * HOUR)
    assert (again.id, again.due_at, first.replay, again.replay) == (first.id, first.due_at, False, True)
    assert len(await states(database)) == 1


async def test_a_replay_tells_what_was_promised_even_after_a_retry_moved_it_or_the_end(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    first = await followup(database, clock, conversation, idempotency_key="k")
    async with database.transaction() as connection:
        await connection.execute(
            text("update tasks set due_at = due_at + interval '1 day', state = 'cancelled', ended_at = now()")
        )
    again = await followup(database, clock, conversation, idempotency_key="k")
    assert (again.id, again.due_at, again.replay) == (first.id, first.due_at, True)


@pytest.mark.parametrize("other", ["payload", "conversation", "kind"])
async def test_a_key_that_comes_back_with_something_else_is_refused_by_name(
    database: Database, clock: MovableClock, conversation: int, other: str
) -> None:
    first = await followup(database, clock, conversation, idempotency_key="k")
    async with database.transaction() as connection:
        elsewhere = await a_conversation(connection, address="bea")
        booking = Booking(
            "acme",
            "notice" if other == "kind" else "followup",
            HOUR,
            elsewhere if other == "conversation" else conversation,
            "web",
            {"about": "call Bea" if other == "payload" else "call Ana"},
            idempotency_key="k",
        )
        with pytest.raises(KeyReused, match=rf"this idempotency key was used with another payload \(task {first.id}\)"):
            await book(connection, clock, booking)
    assert await states(database) == {first.id: "scheduled"}


async def test_the_order_of_a_payloads_names_makes_no_difference(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    booked = []
    for payload in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}):
        async with database.transaction() as connection:
            booking = Booking("acme", "followup", HOUR, conversation, "web", payload, idempotency_key="k")
            booked.append((await book(connection, clock, booking)).id)
    assert booked[0] == booked[1]


async def test_another_tenant_may_use_the_same_key(database: Database, clock: MovableClock, conversation: int) -> None:
    first = await followup(database, clock, conversation, idempotency_key="k")
    async with database.transaction() as connection:
        other = await a_conversation(connection, "rival")
        second = await a_followup(connection, clock, other, tenant="rival", due=HOUR, idempotency_key="k")
    assert (second.replay, second.id != first.id) == (False, True)


async def test_without_a_key_the_same_booking_twice_is_two(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    assert (await followup(database, clock, conversation)).id != (await followup(database, clock, conversation)).id


async def test_twenty_bookings_with_one_key_at_once_are_one_row(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    booked = await asyncio.gather(*(followup(database, clock, conversation, idempotency_key="k") for _ in range(20)))
    assert len({one.id for one in booked}) == 1
    assert sorted(one.replay for one in booked) == [False] + [True] * 19
    assert list(await states(database)) == [booked[0].id]


async def test_a_key_whose_first_booking_is_rolled_back_is_free_for_who_waited(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.engine.connect() as connection:
        first = await a_followup(connection, clock, conversation, due=HOUR, idempotency_key="k", about="call Bea")
        waiting = asyncio.create_task(followup(database, clock, conversation, idempotency_key="k"))
        await asyncio.sleep(0)
        await connection.rollback()
    second = await waiting
    assert not second.replay
    assert list(await states(database)) == [second.id]
    assert second.id != first.id


async def test_a_conversation_of_another_tenant_cannot_be_booked_into(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        await a_tenant(connection, "rival")
    with pytest.raises(IntegrityError, match="tasks_bucket_tenant_conversation_fkey"):
        await followup(database, clock, conversation, tenant="rival")


@pytest.mark.parametrize(
    ("booking", "rule"),
    [
        (Booking("acme", "followup", HOUR), "talk_has_an_origin"),
        (Booking("acme", "followup", HOUR, 1), "talk_has_an_origin"),
        (Booking("acme", "turn", HOUR, 1, "web", lane=False), "turn_holds_the_lane"),
        (Booking("acme", "function", HOUR, lane=True), "lane_is_a_conversations"),
        (Booking("acme", "party", HOUR, 1, "web"), "kind"),  # type: ignore[arg-type]
    ],
)
async def test_a_task_that_makes_no_sense_cannot_be_written(
    database: Database, clock: MovableClock, conversation: int, booking: Booking, rule: str
) -> None:
    with pytest.raises(IntegrityError, match=f"tasks_{rule}_check"):
        async with database.transaction() as connection:
            await book(connection, clock, booking)


async def test_many_are_booked_in_one_statement_each_knowing_its_own_row(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    def booking(n: int, key: str | None = None) -> Booking:
        due = timedelta(seconds=n) if n % 2 else clock.at + timedelta(seconds=n)
        return Booking("acme", "followup", due, conversation, "web", {"about": str(n)}, idempotency_key=key)

    async with database.transaction() as connection:
        (first,) = await book_many(connection, clock, [booking(5, "five")])
        booked = await book_many(
            connection, clock, [booking(2), booking(5, "five"), booking(1, "one"), booking(1, "one"), booking(0)]
        )
        assert await book_many(connection, clock, []) == []
    assert [one.replay for one in booked] == [False, True, False, True, False]
    assert booked[1].id == first.id
    assert booked[2].id == booked[3].id
    abouts = {one.id: (await row_of(database, one.id)).payload["about"] for one in booked}
    assert [abouts[one.id] for one in booked] == ["2", "5", "1", "1", "0"]
    assert [one.due_at - clock.at for one in booked] == [timedelta(seconds=n) for n in (2, 5, 1, 1, 0)]


async def test_many_with_the_same_keys_in_another_order_do_not_wait_for_each_other(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    keys = [f"key {n}" for n in range(50)]

    async def book_all(order: int) -> list[Booked]:
        wanted = [
            Booking("acme", "followup", HOUR, conversation, "web", {"about": key}, idempotency_key=key)
            for key in sorted(keys, reverse=order % 2 == 1)
        ]
        async with database.transaction() as connection:
            return await book_many(connection, clock, wanted)

    booked = await asyncio.gather(*(book_all(n) for n in range(4)))
    assert len({one.id for many in booked for one in many}) == 50
    assert sum(not one.replay for many in booked for one in many) == 50


@pytest.mark.parametrize("name", ["key", "subject", "idempotency_key"])
async def test_the_longest_label_is_stored_and_one_longer_is_refused_by_name(
    database: Database, clock: MovableClock, conversation: int, name: str
) -> None:
    wide = "".join(chr(0x10000 + n) for n in range(LONGEST_LABEL))  # four bytes each, and nothing to compress
    booked = await followup(database, clock, conversation, **{name: wide})
    assert await fields(database, booked.id, name) == (wide,)
    with pytest.raises(ValueError, match=f"{name} is longer than {LONGEST_LABEL} characters"):
        await followup(database, clock, conversation, **{name: wide + "a"})
