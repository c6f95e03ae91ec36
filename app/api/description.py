"""`GET /openapi.json`: what is below `/v1`, in OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0), open to everybody.

It is made of the routes, of the models of their bodies and answers, and of the input models of the application's functions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib import metadata
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from app.api import functions as headers
from app.api.access import Answer
from app.api.followups import FollowupBody, book_followup
from app.api.functions import CHANNELS, CLOSED, BookedShown, call_or_book
from app.api.renewals import (
    CloseBody,
    EnrolledShown,
    RenewalBody,
    RenewalShown,
    RenewalWhole,
    close_renewal,
    get_renewal,
    put_renewal,
)
from app.api.tasks import (
    LARGEST_ID,
    QUERY,
    CancelBody,
    CancelledShown,
    MovedShown,
    RescheduleBody,
    TaskPage,
    TaskWhole,
    WouldCancelShown,
    cancel_tasks,
    get_task,
    list_tasks,
    reschedule_task,
)
from app.deferred import LARGEST_PAGE, LARGEST_PAYLOAD, LAST_PAGE, LONGEST, MOST_CANCELLED, STATUSES
from app.functions import Function
from app.runs import Functions
from scheduler.limits import MOST_ACTIVE
from scheduler.when import LONGEST_LEAD

Json = dict[str, Any]
Endpoints = Sequence[tuple[str, str, str, Answer]]

PAYLOAD: Json = {"type": ["object", "array"], "description": f"At most {LARGEST_PAYLOAD:,} bytes of JSON."}
_MODELS = "#/components/schemas/{model}"


@CLOSED
class ProblemShown(TypedDict):
    """Why a request is refused, and the way out (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route is for, takes and answers, beyond what every route does."""

    summary: str
    told: str
    answers: Mapping[int, tuple[str, Any]]
    """By status: in words, and the type of what is answered."""
    refusals: Sequence[int] = ()
    body: type[BaseModel] | None = None
    headers: Sequence[str] = ()
    query: Sequence[str] = ()
    example: Any = None
    """A body."""


LABEL: Json = {"type": "string", "minLength": 1, "maxLength": LONGEST}
PARAMETERS: Mapping[str, tuple[str, Json, Any]] = {
    headers.SCHEDULE_IN: (
        f"Book the call for a time from now: a duration, its largest unit first, or seconds; at most {LONGEST_LEAD.days} days.",
        {
            "type": "string",
            "pattern": r"^(0*[0-9]{1,7}|([0-9]{1,2}w)?([0-9]{1,2}d)?([0-9]{1,2}h)?([0-9]{1,2}m)?[0-9]{1,2}s)$",
        },
        "1h30m",
    ),
    headers.SCHEDULE_AT: (
        "Book the call for an instant, in ISO 8601 with an offset. One that is past is refused.",
        {"type": "string", "format": "date-time"},
        "2026-12-24T18:00:00Z",
    ),
    headers.KEY: ("What to find or cancel the booking by.", LABEL, "cart:ana:42"),
    headers.SUBJECT: ("Whom it concerns, to find or cancel it by.", LABEL, "user_ana"),
    headers.PIN: (
        "Whether only the deployment that books it may perform it (VUELVO_DEPLOYMENT).",
        {"type": "string", "enum": ["true", "false"]},
        "true",
    ),
    headers.CHANNEL: (
        "The tenant's channel that a call at once is for, where it has several.",
        {"type": "string", "enum": list(CHANNELS)},
        "web",
    ),
    headers.IDEMPOTENCY_KEY: (
        "The same key with the same payload books once, and is answered 200 from the second time on; with another payload 409."
        " For bookings only.",
        LABEL,
        "abandoned-cart:event-7",
    ),
    "function": ("Only this function's.", {"type": "string"}, "/send-followup"),
    "key": ("Only what was booked under this key.", {"type": "string"}, "cart:ana:42"),
    "subject": ("Only what concerns this subject.", {"type": "string"}, "user_ana"),
    "path subject": (
        "What is renewed, such as a policy's number; slashes are part of it.",
        LABEL,
        "policy-17",
    ),
    "status": (
        "Only what stands so; active is scheduled or firing.",
        {"type": "string", "enum": list(STATUSES), "default": "active"},
        "scheduled",
    ),
    "page": ("Which page.", {"type": "integer", "minimum": 1, "maximum": LAST_PAGE, "default": 1}, 1),
    "per_page": (
        "How many on a page.",
        {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE, "default": 20},
        20,
    ),
    "path": (
        "A function's path, without the slash it begins with; further slashes are part of it.",
        {"type": "string", "pattern": r"^[A-Za-z0-9_.~/-]{1,199}$"},
        "send-followup",
    ),
    "id": ("A task's number.", {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}, 4711),
}
"""Each in words, with its schema and an example."""

REFUSALS: Mapping[int, str] = {
    400: "The body is not UTF-8, not JSON or did not come whole; or something in it cannot be stored.",
    401: "There is no key, or one that opens nothing.",
    403: "The key does not allow this.",
    404: "There is no such function, task or renewal of the tenant.",
    405: "The address does not take this method.",
    409: "The idempotency key was used with another payload; or the task has begun, or ended; or the renewal is closed otherwise; or the function will not run.",
    413: f"The payload is larger than {LARGEST_PAYLOAD:,} bytes.",
    422: "Something that was given cannot be booked, found or cancelled; the detail names it.",
    429: f"As many are booked as there may be at a time: {MOST_ACTIVE:,} deferred runs of a tenant, unless it was given more.",
    500: "The function raised an error, or something went wrong here; the service's log says which.",
    502: "What is called lies elsewhere, and could not be reached or gave no answer that can be used.",
    503: "The database does not answer, or the tenant cannot be served or the function cannot run just now. Try again later.",
    504: "The function took longer than it is given; it may have done its work.",
}
OF_ALL = (401, 403, 405, 500, 503)
OF_BODIES = (400, 413, 422)
ANSWER_HEADERS: Mapping[int, Json] = {
    401: {"WWW-Authenticate": {"description": "Bearer.", "schema": {"type": "string"}}},
    403: {"WWW-Authenticate": {"description": "The scope that is missing.", "schema": {"type": "string"}}},
    405: {"Allow": {"description": "What it takes.", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
}

BOOKED_BEFORE = ("It was booked before, under the same idempotency key.", BookedShown)
BOOKED = ("It is booked.", BookedShown)
CALL = Operation(
    "Call a function, or book a call",
    "Without a header that says when, the function is called at once and its result answered. With Vuelvo-Schedule-In or"
    " Vuelvo-Schedule-At a run of it is booked.",
    {200: ("The function's result; or, of a booking that was made before, that booking.", Any), 202: BOOKED},
    (*OF_BODIES, 404, 409, 429, 502, 504),
    headers=headers.HEADERS,
    example={"user": "ana", "cart": "42"},
)
OPERATIONS: Mapping[Answer, Operation] = {
    call_or_book: CALL,
    book_followup: Operation(
        "Book a follow-up",
        "The assistant comes back to a conversation with what is asked for. Give either `in` or `at`.",
        {200: BOOKED_BEFORE, 202: BOOKED},
        (*OF_BODIES, 409, 429),
        FollowupBody,
        headers=(headers.IDEMPOTENCY_KEY,),
        example={"conversation": 17, "about": "ask how the visit was", "in": "24h", "subject": "user_ana"},
    ),
    list_tasks: Operation(
        "List tasks",
        "What is booked, the next due first; of what has ended the last first.",
        {200: ("A page.", TaskPage)},
        (422,),
        query=QUERY,
    ),
    cancel_tasks: Operation(
        "Cancel under a label",
        f"Exactly one of `subject`, `key` and `key_prefix`; of more than {MOST_CANCELLED:,} tasks nothing is cancelled.",
        {200: ("What became of each; or, of a dry run, how many it would be.", CancelledShown | WouldCancelShown)},
        OF_BODIES,
        CancelBody,
        example={"key_prefix": "summer-promo:", "dry_run": True},
    ),
    get_task: Operation("Look at a task", "With its payload.", {200: ("The task.", TaskWhole)}, (404,)),
    reschedule_task: Operation(
        "Move a run",
        "Cancels it and books it anew, in one transaction. Give either `in` or `at`.",
        {202: ("The new booking.", MovedShown)},
        (*OF_BODIES, 404, 409),
        RescheduleBody,
        example={"in": "3h"},
    ),
    put_renewal: Operation(
        "Enrol a renewal, or change it",
        "What is given is the whole of it. Where its due day, its cadence or its time zone is another, what is to come is planned"
        " anew, and what was said stays said. The same again changes nothing.",
        {200: ("It was open already.", EnrolledShown), 201: ("It is new.", EnrolledShown)},
        OF_BODIES,
        RenewalBody,
        example={
            "due": "2027-03-01",
            "cadence": "policy",
            "channels": {"whatsapp": "+34600000001"},
            "name": "Ana",
            "fields": {"car": "Fiat"},
            "agreed": True,
        },
    ),
    get_renewal: Operation(
        "Look at a renewal",
        "The last under this subject, with its steps and its story.",
        {200: ("The renewal.", RenewalWhole)},
        (404, 422),
    ),
    close_renewal: Operation(
        "Close a renewal",
        "Nothing more is said of it. One that is closed in the same way already stays as it is.",
        {200: ("The renewal.", RenewalShown)},
        (*OF_BODIES, 404, 409),
        CloseBody,
        example={"as": "renewed", "why": "paid by transfer"},
    ),
}


class Description:
    """What is told of an application's API."""

    def __init__(self, functions: Functions, endpoints: Endpoints) -> None:
        self._functions, self._endpoints = functions, endpoints
        self._told: tuple[int, Json] | None = None

    async def answer(self, _: Request) -> Response:
        """Answer the description."""
        count = len(self._functions.app.functions)
        if self._told is None or self._told[0] != count:
            self._told = count, describe(self._endpoints, self._functions.app.functions)
        return JSONResponse(self._told[1])


def describe(endpoints: Endpoints, functions: Mapping[str, Function]) -> Json:
    """Return the description of these routes, and of each function as a path of its own."""
    schemas, components = _schemas(functions)
    paths: dict[str, Json] = {}
    for method, address, scope, answer in endpoints:
        about = OPERATIONS[answer]
        told = _operation(about, scope, schemas, answer.__name__)
        address = re.sub(r":\w+}", "}", address)
        told["parameters"] = [_parameter("path", name) for name in re.findall(r"{(\w+)}", address)] + told["parameters"]
        if about is CALL:
            told["requestBody"] = _body(PAYLOAD, about.example)
        elif about.body is not None:
            told["requestBody"] = _body(schemas[about.body], about.example, is_required=True)
        paths.setdefault(address, {})[method.lower()] = told
        if about is not CALL:
            continue
        for path, function in sorted(functions.items()):
            own = {
                **_operation(about, scope, schemas, f"{answer.__name__} {path}"),
                "summary": f"Call {path}, or book a call",
            }
            if own_words := (function.handler.__doc__ or "").strip():
                own["description"] = f"{own_words}\n\n{about.told}"
            is_known = function.input is not None and function.input in schemas
            own["requestBody"] = _body(schemas[function.input] if is_known else PAYLOAD, None, is_required=is_known)
            paths[address.replace("/{path}", path)] = {"post": own}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Vuelvo",
            "version": metadata.version("vuelvo"),
            "description": "Functions, tasks and follow-ups of one tenant, for its own servers.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "security": [{"key": []}],
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of the tenant, as vuelvo keys create makes it. An operation's x-scope is what it must allow.",
                }
            },
            "responses": {_refusal(status): _problem(status, schemas) for status in REFUSALS},
        },
    }


def _schemas(functions: Mapping[str, Function]) -> tuple[Mapping[Any, Json], Json]:
    """Return the schema of every model by the model, and the definitions to which they refer."""
    asked: dict[Any, tuple[Literal["validation", "serialization"], TypeAdapter[Any]]] = {}
    for about in OPERATIONS.values():
        if about.body is not None:
            asked[about.body] = "validation", TypeAdapter(about.body)
        asked |= {answer: ("serialization", TypeAdapter(answer)) for _, answer in about.answers.values()}
    asked[ProblemShown] = "serialization", TypeAdapter(ProblemShown)
    for function in functions.values():
        if function.input is not None:
            adapter = TypeAdapter(function.input)
            try:
                adapter.json_schema()
            except (PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation):
                continue  # what no schema can say is told by the function alone
            asked[function.input] = "validation", adapter
    names = {model: f"{number}" for number, model in enumerate(asked)}
    found, told = TypeAdapter.json_schemas([(names[model], *how) for model, how in asked.items()], ref_template=_MODELS)
    return {model: found[names[model], how[0]] for model, how in asked.items()}, told.get("$defs", {})


def _operation(about: Operation, scope: str, schemas: Mapping[Any, Json], name: str) -> Json:
    answers: Json = {
        str(status): {"description": words, "content": {"application/json": {"schema": schemas[shown]}}}
        for status, (words, shown) in about.answers.items()
    }
    for status in sorted({*OF_ALL, *about.refusals}):
        answers[str(status)] = {"$ref": f"#/components/responses/{_refusal(status)}"}
    return {
        "operationId": name,
        "summary": about.summary,
        "description": about.told,
        "x-scope": scope,
        "parameters": [
            *(_parameter("header", name) for name in about.headers),
            *(_parameter("query", name) for name in about.query),
        ],
        "responses": answers,
    }


def _parameter(place: str, name: str) -> Json:
    words, schema, example = PARAMETERS.get(f"{place} {name}") or PARAMETERS[name]
    written = "-".join(part.capitalize() for part in name.split("-")) if place == "header" else name
    return {
        "name": written,
        "in": place,
        "required": place == "path",
        "description": words,
        "schema": schema,
        "example": example,
    }


def _body(schema: Json, example: Any, *, is_required: bool = False) -> Json:
    content = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {"required": is_required, "content": {"application/json": content}}


def _refusal(status: int) -> str:
    """Return the name of a refusal: `NotFound`."""
    return re.sub(r"\W", "", HTTPStatus(status).phrase.title())


def _problem(status: int, schemas: Mapping[Any, Json]) -> Json:
    title = HTTPStatus(status).phrase
    example = {"type": "about:blank", "title": title, "status": status, "detail": REFUSALS[status]}
    told: Json = {
        "description": REFUSALS[status],
        "content": {"application/problem+json": {"schema": schemas[ProblemShown], "example": example}},
    }
    return told | ({"headers": ANSWER_HEADERS[status]} if status in ANSWER_HEADERS else {})
