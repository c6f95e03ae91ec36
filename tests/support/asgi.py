"""The service's HTTP side as a test reaches it: without a network, or on a real port."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def calling(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls an application directly; what goes wrong inside is an answer, as it is behind a server."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://vuelvo.test") as http:
        yield http


@contextmanager
def a_port() -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and its address, which an application can be told before it is served there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host, port = listener.getsockname()
        yield listener, f"http://{host}:{port}"


@asynccontextmanager
async def served(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a socket for as long as the block runs."""
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
