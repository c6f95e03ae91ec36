"""Receiving by long polling, for a bot without a public address.

An update is confirmed to Telegram, by asking for the next one, only after it has been recorded. What was recorded but not
yet confirmed when the process stops comes again, and stops at its unique id.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from channels.errors import Malformed
from channels.message import Incoming
from channels.telegram.bot import TelegramSection, open_bot, seconds_asked, set_commands
from channels.telegram.inbound import ALLOWED_UPDATES, is_id, read_update

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_LONGEST_PAUSE = 30.0


async def poll(
    section: TelegramSection,
    api_url: str | None,
    receive: Callable[[Incoming], Awaitable[object]],
    tenant: str,
    stopping: asyncio.Event,
    *,
    commands: Mapping[str, Mapping[str, str]] | None = None,
    remove_webhook: bool = False,
    wait: int = 20,
    first_pause: float = 0.5,
) -> None:
    """Hand every message, and word of every chat left or entered, to `receive`, in order, until `stopping` is set or Telegram refuses the bot's token.

    `receive` must have committed when it returns; when it raises, the same message is handed in again later.
    `commands` are shown in the bot's menu, as `set_commands` takes them; polling does not wait for that.
    `remove_webhook` first removes a webhook, which excludes polling; updates waiting for it are kept. `wait` is how
    many seconds Telegram holds one request, `first_pause` how many follow a first failure; they double up to 30.
    """
    bot = await asyncio.to_thread(open_bot, section, api_url)
    # aiogram takes seconds to import; by now it is.
    from aiogram import exceptions as telegram  # noqa: PLC0415
    from aiogram.methods import DeleteWebhook, GetMe, GetUpdates  # noqa: PLC0415

    class GetRawUpdates(GetUpdates):
        """As JSON: one update that aiogram cannot read would stop all behind it."""

        __returning__ = list[Any]

    outage = _Outage(tenant, first_pause)
    me = None
    offset: int | None = None
    telling: asyncio.Task[None] | None = None
    try:
        while not stopping.is_set():
            try:
                if remove_webhook:
                    await _unless(stopping, bot(DeleteWebhook(drop_pending_updates=False)))
                    remove_webhook = False
                if me is None:
                    me = await _unless(stopping, bot(GetMe()))
                    if commands:
                        telling = asyncio.create_task(set_commands(bot, commands))
                request = GetRawUpdates(offset=offset, timeout=wait, allowed_updates=list(ALLOWED_UPDATES))
                updates = cast("list[Any]", await _unless(stopping, bot(request, request_timeout=wait + 10)))
                confirmed = offset
                for update in _in_order(updates):
                    await _take_in(update, receive, tenant, section.bot_id, me.username)
                    offset = update["update_id"] + 1
                    if stopping.is_set():
                        break
                if updates and offset == confirmed:
                    raise _NothingNew
            except _Stopped:
                break
            except (telegram.TelegramUnauthorizedError, telegram.TelegramNotFound):
                log.error(
                    "%s: Telegram refuses the token of bot %s, polling ends; put the one @BotFather shows into the "
                    "tenant's file",
                    tenant,
                    section.bot_id,
                )
                return
            except telegram.TelegramRetryAfter as error:
                pause = outage.goes_on("Telegram asks to slow down", error)
                await _pause(stopping, max(pause, seconds_asked(error)))
            except telegram.TelegramConflictError as error:
                advice = "another process polls this bot or it has a webhook; stop that process or remove the webhook"
                await _pause(stopping, outage.goes_on(advice, error))
            except _NotRecorded as error:
                await _pause(stopping, outage.goes_on("a message could not be recorded", error.__cause__ or error))
            except _NothingNew as error:
                await _pause(stopping, outage.goes_on("its answer brings nothing new, or no updates", error))
            except Exception as error:
                await _pause(stopping, outage.goes_on("no good answer from Telegram", error))
            else:
                outage.is_over()
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        await bot.session.close()


class _Stopped(Exception):
    """The poller is to stop, and the request under way was given up."""


class _NotRecorded(Exception):
    """The message was not taken in, and must come again."""


class _NothingNew(Exception):
    """Telegram answers at once, and with nothing that could be confirmed to it: asked again at once, it would for ever."""


class _Outage:
    """A run of failures: each of its reasons is logged once, its pauses grow."""

    def __init__(self, tenant: str, first_pause: float) -> None:
        self._tenant = tenant
        self._first_pause = self._pause = first_pause
        self._logged: set[str] = set()

    def goes_on(self, reason: str, error: BaseException) -> float:
        """Return how many seconds to pause."""
        if reason not in self._logged:
            self._logged.add(reason)
            # Only its type: a database's error quotes the message it could not write.
            log.warning("%s: Telegram polling fails and keeps trying: %s (%s)", self._tenant, reason, _kind(error))
        log.debug("%s: Telegram polling failed", self._tenant, exc_info=error)
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        # Spread out, so that many bots do not come back at the same moment.
        return pause * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret

    def is_over(self) -> None:
        if self._logged:
            log.info("%s: Telegram polling works again", self._tenant)
        self._logged.clear()
        self._pause = self._first_pause


def _kind(error: BaseException) -> str:
    return type(error.__cause__ or error).__name__


def _in_order(updates: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Return what has a number to be confirmed by, the lowest first: to confirm one is to confirm all below it."""
    numbered = [one for one in updates if isinstance(one, Mapping) and is_id(one.get("update_id"))]
    if len(numbered) < len(updates):
        log.debug("%d updates without a number are passed over", len(updates) - len(numbered))
    return sorted(numbered, key=lambda one: int(one["update_id"]))


async def _take_in(
    update: Mapping[str, Any],
    receive: Callable[[Incoming], Awaitable[object]],
    tenant: str,
    bot_id: str,
    bot_name: str | None,
) -> None:
    try:
        incoming = read_update(update, tenant, bot_id, bot_name)
    except Malformed as error:
        log.debug("%s: an update is passed over: %s", tenant, error)
        return
    try:
        await receive(incoming)
    except Exception as error:
        raise _NotRecorded from error


async def _unless(stopping: asyncio.Event, request: Awaitable[_T]) -> _T:
    """Await a request, or give it up and raise _Stopped as soon as `stopping` is set."""
    answer = asyncio.ensure_future(request)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({answer, stop}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise _Stopped
    finally:
        answer.cancel()
        stop.cancel()
        await asyncio.gather(answer, stop, return_exceptions=True)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
