"""Visitors who listen: what one `vuelvo serve` process needs for many open streams, and how soon each hears news.

The streams are read, and the news is written, by this process; the service is a process of its own, at its defaults. Linux
only: memory and processor time are read from `/proc`, and visitors come from several addresses of this machine.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from channels.web import outbound
from store.database import Database
from store.signals import Signals

TENANT = "demo"
FIRST = 10
"""Streams that are open before the memory is looked at: the code they need is loaded then."""
FROM_ONE_ADDRESS = 100
"""Sessions opened from one address: the service lets nobody open any number."""
AT_ONCE = 50
"""Streams opened at a time."""
SETTLES = 5.0
"""Seconds until what connecting has left is done."""
PATIENCE = 30.0
"""Seconds after which news that has not come is given up."""


@dataclass(frozen=True)
class Visitor:
    """A session."""

    token: str
    conversation: int


@dataclass(frozen=True)
class Service:
    """A running `vuelvo serve`."""

    pid: int
    port: int

    @property
    def memory(self) -> int:
        """Its resident memory in KB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    @property
    def processor(self) -> float:
        """The processor time it has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stream(asyncio.Protocol):
    """One visitor's open stream: looks for words, and notes when they come."""

    def __init__(self) -> None:
        self.is_open = asyncio.get_running_loop().create_future()
        self._awaited: tuple[bytes, asyncio.Future[float]] | None = None
        self._end = b""

    @classmethod
    async def open(cls, service: Service, visitor: Visitor) -> Self:
        """Ask for a visitor's stream, and return it when its first words have come."""
        loop = asyncio.get_running_loop()
        transport, stream = await loop.create_connection(cls, "127.0.0.1", service.port)
        transport.write(
            f"GET /widget/{TENANT}/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {visitor.token}\r\n\r\n".encode()
        )
        async with asyncio.timeout(PATIENCE):
            await stream.is_open
        return stream

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._end += data
        if not self.is_open.done():
            if b": welcome" in self._end and self._end.startswith(b"HTTP/1.1 200 "):
                self.is_open.set_result(None)
            return
        self._end = self._end[-200:]  # words may come in two pieces
        if self._awaited is not None and self._awaited[0] in self._end:
            self._awaited[1].set_result(time.perf_counter())
            self._awaited = None

    def connection_lost(self, problem: Exception | None) -> None:
        """Fail whoever waits for it."""
        for waiting in (self.is_open, self._awaited and self._awaited[1]):
            if waiting and not waiting.done():
                waiting.set_exception(ConnectionError(f"the stream has ended: {self._end.decode()}"))

    def until(self, words: str) -> asyncio.Future[float]:
        """Return what gives the moment at which these words have come, by `perf_counter`."""
        awaited = asyncio.get_running_loop().create_future()
        self._awaited = words.encode(), awaited
        return awaited


@asynccontextmanager
async def serving(url: str, directory: Path, **more: str) -> AsyncIterator[Service]:
    """Run `vuelvo serve` on a database, with `more` in its environment, for as long as the block runs."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VUELVO_")}
    environ |= {
        "PYTHONUNBUFFERED": "1",
        "VUELVO_DATABASE_URL": url,
        "VUELVO_SECRET_KEY": "a secret key for nothing but benchmarks",
        "VUELVO_PORT": "0",
        **more,
    }
    vuelvo = Path(sys.executable).with_name("vuelvo")
    process = await asyncio.create_subprocess_exec(
        str(vuelvo), "serve", cwd=directory, env=environ, stdout=PIPE, stderr=STDOUT
    )
    reading = None
    try:
        assert process.stdout is not None
        said = b""
        async with asyncio.timeout(60):
            async for line in process.stdout:
                said += line
                if b"Vuelvo is here: " in line:
                    break
            else:
                raise RuntimeError(f"the service has ended:\n{said.decode()}")
        reading = asyncio.create_task(process.stdout.read())
        yield Service(process.pid, int(line.decode().rstrip().rstrip("/").rpartition(":")[2]))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _open_sessions(service: Service, count: int) -> list[Visitor]:
    found: list[Visitor] = []
    for number in range(0, count, FROM_ONE_ADDRESS):
        way = httpx.AsyncHTTPTransport(local_address=f"127.0.1.{number // FROM_ONE_ADDRESS + 1}")
        async with httpx.AsyncClient(transport=way, base_url=f"http://127.0.0.1:{service.port}") as http:
            for _ in range(min(FROM_ONE_ADDRESS, count - number)):
                opened = (await http.post(f"/widget/{TENANT}/sessions", json={})).raise_for_status().json()
                found.append(Visitor(opened["token"], opened["conversation"]))
    return found


async def _listen(service: Service, visitors: Sequence[Visitor]) -> list[Stream]:
    streams: list[Stream] = []
    for number in range(0, len(visitors), AT_ONCE):
        streams += await asyncio.gather(*(Stream.open(service, each) for each in visitors[number : number + AT_ONCE]))
    return streams


async def _idle(service: Service, server: Server, database: str, seconds: float) -> tuple[float, float]:
    """Return what share of a core it uses while nothing is said, in percent, and its transactions in a second."""
    commits = f"select xact_commit from pg_stat_database where datname = '{database}'"
    ((before,),), used, began = await server.execute(commits), service.processor, time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    ((after,),) = await server.execute(commits)
    return 100 * (service.processor - used) / took, (after - before) / took


async def _push(url: str, visitors: Sequence[Visitor], streams: Sequence[Stream], pushes: int) -> list[float]:
    """Say something to one visitor after the other as a worker does; return how many ms after its commit each came."""
    database = Database(url)
    signals = Signals(database)
    await signals.start()
    taken = []
    try:
        step = max(len(visitors) // pushes, 1)
        for number in range(pushes):
            chosen = number * step % len(visitors)
            words = f"news {number:06}."
            heard = streams[chosen].until(words)
            conversation = visitors[chosen].conversation
            async with database.transaction() as connection:
                await outbound.write(connection, TENANT, conversation, "followup", words, task=1, now=None)
            committed = time.perf_counter()
            signals.hint(f"message {conversation}")
            taken.append((await asyncio.wait_for(heard, PATIENCE) - committed) * 1000)
            await asyncio.sleep(0.02)
    finally:
        await signals.stop()
        await database.close()
    return taken


async def _push_to_all(url: str, visitors: Sequence[Visitor], streams: Sequence[Stream]) -> list[float]:
    """Say something to all in one transaction; return how many ms after its commit each has heard it."""
    database = Database(url)
    signals = Signals(database)
    await signals.start()
    try:
        heard = [stream.until("news for all.") for stream in streams]
        async with database.transaction() as connection:
            for visitor in visitors:
                await outbound.write(
                    connection, TENANT, visitor.conversation, "followup", "news for all.", task=1, now=None
                )
        committed = time.perf_counter()
        for visitor in visitors:
            signals.hint(f"message {visitor.conversation}")
        return [(await asyncio.wait_for(each, PATIENCE) - committed) * 1000 for each in heard]
    finally:
        await signals.stop()
        await database.close()


async def visitors(
    runs: int, count: int, seconds: float, pushes: int, settles: float = SETTLES, server: Server | None = None
) -> list[Measure]:
    """Have `count` visitors listen for `seconds`, then say something to `pushes` of them, one by one, and to all at once."""
    if server is None:
        async with own_server() as own:
            return await visitors(runs, count, seconds, pushes, settles, own)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(runs):
        async with server.database() as name:
            for key, figure in (await _run(server, name, count, seconds, pushes, settles)).items():
                found.setdefault(key, []).append(figure)
    return [
        Measure(f"{count:,} visitors listening to one process: {title}", unit, {"vuelvo": figures}, is_less_better=True)
        for (title, unit), figures in found.items()
    ]


async def _run(
    server: Server, name: str, count: int, seconds: float, pushes: int, settles: float
) -> dict[tuple[str, str], float]:
    url = server.address(name)
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as place:
        async with serving(url, Path(place)) as service:
            all_of_them = await _open_sessions(service, count)
        async with serving(url, Path(place)) as service:
            streams = await _listen(service, all_of_them[:FIRST])
            await asyncio.sleep(settles)
            few = service.memory
            streams += await _listen(service, all_of_them[FIRST:])
            await asyncio.sleep(settles)
            many = service.memory
            processor, transactions = await _idle(service, server, name, seconds)
            one = await _push(url, all_of_them, streams, pushes)
            every = await _push_to_all(url, all_of_them, streams)
            full = service.memory
    return {
        ("memory of the process with a few", "KB"): few,
        ("memory for each more", "KB"): (many - few) / max(count - FIRST, 1),
        ("memory for each more, after all was said", "KB"): (full - few) / max(count - FIRST, 1),
        (f"of a core while nothing is said, over {seconds:g} s", "%"): processor,
        ("transactions while nothing is said", "per s"): transactions,
        (f"from commit to browser, {pushes} one by one: p50", "ms"): statistics.median(one),
        (f"from commit to browser, {pushes} one by one: p95", "ms"): _p95(one),
        ("from commit to browser, all at once: p50", "ms"): statistics.median(every),
        ("from commit to browser, all at once: p95", "ms"): _p95(every),
    }


def _p95(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[94]
