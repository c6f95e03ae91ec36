"""One source of time for everything that is due.

The database's clock decides, so hosts with wrong clocks agree. Every statement takes `:now`; null means the database's
own `now()`. Tests hand in a clock they move.
"""

import asyncio
import time
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import sql

NOW = "coalesce(cast(:now as timestamptz), now())"
"""The present, inside a statement that is given `:now`."""


class Clock:
    """The database's clock."""

    def override(self) -> datetime | None:
        """Return the time a test has set, or None for the database's own."""
        return None

    def steady(self) -> float:
        """Return seconds of this process's own, which never go back and mean nothing to another."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        await asyncio.sleep(seconds)

    async def now(self, connection: AsyncConnection) -> datetime:
        """Return the present, aware, as the database sees it."""
        found: datetime = (await connection.execute(sql(f"select {NOW}"), {"now": self.override()})).scalar_one()
        return found
