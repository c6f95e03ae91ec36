"""WhatsApp when the 24 hours are over: what is booked, what goes out, and what follows when the customer answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import MovableClock
from scheduler.events import story
from scheduler.hold import WINDOW_CLOSED, release
from store import contacts
from store.database import Database
from store.deliveries import NOTICE
from tests.app.test_whatsapp import REMINDER, TWO, Office, an_office, has_not_found
from tests.support.model import books
from tests.support.shell import Shell
from tests.support.twilio_server import BAD_GATEWAY, Accept, Drop, Hang, Reject, TwilioServer
from tests.support.wait import eventually, waits_for_a_lock

SIX_WEEKS = timedelta(weeks=6)
READY, WHOLE = "HX" + "1" * 32, "HX" + "2" * 32
TELLS = {"sid": READY, "language": "en", "variables": {"1": "name", "2": "about"}}
SAYS = {"sid": WHOLE, "language": "en", "variables": {"1": "text"}}
IN_SPANISH = {"sid": "HX" + "3" * 32, "language": "es", "variables": {"1": "about"}}
BOOKED = (books("the renewal", delay="6 weeks"), "Booked.")


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    async with TwilioServer(now=lambda: clock.at, approvals={READY: "approved", WHOLE: "approved"}) as twilio:
        yield twilio


@asynccontextmanager
async def an_office_with(
    database: Database,
    directory: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    *templates: dict[str, Any],
    lines: tuple[Any, ...] = BOOKED,
    **more: Any,
) -> AsyncIterator[Office]:
    async with an_office(
        database, directory, clock, twilio, *lines, section={"templates": list(templates), **more}
    ) as office:
        yield office


async def test_six_weeks_later_a_template_goes_out_and_the_tap_brings_the_result_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, IN_SPANISH, TELLS) as office:
        conversation = await office.hears("remind me of the renewal in six weeks")
        told = str(office.script.asked[-1])
        assert "approved template" in told
        assert "as soon as they tap its button" in told
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        notice = twilio.creates[-1]
        assert notice["ContentSid"] == READY
        assert "Body" not in notice
        assert twilio.messages[-1].variables == {"1": "Lucía", "2": "the renewal"}
        assert await office.deliveries("part", "template", "outcome") == [(NOTICE, READY, "accepted")]
        await office.goes_by(timedelta(days=1))
        assert len(twilio.messages) == 2, "it is told of once"

        await office.taps("Show it")
        await office.house.until_state(task.id, "fired")
        assert office.sent.count(REMINDER) == 1
        heard = await office.house.until_heard(conversation, 2)
        assert heard.count(REMINDER) == 1
        assert [len(await office.house.tasks(kind="turn")), len(office.sent)] == [1, 3], "the tap needs no other answer"
        assert await office.deliveries("part", "outcome") == [(NOTICE, "accepted"), (0, "accepted")]


async def test_a_template_that_holds_the_message_itself_is_all_that_is_sent(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, SAYS) as office:
        await office.hears("remind me of the renewal in six weeks")
        await office.falls_due("fired", SIX_WEEKS)
        assert twilio.messages[-1].content_sid == WHOLE
        assert twilio.messages[-1].variables == {"1": REMINDER}
        assert await office.deliveries("part", "template") == [(0, WHOLE)]


async def test_a_message_in_a_template_is_in_whatsapps_own_markup(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    told = "Call **Ana** at [the office](https://acme.example)."
    section = {"templates": [SAYS]}
    async with an_office(database, tmp_path, clock, twilio, *BOOKED, section=section, followups=(told,)) as office:
        await office.hears("remind me of the renewal in six weeks")
        await office.falls_due("fired", SIX_WEEKS)
        assert twilio.messages[-1].variables == {"1": "Call *Ana* at the office: https://acme.example."}


async def test_a_customer_whose_name_cannot_be_seen_is_told_all_the_same(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.writes("remind me of the renewal in six weeks", ProfileName="\u200b\u200e")
        (turn,) = await office.house.tasks(kind="turn")
        await office.house.until_state(turn.id, "fired")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        assert twilio.messages[-1].variables == {"1": "there", "2": "the renewal"}


async def test_a_second_tap_while_the_message_is_on_its_way_needs_no_answer_either(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        twilio.behave(Accept(after=0.5))
        await office.taps("Show it")
        await office.taps("Show it")
        await office.house.until_state(task.id, "fired")
        assert len(await office.house.tasks(kind="turn")) == 1
        assert office.sent.count(REMINDER) == 1


@pytest.mark.parametrize("code", [63024, 63018, 63007])
async def test_word_that_a_message_waits_which_fails_after_the_message_was_said_changes_nothing(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, code: int
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, lines=(*BOOKED, "Hello.")) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        await office.writes("hello")
        await office.house.until_state(task.id, "fired")
        await office.reports("undelivered", code, message=1)
        found = await office.followup()
        assert (found.state, found.outcome, found.error) == ("fired", "delivered", None)
        assert (NOTICE, "rejected", code) in await office.deliveries("part", "outcome", "code")


@pytest.mark.parametrize("words", ["two\nlines", "x" * 900, "five     spaces"])
async def test_a_message_that_does_not_fit_into_one_template_goes_by_the_next(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, words: str
) -> None:
    lines = (*BOOKED,)
    section = {"templates": [SAYS, TELLS]}
    async with an_office(database, tmp_path, clock, twilio, *lines, section=section, followups=(words,)) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        assert twilio.messages[-1].content_sid == READY


async def test_what_no_template_in_the_customers_language_could_bring_is_not_booked(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (BOOKED[0], "I cannot promise that here.")
    async with an_office_with(database, tmp_path, clock, twilio, IN_SPANISH, lines=lines) as office:
        await office.hears("remind me of the renewal in six weeks")
        assert await office.house.tasks() == []
        assert "Nothing was booked" in str(office.script.asked[1][-1])


async def test_without_a_template_in_the_customers_language_it_is_held_and_says_why(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("app.service.FRESH", 0.0)  # the file that is applied counts at once
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        await office.is_applied_with(templates=[IN_SPANISH])
        task = await office.falls_due("scheduled", SIX_WEEKS)
        held = await office.until_held(task.id)
        assert held.hold == "window closed"
        assert "no template for a followup in 'en'" in str(held.error)
        alerts = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert alerts == [f"a message of tenant acme cannot go out: {held.error}"]
        assert len(twilio.messages) == 1
        await office.writes("hello?")
        await office.house.until_state(task.id, "fired")
        assert office.sent.count(REMINDER) == 1


async def test_what_nobody_comes_back_for_expires(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, hold_days=3) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        clock.move(timedelta(days=3, seconds=1))
        await office.recovers()
        await office.house.until_state(task.id, "expired")


@pytest.mark.parametrize(("approval", "state"), [("paused", "scheduled"), ("rejected", "held"), ("disabled", "held")])
async def test_a_template_that_meta_does_not_let_out_is_not_sent(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, approval: str, state: str
) -> None:
    twilio.approvals[READY] = approval
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        found = await office.until_error(task.id, approval)
        assert (found.hold is not None) == (state == "held")
        assert len(twilio.messages) == 1
        assert found.attempt == 0, "it is no fault of the task"


async def test_what_waited_for_an_approval_has_no_error_any_more_once_the_template_went_out(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    twilio.approvals[READY] = "received"
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_error(task.id, "received at Meta")
        twilio.approvals[READY] = "approved"
        await office.goes_by(timedelta(minutes=16))
        held = await office.until_held(task.id)
        assert (held.hold, held.error, held.attempt) == ("window closed", None, 0)
        assert await office.deliveries("part", "template", "outcome") == [(NOTICE, READY, "accepted")]


async def test_approvals_that_cannot_be_looked_up_are_not_waited_for_message_by_message(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("the renewal", delay="6 weeks"), "Booked.", books("the bill", delay="6 weeks"), "Booked too.")
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, lines=lines) as office:
        await office.hears("remind me of the renewal in six weeks")
        await office.hears("and of the bill")
        twilio.behave_with_templates(BAD_GATEWAY, Hang())
        await office.goes_by(SIX_WEEKS + timedelta(minutes=1))
        for task in await office.house.tasks():
            await office.until_held(task.id)
        assert [message.content_sid for message in twilio.messages[2:]] == [READY, READY]


async def test_of_a_long_message_whose_end_is_refused_as_too_late_the_end_waits_for_the_customer(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("call Ana", delay="10 seconds"), "Booked.", "Hello.")
    async with an_office(database, tmp_path, clock, twilio, *lines, followups=(TWO,)) as office:
        await office.hears("remind me")
        task = await office.falls_due()
        await office.reports("undelivered", 63016)
        await office.until_held(task.id)
        await office.goes_by(timedelta(minutes=1))
        await office.writes("hello")
        await office.house.until_state(task.id, "fired")
        assert [text[:2] for text in office.tried if text[:2] in ("1.", "2.")] == ["1.", "2.", "2."]


async def test_free_text_that_twilio_took_and_meta_refused_as_too_late_goes_by_template_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(
        database, tmp_path, clock, twilio, TELLS, lines=(books("call Ana", delay="10 seconds"), "Booked.")
    ) as office:
        await office.hears("remind me")
        task = await office.falls_due()
        assert twilio.messages[-1].body == REMINDER
        await office.reports("undelivered", 63016)
        await office.until_held(task.id)
        assert twilio.messages[-1].content_sid == READY
        await office.reports("undelivered", 63016, message=1)
        await office.reports("failed", 63016, message=1)
        assert len(twilio.messages) == 3, "a repeat of the report changes nothing"
        await office.goes_by(timedelta(minutes=5))
        await office.taps("Show it")
        await office.house.until_state(task.id, "fired")
        assert office.sent.count(REMINDER) == 2, "the first of which never arrived"


async def test_without_a_template_it_is_held_once_meta_has_refused_it(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        await office.hears("remind me")
        task = await office.falls_due()
        await office.reports("undelivered", 63016)
        held = await office.until_held(task.id)
        assert held.hold == "window closed"


async def test_an_operator_sees_that_what_was_taken_did_not_arrive_and_what_it_waits_for(
    database: Database, database_url: str, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        await office.hears("remind me")
        task = await office.falls_due()
        shell = Shell(tmp_path, database_url)
        assert [row["id"] for row in await shell.json("tasks", "list", "--status", "active")] == []
        await office.reports("undelivered", 63016)
        await office.until_held(task.id)
    (row,) = await shell.json("tasks", "list", "--tenant", "acme")
    assert (row["id"], row["state"], row["hold"]) == (task.id, "scheduled", "window closed")
    told = await shell.json("tasks", "get", str(task.id))
    (send,) = told["deliveries"]
    assert (send["outcome"], send["provider_status"]) == ("rejected", "undelivered")
    assert "more than 24 hours have passed" in send["reason"]
    assert "reopened" in [event["event"] for event in told["events"]]


async def test_a_customer_who_has_blocked_the_sender_is_sent_nothing_until_they_write(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("call Ana", delay="10 seconds"), "Booked.", books("call Eva", delay="20 seconds"), "Booked too.")
    async with an_office(database, tmp_path, clock, twilio, *lines) as office:
        await office.hears("remind me")
        await office.hears("and of Eva")
        twilio.behave(Reject(400, 63014))
        await office.goes_by(timedelta(seconds=10))
        first, second = sorted(await office.house.tasks(), key=lambda task: task.booked_for)
        await office.house.until_state(first.id, "failed")
        await office.goes_by(timedelta(seconds=10))
        found = await office.house.until_state(second.id, "fired")
        assert found.outcome == "skipped: blocked"
        assert len(twilio.creates) == 3


async def test_a_block_that_is_reported_later_stops_what_comes_after_until_the_customer_writes(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (
        books("call Ana", delay="10 seconds"),
        "Booked.",
        books("call Eva", delay="1 hour"),
        "Booked too.",
        "Hello.",
    )
    async with an_office(database, tmp_path, clock, twilio, *lines) as office:
        await office.hears("remind me")
        await office.hears("and of Eva")
        await office.goes_by(timedelta(seconds=10))
        first, second = sorted(await office.house.tasks(), key=lambda task: task.booked_for)
        await office.house.until_state(first.id, "fired")
        await office.reports("undelivered", 63014)
        await office.house.until_state(first.id, "failed")
        await office.goes_by(timedelta(hours=1))
        assert (await office.house.until_state(second.id, "fired")).outcome == "skipped: blocked"
        await office.hears("hello again")
        assert office.sent[-1] == "Hello."


async def test_a_block_from_before_the_customer_wrote_stops_nothing(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("call Ana", delay="10 seconds"), "Booked.", books("call Eva", delay="1 hour"), "Booked too.")
    async with an_office(database, tmp_path, clock, twilio, *lines, "Hello.") as office:
        await office.hears("remind me")
        await office.hears("and of Eva")
        await office.goes_by(timedelta(seconds=10))
        first, second = sorted(await office.house.tasks(), key=lambda task: task.booked_for)
        await office.house.until_state(first.id, "fired")
        await office.goes_by(timedelta(minutes=1))
        await office.hears("I have unblocked you")
        await office.reports("undelivered", 63014, message=2)
        await office.house.until_state(first.id, "failed")
        await office.goes_by(timedelta(hours=1))
        assert (await office.house.until_state(second.id, "fired")).outcome == "delivered"


async def test_a_block_that_is_reported_while_its_customer_writes_waits_for_them_and_not_they_for_it(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        conversation = await office.hears("remind me of the renewal in six weeks")
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.until_held(task.id)
        async with database.transaction() as writing:
            await contacts.lock(writing, "acme", conversation)  # their name is another one now
            reported = asyncio.create_task(office.reports("undelivered", 63014))
            await eventually(lambda: waits_for_a_lock(database))
            assert await release(writing, clock, "acme", WINDOW_CLOSED, conversation=conversation) == 1
        await reported


async def test_word_that_a_message_waits_which_got_lost_is_looked_up_and_not_sent_twice(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        twilio.behave(Drop(accepted=True))
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.has_tried("unknown")
        await office.goes_by(timedelta(minutes=1, seconds=1))
        await office.until_held(task.id)
        assert [message.content_sid for message in twilio.messages] == [None, READY]
        assert await office.deliveries("outcome") == ["accepted"]


async def test_a_message_that_a_template_has_said_whole_is_not_said_in_pieces_once_that_is_found_out(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    told = f'Call Ana at [the office](https://acme.example "{"open on weekdays " * 100}"). It is about the renewal.'
    section = {"templates": [SAYS]}
    async with an_office(database, tmp_path, clock, twilio, *BOOKED, section=section, followups=(told,)) as office:
        await office.hears("remind me of the renewal in six weeks")
        twilio.behave(Drop(accepted=True))
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.has_tried("unknown")
        await office.goes_by(timedelta(minutes=1))
        await office.house.until_state(task.id, "fired")
        assert [message.content_sid for message in twilio.messages] == [None, WHOLE]


async def test_an_answer_whose_fate_nobody_knows_either_is_not_taken_for_a_template_that_got_lost(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, lines=(*BOOKED, "Hello.")) as office:
        await office.hears("remind me of the renewal in six weeks")
        twilio.behave(Drop(), Drop(accepted=True))
        task = await office.falls_due("scheduled", SIX_WEEKS)
        await office.has_tried("unknown")
        await office.goes_by(timedelta(seconds=20))
        await office.writes("hello")
        turn = max(await office.house.tasks(kind="turn"), key=lambda one: one.id)
        await office.until_error(turn.id, "lost")
        await office.goes_by(timedelta(seconds=40))
        await has_not_found(office, 1)
        await office.goes_by(timedelta(minutes=1))
        await office.house.until_state(turn.id, "fired")
        await office.goes_by(timedelta(minutes=3))
        await office.has_tried("not_sent")
        await office.goes_by(timedelta(seconds=2))
        await office.house.until_state(task.id, "fired")
        assert office.sent == ["Booked.", "Hello.", REMINDER]


async def test_a_customer_who_writes_while_the_template_goes_out_gets_the_message_at_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS) as office:
        await office.hears("remind me of the renewal in six weeks")
        twilio.behave(Accept(after=0.5))
        clock.move(SIX_WEEKS)
        office.house.wake()
        await twilio.attempts(2)
        await office.writes("hi")
        task = await office.followup()
        await office.house.until_state(task.id, "fired")
        assert office.sent.count(REMINDER) == 1


async def test_a_reply_that_comes_too_late_waits_for_the_customer(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, lines=("Hello.",)) as office:
        twilio.behave(Reject(429, 20429))
        await office.writes("hello")
        (turn,) = await office.house.tasks(kind="turn")
        await office.until_error(turn.id, "too many requests")
        await office.goes_by(timedelta(days=2))
        assert (await office.until_held(turn.id)).hold == "window closed"
        assert twilio.messages == []


IN_AN_HOUR = (books("the renewal", delay="1 hour"), "Booked.")


async def test_a_message_that_has_arrived_after_all_is_not_sent_again(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, lines=IN_AN_HOUR) as office:
        await office.hears("remind me of the renewal in an hour")
        task = await office.falls_due(span=timedelta(hours=1))
        await office.reports("failed", 63012)
        await office.until_error(task.id, "63012")
        await office.reports("delivered")
        await office.goes_by(timedelta(minutes=2))
        await office.house.until_state(task.id, "fired")
        assert office.tried.count(REMINDER) == 1


async def test_a_failed_message_that_has_arrived_after_all_is_fired(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, lines=IN_AN_HOUR) as office:
        await office.hears("remind me of the renewal in an hour")
        task = await office.falls_due(span=timedelta(hours=1))
        await office.reports("undelivered", 63024)
        await office.house.until_state(task.id, "failed")
        await office.reports("read")
        await office.house.until_state(task.id, "fired")
        async with database.transaction() as connection:
            told = [event.event for event in await story(connection, "acme", task.id)]
        assert told.count("resumed") == 1
        assert "it is taken for arrived" in caplog.text
        await office.reports("failed", 63024)
        assert (await office.followup()).state == "fired"
        assert office.tried.count(REMINDER) == 1


async def test_a_reply_that_waits_for_the_customer_does_not_follow_when_all_they_write_is_stop(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office_with(database, tmp_path, clock, twilio, TELLS, lines=("Hello.",)) as office:
        twilio.behave(Reject(429, 20429))
        await office.writes("hello")
        (turn,) = await office.house.tasks(kind="turn")
        await office.until_error(turn.id, "too many requests")
        await office.goes_by(timedelta(days=2))
        await office.until_held(turn.id)
        await office.hears("STOP")
        assert [words.startswith("Done: ") for words in office.sent] == [True]
        await office.goes_by(timedelta(days=1))
        assert (await office.until_held(turn.id)).hold == "window closed"
        await office.hears("START")
        await office.house.until_state(turn.id, "fired")
        assert office.sent.count("Hello.") == 1
