"""`python -m tests.races [--orders 2000] [--seed 1]`: a cancel by a label that meets fires and moves, in seeded orders.

What breaks is named with its seed and its order, and the exit code is 1.
"""

import asyncio
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.faults.__main__ import a_database
from tests.races.trial import play_all


async def _play(seeds: range) -> tuple[Counter[str], list[str]]:
    with tempfile.TemporaryDirectory(prefix="vuelvo-races-", ignore_cleanup_errors=True) as place:
        async with a_database(Path(place)) as database:
            url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
            return await play_all(url, Path(place), seeds)


@click.command(help=__doc__)
@click.option("--orders", default=2000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True, help="The first order's; each has the next.")
def main(orders: int, seed: int) -> None:
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    counts, wrong = asyncio.run(_play(range(seed, seed + orders)))
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    click.echo(f"{orders} orders from seed {seed} in {time.monotonic() - began:.0f} s: {told}; {len(wrong)} wrong")
    for line in wrong[:20]:
        click.echo(line, err=True)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
