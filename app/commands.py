"""What a customer asks of the service itself, by a command; no model is asked.

`obey` does it in the transaction in which the message is taken in. What is to be said of it is booked as a turn, whose
payload `words_for` turns into words when its time to speak has come.
"""

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from agent.language import detect
from agent.phrases import phrase
from agent.rhythm import rhythm, zone_for
from agent.tools.schedule_followup import local_time
from app.service import Service, language_of, voice_of
from app.tenants_file import TenantConfig
from channels import optout
from channels.telegram.commands import MENU, Command
from channels.telegram.commands import read as read_command
from scheduler.cancel import cancel_followup
from scheduler.find import Found, each_once, pending_followups
from store import conversations, messages
from store.conversations import Conversation

ABOUT = 200
"""Characters of what a follow-up is about, in a list."""
LAST = 20
"""Messages, the assistant's among them, that are looked at for the language the customer uses."""


def menu(tenant: TenantConfig) -> Mapping[str, Mapping[str, str]]:
    """Return the commands with what they do, in each of a tenant's languages; under "" for all others in its first."""
    described: dict[str, dict[str, str]] = {
        language: {name: phrase(f"command_{name}", language) for name in MENU} for language in tenant.languages
    }
    return {"": described[tenant.languages[0]], **described}


async def obey(
    service: Service, connection: AsyncConnection, tenant: TenantConfig, conversation: int, command: Command
) -> dict[str, Any]:
    """Do what a command asks for, in this conversation alone, and return what is to be said of it, as a turn's payload."""
    found = await conversations.find(connection, tenant.tenant, conversation)
    assert found is not None  # it has just been opened
    language = await last_language(connection, tenant, found)
    if command.name == "cancel" and command.number is not None:
        name, words = await _cancel(service, connection, tenant, found, language, command.number)
        return {"phrase": name, "language": language, "words": words}
    return {"phrase": "pending" if command.name == "cancel" else command.name, "language": language}


async def last_language(connection: AsyncConnection, tenant: TenantConfig, conversation: Conversation) -> str:
    """Return the tenant's language that the customer last used, as far as their last messages tell.

    Of which language a command is, or a word such as STOP, tells nothing.
    """
    language = language_of(tenant, conversation, "")
    last = await messages.read(connection, tenant.tenant, conversation.id, before=conversation.last_seq + 1, limit=LAST)
    for said in (message.text for message in last if message.role == "customer"):
        if read_command(said) is None and optout.read(said, tenant.languages, tenant.opt_out) is None:
            told = detect(said, language)
            language = told if told in tenant.languages else language
    return language


async def _cancel(
    service: Service,
    connection: AsyncConnection,
    tenant: TenantConfig,
    conversation: Conversation,
    language: str,
    number: int,
) -> tuple[str, dict[str, str]]:
    pending = await pending_followups(connection, tenant.tenant, conversation.id)
    found = next((one for one in pending if one.id == number), None)
    if found is None:
        return "not_pending", {"id": str(number)}
    done = await cancel_followup(connection, service.clock, tenant.tenant, conversation.id, number, by="the customer")
    words = await _item(service, connection, tenant, conversation, language, found)
    if number in done.cancelled:
        return "cancelled", words
    return ("cancel_raced", words) if number in done.raced else ("not_pending", {"id": str(number)})


async def words_for(
    service: Service, tenant: TenantConfig, conversation: Conversation, payload: Mapping[str, Any]
) -> str:
    """Return what a turn says that was booked with a phrase; a list is of what is pending now."""
    name, language = str(payload["phrase"]), str(payload.get("language"))
    if name == "start":
        return phrase(name, language, business=tenant.name, help=phrase("help", language))
    if name != "pending":
        return phrase(name, language, business=tenant.name, **payload.get("words", {}))
    async with service.database.autocommit() as connection:
        pending = each_once(await pending_followups(connection, tenant.tenant, conversation.id))
        items = [
            phrase(
                "pending_item" if one.kind != "schedule" else "pending_again",
                language,
                **await _item(service, connection, tenant, conversation, language, one),
                rhythm=rhythm(one.payload, language),
            )
            for one in pending
        ]
    return phrase(name, language, items="\n".join(items)) if items else phrase("nothing_pending", language)


async def _item(
    service: Service,
    connection: AsyncConnection,
    tenant: TenantConfig,
    conversation: Conversation,
    language: str,
    found: Found,
) -> dict[str, str]:
    voice = voice_of(tenant, conversation, await service.clock.now(connection), language=language)
    at, zone = local_time(found.booked_for, voice, zone_for(found, voice.zone))
    about = shorten(str(found.payload.get("about", "")), ABOUT, placeholder=" …")
    return {"id": str(found.id), "about": about, "local_time": at, "time_zone": zone}
