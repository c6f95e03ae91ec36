"""`/v1/tasks`: what is booked, found, looked at, cancelled and moved."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from app.api.access import Caller, read_as
from app.api.functions import as_json, booked_answer, instant
from app.context import DONE
from app.deferred import CANCELLABLE, BadBooking, Deferred, NoSuchTask, checked
from scheduler.find import Found

BY = "the API"
"""Who cancels, in a task's story."""
LARGEST_ID = 2**63 - 1


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
    in_: str | float | None = None
    at: str | None = None

    @classmethod
    def model_validate(cls, obj: Any, **how: Any) -> "RescheduleBody":
        """Take `in`, which is no name in Python."""
        if isinstance(obj, dict):
            obj = {("in_" if name == "in" else "in" if name == "in_" else name): value for name, value in obj.items()}
        return super().model_validate(obj, **how)


async def list_tasks(caller: Caller) -> Response:
    """Answer a page of the tenant's tasks."""
    asked = caller.request.query_params
    unknown = sorted(set(asked) - {"function", "key", "subject", "status", "page", "per_page"})
    if unknown:
        raise BadBooking(
            f"there is no parameter {unknown[0][:40]!r}: use function, key, subject, status, page, per_page"
        )
    return JSONResponse(
        await page_of(
            caller.functions.deferred,
            caller.tenant.tenant,
            status=asked.get("status", "active"),
            function=asked.get("function"),
            key=asked.get("key"),
            subject=asked.get("subject"),
            page=_number("page", asked.get("page", "1")),
            per_page=_number("per_page", asked.get("per_page", "20")),
        )
    )


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
) -> dict[str, Any]:
    """Return a page of a tenant's tasks as the API shows it. Raises BadBooking."""
    found = await deferred.find(
        tenant,
        status=status,
        function=_label("function", function),
        key=_label("key", key),
        subject=_label("subject", subject),
        page=page,
        per_page=per_page,
        kinds=CANCELLABLE,
    )
    return {
        "data": [told(one) for one in found.data],
        "total": found.total,
        "page": found.page,
        "per_page": found.per_page,
    }


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
) -> dict[str, Any]:
    """Cancel under a label, or only count, and return what the API answers. Raises BadBooking, TooMany."""
    if dry_run:
        count = await deferred.would_cancel(tenant, subject=subject, key=key, key_prefix=key_prefix)
        return {"would_cancel_count": count}
    done = await deferred.cancel(tenant, subject=subject, key=key, key_prefix=key_prefix, by=by)
    return {"cancelled": list(done.cancelled), "raced": list(done.raced)}


async def reschedule_task(caller: Caller) -> Response:
    """Cancel a run and book it anew for another time."""
    task = _id(caller)
    body = await read_as(caller.request, RescheduleBody)
    due = checked("/", None, in_=body.in_, at=body.at).due
    booked = await caller.functions.deferred.reschedule(caller.tenant.tenant, task, due, by=BY)
    return booked_answer(booked, cancelled=task)


def told(found: Found) -> dict[str, Any]:
    """Return a task as the API shows it."""
    is_done = found.outcome is not None and found.outcome.startswith(DONE)
    return {
        "id": found.id,
        "kind": found.kind,
        "function": found.payload.get("path") if found.kind == "function" else None,
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
        "result": as_json(str(found.outcome).removeprefix(DONE)) if is_done else None,
        "error": found.error,
    }


def whole(found: Found) -> dict[str, Any]:
    """Return a task as the API shows it by itself: with the payload of a run."""
    return {**told(found), "payload": found.payload.get("payload") if found.kind == "function" else None}


def _id(caller: Caller) -> int:
    given = caller.request.path_params["id"]
    if not given.isascii() or not given.isdigit() or not 0 < int(given[:20]) <= LARGEST_ID:
        raise NoSuchTask(f"there is no task {given[:40]!r}")
    return int(given)


def _number(name: str, given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise BadBooking(f"{name} is a whole number from 1 on")
    return int(given)


def _label(name: str, given: str | None) -> str | None:
    if given is not None and "\0" in given:
        raise BadBooking(f"{name} holds a zero byte, which no label can")
    return given
