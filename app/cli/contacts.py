"""`vuelvo contacts erase`."""

import json

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from app import erasure
from app.cli.conversations import masked
from app.cli.run import as_text, fail, opened, run
from app.settings import Settings
from scheduler.clock import Clock
from store import erase as people
from store import tenants

CHANNELS = click.Choice(["web", "telegram", "whatsapp"])


@click.group()
def contacts() -> None:
    """Erase what is known of a contact."""


async def found(
    connection: AsyncConnection, tenant: str, channel: str | None, address: str | None, conversation: int | None
) -> list[int]:
    """Return the contacts of an address, or the one of a conversation; ends with a clear line where there is none."""
    if await tenants.find(connection, tenant) is None:
        fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
    if conversation is not None:
        contact = await people.contact_of(connection, tenant, conversation)
        if contact is None:
            fail(f"tenant {tenant} has no conversation {conversation}: see vuelvo conversations list", 2)
        return [contact]
    assert channel is not None and address is not None  # noqa: PT018 - the command line has seen to it
    known = await people.contacts_of(connection, tenant, channel, [erasure.key_of(channel, address)])
    if not known:
        fail(
            f"tenant {tenant} knows nobody of that address on {channel}: give it as it is written to, such as"
            " whatsapp:+573001234567, or name a --conversation",
            2,
        )
    return list(known)


def check(channel: str | None, address: str | None, conversation: int | None) -> None:
    """Raise click.UsageError unless a contact is named in one of the two ways."""
    if (channel is None or address is None) == (conversation is None) or (channel is None) != (address is None):
        raise click.UsageError("name the contact by --channel and their address, or by a --conversation of theirs")


async def _erase(
    settings: Settings,
    tenant: str,
    channel: str | None,
    address: str | None,
    conversation: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    async with opened(settings) as database:
        async with database.autocommit() as connection:
            whom = await found(connection, tenant, channel, address, conversation)
        named = f"conversation {conversation}" if address is None else masked(address)
        if not yes:
            click.confirm(
                f"All that tenant {tenant} knows of {named} is erased, and what is to come there is cancelled. This cannot be"
                " undone. Go on?",
                abort=True,
                err=True,
            )
        try:
            counts = await erasure.erase(database, Clock(), tenant, whom)
        except erasure.Speaking as problem:
            fail(str(problem))
    if as_json:
        click.echo(json.dumps(counts))
        return
    kept = ", ".join(
        f"{counts[name]} {name}" for name in ("contacts", "conversations", "messages", "tasks", "renewals")
    )
    click.echo(f"erased: {kept}; {counts['cancelled']} of the tasks were to come, and are cancelled")


@contacts.command()
@click.option("--tenant", required=True, callback=as_text, help="Whose contact.")
@click.option("--channel", type=CHANNELS, help="Where ADDRESS is.")
@click.option("--conversation", type=click.IntRange(1, 2**63 - 1), help="The contact that this conversation is with.")
@click.option("--yes", is_flag=True, help="Do not ask whether to go on.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("address", required=False, callback=as_text)
def erase(
    tenant: str, channel: str | None, conversation: int | None, yes: bool, as_json: bool, address: str | None
) -> None:
    """Erase what a tenant knows of a contact: words, address and name. The rows stay, emptied, so that counts add up.

    Whoever writes from there afterwards is somebody new.
    """
    check(channel, address, conversation)
    run(_erase)(tenant=tenant, channel=channel, address=address, conversation=conversation, yes=yes, as_json=as_json)
