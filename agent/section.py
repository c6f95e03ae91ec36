"""The agent's section of a tenant's file."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, Self
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
    model_validator,
)

from store.durations import read_duration

BUILT_IN = frozenset(
    {"schedule_followup", "schedule_recurring", "list_followups", "cancel_followup", "mark_renewal", "ask_a_person"}
)
"""Our own tools, whose names no other may have."""
OURS = frozenset(
    {"accept-encoding", "connection", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding"}
)
"""Headers that tell of a call what it is."""
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
"""A place in a tool's address, to be filled from its arguments."""


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


def _template(given: str) -> str:
    """Check an address with places: they stand in its path, or are whole values of its query."""
    _https(given)
    if re.search(r"[{}]", urlsplit(given).netloc):
        raise ValueError("its host may have no place {…}: where a call goes is never an argument's to say")
    path, _, query = given.partition("?")
    pairs = [pair.partition("=")[::2] for pair in query.split("&")]
    rest = [PLACE.sub("", path), *(name + PLACE.sub("", value) for name, value in pairs)]
    if any(re.search(r"[{}]", part) for part in rest):
        raise ValueError("write a place as {name}, with letters, digits and _")
    if any(PLACE.search(value) and PLACE.fullmatch(value) is None for _, value in pairs):
        raise ValueError("a place in the query is a whole value, such as ?colour={colour}")
    return given


def _served(given: str) -> str:
    if re.search(r"[?{}]", _https(given)):
        raise ValueError("write an address without a query and without places")
    return given


def _tool_name(given: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", given) is None:
        raise ValueError("write letters a-z, digits, _ and -, at most 64, with a letter first")
    if given in BUILT_IN:
        raise ValueError("a tool of the assistant's own has this name: take another")
    return given


def _beside(given: str) -> str:
    if re.fullmatch(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}", given) is None:
        raise ValueError("write the name of a file beside this one, such as shop.openapi.yaml")
    return given


def _header(given: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9-]{1,64}", given) is None:
        raise ValueError("a header's name is letters, digits and hyphens")
    return given


def _header_value(given: SecretStr) -> SecretStr:
    if re.fullmatch(r"[ -~]{1,4000}", given.get_secret_value()) is None:
        raise ValueError("a header's value is 1 to 4000 plain characters on one line")
    return given


def _not_ours(given: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if any(name.lower() in OURS for name in given):
        raise ValueError(f"these are not yours to write: {', '.join(sorted(OURS))}")
    if len({name.lower() for name in given}) < len(given):
        raise ValueError("a header is written twice")
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


Headers = dict[Annotated[str, AfterValidator(_header)], Annotated[SecretStr, AfterValidator(_header_value)]]
Timeout = Annotated[
    timedelta,
    BeforeValidator(_timeout),
    AfterValidator(_within),
    PlainSerializer(lambda given: f"{given.total_seconds():g}s", when_used="json"),
    WithJsonSchema({"type": ["string", "number"]}),
]
Allowed = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=100)], ...], Field(min_length=1, max_length=30)
]


class McpServer(BaseModel):
    """A server of the tenant's own, whose tools its agent may use (Model Context Protocol, over HTTP)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_server_name)]
    """How its tools are called: `shop`, and so `shop__stock`."""
    url: Annotated[str, Field(max_length=2000), AfterValidator(_https)]
    allow: Allowed
    """Its tools that the model is shown, by their own names; no others are."""
    headers: Headers = {}
    """What is sent along, such as `Authorization`."""
    timeout: Timeout = timedelta(seconds=10)
    """How long one call may take."""


class HttpTool(BaseModel):
    """A tool of the tenant's own: one kind of call to an address of its."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_tool_name)]
    about: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
    """What the model is told of it."""
    url: Annotated[str, Field(max_length=2000), AfterValidator(_template)]
    """Where it is called; `{name}` stands for an argument, in the path or as a value in the query."""
    method: Method = "GET"
    input: dict[str, Any] = {"type": "object"}
    """What arguments it takes, as JSON Schema (2020-12). Other arguments than its properties are refused, unless it says else."""
    body: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    """The argument that is the JSON body. Without it the body of POST, PUT and PATCH is an object of all that have no place
    in the address; of GET and DELETE those go into the query."""
    headers: Annotated[Headers, AfterValidator(_not_ours)] = {}
    """What is sent along, such as `Authorization`."""
    timeout: Timeout = timedelta(seconds=10)
    """How long one call may take."""


class OpenApi(BaseModel):
    """A description of a tenant's interface, of which some operations are tools. It stands in a file; what is stored is the tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_server_name)]
    """How its tools are called: `shop`, and so `shop__getOrder`."""
    file: Annotated[str, AfterValidator(_beside)]
    """OpenAPI 3.0 or 3.1, in JSON or YAML, beside the tenant's file."""
    server: Annotated[str, Field(max_length=1000), AfterValidator(_served)] | None = None
    """Where it is served; without it, where the document says."""
    allow: Allowed
    """The operations that are tools, by their `operationId`; no others are."""
    headers: Annotated[Headers, AfterValidator(_not_ours)] = {}
    """What is sent along with each, such as `Authorization`."""
    timeout: Timeout = timedelta(seconds=10)
    """How long one call may take."""


def _once(kind: str, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two {kind} have the name {twice[0]}")


def _servers_once(given: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    _once("servers", [server.name for server in given])
    return given


def _tools_once(given: tuple[HttpTool, ...]) -> tuple[HttpTool, ...]:
    _once("tools", [tool.name for tool in given])
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
    mcp: Annotated[tuple[McpServer, ...], Field(max_length=5), AfterValidator(_servers_once)] = ()
    """Servers of the tenant's own, whose tools its agent may use."""
    tools: Annotated[tuple[HttpTool, ...], Field(max_length=60), AfterValidator(_tools_once)] = ()
    """Tools of the tenant's own, called over HTTP."""
    openapi: Annotated[tuple[OpenApi, ...], Field(max_length=5)] = ()
    """Descriptions of more of them. Once a file is read, they stand among `tools`."""

    @model_validator(mode="after")
    def _names_apart(self) -> Self:
        families = [*(server.name for server in self.mcp), *(described.name for described in self.openapi)]
        _once("of mcp and openapi", families)
        for tool in self.tools:
            if any(tool.name.startswith(f"{server.name}__") for server in self.mcp):
                raise ValueError(f"the tool {tool.name} is named as one of the server {tool.name.partition('__')[0]}")
        return self
