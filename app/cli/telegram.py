"""`vuelvo telegram set-webhook`."""

import click

from app.cli.run import fail, run
from app.commands import menu
from app.hooks import telegram_secret, telegram_url
from app.settings import Settings
from app.wiring import running
from channels.telegram.bot import open_bot, set_commands
from channels.telegram.inbound import ALLOWED_UPDATES


@click.group()
def telegram() -> None:
    """Set up a tenant's Telegram bot."""


async def _set_webhook(settings: Settings, tenant: str) -> None:
    async with running(settings, poll=False, is_patient=False) as house:
        config = await house.service.tenant(tenant)
        section = config.channels.telegram if config else None
        if config is None or section is None:
            fail(f"there is no tenant {tenant!r} with a Telegram channel: see vuelvo tenants list", 2)
            return
        if settings.public_url is None:
            fail("set VUELVO_PUBLIC_URL to the address under which Telegram reaches this service", 2)
        secret = telegram_secret(house.service.box, tenant, section.bot_id)
        bot = open_bot(section, settings.telegram_api_url)
        from aiogram.exceptions import TelegramAPIError  # noqa: PLC0415 - takes seconds to import; open_bot has done so

        try:
            await bot.set_webhook(
                telegram_url(settings, tenant), secret_token=secret, allowed_updates=list(ALLOWED_UPDATES)
            )
            await set_commands(bot, menu(config))
        except TelegramAPIError as problem:
            fail(f"Telegram did not take the webhook: {problem}")
        finally:
            await bot.session.close()
    click.echo(f"Telegram tells {telegram_url(settings, tenant)}")


@telegram.command(name="set-webhook")
@click.option("--tenant", required=True)
def set_webhook(tenant: str) -> None:
    """Tell Telegram where to bring a tenant's messages, and which commands to show."""
    run(_set_webhook)(tenant=tenant)
