"""`vuelvo mcp`."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import click

from app.api.access import key_of
from app.cli.run import fail, run
from app.cli.stop import Stop
from app.database import open_database
from app.mcp.protocol import serve_lines
from app.settings import Settings
from app.wiring import running
from channels.request import Problem


async def _mcp(settings: Settings, key_file: str | None) -> None:
    token = _token(settings, key_file)
    stop = Stop()
    async with (
        open_database(settings, is_patient=False, is_new=False) as database,
        running(settings, poll=False, load_app=True, is_patient=False, database=database) as house,
    ):
        who = partial(key_of, house.service, token)
        try:
            await who()
        except Problem as problem:
            fail(problem.detail, 2)
        serving = asyncio.create_task(serve_lines(house.functions, who, _lines()))
        stop.is_up()
        asked = asyncio.create_task(stop.asked.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not serving.done():
            serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def _token(settings: Settings, key_file: str | None) -> str:
    if key_file is not None:
        try:
            return Path(key_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not text"
            fail(f"--key-file {key_file}: it cannot be read: {why}", 2)
    if settings.mcp_key is None:
        fail(
            "whose bookings? Set VUELVO_MCP_KEY to a key of the tenant, or name a file that holds one with --key-file;"
            " vuelvo keys create makes one",
            2,
        )
    return settings.mcp_key.get_secret_value().strip()


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of standard input, read in a thread that does not keep the program alive.

    Nothing else in this process, and none of its children, can read of it.
    """
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    ours = os.fdopen(os.dup(0), encoding="utf-8", errors="replace", closefd=False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the program has ended meanwhile
            for line in ours:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


@click.command()
@click.option("--key-file", metavar="FILE", help="A file that holds the tenant's key, instead of VUELVO_MCP_KEY.")
def mcp(key_file: str | None) -> None:
    """Let an agent book, list and cancel, over MCP on standard input and output.

    It acts with a key of a tenant (VUELVO_MCP_KEY, or a file), and may what that key allows. An agent's program starts it:
    docs/mcp.md shows how. The service serves the same at /mcp.
    """
    if sys.stdin.isatty():
        click.echo("vuelvo: this speaks MCP, not to people: let an agent's program start it; Ctrl-C ends it", err=True)
    run(_mcp)(key_file)
