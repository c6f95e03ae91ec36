"""A PostgreSQL of our own in a temporary folder, with the settings it is delivered with: every commit reaches the disk."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from store.embedded import EmbeddedServer

DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class Server:
    """A server on which databases come and go, each made of a template that was filled once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._templates: dict[str, str] = {}

    def address(self, database: str) -> str:
        """Return the address of one of its databases."""
        return f"{self._url.rpartition('/')[0]}/{database}"

    async def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements, each committed by itself, and return the rows of the last."""
        url = self._url if database is None else self.address(database)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            for statement in statements:
                cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def database(self, template: str = "template1") -> AsyncIterator[str]:
        """Make a database, and drop it at the end of the block; gives its name."""
        name = f"bench_{uuid4().hex[:12]}"
        # By files: block by block through the log, a large template would leave the server busy with it while it is measured.
        await self.execute(f"create database {name} template {template} strategy file_copy")
        try:
            yield name
        finally:
            await self.execute(f"drop database {name} with (force)")

    async def template(self, key: str) -> tuple[str, bool]:
        """Return the database that is kept as a template under this key, and whether it is new and to be filled."""
        if key in self._templates:
            return self._templates[key], False
        name = self._templates[key] = f"bench_{uuid4().hex[:12]}"
        await self.execute(f"create database {name}")
        return name, True

    async def drop_templates(self) -> None:
        """Drop what was kept."""
        for name in self._templates.values():
            await self.execute(f"drop database {name} with (force)")
        self._templates.clear()


@asynccontextmanager
async def own_server(*, preload: str | None = None) -> AsyncIterator[Server]:
    """Start a server of our own for the block, with `preload` as its shared_preload_libraries."""
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-", ignore_cleanup_errors=True) as directory:
        embedded = await EmbeddedServer.start(Path(directory))
        try:
            if preload is not None:
                await Server(embedded.url).execute(f"alter system set shared_preload_libraries = '{preload}'")
                await embedded.stop()
                embedded = await EmbeddedServer.start(Path(directory))
            server = Server(embedded.url)
            for setting in DURABLE:
                ((value,),) = await server.execute(f"show {setting}")
                assert value == "on", f"{setting} is {value}: commits would not be durable"
            yield server
        finally:
            await embedded.stop()
