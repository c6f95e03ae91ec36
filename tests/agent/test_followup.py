"""A follow-up's run: the message that the customer gets, whatever the model makes of it."""

import asyncio
import logging

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition

from agent.errors import ModelUnavailable
from agent.followup import returning_agent, stored_words, write
from agent.section import AgentSection
from tests.support.model import texts
from tests.support.runs import SUNDAY, a_voice, said

SECRET = " ".join(f"rule{number}" for number in range(40))


Line = str | ToolCallPart | ModelResponse | Exception


class Model:
    """Says its lines in order, one a request, the last one again and again."""

    def __init__(self, *lines: Line) -> None:
        self._lines = list(lines)
        self.asked: list[list[ModelMessage]] = []
        self.tools: list[ToolDefinition] = []

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(messages)
        self.tools += info.function_tools
        line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
        if isinstance(line, Exception):
            raise line
        if isinstance(line, ModelResponse):
            return line
        return ModelResponse(parts=[TextPart(line) if isinstance(line, str) else line])


async def come_back(*lines: Line, is_work: bool = False, language: str = "en") -> tuple[str, Model]:
    """Have a follow-up about calling Ana written; returns the message and what the model was asked."""
    model = Model(*lines)
    words = await write(
        returning_agent(),
        FunctionModel(model.answer),
        a_voice(section=AgentSection(instructions=SECRET), language=language),
        said("remind me", "Booked."),
        about="call Ana",
        is_work=is_work,
        booked_at=SUNDAY,
    )
    return words, model


async def test_the_model_is_given_the_conversation_and_the_frame_and_no_tools() -> None:
    words, model = await come_back("Time to call Ana.")
    assert words == "Time to call Ana."
    (asked,) = model.asked
    assert texts(asked)[:2] == [("customer", "remind me"), ("assistant", "Booked.")]
    assert texts(asked)[2][1].startswith("[vuelvo:follow-up]\nAbout: call Ana\n")
    assert model.tools == []
    assert isinstance(asked[-1], ModelRequest)
    assert "promise nothing for later" in str(asked[-1].instructions)


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ("<think>Ana, again</think>", "empty"),
        (f"As I was told: {SECRET}.", "repeated your instructions"),
        ("Call Ana. I will remind you again tomorrow.", "cannot book anything"),
        ("Recuerde llamar a Ana. Le aviso mañana otra vez.", "cannot book anything"),
    ],
)
async def test_what_may_not_be_said_is_asked_for_again(refused: str, told: str) -> None:
    words, model = await come_back(refused, "Time to call Ana.")
    assert words == "Time to call Ana."
    assert len(model.asked) == 2
    assert told in str(texts(model.asked[1])[-1])


async def test_marks_are_taken_off_what_is_said() -> None:
    words, _ = await come_back("<think>hm</think>\n[vuelvo:follow-up] Time to call Ana.")
    assert words == "Time to call Ana."


@pytest.mark.parametrize(
    ("is_work", "language", "words"),
    [
        (False, "en", "Reminder: call Ana"),
        (False, "es", "Recordatorio: call Ana"),
        (False, "pt", "Lembrete: call Ana"),
        (True, "en", "I said I would come back to you about this, but I could not finish it: call Ana"),
        (True, "es", "Le dije que volvería con esto, pero no he podido terminarlo: call Ana"),
        (True, "pt", "Eu disse que voltaria com isto, mas não consegui terminar: call Ana"),
        (False, "fr", "Reminder: call Ana"),
    ],
)
async def test_when_the_model_finds_no_words_the_stored_ones_go_out(is_work: bool, language: str, words: str) -> None:
    assert stored_words(language, "call Ana", is_work=is_work) == words
    told, model = await come_back("I will get back to you.", is_work=is_work, language=language)
    assert told == words
    assert len(model.asked) == 3


async def test_braces_in_what_it_is_about_are_only_words() -> None:
    assert stored_words("en", "{about} {0} 100%", is_work=False) == "Reminder: {about} {0} 100%"


async def test_a_tool_it_does_not_have_gets_it_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    call = ToolCallPart("schedule_followup", {"about": "call Ana again", "delay": "1h"})
    words, _ = await come_back(call)
    assert words == "Reminder: call Ana"
    assert "acme" in caplog.text
    assert "call Ana" not in caplog.text


@pytest.mark.parametrize("tool", ["send_message", "final_result"])
async def test_what_is_said_beside_a_call_for_a_tool_to_send_with_is_not_said_twice(tool: str) -> None:
    both = ModelResponse(parts=[TextPart("Call Ana!"), ToolCallPart(tool, {"text": "Call Ana!"})])
    words, model = await come_back(both, "Time to call Ana.")
    assert words == "Time to call Ana."
    assert len(model.asked) == 2


async def test_a_model_that_does_not_answer_is_unavailable_and_says_why() -> None:
    with pytest.raises(ModelUnavailable, match="503"):
        await come_back(ModelHTTPError(503, "model", "overloaded"))


@pytest.mark.parametrize(
    ("is_work", "section"),
    [(True, AgentSection(work_timeout=0.05)), (False, AgentSection(answer_timeout=0.05))],
    ids=["work", "reminder"],
)
async def test_a_model_that_takes_too_long_is_unavailable(is_work: bool, section: AgentSection) -> None:
    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.Event().wait()
        raise AssertionError("it thinks for ever")

    with pytest.raises(ModelUnavailable, match=r"within 0\.05 seconds"):
        await write(
            returning_agent(),
            FunctionModel(think),
            a_voice(section=section),
            [],
            about="call Ana",
            is_work=is_work,
            booked_at=SUNDAY,
        )
