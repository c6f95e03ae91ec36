"""One run of a Pydantic AI agent, the same for a live turn and for a follow-up: limits, streaming, errors in our words."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, TypeVar

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    FallbackExceptionGroup,
    ModelAPIError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits

from agent.errors import ModelUnavailable, NothingToSay
from agent.speech import echoes

log = logging.getLogger(__name__)

LIMITS = UsageLimits(request_limit=12, tool_calls_limit=24)
"""Requests to the model and calls of tools in one run: a model that goes round in circles is stopped."""
RETRIES = 2
"""How often a run may ask the model again after it was refused."""

LONGEST_WORDS = 300
"""Characters kept of what a provider says is wrong: it may be a whole page."""

OnText = Callable[[str], None]
Context = TypeVar("Context")


async def run(
    agent: Agent[Context, str],
    model: Model[Any],
    prompt: str,
    *,
    context: Context,
    instructions: str,
    history: Sequence[ModelMessage],
    seconds: float,
    on_text: OnText | None = None,
) -> str:
    """Return what the agent says. With `on_text` the model's answer is streamed, and each piece of text is handed on.

    A streamed run goes through all of its events, so it does not end at the first text while a tool's turn is to come. Its
    pieces are raw: reasoning, and answers that are refused and asked for again, are among them; only what is returned holds.
    Raises ModelUnavailable when the model did not answer, NothingToSay when what it answered cannot be used.
    """

    async def hand_on(_: RunContext[Context], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if on_text is None:
                continue
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                on_text(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                on_text(event.delta.content_delta)

    try:
        async with asyncio.timeout(seconds):
            result = await agent.run(
                prompt,
                model=model,
                deps=context,
                instructions=instructions,
                message_history=list(history),
                usage_limits=LIMITS,
                event_stream_handler=hand_on if on_text else None,
            )
    except TimeoutError as problem:
        raise ModelUnavailable(f"the model did not answer within {seconds:g} seconds") from problem
    except (ModelAPIError, FallbackExceptionGroup) as problem:
        raise ModelUnavailable(f"the model did not answer: {_words(problem, model, instructions, prompt)}") from problem
    except (UnexpectedModelBehavior, UsageLimitExceeded) as problem:
        words = _words(problem, model, instructions, prompt)
        raise NothingToSay(f"the model's answer cannot be used: {words}") from problem
    except AgentRunError as problem:
        words = _words(problem, model, instructions, prompt)
        raise ModelUnavailable(f"the run of the model ended early: {words}") from problem
    except Exception as problem:  # providers' libraries stumble over an answer of an unexpected shape (no choices)
        if not _is_of_the_model(problem):
            raise
        raise ModelUnavailable(f"the model's answer is none: {type(problem).__name__}") from problem
    return result.output


def _words(problem: AgentRunError | FallbackExceptionGroup, model: Model[Any], *told: str) -> str:
    """Return what a provider says is wrong, fit for a log: in one line, without the key, and not the request over again."""
    words = problem.message
    key = getattr(getattr(model, "client", None), "api_key", None)
    if isinstance(key, str) and key:
        words = words.replace(key, "[key]")
    if echoes(words, told):
        status = getattr(problem, "status_code", type(problem).__name__)
        return f"{status}; the provider's words repeat what it was told and are left out"
    return words.partition("\n")[0][:LONGEST_WORDS]  # what follows may be a page, or the answer itself


def _is_of_the_model(problem: Exception) -> bool:
    """Tell whether it was raised where a model is asked; the rest are errors of tools, and rise."""
    frames = (frame for frame, _ in traceback.walk_tb(problem.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith("pydantic_ai.models.") for frame in frames)
