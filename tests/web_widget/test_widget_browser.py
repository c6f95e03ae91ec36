"""The widget in a real browser, against a real server, over a wire that can be cut."""

import re

import pytest
from playwright.async_api import Page, expect
from playwright.async_api import Route as Call
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.web_widget.conftest import a_web_tenant, serve
from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_visitor_writes_and_is_answered_and_finds_it_all_again(desk: Desk) -> None:
    page = await desk.page()
    await expect(page.get_by_role("dialog", name="Acme & Co")).to_be_visible()
    await expect(page.get_by_text("Hello! How can I help you?")).to_be_visible()
    assert desk.service.inbound == []
    await write(page, "Call Ana")
    await expect_bubbles(page, "Call Ana", "You said: Call Ana")

    await desk.service.say(await desk.conversation(), "It is time to call Ana")
    await expect_bubbles(page, "Call Ana", "You said: Call Ana", "It is time to call Ana")
    labels = page.locator(".list .label")
    await expect(labels).to_have_text(["Back, as promised"])

    for _ in range(2):
        await page.reload()
        await expect_bubbles(page, "Call Ana", "You said: Call Ana", "It is time to call Ana")
        await expect(labels).to_have_text(["Back, as promised"])
    assert await desk.written() == ["Call Ana"]


async def test_what_was_said_while_the_visitor_was_away_appears_once_each_in_order_after_two_reconnects(
    desk: Desk,
) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    told = ["Hello", "You said: Hello"]
    for count in (1, 60):
        desk.wire.cut()
        await expect(page.get_by_text("No connection, trying again…")).to_be_visible()
        missed = [f"{count}.{number}" for number in range(count)]
        await desk.service.say_all(conversation, missed)
        told += missed
        desk.wire.mend()
        await page.evaluate("dispatchEvent(new Event('online'))")
        await expect_bubbles(page, *told)
        await expect(page.get_by_text("No connection, trying again…")).to_be_hidden()
    await page.reload()
    await expect_bubbles(page, *told[-50:])


async def test_what_is_written_without_a_connection_is_sent_once_when_it_is_back(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "First")
    await expect_bubbles(page, "First", "You said: First")
    desk.wire.cut()
    await write(page, "Second")
    await write(page, "Third")
    await expect(page.get_by_text("Not sent yet, trying again…")).to_have_count(2)
    await expect_bubbles(page, "First", "You said: First", "Second", "Third")
    await expect(page.get_by_placeholder("Write a message")).to_be_editable()
    desk.wire.mend()
    await expect_bubbles(page, "First", "You said: First", "Second", "You said: Second", "Third", "You said: Third")
    await expect(page.locator(".unsent")).to_have_count(0)
    assert await desk.written() == ["First", "Second", "Third"]

    # Written, and the page closed before it could be sent.
    context = page.context
    desk.wire.cut()
    await write(page, "Fourth")
    await expect(page.get_by_text("Not sent yet, trying again…")).to_have_count(1)
    await page.close()
    desk.wire.mend()
    page = await desk.page(context)
    await expect(bubbles(page).last).to_have_text("Assistant: You said: Fourth")
    assert await desk.written() == ["First", "Second", "Third", "Fourth"]
    await page.reload()
    await expect(bubbles(page)).to_have_count(8)


async def test_an_answer_that_was_lost_on_the_way_makes_no_second_message(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "First")
    await expect_bubbles(page, "First", "You said: First")
    lost = 0

    async def lose(call: Call) -> None:
        nonlocal lost
        lost += 1
        await call.fetch()
        await call.abort()

    await page.route("**/messages", lose, times=2)
    await write(page, "Second")
    await expect_bubbles(page, "First", "You said: First", "Second", "You said: Second")
    await expect(page.locator(".unsent")).to_have_count(0)
    await write(page, "Third")
    await expect(bubbles(page).last).to_have_text("Assistant: You said: Third")
    assert (lost, await desk.written()) == (2, ["First", "Second", "Third"])
    await expect(bubbles(page)).to_have_count(6)


async def test_a_connection_that_is_dead_without_saying_so_is_noticed(desk: Desk) -> None:
    context = await desk.context()
    page = await context.new_page()
    await page.clock.install()
    await page.goto(desk.url)
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    desk.wire.silence(b"/stream")
    await desk.service.say(await desk.conversation(), "Are you there?")
    await page.clock.run_for(26_000)
    await expect_bubbles(page, "Hello", "You said: Hello", "Are you there?")


async def test_a_page_out_of_sight_gives_its_connection_back_and_catches_up_in_sight(desk: Desk) -> None:
    page = await (await desk.context()).new_page()
    await page.clock.install()
    await page.goto(desk.url)
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    turn = (
        "state => { Object.defineProperty(document, 'visibilityState', {get: () => state, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange')) }"
    )
    await page.evaluate(turn, "hidden")
    async with page.expect_event("requestfailed", lambda request: "/stream" in request.url):
        await page.clock.run_for(61_000)
    await desk.service.say(await desk.conversation(), "Meanwhile")
    await page.evaluate(turn, "visible")
    await expect_bubbles(page, "Hello", "You said: Hello", "Meanwhile")


async def test_two_tabs_hold_one_conversation(desk: Desk) -> None:
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    await write(one, "From one")
    for page in (one, two):
        await expect_bubbles(page, "From one", "You said: From one")
    await write(two, "From two")
    for page in (one, two):
        await expect_bubbles(page, "From one", "You said: From one", "From two", "You said: From two")
    async with desk.service.database.transaction() as connection:
        assert (await connection.execute(text("select count(*) from web_sessions"))).scalar_one() == 1


async def test_unread_messages_show_on_the_closed_launcher_until_they_are_seen(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    await page.keyboard.press("Escape")
    launcher = page.get_by_role("button", name="Open chat")
    await expect(launcher).to_be_focused()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(launcher).to_have_attribute("aria-expanded", "false")
    for _ in range(2):
        await desk.service.say(await desk.conversation(), "Back")
    await expect(page.get_by_role("button", name="Open chat, 2 unread messages")).to_be_visible()
    await expect(page.get_by_role("status").first).to_have_text("2 unread messages")
    await expect(page.locator(".badge")).to_have_text("2")

    other = await desk.page(page.context)  # it opens by itself, and what it shows is seen
    await expect(bubbles(other)).to_have_count(4)
    await expect(page.locator(".badge")).to_be_hidden()
    await launcher.click()
    await expect(page.get_by_placeholder("Write a message")).to_be_focused()
    await page.reload()
    await page.evaluate("vuelvo.close()")
    await expect(bubbles(page)).to_have_count(4)
    await expect(page.locator(".badge")).to_be_hidden()


async def test_a_lost_session_begins_a_new_conversation_and_says_so(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    async with desk.service.database.transaction() as connection:
        await connection.execute(text("delete from web_sessions"))
    first = await desk.conversation()
    await write(page, "Still there?")
    await expect(
        page.get_by_text("The earlier conversation is no longer available. This is a new one.")
    ).to_be_visible()
    await expect(page.locator("li.visitor, li.assistant:not(:first-child)")).to_have_text(
        [re.compile("Still there"), re.compile("You said: Still there")]
    )
    assert await desk.conversation() != first
    assert await desk.written() == ["Still there?"]


async def test_history_comes_as_the_visitor_scrolls_up_and_nothing_scrolls_away(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    await desk.service.say_all(conversation, [f"number {number}" for number in range(3, 121)])
    await page.reload()
    await expect(bubbles(page)).to_have_count(50)
    log = page.get_by_role("log")
    await log.evaluate("log => { log.scrollTop = 0 }")
    await expect(bubbles(page)).to_have_count(120)
    assert (await bubbles(page).all_text_contents())[2:] == [f"Assistant: number {n}" for n in range(3, 121)]

    await log.evaluate("log => { log.scrollTop = 200 }")
    await desk.service.say(conversation, "news")
    await expect(bubbles(page)).to_have_count(121)
    assert await log.evaluate("log => log.scrollTop") == 200
    await write(page, "Bottom")
    await expect(bubbles(page).last).to_have_text("Assistant: You said: Bottom")
    assert await log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 2


async def test_keys_do_what_a_writer_expects(desk: Desk) -> None:
    page = await desk.page()
    field = page.get_by_placeholder("Write a message")
    await field.fill("one")
    await field.press("Shift+Enter")
    await field.type("two")
    composing = "field => field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, %s}))"
    for how in ("isComposing: true", "keyCode: 229"):
        await field.evaluate(composing % how)
    await expect(field).to_have_value("one\ntwo")
    await field.press("Enter")
    await expect(field).to_have_value("")
    await expect(bubbles(page)).to_have_count(2)
    assert await desk.written() == ["one\ntwo"]
    await field.fill("   ")
    await field.press("Enter")
    await page.get_by_role("button", name="Send").click()
    await expect(bubbles(page)).to_have_count(2)


async def test_what_is_said_is_text_never_markup(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "<b>Hello</b> **not bold**")
    await expect(bubbles(page)).to_have_count(2)
    conversation = await desk.conversation()
    await desk.service.say(
        conversation,
        "<img src=x onerror=alert(1)> **bold** and *italic*, snake_case_name, 2*3*4, `a*b*c`\nnext line\n\n"
        "- first\n- second **strong**\n\n3. third\n\n"
        "See [our page](https://shop.example/a_(b)?q=1) or https://shop.example/x. "
        "[bank](https://user:pw@evil.example) [click](javascript:alert(1)) [write](mailto:ana@shop.example)\n"
        "```js\nlet a = '<b>';\n```\n" + "**" * 3000,
    )
    said = bubbles(page).last
    await expect(said).to_contain_text("<img src=x onerror=alert(1)> bold and italic, snake_case_name, 2*3*4, a*b*c")
    assert await said.evaluate("said => [...said.querySelectorAll('*')].map(each => each.tagName).join(' ')") == (
        "SPAN P STRONG EM CODE BR UL LI LI STRONG OL LI P A BDI BDI A BDI A BDI BDI PRE CODE P"
    )
    assert await said.locator("a").evaluate_all("links => links.map(link => [link.textContent, link.href])") == [
        ["our page", "https://shop.example/a_(b)?q=1"],
        ["https://shop.example/x", "https://shop.example/x"],
        ["write", "mailto:ana@shop.example"],
    ]
    await expect(said).to_contain_text(
        "See our page (shop.example) or https://shop.example/x. [bank](https://user:pw@evil.example) "
        "[click](javascript:alert(1)) write (ana@shop.example)"
    )
    assert await said.locator("pre").inner_text() == "let a = '<b>';"
    await expect(bubbles(page).first).to_have_text("You: <b>Hello</b> **not bold**")


async def test_a_shop_with_a_strict_policy_may_embed_it_even_twice(desk: Desk) -> None:
    async def shop_page(request: Request) -> HTMLResponse:
        tag = f'<script src="{desk.url}/widget/acme.js" data-language="pt"></script>'
        policy = (
            f"default-src 'none'; script-src {desk.url}; connect-src {desk.url}; require-trusted-types-for 'script'"
        )
        page = f'<!doctype html><html dir="rtl"><link rel="icon" href="data:,">{tag}<body><h1>Shop</h1>{tag}</body>'
        return HTMLResponse(page, headers={"Content-Security-Policy": f"{policy}; img-src data:"})

    async with serve(Starlette(routes=[Route("/", shop_page)])) as port:
        shop = f"http://127.0.0.1:{port}"
        look = {"color": "#ffee00", "greeting": "Oi!"}
        desk.service.tenants["acme"] = a_web_tenant("acme", ["pt"], origins=(shop,), **look)
        page = await desk.page()
        await page.goto(shop)
        launcher = page.get_by_role("button", name="Abrir o chat")
        await expect(launcher).to_have_count(1)
        await launcher.click()
        await expect(page.get_by_text("Oi!")).to_be_visible()
        await page.get_by_placeholder("Escreva uma mensagem").fill("Olá")
        await page.get_by_role("button", name="Enviar").click()
        await expect(bubbles(page)).to_have_text(["Você: Olá", "Assistente: You said: Olá"])
        assert (await launcher_colors(page)) == ["rgb(255, 238, 0)", "rgb(0, 0, 0)"]
        panel = await page.get_by_role("dialog").bounding_box()
        assert panel is not None
        assert panel["x"] < 100  # the launcher's side is the end of the line, which is on the left here

        desk.service.tenants["acme"] = a_web_tenant("acme", origins=("https://elsewhere.example",))
        await page.evaluate("localStorage.clear()")
        await page.reload()
        await launcher.click()
        await page.get_by_placeholder("Escreva uma mensagem").fill("Olá?")
        await page.get_by_role("button", name="Enviar").click()
        await expect(page.get_by_text("Ainda não enviada")).to_be_visible()
        assert await desk.written() == ["Olá"]


async def launcher_colors(page: Page) -> list[str]:
    launcher = page.locator(".launcher")
    colors: list[str] = await launcher.evaluate(
        "launcher => [getComputedStyle(launcher).backgroundColor, getComputedStyle(launcher).color]"
    )
    return colors


async def test_it_works_on_a_page_of_its_own_without_storage_or_a_secure_context(desk: Desk) -> None:
    context = await desk.context(viewport={"width": 320, "height": 560}, timezone_id="Asia/Tokyo")
    await context.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('blocked') }});"
        "delete Crypto.prototype.randomUUID; delete Navigator.prototype.locks;"
    )
    page = await desk.page(context, "/widget/acme")
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    await expect(page.get_by_role("button")).to_have_count(2)  # what is pending, and sending
    size = await page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    assert size == [320, 560]
    hour = "new Date(document.querySelector('div').shadowRoot.querySelector('time').dateTime).getUTCHours()"
    shown = await page.locator(".visitor time").inner_text()
    assert int(shown.split(":")[0]) == (await page.evaluate(hour) + 9) % 24


async def test_a_refused_message_stays_visible_and_the_next_one_can_be_written(desk: Desk) -> None:
    page = await desk.page()
    await page.get_by_placeholder("Write a message").evaluate("field => { field.maxLength = 9000 }")
    await write(page, "x" * 4001)
    await expect(page.locator(".refused .state")).to_have_text("This message could not be sent.")
    await expect(page.get_by_role("status").filter(has_text="This message could not be sent.")).to_be_visible()
    await write(page, "Short")
    await expect(bubbles(page).last).to_have_text("Assistant: You said: Short")
    assert await desk.written() == ["Short"]


async def test_the_dots_show_while_an_answer_is_being_written(desk: Desk) -> None:
    desk.service.answers = False
    page = await desk.page()
    await write(page, "Hello")
    await expect(page.locator(".unsent")).to_have_count(0)
    conversation = await desk.conversation()
    await desk.service.say(conversation, "One moment", "reply")
    await expect_bubbles(page, "Hello", "One moment")  # so the stream is there
    await write(page, "Well?")
    await expect(page.locator(".unsent")).to_have_count(0)
    dots = page.get_by_text("Writing…")
    await expect(dots).to_be_hidden()
    desk.service.signals.hint(f"typing {conversation}")
    await expect(dots).to_be_visible()
    await desk.service.say(conversation, "Done", "reply")
    await expect(dots).to_be_hidden()
