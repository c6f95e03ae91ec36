"""Replicas that run durable schedules every 1 to 5 s, killed with -9 at random, with a stop of all of them in the middle.

`python -m tests.replicas [--seconds 120] [--tasks 17] [--replicas 4] [--kills-every 3] [--outage 30] [--seed 1]`
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from store.database import Database
from store.embedded import EmbeddedServer
from store.migrate import migrate
from tests.replicas.trial import Trial


async def _run(given: argparse.Namespace, directory: Path) -> Trial:
    server = await EmbeddedServer.start(directory)
    try:
        database = Database(server.url)
        await migrate(database)
        await database.close()
        trial = Trial(
            server.url, given.seconds, given.tasks, given.replicas, given.kills_every, given.outage, given.seed
        )
        await trial.run()
        return trial
    finally:
        await server.stop()


def main() -> int:
    """Run one trial, print what came of it, and return 1 where anything was wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=120)
    options.add_argument("--tasks", type=int, default=17, help="of each of the three policies")
    options.add_argument("--replicas", type=int, default=4)
    options.add_argument("--kills-every", type=float, default=3, help="seconds, on average")
    options.add_argument("--outage", type=float, default=30, help="seconds in which none runs")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="vuelvo-replicas-", ignore_cleanup_errors=True) as directory:
        trial = asyncio.run(_run(given, Path(directory)))
    counts = ", ".join(f"{count} {what}" for what, count in trial.counts.items())
    print(f"{trial.kills} kills, one stop of {given.outage:g} s: {counts}; {len(trial.wrong)} wrong")  # noqa: T201
    for line in trial.wrong[:20]:
        print(line, file=sys.stderr)  # noqa: T201
    return 1 if trial.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
