"""Telegram through the whole service: asked there, answered there, come back to there, whatever goes wrong between."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.hooks import telegram_secret
from app.http import application
from app.inbox import GATHER
from app.receivers import Receivers
from app.speak import PACED
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from scheduler.find import Found
from scheduler.retry import BUDGET
from store import conversations, deliveries
from store.conversations import Conversation
from store.database import Database
from tests.support.asgi import a_port, calling, served
from tests.support.claims import fields
from tests.support.house import House, a_config, a_house
from tests.support.model import Script, books
from tests.support.process import start
from tests.support.telegram_faults import (
    DROP,
    HANG,
    HOLD,
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

TOKEN = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
NEXT_TOKEN = "99:" + "n" * 30
OTHER = "88:AAbbCCddEEffGGhhIIjjKKllMM-_"
KEY = "a secret for the tests of the service"
BOOKED = (books("call Ana", delay="10 seconds"), "Booked, I will remind you.")
ANSWER, REMINDER = "Booked, I will remind you.", "Here is your reminder: call Ana."
DUE = timedelta(seconds=10)


def with_bot(token: str = TOKEN, **section: Any) -> dict[str, Any]:
    return {"channels": {"telegram": {"token": token, **section}}}


def update(number: int = 1001, bot: str = "99", /, **message: Any) -> dict[str, Any]:
    person = {"id": 42, "is_bot": False, "first_name": "Ana"}
    chat = {"id": 42, "type": "private"}
    body = {"message_id": 5, "date": 1, "chat": chat, "from": person, "text": "remind me in 10 seconds to call Ana"}
    return {"update_id": number, "message": body | message}


async def hands_in(house: House, content: dict[str, Any], bot: str = "99") -> None:
    """Telegram calls the webhook."""
    secret = telegram_secret(house.service.box, house.tenant, bot)
    async with calling(application(house.run)) as http:
        path = f"/hooks/telegram/{house.tenant}"
        answer = await http.post(path, json=content, headers={"X-Telegram-Bot-Api-Secret-Token": secret})
        assert answer.status_code == 200, answer.text


async def goes_by(house: House, clock: MovableClock, span: timedelta) -> None:
    """Let time pass, and return when the poller has looked at what is due since."""
    await house.goes_by(clock, span)


async def until_answered(house: House, clock: MovableClock) -> Conversation:
    """Wait for a message to be in, let the moment pass in which its writer may go on, and wait for the answer.

    Of several, as a command that is still being answered, the last is meant.
    """

    async def is_in() -> bool:
        return bool(await house.tasks(kind="turn", states=("scheduled",)))

    await eventually(is_in)
    turn = max(await house.tasks(kind="turn", states=("scheduled",)), key=lambda task: task.id)
    await goes_by(house, clock, GATHER)
    await house.until_state(turn.id, "fired")
    async with house.service.database.transaction() as connection:
        found = await conversations.find(connection, house.tenant, turn.conversation or 0)
    assert found is not None
    return found


async def asked_and_answered(house: House, clock: MovableClock, **message: Any) -> Conversation:
    """Have a follow-up booked in Telegram, by a webhook."""
    await hands_in(house, update(**message))
    return await until_answered(house, clock)


def sends(faults: TelegramFaults) -> list[Call]:
    return [call for call in faults.calls if call.method == "sendMessage"]


async def outcomes(house: House, task: int) -> list[str | None]:
    async with house.service.database.transaction() as connection:
        return [one.outcome for one in await deliveries.of_task(connection, house.tenant, task)]


@pytest.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


@asynccontextmanager
async def an_office(
    database: Database, directory: Path, clock: MovableClock, faults: TelegramFaults, *lines: Any, **more: Any
) -> AsyncIterator[House]:
    """A house with a bot at a Bot API that fails as told."""
    script = Script(*(lines or BOOKED))
    told = {"config": with_bot(), "telegram_api_url": faults.url, **more}
    async with a_house(database, directory, script.model, clock, **told) as house:
        yield house


async def the_followup(house: House) -> Found:
    (task,) = await house.tasks()
    return task


# The whole way, with an independent Bot API


@asynccontextmanager
async def reached_by(
    way: str, house: House, listener: Any, database_url: str, telegram: str, public: str
) -> AsyncIterator[None]:
    """Let Telegram's messages reach the house: it asks for them, or has them brought by the webhook it sets."""
    async with AsyncExitStack() as stack:
        stopping = asyncio.Event()
        if way == "polling":
            asking = asyncio.create_task(Receivers(house.service, house.run.settings, stopping).run())
            stack.push_async_callback(asyncio.wait_for, asking, 10)
            stack.callback(stopping.set)
        else:
            await stack.enter_async_context(served(application(house.run), listener))
            process = await start(
                *("telegram", "set-webhook", "--tenant", "acme"),
                directory=house.run.settings.data_dir,
                environ={
                    "VUELVO_DATABASE_URL": database_url,
                    "VUELVO_SECRET_KEY": KEY,
                    "VUELVO_PUBLIC_URL": public,
                    "VUELVO_TELEGRAM_API_URL": telegram,
                },
            )
            assert await process.ended() == 0, process.said
            assert any(f"{public}/hooks/telegram/acme" in line for line in process.said)
        yield


@pytest.mark.parametrize("way", ["polling", "webhook"])
async def test_asked_answered_and_come_back_to_in_the_same_chat_once(
    database: Database, database_url: str, tmp_path: Path, clock: MovableClock, way: str
) -> None:
    telegram, script = TelegramServer(), Script(*BOOKED)
    with a_port() as (listener, public):
        async with serving(telegram.app()) as url:
            more: dict[str, Any] = {"config": with_bot(receive=way), "telegram_api_url": url, "public_url": public}
            async with (
                a_house(database, tmp_path, script.model, clock, **more) as house,
                reached_by(way, house, listener, database_url, url, public),
            ):
                await telegram.says("remind me in 10 seconds to call Ana", token=TOKEN, message_id=5)
                conversation = await until_answered(house, clock)
                assert [sent["text"] for sent in telegram.sent] == [ANSWER]
                await goes_by(house, clock, DUE - timedelta(seconds=0.1))
                assert len(telegram.sent) == 1
                await goes_by(house, clock, timedelta(seconds=0.1))
                fired = await house.until_state((await the_followup(house)).id, "fired")
                await goes_by(house, clock, timedelta(days=1))
                assert fired.outcome == "delivered"
                assert [(sent["chat_id"], sent["text"]) for sent in telegram.sent] == [("42", ANSWER), ("42", REMINDER)]
                replied = [json.loads(sent["reply_parameters"])["message_id"] for sent in telegram.sent]
                assert replied == [5, 5]
                assert await house.heard(conversation.id) == [ANSWER, REMINDER]


async def test_the_same_update_forty_times_over_a_restart_is_one_turn(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        for _ in range(20):
            await hands_in(house, update())
        await until_answered(house, clock)
    async with an_office(database, tmp_path, clock, faults) as house:
        await asyncio.gather(*(hands_in(house, update()) for _ in range(20)))
        await goes_by(house, clock, GATHER)
        assert len(await house.tasks(kind="turn")) == 1
        assert len(await house.tasks()) == 1
    assert len(sends(faults)) == 1


async def test_a_number_that_telegram_gives_once_more_to_another_update_loses_no_message(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    """After a week without any, updates are numbered anew from somewhere (Bot API, Update)."""
    async with an_office(database, tmp_path, clock, faults, "Hello.") as house:
        await hands_in(house, update(1001, text="hello"))
        conversation = await until_answered(house, clock)
        for _ in range(2):
            await hands_in(house, update(1001, text="again", message_id=6))
        said = [message.text for message in await house.log(conversation.id) if message.role == "customer"]
    assert said == ["hello", "again"]


# Where in a chat: topics


async def test_a_booking_made_in_a_topic_comes_back_to_it_over_a_restart_and_a_retry(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    group = {"id": -1007, "type": "supergroup", "is_forum": True}
    said = {"chat": group, "message_thread_id": 15, "is_topic_message": True, "text": "/remind me in 10 seconds"}
    async with an_office(database, tmp_path, clock, faults) as house:
        conversation = await asked_and_answered(house, clock, **said)
        assert (conversation.address, conversation.thread) == ("-1007", "15")
        faults.begin(refused(429, "Too Many Requests", retry_after=7))
        await goes_by(house, clock, DUE)
        await eventually(lambda: len(sends(faults)) == 1)
        (first,) = sends(faults)
    async with an_office(database, tmp_path, clock, faults) as house:
        await goes_by(house, clock, timedelta(seconds=10))
        await house.until_state((await the_followup(house)).id, "fired")
    first, second = sends(faults)
    for call in (first, second):
        assert (call.fields["chat_id"], call.fields["message_thread_id"]) == ("-1007", "15")


FORUM = {"id": -1007, "type": "supergroup", "is_forum": True}
IN_TOPIC = {"chat": FORUM, "message_thread_id": 15, "is_topic_message": True, "text": "/remind me in 10 seconds"}


async def is_waiting_for_its_topic(house: House) -> bool:
    return (await the_followup(house)).hold == "topic gone"


@asynccontextmanager
async def a_followup_whose_topic_is_gone(
    database: Database, directory: Path, clock: MovableClock, faults: TelegramFaults
) -> AsyncIterator[House]:
    async with an_office(database, directory, clock, faults, *BOOKED, "Thanks.") as house:
        await asked_and_answered(house, clock, **IN_TOPIC)
        faults.begin(refused(400, "Bad Request: message thread not found"))
        await goes_by(house, clock, DUE)
        await eventually(lambda: is_waiting_for_its_topic(house))
        yield house


async def test_a_topic_that_is_gone_holds_the_words_with_the_reason_and_nothing_leaks_into_the_group(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        held = await the_followup(house)
        assert held.state == "scheduled"
        assert "the topic 15 is gone or closed" in str(held.error)
        assert await outcomes(house, held.id) == ["rejected"]
        # Neither time nor a message beside the topic ends it.
        await hands_in(house, update(1002, chat=FORUM, text="/thanks"))
        await until_answered(house, clock)
        await goes_by(house, clock, timedelta(days=1))
        assert await is_waiting_for_its_topic(house)
        assert REMINDER not in [call.fields["text"] for call in sends(faults)[1:]]
    assert [call.fields.get("message_thread_id") for call in sends(faults) if call.fields["text"] == REMINDER] == ["15"]


async def test_a_message_in_that_very_topic_lets_it_be_said_there_as_it_was_written(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        clock.move(timedelta(days=2))
        await hands_in(house, update(1002, **{**IN_TOPIC, "text": "/thanks"}))
        await house.until_state((await the_followup(house)).id, "fired")
    assert [call.fields["message_thread_id"] for call in sends(faults)][:2] == ["15", "15"]
    assert [call.fields["text"] for call in sends(faults)][:2] == [REMINDER, REMINDER]


async def test_a_tenant_applied_anew_lets_what_waits_for_its_topic_be_tried_again(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        await apply_tenants(house.service, [a_config(**with_bot())])
        await house.until_state((await the_followup(house)).id, "fired")
    assert len(sends(faults)) == 2


async def test_what_waits_for_its_topic_waits_a_month(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with a_followup_whose_topic_is_gone(database, tmp_path, clock, faults) as house:
        task = (await the_followup(house)).id
        assert await fields(database, task, "expires_at", "attempt") == (clock.at + timedelta(days=30), 0)


async def test_a_message_that_came_while_the_topic_was_found_closed_is_not_missed(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, *BOOKED, "Thanks.") as house:
        await asked_and_answered(house, clock, **IN_TOPIC)
        faults.begin(HOLD)
        await goes_by(house, clock, DUE)
        await faults.call(1)
        await hands_in(house, update(1002, **{**IN_TOPIC, "text": "/thanks"}))
        faults.let_go(refused(400, "Bad Request: TOPIC_CLOSED"))
        task = (await the_followup(house)).id
        await eventually(lambda: has_outcomes(house, task, ["rejected"]))
        await house.until_state(task, "scheduled")
        assert (await the_followup(house)).hold is None
        await goes_by(house, clock, timedelta(seconds=2))
        await house.until_state(task, "fired")


async def test_a_private_topic_that_is_gone_is_answered_beside_it_once(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock, message_thread_id=15, is_topic_message=True)
        faults.begin(refused(400, "Bad Request: message thread not found"))
        await goes_by(house, clock, DUE)
        await house.until_state((await the_followup(house)).id, "fired")
        await goes_by(house, clock, timedelta(days=1))
    assert [call.fields.get("message_thread_id") for call in sends(faults)] == ["15", None]


# A business's own chats, and the direct messages of a channel


def to_business(number: int = 1001, **message: Any) -> dict[str, Any]:
    raw = update(number, business_connection_id="bc1", **message)
    return {"update_id": number, "business_message": raw["message"]}


def to_channel(number: int, customer: int, topic: int, **message: Any) -> dict[str, Any]:
    person = {"id": customer, "is_bot": False, "first_name": f"Customer {customer}"}
    chat = {"id": -1005, "type": "supergroup", "is_direct_messages": True}
    where = {"chat": chat, "from": person, "direct_messages_topic": {"topic_id": topic, "user": person}}
    return update(number, **where, **message)


WAYS = ("message_thread_id", "direct_messages_topic_id", "business_connection_id")


def ways(faults: TelegramFaults) -> list[tuple[str, dict[str, str]]]:
    return [
        (call.fields["chat_id"], {name: call.fields[name] for name in WAYS if name in call.fields})
        for call in sends(faults)
    ]


@pytest.mark.parametrize(
    ("asked", "way"),
    [
        (to_business(), ("42", {"business_connection_id": "bc1"})),
        (to_channel(1001, 42, 7), ("-1005", {"direct_messages_topic_id": "7"})),
    ],
)
async def test_answer_and_follow_up_go_back_the_way_the_request_came_over_a_restart_and_a_retry(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    faults: TelegramFaults,
    asked: dict[str, Any],
    way: tuple[str, dict[str, str]],
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await hands_in(house, asked)
        await until_answered(house, clock)
    async with an_office(database, tmp_path, clock, faults) as house:
        faults.answers.append(refused(429, "Too Many Requests", retry_after=7))
        await goes_by(house, clock, DUE)
        task = (await the_followup(house)).id
        await eventually(lambda: has_outcomes(house, task, ["not_sent"]))
        await goes_by(house, clock, timedelta(seconds=7))
        await house.until_state(task, "fired")
    assert ways(faults) == [way] * 3


async def test_a_private_chat_with_the_bot_and_one_with_the_business_are_two_conversations(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, "Hello.") as house:
        await hands_in(house, update(1001, text="hello"))
        await hands_in(house, to_business(1002, text="hello"))
        await goes_by(house, clock, GATHER)
        await eventually(lambda: len(sends(faults)) == 2)
    assert sorted(ways(faults), key=str) == [("42", {"business_connection_id": "bc1"}), ("42", {})]


async def test_a_connection_that_a_business_took_away_fails_the_follow_up_in_words(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await hands_in(house, to_business())
        await until_answered(house, clock)
        gone = refused(400, "Bad Request: BUSINESS_CONNECTION_INVALID")
        faults.begin(gone, gone)
        await goes_by(house, clock, DUE)
        failed = await house.until_state((await the_followup(house)).id, "failed")
    assert str(failed.error).startswith("the business has taken its connection with the bot away")
    assert len(sends(faults)) == 1


async def test_in_a_businesss_chat_nothing_is_booked_beyond_a_day_and_what_comes_later_waits_for_the_customer(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    lines = (books("call Ana", delay="3 days"), books("call Ana", delay="23 hours"), "Booked.", "Hello.")
    async with an_office(database, tmp_path, clock, faults, *lines) as house:
        await hands_in(house, to_business())
        await until_answered(house, clock)
        task = await the_followup(house)
        assert task.booked_for - task.created_at == timedelta(hours=23)
        clock.move(timedelta(hours=30))  # an outage
        house.wake()

        async def is_waiting() -> bool:
            return (await the_followup(house)).hold == "window closed"

        await eventually(is_waiting)
        assert len(sends(faults)) == 1
        await hands_in(house, to_business(1002, text="hello"))
        await house.until_state(task.id, "fired")
    assert ways(faults)[1] == ("42", {"business_connection_id": "bc1"})


async def test_who_opts_out_of_a_channels_direct_messages_opts_out_alone(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, *BOOKED, *BOOKED) as house:
        for number, (customer, topic) in enumerate([(42, 7), (43, 8)]):
            await hands_in(house, to_channel(1001 + number, customer, topic))
            await until_answered(house, clock)
        await hands_in(house, to_channel(1003, 42, 7, text="STOP"))
        assert sorted(task.state for task in await house.tasks()) == ["cancelled", "scheduled"]


# Shut out, and let in again


def membership(number: int, status: str, **chat: Any) -> dict[str, Any]:
    told = {"chat": chat or {"id": 42, "type": "private"}, "new_chat_member": {"status": status}}
    return {"update_id": number, "my_chat_member": told}


async def test_what_is_due_where_the_bot_was_shut_out_is_skipped_and_not_tried(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock)
        for _ in range(2):
            await hands_in(house, membership(1002, "kicked"))
        await goes_by(house, clock, DUE)
        fired = await house.until_state((await the_followup(house)).id, "fired")
    assert fired.outcome == "skipped: blocked"
    assert len(sends(faults)) == 1


async def test_what_is_due_where_the_bot_was_let_in_again_is_said(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    group = {"id": -7, "type": "group"}
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock, chat=group, text="/remind me in 10 seconds")
        await hands_in(house, membership(1002, "left", **group))
        await hands_in(house, membership(1003, "member", **group))
        await goes_by(house, clock, DUE)
        fired = await house.until_state((await the_followup(house)).id, "fired")
    assert fired.outcome == "delivered"


async def test_being_let_in_again_takes_back_no_customers_own_word(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, "Hello.") as house:
        await hands_in(house, update(1001, text="STOP"))
        (turn,) = await house.tasks(kind="turn")
        await hands_in(house, membership(1002, "kicked"))
        await hands_in(house, membership(1003, "member"))
        async with database.transaction() as connection:
            found = await conversations.find(connection, "acme", turn.conversation or 0)
    assert found is not None
    assert found.stopped == "customer"


async def test_a_chat_nobody_has_spoken_in_leaves_nothing_behind(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        for status in ("member", "kicked"):
            await hands_in(house, membership(1001, status))
        async with database.transaction() as connection:
            assert await conversations.of_address(connection, "acme", "telegram", "42") is None


async def test_a_send_that_finds_the_bot_blocked_spares_the_next_until_the_customer_writes(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    lines = (books("call Ana", delay="10 seconds"), books("call Bea", delay="20 seconds"), "Booked.", "Hello.")
    async with an_office(database, tmp_path, clock, faults, *lines) as house:
        conversation = await asked_and_answered(house, clock)
        faults.begin(refused(403, "Forbidden: bot was blocked by the user"))
        first, second = sorted(await house.tasks(), key=lambda task: task.booked_for)
        await goes_by(house, clock, DUE)
        await house.until_state(first.id, "failed")
        await goes_by(house, clock, DUE)
        fired = await house.until_state(second.id, "fired")
        assert fired.outcome == "skipped: blocked"
        assert len(sends(faults)) == 1
        await hands_in(house, update(1002, text="hello again"))
        async with database.transaction() as connection:
            found = await conversations.find(connection, "acme", conversation.id)
    assert found is not None
    assert found.stopped is None


@pytest.mark.parametrize(
    "refusal",
    [
        refused(400, "Bad Request: chat not found"),
        refused(403, "Forbidden: bot was kicked from the group chat"),
        refused(403, "Forbidden: the group chat was deleted"),
    ],
)
async def test_what_was_asked_for_in_a_group_that_is_gone_fails_and_goes_to_nobody_who_was_in_it(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, refusal: Answer
) -> None:
    async with an_office(database, tmp_path, clock, faults, "Hello.", *BOOKED) as house:
        await asked_and_answered(house, clock, text="hello")
        await hands_in(house, update(1002, chat={"id": -7, "type": "group"}, text="/remind me in 10 seconds"))
        await until_answered(house, clock)
        faults.begin(refusal)
        await goes_by(house, clock, DUE)
        failed = await house.until_state((await the_followup(house)).id, "failed")
        assert isinstance(refusal.body, dict)
        assert refusal.body["description"] in str(failed.error)
        await goes_by(house, clock, timedelta(days=1))
    assert [call.fields["chat_id"] for call in sends(faults)] == ["-7"]


@pytest.mark.parametrize(
    "content",
    [
        {"update_id": 1, "a_kind_to_come": {}},
        {"update_id": 1, "callback_query": {"id": "1", "data": "x"}},
        {"update_id": 1, "edited_message": update()["message"]},
        {"update_id": 1, "business_connection": {"id": "bc1", "is_enabled": False}},
        {"update_id": 1, "stopped_message_generation": {"draft_id": 1}},
        {"update_id": 1, "my_chat_member": {"chat": {"id": 1, "type": "channel"}, "new_chat_member": {}}},
        {},
    ],
)
async def test_an_update_of_another_kind_is_acknowledged_and_passed_over(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, content: dict[str, Any]
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await hands_in(house, content)
        assert await house.tasks(kind="turn") == []


# Whose bot


async def test_a_bot_of_one_tenant_is_refused_to_another_in_clear_words(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    environ: dict[str, Any] = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    for name in ("acme", "globex"):
        channels = f"channels: {{telegram: {{token: '{TOKEN}'}}}}"
        (tmp_path / f"{name}.yaml").write_text(f"tenant: {name}\nname: {name}\ntime_zone: America/Bogota\n{channels}\n")
    first = await start("tenants", "apply", "acme.yaml", directory=tmp_path, environ=environ)
    assert await first.ended() == 0, first.said
    second = await start("tenants", "apply", "globex.yaml", directory=tmp_path, environ=environ)
    assert await second.ended() == 2
    said = "\n".join(second.said)
    assert "the telegram sender 99 already belongs to tenant 'acme'. Nothing was applied." in said
    assert "Traceback" not in said
    assert TOKEN not in said
    listed = await start("tenants", "list", directory=tmp_path, environ=environ)
    assert await listed.ended() == 0
    assert "globex" not in "\n".join(listed.said)


async def test_each_tenants_follow_up_goes_out_by_its_own_bot_whichever_process_performs_it(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    others: dict[str, Any] = {"tenant": "globex", "config": with_bot(OTHER)}
    async with an_office(database, tmp_path, clock, faults) as acme:
        await asked_and_answered(acme, clock)
    async with an_office(database, tmp_path, clock, faults, **others) as globex:
        await hands_in(globex, update(7, chat={"id": 7, "type": "private"}), "88")
        await until_answered(globex, clock)
        faults.begin()
        await goes_by(globex, clock, DUE)
        for task in await globex.tasks():
            await eventually(lambda task=task: is_over(globex, task))  # type: ignore[misc]
    assert {(call.fields["chat_id"], call.bot) for call in sends(faults)} == {("42", TOKEN), ("7", OTHER)}
    assert len(sends(faults)) == 2


async def is_over(house: House, task: Found) -> bool:
    return all(found.state == "fired" for found in await house.tasks() if found.id == task.id)


# What Telegram answers


async def test_a_group_that_moved_is_followed_with_one_message_and_remembered(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    group = {"id": -7, "type": "group"}
    async with an_office(database, tmp_path, clock, faults) as house:
        conversation = await asked_and_answered(house, clock, chat=group, text="/remind me in 10 seconds")
        upgraded = "Bad Request: group chat was upgraded to a supergroup chat"
        faults.begin(refused(400, upgraded, migrate_to_chat_id=-100777), accepted())
        await goes_by(house, clock, DUE)
        await house.until_state((await the_followup(house)).id, "fired")
        assert [call.fields["chat_id"] for call in sends(faults)] == ["-7", "-100777"]
        async with database.transaction() as connection:
            moved = await conversations.find(connection, "acme", conversation.id)
        assert moved is not None
        assert (moved.address, moved.address_key) == ("-100777", "-100777")
        await hands_in(house, update(1002, chat={"id": -100777, "type": "supergroup"}, text="/thanks"))
        assert (await house.log(conversation.id))[-1].text == "/thanks"


def moves(number: int, to: int = -100777, /, **message: Any) -> dict[str, Any]:
    """Telegram's own word, in the old group, that it has become a supergroup."""
    told = {"chat": {"id": -7, "type": "group"}, "text": None, "migrate_to_chat_id": to}
    return update(number, **{**told, **message})


SUPERGROUP = {"id": -100777, "type": "supergroup"}
IN_GROUP: dict[str, Any] = {"chat": {"id": -7, "type": "group"}, "text": "/remind me in 10 seconds"}
IS_NOW_A_SUPERGROUP = refused(
    400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-100777
)


@pytest.mark.parametrize(
    "word",
    [
        moves(1002),
        moves(1002, **{"from": {"id": 1087968824, "is_bot": True, "first_name": "Group"}}),
        update(1002, chat=SUPERGROUP, text=None, migrate_from_chat_id=-7),
    ],
)
async def test_a_group_that_tells_of_its_move_is_the_same_conversation_from_then_on(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, word: dict[str, Any]
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        conversation = await asked_and_answered(house, clock, **IN_GROUP)
        left = {"chat": {"id": -7, "type": "group"}, "new_chat_member": {"status": "left"}}
        await hands_in(house, {"update_id": 1001, "my_chat_member": left})
        for _ in range(2):
            await hands_in(house, word)
        await hands_in(house, {"update_id": 1003, "my_chat_member": left})
        await hands_in(house, update(1004, chat=SUPERGROUP, text="/pending"))
        faults.begin()
        await goes_by(house, clock, DUE)
        await house.until_state((await the_followup(house)).id, "fired")
        assert (await house.log(conversation.id))[2].text == "/pending"
    said = {call.fields["text"]: call for call in sends(faults)}
    assert {call.fields["chat_id"] for call in sends(faults)} == {"-100777"}
    assert "reply_parameters" not in said[REMINDER].fields, "the old group's number is another message's in the new one"


async def test_the_reply_to_a_message_of_the_old_group_is_left_out_in_the_new_one(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock, **IN_GROUP)
        faults.begin(IS_NOW_A_SUPERGROUP, accepted())
        await goes_by(house, clock, DUE)
        await house.until_state((await the_followup(house)).id, "fired")
    replied = [(call.fields["chat_id"], "reply_parameters" in call.fields) for call in sends(faults)]
    assert replied == [("-7", True), ("-100777", False)]


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_group_that_wrote_from_its_new_address_first_has_what_is_pending_there(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, *, is_told: bool
) -> None:
    lines = (*BOOKED, books("call Bea", delay="1 hour"), "Booked.", "Hello.")
    async with an_office(database, tmp_path, clock, faults, *lines) as house:
        await asked_and_answered(house, clock, **IN_GROUP)
        await hands_in(house, update(1002, **{**IN_GROUP, "text": "/and call Bea in an hour"}))
        await until_answered(house, clock)
        first, second = sorted(await house.tasks(), key=lambda task: task.id)
        await hands_in(house, update(1003, chat=SUPERGROUP, text="/hello"))
        there = await until_answered(house, clock)
        if is_told:
            await hands_in(house, moves(1004))
        else:
            faults.begin(IS_NOW_A_SUPERGROUP)
        await goes_by(house, clock, DUE)
        said = await house.until_state(first.id, "fired")
        assert (said.conversation, (await house.heard(there.id))[-1]) == (there.id, REMINDER)

        faults.begin()
        await hands_in(house, update(1005, chat=SUPERGROUP, text="/pending"))
        await goes_by(house, clock, GATHER)
        await eventually(lambda: len(sends(faults)) == 1)
        assert f"{second.id}: call Bea" in sends(faults)[0].fields["text"]
        await hands_in(house, update(1006, chat=SUPERGROUP, text="/stop"))
        await house.until_state(second.id, "cancelled")


async def test_a_group_that_wanted_nothing_more_wants_nothing_where_it_moved_to(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, *BOOKED, "Hello.") as house:
        await hands_in(house, update(1001, **{**IN_GROUP, "text": "/stop"}))
        await hands_in(house, update(1002, chat=SUPERGROUP, text="/remind me in 10 seconds"))
        await until_answered(house, clock)
        await hands_in(house, moves(1003))
        await goes_by(house, clock, DUE)
        skipped = await house.until_state((await the_followup(house)).id, "fired")
        assert skipped.outcome == "skipped: opted out"
        # They take it back there; to be told once more of the move changes nothing.
        await hands_in(house, update(1004, chat=SUPERGROUP, text="/start"))
        await hands_in(house, moves(1005))
        async with database.transaction() as connection:
            there = await conversations.find(connection, "acme", skipped.conversation or 0)
    assert there is not None
    assert there.stopped is None


async def test_a_bot_told_to_slow_down_in_one_chat_is_not_tried_in_another_before_that_is_over(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults, "Hello.") as house:
        faults.fallbacks["sendMessage"] = refused(429, "Too Many Requests: retry after 70", retry_after=70)
        await hands_in(house, update(1001, text="hello"))
        await goes_by(house, clock, GATHER)
        await eventually(lambda: all_tried(house))
        del faults.fallbacks["sendMessage"]
        other = {"chat": {"id": 43, "type": "private"}, "from": {"id": 43, "is_bot": False, "first_name": "Bea"}}
        await hands_in(house, update(1002, text="hello", **other))
        await goes_by(house, clock, GATHER)

        async def waits() -> bool:
            second = max(await house.tasks(kind="turn"), key=lambda task: task.id)
            return second.state == "scheduled" and second.error == PACED

        await eventually(waits)
        assert [call.fields["chat_id"] for call in sends(faults)] == ["42"]
        await goes_by(house, clock, timedelta(seconds=70))
        await eventually(lambda: len(sends(faults)) == 3)


async def all_tried(house: House) -> bool:
    return all([await outcomes(house, turn.id) == ["not_sent"] for turn in await house.tasks(kind="turn")])


async def has_outcomes(house: House, task: int, expected: list[str | None]) -> bool:
    return await outcomes(house, task) == expected


async def test_a_send_whose_fate_nobody_knows_is_uncertain_and_not_repeated_by_a_restart(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        conversation = await asked_and_answered(house, clock)
        faults.begin(DROP)
        await goes_by(house, clock, DUE)
        task = await house.until_state((await the_followup(house)).id, "uncertain")
        assert len(str(task.error)) > 10
        await goes_by(house, clock, timedelta(days=1))
    async with an_office(database, tmp_path, clock, faults) as house:
        await goes_by(house, clock, timedelta(days=1))
        assert (await the_followup(house)).state == "uncertain"
        assert await outcomes(house, task.id) == ["unknown"]
        assert await house.heard(conversation.id) == [ANSWER, REMINDER], "an answer to it must make sense"
    assert len(sends(faults)) == 1


async def test_a_service_stopped_in_the_middle_of_a_send_does_not_send_again_however_often_it_restarts(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        conversation = await asked_and_answered(house, clock)
        faults.begin(HANG)
        await goes_by(house, clock, DUE)
        await faults.call(1)
        assert house.run.poller is not None
        await house.run.poller.stop(grace=timedelta(0))
        task = await the_followup(house)
        assert (task.state, await outcomes(house, task.id)) == ("scheduled", [None])
    async with an_office(database, tmp_path, clock, faults) as house:
        await house.until_state(task.id, "uncertain")
    clock.move(timedelta(weeks=1))
    async with an_office(database, tmp_path, clock, faults) as house:
        await goes_by(house, clock, timedelta(days=1))
        assert (await the_followup(house)).state == "uncertain"
        assert await house.heard(conversation.id) == [ANSWER, REMINDER]
    assert len(sends(faults)) == 1


async def test_no_connection_five_times_and_then_one_delivers_once_and_shows_the_attempts(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock)
        faults.begin()
    async with an_office(database, tmp_path, clock, faults, telegram_api_url="http://127.0.0.1:1") as house:
        task = await the_followup(house)
        await goes_by(house, clock, DUE)
        for attempts in range(1, BUDGET + 1):
            await eventually(lambda n=attempts: has_outcomes(house, task.id, ["not_sent"] * n))  # type: ignore[misc]
            if attempts < BUDGET:
                await goes_by(house, clock, timedelta(minutes=1))
        found = await house.until_state(task.id, "scheduled")
        assert found.attempt == BUDGET - 1, "the last is not counted: it is no fault of the task"
        assert "no connection to Telegram" in str(found.error)
    async with an_office(database, tmp_path, clock, faults) as house:
        await goes_by(house, clock, timedelta(minutes=1))
        await house.until_state(task.id, "fired")
        assert await outcomes(house, task.id) == ["not_sent"] * BUDGET + ["accepted"]
        await goes_by(house, clock, timedelta(days=1))
    assert len(sends(faults)) == 1


# Channels that are refused, or gone


async def is_held(house: House) -> bool:
    return (await the_followup(house)).hold == "channel paused"


async def test_a_revoked_token_holds_the_task_until_the_tenant_is_applied_with_the_new_one(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    telegram, script = TelegramServer(), Script(*BOOKED)
    async with (
        serving(telegram.app()) as url,
        a_house(database, tmp_path, script.model, clock, config=with_bot(), telegram_api_url=url) as house,
    ):
        await asked_and_answered(house, clock)
        telegram.revoked.add(TOKEN)
        await goes_by(house, clock, DUE)
        await eventually(lambda: is_held(house))
        task = await the_followup(house)
        assert "put the one @BotFather shows into the tenant's file" in str(task.error)
        await goes_by(house, clock, timedelta(days=1))
        assert await is_held(house)
        await apply_tenants(house.service, [a_config(**with_bot(NEXT_TOKEN))])

        async def is_said() -> bool:
            await goes_by(house, clock, timedelta(seconds=1))
            return (await the_followup(house)).state == "fired"

        await eventually(is_said)
    assert [(sent["token"], sent["text"]) for sent in telegram.sent] == [(TOKEN, ANSWER), (NEXT_TOKEN, REMINDER)]
    assert script.asked_for_followups() == 1


async def test_a_channel_taken_out_of_the_tenants_file_holds_the_task_until_it_is_back(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    async with an_office(database, tmp_path, clock, faults) as house:
        await asked_and_answered(house, clock)
        faults.begin()
    async with an_office(database, tmp_path, clock, faults, config={}) as house:
        await goes_by(house, clock, DUE)
        await eventually(lambda: is_held(house))
        await goes_by(house, clock, timedelta(days=1))
        assert await is_held(house)
    async with an_office(database, tmp_path, clock, faults) as house:
        await house.until_state((await the_followup(house)).id, "fired")
    assert [call.fields["text"] for call in sends(faults)] == [REMINDER]


async def test_a_webhook_for_a_tenant_without_a_bot_is_not_set(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    environ: dict[str, Any] = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    words = ("telegram", "set-webhook", "--tenant", "nobody")
    process = await start(*words, directory=tmp_path, environ=environ)
    assert await process.ended() == 2
    assert any("there is no tenant 'nobody' with a Telegram channel" in line for line in process.said)
