"""`python -m tests.cuts`, `make cuts`: a widget's visitors, cut off in every way.

Real pages of several visitors, each behind a line of its own to a real `vuelvo serve`; the lines are cut, held, slow, or
dead without a word; pages are reloaded, closed and opened twice; the server is killed with -9. Meanwhile visitors write, and
the service speaks. After each disturbance what a page shows must come to be the log, and in the end nothing may be lost, said
twice or out of order. Where something does not hold it is named, and the exit code is 1.
"""

import asyncio
import logging
import tempfile
import time
from pathlib import Path

import click

from tests.cuts.plan import Plan
from tests.cuts.run import run


@click.command(help=__doc__)
@click.option("--disturbances", default=Plan.disturbances, show_default=True, type=click.IntRange(1))
@click.option("--visitors", default=Plan.visitors, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=Plan.seed, show_default=True)
def main(disturbances: int, visitors: int, seed: int) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    if disturbances < visitors:
        raise click.UsageError("each visitor is disturbed at least once: ask for more disturbances or fewer visitors")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vuelvo-cuts-", ignore_cleanup_errors=True) as directory:
        verdict = asyncio.run(run(Plan(disturbances, visitors, seed), Path(directory)))
    click.echo("\n".join(verdict.table()))
    click.echo(f"\n{verdict.summary()} In {time.monotonic() - began:.0f} s.")
    if verdict.broken:
        again = f"python -m tests.cuts --disturbances {disturbances} --visitors {visitors} --seed {seed}"
        click.echo("\n".join(("", *verdict.broken, f"The same again: {again}")), err=True)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
