"""Whose conversation it is: tabs that share it, who is verified, signing out, renewal, and what the service refuses."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import jwt
import pytest
from playwright.async_api import Page, expect
from playwright.async_api import Request as Asked
from playwright.async_api import Route as Call
from sqlalchemy import text

from tests.support.wait import eventually
from tests.web_widget.conftest import a_web_tenant
from tests.web_widget.desk import Desk, bubbles, desk, expect_bubbles, write

__all__ = ["desk"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TURN = (
    "state => { Object.defineProperty(document, 'visibilityState', {get: () => state, configurable: true});"
    "document.dispatchEvent(new Event('visibilitychange')) }"
)


SECRET = "a secret that signs who visits acme"


def a_jwt(sub: str) -> str:
    """What the tenant's own server says of its user."""
    return jwt.encode({"sub": sub, "aud": "acme", "exp": datetime.now(UTC) + timedelta(minutes=10)}, SECRET)


def takes_identities(desk: Desk, **section: Any) -> None:
    """Let acme's server prove who visits."""
    desk.service.tenants["acme"] = a_web_tenant("acme", identity={"secrets": [SECRET]}, **section)


async def _kept(page: Page) -> dict[str, Any]:
    kept: dict[str, Any] = await page.evaluate("JSON.parse(localStorage['vuelvo:acme:token'] ?? '{}')")
    return kept


async def is_known(page: Page, user: str) -> bool:
    return (await _kept(page)).get("user") == user


def _body(call: Call) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(call.request.post_data or "{}")
    return body


async def _conversations(desk: Desk) -> int:
    async with desk.service.database.transaction() as connection:
        return int((await connection.execute(text("select count(*) from conversations"))).scalar_one())


async def test_tabs_share_one_stream_and_miss_nothing_whoever_holds_it(desk: Desk) -> None:
    context = await desk.context()
    streams: set[Asked] = set()
    context.on("request", lambda call: streams.add(call) if "/stream" in call.url else None)
    for end in ("requestfinished", "requestfailed"):
        context.on(end, lambda call: streams.discard(call))
    tabs = [await desk.page(context) for _ in range(3)]
    told = ["Hello", "You said: Hello"]
    await write(tabs[0], "Hello")
    for tab in tabs:
        await expect_bubbles(tab, *told)
    conversation = await desk.conversation()
    for number in range(2):
        await desk.service.say(conversation, f"news {number}")
        told.append(f"news {number}")
        for tab in tabs:
            await expect_bubbles(tab, *told)
        assert len(streams) == 1
        for tab in tabs:  # each in its turn comes in sight, and takes the stream
            await tab.evaluate(TURN, "hidden")
            await tab.evaluate(TURN, "visible")
    # Whoever holds it leaves, and says nothing.
    await tabs.pop().close()
    await desk.service.say(conversation, "still here")
    told.append("still here")
    for tab in tabs:
        await expect_bubbles(tab, *told)
    await expect(tabs[0].locator(".visitor .state")).to_have_text("Seen")


async def test_a_tab_that_missed_something_asks_for_it(desk: Desk) -> None:
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    await write(two, "Hello")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello")
    conversation = await desk.conversation()
    deaf = "channel => { BroadcastChannel.prototype.postMessage = channel ? () => {} : window.speak }"
    for page in (one, two):
        await page.evaluate("void (window.speak = BroadcastChannel.prototype.postMessage)")
        await page.evaluate(deaf, True)
    await desk.service.say(conversation, "unheard")
    for page in (one, two):
        await page.evaluate(deaf, False)
    await desk.service.say(conversation, "heard")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello", "unheard", "heard")


async def test_two_tabs_that_send_at_once_send_all_of_it_once(desk: Desk) -> None:
    desk.service.answers = False
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    desk.wire.cut()
    for number in range(3):
        await write(one, f"one {number}")
        await write(two, f"two {number}")
    desk.wire.mend()
    for page in (one, two):
        await expect(bubbles(page)).to_have_count(6)
        await expect(page.locator(".unsent")).to_have_count(0)
    written = await desk.written()
    assert sorted(written) == [f"{name} {number}" for name in ("one", "two") for number in range(3)]
    for page in (one, two):
        await expect_bubbles(page, *written)
    assert await _conversations(desk) == 1


async def test_a_page_that_identifies_its_visitor_keeps_the_conversation_and_does_so_once(desk: Desk) -> None:
    takes_identities(desk)
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    await write(one, "Hello")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello")
    before = await _kept(one)
    asked: list[dict[str, Any]] = []

    def note(call: Asked) -> None:
        if call.method == "POST" and call.url.endswith("/sessions/identify"):
            asked.append({"body": (call.post_data_json or {})["identity"], "proof": call.headers["authorization"]})

    context.on("request", note)
    ana = a_jwt("ana@shop.example")
    await one.evaluate("jwt => vuelvo.identify(jwt)", ana)
    await one.evaluate("jwt => vuelvo.identify(jwt)", ana)
    await eventually(lambda: is_known(one, "ana@shop.example"))
    await write(one, "Again")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello", "Again", "You said: Again")
    assert asked == [{"body": ana, "proof": f"Bearer {before['token']}"}]
    kept = await _kept(one)
    assert kept["conversation"] == before["conversation"]
    assert kept["token"] != before["token"]

    await one.reload()
    await one.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana@shop.example"))
    await expect(bubbles(one)).to_have_count(4)
    assert len(asked) == 1
    bob = a_jwt("bob")
    await one.evaluate("jwt => vuelvo.identify(jwt)", bob)
    for page in (one, two):
        await expect(bubbles(page)).to_have_count(0)  # what Ana said is not for Bob
    assert [each["body"] for each in asked] == [ana, bob]


async def test_an_identity_opens_the_session_where_there_is_none(desk: Desk) -> None:
    ana = a_jwt("ana")
    async with desk.shop(f'data-identity="{ana}"') as shop:
        takes_identities(desk, origins=(shop,))
        page = await desk.page(path="/widget/nobody")
        async with page.expect_request("**/sessions") as opened:
            await page.goto(shop)
        asked = (await opened.value).post_data_json
        assert asked is not None
        assert asked["identity"] == ana
        await page.get_by_role("button", name="Open chat").click()
        await write(page, "Hello")
        await expect_bubbles(page, "Hello", "You said: Hello")
        assert await _conversations(desk) == 1
        assert await is_known(page, "ana")


async def test_signing_out_forgets_it_in_every_tab(desk: Desk) -> None:
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    await write(one, "Hello")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello")
    token = (await _kept(one))["token"]
    async with one.expect_request(lambda call: call.method == "DELETE") as told:
        await one.evaluate("vuelvo.forget()")
    assert (await told.value).headers["authorization"] == f"Bearer {token}"
    for page in (one, two):
        await expect(bubbles(page)).to_have_count(0)
    assert await one.evaluate("Object.keys(localStorage)") == []
    await write(two, "Somebody else")
    for page in (one, two):
        await expect_bubbles(page, "Somebody else", "You said: Somebody else")
    assert await _conversations(desk) == 2


async def test_a_token_is_renewed_when_its_time_has_come_and_nothing_is_read_again(desk: Desk) -> None:
    context = await desk.context()
    one, two = await desk.page(context), await desk.page(context)
    renewed: list[str] = []

    async def rotate(call: Call) -> None:
        renewed.append(call.request.headers["authorization"])
        token = f"renewed-{len(renewed)}"
        row = "jsonb_populate_record(s, jsonb_build_object('token_hash', cast(:hash as text)))"
        async with desk.service.database.transaction() as connection:
            statement = f"insert into web_sessions select ({row}).* from web_sessions s limit 1"
            await connection.execute(text(statement), {"hash": f"\\x{sha256(token.encode()).hexdigest()}"})
        await call.fulfill(status=201, json={"token": token, "rotate_after": 86400})

    await context.route("**/sessions/rotate", rotate)
    await write(one, "Hello")
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello")
    assert renewed == []
    kept = await _kept(one)
    assert kept["renew"] > datetime.now(UTC).timestamp() * 1000 + 80_000_000
    for page in (one, two):
        await page.evaluate("kept => { localStorage['vuelvo:acme:token'] = JSON.stringify({...kept, renew: 1}) }", kept)
    for page in (one, two):
        await page.reload()
    for page in (one, two):
        await expect_bubbles(page, "Hello", "You said: Hello")
    await desk.service.say(await desk.conversation(), "Back")
    for page in (one, two):
        await expect(bubbles(page)).to_have_count(3)
    assert renewed == [f"Bearer {kept['token']}"]
    assert (await _kept(one))["token"] == "renewed-1"


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (403, "identity-required", "Please sign in to chat."),
        (403, "origin-refused", "This chat cannot be used on this page."),
        (404, "about:blank", "This chat is closed at the moment."),
    ],
)
async def test_who_is_refused_is_told_why_and_nothing_written_is_lost(
    desk: Desk, status: int, kind: str, sentence: str
) -> None:
    page = await desk.page()

    async def refuse(call: Call) -> None:
        await call.fulfill(status=status, json={"type": kind, "title": "no"}, content_type="application/problem+json")

    await page.evaluate("window.refused = []; void vuelvo.on('refused', detail => refused.push(detail))")
    await page.route("**/sessions", refuse)
    await write(page, "Hello")
    await expect(page.get_by_role("status").filter(has_text=sentence)).to_be_visible()
    await expect(page.locator(".unsent .state")).to_have_text("Not sent yet")
    assert await page.evaluate("refused") == [{"type": kind}]
    await page.unroute("**/sessions")
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await expect_bubbles(page, "Hello", "You said: Hello")
    await expect(page.get_by_text(sentence)).to_be_hidden()
    assert await desk.written() == ["Hello"]


async def test_an_identity_that_is_refused_is_not_tried_for_ever_and_the_visitor_may_write_without(desk: Desk) -> None:
    page = await desk.page()
    asked = 0

    async def refuse(call: Call) -> None:
        nonlocal asked
        if "identity" not in _body(call):
            return await call.continue_()
        asked += 1
        problem = {"type": "identity-invalid", "title": "no"}
        return await call.fulfill(status=401, json=problem, content_type="application/problem+json")

    await page.route("**/sessions", refuse)
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await expect(page.get_by_role("status").filter(has_text="Please sign in again.")).to_be_visible()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    assert asked == 1


async def test_words_that_could_not_be_sent_are_not_said_by_the_next_user_of_the_same_page(desk: Desk) -> None:
    takes_identities(desk)
    page = await desk.page()
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await eventually(lambda: is_known(page, "ana"))
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    desk.wire.cut()
    await write(page, "a word of Ana's")
    await expect(page.locator(".unsent")).to_have_count(1)
    # Her session ends, and Bob signs in where nobody has called forget().
    async with desk.service.database.transaction() as connection:
        await connection.execute(text("update web_sessions set ends_at = now()"))
    desk.wire.mend()
    await page.reload()
    await expect(page.get_by_text("The earlier conversation is no longer available.")).to_be_visible()
    await expect(page.locator(".unsent .state")).to_have_text("Not sent yet")
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("bob"))
    await write(page, "I am Bob")
    await expect_bubbles(page, "I am Bob", "You said: I am Bob")
    await expect(page.get_by_text("a word of Ana's")).to_have_count(0)
    assert await desk.written() == ["I am Bob"]
    # She comes back, and it is there and sent.
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await expect_bubbles(page, "Hello", "You said: Hello", "a word of Ana's", "You said: a word of Ana's")
    assert await page.evaluate("localStorage['vuelvo:acme:unsent'] ?? '[]'") == "[]"


async def test_a_visitors_words_that_could_not_be_sent_are_said_by_the_user_they_turn_out_to_be(desk: Desk) -> None:
    takes_identities(desk)
    page = await desk.page()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    desk.wire.cut()
    await write(page, "Later")
    await page.evaluate("jwt => vuelvo.identify(jwt)", a_jwt("ana"))
    await expect(page.locator(".unsent")).to_have_count(1)
    desk.wire.mend()
    await expect_bubbles(page, "Hello", "You said: Hello", "Later", "You said: Later")
    await eventually(lambda: is_known(page, "ana"))


@pytest.mark.parametrize("nobody", ["undefined", "null", "''"])
async def test_a_page_that_identifies_nobody_is_told_so_and_opens_nothing(desk: Desk, nobody: str) -> None:
    page = await desk.page()
    await page.evaluate("window.refused = []; void vuelvo.on('refused', detail => refused.push(detail))")
    await page.evaluate(f"vuelvo.identify({nobody})")
    await expect(page.get_by_role("status").filter(has_text="Please sign in again.")).to_be_visible()
    assert await page.evaluate("refused") == [{"type": "identity-invalid"}]
    assert await _conversations(desk) == 0


@pytest.mark.parametrize("kept", ['{"token": {"a": 1}}', "5", "null", "rubbish", '{"token": null}'])
async def test_rubbish_for_a_session_is_a_session_lost(desk: Desk, kept: str) -> None:
    page = await desk.page()
    await page.evaluate("kept => { localStorage['vuelvo:acme:token'] = kept }", kept)
    await page.reload()
    await write(page, "Hello")
    await expect_bubbles(page, "Hello", "You said: Hello")
    assert await _conversations(desk) == 1


async def test_too_much_at_once_is_sent_when_the_service_says_so(desk: Desk) -> None:
    page = await (await desk.context()).new_page()
    await page.clock.install()
    await page.goto(desk.url)
    refusals = 0

    async def refuse(call: Call) -> None:
        nonlocal refusals
        if call.request.method != "POST" or refusals:
            return await call.fallback()
        refusals += 1
        return await call.fulfill(
            status=429,
            json={"type": "too-many", "title": "no"},
            headers={"Retry-After": "20", "Content-Type": "application/problem+json"},
        )

    await page.route("**/messages", refuse)
    await write(page, "Hello")
    await expect(page.get_by_text("That was a lot at once.")).to_be_visible()
    await page.clock.run_for(19_000)
    await expect(page.locator(".unsent")).to_have_count(1)
    await page.clock.run_for(2_000)
    await expect_bubbles(page, "Hello", "You said: Hello")
    await expect(page.get_by_text("That was a lot at once.")).to_be_hidden()
    assert (refusals, await desk.written()) == (1, ["Hello"])
