"""What the widget shows of what is said: news while one is away, answers as they are written, days, what is pending."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect
from playwright.async_api import Route as Call

from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write
from web_widget.web import Pending

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# A stream that says what the test has it say: told(name, content).
SCRIPTED = """
const ask = fetch, streams = [];
window.fetch = (url, options) => {
  if (!String(url).includes("/stream")) return ask(url, options);
  return Promise.resolve(new Response(new ReadableStream({
    start(stream) {
      streams.push(stream);
      options.signal.addEventListener("abort", () => { try { stream.error(options.signal.reason) } catch {} });
    },
  })));
};
window.tell = (...events) => streams.at(-1).enqueue(new TextEncoder().encode(
  events.map(([name, content]) => `event: ${name}\\ndata: ${JSON.stringify(content)}\\n\\n`).join("")));
"""

# What the live regions have said aloud, of bubbles and of sentences.
LISTENING = """
window.aloud = [];
const root = [...document.querySelectorAll("div")].find((each) => each.shadowRoot).shadowRoot;
new MutationObserver((changes) => {
  for (const { addedNodes, target } of changes) {
    if (!target.isConnected) continue;
    const region = (target.closest ? target : target.parentElement)?.closest("[role=log], [role=status], [aria-live]");
    if (!region?.checkVisibility() || region.ariaBusy === "true" || region.ariaLive === "off") continue;
    if (target.closest("[aria-hidden=true]")) continue;
    for (const node of addedNodes) if (!node.ariaHidden && node.textContent) aloud.push(node.textContent);
    document.body.dataset.aloud = aloud.length;
  }
}).observe(root, { subtree: true, childList: true });
"""


async def _tell(page: Page, *events: tuple[str, dict[str, Any]]) -> None:
    await page.evaluate("events => tell(...events)", [list(event) for event in events])


async def _heard(page: Page, count: int) -> None:
    await expect(page.locator("body")).to_have_attribute("data-aloud", str(count))


def _message(
    seq: int, text: str, role: str = "assistant", kind: str = "reply", **more: str
) -> tuple[str, dict[str, Any]]:
    now = datetime.now(UTC).isoformat()
    return "message", {"seq": seq, "role": role, "kind": kind, "text": text, "at": now} | more


async def test_sixty_follow_ups_of_half_an_hour_away_are_all_there_and_told_once(desk: Desk) -> None:
    async with desk.shop() as shop:
        page = await desk.visit(shop)
        await page.get_by_role("button", name="Open chat").click()
        await write(page, "Hello")
        await expect_bubbles(page, "Hello", "You said: Hello")
        await page.keyboard.press("Escape")
        conversation = await desk.conversation()

        # The page was left, and the visitor comes back.
        await page.goto("about:blank")
        missed = [f"follow-up {number}" for number in range(60)]
        await desk.service.say_all(conversation, missed)
        await page.add_init_script(f"addEventListener('load', () => {{ {LISTENING} }})")
        await page.goto(shop)
        launcher = page.get_by_role("button", name="Open chat, 60 unread messages")
        await expect(launcher).to_be_visible()
        await expect(page.locator(".badge")).to_have_text("60")
        await expect(page).to_have_title("(60) Shop")
        await expect(page.get_by_role("status").filter(has_text="60 unread messages")).to_have_count(1)
        assert await page.evaluate("aloud") == ["60 unread messages"]
        await launcher.click()
        await expect_bubbles(page, "Hello", "You said: Hello", *missed)
        await expect(page).to_have_title("Shop")
        await expect(page.locator(".badge")).to_be_hidden()


async def test_sixty_follow_ups_for_a_page_that_slept_are_told_once_too(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    await page.evaluate(LISTENING)
    desk.wire.cut()
    await expect(page.get_by_text("No connection, trying again…")).to_be_visible()
    missed = [f"follow-up {number}" for number in range(60)]
    await desk.service.say_all(await desk.conversation(), missed)
    desk.wire.mend()
    await expect_bubbles(page, "Hello", "You said: Hello", *missed)
    await _heard(page, 2)
    assert await page.evaluate("aloud") == ["No connection, trying again…", "60 unread messages"]
    await desk.service.say(await desk.conversation(), "one more")
    await _heard(page, 3)
    assert "Assistant: one more" in (await page.evaluate("aloud"))[2]


async def test_an_answer_is_shown_as_it_is_written_and_read_aloud_once(desk: Desk) -> None:
    desk.service.answers = False
    context = await desk.context()
    await context.add_init_script(SCRIPTED)
    page = await desk.page(context)
    await write(page, "Hello")
    state = page.locator(".visitor .state")
    await expect(state).to_have_text("Delivered")
    await _tell(page, ("seen", {"seq": 0}), _message(1, "Hello", "visitor", "message"))
    await page.evaluate(LISTENING)
    await _tell(page, ("typing", {"typing": True}))
    await expect(page.get_by_text("Writing…")).to_be_visible()
    await expect(state).to_have_text("Seen")

    for words, is_first in (("I will", True), (" look **at", False), (" it**", False)):
        await _tell(page, ("delta", {"text": words, "is_first": is_first}))
    draft = page.locator(".draft")
    await expect(draft).to_have_text("I will look at it")
    await expect(draft).to_have_attribute("aria-hidden", "true")
    await expect(page.get_by_text("Writing…")).to_be_hidden()
    await _tell(page, ("delta", {"text": "Let me see", "is_first": True}))
    await expect(draft).to_have_text("Let me see")
    await _tell(page, ("typing", {"typing": False}))
    await expect(draft).to_have_count(0)

    await _tell(page, ("delta", {"text": "Here it is: " + "very long " * 300, "is_first": True}))
    await expect(draft).to_be_visible()
    heights = "log => [log.scrollHeight - log.scrollTop - log.clientHeight < 2, log.querySelectorAll('li').length]"
    log = page.get_by_role("log")
    assert await log.evaluate(heights) == [True, 4]
    await _tell(page, _message(2, "Here it is"))
    await expect_bubbles(page, "Hello", "Here it is")
    assert await page.evaluate("aloud.map(each => each.replace(/\\d.*/, ''))") == ["Assistant: Here it is"]


async def test_a_visitor_who_reads_further_up_stays_there_while_an_answer_is_written(desk: Desk) -> None:
    context = await desk.context()
    await context.add_init_script(SCRIPTED)
    page = await desk.page(context)
    await write(page, "Hello")
    await expect(page.get_by_text("Delivered")).to_be_visible()
    await _tell(page, ("seen", {"seq": 0}), *[_message(seq, f"number {seq}") for seq in range(1, 40)])
    await expect(bubbles(page)).to_have_count(39)
    log = page.get_by_role("log")
    await log.evaluate("log => { log.scrollTop = 300 }")
    await _tell(page, ("delta", {"text": "words " * 500, "is_first": True}))
    await expect(page.locator(".draft")).to_have_count(1)
    await _tell(page, _message(40, "done"))
    await expect(page.locator(".draft")).to_have_count(0)
    assert await log.evaluate("log => log.scrollTop") == 300
    await expect(bubbles(page)).to_have_count(40)


async def test_what_was_written_is_delivered_when_it_is_taken_and_seen_when_it_is_answered(desk: Desk) -> None:
    desk.service.answers = False
    page = await desk.page()
    for words in ("One", "Two"):
        await write(page, words)
    states = page.locator(".visitor .state")
    await expect(states).to_have_text(["", "Delivered"])
    conversation = await desk.conversation()
    await desk.service.say(conversation, "A notice of something else", "notice")
    await expect(bubbles(page)).to_have_count(3)
    await expect(states).to_have_text(["", "Delivered"])
    await desk.service.say(conversation, "An answer", "reply")
    await expect(states).to_have_text(["", "Seen"])
    await page.reload()
    await expect(states).to_have_text(["", "Seen"])


async def test_days_are_told_apart_and_a_follow_up_says_when_it_was_asked_for(desk: Desk) -> None:
    context = await desk.context(timezone_id="America/Bogota")
    await context.add_init_script(SCRIPTED)
    page = await context.new_page()
    await page.clock.install(time=datetime(2026, 3, 12, 20, 0, tzinfo=UTC))
    history = [
        {"seq": 1, "role": "visitor", "kind": "message", "text": "old", "at": "2025-12-30T15:00:00Z"},
        # Another day in UTC, the same in Bogotá.
        {"seq": 2, "role": "assistant", "kind": "reply", "text": "late", "at": "2025-12-31T02:00:00Z"},
        {"seq": 3, "role": "assistant", "kind": "reply", "text": "weekday", "at": "2026-03-10T15:00:00Z"},
        {"seq": 4, "role": "assistant", "kind": "reply", "text": "yesterday", "at": "2026-03-11T15:00:00Z"},
    ]

    async def read(call: Call) -> None:
        await call.fulfill(json={"messages": history, "seq": 4})

    await page.route("**/messages", read)
    await page.goto(desk.url)
    await page.evaluate(
        "localStorage['vuelvo:acme:token'] = JSON.stringify({token: 'x', conversation: 1, renew: 9e12})"
    )
    await page.reload()
    days = page.locator("li.day")
    await expect(days).to_have_text(["30 December", "Tuesday", "yesterday"])
    await page.clock.run_for(500)
    at = "2026-03-12T20:00:01Z"
    asked = ["2026-03-12T14:15:00Z", "2026-03-10T12:00:00Z", "2026-03-03T12:00:00Z", "2024-03-03T12:00:00Z"]
    await _tell(
        page,
        *[_message(5 + index, "now", kind="followup", at=at, asked_at=each) for index, each in enumerate(asked)],
        _message(9, "now", kind="followup", at=at),
        _message(10, "now", kind="notice", at=at),
    )
    await expect(days).to_have_text(["30 December", "Tuesday", "yesterday", "today"])
    await expect(page.locator(".label")).to_have_text(
        [
            "You asked me today at 9:15",
            "You asked me on Tuesday",
            "You asked me on 3 March",
            "You asked me on 3 March 2024",
            "Back, as promised",
            "Notice",
        ]
    )
    await page.clock.set_fixed_time(datetime(2026, 3, 13, 20, 0, tzinfo=UTC))
    await _tell(page, _message(11, "tomorrow", at="2026-03-13T20:00:00Z"))
    await expect(days).to_have_text(["30 December", "Tuesday", "Wednesday", "yesterday", "today"])


async def test_what_is_pending_is_listed_in_the_visitors_time_and_can_be_cancelled(desk: Desk) -> None:
    page = await desk.page(await desk.context(timezone_id="Asia/Tokyo"))
    button = page.get_by_role("button", name="What is pending")
    await button.click()
    await expect(page.get_by_role("heading", name="What is pending")).to_be_visible()
    await expect(page.get_by_role("region", name="What is pending")).to_contain_text("Nothing is pending.")
    await expect(button).to_have_attribute("aria-expanded", "true")
    await write(page, "Hello")  # and the conversation is there again
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    due = datetime(2027, 1, 5, 0, 30, tzinfo=UTC)
    booked = [Pending(number, about, due, "America/Bogota") for number, about in ((4, "pay the rent"), (5, "call Ana"))]
    desk.service.booked[conversation] = booked
    await button.click()
    rows = page.get_by_role("region").get_by_role("listitem")
    await expect(rows).to_have_count(2)
    await expect(rows.first.get_by_role("time")).to_have_text("Tuesday 5 January at 9:30")

    async def cancel(call: Call) -> None:
        booked.pop(0)
        await call.fulfill(json={"status": "cancelled" if booked else "raced"})

    await page.route("**/pending/*", cancel)
    await page.get_by_role("button", name="Cancel: pay the rent").click()
    await expect(rows).to_have_count(1)
    await expect(page.get_by_role("status").filter(has_text="Cancelled.")).to_be_visible()
    await expect(button).to_be_focused()
    booked.append(Pending(6, "new", due + timedelta(days=1), "Asia/Tokyo"))
    await desk.service.say(conversation, "I have booked it", "reply")
    await expect(rows).to_have_count(2)
    booked.pop()
    await page.get_by_role("button", name="Cancel: call Ana").click()
    await expect(page.get_by_role("status").filter(has_text="It is being done right now.")).to_be_visible()
    await expect(page.get_by_role("region")).to_contain_text("Nothing is pending.")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("log")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_be_visible()


async def test_rotten_words_are_shown_as_text_and_hold_nothing_up(desk: Desk) -> None:
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    rotten = [
        "x" * 100_000,
        "```a\n" * 20_000,
        "**a " * 25_000,
        "*a _b " * 16_000,
        "[" * 100_000,
        "[a](" * 25_000,
        "`" * 99_999,
        "https://" * 12_000,
        "- \n" * 30_000,
        "<script>alert(1)</script>",
        "[\u202emoc.knab//:sptth\u202c](data:text/html,hi) [ok\u202e](https://evil.example/)",
    ]
    for words in rotten:
        await desk.service.say(conversation, words, "reply")
    await expect(bubbles(page)).to_have_count(2 + len(rotten), timeout=20_000)
    last = bubbles(page).last
    assert await last.locator("a").evaluate_all("links => links.map(link => [link.textContent, link.href])") == [
        ["ok", "https://evil.example/"]
    ]
    await expect(last).to_contain_text("(evil.example)")
    await expect(bubbles(page).nth(2)).to_have_text("Assistant: " + "x" * 100_000)
    width = "panel => panel.scrollWidth <= panel.clientWidth"
    assert await page.get_by_role("dialog").evaluate(width)


async def test_a_sound_is_made_only_where_it_is_wanted_and_after_a_touch(desk: Desk) -> None:
    counting = "window.sounds = 0; OscillatorNode.prototype.start = () => { sounds += 1 };"
    for attribute, count in (("", 0), ("data-sound", 1)):
        async with desk.shop(attribute) as shop:
            context = await desk.context()
            await context.add_init_script(counting)
            page = await desk.visit(shop, context)
            await page.get_by_role("button", name="Open chat").click()
            await write(page, "Hello")
            await expect_bubbles(page, "Hello", "You said: Hello")
            assert await page.evaluate("sounds") == 0
            await page.keyboard.press("Escape")
            await desk.service.say(await desk.conversation(), "Back")
            await expect(page.locator(".badge")).to_have_text("1")
            assert await page.evaluate("sounds") == count
