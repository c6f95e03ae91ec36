"""Functions of a careless developer's: whatever one does, its own run suffers from it, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app.context import Context
from app.functions import App, Later
from app.guard import CheckFailed, Guard
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_functions import ANA, Server, serving
from tests.support.wait import eventually

MINUTE = timedelta(minutes=1)


class Odd(BaseException):
    """What no function should raise."""


async def exits() -> None:
    raise SystemExit(2)  # as a parser of arguments does


async def raises_anything() -> None:
    raise Odd("x")


async def waits_for_what_was_cancelled() -> None:
    other = asyncio.create_task(asyncio.Event().wait())
    other.cancel()
    await other


async def forgets_to_await() -> Any:
    return asyncio.Event().wait()


async def forgets_to_call() -> Any:
    return forgets_to_await


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock) as server:
        yield server


async def until_error(server: Server, run: int, words: str) -> None:
    """Wait until a run is to be tried again, for a reason that has these words."""

    async def is_back() -> bool:
        told = await server.get(f"/v1/tasks/{run}")
        return told["status"] == "scheduled" and words in str(told["error"])

    await eventually(is_back)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (exits, "it raised SystemExit: 2"),
        (raises_anything, "it raised Odd: x"),
        (waits_for_what_was_cancelled, "it raised CancelledError"),
        (forgets_to_await, "was not awaited"),
        (forgets_to_call, "or not called"),
    ],
)
async def test_one_that_would_end_more_than_itself_or_has_done_nothing_has_failed_now_and_later(
    server: Server, does: Callable[[], Awaitable[Any]], words: str
) -> None:
    @server.shop.app.function("/careless")
    async def careless(given: Any) -> Any:
        return await does()

    assert (await server.call("/v1/functions/careless", {})).status_code == 500
    booked = (await server.call("/v1/functions/careless", {}, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(MINUTE)
    await until_error(server, booked, words)
    assert (await server.call("/v1/functions/nested/path.v2", [1])).json() == [1]


async def test_one_that_waits_in_vain_by_itself_is_not_told_to_have_taken_too_long(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.shop.app.function("/asks")
    async def asks(given: Any) -> None:
        raise TimeoutError("the shop's database")

    assert (await server.call("/v1/functions/asks", {})).status_code == 500
    assert "the shop's database" in caplog.text


@pytest.mark.parametrize("after", [timedelta(seconds=1_790_000_000_000), timedelta(days=1, seconds=1)])
async def test_none_is_put_off_for_longer_than_it_is_tried(server: Server, after: timedelta) -> None:
    @server.shop.app.function("/later")  # with a time in milliseconds, say, that was taken for seconds
    async def later(given: Any) -> None:
        raise Later("the shop is closed", after=after)

    booked = (await server.call("/v1/functions/later", {}, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(MINUTE)
    await until_error(server, booked, "book another run instead")
    assert (await server.get("/v1/tasks"))["total"] == 1


async def test_a_time_to_come_again_that_is_over_is_now(server: Server) -> None:
    @server.shop.app.function("/later")
    async def later(given: Any) -> None:
        raise Later("the shop is closed", after=timedelta(seconds=-5))

    assert (await server.call("/v1/functions/later", {})).headers["retry-after"] == "60"


async def test_a_check_that_returns_another_one_has_said_nothing() -> None:
    class Undecided:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    for check, words in ((lambda: str.isdigit, "did not call it"), (Undecided, "ValueError: neither")):
        with pytest.raises(CheckFailed, match=words):
            await Guard().when("approved", check).run(lambda: {"sent": True})


async def test_what_a_run_says_is_never_taken_for_a_booking_under_its_idempotency_key(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    await server.house.until_heard(conversation, 1)

    @server.shop.app.function("/say")
    async def say(given: Any, ctx: Context) -> None:
        await ctx.send(conversation, "Your policy ends.")

    run = (await server.call("/v1/functions/say", {}, vuelvo_schedule_in="1m")).json()["id"]
    taken = await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", idempotency_key=f"{run}#1")
    assert taken.status_code == 202
    await server.fires(MINUTE)
    await server.house.until_heard(conversation, 2)
    await server.house.until_state(run, "fired")


def test_what_could_never_be_called_is_refused_when_it_is_registered() -> None:
    app = App()
    for input in (dict, list[str], Handed(), "Cart"):
        with pytest.raises(TypeError, match="is a Pydantic model"):
            app.function("/cart", input=input)  # type: ignore[arg-type]

    async def wants_more(given: Any, *, database: Any) -> None: ...

    with pytest.raises(TypeError, match="takes its input and the context"):
        app.function("/cart")(wants_more)
    assert not app.functions


class Handed(BaseModel):
    """A model, of which a value is no model."""
