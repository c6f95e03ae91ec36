"""The tools as a server of the Model Context Protocol, over standard input and output or over HTTP.

Nothing is kept between two requests: over HTTP each is answered by itself, whichever replica it comes to.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.types import Message, Receive, Scope, Send

from app.mcp.tools import TOOLS, Refused, call
from app.problems import problem_of
from app.runs import Functions
from app.tenants_file import TenantConfig
from channels.request import Problem
from store.api_keys import ApiKey

Who = Callable[[], Awaitable[tuple[ApiKey, TenantConfig]]]
"""Says whose key it is that calls; raises Problem when it opens nothing (any more)."""

INSTRUCTIONS = (
    "Book, list, move and cancel what Vuelvo does at a later time for one business: follow-ups in its customers' conversations,"
    " and runs of its functions. Times are UTC unless they carry an offset."
)


def server_of(functions: Functions, who: Who) -> Server[Any]:
    """Return a server that acts for whom `who` names at each request."""

    async def asks() -> tuple[ApiKey, TenantConfig]:
        try:
            return await who()
        except Problem:
            raise
        except Exception as raised:
            raise problem_of(raised) from raised

    async def list_tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        try:
            key, _tenant = await asks()
        except Problem as problem:
            raise MCPError(INVALID_REQUEST, problem.detail) from problem
        tools = [
            Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.schema,
                annotations=ToolAnnotations(
                    read_only_hint=tool.only_reads,
                    destructive_hint=tool.destroys,
                    idempotent_hint=tool.only_reads,
                    open_world_hint=False,
                ),
            )
            for tool in TOOLS.values()
            if tool.scope in key.scopes
        ]
        return ListToolsResult(tools=tools)

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            key, tenant = await asks()
            answer = await call(functions, key, tenant, params.name, params.arguments or {})
        except (Refused, Problem) as problem:
            return CallToolResult(content=[TextContent(text=str(problem))], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    return Server(
        "vuelvo",
        version=version("vuelvo"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_lines(functions: Functions, who: Who, lines: AsyncIterator[str]) -> None:
    """Serve on standard output what comes in lines, until there are no more."""
    server = server_of(functions, who)
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def exchange(functions: Functions, who: Who, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one POST, whose body was read already."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return given.pop() if given else await receive()

    manager = StreamableHTTPSessionManager(server_of(functions, who), json_response=True, stateless=True)
    async with manager.run():
        await manager.handle_request(scope, again, send)
