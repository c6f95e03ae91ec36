"""Conversations that have fallen silent: timers in memory, each begun again by what the customer writes.

They are not stored on purpose. Each process minds what was written through it; where another process has heard something
later, that one's timer counts, so that of many replicas one runs the handler.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from scheduler.plain import AFTER_TROUBLE, Present

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Silence:
    """A conversation in which the customer has written nothing for so long."""

    tenant: str
    conversation: int
    since: datetime
    """When the customer last wrote; or when the watch began, where that was later."""


LastHeard = Callable[[str, int], Awaitable[datetime | None]]
"""Tells when a customer last wrote in a tenant's conversation, whichever process took it in."""


@dataclass(eq=False, slots=True)
class IdleWatch:
    """One watch; `cancel` ends it."""

    after: timedelta
    handler: Callable[[Silence], Awaitable[object]]
    tenant: str | None = None
    conversation: int | None = None
    """None is every conversation that is written in from now on."""
    is_over: bool = False
    timers: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)

    def minds(self, tenant: str, conversation: int) -> bool:
        """Tell whether it is about a conversation."""
        return not self.is_over and self.tenant in (None, tenant) and self.conversation in (None, conversation)

    def begin(self, present: Present, last_heard: LastHeard, tenant: str, conversation: int, *, is_heard: bool) -> None:
        """Begin a conversation's silence: with what was just written in it, or else now."""
        self._drop(tenant, conversation)
        wait = self._wait(present, last_heard, tenant, conversation, is_heard)
        self.timers[tenant, conversation] = asyncio.create_task(wait, name="idle watch")

    async def _wait(
        self, present: Present, last_heard: LastHeard, tenant: str, conversation: int, is_heard: bool
    ) -> None:
        heard = await _ask(present, last_heard, tenant, conversation)
        since = heard if is_heard and heard is not None else await present.now()
        await present.sleep_until(since + self.after)
        is_silent = await _ask(present, last_heard, tenant, conversation) == heard
        self.timers.pop((tenant, conversation), None)
        try:
            if is_silent:
                await self.handler(Silence(tenant, conversation, since))
        except (Exception, SystemExit):
            log.exception(
                "what is to be done after a silence in conversation %d of tenant %s failed", conversation, tenant
            )

    def _drop(self, tenant: str, conversation: int) -> None:
        timer = self.timers.pop((tenant, conversation), None)
        if timer is not None:
            timer.cancel()

    def cancel(self) -> None:
        """Watch no more."""
        self.is_over = True
        self.rest()

    def rest(self) -> None:
        """Forget what is silent now."""
        for tenant, conversation in list(self.timers):
            self._drop(tenant, conversation)


async def _ask(present: Present, last_heard: LastHeard, tenant: str, conversation: int) -> datetime | None:
    """Return when a customer last wrote, however long the database is away."""
    while True:
        try:
            return await last_heard(tenant, conversation)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("the database does not tell who is silent (%s)", type(problem).__name__)
            await present.pause(AFTER_TROUBLE)
