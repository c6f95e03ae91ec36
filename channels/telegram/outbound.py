"""Sending through Telegram, and what each of its answers means.

Telegram has no key against double sending and cannot be asked what it sent, so an outcome is final, and the tenant says
whether what is unknown is sent again:

accepted    an id came back, even in an answer that could not be read otherwise
rejected    refused for good: 400, 401, 403, 404
not_sent    429, a group that moved, or no connection could be made; or not tried, while Telegram has asked us to wait
unknown     everything else: a timeout, a connection lost after the request, 5xx, an answer without an id
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from telegramify_markdown import MessageEntity, RenderConfig, convert

from channels.message import (
    REACHABLE,
    Accepted,
    Filled,
    Lost,
    NotSent,
    OnUnknown,
    Origin,
    Outcome,
    Part,
    Parts,
    Reach,
    Rejected,
    Remedy,
    Status,
    Unknown,
    units,
)
from channels.pace import Pace, Rate, within
from channels.telegram.bot import TelegramSection, open_bot, seconds_asked
from channels.telegram.literal import DEFINITION, HTML, hide, is_harmless, show
from channels.telegram.rich import rich_message
from channels.text import clean, split_markdown

if TYPE_CHECKING:
    from aiogram import Bot
    from aiogram.types import InputRichMessage

LIMIT = 4096
"""UTF-16 units in one message, after its markup is read (Bot API, sendMessage)."""

BUSINESS_WINDOW = timedelta(hours=23, minutes=55)
"""How long after a customer's message a bot may write in a business's own chat with them: 24 hours (Bot API,
BusinessBotRights.can_reply), taken as five minutes shorter, since a message is on its way for a while."""
FROM_A_BOT = within(30, burst=5)
TO_A_CHAT = Rate(3, every=1.0)
TO_A_GROUP = Rate(5, every=4.0)
"""Together at most 20 in a minute. https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this"""

_REPLY_GONE = ("message to be replied not found", "reply message not found")
_OUR_MARKUP = ("can't parse entities", "message is too long", "text is empty", "text must be non-empty")
_TOPIC_GONE = ("message thread not found", "topic_closed", "topic_deleted")
_COULD_BE_A_LINK = re.compile(r"://|\w\.[^\W\d_]{2}")
_OF_ONE_CHAT = re.compile(r"\b(?:chat|group)\b", re.IGNORECASE)
_THREAD = re.compile(r"(?P<topic>[0-9]{1,19})|direct:(?P<direct>[0-9]{1,19})|business:(?P<business>[!-~]{1,200})")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a chat: in one of its topics, in the direct messages of a channel, or in a business's own chat."""

    topic: int | None = None
    direct: int | None = None
    business: str | None = None


def _place(thread: str | None) -> _Place | None:
    """Return the place that a thread names, as inbound.py spells it; None when it is not one of Telegram's."""
    if thread is None:
        return _Place()
    found = _THREAD.fullmatch(thread)
    if found is None:
        return None
    topic, direct = (int(found[name]) if found[name] else None for name in ("topic", "direct"))
    return _Place(topic, direct, found["business"])


class TelegramChannel:
    """One tenant's bot."""

    name = "telegram"
    looks: Sequence[timedelta] = ()
    waits = timedelta(days=30)
    gap: timedelta = timedelta()

    def __init__(
        self,
        section: TelegramSection,
        api_url: str | None,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `timeout`, in seconds, for one piece from first byte to answer.

        `clock` tells seconds that never go back, for the pace.
        """
        self._pace = Pace(FROM_A_BOT, _rate_to, clock)
        self.on_unknown: OnUnknown = section.unknown
        self._section = section
        self._api_url = api_url
        self._timeout = timeout
        self._bot: Bot | None = None
        self._opening = asyncio.Lock()
        self._has_drafts = section.drafts
        self._has_rich = section.rich

    def split(self, text: str) -> Parts:
        """Cut Markdown into pieces of Markdown, each at most 4,096 UTF-16 units before and after it is rendered."""
        return split_markdown(text, LIMIT, lambda piece: units(render(piece)[0]))

    async def open(self) -> None:
        """Load aiogram, and make the bot."""
        with contextlib.suppress(Exception):  # send says why
            await self._open()

    def wait(self, address: str, thread: str | None = None) -> float:
        """Return for how many seconds a send to this chat must wait; all its topics together have its pace."""
        return self._pace.wait(address, thread)

    async def send(self, part: Part) -> Outcome:
        """Send one piece once; a second call is made only after an outright refusal, without what was or may be refused in it."""
        source = clean(part.text)
        if not source.strip():
            return Rejected("the text is blank, and Telegram carries no blank message")
        if units(source) > LIMIT:
            return Rejected(f"the text is longer than {LIMIT} UTF-16 units; split it first")
        place = _place(part.thread)
        if place is None or not (part.reply_to is None or part.reply_to.isdecimal()):
            return Rejected("the thread or the message to reply to is not one of Telegram's ids")
        if (rest := self._pace.rest(part.address)) > 0:
            return NotSent("Telegram has asked this bot to wait, and the time is not over", retry_after=rest)
        self._pace.take(part.address, part.thread)
        try:
            bot = await self._open()
        except Exception as error:
            return NotSent(f"the Telegram client did not start: {self._words(error)}")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._deliver(bot, part, source, place)
        except Exception as error:
            self._heed(error, part.address)
            outcome = self._outcome(error, part.thread)
        if place.business is not None and isinstance(outcome, Rejected) and not outcome.tenant_fault:
            why = await self._why_no_business(bot, place.business)
            return Rejected(f"{why}: {outcome.reason}" if why else outcome.reason)
        return outcome

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        """Telegram carries free text at any time and has no templates."""
        return Rejected("Telegram has no templates")

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        """Telegram carries free text at any time and has no templates."""
        return Rejected("Telegram has no templates")

    def remedy(self, code: int | None) -> Remedy:
        """Telegram says at once what became of a message, and nothing later."""
        return "none"

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        """Telegram has no list of what a bot sent."""
        return Unknown("Telegram cannot be asked what it sent")

    async def look_at_files(self, text: str) -> str:
        """Return the text as it is: it names no file that could be looked at."""
        return text

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        """Telegram lets a bot write to a chat it was written to at any time; in a business's own chat for 24 hours."""
        place = _place(origin.thread)
        if place is None or place.business is None:
            return REACHABLE
        if origin.last_inbound_at is not None and due < origin.last_inbound_at + BUSINESS_WINDOW:
            return REACHABLE
        return Reach(
            possible=False,
            advice=(
                "In this chat a message can be sent for 24 hours after the customer's last one only, so nothing can be sent"
                " at that time. Offer an earlier time."
            ),
        )

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        """Tell whether it is a private chat with the bot, the only ones that have drafts (Bot API, sendMessageDraft)."""
        place = _place(thread)
        is_private = place is not None and place.direct is None and place.business is None
        return self._has_drafts and is_private and not address.startswith("-")

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        """Show "typing" in the chat for five seconds, or what there is of the answer for thirty."""
        place = _place(thread)
        # The direct messages of a channel have no such sign, and a bot that is to wait shows none.
        if place is None or place.direct is not None or self._pace.rest(address) > 0:
            return
        try:
            async with asyncio.timeout(self._timeout):
                bot = await self._open()
                if words and self.shows_drafts(address, thread):
                    await self._draft(bot, address, place, reply_to, words)
                else:
                    await bot.send_chat_action(
                        address, "typing", message_thread_id=place.topic, business_connection_id=place.business
                    )
        except Exception as error:
            if self._bot is not None:
                self._heed(error, address)

    async def _draft(self, bot: "Bot", address: str, place: _Place, reply_to: str | None, words: str) -> None:
        # aiogram takes seconds to import; by now it is.
        from aiogram.exceptions import TelegramBadRequest, TelegramNotFound  # noqa: PLC0415
        from aiogram.types import MessageEntity as Entity  # noqa: PLC0415

        text, marks = render(self.split(words)[-1])
        try:
            await bot.send_message_draft(
                int(address),
                int(reply_to or 1),  # drafts of one number are one draft that grows
                message_thread_id=place.topic,
                text=text,
                entities=[Entity(**mark.to_dict()) for mark in marks],
            )
        except (TelegramBadRequest, TelegramNotFound):
            self._has_drafts = False  # a server of an older version; and nothing here is worth a second try

    async def close(self) -> None:
        """Close the connections; the next send opens new ones."""
        if self._bot is not None:
            await self._bot.session.close()

    async def _open(self) -> "Bot":
        async with self._opening:
            if self._bot is None:
                self._bot = await asyncio.to_thread(open_bot, self._section, self._api_url, self._timeout / 3)
            return self._bot

    def _heed(self, error: Exception, address: str) -> None:
        """Send nothing for as long as Telegram asks this bot to wait, in the chat alone where it is the chat's limit."""
        # aiogram takes seconds to import; by now it is.
        from aiogram.exceptions import TelegramRetryAfter  # noqa: PLC0415

        if isinstance(error, TelegramRetryAfter):
            is_of_one_chat = _OF_ONE_CHAT.search(_said(error))
            self._pace.close(seconds_asked(error), address if is_of_one_chat else None)

    async def _why_no_business(self, bot: "Bot", connection: str) -> str:
        """Tell, as far as Telegram does, why nothing can be said through a business's connection; empty when it is in order."""
        # aiogram takes seconds to import; by now it is.
        from aiogram.exceptions import TelegramBadRequest, TelegramForbiddenError  # noqa: PLC0415

        try:
            async with asyncio.timeout(self._timeout / 3):
                found = await bot.get_business_connection(connection)
        except (TelegramBadRequest, TelegramForbiddenError):
            return "the business has taken its connection with the bot away"
        except Exception:
            return ""
        if not found.is_enabled:
            return "the business has switched its connection with the bot off"
        if not (found.can_reply or (found.rights and found.rights.can_reply)):
            return "the business does not let the bot reply in its chats"
        return ""

    async def _deliver(self, bot: "Bot", part: Part, source: str, place: _Place) -> Outcome:
        # aiogram takes seconds to import; by now it is.
        from aiogram.exceptions import TelegramBadRequest, TelegramNotFound  # noqa: PLC0415
        from aiogram.types import LinkPreviewOptions, ReplyParameters  # noqa: PLC0415
        from aiogram.types import MessageEntity as Entity  # noqa: PLC0415

        text, marks = render(source)
        if units(text) > LIMIT:
            text, marks = source, []
        rich = self._rich(part, source)
        plain = False
        reply_to = part.reply_to
        while True:
            where: dict[str, Any] = {
                "business_connection_id": place.business,
                "message_thread_id": place.topic,
                "direct_messages_topic_id": place.direct,
                "reply_parameters": (
                    ReplyParameters(message_id=int(reply_to), allow_sending_without_reply=True)
                    if reply_to is not None
                    else None
                ),
            }
            try:
                if rich is not None:
                    message = await bot.send_rich_message(part.address, rich, **where)
                else:
                    message = await bot.send_message(
                        part.address,
                        source if plain else text,
                        entities=None if plain else [Entity(**mark.to_dict()) for mark in marks],
                        # A page fetched for its preview would tell its owner what was promised to whom.
                        link_preview_options=LinkPreviewOptions(is_disabled=True) if part.scheduled else None,
                        **where,
                    )
            except TelegramNotFound:
                if rich is None:
                    raise
                # A server of an older version, or a token that is not known: the plain message tells which.
                rich, self._has_rich = None, False
            except TelegramBadRequest as refusal:
                if reply_to is not None and _says(refusal, _REPLY_GONE):
                    # In a topic Telegram overlooks allow_sending_without_reply.
                    reply_to = None
                elif place.topic is not None and _says(refusal, _TOPIC_GONE) and not part.address.startswith("-"):
                    # A private chat: nobody else reads beside the topic.
                    place = _Place()
                elif rich is not None:
                    rich = None
                elif not plain and _says(refusal, _OUR_MARKUP):
                    plain = True
                else:
                    raise
            else:
                return _accepted(message and message.message_id)

    def _rich(self, part: Part, source: str) -> "InputRichMessage | None":
        """Return a part as a rich message where it is to be one.

        What was not asked for just now stays without one if it may name a page: rich messages have no switch for previews.
        """
        # aiogram takes seconds to import; by now it is.
        from aiogram.types import InputRichMessage  # noqa: PLC0415

        if not self._has_rich or (part.scheduled and _COULD_BE_A_LINK.search(source)):
            return None
        try:
            found = rich_message(source)
            return None if found is None else InputRichMessage.model_validate(found)
        except Exception:
            # The words matter more than their looks.
            return None

    def _outcome(self, error: Exception, thread: str | None) -> Outcome:
        # aiogram takes seconds to import; by now it is.
        from aiogram import exceptions as telegram  # noqa: PLC0415
        from aiohttp import ClientConnectorError, ConnectionTimeoutError  # noqa: PLC0415

        words = self._words(error)
        match error:
            case telegram.TelegramRetryAfter():
                return NotSent(words, retry_after=seconds_asked(error))
            case telegram.TelegramMigrateToChat() if error.migrate_to_chat_id < 0:
                return NotSent(words, moved_to=str(error.migrate_to_chat_id))
            case telegram.TelegramUnauthorizedError() | telegram.TelegramNotFound():
                return Rejected(
                    f"Telegram does not know bot {self._section.bot_id}'s token (any more): "
                    "put the one @BotFather shows into the tenant's file",
                    tenant_fault=True,
                )
            case telegram.TelegramBadRequest() if _says(error, _TOPIC_GONE):
                return Rejected(f"the topic {thread or 'of the chat'} is gone or closed: {words}", is_place_gone=True)
            case telegram.TelegramForbiddenError():
                # Blocked, removed, deleted, or never let in: until they write, nothing goes there.
                return Rejected(words, is_blocked=True)
            case telegram.TelegramBadRequest() | telegram.TelegramEntityTooLarge() | telegram.TelegramMigrateToChat():
                return Rejected(words)
            case telegram.TelegramNetworkError(
                __cause__=ClientConnectorError() | ConnectionTimeoutError()  # also DNS and TLS
            ):
                return NotSent(f"no connection to Telegram: {words}")
            case telegram.ClientDecodeError(data={"ok": True, "result": {"message_id": message_id}}):
                # It was sent; only aiogram could not read the rest.
                return _accepted(message_id)
            case telegram.ClientDecodeError(data={"ok": False, "error_code": 429}):
                # Only the time to wait could not be read.
                return NotSent(words)
            case telegram.TelegramAPIError() if _says(error, ("too many requests",)):
                return NotSent(words)
            case TimeoutError():
                return Unknown(f"no answer from Telegram within {self._timeout:g} seconds")
        return Unknown(words)

    def _words(self, error: Exception) -> str:
        """Return an error in one line without the token, which stands in every address called."""
        said = _said(error)
        line = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return " ".join(line.split()).replace(self._section.token.get_secret_value(), "[token]")[:300]


def _rate_to(address: str) -> Rate:
    """Return the rate of a chat; a group's number is negative."""
    return TO_A_GROUP if address.startswith("-") else TO_A_CHAT


def render(source: str) -> tuple[str, list[MessageEntity]]:
    """Turn Markdown into Telegram's plain text and its entities, which, unlike markup, cannot fail to be read.

    Raw HTML, prices in `$`, `||` and link definitions stay as they are written. Links lead to the web or to an
    e-mail address only; of others the text is kept. What would show nothing is returned as it is written.
    """
    try:
        text, marks = convert(hide(source, _LITERAL), latex_escape=False, config=_CONFIG)
    except Exception:
        # The words matter more than their looks.
        return source, []
    if not text.strip():
        return source, []
    return show(text), [mark.copy_with(url=mark.url and show(mark.url)) for mark in marks if _is_live(mark)]


# What the converter would take for HTML, a formula, a spoiler or a link definition, and then leave out.
_LITERAL = re.compile(rf"(?<!\\)(?:{HTML}|\$|\|\||{DEFINITION})")


def _config() -> RenderConfig:
    config = RenderConfig.isolated()
    config.cite_expandable = False
    symbol = config.markdown_symbol
    symbol.heading_level_1 = symbol.heading_level_2 = symbol.heading_level_3 = symbol.heading_level_4 = ""
    symbol.unordered_list_item = "•"
    return config


_CONFIG = _config()


def _is_live(mark: MessageEntity) -> bool:
    if mark.type == "text_link":
        return is_harmless(mark.url or "")
    return mark.type != "custom_emoji"


def _accepted(message_id: Any) -> Outcome:
    if type(message_id) is int and message_id > 0:
        return Accepted(str(message_id))
    return Unknown("Telegram's answer names no message")


def _said(error: Exception) -> str:
    """Return what the other side said; never the whole of an answer that could not be read.

    What aiogram puts before that in some errors names the chat, whosever limit it is, and would end in logs.
    """
    return str(getattr(error, "message", error) or "").rpartition("Original description: ")[2]


def _says(error: Exception, phrases: tuple[str, ...]) -> bool:
    said = _said(error).lower()
    return any(phrase in said for phrase in phrases)
