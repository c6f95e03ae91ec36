"""A task's story, as `vuelvo tasks get` tells it: what became of the task and of each send, in the order of time.

No customer's words are in it, and no phone number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.context import DONE
from scheduler import events
from scheduler.events import Event
from scheduler.find import Found
from store.database import bucket_of
from store.deliveries import deliveries

_NUMBER = re.compile(r"\+\d(?:[ .-]?\d| ?\(\d{1,3}\) ?){6,}")


def without_numbers(words: str | None) -> str | None:
    """Return somebody's words without phone numbers, which a provider may quote."""
    return words and _NUMBER.sub("+…", words)


def without_result(words: str | None) -> str | None:
    """Return what became of a task without the result of a function, which may be the customer's."""
    return DONE.rstrip(": ") if words and words.startswith(DONE) else words


@dataclass(frozen=True, slots=True)
class Send:
    """One attempt to send one part; `part` counts from 1. `ended_at` is None while nobody knows what came of it."""

    part: int
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    reason: str | None
    provider_id: str | None
    provider_status: str | None
    template: str | None

    def told(self) -> str:
        """Return it in words."""
        came = " ".join(word for word in (self.outcome or "begun", self.provider_id) if word)
        template = f", by template {self.template}" if self.template else ""
        later = f", {self.provider_status} by now" if self.provider_status else ""
        return f"part {self.part}, attempt {self.attempt}: {came}{template}{later}" + (
            f": {self.reason}" if self.reason else ""
        )


@dataclass(frozen=True, slots=True)
class Story:
    """What became of a task."""

    task: Found
    events: Sequence[Event]
    sends: Sequence[Send]

    def as_json(self) -> dict[str, Any]:
        """Return it as lists."""
        return {"events": [asdict(event) for event in self.events], "deliveries": [asdict(send) for send in self.sends]}

    def lines(self) -> Iterator[str]:
        """Yield it line by line, each day under its date."""
        # Of one instant, what was sent comes first: what becomes of the task follows from it.
        told = [(send.ended_at or send.started_at, 0, send.told()) for send in self.sends]
        told += [(event.at, 1, self._told(event)) for event in self.events]
        day = None
        for at, _, words in sorted(told, key=lambda line: line[:2]):
            at = at.astimezone(UTC)
            if at.date() != day:
                day = at.date()
                yield f"{day} (UTC)"
            yield f"  {at:%H:%M:%S}.{at.microsecond // 1000:03}  {words}"

    def _told(self, event: Event) -> str:
        detail = event.detail
        if event.event == "claimed":
            return f"claimed by {_worker(detail or '')}"
        words = f"{event.event}: {detail}" if detail else event.event
        if event.event == self.task.state and self.task.message_seq is not None:
            words += f" (message {self.task.message_seq})"
        return words


def _worker(name: str) -> str:
    """Return a worker's host and process (`scheduler/worker.py`)."""
    parts = name.rsplit("/", 3)
    return f"{parts[0]} ({parts[2]})" if len(parts) == 4 else name


async def read(connection: AsyncConnection, task: Found) -> Story:
    """Return a task's story."""
    rows = await connection.execute(
        select(
            deliveries.c.part + 1,
            deliveries.c.attempt,
            deliveries.c.started_at,
            deliveries.c.ended_at,
            deliveries.c.outcome,
            deliveries.c.reason,
            deliveries.c.provider_id,
            deliveries.c.provider_status,
            deliveries.c.template,
        )
        .where(
            deliveries.c.bucket == bucket_of(task.tenant),
            deliveries.c.tenant == task.tenant,
            deliveries.c.task == task.id,
        )
        .order_by(deliveries.c.id)
    )
    sends = [Send(*tuple(row)) for row in rows]
    told = await events.story(connection, task.tenant, task.id)
    return Story(
        task,
        [Event(event.at, event.event, event.fence, without_result(without_numbers(event.detail))) for event in told],
        [Send(**{**asdict(send), "reason": without_numbers(send.reason)}) for send in sends],
    )
