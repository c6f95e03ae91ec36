"""The broker's story over WhatsApp and Telegram: told there before a day, answered there, and left in peace afterwards."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from app import renewals as enrolling
from app.http import application
from app.preview import upcoming
from app.wiring import apply_tenants, performer
from scheduler import operate, recovery
from scheduler.clock import MovableClock
from scheduler.find import Found
from store.database import Database
from tests.app.test_renewals import ANA, BOGOTA, CONFIG, START, Broker, step
from tests.app.test_telegram import TOKEN, hands_in, sends, update
from tests.app.test_whatsapp import PUBLIC, Office, with_gap
from tests.support.asgi import a_port, served
from tests.support.claims import LEASE, take
from tests.support.house import a_config, a_house
from tests.support.model import Script
from tests.support.telegram_faults import DROP, TelegramFaults, telegram_faults
from tests.support.twilio_server import Drop, Reject, TwilioServer

NUMBER = "whatsapp:+573001234567"
CHAT = "42"
OF_STEP, SAYS, TELLS = ("HX" + digit * 32 for digit in "123")
WHOLE = {"sid": SAYS, "language": "en", "purpose": "notice", "variables": {"1": "text"}}
WORD = {"sid": TELLS, "language": "en", "purpose": "notice", "variables": {"1": "name", "2": "about"}}
BY_TEMPLATE = {
    "offset": "-6w",
    "about": "the policy of the {car} ends on {due}: ask whether to renew it",
    "template": {"en": {"sid": OF_STEP, "values": {"1": "{name}", "2": "{car}", "3": "{due}"}}},
}
STEPS = [BY_TEMPLATE, *CONFIG["cadences"]["policy"]["steps"][1:]]
CADENCE = {"cadences": {"policy": {"steps": STEPS}}}
PLAIN: dict[str, Any] = {
    "cadences": {"policy": {"steps": [{"offset": "-6w", "text": {"en": "Six weeks."}}, *STEPS[1:]]}}
}
TWO_WEEKS, LAST_CALL = "Ana, it ends on 1 March 2027.", "Last call: 1 March 2027."
AT_WHATSAPP = replace(ANA, addresses={"whatsapp": NUMBER}, agreed=True, language="en")
SIX_WEEKS, AFTER = "2027-01-18 10:01", "2027-03-10 10:00"


@dataclass
class Agency(Broker):
    """A broker with a number of WhatsApp and a bot of Telegram."""

    office: Office
    telegram: TelegramFaults
    sections: Mapping[str, Any]

    @property
    def got(self) -> list[tuple[str | None, Any]]:
        """What Twilio took: each template with what stood in its places, or the text."""
        return [
            (one.content_sid, one.variables if one.content_sid else one.body) for one in self.office.twilio.messages
        ]

    @property
    def chat(self) -> list[str]:
        """What Telegram was given."""
        return [call.fields["text"] for call in sends(self.telegram)]

    async def applies(self, **more: Any) -> None:
        """The tenant's file is applied with other sections."""
        self.sections = {**self.sections, **more}
        await apply_tenants(self.house.service, [a_config("acme", **self.sections)])
        self.house.service._tenants.clear()

    async def reads(self, words: str, number: int = 1001) -> None:
        """The customer writes in Telegram, and is answered."""
        count = len(self.chat)
        await hands_in(self.house, update(number, text=words, message_id=number))
        await self.comes(f"{(self.clock.at + timedelta(seconds=2)).astimezone(BOGOTA):%Y-%m-%d %H:%M:%S}")
        assert len(self.chat) == count + 1

    async def renews(self, say: Any, why: str = "paid online") -> None:
        """The customer writes that it is done, and the model marks it."""
        number = (await self.renewal()).id
        self.script._lines[:] = [
            ToolCallPart("mark_renewal", {"number": number, "what": "renewed", "why": why}),
            "It is noted.",
        ]
        await say("I have paid it")

    async def step(self, name: str) -> Found:
        """Return the last task of a step."""
        return max(
            (one for one in await self.house.tasks(kind="notice", tenant="acme") if step(one) == name),
            key=lambda one: one.id,
        )

    async def shown(self) -> list[tuple[str, str, str | None]]:
        """Return what an operator is shown of the renewal's steps: name, state, and what became of it or is wrong."""
        tenant = await self.house.service.tenant("acme")
        assert tenant is not None
        async with self.house.service.database.transaction() as connection:
            each = await enrolling.steps(connection, tenant, await self.renewal())
        rows = [enrolling.step_shown(one) for one in each]
        return [(row["step"], row["state"], row["error"] or row["outcome"]) for row in rows]

    async def until(self, local: str) -> None:
        """Set the clock before anything is booked, without a look at each day."""
        await self.house.goes_by(self.clock, datetime.fromisoformat(local).replace(tzinfo=BOGOTA) - self.clock.at)


@asynccontextmanager
async def an_agency(
    database: Database,
    directory: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    telegram: TelegramFaults,
    *lines: Any,
    templates: tuple[dict[str, Any], ...] = (WHOLE,),
    poll: bool = True,
    unknown: str = "at_least_once",
    **more: Any,
) -> AsyncIterator[Agency]:
    account = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
    whatsapp = {**account, "templates": list(templates), "unknown": unknown}
    sections = {**CONFIG, **CADENCE, "channels": {"whatsapp": whatsapp, "telegram": {"token": TOKEN}}, **more}
    script = Script(*lines, followups=("Your policy ends. Renew it?",))
    urls: dict[str, Any] = {"twilio_api_url": twilio.url, "telegram_api_url": telegram.url, "public_url": PUBLIC}
    with a_port() as (listener, here):
        async with (
            a_house(database, directory, script.model, clock, poll=poll, config=sections, **urls) as house,
            served(application(house.run), listener),
        ):
            house.service.make_channel = with_gap(house.service.make_channel, timedelta())
            office = Office(house, clock, twilio, here, script)
            yield Agency(house, clock, script, 0, office, telegram, sections)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(START)


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    approvals = dict.fromkeys((OF_STEP, SAYS, TELLS), "approved")
    async with TwilioServer(now=lambda: clock.at, approvals=approvals) as twilio:
        yield twilio


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as telegram:
        yield telegram


@pytest.fixture
async def agency(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, telegram: TelegramFaults
) -> AsyncIterator[Agency]:
    async with an_agency(database, tmp_path, clock, twilio, telegram) as agency:
        yield agency


BY_STEP = (OF_STEP, {"1": "Ana", "2": "Fiat", "3": "1 March 2027"})
BY_SECTION = (SAYS, {"1": TWO_WEEKS})


# The whole story


async def test_a_number_that_agreed_and_never_wrote_is_told_by_templates_answers_and_is_left_in_peace(
    agency: Agency,
) -> None:
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    assert agency.got == [BY_STEP]
    assert agency.office.twilio.messages[0].to == NUMBER
    await agency.comes("2027-02-15 10:01")
    assert agency.got == [BY_STEP, BY_SECTION]
    await agency.renews(partial(agency.office.hears, sender=NUMBER))
    assert "Matter" in str(agency.script.asked[-1])
    assert "subject: policy-17" in str(agency.script.asked[-1])
    assert (await agency.renewal()).state == "renewed"
    assert (await agency.story())[-1] == ("renewed", "paid online")
    await agency.comes(AFTER)
    assert agency.got == [BY_STEP, BY_SECTION, (None, "It is noted.")]
    assert [state for _, state, _ in await agency.shown()] == ["fired", "fired", "cancelled"]


async def test_within_the_24_hours_what_has_no_template_of_its_own_is_said_as_text(agency: Agency) -> None:
    await agency.until("2027-02-14 20:00")
    await agency.enrols(AT_WHATSAPP)
    await agency.office.hears("hello", NUMBER)
    await agency.comes("2027-02-15 10:01")
    assert agency.got[1:] == [(None, TWO_WEEKS)]


async def test_in_telegram_it_is_told_as_text_where_they_have_written_and_marked_there(agency: Agency) -> None:
    await agency.reads("/start", 1)
    await agency.enrols(replace(ANA, addresses={"telegram": CHAT}))
    await agency.comes("2027-02-15 10:01")
    assert agency.chat[1:] == ["Your policy ends. Renew it?", TWO_WEEKS]
    await agency.renews(partial(agency.reads, number=2))
    assert (await agency.renewal()).state == "renewed"
    await agency.comes(AFTER)
    assert agency.chat[3:] == ["It is noted."]


async def test_in_telegram_nobody_is_told_who_has_never_written_there(agency: Agency) -> None:
    await agency.enrols(replace(ANA, addresses={"telegram": CHAT}, agreed=True))
    await agency.comes(SIX_WEEKS)
    assert (agency.chat, (await agency.shown())[0]) == ([], ("-6w", "fired", "skipped: cannot be reached"))


async def test_who_wrote_last_in_telegram_is_told_there_though_their_number_is_known_too(agency: Agency) -> None:
    await agency.office.hears("hello", NUMBER)
    await agency.reads("hello", 1)
    await agency.enrols(replace(AT_WHATSAPP, addresses={"whatsapp": NUMBER, "telegram": CHAT}))
    await agency.comes(SIX_WEEKS)
    assert (len(agency.got), agency.chat[1:]) == (1, ["Your policy ends. Renew it?"])


async def test_who_is_told_by_number_and_answers_in_telegram_is_not_reminded_either(agency: Agency) -> None:
    await agency.enrols(replace(AT_WHATSAPP, addresses={"whatsapp": NUMBER, "telegram": CHAT}))
    await agency.comes(SIX_WEEKS)
    assert agency.got == [BY_STEP]
    await agency.reads("hello", 1)
    await agency.comes(AFTER)
    assert (agency.got, agency.chat) == ([BY_STEP], ["Hello."])
    assert (await agency.shown())[1] == ("-2w", "fired", "skipped: replied")


# Templates


async def test_a_notice_s_template_speaks_the_renewal_s_language_not_the_tenant_s_first(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, telegram: TelegramFaults
) -> None:
    spanish = {**WHOLE, "sid": TELLS, "language": "es"}
    async with an_agency(database, tmp_path, clock, twilio, telegram, templates=(WHOLE, spanish), **PLAIN) as agency:
        await agency.enrols(replace(AT_WHATSAPP, language="es"))
        await agency.comes("2027-02-15 10:01")
        assert agency.got[-1] == (TELLS, {"1": "Ana, acaba el 1 de marzo de 2027."})


async def test_word_that_a_notice_waits_names_the_subject_and_the_tap_brings_it_though_it_is_a_reminder(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, telegram: TelegramFaults
) -> None:
    async with an_agency(database, tmp_path, clock, twilio, telegram, templates=(WORD,)) as agency:
        await agency.enrols(AT_WHATSAPP)
        await agency.comes("2027-02-15 10:01")
        assert agency.got == [BY_STEP, (TELLS, {"1": "Ana", "2": "policy-17"})]
        for _ in range(2):
            await agency.office.brings(twilio.inbound_form("", NUMBER, ButtonText="Show it", MessageType="button"))
        await agency.quiet()
        assert agency.got[2:] == [(None, TWO_WEEKS)]
        assert await agency.house.tasks(kind="turn") == [], "the taps need no other answer"


async def test_a_template_that_a_step_names_since_now_need_not_stand_among_those_of_the_section(agency: Agency) -> None:
    await agency.enrols(replace(AT_WHATSAPP, subject="policy-16"))
    await agency.comes(SIX_WEEKS)
    two_weeks = {**STEPS[1], "template": {"en": {"sid": TELLS, "values": {"1": "{subject}"}}}}
    await agency.applies(cadences={"policy": {"steps": [BY_TEMPLATE, two_weeks]}})
    await agency.comes("2027-02-15 10:01")
    assert agency.got == [BY_STEP, (TELLS, {"1": "policy-16"})]


async def test_what_stands_in_a_template_s_places_is_on_one_line(agency: Agency) -> None:
    await agency.enrols(replace(AT_WHATSAPP, fields={"car": "Fiat\nPanda      4x4"}))
    await agency.comes(SIX_WEEKS)
    assert agency.got == [(OF_STEP, {"1": "Ana", "2": "Fiat Panda 4x4", "3": "1 March 2027"})]


async def test_a_step_whose_template_meta_still_looks_at_waits_for_it(agency: Agency) -> None:
    agency.office.twilio.approvals[OF_STEP] = "received"
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    assert (agency.got, (await agency.shown())[0]) == (
        [],
        ("-6w", "scheduled", f"the template {OF_STEP} is received at Meta"),
    )
    agency.office.twilio.approvals[OF_STEP] = "approved"
    await agency.comes("2027-01-18 10:20")
    assert agency.got == [BY_STEP]


async def test_a_step_whose_template_is_rejected_fails_in_words_and_the_next_ones_come(agency: Agency) -> None:
    agency.office.twilio.approvals[OF_STEP] = "rejected"
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    name, state, why = (await agency.shown())[0]
    assert (name, state) == ("-6w", "failed")
    assert f"the template {OF_STEP} is rejected at Meta" in str(why)
    await agency.comes("2027-02-15 10:01")
    assert agency.got == [BY_SECTION]


async def test_without_a_template_a_notice_waits_until_they_write_and_is_said_then_once(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, telegram: TelegramFaults
) -> None:
    async with an_agency(database, tmp_path, clock, twilio, telegram, templates=(), **PLAIN) as agency:
        await agency.enrols(AT_WHATSAPP)
        await agency.comes("2027-02-16 10:00")
        assert agency.got == []
        assert (await agency.step("-6w")).hold == "window closed"
        await agency.office.hears("good morning", NUMBER)
        await agency.comes("2027-02-16 12:00")
        assert sorted(str(said) for _, said in agency.got) == ["Hello.", "Six weeks."]


# Who must not be written to


async def test_who_agreed_and_takes_it_back_without_ever_writing_is_told_nothing_more(agency: Agency) -> None:
    await agency.enrols(AT_WHATSAPP, replace(AT_WHATSAPP, subject="policy-18", agreed=False))
    await agency.comes(SIX_WEEKS)
    assert agency.got == [BY_STEP]
    assert ("-6w", "fired", "skipped: no consent") in await agency.outcomes()
    assert await agency.enrols(replace(AT_WHATSAPP, agreed=False)) == ["changed"]
    assert {why for _, why in await previewed(agency)} == {"no consent"}
    await agency.comes(AFTER)
    assert agency.got == [BY_STEP]


async def previewed(agency: Agency) -> list[tuple[str, str | None]]:
    tenant = await agency.house.service.tenant("acme")
    assert tenant is not None
    async with agency.house.service.database.transaction() as connection:
        return [(one.step, one.held) for one in await upcoming(connection, tenant, agency.clock.at, 90)]


async def test_a_word_of_opting_out_on_whatsapp_ends_it(agency: Agency) -> None:
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    await agency.office.hears("STOP", NUMBER)
    await agency.comes(AFTER)
    (_, confirmed) = agency.got[-1]
    assert (len(agency.got), str(confirmed).startswith("Done: ")) == (2, True)
    assert [why for _, _, why in await agency.shown()] == ["delivered", "skipped: opted out", "skipped: opted out"]


async def test_stop_in_telegram_ends_it_also_for_the_number(agency: Agency) -> None:
    await agency.reads("/start", 1)
    await agency.enrols(replace(AT_WHATSAPP, addresses={"whatsapp": NUMBER, "telegram": CHAT}))
    await agency.comes(SIX_WEEKS)
    await agency.reads("/stop", 2)
    await agency.comes(AFTER)
    assert (len(agency.chat), agency.got) == (3, [])
    assert [why for _, _, why in await agency.shown()] == ["delivered", "skipped: opted out", "skipped: opted out"]


# What goes wrong on the way


@pytest.mark.parametrize("code", [21211, 63024])
async def test_a_wrong_number_fails_the_step_where_an_operator_sees_it_and_a_mended_one_gets_the_next(
    agency: Agency, code: int
) -> None:
    agency.office.twilio.behave(Reject(400, code))
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    name, state, why = (await agency.shown())[0]
    assert (name, state, "customer's address" in str(why)) == ("-6w", "failed", True)
    assert await agency.enrols(replace(AT_WHATSAPP, addresses={"whatsapp": "whatsapp:+573009999999"})) == ["changed"]
    await agency.comes("2027-02-15 10:01")
    assert agency.got == [BY_SECTION]
    assert agency.office.twilio.messages[0].to == "whatsapp:+573009999999"


async def test_who_writes_after_a_step_that_failed_has_answered_nothing_and_is_told_by_the_next_one(
    agency: Agency,
) -> None:
    agency.office.twilio.behave(Reject(400, 63024))
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    await agency.office.hears("hello", NUMBER)
    await agency.comes("2027-02-15 10:01")
    assert agency.got == [(None, "Hello."), BY_SECTION]
    await agency.office.hears("hello again", NUMBER)
    await agency.comes(AFTER)
    assert [why for _, state, why in await agency.shown() if state == "fired"] == ["delivered", "skipped: replied"]


async def test_a_wrong_number_that_is_told_of_later_fails_the_step_and_is_not_sent_it_again(agency: Agency) -> None:
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    await agency.office.reports("undelivered", 63024)
    assert (await agency.shown())[0][:2] == ("-6w", "failed")
    await agency.comes("2027-01-25 10:00")
    assert len(agency.got) == 1


async def test_a_step_that_an_operator_retries_is_said_though_it_counts_as_begun(agency: Agency) -> None:
    agency.office.twilio.behave(Reject(400, 63024))
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(SIX_WEEKS)
    failed = await agency.step("-6w")
    async with agency.house.service.database.transaction() as connection:
        assert await operate.retry(connection, agency.clock, "acme", failed.id, "eva")
    await agency.comes("2027-01-18 11:00")
    assert agency.got == [BY_STEP]


async def test_who_has_blocked_the_sender_hears_nothing_more_of_it(agency: Agency) -> None:
    agency.office.twilio.behave(Reject(400, 63014))
    await agency.enrols(AT_WHATSAPP)
    await agency.comes(AFTER)
    assert agency.got == []
    assert [(name, state) for name, state, _ in await agency.shown()] == [
        ("-6w", "failed"),
        ("-2w", "fired"),
        ("-3d", "fired"),
    ]
    assert {why for _, state, why in await agency.shown() if state == "fired"} == {"skipped: blocked"}


async def test_a_send_of_which_nobody_knows_is_looked_up_and_said_once(agency: Agency) -> None:
    agency.office.twilio.behave(Drop(accepted=True))
    await agency.enrols(AT_WHATSAPP)
    await agency.comes("2027-01-18 11:00")
    assert agency.got == [BY_STEP]
    assert (await agency.shown())[0] == ("-6w", "fired", "delivered")


async def test_a_send_that_got_lost_is_made_again_or_left_to_the_operator_as_the_tenant_wants(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer, telegram: TelegramFaults
) -> None:
    async with an_agency(database, tmp_path, clock, twilio, telegram, unknown="at_most_once") as agency:
        twilio.behave(Drop())
        await agency.enrols(AT_WHATSAPP)
        await agency.comes("2027-01-18 12:00")
        assert (agency.got, (await agency.shown())[0][:2]) == ([], ("-6w", "uncertain"))
        await agency.comes("2027-02-15 10:01")
        assert agency.got == [BY_SECTION]


async def test_in_telegram_an_uncertain_notice_is_not_said_again_and_the_next_one_comes(agency: Agency) -> None:
    await agency.reads("/start", 1)
    await agency.enrols(replace(ANA, addresses={"telegram": CHAT}))
    agency.telegram.begin(DROP)
    await agency.comes("2027-01-18 12:00")
    assert (len(agency.chat), (await agency.shown())[0][:2]) == (1, ("-6w", "uncertain"))
    await agency.comes("2027-02-15 10:01")
    assert agency.chat[1:] == [TWO_WEEKS]


@pytest.mark.parametrize("where", ["whatsapp", "telegram"])
@pytest.mark.parametrize("dies", ["claimed", "written", "claimed again"])
async def test_a_worker_that_is_killed_on_the_way_leaves_a_notice_that_is_said_once(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    twilio: TwilioServer,
    telegram: TelegramFaults,
    where: str,
    dies: str,
) -> None:
    async with an_agency(database, tmp_path, clock, twilio, telegram) as agency:
        await agency.reads("/start", 1)
        reached = AT_WHATSAPP if where == "whatsapp" else replace(ANA, addresses={"telegram": CHAT})
        await agency.enrols(reached)
        await agency.comes("2027-01-18 09:59")
    async with an_agency(database, tmp_path, clock, twilio, telegram, poll=False) as agency:
        clock.move(timedelta(minutes=1))
        (claimed,) = await take(database, clock, "mortal")
        if dies != "claimed":
            await performer(agency.house.service)(claimed)
        if dies == "claimed again":
            (again,) = await take(database, clock, "mortal")
            assert again.text is not None
    clock.move(LEASE + timedelta(seconds=1))
    async with database.transaction() as connection:
        await recovery.recover(connection, clock)
    async with an_agency(database, tmp_path, clock, twilio, telegram) as agency:
        await agency.comes("2027-02-01 10:00")
        assert (await agency.shown())[0] == ("-6w", "fired", "delivered")
        assert (agency.got, agency.chat[1:]) == (
            ([BY_STEP], []) if where == "whatsapp" else ([], ["Your policy ends. Renew it?"])
        )
