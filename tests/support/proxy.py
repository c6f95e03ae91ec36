"""A line to a server that a test can freeze, cut and mend, as networks do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.engine import make_url


class Proxy:
    """Carries bytes both ways between its clients and one server."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self.held = 0
        """How many pieces it holds back."""
        self.refused = 0
        """Connections refused since the last cut."""
        self._lines: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._asked: dict[asyncio.StreamWriter, bytes] = {}
        self._silent: set[asyncio.StreamWriter] = set()
        self._last_requests: list[bytes] = []
        self._dead: set[asyncio.Task[None]] = set()
        self.pause = 0.0
        """Seconds for which each piece is held back."""
        self.was_cut = asyncio.Event()
        """Set by a cut, until it is mended."""

    def freeze(self) -> None:
        """Hold every byte from now on, and tell nobody: both ends believe the connection is open."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let the held bytes go on."""
        self._flowing.set()

    def cut(self) -> None:
        """Break every connection, and every new one at once."""
        self._is_cut = True
        self.was_cut.set()
        self.refused = 0
        self.thaw()
        for line, ends in self._lines.items():
            for end in ends if line not in self._dead else ():
                end.transport.abort()

    def cut_at_answer(self, *asked: bytes) -> None:
        """Break every connection when the server, having done the last of these requests, answers: nobody hears it."""
        self._last_requests = list(asked)

    def silence(self, asked: bytes) -> None:
        """Answer nothing more on the connections that were last asked for something, and tell nobody."""
        self._silent |= {client for client, request in self._asked.items() if asked in request}

    def die(self) -> None:
        """Let nothing pass any more on the connections there are, not even that an end has hung up; new ones are well."""
        self._dead |= self._lines.keys()

    def hang_up(self) -> None:
        """End the dead connections at the clients, as a device does whose network has changed; the server hears nothing."""
        for line in self._dead:
            self._lines[line][0].transport.abort()

    def mend(self) -> None:
        """Let new connections through again."""
        self._is_cut = False
        self.was_cut.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one client's connection."""
        line = asyncio.current_task()
        assert line is not None
        self._lines[line] = [writer]
        try:
            if self._is_cut:
                self.refused += 1
                return
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
            self._lines[line].append(to_server)
            await asyncio.gather(self._carry(line, reader, to_server, writer), self._carry(line, from_server, writer))
        except (OSError, asyncio.CancelledError):
            pass  # either end hung up, or the test is over
        finally:
            self._asked.pop(writer, None)
            self._dead.discard(line)
            for end in self._lines.pop(line):
                end.transport.abort()

    async def _carry(
        self,
        line: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asker: asyncio.StreamWriter | None = None,
    ) -> None:
        while piece := await reader.read(65536):
            if asker is not None:
                self._asked[asker] = piece
            if writer in self._silent or line in self._dead:
                continue
            if self._last_requests and self._last_requests[0] in self._asked.get(writer, b""):
                self._last_requests.pop(0)
                if not self._last_requests:
                    self.cut()
                    return
            self.held += 1
            await self._flowing.wait()
            self.held -= 1
            if self.pause:
                await asyncio.sleep(self.pause)
            writer.write(piece)
            await writer.drain()
        if line not in self._dead:
            writer.transport.abort()

    async def close(self) -> None:
        """Break every connection for good."""
        self.cut()
        for line in list(self._lines):
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)


@asynccontextmanager
async def a_proxy(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Stand between a test and the server of this URL; yields the proxy and the URL that goes through it."""
    target = make_url(url)
    proxy = Proxy(target.host or "127.0.0.1", target.port or 5432)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield proxy, target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    finally:
        server.close()
        await proxy.close()
