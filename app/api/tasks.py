"""`/v1/tasks`: what is booked, found, looked at, cancelled and moved."""

from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from app.api.access import Caller, read_as
from app.api.functions import CLOSED, BookedShown, booked, instant
from app.context import DONE, result_of
from app.deferred import CANCELLABLE, BadBooking, Deferred, NoSuchTask, checked
from app.tenants_file import TenantConfig
from scheduler.find import Found

BY = "the API"
"""Who cancels, in a task's story."""
LARGEST_ID = 2**63 - 1
QUERY = ("function", "key", "subject", "status", "page", "per_page")
"""What a list may be asked for."""


class CancelBody(BaseModel):
    """What to cancel: exactly one of the three labels."""

    model_config = ConfigDict(extra="forbid", strict=True)
    subject: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    dry_run: bool = False


class RescheduleBody(BaseModel):
    """When instead: `in` a duration or seconds from now, or `at` an instant."""

    model_config = ConfigDict(extra="forbid", strict=True)
    in_: Annotated[str | float | None, Field(alias="in")] = None
    at: str | None = None


# What is answered, as app/api/description.py describes it.


@CLOSED
class TaskShown(TypedDict):
    """A task. `result` is what its function returned; `error` is the last, of a run that is tried again too."""

    id: int
    kind: str
    function: str | None
    status: str
    hold: str | None
    scheduled_at: str
    created_at: str
    ended_at: str | None
    attempt: int
    key: str | None
    subject: str | None
    deployment: str | None
    conversation: int | None
    outcome: str | None
    result: Any
    error: str | None


@CLOSED
class TaskWhole(TaskShown):
    """A task with its payload."""

    payload: Any


@CLOSED
class TaskPage(TypedDict):
    """Some of the tasks, and how many there are in all."""

    data: list[TaskShown]
    total: int
    page: int
    per_page: int


@CLOSED
class CancelledShown(TypedDict):
    """Each task that was met is in one of the two: `raced` is being performed already."""

    cancelled: list[int]
    raced: list[int]


@CLOSED
class WouldCancelShown(TypedDict):
    """What a dry run answers."""

    would_cancel_count: int


@CLOSED
class MovedShown(BookedShown):
    """The new booking, and the task that was cancelled for it."""

    cancelled: int


async def list_tasks(caller: Caller) -> Response:
    """Answer a page of the tenant's tasks."""
    asked = caller.request.query_params
    unknown = sorted(set(asked) - set(QUERY))
    if unknown:
        raise BadBooking(f"there is no parameter {unknown[0][:40]!r}: use {', '.join(QUERY)}")
    for name, times in Counter(name for name, _ in asked.multi_items()).items():
        if times > 1:
            raise BadBooking(f"{name} comes {times} times: give it once")
    shown = await page_of(
        caller.functions.deferred,
        caller.tenant.tenant,
        status=asked.get("status", "active"),
        function=asked.get("function"),
        key=asked.get("key"),
        subject=asked.get("subject"),
        page=_number("page", asked.get("page", "1")),
        per_page=_number("per_page", asked.get("per_page", "20")),
    )
    return JSONResponse(shown)


async def page_of(
    deferred: Deferred,
    tenant: str,
    *,
    status: str,
    function: str | None,
    key: str | None,
    subject: str | None,
    page: int,
    per_page: int,
) -> TaskPage:
    """Return a page of a tenant's tasks as the API shows it. Raises BadBooking."""
    found = await deferred.find(
        tenant,
        status=status,
        function=function,
        key=key,
        subject=subject,
        page=page,
        per_page=per_page,
        kinds=CANCELLABLE,
    )
    return TaskPage(data=[told(one) for one in found.data], total=found.total, page=found.page, per_page=found.per_page)


async def get_task(caller: Caller) -> Response:
    """Answer one task, with its payload."""
    return JSONResponse(whole(await caller.functions.deferred.get(caller.tenant.tenant, _id(caller))))


async def cancel_tasks(caller: Caller) -> Response:
    """Cancel under a label, or say how many that would be."""
    body = await read_as(caller.request, CancelBody)
    return JSONResponse(await cancelled(caller.functions.deferred, caller.tenant.tenant, **dict(body), by=BY))


async def cancelled(
    deferred: Deferred,
    tenant: str,
    *,
    subject: str | None,
    key: str | None,
    key_prefix: str | None,
    dry_run: bool,
    by: str,
) -> CancelledShown | WouldCancelShown:
    """Cancel under a label, or only count, and return what the API answers. Raises BadBooking, TooMany."""
    if dry_run:
        count = await deferred.would_cancel(tenant, subject=subject, key=key, key_prefix=key_prefix)
        return WouldCancelShown(would_cancel_count=count)
    done = await deferred.cancel(tenant, subject=subject, key=key, key_prefix=key_prefix, by=by)
    return CancelledShown(cancelled=list(done.cancelled), raced=list(done.raced))


async def reschedule_task(caller: Caller) -> Response:
    """Cancel a run and book it anew for another time."""
    task = _id(caller)
    body = await read_as(caller.request, RescheduleBody)
    shown = await moved(caller.functions.deferred, caller.tenant, task, **dict(body), by=BY)
    return JSONResponse(shown, status_code=202)


async def moved(
    deferred: Deferred, config: TenantConfig, task: int, *, in_: str | float | None, at: str | None, by: str
) -> MovedShown:
    """Move a run, and return what the API answers. Raises BadBooking, NoSuchTask, Raced."""
    due = checked("/", None, in_=in_, at=at).due
    done = await deferred.reschedule(config.tenant, task, due, config.limits, by=by)
    return MovedShown(**booked(done), cancelled=task)


def told(found: Found) -> TaskShown:
    """Return a task as the API shows it."""
    is_done = found.outcome is not None and found.outcome.startswith(DONE)
    return {
        "id": found.id,
        "kind": found.kind,
        "function": _path(found),
        "status": found.state,
        "hold": found.hold,
        "scheduled_at": instant(found.booked_for),
        "created_at": instant(found.created_at),
        "ended_at": None if found.ended_at is None else instant(found.ended_at),
        "attempt": found.attempt,
        "key": found.key,
        "subject": found.subject,
        "deployment": found.needs.rpartition("@")[2] if found.needs and "@" in found.needs else None,
        "conversation": found.conversation,
        "outcome": "done" if is_done else found.outcome,
        "result": result_of(found.outcome) if found.kind == "function" else None,
        "error": found.error,
    }


def whole(found: Found) -> TaskWhole:
    """Return a task as the API shows it by itself: with the payload of a run, or what a follow-up is about."""
    payload = found.kept.get("payload") if found.kind == "function" else {"about": found.kept.get("about")}
    return TaskWhole(**told(found), payload=payload)


def _path(found: Found) -> str | None:
    path = found.kept.get("path")
    return path if found.kind == "function" and isinstance(path, str) else None


def _id(caller: Caller) -> int:
    given = caller.request.path_params["id"]
    if not given.isascii() or not given.isdigit() or len(given) > 19 or not 0 < int(given) <= LARGEST_ID:
        raise NoSuchTask(f"there is no task {given[:40]!r}")
    return int(given)


def _number(name: str, given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise BadBooking(f"{name} is a whole number from 1 on")
    return int(given)
