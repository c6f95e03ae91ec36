"""Asking Twilio, through its own library and over the wire, what became of a send."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from channels.message import Accepted, Lost, Part, Status, Unknown
from channels.whatsapp.codes import why
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.reconcile import PAGE, PAGES
from channels.whatsapp.section import WhatsAppSection
from scheduler.clock import MovableClock
from tests.support.twilio_server import BAD_GATEWAY, Accept, Answer, Drop, Hang, Message, Reject, TwilioServer

CUSTOMER, OTHER_FORM = "whatsapp:+5215512345678", "whatsapp:+525512345678"
BEGAN = datetime(2026, 11, 29, 23, 59, 58, tzinfo=UTC)
"""Seconds before Twilio's day ends."""


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    clock = MovableClock(BEGAN)
    async with TwilioServer(now=lambda: clock.at) as server:
        yield server


@pytest.fixture
async def channel(twilio: TwilioServer) -> AsyncIterator[WhatsAppChannel]:
    fields = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
    channel = WhatsAppChannel(WhatsAppSection.model_validate(fields), twilio.url, timeout=1)
    yield channel
    await channel.close()


def lost(text: str = "Hola", address: str = CUSTOMER) -> Lost:
    return Lost(address, text, BEGAN)


def has(twilio: TwilioServer, text: str = "Hola", *, after: float = 0, **more: Any) -> Message:
    """Let Twilio have a message that was created some seconds after the send began."""
    usual = {"to": CUSTOMER, "from_": twilio.sender, "status_callback": None}
    message = Message(
        sid=f"SM{len(twilio.messages):032x}",
        body=text,
        created_at=BEGAN + timedelta(seconds=after),
        **{**usual, **more},
    )
    twilio.messages.append(message)
    return message


async def found(channel: WhatsAppChannel, wanted: Lost | None = None) -> list[str]:
    answer = await channel.look_up(wanted or lost())
    assert not isinstance(answer, Unknown), answer
    return [one.provider_id for one in answer]


@pytest.mark.parametrize("text", ["Hola", "  **Hola**, ¿qué tal?\n\n* uno\n* dos\n", "👋" * 700, "a  b"])
async def test_what_was_taken_is_found_by_its_text_as_it_was_sent(
    twilio: TwilioServer, channel: WhatsAppChannel, text: str
) -> None:
    (piece,) = channel.split(text)
    twilio.behave(Drop(accepted=True))
    assert isinstance(await channel.send(Part(delivery=1, address=CUSTOMER, text=piece)), Unknown)
    (message,) = twilio.messages
    assert await channel.look_up(lost(piece)) == [Status(message.sid, "queued")]


async def test_an_answer_without_an_id_is_not_known_until_twilio_is_asked(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    twilio.behave(Accept(with_sid=False))
    assert isinstance(await channel.send(Part(delivery=1, address=CUSTOMER, text="Hola")), Unknown)
    assert await found(channel) == [twilio.messages[0].sid]


async def test_nothing_else_is_taken_for_it(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    has(twilio, after=-6)
    has(twilio, "Hola!")
    has(twilio, to="whatsapp:+5215500000000")
    has(twilio, from_="whatsapp:+14150000000")
    has(twilio, to=twilio.sender, from_=CUSTOMER)
    has(twilio, is_listed=False)
    assert await found(channel) == []


async def test_it_is_found_while_queued_over_midnight_by_a_clock_that_is_behind_and_in_either_form_of_the_number(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    expected = [
        has(twilio, after=-5).sid,
        has(twilio, after=1, to=OTHER_FORM).sid,
        has(twilio, after=40, status="delivered").sid,
    ]
    assert await found(channel) == expected == await found(channel, lost(address=OTHER_FORM))
    assert not any(name.startswith("Date") for asked in twilio.lists for name in asked)


async def test_of_equal_texts_each_is_named_the_oldest_first_and_one_without_its_text_last(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    redacted, first, second = has(twilio, ""), has(twilio, after=1), has(twilio, after=2)
    assert await found(channel) == [first.sid, second.sid, redacted.sid]


async def test_a_template_is_known_by_what_it_is_not(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    has(twilio, "An answer\nthat is lost too")
    template, redacted = has(twilio, "Your answer is ready.", after=1), has(twilio, "", after=2)
    wanted = Lost(CUSTOMER, None, BEGAN, others=("An answer that is lost too",))
    assert await found(channel, wanted) == [template.sid, redacted.sid]


async def test_one_that_failed_says_why(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    message = has(twilio, status="undelivered", error_code=63024)
    assert await channel.look_up(lost()) == [Status(message.sid, "undelivered", why(63024), 63024)]


async def test_it_is_looked_for_page_by_page_but_not_for_ever(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    wanted = Lost("whatsapp:+14155550123", "Hola", BEGAN)
    message = has(twilio, to=wanted.address)
    for number in range(PAGE * PAGES - 1):
        has(twilio, f"number {number}", after=number, to=wanted.address)
    assert await found(channel, wanted) == [message.sid]
    assert len(twilio.lists) == PAGES
    has(twilio, "one more", to=wanted.address)
    answer = await channel.look_up(wanted)
    assert isinstance(answer, Unknown)
    assert "more than 500" in answer.reason


async def test_what_was_before_is_not_read_to_its_end(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    for _ in range(3 * PAGE):
        has(twilio, after=-3600)
    message = has(twilio)
    assert await found(channel) == [message.sid]
    assert [asked["To"] for asked in twilio.lists] == [OTHER_FORM, CUSTOMER, CUSTOMER]


@pytest.mark.parametrize(
    "fault",
    [
        Reject(401, 20003),
        Reject(429, 20429),
        BAD_GATEWAY,
        Drop(),
        Hang(),
        Answer(200, "<html>"),
        Answer(200, "{}", "application/json"),
        Answer(200, '{"messages": [{}]}', "application/json"),
        Answer(200, '{"messages": 7}', "application/json"),
    ],
)
async def test_whatever_twilio_answers_instead_is_not_taken_for_no(
    twilio: TwilioServer, channel: WhatsAppChannel, fault: Any
) -> None:
    has(twilio)
    twilio.behave_when_asked(fault)
    answer = await channel.look_up(lost(address="whatsapp:+14155550123"))
    assert isinstance(answer, Unknown), answer
    assert len(answer.reason) > 10
    assert isinstance(await channel.send(Part(delivery=1, address=CUSTOMER, text="Hola")), Accepted)


async def test_a_second_page_that_fails_is_not_taken_for_no(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    wanted = Lost("whatsapp:+14155550123", "Hola", BEGAN)
    for number in range(PAGE + 1):
        has(twilio, f"number {number}", to=wanted.address)
    assert await found(channel, wanted) == []
    twilio.behave_when_asked(Accept(), BAD_GATEWAY)
    assert isinstance(await channel.look_up(wanted), Unknown)


async def test_a_twilio_that_is_down_is_not_taken_for_no(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    has(twilio)
    async with twilio.down():
        assert isinstance(await channel.look_up(lost()), Unknown)
    assert len(await found(channel)) == 1
