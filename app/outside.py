"""Calls to addresses that a tenant names: functions elsewhere, guards, later tools. None of them may lead inside.

What is inside is told by address, not by name: a host is looked up once for a call, every address of the answer is checked,
and the connection goes to one that was checked; its certificate is still asked to prove the name. Redirects are not
followed and no proxy is used. Of an answer no more is read than is kept, and what is compressed is not unfolded.

    OutsideError
    ├── BadAddress    it may not be called, now or later; a ValueError too
    ├── BadAnswer     it was called, and what it said is nothing that can be used or tried again
    └── NotNow        it could not be called, or did not answer as it should; the same call may do better later
        └── TooSlow   it did not answer in the time it was given; it may have done its work

The messages are in our own words, and repeat neither the address nor the answer: both may hold secrets.

An installation whose own network has other inside addresses than those below (public ones behind its firewall, a NAT64 prefix of
its own: RFC 6052) must keep them from the service by its firewall.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network

import httpcore
import httpx

LARGEST_ANSWER = 64 * 1024
"""Bytes of an answer that are read."""
LONGEST_URL = 2000
LONGEST_PAUSE = timedelta(days=1)
"""The longest Retry-After that is kept to."""
PORT = 443
MOST_TRIED = 4
"""Addresses of a host to which a connection is tried, one after the other."""
LOOKUPS = 64
"""Hosts looked up at a time, in threads of their own, each in one: a name server that never answers keeps nobody else's waiting."""

# The registries of IANA for special purposes, https://www.iana.org/assignments/iana-ipv4-special-registry and
# https://www.iana.org/assignments/iana-ipv6-special-registry. `is_global` of Python 3.11 takes several of them for public.
INSIDE = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers; some clouds tell their secrets here
            "127.0.0.0/8",
            "168.63.129.16/32",  # what every machine at Azure is served by; no registry has it
            "169.254.0.0/16",  # link-local; most clouds tell their secrets here
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "2001::/23",  # among them Teredo, which holds an IPv4 address
            "2001:db8::/32",
            "2002::/16",  # 6to4, which holds one too
            "3fff::/20",
        ),
    )
)
PUBLIC_6 = ip_network("2000::/3")
"""All of IPv6 that is public. Loopback, private, link-local, site-local and multicast addresses are not in it, nor are those
that hold one of IPv4: mapped, compatible, translated (NAT64)."""

_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host. Raises OSError where there are none."""


class OutsideError(Exception):
    """A call to the outside that came to nothing."""


class BadAddress(OutsideError, ValueError):
    """An address that may not be called."""


class BadAnswer(OutsideError):
    """An answer with which nothing can be done."""


class NotNow(OutsideError):
    """There was no answer, or one that asks to come again, after `retry_after` seconds if it says so."""

    def __init__(self, words: str, retry_after: float | None = None) -> None:
        super().__init__(words)
        self.retry_after = retry_after


class TooSlow(NotNow):
    """There was no answer in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an address said."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes | None
    """None where it was not read to its end."""
    unread: str | None = None
    """Why it was not."""

    @property
    def retry_after(self) -> float | None:
        """For how many seconds it asks to be left alone, a day at most; None where it does not say."""
        given = self.headers.get("retry-after", "").strip()
        if given.isascii() and given.isdigit():
            seconds = float(given[:9])
        else:
            try:  # a date is measured by the clock that wrote it
                until, now = parsedate_to_datetime(given), parsedate_to_datetime(self.headers.get("date", ""))
                seconds = (until - now).total_seconds()
            except (TypeError, ValueError, OverflowError):
                return None
        return min(max(seconds, 0), LONGEST_PAUSE.total_seconds())


def checked_url(given: str) -> httpx.URL:
    """Return an address that may be called as far as its text tells; where its host leads is seen when it is called.

    Raises BadAddress.
    """
    if len(given) > LONGEST_URL:
        raise BadAddress(f"an address has {LONGEST_URL:,} characters at most")
    try:
        url = httpx.URL(given)
        host = url.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError, ValueError):
        raise BadAddress("this is no address: write https://, a host and a path") from None
    authority = re.split(r"[/?#]", given.partition("//")[2], maxsplit=1)[0]
    if url.scheme != "https":
        raise BadAddress("only https is called: begin it with https://")
    if "@" in authority:
        raise BadAddress("no user and no password may stand in it: calls are signed instead")
    if "#" in given:
        raise BadAddress("a part after # is never sent: leave it out")
    if url.port not in (None, PORT):
        raise BadAddress(f"only port {PORT} is called: leave the port out")
    if host.endswith("."):
        raise BadAddress("write its host without the dot at the end")
    if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise BadAddress("write the name of its host, not a number")
    if _NAME.fullmatch(host) is None:
        raise BadAddress("its host is no public name such as shop.example")
    return url


def is_public(address: str) -> bool:
    """Tell whether an address of the internet protocol is one of the public internet, and not of a network inside."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and (found not in PUBLIC_6 or found.scope_id is not None):
        return False
    return not any(found in network for network in INSIDE)


class Outside:
    """Makes calls to the outside. One for a process."""

    def __init__(
        self, *, context: ssl.SSLContext | None = None, lookup: Lookup | None = None, loopback: int | None = None
    ) -> None:
        """`context` says whose certificates are believed, `lookup` finds a host's addresses; both are the usual ones without.

        With `loopback`, which is for tests alone, this machine's own addresses may be called, at that port.
        """
        self._context, self._loopback = context, loopback
        self._lookup = lookup or self._look_up
        self._threads = ThreadPoolExecutor(LOOKUPS, "lookup")
        self._looking: dict[str, asyncio.Future[Sequence[str]]] = {}

    def close(self) -> None:
        """End the threads in which hosts are looked up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(
        self, method: str, url: str, *, limit: timedelta, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Make one call and return what is answered, whatever its status. `limit` is for all of it, from the lookup on.

        Raises BadAddress, NotNow, TooSlow.
        """
        place = checked_url(url)
        if self._context is None:
            self._context = httpcore.default_ssl_context()
        line = _Line(self, limit)
        # A pool for each call: no connection is shared, so none of a tenant's can be held by another's.
        pool = httpcore.AsyncConnectionPool(ssl_context=self._context, network_backend=line)
        target = httpcore.URL(scheme=b"https", host=place.raw_host, port=PORT, target=place.raw_path)
        sent = {"user-agent": "Vuelvo", "accept-encoding": "identity", "connection": "close", **headers}
        try:
            async with (
                asyncio.timeout(limit.total_seconds()),
                pool.stream(method, target, headers=list(sent.items()), content=body) as response,
            ):
                return await _read(response)
        except TimeoutError as problem:
            raise TooSlow(f"it did not answer within {limit.total_seconds():g} seconds") from problem
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as problem:
            raise NotNow(_why(problem, line)) from problem
        finally:
            await line.close()

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses to which a host leads. Raises BadAddress if one of them is inside, NotNow if there is none."""
        try:
            found = await self._lookup(host)
        except (OSError, UnicodeError) as problem:
            raise NotNow("its host was not found, or the name service did not answer") from problem
        if not found:
            raise NotNow("its host has no address")
        if not all(is_public(address) or self._is_for_tests(address) for address in found):
            raise BadAddress("its host leads to an address inside, which is not called")
        return found[:MOST_TRIED]

    def port_of(self, address: str) -> int:
        """Return the port at which an address that was checked is called."""
        return self._loopback if self._loopback is not None and self._is_for_tests(address) else PORT

    def _is_for_tests(self, address: str) -> bool:
        return self._loopback is not None and address.startswith("127.")

    async def _look_up(self, host: str) -> Sequence[str]:
        looking = self._looking.get(host)
        if looking is None:
            looking = asyncio.get_running_loop().run_in_executor(self._threads, _addresses_of, host)
            self._looking[host] = looking
            looking.add_done_callback(partial(self._has_looked, host))
        # Who gives up leaves it to those who wait for it too, since its thread could not be stopped anyway.
        return await asyncio.shield(looking)

    def _has_looked(self, host: str, looking: asyncio.Future[Sequence[str]]) -> None:
        del self._looking[host]
        if not looking.cancelled():
            looking.exception()  # so that nobody complains where nobody waits for it any more


def _addresses_of(host: str) -> Sequence[str]:
    found = socket.getaddrinfo(host, PORT, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class _Line(httpcore.AsyncNetworkBackend):
    """What one call connects with: to an address that was checked, and to no other."""

    def __init__(self, outside: Outside, limit: timedelta) -> None:
        self._outside, self._limit = outside, limit
        self._network = httpcore.AnyIOBackend()
        self._stream: httpcore.AsyncNetworkStream | None = None

    @property
    def is_open(self) -> bool:
        """Whether there was a connection."""
        return self._stream is not None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look a host up, and connect to the first of its addresses that takes it."""
        *first, last = await self._outside.addresses(host)
        each = self._limit.total_seconds() / (len(first) + 1)
        for address in first:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._connect(address, each)
        return await self._connect(last, each)

    async def _connect(self, address: str, seconds: float) -> httpcore.AsyncNetworkStream:
        self._stream = await self._network.connect_tcp(address, self._outside.port_of(address), timeout=seconds)
        return self._stream

    async def close(self) -> None:
        """Close the connection, also one that was given up before it was a connection of the pool's."""
        if self._stream is not None:
            await self._stream.aclose()


async def _read(response: httpcore.Response) -> Answer:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return Answer(response.status, headers, None, "its answer is compressed, which was not asked for")
    body = bytearray()
    async for part in response.aiter_stream():
        body += part
        if len(body) > LARGEST_ANSWER:
            return Answer(response.status, headers, None, f"its answer is larger than {LARGEST_ANSWER:,} bytes")
    return Answer(response.status, headers, bytes(body))


def _why(problem: Exception, line: _Line) -> str:
    # The library hands on what it caught as an argument, not as the cause.
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in (problem, *problem.args)):
        return "its certificate does not prove its name"
    if line.is_open:
        return "the connection broke before it had answered; it may have done its work"
    return "no connection could be made to it"
