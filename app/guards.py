"""Guards as data: what is looked at before a follow-up or a notice is written, and again before it is said.

    [{"guard": "no reply since"}, {"guard": "template approved", "template": "HX…"}]

The first that says no ends the task as skipped, by its name. That somebody has opted out is looked at always.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.service import Service
from app.tenants_file import TenantConfig
from channels.message import Filled
from scheduler.task import Task
from store.conversations import Conversation

MOST = 5
"""Guards of one task."""


class NoReplySince(BaseModel, extra="forbid", frozen=True):
    """The customer has not written since it was asked for."""

    guard: Literal["no reply since"]


class TemplateApproved(BaseModel, extra="forbid", frozen=True):
    """A template of the tenant's may be sent, as far as is known."""

    guard: Literal["template approved"]
    template: Annotated[str, Field(pattern=r"^HX[0-9a-fA-F]{32}$")]


AnyGuard = Annotated[NoReplySince | TemplateApproved, Field(discriminator="guard")]
Guards = Annotated[list[AnyGuard], Field(max_length=MOST)]
_READ: TypeAdapter[list[AnyGuard]] = TypeAdapter(Guards, config=ConfigDict(hide_input_in_errors=True))


def read(kept: Any) -> Sequence[NoReplySince | TemplateApproved]:
    """Return what a task's payload has of guards. Raises pydantic.ValidationError for what another version has written."""
    return _READ.validate_python(kept or [])


async def first_no(service: Service, tenant: TenantConfig, conversation: Conversation, task: Task) -> str | None:
    """Return the name of the first guard that says no; None where none does."""
    for guard in read(task.payload.get("guards")):
        if not await _says_yes(guard, service, tenant, conversation, task):
            return guard.guard
    return None


async def _says_yes(
    guard: NoReplySince | TemplateApproved,
    service: Service,
    tenant: TenantConfig,
    conversation: Conversation,
    task: Task,
) -> bool:
    if isinstance(guard, NoReplySince):
        heard = conversation.last_inbound_at
        return heard is None or heard <= task.created_at
    channel = await service.channel(tenant, "whatsapp")
    if channel is None:
        return False
    return isinstance(await channel.check(Filled(guard.template, {}, is_whole=True)), Filled)
