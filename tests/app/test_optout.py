"""A customer who wants nothing more: what is pending ends, it is confirmed once, and nothing goes out unasked."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from channels.whatsapp.reconcile import LOOKS
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_recurring import again
from tests.app.test_whatsapp import PUBLIC, REMINDER, Office, an_office, has_not_found, is_lost
from tests.support.model import books
from tests.support.twilio_server import Drop, TwilioServer

GONE = "Done: Acme will not write to you any more. To hear from us again, write START."
THREE = (
    books("call Ana", delay="10 seconds"),
    "Booked.",
    books("call Bea", delay="1 hour"),
    "Booked.",
    books("call Eva", delay="2 hours"),
    "Booked.",
)


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    async with TwilioServer(now=lambda: clock.at) as twilio:
        yield twilio


@pytest.fixture
async def office(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> AsyncIterator[Office]:
    async with an_office(database, tmp_path, clock, twilio, *THREE, "Hello.") as office:
        yield office


async def three_are_booked(office: Office) -> None:
    for name in ("Ana", "Bea", "Eva"):
        await office.hears(f"remind me to call {name}")
    assert len(await office.house.tasks()) == 3


async def test_what_is_pending_is_cancelled_and_that_is_confirmed_once(office: Office) -> None:
    await three_are_booked(office)
    asked = len(office.script.asked)
    await office.goes_by(timedelta(seconds=6))  # WhatsApp does not carry a fourth message at once
    await office.hears("STOP")
    await office.writes("stop")
    await office.goes_by(timedelta(hours=3))
    assert {task.state for task in await office.house.tasks()} == {"cancelled"}
    assert office.sent[3:] == [GONE]
    assert len(office.script.asked) == asked, "no model is asked"


async def test_what_comes_again_ends_with_it(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, again(every="2 hours"), "Booked.") as office:
        await office.hears("remind me every 2 hours to send the report")
        await office.hears("STOP")
        await office.goes_by(timedelta(hours=5))
        (task,) = await office.house.tasks(kind="schedule")
        assert (task.state, await office.house.tasks()) == ("cancelled", [])
        assert office.sent == ["Booked.", GONE]


async def test_whoever_writes_afterwards_is_answered_but_nothing_can_be_booked(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    lines = (books("call Ana", delay="1 hour"), "I cannot book that.")
    async with an_office(database, tmp_path, clock, twilio, *lines) as office:
        await office.hears("STOP")
        await office.hears("remind me to call Ana")
        assert office.sent == [GONE, "I cannot book that."]
        assert "asked to be sent nothing more" in str(office.script.asked[-1])
        assert await office.house.tasks() == []


async def test_whoever_comes_back_is_welcomed_once_and_can_book(office: Office) -> None:
    await office.hears("STOP")
    await office.hears("start")
    await office.hears("START")
    assert office.sent[0] == GONE
    assert office.sent[1].startswith("Welcome back")
    assert office.sent[2] == "Booked.", "the second time it is a message like any other"
    (task,) = await office.house.tasks()
    assert task.state == "scheduled"


@pytest.mark.parametrize(
    ("said", "gone", "back"),
    [
        ("Hola, quiero que me avise mañana", "Hecho: Acme no le escribirá más.", "Bienvenido de nuevo"),
        ("Olá, você pode me avisar amanhã?", "Feito: Acme não vai mais lhe escrever.", "Que bom ter você de volta"),
        ("12345", "Done: Acme will not write to you any more.", "Welcome back"),
    ],
)
async def test_both_are_confirmed_in_the_language_that_the_customer_last_used(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, said: str, gone: str, back: str
) -> None:
    async with an_office(database, tmp_path, clock, twilio, "Hello.", "Hello again.") as office:
        await office.hears("good morning")
        await office.hears(said)
        await office.hears("STOP")
        await office.goes_by(timedelta(seconds=6))
        await office.hears("START")
        assert [words.startswith(start) for words, start in zip(office.sent[2:], (gone, back), strict=True)] == [
            True
        ] * 2


async def test_a_message_that_only_mentions_the_word_is_answered(office: Office) -> None:
    await office.hears("please stop sending me the old price, remind me of the new one")
    assert office.sent == ["Booked."]


async def test_the_same_stop_by_webhook_twice_is_one(office: Office) -> None:
    form = office.twilio.inbound_form("STOP")
    hook = "/hooks/whatsapp/acme"
    for _ in range(3):
        assert (await office.twilio.post(PUBLIC + hook, form, at=office.here + hook)).status_code == 204
    await office.goes_by(timedelta(seconds=1))
    await office.twilio.attempts(1)
    assert len(await office.house.tasks(kind="turn")) == 1


async def test_a_stop_that_is_repeated_after_they_came_back_cancels_nothing(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio) as office:
        form, hook = twilio.inbound_form("STOP"), "/hooks/whatsapp/acme"
        assert (await twilio.post(PUBLIC + hook, form, at=office.here + hook)).status_code == 204
        await office.goes_by(timedelta(seconds=10))
        await office.hears("START")
        await office.hears("remind me in 10 seconds to call Ana")
        assert (await twilio.post(PUBLIC + hook, form, at=office.here + hook)).status_code == 204
        assert (await office.followup()).state == "scheduled"


async def test_what_nobody_knew_the_fate_of_is_not_sent_again_to_whoever_has_opted_out_since(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async with an_office(database, tmp_path, clock, twilio, unknown="at_most_once") as office:
        await office.hears("remind me in 10 seconds to call Ana")
        twilio.behave(Drop(accepted=True))
        await is_lost(office)
        twilio.messages[1].is_listed = False
        await office.goes_by(LOOKS[0])
        await has_not_found(office, 1)
        await office.falls_due("uncertain", span=LOOKS[1])
        await office.hears("STOP")
        await office.reports("failed", 63018, message=1)
        task = await office.falls_due(span=timedelta(minutes=5))
        assert task.outcome == "skipped: opted out"
        assert office.tried.count(REMINDER) == 1
