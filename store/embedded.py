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
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # ours holds secrets, and PG* variables
SETTINGS = {"listen_addresses": HOST, "unix_socket_directories": "", "lc_messages": "C", "logging_collector": "off"}
# The shell ends at once and leaves the server to init: no process of ours is its parent.
DETACH = '"$@" >&2 & echo $!'
INITDB = [
    *("--username", NAME, "--pwfile=/dev/stdin", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"),
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"),
]
ADVICE = {
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
            server._make_directory()
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
                await self._bring_up(lock)

    async def stop(self) -> None:
        """Leaves the server; the last process to leave stops it. Raises EmbeddedServerError."""
        if self._users is None:
            return
        with self._explained():
            async with self._alone():
                await asyncio.to_thread(self._leave)
                ...

    async def _bring_up(self, lock: int) -> None:
        if not self._is_made():
            await self._make(lock)
        for _ in range(5):
            pid = await asyncio.to_thread(self._launch)
            port = await self._wait_until_ready(pid)
            if port is not None:
                self.url = f"postgresql://{NAME}:{self._password}@{HOST}:{port}/{NAME}"
                return
            if pid is not None and "could not bind" not in self._log_tail():
                break  # otherwise it was on its way out when we came, or someone was quicker to take the port
        raise self._failure("did not start")
