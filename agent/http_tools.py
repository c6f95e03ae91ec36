"""A tenant's own tools over HTTP, as the model sees them.

Where a call goes is the tenant's to say: an argument fills its place in a path or a query and can lead nowhere else, and what does
not fit the tool's schema is not sent. What is answered is data in a frame, never an instruction. What changes something bears the
same `Idempotency-Key` each time that one run is done, by whatever worker. How an address answers:

- 2xx: the model is shown what it says
- 4xx: the model is shown the status too, since it may have asked wrongly
- 3xx, 408, 425, 429, 5xx, or no answer: the tool cannot be used just now, and why is not the model's to know
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from pydantic_ai import ModelRetry, RunContext, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from agent.arguments import Place, closed, misfits, mistakes
from agent.context import TurnContext
from agent.prompt import defang, result_frame
from agent.run import RETRIES
from agent.section import PLACE, HttpTool
from agent.servers import LARGEST_SCHEMA, NOT_NOW, Answered, Call, cut, is_data

log = logging.getLogger(__name__)

LONGEST_URL = 2_000
LATER = (408, 425, 429)
"""Statuses that ask for the same at another time."""
WITHOUT_BODY = ("GET", "DELETE")
"""Methods whose arguments go into the query, where `body` names none."""
_ASTRAY = re.compile(r"\.{0,2}(;.*)?|.*[/\\\x00-\x1f\x7f].*", re.DOTALL)
"""What an argument in a path may not be: some servers take an encoded slash for a slash, and then go by the dots."""
_ANY = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""What a tool takes is checked by its own schema."""


class BadArgument(ValueError):
    """An argument that cannot be sent where it belongs; its words are for the model."""


class HttpTools(AbstractToolset[Any]):
    """A tenant's tools, for one run."""

    def __init__(self, tenant: str, tools: Sequence[HttpTool], call: Call, run: str) -> None:
        """`run` names the run, and the same run when it is done again."""
        self._tenant, self._call, self._run = tenant, call, run
        self._tools = {tool.name: tool for tool in tools}

    @property
    def id(self) -> str:
        return "http"

    async def get_instructions(self, ctx: RunContext[Any]) -> str:
        return is_data(", ".join(self._tools))

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: self._shown(tool) for name, tool in self._tools.items()}

    def _shown(self, tool: HttpTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool.name,
            description=defang(tool.about),
            parameters_json_schema=json.loads(defang(json.dumps(closed(tool.input)))),
            sequential=tool.method != "GET",
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=RETRIES, args_validator=_ANY)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        called = self._tools[name]
        try:
            url, body = request(called, tool_args)
        except BadArgument as problem:
            words = defang(f"Nothing was called: {problem}.")
            raise ToolFailed(words) if ctx.last_attempt else ModelRetry(words) from None
        if isinstance(ctx.deps, TurnContext) and called.method != "GET":
            ctx.deps.has_called = True
        headers = self._headers(called, tool_args, has_body=body is not None)
        try:
            answer = await self._call(called.method, url, limit=called.timeout, headers=headers, body=body or b"")
        except Exception as problem:
            self._complain(called, type(problem).__name__)  # its words may be anybody's
            raise ToolFailed(NOT_NOW) from problem
        return self._told(called, answer)

    def _headers(self, tool: HttpTool, arguments: Mapping[str, Any], *, has_body: bool) -> dict[str, str]:
        sent = {"accept": "application/json, text/*"}
        sent |= {name.lower(): value.get_secret_value() for name, value in tool.headers.items()}
        if has_body:
            sent["content-type"] = "application/json"
        if tool.method != "GET":
            same = json.dumps([self._tenant, self._run, tool.name, arguments], sort_keys=True)
            sent["idempotency-key"] = hashlib.sha256(same.encode()).hexdigest()[:32]
        return sent

    def _told(self, tool: HttpTool, answer: Answered) -> str:
        if 200 <= answer.status < 300:
            return _words(answer)
        self._complain(tool, f"it answered {answer.status}")
        if 400 <= answer.status < 500 and answer.status not in LATER:
            raise ToolFailed(f"It answered with the status {answer.status}. {_words(answer)}")
        raise ToolFailed(NOT_NOW)

    def _complain(self, tool: HttpTool, why: str) -> None:
        log.warning("the tool %r of tenant %s: %s", tool.name, self._tenant, why)


def request(tool: HttpTool, arguments: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Return the address and the body of a call. Raises BadArgument for what does not fit the tool's schema, or its place."""
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as problem:
        raise BadArgument("a number or a text among the arguments is none") from problem
    if found := mistakes(tool.input, arguments):
        raise BadArgument("; ".join(found))
    left = dict(arguments)
    body = json.dumps(left.pop(tool.body), ensure_ascii=False).encode() if tool.body in left else None
    path, _, query = tool.url.partition("?")
    in_path = {name: left.pop(name, None) for name in PLACE.findall(path)}
    path = PLACE.sub(lambda found: _in_path(found[1], in_path[found[1]]), path)
    pairs: list[str] = []
    in_query = set(PLACE.findall(query))
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        place = PLACE.fullmatch(value)
        pairs += [f"{name}={one}" for one in _in_query(place[1], arguments.get(place[1]))] if place else [pair]
    left = {name: value for name, value in left.items() if name not in in_query}
    if tool.method in WITHOUT_BODY:
        pairs += [f"{quote(name, safe='')}={one}" for name, value in left.items() for one in _in_query(name, value)]
    elif tool.body is None and (left or tool.input.get("properties", {}).keys() - {*in_path, *in_query}):
        body = json.dumps(left, ensure_ascii=False).encode()
    url = "?".join(filter(None, [path, "&".join(pairs)]))
    if len(url) > LONGEST_URL:
        raise BadArgument("the arguments are too long for an address")
    return url, body


def wrong(tool: HttpTool) -> Iterator[tuple[Place, str]]:
    """Yield what keeps a tool from being used, by its field, in words for whoever has written it."""
    path, _, query = tool.url.partition("?")
    broken = [(("input", *place), words) for place, words in misfits(tool.input)]
    if broken:
        yield from broken
        return
    takes = tool.input.get("properties", {})
    if tool.input.get("type") != "object":
        yield ("input", "type"), "the arguments of a tool are an object: write type: object"
    if len(json.dumps(tool.input)) > LARGEST_SCHEMA:
        yield ("input",), f"it is longer than {LARGEST_SCHEMA:,} characters of JSON"
    for name in PLACE.findall(path):
        if name not in takes or name not in tool.input.get("required", ()):
            yield (
                ("url",),
                f"the place {{{name}}} needs an argument: add {name} to input.properties and to input.required",
            )
    for name in PLACE.findall(query):
        if name not in takes:
            yield ("url",), f"the place {{{name}}} needs an argument: add {name} to input.properties"
    if tool.body is not None and tool.method == "GET":
        yield ("body",), "a GET has no body"
    elif tool.body is not None and (tool.body not in takes or tool.body in PLACE.findall(tool.url)):
        yield ("body",), "it must be one of input.properties that has no place in the address"


def _in_path(name: str, value: Any) -> str:
    text = _text(name, value)
    if any(map(_ASTRAY.fullmatch, (text, unquote(text)))):  # there are servers that decode twice
        raise BadArgument(f"{name}: it may not be empty, . or .., nor hold a slash")
    return quote(text, safe="")


def _in_query(name: str, value: Any) -> list[str]:
    """Return an argument's values as they stand in a query: each of a list by itself, and nothing as nothing."""
    each = value if isinstance(value, list) else [] if value is None else [value]
    return [quote(json.dumps(one) if isinstance(one, dict | list) else _text(name, one), safe="") for one in each]


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise BadArgument(f"{name}: it must be a text or a number")


def _words(answer: Answered) -> str:
    """Return what was answered, as one text for the model."""
    if answer.body is None:
        return f"It has answered, but what it said cannot be shown: {answer.unread}."
    if not answer.body:
        return "It has answered, without a word."
    try:
        return result_frame(cut(answer.body.decode()))
    except UnicodeDecodeError:
        return "It has answered, but what it said is no text and cannot be shown."
