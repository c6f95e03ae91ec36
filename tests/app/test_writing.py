"""What a customer on Telegram sees while the answer is being written."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

import app.writing
from app.http import web_of
from app.inbox import GATHER
from scheduler.clock import MovableClock
from store.conversations import Conversation
from store.database import Database
from tests.app.test_telegram import hands_in, until_answered, update, with_bot
from tests.support.house import House, a_house
from tests.support.telegram_faults import HANG, HOLD, TelegramFaults, ok, telegram_faults
from tests.support.wait import eventually
from tests.web_widget.conftest import Event, next_event, read_events
from web_widget.stream import events

FIRST, WHOLE = "Good morning, Ana.", "Good morning, Ana. The office opens at nine."


class SlowModel:
    """Writes the first sentence, and the rest when the test lets it."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.is_done = asyncio.Event()
        self.is_streamed = False

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._answer, stream_function=self._stream, model_name="slow")

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await self.goes_on.wait()
        return ModelResponse(parts=[TextPart(WHOLE)])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.is_streamed = True
        yield FIRST + " "
        await self.goes_on.wait()
        yield WHOLE.removeprefix(FIRST + " ")
        self.is_done.set()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.writing, "DRAFT_EVERY", 0.001)
    monkeypatch.setattr(app.writing, "DRAFT_EVERY_ON_WEB", 0.001)


@pytest.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


async def until(faults: TelegramFaults, is_so: Callable[[], bool]) -> None:
    """Wait for calls until that is so."""
    while not is_so():
        faults.arrived.clear()
        await faults.arrived.wait()


async def was_tried(house: House) -> bool:
    """Tell whether a turn waits for its next attempt, or is over."""
    (found,) = await house.tasks(kind="turn")
    return found.error is not None or found.ended_at is not None


def methods(faults: TelegramFaults) -> list[str]:
    return [call.method for call in faults.calls]


@asynccontextmanager
async def asked(
    database: Database, directory: Path, clock: MovableClock, faults: TelegramFaults, model: SlowModel, **section: Any
) -> AsyncIterator[tuple[House, asyncio.Task[Conversation]]]:
    """Ask a house with a bot something, and give what waits for its answer."""
    more: dict[str, Any] = {"config": with_bot(**section), "telegram_api_url": faults.url}
    async with a_house(database, directory, model.model, clock, **more) as house:
        await hands_in(house, update(text="good morning"))
        answered = asyncio.create_task(until_answered(house, clock))
        yield house, answered
        await answered


async def test_a_private_chat_sees_the_answer_grow_and_then_gets_it_once(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    slow = SlowModel()
    async with asked(database, tmp_path, clock, faults, slow) as (house, answered):
        await until(faults, lambda: "sendMessageDraft" in methods(faults))
        draft = next(call for call in faults.calls if call.method == "sendMessageDraft")
        assert draft.fields == {"chat_id": "42", "draft_id": "5", "text": FIRST, "entities": []}
        assert "sendMessage" not in methods(faults)
        slow.goes_on.set()
        assert await house.heard((await answered).id) == [WHOLE]
        assert methods(faults).count("sendMessage") == 1
        assert methods(faults)[-1] == "sendMessage"


async def test_the_answer_comes_after_a_draft_that_is_on_its_way(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    slow = SlowModel()
    faults.fallbacks["sendMessageDraft"] = HOLD
    async with asked(database, tmp_path, clock, faults, slow) as (_, answered):
        await until(faults, lambda: "sendMessageDraft" in methods(faults))
        slow.goes_on.set()
        await slow.is_done.wait()
        assert "sendMessage" not in methods(faults)
        faults.let_go(ok(True))
        await answered
        assert methods(faults)[-2:] == ["sendMessageDraft", "sendMessage"]


async def test_a_draft_that_is_never_answered_keeps_nobody_from_the_answer(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.writing, "LATE_DRAFT", 0.01)
    slow = SlowModel()
    faults.fallbacks["sendMessageDraft"] = HANG
    async with asked(database, tmp_path, clock, faults, slow) as (house, answered):
        await until(faults, lambda: "sendMessageDraft" in methods(faults))
        slow.goes_on.set()
        assert await house.heard((await answered).id) == [WHOLE]


async def test_a_tenant_without_drafts_has_nothing_streamed(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults
) -> None:
    slow = SlowModel()
    async with asked(database, tmp_path, clock, faults, slow, drafts=False) as (house, answered):
        await until(faults, lambda: "sendChatAction" in methods(faults))
        slow.goes_on.set()
        assert await house.heard((await answered).id) == [WHOLE]
        assert not slow.is_streamed
        assert "sendMessageDraft" not in methods(faults)


class Unstreamed(WrapperModel):
    """A model of which the library cannot stream answers, as of some providers'."""

    request_stream = Model.request_stream


class BreaksOff(SlowModel):
    """Is cut off after the first sentence when it is streamed."""

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield FIRST + " "
        raise ConnectionResetError


@pytest.mark.parametrize("wrap", [Unstreamed, WrapperModel], ids=["it cannot be", "it is cut off"])
async def test_an_answer_that_cannot_be_streamed_is_asked_for_whole_and_said_once(
    database: Database, tmp_path: Path, clock: MovableClock, faults: TelegramFaults, wrap: type[WrapperModel]
) -> None:
    slow = BreaksOff()
    slow.goes_on.set()
    more: dict[str, Any] = {"config": with_bot(), "telegram_api_url": faults.url}
    async with a_house(database, tmp_path, wrap(slow.model), clock, **more) as house:
        await hands_in(house, update(text="good morning"))
        (turn,) = await house.tasks(kind="turn")
        await house.goes_by(clock, GATHER)
        await eventually(lambda: was_tried(house))
        (tried,) = await house.tasks(kind="turn")
        assert "the model's answer is none" in str(tried.error)
        await house.goes_by(clock, timedelta(minutes=1))
        await house.until_state(turn.id, "fired")
        assert await house.heard(turn.conversation or 0) == [WHOLE]
        assert methods(faults).count("sendMessage") == 1


@asynccontextmanager
async def a_page(house: House, conversation: int) -> AsyncIterator[AsyncIterator[Event]]:
    """A visitor's page that listens to a process."""
    await eventually(lambda: house.service.signals.is_alive)
    async with aclosing(events(web_of(house.run), house.tenant, conversation, 0)) as chunks:
        yield read_events(chunks)


@pytest.fixture
async def of_another(database_url: str) -> AsyncIterator[Database]:
    """The same database, as another process has it: what a process hears by a connection of its own, it takes for its own hint."""
    database = Database(database_url)
    yield database
    await database.close()


async def test_a_page_that_listens_to_another_process_sees_the_answer_grow_and_then_gets_it_once(
    database: Database, of_another: Database, tmp_path: Path, clock: MovableClock
) -> None:
    slow = SlowModel()
    async with (
        a_house(database, tmp_path, slow.model, clock) as worker,
        a_house(of_another, tmp_path, slow.model, clock, poll=False) as server,
    ):
        talk = (await server.says("good morning")).conversation
        async with a_page(server, talk) as heard:
            assert (await next_event(heard, "delta")).content == {"text": FIRST, "is_first": True}
            assert await worker.heard(talk) == []
            slow.goes_on.set()
            assert (await next_event(heard, "message")).content["text"] == WHOLE
            assert (await next_event(heard, "typing")).content == {"typing": False}
            await server.says("good night")
            await worker.goes_by(clock, GATHER)
            assert [(await next_event(heard, "message")).content["text"] for _ in range(2)] == ["good night", WHOLE]


async def test_a_tenant_without_drafts_on_the_web_has_nothing_streamed(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    slow = SlowModel()
    slow.goes_on.set()
    async with a_house(database, tmp_path, slow.model, clock, config={"channels": {"web": {"drafts": False}}}) as house:
        talk = (await house.says("good morning")).conversation
        assert await house.until_heard(talk, 1) == [WHOLE]
        assert not slow.is_streamed


async def test_on_the_web_an_answer_that_is_cut_off_is_asked_for_whole_and_its_draft_is_taken_back(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    slow = BreaksOff()
    async with a_house(database, tmp_path, slow.model, clock) as house:
        talk = (await house.says("good morning")).conversation
        async with a_page(house, talk) as heard:
            (turn,) = await house.tasks(kind="turn")
            await eventually(lambda: was_tried(house))
            assert (await next_event(heard, "delta")).content == {"text": FIRST, "is_first": True}
            await house.goes_by(clock, timedelta(minutes=1))
            assert (await next_event(heard, "delta")).content == {"text": "", "is_first": True}
            slow.goes_on.set()
            await house.until_state(turn.id, "fired")
            assert await house.heard(talk) == [WHOLE]
