"""The way to a tenant's own servers: HTTPS to public addresses, and nowhere else.

The host is resolved once for a request, each address of the answer is checked, and the connection goes to one that was.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx2

from agent.section import McpServer

# Besides what `is_global` tells: it is wrong on some of these, and others lead to an address that stands within.
_INSIDE = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "169.254.0.0/16",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "224.0.0.0/3",
        ),
    )
)
_OUTSIDE_6 = ip_network("2000::/3")
_INSIDE_6 = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


class NotPublic(httpx2.ConnectError):
    """Where a server should be is no public address, or no HTTPS."""


def public_client(server: McpServer) -> httpx2.AsyncClient:
    """Return what one connection to a tenant's server goes by."""
    seconds = server.timeout.total_seconds()
    return httpx2.AsyncClient(transport=PublicOnly(), timeout=seconds, follow_redirects=False, trust_env=False)


class PublicOnly(httpx2.AsyncBaseTransport):
    """Sends HTTPS requests to public addresses. Raises NotPublic for every other."""

    def __init__(self) -> None:
        self._sends = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode("ascii")
        if request.url.scheme != "https" or request.url.port not in (None, 443) or request.url.userinfo:
            raise NotPublic("only https on port 443 is called", request=request)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            raise NotPublic("its name leads nowhere", request=request) from problem
        addresses = [str(address[0]) for *_, address in found]
        if not addresses or not all(map(is_public, addresses)):
            raise NotPublic("its name leads to an address that is not public", request=request)
        to_address = httpx2.Request(
            request.method,
            request.url.copy_with(host=addresses[0]),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._sends.handle_async_request(to_address)

    async def aclose(self) -> None:
        await self._sends.aclose()


def is_public(given: str) -> bool:
    """Tell whether an address is one of the internet's, and no way to one that is not."""
    try:
        address: IPv4Address | IPv6Address = ip_address(given)
    except ValueError:
        return False
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, IPv6Address):
        return address in _OUTSIDE_6 and address.scope_id is None and not any(address in net for net in _INSIDE_6)
    return not any(address in net for net in _INSIDE)
