"""One run of a Pydantic AI agent, the same for a live turn and for a follow-up: limits, streaming, errors in our words."""

import asyncio
import logging
import re
import traceback
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import UsageLimits

from agent.errors import HandedOver, ModelUnavailable, NothingToSay, TooSlow

log = logging.getLogger(__name__)

LIMITS = UsageLimits(request_limit=12, tool_calls_limit=24)
"""Requests to the model and calls of tools in one run: a model that goes round in circles is stopped."""
RETRIES = 2
"""How often a run may ask the model again after it was refused."""

_CODE = re.compile(r"[A-Za-z_]{1,40}|[0-9]{1,6}")
"""A provider's own short code. With letters and digits mixed it could be a key, with more digits a number to call."""

OnText = Callable[[str], None]
"""Told the whole of what the model has written of its answer so far, each time it has written more."""
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
    on_usage: Callable[[int], None] | None = None,
    toolsets: Sequence[AbstractToolset[Any]] = (),
) -> str:
    """Return what the agent says. With `on_text` the model's answer is streamed; `on_usage` is told the tokens that it took;
    `toolsets` are tools beside the agent's own.

    A streamed run goes through all of its events, so it does not end at the first text while a tool's turn is to come. What
    is told of it is raw: reasoning, and answers that are refused and asked for again, are among it; only what is returned
    holds.
    Raises ModelUnavailable when the model did not answer, TooSlow when it did not within `seconds`, NothingToSay when what it answered cannot be used,
    HandedOver when it has called `ask_a_person`.
    """

    async def hand_on(_: RunContext[Context], events: AsyncIterable[AgentStreamEvent]) -> None:
        written = ""
        async for event in events:
            if on_text is None:
                continue
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                written += event.part.content  # one answer, though a thought may have come between
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                written += event.delta.content_delta
            else:
                continue
            on_text(written)

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
                toolsets=toolsets,
            )
    except HandedOver:
        raise
    except TimeoutError as problem:
        raise TooSlow(f"the model did not answer within {seconds:g} seconds") from problem
    except (ModelAPIError, FallbackExceptionGroup) as problem:
        raise ModelUnavailable(f"the model did not answer: {_kind(problem, model)}") from problem
    except (UnexpectedModelBehavior, UsageLimitExceeded) as problem:
        raise NothingToSay(f"the model's answer cannot be used: {_kind(problem, model)}") from problem
    except AgentRunError as problem:
        raise ModelUnavailable(f"the run of the model ended early: {_kind(problem, model)}") from problem
    except Exception as problem:  # providers' libraries stumble over an answer of an unexpected shape (no choices)
        if not _is_of_the_model(problem):
            raise
        raise ModelUnavailable(f"the model's answer is none: {type(problem).__name__}") from problem
    if on_usage is not None:
        on_usage(result.usage.total_tokens)
    return result.output


def _kind(problem: Exception, model: Model[Any]) -> str:
    """Return what kind of problem it is, fit for a log: its class and its cause's, the status, the provider's short code.

    What else a provider says is left out: it may repeat the customer's words, or the key.
    """
    if isinstance(problem, FallbackExceptionGroup):
        return "; ".join(dict.fromkeys(_kind(each, model) for each in problem.exceptions))
    causes = (problem, problem.__cause__)
    said = [" from ".join(type(cause).__name__ for cause in causes if cause)]
    if isinstance(problem, ModelConnectionError):
        said.append(f"the connection to {_host(model.base_url)} failed")
    if isinstance(problem, ModelHTTPError):
        said.append(f"status {problem.status_code}")
    if isinstance(problem, ModelAPIError):
        codes = (problem.provider_error_type, problem.provider_error_code)
        said += dict.fromkeys(code for code in codes if code and _CODE.fullmatch(code))
    return ", ".join(said)


def _host(base_url: str | None) -> str:
    """Return host and port of an address, and nothing else of it."""
    try:
        parts = urlsplit(base_url or "")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return "its server"
    return f"{parts.hostname}:{port}" if parts.hostname else "its server"


def _is_of_the_model(problem: Exception) -> bool:
    """Tell whether it was raised where a model is asked; the rest are errors of tools, and rise."""
    frames = (frame for frame, _ in traceback.walk_tb(problem.__traceback__))
    return any(f"{frame.f_globals.get('__name__')}.".startswith("pydantic_ai.models.") for frame in frames)
