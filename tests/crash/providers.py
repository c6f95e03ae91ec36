"""Twilio and Telegram under fire, in the harness's own process: what each send met, and what a person has seen."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from urllib.parse import urlencode

import httpx
from aiohttp import web

from tests.crash.plan import Fault, Plan
from tests.support.telegram_faults import Answer, accepted, ok, refused
from tests.support.twilio_server import Accept, Behaviour, Drop, Form, Reject, TwilioServer
from tests.support.twilio_server import Answer as TwilioAnswer
from tests.support.wait import eventually

LONGEST_RUN = 24 * 3600.0
"""Seconds."""


@dataclass(frozen=True)
class Seen:
    """A message that reached a person."""

    address: str
    text: str
    at: float
    """Seconds since the epoch."""


def twilio_behaviour(fault: Fault, after: float) -> Behaviour:
    """Return how the stand-in for Twilio does this."""
    behaviours: dict[Fault, Behaviour] = {
        "none": Accept(),
        "slow": Accept(after=after),
        "busy": Reject(429, 20429, retry_after=1),
        "broken": TwilioAnswer(500, "<html><body>Internal Server Error</body></html>"),
        "refused for good": Reject(400, 63024),
        "cut": Drop(),
        "taken and cut": Drop(accepted=True),
        "hung": Drop(after=after),
        "taken and hung": Drop(accepted=True, after=after),
    }
    return behaviours[fault]


class Twilio:
    """The stand-in for Twilio with its faults, and its status callbacks."""

    def __init__(self, plan: Plan) -> None:
        self.server = TwilioServer()
        self._plan = plan
        sends = list(islice(plan.faults("whatsapp"), 4 * plan.followups + 1000))
        self.server.behave(*(twilio_behaviour(fault, after) for fault, after in sends))
        self._faults = [fault for fault, _ in sends]
        self._reports: set[asyncio.Task[None]] = set()
        self._http = httpx.AsyncClient(trust_env=False, timeout=15)

    def met(self) -> list[tuple[str, Fault]]:
        """The text of every send, with what it met."""
        return [(text, fault) for (text, _), fault in zip(self.server.met, self._faults, strict=False)]

    def seen(self) -> list[Seen]:
        """What people have got, in order."""
        return [Seen(message.to, message.body, message.created_at.timestamp()) for message in self.server.messages]

    async def report(self) -> None:
        """Post the callbacks of what is taken, until cancelled."""
        for number in count():
            await eventually(partial(self._has_taken, number), LONGEST_RUN)
            for after, status in self._plan.callbacks(number):
                report = asyncio.create_task(self._report(number, after, status))
                self._reports.add(report)
                report.add_done_callback(self._reports.discard)

    def _has_taken(self, number: int) -> bool:
        return len(self.server.messages) > number

    async def _report(self, number: int, after: float, status: str) -> None:
        await asyncio.sleep(after)
        message = self.server.messages[number]
        assert message.status_callback is not None
        message.status = status
        with suppress(httpx.HTTPError):
            await self.post(message.status_callback, self.server.status_form(message, status))

    async def post(self, url: str, form: Form) -> httpx.Response:
        """Post a form as Twilio does, all over the same few connections."""
        return await self._http.post(url, content=urlencode(form), headers=self.server.sign(url, form))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def reported(self) -> None:
        """Wait until every callback begun so far has been posted."""
        await asyncio.gather(*self._reports)


@dataclass
class Telegram:
    """A Bot API with its faults."""

    plan: Plan
    url: str = ""
    taken: list[Seen] = field(default_factory=list)
    sends: list[tuple[str, Fault]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._faults: Iterator[tuple[Fault, float]] = self.plan.faults("telegram")
        self._port = 0
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    def met(self) -> list[tuple[str, Fault]]:
        """The text of every send, with what it met."""
        return self.sends

    def seen(self) -> list[Seen]:
        """What people have got, in order."""
        return self.taken

    async def start(self) -> None:
        """Listen, on the same port each time."""
        self._released.clear()
        app = web.Application()
        app.router.add_post("/bot{token}/{method}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Refuse connections, and end those there are."""
        self._released.set()
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Refuse connections for as long as this is entered."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        fields = {name: str(value) for name, value in (await request.post()).items()}
        if request.match_info["method"] != "sendMessage":
            return _response(ok(True))
        fault, after = next(self._faults)
        self.sends.append((fields["text"], fault))
        if fault == "busy":
            return _response(refused(429, "Too Many Requests: retry after 1", retry_after=1))
        if fault == "broken":
            return _response(refused(500, "Internal Server Error"))
        if fault == "refused for good":
            return _response(refused(400, "Bad Request: message to be sent is not allowed"))
        if fault not in ("cut", "hung"):
            self.taken.append(Seen(fields["chat_id"], fields["text"], time.time()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), after)
        if fault in ("none", "slow"):
            return _response(accepted(len(self.taken)))
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _response(answer: Answer) -> web.Response:
    return web.json_response(answer.body, status=answer.status)
