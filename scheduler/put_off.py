"""Putting a task off that cannot be done for now, through no fault of its own: another server is down, or asks to come again.

It uses no attempt up. The pauses grow with the time that it is late, so that what waits for minutes is done within minutes of
the other server's return, and what waits for hours within `LONGEST`. After `PATIENCE` it is over.
"""

import logging
import random
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import settle
from scheduler.clock import Clock
from scheduler.retry import backoff
from scheduler.task import Task

log = logging.getLogger(__name__)

PATIENCE = timedelta(days=1)
"""For how long it is put off, from the first time on; shorter where it has a time of its own at which it expires."""
LONGEST = timedelta(minutes=10)
"""Between two attempts, unless the other server asks for longer."""


GO_ON = f"update tasks t set expires_at = null where {settle.HELD} returning true"


def is_over(task: Task) -> bool:
    """Tell whether it has been put off for as long as it may be, or has expired otherwise."""
    return task.expires_at is not None and task.expires_at <= task.claimed_at


async def put_off(
    connection: AsyncConnection, clock: Clock, task: Task, why: str, at_least: float | None = None
) -> None:
    """Give a claimed task back until a while later; `why` is kept as its error, `at_least` is in seconds. Raises LostClaim."""
    late = max(task.claimed_at - task.booked_for, timedelta())
    pause = min(late / 2, LONGEST) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    delay = max(pause, backoff(1, at_least))
    await settle.give_back(connection, clock, task, delay=delay, error=why, is_fault=False, keep=PATIENCE)
    log.warning("task %d of tenant %s is put off: %s", task.id, task.tenant, why)


async def go_on(connection: AsyncConnection, task: Task) -> None:
    """Forget until when a claimed task was put off, which can be done now: what it waits for next has a time of its own.

    For one that has no other time at which it expires. Raises LostClaim.
    """
    await settle.execute(connection, GO_ON, task)
