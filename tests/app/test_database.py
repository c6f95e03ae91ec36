"""A database that dies while the service starts, and an embedded one that comes back somewhere else."""

import asyncio
import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest
from sqlalchemy import text

from app.database import DatabaseDown, open_database
from app.wiring import running
from store.database import Database
from store.migrate import newest, revision
from store.signals import Signals
from tests.support.house import settings
from tests.support.process import start
from tests.support.proxy import a_proxy
from tests.support.wait import eventually

STEPS = [
    (b"alembic_version",),
    (b"pg_advisory_lock",),
    (b"CREATE TABLE tenants",),
    (b"CREATE TABLE tenants", b"COMMIT"),
    (b"CREATE TABLE tasks",),
    (b"INSERT INTO tenants",),
    (b"INSERT INTO tenants", b"COMMIT"),
]
"""What a start asks the database for, in this order."""


async def contents(database: Database) -> tuple[str | None, list[tuple[str, int]]]:
    """Return the schema's revision and the tenants with theirs."""
    async with database.transaction() as connection:
        tenants = await connection.execute(text("select tenant, revision from tenants"))
        return await revision(database), [(row.tenant, row.revision) for row in tenants]


@pytest.mark.parametrize("step", STEPS)
async def test_a_start_waits_for_a_database_that_dies_at_any_step_and_does_nothing_twice(
    empty_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, step: tuple[bytes, ...]
) -> None:
    async def begin(database: Database) -> None:
        async with running(settings(tmp_path), database=database):
            assert await contents(database) == (newest(), [("demo", 1)])

    async with a_proxy(empty_url) as (proxy, through):
        database = Database(through)
        proxy.cut_at_answer(*step)
        starting = asyncio.create_task(begin(database))
        await eventually(lambda: "cannot be used yet" in caplog.text or starting.done())
        assert not starting.done()
        proxy.mend()
        await starting
        await database.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_caller_who_does_not_wait_ends_with_one_clear_line(
    empty_url: str, tmp_path: Path, step: tuple[bytes, ...]
) -> None:
    async with a_proxy(empty_url) as (proxy, through):
        database = Database(through)
        proxy.cut_at_answer(*step)
        with pytest.raises(DatabaseDown, match=r"^the database at postgresql.* cannot be used: .*$"):
            async with running(settings(tmp_path), database=database, poll=False, is_patient=False):
                pass
        await database.close()


@pytest.mark.parametrize("command", ["serve", "work", "chat"])
async def test_ctrl_c_ends_a_start_that_waits_for_the_database(empty_url: str, tmp_path: Path, command: str) -> None:
    async with a_proxy(empty_url) as (proxy, through):
        environ = {
            "VUELVO_DATABASE_URL": through,
            "VUELVO_SECRET_KEY": "a secret for the tests of the service",
            "VUELVO_PORT": "0",
        }
        proxy.cut_at_answer(b"INSERT INTO tenants")
        process = await start(command, directory=tmp_path, environ=environ)
        await process.until_said("cannot be used yet")
        process.interrupt()
        assert await process.ended() == 130
    assert not any("Traceback" in line for line in process.said)


async def test_an_embedded_database_that_dies_while_the_service_starts_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_database(settings(tmp_path), is_patient=True) as database:
        os.kill(postmaster(tmp_path), signal.SIGKILL)
        async with running(settings(tmp_path), database=database):
            assert await contents(database) == (newest(), [("demo", 1)])
    assert "cannot be used yet" in caplog.text


async def test_an_embedded_database_whose_port_was_taken_comes_back_on_another_and_is_followed(tmp_path: Path) -> None:
    async with open_database(settings(tmp_path), is_patient=False) as database:
        signals = Signals(database)
        await signals.start()
        await eventually(lambda: signals.is_alive)
        async with database.transaction() as connection:
            await connection.execute(text("create table kept as select 7 as number"))
        port = database.url.port
        with (tmp_path / "postgres.lock").open() as lock, socket.socket() as other:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nobody starts the server until we have its port
            os.kill(postmaster(tmp_path), signal.SIGKILL)
            await eventually(lambda: takes(other, port))
            taken = await asyncio.start_server(lambda _, writer: writer.close(), sock=other)
            await eventually(lambda: not signals.is_alive)
            fcntl.flock(lock, fcntl.LOCK_UN)
            await eventually(lambda: signals.is_alive, 30)
            async with database.transaction() as connection:
                assert await connection.scalar(text("select number from kept")) == 7
            assert database.url.port != port
            taken.close()
        await signals.stop()


def postmaster(directory: Path) -> int:
    return int((directory / "postgres/postmaster.pid").read_text().split()[0])


def takes(other: socket.socket, port: int | None) -> bool:
    """Tell whether a port could be taken by another program."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind(("127.0.0.1", port or 0))
    except OSError:
        return False
    return True
