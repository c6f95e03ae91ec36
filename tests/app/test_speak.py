"""Saying something through a network that fails in every way there is, and through workers that die."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from app.sent import go_on
from app.service import FRESH
from app.speak import ASKS, CUT_OFF, EARLY, LONG_PATIENCE, PACED, PATIENCE, SENDS, Speech
from app.tenants_file import senders, to_stored
from app.wiring import apply_tenants, performer
from channels.message import (
    Accepted,
    Filled,
    Lost,
    NotSent,
    OnUnknown,
    Origin,
    Outcome,
    Part,
    Parts,
    Reach,
    Rejected,
    Remedy,
    Status,
    Unknown,
)
from channels.pace import Pace, Rate
from scheduler import operate, recovery
from scheduler.book import Booking, book
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.find import Found
from scheduler.retry import BUDGET
from scheduler.task import Task
from store import conversations, deliveries, tenants
from store.contacts import contacts
from store.database import Database
from store.deliveries import Delivery
from store.secrets import SecretBox
from tests.support.claims import LEASE, row_of, take
from tests.support.factories import a_conversation, lanes
from tests.support.house import House, a_config, a_house
from tests.support.model import Script
from tests.support.wait import eventually, waits_for_a_lock

TELEGRAM = {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_"}
LOOKS = (timedelta(seconds=60), timedelta(minutes=5))
Answer = Outcome | Callable[[Part], Awaitable[Outcome]]
Answered = Sequence[Status] | Unknown


class Line:
    """A channel that answers as told; after that it accepts everything."""

    name = "telegram"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.sent: list[Part] = []
        self.looks: Sequence[timedelta] = ()
        self.waits = timedelta(days=30)
        self.gap = timedelta()
        self.waits_for: list[float] = []
        """What it answers when it is asked for how many seconds a send must wait; after that none must."""
        self.pace: Pace | None = None
        """What it asks instead."""
        self.on_unknown: OnUnknown = "at_most_once"
        self.found: list[Answered | Callable[[], Awaitable[Answered]]] = []
        """What the provider says when it is asked for a lost send; after that it has none."""
        self.asked: list[Lost] = []
        self.is_open = True
        self.is_closed = False

    def split(self, text: str) -> Parts:
        return text.split("|")

    def wait(self, address: str, thread: str | None = None) -> float:
        if self.pace is not None:
            return self.pace.wait(address, thread)
        return self.waits_for.pop(0) if self.waits_for else 0.0

    async def send(self, part: Part) -> Outcome:
        if self.pace is not None:
            self.pace.take(part.address, part.thread)
        self.sent.append(part)
        answer = self.answers.pop(0) if self.answers else Accepted(f"m{len(self.sent)}")
        return await answer(part) if callable(answer) else answer

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        return Rejected("it has no templates")

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        return Rejected("it has no templates")

    def remedy(self, code: int | None) -> Remedy:
        return "none"

    async def look_up(self, lost: Lost) -> Answered:
        self.asked.append(lost)
        answer = self.found.pop(0) if self.found else []
        return await answer() if callable(answer) else answer

    async def look_at_files(self, text: str) -> str:
        return text

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        return Reach(self.is_open)

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        return False

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        return

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self.is_closed = True


class Counter:
    """A house in which the test itself claims and performs, over a line that it holds."""

    def __init__(self, house: House, clock: MovableClock, line: Line, script: Script) -> None:
        self.house, self.clock, self.line, self.script = house, clock, line, script
        self.database = house.service.database
        house.service.make_channel = lambda tenant, name: line if getattr(tenant.channels, name) else None

    async def written(self) -> int:
        """Have a follow-up booked, fallen due and written, so that the next claim says it; return the task."""
        async with self.database.transaction() as connection:
            talk = await a_conversation(connection, channel="telegram", address="42")
            due = Booking("acme", "followup", timedelta(), talk, "telegram", {"about": "call Ana"}, reply_to="5")
            task = (await book(connection, self.clock, due)).id
        await self.perform(await self.claimed())
        return task

    async def claimed(self, worker: str = "one") -> Task:
        """Claim what is due."""
        (task,) = await take(self.database, self.clock, worker)
        return task

    async def nothing_is_due(self) -> bool:
        return not await take(self.database, self.clock)

    async def perform(self, task: Task) -> None:
        await performer(self.house.service)(task)

    async def say(self) -> None:
        """Claim what is due and perform it."""
        await self.perform(await self.claimed())

    async def lose(self) -> None:
        """Let every lease run out and recovery pass."""
        self.clock.move(LEASE + timedelta(seconds=1))
        async with self.database.transaction() as connection:
            assert await recovery.recover(connection, self.clock) == 1

    async def task(self) -> Found:
        (task,) = await self.house.tasks()
        return task

    async def deliveries(self) -> list[Delivery]:
        return list(await self.deliveries_of((await self.task()).id))

    async def deliveries_of(self, task: int) -> Any:
        async with self.database.transaction() as connection:
            return await deliveries.of_task(connection, "acme", task)

    async def said(self) -> list[str]:
        """What stands in the log as said to the customer."""
        task = await self.task()
        return await self.house.heard(task.conversation or 0)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
async def counter(database: Database, tmp_path: Path, clock: MovableClock, line: Line) -> AsyncIterator[Counter]:
    script = Script(followups=("Call Ana.",))
    config = {"channels": {"telegram": TELEGRAM}}
    async with a_house(database, tmp_path, script.model, clock, poll=False, config=config) as house:
        yield Counter(house, clock, line, script)


@pytest.fixture
async def long(database: Database, tmp_path: Path, clock: MovableClock, line: Line) -> AsyncIterator[Counter]:
    """The same with a text of three parts."""
    script = Script(followups=("one|two|three",))
    config = {"channels": {"telegram": TELEGRAM}}
    async with a_house(database, tmp_path, script.model, clock, poll=False, config=config) as house:
        yield Counter(house, clock, line, script)


async def test_each_outcome_ends_the_task_in_its_own_way(counter: Counter, line: Line) -> None:
    ways: dict[str, tuple[Outcome, str, str | None]] = {
        "accepted": (Accepted("7"), "fired", None),
        "rejected": (Rejected("blocked by the customer"), "failed", "blocked by the customer"),
        "unknown": (Unknown("no answer"), "uncertain", "no answer"),
    }
    for name, (answer, state, error) in ways.items():
        task = await counter.written()
        line.answers.append(answer)
        await counter.say()
        found = await counter.house.until_state(task, state)
        assert found.error == error
        assert [one.outcome for one in await counter.deliveries_of(task)] == [name]
    assert await counter.nothing_is_due()


async def test_what_was_refused_does_not_stand_in_the_log_and_what_may_have_arrived_does(
    counter: Counter, line: Line
) -> None:
    line.answers += [Rejected("no"), Unknown("hm")]
    refused = await counter.written()
    await counter.say()
    assert await counter.house.heard((await counter.house.until_state(refused, "failed")).conversation or 0) == []
    unsure = await counter.written()
    await counter.say()
    found = await counter.house.until_state(unsure, "uncertain")
    assert await counter.house.heard(found.conversation or 0) == ["Call Ana."]


# Workers that die


async def test_a_worker_that_dies_while_the_provider_is_asked_leaves_the_task_uncertain(
    counter: Counter, line: Line
) -> None:
    async def never(part: Part) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    line.answers.append(never)
    await counter.written()
    work = asyncio.create_task(counter.say())
    await eventually(lambda: bool(line.sent))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [one.outcome for one in await counter.deliveries()] == [None]
    await counter.lose()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.error) == ("uncertain", CUT_OFF)
    assert [one.outcome for one in await counter.deliveries()] == ["unknown"]
    assert await counter.said() == ["Call Ana."]
    assert len(line.sent) == 1
    counter.clock.move(timedelta(days=1))
    assert await counter.nothing_is_due()


async def test_a_worker_that_dies_before_the_second_door_costs_nothing(counter: Counter, line: Line) -> None:
    await counter.written()
    await counter.claimed("dies")
    await counter.lose()
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert len(line.sent) == 1


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Accepted("7"), "accepted"),
        (Rejected("no"), "rejected"),
        (NotSent("busy"), "not_sent"),
        (Unknown("hm"), "unknown"),
    ],
)
async def test_a_claim_lost_while_the_provider_answers_settles_nothing_but_keeps_what_it_said(
    counter: Counter, line: Line, answer: Outcome, outcome: str
) -> None:
    async def late(part: Part) -> Outcome:
        await counter.lose()
        return answer

    line.answers.append(late)
    await counter.written()
    with pytest.raises(LostClaim):
        await counter.say()
    task = await counter.task()
    assert (task.state, task.outcome, task.error) == ("scheduled", None, None)
    assert await counter.said() == []
    (delivery,) = await counter.deliveries()
    assert delivery.outcome == outcome
    assert delivery.provider_id == ("7" if outcome == "accepted" else None)


@pytest.mark.parametrize(
    ("answer", "state", "sends"),
    [(Accepted("7"), "fired", 1), (Unknown("hm"), "uncertain", 1), (NotSent("busy"), "fired", 2)],
)
async def test_whoever_claims_next_goes_by_what_the_late_worker_learned(
    counter: Counter, line: Line, answer: Outcome, state: str, sends: int
) -> None:
    async def late(part: Part) -> Outcome:
        await counter.lose()
        return answer

    line.answers.append(late)
    await counter.written()
    with pytest.raises(LostClaim):
        await counter.say()
    await counter.say()
    assert (await counter.task()).state == state
    assert len(line.sent) == sends
    assert await counter.said() == ["Call Ana."]


@pytest.mark.parametrize(
    ("answer", "state", "outcome"), [(Accepted("7"), "fired", "accepted"), (Rejected("no"), "failed", "rejected")]
)
async def test_the_late_answer_settles_it_even_after_the_next_worker_gave_it_up(
    counter: Counter, line: Line, answer: Outcome, state: str, outcome: str
) -> None:
    async def late(part: Part) -> Outcome:
        await counter.lose()
        await counter.say()
        assert (await counter.task()).state == "uncertain"
        return answer

    line.answers.append(late)
    await counter.written()
    with pytest.raises(LostClaim):
        await counter.say()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.message_seq) == (state, 1)
    assert [one.outcome for one in await counter.deliveries()] == [outcome]
    assert await counter.said() == ["Call Ana."]
    assert len(line.sent) == 1


async def test_a_callback_that_came_while_nobody_held_the_task_settles_it(counter: Counter, line: Line) -> None:
    async def cut_off(part: Part) -> Outcome:
        async with counter.database.transaction() as connection:
            await deliveries.note_status(connection, "acme", part.delivery, "7", "sent", None)
        raise asyncio.CancelledError

    line.answers.append(cut_off)
    await counter.written()
    with pytest.raises(asyncio.CancelledError):
        await counter.say()
    await counter.lose()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.outcome, task.message_seq) == ("fired", "delivered", 1)
    assert len(line.sent) == 1
    assert await counter.said() == ["Call Ana."]


async def test_what_has_arrived_by_a_callback_is_ended_with_the_task_taken_before_its_conversation(
    counter: Counter, line: Line
) -> None:
    async def cut_off(part: Part) -> Outcome:
        async with counter.database.transaction() as connection:
            await deliveries.note_status(connection, "acme", part.delivery, "7", "sent", None)
        raise asyncio.CancelledError

    line.answers.append(cut_off)
    await counter.written()
    with pytest.raises(asyncio.CancelledError):
        await counter.say()
    await counter.lose()
    task, service = await counter.claimed(), counter.house.service
    async with counter.database.transaction() as connection:
        talk = await conversations.find(connection, "acme", task.conversation or 0)
    assert talk is not None
    speech = Speech(service, await service.tenant_of(task), talk, task, str(task.text), kind="followup")
    async with counter.database.transaction() as connection:  # as one that finds its lease run out
        await operate.lock(connection, "acme", task.id)
        saying = asyncio.create_task(speech.say())
        await eventually(lambda: waits_for_a_lock(counter.database))
        await connection.execute(text("update conversations set seen_seq = 0"))
    await saying
    assert (await counter.task()).outcome == "delivered"


async def test_a_callback_that_is_faster_than_an_answer_that_never_comes_is_believed(long: Counter, line: Line) -> None:
    async def lost(part: Part) -> Outcome:
        async with long.database.transaction() as connection:
            await deliveries.note_status(connection, "acme", part.delivery, f"m{part.text}", "sent", None)
        return Unknown("no answer")

    line.answers += [lost, Accepted("2"), lost]
    await long.written()
    await long.say()
    assert (await long.task()).outcome == "delivered"
    assert [one.provider_id for one in await long.deliveries()] == ["mone", "2", "mthree"]


async def test_a_task_that_cannot_be_settled_for_the_database_keeps_what_the_provider_said(
    counter: Counter, line: Line
) -> None:
    async def meanwhile(part: Part) -> Outcome:
        async with counter.database.transaction() as connection:
            await connection.exec_driver_sql("alter table messages rename to mislaid")
        return Accepted("7")

    line.answers.append(meanwhile)
    await counter.written()
    with pytest.raises(Exception, match="messages"):
        await counter.say()
    async with counter.database.transaction() as connection:
        await connection.exec_driver_sql("alter table mislaid rename to messages")
    assert [one.outcome for one in await counter.deliveries()] == ["accepted"]
    await counter.lose()
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert len(line.sent) == 1


# Several parts


async def test_a_long_text_resumes_at_the_part_that_did_not_go_out(long: Counter, line: Line) -> None:
    line.answers += [Accepted("1"), NotSent("busy")]
    task = await long.written()
    await long.say()
    long.clock.move(timedelta(seconds=2))
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "two", "three"]
    assert [part.reply_to for part in line.sent] == ["5", None, None, None]
    assert len({part.delivery for part in line.sent}) == 4
    assert (await long.house.until_state(task, "fired")).outcome == "delivered"
    assert await long.said() == ["one|two|three"]


async def test_an_unknown_part_ends_it_there(long: Counter, line: Line) -> None:
    line.answers += [Accepted("1"), Unknown("hm")]
    await long.written()
    await long.say()
    assert (await long.task()).state == "uncertain"
    assert len(line.sent) == 2
    assert await long.said() == ["one|two|three"]


@pytest.mark.parametrize("refusal", [Rejected("no"), Rejected("the token is revoked", tenant_fault=True)])
async def test_a_part_refused_after_others_arrived_fails_the_task_and_stands_in_the_log(
    long: Counter, line: Line, refusal: Rejected
) -> None:
    line.answers += [Accepted("1"), refusal]
    await long.written()
    await long.say()
    task = await long.task()
    assert (task.state, task.error) == ("failed", refusal.reason)
    assert await long.said() == ["one|two|three"]


async def test_what_has_half_left_the_house_is_raced_by_a_cancel_and_finished(long: Counter, line: Line) -> None:
    line.answers += [Accepted("1"), NotSent("busy")]
    task = await long.written()
    await long.say()
    async with long.database.transaction() as connection:
        done = await cancel(connection, long.clock, "acme", [task])
    assert (done.cancelled, done.raced) == ([], [task])
    long.clock.move(timedelta(seconds=2))
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "two", "three"]
    assert (await long.task()).outcome == "delivered"


async def test_a_claim_lost_between_two_parts_sends_no_more(long: Counter, line: Line) -> None:
    async def late(part: Part) -> Outcome:
        await long.lose()
        return Accepted("1")

    line.answers.append(late)
    await long.written()
    with pytest.raises(LostClaim):
        await long.say()
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "three"]
    assert (await long.task()).outcome == "delivered"


# Sends of which nobody knows


@pytest.fixture
def asked(line: Line) -> Line:
    """A line whose provider can be asked what it has, and whose tenant wants what it has not to be sent again."""
    line.looks, line.on_unknown = LOOKS, "at_least_once"
    return line


async def test_a_lost_send_waits_behind_the_second_door_and_holds_up_nobody(counter: Counter, asked: Line) -> None:
    asked.answers.append(Unknown("no answer"))
    first = await counter.written()
    claimed = await counter.claimed()
    await counter.perform(claimed)
    task = await counter.task()
    assert (task.state, task.hold, task.error) == ("scheduled", None, "no answer")
    assert task.due_at == counter.clock.at + LOOKS[0]
    row = await row_of(counter.database, first)
    assert (row["sending"], row["attempt"], row["text"], row["message_seq"]) == (True, 0, "Call Ana.", 1)
    assert await counter.said() == ["Call Ana."], "an answer to it must make sense"
    second = await counter.written()
    await counter.say()
    assert (await counter.house.until_state(second, "fired")).outcome == "delivered"
    assert asked.asked == []


async def test_what_the_provider_has_was_accepted_and_what_is_left_goes_on(long: Counter, asked: Line) -> None:
    asked.answers += [Accepted("1"), Unknown("no answer")]
    asked.found = [[Status("2", "queued")]]
    await long.written()
    began = long.clock.at
    await long.say()
    long.clock.move(LOOKS[0])
    await long.say()
    assert asked.asked == [Lost("42", "two", began)]
    assert [part.text for part in asked.sent] == ["one", "two", "three"]
    assert [(one.outcome, one.provider_id) for one in await long.deliveries()] == [
        ("accepted", "1"),
        ("accepted", "2"),
        ("accepted", "m3"),
    ]
    assert (await long.task()).outcome == "delivered"
    assert await long.said() == ["one|two|three"]


@pytest.mark.parametrize(
    ("policy", "state", "sends"), [("at_least_once", "fired", 2), ("at_most_once", "uncertain", 1)]
)
async def test_what_was_not_found_at_any_look_is_decided_by_the_tenant(
    counter: Counter, asked: Line, policy: OnUnknown, state: str, sends: int
) -> None:
    asked.on_unknown = policy
    asked.answers.append(Unknown("no answer"))
    await counter.written()
    began = counter.clock.at
    await counter.say()
    for look in LOOKS:
        counter.clock.set(began + look - timedelta(milliseconds=1))
        assert await counter.nothing_is_due()
        counter.clock.set(began + look)
        await counter.say()
        assert len(asked.sent) == 1
    assert len(asked.asked) == 2
    counter.clock.move(timedelta(seconds=2))
    if sends == 2:
        assert [one.outcome for one in await counter.deliveries()] == ["not_sent"]
        await counter.say()
    task = await counter.task()
    assert (task.state, len(asked.sent)) == (state, sends)
    assert await counter.said() == ["Call Ana."]
    counter.clock.move(timedelta(days=1))
    assert await counter.nothing_is_due()


async def test_a_provider_that_cannot_tell_is_asked_again_for_about_an_hour_and_not_taken_for_no(
    counter: Counter, asked: Line
) -> None:
    asked.answers.append(Unknown("no answer"))
    asked.found = [Unknown("it is down")] * 100
    await counter.written()
    began = counter.clock.at
    await counter.say()
    while (task := await counter.task()).state == "scheduled":
        counter.clock.set(task.due_at)
        await counter.say()
    assert (task.state, task.error) == ("uncertain", "no answer")
    assert timedelta(minutes=40) <= counter.clock.at - began <= timedelta(minutes=80)
    assert len(asked.asked) == ASKS
    assert (await counter.deliveries())[0].not_found == 0
    assert len(asked.sent) == 1


async def test_what_was_lost_long_before_anybody_could_ask_is_asked_for_twice_all_the_same(
    counter: Counter, asked: Line
) -> None:
    async def dies(part: Part) -> Outcome:
        raise asyncio.CancelledError

    asked.answers.append(dies)
    await counter.written()
    with pytest.raises(asyncio.CancelledError):
        await counter.say()
    counter.clock.move(timedelta(days=1))
    await counter.lose()
    asked.found = [Unknown("it is down")]
    for looks in (1, 2, 3):
        await counter.say()
        assert (len(asked.asked), len(asked.sent)) == (looks, 1)
        counter.clock.move(timedelta(minutes=5))
    await counter.say()
    assert ((await counter.task()).outcome, len(asked.sent)) == ("delivered", 2)


async def test_a_provider_that_can_tell_again_is_believed(counter: Counter, asked: Line) -> None:
    asked.answers.append(Unknown("no answer"))
    asked.found = [Unknown("it is down"), [], Unknown("it is down"), [Status("7", "sent")]]
    await counter.written()
    await counter.say()
    while (task := await counter.task()).state == "scheduled":
        counter.clock.set(task.due_at)
        await counter.say()
    assert (task.outcome, len(asked.asked), len(asked.sent)) == ("delivered", 4, 1)


async def test_equal_texts_are_one_message_each(counter: Counter, asked: Line) -> None:
    asked.answers += [Unknown("no answer"), Accepted("theirs"), Unknown("no answer")]
    tasks = []
    for _ in range(3):
        tasks.append(await counter.written())
        await counter.say()
    here = [Status("theirs", "sent"), Status("lost", "sent")]
    asked.found = [here] * 3
    counter.clock.move(LOOKS[0])
    for task in await take(counter.database, counter.clock):
        await counter.perform(task)
    for task in await take(counter.database, counter.clock):
        await counter.perform(task)
    ids = [[(one.provider_id, one.not_found) for one in await counter.deliveries_of(task)] for task in tasks]
    assert ids == [[("lost", 0)], [("theirs", 0)], [(None, 1)]]
    counter.clock.move(LOOKS[1] - LOOKS[0])
    await counter.say()
    counter.clock.move(timedelta(seconds=2))
    await counter.say()
    assert len(asked.sent) == 4, "of three, two were taken"


async def test_what_the_provider_has_failed_is_failed(counter: Counter, asked: Line) -> None:
    asked.answers.append(Unknown("no answer"))
    asked.found = [[Status("7", "undelivered", "not on WhatsApp (error 63024)")]]
    await counter.written()
    await counter.say()
    counter.clock.move(LOOKS[0])
    await counter.say()
    task = await counter.task()
    assert (task.state, task.error) == ("failed", "not on WhatsApp (error 63024)")
    (delivery,) = await counter.deliveries()
    assert (delivery.outcome, delivery.provider_id) == ("rejected", "7")


@pytest.mark.parametrize(("found", "state"), [([], "cancelled"), ([Status("7", "sent")], "fired")])
async def test_a_cancel_of_a_lost_send_stops_it_only_where_it_had_not_gone_out(
    counter: Counter, asked: Line, found: list[Status], state: str
) -> None:
    asked.answers.append(Unknown("no answer"))
    asked.found = [[], found]
    task = await counter.written()
    await counter.say()
    async with counter.database.transaction() as connection:
        assert (await cancel(connection, counter.clock, "acme", [task])).raced == [task]
    for until in (LOOKS[0], LOOKS[1] - LOOKS[0]):
        counter.clock.move(until)
        await counter.say()
    assert (await counter.task()).state == state
    assert len(asked.sent) == 1


async def test_a_worker_that_dies_in_a_send_or_in_a_look_leaves_it_to_be_looked_up(
    counter: Counter, asked: Line
) -> None:
    async def dies(*_: object) -> Any:
        raise asyncio.CancelledError

    asked.answers.append(dies)
    asked.found = [dies, [Status("7", "sent")]]
    await counter.written()
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            await counter.say()
        await counter.lose()
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert [(one.outcome, one.provider_id) for one in await counter.deliveries()] == [("accepted", "7")]
    assert len(asked.sent) == 1


async def test_of_two_workers_that_look_one_counts(counter: Counter, asked: Line) -> None:
    async def slow() -> Answered:
        await counter.lose()
        await counter.say()
        return []

    asked.answers.append(Unknown("no answer"))
    asked.found = [slow, []]
    await counter.written()
    await counter.say()
    counter.clock.move(LOOKS[0])
    with pytest.raises(LostClaim):
        await counter.say()
    assert len(asked.asked) == 2
    assert [one.not_found for one in await counter.deliveries()] == [1]
    assert (await counter.task()).state == "scheduled"
    assert len(asked.sent) == 1


async def test_a_callback_during_the_look_is_believed_rather_than_the_look(counter: Counter, asked: Line) -> None:
    async def meanwhile() -> Answered:
        (delivery,) = await counter.deliveries()
        async with counter.database.transaction() as connection:
            await deliveries.note_status(connection, "acme", delivery.id, "7", "sent", None)
            await go_on(counter.house.service, connection, "acme", asked, task, "Twilio: sent")
        return []

    asked.answers.append(Unknown("no answer"))
    asked.found = [meanwhile]
    task = await counter.written()
    await counter.say()
    counter.clock.move(LOOKS[0])
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert len(asked.sent) == 1


@pytest.mark.parametrize("looks", [(), LOOKS])
async def test_what_is_always_lost_is_sent_again_only_so_often(
    counter: Counter, line: Line, looks: Sequence[timedelta]
) -> None:
    line.looks, line.on_unknown = looks, "at_least_once"
    line.answers += [Unknown("no answer")] * 100
    await counter.written()
    while (task := await counter.task()).state == "scheduled":
        counter.clock.set(max(task.due_at, counter.clock.at))
        await counter.say()
    assert task.state == "uncertain"
    assert [one.outcome for one in await counter.deliveries()] == ["not_sent"] * (BUDGET - 1) + ["unknown"]
    assert len(line.sent) == BUDGET
    assert await counter.said() == ["Call Ana."]


async def test_an_open_send_of_a_dead_worker_is_sent_again_where_the_tenant_wants_it_at_least_once(
    counter: Counter, line: Line
) -> None:
    async def dies(part: Part) -> Outcome:
        raise asyncio.CancelledError

    line.on_unknown = "at_least_once"
    line.answers.append(dies)
    await counter.written()
    with pytest.raises(asyncio.CancelledError):
        await counter.say()
    await counter.lose()
    await counter.say()
    counter.clock.move(timedelta(seconds=2))
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert [(one.outcome, one.reason) for one in await counter.deliveries()] == [
        ("not_sent", CUT_OFF),
        ("accepted", None),
    ]


async def test_a_lost_send_whose_channel_was_taken_away_is_uncertain(counter: Counter, asked: Line) -> None:
    asked.answers.append(Unknown("no answer"))
    await counter.written()
    await counter.say()
    await counter.house.service.close()
    counter.house.service.make_channel = lambda _tenant, _name: None
    counter.clock.move(LOOKS[0])
    await counter.say()
    assert (await counter.task()).state == "uncertain"


async def test_what_somebody_says_did_not_arrive_is_sent_again_and_not_looked_for_any_more(
    long: Counter, line: Line
) -> None:
    line.answers += [Accepted("1"), Unknown("hm"), NotSent("busy")]
    task = await long.written()
    await long.say()
    async with long.database.transaction() as connection:
        await operate.settle(connection, long.clock, "acme", task, "eva", is_delivered=False)
        await operate.retry(connection, long.clock, "acme", task, "eva")
    await long.say()
    long.clock.move(timedelta(seconds=2))
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "two", "two", "three"]
    assert (await long.task()).outcome == "delivered"


async def test_an_uncertain_task_goes_on_once_all_its_sends_are_known(long: Counter, line: Line) -> None:
    line.answers += [Accepted("1"), Unknown("hm")]
    task = await long.written()
    await long.say()
    assert (await long.task()).state == "uncertain"
    async with long.database.transaction() as connection:
        await go_on(long.house.service, connection, "acme", line, task, "nobody")
    assert (await long.task()).state == "uncertain"
    (_, lost) = await long.deliveries()
    async with long.database.transaction() as connection:
        await deliveries.note_status(connection, "acme", lost.id, "2", "sent", None)
        await go_on(long.house.service, connection, "acme", line, task, "Twilio: sent")
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "three"]
    found = await long.task()
    assert (found.outcome, found.message_seq) == ("delivered", 1)
    assert await long.said() == ["one|two|three"]


# Trying again


async def test_a_cancel_before_the_second_door_stops_it(counter: Counter, line: Line) -> None:
    task = await counter.written()
    claimed = await counter.claimed()
    async with counter.database.transaction() as connection:
        done = await cancel(connection, counter.clock, "acme", [task])
    assert done.raced == [task]
    await counter.perform(claimed)
    assert (await counter.task()).state == "cancelled"
    assert line.sent == []


async def test_what_did_not_go_out_is_tried_again_later_and_later_and_then_given_up(
    counter: Counter, line: Line
) -> None:
    line.answers += [NotSent("no connection")] * SENDS
    await counter.written()
    began = counter.clock.at
    for attempt in range(1, SENDS + 1):
        await counter.say()
        task = await counter.task()
        if attempt < SENDS:
            assert (task.state, task.error) == ("scheduled", "no connection")
            assert task.attempt == min(attempt, BUDGET - 1), "one more and it would be taken for one that kills workers"
            assert task.due_at > counter.clock.at
            counter.clock.set(task.due_at)
    assert (task.state, task.error) == ("failed", "no connection")
    assert [one.outcome for one in await counter.deliveries()] == ["not_sent"] * SENDS
    assert counter.clock.at - began > timedelta(minutes=20)
    assert counter.script.asked_for_followups() == 1, "what was written is not written again"


async def test_a_provider_that_asks_to_wait_is_waited_for(counter: Counter, line: Line) -> None:
    line.answers.append(NotSent("slow down", retry_after=90))
    await counter.written()
    await counter.say()
    counter.clock.move(timedelta(seconds=89))
    assert await counter.nothing_is_due()
    counter.clock.move(timedelta(seconds=1))
    await counter.say()
    assert (await counter.task()).outcome == "delivered"


# Holds, and what ends them in the very moment they begin


async def applied(counter: Counter, token: str) -> None:
    config = a_config(channels={"telegram": {"token": token}})
    await apply_tenants(counter.house.service, [config])


async def test_a_refused_channel_waits_until_its_tenant_is_applied(counter: Counter, line: Line) -> None:
    line.answers.append(Rejected("the token is revoked", tenant_fault=True))
    await counter.written()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.hold, task.error) == ("scheduled", "channel paused", "the token is revoked")
    counter.clock.move(timedelta(days=3))
    assert await counter.nothing_is_due()
    await applied(counter, TELEGRAM["token"])
    await counter.say()
    assert (await counter.task()).outcome == "delivered"


async def test_a_refused_channel_costs_a_task_nothing_however_often_its_tenant_is_applied(
    counter: Counter, line: Line
) -> None:
    line.answers += [Rejected("the token is revoked", tenant_fault=True)] * 2 * BUDGET
    await counter.written()
    for _ in range(2 * BUDGET):
        await counter.say()
        task = await counter.task()
        assert (task.state, task.hold, task.error) == ("scheduled", "channel paused", "the token is revoked")
        assert task.attempt < BUDGET
        await applied(counter, TELEGRAM["token"])
    await counter.say()
    assert (await counter.task()).outcome == "delivered"


async def test_a_tenant_applied_while_its_old_token_is_being_refused_is_not_waited_for(
    counter: Counter, line: Line
) -> None:
    async def refused(part: Part) -> Outcome:
        await applied(counter, "99:" + "n" * 30)
        return Rejected("the token is revoked", tenant_fault=True)

    line.answers.append(refused)
    await counter.written()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.hold) == ("scheduled", None)
    counter.clock.move(timedelta(seconds=FRESH))
    await counter.say()
    assert (await counter.task()).outcome == "delivered"


async def test_a_refusal_is_kept_where_the_tenant_has_become_unusable_meanwhile(counter: Counter, line: Line) -> None:
    async def refused(part: Part) -> Outcome:
        config = a_config(channels={"telegram": TELEGRAM})
        async with counter.database.transaction() as connection:
            stored = to_stored(config, SecretBox(b"another secret key than the service's own"))
            await tenants.apply(connection, "acme", stored, senders(config))
        return Rejected("the token is revoked", tenant_fault=True)

    line.answers.append(refused)
    await counter.written()
    await counter.say()
    assert [delivery.outcome for delivery in await counter.deliveries()] == ["rejected"]
    assert (await counter.task()).state == "scheduled"
    await applied(counter, TELEGRAM["token"])
    counter.clock.move(timedelta(seconds=FRESH))
    await counter.say()
    assert (await counter.task()).outcome == "delivered"


async def test_a_customer_who_writes_while_their_window_is_found_closed_is_not_waited_for(
    counter: Counter, line: Line
) -> None:
    await counter.written()
    claimed = await counter.claimed()
    house, written = counter.house, asyncio.Event()

    class Window(Line):
        def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
            written.set()
            return Reach(origin.last_inbound_at is not None)

    window = Window()
    house.service.make_channel = lambda tenant, name: window
    async with counter.database.transaction() as connection:
        # Their message is under way: it holds the conversation, and has looked for what it may release.
        await connection.exec_driver_sql("update conversations set last_inbound_at = now()")
        work = asyncio.create_task(counter.perform(claimed))
        await written.wait()
        await eventually(lambda: waits_for_a_lock(counter.database))
        assert not work.done()
    await work
    assert (await counter.task()).outcome == "delivered"
    assert len(window.sent) == 1


async def test_a_closed_window_holds_the_words_until_the_customer_writes(counter: Counter, line: Line) -> None:
    line.is_open = False
    await counter.written()
    await counter.say()
    task = await counter.task()
    assert (task.state, task.hold, line.sent) == ("scheduled", "window closed", [])
    line.is_open = True
    await counter.house.says("hello?", channel="telegram", address="42")
    await counter.say()
    assert [part.text for part in line.sent] == ["Call Ana."]
    assert (await counter.task()).outcome == "delivered"


async def test_a_tenant_applied_while_something_is_sent_cuts_nothing_off(counter: Counter, line: Line) -> None:
    async def meanwhile(part: Part) -> Outcome:
        house, config = counter.house, a_config(channels={"telegram": {"token": "99:" + "n" * 30}})
        await apply_tenants(house.service, [config])
        house.service.make_channel = lambda tenant, name: Line()
        assert await house.service.channel(config, "telegram") is not line
        assert not line.is_closed
        return Accepted("7")

    line.answers.append(meanwhile)
    await counter.written()
    await counter.say()
    await counter.house.service.close()
    assert line.is_closed


# A channel that carries no more just now


async def is_in_lane(counter: Counter, task: int) -> bool:
    return list((await lanes(counter.database)).values()) == [task]


async def test_a_channel_that_is_busy_for_a_moment_is_waited_for_in_the_lane(counter: Counter, line: Line) -> None:
    task = await counter.written()
    line.waits_for = [2.0, 0.5]
    work = asyncio.create_task(counter.say())
    for span in (2.0, 0.5):
        await eventually(lambda: bool(counter.clock.sleepers))
        assert await is_in_lane(counter, task)
        assert (await counter.deliveries(), line.sent) == ([], [])
        counter.clock.move(timedelta(seconds=span))
        await eventually(lambda: not counter.clock.has_sleepers_due())
    await work
    assert (await counter.task()).outcome == "delivered"
    assert len(line.sent) == 1


async def test_what_is_proved_to_have_arrived_while_another_attempt_waits_its_turn_is_not_sent_again(
    counter: Counter, line: Line
) -> None:
    await counter.written()
    line.answers.append(NotSent("busy"))
    await counter.say()
    counter.clock.set((await counter.task()).due_at)
    line.waits_for = [2.0]
    work = asyncio.create_task(counter.say())
    await eventually(lambda: bool(counter.clock.sleepers))
    (first,) = await counter.deliveries()
    async with counter.database.transaction() as connection:
        assert await deliveries.note_status(connection, "acme", first.id, "p1", "sent", None)
    counter.clock.move(timedelta(seconds=2))
    await work
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert len(line.sent) == 1


@pytest.mark.parametrize("is_tenants", [False, True])
async def test_what_is_proved_to_have_arrived_while_another_attempt_is_refused_has_arrived(
    counter: Counter, line: Line, is_tenants: bool
) -> None:
    await counter.written()

    async def refuse(_: Part) -> Outcome:
        first = (await counter.deliveries())[0]
        async with counter.database.transaction() as connection:
            assert await deliveries.note_status(connection, "acme", first.id, "p1", "sent", None)
        return Rejected("not this time", tenant_fault=is_tenants)

    line.answers += [NotSent("busy"), refuse]
    await counter.say()
    counter.clock.set((await counter.task()).due_at)
    await counter.say()
    await counter.say()
    assert (await counter.task()).outcome == "delivered"
    assert len(line.sent) == 2
    assert await counter.nothing_is_due()


async def test_a_channel_that_is_busy_for_longer_gets_the_task_again_when_it_is_worth_waiting(
    counter: Counter, line: Line
) -> None:
    await counter.written()
    for _ in range(BUDGET + 1):
        line.waits_for = [20.0]
        await counter.say()
        task = await counter.task()
        assert (task.state, task.attempt, task.error) == ("scheduled", 0, PACED)
        assert task.due_at == counter.clock.at + timedelta(seconds=20 - PATIENCE - EARLY)
        assert (await counter.deliveries(), line.sent) == ([], [])
        assert list((await lanes(counter.database)).values()) == [None]
        counter.clock.set(task.due_at)
    await counter.say()
    task = await counter.task()
    assert (task.outcome, task.error) == ("delivered", None)
    assert counter.script.asked_for_followups() == 1


async def test_patience_ends_where_others_are_always_faster(counter: Counter, line: Line) -> None:
    await counter.written()
    line.waits_for = [2.0, 2.0]
    work = asyncio.create_task(counter.say())
    await eventually(lambda: bool(counter.clock.sleepers))
    counter.clock.move(timedelta(seconds=2))
    await work
    task = await counter.task()
    assert (task.state, task.due_at) == ("scheduled", counter.clock.at + timedelta(seconds=2))


async def test_a_task_cancelled_while_it_waits_its_turn_is_not_sent(counter: Counter, line: Line) -> None:
    task = await counter.written()
    line.waits_for = [2.0]
    work = asyncio.create_task(counter.say())
    await eventually(lambda: bool(counter.clock.sleepers))
    async with counter.database.transaction() as connection:
        await cancel(connection, counter.clock, "acme", [task], by="the customer")
    counter.clock.move(timedelta(seconds=2))
    await work
    assert ((await counter.task()).state, line.sent) == ("cancelled", [])


async def test_an_answer_that_waits_its_turn_is_kept_and_not_written_again(counter: Counter, line: Line) -> None:
    received = await counter.house.says("hello", channel="telegram", address="42")
    line.waits_for = [6.0]
    counter.clock.move(timedelta(seconds=1))
    await counter.say()
    (turn,) = await counter.house.tasks(kind="turn")
    assert (turn.state, turn.error, line.sent) == ("scheduled", PACED, [])
    async with counter.database.transaction() as connection:
        found = await conversations.find(connection, "acme", received.conversation)
    assert found is not None
    assert found.answered_seq == received.seq, "it is not answered a second time"
    counter.clock.move(timedelta(seconds=6))
    await counter.say()
    assert await counter.house.heard(received.conversation) == [part.text for part in line.sent] == ["Hello."]
    assert len(counter.script.asked) == 1


async def test_what_falls_due_at_the_last_moment_does_not_pass_what_waits_its_turn(
    counter: Counter, line: Line
) -> None:
    line.pace = Pace(Rate(1000, 0.001), lambda _: Rate(1, 6.0), counter.clock.steady)
    await counter.written()
    await counter.say()
    first = await counter.written()
    await counter.say()
    counter.clock.move(timedelta(seconds=6 - PATIENCE - EARLY))
    work = asyncio.create_task(counter.say())
    await eventually(lambda: bool(counter.clock.sleepers))
    second = await counter.written()
    counter.clock.move(timedelta(seconds=PATIENCE + EARLY))
    assert await counter.nothing_is_due()
    await work
    await counter.say()
    counter.clock.move(timedelta(seconds=6))
    await counter.say()
    told = [one.id for task in (first, second) for one in await counter.deliveries_of(task)]
    assert [part.delivery for part in line.sent[1:]] == told
    assert len(told) == 2


async def test_of_many_that_wait_their_turn_each_comes_after_the_one_before(counter: Counter, line: Line) -> None:
    line.waits_for = [20.0, 19.0, 18.0]
    for _ in range(3):
        await counter.written()
        await counter.say()
    waiting = sorted(await counter.house.tasks(), key=lambda task: task.id)
    first = counter.clock.at + timedelta(seconds=20 - PATIENCE - EARLY)
    assert [task.due_at - first for task in waiting] == [timedelta(microseconds=n) for n in range(3)]


async def test_between_the_parts_of_a_message_the_lane_is_kept(long: Counter, line: Line) -> None:
    task = await long.written()
    line.waits_for = [0.0, 6.0, 6.0]
    work = asyncio.create_task(long.say())
    for _ in range(2):
        await eventually(lambda: bool(long.clock.sleepers))
        assert await is_in_lane(long, task)
        long.clock.move(timedelta(seconds=6))
        await eventually(lambda: not long.clock.has_sleepers_due())
    await work
    assert [part.text for part in line.sent] == ["one", "two", "three"]


async def test_between_the_parts_of_a_message_not_even_that_lasts_for_ever(long: Counter, line: Line) -> None:
    await long.written()
    line.waits_for = [0.0, LONG_PATIENCE + 60]
    await long.say()
    task = await long.task()
    assert (task.state, task.error, len(line.sent)) == ("scheduled", PACED, 1)
    assert task.due_at == long.clock.at + timedelta(seconds=LONG_PATIENCE + 60 - PATIENCE - EARLY)
    long.clock.set(task.due_at)
    await long.say()
    assert (await long.task()).outcome == "delivered"
    assert [part.text for part in line.sent] == ["one", "two", "three"]
    assert await long.said() == ["one|two|three"]


async def test_a_part_follows_at_once_where_the_last_has_left_before_the_answer_came(long: Counter, line: Line) -> None:
    async def has_left(part: Part) -> Outcome:
        async with long.database.transaction() as connection:
            await deliveries.note_status(connection, "acme", part.delivery, f"m{part.delivery}", "delivered", None)
        return Accepted(f"m{part.delivery}")

    line.gap = timedelta(hours=1)
    line.answers = [has_left] * 3
    await long.written()
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "three"]


async def test_a_part_follows_after_a_gap_where_nothing_is_heard_of_the_last(long: Counter, line: Line) -> None:
    line.gap = timedelta(milliseconds=10)
    await long.written()
    await long.say()
    assert [part.text for part in line.sent] == ["one", "two", "three"]


# Addresses that move


async def address_of(counter: Counter) -> tuple[str, str]:
    async with counter.database.transaction() as connection:
        rows = await connection.execute(select(contacts.c.address, contacts.c.address_key).order_by(contacts.c.id))
        row = rows.first()
    assert row is not None
    return row.address, row.address_key


async def test_a_moved_conversation_is_followed_at_once_and_for_good(counter: Counter, line: Line) -> None:
    line.answers.append(NotSent("moved", moved_to="-100777"))
    await counter.written()
    await counter.say()
    await counter.say()
    assert [part.address for part in line.sent] == ["42", "-100777"]
    assert await address_of(counter) == ("-100777", "-100777")
    task = await counter.task()
    again = await counter.house.says("thanks", channel="telegram", address="-100777")
    assert again.conversation == task.conversation


async def test_a_conversation_that_moved_to_where_somebody_has_written_already_is_followed_too(
    counter: Counter, line: Line
) -> None:
    line.answers.append(NotSent("moved", moved_to="-100777"))
    await counter.written()
    other = await counter.house.says("we have moved", channel="telegram", address="-100777")
    await counter.say()
    await counter.say()
    assert [part.address for part in line.sent] == ["42", "-100777"]
    task = await counter.task()
    assert (task.outcome, task.conversation) == ("delivered", other.conversation), "where it is listed and cancelled"
