"""Schedules in memory: a restart forgets when they were due, and every replica runs its own copy.

They ask the same clock as everything else: the database's, where there is one, so that a host whose clock is wrong runs nothing
early. It is asked once a minute at most; in between this process counts on by itself.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from scheduler.clock import Clock
from scheduler.recurrence import Recurrence
from store.database import Database

log = logging.getLogger(__name__)

ASKED_EVERY = 60.0
AFTER_TROUBLE = 1.0
"""Seconds."""


class Present:
    """What time it is, by the clock that decides what is due."""

    def __init__(self, clock: Clock, database: Database | None) -> None:
        self._clock, self._database = clock, database
        self._told: tuple[datetime, float] | None = None

    async def now(self) -> datetime:
        """Return the present, aware, UTC."""
        if (given := self._clock.override()) is not None:
            return given
        if self._database is None:
            return datetime.now(UTC)
        steady = self._clock.steady()
        while self._told is None or steady - self._told[1] > ASKED_EVERY:
            try:
                async with self._database.autocommit() as connection:
                    self._told = (await self._clock.now(connection)).astimezone(UTC), self._clock.steady()
            except (SQLAlchemyError, OSError) as problem:
                log.warning("the database does not tell the time (%s)", type(problem).__name__)
                if self._told is not None:
                    break
                await self._clock.sleep(AFTER_TROUBLE)
        told, at = self._told
        return told + timedelta(seconds=self._clock.steady() - at)

    async def pause(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        await self._clock.sleep(seconds)

    async def sleep_until(self, at: datetime) -> None:
        """Return when that time has come; the clock is asked again on the way, so that a step of it counts."""
        while (left := (at - await self.now()).total_seconds()) > 0:
            await self._clock.sleep(min(left, ASKED_EVERY))


async def keep(
    recurrence: Recurrence,
    present: Present,
    run: Callable[[datetime], Awaitable[bool]],
    tell: Callable[[datetime | None], None],
) -> None:
    """Run each slot when it comes, one at a time, as long as `run` says that it goes on.

    What comes while one is run is left out. `tell` is told what comes next.
    """
    slot: datetime | None = recurrence.first(await present.now())
    while slot is not None:
        tell(slot)
        await present.sleep_until(slot)
        goes_on = await run(slot)
        slot = recurrence.after(slot, await present.now()) if goes_on else None
    tell(None)
