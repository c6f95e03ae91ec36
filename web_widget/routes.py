"""The widget's routes: a visitor's browser opens a session, sends, reads, and listens.

There are no cookies. Who may read what hangs on the session's token alone; the origin decides which pages may embed the
widget, and is only as honest as the browser that tells it.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPMethod
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from channels.message import Inbound
from channels.request import Problem, read_json
from store import conversations, messages
from store.blank import is_blank
from web_widget.bubbles import LAST_SEQ, bubble, instant
from web_widget.page import Handler, serve_page, serve_script
from web_widget.sessions import find_session, open_session
from web_widget.stream import events
from web_widget.web import Web, WebTenant

log = logging.getLogger(__name__)

LONGEST_TEXT = 4_000
"""Characters of one message of a visitor."""
LONGEST_CLIENT_ID = 100
PAGE = 50
LARGEST_PAGE = 100

_LANGUAGE = re.compile(r"([A-Za-z]{2})([-_].*)?", re.DOTALL)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)

Answer = Callable[[Web, WebTenant, Request], Awaitable[Response]]


def routes(web: Web) -> list[BaseRoute]:
    """Return everything below `/widget`."""
    answers: dict[str, dict[str, Answer]] = {
        "sessions": {"POST": _open},
        "messages": {"GET": _read, "POST": _write},
        "seen": {"POST": _mark_seen},
        "pending": {"GET": _list_pending},
        "pending/{id}": {"DELETE": _cancel},
        "stream": {"GET": _stream},
    }
    return [
        Route("/widget/{tenant}.js", _get_only(serve_script(web)), methods=list(HTTPMethod)),
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
                if not _is_own(request, origin) and not tenant.section.admits(origin):
                    log.warning(
                        "the page %r may not embed the widget of tenant %s: see its origins", origin[:200], tenant.name
                    )
                    raise Problem(
                        403, f"The page {origin} may not embed this widget. Add it to the tenant's web origins."
                    )
                headers["access-control-allow-origin"] = origin
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


def _get_only(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        if request.method not in (HTTPMethod.GET, HTTPMethod.HEAD):
            return Problem(405, "This path takes GET.", headers={"allow": "GET, HEAD"}).response()
        return await handler(request)

    return answer


async def _open(web: Web, tenant: WebTenant, request: Request) -> Response:
    told = await read_json(request)
    async with web.database.transaction() as connection:
        opened = await open_session(
            connection,
            tenant.name,
            origin=request.headers.get("origin"),
            language=_language(told.get("language")),
            time_zone=_time_zone(told.get("time_zone")),
        )
    return JSONResponse(
        {"token": opened.token, "conversation": opened.conversation, "seq": opened.seq}, status_code=201
    )


async def _write(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = await _conversation(web, tenant, request)
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
    received = await web.receive(
        Inbound(
            tenant=tenant.name,
            channel="web",
            address=visitor.address,
            address_key=visitor.address_key,
            provider_id=f"{conversation}:{client_id}",
            text=text,
            language=visitor.language,
            time_zone=visitor.time_zone,
        )
    )
    if received.is_new:
        web.signals.hint(f"message {conversation}")
    return JSONResponse({"seq": received.seq}, status_code=202 if received.is_new else 200)


async def _read(web: Web, tenant: WebTenant, request: Request) -> Response:
    after, before = _number(request, "after"), _number(request, "before")
    limit = _number(request, "limit", least=1, most=LARGEST_PAGE) or PAGE
    if after is None and before is None:
        before = LAST_SEQ
    conversation = await _conversation(web, tenant, request)
    async with web.database.transaction() as connection:
        found = await messages.read(connection, tenant.name, conversation, after=after or 0, before=before, limit=limit)
        # Asked after the messages, so that it is never less than the last of them.
        state = await conversations.find(connection, tenant.name, conversation)
    if state is None:
        raise _no_session()
    return JSONResponse({"messages": [bubble(message) for message in found], "seq": state.last_seq})


async def _mark_seen(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = await _conversation(web, tenant, request)
    seq = (await read_json(request)).get("seq")
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 <= seq <= LAST_SEQ:
        raise Problem(422, "`seq` must be the sequence number of the last message that was seen.")
    async with web.database.transaction() as connection:
        await conversations.mark_seen(connection, tenant.name, conversation, seq)
    web.signals.hint(f"message {conversation}")
    return Response(status_code=204)


async def _list_pending(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = await _conversation(web, tenant, request)
    pending = [
        {"id": task.id, "about": task.about, "at": instant(task.at), "time_zone": task.time_zone}
        for task in await web.pending(tenant.name, conversation)
    ]
    return JSONResponse({"pending": pending})


async def _cancel(web: Web, tenant: WebTenant, request: Request) -> Response:
    conversation = await _conversation(web, tenant, request)
    given = request.path_params["id"]
    status = None
    if _DIGITS.fullmatch(given) and int(given) < 2**63:
        status = await web.cancel(tenant.name, conversation, int(given))
    if status is None:
        raise Problem(404, "Nothing with this id is pending in this conversation.")
    return JSONResponse({"status": status})


async def _stream(web: Web, tenant: WebTenant, request: Request) -> Response:
    after = _number(request, "after") or 0
    last = request.headers.get("last-event-id", "")
    if _DIGITS.fullmatch(last) and int(last) <= LAST_SEQ:
        after = int(last)
    conversation = await _conversation(web, tenant, request)
    return StreamingResponse(
        events(web, tenant.name, conversation, after),
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


async def _conversation(web: Web, tenant: WebTenant, request: Request) -> int:
    """Return the conversation that the request's token opens. Raises Problem 401."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise _no_session()
    async with web.database.transaction() as connection:
        conversation = await find_session(
            connection,
            tenant.name,
            token.strip(),
            origin=request.headers.get("origin"),
            longest_lead=web.longest_lead,
        )
    if conversation is None:
        raise _no_session()
    return conversation


def _no_session() -> Problem:
    return Problem(
        401,
        "This needs the token of a live session as `Authorization: Bearer`. Open a new one with POST …/sessions.",
        headers={"www-authenticate": "Bearer"},
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
