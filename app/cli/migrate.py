"""`vuelvo migrate`."""

import click

from app.cli.run import run
from app.database import open_database
from app.settings import Settings
from store.migrate import migrate as bring_up
from store.migrate import newest


async def _migrate(settings: Settings) -> None:
    async with open_database(settings, is_patient=False) as database:
        changed = await bring_up(database)
        click.echo(f"the schema is at {newest()}" + ("" if changed else ", as before"))


@click.command()
def migrate() -> None:
    """Bring the database's schema up to date. Replicas may do so at the same time."""
    run(_migrate)()
