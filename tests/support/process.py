"""The service as its users run it: processes, started, watched and killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.loaded import VUELVO, Called, call


class Process:
    """One running `vuelvo …`."""

    def __init__(self, process: asyncio.subprocess.Process | Called) -> None:
        self._process = process
        self.said: list[str] = []
        """What it has written, line by line."""
        self._new = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said.append(line.decode().rstrip())
            self._new.set()
        self._new.set()

    async def until_said(self, words: str, seconds: float = 60) -> str:
        """Wait for a line with these words and return it; fails with all that was said when it ends without."""
        async with asyncio.timeout(seconds):
            while True:
                for line in self.said:
                    if words in line:
                        return line
                if self._reading.done():
                    raise AssertionError(f"it ended without saying {words!r}:\n" + "\n".join(self.said))
                self._new.clear()
                await self._new.wait()

    def write(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def end_input(self) -> None:
        """Close its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    async def kill(self) -> None:
        """Kill it as the machine's fault would: kill -9."""
        self._process.kill()
        await self.ended()

    async def stop(self, seconds: float = 30) -> int:
        """Ask it to stop and return its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(seconds):
            return await self.ended()

    async def ended(self) -> int:
        """Wait for its end and return its exit code."""
        code = await self._process.wait()
        await self._reading
        return code

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None


async def start(
    *words: str,
    directory: Path,
    environ: Mapping[str, str] | None = None,
    can_write: bool = False,
    files: int | None = None,
    is_anew: bool = False,
) -> Process:
    """Start `vuelvo WORDS` in a directory, with nothing of our own environment that could mislead it.

    With `can_write` its standard input is ours to `write` to; otherwise it is empty. `files` is how many it may open. It is
    forked from one that is loaded, unless it is to be started anew from its file, as what is said to Python itself needs.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VUELVO_", "OPENAI_"))}
    env = {**inherited, "PYTHONUNBUFFERED": "1", **(environ or {})}
    if not is_anew and not any(name.startswith("PYTHON") for name in environ or {}):
        return Process(await call(words, directory=directory, environ=env, can_write=can_write, files=files))
    limited = ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh") if files else ()
    return Process(
        await asyncio.create_subprocess_exec(
            *limited,
            str(VUELVO),
            *words,
            cwd=directory,
            env=env,
            stdin=asyncio.subprocess.PIPE if can_write else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    )


@asynccontextmanager
async def serving(
    *words: str,
    directory: Path,
    environ: Mapping[str, str] | None = None,
    files: int | None = None,
    is_anew: bool = False,
) -> AsyncIterator[tuple[Process, str]]:
    """Run `vuelvo serve` on a free port; yields it and its address."""
    environ = {"VUELVO_PORT": "0", **(environ or {})}
    process = await start("serve", *words, directory=directory, environ=environ, files=files, is_anew=is_anew)
    try:
        line = await process.until_said("Vuelvo is here: ")
        yield process, line.split("here: ")[1].rstrip("/")
    finally:
        if process.is_running:
            await process.stop()
