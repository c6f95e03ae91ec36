"""`vuelvo conversations list | show | pause | reply | resume`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from app import handover
from app.cli.run import as_text, fail, opened, run, show
from app.settings import Settings, secret_key
from app.tenants_file import from_stored
from scheduler.clock import Clock
from scheduler.poller import DUE
from store import conversations as talks
from store import messages, tenants
from store.conversations import Conversation
from store.secrets import SecretBox
from store.signals import notify

WHY_SHOWN = 60
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
_ID = click.argument("conversation", metavar="ID", type=click.IntRange(1, 2**63 - 1))


@click.group()
def conversations() -> None:
    """List and read conversations, take one over from the assistant, answer in it, and give it back."""


def masked(address: str) -> str:
    """Return an address by which its owner may be told from others, and not be reached: `whatsapp:…67`."""
    channel, colon, rest = address.rpartition(":")
    return f"{channel}{colon}…{rest[-2:]}" if len(rest) > 4 else f"{channel}{colon}…"


def _shown(at: datetime | None) -> str | None:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if at else None


async def _found(connection: AsyncConnection, conversation: int) -> Conversation:
    tenant = await talks.tenant_of(connection, conversation)
    found = await talks.find(connection, tenant, conversation) if tenant is not None else None
    if found is None:
        fail(f"there is no conversation {conversation}: see vuelvo conversations list", 2)
    return found


async def _list(settings: Settings, tenant: str, waiting: bool, limit: int, as_json: bool) -> None:
    async with opened(settings) as database, database.autocommit() as connection:
        if await tenants.find(connection, tenant) is None:
            fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
        found = await talks.listed(connection, tenant, is_waiting=waiting, limit=limit)
    rows = [
        {
            "id": one.id,
            "channel": one.channel,
            "address": masked(one.address),
            "last_message": _shown(one.last_inbound_at),
            "unanswered": one.unanswered,
            "with_person_since": _shown(one.with_person_since),
            "why": one.with_person_why if as_json else (one.with_person_why or "")[:WHY_SHOWN],
        }
        for one in found
    ]
    columns = ["id", "channel", "address", "last_message", "unanswered", "with_person_since", "why"]
    show(rows, as_json=as_json, columns=columns)


@conversations.command("list")
@click.option("--tenant", required=True, callback=as_text, help="Whose conversations.")
@click.option("--waiting", is_flag=True, help="Only those with a person, the longest waiting first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@_as_json
def list_conversations(tenant: str, waiting: bool, limit: int, as_json: bool) -> None:
    """List a tenant's conversations, the last written in first; of addresses the ends alone are shown."""
    run(_list)(tenant=tenant, waiting=waiting, limit=limit, as_json=as_json)


async def _show(settings: Settings, conversation: int, limit: int, as_json: bool) -> None:
    async with opened(settings) as database, database.autocommit() as connection:
        found = await _found(connection, conversation)
        why = await talks.why_with_person(connection, found.tenant, conversation)
        said = await messages.read(connection, found.tenant, conversation, before=found.last_seq + 1, limit=limit)
    row = {
        "id": found.id,
        "tenant": found.tenant,
        "channel": found.channel,
        "address": found.address,
        "thread": found.thread,
        "name": found.name,
        "language": found.language,
        "time_zone": found.time_zone,
        "opted_out": found.stopped == "customer",
        "answered_up_to": found.answered_seq,
        "with_person_since": _shown(found.with_person_since),
        "why": why,
    }
    if as_json:
        lines = [{"seq": one.seq, "at": _shown(one.at), "kind": one.kind, "text": one.text} for one in said]
        click.echo(json.dumps(row | {"messages": lines}, ensure_ascii=False, indent=2))
        return
    for name, value in row.items():
        if value not in (None, False):
            click.echo(f"{name}: {_one_line(value)}")
    for line in _told(said, found.answered_seq):
        click.echo(line)


def _told(said: Sequence[messages.Message], answered: int) -> list[str]:
    return [
        f"{one.seq:>4}  {_shown(one.at)}  {'customer' if one.role == 'customer' else one.kind}"
        f"{' (unanswered)' if one.role == 'customer' and one.seq > answered else ''}: {_one_line(one.text)}"
        for one in said
    ]


def _one_line(value: Any) -> str:
    """Return it as one line without what a terminal would obey: customers' words come from outside."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))


@conversations.command("show")
@_ID
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many messages.")
@_as_json
def show_conversation(conversation: int, limit: int, as_json: bool) -> None:
    """Show one conversation: with whom it is, who answers in it, and what was said last."""
    run(_show)(conversation=conversation, limit=limit, as_json=as_json)


async def _pause(settings: Settings, conversation: int, why: str | None) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        found = await _found(connection, conversation)
        if not await talks.hand_over(connection, found.tenant, conversation, why):
            fail(f"conversation {conversation} is with a person already, since {_shown(found.with_person_since)}", 2)
    click.echo(
        f"conversation {conversation} is with a person now: the assistant says nothing in it until"
        f" vuelvo conversations resume {conversation}"
    )


@conversations.command()
@_ID
@click.option("--why", callback=as_text, help="Why, for those who look who waits.")
def pause(conversation: int, why: str | None) -> None:
    """Take a conversation over: the assistant says nothing in it until it is given back."""
    run(_pause)(conversation=conversation, why=" ".join(why.split())[:500] or None if why else None)


async def _reply(settings: Settings, conversation: int, text: str) -> None:
    box = SecretBox(secret_key(settings))
    async with opened(settings) as database, database.transaction() as connection:
        found = await _found(connection, conversation)
        row = await tenants.find(connection, found.tenant)
        assert row is not None  # a foreign key holds it
        try:
            task = await handover.reply(connection, Clock(), from_stored(row.config, box), found, text)
        except ValueError as problem:
            fail(str(problem), 2)
        await notify(connection, [DUE])
    click.echo(f"task {task.id} says it; vuelvo tasks get {task.id} tells what became of it")


def _as_words(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> str | None:
    return as_text(context, option, " ".join(words))


@conversations.command()
@_ID
@click.argument("text", nargs=-1, required=True, callback=_as_words)
def reply(conversation: int, text: str) -> None:
    """Say TEXT in a conversation that you have taken over. It answers all that the customer has written until now."""
    run(_reply)(conversation=conversation, text=text)


async def _resume(settings: Settings, conversation: int) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        found = await _found(connection, conversation)
        if not await handover.resume(connection, Clock(), found.tenant, conversation):
            fail(f"conversation {conversation} is the assistant's already", 2)
        await notify(connection, [DUE])
    click.echo(f"conversation {conversation} is the assistant's again")


@conversations.command()
@_ID
def resume(conversation: int) -> None:
    """Give a conversation back to the assistant, which answers what nobody has answered; what waited goes on."""
    run(_resume)(conversation=conversation)
