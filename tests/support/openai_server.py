"""A local server that speaks OpenAI's chat completions as llama.cpp, Ollama or vLLM do, and says what a test tells it to.

async with OpenAIServer(Says(Call("schedule_followup", {"about": "call Ana"})), "Booked.") as server:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    ...
    assert server.asked[1]["messages"][-1]["role"] == "tool"

The lines are said in order, one a request, the last one again and again; follow-ups have lines of their own. A request with
`stream: true` gets the same line in pieces: the role, then words and arguments cut up, why it ended, the usage, `[DONE]`.
"""

import asyncio
import json
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

HEAD = {"id": "chatcmpl-1", "created": 1_800_000_000, "model": "local"}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
PIECE = 7
"""Characters of a call's arguments in one piece of a stream."""


@dataclass(frozen=True)
class Call:
    """One call of a tool; arguments given as a string go out as they are, JSON or not."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str | None = "new"
    """`new` stands for one that was not used before; None leaves it out."""


class Says:
    """The model calls tools, and may say something before."""

    def __init__(self, *calls: Call, text: str | None = None) -> None:
        self.calls, self.text = calls, text


@dataclass(frozen=True)
class Refuses:
    """An error status; `{authorization}` in its words becomes what the request carried, as careless proxies do."""

    status: int
    words: str = "refused by the test"
    retry_after: float | None = None
    code: str | None = None


@dataclass(frozen=True)
class Hangs:
    """Says nothing, or in a stream nothing after its first words, until the caller leaves."""

    text: str = "Let me"


@dataclass(frozen=True)
class Drops:
    """Cuts the connection in the middle of what it says."""

    text: str = "I was about to say"


@dataclass(frozen=True)
class Garbles:
    """Says something that is not JSON."""

    text: str = '{"id": "chatcmpl-1", "choices": [{"index": 0, "mess'


@dataclass(frozen=True)
class NoChoices:
    """Well formed, without any choice."""


Line = str | Says | Refuses | Hangs | Drops | Garbles | NoChoices


class OpenAIServer:
    """Answers `POST /v1/chat/completions` on a port of this machine while entered."""

    def __init__(self, *lines: Line, followups: Sequence[Line] = ("Here is your reminder: call Ana.",)) -> None:
        self._lines, self._followups = list(lines) or ["Hello."], list(followups)
        self._numbers = count(1)
        self.asked: list[dict[str, Any]] = []
        """The body of each request."""
        self.authorizations: list[str | None] = []
        """The header of each request that carries the key."""
        self.left = asyncio.Event()
        """Set when a caller left without its answer."""
        self.url = ""
        """`http://127.0.0.1:PORT/v1`, for `OPENAI_BASE_URL`."""

    async def __aenter__(self) -> Self:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])
        config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._serving
        self._listener.close()

    def told(self, number: int, role: str) -> list[str]:
        """Return what a role says in the request of this number, counted from 0."""
        return [str(message["content"]) for message in self.asked[number]["messages"] if message["role"] == role]

    async def _complete(self, request: Request) -> ASGIApp:
        asked = await request.json()
        self.asked.append(asked)
        self.authorizations.append(request.headers.get("authorization"))
        line = self._next_line(asked)
        if isinstance(line, Refuses):
            words = line.words.replace("{authorization}", str(self.authorizations[-1]))
            headers = {"retry-after": f"{line.retry_after:g}"} if line.retry_after is not None else {}
            return JSONResponse({"error": {"message": words, "code": line.code}}, line.status, headers)
        if asked.get("stream"):
            body = [f"data: {piece}\n\n" for piece in self._pieces(line)]
            return self._send(body, "text/event-stream", line)
        if isinstance(line, Hangs | Drops):
            return self._send(['{"id": "chatcmpl-1", '] if isinstance(line, Drops) else [], "application/json", line)
        return Response(line.text if isinstance(line, Garbles) else self._whole(line), media_type="application/json")

    def _next_line(self, asked: dict[str, Any]) -> Line:
        words = [str(message["content"]) for message in asked["messages"] if message["role"] == "user"]
        lines = self._followups if any(said.startswith("[vuelvo:follow-up]") for said in words) else self._lines
        return lines.pop(0) if len(lines) > 1 else lines[0]

    def _send(self, body: list[str], media_type: str, line: Line) -> ASGIApp:
        async def send_body(scope: Scope, receive: Receive, send: Send) -> None:
            if body:
                headers = [(b"content-type", media_type.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            for piece in body:
                await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
            if isinstance(line, Hangs):
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.left.set()
            elif not isinstance(line, Drops):  # the server cuts what is left without an end
                await send({"type": "http.response.body"})

        return send_body

    def _call(self, call: Call) -> dict[str, Any]:
        identity = f"call_{next(self._numbers)}" if call.id == "new" else call.id
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        function = {"name": call.name, "arguments": arguments}
        return {**({} if identity is None else {"id": identity}), "type": "function", "function": function}

    def _whole(self, line: str | Says | NoChoices) -> str:
        says = Says(text=line) if isinstance(line, str) else line
        choices = []
        if isinstance(says, Says):
            message: dict[str, Any] = {"role": "assistant", "content": says.text}
            if says.calls:
                message["tool_calls"] = [self._call(call) for call in says.calls]
            choices.append({"index": 0, "message": message, "finish_reason": _reason(says)})
        return json.dumps({**HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE})

    def _pieces(self, line: Line) -> Iterator[str]:
        """Yield the data of a stream's events."""
        if not isinstance(line, NoChoices):
            yield _piece({"role": "assistant", "content": ""})
        text = line if isinstance(line, str) else getattr(line, "text", None)
        if isinstance(line, Garbles):
            yield line.text
        else:
            for word in re.findall(r"</?think>|\S+\s*|\s+", text or ""):  # such a tag is one token
                yield _piece({"content": word})
        if isinstance(line, Hangs | Drops):
            return
        for index, call in enumerate(line.calls if isinstance(line, Says) else ()):
            whole = self._call(call)
            arguments = whole["function"].pop("arguments")
            yield _piece({"tool_calls": [{"index": index, **whole}]})
            for start in range(0, len(arguments), PIECE):
                cut = {"arguments": arguments[start : start + PIECE]}
                yield _piece({"tool_calls": [{"index": index, "function": cut}]})
        if not isinstance(line, NoChoices):
            yield _piece({}, _reason(line))
        yield json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
        yield "[DONE]"


def _reason(line: Line) -> str:
    return "tool_calls" if isinstance(line, Says) and line.calls else "stop"


def _piece(delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": [choice]})
