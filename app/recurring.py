"""Something that comes again is due: one of it is booked as a follow-up, and the schedule waits for its next slot.

Both are one transaction, under the fence of the claim: killed anywhere, no slot is booked twice, and none is lost. What was
booked is then written and said as every follow-up is (`app/followups.py`).

Of slots that nobody was there for, the latest alone is said, and only while it is worth saying (`expires_after`): nobody
wants five morning alerts at night. What was left out stands in the schedule's story.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from agent.rhythm import times_left
from app.sent import GUARDS
from app.service import Service
from scheduler import schedules, settle
from scheduler.book import Booking, book
from scheduler.find import Found, get
from scheduler.poller import DUE
from scheduler.recurrence import Recurrence, read, slots_until
from scheduler.task import Task
from store import conversations

GRACE = timedelta(seconds=10)
"""A slot that is claimed later was missed: two looks of a poller, as it is set by default."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a claim is for."""

    said: datetime | None
    """The slot that is said; None where none is worth it any more."""
    following: datetime | None
    """The next slot; None where it has ended."""
    told: Sequence[tuple[str, str]]
    """What its story is told."""


async def come_again(service: Service, task: Task) -> None:
    """Book what a due schedule of a conversation is for, and put it back until its next slot, or end it.

    Raises LostClaim; WrongKey, TenantFileError when its tenant cannot be used; BadSchedule for a time zone that is gone.
    """
    await service.tenant_of(task)
    async with service.database.transaction() as connection:
        if await settle.is_cancelled(connection, task):
            await settle.cancel(connection, service.clock, task)
            return
        # As it stands now that it is locked: its conversation may be another than when it was claimed.
        found = await get(connection, task.tenant, task.id)
        assert found is not None
        conversation = await conversations.find(connection, task.tenant, found.conversation or 0)
        if conversation is not None and conversation.stopped == "customer":
            await settle.skip(connection, service.clock, task, GUARDS[conversation.stopped])
            return
        plan = _plan(read(found.payload["spec"]), found.payload, task)
        if plan.said is not None:
            await _book(service, connection, found, plan.said)
        await _go_on(service, connection, task, plan)
    service.signals.hint(DUE)


def _plan(rule: Recurrence, payload: Mapping[str, Any], task: Task) -> _Plan:
    slot, now = task.booked_for, task.claimed_at
    over = datetime.fromisoformat(payload["ends_at"]) if payload.get("ends_at") else None

    def is_over(at: datetime | None) -> bool:
        return at is None or (over is not None and at >= over)

    worth = now - timedelta(seconds=payload["expires_after"])
    first = slot if slot > worth else rule.after(slot, worth)
    due = [at for at in slots_until(rule, first, now) if not is_over(at)] if first is not None else []
    said = due[-1] if due else None
    following = rule.after(slot, max(now, slot))
    if is_over(following) or (said is not None and times_left(payload) == 1):
        following = None
    told = [("ran", _iso(said))] if said is not None else []
    if said != slot:
        until = f", said {_iso(said)}" if said is not None else ", none said"
        told = [("missed", f"skipped from {_iso(slot)}{until}"), *told]
    elif now - slot > GRACE:
        told = [("missed", f"said late: {_iso(slot)}"), *told]
    return _Plan(said, following, told)


async def _book(service: Service, connection: AsyncConnection, found: Found, slot: datetime) -> None:
    payload = found.payload
    await book(
        connection,
        service.clock,
        Booking(
            tenant=found.tenant,
            kind="followup",
            due=slot,
            conversation=found.conversation,
            channel=found.channel,
            payload={
                "about": payload["about"],
                "language": payload["language"],
                "when": payload["spec"],
                "is_work": False,
            },
            parent=found.id,
            expires_at=slot + timedelta(seconds=payload["expires_after"]),
            idempotency_key=f"slot:{found.id}:{slot.isoformat()}",
            asked_at=found.created_at,
        ),
    )


async def _go_on(service: Service, connection: AsyncConnection, task: Task, plan: _Plan) -> None:
    is_said = plan.said is not None
    await schedules.go_on(
        connection,
        service.clock,
        task,
        plan.following,
        plan.told,
        outcome="delivered" if is_said else "skipped: missed",
        more={"said": int(task.payload.get("said", 0)) + is_said} if is_said else None,
    )


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
