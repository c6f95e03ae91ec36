"""`vuelvo migrate`."""

import click
from alembic.util import CommandError

from app.cli.run import fail, run
from app.database import open_database
from app.settings import Settings
from store.migrate import migrate as bring_up
from store.migrate import newest


async def _migrate(settings: Settings) -> None:
    async with open_database(settings, is_patient=False) as database:
        try:
            changed = await bring_up(database)
        except CommandError as problem:
            fail(
                f"the database's schema is not one this version knows ({problem}): use the version that made it, or newer"
            )
        click.echo(f"the schema is at {newest()}" + ("" if changed else ", as before"))


@click.command()
def migrate() -> None:
    """Bring the database's schema up to date. Replicas may do so at the same time."""
    run(_migrate)()
