"""Cancelling, in every state a task can be in."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Self

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import recovery, settle
from scheduler.book import Booking, book_many
from scheduler.cancel import Cancelled, cancel, cancel_labelled, count_labelled
from scheduler.claim import claim
from scheduler.clock import Clock, MovableClock
from scheduler.events import Became, story
from scheduler.hold import WINDOW_CLOSED
from scheduler.lease import renew
from scheduler.task import Task
from store.database import Database, bucket_of
from tests.support.claims import LEASE, fields, take
from tests.support.factories import a_conversation, a_followup, a_turn, states
from tests.support.wait import eventually

HOUR = timedelta(hours=1)


async def do_cancel(database: Database, clock: Clock, *ids: int, tenant: str = "acme", **chosen: object) -> Cancelled:
    async with database.transaction() as connection:
        return await cancel(connection, clock, tenant, ids, **chosen)  # type: ignore[arg-type]


async def do_cancel_labelled(
    database: Database, clock: Clock, *, tenant: str = "acme", by: str | None = None, **chosen: Any
) -> Cancelled:
    """Cancel, after a count that tells how many it will be."""
    async with database.transaction() as connection:
        counted = await count_labelled(connection, tenant, **chosen)
        done = await cancel_labelled(connection, clock, tenant, by=by, **chosen)
    assert counted == len(done.cancelled)
    return done


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def test_what_has_ended_is_left_alone_and_named_in_neither(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = [(await a_followup(connection, clock, conversation)).id for _ in range(5)]
    async with database.transaction() as connection:
        for task, end in zip(
            await take(database, clock), ("fired", "failed", "uncertain", "expired", "skipped"), strict=True
        ):
            match end:
                case "fired":
                    await settle.deliver(connection, clock, task, 1)
                case "failed":
                    await settle.fail(connection, clock, task, "why")
                case "uncertain":
                    await settle.leave_uncertain(connection, clock, task, "why")
                case "expired":
                    await settle.expire(connection, clock, task)
                case _:
                    await settle.skip(connection, clock, task, "opted out")
    before = await states(database)
    assert await do_cancel(database, clock, *booked, 10**9) == Cancelled([], [])
    assert await states(database) == before


async def test_a_task_is_in_exactly_one_of_cancelled_and_raced_and_a_second_cancel_finds_only_the_raced(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        firing = (await a_followup(connection, clock, conversation)).id
        later = [(await a_followup(connection, clock, conversation, due=HOUR)).id for _ in range(3)]
    await take(database, clock)
    assert await do_cancel(database, clock, later[2], firing, later[0], later[0]) == Cancelled(
        [later[0], later[2]], [firing]
    )
    assert await do_cancel(database, clock, firing, *later) == Cancelled([later[1]], [firing])
    assert await fields(database, firing, "state", "cancel_requested", "ended_at") == ("firing", True, None)
    assert await fields(database, later[0], "state", "cancel_requested", "ended_at") == ("cancelled", False, clock.at)


async def test_a_held_task_is_cancelled_and_no_longer_held(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        task = (await a_followup(connection, clock, conversation)).id
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, held, hold=WINDOW_CLOSED)
    assert await do_cancel(database, clock, task) == Cancelled([task], [])
    assert await fields(database, task, "state", "hold") == ("cancelled", None)


async def test_a_task_whose_send_was_begun_is_raced_even_when_it_waits_and_stays_so(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        task = (await a_turn(connection, clock, conversation)).id
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, held, "something may have gone out")
        await settle.give_back(connection, clock, held, delay=HOUR, error="cut off")
    assert await do_cancel(database, clock, task) == Cancelled([], [task])
    assert await fields(database, task, "state", "sending", "cancel_requested", "ended_at") == (
        "scheduled",
        True,
        True,
        None,
    )
    assert await do_cancel(database, clock, task) == Cancelled([], [task])
    clock.move(HOUR)
    (again,) = await take(database, clock)
    assert again.sending, "whoever claims it must find out what became of the send"


async def test_a_cancel_names_conversation_and_kind_or_neither(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        here, there = [await a_conversation(connection, address=address) for address in ("ana", "bea")]
        mine = (await a_followup(connection, clock, here, due=HOUR)).id
        turn = (await a_turn(connection, clock, here, due=HOUR)).id
        other = (await a_followup(connection, clock, there, due=HOUR)).id
    every = (mine, turn, other)
    assert await do_cancel(database, clock, *every, conversation=here, kinds=["notice"]) == Cancelled([], [])
    assert await do_cancel(database, clock, *every, conversation=here, kinds=["followup"]) == Cancelled([mine], [])
    assert await do_cancel(database, clock, *every, conversation=there) == Cancelled([other], [])
    assert await do_cancel(database, clock, *every) == Cancelled([turn], [])


async def test_nothing_asked_for_is_nothing_cancelled(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        task = (await a_followup(connection, clock, conversation, due=HOUR)).id
    assert await do_cancel(database, clock) == Cancelled([], [])
    assert await states(database) == {task: "scheduled"}


async def test_what_is_pending_under_a_label_is_cancelled_exactly_as_given_and_nothing_else(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    rival = next(name for name in map("rival{}".format, range(10_000)) if bucket_of(name) == bucket_of("acme"))
    async with database.transaction() as connection:
        theirs = await a_conversation(connection, rival)

        async def booked(**more: object) -> int:
            return (await a_followup(connection, clock, conversation, due=HOUR, **more)).id  # type: ignore[arg-type]

        mine, second, later = [await booked(subject="policy:7", key=f"a_b:{n}%") for n in range(3)]
        others = [
            *[await booked(subject=near, key=near) for near in ("policy:70", "Policy:7", "axb:1%", "a_b", "a_b:0")],
            await booked(),
            (await a_followup(connection, clock, theirs, tenant=rival, subject="policy:7", key="a_b:0%")).id,
        ]
        await connection.execute(text("update tasks set kind = 'notice' where id = :id"), {"id": later})
    assert await do_cancel_labelled(database, clock, key="a_b:%") == Cancelled([], [])
    assert await do_cancel_labelled(database, clock, subject="policy:7", tenant="nobody") == Cancelled([], [])
    assert await do_cancel_labelled(database, clock, key="a_b:0%", by="eva") == Cancelled([mine], [])
    assert await do_cancel_labelled(database, clock, subject="policy:7", kinds=["followup"]) == Cancelled([second], [])
    assert await do_cancel_labelled(database, clock, key_prefix="a_b:", kinds=["turn"]) == Cancelled([], [])
    assert await do_cancel_labelled(database, clock, key_prefix="a_b:1%") == Cancelled([], []), "it has ended"
    assert await do_cancel_labelled(database, clock, key_prefix="a_b:2") == Cancelled([later], [])
    now = await states(database)
    assert {task for task, state in now.items() if state == "cancelled"} == {mine, second, later}
    assert {now[other] for other in others} == {"scheduled"}
    async with database.transaction() as connection:
        assert [(line.event, line.detail) for line in await story(connection, "acme", mine)][1:] == [
            ("cancelled", "eva")
        ]
        assert [line.event for line in await story(connection, "acme", second)] == ["booked", "cancelled"]


async def test_under_a_label_too_what_is_performed_or_was_begun_to_be_sent_is_raced_and_not_counted(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        firing = (await a_followup(connection, clock, conversation, subject="policy:7")).id
    await take(database, clock)
    async with database.transaction() as connection:
        begun = (await a_followup(connection, clock, conversation, subject="policy:7")).id
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.open_door(connection, clock, held, "something may have gone out")
        await settle.give_back(connection, clock, held, delay=HOUR, error="cut off")
        later = (await a_followup(connection, clock, conversation, due=HOUR, subject="policy:7")).id
    assert await do_cancel_labelled(database, clock, subject="policy:7") == Cancelled([later], [firing, begun])
    assert await do_cancel_labelled(database, clock, subject="policy:7") == Cancelled([], [firing, begun])
    assert await fields(database, begun, "state", "cancel_requested") == ("scheduled", True)
    assert await fields(database, firing, "state", "cancel_requested") == ("firing", True)


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ({}, "exactly one of subject, key, key_prefix, not none"),
        ({"subject": "s", "key": "k"}, "exactly one of subject, key, key_prefix, not subject and key"),
        ({"subject": "s", "key_prefix": ""}, "not subject and key_prefix"),
        ({"key_prefix": ""}, "at least one character"),
        ({"key_prefix": "\U0010ffff"}, "at least one character"),
    ],
)
async def test_a_cancel_by_label_names_one_label_and_never_every_key(
    database: Database, clock: MovableClock, conversation: int, label: dict[str, str], problem: str
) -> None:
    async with database.transaction() as connection:
        task = (await a_followup(connection, clock, conversation, due=HOUR, subject="s", key="k")).id
        with pytest.raises(ValueError, match=problem):
            await cancel_labelled(connection, clock, "acme", **label)
        with pytest.raises(ValueError, match=problem):
            await count_labelled(connection, "acme", **label)
    assert await states(database) == {task: "scheduled"}


async def test_ten_thousand_are_cancelled_by_the_beginning_of_their_keys_in_one_statement(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    bookings = [
        Booking("acme", "followup", HOUR, conversation, "web", key=f"{'batch' if n % 3 else 'other'}:{n}")
        for n in range(15_000)
    ]
    async with database.transaction() as connection:
        booked = [one.id for one in await book_many(connection, clock, bookings)]
    news: list[object] = []
    statements: list[object] = []

    class Counted(psycopg.AsyncCursor[Any]):
        async def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
            statements.append(query)
            return await super().execute(query, params, **how)

    database.on_commit = news.extend
    async with database.transaction() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        raw.cursor_factory = Counted
        done = await cancel_labelled(connection, clock, "acme", key_prefix="batch:", by="eva")
    assert len(statements) == 1
    assert done == Cancelled([task for n, task in enumerate(booked) if n % 3], [])
    assert news == [Became("acme", "followup", "cancelled")] * 10_000
    async with database.transaction() as connection:
        noted = await connection.execute(
            text("select count(*), min(task), max(task) from task_events where event = 'cancelled' and detail = 'eva'")
        )
        assert noted.one() == (10_000, booked[1], booked[-1])


async def is_somebody_waiting(database: Database) -> bool:
    async with database.transaction() as connection:
        return bool(
            await connection.scalar(
                text(
                    "select count(*) from pg_stat_activity"
                    " where datname = current_database() and wait_event_type = 'Lock'"
                )
            )
        )


Step = Callable[[AsyncConnection, Clock, Task], Awaitable[object]]
MEANWHILE: dict[str, tuple[Step, str, bool]] = {
    "it is said": (lambda connection, clock, task: settle.deliver(connection, clock, task, 1), "fired", False),
    "it fails": (lambda connection, clock, task: settle.fail(connection, clock, task, "why"), "failed", False),
    "it is written": (
        lambda connection, clock, task: settle.keep_text(connection, clock, task, "Ana!"),
        "cancelled",
        False,
    ),
    "it is given back": (settle.give_back, "cancelled", False),
    "it is held": (
        lambda connection, clock, task: settle.give_back(connection, clock, task, hold="x"),
        "cancelled",
        False,
    ),
    "its worker is found dead": (
        lambda connection, clock, _task: recovery.recover(connection, clock, ["w"]),
        "cancelled",
        False,
    ),
    "its send begins": (
        lambda connection, clock, task: settle.open_door(connection, clock, task, "Ana!"),
        "firing",
        True,
    ),
    "its lease is renewed": (lambda connection, clock, task: renew(connection, clock, [task], LEASE), "firing", True),
}


@pytest.mark.parametrize(
    "label", [{}, {"subject": "policy:7"}, {"key_prefix": "renewal:"}], ids=["by number", "by subject", "by prefix"]
)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_cancel_that_comes_at_the_very_moment_acts_on_what_has_become_of_the_task(
    database: Database, clock: MovableClock, conversation: int, meanwhile: str, label: dict[str, str]
) -> None:
    step, becomes, is_raced = MEANWHILE[meanwhile]
    async with database.transaction() as connection:
        booked = (await a_followup(connection, clock, conversation, subject="policy:7", key="renewal:7")).id

    async def do_it() -> Cancelled:
        async with database.transaction() as connection:
            if label:
                return await cancel_labelled(connection, clock, "acme", **label)
            return await cancel(connection, clock, "acme", [booked])

    (task,) = await take(database, clock)
    async with database.transaction() as connection:
        await step(connection, clock, task)
        cancelling = asyncio.create_task(do_it())
        await eventually(lambda: is_somebody_waiting(database))
    done = await cancelling
    assert await fields(database, booked, "state", "cancel_requested") == (becomes, is_raced)
    assert done == Cancelled([booked] if becomes == "cancelled" else [], [booked] if is_raced else [])


async def test_a_cancel_that_comes_at_the_very_moment_of_a_claim_is_raced(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = (await a_followup(connection, clock, conversation)).id
    async with database.transaction() as connection:
        assert len(await claim(connection, clock, "w", LEASE, "background", 1)) == 1
        cancelling = asyncio.create_task(do_cancel(database, clock, booked))
        await eventually(lambda: is_somebody_waiting(database))
    assert await cancelling == Cancelled([], [booked])
    assert await fields(database, booked, "state", "cancel_requested") == ("firing", True)


async def test_a_claim_passes_over_a_task_that_is_being_cancelled(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = (await a_followup(connection, clock, conversation)).id
    async with database.transaction() as connection:
        assert (await cancel(connection, clock, "acme", [booked])).cancelled == [booked]
        assert await take(database, clock) == []
    assert await take(database, clock) == []


@pytest.mark.parametrize(
    ("step", "becomes"),
    [
        ("it is said", "fired"),
        ("it fails", "failed"),
        ("it is written", "cancelled"),
        ("it is given back", "cancelled"),
    ],
)
async def test_what_is_settled_at_the_very_moment_of_a_cancel_obeys_it_if_it_still_can(
    database: Database, clock: MovableClock, conversation: int, step: str, becomes: str
) -> None:
    async with database.transaction() as connection:
        booked = (await a_followup(connection, clock, conversation)).id
    (task,) = await take(database, clock)

    async def settle_it() -> None:
        async with database.transaction() as connection:
            await MEANWHILE[step][0](connection, clock, task)

    async with database.transaction() as connection:
        assert (await cancel(connection, clock, "acme", [booked])).raced == [booked]
        settling = asyncio.create_task(settle_it())
        await eventually(lambda: is_somebody_waiting(database))
    await settling
    assert await states(database) == {booked: becomes}


async def test_two_people_who_cancel_at_once_both_succeed(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = [(await a_followup(connection, clock, conversation, due=HOUR)).id for _ in range(50)]
    both = await asyncio.gather(do_cancel(database, clock, *booked), do_cancel(database, clock, *reversed(booked)))
    assert sorted([*both[0].cancelled, *both[1].cancelled]) == booked, "each task by one of them, without a deadlock"


async def test_by_a_label_too_the_tasks_are_locked_in_the_order_of_their_numbers(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    lock = text("select id from tasks where id = :id for update")
    async with database.transaction() as connection:
        first, last = [
            (await a_followup(connection, clock, conversation, due=due, subject="s", key=key)).id
            for due, key in ((2 * HOUR, "k2"), (HOUR, "k1"))
        ]
    for label in ({"key_prefix": "k"}, {"subject": "s"}):
        async with database.transaction() as connection:
            await connection.execute(lock, {"id": first})
            cancelling = asyncio.create_task(do_cancel_labelled(database, clock, **label))
            await eventually(lambda: is_somebody_waiting(database))
            await connection.execute(lock, {"id": last})  # else each would wait for the other
        assert await cancelling == Cancelled([first, last], [])
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set state = 'scheduled', ended_at = null"))
