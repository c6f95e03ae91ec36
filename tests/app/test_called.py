"""Functions elsewhere: an address of a tenant's, booked and called as a function here, and guards that are asked."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.called import Unknown, call_guard
from app.context import Context
from app.deferred import CALLED
from app.signing import verify_webhook
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from scheduler.operate import retry
from scheduler.poller import DUE
from scheduler.put_off import LONGEST
from store.database import Database
from tests.app.test_functions import Server, a_key, serving
from tests.support.elsewhere import Elsewhere, answer, elsewhere
from tests.support.house import a_config
from tests.support.wait import eventually

URL = "https://shop.example/vuelvo/check-cart"
SECRET, OLD = ("whsec_" + base64.b64encode(bytes([letter]) * 32).decode() for letter in b"ab")
CONFIG = {
    "functions": {"/check-cart": {"url": URL}, "/stop": {"url": URL}, "/slow": {"url": URL, "timeout": "1s"}},
    "calls": {"secret": SECRET},
}
CART = {"user": "ana", "cart": "c1", "words": "ñandú"}
MINUTE = timedelta(minutes=1)


@dataclass
class Shop:
    """A tenant's server that calls us, and its function elsewhere that we call."""

    server: Server
    there: Elsewhere

    async def books(self, path: str = "/check-cart") -> int:
        booked = await self.server.call(f"/v1/functions{path}", CART, vuelvo_schedule_in="1m")
        assert booked.status_code == 202
        return int(booked.json()["id"])

    async def ends(self, task: int, state: str) -> Any:
        """Let the minute go by for which it is booked, and return the task when it has come to a state."""
        await self.server.fires(MINUTE)
        await self.server.house.until_state(task, state)
        return await self.server.get(f"/v1/tasks/{task}")

    async def comes_back(self, task: int) -> Any:
        """Let the minute go by, and return the task when an attempt at it has been made that is to be made again."""
        await self.server.fires(MINUTE)

        async def is_back() -> bool:
            told = await self.server.get(f"/v1/tasks/{task}")
            return told["status"] == "scheduled" and told["error"] is not None

        await eventually(is_back)
        return await self.server.get(f"/v1/tasks/{task}")

    async def comes_again(self, task: int) -> None:
        """Let the pause go by, no longer, and return when the next attempt has been made."""
        asked = len(self.there.requests)
        waits = await self.server.house.until_state(task, "scheduled")
        await self.server.fires(waits.due_at - self.server.clock.at)
        await eventually(lambda: len(self.there.requests) > asked)

        async def is_back() -> bool:
            told = await self.server.get(f"/v1/tasks/{task}")
            return bool(told["status"] != "firing")

        await eventually(is_back)


@asynccontextmanager
async def a_shop(database: Database, directory: Path, clock: MovableClock, **config: Any) -> AsyncIterator[Shop]:
    async with elsewhere(directory) as there:
        told = {**CONFIG, **config}
        async with serving(database, directory, clock, outside=there.outside(), config=told) as server:
            yield Shop(server, there)


@pytest.fixture
async def shop(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Shop]:
    async with a_shop(database, tmp_path, clock) as shop:
        yield shop


async def test_a_run_of_a_function_elsewhere_is_a_signed_post_of_its_payload(shop: Shop) -> None:
    shop.there.answers = [answer(200, b'{"paid": true}')]
    task = await shop.books()
    told = await shop.ends(task, "fired")
    assert (told["outcome"], told["result"], told["function"]) == ("done", {"paid": True}, "/check-cart")
    (request,) = shop.there.requests
    assert request.line == "POST /vuelvo/check-cart HTTP/1.1"
    assert json.loads(request.body) == CART
    assert request.headers["content-type"] == "application/json"
    assert verify_webhook("standard", request.body, request.headers, SECRET).id == f"run:{task}"
    headers = {name: value for name, value in request.headers.items() if name.startswith("vuelvo-")}
    assert headers == {
        "vuelvo-task": str(task),
        "vuelvo-scheduled-at": told["scheduled_at"],
    }


async def test_any_worker_can_call_an_address(shop: Shop) -> None:
    task = await shop.books()
    found = await shop.server.house.until_state(task, "scheduled")
    assert found.needs == CALLED


async def test_another_functions_booking_calls_it_too(shop: Shop) -> None:
    functions = shop.server.house.run.functions
    tenant = a_config("acme", **CONFIG)
    booking = await Context("acme", "/x", "call:1", functions.booker(tenant)).schedule(
        in_="1m", path="/check-cart", payload=[1, 2]
    )
    await shop.ends(booking.id, "fired")
    assert shop.there.requests[0].body == b"[1, 2]"


@pytest.mark.parametrize("wire", [answer(200, b"fine"), answer(204, b""), answer(202, b"null"), answer(200, b"")])
async def test_what_is_done_without_json_is_done_without_a_result(shop: Shop, wire: bytes) -> None:
    shop.there.answers = [wire]
    told = await shop.ends(await shop.books(), "fired")
    assert (told["outcome"], told["result"]) == ("done", None)


@pytest.mark.parametrize("status", [409, 410])
async def test_what_is_not_wanted_any_more_is_skipped(shop: Shop, status: int) -> None:
    shop.there.answers = [answer(status, b'{"why": "hunter2"}')]
    told = await shop.ends(await shop.books(), "fired")
    assert (told["outcome"], told["attempt"]) == (f"skipped: the function answered {status}", 1)


async def test_a_check_elsewhere_that_says_no_is_named_as_one_here_is(shop: Shop) -> None:
    shop.there.answers = [answer(200, b'{"skipped": "not paid yet"}')]
    assert (await shop.ends(await shop.books(), "fired"))["outcome"] == "skipped: not paid yet"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "the function answered 400"),
        (401, "the function answered 401"),
        (404, "the function answered 404"),
        (302, "the function answered 302, which is not followed: write where it leads as its url"),
    ],
)
async def test_any_other_answer_fails_the_run_at_once_and_in_words(shop: Shop, status: int, words: str) -> None:
    shop.there.answers = [answer(status, b"hunter2", location="https://127.0.0.1/")]
    told = await shop.ends(await shop.books(), "failed")
    assert (told["error"], told["attempt"], len(shop.there.requests)) == (words, 1, 1)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_may_do_better_later_is_tried_again_under_the_same_id(shop: Shop, status: int) -> None:
    shop.there.answers = [answer(status, b"hunter2"), answer(200, b"7")]
    task = await shop.books()
    told = await shop.comes_back(task)
    assert told["error"] == f"the function answered {status}"
    await shop.server.fires(MINUTE)
    await shop.server.house.until_state(task, "fired")
    first, second = shop.there.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == f"run:{task}"
    assert [one.headers["vuelvo-scheduled-at"] for one in (first, second)] == [told["scheduled_at"]] * 2
    assert verify_webhook("standard", second.body, second.headers, SECRET).id == f"run:{task}"


async def test_no_call_is_made_before_a_retry_after_is_over(shop: Shop) -> None:
    shop.there.answers = [answer(503, b"", retry_after="3600"), answer(200, b"7")]
    task = await shop.books()
    await shop.comes_back(task)
    found = await shop.server.house.until_state(task, "scheduled")
    assert found.due_at == shop.server.clock.at + timedelta(hours=1)
    await shop.server.fires(timedelta(hours=1))
    await shop.server.house.until_state(task, "fired")
    assert len(shop.there.requests) == 2


async def test_a_server_that_is_down_for_hours_is_called_when_it_is_back(shop: Shop) -> None:
    shop.there.answers = [answer(500, b"")]
    task = await shop.books()
    await shop.comes_back(task)
    down = shop.server.clock.at + timedelta(hours=5)
    while shop.server.clock.at < down:
        await shop.comes_again(task)
    asked = len(shop.there.requests)
    assert 30 < asked < 110, "with pauses that grow, to ten minutes at most"
    shop.there.answers = [answer(200, b"7")]
    await shop.server.fires(LONGEST)
    await shop.server.house.until_state(task, "fired")
    assert len(shop.there.requests) == asked + 1


async def test_after_a_day_a_run_that_nobody_answers_has_failed_and_retried_it_has_another(shop: Shop) -> None:
    shop.there.answers = [answer(500, b""), answer(500, b"")]
    task = await shop.books()
    began = await shop.comes_back(task)
    shop.there.answers = [answer(500, b"", retry_after="86400")]
    await shop.comes_again(task)
    await shop.server.fires(timedelta(days=1))
    await shop.server.house.until_state(task, "failed")
    assert (await shop.server.get(f"/v1/tasks/{task}"))["error"] == began["error"] == "the function answered 500"
    shop.there.answers = [answer(500, b""), answer(200, b"7")]
    house, asked = shop.server.house, len(shop.there.requests)
    async with house.service.database.transaction() as connection:
        assert await retry(connection, house.service.clock, "acme", task, "Ana")
    house.service.signals.hint(DUE)
    await eventually(lambda: len(shop.there.requests) > asked)
    await house.until_state(task, "scheduled")
    await shop.comes_again(task)
    await house.until_state(task, "fired")


async def test_one_that_does_not_answer_or_takes_no_connection_is_tried_again(shop: Shop) -> None:
    async def never(writer: object) -> None:
        pass

    shop.there.answers = [never]
    told = await shop.comes_back(await shop.books("/slow"))
    assert told["error"] == "it did not answer within 1 seconds"
    shop.there.addresses = [["127.0.0.2"]]
    told = await shop.comes_back(await shop.books())
    assert told["error"] == "no connection could be made to it"


async def test_an_address_that_leads_inside_fails_the_run(shop: Shop) -> None:
    shop.there.addresses = [["169.254.169.254"]]
    task = await shop.books()
    await shop.server.fires(MINUTE)
    found = await shop.server.house.until_state(task, "failed")
    assert found.error == "its host leads to an address inside, which is not called"
    assert (await shop.server.call("/v1/functions/check-cart", CART)).status_code == 502


@pytest.mark.parametrize(
    "body",
    [
        b'{"skipped": "\\u0000"}',
        b'{"skipped": "\\ud800"}',
        b'"\\ud800"',
        b'"\\u0000"',
        b"NaN",
        b"1e999",
        b"[" * 60_000,
        b"9" * 60_000,
        b"\xff\xfe",
        b'"' + b"x" * 100_000 + b'"',
        b'{"a": ' + b'"' + b"\\u00f1" * 9_000 + b'"}',
    ],
)
async def test_whatever_is_answered_a_run_that_is_done_ends_and_so_does_the_next(shop: Shop, body: bytes) -> None:
    shop.there.answers = [answer(200, body), answer(200, b"7")]
    first, second = await shop.books(), await shop.books()
    await shop.ends(first, "fired")
    await shop.server.house.until_state(second, "fired")
    told = [await shop.server.get(f"/v1/tasks/{task}") for task in (first, second)]
    assert [one["outcome"] for one in told] == ["done", "done"]
    assert 7 in [one["result"] for one in told]


async def test_the_tenants_own_function_comes_before_the_applications(shop: Shop) -> None:
    shop.there.answers = [answer(200, b'"from elsewhere"')]
    assert (await shop.server.call("/v1/functions/stop", CART)).json() == "from elsewhere"


async def test_a_function_elsewhere_is_its_tenants_alone(shop: Shop, database: Database) -> None:
    house = shop.server.house
    await apply_tenants(house.service, [a_config("globex")])
    theirs = Server(house, shop.server.http, await a_key(database, "globex"), shop.server.shop, shop.server.clock)
    for headers in ({}, {"vuelvo_schedule_in": "1m"}):
        refused = await theirs.call("/v1/functions/check-cart", CART, **headers)
        assert (refused.status_code, "/check-cart," in refused.json()["detail"]) == (404, False)
    assert "/check-cart" in (await shop.server.call("/v1/functions/nowhere", CART)).json()["detail"]
    assert shop.there.requests == []


async def test_a_function_that_is_taken_out_of_the_file_fails_what_is_booked_of_it(shop: Shop) -> None:
    task = await shop.books()
    changed = await apply_tenants(shop.server.house.service, [a_config("acme")])
    assert changed == {"acme": ["no longer calls /check-cart, /slow, /stop elsewhere"]}
    shop.server.house.service._tenants.clear()
    await shop.server.fires(MINUTE)
    found = await shop.server.house.until_state(task, "failed")
    assert "there is no function at '/check-cart'" in (found.error or "")


async def test_what_was_booked_of_a_function_here_is_called_where_it_has_gone(shop: Shop) -> None:
    """No worker may have a function of that path any more."""
    server = shop.server
    booked = await server.call("/v1/functions/nested/path.v2", CART, vuelvo_schedule_in="1m")
    moved = {**CONFIG, "functions": {"/nested/path.v2": {"url": URL}}}
    await apply_tenants(server.house.service, [a_config("acme", **moved)])
    server.house.service._tenants.clear()
    del server.shop.app.functions["/nested/path.v2"]
    await shop.ends(booked.json()["id"], "fired")
    assert json.loads(shop.there.requests[0].body) == CART


async def test_called_at_once_it_is_called_now_and_its_answer_given(shop: Shop) -> None:
    shop.there.answers = [answer(200, b'{"paid": [1, null]}')]
    called = await shop.server.call("/v1/functions/check-cart", CART)
    assert (called.status_code, called.json()) == (200, {"paid": [1, None]})
    (request,) = shop.there.requests
    assert (verify_webhook("standard", request.body, request.headers, SECRET).id or "").startswith("call:")
    assert [name for name in request.headers if name.startswith("vuelvo-")] == []
    assert (await shop.server.get("/v1/tasks"))["total"] == 0


@pytest.mark.parametrize("body", [b"fine", b'"\\u0000"', b'"\\ud800"', b"NaN", b"[" * 60_000])
async def test_what_is_no_json_that_can_be_given_on_is_given_as_none(shop: Shop, body: bytes) -> None:
    shop.there.answers = [answer(200, body)]
    called = await shop.server.call("/v1/functions/check-cart", CART)
    assert (called.status_code, called.json()) == (200, None)


@pytest.mark.parametrize(
    ("wire", "status", "words"),
    [
        (answer(500, b"hunter2"), 502, "the function answered 500."),
        (answer(429, b"hunter2"), 502, "the function answered 429."),
        (answer(404, b"hunter2"), 502, "the function answered 404."),
        (answer(302, b"hunter2"), 502, "the function answered 302, which is not followed"),
        (answer(200, b"hunter2" * 10_000), 502, "has done its work, but its answer is larger than 65,536 bytes."),
        (answer(200, b"hunter2", content_encoding="gzip"), 502, "has done its work, but its answer is compressed"),
        (b"hunter2\r\n\r\n", 502, "the connection broke"),
    ],
)
async def test_what_goes_wrong_at_once_is_told_in_our_words(shop: Shop, wire: bytes, status: int, words: str) -> None:
    shop.there.answers = [wire]
    refused = await shop.server.call("/v1/functions/check-cart", CART)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
    assert words in refused.json()["detail"]
    assert "hunter2" not in refused.text
    assert "shop.example" not in refused.text


async def test_one_that_takes_too_long_at_once_is_a_504(shop: Shop) -> None:
    async def never(writer: object) -> None:
        pass

    shop.there.answers = [never]
    refused = await shop.server.call("/v1/functions/slow", CART)
    assert (refused.status_code, "within 1 seconds" in refused.json()["detail"]) == (504, True)


async def test_a_skip_at_once_is_an_answer(shop: Shop) -> None:
    shop.there.answers = [answer(410, b"")]
    called = await shop.server.call("/v1/functions/check-cart", CART)
    assert (called.status_code, called.json()) == (200, {"skipped": "the function answered 410"})


async def test_while_the_secret_is_changed_either_proves_a_call(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with a_shop(database, tmp_path, clock, calls={"secret": SECRET, "previous_secret": OLD}) as shop:
        await shop.server.call("/v1/functions/check-cart", CART)
        (request,) = shop.there.requests
        for secret in (SECRET, OLD):
            assert verify_webhook("standard", request.body, request.headers, secret).at is not None


async def test_nothing_is_called_unsigned(database: Database, tmp_path: Path, clock: MovableClock) -> None:
    async with a_shop(database, tmp_path, clock, calls=None) as shop:
        refused = await shop.server.call("/v1/functions/check-cart", CART)
        assert (refused.status_code, "calls.secret" in refused.json()["detail"]) == (502, True)
        assert shop.there.names == []


async def test_no_log_tells_an_address_a_payload_or_an_answer(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shop.there.answers = [answer(503, b"hunter2"), answer(200, b"hunter2" * 10_000)]
    task = await shop.books()
    await shop.comes_back(task)
    await shop.server.fires(MINUTE)
    await shop.server.house.until_state(task, "fired")
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "the function answered 503" in told
    assert "larger than 65,536 bytes" in told
    assert not any(word in told for word in ("hunter2", "shop.example", "ñandú", SECRET))


TENANT = a_config("acme", **CONFIG)


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (answer(200, b'{"proceed": true}'), True),
        (answer(200, b'{"proceed": false}'), False),
        (answer(202, b'{"proceed": false, "because": "paid"}'), False),
    ],
)
async def test_a_guard_elsewhere_says_yes_or_no(tmp_path: Path, wire: bytes, said: bool) -> None:
    async with elsewhere(tmp_path) as there:
        there.answers = [wire]
        outside = there.outside()
        assert await call_guard(outside, TENANT, URL, {"cart": "c1"}) is said
        outside.close()
        (request,) = there.requests
        assert json.loads(request.body) == {"cart": "c1"}
        assert (verify_webhook("standard", request.body, request.headers, SECRET).id or "").startswith("guard:")


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        *((answer(200, body), "it did not answer") for body in (b"", b"true", b"yes", b"{}", b"[]", b"null")),
        *((answer(200, body), "it did not answer") for body in (b'{"proceed": 1}', b'{"proceed": "true"}')),
        *((answer(200, body), "it did not answer") for body in (b'{"proceed": null}', b'{"Proceed": true}', b"[[[")),
        *((answer(status, b'{"proceed": true}'), f"{status}") for status in (302, 404, 409, 410, 429, 500)),
        (answer(200, b'{"proceed": true, "x": "' + b"x" * 70_000 + b'"}'), "larger than"),
        (answer(200, b'{"proceed": true}', content_encoding="gzip"), "compressed"),
        (b"nonsense", "the connection broke"),
    ],
)
async def test_a_guard_that_says_anything_else_is_unknown(tmp_path: Path, wire: bytes, why: str) -> None:
    async with elsewhere(tmp_path) as there:

        async def says(writer: Any) -> None:
            writer.write(wire)
            await writer.drain()
            writer.close()

        there.answers = [says]
        outside = there.outside()
        said = await call_guard(outside, TENANT, URL, {})
        outside.close()
        assert isinstance(said, Unknown)
        assert why in said.why


async def test_a_guard_that_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    async with elsewhere(tmp_path) as there:
        outside = there.outside()
        for tenant, url, why in (
            (a_config("acme"), URL, "calls.secret"),
            (TENANT, "http://shop.example/", "only https"),
            (TENANT, "https://127.0.0.1/", "not a number"),
        ):
            said = await call_guard(outside, tenant, url, {})
            assert isinstance(said, Unknown)
            assert why in said.why
        there.addresses = [["10.0.0.1"]]
        assert "inside" in str(await call_guard(outside, TENANT, URL, {}))
        outside.close()
        assert there.names == []


def test_what_is_unknown_is_taken_neither_for_yes_nor_for_no() -> None:
    with pytest.raises(TypeError, match="not known"):
        bool(Unknown("it answered 500"))


async def test_the_time_that_is_signed_is_the_real_one_whatever_the_clock_of_bookings_says(shop: Shop) -> None:
    shop.server.clock.move(timedelta(days=3))
    await shop.server.call("/v1/functions/check-cart", CART)
    (request,) = shop.there.requests
    proved = verify_webhook("standard", request.body, request.headers, SECRET)
    assert proved.at is not None
    assert abs(datetime.now(UTC) - proved.at) < MINUTE
