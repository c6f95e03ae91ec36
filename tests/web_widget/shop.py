"""A shop's page with the widget on it, in a real browser, and a service behind a line that can be cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from store.database import Database
from tests.support.proxy import Proxy, a_proxy
from tests.web_widget.conftest import Service, a_service, a_web_tenant, serve

FAKE_STREAM = Path(__file__).with_name("fake_stream.js")
PHONE = ViewportSize(width=320, height=568)


@dataclass
class Shop:
    """What a test does with it."""

    service: Service
    browser: Browser
    wire: Proxy
    """Between the browser and the service."""
    host: str
    """The address of the service."""
    url: str = ""
    """The address of the shop's page; the same page in a frame is below it, at `framed`."""
    complaints: list[str] = field(default_factory=list)
    """What the browser's console said of uncaught errors, and which policies were violated."""
    _html: str = ""
    _policy: str | None = None
    _sandbox: str = ""

    def build(
        self,
        attributes: str = "",
        *,
        direction: str = "ltr",
        language: str = "en",
        policy: str | None = None,
        sandbox: str = "allow-scripts allow-same-origin",
        script: str = "",
        has_widget: bool = True,
    ) -> None:
        """Say what the page is: the script tag's attributes, the text's direction and language, its security policy."""
        tag = (
            f'<script src="{script or f"{self.host}/widget/acme.js"}" {attributes} async></script>'
            if has_widget
            else ""
        )
        self._html = (
            f'<!doctype html><html lang="{language}" dir="{direction}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>The shop</title>{tag}</head>"
            '<body><main><h1>The shop</h1><p>Everything for your garden. <a href="/about">About us</a></p></main></body></html>'
        )
        self._policy, self._sandbox = policy, sandbox

    async def context(self, **options: Any) -> BrowserContext:
        """Someone's browser, with a storage of its own."""
        context = await self.browser.new_context(**({"locale": "en-GB", "reduced_motion": "reduce"} | options))
        context.set_default_timeout(8_000)
        await context.expose_binding("tellViolation", lambda _, words: self.complaints.append(words))
        await context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (event) =>"
            " tellViolation(`${event.effectiveDirective} forbids ${event.blockedURI} ${event.sample} (${event.sourceFile})`))"
        )
        return context

    async def visit(
        self, context: BrowserContext | None = None, path: str = "", *, has_fake_stream: bool = False
    ) -> Page:
        """Open the page; its errors and violations of policies fail the test."""
        page = await (context or await self.context()).new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if has_fake_stream:
            await page.add_init_script(path=FAKE_STREAM)
        await page.goto(self.url + path)
        return page

    async def conversation(self) -> int:
        """The newest conversation."""
        async with self.service.database.transaction() as connection:
            return int((await connection.execute(text("select max(id) from conversations"))).scalar_one())

    async def serve_page(self, _: Request) -> Response:
        """Answer with the page."""
        headers = {} if self._policy is None else {"Content-Security-Policy": self._policy}
        return HTMLResponse(self._html, headers=headers)

    async def serve_frame(self, _: Request) -> Response:
        """Answer with a page that holds the page in a frame."""
        frame = f'<iframe title="The shop" src="/" sandbox="{self._sandbox}" style="inline-size: 100%; block-size: 90vh"></iframe>'
        return HTMLResponse(
            f'<!doctype html><html lang="en"><title>A mall</title><link rel="icon" href="data:,">{frame}</html>'
        )


@asynccontextmanager
async def a_shop(browser: Browser, database_url: str) -> AsyncIterator[Shop]:
    """Open a shop whose assistant answers at once."""
    database = Database(database_url)
    service = await a_service(database)
    service.answers = True
    async with service.served() as port, a_proxy(f"http://127.0.0.1:{port}") as (wire, host):
        shop = Shop(service, browser, wire, host)
        app = Starlette(routes=[Route("/", shop.serve_page), Route("/framed", shop.serve_frame)])
        async with serve(app) as own:
            shop.url = f"http://127.0.0.1:{own}/"
            shop.service.tenants["acme"] = a_web_tenant("acme", origins=(shop.url.rstrip("/"),), title="Acme & Co")
            shop.build()
            yield shop
            for context in browser.contexts:
                await context.close()
    await database.close()
    assert shop.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def shop(browser: Browser, database_url: str) -> AsyncIterator[Shop]:
    """A shop whose pages fail the test where a policy was violated."""
    async with a_shop(browser, database_url) as shop:
        yield shop
