"""Starting the processes that are measured, and telling them when."""

import asyncio
import json
import struct
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.server import Server

PATIENCE = 1800.0
"""Seconds after which a run that does not end is given up."""
LOOK = 0.002
"""Seconds between two looks at how far it is."""


class Child:
    """One process, ready to begin."""

    def __init__(self, process: Process, counter: Path) -> None:
        self._process, self._counter = process, counter

    @property
    def count(self) -> int:
        """How many handlers it has begun."""
        return int(struct.unpack("=q", self._counter.read_bytes())[0])

    def tell(self, words: str = "") -> None:
        """Say the next line: its options, then go, then (to a worker) stop."""
        assert self._process.stdin is not None
        self._process.stdin.write(words.encode() + b"\n")

    async def line(self) -> str:
        """Return the next line it says. Raises RuntimeError when it died."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if not line:
            raise RuntimeError(f"a measured process ended with {await self._process.wait()}; see above")
        return line.decode().strip()

    async def result(self) -> Any:
        """Return what it found."""
        return json.loads(await self.line())


@asynccontextmanager
async def child(contestant: Contestant, role: str, url: str, **options: Any) -> AsyncIterator[Child]:
    """Start a process and wait until it is ready."""
    with tempfile.NamedTemporaryFile(prefix="vuelvo-bench-") as counter:
        counter.write(bytes(8))
        counter.flush()
        words = ["-m", "benchmarks.child", contestant.name, role]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words), stdin=PIPE, stdout=PIPE, limit=2**24, cwd=Path(__file__).parents[1]
        )
        started = Child(process, Path(counter.name))
        started.tell(json.dumps({"url": url, "counter": counter.name, **options}))
        try:
            if (said := await started.line()) != "ready":
                raise RuntimeError(f"a measured process said {said!r}")
            yield started
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def worker(contestant: Contestant, url: str, *, is_tuned: bool, is_timed: bool = False) -> Any:
    """Start a worker process."""
    return child(contestant, "work", url, is_tuned=is_tuned, is_timed=is_timed)


def booker(
    contestant: Contestant, url: str, count: int, *, at_once: int, batch: int = 1, lead: float, step: float = 0
) -> Any:
    """Start a process that books `count` jobs, due `lead` seconds from then and `step` after one another."""
    return child(contestant, "book", url, count=count, at_once=at_once, batch=batch, lead=lead, step=step)


@asynccontextmanager
async def filled(server: Server, contestant: Contestant, due: int = 0, future: int = 0) -> AsyncIterator[str]:
    """Make a database with a contestant's schema and jobs, freshly vacuumed; gives its name."""
    template, is_new = await server.template(f"{contestant.name} {due} {future}")
    if is_new:
        await contestant.fill(server.address(template), due, future)
        await server.execute("vacuum (freeze, analyze)", database=template)
    async with server.database(template) as name:
        await server.execute("checkpoint")
        yield name


async def check_finished(server: Server, contestant: Contestant, database: str, jobs: int) -> None:
    """Raise AssertionError unless that many jobs are finished, by the rows."""
    ((finished,),) = await server.execute(contestant.finished, database=database)
    assert finished == jobs, f"{contestant.name} finished {finished} of {jobs} jobs"
