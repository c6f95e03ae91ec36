"""What schedules are handed of the service: how to say something in a conversation, and when it was last written in."""

from datetime import datetime, timedelta

from app.context import sayable
from app.service import Service
from scheduler.book import Booking, book
from scheduler.poller import DUE
from scheduler.scheduled import Engine
from store import conversations


def engine_of(service: Service, interval: timedelta) -> Engine:
    """Return what an application's schedules run on; a slot is missed when it is claimed two poll intervals late."""

    async def send(tenant: str, conversation: int, words: str, key: str) -> None:
        words = sayable(words)
        async with service.database.transaction() as connection:
            found = await conversations.find(connection, tenant, conversation)
            if found is None:
                raise LookupError(f"tenant {tenant} has no conversation {conversation}")
            said = Booking(
                tenant,
                "notice",
                timedelta(),
                conversation,
                found.channel,
                payload={"words": words},
                idempotency_key=key,
                lane=True,  # there is nothing to write: what a run says one after another is said in that order
            )
            await book(connection, service.clock, said)
        service.signals.hint(DUE)

    async def last_heard(tenant: str, conversation: int) -> datetime | None:
        async with service.database.autocommit() as connection:
            found = await conversations.find(connection, tenant, conversation)
        return found.last_inbound_at if found else None

    return Engine(service.database, service.clock, service.signals, 2 * interval, send, last_heard)
