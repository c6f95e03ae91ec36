"""What a page, a browser's storage or rotten words may do to the panel: it goes on, and tells nobody what is not theirs."""

import asyncio
import json
from contextlib import suppress

import pytest
from playwright.async_api import Error, Page, expect
from playwright.async_api import Route as Call

from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write
from tests.web_widget.test_widget_sessions import a_jwt, takes_identities

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_words_with_the_rare_line_breaks_come_as_they_are_said_and_the_stream_goes_on(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    await desk.service.say(conversation, "one\u2028two\u2029three\x85four")
    await expect(bubbles(page).nth(2)).to_contain_text("three", timeout=3000)
    await desk.service.say(conversation, "and on")
    await expect(bubbles(page).nth(3)).to_contain_text("and on", timeout=3000)


@pytest.mark.parametrize(
    "words",
    ["a" + " " * 100_000 + "b", "- " + " " * 99_000 + "a\u2028b", "https://shop.example/" + "." * 99_000 + "a"],
    ids=["blanks", "line breaks", "dots"],
)
async def test_a_hundred_kilobytes_of_blanks_hold_nothing_up(desk: Desk, words: str) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    await page.evaluate(
        "() => { window.longest = 0; let at = performance.now(); setInterval(() => { const now = performance.now();"
        "longest = Math.max(longest, now - at); at = now }, 10) }"
    )
    await desk.service.say(await desk.conversation(), words)
    await expect(bubbles(page)).to_have_count(3, timeout=20_000)
    longest = await page.evaluate("new Promise(done => setTimeout(() => done(longest), 200))")
    assert longest < 1_000


@pytest.mark.parametrize(
    ("name", "rubbish"),
    [
        ("token", "日本"),
        ("token", "half a\nheader"),
        ("token", json.dumps({"token": "日本", "conversation": 1})),
        ("token", "[]"),
        ("token", '"word"'),
        ("token", "7"),
        ("unsent", json.dumps([{"id": "1", "text": "Words", "at": "rubbish"}])),
        ("unsent", json.dumps([{"id": {}, "text": {}, "at": {}}])),
        ("unsent", "[null, 7]"),
        ("unsent", "{"),
    ],
)
async def test_what_a_storage_may_hold_does_not_keep_a_visitor_from_talking(
    desk: Desk, name: str, rubbish: str
) -> None:
    context = await desk.context()
    page = await desk.page(context, "/widget/nobody")
    await page.evaluate("([name, rubbish]) => localStorage[`vuelvo:acme:${name}`] = rubbish", [name, rubbish])
    await page.goto(desk.url + "/widget/acme")
    await write(page, "Hello")
    await expect(bubbles(page).last).to_have_text("Assistant: You said: Hello", timeout=5_000)


@pytest.mark.parametrize(
    "broken",
    [
        "Object.defineProperty(window, 'localStorage', {value: null})",
        "Storage.prototype.getItem = () => { throw new Error('corrupt') };"
        "Object.defineProperty(window, 'localStorage', {value: new Proxy({}, {get() { throw new Error('corrupt') }})})",
        "Object.defineProperty(window, 'localStorage', {value: new Proxy({}, {set() { throw new Error('full') }})})",
    ],
    ids=["null", "corrupt", "full"],
)
async def test_a_storage_that_is_none_keeps_nobody_from_talking(desk: Desk, broken: str) -> None:
    context = await desk.context()
    await context.add_init_script(broken)
    page = await desk.page(context, "/widget/acme")
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")


async def _hold(page: Page, path: str) -> asyncio.Event:
    """Keep what the page asks for there waiting until the event is set."""
    released = asyncio.Event()

    async def hold(call: Call) -> None:
        await released.wait()
        with suppress(Error):  # who asked may have left
            await call.continue_()

    await page.route(path, hold)
    return released


@pytest.mark.parametrize("is_known", [True, False])
async def test_whoever_signs_out_while_a_session_is_being_opened_leaves_none_behind(desk: Desk, is_known: bool) -> None:
    takes_identities(desk)
    page = await desk.page()
    released = await _hold(page, "**/sessions")
    async with page.expect_request("**/sessions"):
        if is_known:
            await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("anna"))
        else:
            await write(page, "Hello")
    async with page.expect_event("requestfailed", timeout=3_000):
        await page.evaluate("vuelvo.forget()")
    released.set()
    await expect(bubbles(page)).to_have_count(0)
    assert await page.evaluate("Object.keys(localStorage)") == []


async def test_signing_out_reaches_a_tab_that_is_still_opening_a_session(desk: Desk) -> None:
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    released = await _hold(two, "**/sessions")
    async with two.expect_request("**/sessions"):
        await write(two, "Hello")
    async with two.expect_event("requestfailed", timeout=3_000):
        await one.evaluate("vuelvo.forget()")
    released.set()
    await expect(bubbles(two)).to_have_count(0)
    assert await two.evaluate("Object.keys(localStorage)") == []


async def test_a_tab_that_is_told_of_it_leaves_nothing_of_its_own_though_the_other_had_not_seen_it_yet(
    desk: Desk,
) -> None:
    """A browser hands what one tab has stored to the others a moment later; until then they cannot delete it."""
    page = await desk.page()
    released = await _hold(page, "**/sessions")
    async with page.expect_request("**/sessions"):
        await write(page, "Hello")
    assert await page.evaluate("Object.keys(localStorage).sort()") == ["vuelvo:acme:talked", "vuelvo:acme:unsent"]
    async with page.expect_event("requestfailed", timeout=3_000):
        await page.evaluate("new BroadcastChannel('vuelvo:acme:tabs').postMessage({ isForgotten: true })")
    released.set()
    await expect(bubbles(page)).to_have_count(0)
    assert await page.evaluate("Object.keys(localStorage)") == []


@pytest.mark.parametrize("queue", ["{}", "7", "[7, null, () => { throw 1 }]", "'word'", "document.body"])
async def test_a_queue_that_is_none_does_not_keep_the_widget_from_its_options(desk: Desk, queue: str) -> None:
    more = f"<body><script>window.vuelvoQueue = {queue}</script>"
    async with desk.shop(script="data-open", more=more) as shop:
        page = await desk.visit(shop)
        await expect(page.get_by_role("dialog")).to_be_visible(timeout=5_000)
        desk.complaints.clear()


async def test_an_identity_is_asked_for_again_when_the_service_says_so(desk: Desk) -> None:
    takes_identities(desk)
    context = await desk.context()
    await context.clock.install()
    page = await desk.page(context)
    asked = 0

    async def refuse(call: Call) -> None:
        nonlocal asked
        asked += 1
        headers = {"Retry-After": "60", "Access-Control-Allow-Origin": "*"}
        await call.fulfill(status=429, headers=headers, json={"type": "too-many"})

    await page.route("**/sessions", refuse)
    async with page.expect_response("**/sessions"):
        await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("anna"))
    await page.clock.run_for(50_000)
    assert asked == 1
    async with page.expect_response("**/sessions"):
        await page.clock.run_for(20_000)
    assert asked == 2
