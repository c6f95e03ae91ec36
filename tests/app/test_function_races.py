"""Deferred runs that are booked, cancelled, moved and fired at the same moment. `python -m tests.races` plays thousands."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import app.deferred
from app.context import Context
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_functions import ANA, HOUR, Server, a_key, serving
from tests.races.trial import play_all
from tests.support.house import a_config
from tests.support.wait import eventually

BOOK = "/v1/functions/send-followup"


@asynccontextmanager
async def two_processes(url: str, directory: Path, clock: MovableClock, **more: Any) -> AsyncIterator[list[Server]]:
    """Two services on one database, each with a pool of its own, as two processes have."""
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(2):
            database = Database(url)
            stack.push_async_callback(database.close)
            servers.append(await stack.enter_async_context(serving(database, directory, clock, **more)))
        yield servers


async def test_whatever_the_order_of_cancel_fire_and_move_each_run_is_cancelled_or_raced_and_none_runs_cancelled(
    database_url: str, tmp_path: Path
) -> None:
    counts, wrong = await play_all(database_url, tmp_path, range(1, 101))
    assert wrong == []
    assert min(counts[what] for what in ("cancelled", "raced", "moved", "ran")) > 2, counts


async def test_of_fifty_requests_with_one_idempotency_key_at_two_processes_one_books(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_processes(database_url, tmp_path, clock) as servers:
        for number in range(5):
            answers = await asyncio.gather(
                *(
                    servers[turn % 2].call(BOOK, ANA, vuelvo_schedule_in="1h", idempotency_key=f"event-{number}")
                    for turn in range(50)
                )
            )
            assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 49}
            assert len({answer.json()["id"] for answer in answers}) == 1
        assert (await servers[0].get("/v1/tasks"))["total"] == 5


async def test_of_two_payloads_under_one_idempotency_key_at_two_processes_one_is_booked_and_the_other_refused(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_processes(database_url, tmp_path, clock) as servers:
        answers = await asyncio.gather(
            *(
                server.call(BOOK, {"user": "ana", "cart": cart}, vuelvo_schedule_in="1h", idempotency_key="e")
                for _ in range(10)
                for server, cart in zip(servers, ("c1", "c2"), strict=True)
            )
        )
        assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 9, 409: 10}
        assert (await servers[0].get("/v1/tasks"))["total"] == 1


async def test_never_more_are_booked_than_may_be_while_two_processes_book_cancel_and_move(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    drawn, most, seen = random.Random(7), 8, list[int]()
    few: dict[str, Any] = {"config": {"limits": {"active": most}}}
    async with two_processes(database_url, tmp_path, clock, **few) as servers:

        async def book(number: int) -> int:
            server = servers[number % 2]
            answer = await server.call(BOOK, ANA, vuelvo_schedule_in="1h", vuelvo_key=f"k{number}")
            if answer.status_code == 202:
                seen.append((await server.get("/v1/tasks"))["total"])
                other = servers[(number + 1) % 2]
                if drawn.random() < 0.5:
                    await other.call("/v1/tasks/cancel", {"key": f"k{number}"})
                else:
                    moved = await other.call(f"/v1/tasks/{answer.json()['id']}/reschedule", {"in": "2h"})
                    assert moved.status_code == 202, "to move one takes no second place"
            return answer.status_code

        codes = Counter(await asyncio.gather(*(book(number) for number in range(60))))
        assert set(codes) == {202, 429}
        assert max(seen) <= most
        active = (await servers[0].get("/v1/tasks?per_page=100"))["total"]
        cancelled = (await servers[0].get("/v1/tasks?status=cancelled&per_page=100"))["data"]
        assert active <= most
        moved_on = {task["key"] for task in (await servers[0].get("/v1/tasks"))["data"]}
        assert codes[202] == active + len([task for task in cancelled if task["key"] not in moved_on])


async def test_a_cancel_of_more_than_it_may_meet_names_how_many_and_cancels_nothing(
    database_url: str, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.deferred, "MOST_CANCELLED", 3)
    async with two_processes(database_url, tmp_path, clock) as (server, _):
        for number in range(4):
            await server.call(
                BOOK, ANA, vuelvo_schedule_in="1h", vuelvo_key=f"promo:{number}", vuelvo_subject="user_ana"
            )
        for body in ({"key_prefix": "promo:"}, {"subject": "user_ana"}):
            refused = await server.call("/v1/tasks/cancel", body)
            assert refused.status_code == 422
            assert "4 tasks have this label, and one cancel takes 3" in refused.json()["detail"]
            assert (await server.call("/v1/tasks/cancel", {**body, "dry_run": True})).json() == {
                "would_cancel_count": 4
            }
        assert (await server.get("/v1/tasks"))["total"] == 4
        assert len((await server.call("/v1/tasks/cancel", {"key": "promo:0"})).json()["cancelled"]) == 1
        assert len((await server.call("/v1/tasks/cancel", {"key_prefix": "promo:"})).json()["cancelled"]) == 3
        await server.fires(HOUR)
        assert server.shop.fires == []


async def test_one_tenant_s_own_transaction_keeps_no_other_s_bookings_waiting_and_none_of_its_follow_ups(
    database: Database, database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    theirs = Database(database_url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(theirs.close)
        server = await stack.enter_async_context(serving(database, tmp_path, clock))
        conversation = (await server.house.says("hello")).conversation
        await apply_tenants(server.house.service, [a_config("globex")])
        globex = Server(server.house, server.http, await a_key(database, "globex"), server.shop, clock)
        ctx = Context("acme", "/x", "call:1", server.house.run.functions.booker(a_config()))
        async with theirs.transaction() as connection:
            await ctx.schedule(in_=60, path="/send-followup", payload=ANA, connection=connection)
            waits = asyncio.create_task(server.call(BOOK, ANA, vuelvo_schedule_in="1h"))
            locks = "select exists (select from pg_locks where not granted)"
            await eventually(lambda: _is_true(theirs, locks))
            booked = await asyncio.wait_for(globex.call(BOOK, ANA, vuelvo_schedule_in="1h"), 10)
            followup = {"conversation": conversation, "about": "call Ana", "in": "1h"}
            spoken = await asyncio.wait_for(server.call("/v1/followups", followup), 10)
            assert (booked.status_code, spoken.status_code, waits.done()) == (202, 202, False)
        assert (await waits).status_code == 202


async def _is_true(database: Database, question: str) -> bool:
    async with database.transaction() as connection:
        return bool(await connection.scalar(text(question)))
