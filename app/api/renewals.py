"""`/v1/renewals/{subject}`: what of a customer's ends on a day, told, looked at and closed."""

import re
from collections.abc import Mapping
from datetime import UTC, date
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from app.api.access import Caller, read_as
from app.api.functions import CLOSED
from app.deferred import BadBooking, NoSuchTask, Raced, check_label, is_storable
from app.renewal_input import Checker, Given
from app.renewals import as_shown, close, enrol, step_shown, steps
from app.runs import Functions
from app.tenants_file import TenantConfig
from store import renewals
from store.renewals import Renewal

BY = "the API"
"""Who enrols and closes, in a renewal's story."""
DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
LONGEST_WHY = 500


class ChannelsBody(BaseModel):
    """Where the customer is reached; at least one."""

    model_config = ConfigDict(extra="forbid", strict=True)
    whatsapp: str | None = None
    """A number with a plus and its country's code."""
    telegram: str | None = None
    """The number of a chat."""
    web: str | None = None
    """The user's id, as your server signs it for the widget."""


class RenewalBody(BaseModel):
    """A renewal as it is to be; what is left out is taken away."""

    model_config = ConfigDict(extra="forbid", strict=True)
    due: Annotated[str, Field(json_schema_extra={"format": "date"})]
    cadence: str
    channels: ChannelsBody
    name: str | None = None
    language: str | None = None
    time_zone: str | None = None
    fields: Mapping[str, str] = {}
    agreed: bool = False


class CloseBody(BaseModel):
    """How it is closed, and why."""

    model_config = ConfigDict(extra="forbid", strict=True)
    as_: Annotated[Literal["renewed", "lost", "withdrawn"], Field(alias="as")]
    why: Annotated[str, Field(max_length=LONGEST_WHY)] | None = None


@CLOSED
class StepShown(TypedDict):
    """A step: when it comes, or was to come, and what became of it."""

    step: str
    at: str
    state: str
    hold: str | None
    outcome: str | None
    error: str | None
    task: int


@CLOSED
class RenewalShown(TypedDict):
    """A renewal, without where its customer is reached."""

    subject: str
    due: str
    cadence: str
    channels: list[str]
    name: str | None
    language: str | None
    time_zone: str | None
    fields: dict[str, str]
    agreed: bool
    state: str
    stopped: str | None
    said: list[str]
    conversation: int | None
    steps: list[StepShown]


@CLOSED
class EnrolledShown(RenewalShown):
    """A renewal, and what became of it: new, moved, changed or unchanged."""

    became: str


@CLOSED
class EventShown(TypedDict):
    """A line of its story."""

    at: str
    event: str
    by: str
    detail: str | None


@CLOSED
class RenewalWhole(RenewalShown):
    """A renewal with its story."""

    events: list[EventShown]


async def put_renewal(caller: Caller) -> Response:
    """Have a renewal be what is given."""
    subject = _subject(caller)
    body = await read_as(caller.request, RenewalBody)
    shown = await enrolled(caller.functions, caller.tenant, subject, body)
    return JSONResponse(shown, status_code=201 if shown["became"] == "new" else 200)


async def enrolled(functions: Functions, tenant: TenantConfig, subject: str, body: RenewalBody) -> EnrolledShown:
    """Have a renewal be what is given, and return what the API answers. Raises BadRenewal."""
    service = functions.service
    async with service.database.autocommit() as connection:
        today = (await service.clock.now(connection)).astimezone(ZoneInfo(tenant.time_zone)).date()
    given = Given(
        subject,
        _day(body.due),
        body.cadence,
        body.channels.model_dump(exclude_none=True),
        body.name,
        body.language,
        body.time_zone,
        body.fields,
        body.agreed,
    )
    (became,) = await enrol(service, tenant, [Checker(tenant, today).check(given)], BY)
    return cast(
        EnrolledShown, {**await _shown(functions, tenant, await _last(functions, tenant, subject)), "became": became}
    )


async def get_renewal(caller: Caller) -> Response:
    """Answer the last renewal under a subject, with its story."""
    found = await _last(caller.functions, caller.tenant, _subject(caller))
    async with caller.functions.service.database.autocommit() as connection:
        events = await renewals.story(connection, caller.tenant.tenant, found.id)
    told = [
        {"at": one.at.astimezone(UTC).isoformat(), "event": one.event, "by": one.by, "detail": one.detail}
        for one in events
    ]
    return JSONResponse({**await _shown(caller.functions, caller.tenant, found), "events": told})


async def close_renewal(caller: Caller) -> Response:
    """Close a renewal; one that is closed so already stays as it is."""
    subject = _subject(caller)
    body = await read_as(caller.request, CloseBody)
    if body.why is not None and not is_storable(body.why):
        raise BadBooking("why is a text without zero bytes")
    why = " ".join(body.why.split()) or None if body.why else None
    is_closed = await close(caller.functions.service, caller.tenant.tenant, subject, body.as_, BY, why)
    found = await _last(caller.functions, caller.tenant, subject)
    if not is_closed and found.state != body.as_:
        raise Raced(f"the renewal is {found.state} already")
    return JSONResponse(await _shown(caller.functions, caller.tenant, found))


async def _last(functions: Functions, tenant: TenantConfig, subject: str) -> Renewal:
    async with functions.service.database.autocommit() as connection:
        found = await renewals.under(connection, tenant.tenant, subject)
    if not found:
        raise NoSuchTask(f"there is no renewal {subject[:60]!r}")
    return found[0]


async def _shown(functions: Functions, tenant: TenantConfig, found: Renewal) -> dict[str, Any]:
    async with functions.service.database.autocommit() as connection:
        booked = await steps(connection, tenant, found)
    return {**as_shown(found), "steps": [step_shown(one) for one in booked]}


def _subject(caller: Caller) -> str:
    subject: str = caller.request.path_params["subject"]
    check_label("subject", subject)
    return subject


def _day(given: str) -> date:
    try:
        if DAY.fullmatch(given) is None:
            raise ValueError
        return date.fromisoformat(given)
    except ValueError:
        raise BadBooking(f"due is {given[:40]!r}: write a date such as 2027-04-25") from None
