"""Who calls, and what they may: a tenant's key as Bearer. What is refused is a problem+json that says what to do."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from app.deferred import BadBooking, DeferError, NoSuchFunction, NoSuchTask, PayloadTooLarge, Raced, TooMany
from app.runs import Functions
from app.service import Service
from app.tenants_file import TenantConfig
from channels.request import Problem, read_body
from scheduler.errors import KeyReused, LimitReached
from store import api_keys
from store.api_keys import ApiKey

BODY_LIMIT = 256 * 1024
"""Bytes read of a body: a payload of 64 KB may be written in three times as many, with escapes, and with blanks in more."""

STATUSES: dict[type[Exception], int] = {
    PayloadTooLarge: 413,
    BadBooking: 422,
    NoSuchFunction: 404,
    NoSuchTask: 404,
    TooMany: 422,
    Raced: 409,
    KeyReused: 409,
    LimitReached: 429,
}
"""What is answered to what is refused."""

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant's server."""

    functions: Functions
    tenant: TenantConfig
    request: Request


Answer = Callable[[Caller], Awaitable[Response]]


def endpoint(functions: Functions, scope: str, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers a request whose key has this scope."""
    return partial(_answer, functions, scope, answer)


async def _answer(functions: Functions, scope: str, answer: Answer, request: Request) -> Response:
    tenant = await _who(functions, scope, request)
    try:
        return await answer(Caller(functions, tenant, request))
    except (DeferError, KeyReused, LimitReached) as problem:
        status = next(STATUSES[kind] for kind in type(problem).__mro__ if kind in STATUSES)
        raise Problem(status, str(problem)) from problem


async def _who(functions: Functions, scope: str, request: Request) -> TenantConfig:
    key, tenant = await key_of(functions.service, token_of(request))
    check_scope(key, scope)
    return tenant


def token_of(request: Request) -> str:
    """Return the key that a request is sent with. Raises Problem 401 where there is none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise Problem(
            401,
            "Send a key of the tenant as Authorization: Bearer; vuelvo keys create makes one.",
            headers={"www-authenticate": "Bearer"},
        )
    return token.strip()


async def key_of(service: Service, token: str) -> tuple[ApiKey, TenantConfig]:
    """Return a key and whose it is. Raises Problem 401 for one that opens nothing; WrongKey, TenantFileError."""
    async with service.database.autocommit() as connection:
        key = await api_keys.find(connection, token)
    tenant = None if key is None else await service.tenant(key.tenant)
    if key is None or tenant is None:
        raise Problem(
            401,
            "This key opens nothing: it is misspelt, or was revoked. vuelvo keys list shows which there are.",
            headers={"www-authenticate": 'Bearer error="invalid_token"'},
        )
    return key, tenant


def check_scope(key: ApiKey, scope: str) -> None:
    """Raise Problem 403 unless the key allows it."""
    if scope not in key.scopes:
        raise Problem(
            403,
            f"This key does not allow to {scope}, only to {', '.join(key.scopes)}: make another with --scopes.",
            headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )


async def read_any(request: Request) -> Any:
    """Return the body as whatever JSON it is; an empty body is None. Raises Problem 400 or 413."""
    body = await read_body(request, BODY_LIMIT)
    if not body.strip():
        return None
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise Problem(400, "The body is not valid UTF-8.") from problem
    except (ValueError, RecursionError) as problem:
        raise Problem(400, "The body is not valid JSON.") from problem


async def read_as(request: Request, model: type[Body]) -> Body:
    """Return the body as a model. Raises Problem 400, 413, or 422 naming what is wrong and no value."""
    given = await read_any(request)
    return checked_as({} if given is None else given, model)


def checked_as(given: object, model: type[Body]) -> Body:
    """Return what was given as a model. Raises Problem 422 naming what is wrong and no value."""
    try:
        return model.model_validate(given)
    except ValidationError as problem:
        wrong = "; ".join(
            f"{'.'.join(map(str, error['loc'])) or 'the body'}: {error['msg']}"
            for error in problem.errors(include_input=False, include_url=False)
        )
        raise Problem(422, wrong[:1000]) from None
