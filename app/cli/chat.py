"""`vuelvo chat`: the terminal is one more page on the web channel."""

import asyncio
import contextlib
import getpass
import io
import logging
import os
import sys
import threading
from functools import partial
from uuid import uuid4

import click

from app.cli.run import fail, run
from app.cli.stop import Stop
from app.database import when_it_can_be_used
from app.inbox import receive
from app.settings import Settings
from app.wiring import Running, running
from channels.message import Inbound
from scheduler.when import known_zone
from store import contacts, conversations, messages
from store.blank import is_blank
from store.contacts import Contact

LONGEST = 4000


def local_zone() -> str | None:
    """Return this machine's time zone by name, where the system tells it."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not known_zone(name):
        name = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    return name if known_zone(name) else None


class Chat:
    """One conversation in the terminal."""

    def __init__(self, house: Running, tenant: str, conversation: int, address: str, seq: int) -> None:
        self._house, self._tenant, self._conversation, self._address, self._seq = (
            house,
            tenant,
            conversation,
            address,
            seq,
        )

    async def show(self) -> None:
        """Print what the agent says, whenever it says it."""
        service = self._house.service
        with service.signals.subscribe(f"message {self._conversation}") as hints:
            while True:
                async with service.database.autocommit() as connection:
                    new = await messages.read(connection, self._tenant, self._conversation, after=self._seq)
                for message in new:
                    self._seq = message.seq
                    if message.role == "assistant":
                        mark = "" if message.kind == "reply" else f"[{message.at.astimezone():%H:%M:%S}] "
                        click.echo(f"{mark}{message.text}")
                await hints.wait(1.0)

    async def listen(self) -> None:
        """Send what is typed, until the input ends."""
        lines = _lines()
        while (line := await lines.get()) is not None:
            words = line.strip().replace("\x00", "")
            if is_blank(words):
                continue
            if len(words) > LONGEST:
                click.echo(f"(not sent: longer than {LONGEST} characters)", err=True)
                continue
            await receive(
                self._house.service,
                Inbound(
                    tenant=self._tenant,
                    channel="web",
                    address=self._address,
                    address_key=self._address,
                    provider_id=f"{self._conversation}:{uuid4()}",
                    text=words,
                ),
            )


def _lines() -> "asyncio.Queue[str | None]":
    """Read standard input in a thread that does not keep the program alive."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the program has ended meanwhile
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    return lines


async def _open(house: Running, tenant: str) -> Chat:
    if await house.service.tenant(tenant) is None:
        fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
    address = f"terminal:{getpass.getuser()}"
    async with house.service.database.transaction() as connection:
        contact = Contact(tenant, "web", address, address, time_zone=local_zone())
        conversation = await conversations.open_conversation(
            connection, tenant, await contacts.meet(connection, contact), None
        )
        held = await conversations.find(connection, tenant, conversation)
    return Chat(house, tenant, conversation, address, held.last_seq if held else 0)


async def _chat(settings: Settings, tenant: str, stay: float) -> None:
    stop = Stop()
    async with running(settings) as house:
        database = house.service.database
        chat = await when_it_can_be_used(database, partial(_open, house, tenant), is_patient=True)
        stop.is_up()
        click.echo(
            "Write, for example: remind me in 10 seconds to call Ana. Ctrl-C ends; what is booked stays.", err=True
        )
        showing = asyncio.create_task(chat.show())
        listening = asyncio.create_task(chat.listen())
        stopped = asyncio.create_task(stop.asked.wait())
        await asyncio.wait({showing, listening, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if listening.done() and not stop.asked.is_set():
            with contextlib.suppress(TimeoutError):  # the input was a pipe: wait for the answers
                async with asyncio.timeout(stay):
                    await stop.asked.wait()
        for task in (showing, listening, stopped):
            task.cancel()
        results = await asyncio.gather(showing, listening, stopped, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


@click.command()
@click.option("--tenant", default="demo", show_default=True)
@click.option(
    "--stay",
    type=click.FloatRange(0, 86_400),
    default=2.0,
    show_default=True,
    help="Seconds to wait for answers when the input ends.",
)
def chat(tenant: str, stay: float) -> None:
    """Talk to a tenant's agent here in the terminal. What falls due appears as it fires."""
    run(_chat, level=logging.ERROR)(tenant=tenant, stay=stay)
