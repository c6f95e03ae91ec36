"""A process that is measured: `python -m benchmarks.child NAME ROLE`, started and told by benchmarks.process.

Its first line of input is its options; the database's address is among them, since it holds a password and arguments are
everybody's to read. It says `ready` once it is connected, begins at the next line, and a worker ends at the one after. What
it found is its last line.
"""

import asyncio
import json
import logging
import mmap
import struct
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant, find


async def go() -> None:
    """Say that everything is ready, and wait for the word."""
    print("ready", flush=True)
    await stop()


async def stop() -> None:
    """Wait for a word."""
    await asyncio.to_thread(sys.stdin.readline)


async def work(contestant: Contestant, url: str, options: dict[str, Any]) -> list[float]:
    """Perform jobs and count them where the parent can see it; return how late each began, in ms, if that is asked for."""
    late: list[float] = []
    with Path(options["counter"]).open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:  # noqa: ASYNC230
        count = 0

        def started(due: datetime) -> None:
            nonlocal count
            count += 1
            if options["is_timed"]:
                late.append((time.time() - due.timestamp()) * 1000)
            struct.pack_into("=q", shared, 0, count)

        await contestant.work(url, started, go, stop, is_tuned=options["is_tuned"])
    return late


async def book(contestant: Contestant, url: str, options: dict[str, Any]) -> float:
    """Book jobs one by one, `at_once` at a time, or `batch` by batch; return the seconds it took."""
    count, batch = options["count"], options["batch"]
    lead, step = options["lead"], options["step"]
    left = iter(range(0, count, batch))
    async with contestant.client(url, options["at_once"]) as client:

        async def some() -> None:
            for number in left:
                delay = timedelta(seconds=lead + number * step)
                if batch == 1:
                    await client.book(number, delay)
                else:
                    await client.book_many(range(number, min(number + batch, count)), delay)

        await go()
        began = time.perf_counter()
        await asyncio.gather(*[some() for _ in range(options["at_once"])])
        return time.perf_counter() - began


def main() -> None:
    """Do what the arguments say."""
    name, role = sys.argv[1:]
    options = json.loads(sys.stdin.readline())
    logging.disable(logging.WARNING)
    contestant = find(name)
    factory = None
    if contestant.has_uvloop:
        import uvloop  # noqa: PLC0415 - there is none for Windows

        factory = uvloop.new_event_loop
    job = {"work": work, "book": book}[role](contestant, options["url"], options)
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(job)), flush=True)


if __name__ == "__main__":
    main()
