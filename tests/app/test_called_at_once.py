"""Many calls elsewhere in one moment: each is made once, none waits for another, and no other tenant's waits at all."""

import asyncio
import json
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.called import Unknown, call_guard
from app.outside import LOOKUPS, Outside
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_called import CONFIG, MINUTE, URL, a_shop
from tests.app.test_functions import Server, a_key, serving
from tests.support.elsewhere import Request, answer, elsewhere
from tests.support.house import a_config
from tests.support.wait import eventually

THEIRS = "https://shop.example/theirs"
ACME = a_config("acme", **CONFIG)
GLOBEX = a_config("globex", **{**CONFIG, "functions": {"/theirs": {"url": THEIRS}}})


async def test_of_fifty_runs_that_fall_due_at_once_each_is_called_once_and_another_tenant_s_beside_them(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    may_answer = asyncio.Event()
    async with a_shop(database, tmp_path, clock) as shop:
        there, server = shop.there, shop.server

        async def says(writer: asyncio.StreamWriter) -> None:
            if is_acmes(there.requests[-1]):
                await may_answer.wait()
            writer.write(answer(200, b"7"))
            await writer.drain()

        def acmes() -> list[Request]:
            return [request for request in there.requests if is_acmes(request)]

        there.answers = [says]
        await apply_tenants(server.house.service, [GLOBEX])
        theirs = Server(server.house, server.http, await a_key(database, "globex"), server.shop, clock)
        mine = await asyncio.gather(*(shop.books() for _ in range(50)))
        other = (await theirs.call("/v1/functions/theirs", {}, vuelvo_schedule_in="1m")).json()["id"]
        await server.fires(MINUTE)

        async def is_done() -> bool:
            return bool((await theirs.get(f"/v1/tasks/{other}"))["status"] == "fired")

        await eventually(is_done)
        await eventually(lambda: len(acmes()) == 32)
        assert (await server.get("/v1/tasks?status=fired"))["total"] == 0, "none of the fifty has been answered"
        assert (await server.get("/v1/tasks?status=firing"))["total"] == 32, "half of what a worker does at a time"
        may_answer.set()

        async def are_done() -> bool:
            return bool((await server.get("/v1/tasks?status=fired"))["total"] == 50)

        await eventually(are_done)
        assert Counter(request.headers["webhook-id"] for request in acmes()) == {f"run:{task}": 1 for task in mine}
        assert len(there.requests) == 51


async def test_fifty_calls_that_are_made_at_once_are_each_made_once_and_answered_with_their_own(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    are_all_here = asyncio.Event()
    async with a_shop(database, tmp_path, clock) as shop:

        async def says(writer: asyncio.StreamWriter) -> None:
            body = shop.there.requests[-1].body
            if len(shop.there.requests) == 50:
                are_all_here.set()
            await are_all_here.wait()
            writer.write(answer(200, body))
            await writer.drain()

        shop.there.answers = [says]
        given = [{"number": number} for number in range(50)]
        answers = await asyncio.gather(*(shop.server.call("/v1/functions/check-cart", one) for one in given))
        assert [(one.status_code, one.json()) for one in answers] == [(200, one) for one in given]
        assert len({request.headers["webhook-id"] for request in shop.there.requests}) == 50


async def test_fifty_guards_that_are_asked_at_once_are_each_asked_once_and_say_what_they_were_asked(
    tmp_path: Path,
) -> None:
    are_all_here = asyncio.Event()
    async with elsewhere(tmp_path) as there:

        async def says(writer: asyncio.StreamWriter) -> None:
            asked = json.loads(there.requests[-1].body)["number"]
            if len(there.requests) == 50:
                are_all_here.set()
            await are_all_here.wait()
            writer.write(answer(200, json.dumps({"proceed": asked % 2 == 0}).encode()))
            await writer.drain()

        there.answers, outside = [says], there.outside()
        said = await asyncio.gather(*(call_guard(outside, ACME, URL, {"number": number}) for number in range(50)))
        outside.close()
    assert said == [number % 2 == 0 for number in range(50)]
    assert len({request.headers["webhook-id"] for request in there.requests}) == len(there.requests) == 50


async def test_fifty_guards_of_one_tenant_that_do_not_answer_keep_another_tenant_s_waiting_for_nothing(
    tmp_path: Path,
) -> None:
    async with elsewhere(tmp_path) as there:
        broken = asyncio.Event()

        async def says(writer: asyncio.StreamWriter) -> None:
            if is_acmes(there.requests[-1]):
                await broken.wait()
                writer.close()
            else:
                writer.write(answer(200, b'{"proceed": true}'))
                await writer.drain()

        there.answers, outside = [says], there.outside()
        waiting: Any = asyncio.gather(*(call_guard(outside, ACME, URL, {}) for _ in range(50)))
        await eventually(lambda: len(there.requests) == 50)
        assert await call_guard(outside, GLOBEX, THEIRS, {}) is True
        assert not waiting.done()
        broken.set()
        said = await waiting
        outside.close()
    assert {type(one) for one in said} == {Unknown}
    assert {one.why for one in said} == {"the connection broke before it had answered; it may have done its work"}


async def test_a_host_whose_name_server_does_not_answer_is_asked_for_once_at_a_time_and_keeps_no_other_host_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers, outside = list[str](), threading.Event(), Outside()

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        if host == "silent.example":
            answers.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    given_up = [asyncio.create_task(outside.addresses("silent.example")) for _ in range(2 * LOOKUPS)]
    waiting = asyncio.gather(*(outside.addresses("silent.example") for _ in range(50)))
    await eventually(lambda: bool(asked))
    for one in given_up:
        one.cancel()
    try:
        assert await asyncio.wait_for(outside.addresses("shop.example"), 10) == ["8.8.8.8"]
        assert not waiting.done()
    finally:
        answers.set()
    assert await waiting == [["8.8.8.8"]] * 50
    assert asked == ["silent.example", "shop.example"]
    await outside.addresses("silent.example")
    assert len(asked) == 3, "what was found is not kept"
    outside.close()


async def test_of_fifty_runs_of_a_function_here_each_makes_its_checks_once(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with serving(database, tmp_path, clock) as server:
        carts = [f"c{number}" for number in range(50)]
        for cart in carts:
            given = {"user": "ana", "cart": cart}
            await server.call("/v1/functions/send-followup", given, vuelvo_schedule_in="1m")
        server.shop.paid = set(carts[:25])
        await server.fires(MINUTE)

        async def are_done() -> bool:
            return bool((await server.get("/v1/tasks?status=fired"))["total"] == 50)

        await eventually(are_done)
        assert sorted(server.shop.sent) == sorted(carts[25:])
        assert len(server.shop.fires) == 50


def is_acmes(request: Request) -> bool:
    return "/theirs" not in request.line
