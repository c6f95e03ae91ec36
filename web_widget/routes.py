"""The widget's routes: a visitor's browser opens a session, sends, reads, and listens.

There are no cookies. Who may read what hangs on the session's token alone; the origin decides which pages may embed the
widget, and is only as honest as the browser that tells it.
"""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from http import HTTPMethod
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy.exc import IntegrityError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from channels.message import Inbound
from channels.request import Problem, read_json
from channels.web.inbound import NotThere, Terms, TooMany
from store import conversations, messages
from store.blank import is_blank
from store.database import sql
from web_widget.admitted import while_admitted
from web_widget.bubbles import LAST_SEQ, bubble, instant
from web_widget.identity import Identity, NotProved, prove
from web_widget.page import Handler, pinned_config, serve_built_script, serve_page, serve_script
from web_widget.sessions import (
    ROTATE_AFTER,
    Opened,
    Session,
    TooManySessions,
    Visit,
    address_hash,
    end_session,
    find_session,
    open_as,
    open_session,
    rotate,
    sign_in,
)
from web_widget.stream import events
from web_widget.web import Web, WebTenant

log = logging.getLogger(__name__)

LONGEST_TEXT = 4_000
"""Characters of one message of a visitor."""
LONGEST_CLIENT_ID = 100
PAGE = 50
LARGEST_PAGE = 100

_ROTATE_AFTER = int(ROTATE_AFTER.total_seconds())
_LANGUAGE = re.compile(r"([A-Za-z]{2})([-_].*)?", re.DOTALL)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)

Answer = Callable[[Web, WebTenant, Request], Awaitable[Response]]


def routes(web: Web) -> list[BaseRoute]:
    """Return everything below `/widget`."""
    answers: dict[str, dict[str, Answer]] = {
        "sessions": {"POST": _open, "DELETE": _end},
        "sessions/rotate": {"POST": _rotate},
        "sessions/identify": {"POST": _identify},
        "messages": {"GET": _read, "POST": _write},
        "seen": {"POST": _mark_seen},
        "pending": {"GET": _list_pending},
        "pending/{id}": {"DELETE": _cancel},
        "stream": {"GET": _stream},
        "config": {"GET": _configure},
    }
    return [
        Route("/widget/{tenant}.js", _get_only(serve_script(web)), methods=list(HTTPMethod)),
        Route("/widget/{tenant}/loader.{hash}.js", _get_only(serve_built_script), methods=list(HTTPMethod)),
        Route("/widget/{tenant}/panel.{hash}.js", _get_only(serve_built_script), methods=list(HTTPMethod)),
        Route("/widget/{tenant}", _get_only(serve_page(web)), methods=list(HTTPMethod)),
        *(Route(f"/widget/{{tenant}}/{path}", _Door(web, methods)) for path, methods in answers.items()),
    ]


class _Door:
    """One path: which methods it has, which pages may call it, and how it refuses."""

    def __init__(self, web: Web, answers: Mapping[str, Answer]) -> None:
        self._web, self._answers = web, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        headers = {"vary": "Origin", "cache-control": "no-store", "x-content-type-options": "nosniff"}
        try:
            tenant = await _find_tenant(self._web, request)
            origin = request.headers.get("origin")
            if origin is not None:
                # Also for who is refused, so that their page can read why; a preflight grants nothing by itself.
                headers |= {"access-control-allow-origin": origin, "access-control-expose-headers": "Retry-After"}
            if request.method != HTTPMethod.OPTIONS:
                _admit(tenant, request)
            response = await self._answer(tenant, request)
        except Problem as problem:
            response = problem.response()
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, tenant: WebTenant, request: Request) -> Response:
        allowed = ", ".join([*self._answers, HTTPMethod.OPTIONS])
        if request.method == HTTPMethod.OPTIONS:
            return Response(
                status_code=204,
                headers={
                    "allow": allowed,
                    "access-control-allow-methods": "GET, POST, DELETE",
                    "access-control-allow-headers": "Authorization, Content-Type, Last-Event-ID",
                    "access-control-max-age": "600",
                },
            )
        answer = self._answers.get(request.method)
        if answer is None:
            raise Problem(405, f"This path takes {allowed}.", headers={"allow": allowed})
        return await answer(self._web, tenant, request)


def _admit(tenant: WebTenant, request: Request) -> None:
    """Raise Problem 403 for a page that may not embed the tenant's widget."""
    origin = request.headers.get("origin")
    if origin is None or _is_own(request, origin) or tenant.section.admits(origin):
        return
    log.warning("the page %r may not embed the widget of tenant %s: see its origins", origin[:200], tenant.name)
    raise Problem(
        403,
        f"The page {origin} may not embed this widget. Add it to the tenant's web origins.",
        kind="origin-refused",
    )


def _get_only(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        if request.method not in (HTTPMethod.GET, HTTPMethod.HEAD):
            return Problem(405, "This path takes GET.", headers={"allow": "GET, HEAD"}).response()
        return await handler(request)

    return answer


async def _open(web: Web, tenant: WebTenant, request: Request) -> Response:
    told = await read_json(request)
    language, time_zone = _language(told.get("language")), _time_zone(told.get("time_zone"))
    identity = None
    if told.get("identity") is not None:
        identity = await _prove(web, tenant, told["identity"])
    elif tenant.section.requires_identity:
        raise _identity_required()
    visit = _visit(web, tenant, request)
    try:
        async with web.database.transaction() as connection:
            if identity is None:
                opened = await open_session(connection, tenant.name, visit, language=language, time_zone=time_zone)
            else:
                opened = await open_as(connection, tenant.name, identity, visit, language=language, time_zone=time_zone)
    except TooManySessions as problem:
        raise _too_many_sessions(problem) from None
    return _told(opened)


async def _rotate(web: Web, tenant: WebTenant, request: Request) -> Response:
    held = await _session(web, tenant, request)
    async with web.database.transaction() as connection:
        token = await rotate(connection, tenant.name, held, life=tenant.section.session)
    if token is None:
        raise _no_session()
    return JSONResponse({"token": token, "rotate_after": _ROTATE_AFTER}, status_code=201)


async def _identify(web: Web, tenant: WebTenant, request: Request) -> Response:
    """Give the browser a session of the user's in the place of the one it has; without one there is just nothing to merge.

    So whoever does it again, since the answer was lost, has the session all the same.
    """
    identity = await _prove(web, tenant, (await read_json(request)).get("identity"))
    held = await _held(web, tenant, request)
    async with web.database.transaction() as connection:
        known = await conversations.find(connection, tenant.name, held.conversation) if held else None
    if held and known and held.is_verified and known.address == identity.address:
        return JSONResponse({"conversation": known.id, "seq": known.last_seq})
    visit = _visit(web, tenant, request)
    for is_last in (False, True):
        try:
            async with web.database.transaction() as connection:
                opened = await sign_in(connection, tenant.name, identity, held, visit, web.merge)
            break
        except TooManySessions as problem:
            raise _too_many_sessions(problem) from None
        except IntegrityError:  # another device was faster, and the user is known now
            if is_last:
                raise
    if held is not None:
        web.on_merged(opened.conversation)
        web.signals.hint(f"message {opened.conversation}")
        web.signals.hint(f"message {held.conversation}")
    return _told(opened)


async def _end(web: Web, tenant: WebTenant, request: Request) -> Response:
    held = await _held(web, tenant, request)
    if held is None:
        raise _no_session()
    async with web.database.transaction() as connection:
        await end_session(connection, tenant.name, held)
    web.signals.hint(f"message {held.conversation}")
    return Response(status_code=204)


async def _write(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = (await _session(web, tenant, request)).conversation
    told = await read_json(request)
    text = _storable(told, "text").strip()
    if is_blank(text):
        raise Problem(422, "`text` is empty: write something.")
    if len(text) > LONGEST_TEXT:
        raise Problem(422, f"`text` has {len(text)} characters, at most {LONGEST_TEXT} can be sent: shorten it.")
    client_id = _storable(told, "client_id")
    if not 1 <= len(client_id) <= LONGEST_CLIENT_ID:
        raise Problem(422, f"`client_id` must have 1 to {LONGEST_CLIENT_ID} characters, and be new for each message.")
    async with web.database.transaction() as connection:
        visitor = await conversations.find(connection, tenant.name, conversation)
    if visitor is None:
        raise _no_session()
    inbound = Inbound(
        tenant=tenant.name,
        channel="web",
        address=visitor.address,
        address_key=visitor.address_key,
        provider_id=f"{conversation}:{client_id}",
        text=text,
        language=visitor.language,
        time_zone=visitor.time_zone,
        terms=Terms(conversation, tenant.section.limits.messages_a_minute),
    )
    try:
        received = await web.receive(inbound)
    except NotThere:
        raise _no_session() from None
    except TooMany as problem:
        raise _too_many(
            f"{tenant.section.limits.messages_a_minute} messages are taken within a minute.", problem.retry_after
        ) from None
    if received.is_new:
        web.signals.hint(f"message {conversation}")
    return JSONResponse({"seq": received.seq}, status_code=202 if received.is_new else 200)


async def _read(web: Web, tenant: WebTenant, request: Request) -> Response:
    after, before = _number(request, "after"), _number(request, "before")
    limit = _number(request, "limit", least=1, most=LARGEST_PAGE) or PAGE
    if after is None and before is None:
        before = LAST_SEQ
    conversation = (await _session(web, tenant, request)).conversation
    async with web.database.transaction() as connection:
        found = await messages.read(connection, tenant.name, conversation, after=after or 0, before=before, limit=limit)
        # Asked after the messages, so that it is never less than the last of them.
        state = await conversations.find(connection, tenant.name, conversation)
    if state is None:
        raise _no_session()
    return JSONResponse({"messages": [bubble(message) for message in found], "seq": state.last_seq})


async def _mark_seen(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = (await _session(web, tenant, request)).conversation
    seq = (await read_json(request)).get("seq")
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq <= LAST_SEQ:
        raise Problem(422, "`seq` must be the sequence number of the last message that was seen.")
    async with web.database.transaction() as connection:
        await conversations.mark_seen(connection, tenant.name, conversation, seq)
    web.signals.hint(f"message {conversation}")
    return Response(status_code=204)


async def _list_pending(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = (await _session(web, tenant, request)).conversation
    pending = [
        {"id": task.id, "about": task.about, "at": instant(task.at), "time_zone": task.time_zone}
        for task in await web.pending(tenant.name, conversation)
    ]
    return JSONResponse({"pending": pending})


async def _cancel(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = (await _session(web, tenant, request)).conversation
    given = request.path_params["id"]
    status = None
    if _DIGITS.fullmatch(given) and int(given) < 2**63:
        status = await web.cancel(tenant.name, conversation, int(given))
    if status is None:
        raise Problem(404, "Nothing with this id is pending in this conversation.")
    return JSONResponse({"status": status})


async def _configure(web: Web, tenant: WebTenant, request: Request) -> Response:
    return JSONResponse(pinned_config(tenant), headers={"cache-control": "no-cache"})


async def _stream(web: Web, tenant: WebTenant, request: Request) -> Response:
    after = _number(request, "after") or 0
    last = request.headers.get("last-event-id", "")
    if _DIGITS.fullmatch(last) and int(last) <= LAST_SEQ:
        after = int(last)
    conversation = (await _session(web, tenant, request)).conversation

    async def is_admitted() -> bool:
        try:
            tenant = await _find_tenant(web, request)
            _admit(tenant, request)
            await _session(web, tenant, request)
        except Exception:  # whatever it is, the browser comes back by itself and is told
            return False
        return True

    return StreamingResponse(
        while_admitted(events(web, tenant.name, conversation, after), is_admitted),
        media_type="text/event-stream",
        # The second tells nginx to hand each event on as it comes.
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _find_tenant(web: Web, request: Request) -> WebTenant:
    name = request.path_params["tenant"]
    # PostgreSQL takes no NUL, not even to look for it.
    tenant = None if "\0" in name else await web.find_tenant(name)
    if tenant is None:
        raise Problem(404, "There is no widget under this name. Check the address of the embedded script.")
    return tenant


async def _session(web: Web, tenant: WebTenant, request: Request) -> Session:
    """Return the session that the request's token opens. Raises Problem 401, or 403 where the tenant wants to know who it is."""
    held = await _held(web, tenant, request)
    if held is None:
        raise _no_session()
    if tenant.section.requires_identity and not held.is_verified:
        raise _identity_required()
    return held


async def _held(web: Web, tenant: WebTenant, request: Request) -> Session | None:
    """Return the session that the request's token opens, whether or not the tenant lets it in; None when it opens nothing."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        return None
    async with web.database.transaction() as connection:
        return await find_session(
            connection,
            tenant.name,
            token.strip(),
            origin=request.headers.get("origin"),
            life=tenant.section.session,
        )


async def _prove(web: Web, tenant: WebTenant, token: object) -> Identity:
    """Return whom a token of the tenant's server names. Raises Problem 403."""
    if tenant.section.identity is None:
        raise Problem(
            403,
            "This widget takes no identities: the tenant's file has no channels.web.identity.",
            kind="identity-invalid",
        )
    secrets = [secret.get_secret_value() for secret in tenant.section.identity.secrets]
    async with web.database.transaction() as connection:
        now = (await connection.execute(sql("select now()"))).scalar_one()
    try:
        return prove(token, secrets, tenant.name, now)
    except NotProved as problem:
        raise Problem(
            403, f"The identity is refused: {problem}. Ask the page's own server for another.", kind="identity-invalid"
        ) from None


def _visit(web: Web, tenant: WebTenant, request: Request) -> Visit:
    return Visit(
        request.headers.get("origin"),
        address_hash(web.secret, tenant.name, request.client.host if request.client else None),
        tenant.section.limits.sessions_an_hour,
    )


def _told(opened: Opened) -> Response:
    return JSONResponse(
        {
            "token": opened.token,
            "conversation": opened.conversation,
            "seq": opened.seq,
            "rotate_after": _ROTATE_AFTER,
        },
        status_code=201,
    )


def _no_session() -> Problem:
    return Problem(
        401,
        "This needs the token of a live session as `Authorization: Bearer`. Open a new one with POST …/sessions.",
        headers={"www-authenticate": "Bearer"},
    )


def _identity_required() -> Problem:
    return Problem(
        403,
        "This widget is for users who have signed in: send their `identity`, signed by the page's server.",
        kind="identity-required",
    )


def _too_many_sessions(problem: TooManySessions) -> Problem:
    return _too_many("Too many sessions were opened from this address within an hour.", problem.retry_after)


def _too_many(detail: str, wait: timedelta) -> Problem:
    seconds = str(max(math.ceil(wait.total_seconds()), 1))  # none too few
    return Problem(
        429, f"{detail} Try again after {seconds} seconds.", kind="too-many", headers={"retry-after": seconds}
    )


def _is_own(request: Request, origin: str) -> bool:
    """Tell whether a page is the service's own. Behind a proxy that ends TLS only the host can be compared."""
    return origin.partition("://")[2] == request.headers.get("host", "").lower()


def _storable(told: Mapping[str, Any], name: str) -> str:
    """Return a text PostgreSQL can store. Raises Problem 422."""
    value = told.get(name)
    if not isinstance(value, str):
        raise Problem(422, f"`{name}` must be a text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(422, f"`{name}` holds half of a character (a lone surrogate): send whole characters.") from None
    if "\0" in value:
        raise Problem(422, f"`{name}` holds a NUL character: leave it out.")
    return value


def _number(request: Request, name: str, *, least: int = 0, most: int = LAST_SEQ) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return None
    if _DIGITS.fullmatch(given) is None or not least <= int(given) <= most:
        raise Problem(422, f"`{name}` must be a whole number from {least} to {most}.")
    return int(given)


def _language(given: object) -> str | None:
    found = _LANGUAGE.fullmatch(given) if isinstance(given, str) else None
    return found[1].lower() if found else None


def _time_zone(given: object) -> str | None:
    if not isinstance(given, str) or _ZONE.fullmatch(given) is None:
        return None
    try:
        return ZoneInfo(given).key
    except (KeyError, ValueError, OSError):  # unknown, not within the database, or one of its folders
        return None
