"""What the visitor wrote is on the page once, also while it is not known yet whether it has arrived."""

import asyncio

import pytest
from playwright.async_api import Route, expect
from sqlalchemy import text

from store.conversations import mark_seen
from tests.web_widget.shop import Shop, shop

__all__ = ["shop"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


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


async def test_what_had_arrived_long_ago_is_not_shown_apart_from_what_came_between(shop: Shop) -> None:
    shop.service.answers = False
    shop.build("data-open")
    context = await shop.context()
    arrived = asyncio.Event()

    async def lose(call: Route) -> None:
        if call.request.method != "POST":
            return await call.continue_()
        await call.fetch()
        arrived.set()
        return await call.abort()

    await context.route("**/messages*", lose)
    page = await shop.visit(context)
    await page.get_by_role("textbox").fill("Hello")
    await page.get_by_role("textbox").press("Enter")
    await arrived.wait()
    await page.close()
    await context.unroute("**/messages*")
    async with shop.service.database.transaction() as connection:
        conversation = (await connection.execute(text("select max(id) from conversations"))).scalar_one()
    await shop.service.say_all(conversation, [f"news {number}" for number in range(150)])
    async with shop.service.database.transaction() as connection:
        await mark_seen(connection, "acme", conversation, 151)

    page = await shop.visit(context)
    bubbles = page.get_by_role("log").locator("li > .words")
    await expect(bubbles.last).to_have_text("Assistant: news 149")
    await expect(page.locator(".unsent")).to_have_count(0)
    await expect(bubbles.filter(has_text="Hello").filter(has_text="You:")).to_have_count(0)
    for oldest in ("news 100", "news 0"):
        await expect(bubbles.nth(1)).to_have_text(f"Assistant: {oldest}")
        await page.get_by_role("log").evaluate("log => { log.scrollTop = 100; log.scrollTop = 0 }")
    await expect(bubbles.nth(1)).to_have_text("You: Hello")
