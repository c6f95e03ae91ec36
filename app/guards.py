"""Guards as data: what is looked at before a follow-up or a notice is written, and again before it is said.

    [{"guard": "no reply since"}, {"guard": "template approved", "template": "HX…"},
     {"guard": "call", "function": "/still-open", "if_unknown": "hold"}]

The first that says no ends the task as skipped, by its name. That somebody has opted out is looked at always.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from app.called import Unknown, call_guard
from app.calls_section import FunctionSection
from app.deferred import BadBooking
from app.guards_section import AnyGuard, Call, Guards, NoReplySince, TemplateApproved
from app.service import Service, chosen_template
from app.tenants_file import TenantConfig
from channels.message import Filled
from scheduler.task import Task
from store.conversations import Conversation

log = logging.getLogger(__name__)

PROMPT = timedelta(minutes=1)
"""What is said within this after its time is asked about before it is written; what is said later, again."""


class NotKnown(Exception):
    """A guard said neither yes nor no, and the task is to wait for it; the message says why."""


_READ: TypeAdapter[list[AnyGuard]] = TypeAdapter(Guards, config=ConfigDict(hide_input_in_errors=True))


def read(kept: Any) -> Sequence[AnyGuard]:
    """Return what a task's payload has of guards. Raises pydantic.ValidationError for what another version has written."""
    return _READ.validate_python(kept or [])


async def check(service: Service, guards: Sequence[AnyGuard], tenant: TenantConfig) -> None:
    """Raise BadBooking for a guard that calls what the tenant has not."""
    for guard in guards:
        if isinstance(guard, Call) and await _section(service, tenant, guard) is None:
            known = ", ".join(sorted(tenant.functions)) or "none"
            raise BadBooking(
                f"guards: the tenant has no function elsewhere at {guard.function} (there are: {known}): write where it is"
                " called under functions in the tenant's file"
            )


async def _section(service: Service, tenant: TenantConfig, guard: Call) -> FunctionSection | None:
    """Return where a guard asks; a file that was applied a moment ago is read anew before there is said to be nothing."""
    if guard.function in tenant.functions:
        return tenant.functions[guard.function]
    fresh = await service.tenant(tenant.tenant, is_fresh=True)
    return fresh.functions.get(guard.function) if fresh else None


async def first_no(
    service: Service,
    tenant: TenantConfig,
    conversation: Conversation,
    task: Task,
    chosen: Sequence[AnyGuard] | None = None,
) -> str | None:
    """Return the name of the first guard that says no, of a task's own unless others are chosen; None where none does. Raises NotKnown."""
    guards = read(task.payload.get("guards")) if chosen is None else chosen
    # All at once: the lane may be held, and then the customer waits for as long as this takes.
    said = await asyncio.gather(
        *(_says_yes(service, tenant, conversation, guard, task) for guard in guards), return_exceptions=True
    )
    for guard, says_yes in zip(guards, said, strict=True):
        if isinstance(says_yes, BaseException):
            raise says_yes
        if not says_yes:
            return guard.guard
    return None


async def _says_yes(
    service: Service, tenant: TenantConfig, conversation: Conversation, guard: AnyGuard, task: Task
) -> bool:
    if isinstance(guard, NoReplySince):
        heard = conversation.last_inbound_at
        return heard is None or heard <= task.created_at
    if isinstance(guard, TemplateApproved):
        channel = await service.channel(tenant, "whatsapp")
        filled = chosen_template(tenant, guard.template, {})
        return channel is not None and isinstance(await channel.check(filled), Filled)
    return await _is_told_to_proceed(service, tenant, guard, task)


async def _is_told_to_proceed(service: Service, tenant: TenantConfig, guard: Call, task: Task) -> bool:
    if task.text is not None and task.claimed_at - task.booked_for < PROMPT:
        return True  # it said so before this was written
    section = await _section(service, tenant, guard)
    if section is None:
        said: bool | Unknown = Unknown("there is no such function any more")
    else:
        what = {
            "task": task.id,
            "kind": task.kind,
            "key": task.key,
            "subject": task.subject,
            "conversation": task.conversation,
            "channel": task.channel,
            "scheduled_at": task.booked_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "about": task.payload.get("about"),
        }
        said = await call_guard(service.outside, tenant, section.url, what)
    if not isinstance(said, Unknown):
        return said
    if guard.if_unknown == "hold":
        raise NotKnown(f"whether to proceed, {guard.function} did not say: {said.why}")
    log.warning(
        "task %d of tenant %s: whether to proceed, %s did not say (%s), and so: %s",
        task.id,
        task.tenant,
        guard.function,
        said.why,
        guard.if_unknown,
    )
    return guard.if_unknown == "send"
