"""What a connection may take of the service: so long for its request to come whole, and so many at a time.

A connection is, in turn,

waiting     its request has not come whole: it has seconds for that, and is the first to go when there are too many
in hand     its request is being answered, however long that takes: an event stream lives for hours

A client that takes its answer slowly is waiting again as soon as the answer is written.
"""

import asyncio
import contextlib
import logging
import math
import resource
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_network

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from channels.request import Problem

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 10_000
_BACKLOG = 2048
"""Connections that the system keeps waiting at the door."""
_TAKEN_AT_ONCE = 8
"""Connections taken in before the first of them is looked at, all of which need a file."""
_COMPLAIN_EVERY = 60.0
"""Seconds."""
_LEAVE = {"connection": "close", "retry-after": "2"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are in seconds, and do not begin anew with every byte that comes."""

    connections: int = MOST_CONNECTIONS
    headers: float = 10.0
    body: float = 30.0


def allow_files() -> int:
    """Let this process open as many files as the system lets it; return how many connections that is good for.

    A quarter is kept for everything else: the database, the channels, the models.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # macOS knows a limit below the one it names
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(files * 3 // 4, MOST_CONNECTIONS)


class Server(uvicorn.Server):
    """Serves an application within limits, and leaves the signals to who runs it: they stop the poller as well."""

    def __init__(self, app: ASGIApp, limits: Limits, trusted_proxies: Sequence[str] = ()) -> None:
        """`trusted_proxies` are addresses and networks that are believed for whom they ask; by itself nobody is."""
        super().__init__(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=_TAKEN_AT_ONCE,
                timeout_graceful_shutdown=5,
                server_header=False,
                # Said here, since else an environment variable of uvicorn's own decides.
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=[*trusted_proxies, *_mapped(trusted_proxies)],
            )
        )
        self.server_state = _State(limits)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)  # asyncio has one number for how many wait and how many are taken in at once


def _mapped(networks: Sequence[str]) -> list[str]:
    """Return networks of IPv4 as a socket that listens for both families names those in them: `::ffff:10.0.0.0/104`."""
    of_four = [network for network in map(ip_network, networks) if network.version == 4]
    return [f"::ffff:{network.network_address}/{96 + network.prefixlen}" for network in of_four]


class _State(ServerState):
    """What the connections of a server share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.waiting: dict[_Connection, asyncio.TimerHandle] = {}
        """Those whose request has not come whole, the longest waiting first, with the end of their time."""
        self.complained_at = -math.inf


class _Connection(H11Protocol):
    server_state: _State
    _awaited: tuple[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.server_state.limits.connections and not self._push_out():
            self._complain()
            self._refuse(Problem(503, "Too many are being served just now. Try again shortly.", headers=_LEAVE))
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the clock when a request begins to be waited for, and stop it when it has come whole."""
        state = self.conn.their_state
        awaited = (state, self.cycle) if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited == self._awaited or self.transport.is_closing():
            return
        self._stop_waiting()
        self._awaited = awaited
        if awaited:
            limits = self.server_state.limits
            seconds = limits.headers if state is h11.IDLE else limits.body
            self.server_state.waiting[self] = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if ends := self.server_state.waiting.pop(self, None):
            ends.cancel()

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and not self.cycle.response_started:
            self._refuse(Problem(408, "The body did not come whole in time. Send the request again.", headers=_LEAVE))
        self.transport.close()

    def _push_out(self) -> bool:
        """Make room by ending the connection that has waited longest: who opens many and asks nothing loses his own.

        One that sends a body has said what it wants, and goes only when there is no other.
        """
        waiting = self.server_state.waiting
        longest = next((one for one in waiting if one.conn.their_state is h11.IDLE), next(iter(waiting), None))
        if longest is None:
            return False
        longest.connections.discard(longest)
        longest._stop_waiting()
        longest.transport.abort()
        return True

    def _complain(self) -> None:
        now = self.loop.time()
        if now - self.server_state.complained_at >= _COMPLAIN_EVERY:
            self.server_state.complained_at = now
            log.warning(
                "connections are refused: %d are being served, the most; let the process open more files (ulimit -n) "
                "or start another",
                self.server_state.limits.connections,
            )

    def _refuse(self, problem: Problem) -> None:
        """Answer in the application's place, and close."""
        response = problem.response()
        if self.cycle:
            self.cycle.disconnected = True  # the application's own answer comes to nothing
            self.cycle.message_event.set()
        head = h11.Response(
            status_code=response.status_code,
            headers=response.raw_headers,
            reason=HTTPStatus(response.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
