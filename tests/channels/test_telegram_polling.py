"""Receiving by long polling: nothing lost, nothing hurried, nothing left running."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from channels.message import Inbound, Incoming, Membership
from channels.telegram.bot import TelegramSection, open_bot
from channels.telegram.inbound import ALLOWED_UPDATES
from channels.telegram.polling import poll
from tests.support.telegram_faults import DROP, HANG, Answer, TelegramFaults, ok, refused, serving, telegram_faults
from tests.support.telegram_server import TelegramServer

TOKEN = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
SECTION = TelegramSection.model_validate({"token": TOKEN})
ME = ok({"id": 99, "is_bot": True, "first_name": "Clinic", "username": "clinic_bot"})


@pytest_asyncio.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as server:
        yield server


def message(text: str, **changes: Any) -> dict[str, Any]:
    person = {"id": 42, "is_bot": False, "first_name": "Ana"}
    return {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": person, "text": text} | changes


def updates(*messages: dict[str, Any], first: int = 1001) -> Answer:
    return ok([{"update_id": first + n, "message": body} for n, body in enumerate(messages)])


class Received:
    """Takes messages in, in order."""

    def __init__(self, *failures: Exception | None) -> None:
        self.all: list[Inbound] = []
        self.memberships: list[Membership] = []
        self._failures = list(failures)
        self._news = asyncio.Event()

    async def __call__(self, inbound: Incoming) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if failure:
            raise failure
        if isinstance(inbound, Membership):
            self.memberships.append(inbound)
            return
        assert isinstance(inbound, Inbound)
        self.all.append(inbound)
        self._news.set()

    @property
    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.all]

    async def number(self, number: int) -> None:
        while len(self.all) < number:
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def polling(
    url: str, receive: Callable[[Incoming], Awaitable[object]], first_pause: float = 0.01, **options: Any
) -> AsyncIterator[asyncio.Event]:
    """Poll as long as the block lasts, then stop, and fail if that takes long."""
    stopping = asyncio.Event()
    task = asyncio.create_task(poll(SECTION, url, receive, "acme", stopping, first_pause=first_pause, **options))
    try:
        async with asyncio.timeout(10):
            yield stopping
    finally:
        stopping.set()
        async with asyncio.timeout(5):
            await task


def offsets(faults: TelegramFaults) -> list[str | None]:
    return [call.fields.get("offset") for call in faults.calls if call.method == "getUpdates"]


async def test_messages_of_an_independent_bot_api_arrive_once_and_in_order_though_recording_failed() -> None:
    emulator = TelegramServer()
    received = Received(None, ConnectionError("the database is away"))
    async with serving(emulator.app()) as url:
        for text in ("uno", "dos"):
            await emulator.enqueue_update({"message": message(text)}, token=TOKEN)
        async with polling(url, received):
            await received.number(2)
            await emulator.enqueue_update({"message": message("tres")}, token=TOKEN)
            await received.number(3)
    assert received.texts == ["uno", "dos", "tres"]
    assert [inbound.provider_id for inbound in received.all] == ["99:1:5", "99:2:5", "99:3:5"]


async def test_a_webhook_that_is_set_is_removed_if_asked_and_its_waiting_updates_arrive() -> None:
    emulator = TelegramServer()
    received = Received()
    async with serving(emulator.app()) as url:
        bot = open_bot(SECTION, url)
        await bot.set_webhook("http://127.0.0.1:9/nobody", secret_token="s3cret")
        await bot.session.close()
        await emulator.enqueue_update({"message": message("esperando")}, token=TOKEN)
        async with polling(url, received, remove_webhook=True):
            await received.number(1)
    assert received.texts == ["esperando"]


async def test_a_webhook_is_left_alone_unless_asked(faults: TelegramFaults) -> None:
    faults.begin(ME, HANG)
    async with polling(faults.url, Received()):
        await faults.call(2)
    assert [call.method for call in faults.calls] == ["getMe", "getUpdates"]

    faults.begin(ok(True), ME, HANG)
    async with polling(faults.url, Received(), remove_webhook=True):
        await faults.call(3)
    assert faults.calls[0].method == "deleteWebhook"
    assert faults.calls[0].fields == {"drop_pending_updates": "false"}


async def test_what_is_read_is_asked_for_and_the_request_is_held(faults: TelegramFaults) -> None:
    faults.begin(ME, HANG)
    async with polling(faults.url, Received()):
        call = await faults.call(2)
    assert call.bot == TOKEN
    assert call.fields == {"timeout": "20", "allowed_updates": list(ALLOWED_UPDATES)}


async def test_word_of_a_chat_that_shut_the_bot_out_is_handed_in_between_the_messages(faults: TelegramFaults) -> None:
    received = Received()
    shut_out = {"chat": {"id": 42, "type": "private"}, "new_chat_member": {"status": "kicked"}}
    faults.begin(ME, ok([{"update_id": 1, "my_chat_member": shut_out}, {"update_id": 2, "news": {}}]), HANG)
    async with polling(faults.url, received):
        await faults.call(3)
    assert received.memberships == [Membership("acme", "telegram", "42", is_in=False)]
    assert offsets(faults) == [None, "3"]


MENU = {"": {"help": "What I can do"}, "es": {"help": "Lo que puedo hacer"}}


async def test_the_bots_menu_is_set_in_each_language_when_polling_starts(faults: TelegramFaults) -> None:
    faults.begin(ME)
    faults.fallbacks["getUpdates"] = HANG
    async with polling(faults.url, Received(), commands=MENU):
        await faults.call(4)
    told = [call.fields for call in faults.calls if call.method == "setMyCommands"]
    assert told == [
        {"commands": [{"command": "help", "description": "What I can do"}]},
        {"commands": [{"command": "help", "description": "Lo que puedo hacer"}], "language_code": "es"},
    ]


async def test_a_menu_that_is_refused_or_hangs_keeps_no_message_waiting(
    faults: TelegramFaults, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in (refused(400, "Bad Request: BOT_COMMAND_INVALID"), HANG, DROP):
        received = Received()
        faults.begin(ME)
        faults.fallbacks["setMyCommands"] = fault
        faults.fallbacks["getUpdates"] = updates(message("hola"))
        async with polling(faults.url, received, commands=MENU):
            await received.number(1)
    assert TOKEN not in caplog.text


async def test_an_update_is_confirmed_only_when_it_is_recorded(faults: TelegramFaults) -> None:
    faults.begin(ME, updates(message("uno"), message("dos", chat={"id": 1, "type": "channel"})), HANG)
    arrived, recorded = asyncio.Event(), asyncio.Event()

    async def receive(_: Incoming) -> None:
        arrived.set()
        await recorded.wait()

    async with polling(faults.url, receive):
        await arrived.wait()
        assert offsets(faults) == [None]
        recorded.set()
        await faults.call(3)
    assert offsets(faults) == [None, "1003"]  # the malformed one is passed over


async def test_a_message_that_could_not_be_recorded_comes_again_and_is_not_logged(
    faults: TelegramFaults, caplog: pytest.LogCaptureFixture
) -> None:
    failure = RuntimeError("INSERT ... 'mi secreto'")
    received = Received(None, failure, failure)
    faults.begin(
        ME,
        updates(message("uno"), message("mi secreto"), message("tres")),
        updates(message("mi secreto"), message("tres"), first=1002),
        updates(message("mi secreto"), message("tres"), first=1002),
        HANG,
    )
    with caplog.at_level(logging.INFO, "channels"):
        async with polling(faults.url, received):
            await faults.call(5)
    assert received.texts == ["uno", "mi secreto", "tres"]
    assert offsets(faults) == [None, "1002", "1002", "1004"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "could not be recorded (RuntimeError)" in caplog.text
    assert "secreto" not in caplog.text


async def test_an_outage_is_logged_once_and_survived(faults: TelegramFaults, caplog: pytest.LogCaptureFixture) -> None:
    received = Received()
    faults.begin(
        DROP,
        Answer(502, "<html>"),
        ME,
        refused(500, "Internal Server Error"),
        Answer(500, {"ok": False}),
        updates(message("hola")),
        DROP,
        HANG,
    )
    with caplog.at_level(logging.INFO, "channels"):
        async with polling(faults.url, received):
            await faults.call(8)
    assert received.texts == ["hola"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert TOKEN not in caplog.text


async def test_pauses_grow_while_an_outage_lasts_and_end_with_it(faults: TelegramFaults) -> None:
    faults.begin(ME, *[refused(500, "no")] * 4, updates(), refused(500, "no"), HANG)
    async with polling(faults.url, Received(), first_pause=0.05):
        await faults.call(8)
    times = [call.at for call in faults.calls[1:]]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= 0.75 * 0.05 * 2**n for n, pause in enumerate(pauses[:4])), pauses
    assert pauses[5] < pauses[3], pauses  # begun anew after the answer between them


async def test_telegrams_own_time_to_wait_is_kept(faults: TelegramFaults) -> None:
    faults.begin(ME, refused(429, "Too Many Requests", retry_after=1), HANG)
    async with polling(faults.url, Received()):
        await faults.call(3)
    assert faults.calls[2].at - faults.calls[1].at >= 1


async def test_a_second_poller_or_a_webhook_is_told_what_to_do(
    faults: TelegramFaults, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = refused(409, "Conflict: terminated by other getUpdates request")
    faults.begin(ME, conflict, conflict, HANG)
    async with polling(faults.url, Received()):
        await faults.call(4)
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "stop that process or remove the webhook" in record.getMessage()


@pytest.mark.parametrize("refusal", [refused(401, "Unauthorized"), refused(404, "Not Found")])
async def test_a_refused_token_ends_polling_with_an_error(
    faults: TelegramFaults, caplog: pytest.LogCaptureFixture, refusal: Answer
) -> None:
    faults.begin(refusal)
    async with asyncio.timeout(5):
        await poll(SECTION, faults.url, Received(), "acme", asyncio.Event())
    assert len(faults.calls) == 1
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "acme" in record.getMessage()
    assert "bot 99" in record.getMessage()
    assert TOKEN not in caplog.text


async def test_stopping_gives_up_the_request_under_way(faults: TelegramFaults) -> None:
    faults.begin(ME, HANG)
    async with polling(faults.url, Received()):
        await faults.call(2)
    await faults.dropped.wait()


async def test_stopping_ends_a_pause(faults: TelegramFaults) -> None:
    faults.begin(DROP)
    async with polling(faults.url, Received(), first_pause=30):
        await faults.call(1)
    assert len(faults.calls) == 1


async def test_stopping_lets_a_message_be_recorded_and_takes_no_other(faults: TelegramFaults) -> None:
    faults.begin(ME, updates(message("uno"), message("dos")))
    begun, go_on = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def receive(inbound: Incoming) -> None:
        assert isinstance(inbound, Inbound)
        begun.set()
        await go_on.wait()
        finished.append(inbound.text)

    async with polling(faults.url, receive) as stopping:
        await begun.wait()
        stopping.set()
        go_on.set()
    assert finished == ["uno"]
    assert offsets(faults) == [None]


async def test_a_cancelled_poller_leaves_no_request_behind(faults: TelegramFaults) -> None:
    faults.begin(ME, HANG)
    task = asyncio.create_task(poll(SECTION, faults.url, Received(), "acme", asyncio.Event()))
    await faults.call(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await faults.dropped.wait()


async def test_an_update_aiogram_cannot_read_stops_nothing(faults: TelegramFaults) -> None:
    received = Received()
    faults.begin(ME, updates(message("uno", date="yesterday"), message("dos", entities=7), message("tres")), HANG)
    async with polling(faults.url, received):
        await faults.call(3)
    assert received.texts == ["uno", "dos", "tres"]


@pytest.mark.parametrize(
    "odd",
    [
        7,
        None,
        [],
        "update",
        {"message": message("dos")},
        {"update_id": "1002", "message": message("dos")},
        {"update_id": True, "message": message("dos")},
        {"update_id": None},
        {"\ud83d": 1},
    ],
)
async def test_what_is_no_update_at_all_is_passed_over_and_what_comes_behind_it_arrives(
    faults: TelegramFaults, odd: object
) -> None:
    received = Received()
    first, last = ({"update_id": number, "message": message(str(number))} for number in (1001, 1003))
    faults.begin(ME, ok([first, odd, last]), HANG)
    async with polling(faults.url, received):
        await faults.call(3)
    assert received.texts == ["1001", "1003"]
    assert offsets(faults) == [None, "1004"]


async def test_updates_that_come_in_no_order_are_taken_in_theirs(faults: TelegramFaults) -> None:
    received = Received()
    one, two = ({"update_id": number, "message": message(str(number))} for number in (1001, 1002))
    faults.begin(ME, ok([two, one]), HANG)
    async with polling(faults.url, received):
        await faults.call(3)
    assert received.texts == ["1001", "1002"]
    assert offsets(faults) == [None, "1003"]


async def test_an_answer_that_brings_nothing_new_is_no_reason_to_ask_again_at_once(
    faults: TelegramFaults, caplog: pytest.LogCaptureFixture
) -> None:
    known = updates(message("uno"))
    faults.begin(ME, known, known, known, ok([7]), ok([]), HANG)
    async with polling(faults.url, Received(), first_pause=0.05):
        await faults.call(7)
    pauses = [later.at - earlier.at for earlier, later in itertools.pairwise(faults.calls[1:])]
    assert all(pause >= 0.75 * 0.05 for pause in pauses[1:4]), pauses
    assert "brings nothing new" in caplog.text


@pytest.mark.parametrize("asked", [10**12, 10**400, -5])
async def test_an_absurd_time_to_wait_neither_ends_polling_nor_hurries_it(faults: TelegramFaults, asked: int) -> None:
    faults.begin(ME, refused(429, "Too Many Requests", retry_after=asked), HANG)
    async with polling(faults.url, Received(), first_pause=0.01) as stopping:
        await faults.call(2)
        if asked < 0:
            await faults.call(3)
        stopping.set()
    assert len(faults.calls) == (3 if asked < 0 else 2)


async def test_a_group_reaches_the_bot_by_the_name_telegram_gives_it(faults: TelegramFaults) -> None:
    received = Received()
    group = {"id": -7, "type": "group"}
    faults.begin(ME, updates(message("hi all", chat=group), message("@clinic_bot hi", chat=group)), HANG)
    async with polling(faults.url, received):
        await faults.call(3)
    assert received.texts == ["@clinic_bot hi"]
