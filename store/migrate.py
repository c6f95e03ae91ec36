"""Bringing the schema up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from store.database import Database

LOCK = 8_602_011_735
"""The advisory lock under which migrations run, so that replicas may start together. Any constant number does."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def newest() -> str:
    """Return the revision this code is written for."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def revision(database: Database) -> str | None:
    """Return the revision the database is at; None when it is empty."""
    async with database.transaction() as connection:
        return await connection.run_sync(_revision)


async def migrate(database: Database) -> bool:
    """Apply what is missing, one process at a time; return whether anything was.

    Raises alembic.util.CommandError when the database is newer than this code.
    """
    if await revision(database) == newest():
        return False
    async with database.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": LOCK})
        try:
            if await revision(database) == newest():  # another process did it while this one waited
                return False
            async with database.engine.connect() as migrating:
                await migrating.run_sync(_upgrade)
                await migrating.commit()
        finally:
            await connection.execute(text("select pg_advisory_unlock(:lock)"), {"lock": LOCK})
    return True
