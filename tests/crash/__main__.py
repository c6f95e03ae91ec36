"""`python -m tests.crash`, `make crash`: the engine under fire.

Thousands of follow-ups on three channels; workers killed with -9 at any instruction and started again; the database
restarted under them, by `fast` and `immediate`; providers that refuse, hang, cut, answer late, take a message and do not
say so. `verdict.py` says what must hold at the end; where it does not, the first tasks concerned are named with their
stories, what the processes have written is kept, and the exit code is 1.
"""

import asyncio
import logging
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from tests.crash.plan import Plan
from tests.crash.verdict import Verdict, burn


async def until_told_to_stop(run: Coroutine[Any, Any, Verdict]) -> Verdict:
    """Await the run; SIGTERM ends it as Ctrl-C does, with all that it has started."""
    burning = asyncio.ensure_future(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, burning.cancel)
    return await burning


@click.command(help=__doc__)
@click.option("--followups", default=Plan.followups, show_default=True, type=click.IntRange(1))
@click.option("--conversations", default=Plan.conversations, show_default=True, type=click.IntRange(1))
@click.option("--workers", default=Plan.workers, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds", default=Plan.seconds, show_default=True, type=click.FloatRange(5), help="Over which they fall due."
)
@click.option("--seed", default=Plan.seed, show_default=True)
def main(followups: int, conversations: int, workers: int, seconds: float, seed: int) -> None:
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a client that is killed amid a request is no news
    try:
        plan = Plan(followups, conversations, workers, seconds, seed)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from problem
    directory = Path(tempfile.mkdtemp(prefix="vuelvo-crash-"))
    verdict = asyncio.run(until_told_to_stop(burn(plan, directory)))
    for line in (*verdict.table(), "", *verdict.notes()):
        click.echo(line)
    if verdict.broken:
        click.echo("\n".join(("", *verdict.complaints(), f"What was written is kept in {directory}.")), err=True)
        raise SystemExit(1)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
