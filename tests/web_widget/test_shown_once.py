"""What the visitor wrote is on the page once, also while it is not known yet whether it has arrived."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.support.chromium import open_chromium
from tests.web_widget.shop import Shop, a_shop

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def shop(browser: Browser, database_url: str) -> AsyncIterator[Shop]:
    async with a_shop(browser, database_url) as shop:
        yield shop


async def test_what_arrived_without_an_answer_is_shown_once_while_the_next_page_sends_it_again(shop: Shop) -> None:
    shop.service.answers = False
    shop.build("data-open")
    context = await shop.context()
    answer = asyncio.Event()

    async def send(call: Route) -> None:
        if call.request.method != "POST":
            return await call.continue_()
        response = await call.fetch()
        arrived.set()
        await answer.wait()
        return await call.fulfill(response=response)

    await context.route("**/messages*", send)
    arrived = asyncio.Event()
    page = await shop.visit(context)
    await page.get_by_role("textbox").fill("Hello")
    await page.get_by_role("textbox").press("Enter")
    await arrived.wait()
    await page.close()

    arrived = asyncio.Event()
    page = await shop.visit(context)
    async with page.expect_request(lambda request: "/stream" in request.url):
        await arrived.wait()
    try:
        hello = page.get_by_role("log").locator("li").filter(has_text="Hello").filter(has_text="You:")
        await expect(hello).to_have_count(1)
    finally:
        answer.set()
