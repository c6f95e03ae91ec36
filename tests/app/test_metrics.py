"""What `/metrics` counts."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.http import application
from channels.message import Accepted, NotSent, Outcome, Rejected, Unknown
from scheduler import operate, recovery, settle
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.task import Task
from store.database import Database
from tests.support.asgi import calling
from tests.support.claims import LEASE, take
from tests.support.factories import a_conversation, a_followup
from tests.support.house import House, a_house

HOUR = timedelta(hours=1)
LABELS = ("tenant", "channel", "kind", "state", "outcome")
Series = dict[tuple[str, ...], float]


@pytest.fixture
async def house(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[House]:
    async with a_house(database, tmp_path, clock=clock, poll=False) as house:
        yield house


async def series(house: House, name: str, *, is_whole: bool = False) -> Series:
    """Return a series as it is scraped: the values of its labels, and how much there is of each; of none only if whole."""
    async with calling(application(house.run)) as http:
        answer: httpx.Response = await http.get("/metrics")
    return {
        tuple(sample.labels[label] for label in LABELS if label in sample.labels): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == name and (sample.value or is_whole)
    }


async def claimed(house: House, count: int = 1) -> list[Task]:
    async with house.service.database.transaction() as connection:
        conversation = await a_conversation(connection)
        for _ in range(count):
            await a_followup(connection, house.service.clock, conversation)
    return await take(house.service.database, house.service.clock, work=count)


async def test_what_has_not_happened_yet_is_counted_as_nought_so_that_its_first_time_can_be_told(house: House) -> None:
    await house.service.tenant("acme")
    assert await series(house, "vuelvo_tasks_recovered_total", is_whole=True) == {
        ("acme", "turn"): 0,
        ("acme", "followup"): 0,
    }
    assert await series(house, "vuelvo_messages_received_total", is_whole=True) == {("acme", "web"): 0}


async def test_a_task_is_counted_by_how_it_ended_whoever_ended_it(house: House, clock: MovableClock) -> None:
    database = house.service.database
    said, skipped, refused, unknown, taken_back, late, given_back, written, abandoned = await claimed(house, 9)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, said, 1)
        await settle.skip(connection, clock, skipped, "nothing left to answer")
        await settle.fail(connection, clock, refused, "refused")
        await settle.leave_uncertain(connection, clock, unknown, "cut off")
        await settle.cancel(connection, clock, taken_back)
        await settle.expire(connection, clock, late)
        raced = [given_back.id, written.id, abandoned.id]
        assert (await cancel(connection, clock, "acme", raced)).raced == raced
        assert await settle.give_back(connection, clock, given_back) == "cancelled"
        assert await settle.keep_text(connection, clock, written, "Call Ana") == "cancelled"
    expected: Series = {
        ("followup", "cancelled", ""): 3.0,
        ("followup", "expired", ""): 1.0,
        ("followup", "failed", ""): 1.0,
        ("followup", "fired", "delivered"): 1.0,
        ("followup", "fired", "skipped"): 1.0,
        ("followup", "uncertain", ""): 1.0,
    }
    assert await series(house, "vuelvo_tasks_settled_total") == of_acme(expected)
    assert await series(house, "vuelvo_tasks_troubled") == {("failed",): 1, ("uncertain",): 1}

    clock.move(2 * LEASE)
    async with database.transaction() as connection:
        assert await recovery.recover(connection, clock) == 1
        later = await a_followup(connection, clock, said.conversation or 0, due=HOUR)
        await cancel(connection, clock, "acme", [later.id])
        await operate.discard(connection, clock, "acme", refused.id, "eva")
        await operate.settle(connection, clock, "acme", unknown.id, "eva", is_delivered=True)
    expected[("followup", "cancelled", "")] += 3
    expected[("followup", "fired", "delivered")] += 1
    assert await series(house, "vuelvo_tasks_settled_total") == of_acme(expected)
    assert await series(house, "vuelvo_tasks_recovered_total") == {}, "it was cancelled"
    troubled = await series(house, "vuelvo_tasks_troubled", is_whole=True)
    assert troubled == {("failed",): 0, ("uncertain",): 0}


def of_acme(expected: Series) -> Series:
    return {("acme", *labels): value for labels, value in expected.items()}


async def test_what_is_rolled_back_is_not_counted_and_what_is_recovered_is(house: House, clock: MovableClock) -> None:
    database = house.service.database
    (task,) = await claimed(house)

    async def stumble() -> None:
        async with database.transaction() as connection:
            await settle.deliver(connection, clock, task, 1)
            raise RuntimeError("before it commits")

    with pytest.raises(RuntimeError):
        await stumble()
    clock.move(2 * LEASE)
    async with database.transaction() as connection:
        await recovery.recover(connection, clock)
    assert await series(house, "vuelvo_tasks_settled_total") == {}
    assert await series(house, "vuelvo_tasks_recovered_total") == {("acme", "followup"): 1}


async def test_what_the_poller_tells_and_each_send_are_counted(house: House) -> None:
    counts, (task,) = house.service.counts, await claimed(house)
    counts.happened("lease lost", task)
    counts.happened("quarantined", task)
    outcomes: list[Outcome] = [Accepted("SM1"), Rejected("no"), NotSent("no"), Unknown("no"), Unknown("no")]
    for outcome in outcomes:
        counts.sent("acme", "whatsapp", outcome)
    assert await series(house, "vuelvo_leases_lost_total") == {("acme", "followup"): 1}
    assert await series(house, "vuelvo_tasks_quarantined_total") == {("acme", "followup"): 1}
    assert await series(house, "vuelvo_sends_total") == {
        ("acme", "whatsapp", "accepted"): 1,
        ("acme", "whatsapp", "rejected"): 1,
        ("acme", "whatsapp", "not_sent"): 1,
        ("acme", "whatsapp", "unknown"): 2,
    }


async def test_a_followup_that_was_asked_for_and_said_is_counted_once_with_its_lateness(
    database: Database, tmp_path: Path
) -> None:
    async with a_house(database, tmp_path) as house:
        received = await house.says("remind me in 1 second to call Ana")
        await house.until_heard(received.conversation, 2)
        assert await series(house, "vuelvo_tasks_settled_total") == {
            ("acme", "turn", "fired", "delivered"): 1,
            ("acme", "followup", "fired", "delivered"): 1,
        }
        assert await series(house, "vuelvo_followup_lateness_seconds_count") == {("acme", "web"): 1}
        ((_, age),) = (await series(house, "vuelvo_poller_heartbeat_age_seconds")).items()
        assert age < 60
