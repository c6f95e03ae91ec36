"""Sending through Telegram: what goes on the wire, and what each answer means."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from lo_bot_api_emulator import LoBotApiEmulator
from pydantic import BaseModel, ConfigDict, ValidationError
from telegramify_markdown import MessageEntity

from channels.channel import Channel
from channels.message import Accepted, NotSent, Origin, Outcome, Part, Reach, Rejected, Unknown, units
from channels.telegram.bot import TelegramSection
from channels.telegram.outbound import LIMIT, TelegramChannel, render
from channels.text import split_markdown
from tests.support.telegram_faults import (
    DROP,
    HANG,
    Answer,
    TelegramFaults,
    accepted,
    ok,
    refused,
    serving,
    telegram_faults,
)

# One server and one channel for the file: closing aiogram's session takes a quarter of a second each time.
one_loop = pytest.mark.asyncio(loop_scope="module")

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMM-_"
SECTION = TelegramSection.model_validate({"token": TOKEN})
CHANNEL = TelegramChannel(SECTION, None)
PART = Part(delivery=1, address="42", text="Hola")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


class Watch:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(server: TelegramFaults, watch: Watch) -> AsyncIterator[TelegramChannel]:
    channel = TelegramChannel(SECTION, server.url, clock=watch)
    yield channel
    await channel.close()


@pytest.fixture
def faults(server: TelegramFaults) -> TelegramFaults:
    server.begin()
    return server


@pytest.fixture
def channel(opened: TelegramChannel, faults: TelegramFaults, watch: Watch) -> Channel:
    watch.at += 86400  # whatever a test before was told to wait for is over
    return opened


NO_TOKEN = Rejected(
    "Telegram does not know bot 123456's token (any more): put the one @BotFather shows into the tenant's file",
    tenant_fault=True,
)


def says_blocked(said: str) -> Callable[[Outcome], bool]:
    return lambda o: isinstance(o, Rejected) and said in o.reason and o.is_blocked and not o.tenant_fault


def waits(seconds: float | None) -> Callable[[Outcome], bool]:
    return lambda o: isinstance(o, NotSent) and o.retry_after == seconds


TABLE: dict[str, tuple[Answer | str, Callable[[Outcome], bool]]] = {
    "accepted": (accepted(77), lambda o: o == Accepted("77")),
    "429 with a time to wait": (
        refused(429, "Too Many Requests: retry after 7", retry_after=7),
        lambda o: isinstance(o, NotSent) and o.retry_after == 7.0,
    ),
    "429 without a time to wait": (
        refused(429, "Too Many Requests"),
        lambda o: isinstance(o, NotSent) and o.retry_after is None,
    ),
    **{
        f"429 with {what} as the time to wait": (
            Answer(
                429,
                {
                    "ok": False,
                    "error_code": 429,
                    "description": "Too Many Requests: retry after",
                    "parameters": {"retry_after": asked},
                },
            ),
            waits(expected),
        )
        for what, asked, expected in (
            ("nothing", 0, None),
            ("less than nothing", -5, 0.0),
            ("an age", 10**12, 86400.0),
            ("a number that no float holds", 10**400, 86400.0),
            ("half a second", 2.5, None),
            ("a word", "soon", None),
        )
    },
    "a group that became somebody's private chat": (
        refused(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=777),
        lambda o: isinstance(o, Rejected) and not o.is_blocked,
    ),
    "a group that became a supergroup": (
        refused(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-100777),
        lambda o: isinstance(o, NotSent) and o.moved_to == "-100777",
    ),
    **{
        said: (
            refused(403, f"Forbidden: {said}"),
            says_blocked(said),
        )
        for said in (
            "bot was blocked by the user",
            "bot was kicked from the supergroup chat",
            "user is deactivated",
            "bot can't initiate conversation with a user",
            "the group chat was deleted",
            "bot is not a member of the supergroup chat",
        )
    },
    **{
        said: (
            refused(400, f"Bad Request: {said}"),
            lambda o: isinstance(o, Rejected) and o.is_place_gone and not o.is_blocked and not o.tenant_fault,
        )
        for said in ("message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED")
    },
    "409": (
        refused(409, "Conflict: terminated by other getUpdates request"),
        lambda o: isinstance(o, Unknown),
    ),
    "chat not found": (
        refused(400, "Bad Request: chat not found"),
        lambda o: isinstance(o, Rejected) and "chat not found" in o.reason and not (o.tenant_fault or o.is_blocked),
    ),
    "400 that says nothing": (Answer(400, {"ok": False}), lambda o: isinstance(o, Rejected)),
    "not enough rights": (
        refused(400, "Bad Request: not enough rights to send text messages to the chat"),
        lambda o: isinstance(o, Rejected) and not (o.is_blocked or o.is_place_gone),
    ),
    "413": (refused(413, "Request Entity Too Large"), lambda o: isinstance(o, Rejected)),
    "401": (refused(401, "Unauthorized"), lambda o: o == NO_TOKEN),
    "404": (refused(404, "Not Found"), lambda o: o == NO_TOKEN),
    "500": (refused(500, "Internal Server Error"), lambda o: isinstance(o, Unknown)),
    "500 that speaks of a restart": (
        refused(500, "Internal Server Error: restart"),
        lambda o: isinstance(o, Unknown),
    ),
    "502 with HTML": (Answer(502, "<html>Bad Gateway</html>"), lambda o: isinstance(o, Unknown)),
    "5xx JSON without a description": (Answer(503, {"ok": False}), lambda o: isinstance(o, Unknown)),
    "an answer that is no object": (Answer(200, "[]"), lambda o: isinstance(o, Unknown)),
    "accepted, but otherwise unreadable": (
        Answer(200, {"ok": True, "result": {"message_id": 78, "date": "yesterday"}}),
        lambda o: o == Accepted("78"),
    ),
    "accepted without an id": (Answer(200, {"ok": True, "result": {"date": 1}}), lambda o: isinstance(o, Unknown)),
    "accepted with no id to speak of": (
        Answer(200, {"ok": True, "result": {"message_id": True, "date": "x"}}),
        lambda o: isinstance(o, Unknown),
    ),
    "accepted without a result": (Answer(200, {"ok": True}), lambda o: isinstance(o, Unknown)),
    "unreadable and not accepted": (
        Answer(200, {"ok": False, "result": {"message_id": 78, "date": "x"}}),
        lambda o: isinstance(o, Unknown),
    ),
    "a connection closed after the request": (DROP, lambda o: isinstance(o, Unknown)),
    "an answer that names the token": (
        refused(400, f"Bad Request: no /bot{TOKEN}/here"),
        lambda o: isinstance(o, Rejected) and "/bot[token]/here" in o.reason,
    ),
}


@pytest.mark.parametrize("row", TABLE)
@one_loop
async def test_each_answer_has_its_one_outcome_after_one_call(
    channel: Channel, faults: TelegramFaults, row: str
) -> None:
    answer, is_right = TABLE[row]
    faults.begin(answer)
    outcome = await channel.send(replace(PART, address="-4242"))
    assert is_right(outcome), outcome
    assert TOKEN not in repr(outcome)
    assert isinstance(outcome, Accepted) or "4242" not in outcome.reason, "whose chat it is stands in no log"
    assert len(faults.calls) == 1


@one_loop
async def test_a_call_that_is_never_answered_is_unknown_in_due_time(faults: TelegramFaults) -> None:
    channel = TelegramChannel(SECTION, faults.url, timeout=0.3)
    faults.begin(HANG)
    assert await channel.send(PART) == Unknown("no answer from Telegram within 0.3 seconds")
    await faults.dropped.wait()
    await channel.close()


@one_loop
async def test_a_refused_connection_is_not_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: nobody answers and nobody else gets the port
        channel = TelegramChannel(SECTION, f"http://127.0.0.1:{taken.getsockname()[1]}")
        outcome = await channel.send(PART)
        await channel.close()
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after is None


@one_loop
async def test_an_unknown_host_is_not_sent() -> None:
    channel = TelegramChannel(SECTION, "http://nowhere.invalid")
    outcome = await channel.send(PART)
    await channel.close()
    assert isinstance(outcome, NotSent)
    assert TOKEN not in outcome.reason


@one_loop
async def test_a_connection_that_never_comes_about_is_not_sent() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):  # the queue is full: the next one's packets are dropped
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        channel = TelegramChannel(SECTION, f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout=0.9)
        outcome = await channel.send(PART)
        await channel.close()
    assert isinstance(outcome, NotSent), outcome


@one_loop
async def test_a_cancelled_send_stays_cancelled(channel: Channel, faults: TelegramFaults) -> None:
    faults.begin(HANG)
    sending = asyncio.create_task(channel.send(PART))
    await faults.call(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await faults.dropped.wait()


@one_loop
async def test_a_gone_message_to_reply_to_is_left_out_once(channel: Channel, faults: TelegramFaults) -> None:
    gone = refused(400, "Bad Request: message to be replied not found")
    faults.begin(gone)
    assert await channel.send(replace(PART, reply_to="5", thread="7")) == Accepted("77")
    assert ["reply_parameters" in call.fields for call in faults.calls] == [True, False]
    assert [call.fields["message_thread_id"] for call in faults.calls] == ["7", "7"]

    faults.begin(gone, gone, gone)
    assert isinstance(await channel.send(replace(PART, reply_to="5")), Rejected)
    assert len(faults.calls) == 2


@pytest.mark.parametrize(
    "complaint", ["can't parse entities: whatever", "message is too long", "message text is empty"]
)
@one_loop
async def test_markup_telegram_refuses_is_sent_once_more_as_plain_text(
    channel: Channel, faults: TelegramFaults, complaint: str
) -> None:
    refusal = refused(400, f"Bad Request: {complaint}")
    faults.begin(refusal)
    assert await channel.send(replace(PART, text="**Hola**")) == Accepted("77")
    assert [(call.fields["text"], "entities" in call.fields) for call in faults.calls] == [
        ("Hola", True),
        ("**Hola**", False),
    ]

    faults.begin(refusal, refusal, refusal)
    assert isinstance(await channel.send(replace(PART, text="**Hola**")), Rejected)
    assert len(faults.calls) == 2


@one_loop
async def test_a_second_call_that_fails_otherwise_has_that_outcome(channel: Channel, faults: TelegramFaults) -> None:
    faults.begin(refused(400, "Bad Request: message to be replied not found"), DROP)
    assert isinstance(await channel.send(replace(PART, reply_to="5")), Unknown)


GONE = ["message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED"]


@pytest.mark.parametrize("complaint", GONE)
@one_loop
async def test_a_groups_topic_that_is_gone_is_named_and_nothing_goes_to_the_main_chat(
    channel: Channel, faults: TelegramFaults, complaint: str
) -> None:
    faults.begin(refused(400, f"Bad Request: {complaint}"))
    outcome = await channel.send(replace(PART, address="-1007", thread="7"))
    assert isinstance(outcome, Rejected)
    assert outcome.is_place_gone
    assert "topic 7" in outcome.reason
    assert len(faults.calls) == 1


@pytest.mark.parametrize("complaint", GONE)
@one_loop
async def test_a_private_topic_that_is_gone_is_left_out_after_one_refusal(
    channel: Channel, faults: TelegramFaults, complaint: str
) -> None:
    gone = refused(400, f"Bad Request: {complaint}")
    faults.begin(gone)
    assert await channel.send(replace(PART, thread="7")) == Accepted("77")
    assert [call.fields.get("message_thread_id") for call in faults.calls] == ["7", None]

    faults.begin(gone, gone, gone)
    outcome = await channel.send(replace(PART, thread="7"))
    assert isinstance(outcome, Rejected)
    assert outcome.is_place_gone
    assert len(faults.calls) == 2

    faults.begin(gone, DROP)
    assert isinstance(await channel.send(replace(PART, thread="7")), Unknown)


# Where in a chat


@pytest.mark.parametrize(
    ("thread", "fields"),
    [
        (None, {}),
        ("15", {"message_thread_id": "15"}),
        ("direct:7", {"direct_messages_topic_id": "7"}),
        ("business:bc-_=1", {"business_connection_id": "bc-_=1"}),
    ],
)
@one_loop
async def test_a_part_goes_the_way_its_thread_says_and_no_other(
    channel: Channel, faults: TelegramFaults, thread: str | None, fields: dict[str, str]
) -> None:
    assert await channel.send(replace(PART, thread=thread)) == Accepted("77")
    ways = ("message_thread_id", "direct_messages_topic_id", "business_connection_id")
    assert {name: value for name, value in faults.calls[0].fields.items() if name in ways} == fields


def a_connection(**changes: Any) -> Answer:
    owner = {"id": 7, "is_bot": False, "first_name": "Eva"}
    usual = {
        "id": "bc1",
        "user": owner,
        "user_chat_id": 7,
        "date": 1,
        "is_enabled": True,
        "rights": {"can_reply": True},
    }
    return ok(usual | changes)


@pytest.mark.parametrize(
    ("connection", "why"),
    [
        (a_connection(is_enabled=False), "the business has switched its connection with the bot off: "),
        (a_connection(rights={}), "the business does not let the bot reply in its chats: "),
        (a_connection(rights=None), "the business does not let the bot reply in its chats: "),
        (
            refused(400, "Bad Request: BUSINESS_CONNECTION_INVALID"),
            "the business has taken its connection with the bot away: ",
        ),
        (a_connection(), ""),
        (DROP, ""),
    ],
)
@pytest.mark.parametrize(
    "refusal", [refused(400, "Bad Request: BUSINESS_CONNECTION_INVALID"), refused(403, "Forbidden: no right")]
)
@one_loop
async def test_a_business_that_does_not_let_the_bot_speak_is_an_end_in_words(
    channel: Channel, faults: TelegramFaults, refusal: Answer, connection: Answer | str, why: str
) -> None:
    faults.begin(refusal, connection)
    outcome = await channel.send(replace(PART, thread="business:bc1"))
    assert isinstance(outcome, Rejected)
    assert outcome.reason.startswith(f"{why}Telegram")
    assert (outcome.is_blocked, outcome.tenant_fault, outcome.is_place_gone) == (False, False, False)
    assert [call.method for call in faults.calls] == ["sendMessage", "getBusinessConnection"]


@one_loop
async def test_a_lost_send_to_a_business_stays_unknown_and_nothing_more_is_asked(
    channel: Channel, faults: TelegramFaults
) -> None:
    faults.begin(DROP)
    assert isinstance(await channel.send(replace(PART, thread="business:bc1")), Unknown)
    assert len(faults.calls) == 1


def test_a_businesss_own_chat_carries_messages_for_a_day_after_the_customers_last() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def reach(hours: float, wrote: datetime | None = now, thread: str | None = "business:bc1") -> Reach:
        return CHANNEL.assess(Origin("telegram", "42", wrote, thread=thread), now + timedelta(hours=hours), now)

    assert reach(23.9).possible
    assert not reach(23.92).possible
    assert "24 hours" in reach(48).advice
    assert not reach(0, None).possible
    assert reach(48, thread="15").possible
    assert reach(48, thread=None).possible


# Told to wait


@one_loop
async def test_a_bot_told_to_wait_tries_nothing_before_that_is_over(
    channel: Channel, faults: TelegramFaults, watch: Watch
) -> None:
    faults.begin(refused(429, "Too Many Requests: retry after 7", retry_after=7))
    await channel.send(PART)
    watch.at += 3
    outcome = await channel.send(replace(PART, address="43"))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 4
    await channel.typing("43", None, None)
    assert len(faults.calls) == 1
    watch.at += 4
    assert await channel.send(PART) == Accepted("77")


@one_loop
async def test_a_chat_told_to_wait_keeps_no_other_chat_waiting(
    channel: Channel, faults: TelegramFaults, watch: Watch
) -> None:
    faults.begin(refused(429, "Too Many Requests: too many messages in this chat", retry_after=7))
    await channel.send(PART)
    assert await channel.send(replace(PART, address="43")) == Accepted("77")
    assert isinstance(await channel.send(PART), NotSent)
    assert len(faults.calls) == 2
    watch.at += 7
    assert await channel.send(PART) == Accepted("77")


@one_loop
async def test_a_shorter_wait_does_not_end_a_longer_one(faults: TelegramFaults, watch: Watch, channel: Channel) -> None:
    faults.begin(
        refused(429, "Too Many Requests: retry after 60", retry_after=60),
        refused(429, "Too Many Requests: retry after 5", retry_after=5),
    )
    await asyncio.gather(channel.send(PART), channel.send(PART))
    watch.at += 30
    assert isinstance(await channel.send(PART), NotSent)
    assert len(faults.calls) == 2


@one_loop
async def test_a_part_goes_to_its_chat_topic_and_message_with_entities(
    channel: Channel, faults: TelegramFaults
) -> None:
    await channel.send(Part(1, "-100123", "Hola **Ana** 😀 [aquí](https://a.example)", thread="7", reply_to="5"))
    [call] = faults.calls
    assert (call.bot, call.method) == (TOKEN, "sendMessage")
    assert call.fields == {
        "chat_id": "-100123",
        "message_thread_id": "7",
        "text": "Hola Ana 😀 aquí",
        "entities": [
            {"type": "bold", "offset": 5, "length": 3},
            {"type": "text_link", "offset": 12, "length": 4, "url": "https://a.example"},
        ],
        "reply_parameters": {"message_id": 5, "allow_sending_without_reply": True},
    }


@one_loop
async def test_a_scheduled_part_shows_no_link_preview_and_a_live_one_may(
    channel: Channel, faults: TelegramFaults
) -> None:
    await channel.send(replace(PART, scheduled=True))
    await channel.send(PART)
    assert [call.fields.get("link_preview_options") for call in faults.calls] == [{"is_disabled": True}, None]


@pytest.mark.parametrize("text", ["", " \n\t", "\0"])
@one_loop
async def test_a_blank_text_is_rejected_and_not_sent(channel: Channel, faults: TelegramFaults, text: str) -> None:
    for piece in [text, *CHANNEL.split(text)]:
        outcome = await channel.send(replace(PART, text=piece))
        assert isinstance(outcome, Rejected)
        assert "blank" in outcome.reason
    assert faults.calls == []


@pytest.mark.parametrize(
    "part",
    [
        replace(PART, text="x" * 4097),
        *(
            replace(PART, thread=thread)
            for thread in ("a", "", "-7", "direct:", "direct:x", "business:", "business:a b")
        ),
        replace(PART, reply_to=""),
    ],
)
@one_loop
async def test_what_telegram_cannot_take_is_rejected_and_not_sent(
    channel: Channel, faults: TelegramFaults, part: Part
) -> None:
    assert isinstance(await channel.send(part), Rejected)
    assert faults.calls == []


@one_loop
async def test_typing_is_shown_in_the_topic_and_its_failure_is_nobodys_business(
    channel: Channel, faults: TelegramFaults
) -> None:
    faults.begin(Answer(200, {"ok": True, "result": True}), refused(403, "Forbidden"), DROP)
    for thread in ("7", None, "no number", "direct:7", "business:bc1"):
        await channel.typing("42", thread, None)
    assert [(call.method, call.fields) for call in faults.calls] == [
        ("sendChatAction", {"chat_id": "42", "action": "typing", "message_thread_id": "7"}),
        ("sendChatAction", {"chat_id": "42", "action": "typing"}),
        ("sendChatAction", {"chat_id": "42", "action": "typing", "business_connection_id": "bc1"}),
    ]


@one_loop
async def test_in_a_private_chat_an_answer_is_shown_while_it_is_written(
    channel: Channel, faults: TelegramFaults
) -> None:
    for words in ("", "*Hello*, Ana.", "*Hello*, Ana. " + "How are you? " * 400):
        await channel.typing("42", "7", "5", words)
    chat = {"chat_id": "42", "message_thread_id": "7"}
    assert (faults.calls[0].method, faults.calls[0].fields) == ("sendChatAction", {**chat, "action": "typing"})
    assert [call.method for call in faults.calls[1:]] == ["sendMessageDraft"] * 2
    assert faults.calls[1].fields == {
        **chat,
        "draft_id": "5",
        "text": "Hello, Ana.",
        "entities": [{"type": "italic", "offset": 0, "length": 5}],
    }
    assert 0 < units(faults.calls[2].fields["text"]) <= 4096


@one_loop
@pytest.mark.parametrize(
    ("address", "thread"), [("-42", None), ("-42", "7"), ("42", "direct:7"), ("42", "business:bc")]
)
async def test_only_a_private_chat_with_the_bot_has_drafts(
    channel: Channel, faults: TelegramFaults, address: str, thread: str | None
) -> None:
    assert not channel.shows_drafts(address, thread)
    await channel.typing(address, thread, "5", "Hello.")
    assert {call.method for call in faults.calls} <= {"sendChatAction"}


@one_loop
@pytest.mark.parametrize("answer", [refused(404, "Not Found"), refused(400, "Bad Request: nothing of this kind")])
async def test_a_server_that_knows_no_drafts_is_shown_one_and_then_only_typing(
    faults: TelegramFaults, answer: Answer
) -> None:
    channel = TelegramChannel(SECTION, faults.url)
    faults.begin(answer)
    assert channel.shows_drafts("42", None)
    for _ in range(2):
        await channel.typing("42", None, "5", "Hello.")
    assert [call.method for call in faults.calls] == ["sendMessageDraft", "sendChatAction"]
    assert not channel.shows_drafts("42", None)
    assert await channel.send(PART) == Accepted("77")
    await channel.close()


def test_a_tenant_can_do_without_drafts() -> None:
    without = TelegramSection.model_validate({"token": TOKEN, "drafts": False})
    assert not TelegramChannel(without, None).shows_drafts("42", None)


@one_loop
async def test_telegram_can_be_reached_at_any_time(channel: Channel) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert channel.assess(Origin("telegram", "42", None), now.replace(year=2027), now).possible


@one_loop
async def test_two_sends_at_once_share_one_client(faults: TelegramFaults) -> None:
    channel = TelegramChannel(SECTION, faults.url)
    outcomes = await asyncio.gather(channel.send(PART), channel.send(PART))
    assert list(outcomes) == [Accepted("77"), Accepted("77")]
    await channel.close()


@one_loop
async def test_an_independent_bot_api_takes_what_is_sent() -> None:
    emulator = LoBotApiEmulator()
    async with serving(emulator.app()) as url:
        channel = TelegramChannel(SECTION, url)
        await channel.typing("42", None, None)
        pieces = channel.split("# Título\n\n" + "Una **frase** con `código` y 😀. " * 400)
        outcomes = [await channel.send(replace(PART, text=piece, reply_to="5")) for piece in pieces]
        await channel.close()
    assert len(pieces) > 2
    assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
    assert [(seen["method"], seen["status"]) for seen in emulator.requests] == [
        ("sendChatAction", 200),
        *[("sendMessage", 200)] * len(pieces),
    ]


# What is shown


def letters(*sources: str) -> str:
    """What a reader sees, without white space."""
    return "".join("".join(render(source)[0].split()) for source in sources)


def marked(source: str) -> dict[str, MessageEntity]:
    """The entities by the words they stand over."""
    text, marks = render(source)
    raw = text.encode("utf-16-le")
    return {raw[2 * m.offset : 2 * (m.offset + m.length)].decode("utf-16-le"): m for m in marks}


LONG = {
    "exclamation marks": "!" * 4096,
    "full stops": "." * 4096,
    "emoji": "😀" * 5000,
    "prose": "Mañana le confirmo la cita con la doctora. " * 120,
    "one endless word": "x" * 9000,
    "open brackets": "[" * 9000,
    "emphasis": ("**" + "palabra " * 60 + "fin** y " + "_otra_ ") * 40,
    "links": "[una página](https://example.org/a/long/enough/path) y " * 200,
    "items": "".join(f"- Punto {n}\n    - **detalle** {n}\n" for n in range(400)),
    "a table that grows": "|a|b|\n|-|-|\n|" + "x" * 500 + "|\n" + "|q|\n" * 1500,
    "HTML": "<div>\n<b>x</b> $5\n</div>\n" * 400,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_is_cut_into_pieces_that_fit_and_nothing_is_lost(name: str) -> None:
    pieces = CHANNEL.split(LONG[name])
    assert all(0 < units(render(piece)[0]) <= LIMIT and units(piece) <= LIMIT for piece in pieces)
    if name != "a table that grows":  # a table cut in two is shown as it is written
        assert letters(*pieces) == letters(LONG[name])
    assert len(pieces) <= units(LONG[name]) // 2048 + 1


@pytest.mark.parametrize("name", ["exclamation marks", "full stops"])
def test_exactly_as_much_as_fits_is_one_piece(name: str) -> None:
    assert list(CHANNEL.split(LONG[name])) == [LONG[name]]


@pytest.mark.parametrize("text", ["1. " * 2_700, "> 1. " * 1_600, "| a | b |\n|---|---|\n" + "| c | d |\n" * 700])
def test_what_grows_when_it_is_rendered_is_not_tried_whole_for_every_piece(text: str) -> None:
    tried: list[int] = []

    def rendered(piece: str) -> int:
        tried.append(len(piece))
        return units(render(piece)[0])

    pieces = split_markdown(text, LIMIT, rendered)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(units(render(piece)[0]) <= LIMIT for piece in pieces)
    assert len(tried) <= 2 * len(pieces) + 5
    assert sum(tried) <= 4 * len(text)


def test_a_long_code_block_is_code_in_every_piece() -> None:
    lines = [f"value_{n} = {n} * '**' # no _markup_ here" for n in range(400)]
    pieces = CHANNEL.split("Mira:\n\n```python\n" + "\n".join(lines) + "\n```\n\nEso es **todo**.")
    shown = [render(piece) for piece in pieces]
    assert len(pieces) > 3
    assert all(units(text) <= LIMIT for text, _ in shown)
    assert [marks[0].language for _, marks in shown] == ["python"] * len(pieces)
    assert "\n".join(text for text, _ in shown).split("\n") == ["Mira:", "", *lines, "", "Eso es todo."]


def test_a_short_code_block_at_a_cut_moves_whole_into_the_next_piece() -> None:
    code = "```\n" + "x = 1\n" * 100 + "```"
    first, second = CHANNEL.split("Una frase más. " * 250 + "\n\n" + code)
    assert "```" not in first
    assert second == code


def test_no_cut_falls_inside_a_link_or_emphasis() -> None:
    for name in ("emphasis", "links"):
        for piece in CHANNEL.split(LONG[name]):
            assert not set("*_[]()") & set(render(piece)[0])


_bits = st.sampled_from(
    [
        "palabra ",
        "**negrita** ",
        "_cursiva_ ",
        "`código` ",
        "😀",
        "\n\n",
        "\n",
        ". ",
        "- punto\n",
        "## Título\n\n",
        "\n```\nx = 1\n\ny = 2\n```\n",
        "[enlace](https://a.example) ",
        "> cita\n\n",
        "$5 ",
        "<b>",
        "ñ" * 300,
    ]
)


@settings(max_examples=40, deadline=None)
@given(bits=st.lists(_bits, min_size=1, max_size=30), times=st.integers(1, 30))
def test_whatever_is_cut_fits_and_keeps_its_words(bits: list[str], times: int) -> None:
    source = "".join(bits) * times
    pieces = CHANNEL.split(source)
    assert all(units(piece) <= LIMIT and units(render(piece)[0]) <= LIMIT for piece in pieces)
    words = "palabra", "negrita", "cursiva", "código", "punto", "Título", "x=1", "y=2", "enlace", "cita", "$5", "<b>"
    shown, whole = letters(*pieces), letters(source)
    assert [shown.count(word) for word in words] == [whole.count(word) for word in words]
    assert shown.count("ñ") == whole.count("ñ")


def test_html_prices_pipes_and_definitions_stay_as_written() -> None:
    source = (
        "Un <b>dato</b> <script>alert(1)</script>, $10 a $20, a || b, `<i>` y\n"
        "[^1]: Nota\n\n<div>\n\n```\nif a || b: <b> $x$\n```\n"
    )
    assert letters(source) == "".join(source.replace("`", "").split())


def test_headings_carry_no_decoration() -> None:
    text, marks = render("# Uno\n\n### Dos")
    assert text == "Uno\n\nDos"
    assert {mark.type for mark in marks} == {"bold", "underline"}


@pytest.mark.parametrize(
    "url",
    ["tg://user?id=1", "tg://emoji?id=5368324170671202286", "javascript:alert(1)", "TG://user?id=1", "file:///x", "x"],
)
def test_a_link_to_anything_but_the_web_or_an_address_is_only_text(url: str) -> None:
    assert render(f"Ver [esto]({url}) y ![eso]({url})")[1] == []
    assert "esto" in render(f"Ver [esto]({url})")[0]


@pytest.mark.parametrize("url", ["https://a.example/?q=$1", "http://a.example", "mailto:a@a.example"])
def test_a_link_to_the_web_or_an_address_stays_a_link(url: str) -> None:
    assert marked(f"Ver [esto]({url})")["esto"].url == url


@one_loop
async def test_half_a_surrogate_pair_does_not_stop_a_message(channel: Channel, faults: TelegramFaults) -> None:
    assert await channel.send(replace(PART, text="a\ud83d b")) == Accepted("77")
    assert faults.calls[0].fields["text"] == "a\ufffd b"


# The section


def test_the_section_knows_the_bots_id_and_hides_the_token() -> None:
    assert SECTION.bot_id == "123456"
    assert SECTION.receive == "auto"
    assert TOKEN.split(":")[1] not in repr(SECTION)


class Tenant(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=False)

    telegram: TelegramSection


@pytest.mark.parametrize(
    "token",
    [
        "AAbbCCddEEffGGhhIIjjKKll",
        "12:short",
        f"{TOKEN}\n",
        f" {TOKEN}",
        f"x{TOKEN}",
        "1:ñ" * 30,
        f"0{TOKEN}",  # would be another tenant's bot under another id
        "9" * 20 + ":" + "a" * 30,
    ],
)
def test_a_wrong_token_is_explained_and_never_repeated(token: str) -> None:
    with pytest.raises(ValidationError, match="BotFather") as caught:
        Tenant.model_validate({"telegram": {"token": token}})
    assert token not in str(caught.value)
    assert token not in repr(caught.value.errors())


@pytest.mark.parametrize("extra", [{"colour": "blue"}, {"receive": "carrier pigeon"}])
def test_an_unknown_setting_is_refused(extra: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TelegramSection.model_validate({"token": TOKEN} | extra)


# The pace


@one_loop
async def test_a_bot_told_to_slow_down_is_closed_so_long_for_every_chat(faults: TelegramFaults) -> None:
    channel = TelegramChannel(SECTION, faults.url, clock=lambda: 100.0)
    faults.begin(refused(429, "Too Many Requests: retry after 7", retry_after=7))
    await channel.send(PART)
    assert [channel.wait("42"), channel.wait("-1007")] == [pytest.approx(7)] * 2
    await channel.close()


@one_loop
async def test_a_bot_told_to_slow_down_when_it_shows_that_it_types_is_closed_as_well(faults: TelegramFaults) -> None:
    channel = TelegramChannel(SECTION, faults.url, clock=lambda: 100.0)
    faults.begin(refused(429, "Too Many Requests: retry after 7", retry_after=7))
    await channel.typing("42", None, None)
    await channel.typing("42", None, None)
    assert len(faults.calls) == 1
    assert channel.wait("-1007") == pytest.approx(7)
    await channel.close()


@pytest.mark.parametrize(("address", "in_a_minute", "at_once"), [("42", 60, 3), ("-1007", 20, 5)])
def test_a_chat_gets_one_message_a_second_and_a_group_twenty_a_minute(
    address: str, in_a_minute: int, at_once: int
) -> None:
    now, sent = 100.0, []
    channel = TelegramChannel(SECTION, None, clock=lambda: now)
    while now < 160 - 0.01:
        wait = channel.wait(address)
        if wait == 0:
            channel._pace.take(address)
            sent.append(now)
        now += wait
    assert sent.count(100.0) == at_once
    assert in_a_minute - 1 <= len(sent) <= in_a_minute + (2 if in_a_minute == 60 else 0)


def test_a_bot_sends_to_no_more_than_thirty_chats_in_a_second() -> None:
    now, sent = 100.0, 0
    channel = TelegramChannel(SECTION, None, clock=lambda: now)
    while now < 101 - 0.01:
        wait = channel.wait(str(sent))
        sent += wait == 0
        now += wait
    assert 28 <= sent <= 30


def test_of_many_topics_that_ask_in_one_moment_no_more_go_ahead_than_their_group_may() -> None:
    channel = TelegramChannel(SECTION, None, clock=lambda: 100.0)
    assert [channel.wait("-1007", str(topic)) for topic in range(30)].count(0) == 5
    assert [channel.wait("-1007", str(topic)) for topic in range(5)] == [0] * 5, "to ask again costs nothing more"
