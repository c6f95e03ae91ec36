"""Bookings that are simulated: checked and logged as ever, and nothing on the table."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.context import Context
from app.deferred import BadBooking, NoSuchFunction
from app.functions import BadInput
from app.simulated import FIRST
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_functions import ANA, Server, serving
from tests.support.house import a_config
from tests.support.process import start


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock, defer_dev=True) as server:
        yield server


@pytest.fixture
def ctx(server: Server) -> Context:
    return Context("acme", "/abandoned-cart", "call:1", server.house.run.functions.booker(a_config()))


async def count(database: Database) -> int:
    async with database.transaction() as connection:
        return int((await connection.execute(text("select count(*) from tasks"))).scalar_one())


async def test_a_function_that_books_goes_on_and_nothing_is_booked(
    server: Server, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vuelvo.simulated")
    called = await server.call("/v1/functions/abandoned-cart", ANA)
    at = server.clock.at + timedelta(hours=24)
    assert called.json() == {"booked": True, "id": FIRST, "at": at.isoformat()}
    assert f"simulated, not booked: /send-followup of tenant acme at {at:%Y-%m-%dT%H:%M:%SZ}" in caplog.text
    assert "ana" not in caplog.text, "what it is about, and its labels, are the customer's"
    assert await count(database) == 0
    await server.fires(timedelta(days=2))
    assert server.shop.fires == []


async def test_over_http_a_booking_is_202_with_a_number_of_none(server: Server, database: Database) -> None:
    answers = [await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="5m") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["id"] for answer in answers] == [FIRST, FIRST + 1]
    moved = await server.call(f"/v1/tasks/{FIRST}/reschedule", {"in": "2h"})
    assert (moved.status_code, moved.json()["id"], moved.json()["cancelled"]) == (202, FIRST + 2, FIRST)
    assert (await server.get("/v1/tasks"))["data"] == []
    assert "simulated" in (await server.get(f"/v1/tasks/{FIRST}"))["detail"]
    assert (await server.call("/v1/tasks/cancel", {"key": "k"})).json() == {"cancelled": [], "raced": []}
    assert (await server.call("/v1/tasks/cancel", {"key": "k", "dry_run": True})).json() == {"would_cancel_count": 0}
    assert await count(database) == 0


async def test_what_could_not_be_booked_is_refused_here_too(server: Server, ctx: Context) -> None:
    past = server.clock.at - timedelta(seconds=1)
    refused: list[tuple[type[Exception], Any]] = [
        (BadBooking, ctx.schedule_at(at=past, path="/send-followup", payload=ANA)),
        (BadBooking, ctx.schedule_at(at=past + timedelta(days=401), path="/send-followup", payload=ANA)),
        (BadBooking, ctx.schedule(in_="30m1h", path="/send-followup", payload=ANA)),
        (BadInput, ctx.schedule(in_="5m", path="/send-followup", payload={"user": "ana"})),
        (NoSuchFunction, ctx.schedule(in_="5m", path="/nowhere")),
        (BadBooking, ctx.schedule(in_="5m", path="/send-followup", payload=ANA, pin_deployment=True)),
        (BadBooking, ctx.find_deferred(status="lost")),
        (BadBooking, ctx.cancel_deferred()),
        (BadBooking, ctx.cancel_deferred(key="a", subject="b", dry_run=True)),
        (BadBooking, ctx.reschedule(7, at=past)),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            await call


async def test_the_log_says_at_the_start_that_bookings_are_simulated(tmp_path: Path, database_url: str) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": "k" * 32, "VUELVO_PORT": "0"}
    process = await start("serve", directory=tmp_path, environ={**environ, "VUELVO_DEFER_DEV": "1"})
    assert "SIMULATED" in await process.until_said("VUELVO_DEFER_DEV is set")
    await process.until_said("Vuelvo is here")
    assert await process.stop() == 0
