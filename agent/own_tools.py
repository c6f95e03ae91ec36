"""The tools of one server of a tenant's own, as the model sees them.

Only what the tenant allows by name is shown. What a tool returns is data in a frame, never an instruction. A server that is
down, slow or answers nonsense costs a run the tool and nothing else: the model is told that it cannot be used just now.

Pydantic AI's own toolset for such servers is not used: the library it stands on reads the environment and a `.env` file, sets up
the log and changes the protocol's classes when it is imported. This is the official client, which that one wraps.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, Tool
from pydantic_ai import RunContext, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from agent.context import TurnContext
from agent.prompt import defang, result_frame
from agent.run import RETRIES
from agent.section import McpServer
from agent.servers import LARGEST_SCHEMA, LONGEST_DESCRIPTION, NOT_NOW, MakeClient, cut, is_data, tool_name

log = logging.getLogger(__name__)

LISTING = 3.0
"""Seconds a server has to say what tools it has: a customer is waiting."""
KNOWN_FOR = 300.0
"""Seconds for which that is believed."""
DOWN_FOR = 30.0
"""Seconds for which a server that did not say is not asked again."""
MOST_PAGES = 10
"""Pages of tools that are read of a server."""

_ANY = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""What a tool takes is the server's to check."""

Came = TypeVar("Came")


class OwnTools(AbstractToolset[Any]):
    """One server's tools, for every run of its tenant."""

    def __init__(
        self, tenant: str, server: McpServer, make_client: MakeClient, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tenant, self._server, self._make_client, self._now = tenant, server, make_client, now
        self._shown: dict[str, ToolsetTool[Any]] = {}
        self._names: dict[str, str] = {}
        """The server's name of each tool that is shown."""
        self._is_down = False
        self._look_again_at = now()
        self._looking = asyncio.Lock()
        self._left: set[asyncio.Task[Any]] = set()
        """What is under way, and what was given up and is still ending."""

    @property
    def id(self) -> str:
        return f"mcp-{self._server.name}"

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        await self._look()
        if self._is_down:
            return (
                f"The tools of {self._server.name} cannot be used just now. Where they would be needed, say that this cannot"
                " be looked up at the moment; never make up what they would have answered."
            )
        if not self._shown:
            return None
        return is_data(f"whose names begin with {self._server.name}__")

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self._look()
        return self._shown

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        if isinstance(ctx.deps, TurnContext):
            ctx.deps.has_called = True
        allowed = self._names.get(name, name)
        try:
            result = await self._within(self._server.timeout.total_seconds(), self._call(allowed, tool_args))
        except Exception as problem:
            self._complain(f"its tool {allowed!r} cannot be used", problem)
            raise ToolFailed(NOT_NOW) from problem
        words = result_frame(_words(result))
        if result.is_error:
            raise ToolFailed(words)
        return words

    async def _look(self) -> None:
        """Ask what tools there are, unless that is known."""
        async with self._looking:
            if self._now() < self._look_again_at:
                return
            try:
                found = await self._within(min(LISTING, self._server.timeout.total_seconds()), self._list())
                self._show({tool.name: tool for tool in found})
                self._is_down, self._look_again_at = False, self._now() + KNOWN_FOR
            except Exception as problem:
                self._complain("its tools cannot be listed", problem)
                self._shown, self._is_down, self._look_again_at = {}, True, self._now() + DOWN_FOR

    def _show(self, found: Mapping[str, Tool]) -> None:
        self._shown, self._names = {}, {}
        for allowed in self._server.allow:
            tool = found.get(allowed)
            name = tool_name(self._server.name, allowed)
            if tool is None or name in self._shown:
                self._complain(f"it has no tool {allowed!r}")
                continue
            schema = json.dumps(tool.input_schema)
            if len(schema) > LARGEST_SCHEMA:
                self._complain(f"its tool {allowed!r} takes too much to be shown")
                continue
            definition = ToolDefinition(
                name=name,
                description=defang(tool.description or "")[:LONGEST_DESCRIPTION],
                parameters_json_schema=json.loads(defang(schema)),
            )
            self._names[name] = allowed
            self._shown[name] = ToolsetTool(toolset=self, tool_def=definition, max_retries=RETRIES, args_validator=_ANY)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Open a connection for one thing, so that one that hangs holds up no other."""
        async with self._make_client(self._server) as http:
            http.headers.update({name: value.get_secret_value() for name, value in self._server.headers.items()})
            seconds = self._server.timeout.total_seconds()
            transport = streamable_http_client(self._server.url, http_client=http)
            async with Client(transport, read_timeout_seconds=seconds, cache=None) as client:
                yield client

    async def _list(self) -> Sequence[Tool]:
        found: list[Tool] = []
        async with self._connected() as client:
            page = await client.list_tools()
            found += page.tools
            for _ in range(MOST_PAGES - 1):
                if page.next_cursor is None:
                    break
                page = await client.list_tools(cursor=page.next_cursor)
                found += page.tools
        return found

    async def _call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        async with self._connected() as client:
            return await client.call_tool(name, arguments)

    async def _within(self, seconds: float, doing: Coroutine[Any, Any, Came]) -> Came:
        """Return what comes of it in this time; after it, leave it to end by itself, which a server can draw out too."""
        task = asyncio.create_task(doing)
        self._left.add(task)
        task.add_done_callback(self._end)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise TimeoutError(f"it took longer than {seconds:g} seconds")
        if task.cancelled():
            raise ConnectionError("it was broken off")
        return task.result()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # so that nobody complains of one that nobody waits for any more

    def _complain(self, what: str, problem: Exception | None = None) -> None:
        while isinstance(problem, ExceptionGroup):
            problem = problem.exceptions[0]
        # Its words may be the server's, and hold anything.
        why = f": {type(problem).__name__}" if problem else ""
        log.warning("the server %r of tenant %s: %s%s", self._server.name, self._tenant, what, why)


def _words(result: CallToolResult) -> str:
    """Return what a tool has answered as one text; what is no text is only named."""
    words = "\n".join(
        part.text if isinstance(part, TextContent) else f"({part.type}, which cannot be shown here)"
        for part in result.content
    )
    if not result.content and result.structured_content is not None:
        words = json.dumps(result.structured_content, ensure_ascii=False)
    return cut(words)
