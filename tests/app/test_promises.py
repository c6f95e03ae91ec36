"""The ledger of promises: what was said would be done, and what became of it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.http import application
from scheduler import operate, settle
from scheduler.book import Booking, book
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.promises import LATE, Line, ledger
from scheduler.recovery import expire_held
from scheduler.task import Task
from store.database import Database
from tests.app.test_handover import a_desk, opened
from tests.app.test_recurring import again
from tests.support.asgi import calling
from tests.support.claims import take
from tests.support.factories import a_conversation, a_tenant
from tests.support.house import House, a_house
from tests.support.model import books
from tests.support.shell import Shell

SECOND = timedelta(seconds=1)
OPTED_OUT, CHECKED = "opted out", "call"


async def promised(database: Database, clock: MovableClock, count: int, **more: Any) -> list[Task]:
    """Return promises that were booked in a turn and are claimed, the last first."""
    async with database.transaction() as connection:
        talk = await a_conversation(connection, **more)
        tenant = more.get("tenant", "acme")
        for _ in range(count):
            await book(connection, clock, Booking(tenant, "followup", timedelta(), talk, "web", {}, parent=1))
    return [one for one in await take(database, clock, work=count) if one.tenant == tenant]


async def line(database: Database, **chosen: Any) -> Line:
    async with database.transaction() as connection:
        (found,) = await ledger(connection, "acme", **chosen)
    return found


def counts(found: Line) -> dict[str, int]:
    """Return what is not nought."""
    names = ("promised", "kept", "late", "broken", "unknown", "released", "pending")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


@pytest.fixture
async def house(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[House]:
    async with a_house(database, tmp_path, clock=clock, poll=False) as house:
        yield house


async def counted(house: House) -> dict[str, float]:
    async with calling(application(house.run)) as http:
        families = text_string_to_metric_families((await http.get("/metrics")).text)
    return {
        one.labels["became"]: one.value
        for family in families
        for one in family.samples
        if one.name == "vuelvo_promises_total"
    }


async def test_each_promise_is_in_one_column_by_what_became_of_it_and_the_metric_says_the_same(
    house: House, clock: MovableClock
) -> None:
    database = house.service.database
    kept, just, skipped, checked, failed, unknown, late, expired = await promised(database, clock, 8)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, kept, 1)
        await settle.skip(connection, clock, skipped, OPTED_OUT)
        await settle.skip(connection, clock, checked, CHECKED)
        await settle.fail(connection, clock, failed, "refused")
        await settle.leave_uncertain(connection, clock, unknown, "cut off")
    clock.move(LATE)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, just, 2)
    clock.move(SECOND)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, late, 3)
        await settle.give_back(connection, clock, expired, hold="window closed", keep=SECOND)
    assert counts(await line(database)) == {
        "promised": 8,
        "kept": 2,
        "late": 1,
        "broken": 2,
        "unknown": 1,
        "released": 1,
        "pending": 1,
    }
    clock.move(SECOND)
    async with database.transaction() as connection:
        assert await expire_held(connection, clock) == 1
    found = counts(await line(database))
    assert (found["broken"], found.get("pending")) == (3, None)
    assert await counted(house) == {
        name: found.get(name, 0) for name in ("kept", "late", "broken", "unknown", "released")
    }


@pytest.mark.parametrize(
    ("by", "column"),
    [
        ("the customer", "released"),
        ("the customer, who opted out", "released"),
        ("the customer: they called", "released"),
        ("the customers' team", "broken"),
        ("eva", "broken"),
        (None, "broken"),
    ],
)
@pytest.mark.parametrize("is_firing", [False, True])
async def test_what_the_customer_takes_back_is_released_and_what_somebody_else_does_is_broken(
    database: Database, clock: MovableClock, by: str | None, column: str, is_firing: bool
) -> None:
    (task,) = await promised(database, clock, 1)
    async with database.transaction() as connection:
        if not is_firing:
            await settle.give_back(connection, clock, task)
        await cancel(connection, clock, "acme", [task.id], by=by)
    if is_firing:
        async with database.transaction() as connection:
            await settle.cancel(connection, clock, task)
    assert counts(await line(database)) == {"promised": 1, column: 1}


async def test_what_failed_and_was_put_away_stays_broken(database: Database, clock: MovableClock) -> None:
    (task,) = await promised(database, clock, 1)
    async with database.transaction() as connection:
        await settle.fail(connection, clock, task, "refused")
        assert await operate.discard(connection, clock, "acme", task.id, "eva: the customer knows")
    assert counts(await line(database)) == {"promised": 1, "broken": 1}


async def test_what_nobody_promised_in_a_conversation_is_no_promise(database: Database, clock: MovableClock) -> None:
    async with database.transaction() as connection:
        talk = await a_conversation(connection)
        await book(connection, clock, Booking("acme", "followup", timedelta(), talk, "web", {}))
        await book(connection, clock, Booking("acme", "notice", timedelta(), talk, "web", {"words": "x"}, lane=True))
        await book(connection, clock, Booking("acme", "function", timedelta(), payload={"path": "/x"}, parent=1))
        assert await ledger(connection) == []


async def test_a_reminder_in_a_conversation_is_kept_and_each_of_what_comes_again_counts(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    lines = (books("call Ana", delay="10 seconds"), "Booked.", again(every="2 hours"), "Booked.")
    async for desk in a_desk(database, tmp_path, clock, *lines):
        await opened(desk)
        await desk.says("and every two hours to drink")
        await desk.until_quiet()
        await desk.goes_by(timedelta(seconds=10))
        assert counts(await line(database)) == {"promised": 1, "kept": 1}
        for _ in range(2):
            await desk.goes_by(timedelta(hours=2))
        assert counts(await line(database)) == {"promised": 3, "kept": 3}


async def test_a_promise_that_waited_for_a_person_is_late(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, books("call Ana", delay="10 seconds"), "Booked."):
        conversation = await opened(desk)
        await desk.pauses(conversation)
        await desk.goes_by(timedelta(minutes=10))
        await desk.until_held("followup")
        await desk.resumes(conversation)
        await desk.until_quiet()
        assert counts(await line(database)) == {"promised": 1, "late": 1}


async def test_it_is_told_by_tenant_and_day_week_or_month_on_the_command_line(
    database: Database, tmp_path: Path, database_url: str, clock: MovableClock
) -> None:
    shell = Shell(tmp_path, database_url)
    async with database.transaction() as connection:
        await a_tenant(connection, "idle")
    clock.at = datetime(2026, 10, 31, 23, 59, tzinfo=UTC)  # a Saturday
    await promised(database, clock, 1)
    clock.at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    (kept,) = await promised(database, clock, 1)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, kept, 1)
    clock.at = datetime(2026, 11, 2, tzinfo=UTC)
    await promised(database, clock, 1, tenant="globex")

    async def rows(*words: str) -> list[tuple[Any, ...]]:
        return [(one["tenant"], one["since"], one["promised"]) for one in await shell.json("promises", *words)]

    assert await rows() == [("acme", None, 2), ("globex", None, 1)]
    days = [("acme", "2026-10-31", 1), ("acme", "2026-11-01", 1), ("globex", "2026-11-02", 1)]
    assert await rows("--by", "day") == days
    assert await rows("--by", "week") == [("acme", "2026-10-26", 2), ("globex", "2026-11-02", 1)]
    assert await rows("--by", "month", "--tenant", "acme") == [("acme", "2026-10-01", 1), ("acme", "2026-11-01", 1)]
    assert await rows("--by", "day", "--since", "2026-11-01", "--until", "2026-11-01") == days[1:2]
    assert await rows("--tenant", "idle") == []
    (line,) = await shell.json("promises", "--since", "2026-11-01", "--tenant", "acme")
    assert (line["kept"], line["kept_of_due"]) == (1, 1.0)
    code, said = await shell.run("promises", "--by", "day")
    assert (code, "100.0%" in said, "2026-11-01" in said) == (0, True, True), said
    code, said = await shell.run("promises", "--tenant", "nobody")
    assert (code, "there is no tenant 'nobody'" in said) == (2, True), said
    assert (await shell.run("promises", "--since", "yesterday"))[0] == 2
