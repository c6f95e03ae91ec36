"""Guards as data: what must hold for a follow-up or a notice to be said."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.signing import verify_webhook
from app.wiring import apply_tenants
from scheduler.book import Booking, book
from scheduler.clock import MovableClock
from scheduler.find import Found
from scheduler.poller import DUE
from scheduler.put_off import LONGEST
from store.database import Database
from tests.app.test_called import CONFIG, SECRET, Shop, a_shop
from tests.support.elsewhere import answer
from tests.support.house import a_config

HOUR = timedelta(hours=1)
YES, NO, DOWN = answer(200, b'{"proceed": true}'), answer(200, b'{"proceed": false}'), answer(503, b"hunter2")


@dataclass
class Asked:
    """A shop whose server is asked, and one conversation."""

    shop: Shop
    conversation: int

    async def books(self, **guard: str) -> int:
        booked = await self.tries(**guard)
        assert booked.status_code == 202
        return int(booked.json()["id"])

    async def tries(self, **guard: str) -> Any:
        body = {
            "conversation": self.conversation,
            "about": "call Ana",
            "in": "1h",
            "subject": "ana",
            "guards": [{"guard": "call", "function": "/check-cart", **guard}],
        }
        return await self.shop.server.call("/v1/followups", body)

    async def ends(self, task: int, state: str, after: timedelta = HOUR) -> Found:
        await self.shop.server.fires(after)
        return await self.shop.server.house.until_state(task, state)

    @property
    def times(self) -> int:
        return len(self.shop.there.requests)


@pytest.fixture
async def asked(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Asked]:
    async with a_shop(database, tmp_path, clock) as shop:
        house = shop.server.house
        conversation = (await house.says("hello")).conversation
        await house.until_heard(conversation, 1)
        yield Asked(shop, conversation)


async def test_a_follow_up_is_said_when_the_tenants_server_tells_to_proceed(asked: Asked) -> None:
    asked.shop.there.answers = [YES]
    task = await asked.books()
    assert (await asked.ends(task, "fired")).outcome == "delivered"
    (request,) = asked.shop.there.requests
    shown = await asked.shop.server.get(f"/v1/tasks/{task}")
    assert json.loads(request.body) == {
        "task": task,
        "kind": "followup",
        "key": None,
        "subject": "ana",
        "conversation": asked.conversation,
        "channel": "web",
        "scheduled_at": shown["scheduled_at"],
        "about": "call Ana",
    }
    assert (verify_webhook("standard", request.body, request.headers, SECRET).id or "").startswith("guard:")


async def test_it_is_skipped_when_the_tenants_server_says_no_and_nothing_is_written(asked: Asked) -> None:
    asked.shop.there.answers = [NO]
    task, house = await asked.books(), asked.shop.server.house
    assert (await asked.ends(task, "fired")).outcome == "skipped: call"
    assert len(await house.heard(asked.conversation)) == 1
    async with house.service.database.transaction() as connection:
        assert await connection.scalar(text("select text from tasks where id = :id"), {"id": task}) is None


async def test_it_is_put_off_while_nothing_is_said_and_then_said_once(asked: Asked) -> None:
    asked.shop.there.answers = [DOWN]
    task = await asked.books()
    await asked.shop.server.fires(HOUR)
    await asked.shop.comes_again(task)
    found = await asked.shop.server.house.until_state(task, "scheduled")
    assert (found.error, found.attempt) == ("whether to proceed, /check-cart did not say: it answered 503", 0)
    asked.shop.there.answers = [YES]
    assert (await asked.ends(task, "fired", LONGEST)).outcome == "delivered"
    assert len(await asked.shop.server.house.heard(asked.conversation)) == 2


async def test_what_is_said_late_is_asked_about_again_before_it_is_said(asked: Asked) -> None:
    asked.shop.there.answers = [DOWN]
    task = await asked.books()
    await asked.shop.server.fires(HOUR)
    await asked.shop.server.house.until_state(task, "scheduled")
    asked.shop.there.answers = [YES, NO]
    before = asked.times
    assert (await asked.ends(task, "fired", HOUR)).outcome == "skipped: call"
    assert asked.times == before + 2


async def test_it_expires_when_nothing_is_said_for_a_day(asked: Asked) -> None:
    asked.shop.there.answers = [DOWN]
    task = await asked.books()
    await asked.shop.server.fires(HOUR)
    await asked.shop.comes_again(task)
    assert (await asked.ends(task, "expired", timedelta(days=1))).outcome is None


@pytest.mark.parametrize(("policy", "outcome"), [("skip", "skipped: call"), ("send", "delivered")])
async def test_a_guard_says_what_to_do_when_it_is_not_known(asked: Asked, policy: str, outcome: str) -> None:
    asked.shop.there.answers = [DOWN]
    assert (await asked.ends(await asked.books(if_unknown=policy), "fired")).outcome == outcome
    assert asked.times == 1


async def test_once_it_may_be_said_it_does_not_expire_because_it_was_put_off_before(asked: Asked) -> None:
    asked.shop.there.answers = [DOWN]
    task, house = await asked.books(), asked.shop.server.house
    await asked.shop.server.fires(HOUR)
    await asked.shop.comes_again(task)
    assert await _expires_at(asked, task) is not None
    asked.shop.there.answers = [YES]
    assert (await asked.ends(task, "fired", LONGEST)).outcome == "delivered"
    assert await _expires_at(asked, task) is None
    assert len(await house.heard(asked.conversation)) == 2


async def _expires_at(asked: Asked, task: int) -> Any:
    async with asked.shop.server.house.service.database.transaction() as connection:
        return await connection.scalar(text("select expires_at from tasks where id = :id"), {"id": task})


async def test_several_servers_are_asked_at_once(asked: Asked) -> None:
    """So that a customer who writes meanwhile waits for one answer, and not for five."""
    both, asks = asyncio.Event(), 0

    async def with_the_other(writer: asyncio.StreamWriter) -> None:
        nonlocal asks
        asks += 1
        if asks == 2:
            both.set()
        await both.wait()
        writer.write(YES)

    asked.shop.there.answers = [with_the_other]
    guards = [
        {"guard": "call", "function": "/check-cart"},
        {"guard": "no reply since"},
        {"guard": "call", "function": "/stop"},
    ]
    body = {"conversation": asked.conversation, "about": "call Ana", "in": "1h", "guards": guards}
    task = (await asked.shop.server.call("/v1/followups", body)).json()["id"]
    assert (await asked.ends(task, "fired")).outcome == "delivered"
    assert asked.times == 2


async def test_a_function_that_is_taken_out_of_the_file_says_neither_yes_nor_no(asked: Asked) -> None:
    task, house = await asked.books(if_unknown="skip"), asked.shop.server.house
    await apply_tenants(house.service, [a_config("acme", **{**CONFIG, "functions": {}})])
    house.service._tenants.clear()
    assert (await asked.ends(task, "fired")).outcome == "skipped: call"
    assert asked.times == 0


async def test_what_cannot_be_asked_is_refused_when_it_is_booked(asked: Asked) -> None:
    refused = await asked.tries(function="/nowhere")
    assert refused.status_code == 422
    assert "there are: /check-cart, /slow, /stop" in refused.json()["detail"]
    for wrong in ({"function": "https://shop.example"}, {"if_unknown": "hope"}, {"url": "https://shop.example"}):
        assert (await asked.tries(**wrong)).status_code == 422


async def test_a_notice_has_guards_too(asked: Asked) -> None:
    asked.shop.there.answers = [NO]
    house = asked.shop.server.house
    notice = Booking(
        "acme",
        "notice",
        timedelta(),
        asked.conversation,
        "web",
        payload={"words": "Your policy ends.", "guards": [{"guard": "call", "function": "/check-cart"}]},
        lane=True,
    )
    async with house.service.database.transaction() as connection:
        booked = await book(connection, house.service.clock, notice)
    house.service.signals.hint(DUE)
    assert (await house.until_state(booked.id, "fired")).outcome == "skipped: call"
