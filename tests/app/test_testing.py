"""What a developer tests with: the mock, and the fixture that moves the clock."""

import asyncio
import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from app.context import Booking, CancelledRuns, Context, Deferral, Deferrals, NoChannel
from app.deferred import BadBooking, NoSuchFunction, NoSuchTask, PayloadTooLarge
from app.functions import App, Stop
from app.guard import GuardNotRun
from app.pytest_plugin import app_called
from app.rehearsal import Rehearsal
from app.testing import MockContext
from store.database import engine_url

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
FOUND = Deferral(7, "/a", "scheduled", NOW, "k", "s", {}, 0, None, None, NOW, None)


async def test_the_mock_remembers_each_call_and_answers_as_it_is_set() -> None:
    mock = MockContext(path="/a", now=NOW)
    mock.found, mock.cancelled, mock.raced = [FOUND], [7], [8]
    first = await mock.schedule(in_="1h30m", path="/a", payload={"n": 1}, key="k", pin_deployment=True)
    assert first == Booking(1, NOW + timedelta(minutes=90), False)
    mock.is_replay = True
    assert await mock.schedule_at(at="2026-12-24T18:00:00Z", path="/a") == Booking(
        2, datetime(2026, 12, 24, 18, tzinfo=UTC), True
    )
    assert await mock.reschedule(7, in_=60) == Booking(3, NOW + timedelta(minutes=1), False)
    assert await mock.find_deferred(subject="s") == Deferrals([FOUND], 1)
    assert await mock.cancel_deferred(key="k", dry_run=True) == CancelledRuns(would_cancel_count=1)
    assert await mock.cancel_deferred(key_prefix="k") == CancelledRuns([7], [8])
    await mock.send(12, "Good morning")
    await mock.send_template(template="HX1", to="+34600000001", params=["Ana"])
    mock.log("done", id=7)
    assert [(call.name, dict(call.given)) for call in mock.calls] == [
        ("schedule", {"in_": "1h30m", "path": "/a", "payload": {"n": 1}, "key": "k", "pin_deployment": True}),
        ("schedule_at", {"at": "2026-12-24T18:00:00Z", "path": "/a"}),
        ("reschedule", {"task": 7, "in_": 60}),
        ("find_deferred", {"subject": "s"}),
        ("cancel_deferred", {"key": "k", "dry_run": True}),
        ("cancel_deferred", {"key_prefix": "k"}),
        ("send", {"conversation": 12, "words": "Good morning"}),
        ("send_template", {"template": "HX1", "to": "+34600000001", "params": ["Ana"]}),
        ("log", {"words": "done", "id": 7}),
    ]
    assert mock.called("reschedule") == [{"task": 7, "in_": 60}]


async def test_the_mock_refuses_what_the_service_would_and_remembers_none_of_it() -> None:
    mock = MockContext(now=NOW)
    refused: list[tuple[type[Exception], Any]] = [
        (BadBooking, mock.schedule(in_="30m1h", path="/a")),
        (BadBooking, mock.schedule(in_="401d", path="/a")),
        (BadBooking, mock.schedule(in_="1h", path="a")),
        (PayloadTooLarge, mock.schedule(in_="1h", path="/a", payload={"x": "x" * 65_536})),
        (BadBooking, mock.schedule_at(at=NOW - timedelta(seconds=1), path="/a")),
        (BadBooking, mock.find_deferred(per_page=101)),
        (BadBooking, mock.cancel_deferred(key="a", subject="b")),
        (BadBooking, mock.find_deferred(key="\0")),
        (BadBooking, mock.find_deferred(subject=7)),
        (BadBooking, mock.find_deferred(function="\ud800")),
        (BadBooking, mock.find_deferred(status=None)),
        (NoSuchTask, mock.reschedule("7", in_="1h")),  # type: ignore[arg-type]
        (ValueError, mock.send(1, " ")),
        (BadBooking, mock.send_template(template="HX1", to="+34600000001", params=["Ana", ""])),
        (TypeError, mock.schedule(in_="1h", path="/a", kay="k")),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            await call
    assert mock.calls == []


async def test_the_mock_of_a_fire_has_no_channel_unless_it_is_given_one() -> None:
    fire, call = MockContext(is_scheduled_fire=True), MockContext()
    assert (fire.is_scheduled_fire, call.is_scheduled_fire, call.channel) == (True, False, "web")
    with pytest.raises(NoChannel, match="put the channel into the payload"):
        fire.templates.for_()
    call.channel = "whatsapp"
    call.has_template = {"HX1"}
    assert [await call.templates.for_().has(name) for name in ("HX1", "HX2")] == [True, False]
    assert await fire.templates.for_("whatsapp").has("HX1")


async def test_a_chain_of_checks_runs_on_the_mock_as_in_the_service() -> None:
    mock = MockContext()
    assert await mock.guard.when("paid", lambda: False).run(lambda: {"sent": True}) == {"skipped": "paid"}
    mock.guard.when("never run", lambda: True)
    with pytest.raises(GuardNotRun):
        mock.complain()


class Seen:
    """An application whose functions say when they ran, by the clock of the test."""

    def __init__(self) -> None:
        self.app, self.failing = App(time_zone="UTC"), 0
        self.ran: list[tuple[str, Any, int]] = []

        @self.app.function("/note")
        async def note(given: Any, ctx: Context) -> Any:
            self.ran.append(("/note", given.get("n"), ctx.attempt))
            if self.failing:
                self.failing -= 1
                raise OSError("the shop is down")
            return {"noted": given.get("n")}

        @self.app.function("/chain")
        async def chain(given: Any, ctx: Context) -> Any:
            self.ran.append(("/chain", given["left"], ctx.attempt))
            if given["left"]:
                await ctx.schedule(in_="1h", path="/chain", payload={"left": given["left"] - 1})

        @self.app.function("/stop")
        async def stop(given: Any) -> None:
            raise Stop("nobody wants it")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def vuelvo_app(seen: Seen) -> App:
    return seen.app


async def test_time_passes_and_what_is_due_has_ended(deferred: Rehearsal, seen: Seen) -> None:
    ctx = deferred.context("/note")
    for n, wait in enumerate(("1h", "24h", "25h")):
        await ctx.schedule(in_=wait, path="/note", payload={"n": n})
    assert await deferred.fire_due() == []
    runs = await deferred.fire_due(after="24h")
    assert [(run.status, run.result) for run in runs] == [("fired", {"noted": 0}), ("fired", {"noted": 1})]
    assert [n for _, n, _ in seen.ran] == [0, 1]
    assert [run.status for run in await deferred.tasks()] == ["fired", "fired", "scheduled"]
    assert [run.payload for run in await deferred.fire_due(after=timedelta(hours=1))] == [{"n": 2}]


async def test_each_run_comes_at_its_own_time_so_that_a_chain_of_hours_takes_hours(
    deferred: Rehearsal, seen: Seen
) -> None:
    began = deferred.clock.at
    await deferred.context().schedule(in_="1h", path="/chain", payload={"left": 9})
    runs = await deferred.fire_due(after="5h")
    assert [run.scheduled_at - began for run in runs] == [timedelta(hours=n) for n in range(1, 6)]
    assert deferred.clock.at == began + timedelta(hours=5)
    (left,) = [run for run in await deferred.tasks("/chain") if run.status == "scheduled"]
    assert left.scheduled_at == began + timedelta(hours=6)
    assert await deferred.tasks("/note") == []


async def test_a_run_that_raises_is_seen_to_be_tried_again_and_one_that_stops_to_have_failed(
    deferred: Rehearsal, seen: Seen
) -> None:
    seen.failing = 1
    await deferred.context().schedule(in_=0, path="/note", payload={"n": 1})
    await deferred.context().schedule(in_=0, path="/stop")
    (stopped,) = await deferred.fire_due()
    assert (stopped.status, stopped.error) == ("failed", "Stop: nobody wants it")
    (waits,) = await deferred.tasks("/note")
    assert (waits.status, "the shop is down" in str(waits.error)) == ("scheduled", True)
    (done,) = await deferred.fire_due(after="10m")
    assert (done.id, done.status, done.attempt) == (waits.id, "fired", 2)
    assert [attempt for _, _, attempt in seen.ran] == [1, 2]


async def test_a_pinned_run_fires_and_a_booking_of_one_s_own_transaction_goes_with_it(
    deferred: Rehearsal, seen: Seen
) -> None:
    ctx = deferred.context()
    await ctx.schedule(in_=1, path="/note", payload={"n": "pinned"}, pin_deployment=True)
    engine = create_async_engine(engine_url(deferred.database_url))

    async def book(n: str, *, and_fail: bool) -> None:
        async with engine.begin() as connection:
            await ctx.schedule(in_=1, path="/note", payload={"n": n}, connection=connection)
            if and_fail:
                raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await book("never", and_fail=True)
    await book("mine", and_fail=False)
    await engine.dispose()
    await deferred.fire_due(after=1)
    assert sorted(n for _, n, _ in seen.ran) == ["mine", "pinned"]


async def test_a_call_is_answered_as_over_http_and_refused_likewise(deferred: Rehearsal) -> None:
    assert await deferred.call("/note", {"n": 1}) == {"noted": 1}
    with pytest.raises(NoSuchFunction, match="/nowhere"):
        await deferred.call("/nowhere")
    with pytest.raises(BadBooking, match="an object or an array"):
        await deferred.call("/note", "text")


PROJECT = '''
"""A developer's application, and their test of it."""

from datetime import timedelta

from pydantic import BaseModel

from app.functions import App

app = App(time_zone="UTC")


class Cart(BaseModel):
    cart: str


@app.function("/abandoned-cart", input=Cart)
async def abandoned_cart(cart, ctx):
    return {"id": (await ctx.schedule(in_="24h", path="/send", payload={"cart": cart.cart})).id}


@app.function("/send", input=Cart)
async def send(cart, ctx):
    return {"sent": cart.cart}
'''
ITS_TEST = """
import pytest
from app.functions import BadInput


@pytest.mark.asyncio
async def test_it(deferred):
    called = await deferred.call("/abandoned-cart", {"cart": "c1"})
    assert [run.id for run in await deferred.tasks()] == [called["id"]]
    (run,) = await deferred.fire_due(after="24h")
    assert run.result == {"sent": "c1"}
    with pytest.raises(BadInput):
        await deferred.call("/send", {})
"""


async def run_pytest(directory: Path, *words: str) -> tuple[int, str]:
    """Run pytest as in a project of a developer's, where the plugin is installed."""
    plugin = () if entry_points(group="pytest11", name="vuelvo") else ("-p", "app.pytest_plugin")
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:teremok", "-p", "no:cacheprovider", *plugin, *words),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await ran.communicate()
    return ran.returncode or 0, out.decode()


async def test_a_project_names_its_application_and_a_server_and_has_the_fixture(
    tmp_path: Path, server_url: str
) -> None:
    (tmp_path / "shop.py").write_text(PROJECT)
    (tmp_path / "test_shop.py").write_text(ITS_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nvuelvo_app = shop:app\n")
    code, said = await run_pytest(tmp_path, "--vuelvo-database-url", server_url)
    assert (code, "1 passed" in said) == (0, True), said


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "set vuelvo_app = module:object"), ("nowhere:app", "vuelvo_app names the module 'nowhere'")],
)
def test_an_application_that_is_not_named_or_not_there_is_a_clear_line(name: str, words: str) -> None:
    with pytest.raises(pytest.UsageError, match=words):
        app_called(name)


def test_a_run_that_wants_nothing_of_the_plugin_loads_nothing_of_the_service() -> None:
    code = "import sys, app.pytest_plugin; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = set(ran.stdout.split())
    assert "app" in loaded
    assert not loaded & {"sqlalchemy", "psycopg", "pydantic", "scheduler", "store", "agent", "channels", "aiogram"}


def test_pytest_finds_the_plugin_where_this_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert hasattr(import_module(project["entry-points"]["pytest11"]["vuelvo"]), "deferred")
