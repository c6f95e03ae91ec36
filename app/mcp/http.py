"""`POST /mcp`: the tools over streamable HTTP, for whoever sends a tenant's key as Bearer."""

import asyncio
from functools import partial
from importlib import import_module
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api.access import BODY_LIMIT, key_of, token_of
from app.runs import Functions
from app.settings import Settings
from app.tenants_file import TenantConfig
from channels.request import Problem, read_body
from store.api_keys import ApiKey


def mcp_routes(functions: Functions, settings: Settings) -> list[Route]:
    """Return the route of the protocol. There is no stream to GET and no session to DELETE: both are 405."""
    return [Route("/mcp", partial(_serve, functions, origins(settings)), methods=["POST"])]


def origins(settings: Settings) -> frozenset[str]:
    """Return the origins of pages that may call: the service's own, and this machine's on the service's port.

    A page that a name rebound to this machine has loaded carries that name as its origin, so the request's own host tells nothing.
    """
    here = {f"http://{host}:{settings.port}" for host in ("localhost", "127.0.0.1", "[::1]")}
    if settings.public_url is not None:
        parts = urlsplit(settings.public_url)
        here.add(f"{parts.scheme}://{parts.netloc}".lower())
    return frozenset(here)


async def _serve(functions: Functions, allowed: frozenset[str], request: Request) -> Response:
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() not in allowed:
        raise Problem(
            403, "Pages of this origin may not call here: call from a program, or from the service's own address."
        )
    found = await key_of(functions.service, token_of(request))
    return _Exchange(functions, found, await read_body(request, BODY_LIMIT))


class _Exchange(Response):
    """What the protocol's library answers, which it sends by itself."""

    def __init__(self, functions: Functions, found: tuple[ApiKey, TenantConfig], body: bytes) -> None:
        super().__init__()
        self._functions, self._found, self._given = functions, found, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def who() -> tuple[ApiKey, TenantConfig]:
            return self._found

        # Half a second of importing, which only those wait for who use it.
        protocol = await asyncio.to_thread(import_module, "app.mcp.protocol")
        await protocol.exchange(self._functions, who, self._given, scope, receive, send)
