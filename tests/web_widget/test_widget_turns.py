"""Who visits changes while something is under way: nothing written is lost, and nothing is said by somebody else."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Error, expect
from playwright.async_api import Route as Call
from sqlalchemy import text

from tests.support.wait import eventually
from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write
from tests.web_widget.test_widget_sessions import a_jwt, is_known, takes_identities

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def _end_all(desk: Desk) -> None:
    async with desk.service.database.transaction() as connection:
        await connection.execute(text("update web_sessions set ends_at = now()"))


async def test_what_a_user_writes_as_their_session_ends_is_said_however_slowly_another_is_opened(desk: Desk) -> None:
    takes_identities(desk)
    context = await desk.context()
    await context.clock.install()
    page = await desk.page(context)
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await eventually(lambda: is_known(page, "ana"))
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    released = asyncio.Event()

    async def hold(call: Call) -> None:
        await released.wait()
        with suppress(Error):
            await call.continue_()

    await page.route("**/sessions", hold)
    await _end_all(desk)
    async with page.expect_request("**/sessions"):
        await write(page, "Later")
    await page.clock.run_for(3_000)  # as long as it waits to send again
    released.set()
    await expect_bubbles(page, "Hello", "You said: Hello", "Later", "You said: Later")


@pytest.mark.parametrize("writes", [True, False])
async def test_a_users_session_that_ends_is_opened_again_though_it_fails_at_first(desk: Desk, writes: bool) -> None:
    takes_identities(desk)
    page = await desk.page()
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await eventually(lambda: is_known(page, "ana"))
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    asked = 0

    async def refuse(call: Call) -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            return await call.continue_()
        return await call.abort()

    await page.route("**/sessions", refuse)
    await _end_all(desk)
    if writes:
        await write(page, "Later")
        await expect_bubbles(page, "Hello", "You said: Hello", "Later", "You said: Later")
    else:
        await page.evaluate("dispatchEvent(new Event('online'))")
        await eventually(lambda: asked > 2)
        await desk.service.say(conversation, "News")
        await expect_bubbles(page, "Hello", "You said: Hello", "News")


async def test_an_identity_told_to_a_frame_that_does_not_come_is_told_to_the_one_that_does(desk: Desk) -> None:
    async with desk.shop("data-isolate") as shop:
        takes_identities(desk, origins=(shop,))
        context = await desk.context()
        page = await context.new_page()
        await page.clock.install()
        await page.route("**/widget/acme", lambda call: call.abort())
        await page.goto(shop)
        await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
        await page.locator("iframe").wait_for(state="attached")
        await page.clock.run_for(16_000)
        await expect(page.locator("iframe")).to_have_count(0)
        await page.unroute("**/widget/acme")
        async with context.expect_event("response", lambda answer: answer.url.endswith("/sessions")) as opened:
            await page.get_by_role("button", name="Open chat").click()
        asked = (await opened.value).request.post_data_json
        assert asked is not None
        assert "identity" in asked


@pytest.mark.parametrize("wrong", [timedelta(days=1), -timedelta(days=1), timedelta(days=366), -timedelta(days=366)])
async def test_a_clock_that_is_wrong_does_not_make_a_new_day_of_each_message(desk: Desk, wrong: timedelta) -> None:
    context = await desk.context()
    await context.clock.install(time=datetime.now(UTC) + wrong)
    page = await desk.page(context)
    desk.wire.cut()
    await write(page, "Offline")
    desk.wire.mend()
    await expect(bubbles(page)).to_have_count(2)
    for words in ("Hello", "Again"):
        await write(page, words)
        await expect(bubbles(page).last).to_have_text(f"Assistant: You said: {words}")
    await expect(page.locator(".day")).to_have_count(1)
    times = await page.locator("time").evaluate_all("all => all.map(each => each.dateTime)")
    await page.reload()
    await expect(bubbles(page)).to_have_count(6)
    await expect(page.locator(".day")).to_have_count(1)
    assert await page.locator("time").evaluate_all("all => all.map(each => each.dateTime)") == times
