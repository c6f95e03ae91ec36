"""`vuelvo telegram set-webhook`."""

import click

from app.cli.run import fail, run
from app.hooks import telegram_secret
from app.settings import Settings
from app.wiring import running
from channels.telegram.bot import open_bot


@click.group()
def telegram() -> None:
    """Set up a tenant's Telegram bot."""


async def _set_webhook(settings: Settings, tenant: str) -> None:
    if settings.public_url is None:
        fail("set VUELVO_PUBLIC_URL to the address under which Telegram reaches this service", 2)
    async with running(settings, poll=False, is_patient=False) as house:
        config = await house.service.tenant(tenant)
        section = config.channels.telegram if config else None
        if section is None:
            fail(f"there is no tenant {tenant!r} with a Telegram channel: see vuelvo tenants list", 2)
            return
        secret = telegram_secret(house.service.box, tenant, section.bot_id)
        bot = open_bot(section, settings.telegram_api_url)
        from aiogram.exceptions import TelegramAPIError  # noqa: PLC0415 - takes seconds to import; open_bot has done so

        try:
            await bot.set_webhook(
                f"{settings.public_url}/hooks/telegram/{tenant}", secret_token=secret, allowed_updates=["message"]
            )
        except TelegramAPIError as problem:
            fail(f"Telegram did not take the webhook: {problem}")
        finally:
            await bot.session.close()
    click.echo(f"Telegram tells {settings.public_url}/hooks/telegram/{tenant}")


@telegram.command(name="set-webhook")
@click.option("--tenant", required=True)
def set_webhook(tenant: str) -> None:
    """Tell Telegram where to bring a tenant's messages."""
    run(_set_webhook)(tenant=tenant)
