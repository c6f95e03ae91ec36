"""Each answer of Telegram's, and what becomes of a follow-up that meets it: to be laid beside its list of errors.

All rows share one house, with two tenants that want different things of what nobody knows. Each row has a chat of its own,
by which Telegram knows what to answer.

https://core.telegram.org/bots/api#making-requests
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from app.inbox import GATHER
from app.wiring import apply_tenants
from channels.message import units
from channels.telegram.outbound import LIMIT
from scheduler.book import Booking, book
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_receivers import receiving
from tests.app.test_telegram import (
    ANSWER,
    BOOKED,
    DUE,
    OTHER,
    REMINDER,
    TOKEN,
    an_office,
    asked_and_answered,
    hands_in,
    has_outcomes,
    sends,
    the_followup,
    until_answered,
    update,
    with_bot,
)
from tests.support.course import (
    AGAIN_AT_ONCE,
    AGAIN_SOON,
    BLOCKED,
    FAILED,
    LONG,
    PAUSED,
    SAID,
    SOON,
    Case,
    Course,
    runs,
)
from tests.support.factories import a_conversation
from tests.support.house import House, a_config, a_house
from tests.support.model import Line, Script
from tests.support.telegram_faults import (
    DROP,
    HANG,
    Answer,
    Call,
    TelegramFaults,
    accepted,
    refused,
    serving,
    telegram_faults,
)
from tests.support.telegram_server import TelegramServer
from tests.support.wait import eventually

one_loop = pytest.mark.asyncio(loop_scope="module")

AGAIN_AS_ASKED = Course("said", (timedelta(seconds=70),), 2)
TWICE_REFUSED = Course("failed", tries=2)
HELD = Course("topic gone")
UNCERTAIN = Course("uncertain")

PRIVATE, GROUP, TOPIC, PRIVATE_TOPIC = "private", "group", "topic", "private topic"


@dataclass(frozen=True)
class Row:
    """What Telegram answers, what comes of it, and words that the operator reads."""

    meets: tuple[Answer | str, ...]
    course: Course
    says: str = ""
    where: str = PRIVATE


def says_no(status: int, said: str, course: Course, *, where: str = PRIVATE, times: int = 1, **parameters: int) -> Row:
    """Telegram refuses it, and the operator reads why in its words."""
    return Row((refused(status, said, **parameters),) * times, course, said, where)


MOVED, MOVED_TOO = -100_000_000_001, -100_000_000_002
NO_TOKEN = "put the one @BotFather shows into the tenant's file"

ANSWERS = {
    "429 that names a time": says_no(429, "Too Many Requests: retry after 70", AGAIN_AS_ASKED, retry_after=70),
    "429": says_no(429, "Too Many Requests", AGAIN_SOON),
    "a group that moved": says_no(
        400, "Bad Request: group chat was upgraded", AGAIN_AT_ONCE, where=GROUP, migrate_to_chat_id=MOVED
    ),
    "moved, and deleted": says_no(
        403, "Forbidden: the group chat was deleted", AGAIN_AT_ONCE, where=GROUP, migrate_to_chat_id=MOVED_TOO
    ),
    "deleted": says_no(403, "Forbidden: the group chat was deleted", BLOCKED, where=GROUP),
    "blocked": says_no(403, "Forbidden: bot was blocked by the user", BLOCKED),
    "kicked": says_no(403, "Forbidden: bot was kicked from the group chat", BLOCKED, where=GROUP),
    "not a member": says_no(403, "Forbidden: bot is not a member of the channel chat", BLOCKED, where=GROUP),
    "deactivated": says_no(403, "Forbidden: user is deactivated", BLOCKED),
    "not let in": says_no(403, "Forbidden: bot can't initiate conversation with a user", BLOCKED),
    "chat not found": says_no(400, "Bad Request: chat not found", FAILED),
    "not enough rights": says_no(400, "Bad Request: not enough rights to send text messages", FAILED, where=GROUP),
    "topic closed": says_no(400, "Bad Request: TOPIC_CLOSED", HELD, where=TOPIC),
    "topic deleted": says_no(400, "Bad Request: TOPIC_DELETED", HELD, where=TOPIC),
    "no such topic": says_no(400, "Bad Request: message thread not found", HELD, where=TOPIC),
    "a private topic closed": says_no(400, "Bad Request: TOPIC_CLOSED", AGAIN_AT_ONCE, where=PRIVATE_TOPIC),
    "markup": says_no(400, "Bad Request: can't parse entities: unsupported start tag", AGAIN_AT_ONCE),
    "markup, and plain text too": says_no(400, "Bad Request: can't parse entities", TWICE_REFUSED, times=2),
    "too long": says_no(400, "Bad Request: message is too long", AGAIN_AT_ONCE),
    "too long, and plain text too": says_no(400, "Bad Request: message is too long", TWICE_REFUSED, times=2),
    "empty": says_no(400, "Bad Request: message text is empty", AGAIN_AT_ONCE),
    "empty, in other words": says_no(400, "Bad Request: text must be non-empty", AGAIN_AT_ONCE),
    "empty, and plain text too": says_no(400, "Bad Request: message text is empty", TWICE_REFUSED, times=2),
    "too much": says_no(413, "Request Entity Too Large", FAILED),
    "401": Row((refused(401, "Unauthorized"),), PAUSED, NO_TOKEN),
    "404": Row((refused(404, "Not Found"),), PAUSED, NO_TOKEN),
    "taken, and not readable": Row((Answer(200, {"ok": True, "result": {"message_id": 7, "date": "?"}}),), SAID),
}

LOST = {
    "409": says_no(409, "Conflict: terminated by other getUpdates request", UNCERTAIN),
    "500": says_no(500, "Internal Server Error", UNCERTAIN),
    "500 for a restart": says_no(500, "Internal Server Error: restart", UNCERTAIN),
    "502 in HTML": Row((Answer(502, "<html>Bad Gateway</html>"),), UNCERTAIN, "Failed to decode"),
    "503 without words": Row((Answer(503, {"ok": False}),), UNCERTAIN, "TypeError"),
    "taken, without an id": Row(
        (Answer(200, {"ok": True, "result": {"date": 1}}),), UNCERTAIN, "Failed to deserialize"
    ),
    "taken, without a result": Row((Answer(200, {"ok": True}),), UNCERTAIN, "names no message"),
    "no answer": Row((HANG,), UNCERTAIN, "no answer from Telegram within"),
    "connection closed": Row((DROP,), UNCERTAIN, "Server disconnected"),
}

NUMBERS = count(50_000_001)


class Chat(Case):
    """A chat in which somebody writes to a tenant's bot."""

    def __init__(self, house: House, clock: MovableClock, where: str) -> None:
        self.id, self.where = next(NUMBERS), where
        super().__init__(house, clock, "telegram", str(-self.id if where in (GROUP, TOPIC) else self.id))
        self._arrived = 0

    @property
    def arrived(self) -> int:
        return self._arrived

    def answer(self, call: Call) -> Answer | str:
        """Return what Telegram answers, for the follow-up as told."""
        if call.fields["text"] == "Hello.":
            return accepted()
        self.tries.append(call.fields)
        answer = self.meets.pop(0) if self.meets else accepted()
        if answer == HANG:
            self.is_patient()
        self._arrived += isinstance(answer, Answer) and "message_id" in str(answer.body)
        return answer

    def message(self) -> dict[str, Any]:
        """What Telegram tells of a message in it."""
        kinds = {PRIVATE: "private", PRIVATE_TOPIC: "private", GROUP: "group", TOPIC: "supergroup"}
        said: dict[str, Any] = {"chat": {"id": int(self.address), "type": kinds[self.where]}, "text": "/hello"}
        if self.where in (TOPIC, PRIVATE_TOPIC):
            said |= {"message_thread_id": 15, "is_topic_message": True}
        return said


Writes = Callable[[str, str], Awaitable[Chat]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(lasting_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Writes]:
    """Return a chat in which somebody has just written to a tenant, and was answered."""
    clock, database, chats = MovableClock(), Database(lasting_url), dict[str, Chat]()
    often = a_config("globex", **with_bot(OTHER, unknown="at_least_once"))

    async def decide(call: Call) -> Answer | str:
        if call.method != "sendMessage":
            return accepted()
        last = next(reversed(chats.values()))
        return chats.get(call.fields["chat_id"], last).answer(call)  # it may be where the last has just moved to

    async with (
        telegram_faults() as faults,
        an_office(database, tmp_path_factory.mktemp("house"), clock, faults, "Hello.") as house,
    ):

        async def write(tenant: str, where: str) -> Chat:
            one = Chat(houses[tenant], clock, where)
            chats[one.address] = one
            bot = {"acme": TOKEN, "globex": OTHER}[tenant].partition(":")[0]
            await house.goes_by(clock, LONG)  # whatever came of the row before is over
            await hands_in(one.house, update(one.id, **one.message()), bot)
            turn = max(await house.tasks(kind="turn"), key=lambda task: task.id)
            await house.goes_by(clock, GATHER)
            await one.house.until_state(turn.id, "fired")
            one.conversation = turn.conversation or 0
            return one

        await apply_tenants(house.service, [often])
        houses = {"acme": house, "globex": House(house.run, "globex")}
        faults.decide = decide
        sender = await house.service.channel(often, "telegram")
        assert sender is not None
        await sender.open()  # takes seconds the first time, and many on a busy machine
        yield write
    await database.close()


async def check(case: Chat, row: Row, course: Course, log: pytest.LogCaptureFixture) -> None:
    """Let a follow-up meet a row, and look where it went."""
    case.meets = [*row.meets]
    if HANG in row.meets:
        await case.is_impatient()
    await runs(case, course, row.says, log)
    places = [(call["chat_id"], call.get("message_thread_id")) for call in case.tries]
    topic = None if case.where in (PRIVATE, GROUP) else "15"
    expected = [(case.address, topic)] * len(places)
    if case.where == PRIVATE_TOPIC:
        expected[1] = (case.address, None)
    elif len({chat for chat, _ in places}) > 1:
        expected[1] = (str(MOVED if str(MOVED) in str(row.meets) else MOVED_TOO), None)
    assert places == expected


@pytest.mark.parametrize("answer", [*ANSWERS, *LOST])
@one_loop
async def test_each_answer_has_its_one_consequence(chat: Writes, caplog: pytest.LogCaptureFixture, answer: str) -> None:
    row = {**ANSWERS, **LOST}[answer]
    await check(await chat("acme", row.where), row, row.course, caplog)


@pytest.mark.parametrize("answer", LOST)
@one_loop
async def test_what_nobody_knows_is_sent_again_where_the_tenant_wants_it(
    chat: Writes, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    await check(await chat("globex", PRIVATE), LOST[answer], AGAIN_SOON, caplog)


@pytest.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


@pytest.mark.parametrize("where", ["http://127.0.0.1:1", "http://telegram.invalid", "https:"])
async def test_a_connection_that_is_refused_an_unknown_host_and_a_failed_handshake_are_tried_again(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, where: str
) -> None:
    url = faults.url.replace("http:", where) if where == "https:" else where
    async with an_office(database, tmp_path, clock, faults, telegram_api_url=url) as house:
        async with database.transaction() as connection:
            conversation = await a_conversation(connection, channel="telegram", address="42")
            due = Booking("acme", "followup", timedelta(), conversation, "telegram", {"about": "call Ana"})
            task = (await book(connection, clock, due)).id
        house.wake()
        await eventually(lambda: has_outcomes(house, task, ["not_sent"]))
        found = await house.until_state(task, "scheduled")
        assert "no connection to Telegram" in str(found.error)
        assert SOON / 2 <= found.due_at - clock.at <= SOON
    async with an_office(database, tmp_path, clock, faults) as house:
        await house.goes_by(clock, SOON)
        await house.until_state(task, "fired")
        await house.goes_by(clock, LONG)
        assert await has_outcomes(house, task, ["not_sent", "accepted"])
    assert [call.fields["text"] for call in sends(faults)] == [REMINDER]


# What an independent Bot API refuses by itself


@asynccontextmanager
async def at_an_independent_api(
    database: Database, directory: Path, clock: MovableClock, *lines: Line, **followups: Any
) -> AsyncIterator[tuple[House, TelegramServer]]:
    telegram, script = TelegramServer(), Script(*lines, **followups)
    more: dict[str, Any] = {"config": with_bot(receive="polling")}
    async with (
        serving(telegram.app()) as url,
        a_house(database, directory, script.model, clock, telegram_api_url=url, **more) as house,
    ):
        yield house, telegram


async def test_a_long_follow_up_is_nowhere_too_long(database: Database, tmp_path: Path, clock: MovableClock) -> None:
    words = "¡Atención! 👋 " * 800
    async with at_an_independent_api(database, tmp_path, clock, *BOOKED, followups=(words,)) as (house, telegram):
        await asked_and_answered(house, clock)
        await house.goes_by(clock, DUE)
        await house.until_state((await the_followup(house)).id, "fired")
    pieces = [sent["text"] for sent in telegram.sent][1:]
    assert telegram.count("sendMessage", 400) == 0
    assert "".join("".join(pieces).split()) == "".join(words.split())
    assert LIMIT / 2 < max(map(units, pieces)) <= LIMIT


async def test_a_chat_that_is_not_there_fails_the_answer_in_telegrams_words(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with at_an_independent_api(database, tmp_path, clock, "Hello.") as (house, telegram):
        await hands_in(house, update(chat={"id": 0, "type": "private"}))
        (turn,) = await house.tasks(kind="turn")
        await house.goes_by(clock, GATHER)
        failed = await house.until_state(turn.id, "failed")
        await house.goes_by(clock, LONG)
    assert "chat not found" in str(failed.error)
    assert (telegram.count("sendMessage", 400), telegram.sent) == (1, [])


async def test_while_another_program_polls_the_bot_what_is_due_is_said_and_after_it_messages_are_heard(
    database: Database, tmp_path: Path, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with at_an_independent_api(database, tmp_path, clock, *BOOKED, "Hello.") as (house, telegram):

        async def poll() -> None:
            url = f"{house.run.settings.telegram_api_url}/bot{TOKEN}/getUpdates"
            async with aiohttp.ClientSession() as http:
                await http.post(url, data={"timeout": "50"})

        await asked_and_answered(house, clock)
        other = asyncio.create_task(poll())
        await eventually(lambda: "getUpdates" in telegram.begun)
        async with receiving(house):
            await eventually(lambda: "another process polls this bot" in caplog.text)
            await house.goes_by(clock, DUE)
            await house.until_state((await the_followup(house)).id, "fired")
            other.cancel()
            await asyncio.wait([other])
            await telegram.says("hello", token=TOKEN, message_id=6)
            await until_answered(house, clock)
    assert [sent["text"] for sent in telegram.sent] == [ANSWER, REMINDER, "Hello."]
