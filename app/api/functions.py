"""`POST /v1/functions/{path}`: calls a function now, or books a run of it where a header says when."""

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import with_config
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from app.api.access import Caller, read_any
from app.context import NoChannel
from app.deferred import BadBooking, DeferError, checked
from app.functions import BadInput, Later, Stop, written
from app.guard import GuardNotRun
from app.outside import OutsideError, TooSlow
from app.runs import TookTooLong
from channels.request import Problem
from scheduler.book import Booked
from scheduler.errors import KeyReused, LimitReached

log = logging.getLogger(__name__)

SCHEDULE_IN, SCHEDULE_AT = "vuelvo-schedule-in", "vuelvo-schedule-at"
KEY, SUBJECT, PIN, CHANNEL = "vuelvo-key", "vuelvo-subject", "vuelvo-pin-deployment", "vuelvo-channel"
IDEMPOTENCY_KEY = "idempotency-key"
HEADERS = (SCHEDULE_IN, SCHEDULE_AT, KEY, SUBJECT, PIN, CHANNEL, IDEMPOTENCY_KEY)
"""What a call may be sent with."""
CHANNELS = ("web", "telegram", "whatsapp")
RETRY_AFTER = 60
"""Seconds after which to call again, for a function that does not say."""
CLOSED = with_config(extra="forbid")
"""An answer has these fields and no others."""


@CLOSED
class BookedShown(TypedDict):
    """A booking. `scheduled_at` is UTC."""

    id: int
    scheduled_at: str
    idempotent_replay: bool


async def call_or_book(caller: Caller) -> Response:
    """Answer one call."""
    headers, path = caller.request.headers, "/" + caller.request.path_params["path"]
    check_headers(caller.request, HEADERS)  # passed over, one that was to say when would have the function run now
    payload = await read_any(caller.request)
    if SCHEDULE_IN in headers or SCHEDULE_AT in headers:
        run = checked(
            path,
            payload,
            in_=said(caller.request, SCHEDULE_IN),
            at=said(caller.request, SCHEDULE_AT),
            key=said(caller.request, KEY),
            subject=said(caller.request, SUBJECT),
            idempotency_key=said(caller.request, IDEMPOTENCY_KEY),
        )
        return booked_answer(await caller.functions.book(caller.tenant, run, pin=_is_pinned(headers.get(PIN))))
    for name in (KEY, SUBJECT, PIN, IDEMPOTENCY_KEY):
        if name in headers:
            raise BadBooking(f"{name} belongs to a booking: say when, with {SCHEDULE_IN} or {SCHEDULE_AT}")
    checked(path, payload, in_=0)
    try:
        result = await caller.functions.call(caller.tenant, path, {} if payload is None else payload, _channel(caller))
        return Response(written(result), media_type="application/json")
    except (BadInput, DeferError, KeyReused, LimitReached) as problem:
        raise problem
    except Problem:
        raise
    except TookTooLong as problem:
        raise Problem(
            504, f"The function at {path} took longer than it is given; it may have done its work."
        ) from problem
    except OutsideError as problem:
        status = 504 if isinstance(problem, TooSlow) else 502
        raise Problem(status, f"The call of {path} came to nothing: {problem}.") from problem
    except Stop as problem:
        raise Problem(409, f"The function at {path} will not run: {problem}") from problem
    except Later as problem:
        again = {"retry-after": str(math.ceil(problem.retry_after or RETRY_AFTER))}
        raise Problem(503, f"The function at {path} cannot run now: {problem}", headers=again) from problem
    except NoChannel as problem:
        raise Problem(422, str(problem)) from problem
    except GuardNotRun as problem:
        raise Problem(500, str(problem)) from problem
    except Exception as problem:
        log.exception("the function at %s raised for tenant %s", path, caller.tenant.tenant)
        raise Problem(500, f"The function at {path} raised an error; the service's log says which.") from problem


def check_headers(request: Request, known: Sequence[str]) -> None:
    """Raise BadBooking for a header of ours that means nothing here: whoever sent it meant something."""
    if unknown := [name for name in request.headers if name.startswith("vuelvo-") and name not in known]:
        raise BadBooking(f"{unknown[0][:40]!r} means nothing here: use {', '.join(known)}")


def booked_answer(done: Booked) -> Response:
    """Return 202 for what is booked, 200 for what was booked before under the same idempotency key."""
    return JSONResponse(booked(done), status_code=200 if done.replay else 202)


def booked(done: Booked) -> BookedShown:
    """Return a booking as the API shows it."""
    return {"id": done.id, "scheduled_at": instant(done.due_at), "idempotent_replay": done.replay}


def said(request: Request, name: str) -> str | None:
    """Return what a header says: clients write it in UTF-8 or in Latin-1, and a label must be the same in a body.

    Raises BadBooking for a header that comes twice.
    """
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise BadBooking(f"{name} comes {len(values)} times: send it once")
    if not values:
        return None
    raw = values[0].encode("latin-1")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return values[0]


def instant(at: datetime) -> str:
    """Return an instant as the API writes it: RFC 3339, UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _is_pinned(given: str | None) -> bool:
    if given is None or given.strip().lower() == "false":
        return False
    if given.strip().lower() != "true":
        raise BadBooking(f"{PIN} is true or false")
    return True


def _channel(caller: Caller) -> str | None:
    """Return the channel that a call names, or the tenant's only one."""
    there = [name for name in CHANNELS if getattr(caller.tenant.channels, name) is not None]
    named = caller.request.headers.get(CHANNEL)
    if named is not None and named not in there:
        raise BadBooking(f"{CHANNEL} names no channel of the tenant, which has {', '.join(there) or 'none'}")
    return named or (there[0] if len(there) == 1 else None)
