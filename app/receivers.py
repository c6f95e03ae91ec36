"""Asking Telegram for messages, where no webhook brings them: one process a bot, held by a lease in the database.

Telegram refuses a second poller of the same bot. Whoever holds the lease asks; it is renewed while asking, and another
process takes over when it runs out.
"""

import asyncio
import contextlib
import logging
import time
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from app.commands import menu
from app.inbox import take_in
from app.service import Service
from app.settings import Settings
from app.tenants_file import UNUSABLE, TenantConfig
from app.wiring import APPLIED, new_receiver_name
from channels.telegram.polling import poll
from store import tenants
from store.signals import Subscription

log = logging.getLogger(__name__)

LEASE = 30.0
LOOK_EVERY = 5.0
REFUSED_FOR = 300.0
"""Seconds after which a bot whose token Telegram refused is tried again, should nobody have applied a tenant's file."""


def is_polled(tenant: TenantConfig, settings: Settings) -> bool:
    """Tell whether a tenant's bot is asked for messages, rather than telling us by its webhook."""
    section = tenant.channels.telegram
    if section is None or section.receive == "webhook":
        return False
    return section.receive == "polling" or settings.public_url is None


class Receivers:
    """The bots this process asks."""

    def __init__(
        self, service: Service, settings: Settings, stopping: asyncio.Event, *, look_every: float = LOOK_EVERY
    ) -> None:
        """`look_every` is how many seconds pass until a tenant just applied, or a bot let go, is noticed."""
        self._service, self._settings, self._stopping, self._look_every = service, settings, stopping, look_every
        self._name = new_receiver_name()
        self._asking: dict[str, tuple[TenantConfig, asyncio.Event, asyncio.Task[None]]] = {}
        self._refused: dict[str, tuple[TenantConfig, float]] = {}

    async def run(self) -> None:
        """Ask until `stopping` is set."""
        try:
            with self._service.signals.subscribe(APPLIED) as applied:
                while not self._stopping.is_set():
                    try:
                        await self._look(applied)
                    except (SQLAlchemyError, OSError) as problem:
                        log.warning("cannot look after the Telegram bots now (%s)", type(problem).__name__)
                    except Exception:  # nobody else would see it, and every bot would go deaf
                        log.exception("looking after the Telegram bots failed")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._look_every):
                            await self._stopping.wait()
        finally:
            for bot in list(self._asking):
                await self._stop(bot)

    async def _look(self, applied: Subscription) -> None:
        """Ask for whom we should, stop for whom we should not."""
        wanted = await self._wanted()
        for bot, (config, _, task) in list(self._asking.items()):
            if task.done():
                self._refused[bot] = (config, time.monotonic())
                log.warning(
                    "tenant %s: its bot is asked again in %g minutes, or as soon as its file is applied, changed or not",
                    config.tenant,
                    REFUSED_FOR / 60,
                )
            if task.done() or wanted.get(bot) != config or not await self._hold(bot):
                await self._stop(bot)
        if await applied.wait(0):  # what was refused, just now too, may be mended, here or at Telegram
            self._refused.clear()
        for bot, config in wanted.items():
            if bot not in self._asking and not self._is_refused(bot, config) and await self._hold(bot):
                self._start(bot, config)

    async def _wanted(self) -> dict[str, TenantConfig]:
        """Return the tenants whose bots are asked, by bot."""
        async with self._service.database.autocommit() as connection:
            rows = await tenants.find_all(connection)
        wanted = {}
        for row in rows:
            try:
                config = self._service.read(row)
            except UNUSABLE:
                continue
            if config.channels.telegram is not None and is_polled(config, self._settings):
                wanted[config.channels.telegram.bot_id] = config
        return wanted

    def _is_refused(self, bot: str, config: TenantConfig) -> bool:
        refused, at = self._refused.get(bot, (None, 0.0))
        return refused == config and time.monotonic() - at < REFUSED_FOR

    async def _hold(self, bot: str) -> bool:
        async with self._service.database.transaction() as connection:
            return await tenants.hold_receiver(connection, "telegram", bot, self._name, LEASE)

    def _start(self, bot: str, config: TenantConfig) -> None:
        section = config.channels.telegram
        assert section is not None
        stop = asyncio.Event()
        asking = poll(
            section,
            self._settings.telegram_api_url,
            partial(take_in, self._service),
            config.tenant,
            stop,
            commands=menu(config),
            remove_webhook=section.receive == "polling",
        )
        self._asking[bot] = (config, stop, asyncio.create_task(asking, name=f"telegram {config.tenant}"))
        log.info("asking Telegram for the messages of tenant %s", config.tenant)

    async def _stop(self, bot: str) -> None:
        _, stop, task = self._asking.pop(bot)
        stop.set()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(end, Exception):
            log.error("asking Telegram for bot %s ended with %s", bot, type(end).__name__)
        with contextlib.suppress(SQLAlchemyError, OSError):
            async with self._service.database.transaction() as connection:
                await tenants.release_receiver(connection, "telegram", bot, self._name)
