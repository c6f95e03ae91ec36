"""The launcher: what a page loads before anybody wants to talk, its options, its API, and the conversation in a frame."""

import re

import pytest
from playwright.async_api import Page, expect
from playwright.async_api import Route as Call

from tests.web_widget.conftest import a_web_tenant
from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

NEWS = """
<script>
  const told = [];
  (window.vuelvoQueue ??= []).push((vuelvo) => {
    for (const name of ["ready", "open", "close", "unread", "message", "refused"])
      vuelvo.on(name, (detail) => told.push([name, detail]));
    vuelvo.on("open", () => { throw new Error("the page's own fault") });
  });
</script>
"""


def _loads(page: Page) -> list[str]:
    """What the page asks the service for from now on, without the hashes."""
    asked: list[str] = []
    page.on("request", lambda call: asked.append(re.sub(r"\.\w{43}\.", ".", call.url.partition("/widget/")[2])))
    return asked


async def test_the_panel_is_loaded_when_somebody_wants_it_and_ahead_where_there_may_be_news(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.page(path="/widget/nobody")
        asked = _loads(page)
        await page.goto(shop, wait_until="networkidle")
        launcher = page.get_by_role("button", name="Open chat")
        await expect(launcher).to_have_attribute("aria-expanded", "false")
        assert asked[1:] == ["acme.js"]
        async with page.expect_request("**/panel.*"):
            await launcher.hover()
        assert await page.evaluate("vuelvo.isOpen") is False
        await launcher.click()
        await write(page, "Hello")
        await expect_bubbles(page, "Hello", "You said: Hello")
        assert asked.count("acme/panel.js") == 1
        assert await page.evaluate("Object.keys(window).filter(name => /vuelvo/i.test(name))") == [
            "vuelvo",
            "vuelvoQueue",
        ]
        async with page.expect_request("**/panel.*"):
            await page.reload()
        await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_a_panel_that_cannot_be_loaded_is_told_of_and_the_next_click_tries_again(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.visit(shop)
        await page.route("**/panel.*", lambda call: call.abort())
        await page.get_by_role("button", name="Open chat").click()
        await expect(page.get_by_role("alert")).to_have_text("Please try again.")
        assert await page.evaluate("vuelvo.isOpen") is False
        await page.unroute("**/panel.*")
        await page.get_by_role("button", name="Open chat").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_a_panel_that_is_not_the_one_that_was_built_does_not_run(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.visit(shop)

        async def forge(call: Call) -> None:
            await call.fulfill(
                body="document.title = 'forged'",
                headers={"Access-Control-Allow-Origin": "*"},
                content_type="text/javascript",
            )

        await page.route("**/panel.*", forge)
        await page.get_by_role("button", name="Open chat").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await expect(page).to_have_title("Shop")


async def test_a_page_can_call_and_hear_it(desk: Desk) -> None:
    desk.service.answers = False
    async with desk.shop(more=NEWS) as shop:
        page = await desk.visit(shop)
        await page.wait_for_function("told.length")
        await page.evaluate("vuelvo.open()")
        await expect(page.get_by_placeholder("Write a message")).to_be_focused()
        await write(page, "Hello")
        await expect(page.get_by_text("Delivered")).to_be_visible()
        await page.wait_for_function("told.length === 3")
        await page.evaluate("vuelvo.close()")
        await desk.service.say(await desk.conversation(), "Back")
        await page.wait_for_function("vuelvo.unread === 1")
        assert await page.evaluate("told") == [
            ["ready", {}],
            ["open", {}],
            ["message", {"seq": 1, "role": "visitor", "kind": "message"}],
            ["close", {}],
            ["message", {"seq": 2, "role": "assistant", "kind": "followup"}],
            ["unread", {"count": 1}],
        ]
        await page.evaluate("vuelvoQueue.push((vuelvo) => vuelvo.open())")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.wait_for_function("vuelvo.unread === 0")
    assert desk.complaints == ["the page's own fault"] * 2
    desk.complaints.clear()


async def test_a_page_may_have_a_button_of_its_own_and_gets_its_focus_back(desk: Desk) -> None:
    async with desk.shop('data-launcher="none" data-position="left"') as shop:
        page = await desk.visit(shop)
        await page.evaluate("void (document.querySelector('button').onclick = () => vuelvo.open())")
        helping = page.get_by_role("button", name="Help")
        await helping.click()
        await expect(page.get_by_placeholder("Write a message")).to_be_focused()
        await expect(page.locator(".launcher")).to_be_hidden()
        box = await page.get_by_role("dialog").bounding_box()
        assert box is not None
        assert box["x"] == 20
        await page.keyboard.press("Escape")
        await expect(helping).to_be_focused()


async def test_the_page_chooses_the_language_then_and_later(desk: Desk) -> None:
    async with desk.shop(
        'data-language="pt-BR"', more="<style>html { --vuelvo-font: Courier, monospace }</style>"
    ) as shop:
        page = await desk.visit(shop)
        await page.get_by_role("button", name="Abrir o chat").click()
        await page.get_by_placeholder("Escreva uma mensagem").fill("Olá")
        await page.keyboard.press("Enter")
        await expect(bubbles(page)).to_have_text(["Você: Olá", "Assistente: You said: Olá"])
        await page.evaluate("vuelvo.setLanguage('es')")
        await expect(bubbles(page)).to_have_text(["Usted: Olá", "Asistente: You said: Olá"])
        await expect(page.get_by_placeholder("Escriba un mensaje")).to_be_visible()
        await expect(page.get_by_text("¡Hola! ¿En qué puedo ayudar?")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Abrir el chat")).to_be_visible()
        font = "list => getComputedStyle(list).fontFamily"
        assert await page.locator("ol.list").evaluate(font) == "Courier, monospace"


async def test_of_the_visitors_languages_the_first_that_the_business_speaks_is_spoken(desk: Desk) -> None:
    async with desk.shop() as shop:
        greeting = "Welcome to Acme!"
        desk.service.tenants["acme"] = a_web_tenant("acme", ["en", "es"], origins=(shop,), greeting=greeting)
        brazil = await desk.browser.new_context(locale="pt-BR", reduced_motion="reduce")
        page = await desk.visit(shop, brazil)
        await page.get_by_role("button", name="Open chat").click()
        await expect(page.get_by_text("Welcome to Acme!")).to_be_visible()
        await page.evaluate("vuelvo.setLanguage('pt')")
        await expect(page.get_by_placeholder("Write a message")).to_be_visible()
        await page.evaluate("vuelvo.setLanguage('es')")
        await expect(page.get_by_text("¡Hola! ¿En qué puedo ayudar?")).to_be_visible()
        await expect(page.get_by_text("Welcome to Acme!")).to_have_count(0)


async def test_opened_and_closed_before_the_panel_is_there_it_is_closed(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.visit(shop)
        await page.wait_for_function("window.vuelvo")
        await page.evaluate("void (vuelvo.open(), vuelvo.close())")
        await expect(page.get_by_role("dialog", include_hidden=True)).to_have_count(1)
        await expect(page.get_by_role("dialog")).to_be_hidden()
        assert await page.evaluate("vuelvo.isOpen") is False
        await page.evaluate("void (vuelvo.close(), vuelvo.open())")
        await expect(page.get_by_placeholder("Write a message")).to_be_focused()


@pytest.mark.parametrize("place", ["", "data-isolate"])
async def test_a_page_may_choose_that_it_is_dark(desk: Desk, place: str) -> None:
    paper = "each => getComputedStyle(each).backgroundColor"
    seen = {}
    for attributes in ("", 'data-theme="dark"', 'data-theme="light"'):
        async with desk.shop(f"{place} {attributes}") as shop:
            page = await desk.visit(shop, await desk.context(color_scheme="light"))
            await page.get_by_role("button", name="Open chat").click()
            panel = page.frame_locator("iframe").get_by_role("main") if place else page.get_by_role("dialog")
            await expect(panel.get_by_role("textbox")).to_be_visible()
            seen[attributes] = await panel.evaluate(paper)
    assert seen == {
        "": "rgb(255, 255, 255)",
        'data-theme="dark"': "rgb(27, 30, 37)",
        'data-theme="light"': "rgb(255, 255, 255)",
    }


async def test_in_a_frame_everything_works_and_the_page_cannot_read_it(desk: Desk) -> None:
    policy = (
        f"default-src 'none'; script-src {desk.url} 'unsafe-inline'; connect-src {desk.url}; frame-src {desk.url}; "
        "img-src data:; require-trusted-types-for 'script'; trusted-types vuelvo"
    )
    async with desk.shop("data-isolate", policy, NEWS.replace("throw", "return; throw")) as shop:
        page = await desk.visit(shop)
        await page.get_by_role("button", name="Open chat").click()
        frame = page.frame_locator("iframe[title='Acme & Co']")
        field = frame.get_by_placeholder("Write a message")
        await expect(field).to_be_focused()
        await field.fill("Hello")
        await field.press("Enter")
        said = frame.locator("ol.list > li:not(:first-child) > .words")
        await expect(said).to_have_text(["You: Hello", "Assistant: You said: Hello"])
        assert await page.evaluate("Object.keys(localStorage)") == ["vuelvo:acme:talked"]

        await field.press("Escape")
        launcher = page.get_by_role("button", name="Open chat")
        await expect(launcher).to_be_focused()
        await expect(page.locator("iframe")).to_be_hidden()
        await desk.service.say(await desk.conversation(), "Back")
        await expect(page.get_by_role("button", name="Open chat, 1 unread message")).to_be_visible()
        await expect(page).to_have_title("(1) Shop")
        await page.evaluate("vuelvo.setLanguage('es')")
        await page.get_by_role("button", name="Abrir el chat, 1 mensaje sin leer").click()
        await expect(frame.get_by_placeholder("Escriba un mensaje")).to_be_focused()
        await expect(said.last).to_have_text("Asistente: Back")
        await expect(page).to_have_title("Shop")
        names = await page.evaluate("told.map(([name]) => name)")
        assert names == ["ready", "open", "message", "message", "close", "message", "unread", "open", "unread"]

        # Found again with the next page, without a click.
        await page.evaluate("vuelvo.close()")
        await page.wait_for_function("vuelvo.isOpen === false")
        await page.reload()
        await desk.service.say(await desk.conversation(), "Again")
        await expect(page.get_by_role("button", name="Open chat, 1 unread message")).to_be_visible()
        await page.evaluate("vuelvo.forget()")
        await page.wait_for_function("vuelvo.unread === 0")
        assert await page.evaluate("Object.keys(localStorage)") == []


async def test_a_frame_takes_orders_from_its_parent_alone_and_once(desk: Desk) -> None:
    page = await desk.page(path="/widget/acme#framed")
    await expect(page.locator("section[role=main]")).to_have_count(1)
    hand_over = (
        "dispatchEvent(new MessageEvent('message', {data: 'vuelvo', source: %s, ports: [new MessageChannel().port2]}))"
    )
    await page.evaluate(hand_over % "null")
    await expect(page.get_by_role("main")).to_be_hidden()
    orders = """() => {
        window.heard = [];
        for (const number of [1, 2]) {
            const {port1, port2} = new MessageChannel();
            port1.onmessage = ({data: [name]}) => {
                document.body.dataset.heard = heard.push(`${number} ${name}`);
            };
            dispatchEvent(new MessageEvent('message', {data: 'vuelvo', source: parent, ports: [port2]}));
            port1.postMessage(['open', true]);
        }
    }"""
    await page.evaluate(orders)
    await expect(page.get_by_role("main")).to_be_visible()
    await expect(page.locator("body")).to_have_attribute("data-heard", "2")
    assert await page.evaluate("heard") == ["1 ready", "1 open"]


async def test_a_pinned_launcher_asks_for_its_config_and_is_proved(desk: Desk) -> None:
    page = await desk.page()
    pin = (await (await page.request.get(f"{desk.url}/widget/acme/config")).json())["pin"]
    proof = f'integrity="{pin["integrity"]}" crossorigin'
    async with desk.shop(proof, address=f"acme/{pin['file']}") as shop:
        page = await desk.visit(shop)
        await page.get_by_role("button", name="Open chat").click()
        await expect(page.get_by_role("dialog", name="Acme & Co")).to_be_visible()
        await write(page, "Hello")
        await expect_bubbles(page, "Hello", "You said: Hello")


async def test_on_a_phone_the_page_waits_behind_the_panel_and_comes_back(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.visit(shop, await desk.context(viewport={"width": 360, "height": 640}))
        await page.get_by_role("button", name="Open chat").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_have_attribute("aria-modal", "true")
        assert await page.evaluate("[...document.body.children].map(each => each.inert)") == [True, True, False]
        assert await dialog.bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 640}
        await expect(page.locator(".launcher")).to_be_hidden()
        await page.set_viewport_size({"width": 1000, "height": 640})  # turned, on a large one
        await expect(dialog).not_to_have_attribute("aria-modal", "true")
        assert await page.evaluate("[...document.body.children].map(each => each.inert)") == [False, False, False]
        await page.set_viewport_size({"width": 360, "height": 640})
        await expect(dialog).to_have_attribute("aria-modal", "true")
        await page.get_by_role("button", name="Close chat").click()
        await expect(page.get_by_role("button", name="Open chat")).to_be_focused()
        assert await page.evaluate("[...document.body.children].map(each => each.inert)") == [False, False, False]


async def test_a_page_that_may_not_embed_it_is_told_so_once(desk: Desk) -> None:
    more = "<script>heard = []; (window.vuelvoQueue ??= []).push(v => v.on('refused', told => heard.push(told.type)))</script>"
    async with desk.shop("data-open", more=more) as shop:
        desk.service.tenants["acme"] = a_web_tenant("acme", origins=("https://elsewhere.example",))
        page = await desk.visit(shop)
        await write(page, "Hello")
        await expect(page.get_by_text("This chat cannot be used on this page.")).to_be_visible()
        assert await page.evaluate("heard") == ["origin-refused"]


async def test_a_frame_that_fills_the_page_stays_open_whatever_is_pressed(desk: Desk) -> None:
    async with desk.shop("data-full data-isolate") as shop:
        page = await desk.visit(shop)
        field = page.frame_locator("iframe").get_by_role("textbox")
        await field.press("Escape")
        await page.frame_locator("iframe").get_by_role("button", name="Close chat").click()
        await field.fill("Hello")
        await field.press("Enter")
        await expect(page.frame_locator("iframe").get_by_text("You said: Hello")).to_be_visible()


async def test_a_frame_that_does_not_come_covers_no_phone_and_one_that_comes_late_has_the_focus(desk: Desk) -> None:
    async with desk.shop("data-isolate") as shop:
        context = await desk.context(viewport={"width": 320, "height": 568})
        page = await context.new_page()
        await page.clock.install()
        await page.route("**/widget/acme", lambda call: call.abort())
        await page.goto(shop)
        launcher = page.get_by_role("button", name="Open chat")
        await launcher.click()
        await page.locator("iframe").wait_for(state="attached")
        await page.clock.run_for(1_000)
        await expect(page.get_by_role("alert")).to_have_text("…")
        await expect(launcher).to_be_visible()
        await expect(page.get_by_role("dialog")).to_be_hidden()
        assert await page.evaluate("[...document.body.children].some(each => each.inert)") is False
        await page.clock.run_for(15_000)
        await expect(page.get_by_role("alert")).to_have_text("Something went wrong here. Please try again later.")
        await page.unroute("**/widget/acme")
        await launcher.click()
        await expect(page.frame_locator("iframe").get_by_placeholder("Write a message")).to_be_focused()
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_closed_before_its_frame_has_come_it_stays_closed(desk: Desk) -> None:
    async with desk.shop("data-isolate") as shop:
        page = await desk.visit(shop)
        await page.wait_for_function("window.vuelvo")
        await page.evaluate("void (vuelvo.open(), vuelvo.close())")
        frame = page.frame_locator("iframe")
        await expect(frame.locator("section[role=main]")).to_have_count(1)
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await page.evaluate("void vuelvo.open()")
        await expect(frame.get_by_placeholder("Write a message")).to_be_focused()


async def test_on_a_page_from_right_to_left_a_time_reads_as_its_language_has_it(desk: Desk) -> None:
    async with desk.shop("data-open", more="<style>html { direction: rtl }</style>") as shop:
        page = await desk.visit(shop, await desk.browser.new_context(locale="en-US"))
        await write(page, "Hello")
        await expect_bubbles(page, "Hello", "You said: Hello")
        places = """time => [0, time.firstChild.length - 1].map((at) => {
          const range = new Range(); range.setStart(time.firstChild, at); range.setEnd(time.firstChild, at + 1);
          return range.getBoundingClientRect().x })"""
        first, last = await page.locator("time").first.evaluate(places)
        assert first < last
