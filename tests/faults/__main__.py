"""`python -m tests.faults`, `make faults`: seeded schedules of faults on both networks.

In each schedule a few things are said to a few customers while the providers refuse, hang, cut, answer late and unreadably,
report late, twice, out of order or never, and the process is restarted. `verdict.py` says what must hold at the end; where it
does not, the seed is named with its story, and the exit code is 1. One schedule again: `--seed 17 --schedules 1`.
"""

import asyncio
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import click
import psycopg

from store.database import Database
from store.embedded import EmbeddedServer
from store.migrate import migrate
from tests.faults.plan import NETWORKS, Schedule
from tests.faults.trial import Trial
from tests.faults.verdict import Verdict

EMPTY = "truncate tasks, deliveries, task_events, messages, conversations, contacts restart identity cascade"
COLUMNS = (
    "messages",
    "sends",
    "seen",
    "twice, known",
    "twice, unknowable",
    "lost",
    "fired",
    "failed",
    "uncertain",
    "held",
)


@asynccontextmanager
async def a_database(directory: Path) -> AsyncIterator[Database]:
    """A migrated database of its own: on the server of `VUELVO_TEST_DATABASE_URL`, or on an embedded one."""
    given = os.environ.get("VUELVO_TEST_DATABASE_URL")
    server = None if given else await EmbeddedServer.start(directory / "database")
    url, name = given or (server.url if server else ""), f"faults_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    database = Database(url.rpartition("/")[0] + "/" + name)
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")
        if server:
            await server.stop()


async def judge(seed: int, database: Database, directory: Path) -> Verdict:
    """Run one schedule on an empty database, and judge it."""
    schedule = Schedule(seed)
    return Verdict(schedule, await Trial(schedule, database, directory).run())


async def judge_all(seeds: range) -> tuple[dict[str, Counter[str]], Counter[tuple[str, str]], list[int]]:
    """Run schedules one after the other; return what was counted, what sends met, and the seeds that broke something."""
    counts: dict[str, Counter[str]] = {network: Counter() for network in NETWORKS}
    met: Counter[tuple[str, str]] = Counter()
    broken = []
    with tempfile.TemporaryDirectory(prefix="vuelvo-faults-", ignore_cleanup_errors=True) as place:
        async with a_database(Path(place)) as database:
            for seed in seeds:
                verdict = await judge(seed, database, Path(place))
                for network in NETWORKS:
                    counts[network] += verdict.counts[network]
                met += verdict.met
                if verdict.broken:
                    broken.append(seed)
                    click.echo(verdict.complaint() + "\n", err=True)
                with psycopg.connect(
                    database.url.set(drivername="postgresql").render_as_string(hide_password=False)
                ) as line:
                    line.execute(EMPTY)
    return counts, met, broken


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """Yield what was counted as a table of Markdown."""
    yield f"| network | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for network, found in counts.items():
        yield f"| {network} | {' | '.join(str(found[column]) for column in COLUMNS)} |"


@click.command(help=__doc__)
@click.option("--schedules", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True, help="The first schedule's; each has the next.")
def main(schedules: int, seed: int) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    began = time.monotonic()
    counts, met, broken = asyncio.run(judge_all(range(seed, seed + schedules)))
    for line in table(counts):
        click.echo(line)
    faults = Counter[str]()
    for (_, fault), number in met.items():
        faults[fault] += number
    told = ", ".join(f"{number} {fault}" for fault, number in sorted(faults.items()))
    click.echo(f"\n{schedules} schedules from seed {seed} in {time.monotonic() - began:.0f} s. Sends met: {told}.")
    if broken:
        click.echo(f"{len(broken)} schedules broke something: {', '.join(map(str, broken))}.", err=True)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
