"""Reading a request from outside, and refusing one: the same for the widget, the webhooks and the API."""

import json
from http import HTTPStatus
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that are read; Twilio's webhooks stay far below, Telegram's do not."""


class Problem(Exception):
    """A request that is refused, answered as application/problem+json (RFC 9457). `detail` says what to do."""

    def __init__(
        self, status: int, detail: str, *, kind: str = "about:blank", headers: dict[str, str] | None = None
    ) -> None:
        """`kind` is the `type`: a word where a program has something of its own to do about it."""
        super().__init__(detail)
        self.status, self.detail, self.kind, self.headers = status, detail, kind, headers

    def response(self) -> Response:
        """Return the answer."""
        title = HTTPStatus(self.status).phrase
        detail = self.detail.encode(errors="backslashreplace").decode()  # it may name what came in
        return JSONResponse(
            {"type": self.kind, "title": title, "status": self.status, "detail": detail},
            status_code=self.status,
            headers=self.headers,
            media_type="application/problem+json",
        )


async def read_body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """Return the body, at most `limit` bytes; a larger one is refused before it is read whole.

    Raises Problem 413, or 400 when the client goes away in between.
    """
    announced = request.headers.get("content-length", "0")
    too_large = Problem(413, f"The body is larger than {limit} bytes.", headers={"connection": "close"})
    if announced.isdigit() and int(announced) > limit:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
    except ClientDisconnect as gone:
        raise Problem(400, "The request ended before its body was complete.") from gone
    return bytes(body)


async def read_json(request: Request, limit: int = BODY_LIMIT) -> dict[str, Any]:
    """Return the body as a JSON object. An empty body is an empty object. Raises Problem 400 or 413."""
    body = await read_body(request, limit)
    if not body:
        return {}
    try:
        content = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise Problem(400, "The body is not valid UTF-8.") from problem
    except (ValueError, RecursionError) as problem:
        raise Problem(400, "The body is not valid JSON.") from problem
    if not isinstance(content, dict):
        raise Problem(400, "The body must be a JSON object.")
    return content
