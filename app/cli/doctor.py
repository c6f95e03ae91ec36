"""`vuelvo doctor`."""

import json
import zoneinfo
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from agent.errors import UnknownModel
from agent.models import check_model
from app import application
from app.cli.run import run
from app.database import open_database
from app.hooks import telegram_url
from app.receivers import is_polled
from app.service import OLDEST_DUE_LIMIT
from app.settings import Settings, secret_key
from app.tenants_file import TenantConfig, TenantFileError, from_stored
from channels.errors import NotDone
from channels.telegram.bot import open_bot
from channels.telegram.inbound import ALLOWED_UPDATES
from channels.web.section import is_open_to_all
from channels.whatsapp.contents import Contents, gaps, judge
from scheduler.find import oldest_due
from store import tenants
from store.database import Database
from store.migrate import newest, revision
from store.secrets import SecretBox, WrongKey

TWILIO_TIMEOUT = 10.0
"""Seconds for one tenant's templates: whoever asks a doctor waits."""
if TYPE_CHECKING:
    from aiogram.types import WebhookInfo


async def _doctor(settings: Settings, as_json: bool) -> None:
    checks: list[dict[str, Any]] = []

    def note(name: str, is_well: bool, words: str, *, is_warning: bool = False) -> None:
        checks.append({"check": name, "ok": is_well, "warning": is_warning, "detail": words})

    async with open_database(settings, is_patient=False) as database:
        await _look_at_database(database, note)
        await look_at_bots(await _look_at_tenants(database, settings, note), settings, note)
    try:
        if settings.model:
            check_model(settings.model)
        note("model", True, settings.model or "the offline stand-in; set VUELVO_MODEL to connect a real model")
    except UnknownModel as problem:
        note("model", False, f"VUELVO_MODEL: {problem}")
    url = settings.public_url or ""
    if url.startswith("http://") and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
        words = f"VUELVO_PUBLIC_URL is {url}: Telegram and Twilio refuse http, make it https"
        note("public address", True, words, is_warning=True)
    note("time zones", True, zones_used())
    if settings.app:
        try:
            handlers = application.load(settings.app).scheduler.ids
            note("application", True, f"{settings.app}: {len(handlers)} durable schedules")
        except application.ApplicationError as problem:
            note("application", False, str(problem))
    if as_json:
        click.echo(json.dumps(checks, ensure_ascii=False, indent=2))
    else:
        for check in checks:
            mark = "warn" if check["warning"] else "ok  " if check["ok"] else "BAD "
            click.echo(f"{mark} {check['check']}: {check['detail']}")
    if not all(check["ok"] for check in checks):
        raise SystemExit(1)


def zones_used() -> str:
    """Return which release of the tz database this process reads: the system's where there is one, else the package's."""
    for path in map(Path, zoneinfo.TZPATH):
        if (path / "Europe" / "Madrid").is_file():
            try:
                version = (path / "tzdata.zi").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# version ")
            except OSError:
                version = "of a release that it does not name"
            return f"the system's tz database in {path}, {version}"
    return f"tzdata {metadata.version('tzdata')}"


async def _look_at_database(database: Database, note: Any) -> None:
    async with database.transaction() as connection:
        version, at = (await connection.execute(text("select current_setting('server_version'), now()"))).one()
    major = int(str(version).split(".")[0])
    note("database", major >= 14, f"PostgreSQL {version}" + ("" if major >= 14 else ": 14 or newer is needed"))
    skew = abs((datetime.now(UTC) - at).total_seconds())
    note("clock", skew < 5, f"this host and the database differ by {skew:.1f} s; the database's decides")
    found = await revision(database)
    note(
        "schema",
        found == newest(),
        f"at {found}" if found == newest() else f"at {found}, not {newest()}: vuelvo migrate",
    )


async def _look_at_tenants(database: Database, settings: Settings, note: Any) -> list[TenantConfig]:
    """Return those that can be used."""
    try:
        async with database.transaction() as connection:
            rows = await tenants.find_all(connection)
            counted = await connection.execute(text("select state, count(*) from tasks group by 1 order by 1"))
            states = [f"{count} {state}" for state, count in counted]
            age = await oldest_due(connection, None)
    except SQLAlchemyError:
        return []  # the schema's check says what to do
    usable: list[TenantConfig] = []
    box = SecretBox(secret_key(settings))
    for row in rows:
        try:
            config = from_stored(row.config, box)
            usable.append(config)
            names = [name for name in ("web", "telegram", "whatsapp") if getattr(config.channels, name) is not None]
            if config.agent.model is not None:
                check_model(config.agent.model)
            if config.channels.whatsapp is not None and settings.public_url is None:
                note(
                    f"tenant {row.tenant}", False, "whatsapp is not heard: set VUELVO_PUBLIC_URL to where Twilio calls"
                )
            else:
                note(f"tenant {row.tenant}", True, f"channels {', '.join(names) or 'none'}")
            _look_at_widget(config, note)
            await _look_at_templates(config, settings, note)
        except (WrongKey, UnknownModel, TenantFileError) as problem:
            note(f"tenant {row.tenant}", False, str(problem))
    counts = ", ".join(states) or "none yet"
    if age > OLDEST_DUE_LIMIT:
        note("tasks", False, f"{counts}; one has been due for {age:.0f} s: start vuelvo serve or vuelvo work")
    else:
        note("tasks", True, counts)
    return usable


def _look_at_widget(config: TenantConfig, note: Any) -> None:
    """Look whether what a visitor writes can be overheard, or their session be taken, on the way from their page."""
    section = config.channels.web
    for origin in section.origins if section else ():
        if is_open_to_all(origin):
            words = f"the page {origin} comes without https, so anybody on its way can read along there: serve it with https"
            note(f"tenant {config.tenant}", True, words, is_warning=True)


async def look_at_bots(configs: list[TenantConfig], settings: Settings, note: Any) -> None:
    """Note of each tenant's Telegram bot, `note(check, is_well, words)`, whether its webhook is as it should be."""
    for config in configs:
        section = config.channels.telegram
        if section is None:
            continue
        bot = open_bot(section, settings.telegram_api_url)
        # It takes seconds to import; open_bot has done so.
        from aiogram.exceptions import TelegramNotFound, TelegramUnauthorizedError  # noqa: PLC0415

        name = f"telegram {config.tenant}"
        try:
            info = await bot.get_webhook_info(request_timeout=10)
        except (TelegramUnauthorizedError, TelegramNotFound):
            advice = "put the one @BotFather shows into the tenant's file"
            note(name, False, f"Telegram refuses the token of bot {section.bot_id}: {advice}")
        except Exception as problem:  # aiogram raises much besides its own errors
            note(name, False, f"Telegram does not tell the webhook of bot {section.bot_id} ({type(problem).__name__})")
        else:
            note(name, *_judge_webhook(config, settings, info))
        finally:
            await bot.session.close()


def _judge_webhook(config: TenantConfig, settings: Settings, info: "WebhookInfo") -> tuple[bool, str]:
    """Tell whether a bot's webhook is as it should be, and what it is."""
    shown = [f"webhook {info.url}" if info.url else "no webhook", f"{info.pending_update_count} updates waiting"]
    if info.last_error_message:
        shown.append(f"last error: {info.last_error_message}")
    section, expected = config.channels.telegram, telegram_url(settings, config.tenant)
    again = f"vuelvo telegram set-webhook --tenant {config.tenant}"
    problem = None
    if is_polled(config, settings):
        if info.url and section is not None and section.receive != "polling":
            problem = (
                f"nothing is heard while that is set: set VUELVO_PUBLIC_URL and run {again}, or write receive: polling"
            )
    elif settings.public_url is None:
        problem = "it is to be a webhook, but there is no address: set VUELVO_PUBLIC_URL"
    elif info.url != expected:
        problem = f"it should be {expected}: {again}"
    elif info.allowed_updates is not None and set(info.allowed_updates) != set(ALLOWED_UPDATES):
        problem = f"it was set for other kinds of updates: {again}"
    elif info.pending_update_count and info.last_error_message:
        problem = "Telegram does not get its updates delivered there"
    return problem is None, "; ".join([*shown, *([problem] if problem else [])])


async def _look_at_templates(config: TenantConfig, settings: Settings, note: Any) -> None:
    """Look whether what goes out when WhatsApp's 24 hours are over is there and approved."""
    section = config.channels.whatsapp
    if section is None:
        return
    for words in gaps(section, config.languages).values():
        note(f"tenant {config.tenant}", True, f"whatsapp has {words}", is_warning=True)
    try:
        async with Contents(section, settings.twilio_api_url, timeout=TWILIO_TIMEOUT) as contents:
            there = {content.sid: content for content in await contents.find_all()}
    except NotDone as problem:
        note(f"tenant {config.tenant}", False, f"Twilio does not tell its templates: {problem}")
        return
    for template in (*section.templates, *config.step_templates.values()):
        level, words = judge(template, there.get(template.sid))
        told = f"tenant {config.tenant}: template {template.sid}"
        note(told, level != "bad", words or f"approved, in {template.language!r}", is_warning=level == "warning")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """Look whether all is well; the exit code says so."""
    run(_doctor)(as_json=as_json)
