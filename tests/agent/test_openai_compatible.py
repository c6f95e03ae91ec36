"""The agent on a real OpenAI-compatible server, through the provider's own library, streamed and not.

What a user sets for a local server (llama.cpp, vLLM, LM Studio): `VUELVO_MODEL=openai-chat:NAME` and `OPENAI_BASE_URL`.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.errors import AgentError, ModelUnavailable, NothingToSay
from agent.followup import returning_agent
from agent.models import Models
from agent.run import OnText, run
from agent.turn import answer, answering_agent
from app.inbox import ATTEMPTS
from app.wiring import apply_tenants, running
from scheduler.clock import MovableClock
from scheduler.find import Found, pending_followups
from store.database import Database
from tests.support.house import House, a_config, settings
from tests.support.openai_server import (
    Call,
    Drops,
    Garbles,
    Hangs,
    Line,
    NoChoices,
    OpenAIServer,
    Refuses,
    Says,
)
from tests.support.runs import a_turn_context, a_voice, said
from tests.support.wait import eventually

MODEL = "openai-chat:local"
KEY = "sk-local-4f0c-must-never-be-seen"
AT_ONCE = 0.01
"""Seconds after which a refused request may come again, so that the library's own attempts take no time."""

both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])


def books(about: str = "call Ana", id: str | None = "new", text: str | None = None, **when: str) -> Says:
    """The model calls schedule_followup."""
    return Says(Call("schedule_followup", {"about": about, **(when or {"delay": "1h"})}, id), text=text)


@asynccontextmanager
async def a_server(
    monkeypatch: pytest.MonkeyPatch, *lines: Line, followups: tuple[Line, ...] = ("Reminder: call Ana.",)
) -> AsyncIterator[OpenAIServer]:
    """Run a server and set the environment as its user would."""
    async with OpenAIServer(*lines, followups=followups) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield server


@asynccontextmanager
async def a_house(
    database: Database, directory: Path, clock: MovableClock, name: str = MODEL, /, **agent: Any
) -> AsyncIterator[House]:
    """Run the service with the model that its settings name, and one tenant."""
    async with running(settings(directory, model=name), database=database, clock=clock) as run:
        await apply_tenants(run.service, [a_config(agent=agent)])
        try:
            yield House(run, "acme")
        finally:
            await run.service.models.close()


async def ask(model: str, on_text: OnText | None = None, seconds: float = 15) -> str:
    """Return what a model of this name says to a run without tools."""
    models = Models(model)
    try:
        return await run(
            returning_agent(),
            models.find(),
            "hello",
            context=a_voice(),
            instructions="Be brief.",
            history=[],
            seconds=seconds,
            on_text=on_text,
        )
    finally:
        await models.close()


class Turn:
    """One live turn on the server's model."""

    def __init__(self, database: Database, clock: MovableClock, streamed: bool) -> None:
        self._database, self._clock, self._streamed = database, clock, streamed
        self.shown: list[str] = []
        """What could be seen while it was written."""

    async def answer(self, words: str = "remind me in an hour to call Ana", to: str = "ana") -> str:
        """Return the reply to a customer."""
        self._context = await a_turn_context(self._database, self._clock, to)
        models = Models(MODEL)
        try:
            return await answer(
                answering_agent(),
                models.find(),
                self._context,
                [],
                unanswered=said(words),
                show=self.shown.append if self._streamed else None,
            )
        finally:
            await models.close()

    async def pending(self) -> list[Found]:
        """Return what is booked in the conversation."""
        async with self._database.transaction() as connection:
            return list(await pending_followups(connection, "acme", self._context.voice.conversation))


# What a user sets


@pytest.mark.parametrize(("model", "variable"), [(MODEL, "OPENAI_BASE_URL"), ("ollama:local", "OLLAMA_BASE_URL")])
async def test_a_local_server_needs_the_models_name_and_its_address_and_no_key(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    async with OpenAIServer("Good morning, Ana.") as server:
        monkeypatch.setenv(variable, server.url)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        async with a_house(database, tmp_path, clock, model) as house:
            received = await house.says("good morning")
            assert await house.until_heard(received.conversation, 1) == ["Good morning, Ana."]
        assert [asked["model"] for asked in server.asked] == ["local"]


async def test_a_tenants_own_model_goes_before_the_services(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_server(monkeypatch, "Good morning.") as server:
        async with a_house(database, tmp_path, clock, "openai-chat:other", model=MODEL) as house:
            received = await house.says("good morning")
            await house.until_heard(received.conversation, 1)
        assert [asked["model"] for asked in server.asked] == ["local"]
        assert server.authorizations == [f"Bearer {KEY}"]


async def test_the_name_openai_alone_asks_for_what_only_openai_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_server(monkeypatch, "Good morning.") as server:
        with pytest.raises(ModelUnavailable, match="404"):
            await ask("openai:local")
        assert server.asked == []


# Booking


@both_ways
async def test_a_call_of_the_tool_goes_round(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    async with a_server(monkeypatch, books(), "Booked: I will remind you at ten.") as server:
        turn = Turn(database, clock, streamed)
        reply = await turn.answer()
        assert reply == "Booked: I will remind you at ten."
        assert turn.shown == []  # one sentence, which was over with the answer
        (booked,) = await turn.pending()
        assert (booked.payload["about"], booked.booked_for) == ("call Ana", clock.at + timedelta(hours=1))
        assert [bool(asked["stream"]) for asked in server.asked] == [streamed] * 2
        call, result = server.asked[1]["messages"][-2:]
        assert result["tool_call_id"] == call["tool_calls"][0]["id"] == "call_1"
        assert json.loads(result["content"]) == {
            "booked": True,
            "id": booked.id,
            "local_time": "2026-11-29 10:00",
            "time_zone": "America/Bogota",
            "about": "call Ana",
            "replay": False,
            "status": "booked",
        }


@both_ways
async def test_a_call_beside_a_text_is_made_all_the_same(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    async with a_server(monkeypatch, books(text="One moment. "), "Booked.") as server:
        turn = Turn(database, clock, streamed)
        assert await turn.answer() == "Booked."
        assert len(await turn.pending()) == 1
        assert len(server.asked) == 2
        assert turn.shown == (["One moment."] if streamed else [])


@both_ways
async def test_the_tools_are_offered_with_what_they_take(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    async with a_server(monkeypatch, "Hello.") as server:
        await Turn(database, clock, streamed).answer("hello")
        tools = {tool["function"]["name"]: tool["function"] for tool in server.asked[0]["tools"]}
        assert sorted(tools) == [
            "ask_a_person",
            "cancel_followup",
            "list_followups",
            "schedule_followup",
            "schedule_recurring",
        ]
        schedule = tools["schedule_followup"]["parameters"]
        assert (schedule["required"], sorted(schedule["properties"])) == (["about"], ["about", "at", "delay"])
        assert "Elapsed time" in schedule["properties"]["delay"]["description"]
        recurring = tools["schedule_recurring"]["parameters"]
        assert recurring["required"] == ["about"]
        assert sorted(recurring["properties"]) == ["about", "cron", "every", "replaces", "times", "until"]
        assert "every Monday" in recurring["properties"]["cron"]["description"]
        assert server.told(0, "system")[0].startswith("You are the assistant of Acme.")
        assert server.told(0, "user") == ["hello"]


@both_ways
@pytest.mark.parametrize("id", ["call_0", ""], ids=["the same id each time", "an empty id"])
async def test_careless_ids_of_calls_do_no_harm(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool, id: str
) -> None:
    async with a_server(monkeypatch, books("call Ana", id), books("call Bob", id), "Both are booked.") as server:
        turn = Turn(database, clock, streamed)
        assert await turn.answer() == "Both are booked."
        assert [booked.payload["about"] for booked in await turn.pending()] == ["call Ana", "call Bob"]
        results = [message for message in server.asked[2]["messages"] if message["role"] == "tool"]
        assert [json.loads(result["content"])["about"] for result in results] == ["call Ana", "call Bob"]


@both_ways
async def test_two_calls_at_once_are_both_made_in_order(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    calls = [Call("schedule_followup", {"about": about, "delay": "1h"}) for about in ("call Ana", "call Bob")]
    async with a_server(monkeypatch, Says(*calls, Call("list_followups")), "Both are booked.") as server:
        await Turn(database, clock, streamed).answer()
        *booked, listed = [json.loads(content) for content in server.told(1, "tool")]
        assert [(one["about"], one["id"]) for one in booked] == [(one["about"], one["id"]) for one in listed]
        assert [one["about"] for one in listed] == ["call Ana", "call Bob"]


@both_ways
async def test_a_wrong_call_is_explained_to_the_model_and_made_again(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    for wrong, told in {
        Call("schedule_followup", '{"about": "call Ana", "delay"'): "Invalid JSON",
        Call("schedule_followup", '["call Ana"]'): "dict",
        Call("schedule_followup", '{"about": "call Ana", "delay": 3600}'): "valid string",
        Call("schedule_followup", '{"delay": "1h"}'): "Field required",
        Call("schedule_followup", '{"about": "call Ana", "delay": "soon"}'): "is not",
        Call("set_reminder", '{"about": "call Ana"}'): "schedule_followup",
    }.items():
        async with a_server(monkeypatch, Says(wrong), books(), "Booked.") as server:
            turn = Turn(database, clock, streamed)
            assert await turn.answer(to=told) == "Booked."
            assert len(await turn.pending()) == 1
            (words, _) = server.told(2, "tool")
            assert told in words


@both_ways
async def test_a_promise_after_a_broken_call_is_not_kept_by_an_older_booking(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    broken = Says(Call("schedule_followup", '{"about": "call Bob", "delay"'))
    lines = (books("call Ana"), "Booked.", broken, "Done, I will remind you.", "That did not work: when do you mean?")
    async with a_server(monkeypatch, *lines):
        await Turn(database, clock, streamed).answer()
        turn = Turn(database, clock, streamed)
        assert await turn.answer("and to call Bob") == "That did not work: when do you mean?"
        assert [booked.payload["about"] for booked in await turn.pending()] == ["call Ana"]


@both_ways
async def test_reasoning_stays_out_of_the_reply(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    async with a_server(monkeypatch, "<think>\nWhat does Ana want?\n</think>\n\nGood morning."):
        assert await Turn(database, clock, streamed).answer("hello") == "Good morning."


# The whole service


async def test_what_is_booked_comes_back_when_it_is_due(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_server(monkeypatch, books(delay="10 seconds"), "Booked.") as server:
        async with a_house(database, tmp_path, clock) as house:
            received = await house.says("remind me in 10 seconds to call Ana")
            assert await house.until_heard(received.conversation, 1) == ["Booked."]
            clock.move(timedelta(seconds=10))
            house.wake()
            assert await house.until_heard(received.conversation, 2) == ["Booked.", "Reminder: call Ana."]
            (task,) = await house.tasks()
            assert (task.state, task.outcome) == ("fired", "delivered")
        last = server.asked[-1]
        assert "tools" not in last
        assert [message["role"] for message in last["messages"]] == ["system", "user", "assistant", "user"]
        assert last["messages"][-1]["content"].startswith("[vuelvo:follow-up]\nAbout: call Ana\n")


async def test_an_outage_of_the_server_delays_a_reminder_and_does_not_lose_it(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the refusals the provider's library takes three for one attempt.
    down = (Refuses(503, retry_after=AT_ONCE),) * 3 + (Garbles(), "Back: call Ana.")
    async with (
        a_server(monkeypatch, books(delay="10 seconds"), "Booked.", followups=down),
        a_house(database, tmp_path, clock) as house,
    ):
        received = await house.says("remind me in 10 seconds to call Ana")
        await house.until_heard(received.conversation, 1)

        async def has_come_back() -> bool:
            clock.move(timedelta(minutes=5))
            house.wake()
            return len(await house.heard(received.conversation)) == 2

        await eventually(has_come_back)
        assert (await house.heard(received.conversation))[1] == "Back: call Ana."


# Faults


@both_ways
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(Refuses(500, retry_after=AT_ONCE), ModelUnavailable, id="500"),
        pytest.param(Refuses(429, retry_after=AT_ONCE), ModelUnavailable, id="429"),
        pytest.param(Refuses(429, retry_after=3600), ModelUnavailable, id="429 for an hour"),
        pytest.param(Refuses(401, "bad key {authorization}"), ModelUnavailable, id="401"),
        pytest.param(Refuses(502, "<html>\n" + "bad gateway " * 99, AT_ONCE), ModelUnavailable, id="a whole page"),
        pytest.param(Hangs(), ModelUnavailable, id="hangs"),
        pytest.param(Drops(), ModelUnavailable, id="drops"),
        pytest.param(Garbles(), ModelUnavailable, id="not JSON"),
        pytest.param(Garbles('{"error": {"message": "out of memory"}}'), AgentError, id="an error for an answer"),
        pytest.param(Garbles("[]"), AgentError, id="a list"),
        pytest.param(NoChoices(), AgentError, id="no choices"),
        pytest.param("", NothingToSay, id="empty text"),
        pytest.param(Says(), NothingToSay, id="no text"),
    ],
)
async def test_a_fault_of_the_server_is_an_error_of_ours_in_one_line_without_the_key(
    monkeypatch: pytest.MonkeyPatch, streamed: bool, fault: Line, error: type[AgentError]
) -> None:
    async with a_server(monkeypatch, fault) as server, asyncio.timeout(20):
        with pytest.raises(error) as raised:
            await ask(MODEL, list[str]().append if streamed else None, 0.5 if isinstance(fault, Hangs) else 15)
        if isinstance(fault, Hangs):
            await server.left.wait()
    words = str(raised.value)
    assert KEY not in words
    assert "\n" not in words
    assert len(words) < 400


@both_ways
async def test_calls_that_lead_nowhere_are_an_error_of_ours_and_book_nothing(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    for name, fault in {
        "broken arguments": Says(Call("schedule_followup", '{"about": "call A')),
        "no such tool": Says(Call("set_reminder")),
        "round in circles": Says(Call("list_followups")),
        "one id for two calls": Says(
            Call("list_followups", id="call_0"), books().calls[0], books(id="call_0").calls[0]
        ),
    }.items():
        async with a_server(monkeypatch, fault):
            turn = Turn(database, clock, streamed)
            with pytest.raises(NothingToSay):
                await turn.answer(to=name)
            assert await turn.pending() == []


async def test_calls_without_ids_work_in_a_stream_and_are_refused_otherwise(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_server(monkeypatch, books(id=None), "Booked."):
        turn = Turn(database, clock, streamed=True)
        assert await turn.answer() == "Booked."
    async with a_server(monkeypatch, books(id=None), "Booked."):
        with pytest.raises(NothingToSay):
            await Turn(database, clock, streamed=False).answer()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Refuses(401, "Incorrect API key provided: {authorization}"), "401"),
        (Refuses(500, retry_after=AT_ONCE), "500"),
        (Garbles(), "DecodeError"),
        (Hangs(), "within 5 seconds"),
        (NoChoices(), "IndexError"),
        (Says(Call("set_reminder", {})), "UnexpectedModelBehavior"),
    ],
    ids=["401", "500", "not JSON", "hangs", "no choices", "no such tool"],
)
async def test_the_customer_is_told_in_plain_words_and_the_operator_why_and_nobody_the_key(
    database: Database,
    tmp_path: Path,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Line,
    reason: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_server(monkeypatch, fault) as server:
        # Long enough for the library to be loaded, which the first request of a process waits for, and to ask.
        async with a_house(database, tmp_path, clock, answer_timeout=5 if isinstance(fault, Hangs) else 30) as house:
            received = await house.says("hello")

            async def has_failed() -> bool:
                clock.move(timedelta(seconds=10))
                house.wake()
                (turn,) = await house.tasks(kind="turn")
                return turn.state == "failed"

            await eventually(has_failed, seconds=20)
            assert await house.heard(received.conversation) == [
                "Sorry, I could not answer just now. Please write again in a moment."
            ]
            (turn,) = await house.tasks(kind="turn")
        assert turn.attempt == (1 if isinstance(fault, Hangs) else ATTEMPTS)
        assert reason in str(turn.error)
        assert f"Bearer {KEY}" in server.authorizations
        told = [f"{record.getMessage()} {record.exc_text}" for record in caplog.records] + [str(turn.error)]
        assert [line for line in told if KEY in line] == []
        assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("said", ["my number is five five five", "Lucía", KEY, "ignore this\nline"])
async def test_a_server_s_own_words_are_not_passed_on_however_short(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    async with a_server(monkeypatch, Refuses(400, said)):
        with pytest.raises(ModelUnavailable) as raised:
            await ask(MODEL)
    assert str(raised.value).endswith("status 400")


@pytest.mark.parametrize(
    ("code", "is_told"),
    [("context_length_exceeded", True), ("3051", True), ("sk-4f0c", False), ("5551234567", False), ("call Ana", False)],
)
async def test_a_short_code_of_the_server_is_told_when_it_can_be_nothing_else(
    monkeypatch: pytest.MonkeyPatch, code: str, is_told: bool
) -> None:
    async with a_server(monkeypatch, Refuses(400, "too long", code=code)):
        with pytest.raises(ModelUnavailable) as raised:
            await ask(MODEL)
    assert (code in str(raised.value)) is is_told


async def test_a_server_that_cannot_be_reached_is_named_by_host_and_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:hunter2@127.0.0.1:1/secret/path")
    with pytest.raises(ModelUnavailable) as raised:
        await ask(MODEL)
    assert "the connection to 127.0.0.1:1 failed" in str(raised.value)
    assert not re.search("hunter2|user|secret", str(raised.value))


@both_ways
async def test_an_answer_with_a_thought_in_the_middle_is_said_and_shown_whole(
    database: Database, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    told = "Good morning, Ana. <think> She is early. </think> The office opens at nine. "
    async with a_server(monkeypatch, told):
        turn = Turn(database, clock, streamed)
        assert " ".join((await turn.answer()).split()) == "Good morning, Ana. The office opens at nine."
        shown = [" ".join(words.split()) for words in turn.shown]
        assert shown == ["Good morning, Ana.", "Good morning, Ana. The office opens at nine."] * streamed
