"""Other agents book, list and cancel over MCP: by HTTP in this process, and by standard input and output of a real one."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from sqlalchemy import text

from app.http import application
from app.mcp.http import origins
from app.mcp.tools import TOOLS
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from store import api_keys
from store.database import Database
from tests.app.test_functions import ANA, Server, a_key, serving
from tests.support.house import a_config, settings
from tests.support.loaded import VUELVO
from tests.support.process import start

KEY = "a secret for the tests of the service"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
TAKES = {"accept": "application/json, text/event-stream"}


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock) as server:
        yield server


@asynccontextmanager
async def an_agent(server: Server, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    """An agent's client, with a key of the tenant's (the server's own by default)."""
    transport = httpx2.ASGITransport(application(server.house.run))
    headers = {"authorization": f"Bearer {key or server.key}"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers) as http,
        Client(streamable_http_client("http://vuelvo.test/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def does(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that is to do what it is asked, and return what it answers."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def refuses(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that is to refuse, and return its words."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return words(result)


def words(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def tasks(database: Database) -> int:
    async with database.transaction() as connection:
        return int(await connection.scalar(text("select count(*) from tasks where kind <> 'turn'")) or 0)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_books_a_run_which_fires_at_its_time(server: Server, mode: str) -> None:
    async with an_agent(server, mode=mode) as client:
        booking = {"path": "/send-followup", "payload": ANA, "in": "24h", "key": "cart:c1", "idempotency_key": "e1"}
        booked = await does(client, "book_run", **booking)
        assert (booked["idempotent_replay"], booked["scheduled_at"]) == (False, "2026-11-30T14:00:00Z")
        again = await does(client, "book_run", **booking)
        assert (again["id"], again["idempotent_replay"]) == (booked["id"], True)
        found = await does(client, "list_tasks", key="cart:c1")
        assert ([one["id"] for one in found["data"]], found["total"]) == ([booked["id"]], 1)
        await server.fires(timedelta(hours=24))
        await server.house.until_state(booked["id"], "fired")
        told = await does(client, "get_task", id=booked["id"])
        assert (told["outcome"], told["result"], told["payload"]) == ("done", {"delivered": True}, ANA)
        assert told == await server.get(f"/v1/tasks/{booked['id']}"), "what MCP shows is what the API shows"


async def test_an_agent_books_a_followup_that_the_customer_gets(server: Server) -> None:
    heard = await server.house.says("hello")
    await server.house.until_heard(heard.conversation, 1)
    async with an_agent(server) as client:
        booking = {"conversation": heard.conversation, "about": "call Ana", "in": "10m", "subject": "ana"}
        booked = await does(client, "book_followup", **booking)
        assert [one["kind"] for one in (await does(client, "list_tasks", subject="ana"))["data"]] == ["followup"]
        await server.fires(timedelta(minutes=10))
        await server.house.until_state(booked["id"], "fired")
        assert "call Ana" in (await server.house.until_heard(heard.conversation, 2))[1]
        assert "nowhere to come back to" in await refuses(
            client, "book_followup", **{**booking, "conversation": 999_999}
        )


async def test_an_agent_cancels_by_a_label_and_counts_first(server: Server) -> None:
    async with an_agent(server) as client:
        ids = [
            (await does(client, "book_run", path="/stop", key=f"promo:{number}", **{"in": 3600}))["id"]
            for number in range(3)
        ]
        counted = await does(client, "cancel_tasks", key_prefix="promo:", dry_run=True)
        assert counted == {"would_cancel_count": 3}
        moved = await does(client, "reschedule", id=ids[0], at="2026-12-24T18:00:00Z")
        assert (moved["cancelled"], moved["scheduled_at"]) == (ids[0], "2026-12-24T18:00:00Z")
        done = await does(client, "cancel_tasks", key_prefix="promo:")
        assert (sorted(done["cancelled"]), done["raced"]) == ([*ids[1:], moved["id"]], [])
        assert (await does(client, "list_tasks"))["total"] == 0
        assert "only what is scheduled can be moved" in await refuses(client, "reschedule", id=ids[1], **{"in": "1h"})


async def test_each_tool_says_what_it_takes_and_what_it_returns(server: Server) -> None:
    async with an_agent(server) as client:
        shown = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert shown.keys() == {"book_followup", "book_run", "list_tasks", "get_task", "cancel_tasks", "reschedule"}
    for tool in shown.values():
        assert "Returns" in (tool.description or "")
        assert (tool.input_schema["type"], tool.input_schema["additionalProperties"]) == ("object", False)
        for name, field in tool.input_schema["properties"].items():
            assert field.get("description"), f"{tool.name}.{name} is not described"
    assert shown["book_run"].input_schema["required"] == ["path"]
    assert {"in", "at"} < shown["book_run"].input_schema["properties"].keys()
    reads = {name: tool.annotations.read_only_hint for name, tool in shown.items() if tool.annotations}
    assert [name for name, only_reads in reads.items() if only_reads] == ["list_tasks", "get_task"]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("book_run", {"path": "/nowhere", "in": "5m"}, "there is no function at '/nowhere'"),
        ("book_run", {"path": "/send-followup", "in": "5m", "payload": {"user": "ana"}}, "cart: Field required"),
        ("book_run", {"path": "/send-followup", "payload": ANA}, "one of the two"),
        ("book_run", {"path": "/send-followup", "payload": ANA, "in": "30m1h"}, "30m1h"),
        ("book_run", {"path": "/send-followup", "payload": ANA, "at": "2020-01-01T00:00:00Z"}, "which is past"),
        ("book_run", {"path": "/stop", "in": 401 * 86_400}, "more than 400 days away"),
        ("book_run", {"path": "/send-followup", "payload": {**ANA, "cart": "x" * 65_600}, "in": "5m"}, "65,536"),
        ("book_run", {"path": "/send-followup", "payload": "text", "in": "5m"}, "payload"),
        ("book_run", {"in": "5m"}, "path: Field required"),
        ("book_run", {"path": "/stop", "in": "5m", "key": "k\0"}, "key is a text"),
        ("book_run", {"path": "/stop", "in": "5m", "tenant": "globex"}, "tenant: Extra inputs"),
        (
            "book_followup",
            {"conversation": "1", "about": "x", "in": "5m"},
            "conversation: Input should be a valid integer",
        ),
        ("book_followup", {"conversation": 1, "about": "", "in": "5m"}, "about: String should have at least 1"),
        ("list_tasks", {"status": "sleeping"}, "there is no status 'sleeping'"),
        ("list_tasks", {"per_page": 101}, "per_page is a number from 1 to 100"),
        ("list_tasks", {"key": "\0"}, "zero byte"),
        ("get_task", {"id": 999_999}, "there is no task 999999"),
        ("get_task", {"id": 2**63}, "id: Input should be less than or equal to"),
        ("cancel_tasks", {}, "exactly one of subject, key, key_prefix"),
        ("cancel_tasks", {"subject": "a", "key": "b"}, "not subject and key"),
        ("reschedule", {"id": 999_999, "in": "5m"}, "there is no task 999999"),
        ("list_conversations", {}, "there is no tool 'list_conversations'"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_the_apis_words(
    server: Server, database: Database, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with an_agent(server) as client:
        assert said in await refuses(client, tool, **arguments)
    assert await tasks(database) == 0


async def test_another_tenants_key_sees_and_moves_nothing(server: Server, database: Database) -> None:
    heard = await server.house.says("hello")
    await apply_tenants(server.house.service, [a_config("globex")])
    theirs = await a_key(database, "globex")
    async with an_agent(server) as client, an_agent(server, theirs) as other:
        booked = await does(client, "book_run", path="/stop", key="k", subject="s", **{"in": "1h"})
        assert (await does(other, "list_tasks"))["total"] == 0
        assert f"there is no task {booked['id']}" in await refuses(other, "get_task", id=booked["id"])
        assert "there is no task" in await refuses(other, "reschedule", id=booked["id"], **{"in": "2h"})
        assert await does(other, "cancel_tasks", subject="s") == {"cancelled": [], "raced": []}
        said = await refuses(other, "book_followup", conversation=heard.conversation, about="x", **{"in": "1h"})
        assert "the tenant has none numbered" in said
        assert (await does(client, "get_task", id=booked["id"]))["status"] == "scheduled"


async def test_a_key_is_shown_and_may_call_what_its_scopes_allow(server: Server, database: Database) -> None:
    allowed = {"book": {"path": "/stop", "in": "1h"}, "read": {}, "cancel": {"key": "k"}}
    first = {"book": "book_run", "read": "list_tasks", "cancel": "cancel_tasks"}
    for scope in api_keys.SCOPES:
        async with an_agent(server, await a_key(database, "acme", scope)) as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
            assert shown == {name for name, tool in TOOLS.items() if tool.scope == scope}
            for other, arguments in allowed.items():
                if other == scope:
                    await does(client, first[other], **arguments)
                else:
                    said = await refuses(client, first[other], **arguments)
                    assert f"This key does not allow to {other}, only to {scope}" in said


async def test_without_a_key_that_opens_something_there_is_only_401(server: Server, database: Database) -> None:
    gone = await a_key(database, "acme")
    async with database.transaction() as connection:
        await api_keys.revoke(connection, "acme", gone.split("_")[2])
    for key in (None, "nonsense", gone):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        answer = await server.http.post("/mcp", json=HELLO, headers={**TAKES, **headers})
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_page_of_another_origin_may_not_call(server: Server) -> None:
    async def code(**headers: str) -> int:
        return (await server.call("/mcp", HELLO, **TAKES, **headers)).status_code

    port = server.house.run.settings.port
    assert [await code(), await code(origin=f"http://localhost:{port}")] == [200, 200]
    for origin in ("http://evil.example", "null", f"http://evil.example:{port}", f"https://localhost:{port}", ""):
        assert await code(origin=origin) == 403
    assert await code(origin="http://vuelvo.test", host="vuelvo.test") == 403, "a rebound name is its own host"


def test_the_services_own_origin_may_call(tmp_path: Path) -> None:
    assert "https://vuelvo.example" in origins(settings(tmp_path, public_url="https://Vuelvo.example/base"))


async def test_there_is_no_stream_and_no_session_over_http(server: Server) -> None:
    for method in ("GET", "DELETE"):
        assert (await server.call("/mcp", method=method)).status_code == 405
    opened = await server.call("/mcp", HELLO, **TAKES)
    assert "mcp-session-id" not in opened.headers
    assert opened.json()["result"]["serverInfo"]["name"] == "vuelvo"


async def test_a_body_that_is_too_large_or_no_message_is_refused(server: Server) -> None:
    assert (await server.call("/mcp", {**HELLO, "more": "x" * 270_000}, **TAKES)).status_code == 413
    bodies: list[Any] = [None, [], 7, {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "id": 1, "method": "none/such"}]
    for body in bodies:
        answer = await server.call("/mcp", body, **TAKES)
        assert answer.status_code < 500
        assert answer.is_error or "error" in answer.json()


async def test_a_surprise_is_told_without_its_words(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(server.house.run.functions.deferred, "find", breaks)
    async with an_agent(server) as client:
        said = await refuses(client, "list_tasks")
    assert "secret" not in said
    assert "Something went wrong here" in said


@asynccontextmanager
async def a_process(directory: Path, url: str, **environ: str) -> AsyncIterator[Client]:
    """A client of a real `vuelvo mcp`, which is started as agents start it."""
    (directory / "shop.py").write_text(
        "from app.functions import App\n\napp = App(time_zone='UTC')\n\n"
        "@app.function('/stop')\nasync def stop(given):\n    print('a stray line', flush=True)\n"
    )
    env = {"VUELVO_DATABASE_URL": url, "VUELVO_SECRET_KEY": KEY, "VUELVO_APP": "shop:app", **environ}
    python = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    parameters = StdioServerParameters(command=str(VUELVO), args=["mcp"], env={**python, **env}, cwd=directory)
    async with Client(parameters) as client:
        yield client


async def test_an_agent_books_through_a_process_that_it_starts(
    server: Server, database: Database, database_url: str, tmp_path: Path
) -> None:
    key = await a_key(database, "acme")
    async with a_process(tmp_path, database_url, VUELVO_MCP_KEY=key) as client:
        assert len((await client.list_tools()).tools) == len(TOOLS)
        booked = await does(client, "book_run", path="/stop", key="k", **{"in": "1h"})
        assert (await does(client, "list_tasks", key="k"))["total"] == 1
        assert "there is no function at '/nowhere'" in await refuses(client, "book_run", path="/nowhere", **{"in": 5})
        assert await does(client, "cancel_tasks", key="k") == {"cancelled": [booked["id"]], "raced": []}
        async with database.transaction() as connection:
            await api_keys.revoke(connection, "acme", key.split("_")[2])
        assert "opens nothing" in await refuses(client, "list_tasks")
        with pytest.raises(MCPError, match="opens nothing"):
            await client.list_tools(cache_mode="refresh")
    assert (await server.get(f"/v1/tasks/{booked['id']}"))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("more", "environ", "said"),
    [
        ((), {}, "VUELVO_MCP_KEY"),
        ((), {"VUELVO_MCP_KEY": "vk_acme_secret"}, "opens nothing"),
        (("--key-file", "none"), {}, "none: it cannot be read"),
    ],
)
async def test_without_a_key_the_process_ends_with_a_clear_line(
    database_url: str, tmp_path: Path, more: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    base = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    process = await start("mcp", *more, directory=tmp_path, environ={**base, **environ})
    assert await process.ended() == 2
    (line,) = [line for line in process.said if line.startswith("vuelvo: ")]
    assert said in line
    assert "secret" not in line


@pytest.mark.parametrize("how", ["end_input", "interrupt", "stop"])
async def test_with_the_key_in_a_file_it_serves_until_its_input_ends_or_it_is_asked_to_end(
    server: Server, database: Database, database_url: str, tmp_path: Path, how: str
) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    (tmp_path / "key").write_text(await a_key(database, "acme") + "\n")
    process = await start("mcp", "--key-file", "key", directory=tmp_path, environ=environ, can_write=True)
    process.write('{"jsonrpc":"2.0","id":1,"method":"ping"}')
    await process.until_said('"id":1')
    if how == "stop":
        assert await process.stop() == 0
    else:
        getattr(process, how)()
        assert await process.ended() == 0
    assert not any("Traceback" in line or "Fatal" in line for line in process.said)


def test_nothing_but_its_own_command_and_its_first_request_loads_the_library() -> None:
    program = (
        "import sys; from importlib import import_module; from app.cli import COMMANDS\n"
        "for name, (module, _) in COMMANDS.items():\n    name == 'mcp' or import_module(module)\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types', 'fastmcp')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_many_agents_at_once_book_once_under_one_idempotency_key(server: Server, database: Database) -> None:
    async with an_agent(server) as one, an_agent(server, mode="legacy") as two:
        booking = {"path": "/stop", "in": "1h", "idempotency_key": "event-7"}
        first, second = await does(one, "book_run", **booking), await does(two, "book_run", **booking)
        assert first["id"] == second["id"]
        said = await refuses(two, "book_run", **{**booking, "payload": {"another": 1}})
        assert "idempotency" in said
    assert await tasks(database) == 1
