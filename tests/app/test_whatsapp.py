"""WhatsApp through the whole service: asked there, answered there, come back to there, whatever goes wrong between."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from app.http import application
from app.inbox import GATHER
from app.tenants_file import TenantConfig
from app.wiring import apply_tenants
from channels.channel import Channel
from channels.whatsapp.codes import why
from channels.whatsapp.reconcile import LOOKS
from scheduler import find, operate
from scheduler.book import Booking, book
from scheduler.clock import MovableClock
from scheduler.find import Found
from scheduler.recovery import expire_held
from scheduler.retry import BUDGET
from store import conversations
from store.database import Database
from store.deliveries import deliveries
from tests.support.asgi import a_port, served
from tests.support.factories import a_conversation
from tests.support.house import House, a_config, a_house
from tests.support.model import Script, books
from tests.support.twilio_server import BAD_GATEWAY, Accept, Behaviour, Drop, Form, Hang, Message, Reject, TwilioServer
from tests.support.wait import eventually, waits_for_a_lock

PUBLIC = "https://bot.example:8443/o'neill"
"""Where Twilio thinks we are; a proxy brings its requests to the port we listen on."""
CUSTOMER = "whatsapp:+5215512345678"
ANSWER, REMINDER = "Booked, I will remind you.", "Here is your reminder: call Ana."
BOOKED = (books("call Ana", delay="10 seconds"), ANSWER)
DUE = timedelta(seconds=10)


class Office:
    """A running house with a WhatsApp number, and the customer who writes to it."""

    def __init__(self, house: House, clock: MovableClock, twilio: TwilioServer, here: str, script: Script) -> None:
        self.house, self.clock, self.twilio, self.here, self.script = house, clock, twilio, here, script

    async def hears(self, text: str, sender: str = CUSTOMER) -> int:
        """The customer writes, and is answered; returns the conversation."""
        hook = "/hooks/whatsapp/acme"
        form = self.twilio.inbound_form(text, sender)
        answer = await self.twilio.post(PUBLIC + hook, form, at=self.here + hook)
        assert answer.status_code == 204, answer.text
        turn = max(await self.house.tasks(kind="turn"), key=lambda task: task.id)
        await self.goes_by(GATHER)
        await self.house.until_state(turn.id, "fired")
        return turn.conversation or 0

    async def writes(self, text: str, sender: str = CUSTOMER, **fields: str) -> None:
        """The customer writes, and nobody waits for the answer."""
        await self.brings(self.twilio.inbound_form(text, sender, **fields))
        await self.goes_by(GATHER)

    async def brings(self, form: Form) -> None:
        """Twilio calls the webhook with a message."""
        hook = "/hooks/whatsapp/acme"
        assert (await self.twilio.post(PUBLIC + hook, form, at=self.here + hook)).status_code == 204

    async def taps(self, button: str) -> None:
        """The customer taps a button of a template."""
        await self.writes("", ButtonText=button, ButtonPayload="show", MessageType="button")

    async def is_applied_with(self, **section: Any) -> None:
        """The tenant's file is applied with another section for WhatsApp."""
        twilio = self.twilio
        account = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
        await apply_tenants(self.house.service, [a_config("acme", channels={"whatsapp": {**account, **section}})])

    async def until_held(self, task: int) -> Found:
        """Wait until a task is held."""
        return await self._until(task, lambda found: found.hold is not None)

    async def until_error(self, task: int, words: str) -> Found:
        """Wait until a task that waits says why."""
        return await self._until(task, lambda found: found.state == "scheduled" and words in str(found.error))

    async def _until(self, task: int, holds: Callable[[Found], bool]) -> Found:
        found: list[Found] = []

        async def look() -> bool:
            async with self.house.service.database.transaction() as connection:
                one = await find.get(connection, "acme", task)
            assert one is not None
            found[:] = [one]
            return holds(one)

        await eventually(look)
        return found[0]

    async def recovers(self) -> None:
        """Let the pass run that ends what has been held too long."""
        async with self.house.service.database.transaction() as connection:
            await expire_held(connection, self.clock)

    async def reports(self, status: str, error_code: int | None = None, message: int = -1) -> None:
        """Twilio tells the fate of a message, the last by default."""
        told = self.twilio.messages[message]
        assert told.status_callback is not None
        at = told.status_callback.replace(PUBLIC, self.here)
        assert (await self.twilio.report(told, status, error_code, at=at)).status_code == 204

    async def goes_by(self, span: timedelta) -> None:
        """Let time pass, and return when the poller has looked at what is due since."""
        await self.house.goes_by(self.clock, span)

    async def followup(self) -> Found:
        (task,) = await self.house.tasks()
        return task

    async def falls_due(self, state: str = "fired", span: timedelta = DUE) -> Found:
        """Let the follow-up's time come, and wait for what becomes of it."""
        await self.goes_by(span)
        return await self.house.until_state((await self.followup()).id, state)

    async def deliveries(self, *columns: str) -> list[Any]:
        """Return columns of the follow-up's deliveries, in order."""
        task = (await self.followup()).id
        async with self.house.service.database.transaction() as connection:
            chosen = select(*(deliveries.c[name] for name in columns)).where(deliveries.c.task == task)
            rows = (await connection.execute(chosen.order_by(deliveries.c.id))).all()
        return [row[0] if len(columns) == 1 else tuple(row) for row in rows]

    async def has_tried(self, *outcomes: str) -> None:
        """Wait until the follow-up's attempts have come to this, and it waits for the next."""

        async def has() -> bool:
            return await self.deliveries("outcome") == list(outcomes)

        await eventually(has)
        await self.house.until_state((await self.followup()).id, "scheduled")

    async def has_ended_as(self, *outcomes: str) -> None:
        """Wait until the follow-up's attempts have come to this, and nobody performs it."""

        async def has() -> bool:
            return await self.deliveries("outcome") == list(outcomes) and (await self.followup()).state != "firing"

        await eventually(has)

    @property
    def sent(self) -> list[str]:
        """The texts Twilio took."""
        return [message.body for message in self.twilio.messages]

    @property
    def tried(self) -> list[str]:
        """The texts Twilio was given, taken or not."""
        return [form.get("Body", "") for form in self.twilio.creates]


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    async with TwilioServer(now=lambda: clock.at) as twilio:
        yield twilio


def with_gap(
    make: Callable[[TenantConfig, str], Channel | None], gap: timedelta
) -> Callable[[TenantConfig, str], Channel | None]:
    """The tenants' own channels, between whose parts as much time passes as the test says."""

    def make_with_gap(tenant: TenantConfig, name: str) -> Channel | None:
        channel = make(tenant, name)
        if channel is not None:
            channel.gap = gap
        return channel

    return make_with_gap


@asynccontextmanager
async def an_office(
    database: Database,
    directory: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    *lines: Any,
    unknown: str = "at_least_once",
    section: dict[str, Any] | None = None,
    gap: timedelta = timedelta(),
    url: str | None = None,
    **followups: Any,
) -> AsyncIterator[Office]:
    account = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
    config = {"channels": {"whatsapp": {**account, "unknown": unknown, **(section or {})}}}
    script = Script(*(lines or BOOKED), **followups)
    more: dict[str, Any] = {"config": config, "twilio_api_url": url or twilio.url, "public_url": PUBLIC}
    with a_port() as (listener, here):
        async with (
            a_house(database, directory, script.model, clock, **more) as house,
            served(application(house.run), listener),
        ):
            house.service.make_channel = with_gap(house.service.make_channel, gap)
            yield Office(house, clock, twilio, here, script)


@pytest.fixture
async def office(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> AsyncIterator[Office]:
    async with an_office(database, tmp_path, clock, twilio) as office:
        yield office


async def test_asked_answered_and_come_back_to_in_the_same_chat_once(office: Office) -> None:
    conversation = await office.hears("remind me in 10 seconds to call Ana")
    assert office.sent == [ANSWER]
    await office.goes_by(DUE - timedelta(seconds=0.1))
    assert office.sent == [ANSWER]
    fired = await office.falls_due(span=timedelta(seconds=0.1))
    await office.goes_by(timedelta(hours=1))
    assert fired.outcome == "delivered"
    assert [(message.to, message.body) for message in office.twilio.messages] == [
        (CUSTOMER, ANSWER),
        (CUSTOMER, REMINDER),
    ]
    assert await office.house.heard(conversation) == [ANSWER, REMINDER]
    assert office.twilio.typings[0]["messageId"] == "SM" + "1".zfill(32)


async def test_the_same_message_forty_times_over_a_restart_is_one_turn_and_one_booking(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    form = twilio.inbound_form("remind me in 10 seconds to call Ana")
    async with an_office(database, tmp_path, clock, twilio) as office:
        for _ in range(20):
            await office.brings(form)
        (turn,) = await office.house.tasks(kind="turn")
        await office.goes_by(GATHER)
        await office.house.until_state(turn.id, "fired")
    async with an_office(database, tmp_path, clock, twilio) as office:
        await asyncio.gather(*(office.brings(form) for _ in range(20)))
        await office.goes_by(GATHER)
        await office.falls_due()
        assert len(await office.house.tasks(kind="turn")) == 1
        assert len(await office.house.tasks()) == 1
    assert office.tried == [ANSWER, REMINDER]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("+525512345678", "+5215512345678"),
        ("+5215512345678", "+525512345678"),
        ("+541123456789", "+5491123456789"),
        ("+5541988887777", "+554188887777"),
        ("+554188887777", "+5541988887777"),
    ],
)
async def test_one_person_under_two_forms_of_a_number_is_one_conversation_answered_where_they_wrote_last(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, before: str, now: str
) -> None:
    async with an_office(database, tmp_path, clock, twilio, *BOOKED, "Hello again.") as office:
        first = await office.hears("remind me", f"whatsapp:{before}")
        assert await office.hears("hello", f"whatsapp:{now}") == first
        await office.falls_due()
    assert [(message.to, message.body) for message in twilio.messages] == [
        (f"whatsapp:{before}", ANSWER),
        (f"whatsapp:{now}", "Hello again."),
        (f"whatsapp:{now}", REMINDER),
    ]


async def test_what_is_refused_at_one_form_of_a_number_is_not_tried_at_the_other(
    office: Office, twilio: TwilioServer
) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    twilio.behave(Reject(400, 21211))
    await office.falls_due("failed")
    await office.goes_by(timedelta(days=1))
    assert [form["To"] for form in twilio.creates] == [CUSTOMER] * 2


# What Twilio tells later


async def test_what_becomes_of_a_message_is_kept_with_its_delivery(office: Office) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    await office.falls_due()
    told = []
    for status in ("queued", "delivered", "sent", "delivered", "read", "sent"):
        await office.reports(status)
        told += await office.deliveries("provider_status")
    assert told == ["queued", "delivered", "delivered", "delivered", "read", "read"], "it never goes back"
    assert await office.deliveries("outcome", "provider_id") == [("accepted", office.twilio.messages[-1].sid)]
    assert len(await office.house.tasks(kind="turn")) == 1
    assert office.sent == [ANSWER, REMINDER]


async def test_a_message_that_failed_after_all_says_why_and_is_not_sent_again(office: Office) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    await office.falls_due()
    await office.reports("failed", 63016)
    for late in ("failed", "sent", "queued"):
        await office.reports(late)
    await office.goes_by(timedelta(hours=1))
    assert await office.deliveries("provider_status", "reason") == [("failed", why(63016))]
    assert office.sent == [ANSWER, REMINDER]


async def test_what_becomes_of_one_message_changes_no_other(office: Office) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    await office.falls_due()
    await office.reports("failed", 63024, message=0)
    assert await office.deliveries("provider_status", "reason") == [(None, None)]


@pytest.mark.parametrize("code", [63024, 63018, 63007])
async def test_an_attempt_that_fails_after_another_at_the_same_part_has_arrived_changes_nothing(
    office: Office, code: int
) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    office.twilio.behave(Drop(accepted=True))
    await is_lost(office)
    office.twilio.messages[1].is_listed = False
    await office.goes_by(LOOKS[0])
    await has_not_found(office, 1)
    await office.goes_by(LOOKS[1] - LOOKS[0])
    await office.has_tried("not_sent")
    await office.falls_due(span=timedelta(seconds=2))
    await office.reports("sent", message=1)
    await office.reports("undelivered", code, message=1)
    task = await office.followup()
    assert (task.state, task.outcome) == ("fired", "delivered")
    assert await office.deliveries("outcome", "code") == [("rejected", code), ("accepted", None)]


@pytest.mark.parametrize(("code", "state"), [(63007, "scheduled"), (63014, "failed")])
async def test_a_report_of_failure_that_is_faster_than_the_answer_says_as_much_as_a_late_one(
    office: Office, code: int, state: str
) -> None:
    await office.hears("remind me in 10 seconds to call Ana")

    async def on_taken(message: Message) -> None:
        await office.reports("failed", code)
        message.status, message.error_code = "queued", None  # the answer was on its way already

    office.twilio.on_taken = on_taken
    await office.goes_by(DUE)
    await office.has_ended_as("rejected")
    task = await office.house.until_state((await office.followup()).id, state)
    assert task.hold == ("channel paused" if state == "scheduled" else None)
    async with office.house.service.database.transaction() as connection:
        talk = await conversations.find(connection, "acme", task.conversation or 0)
    assert talk is not None
    assert talk.stopped == ("provider" if code == 63014 else None)


TWO = "\n\n".join(f"{number}. " + "a sentence of some length. " * 50 for number in (1, 2))


@pytest.mark.parametrize(
    ("code", "state", "hold"),
    [(63018, "scheduled", None), (63007, "scheduled", "channel paused"), (63024, "failed", None)],
)
async def test_a_part_that_fails_while_the_next_is_sent_counts_as_if_it_failed_afterwards(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    code: int,
    state: str,
    hold: str | None,
) -> None:
    async with an_office(database, tmp_path, clock, twilio, followups=(TWO,)) as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")

        async def on_taken(message: Message) -> None:
            if message.body.startswith("2."):
                await office.reports("failed", code, message=-2)

        twilio.on_taken = on_taken
        await office.goes_by(DUE)
        await office.has_ended_as("rejected", "accepted")
        task = await office.house.until_state((await office.followup()).id, state)
        assert (task.hold, task.error) == (hold, why(code))
        assert len(await office.house.heard(conversation)) == 2
        if code == 63018:
            await office.falls_due(span=timedelta(minutes=5))
            assert [text[:2] for text in office.tried[1:]] == ["1.", "2.", "1."]


async def test_a_part_that_fails_for_good_before_the_next_could_be_sent_is_not_sent_again(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, followups=(TWO,)) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Accept(), Reject(429, 20429))
        await office.goes_by(DUE)
        await office.has_tried("accepted", "not_sent")
        await office.reports("failed", 63024)
        task = await office.falls_due("failed", span=timedelta(seconds=2))
        assert task.error == why(63024)
        assert [text[:2] for text in office.tried[1:]] == ["1.", "2."]


async def test_a_report_of_failure_that_meets_the_end_of_its_task_waits_for_it_and_counts(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, followups=(TWO,)) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Accept(), Hang(accepted=True))
        await office.goes_by(DUE)
        await twilio.attempts(3)
        task = await office.followup()
        assert task.state == "firing"
        async with database.transaction() as connection:  # another worker, which has seen both parts accepted
            ends = "worker = null, lease_until = null, state = 'fired', outcome = 'delivered', ended_at = now()"
            await connection.execute(text(f"update tasks set sending = false, {ends} where id = :id"), {"id": task.id})
            reporting = asyncio.create_task(office.reports("failed", 63024, message=1))
            await eventually(lambda: waits_for_a_lock(database))
        await reporting
        assert (await office.followup()).state == "failed"


# Sends whose fate nobody knows


async def is_lost(office: Office) -> None:
    """Let the follow-up's time come, and wait until its send is one that nobody knows of."""
    await office.goes_by(DUE)
    await office.has_tried("unknown")


@pytest.mark.parametrize("fault", [Drop(accepted=True), Accept(with_sid=False)])
async def test_a_message_that_was_taken_though_nobody_was_told_is_found_and_not_sent_twice(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, fault: Behaviour
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(fault)
        await is_lost(office)
        await office.goes_by(LOOKS[0] - timedelta(seconds=0.1))
        assert twilio.lists == []
    async with an_office(database, tmp_path, clock, twilio) as office:
        task = await office.falls_due(span=timedelta(seconds=0.1))
        await office.goes_by(timedelta(hours=1))
        assert task.outcome == "delivered"
        assert await office.deliveries("outcome", "provider_id") == [("accepted", twilio.messages[-1].sid)]
        assert await office.house.heard(conversation) == [ANSWER, REMINDER]
    assert office.tried == [ANSWER, REMINDER]


@pytest.mark.parametrize("fault", [Drop(), BAD_GATEWAY])
async def test_a_message_that_twilio_does_not_have_when_asked_twice_is_sent_again(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, fault: Behaviour
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(fault)
        await is_lost(office)
        await office.goes_by(LOOKS[0])
        await has_not_found(office, 1)
        assert office.tried == [ANSWER, REMINDER]
        await office.goes_by(LOOKS[1] - LOOKS[0])
        await office.has_tried("not_sent")
        await office.falls_due(span=timedelta(seconds=2))
        assert await office.deliveries("outcome") == ["not_sent", "accepted"]
        assert await office.house.heard(conversation) == [ANSWER, REMINDER]
    assert office.sent == [ANSWER, REMINDER]
    assert office.script.asked_for_followups() == 1


async def has_not_found(office: Office, times: int) -> None:
    async def has() -> bool:
        return await office.deliveries("not_found") == [times]

    await eventually(has)
    await office.house.until_state((await office.followup()).id, "scheduled")


async def test_a_list_that_is_behind_at_the_first_look_is_asked_again(office: Office) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    office.twilio.behave(Drop(accepted=True))
    await is_lost(office)
    office.twilio.messages[-1].is_listed = False
    await office.goes_by(LOOKS[0])
    await has_not_found(office, 1)
    office.twilio.messages[-1].is_listed = True
    await office.falls_due(span=LOOKS[1] - LOOKS[0])
    assert office.tried == [ANSWER, REMINDER]


async def test_a_tenant_that_wants_it_at_most_once_has_it_left_uncertain(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, unknown="at_most_once") as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Drop())
        await is_lost(office)
        await office.goes_by(LOOKS[0])
        await has_not_found(office, 1)
        task = await office.falls_due("uncertain", span=LOOKS[1] - LOOKS[0])
        assert len(str(task.error)) > 10
        await office.goes_by(timedelta(hours=1))
        assert await office.house.heard(conversation) == [ANSWER, REMINDER]
    assert office.tried == [ANSWER, REMINDER]


async def test_a_twilio_that_is_down_when_asked_is_not_taken_for_no_and_asked_again(office: Office) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    office.twilio.behave(Drop(accepted=True))
    await is_lost(office)
    before = (await office.followup()).due_at
    async with office.twilio.down():
        await office.goes_by(LOOKS[0])
        await eventually(lambda: waits_anew(office, before))
    office.twilio.behave_when_asked(BAD_GATEWAY)
    before = (await office.followup()).due_at
    await office.goes_by(LOOKS[0])
    await eventually(lambda: waits_anew(office, before))
    assert await office.deliveries("not_found") == [0]
    await office.falls_due(span=timedelta(minutes=5))
    assert office.tried == [ANSWER, REMINDER]


async def waits_anew(office: Office, before: datetime) -> bool:
    task = await office.followup()
    return task.state == "scheduled" and task.due_at > before


async def test_the_same_words_twice_are_told_apart(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, "Hello.", followups=(REMINDER, REMINDER)) as office:
        conversation = await office.hears("hello")
        tasks = []
        for fault in (Drop(), Accept()):
            twilio.behave(fault)
            due = Booking("acme", "followup", timedelta(), conversation, "whatsapp", {"about": "call Ana"})
            async with database.transaction() as connection:
                tasks.append((await book(connection, clock, due)).id)
            office.house.wake()
            if isinstance(fault, Drop):
                await office.has_tried("unknown")
            else:
                await office.house.until_state(tasks[1], "fired")
        for look in (LOOKS[0], LOOKS[1] - LOOKS[0], timedelta(seconds=2)):
            await office.goes_by(look)
            await eventually(partial(rests, office, tasks[0]))
        await office.house.until_state(tasks[0], "fired")
    assert office.sent == ["Hello.", REMINDER, REMINDER]
    assert office.tried == ["Hello.", REMINDER, REMINDER, REMINDER]


@pytest.mark.parametrize("is_given_up", [False, True])
@pytest.mark.parametrize(
    ("status", "state", "outcome"), [("sent", "fired", "accepted"), ("failed", "failed", "rejected")]
)
async def test_a_callback_settles_a_send_whose_answer_was_lost_while_it_waits_and_after_it_was_given_up(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    status: str,
    state: str,
    outcome: str,
    is_given_up: bool,
) -> None:
    async with an_office(database, tmp_path, clock, twilio, unknown="at_most_once") as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Drop(accepted=True))
        await is_lost(office)
        if is_given_up:
            twilio.messages[-1].is_listed = False
            await office.goes_by(LOOKS[0])
            await has_not_found(office, 1)
            await office.falls_due("uncertain", span=LOOKS[1])
        looked = len(twilio.lists)
        await office.reports(status, 63024 if status == "failed" else None)
        task = await office.house.until_state((await office.followup()).id, state)
        expected = (outcome, twilio.messages[-1].sid, status)
        assert await office.deliveries("outcome", "provider_id", "provider_status") == [expected]
        assert "error 63024" in str(task.error) if status == "failed" else task.error is None
        assert (await office.house.log(conversation))[-1].seq == task.message_seq
        await office.goes_by(timedelta(hours=1))
        assert await office.house.heard(conversation) == [ANSWER, REMINDER]
        assert len(twilio.lists) == looked
    assert office.tried == [ANSWER, REMINDER]


async def test_stopped_after_twilio_took_it_and_restarted_twice_it_is_seen_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Hang(accepted=True))
        await office.goes_by(DUE)
        await twilio.attempts(2)
        (task,) = await office.house.tasks()
        poller = office.house.run.poller
        assert poller is not None
        await poller.stop(grace=timedelta(0))
    async with an_office(database, tmp_path, clock, twilio) as office:
        await eventually(partial(rests, office, task.id))
        assert twilio.lists == []
    clock.move(LOOKS[0])
    async with an_office(database, tmp_path, clock, twilio) as office:
        await office.house.until_state(task.id, "fired")
        await office.goes_by(timedelta(hours=1))
        assert await office.house.heard(conversation) == [ANSWER, REMINDER]
    assert [form["Body"] for form in twilio.creates] == office.sent == [ANSWER, REMINDER]


async def test_a_long_text_whose_second_part_was_lost_is_said_whole_and_its_first_part_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    told = "\n\n".join(f"{number}. " + "a *sentence* of **some** length. " * 40 for number in (1, 2, 3))
    for fault, tried in ((Drop(accepted=True), ["1.", "2.", "3."]), (Drop(), ["1.", "2.", "2.", "3."])):
        twilio.creates.clear()
        twilio.messages.clear()
        async with an_office(database, tmp_path, clock, twilio, followups=(told,)) as office:
            sender = f"whatsapp:+14155550{len(tried)}00"
            conversation = await office.hears("remind me in 10 seconds to call Ana", sender)
            (task,) = await office.house.tasks(states=("scheduled",))
            twilio.behave(Accept(), fault)
            for span in (DUE, LOOKS[0], LOOKS[1] - LOOKS[0], timedelta(seconds=2)):
                await office.goes_by(span)
                await eventually(partial(rests, office, task.id))
            assert [text[:2] for text in office.tried[1:]] == tried
            assert [text[:2] for text in office.sent[1:]] == ["1.", "2.", "3."]
            assert (await office.house.until_state(task.id, "fired")).outcome == "delivered"
            assert len(await office.house.heard(conversation)) == 2


async def rests(office: Office, task: int) -> bool:
    """Whether a task waits for its time, or has ended."""
    async with office.house.service.database.transaction() as connection:
        found = await find.get(connection, "acme", task)
    return found is not None and (
        found.state == "fired" or (found.state == "scheduled" and found.due_at > office.clock.at)
    )


async def test_a_callback_that_comes_before_the_answer_is_believed_when_no_answer_comes(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Hang(accepted=True))
        await office.goes_by(DUE)
        await twilio.attempts(2)
        await office.reports("sent")
        assert await office.deliveries("outcome") == ["accepted"]
        poller = office.house.run.poller
        assert poller is not None
        await poller.stop(grace=timedelta(0))
    async with an_office(database, tmp_path, clock, twilio) as office:
        task = await office.house.until_state((await office.followup()).id, "fired")
        assert task.outcome == "delivered"
        assert await office.house.heard(task.conversation or 0) == [ANSWER, REMINDER]
    assert office.tried == [ANSWER, REMINDER]


# Sends that certainly did not go out


async def test_refused_connections_delay_a_follow_up_show_their_attempts_and_end_in_one_message(
    office: Office, twilio: TwilioServer
) -> None:
    await office.hears("remind me in 10 seconds to call Ana")
    async with twilio.down():
        await office.goes_by(DUE)
        for attempts in range(1, BUDGET + 1):
            await office.has_tried(*["not_sent"] * attempts)
            task = await office.followup()
            assert task.attempt == min(attempts, BUDGET - 1)
            assert "Twilio cannot be reached" in str(task.error)
            if attempts < BUDGET:
                await office.goes_by(timedelta(minutes=5))
    await office.falls_due(span=timedelta(minutes=5))
    assert await office.deliveries("outcome") == ["not_sent"] * BUDGET + ["accepted"]
    assert await office.deliveries("attempt") == list(range(1, BUDGET + 2))
    assert office.sent == [ANSWER, REMINDER]
    assert office.script.asked_for_followups() == 1


async def test_a_long_text_resumes_at_the_part_that_did_not_go_out_even_after_a_restart(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    told = "\n\n".join(f"{number}. " + "a sentence of some length. " * 50 for number in (1, 2, 3))
    followups: dict[str, Any] = {"followups": (told,)}
    async with an_office(database, tmp_path, clock, twilio, **followups) as office:
        conversation = await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Accept(), Reject(429, 20429))
        await office.goes_by(DUE)
        await office.has_tried("accepted", "not_sent")
    async with an_office(database, tmp_path, clock, twilio, **followups) as office:
        await office.falls_due()
        await office.goes_by(timedelta(hours=1))
        assert [text[:2] for text in office.tried[1:]] == ["1.", "2.", "2.", "3."]
        assert [text[:2] for text in office.sent[1:]] == ["1.", "2.", "3."]
        assert await office.deliveries("part") == [0, 1, 1, 2]
        assert (await office.house.heard(conversation))[1].startswith("1. a sentence")
        assert office.script.asked_for_followups() == 0, "the text was kept"


# No faster than Twilio and WhatsApp take it


def long_text(number: str) -> str:
    return "\n\n".join(f"{number}.{part} " + "a sentence of some length. " * 50 for part in (1, 2, 3))


async def test_each_part_of_a_long_text_waits_until_twilio_has_sent_on_the_one_before(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    followups: dict[str, Any] = {"followups": (long_text("1"),)}
    async with an_office(database, tmp_path, clock, twilio, gap=timedelta(hours=1), **followups) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        signals = office.house.service.signals
        await office.goes_by(DUE)
        await twilio.attempts(2)
        for count, status in ((3, "sent"), (4, "read")):
            await eventually(lambda: any(topic.startswith("delivery ") for topic in signals._listeners))
            await office.reports("queued")
            assert len(twilio.creates) == count - 1
            await office.reports(status)
            await twilio.attempts(count)
        await office.house.until_state((await office.followup()).id, "fired")
    assert [text[:3] for text in office.sent[1:]] == ["1.1", "1.2", "1.3"]


async def book_for(office: Office, address: str, *about: str) -> None:
    """Book follow-ups for somebody who has just written, each a second after the other."""
    async with office.house.service.database.transaction() as connection:
        conversation = await a_conversation(connection, channel="whatsapp", address=address)
        wrote = {"now": office.clock.at, "id": conversation}
        await connection.execute(text("update conversations set last_inbound_at = :now where id = :id"), wrote)
        for number, what in enumerate(about):
            due = Booking("acme", "followup", timedelta(seconds=number), conversation, "whatsapp", {"about": what})
            await book(connection, office.clock, due)


async def is_at_rest(office: Office) -> bool:
    """Whether nothing happens until time passes."""
    sleeping = len(office.clock.sleepers)
    tasks = await office.house.tasks(states=("scheduled", "firing"))
    firing = sum(task.state == "firing" for task in tasks)
    due = any(task.state == "scheduled" and task.due_at <= office.clock.at for task in tasks)
    return firing == sleeping == len(office.clock.sleepers) and (firing > 0 or not due)


async def test_many_at_once_and_long_ones_to_one_person_arrive_in_order_and_none_is_too_fast(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    def write(asked: list[Any]) -> str:
        found = re.search(r"(short|long) text ([0-9]+)", str(asked[-1]))
        assert found is not None
        return long_text(found[2]) if found[1] == "long" else f"Number {found[2]}."

    twilio.per_second, twilio.burst = 80, 3
    began = clock.at
    async with an_office(database, tmp_path, clock, twilio, followups=(write,)) as office:
        await book_for(office, CUSTOMER, *(f"long text {number}" for number in range(5)))
        for number in range(200):
            await book_for(office, f"whatsapp:+1415555{number:04}", f"short text {number}")
        while await office.house.tasks(states=("scheduled", "firing")):
            await office.goes_by(timedelta(seconds=0.1 if clock.at - began < timedelta(seconds=5) else 1))
            await eventually(partial(is_at_rest, office), 30)
    assert len(twilio.creates) == len(twilio.messages) == 200 + 5 * 3, "none was refused"
    theirs = [message for message in twilio.messages if message.to == CUSTOMER]
    assert [message.body[:3] for message in theirs] == [f"{text}.{part}" for text in range(5) for part in (1, 2, 3)]
    others = [message for message in twilio.messages if message.to != CUSTOMER]
    assert len({message.to for message in others}) == 200
    assert max(message.created_at for message in others) - began < timedelta(seconds=5), "nobody waits for another"
    assert theirs[-1].created_at - began >= timedelta(seconds=12 * 6)
    assert theirs[-1].created_at - began < timedelta(seconds=12 * 6 + 10)


# Files that come in


async def test_a_file_is_looked_at_when_the_message_is_answered_and_its_note_is_kept(office: Office) -> None:
    form = office.twilio.file_form("My policy", ("image/jpeg", b"%PDF-1.7\n" + bytes(2048)))
    hook = "/hooks/whatsapp/acme"
    assert (await office.twilio.post(PUBLIC + hook, form, at=office.here + hook)).status_code == 204
    (turn,) = await office.house.tasks(kind="turn")
    (before,) = await office.house.log(turn.conversation or 0)
    assert (before.text.startswith("My policy\n[image/jpeg, https://api.twilio.com/"), office.twilio.fetched) == (
        True,
        [],
    )
    await office.goes_by(GATHER)
    await office.house.until_state(turn.id, "fired")
    message = (await office.house.log(turn.conversation or 0))[0]
    assert message.text == "My policy\n[application/pdf, 2 KB]"
    assert "[application/pdf, 2 KB]" in str(office.script.asked[0][-1])
    assert office.twilio.account_sid not in str(office.script.asked)


async def test_a_file_that_is_gone_keeps_nobody_from_answering(office: Office) -> None:
    form = office.twilio.file_form("My policy", ("image/jpeg", b""))
    office.twilio.files.clear()
    hook = "/hooks/whatsapp/acme"
    assert (await office.twilio.post(PUBLIC + hook, form, at=office.here + hook)).status_code == 204
    (turn,) = await office.house.tasks(kind="turn")
    await office.goes_by(GATHER)
    await office.house.until_state(turn.id, "fired")
    assert office.sent == [ANSWER]


# The 24-hour window


async def test_what_would_fall_due_outside_the_window_is_refused_at_booking_and_the_model_is_told(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("renew the policy", delay="6 weeks"), "I cannot promise that here.")
    async with an_office(database, tmp_path, clock, twilio, *lines) as office:
        await office.hears("remind me in six weeks to renew the policy")
        assert await office.house.tasks() == []
        assert office.sent == ["I cannot promise that here."]
        refusal = str(office.script.asked[1][-1])
        assert "only until 2026-11-30 13:55 UTC" in refusal
        assert "Nothing was booked" in refusal


@pytest.mark.parametrize(("delay", "is_booked"), [("23 hours 54 minutes", True), ("23 hours 56 minutes", False)])
async def test_the_window_is_taken_as_five_minutes_shorter_than_a_day(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, delay: str, is_booked: bool
) -> None:
    async with an_office(database, tmp_path, clock, twilio, books("call Ana", delay=delay), "Very well.") as office:
        await office.hears("remind me tomorrow")
        assert bool(await office.house.tasks()) is is_booked


async def test_a_task_that_finds_the_window_closed_waits_and_goes_out_when_the_customer_writes_again(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, "Hello.", "Welcome back.") as office:
        conversation = await office.hears("hello")
        late = Booking("acme", "followup", timedelta(hours=25), conversation, "whatsapp", {"about": "call Ana"})
        async with database.transaction() as connection:
            await book(connection, clock, late)
        await office.goes_by(timedelta(hours=25))
        await eventually(lambda: is_held(office))
        await office.goes_by(timedelta(days=28))
        assert await is_held(office)
        assert office.sent == ["Hello."]
        await office.hears("are you there?")
        await office.house.until_state((await office.followup()).id, "fired")
    assert office.sent == ["Hello.", REMINDER, "Welcome back."]
    assert office.script.asked_for_followups() == 1


async def is_held(office: Office) -> bool:
    return (await office.followup()).hold == "window closed"


async def test_what_somebody_says_has_arrived_is_not_sent_again_because_an_earlier_part_has_not(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, unknown="at_most_once", followups=(TWO,)) as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Accept(), Drop())
        await office.goes_by(DUE)
        await office.has_tried("accepted", "unknown")
        task = await office.followup()
        await office.goes_by(LOOKS[0])
        await eventually(partial(rests, office, task.id))
        await office.falls_due("uncertain", span=LOOKS[1] - LOOKS[0])
        async with database.transaction() as connection:
            assert await operate.settle(connection, clock, "acme", task.id, "Bea, who saw it", is_delivered=True)
        await office.reports("failed", 63012, message=1)
        await office.goes_by(timedelta(hours=1))
        assert (await office.house.until_state(task.id, "failed")).error == why(63012)
        assert [text[:2] for text in office.tried[1:]] == ["1.", "2."]
