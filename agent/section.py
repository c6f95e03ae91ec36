"""The agent's section of a tenant's file."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
)

from store.durations import read_duration


def _server_name(given: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9-]{0,19}", given) is None:
        raise ValueError("write small letters a-z, digits and hyphens, at most 20, with a letter first")
    return given


def _https(given: str) -> str:
    words = "write an address such as https://tools.example/mcp, on port 443, without a user or #"
    try:
        parts = urlsplit(given)
        is_plain = parts.scheme == "https" and parts.port in (None, 443) and bool(parts.hostname)
    except ValueError:
        raise ValueError(words) from None
    if not is_plain or "@" in parts.netloc or re.search(r"[#\s\\]", given):
        raise ValueError(words)
    return given


def _header(given: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9-]{1,64}", given) is None:
        raise ValueError("a header's name is letters, digits and hyphens")
    return given


def _header_value(given: SecretStr) -> SecretStr:
    if re.fullmatch(r"[ -~]{1,4000}", given.get_secret_value()) is None:
        raise ValueError("a header's value is 1 to 4000 plain characters on one line")
    return given


def _timeout(given: Any) -> Any:
    if not isinstance(given, str | int | float) or isinstance(given, bool):
        return given
    try:
        return read_duration(given)
    except OverflowError:
        return timedelta.max


def _within(given: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= given <= timedelta(minutes=2):
        raise ValueError("write 1 second to 2 minutes, such as 10s")
    return given


class McpServer(BaseModel):
    """A server of the tenant's own, whose tools its agent may use (Model Context Protocol, over HTTP)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_server_name)]
    """How its tools are called: `shop`, and so `shop__stock`."""
    url: Annotated[str, Field(max_length=2000), AfterValidator(_https)]
    allow: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=100)], ...], Field(min_length=1, max_length=30)
    ]
    """Its tools that the model is shown, by their own names; no others are."""
    headers: dict[Annotated[str, AfterValidator(_header)], Annotated[SecretStr, AfterValidator(_header_value)]] = {}
    """What is sent along, such as `Authorization`."""
    timeout: Annotated[
        timedelta,
        BeforeValidator(_timeout),
        AfterValidator(_within),
        PlainSerializer(lambda given: f"{given.total_seconds():g}s", when_used="json"),
        WithJsonSchema({"type": ["string", "number"]}),
    ] = timedelta(seconds=10)
    """How long one call may take."""


def _named_once(given: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    names = [server.name for server in given]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two servers have the name {twice[0]}")
    return given


class AgentSection(BaseModel):
    """Who the agent is and how it thinks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(default="", max_length=20_000)
    """The tenant's voice: what the business is, what the agent may say."""
    model: str | None = None
    """A Pydantic AI model name such as `openai:gpt-5-mini`; without it the service's."""
    history: int = Field(default=40, ge=2, le=500)
    """How many messages of the conversation the model is given."""
    answer_timeout: float = Field(default=60, gt=0, le=600)
    """Seconds one attempt at writing may take."""
    work_timeout: float = Field(default=900, gt=0, le=3600)
    """Seconds one attempt at a follow-up's work may take."""
    unwritten: Literal["stored_words", "nothing"] = "stored_words"
    """What goes out for a follow-up when no attempt at writing it succeeded."""
    mcp: Annotated[tuple[McpServer, ...], Field(max_length=5), AfterValidator(_named_once)] = ()
    """Servers of the tenant's own, whose tools its agent may use."""
