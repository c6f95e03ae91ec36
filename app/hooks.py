"""The doors at which providers knock. Each request is proved to be the provider's before anything is looked up by it or
kept of it, and its message is committed before it is answered."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.inbox import receive, take_in
from app.sent import did_not_arrive, go_on
from app.service import Service
from app.settings import Settings
from app.tenants_file import TenantConfig
from channels.errors import Malformed, Refused
from channels.message import Incoming
from channels.request import Problem, read_body, read_json
from channels.telegram import inbound as telegram
from channels.telegram.bot import TelegramSection, open_bot
from channels.whatsapp import inbound as whatsapp
from channels.whatsapp import signature
from channels.whatsapp.section import WhatsAppSection
from scheduler import operate
from scheduler.poller import DUE
from store import contacts, deliveries
from store.secrets import SecretBox

log = logging.getLogger(__name__)

_DELIVERY = re.compile("[0-9]{1,18}")
FORBIDDEN = "The request is not proved to come from the provider. Nothing was kept of it."


def telegram_secret(box: SecretBox, tenant: str, bot_id: str) -> str:
    """Return the secret that Telegram is told when the webhook is set, and repeats with each update."""
    return box.derive(f"telegram webhook {tenant} {bot_id}")


def telegram_url(settings: Settings, tenant: str) -> str:
    """Return where Telegram is told to bring a tenant's updates, for a service with a public address."""
    return f"{settings.public_url}/hooks/telegram/{tenant}"


def refusal(channel: str, tenant: str, status: int, why: object) -> Problem:
    """Log that a request is refused, for whom and why, and return what is answered. A stranger may have named the tenant."""
    log.warning("a webhook for %s of tenant %r was refused: %s", channel, tenant[:40], why)
    return Problem(status, FORBIDDEN if status == 403 else str(why))


def hook_routes(service: Service, settings: Settings) -> list[Route]:
    """Return the webhooks' routes."""
    bot_names: dict[str, str | None] = {}

    async def find(request: Request, channel: str) -> TenantConfig:
        tenant = await service.tenant(request.path_params["tenant"])
        if tenant is None:
            raise refusal(channel, request.path_params["tenant"], 404, "There is no such tenant.")
        return tenant

    async def on_telegram(request: Request) -> Response:
        tenant = await find(request, "telegram")
        section = tenant.channels.telegram
        if section is None:
            raise refusal("telegram", tenant.tenant, 404, "This tenant has no Telegram channel.")
        try:
            secret = telegram_secret(service.box, tenant.tenant, section.bot_id)
            telegram.check_secret(request.headers.get("x-telegram-bot-api-secret-token"), secret)
        except Refused as refused:
            raise refusal("telegram", tenant.tenant, 403, refused) from refused
        update = await read_json(request, telegram.LARGEST)
        try:
            incoming = await read_update(update, tenant.tenant, section)
        except Malformed:
            return Response()  # theirs, but nothing to answer: were it not accepted, it would come again
        await take_in(service, incoming)
        return Response()

    async def read_update(update: Mapping[str, Any], tenant: str, section: TelegramSection) -> Incoming:
        bot = section.bot_id
        try:
            return telegram.read_update(update, tenant, bot, bot_names.get(bot))
        except Malformed:
            # A group may have addressed the bot by its name, which Telegram is asked for once.
            if bot in bot_names or not _names_somebody(update):
                raise
        bot_names[bot] = await _bot_name(section, settings)
        return telegram.read_update(update, tenant, bot, bot_names[bot])

    async def signed_form(request: Request) -> tuple[TenantConfig, WhatsAppSection, list[tuple[str, str]]]:
        tenant = await find(request, "whatsapp")
        section = tenant.channels.whatsapp
        if section is None:
            raise refusal("whatsapp", tenant.tenant, 404, "This tenant has no WhatsApp channel.")
        body = await read_body(request)
        try:
            form = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=200)
        except ValueError as problem:
            raise refusal("whatsapp", tenant.tenant, 403, "The body is no form in UTF-8.") from problem
        url = _signed_url(request, settings)
        try:
            signature.check(section, url, form, request.headers)
        except Refused as refused:
            path, query, _ = url.partition("?")
            words = f"{refused} The public URL here is {path!r}{', with a query' if query else ''}"
            raise refusal("whatsapp", tenant.tenant, 403, words) from refused
        return tenant, section, form

    async def on_whatsapp(request: Request) -> Response:
        tenant, section, form = await signed_form(request)
        try:
            inbound = whatsapp.read_message(section, tenant.tenant, form)
        except Refused as refused:
            raise refusal("whatsapp", tenant.tenant, 403, refused) from refused
        except Malformed:
            return Response(status_code=204)
        await receive(service, inbound)
        return Response(status_code=204)

    async def on_status(request: Request) -> Response:
        number = request.path_params["delivery"]
        if not _DELIVERY.fullmatch(number):
            raise Problem(404, "There is no such delivery.")
        delivery = int(number)
        tenant, section, form = await signed_form(request)
        try:
            status = whatsapp.read_status(section, form)
        except Refused as refused:
            raise refusal("whatsapp", tenant.tenant, 403, refused) from refused
        except Malformed:
            return Response(status_code=204)
        channel = await service.channel(tenant, "whatsapp")
        assert channel is not None  # its section has just proved the request
        async with service.database.transaction() as connection:
            known = await deliveries.task_of(connection, tenant.tenant, delivery)
            if known is None:
                return Response(status_code=204)
            task, conversation = known
            # The contact before the task before its deliveries, as everybody locks them.
            if channel.remedy(status.code) == "blocked":
                await contacts.lock(connection, tenant.tenant, conversation)
            await operate.lock(connection, tenant.tenant, task)
            noted = await deliveries.note_status(
                connection,
                tenant.tenant,
                delivery,
                status.provider_id,
                status.status,
                status.reason,
                status.code,
            )
            by = f"Twilio: {status.status}"
            if noted is not None and noted.is_news:
                await go_on(service, connection, tenant.tenant, channel, noted.task, by)
            if noted is not None and noted.contradicts:
                log.warning(
                    "Twilio says of delivery %d of tenant %s that it arrived, and that it did not: it is taken for arrived",
                    delivery,
                    tenant.tenant,
                )
            if noted is not None and noted.is_turned:
                await did_not_arrive(service, connection, tenant.tenant, channel, delivery, noted.task, by)
        if noted is not None and (noted.is_news or noted.is_turned):
            service.signals.hint(DUE)
        if noted is not None and noted.has_left:
            service.signals.hint(f"delivery {delivery}")
        return Response(status_code=204)

    return [
        Route("/hooks/telegram/{tenant}", on_telegram, methods=["POST"]),
        Route("/hooks/whatsapp/{tenant}", on_whatsapp, methods=["POST"]),
        Route("/hooks/whatsapp/{tenant}/status/{delivery}", on_status, methods=["POST"]),
    ]


def _names_somebody(update: Mapping[str, Any]) -> bool:
    message = update.get("message")
    return isinstance(message, dict) and "@" in f"{message.get('text')} {message.get('caption')}"


async def _bot_name(section: TelegramSection, settings: Settings) -> str | None:
    """Return the bot's own name. Raises Problem 503 when Telegram does not tell it: then the update comes again."""
    bot = await asyncio.to_thread(open_bot, section, settings.telegram_api_url)
    try:
        return (await bot.get_me(request_timeout=10)).username
    except Exception as problem:  # aiogram raises much besides its own errors
        log.warning("Telegram does not tell the name of bot %s: %s", section.bot_id, type(problem).__name__)
        raise Problem(503, "The bot's name is not known yet. Send the update again.") from problem
    finally:
        await bot.session.close()


def _signed_url(request: Request, settings: Settings) -> str:
    """Return the URL that Twilio was given: our public one, with path and query byte for byte as they came."""
    base: str = settings.public_url or f"{request.url.scheme}://{request.url.netloc}"
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope.get("query_string", b"")
    whole = path.split(b"?")[0] + (b"?" + query if query else b"")
    return base + whole.decode("utf-8", "replace")
