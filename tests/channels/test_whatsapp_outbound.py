import asyncio
import logging
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.channel import Channel
from channels.message import REACHABLE, Accepted, NotSent, Origin, Outcome, Part, Rejected, Status, Unknown, units
from channels.whatsapp import codes, signature
from channels.whatsapp.call import Call, client_of
from channels.whatsapp.inbound import read_message, read_status
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.section import WhatsAppSection
from tests.support.twilio_server import BAD_GATEWAY, Accept, Answer, Behaviour, Drop, Hang, Reject, TwilioServer

CUSTOMER = "whatsapp:+5215512345678"


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with TwilioServer() as server:
        yield server


def section_for(twilio: TwilioServer, **other: Any) -> WhatsAppSection:
    fields = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
    return WhatsAppSection.model_validate(fields | other)


def status_url(delivery: int) -> str:
    return f"https://vuelvo.example/hooks/whatsapp/acme/status/{delivery}"


@pytest.fixture
async def channel(twilio: TwilioServer) -> AsyncIterator[WhatsAppChannel]:
    channel = WhatsAppChannel(section_for(twilio), twilio.url, status_url, timeout=5)
    yield channel
    await channel.close()


def part(text: str = "Hola", delivery: int = 7) -> Part:
    return Part(delivery=delivery, address=CUSTOMER, text=text, reply_to="SM1")


async def outcome_of(twilio: TwilioServer, channel: Channel, behaviour: Behaviour) -> Outcome:
    """Return what one send came to, having seen that it was tried once and that the next one goes out."""
    twilio.behave(behaviour)
    outcome = await channel.send(part())
    assert len(twilio.creates) == 1
    assert isinstance(await channel.send(part()), Accepted)
    return outcome


async def test_a_message_goes_out_once_with_the_address_to_report_to(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    text = "¿Qué tal? 👋 a&b=c+d\nsegunda línea"
    outcome = await channel.send(part(text, delivery=42))
    [message] = twilio.messages
    assert outcome == Accepted(message.sid)
    assert twilio.creates == [{"To": CUSTOMER, "From": twilio.sender, "Body": text, "StatusCallback": status_url(42)}]


async def test_without_an_address_to_report_to_none_is_sent(twilio: TwilioServer) -> None:
    channel = WhatsAppChannel(section_for(twilio), twilio.url)
    await channel.send(part())
    await channel.close()
    assert twilio.creates == [{"To": CUSTOMER, "From": twilio.sender, "Body": "Hola"}]


async def test_an_address_is_answered_as_it_came(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    addresses = ["whatsapp:+5215512345678", "whatsapp:+554188887777", "whatsapp:US.13491208655302741918"]
    for address in addresses:
        await channel.send(Part(delivery=1, address=address, text="Hola"))
    assert [message.to for message in twilio.messages] == addresses


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
async def test_an_empty_piece_is_rejected_without_a_call(
    twilio: TwilioServer, channel: WhatsAppChannel, text: str
) -> None:
    [piece] = channel.split(text)
    assert isinstance(await channel.send(part(piece)), Rejected)
    assert isinstance(await channel.send(part(text)), Rejected)
    assert twilio.creates == []


async def test_half_a_character_is_rejected_without_a_call(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    assert isinstance(await channel.send(part("\ud83d")), Rejected)
    assert twilio.creates == []


# The failure table


@pytest.mark.parametrize(("status", "code"), [(400, 21211), (400, 21610), (400, 21617), (400, 63016)])
async def test_a_refused_message_is_rejected(
    twilio: TwilioServer, channel: WhatsAppChannel, status: int, code: int
) -> None:
    outcome = await outcome_of(twilio, channel, Reject(status, code, "No such luck."))
    assert isinstance(outcome, Rejected)
    assert not outcome.tenant_fault
    assert f"error {code}, No such luck" in outcome.reason


@pytest.mark.parametrize(("status", "code"), [(401, 20003), (403, 20003), (404, 20404), (400, 63007)])
async def test_a_refused_account_is_the_tenants_fault(
    twilio: TwilioServer, channel: WhatsAppChannel, status: int, code: int
) -> None:
    outcome = await outcome_of(twilio, channel, Reject(status, code))
    assert isinstance(outcome, Rejected)
    assert outcome.tenant_fault


async def test_a_wrong_token_account_or_sender_is_the_tenants_fault(twilio: TwilioServer) -> None:
    for wrong in ({"auth_token": "wrong"}, {"account_sid": "AC" + "1" * 32}, {"sender": "+14150000000"}):
        channel = WhatsAppChannel(section_for(twilio, **wrong), twilio.url)
        outcome = await channel.send(part())
        await channel.close()
        assert isinstance(outcome, Rejected)
        assert outcome.tenant_fault
    assert twilio.messages == []


@pytest.mark.parametrize("retry_after", [None, 7.5])
@pytest.mark.parametrize(("status", "code"), [(429, 20429), (429, 63018)])
async def test_a_busy_twilio_is_tried_again_when_it_says(
    twilio: TwilioServer, channel: WhatsAppChannel, status: int, code: int, retry_after: float | None
) -> None:
    outcome = await outcome_of(twilio, channel, Reject(status, code, retry_after=retry_after))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == retry_after


@pytest.mark.parametrize("asked", [1e9, 1e300])
async def test_a_wait_that_would_never_end_is_taken_for_a_day(
    twilio: TwilioServer, channel: WhatsAppChannel, asked: float
) -> None:
    outcome = await outcome_of(twilio, channel, Reject(429, 20429, retry_after=asked))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 24 * 3600
    assert channel.wait(CUSTOMER) <= 24 * 3600


async def test_a_full_day_waits_for_hours(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    outcome = await outcome_of(twilio, channel, Reject(429, 63038, retry_after=1))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 4 * 3600


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("kind", [Hang, Drop])
async def test_a_lost_answer_is_unknown_whether_it_was_taken_or_not(
    twilio: TwilioServer, kind: type[Hang] | type[Drop], accepted: bool
) -> None:
    channel = WhatsAppChannel(section_for(twilio), twilio.url, timeout=0.3)
    assert isinstance(await outcome_of(twilio, channel, kind(accepted)), Unknown)
    assert len(twilio.messages) == (2 if accepted else 1)
    await channel.close()


@pytest.mark.parametrize(
    "behaviour",
    [
        Reject(500, 20500),
        Reject(503, 20503, retry_after=1),
        BAD_GATEWAY,
        Answer(504, "", "text/plain"),
        Answer(302, "<html>", "text/html"),
        Answer(201, "<html>not JSON", "text/html"),
        Answer(201, "[]", "application/json"),
        Answer(201, "", "application/json"),
        Accept(with_sid=False),
    ],
)
async def test_an_answer_that_says_nothing_is_unknown(
    twilio: TwilioServer, channel: WhatsAppChannel, behaviour: Behaviour
) -> None:
    assert isinstance(await outcome_of(twilio, channel, behaviour), Unknown)


@pytest.mark.parametrize(
    ("behaviour", "tenant_fault"),
    [
        (Answer(400, "<html>"), False),
        (Answer(403, "<html>"), True),
        (Answer(404, "<html>"), True),
        (Answer(400, '{"type": "about:blank", "title": "Bad", "status": 200, "code": "21211"}'), False),
        (Answer(401, '{"type": "about:blank", "title": "Bad", "status": "?", "code": "?", "detail": "Who?"}'), True),
    ],
)
async def test_a_refusal_in_another_shape_is_read_by_its_http_status(
    twilio: TwilioServer, channel: WhatsAppChannel, behaviour: Behaviour, tenant_fault: bool
) -> None:
    outcome = await outcome_of(twilio, channel, behaviour)
    assert isinstance(outcome, Rejected)
    assert outcome.tenant_fault is tenant_fault


@pytest.mark.parametrize("status", ["failed", "undelivered"])
async def test_a_message_that_failed_at_once_is_rejected_with_its_code(
    twilio: TwilioServer, channel: WhatsAppChannel, status: str
) -> None:
    outcome = await outcome_of(twilio, channel, Accept(status, 63016))
    assert isinstance(outcome, Rejected)
    assert "63016" in outcome.reason


async def test_the_reason_of_a_silence_names_how_long_it_was_heard(twilio: TwilioServer) -> None:
    channel = WhatsAppChannel(section_for(twilio), twilio.url, timeout=0.3)
    assert await outcome_of(twilio, channel, Hang()) == Unknown("Twilio did not answer within 0.3 s")
    await channel.close()


async def test_a_refused_connection_is_not_sent_and_the_next_one_goes_out(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    assert isinstance(await channel.send(part()), Accepted)
    async with twilio.down():
        assert isinstance(await channel.send(part()), NotSent)
    assert isinstance(await channel.send(part()), Accepted)
    assert len(twilio.creates) == 2


async def test_a_name_that_is_not_found_and_a_failed_handshake_are_not_sent(twilio: TwilioServer) -> None:
    for url in ("http://twilio.invalid", twilio.url.replace("http:", "https:")):
        channel = WhatsAppChannel(section_for(twilio), url)
        assert isinstance(await channel.send(part()), NotSent)
        await channel.close()
    assert twilio.creates == []


async def test_a_network_that_swallows_connections_is_not_sent(twilio: TwilioServer) -> None:
    with socket.socket() as full:  # nobody accepts here, and its queue is full
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        channel = WhatsAppChannel(section_for(twilio), f"http://127.0.0.1:{full.getsockname()[1]}", timeout=0.8)
        outcome = await channel.send(part())
        await channel.close()
        for client in waiting:
            client.close()
    assert isinstance(outcome, NotSent)


async def test_being_cancelled_is_passed_on(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    twilio.behave(Hang())
    sending = asyncio.create_task(channel.send(part()))
    await twilio.attempts(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_each_of_several_sends_at_a_time_has_its_own_outcome(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    twilio.behave(*(Reject(429, 20429, retry_after=seconds) for seconds in range(1, 21)))
    outcomes = await asyncio.gather(*(channel.send(part(str(n))) for n in range(20)))
    waits = [outcome.retry_after for outcome in outcomes if isinstance(outcome, NotSent)]
    by_arrival = [int(form["Body"]) for form in twilio.creates]
    assert [waits[n] for n in by_arrival] == list(range(1, 21))


# What an operator reads


async def test_a_reason_holds_neither_token_nor_number(
    twilio: TwilioServer, channel: WhatsAppChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    said = (
        f"'To' number whatsapp:+5215512345678 (+52 1 55 1234-5678)\nis not valid for {twilio.auth_token}. " + "x" * 500
    )
    twilio.behave(Reject(400, 21211, said), Drop(), Accept("failed", 63016))
    for _ in range(3):
        outcome = await channel.send(part("el texto"))
        assert isinstance(outcome, Rejected | Unknown)
        for private in (twilio.auth_token, "5512345678", "1234-5678", "\n", "el texto"):
            assert private not in outcome.reason
        assert len(outcome.reason) < 350
    for private in (twilio.auth_token, "5512345678", "el texto"):
        assert private not in caplog.text


def test_the_channel_does_not_show_its_token(twilio: TwilioServer) -> None:
    assert twilio.auth_token not in repr(WhatsAppChannel(section_for(twilio)))


# Splitting


def test_a_long_message_is_cut_after_formatting(twilio: TwilioServer) -> None:
    pieces = WhatsAppChannel(section_for(twilio)).split("**Aviso** 👋\n\n" + "Una frase de prueba 👋. " * 200)
    assert pieces[0].startswith("*Aviso* 👋\n\nUna frase")
    assert all(0 < units(piece) <= 1500 and piece.endswith(".") for piece in pieces)
    assert sum(piece.count("Una frase") for piece in pieces) == 200
    assert len(pieces) == 4


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [""]),
        (" \n\t ", [""]),
        ("[]()", [""]),
        ("**hola**", ["*hola*"]),
        ("a" * 1499 + "👋b", ["a" * 1499, "👋b"]),
        ("👋" * 751, ["👋" * 750, "👋"]),
        ("a" * 1000 + "\n\n" + "b " * 400, ["a" * 1000, ("b " * 400).strip()]),
        ("a" * 1490 + " **uno dos**", ["a" * 1490, "*uno dos*"]),
    ],
)
def test_a_piece_ends_where_it_reads_best(twilio: TwilioServer, text: str, pieces: list[str]) -> None:
    assert WhatsAppChannel(section_for(twilio)).split(text) == pieces


@settings(max_examples=50)
@given(st.text(st.sampled_from("ab 👋\n.!*_`#"), min_size=100, max_size=300), st.integers(1, 20))
def test_no_word_is_lost_in_a_cut(text: str, times: int) -> None:
    def letters(text: str) -> str:
        return "".join(letter for letter in text if letter in "ab👋")

    text = re.sub("`{3,}", "``", text)  # what follows a fence names a language, and is left out on purpose
    pieces = WhatsAppChannel(section_for(TwilioServer())).split(text * times)
    assert letters("".join(pieces)) == letters(text * times)
    assert all(units(piece) <= 1500 for piece in pieces)


# Reach

WROTE = datetime(2026, 3, 4, 16, 0, tzinfo=UTC)


def test_an_answer_inside_the_window_reaches_the_customer(twilio: TwilioServer) -> None:
    channel = WhatsAppChannel(section_for(twilio))
    origin = Origin("whatsapp", CUSTOMER, WROTE)
    assert channel.assess(origin, WROTE + timedelta(hours=23, minutes=54), WROTE) is REACHABLE


def test_the_advice_names_the_time_until_which_an_answer_can_come(twilio: TwilioServer) -> None:
    reach = WhatsAppChannel(section_for(twilio)).assess(
        Origin("whatsapp", CUSTOMER, WROTE), WROTE + timedelta(days=6), WROTE + timedelta(minutes=1)
    )
    assert not reach.possible
    assert "only until 2026-03-05 15:55 UTC" in reach.advice
    assert "cannot promise" in reach.advice


@pytest.mark.parametrize("wrote", [None, WROTE - timedelta(days=2)])
def test_no_time_is_offered_once_the_window_is_shut(twilio: TwilioServer, wrote: datetime | None) -> None:
    reach = WhatsAppChannel(section_for(twilio)).assess(Origin("whatsapp", CUSTOMER, wrote), WROTE, WROTE)
    assert not reach.possible
    assert "cannot promise" in reach.advice
    assert "Offer" not in reach.advice


# Typing, opening, closing


async def test_a_typing_bubble_is_shown_under_the_customers_message(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    await channel.typing(CUSTOMER, None, "SM" + "1" * 32)
    await channel.typing(CUSTOMER, None, None)
    assert twilio.typings == [{"channel": "whatsapp", "messageId": "SM" + "1" * 32}]


async def test_a_typing_bubble_that_fails_is_no_error(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    wrong = WhatsAppChannel(section_for(twilio, auth_token="wrong"), twilio.url)
    await wrong.typing(CUSTOMER, None, "SM1")
    await wrong.close()
    async with twilio.down():
        await channel.typing(CUSTOMER, None, "SM1")
    assert twilio.typings == []


async def test_a_closed_channel_opens_again_when_used(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    for _ in range(2):
        assert isinstance(await channel.send(part()), Accepted)
        await channel.close()
        await channel.close()


def test_the_environment_does_not_send_messages_elsewhere(
    twilio: TwilioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWILIO_REGION", "au1")
    monkeypatch.setenv("TWILIO_EDGE", "sydney")
    client = client_of(section_for(twilio), Call(httpx.AsyncClient(trust_env=False), None))
    assert client.get_hostname("https://api.twilio.com/x") == "https://api.twilio.com/x"


def test_importing_the_channel_does_not_load_twilios_client() -> None:
    code = (
        "import sys, channels.whatsapp.outbound; assert not {'twilio.rest', 'requests', 'aiohttp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# There and back


async def test_a_conversation_with_the_stand_in_goes_there_and_back(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    section = section_for(twilio)
    reported: list[tuple[str, Status]] = []

    async def take(request: web.Request) -> web.Response:
        form = parse_qsl(await request.text(), keep_blank_values=True)
        signature.check(section, f"https://vuelvo.example{request.raw_path}", form, request.headers)
        if "/status/" in request.path:
            reported.append((request.path.rpartition("/")[2], read_status(section, form)))
        else:
            inbound = read_message(section, "acme", form)
            await channel.send(Part(delivery=9, address=inbound.address, text=inbound.text[::-1]))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    async with TestServer(app) as service:
        hook = "/hooks/whatsapp/acme?a=%20"
        form = twilio.inbound_form(" ¿Hola?\r\n", "whatsapp:+554188887777", ButtonText="")
        answer = await twilio.post(
            f"https://vuelvo.example{hook}", form, at=str(service.make_url("/")).rstrip("/") + hook
        )
        assert answer.status_code == 204
        [message] = twilio.messages
        assert (message.to, message.body) == ("whatsapp:+554188887777", "\n\r?aloH¿ ")
        for status, code in (("sent", None), ("undelivered", 63024)):
            await twilio.report(message, status, code, at=str(service.make_url("/hooks/whatsapp/acme/status/9")))
    assert reported == [
        ("9", Status(message.sid, "sent")),
        ("9", Status(message.sid, "undelivered", codes.why(63024), 63024)),
    ]


async def test_twilio_can_be_asked_what_it_took(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    for text in ("uno", "dos"):
        await channel.send(part(text))
    account = f"{twilio.url}/2010-04-01/Accounts/{twilio.account_sid}"
    async with httpx.AsyncClient(auth=(twilio.account_sid, twilio.auth_token), trust_env=False) as http:
        listed = (await http.get(f"{account}/Messages.json", params={"To": CUSTOMER})).json()["messages"]
        others = (await http.get(f"{account}/Messages.json", params={"To": "whatsapp:+1"})).json()["messages"]
        fetched = (await http.get(f"{account}/Messages/{listed[0]['sid']}.json")).json()
        missing = await http.get(f"{account}/Messages/SM0.json")
    assert [message["body"] for message in listed] == ["dos", "uno"]
    assert others == []
    assert fetched == listed[0]
    assert (missing.status_code, missing.json()["code"]) == (404, 20404)


# The pace


async def test_a_limit_that_names_a_time_closes_the_sender_for_everybody_so_long(twilio: TwilioServer) -> None:
    now = 100.0
    channel = WhatsAppChannel(section_for(twilio), twilio.url, clock=lambda: now)
    twilio.behave(Reject(429, 63038, retry_after=1), Reject(429, 20429, retry_after=7), Reject(400, 21611))
    await channel.send(part())
    assert channel.wait("whatsapp:+14155550001") == 0, "the day's count frees up little by little"
    for seconds in (7, 60):
        await channel.send(part())
        assert [channel.wait(CUSTOMER), channel.wait("whatsapp:+14155550002")] == [pytest.approx(seconds)] * 2
    await channel.close()


async def test_a_sender_goes_no_faster_than_its_tenant_says_and_no_person_gets_more_than_three_at_once(
    twilio: TwilioServer,
) -> None:
    for per_second, at_once in ((None, 8), (1, 1), (500, 50)):
        section = section_for(twilio, **({} if per_second is None else {"per_second": per_second}))
        channel = WhatsAppChannel(section, twilio.url, clock=lambda: 100.0)
        assert [channel.wait(f"whatsapp:+1415555{n:04}") for n in range(64)].count(0) == at_once
    channel = WhatsAppChannel(section_for(twilio, per_second=500), twilio.url, clock=lambda: 100.0)
    for _ in range(3):
        assert channel.wait(CUSTOMER) == 0
        await channel.send(part())
    assert channel.wait(CUSTOMER) == pytest.approx(6)
    await channel.close()


@pytest.mark.parametrize("per_second", [0, 501, "many"])
def test_a_sender_of_no_speed_or_of_too_much_is_refused(twilio: TwilioServer, per_second: object) -> None:
    with pytest.raises(ValueError, match="per_second"):
        section_for(twilio, per_second=per_second)
