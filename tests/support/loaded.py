"""A `vuelvo` that is loaded once and called often, since loading takes most of the time of a short command.

Each call is a process of its own: forked from the one that has loaded everything, with the words, environment, directory, limit
and standard streams it is given, its own signals, and the end that Python gives it. What that cannot show is that a command
finds all it imports when it is the only one; that is why each command is started anew in a test (test_cli.py).

A call has two processes here: `vuelvo`, and its parent, which tells its number and in the end its exit code.
"""

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from app.cli import COMMANDS, main

VUELVO = Path(sys.executable).with_name("vuelvo")
LATER = ("aiogram.methods", "channels.telegram.polling", "rich.console", "rich.table", "twilio.rest")
"""What the commands import only when they need it."""
LONGEST = 2**17
"""Bytes of one call; more than all environments of the tests."""


class Called:
    """One process that was called, as asyncio shows the processes it starts."""

    def __init__(
        self, pid: int, stdin: BinaryIO | None, stdout: asyncio.StreamReader, told: asyncio.StreamReader
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(told))

    async def _end(self, told: asyncio.StreamReader) -> None:
        self.returncode = int(await told.read())
        if self.stdin is not None:
            self.stdin.close()

    async def wait(self) -> int:
        """Wait for its end and return its exit code: less than nought for a signal."""
        await asyncio.shield(self._ending)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it: kill -9."""
        self.send_signal(signal.SIGKILL)


async def call(
    words: Sequence[str], *, directory: Path, environ: Mapping[str, str], can_write: bool, files: int | None
) -> Called:
    """Start `vuelvo WORDS` from what is loaded."""
    stdin, typed = os.pipe() if can_write else (os.open(os.devnull, os.O_RDONLY), None)
    (said, stdout), (told, tell) = os.pipe(), os.pipe()
    message = json.dumps({"words": words, "directory": str(directory), "environ": dict(environ), "files": files})
    socket.send_fds(_loaded()[0], [message.encode()], [stdin, stdout, tell])
    for given in (stdin, stdout, tell):
        os.close(given)
    read = await _reader(told)
    pid = int(await read.readline())
    return Called(pid, os.fdopen(typed, "wb", buffering=0) if typed is not None else None, await _reader(said), read)


async def _reader(end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", 0)
    )
    return reader


@cache
def _loaded() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Load it, once for this process and for as long as this lives; return where it takes calls, and it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("VUELVO_", "OPENAI_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            cwd=Path(__file__).parents[2],
            env={**environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
    return ours, process


def load_and_serve(calls: socket.socket) -> None:
    """Load all there is, and answer calls until nobody is there to call; returns in each process that was called."""
    for module in (*(module for module, _ in COMMANDS.values()), *LATER):
        import_module(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who calls, whose end is ours
    while True:
        message, fds, _, _ = socket.recv_fds(calls, LONGEST, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            calls.close()
            break
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    stdin, stdout, tell = fds
    if pid := os.fork():
        for fd in (stdin, stdout):
            os.close(fd)
        os.write(tell, b"%d\n" % pid)
        os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.close(tell)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _become(stdin, stdout, **json.loads(message))


def _become(
    stdin: int, stdout: int, *, words: list[str], directory: str, environ: dict[str, str], files: int | None
) -> None:
    for given, standard in ((stdin, 0), (stdout, 1), (stdout, 2)):
        os.dup2(given, standard)
    os.close(stdin)
    os.close(stdout)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(directory)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.argv = [str(VUELVO), *words]


if __name__ == "__main__":
    load_and_serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())
