"""The widget on pages that forbid nearly everything, and how much of it a browser fetches."""

from collections import Counter
from urllib.parse import urlsplit

import pytest
from playwright.async_api import FrameLocator, Page, Response, expect

from tests.web_widget.shop import Shop, shop

__all__ = ["shop"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

STRICT = "default-src 'none'; script-src {host}; connect-src {host}; require-trusted-types-for 'script'; trusted-types vuelvo"
BEFORE_THE_FIRST_CLICK = 2 * 1024
IN_ALL = 12 * 1024
"""Bytes of scripts as they come over the line."""


async def _talk(shop: Shop, page: Page, place: Page | FrameLocator, panel: Page | FrameLocator) -> None:
    """Do what visitors do: open, write, be answered, close, be told, and come back."""
    launcher = place.get_by_role("button", name="Open chat")
    await launcher.click()
    field = panel.get_by_role("textbox", name="Write a message")
    await field.fill("Hello")
    await field.press("Enter")
    said = panel.get_by_role("log").locator("li")
    await expect(said.filter(has_text="You said: Hello")).to_be_visible()
    conversation = await shop.conversation()
    shop.service.signals.hint(f"typing {conversation}")
    words = "**Call** [Ana](https://shop.example/ana)\n- `now`\n```\n<img src=x onerror=alert(1)>\n```"
    await shop.service.say(conversation, words)
    await expect(said.filter(has_text="onerror")).to_be_visible()
    await field.press("Escape")
    await expect(field).to_be_hidden()
    await shop.service.say(conversation, "Back")
    await expect(place.get_by_role("button", name="1 unread message")).to_be_visible()
    await page.reload()
    await place.get_by_role("button", name="Open chat").click()
    await expect(said.filter(has_text="Back").last).to_be_visible()


@pytest.mark.parametrize("attributes", ["", "data-open", "data-sound"])
async def test_where_only_our_host_is_allowed_everything_works(shop: Shop, attributes: str) -> None:
    shop.build(attributes, policy=STRICT.format(host=shop.host))
    page = await shop.visit()
    if attributes == "data-open":
        await page.get_by_role("dialog").get_by_role("button", name="Close chat").click()
        await expect(page.get_by_role("dialog")).to_be_hidden()
        shop.build(policy=STRICT.format(host=shop.host))
    await _talk(shop, page, page, page)


async def test_in_a_frame_with_a_sandbox_everything_works(shop: Shop) -> None:
    shop.build(policy=STRICT.format(host=shop.host))
    page = await shop.visit(path="framed")
    frame = page.frame_locator("iframe")
    await _talk(shop, page, frame, frame)


async def test_isolated_in_a_frame_of_its_own_everything_works(shop: Shop) -> None:
    shop.build("data-isolate", policy=f"{STRICT.format(host=shop.host)}; frame-src {shop.host}")
    page = await shop.visit()
    await _talk(shop, page, page, page.frame_locator("iframe"))
    assert await page.evaluate("Object.keys(localStorage).filter((key) => /token|unsent/.test(key))") == []


async def test_a_page_that_forbids_our_host_is_not_harmed(shop: Shop) -> None:
    shop.build(policy="default-src 'none'")
    page = await shop.visit()
    await expect(page.get_by_role("heading", name="The shop")).to_be_visible()
    assert await page.evaluate("document.body.children.length") == 1
    assert [each.partition(" ")[0] for each in shop.complaints] == ["script-src-elem"]
    shop.complaints.clear()


async def test_so_much_is_fetched_and_from_nobody_else(shop: Shop) -> None:
    fetched: list[Response] = []
    context = await shop.context()
    context.on("response", lambda response: fetched.append(response))
    page = await shop.visit(context)
    await expect(page.get_by_role("button", name="Open chat")).to_be_visible()
    await page.wait_for_load_state("networkidle")
    assert await _scripts(fetched) < BEFORE_THE_FIRST_CLICK
    await _talk(shop, page, page, page)
    await page.wait_for_load_state("load")
    once = {response.url: response for response in fetched}
    assert await _scripts(list(once.values())) < IN_ALL
    assert {_site(response.url) for response in fetched if _site(response.url)} == {_site(shop.url), _site(shop.host)}
    kinds = Counter(response.request.resource_type for response in fetched)
    assert set(kinds) == {"document", "script", "fetch"}  # no style sheet, image or font


async def _scripts(fetched: list[Response]) -> int:
    scripts = [response for response in fetched if response.request.resource_type == "script"]
    return sum([(await response.request.sizes())["responseBodySize"] for response in scripts])


def _site(url: str) -> str:
    return urlsplit(url).netloc
