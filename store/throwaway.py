"""Databases for tests: made, used and dropped, on a server of one's own or on one that a test run is given."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from sqlalchemy.engine import make_url

from store.database import Database
from store.embedded import EmbeddedServer
from store.migrate import migrate


def address_of(server_url: str, name: str) -> str:
    """Return the address of a database of a server."""
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


@contextmanager
def a_server() -> Iterator[str]:
    """Run an embedded server in a directory of its own, and give its superuser's address.

    It does not wait for the disk: what a test loses with the machine is of no use. Raises EmbeddedServerError.
    """
    with tempfile.TemporaryDirectory(prefix="vuelvo-tests-", ignore_cleanup_errors=True) as directory:
        server = asyncio.run(EmbeddedServer.start(Path(directory)))
        try:
            with psycopg.connect(server.url, autocommit=True) as connection:
                for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off"):
                    connection.execute(f"alter system set {setting}")
                connection.execute("select pg_reload_conf()")
            yield server.url
        finally:
            asyncio.run(server.stop())


@contextmanager
def a_database(server_url: str, template: str | None = None) -> Iterator[str]:
    """Give the name of a new database, empty or as the template is."""
    name = f"vuelvo_test_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name}" + (f" template {template}" if template else ""))
        try:
            yield name
        finally:
            connection.execute(f"drop database {name} with (force)")


@contextmanager
def a_template(server_url: str) -> Iterator[str]:
    """Give the name of a database with the newest schema and nothing in it, to make others of."""
    with a_database(server_url) as name:

        async def prepare() -> None:
            database = Database(address_of(server_url, name))
            await migrate(database)
            await database.close()

        asyncio.run(prepare())
        yield name
