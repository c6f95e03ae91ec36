"""What the customer reads of a task that failed and was retried."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from channels.message import Accepted, Rejected, Unknown
from scheduler import operate
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_speak import TELEGRAM, Counter, Line
from tests.support.house import a_house
from tests.support.model import Script

MINUTE = timedelta(minutes=1)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
async def counter(database: Database, tmp_path: Path, clock: MovableClock, line: Line) -> AsyncIterator[Counter]:
    script = Script("yes|we do", followups=("one|two|three",))
    config = {"channels": {"telegram": TELEGRAM}}
    async with a_house(database, tmp_path, script.model, clock, poll=False, config=config) as house:
        yield Counter(house, clock, line, script)


def texts(line: Line) -> list[str]:
    return [part.text for part in line.sent]


async def retry(counter: Counter, task: int) -> None:
    async with counter.database.transaction() as connection:
        assert await operate.retry(connection, counter.clock, "acme", task, "eva: mended")


async def test_of_a_followup_only_the_parts_that_did_not_arrive_are_sent_again(counter: Counter, line: Line) -> None:
    task = await counter.written()
    line.answers = [Accepted("m1"), Rejected("the topic is gone")]
    await counter.say()
    assert (await counter.task()).state == "failed"
    await retry(counter, task)
    await counter.say()
    assert texts(line) == ["one", "two", "two", "three"]
    assert (await counter.task()).state == "fired"
    sends = counter.house.service.counts.sends.labels
    assert [sends("acme", "telegram", outcome)._value.get() for outcome in ("accepted", "rejected")] == [3, 1]
    assert await counter.said() == ["one|two|three"]


async def test_what_somebody_says_did_not_arrive_is_sent_again_once_it_is_retried(counter: Counter, line: Line) -> None:
    task = await counter.written()
    line.answers = [Accepted("m1"), Unknown("no answer")]
    await counter.say()
    assert (await counter.task()).state == "uncertain"
    async with counter.database.transaction() as connection:
        await operate.settle(connection, counter.clock, "acme", task, "eva: not in the chat", is_delivered=False)
    await retry(counter, task)
    await counter.say()
    assert texts(line) == ["one", "two", "two", "three"]
    assert await counter.said() == ["one|two|three"]


async def test_an_answer_that_was_refused_is_said_when_its_turn_is_retried(counter: Counter, line: Line) -> None:
    received = await counter.house.says("do you open on Sunday?", channel="telegram", address="42")
    line.answers = [Rejected("the topic is gone")]
    counter.clock.move(MINUTE)
    await counter.say()
    (turn,) = await counter.house.tasks(kind="turn")
    assert turn.state == "failed"
    await retry(counter, turn.id)
    await counter.say()
    assert texts(line) == ["yes", "yes", "we do"]
    assert await counter.house.heard(received.conversation) == ["yes|we do"]
