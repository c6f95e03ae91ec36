"""A Bot API that answers exactly as told, to see what a client makes of it."""

import asyncio
import importlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Answer:
    """One HTTP answer: `body` as JSON, or word for word where it is a string."""

    status: int
    body: object


HANG = "hang"
"""Take the request and never answer."""
HOLD = "hold"
"""Take the request and answer once the test lets it go."""
DROP = "drop"
"""Take the request and close the connection."""


def ok(result: object) -> Answer:
    return Answer(200, {"ok": True, "result": result})


def accepted(message_id: int = 77) -> Answer:
    message = {"message_id": message_id, "date": 1, "chat": {"id": 42, "type": "private"}, "text": "ok"}
    return ok(message)


def refused(status: int, description: str, **parameters: int) -> Answer:
    body: dict[str, object] = {"ok": False, "error_code": status, "description": description}
    if parameters:
        body["parameters"] = parameters
    return Answer(status, body)


@dataclass
class Call:
    method: str
    fields: dict[str, Any]
    """As sent: JSON fields are read, the rest are strings."""
    bot: str
    at: float
    """When, on the event loop's clock, in seconds."""


@dataclass
class TelegramFaults:
    """Answers each call with the next of `answers`; without any, as `fallbacks` say: a send is accepted, the rest is `true`."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: deque[Answer | str] = field(default_factory=deque)
    fallbacks: dict[str, Answer | str] = field(default_factory=dict)
    """What a method is answered when no answer is left."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client gave up a call that hung."""
    decide: Callable[[Call], Awaitable[Answer | str]] | None = None
    """Asked what a call is answered, instead of `answers`."""
    _held_for: "asyncio.Future[Answer]" = field(init=False, repr=False)

    def begin(self, *answers: Answer | str) -> None:
        """Forget what was and answer thus from here on."""
        self.calls.clear()
        self.answers = deque(answers)
        self.dropped.clear()

    def let_go(self, answer: Answer) -> None:
        """Answer what is held, thus."""
        self._held_for.set_result(answer)

    async def call(self, number: int) -> Call:
        """Wait until the call of that number, counted from 1, has been read; it may not be answered yet."""
        while len(self.calls) < number:
            self.arrived.clear()
            await self.arrived.wait()
        return self.calls[number - 1]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        fields = {name: _read(str(value)) for name, value in (await request.post()).items()}
        method, token = request.match_info["method"], request.match_info["token"]
        self.calls.append(Call(method, fields, token, asyncio.get_running_loop().time()))
        fallback = self.fallbacks.get(method, accepted() if method in ("sendMessage", "sendRichMessage") else ok(True))
        if self.decide is not None:
            answer: Answer | str = await self.decide(self.calls[-1])
        else:
            answer = self.answers.popleft() if self.answers else fallback
        if answer == HOLD:
            self._held_for = asyncio.get_running_loop().create_future()
        self.arrived.set()
        if answer == HANG:
            try:
                await asyncio.Event().wait()
            finally:
                self.dropped.set()
        if answer == HOLD:
            answer = await self._held_for
        if answer == DROP:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        assert isinstance(answer, Answer)
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        return web.Response(status=answer.status, text=text)


@asynccontextmanager
async def serving(handler: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine and give its address."""
    # Without handler_cancellation a client that hangs up would go unnoticed.
    runner = web.AppRunner(handler, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def telegram_faults() -> AsyncIterator[TelegramFaults]:
    # Takes seconds the first time, which are not to be taken from the patience of whatever test comes first.
    await asyncio.to_thread(importlib.import_module, "aiogram")
    faults = TelegramFaults()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", faults.answer)
    async with serving(app) as url:
        faults.url = url
        yield faults


def _read(value: str) -> Any:
    return json.loads(value) if value[:1] in "[{" and value[-1:] in "]}" else value
