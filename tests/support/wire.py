"""A wire between a browser and a server that a test can cut: what a browser's own "offline" mode leaves open, this ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Wire:
    """Carries TCP connections to a port until it is cut; a restored one carries new connections."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.port = 0
        self.refused = 0
        """Connections refused since the last cut."""
        self._asked: dict[asyncio.StreamWriter, bytes] = {}
        self._held: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def strung(self) -> AsyncIterator["Wire"]:
        """Listen on a port of its own for as long as the block runs."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.close()
            self._end_all()
            await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection at once and refuse new ones."""
        self._is_cut = True
        self.refused = 0
        self._end_all()

    def hold(self, asked: bytes) -> None:
        """Carry nothing more on the connections that were last asked for something, without ending them."""
        self._held |= {near for near, request in self._asked.items() if asked in request}

    def restore(self) -> None:
        """Carry connections again."""
        self._is_cut = False

    def _end_all(self) -> None:
        for end in list(self._ends):
            end.transport.abort()

    async def _carry(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.refused += 1
            near.transport.abort()
            return
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends |= {near, far}
        try:
            await asyncio.gather(self._ask(near_reader, near, far), self._answer(far_reader, near))
        finally:
            self._ends -= {near, far}
            self._asked.pop(near, None)
            for end in (near, far):
                end.close()

    async def _ask(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                self._asked[near] = chunk
                far.write(chunk)
                await far.drain()
        far.close()

    async def _answer(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                if near in self._held:
                    continue
                near.write(chunk)
                await near.drain()
        near.close()
