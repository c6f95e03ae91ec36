"""A model that says what the test tells it to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

Line = str | ToolCallPart | Exception | Callable[[list[ModelMessage]], str]


def books(about: str = "call Ana", **when: str) -> ToolCallPart:
    """The model calls schedule_followup."""
    return ToolCallPart("schedule_followup", {"about": about, **when})


def is_followup(messages: list[ModelMessage]) -> bool:
    """Tell whether the model is asked to come back rather than to answer: only our frame can hold that mark."""
    return any(
        isinstance(part, UserPromptPart) and str(part.content).startswith("[vuelvo:follow-up]")
        for message in messages
        for part in message.parts
    )


class Script:
    """Says its lines in order, one a request; the last one again and again. Follow-ups have lines of their own."""

    def __init__(
        self,
        *lines: Line,
        followups: tuple[Line, ...] = ("Here is your reminder: call Ana.",),
        stops_at: int | None = None,
    ) -> None:
        """The request numbered `stops_at` (from 1) closes the gate, and so waits for the test."""
        self._stops_at = stops_at
        self._lines, self._followups = list(lines) or ["Hello."], list(followups)
        self.asked: list[list[ModelMessage]] = []
        self.tools: list[list[str]] = []
        self.reached = asyncio.Event()
        """Set when the model is asked."""
        self.gate = asyncio.Event()
        """The model answers turns while it is set."""
        self.followup_gate = asyncio.Event()
        """The model answers follow-ups while it is set."""
        self.gate.set()
        self.followup_gate.set()

    @property
    def model(self) -> FunctionModel:
        """This script as a model, streamed or not."""
        return FunctionModel(self._answer, stream_function=self._stream, model_name="script")

    def asked_for_followups(self) -> int:
        """Return how often the model was asked to come back."""
        return sum(is_followup(messages) for messages in self.asked)

    async def _line(self, messages: list[ModelMessage], info: AgentInfo) -> str | ToolCallPart:
        self.asked.append(messages)
        self.tools.append(sorted(tool.name for tool in info.function_tools))
        if len(self.asked) == self._stops_at:
            self.gate.clear()
        self.reached.set()
        comes_back = is_followup(messages)
        await (self.followup_gate if comes_back else self.gate).wait()
        lines = self._followups if comes_back else self._lines
        line = lines.pop(0) if len(lines) > 1 else lines[0]
        if isinstance(line, Exception):
            raise line
        return line(messages) if callable(line) else line

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        line = await self._line(messages, info)
        return ModelResponse(parts=[TextPart(line) if isinstance(line, str) else line])

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        line = await self._line(messages, info)
        if isinstance(line, ToolCallPart):
            yield {
                0: DeltaToolCall(name=line.tool_name, json_args=line.args_as_json_str(), tool_call_id=line.tool_call_id)
            }
        else:
            for word in line.split(" "):
                yield word + " "


def texts(messages: list[ModelMessage]) -> list[tuple[str, Any]]:
    """Return who said what in the history a model was given."""
    said: list[tuple[str, Any]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                said.append(("customer", part.content))
            elif isinstance(part, TextPart):
                said.append(("assistant", part.content))
    return said
