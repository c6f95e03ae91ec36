"""`vuelvo export`."""

import os
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TextIO

import click

from app import export as exporting
from app.cli.contacts import CHANNELS, check, found
from app.cli.run import as_text, fail, opened, run
from app.erasure import key_of
from app.settings import Settings
from store import erase as people
from store import tenants
from store.database import Database


@contextmanager
def _whole(file: str) -> Iterator[TextIO]:
    """Open a file to be written whole or not at all: nobody takes a half for the whole, and it is nobody else's to read."""
    if file == "-":
        yield sys.stdout
        return
    part = Path(f"{file}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            yield out
        part.replace(file)
    except OSError as problem:
        fail(f"{file} cannot be written: {problem.strerror}", 2)
    finally:
        part.unlink(missing_ok=True)


async def _export(
    settings: Settings, tenant: str, channel: str | None, contact: str | None, conversation: int | None, out: TextIO
) -> None:
    async with opened(settings) as database:
        async with database.autocommit() as connection:
            if await tenants.find(connection, tenant) is None:
                fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
        count = await _write(database, out, tenant, channel, contact, conversation)
    click.echo(f"{count} lines", err=True)


async def _write(
    database: Database, out: TextIO, tenant: str, channel: str | None, contact: str | None, conversation: int | None
) -> int:
    chosen: dict[str, list[int]] = {}
    if contact is not None or conversation is not None:
        async with database.autocommit() as connection:
            whom = await found(connection, tenant, channel, contact, conversation)
            renewals, talks = await people.theirs(connection, tenant, whom, key_of)
        chosen = {"contacts": whom, "conversations": list(talks), "renewals": list(renewals)}
    count = 0
    async with aclosing(exporting.export(database, tenant, **chosen)) as lines:
        async for line in lines:
            out.write(line + "\n")
            count += 1
    return count


@click.command()
@click.option("--tenant", required=True, callback=as_text, help="Whose data.")
@click.option("--channel", type=CHANNELS, help="With --contact: where.")
@click.option("--contact", callback=as_text, help="Only this contact's, by their address.")
@click.option("--conversation", type=click.IntRange(1, 2**63 - 1), help="Only those of the contact it is with.")
@click.argument("file")
def export(tenant: str, channel: str | None, contact: str | None, conversation: int | None, file: str) -> None:
    """Write contacts, conversations, messages, tasks and renewals to FILE (`-`: standard output), one JSON object a line."""
    if channel is not None or contact is not None or conversation is not None:
        check(channel, contact, conversation)
    with _whole(file) as out:
        run(_export)(tenant=tenant, channel=channel, contact=contact, conversation=conversation, out=out)
