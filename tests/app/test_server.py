"""The outer door: what half a request costs, and that it costs nobody else anything."""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from app.cli.serve import open_port
from app.server import MOST_CONNECTIONS, Limits, Server, allow_files
from channels.request import Problem, read_body
from tests.support.asgi import a_port
from tests.support.process import serving

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: vuelvo.test\r\nX-Slow: "
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: vuelvo.test\r\nContent-Length: 10\r\n\r\nhalf"
NEVER = 3600.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A page that takes a body, and a stream that speaks when it is told to."""

    def __init__(self) -> None:
        self.spoke = asyncio.Event()
        self.address = ""
        self.half_open: list[Streams] = []

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/", self._echo, methods=["GET", "POST"]), Route("/stream", self._stream)],
            exception_handlers={Problem: lambda _, problem: problem.response()},
        )

    async def _echo(self, request: Request) -> Response:
        return PlainTextResponse(await read_body(request) or b"hello")

    async def _stream(self, _: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            yield "welcome"
            await self.spoke.wait()
            yield "news"

        return StreamingResponse(events())

    async def open(self, words: bytes = b"") -> Streams:
        """Connect, and send the beginning of a request."""
        host, port = self.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.half_open.append((reader, writer))
        writer.write(words)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def serving_within(limits: Limits) -> AsyncIterator[Site]:
    site = Site()
    with a_port() as (listener, site.address):
        server = Server(site.app, limits)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield site
        finally:
            for _, writer in site.half_open:
                writer.close()
            server.should_exit = True
            await running


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return all that comes until the other side closes."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("words", [b"", HALF_A_HEAD, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + HALF_A_HEAD])
async def test_a_request_whose_headers_do_not_end_is_closed(words: bytes) -> None:
    async with serving_within(Limits(headers=0.1)) as site:
        reader, _ = await site.open(words)
        assert (await until_closed(reader)).count(b"HTTP/1.1") == words.count(b"\r\n\r\n")


async def test_a_byte_now_and_then_buys_no_more_time() -> None:
    async with serving_within(Limits(headers=0.3)) as site:
        reader, writer = await site.open(HALF_A_HEAD)
        closed = asyncio.create_task(until_closed(reader))
        while not closed.done():
            writer.write(b"a")
            await asyncio.wait({closed}, timeout=0.02)
        assert await closed == b""


async def test_a_body_that_does_not_come_is_answered_408_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_within(Limits(body=0.1)) as site:
        reader, _ = await site.open(HALF_A_BODY)
        answer = await until_closed(reader)
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"application/problem+json" in answer
        assert b"connection: close" in answer
    assert not caplog.records


async def test_a_request_that_takes_its_time_is_answered_however_long_the_answer_takes() -> None:
    async with serving_within(Limits(connections=10, headers=0.5, body=0.5)) as site, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=site.address))
        stream = await stack.enter_async_context(http.stream("GET", "/stream"))
        chunks = stream.aiter_text()
        assert await anext(chunks) == "welcome"
        for reader, _ in [await site.open(words) for _ in range(20) for words in (HALF_A_HEAD, HALF_A_BODY)]:
            await until_closed(reader)
        site.spoke.set()
        assert await anext(chunks) == "news"


@pytest.mark.parametrize("words", [b"", HALF_A_HEAD, HALF_A_BODY])
async def test_hundreds_of_half_open_connections_push_out_each_other_and_nobody_else(words: bytes) -> None:
    limits = Limits(connections=50, headers=NEVER, body=NEVER)
    async with serving_within(limits) as site, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=site.address))
        chunks = (await stack.enter_async_context(http.stream("GET", "/stream"))).aiter_text()
        assert await anext(chunks) == "welcome"
        readers = [(await site.open(words))[0] for _ in range(300)]
        assert (await http.post("/", content=b"anyone there?")).text == "anyone there?"
        for reader in readers[:250]:
            await until_closed(reader)
        site.spoke.set()
        assert await anext(chunks) == "news"


async def test_who_sends_a_body_slowly_is_not_pushed_out_by_those_who_ask_nothing() -> None:
    async with serving_within(Limits(connections=20, headers=NEVER, body=NEVER)) as site:
        uploading, writer = await site.open(HALF_A_BODY)
        for _ in range(40):
            await site.open()
        async with httpx.AsyncClient(base_url=site.address) as http:
            assert (await http.get("/")).text == "hello"
        writer.write(b"done!!")
        await writer.drain()
        assert (await uploading.readline()) == b"HTTP/1.1 200 OK\r\n"


async def test_when_all_are_being_served_another_is_refused_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving_within(Limits(connections=2)) as site, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=site.address))
        streams = [(await stack.enter_async_context(http.stream("GET", "/stream"))).aiter_text() for _ in range(2)]
        for _ in range(3):
            reader, _ = await site.open()
            assert (await until_closed(reader)).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "ulimit -n" in caplog.text
        site.spoke.set()
        assert ["".join([text async for text in stream]) for stream in streams] == ["welcomenews"] * 2
        assert (await http.get("/")).text == "hello"


async def test_a_connection_kept_alive_serves_request_after_request() -> None:
    async with serving_within(Limits(connections=1)) as site, httpx.AsyncClient(base_url=site.address) as http:
        assert [(await http.post("/", content=str(number))).text for number in range(5)] == ["0", "1", "2", "3", "4"]


def test_connections_leave_files_to_everything_else() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    try:
        connections = allow_files()
        files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert files == hard
        assert 0 < connections <= min(MOST_CONNECTIONS, hard * 3 / 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_the_service_answers_amid_more_half_open_connections_than_it_may_have_files(
    tmp_path: Path, database_url: str
) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": "a secret for the tests of the service"}
    async with serving(directory=tmp_path, environ=environ, files=400) as (process, url):
        site = Site()
        site.address = url
        try:
            readers = [(await site.open(HALF_A_BODY))[0] for _ in range(600)]
            async with httpx.AsyncClient(base_url=url) as http:
                assert (await http.get("/readyz")).status_code == 200
            for reader in readers[:250]:
                await until_closed(reader)
        finally:
            for _, writer in site.half_open:
                writer.close()
    assert not [line for line in process.said if "Too many open files" in line or "Traceback" in line]


async def test_only_a_proxy_that_is_named_is_believed_for_whom_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def who(request: Request) -> Response:
        return PlainTextResponse(f"{request.client.host if request.client else None} {request.url.scheme}")

    told = []
    for trusted in ((), ("10.0.0.0/8",), ("127.0.0.1/32", "10.0.0.0/8")):
        async with AsyncExitStack() as stack:
            listener, address = stack.enter_context(a_port())
            server = Server(Starlette(routes=[Route("/", who)]), Limits(), trusted)
            running = asyncio.create_task(server.serve(sockets=[listener]))
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=address))
            for claim in ("203.0.113.7", "6.6.6.6, 203.0.113.7, 10.1.2.3", "nonsense"):
                headers = {"X-Forwarded-For": claim, "X-Forwarded-Proto": "https"}
                told.append((await http.get("/", headers=headers)).text)
            server.should_exit = True
            await running
    assert told[:6] == ["127.0.0.1 http"] * 6
    assert told[6:] == ["203.0.113.7 https", "203.0.113.7 https", "nonsense https"]


async def test_a_proxy_is_known_on_a_socket_of_both_families_too_and_whatever_it_writes_around_addresses() -> None:
    async def who(request: Request) -> Response:
        return PlainTextResponse(request.client.host if request.client else "nobody")

    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
        listener.listen()
        server = Server(Starlette(routes=[Route("/", who)]), Limits(), ("127.0.0.1/32", "10.0.0.0/8", "fd00::/8"))
        running = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
            told = [
                (await http.get("/", headers=[("X-Forwarded-For", line) for line in lines])).text
                for lines in (
                    ["203.0.113.7"],
                    ["203.0.113.7:5512, 10.1.2.3:443"],
                    ["203.0.113.7, ::ffff:10.1.2.3, [fd00::7]:443"],
                    ["6.6.6.6", "203.0.113.7", "10.1.2.3"],
                    ["[2001:db8::7]:5512, fd00::1"],
                )
            ]
        server.should_exit = True
        await running
    assert told == [*["203.0.113.7"] * 4, "2001:db8::7"]


async def test_what_a_served_port_takes_in_sends_an_answer_s_body_without_waiting_for_its_head_to_be_acknowledged() -> (
    None
):
    taken = asyncio.get_running_loop().create_future()

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            found = transport.get_extra_info("socket")
            taken.set_result(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with open_port("127.0.0.1", 0) as listening:
        server = await asyncio.get_running_loop().create_server(Door, sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await taken
        writer.close()
        server.close()
        await server.wait_closed()
