"""`python -m tests.rush [--contacts 3000] [--kills 6]`: renewals due at once, and workers killed while customers are told.

Where one is told twice, or not at all, the exit code is 1.
"""

import asyncio
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.faults.__main__ import a_database
from tests.rush.trial import rush


async def _run(contacts: int, kills: int) -> tuple[Counter[int], Counter[str], int]:
    with tempfile.TemporaryDirectory(prefix="vuelvo-rush-", ignore_cleanup_errors=True) as place:
        async with a_database(Path(place)) as database:
            url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
            return await rush(database, url, Path(place), contacts, kills)


@click.command(help=__doc__)
@click.option("--contacts", default=3000, show_default=True, type=click.IntRange(1))
@click.option("--kills", default=6, show_default=True, type=click.IntRange(0))
def main(contacts: int, kills: int) -> None:
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    times, ends, recovered = asyncio.run(_run(contacts, kills))
    told = ", ".join(f"{count:,} {what}" for what, count in ends.most_common())
    click.echo(
        f"{contacts:,} contacts and {kills} kills in {time.monotonic() - began:.0f} s: {told}; {recovered:,} claims recovered;"
        f" {times[1]:,} told once, {contacts - times[1]:,} not"
    )
    if times != {1: contacts}:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
