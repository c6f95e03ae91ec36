"""The widget for those who do not see it, or do not use a mouse: by axe's rules, and by what its rules do not know."""

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright.async_api import Locator, Page, ViewportSize, expect
from sqlalchemy import text

from tests.support.wait import eventually
from tests.web_widget.conftest import a_web_tenant
from tests.web_widget.shop import PHONE, Shop, shop
from web_widget.web import Pending

__all__ = ["shop"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}
DESK = ViewportSize(width=1280, height=720)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "forced colours": {"forced_colors": "active"},
}
ANNOUNCEMENTS = Path(__file__).with_name("announcements.js")
INK_AT_THE_EDGE = ("#767676", "#777777", "#ffee00", "#0000ff", "#ff0000", "#00a000", "#ffffff", "#000000")
"""Colours on which black and white are hardly different to read, and the ends."""


async def _judge(page: Page, state: str) -> None:
    """Fail with what axe finds, all of it."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    found = AxeResults(await page.evaluate("options => axe.run(options)", RULES))
    assert not found.response["violations"], f"{state}: {found.generate_report()}"


async def _judge_in_every_look(page: Page, state: str) -> None:
    """Look at one state in every look, on a desk and on a phone, and leave it as it was met."""
    met = page.viewport_size
    assert met is not None
    for name, size in (("phone", PHONE), ("desk", DESK)):
        await page.set_viewport_size(size)
        for look, media in LOOKS.items():
            await page.emulate_media(**{"color_scheme": "light", "forced_colors": "none"} | media)
            await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            await _judge(page, f"{state}, {look}, on a {name}")
    await page.emulate_media(color_scheme="light", forced_colors="none")
    await page.set_viewport_size(met)


def _launcher(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile(r"^(Open|Close) chat")).first


def _field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Write a message")


async def _write(page: Page, words: str) -> None:
    await _field(page).fill(words)
    await _field(page).press("Enter")


def _said(page: Page, words: str) -> Locator:
    return page.get_by_role("log").locator("li").filter(has_text=words)


@pytest.mark.parametrize(("direction", "size"), [("ltr", DESK), ("rtl", PHONE)], ids=["ltr", "rtl"])
async def test_in_every_state_and_look_axe_finds_nothing(shop: Shop, direction: str, size: ViewportSize) -> None:
    """From left to right the way is walked on a desk, from right to left on a phone, and each state is looked at on both."""
    shop.build(direction=direction, language="en" if direction == "ltr" else "ar")
    page = await shop.visit(await shop.context(viewport=size))
    await expect(_launcher(page)).to_be_visible()
    await _judge_in_every_look(page, "closed")
    await _launcher(page).click()
    await expect(_field(page)).to_be_visible()
    await _judge_in_every_look(page, "open, empty")

    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    conversation = await shop.conversation()
    for kind in ("followup", "notice"):
        words = "**Call Ana** at [the shop](https://shop.example/ana), `now`:\n- first\n- second\n```\ncode\n```"
        await shop.service.say(conversation, f"{words} {kind}", kind)
        await expect(_said(page, kind).first).to_be_visible()
    await _judge_in_every_look(page, "with history and a follow-up")

    await page.route("**/messages", lambda call: call.fulfill(status=422, json={"detail": "no"}), times=1)
    await _write(page, "Refused")
    await expect(_said(page, "This message could not be sent.")).to_be_visible()
    await _judge_in_every_look(page, "with a message that was refused")

    shop.wire.cut()
    await expect(page.get_by_text("No connection, trying again…")).to_be_visible()
    await _write(page, "Later")
    await _judge_in_every_look(page, "offline, with a message that is not sent")
    shop.wire.mend()
    await page.evaluate("dispatchEvent(new Event('online'))")
    await expect(page.get_by_text("No connection, trying again…")).to_be_hidden()
    await expect(_said(page, "You said: Later")).to_be_visible()

    await _judge_pending(shop, page, conversation)
    await page.keyboard.press("Escape")
    await expect(_field(page)).to_be_hidden()
    await shop.service.say(conversation, "Back")
    await expect(page.get_by_role("button", name="Open chat, 1 unread message")).to_be_visible()
    await _judge_in_every_look(page, "closed, with a message not read")


async def _judge_pending(shop: Shop, page: Page, conversation: int) -> None:
    """Look at the list of what is pending, empty and not, where the widget has one."""
    button = page.get_by_role("button", name="What is pending")
    if not await button.count():
        return
    await button.click()
    await expect(page.get_by_text("Nothing is pending.")).to_be_visible()
    await _judge_in_every_look(page, "nothing pending")
    await button.click()
    shop.service.booked[conversation] = [
        Pending(number, "pay the rent", datetime(2031, 3, number, 9, tzinfo=UTC), "America/Bogota") for number in (1, 2)
    ]
    await button.click()
    await expect(page.get_by_role("button", name="Cancel: pay the rent")).to_have_count(2)
    await _judge_in_every_look(page, "two things pending")
    await button.click()


@pytest.mark.parametrize("look", ["light", "dark"])
async def test_while_an_answer_is_being_written_axe_finds_nothing(shop: Shop, look: str) -> None:
    shop.service.answers = False
    shop.build("data-open")
    page = await shop.visit(await shop.context(**LOOKS[look]), has_fake_stream=True)
    await _write(page, "Hello")
    await page.evaluate("sayOnStream('typing', {typing: true})")
    await expect(page.get_by_text("Writing…")).to_be_visible()
    await _judge(page, "typing")
    await page.evaluate("sayOnStream('delta', {text: 'That is **be', is_first: true})")
    await page.evaluate("sayOnStream('delta', {text: 'ing** written'})")
    await expect(page.get_by_text("written")).to_be_visible()
    await _judge(page, "streaming")


@pytest.mark.parametrize("color", INK_AT_THE_EDGE)
async def test_on_any_colour_of_a_tenant_the_words_can_be_read(shop: Shop, color: str) -> None:
    shop.service.tenants["acme"] = a_web_tenant("acme", origins=(shop.url.rstrip("/"),), color=color)
    shop.build()
    page = await shop.visit()
    await _judge(page, f"closed, in {color}")
    await _launcher(page).click()
    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    await _judge(page, f"open, in {color}")


# What axe's rules do not know


async def _tree(page: Page) -> set[tuple[str, str]]:
    """What a screen reader is given, by role and name."""
    session = await page.context.new_cdp_session(page)
    nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
    told = [node for node in nodes if not node["ignored"]]
    return {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in told}


async def test_the_launcher_tells_what_it_opens_and_a_closed_panel_is_told_to_nobody(shop: Shop) -> None:
    page = await shop.visit()
    launcher = _launcher(page)
    await expect(launcher).to_have_accessible_name("Open chat")
    await expect(launcher).to_have_attribute("aria-expanded", "false")
    closed = await _tree(page)
    assert not {role for role, _ in closed} & {"dialog", "textbox", "log"}
    await launcher.click()
    await expect(_field(page)).to_be_visible()
    await expect(launcher).to_have_attribute("aria-expanded", "true")
    panel = page.get_by_role("dialog", name="Acme & Co")
    assert await launcher.get_attribute("aria-controls") == await panel.get_attribute("id")
    opened = await _tree(page)
    assert {
        ("dialog", "Acme & Co"),
        ("textbox", "Write a message"),
        ("log", "Conversation"),
        ("button", "Send"),
    } <= opened
    await page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()
    assert not {role for role, _ in await _tree(page)} & {"dialog", "textbox", "log"}


async def test_all_of_it_can_be_done_with_the_keyboard(shop: Shop) -> None:
    page = await shop.visit()
    await expect(_launcher(page)).to_be_visible()
    for _ in range(2):  # the page's link, then the launcher
        await page.keyboard.press("Tab")
    await expect(_launcher(page)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(_field(page)).to_be_focused()
    await page.keyboard.type("Hello")
    await page.keyboard.press("Enter")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    await expect(_field(page)).to_be_focused()
    await page.keyboard.type("Again")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Send")).to_be_focused()
    await page.keyboard.press("Space")
    await expect(_said(page, "You said: Again")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(_launcher(page)).to_be_focused()
    await page.keyboard.press("Space")
    await expect(_field(page)).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("log")).to_be_focused()  # so that it can be scrolled
    await page.get_by_role("dialog").get_by_role("button", name="Close chat").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(_launcher(page)).to_be_focused()


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
async def test_the_focus_goes_as_the_eye_does_and_can_be_seen(shop: Shop, direction: str) -> None:
    shop.build("data-open", direction=direction)
    page = await shop.visit()
    panel = page.get_by_role("dialog")
    await expect(_field(page)).to_be_visible()
    await panel.get_by_role("button").first.focus()
    places: list[dict[str, Any]] = []
    while True:
        where = await page.evaluate(
            "() => { const one = document.querySelector('[data-vuelvo]')?.shadowRoot?.activeElement ??"
            " [...document.querySelectorAll('*')].find((each) => each.shadowRoot?.activeElement)?.shadowRoot.activeElement;"
            " if (!one?.closest('[role=dialog]')) return null;"
            " const {x, y, width, height} = one.getBoundingClientRect(); const style = getComputedStyle(one);"
            " return {name: one.ariaLabel ?? one.textContent, x, y, right: x + width, bottom: y + height,"
            " isSeen: style.outlineStyle !== 'none' || style.boxShadow !== 'none'} }"
        )
        if where is None or (places and where["name"] == places[0]["name"]):
            break
        places.append(where)
        await page.keyboard.press("Tab")
    assert [place["name"] for place in places if not place["isSeen"]] == []
    assert len(places) >= 4
    for one, other in pairwise(places):
        is_beside = one["bottom"] > other["y"] and other["bottom"] > one["y"]
        is_after = (other["x"] >= one["right"]) if direction == "ltr" else (other["right"] <= one["x"])
        assert is_after if is_beside else other["y"] >= one["bottom"], f"{one['name']} before {other['name']}"


async def test_each_message_is_read_aloud_once_when_it_is_finished(shop: Shop) -> None:
    shop.service.answers = False
    shop.build("data-open")
    context = await shop.context()
    await context.add_init_script(path=ANNOUNCEMENTS)
    page = await shop.visit(context, has_fake_stream=True)
    await _write(page, "Hello there")
    await expect(_said(page, "Hello there")).to_be_visible()
    await expect(page.locator(".visitor .state")).to_have_text("Delivered")
    await page.evaluate(
        "sayOnStream('message', {seq: 1, role: 'visitor', kind: 'message', text: 'Hello there', at: new Date().toISOString()}, 1)"
    )
    await page.evaluate("sayOnStream('typing', {typing: true})")
    for number in range(10):
        await page.evaluate("number => sayOnStream('delta', {text: `word${number} `, is_first: number === 0})", number)
    words = " ".join(f"word{number}" for number in range(10))
    await page.evaluate(
        "text => sayOnStream('message', {seq: 2, role: 'assistant', kind: 'reply', text, at: new Date().toISOString()}, 2)",
        words,
    )
    await expect(_said(page, words)).to_be_visible()
    await page.evaluate(
        "text => sayOnStream('message', {seq: 3, role: 'assistant', kind: 'followup', text, at: new Date().toISOString()}, 3)",
        "The end",
    )
    await page.wait_for_function("announced.some((each) => each.includes('The end'))")
    announced = await page.evaluate("announced")
    assert len([each for each in announced if "word" in each]) == 1, announced
    assert len([each for each in announced if "The end" in each]) == 1, announced


async def test_the_first_answer_is_read_aloud_however_soon_it_comes(shop: Shop) -> None:
    shop.build("data-open")
    context = await shop.context()
    await context.add_init_script(path=ANNOUNCEMENTS)
    page = await shop.visit(context)
    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    await page.wait_for_function("announced.some((each) => /You said|unread/.test(each))")
    announced = await page.evaluate("announced")
    assert [each for each in announced if "You said: Hello" in each], announced


async def _all_is_seen(shop: Shop, conversation: int) -> bool:
    statement = text("select seen_seq = last_seq from conversations where id = :id")
    async with shop.service.database.transaction() as connection:
        return bool(await connection.scalar(statement, {"id": conversation}))


async def test_history_is_not_read_aloud(shop: Shop) -> None:
    shop.build("data-open")
    context = await shop.context()
    await context.add_init_script(path=ANNOUNCEMENTS)
    page = await shop.visit(context)
    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    conversation = await shop.conversation()
    await shop.service.say_all(conversation, [f"number {number}." for number in range(60)])
    await expect(_said(page, "number 59.")).to_be_visible()
    # Else the next page reads back to what was not seen, and keeps silent a second time.
    await eventually(lambda: _all_is_seen(shop, conversation))
    await page.reload()
    await expect(_said(page, "number 59.")).to_be_visible()
    await expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
    await shop.service.say(conversation, "Something new")
    await page.wait_for_function("announced.some((each) => each.includes('Something new'))")
    assert not [each for each in await page.evaluate("announced") if "number" in each]


async def test_what_came_while_the_panel_is_closed_is_told_once(shop: Shop) -> None:
    context = await shop.context()
    await context.add_init_script(path=ANNOUNCEMENTS)
    page = await shop.visit(context)
    await _launcher(page).click()
    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.evaluate("announced.length = 0")
    await shop.service.say_all(await shop.conversation(), [f"number {number}" for number in range(60)])
    await expect(page.get_by_role("button", name="Open chat, 60 unread messages")).to_be_visible()
    await page.wait_for_function("announced.length")
    assert await page.evaluate("announced") == ["60 unread messages"]


TARGETS = """() => [...document.querySelectorAll('*')].flatMap((each) => [...(each.shadowRoot?.querySelectorAll('button, textarea, input, summary') ?? [])])
  .filter((each) => each.checkVisibility()).map((each) => [each.ariaLabel ?? each.textContent, each.getBoundingClientRect()])
  .filter(([, {width, height}]) => width < 24 || height < 24).map(([name]) => name)"""
SIZES = """() => [...document.querySelectorAll('*')].flatMap((each) => [...(each.shadowRoot?.querySelectorAll('[role=log], [role=dialog]') ?? [])])
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.role)"""


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
@pytest.mark.parametrize("size", [(320, 568), (640, 400), (1280, 800)], ids=str)
async def test_at_any_size_everything_fits_and_can_be_hit(shop: Shop, size: tuple[int, int], direction: str) -> None:
    """320 px is a phone; 640 by 400 is what a screen of 1280 by 800 has left at 200 %."""
    width, height = size
    shop.build(direction=direction)
    page = await shop.visit(await shop.context(viewport={"width": width, "height": height}))
    await expect(_launcher(page)).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    await _launcher(page).click()
    await _write(page, "W" * 300)
    await expect(_said(page, "You said: W")).to_be_visible()
    await shop.service.say(
        await shop.conversation(), f"https://shop.example/{'a' * 200}\n```\n{'code ' * 100}\n```\n- {'b' * 200}"
    )
    await expect(_said(page, "code")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    assert await page.evaluate(SIZES) == []
    assert await page.evaluate(TARGETS) == []
    dialog = page.get_by_role("dialog")
    for part in (
        _field(page),
        dialog.get_by_role("button", name="Close chat"),
        dialog.get_by_role("button", name="Send"),
    ):
        box = await part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height


async def test_where_the_panel_fills_a_phone_the_focus_stays_in_it(shop: Shop) -> None:
    page = await shop.visit(await shop.context(viewport=PHONE))
    await _launcher(page).click()
    await expect(_field(page)).to_be_focused()
    for _ in range(12):
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement?.tagName") != "A", "the focus is behind the panel"
    assert ("link", "About us") not in await _tree(page)
    await page.keyboard.press("Escape")
    await expect(_launcher(page)).to_be_focused()
    assert ("link", "About us") in await _tree(page)


@pytest.mark.parametrize(("wish", "moves"), [("reduce", False), ("no-preference", True)])
async def test_nothing_moves_for_those_who_do_not_want_it(shop: Shop, wish: str, moves: bool) -> None:
    shop.service.answers = False
    shop.build("data-open")
    page = await shop.visit(await shop.context(reduced_motion=wish), has_fake_stream=True)
    await _write(page, "Hello")
    await page.evaluate("sayOnStream('typing', {typing: true})")
    await expect(page.get_by_text("Writing…")).to_be_visible()
    running = """() => [document, ...[...document.querySelectorAll('*')].flatMap((each) => each.shadowRoot ?? [])]
      .flatMap((each) => each.getAnimations()).filter((each) => each.playState === 'running').length"""
    assert bool(await page.evaluate(running)) is moves


async def test_with_forced_colours_buttons_and_bubbles_have_edges(shop: Shop) -> None:
    shop.build("data-open")
    page = await shop.visit(await shop.context(forced_colors="active"))
    await _write(page, "Hello")
    await expect(_said(page, "You said: Hello")).to_be_visible()
    edge = "each => { const {borderTopStyle, outlineStyle} = getComputedStyle(each); return borderTopStyle + outlineStyle }"
    for part in (_launcher(page), page.get_by_role("dialog"), _field(page)):
        assert await part.evaluate(edge) != "nonenone"
