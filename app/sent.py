"""What a task's deliveries say of it, and what is left to do for it.

What was accepted can be reported as failed much later (`did_not_arrive`): then the task is sent again, by template, or
fails after all. What nobody knew can be proved much later (`go_on`).
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from app.service import Service
from channels.channel import Channel
from channels.message import Rejected, Remedy
from scheduler import find, operate
from scheduler.hold import CHANNEL_PAUSED
from store import contacts, deliveries
from store.contacts import Stopped
from store.deliveries import NOTICE, Delivery

log = logging.getLogger(__name__)

LATER = (timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8))
"""After how long a message that failed on its way is sent again, where the provider says that it will pass."""
ONCE = timedelta(minutes=1)
GUARDS: Mapping[Stopped, str] = {"customer": "opted out", "provider": "blocked"}
"""Why what was not just asked for is skipped, by who has said that nothing more is to be sent."""
AGAIN: tuple[Remedy, ...] = ("template", "once", "later")
"""What is left to do where a message that failed can still be sent."""


async def go_on(
    service: Service, connection: AsyncConnection, tenant: str, channel: Channel | None, task: int, by: str
) -> None:
    """Let a task that waits for its provider's word go on, or one that was given up, now that all its sends are known.

    So does one that has failed, once something of it has arrived after all and the rest can be sent. Hint `due` after the
    commit.
    """
    so_far = await deliveries.of_task(connection, tenant, task)
    if lost(so_far):
        return
    rest = [one for one in missing(so_far) if one.outcome == "rejected"]
    can_go_on = accepted(so_far) and all(remedy_for(channel, so_far, one)[0] in AGAIN for one in rest)
    if can_go_on and await operate.recall(connection, service.clock, tenant, task, by):
        return
    last = max(so_far, key=lambda one: one.id)
    _, delay = remedy_for(channel, so_far, last) if last.outcome == "rejected" else ("none", timedelta())
    await operate.resume(connection, service.clock, tenant, task, by, delay=delay)


async def did_not_arrive(
    service: Service,
    connection: AsyncConnection,
    tenant: str,
    channel: Channel | None,
    delivery: int,
    task: int,
    by: str,
) -> None:
    """Do what is left to do for a task whose delivery was accepted and has now been reported as failed.

    Hint `due` after the commit.
    """
    so_far = await deliveries.of_task(connection, tenant, task)
    failed = next(one for one in so_far if one.id == delivery)
    if failed.part in accepted(so_far) or (failed.part == NOTICE and arrived(so_far)):
        return  # another attempt at it has arrived; or what it only told of
    reason = failed.reason or "the provider took it and then failed it"
    remedy, delay = remedy_for(channel, so_far, failed)
    # Of what is lost somebody has said that it arrived: sent again with the rest, it would be said twice.
    if remedy in ("none", "blocked") or lost(so_far):
        if await operate.turn(connection, service.clock, tenant, task, by, error=reason):
            log.warning("task %d of tenant %s did not arrive: %s", task, tenant, reason)
        if remedy == "blocked" and (found := await find.get(connection, tenant, task)) and found.conversation:
            await contacts.stop(connection, tenant, found.conversation, "provider", since=failed.started_at)
        return
    if remedy == "mend":
        log.error("the sender of task %d of tenant %s is refused: %s", task, tenant, reason)
    hold = CHANNEL_PAUSED if remedy == "mend" else None
    await operate.reopen(connection, service.clock, tenant, task, by, error=reason, delay=delay, hold=hold)


async def is_told_of(connection: AsyncConnection, tenant: str, conversation: int) -> bool:
    """Tell whether a message is on its way to a customer who was told that it waits, or is just being told."""
    for task in await find.pending_followups(connection, tenant, conversation):
        so_far = await deliveries.of_task(connection, tenant, task.id)
        if any(one.part == NOTICE and one.outcome in (None, "accepted") for one in so_far):
            return True
    return False


def remedy_for(channel: Channel | None, so_far: Sequence[Delivery], failed: Delivery) -> tuple[Remedy, timedelta]:
    """Return what is left to do for a part that the provider has failed, and after how long."""
    remedy = channel.remedy(failed.code) if channel else "none"
    tries = sum(one.part == failed.part and one.code == failed.code for one in so_far)
    if remedy == "once" and tries == 1:
        return remedy, ONCE
    if remedy == "later" and tries <= len(LATER):
        return remedy, LATER[tries - 1]
    if remedy in ("mend", "blocked") or (remedy == "template" and failed.template is None):
        return remedy, timedelta()
    return "none", timedelta()


def refusal(channel: Channel | None, failed: Delivery) -> Rejected:
    """Return what the provider has said of an attempt that it has failed."""
    remedy = channel.remedy(failed.code) if channel else "none"
    reason = failed.reason or "the provider refused it"
    return Rejected(reason, tenant_fault=remedy == "mend", code=failed.code, is_blocked=remedy == "blocked")


def refused(so_far: Sequence[Delivery]) -> list[Delivery]:
    """Return the last attempt at each part that the provider has failed, of those made since the task was last taken up anew.

    Parts are sent in their order, so one that an earlier part, or the same, was sent after is from before; so is word that
    a message waits, once anything was sent after it.
    """
    return [
        one
        for one in missing(so_far)
        if one.outcome == "rejected" and all(later.part > one.part > NOTICE for later in so_far if later.id > one.id)
    ]


def refused_at(channel: Channel, so_far: Sequence[Delivery]) -> datetime | None:
    """Return when the provider last refused free text as too late."""
    return max((one.started_at for one in so_far if channel.remedy(one.code) == "template"), default=None)


def accepted(so_far: Sequence[Delivery]) -> set[int]:
    """Return the parts that the provider has taken, the notice among them."""
    return {one.part for one in so_far if one.outcome == "accepted"}


def arrived(so_far: Sequence[Delivery]) -> set[int]:
    """Return the parts of the message itself that are known to have arrived."""
    return accepted(so_far) - {NOTICE}


def missing(so_far: Sequence[Delivery]) -> list[Delivery]:
    """Return the last attempt at each part that is not known to have arrived."""
    taken = accepted(so_far)
    return list({one.part: one for one in so_far if one.part not in taken}.values())


def is_said_by_template(so_far: Sequence[Delivery]) -> bool:
    """Tell whether the whole message is known to have arrived in a template, however it would be cut otherwise."""
    return any(one.template and one.part != NOTICE and one.outcome == "accepted" for one in so_far)


def lost(so_far: Sequence[Delivery]) -> list[Delivery]:
    """Return the last attempt at each part of which nobody knows whether it arrived."""
    return [one for one in missing(so_far) if one.is_lost]
