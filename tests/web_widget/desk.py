"""A browser in front of a service with a widget, over a wire that can be cut."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from store import messages
from store.database import Database
from tests.support.proxy import Proxy, a_proxy
from tests.web_widget.conftest import Service, a_service, a_web_tenant, serve


@dataclass
class Desk:
    """A browser in front of a service."""

    service: Service
    browser: Browser
    wire: Proxy
    url: str
    complaints: list[str] = field(default_factory=list)
    """What the browser's console said of violated policies and uncaught errors."""

    async def context(self, **options: Any) -> BrowserContext:
        """Someone's browser, with a storage of its own."""
        context = await self.browser.new_context(locale="en-GB", reduced_motion="reduce", **options)
        context.set_default_timeout(8_000)
        return context

    async def page(self, context: BrowserContext | None = None, path: str = "/") -> Page:
        """A page of the service in it, whose complaints fail the test."""
        page = await (context or await self.context()).new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: self.complaints.append(said.text) if "Content Security Policy" in said.text else None,
        )
        await page.goto(self.url + path)
        return page

    @asynccontextmanager
    async def shop(
        self, script: str = "", policy: str = "", more: str = "", address: str = "acme.js"
    ) -> AsyncIterator[str]:
        """A business's own page, which embeds the widget with these attributes under this policy; yields its address."""
        tag = f'<script src="{self.url}/widget/{address}" async {script}></script>'

        async def shop_page(request: Request) -> HTMLResponse:
            html = f'<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Shop</title>{more}{tag}'
            headers = {"Content-Security-Policy": policy} if policy else {}
            return HTMLResponse(f"{html}<body><h1>Shop</h1><button>Help</button></body></html>", headers=headers)

        async with serve(Starlette(routes=[Route("/", shop_page)])) as port:
            shop = f"http://127.0.0.1:{port}"
            self.service.tenants["acme"] = a_web_tenant("acme", origins=(shop,), title="Acme & Co")
            yield shop

    async def visit(self, address: str, context: BrowserContext | None = None) -> Page:
        """A page of somebody else, whose complaints fail the test."""
        page = await self.page(context, "/widget/nobody")
        await page.goto(address)
        return page

    async def conversation(self) -> int:
        """The newest conversation."""
        async with self.service.database.transaction() as connection:
            return int((await connection.execute(text("select max(id) from conversations"))).scalar_one())

    async def written(self) -> list[str]:
        """What visitors' messages the service has, in order."""
        conversation = await self.conversation()
        async with self.service.database.transaction() as connection:
            log = await messages.read(connection, "acme", conversation, limit=1000)
        return [message.text for message in log if message.role == "customer"]


@pytest_asyncio.fixture(loop_scope="session")
async def desk(browser: Browser, database_url: str) -> AsyncIterator[Desk]:
    database = Database(database_url)
    service = await a_service(database)
    service.answers = True
    async with service.served() as port, a_proxy(f"http://127.0.0.1:{port}") as (wire, url):
        desk = Desk(service, browser, wire, url)
        yield desk
        for context in browser.contexts:
            await context.close()
    await database.close()
    assert desk.complaints == []


async def write(page: Page, words: str) -> None:
    await page.get_by_placeholder("Write a message").fill(words)
    await page.get_by_placeholder("Write a message").press("Enter")


def bubbles(page: Page) -> Locator:
    """Every bubble but the greeting, which is the widget's own."""
    return page.locator("ol.list > li:not(:first-child) > .words")


async def expect_bubbles(page: Page, *words: str) -> None:
    """The bubbles come to be exactly these."""
    await expect(bubbles(page)).to_have_text([re.compile(rf"^(You|Assistant): {re.escape(each)}$") for each in words])
