"""The short form of `make faults`, and what it has found, each in a few lines."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_whatsapp import DUE, REMINDER, an_office
from tests.faults.__main__ import judge
from tests.faults.plan import FAULTS, NETWORKS, NONE, Schedule
from tests.support.twilio_server import Accept, Drop, Message, TwilioServer

SEEDS = range(1, 21)


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    async with TwilioServer(now=lambda: clock.at) as twilio:
        yield twilio


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_goes_wrong_nothing_is_lost_or_said_twice(database: Database, tmp_path: Path, seed: int) -> None:
    verdict = await judge(seed, database, tmp_path)
    assert not verdict.broken, verdict.complaint()


def test_one_seed_is_one_schedule() -> None:
    one, same, other = drawn(Schedule(7)), drawn(Schedule(7)), drawn(Schedule(8))
    assert one == same
    assert one != other


def drawn(schedule: Schedule) -> list[object]:
    """Return what is drawn for a schedule."""
    faults = [schedule.fault(network, "words", attempt) for network in NETWORKS for attempt in range(1, 9)]
    fates = [schedule.fate("words", attempt) for attempt in range(1, 9)]
    return [schedule.things, schedule.restarts, schedule.outages, schedule.unknown, faults, fates]


def test_a_few_hundred_schedules_meet_every_fault() -> None:
    for network in NETWORKS:
        met = {Schedule(seed).fault(network, f"words {seed}", 1) for seed in range(500)}
        assert met == {*FAULTS[network], NONE}


async def test_a_failure_that_passes_is_tried_again_though_its_callback_is_faster_than_the_answer(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        await office.hears("remind me in 10 seconds to call Ana")

        async def fails(message: Message) -> None:
            twilio.on_taken = None
            await office.reports("undelivered", 63012)
            message.status, message.error_code = "queued", None  # the answer on its way is from before

        twilio.on_taken = fails
        (task,) = await office.house.tasks()
        await office.goes_by(DUE)
        await office.has_tried("rejected")
        await office.goes_by(timedelta(minutes=1))
        await office.house.until_state(task.id, "fired")
        assert office.sent[1:] == [REMINDER, REMINDER]


async def test_a_later_part_that_was_lost_and_then_failed_in_passing_is_sent_again_in_time(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    long = "\n\n".join(f"Paragraph {number}: " + "the garden is green and wide. " * 30 for number in range(2))
    async with an_office(database, tmp_path, clock, twilio, followups=(long,)) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Accept(), Drop(accepted=True))
        (task,) = await office.house.tasks()
        await office.goes_by(DUE)
        await office.has_tried("accepted", "unknown")
        await office.reports("undelivered", 63012)
        for _ in range(3):
            await office.goes_by(timedelta(minutes=2))
        await office.house.until_state(task.id, "fired", seconds=3)
        assert len(twilio.messages) == 4


async def test_a_later_part_that_whatsapp_refuses_as_too_late_waits_for_the_customer(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    long = "\n\n".join(f"Paragraph {number}: " + "the garden is green and wide. " * 30 for number in range(2))
    async with an_office(database, tmp_path, clock, twilio, followups=(long,)) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        task = await office.falls_due()
        await office.reports("failed", 63016)
        for _ in range(5):
            await office.goes_by(timedelta(minutes=1))
            if len(twilio.messages) > 3:
                await office.house.until_state(task.id, "fired")
                await office.reports("failed", 63016)
        assert len(twilio.messages) == 3, "text was sent after it was refused as too late"
        assert (await office.until_held(task.id)).hold == "window closed"
