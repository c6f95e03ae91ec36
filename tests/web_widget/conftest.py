"""A service with a widget, without an agent: what a visitor writes is stored, and answered at once if the test wants."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvicorn
from playwright.async_api import Browser
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.applications import Starlette
from starlette.routing import Route

from app.signed_in import bring_along
from channels.message import Inbound, Received
from channels.web import outbound
from channels.web.inbound import TooMany
from channels.web.section import WebSection
from scheduler.clock import Clock
from store import conversations, messages
from store.contacts import Contact, meet
from store.database import Database
from store.drafts import put
from store.messages import Kind
from store.signals import Signals
from tests.support.chromium import open_chromium
from tests.support.factories import a_tenant
from web_widget.listeners import Listeners
from web_widget.page import demo_page
from web_widget.routes import routes
from web_widget.web import Pending, Web, WebTenant

SHOP = "https://shop.example"


@dataclass
class Service:
    """Stands in for all that is not the widget."""

    database: Database
    signals: Signals
    tenants: dict[str, WebTenant]
    inbound: list[Inbound] = field(default_factory=list)
    answers: bool = False
    """Whether each message is answered at once."""
    booked: dict[int, list[Pending]] = field(default_factory=dict)
    """What is pending, by conversation."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    door: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One message at a time, so that two repeats do not meet."""

    def __post_init__(self) -> None:
        self.listeners = Listeners(self.database, self.signals, self.stopping)

    @property
    def web(self) -> Web:
        return Web(
            self.database,
            self.signals,
            self._find,
            self.receive,
            self._pending,
            self._cancel,
            self.stopping,
            self._merge,
            lambda conversation: None,
            b"the installation's own",
            self.listeners,
        )

    @property
    def app(self) -> Starlette:
        web = self.web
        return Starlette(routes=[Route("/", demo_page(web, "acme")), *routes(web)])

    async def receive(self, inbound: Inbound) -> Received:
        """Store a message once, and answer it if the test wants."""
        self.inbound.append(inbound)
        key = f"web:{inbound.provider_id}"
        async with self.door, self.database.transaction() as connection:
            known = await messages.seq_of_inbound(connection, inbound.tenant, key)
            if known is not None:
                return Received(*known, is_new=False)
            terms = inbound.terms
            assert terms is not None
            if await messages.full_for(
                connection, inbound.tenant, terms.conversation, most=terms.most_a_minute, span=timedelta(minutes=1)
            ):
                raise TooMany(timedelta(seconds=7))
            contact = await meet(connection, Contact(inbound.tenant, "web", inbound.address, inbound.address_key))
            conversation = await conversations.open_conversation(connection, inbound.tenant, contact, None)
            seq = await messages.add(
                connection, inbound.tenant, conversation, "customer", "message", inbound.text, inbound_key=key
            )
        if self.answers:
            await self.say(conversation, f"You said: {inbound.text}", "reply", tenant=inbound.tenant)
        return Received(conversation, seq, is_new=True)

    async def say(self, conversation: int, text: str, kind: Kind = "followup", *, tenant: str = "acme") -> int:
        """Speak as the assistant, as the end of a task does."""
        async with self.database.transaction() as connection:
            seq = await outbound.write(connection, tenant, conversation, kind, text, task=1, now=None)
            if kind == "reply":
                await conversations.mark_answered(connection, tenant, conversation, seq)
        self.signals.hint(f"message {conversation}")
        return seq

    async def drafts(self, conversation: int, words: str, *, tenant: str = "acme") -> None:
        """Show so much of the answer to the visitor's last message, as a worker in another process does."""
        async with self.database.transaction() as connection:
            found = await conversations.find(connection, tenant, conversation)
            assert found is not None
            await put(connection, tenant, conversation, found.last_seq, words)
        self.signals.hint(f"typing {conversation}")

    async def say_all(self, conversation: int, texts: Sequence[str]) -> None:
        """Speak as the assistant many times at once."""
        async with self.database.transaction() as connection:
            for text in texts:
                await outbound.write(connection, "acme", conversation, "followup", text, task=1, now=None)
        self.signals.hint(f"message {conversation}")

    async def _merge(self, connection: AsyncConnection, tenant: str, conversation: int, to: int) -> None:
        await bring_along(Clock(), connection, tenant, conversation, to)

    async def _find(self, name: str) -> WebTenant | None:
        return self.tenants.get(name)

    async def _pending(self, tenant: str, conversation: int) -> Sequence[Pending]:
        return self.booked.get(conversation, [])

    async def _cancel(self, tenant: str, conversation: int, task: int) -> str | None:
        return "cancelled" if any(each.id == task for each in self.booked.get(conversation, [])) else None

    @asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """Serve over a real port for as long as the block runs, and yield the port."""
        async with serve(self.app) as port:
            try:
                yield port
            finally:
                self.stopping.set()


@asynccontextmanager
async def serve(app: Starlette) -> AsyncIterator[int]:
    """Serve an application on a port of its own for as long as the block runs, and yield the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def a_web_tenant(name: str, languages: Sequence[str] = ("es", "en", "pt"), **section: Any) -> WebTenant:
    """A tenant as its visitors meet it."""
    return WebTenant(name, name.title(), WebSection(**section), languages=languages, time_zone="America/Bogota")


async def a_service(database: Database) -> Service:
    """Two tenants with a widget: `acme`, which a shop embeds, and `other`."""
    async with database.transaction() as connection:
        for name in ("acme", "other"):
            await a_tenant(connection, name)
    tenants = (a_web_tenant("acme", origins=(SHOP,), title="Acme & Co"), a_web_tenant("other"))
    return Service(database, Signals(database), {tenant.name: tenant for tenant in tenants})


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for all tests of a process: to start one costs more than most of them, each of which has its own profile."""
    async with open_chromium() as browser:
        yield browser


@pytest.fixture
async def service(database: Database) -> Service:
    """Two tenants with a widget: `acme`, which a shop embeds, and `other`."""
    return await a_service(database)


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client that asks the service without a network."""
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://vuelvo.example") as client:
        yield client


@dataclass(frozen=True)
class Visitor:
    """Someone with a session."""

    http: httpx.AsyncClient
    conversation: int
    headers: dict[str, str]
    tenant: str = "acme"

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request with the session's token."""
        headers = self.headers | more.pop("headers", {})
        return await self.http.request(method, f"/widget/{self.tenant}/{path}", headers=headers, **more)

    async def write(self, text: object, client_id: object = "one") -> httpx.Response:
        """Send a message."""
        return await self.ask("POST", "messages", json={"text": text, "client_id": client_id})


async def a_visitor(http: httpx.AsyncClient, tenant: str = "acme", **headers: str) -> Visitor:
    """Open a session."""
    opened = await http.post(f"/widget/{tenant}/sessions", headers=headers)
    assert opened.status_code == 201, opened.text
    told = opened.json()
    return Visitor(http, told["conversation"], {"Authorization": f"Bearer {told['token']}"}, tenant)


@pytest.fixture
async def visitor(http: httpx.AsyncClient) -> Visitor:
    """Someone with a session at acme."""
    return await a_visitor(http)


@dataclass(frozen=True)
class Event:
    """One Server-Sent Event."""

    name: str
    content: dict[str, Any]
    id: int | None


async def read_events(chunks: AsyncIterator[str]) -> AsyncIterator[Event]:
    """Take a stream apart; comments are left out."""
    rest = ""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if fields:
                identity = int(fields["id"]) if "id" in fields else None
                yield Event(fields["event"], json.loads(fields["data"]), identity)


async def next_event(events: AsyncIterator[Event], name: str, seconds: float = 5) -> Event:
    """Return the next event of a name; fails when none comes in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for event in events:
                if event.name == name:
                    return event
    pytest.fail(f"no {name} event within {seconds} s")


def utc(text: str) -> datetime:
    """An aware time."""
    return datetime.fromisoformat(text).astimezone(UTC)
