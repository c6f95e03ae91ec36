"""The tools: what each takes, what a key must allow for it, and what it does, by the very functions of the API.

Customers are not among what they show: a conversation is a number that its caller knows already.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from app.api.access import check_scope, checked_as
from app.api.followups import book_into
from app.api.functions import booked
from app.api.tasks import LARGEST_ID, cancelled, moved, page_of, whole
from app.deferred import DeferError, checked
from app.guards_section import Guards
from app.problems import problem_of
from app.runs import Functions
from app.tenants_file import TenantConfig
from channels.request import Problem
from scheduler.errors import KeyReused, LimitReached
from store.api_keys import ApiKey

log = logging.getLogger(__name__)

BY = "an agent, over MCP"
"""Who cancels, in a task's story."""


class Refused(Exception):
    """A call that is refused; the message says why and the way out, in the API's words."""


_IN = Field(
    default=None,
    alias="in",
    description='A time from now: a duration such as "30m", "24h" or "1h30m", or a number of seconds. Give in or at.',
)
_AT = Field(
    default=None,
    description='An instant of ISO 8601 with its offset, such as "2026-12-24T18:00:00Z". Give in or at.',
)
_KEY = Field(default=None, description="A label to find it or to cancel it by.")
_SUBJECT = Field(default=None, description="Whom it concerns, such as a user's id: a label to find or to cancel by.")
_IDEMPOTENCY_KEY = Field(
    default=None,
    description="The same key again books nothing a second time: make it of the event that you book for.",
)
_Id = Annotated[int, Field(gt=0, le=LARGEST_ID)]


class Arguments(BaseModel):
    """What a tool takes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BookFollowup(Arguments):
    """Book a follow-up: at its time the tenant's assistant writes what it is about into a conversation that there is, on the
    channel on which the customer wrote. Returns id, scheduled_at (UTC), and idempotent_replay: whether that was booked before
    under the same idempotency_key. At most 20 may be pending in one conversation.
    """

    conversation: _Id | None = Field(default=None, description="The number of the conversation. Give it or to.")
    to: dict[Literal["web", "telegram", "whatsapp"], str] | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description='Or whom the conversation is held with, by one channel: {"whatsapp": "+34600000001"}, the number of a chat'
        " of Telegram, or the id by which a user signs in on the tenant's page.",
    )
    about: str = Field(
        min_length=1,
        max_length=500,
        description="What to remind of or to find out, complete enough to be understood later without the conversation.",
    )
    in_: str | float | None = _IN
    at: str | None = _AT
    is_work: bool = Field(
        default=False, description="Whether something is to be found out first, rather than reminded of."
    )
    language: Literal["en", "es", "pt"] | None = Field(default=None, description="By default the tenant's first.")
    key: str | None = _KEY
    subject: str | None = _SUBJECT
    idempotency_key: str | None = _IDEMPOTENCY_KEY
    guards: Guards = Field(
        default=[],
        description="What must hold at its time for it to be said: that the customer has not written since, that a template"
        " may be sent, or what one of the tenant's functions elsewhere answers.",
    )


class BookRun(Arguments):
    """Book a call of one of the tenant's functions, once, at a time. Returns id, scheduled_at (UTC), and idempotent_replay:
    whether that was booked before under the same idempotency_key. What became of it get_task tells.
    """

    path: str = Field(description='Where the function is called, such as "/send-followup".')
    payload: dict[str, Any] | list[Any] | None = Field(
        default=None, description="What the function is given: an object or an array, at most 64 KB of JSON."
    )
    in_: str | float | None = _IN
    at: str | None = _AT
    key: str | None = _KEY
    subject: str | None = _SUBJECT
    idempotency_key: str | None = _IDEMPOTENCY_KEY


class ListTasks(Arguments):
    """List what is booked: the next due first or, of what has ended, the last first. Returns data (each with id, kind,
    function, status, scheduled_at, key, subject, outcome, result, error), total, page and per_page.
    """

    status: str = Field(
        default="active",
        description="active (scheduled or firing), scheduled, firing, fired, cancelled, failed, expired or uncertain.",
    )
    function: str | None = Field(default=None, description="Only runs of the function at this path.")
    key: str | None = Field(default=None, description="Only of exactly this key.")
    subject: str | None = Field(default=None, description="Only of this subject.")
    page: int = Field(default=1, description="From 1 on.")
    per_page: int = Field(default=20, description="At most 100.")


class GetTask(Arguments):
    """Look at one task. Returns what list_tasks shows of it, and the payload of a function's run."""

    id: _Id = Field(description="The number that booking it returned.")


class CancelTasks(Arguments):
    """Cancel what is booked under one label: give exactly one of subject, key and key_prefix. Returns cancelled and raced, two
    lists of ids; what is in raced had begun already and is not stopped. With dry_run nothing is cancelled and only
    would_cancel_count is returned: look at that first where a label may be on many. At most 10,000 at once.
    """

    subject: str | None = Field(default=None, description="All of this subject.")
    key: str | None = Field(default=None, description="All of exactly this key.")
    key_prefix: str | None = Field(default=None, description="All whose key begins so.")
    dry_run: bool = Field(default=False, description="Only count.")


class Reschedule(Arguments):
    """Move a function's run that has not begun: it is cancelled and booked anew for another time. Returns the new id,
    scheduled_at (UTC), and cancelled, the old id.
    """

    id: _Id = Field(description="The number of the run.")
    in_: str | float | None = _IN
    at: str | None = _AT


Given = TypeVar("Given", bound=Arguments)
Act = Callable[[Functions, TenantConfig, Any], Awaitable[Mapping[str, Any]]]


async def _book_followup(functions: Functions, tenant: TenantConfig, given: BookFollowup) -> Mapping[str, Any]:
    return booked(await book_into(functions, tenant, **dict(given)))


async def _book_run(functions: Functions, tenant: TenantConfig, given: BookRun) -> Mapping[str, Any]:
    return booked(await functions.book(tenant, checked(**dict(given))))


async def _list_tasks(functions: Functions, tenant: TenantConfig, given: ListTasks) -> Mapping[str, Any]:
    return await page_of(functions.deferred, tenant.tenant, **dict(given))


async def _get_task(functions: Functions, tenant: TenantConfig, given: GetTask) -> Mapping[str, Any]:
    return whole(await functions.deferred.get(tenant.tenant, given.id))


async def _cancel_tasks(functions: Functions, tenant: TenantConfig, given: CancelTasks) -> Mapping[str, Any]:
    return await cancelled(functions.deferred, tenant.tenant, **dict(given), by=BY)


async def _reschedule(functions: Functions, tenant: TenantConfig, given: Reschedule) -> Mapping[str, Any]:
    return await moved(functions.deferred, tenant, given.id, in_=given.in_, at=given.at, by=BY)


@dataclass(frozen=True)
class Tool:
    """One tool."""

    name: str
    scope: str
    """What a key must allow."""
    takes: type[Arguments]
    act: Act
    only_reads: bool = False
    destroys: bool = False

    @cached_property
    def description(self) -> str:
        """What the model is told of it."""
        return " ".join((self.takes.__doc__ or "").split())

    @cached_property
    def schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        whole = self.takes.model_json_schema()
        schema = {name: value for name, value in whole.items() if name not in ("title", "description")}
        for field in schema["properties"].values():
            field.pop("title", None)
        return schema


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("book_followup", "book", BookFollowup, _book_followup),
        Tool("book_run", "book", BookRun, _book_run),
        Tool("list_tasks", "read", ListTasks, _list_tasks, only_reads=True),
        Tool("get_task", "read", GetTask, _get_task, only_reads=True),
        Tool("cancel_tasks", "cancel", CancelTasks, _cancel_tasks, destroys=True),
        Tool("reschedule", "book", Reschedule, _reschedule, destroys=True),
    )
}


async def call(
    functions: Functions, key: ApiKey, tenant: TenantConfig, name: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Call a tool in a tenant's name, as far as the key allows it, and return what it answers. Raises Refused."""
    tool = TOOLS.get(name)
    if tool is None:
        raise Refused(f"there is no tool {name[:60]!r}: use one of {', '.join(TOOLS)}")
    try:
        check_scope(key, tool.scope)
        return dict(await tool.act(functions, tenant, checked_as(dict(arguments), tool.takes)))
    except Problem as problem:
        raise Refused(problem.detail) from problem
    except (DeferError, KeyReused, LimitReached) as problem:
        raise Refused(str(problem)) from problem
    except Exception as raised:
        answer = problem_of(raised)
        if answer.status == 500:
            log.exception("the tool %s raised for tenant %s", name, tenant.tenant)
        raise Refused(answer.detail) from raised
