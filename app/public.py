"""What a connection to one of a tenant's own servers goes by: HTTPS to public addresses, as for every call to the outside.

The protocol's library brings its own HTTP client. What may be called is told by `app.outside`, request by request; the
connection goes to an address that was checked.
"""

from functools import partial

import httpx2

from agent.section import McpServer
from agent.servers import MakeClient
from app.outside import Outside, OutsideError, checked_url


class NotPublic(httpx2.ConnectError):
    """Where a server should be is nothing that may be called, or was not found."""


def client_maker(outside: Outside) -> MakeClient:
    """Return what makes a client that reaches what `outside` lets be called, and nothing else."""
    return partial(_client, outside)


def _client(outside: Outside, server: McpServer) -> httpx2.AsyncClient:
    seconds = server.timeout.total_seconds()
    return httpx2.AsyncClient(transport=PublicOnly(outside), timeout=seconds, follow_redirects=False, trust_env=False)


class PublicOnly(httpx2.AsyncBaseTransport):
    """Sends requests to addresses that are checked. Raises NotPublic for every other."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._sends = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            host = checked_url(str(request.url)).raw_host.decode("ascii")
            address, *_ = await self._outside.addresses(host)
        except OutsideError as problem:
            raise NotPublic(str(problem), request=request) from problem
        to_address = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._sends.handle_async_request(to_address)

    async def aclose(self) -> None:
        await self._sends.aclose()
