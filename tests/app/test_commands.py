"""What customers ask by a command on Telegram: no model is asked, and nothing but this conversation is touched."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.phrases import phrase
from app.commands import menu
from app.inbox import GATHER
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_recurring import again
from tests.app.test_telegram import FORUM, goes_by, hands_in, sends, update, with_bot
from tests.support.house import House, a_config, a_house
from tests.support.model import Script, books, texts
from tests.support.telegram_faults import TelegramFaults, telegram_faults
from tests.support.wait import eventually

GONE = "Done: Acme will not write to you any more. To hear from us again, write START."


class Chat:
    """Ana's chat with a bot, numbered as Telegram numbers it."""

    def __init__(self, house: House, clock: MovableClock, faults: TelegramFaults, script: Script) -> None:
        self.house, self.clock, self.faults, self.script = house, clock, faults, script
        self._number = 1000

    async def says(self, text: str, **message: Any) -> None:
        """Write, without waiting for what comes of it."""
        self._number += 1
        await hands_in(self.house, update(self._number, text=text, **message))

    async def hears(self, text: str, **message: Any) -> str:
        """Write, and return the answer."""
        known = len(sends(self.faults))
        await self.says(text, **message)
        await goes_by(self.house, self.clock, GATHER)
        await eventually(lambda: len(sends(self.faults)) > known)
        return str(sends(self.faults)[known].fields["text"])


@pytest.fixture
async def chat(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Chat]:
    script = Script(
        *(books("call Ana", delay="2 hours"), "Booked."),
        *(books("call Bea", at="2026-12-01 09:30"), "Booked."),
        "Hello.",
    )
    async with telegram_faults() as faults:
        told: dict[str, Any] = {"config": with_bot(), "telegram_api_url": faults.url}
        async with a_house(database, tmp_path, script.model, clock, **told) as house:
            yield Chat(house, clock, faults, script)


async def two_are_booked(chat: Chat, /, **message: Any) -> tuple[int, int]:
    for name in ("Ana", "Bea"):
        assert await chat.hears(f"/remind me to call {name}", **message) == "Booked."
    first, second = sorted(await chat.house.tasks(), key=lambda task: task.booked_for)
    return first.id, second.id


async def states(chat: Chat) -> dict[int, str]:
    return {task.id: task.state for task in await chat.house.tasks()}


async def test_what_is_pending_is_listed_with_local_times_and_zone(chat: Chat) -> None:
    assert await chat.hears("/pending") == "Nothing is booked here."
    first, second = await two_are_booked(chat)
    asked = len(chat.script.asked)
    listed = [
        "Booked here:",
        f"• {first}: call Ana. 2026-11-29 11:00 (America/Bogota)",
        f"• {second}: call Bea. 2026-12-01 09:30 (America/Bogota)",
        "To cancel one, write /cancel and its number.",
    ]
    for command in ("/pending", "/cancel", "/Pending@clinic_bot"):
        assert [line for line in (await chat.hears(command)).split("\n") if line] == listed
    assert len(chat.script.asked) == asked, "no model is asked"


async def test_one_is_cancelled_by_its_number_and_the_other_is_still_to_come(chat: Chat) -> None:
    first, second = await two_are_booked(chat)
    assert await chat.hears(f"/cancel {first}") == "Cancelled: call Ana. 2026-11-29 11:00 (America/Bogota)"
    assert await states(chat) == {first: "cancelled", second: "scheduled"}
    gone = f"Nothing with the number {first} is booked here. See /pending."
    assert await chat.hears(f"/cancel {first}") == gone
    assert f"{second}: call Bea" in await chat.hears("/pending")


async def test_what_comes_again_is_listed_once_with_how_often_and_its_next_time_and_cancelled_by_its_number(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(every="2 hours", times=3), "Lo anoto.")
    async with telegram_faults() as faults:
        told: dict[str, Any] = {"config": with_bot(), "telegram_api_url": faults.url}
        async with a_house(database, tmp_path, script.model, clock, **told) as house:
            chat = Chat(house, clock, faults, script)
            await chat.hears("recuérdame cada 2 horas, tres veces, llamar a Ana")
            (task,) = await house.tasks(kind="schedule")
            line = f"• {task.id}: send the report. cada 2 horas, 3 veces más; próxima vez: 2026-11-29 11:00 (America/Bogota)"
            assert line in (await chat.hears("/pending")).split("\n")
            gone = "Cancelado: send the report. 2026-11-29 11:00 (America/Bogota)"
            assert await chat.hears(f"/cancel {task.id}") == gone
            assert await chat.hears("/pending") == "Aquí no hay nada programado."
            await house.goes_by(clock, timedelta(hours=3))
            assert await house.tasks() == []


async def test_nobody_lists_or_cancels_what_another_chat_or_topic_has_booked(chat: Chat) -> None:
    topic = {"chat": FORUM, "message_thread_id": 15, "is_topic_message": True}
    mine, _ = await two_are_booked(chat, **topic)
    bea = {"id": 43, "is_bot": False, "first_name": "Bea"}
    elsewhere: list[dict[str, Any]] = [
        {"chat": {"id": 43, "type": "private"}, "from": bea},
        {"chat": FORUM},
        {**topic, "message_thread_id": 16},
    ]
    for place in elsewhere:
        assert await chat.hears("/pending", **place) == "Nothing is booked here."
        assert "Nothing with the number" in await chat.hears(f"/cancel {mine}", **place)
    assert set((await states(chat)).values()) == {"scheduled"}
    assert "Cancelled: call Ana" in await chat.hears(f"/cancel {mine}", **topic)


async def test_one_that_is_being_written_is_said_to_be_under_way_and_does_not_go_out(chat: Chat) -> None:
    first, _ = await two_are_booked(chat)
    chat.script.followup_gate.clear()
    chat.script.reached.clear()
    await goes_by(chat.house, chat.clock, timedelta(hours=2))
    await chat.script.reached.wait()
    assert "This is being done just now and may still reach you: call Ana" in await chat.hears(f"/cancel {first}")
    chat.script.followup_gate.set()
    await chat.house.until_state(first, "cancelled")


async def test_a_cancel_that_telegram_brings_twice_is_confirmed_once(chat: Chat) -> None:
    first, _ = await two_are_booked(chat)
    content = update(2000, text=f"/cancel {first}")
    for _ in range(3):
        await hands_in(chat.house, content)
    await goes_by(chat.house, chat.clock, GATHER)
    await eventually(lambda: len(sends(chat.faults)) == 3)
    assert len(await chat.house.tasks(kind="turn")) == 3


async def test_a_message_just_before_a_command_is_answered_by_the_model_and_the_command_is_not(chat: Chat) -> None:
    await chat.says("remind me to call Ana")
    await chat.says("/pending")
    await goes_by(chat.house, chat.clock, GATHER)
    await eventually(lambda: len(sends(chat.faults)) == 2)
    assert {call.fields["text"] for call in sends(chat.faults)} >= {"Booked."}
    assert len(await chat.house.tasks()) == 1
    asked = [said for who, said in texts(chat.script.asked[0]) if who == "customer"]
    assert "remind me to call Ana" in str(asked[-1])
    assert "/pending" not in str(asked[-1])


async def test_a_command_that_came_before_a_message_is_not_answered_again(chat: Chat) -> None:
    await chat.hears("/pending")
    assert await chat.hears("remind me to call Ana") == "Booked."
    await goes_by(chat.house, chat.clock, timedelta(minutes=1))
    assert len(sends(chat.faults)) == 2


async def test_stop_opts_out_once_and_start_takes_it_back(chat: Chat) -> None:
    await two_are_booked(chat)
    assert await chat.hears("/stop@clinic_bot") == GONE
    assert set((await states(chat)).values()) == {"cancelled"}
    await chat.says("/stop")
    await goes_by(chat.house, chat.clock, GATHER)
    assert (await chat.hears("/start")).startswith("Welcome back")
    assert [call.fields["text"] for call in sends(chat.faults)].count(GONE) == 1


async def test_start_and_help_say_what_the_assistant_can_do(chat: Chat) -> None:
    start = await chat.hears("/start a_link-1")
    assert start.startswith("Hello, this is the assistant of Acme.")
    for said in (start, await chat.hears("/help")):
        assert all(command in said for command in ("/pending", "/cancel", "/stop", "/start"))
    assert chat.script.asked == []


async def test_the_answer_is_in_the_customers_language_which_the_commands_words_do_not_tell(chat: Chat) -> None:
    eva = {"from": {"id": 42, "is_bot": False, "first_name": "Eva", "language_code": "es"}}
    assert await chat.hears("/pending", **eva) == "Aquí no hay nada programado."
    assert (await chat.hears("/help", **eva)).startswith("Escriba con sus propias palabras")


async def test_on_whatsapp_and_the_web_a_command_is_a_message_like_any_other(chat: Chat) -> None:
    received = await chat.house.says("/pending")
    (turn,) = await chat.house.tasks(kind="turn")
    assert (turn.conversation, turn.payload) == (received.conversation, {})


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_the_menu_fits_telegram_in_every_language(language: str) -> None:
    shown = menu(a_config(languages=[language]))
    assert set(shown) == {"", language}
    assert shown[""] == shown[language]
    assert all(1 <= len(what) <= 256 for what in shown[language].values())
    assert len(phrase("help", language)) < 500
