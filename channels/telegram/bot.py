"""What sending and polling both need: a tenant's Telegram section, a client for its bot, and what the bot says of itself."""

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr

from channels.message import OnUnknown

if TYPE_CHECKING:
    from aiogram import Bot
    from aiogram.exceptions import TelegramRetryAfter

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"[1-9][0-9]{0,18}:[A-Za-z0-9_-]{20,}")


def _conceal(given: object) -> object:
    return SecretStr(given) if isinstance(given, str) else given


def _check_token(token: SecretStr) -> SecretStr:
    if _TOKEN.fullmatch(token.get_secret_value()) is None:
        raise ValueError(
            "this is not a Telegram bot token: digits, a colon, and at least 20 letters, digits, _ or -, "
            "as @BotFather gives it"
        )
    return token


class TelegramSection(BaseModel, extra="forbid", frozen=True):
    """One tenant's Telegram bot, as the tenant's file names it."""

    model_config = ConfigDict(hide_input_in_errors=True)

    # Concealed before it is checked, so that an error's input shows asterisks.
    token: Annotated[SecretStr, AfterValidator(_check_token), BeforeValidator(_conceal)]
    receive: Literal["auto", "polling", "webhook"] = "auto"
    unknown: OnUnknown = "at_most_once"
    """Telegram cannot be asked what it sent, so sending again may say it twice."""
    drafts: bool = True
    """Whether an answer is shown in private chats while it is being written; the model is then asked for a stream."""
    rich: bool = False
    """Whether headings, tables and lists within lists are sent as Telegram's rich messages, which older apps do not show."""

    @property
    def bot_id(self) -> str:
        """The bot's own id, which is the part of its token that is no secret."""
        return self.token.get_secret_value().partition(":")[0]


LONGEST_WAIT = 86400.0
"""Seconds: a day. Telegram is asked again after that, whatever longer time it has named."""


def seconds_asked(error: "TelegramRetryAfter") -> float:
    """Return for how many seconds Telegram asks to be left alone, from none to a day."""
    return float(min(max(error.retry_after, 0), LONGEST_WAIT))


def open_bot(section: TelegramSection, api_url: str | None, connect_timeout: float = 10.0) -> "Bot":
    """Make a client for the bot; it connects on first use, and its session must be closed.

    `api_url` is the base address of another Bot API server, `connect_timeout` is in seconds. Takes seconds the first
    time, while aiogram is imported: call it in a thread.
    """
    # aiogram takes seconds to import, and only tenants with a bot need it.
    from aiogram import Bot  # noqa: PLC0415
    from aiogram.client.session.aiohttp import AiohttpSession  # noqa: PLC0415
    from aiogram.client.telegram import PRODUCTION, TelegramAPIServer  # noqa: PLC0415
    from aiohttp import ClientTimeout  # noqa: PLC0415

    session = AiohttpSession(
        api=PRODUCTION if api_url is None else TelegramAPIServer.from_base(api_url),
        # aiogram names a number here and hands it to aiohttp as it is. Only aiohttp's own type has a limit for
        # connecting, which tells "never left the house" from "nobody knows" when packets are dropped.
        timeout=cast("float", ClientTimeout(total=60.0, sock_connect=connect_timeout)),
    )
    return Bot(section.token.get_secret_value(), session=session)


async def set_commands(bot: "Bot", commands: Mapping[str, Mapping[str, str]]) -> None:
    """Show commands in the bot's menu: of each language, its commands and what they do; under "" for all other languages.

    Best effort: what Telegram refuses is logged and given up.
    """
    from aiogram.types import BotCommand  # noqa: PLC0415 - takes seconds to import; whoever made the bot has done so

    try:
        for language, described in commands.items():
            menu = [BotCommand(command=name, description=what) for name, what in described.items()]
            await bot.set_my_commands(menu, language_code=language or None, request_timeout=10)
    except Exception as problem:  # aiogram raises much besides its own errors
        log.warning("the menu of bot %s was not set (%s)", bot.id, type(problem).__name__)
