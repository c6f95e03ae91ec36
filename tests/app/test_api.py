"""The API met with what nobody would send: the answer names what is wrong, and nothing is booked, lost or done twice."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.context import Context
from app.functions import Stop
from scheduler import recovery
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_functions import ANA, HOUR, Server, Shop, serving
from tests.support.wait import eventually

BOOK = "/v1/functions/send-followup"
DEEP = "[" * 200_000 + "]" * 200_000
LOWEST, HIGHEST = "0001-01-01T00:00:00", "9999-12-31T23:59:59"


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock) as server:
        yield server


async def post(server: Server, path: str, body: str | bytes, **headers: str | bytes) -> httpx.Response:
    """Send these very bytes."""
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    sent: dict[Any, Any] = {b"authorization": f"Bearer {server.key}", **named}
    return await server.http.post(path, content=body, headers=sent)


def a_payload(size: int) -> str:
    """A payload of so many bytes."""
    return json.dumps({"user": "ana", "cart": ""}, separators=(",", ":")).replace('""', f'"{"x" * (size - 24)}"')


def detail(answer: httpx.Response) -> str:
    """Return why it was refused."""
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    return str(told["detail"])


# What a body holds


async def test_a_body_that_is_no_payload_is_refused_with_what_is_wrong_of_it(server: Server) -> None:
    cases: list[tuple[str | bytes, int, str]] = [
        ('{"user": "ana", "cart": NaN}', 422, "cannot be written as JSON"),
        ('{"user": "ana", "cart": 1e400}', 422, "cannot be written as JSON"),
        ('{"user": "ana", "cart": ' + "9" * 5000 + "}", 400, "not valid JSON"),
        ('{"user": "ana", "cart": "\\ud800"}', 422, "half of a surrogate pair"),
        ('{"user": "ana", "\\udfff": "c1"}', 422, "half of a surrogate pair"),
        ('{"user": "ana", "cart": "\\u0000"}', 422, "a zero byte"),
        (b'{"user": "ana", "cart": "\xff"}', 400, "not valid UTF-8"),
        (b'\xef\xbb\xbf{"user": "ana", "cart": "c1"}', 400, "not valid JSON"),
        (DEEP, 413, "larger than"),
        ("[" * 5_000 + "]" * 5_000, 400, "not valid JSON"),
        ("[" * 101 + "]" * 101, 422, "deeper than 100 levels"),
        ('{"a":' * 300 + "1" + "}" * 300, 422, "deeper than 100 levels"),
        ("{", 400, "not valid JSON"),
        ('{"user": "ana"} {}', 400, "not valid JSON"),
        ("null", 422, "cart: Field required"),
        ("", 422, "cart: Field required"),
        ("true", 422, "not bool"),
    ]
    for body, status, words in cases:
        for when in ({}, {"vuelvo_schedule_in": "5m"}):
            answer = await post(server, BOOK, body, **when)
            assert (answer.status_code, words in detail(answer)) == (status, True), answer.text
        assert (await server.get("/v1/tasks"))["total"] == 0


async def test_a_payload_of_64_kb_exactly_is_booked_and_comes_back_whole_and_one_of_a_byte_more_is_refused(
    server: Server,
) -> None:
    body = a_payload(65_536)
    assert len(body) == 65_536
    booked = await post(server, BOOK, body, vuelvo_schedule_in="1m")
    assert booked.status_code == 202
    assert (await server.get(f"/v1/tasks/{booked.json()['id']}"))["payload"] == json.loads(body)
    assert (
        await post(server, BOOK, json.dumps(json.loads(body), indent=8), vuelvo_schedule_in="1m")
    ).status_code == 202
    assert (await post(server, "/v1/functions/nested/path.v2", body)).json() == json.loads(body)
    refused = await post(server, BOOK, a_payload(65_537), vuelvo_schedule_in="1m")
    assert (refused.status_code, "65,537 bytes" in detail(refused)) == (413, True)
    for sign in ("é", "😀"):  # many clients write what is not ASCII in six bytes, or twelve
        escaped = json.dumps({"user": "ana", "cart": sign * ((65_536 - 24) // len(sign.encode()))})
        assert (await post(server, BOOK, escaped, vuelvo_schedule_in="1m")).status_code == 202
    too_much = await post(server, BOOK, " " * 262_144 + "{}")
    assert too_much.status_code == 413


async def test_a_payload_as_deep_as_may_be_is_booked_run_and_shown(server: Server) -> None:
    body = "[" * 100 + "]" * 100
    booked = (await post(server, "/v1/functions/nested/path.v2", body, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(timedelta(minutes=1))
    await server.house.until_state(booked, "fired")
    told = await server.get(f"/v1/tasks/{booked}")
    assert told["payload"] == told["result"] == json.loads(body)


async def test_of_a_name_that_comes_twice_the_last_counts(server: Server) -> None:
    echoed = await post(server, "/v1/functions/nested/path.v2", '{"a": 1, "a": 2}')
    assert echoed.json() == {"a": 2}


@pytest.mark.parametrize("number", ["1e308", "-0.0", "1" + "0" * 400, "1e-320", "123456789012345678901234567890.5"])
async def test_a_number_however_large_or_small_is_the_same_when_the_run_fires(server: Server, number: str) -> None:
    body = f'{{"n": {number}}}'
    booked = (await post(server, "/v1/functions/nested/path.v2", body, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(timedelta(minutes=1))
    await server.house.until_state(booked, "fired")
    found, sent = (await server.get(f"/v1/tasks/{booked}"))["result"]["n"], json.loads(body)["n"]
    assert found == sent or float(found) == sent  # one without a fraction comes back without a point
    again = [
        await post(server, "/v1/functions/nested/path.v2", body, vuelvo_schedule_in="1m", idempotency_key="e")
        for _ in range(2)
    ]
    assert [answer.status_code for answer in again] == [202, 200]


async def test_a_body_of_the_wrong_shape_names_the_field(server: Server) -> None:
    for path, body, words in [
        ("/v1/tasks/cancel", '{"\\ud800": 1}', ""),
        ("/v1/tasks/cancel", '{"key": "\\ud800"}', "key"),
        ("/v1/tasks/cancel", '{"key": "\\u0000"}', "key"),
        ("/v1/tasks/cancel", '{"key_prefix": "\\udbff\\udfff"}', "key prefix"),
        ("/v1/tasks/cancel", '{"key": ["a"]}', "key"),
        ("/v1/tasks/cancel", '{"key": "a", "dry_run": "yes"}', "dry_run"),
        ("/v1/tasks/cancel", "[]", "body"),
        ("/v1/tasks/1/reschedule", '{"in_": "1h"}', "in_"),
        ("/v1/tasks/1/reschedule", '{"in": "1h", "at": "2026-12-24T18:00:00Z"}', "one of the two"),
        ("/v1/followups", '{"about": "\\ud800", "in": "1h"}', "about"),
        ("/v1/followups", '{"conversation": 1e400, "about": "a", "in": "1h"}', "conversation"),
        ("/v1/followups", '{"conversation": true, "about": "a", "in": "1h"}', "conversation"),
        ("/v1/followups", '{"conversation": 9223372036854775808, "about": "a", "in": "1h"}', "conversation"),
    ]:
        answer = await post(server, path, body)
        assert (answer.status_code, words in detail(answer)) == (422, True), (words, answer.text)


# When


async def test_any_time_from_now_up_to_400_days_moves_a_run(server: Server) -> None:
    for given in ["0", "0.001", '"0s"', '"0"', "1e-320", "0.0", '" 1H "', "34560000"]:
        booked = (await server.call(BOOK, ANA, vuelvo_schedule_in="1h")).json()["id"]
        moved = await post(server, f"/v1/tasks/{booked}/reschedule", f'{{"in": {given}}}')
        assert (moved.status_code, moved.json().get("cancelled")) == (202, booked), moved.text


async def test_what_is_no_time_from_now_is_refused_and_moves_nothing(server: Server) -> None:
    for given, words in [
        ("1e308", "more than 400 days"),
        ("1e16", "more than 400 days"),
        ("34560001", "more than 400 days"),
        ("1" + "0" * 400, "in"),
        ("NaN", "nan"),
        ("Infinity", "more than 400 days"),
        ("-0.0", "negative"),
        ("-1", "negative"),
        ("true", "in"),
        ('""', "an empty text"),
        ('"1e3"', "1e3"),
        ("[]", "in"),
        ('"' + "9" * 100 + '"', "too long"),
        ("null", "one of the two"),
    ]:
        booked = (await server.call(BOOK, ANA, vuelvo_schedule_in="1h")).json()["id"]
        refused = await post(server, f"/v1/tasks/{booked}/reschedule", f'{{"in": {given}}}')
        assert (refused.status_code, words in detail(refused)) == (422, True), refused.text
        assert (await server.get(f"/v1/tasks/{booked}"))["status"] == "scheduled"


async def test_an_instant_that_cannot_be_is_refused_by_whatever_way(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    booked = (await server.call(BOOK, ANA, vuelvo_schedule_in="1h")).json()["id"]
    for at, words in [
        (f"{LOWEST}Z", "which is past: it is now 2026-11-29T14:00:00Z"),
        (f"{LOWEST}+14:00", "beyond the calendar"),
        (f"{HIGHEST}Z", "400 days"),
        (f"{HIGHEST}-14:00", "beyond the calendar"),
        ("2026-12-24T18:00:00+24:00", "ISO 8601"),
        ("2026-12-24T25:00:00Z", "ISO 8601"),
        ("2027-02-29T00:00:00Z", "ISO 8601"),
        ("10000-01-01T00:00:00Z", "ISO 8601"),
        ("1766599200", "ISO 8601"),
        ("2026-12-24T18:00:00", "of no zone"),
        ("", "ISO 8601"),
    ]:
        answers = [
            await server.call(BOOK, ANA, vuelvo_schedule_at=at),
            await server.call("/v1/followups", {"conversation": conversation, "about": "call Ana", "at": at}),
            await server.call(f"/v1/tasks/{booked}/reschedule", {"at": at}),
        ]
        for answer in answers:
            assert (answer.status_code, words in detail(answer)) == (422, True), (words, answer.text)
        assert (await server.get("/v1/tasks"))["total"] == 1


async def test_thirty_seconds_ago_is_refused_with_the_present_by_whatever_way_and_a_second_from_now_is_booked(
    server: Server,
) -> None:
    conversation = (await server.house.says("hello")).conversation
    booked = (await server.call(BOOK, ANA, vuelvo_schedule_in="1h")).json()["id"]
    past = (server.clock.at - timedelta(seconds=30)).isoformat()
    for answer in (
        await server.call(BOOK, ANA, vuelvo_schedule_at=past),
        await server.call("/v1/followups", {"conversation": conversation, "about": "call Ana", "at": past}),
        await server.call(f"/v1/tasks/{booked}/reschedule", {"at": past}),
    ):
        assert (answer.status_code, "it is now 2026-11-29T14:00:00Z" in detail(answer)) == (422, True)
    soon = (server.clock.at + timedelta(seconds=1)).isoformat()
    assert (await server.call(BOOK, ANA, vuelvo_schedule_at=soon)).status_code == 202


async def test_what_is_booked_once_has_no_interval_by_whatever_way(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    once = {"conversation": conversation, "about": "call Ana", "in": "10m"}
    for name, answer in [
        ("every", await server.call("/v1/followups", {**once, "every": "10m"})),
        ("times", await server.call("/v1/followups", {**once, "times": 1})),
        ("cron", await server.call("/v1/followups", {**once, "cron": "*/10 * * * *"})),
        ("every", await server.call(BOOK, ANA, vuelvo_schedule_in="10m", vuelvo_schedule_every="10m")),
        ("every", await server.call("/v1/tasks/1/reschedule", {"in": "10m", "every": "10m"})),
    ]:
        assert (answer.status_code, name in detail(answer)) == (422, True), answer.text
    assert (await server.get("/v1/tasks"))["total"] == 0


# Headers and addresses


@pytest.mark.parametrize("written", ["café".encode(), "café".encode("latin-1")])
async def test_a_label_in_a_header_is_the_same_label_in_a_body_however_a_client_writes_it(
    server: Server, written: bytes
) -> None:
    booked = await post(server, BOOK, json.dumps(ANA), vuelvo_schedule_in="1h", vuelvo_key=written)
    (found,) = (await server.get("/v1/tasks?key=caf%C3%A9"))["data"]
    assert (found["id"], found["key"]) == (booked.json()["id"], "café")
    assert (await server.call("/v1/tasks/cancel", {"key": "café"})).json()["cancelled"] == [booked.json()["id"]]


async def test_a_header_that_comes_twice_is_refused(server: Server) -> None:
    twice = [("authorization", f"Bearer {server.key}"), ("vuelvo-schedule-in", "1h"), ("vuelvo-schedule-in", "2h")]
    refused = await server.http.post(BOOK, json=ANA, headers=twice)
    assert (refused.status_code, "comes 2 times" in detail(refused)) == (422, True)


async def test_a_key_that_is_none_opens_nothing_whatever_it_is(server: Server) -> None:
    for key in [b"vk_acme_\xff", b"\xff", b"vk_acme_aaaaaaaaaa_" + b"A" * 60_000, b" ", b"a b", b"vk_"]:
        for path in (BOOK, "/v1/tasks/cancel", "/v1/followups"):
            answer = await server.http.post(path, json={}, headers={b"authorization": b"Bearer " + key})
            assert (answer.status_code, answer.headers["www-authenticate"].split()[0]) == (401, "Bearer")
            assert "vuelvo keys" in detail(answer)


async def test_an_address_leads_to_the_function_that_it_names_or_nowhere(server: Server) -> None:
    for path, status in [
        ("nested%2Fpath.v2", 200),
        ("nested//path.v2", 404),
        ("send-followup/%2e%2e/nested/path.v2", 404),
        ("%2e%2e/tasks", 404),
        ("nested/path.v2%00", 422),
        ("caf%C3%A9", 422),
        ("%ff", 422),
        ("x" * 199, 404),
        ("x" * 200, 422),
        ("x" * 50_000, 422),
        ("", 404),
        ("a%3Fb", 422),
        ("{path}", 422),
    ]:
        answer = await server.call(f"/v1/functions/{path}", {"a": 1})
        assert answer.status_code == status, path
        assert status == 200 or detail(answer)


async def test_a_number_that_no_task_has_is_not_found(server: Server) -> None:
    for number in [
        "0",
        "-1",
        "1.0",
        "%2B1",
        "9223372036854775808",
        "9" * 6000,
        "0" * 19 + "1" * 6000,
        "%D9%A1",
        "1%00",
        "cancel",
        "1e3",
        " 1",
    ]:
        for answer in (
            await server.call(f"/v1/tasks/{number}", method="GET"),
            await server.call(f"/v1/tasks/{number}/reschedule", {"in": "1h"}),
        ):
            assert (answer.status_code, "there is no task" in detail(answer)) == (404, True)


async def test_a_list_that_cannot_be_is_refused(server: Server) -> None:
    for query, words in [
        ("page=0", "page is a number from 1"),
        ("page=-1", "page is a whole number"),
        ("page=9999999", "page is a number from 1"),
        ("page=" + "9" * 5000, "page is a whole number"),
        ("page=%D9%A1", "page is a whole number"),
        ("per_page=101", "per_page is a number from 1 to 100"),
        ("per_page=1.5", "per_page is a whole number"),
        ("status=pending", "there is no status"),
        ("status=", "there is no status"),
        ("key=%00", "zero byte"),
        ("kay=a", "there is no parameter"),
        ("key=a&key=b", "key comes 2 times"),
    ]:
        answer = await server.call(f"/v1/tasks?{query}", method="GET")
        assert (answer.status_code, words in detail(answer)) == (422, True), (words, answer.text)


async def test_a_page_past_the_last_is_empty_and_a_label_of_any_length_finds_nothing(server: Server) -> None:
    await server.call(BOOK, ANA, vuelvo_schedule_in="1h")
    assert (await server.get("/v1/tasks?page=1000000&per_page=100"))["data"] == []
    assert (await server.get(f"/v1/tasks?key={'x' * 20_000}&subject=%ff&function=%5C"))["total"] == 0


# What has gone wrong before


async def test_the_same_key_is_the_same_booking_when_it_has_run_or_was_cancelled_and_another_run_s_key_is_refused(
    server: Server,
) -> None:
    def book(key: str, path: str = BOOK, when: str = "1h") -> Any:
        return server.call(path, ANA, vuelvo_schedule_in=when, idempotency_key=key, vuelvo_key=key)

    first = (await book("a")).json()
    await server.call("/v1/tasks/cancel", {"key": "a"})
    again = await book("a", when="5h")
    assert (again.status_code, again.json()) == (200, {**first, "idempotent_replay": True})
    second = (await book("b")).json()
    await server.fires(HOUR)
    await server.house.until_state(second["id"], "fired")
    assert (await book("b")).json() == {**second, "idempotent_replay": True}
    assert (await book("b", "/v1/functions/stop")).status_code == 409
    assert (await server.get("/v1/tasks"))["total"] == 0
    assert len(server.shop.sent) == 1


async def test_a_follow_up_and_a_run_under_one_idempotency_key_do_not_pass_for_each_other(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    assert (await server.call(BOOK, ANA, vuelvo_schedule_in="1h", idempotency_key="e")).status_code == 202
    body = {"conversation": conversation, "about": "call Ana", "in": "1h"}
    assert (await server.call("/v1/followups", body, idempotency_key="e")).status_code == 409


@pytest.mark.parametrize(
    "kept",
    [
        "{}",
        "[]",
        '"text"',
        "7",
        '{"path": "/send-followup"}',
        '{"path": 7, "payload": {}}',
        '{"path": "/gone", "payload": {}}',
        '{"path": "/send-followup", "payload": [1]}',
        '{"payload": {"user": "ana", "cart": "c1"}}',
    ],
)
async def test_a_run_that_cannot_be_read_is_listed_and_fails_once_and_the_others_run(
    server: Server, database: Database, kept: str
) -> None:
    booked = [(await server.call(BOOK, ANA, vuelvo_schedule_in="1m")).json()["id"] for _ in range(2)]
    async with database.transaction() as connection:
        given = {"payload": kept, "id": booked[0]}
        await connection.execute(text("update tasks set payload = cast(:payload as jsonb) where id = :id"), given)
    assert [one["id"] for one in (await server.get("/v1/tasks"))["data"]] == booked
    await server.fires(timedelta(minutes=1))
    failed = await server.house.until_state(booked[0], "failed")
    assert (failed.attempt, bool(failed.error)) == (1, True)
    await server.house.until_state(booked[1], "fired")
    assert (await server.get("/v1/tasks?status=failed"))["data"][0]["error"]
    assert (await server.call(f"/v1/tasks/{booked[0]}", method="GET")).status_code == 200


async def test_a_follow_up_without_a_conversation_or_into_a_channel_that_is_gone_is_refused_when_it_is_booked(
    server: Server, database: Database
) -> None:
    conversation = (await server.house.says("hello")).conversation
    async with database.transaction() as connection:
        await connection.execute(text("update contacts set channel = 'telegram'"))
    for body in ({}, {"conversation": conversation}):
        answer = await server.call("/v1/followups", {"about": "call Ana", "in": "1h", **body})
        assert (answer.status_code, "conversation:" in detail(answer)) == (422, True)
    assert (await server.get("/v1/tasks"))["total"] == 0


class Waits:
    """A function that goes on only when it is let."""

    def __init__(self, shop: Shop) -> None:
        self.begun, self.may_go_on, self.runs = asyncio.Event(), asyncio.Event(), 0
        self.problem: Exception | None = None

        @shop.app.function("/waits")
        async def waits(given: Any, ctx: Context) -> str:
            self.runs += 1
            self.begun.set()
            await self.may_go_on.wait()
            if self.problem is not None:
                raise self.problem
            return "done"


@pytest.fixture
async def waits(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[tuple[Server, Waits, int]]:
    """A run that has begun."""
    shop = Shop()
    waits = Waits(shop)
    async with serving(database, tmp_path, clock, shop) as server:
        booked = await server.call("/v1/functions/waits", {}, vuelvo_schedule_in="1m", vuelvo_key="k")
        await server.fires(timedelta(minutes=1))
        await waits.begun.wait()
        yield server, waits, booked.json()["id"]
        waits.may_go_on.set()


async def test_a_run_that_is_being_performed_is_raced_and_is_done_or_is_not_tried_again(
    waits: tuple[Server, Waits, int],
) -> None:
    server, run, task = waits
    assert (await server.call("/v1/tasks/cancel", {"key": "k"})).json() == {"cancelled": [], "raced": [task]}
    assert (await server.call(f"/v1/tasks/{task}/reschedule", {"in": "1h"})).status_code == 409
    run.problem = OSError("the shop is down")
    run.may_go_on.set()
    await server.house.until_state(task, "cancelled")
    await server.fires(HOUR)
    assert run.runs == 1


async def test_a_run_that_was_cancelled_stays_cancelled_when_a_worker_that_was_thought_dead_is_done_with_it(
    waits: tuple[Server, Waits, int], database: Database
) -> None:
    server, run, task = waits
    assert (await server.call("/v1/tasks/cancel", {"key": "k"})).json()["raced"] == [task]
    server.clock.move(HOUR)
    async with database.transaction() as connection:
        assert await recovery.recover(connection, server.clock) == 1
    await server.house.until_state(task, "cancelled")
    run.may_go_on.set()
    await eventually(lambda: not server.house.run.poller._running)  # type: ignore[union-attr]
    await server.fires(HOUR)
    assert (await server.get(f"/v1/tasks/{task}"))["status"] == "cancelled"
    assert run.runs == 1


@pytest.mark.parametrize("problem", [Stop("\0 \ud800"), ValueError("\0 \ud800")])
async def test_an_error_that_quotes_what_no_row_can_keep_is_kept_without_it(
    waits: tuple[Server, Waits, int], problem: Exception
) -> None:
    server, run, task = waits
    run.problem = problem
    run.may_go_on.set()
    await server.house.until_state(task, "failed" if isinstance(problem, Stop) else "scheduled")
    assert type(problem).__name__ in (await server.get(f"/v1/tasks/{task}"))["error"]
    assert run.runs == 1


@pytest.mark.parametrize("result", ["\ud800", "\0", float("nan"), object(), {"skipped": "\0 \ud800"}])
async def test_a_result_that_no_row_can_keep_does_not_make_the_run_run_again(
    database: Database, tmp_path: Path, clock: MovableClock, result: Any
) -> None:
    shop, runs = Shop(), list[Context]()

    @shop.app.function("/odd")
    async def odd(given: Any, ctx: Context) -> Any:
        runs.append(ctx)
        return result

    async with serving(database, tmp_path, clock, shop) as server:
        booked = (await server.call("/v1/functions/odd", {}, vuelvo_schedule_in="1m")).json()["id"]
        await server.fires(timedelta(minutes=1))
        await server.house.until_state(booked, "fired")
        assert (await server.call(f"/v1/tasks/{booked}", method="GET")).status_code == 200
        assert len(runs) == 1
