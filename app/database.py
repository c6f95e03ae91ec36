"""Opening the database a process works with: the one the settings name, or the embedded one, which is kept up."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.settings import Settings
from store.database import Database
from store.embedded import EmbeddedServer, EmbeddedServerError

log = logging.getLogger(__name__)

Came = TypeVar("Came")


class DatabaseDown(Exception):
    """The database cannot be used; the message says why."""


@asynccontextmanager
async def open_database(settings: Settings, *, is_patient: bool, is_new: bool = True) -> AsyncIterator[Database]:
    """Open the database the settings name, or the embedded one, which is made where there is none if it may be new.

    While it cannot be used, a patient caller waits and says so; for another that is an end. Raises DatabaseDown,
    EmbeddedServerError.
    """
    server = None
    if settings.database_url is None:
        if not (settings.data_dir / "postgres").exists():
            if not is_new:
                raise DatabaseDown(
                    f"there is no database in {settings.data_dir.absolute()}: call this from the folder in which vuelvo serve"
                    " runs, or set VUELVO_DATA_DIR or VUELVO_DATABASE_URL as it has them"
                )
            log.warning("there is no database in %s yet; making one", settings.data_dir.absolute())
        server = await EmbeddedServer.start(settings.data_dir)
    database = Database(server.url if server else str(settings.database_url))
    keeper = asyncio.create_task(_keep_up(server, database)) if server else None
    try:
        await when_it_can_be_used(database, partial(_ask, database), is_patient=is_patient)
        yield database
    finally:
        if keeper:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await database.close()
        if server:
            await server.stop()


async def when_it_can_be_used(database: Database, step: Callable[[], Awaitable[Came]], *, is_patient: bool) -> Came:
    """Do a step of the start and return what came of it. A step that was cut off is done again from its beginning.

    While the database cannot be used, a patient caller waits and says so; for another that is an end: DatabaseDown.
    """
    pause = 0.5
    while True:
        try:
            return await step()
        except (SQLAlchemyError, OSError) as problem:
            reason, shown = why(problem), database.url.set(drivername="postgresql")  # without its password
            if not is_patient:
                raise DatabaseDown(f"the database at {shown} cannot be used: {reason}") from problem
            log.warning("the database at %s cannot be used yet (%s); waiting for it", shown, reason)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)


def why(problem: Exception) -> str:
    """Return in one line why the database cannot be used; without the statement, and without a password."""
    lines = str(getattr(problem, "orig", None) or problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


async def _ask(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("select 1"))


async def _keep_up(server: EmbeddedServer, database: Database) -> None:
    """Start the embedded server again should it ever be gone, and follow it to where it is then."""
    while True:
        await asyncio.sleep(2)
        try:
            await _ask(database)
        except (SQLAlchemyError, OSError):
            log.warning("the embedded database is gone; starting it again")
            try:
                await server.ensure()
                database.move_to(server.url)
            except EmbeddedServerError as problem:
                log.error("%s", problem)
