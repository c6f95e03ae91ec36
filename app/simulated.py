"""Bookings that are simulated, for a developer's own machine (`VUELVO_DEFER_DEV`).

What is given is checked as ever and written to the log, and what comes back looks like a booking; nothing is booked, found,
cancelled or moved. Checks that need what is booked (limits, idempotency keys, whether a run has begun) find nothing wrong.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from sqlalchemy.ext.asyncio import AsyncConnection

from app.deferred import CANCELLABLE, Deferred, NoSuchTask, Page, Run, check_page, check_time, one_of
from scheduler.book import Booked
from scheduler.cancel import Cancelled
from scheduler.clock import Clock
from scheduler.find import Found
from scheduler.limits import LimitsSection
from store.database import Database

log = logging.getLogger("vuelvo.simulated")

FIRST = 9_000_000_000_000_001
"""The first number of a simulated booking: far from any real one, and one that JSON can still carry exactly."""


class Simulated(Deferred):
    """The deferred runs of an installation where none are booked."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._numbers = count(FIRST)
        log.warning(
            "VUELVO_DEFER_DEV is set: bookings of deferred runs are SIMULATED. They are checked and logged, and nothing is booked,"
            " found, cancelled or moved"
        )

    async def book(
        self,
        tenant: str,
        run: Run,
        limit: LimitsSection,
        *,
        is_called: bool,
        connection: AsyncConnection | None = None,
    ) -> Booked:
        """Return what a booking would return, under a number of none. Raises BadBooking for what is past or too far away."""
        booked = await self._booked(run.due, limit)
        log.info("simulated, not booked: %s of tenant %s at %s", run.path, tenant, _shown(booked.due_at))
        return booked

    async def find(
        self,
        tenant: str,
        *,
        status: str = "active",
        function: str | None = None,
        key: str | None = None,
        subject: str | None = None,
        page: int = 1,
        per_page: int = 20,
        kinds: Sequence[str] = ("function",),
    ) -> Page:
        """Return an empty page. Raises BadBooking as ever."""
        check_page(status, page, per_page, function=function, key=key, subject=subject)
        log.info("simulated: nothing is found for tenant %s, since nothing is booked", tenant)
        return Page([], 0, page, per_page)

    async def get(self, tenant: str, task: int, kinds: Collection[str] = CANCELLABLE) -> Found:
        """Raise NoSuchTask."""
        raise NoSuchTask(f"there is no task {task}: bookings are simulated here (VUELVO_DEFER_DEV)")

    async def cancel(
        self,
        tenant: str,
        *,
        subject: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        by: str,
        kinds: Sequence[str] = CANCELLABLE,
    ) -> Cancelled:
        """Cancel nothing. Raises BadBooking unless exactly one label is given."""
        (label,) = one_of(subject=subject, key=key, key_prefix=key_prefix)
        log.info("simulated, not cancelled: what tenant %s has under a %s", tenant, label)
        return Cancelled((), ())

    async def would_cancel(
        self,
        tenant: str,
        *,
        subject: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        kinds: Sequence[str] = CANCELLABLE,
    ) -> int:
        """Return 0. Raises BadBooking unless exactly one label is given."""
        one_of(subject=subject, key=key, key_prefix=key_prefix)
        return 0

    async def reschedule(
        self, tenant: str, task: int, due: datetime | timedelta, limit: LimitsSection, *, by: str
    ) -> Booked:
        """Return what a move would return, whatever its number. Raises BadBooking for what is past or too far away."""
        booked = await self._booked(due, limit)
        log.info("simulated, not moved: task %d of tenant %s to %s", task, tenant, _shown(booked.due_at))
        return booked

    async def _booked(self, due: datetime | timedelta, limit: LimitsSection) -> Booked:
        async with self._database.autocommit() as connection:
            now = await self._clock.now(connection)
        check_time(due, now, limit.lead)
        return Booked(next(self._numbers), due if isinstance(due, datetime) else now + due, replay=False)


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
