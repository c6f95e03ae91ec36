"""The developer's own schedules in the service: loaded by name, run by whoever works, and able to speak."""

import asyncio
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from app.application import ApplicationError, load
from app.engine import engine_of
from scheduler.claim import claim
from scheduler.clock import MovableClock
from scheduler.idle import Silence
from scheduler.scheduled import ScheduledRun, Scheduler
from store.database import Database
from tests.support.house import House, a_house
from tests.support.model import Script
from tests.support.process import start
from tests.support.wait import eventually

MINUTE = timedelta(minutes=1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory to write an application in, in which the service is started."""
    monkeypatch.chdir(tmp_path)
    before, known = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = known
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_an_application_is_found_by_its_name_in_the_current_directory(here: Path) -> None:
    (here / "my_jobs.py").write_text(
        "from scheduler.scheduled import Scheduler\nclass App:\n    scheduler = Scheduler(time_zone='UTC')\nscheduler = App.scheduler\napp = App()\n"
    )
    first, *others = [load(f"my_jobs:{name}").scheduler for name in ("scheduler", "app", "App.scheduler")]
    assert all(other is first for other in others)
    assert (load(None).functions, load(None).scheduler.offers) == ({}, set())


def test_an_app_is_found_with_its_functions_and_its_schedules(here: Path) -> None:
    code = "from app.functions import App\napp = App(time_zone='UTC')\n@app.function('/a')\nasync def a(given): ...\n"
    (here / "my_shop.py").write_text(code)
    assert set(load("my_shop:app").functions) == {"/a"}
    assert load("my_shop:app") is load("my_shop:app")


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("jobs", "", "write module:object"),
        (":scheduler", "", "write module:object"),
        ("nowhere_to_be_found:scheduler", "", "'nowhere_to_be_found', which is not in"),
        ("needy_jobs:scheduler", "import not_installed_here", "needs one that is missing: not_installed_here"),
        ("broken_jobs:scheduler", "1 / 0", "ZeroDivisionError"),
        ("bad_syntax_jobs:scheduler", "def", "SyntaxError"),
        ("ending_jobs:scheduler", "raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        ("lazy_jobs:scheduler", "def __getattr__(name): raise OSError('no disk')", "raises OSError: no disk"),
        ("empty_jobs:scheduler", "", "is no App or Scheduler and has none"),
        (
            "never_jobs:scheduler",
            "from scheduler.scheduled import Scheduler\nScheduler(time_zone='UTC').cron('0 0 30 2 *')(None)",
            "never comes in month",
        ),
    ],
)
def test_an_application_that_cannot_be_used_is_one_clear_line(here: Path, name: str, code: str, words: str) -> None:
    if code or "empty" in name:
        (here / f"{name.partition(':')[0]}.py").write_text(code)
    with pytest.raises(ApplicationError) as refused:
        load(name)
    assert words in str(refused.value)


async def with_schedules(house: House, scheduler: Scheduler) -> None:
    await scheduler.start(engine_of(house.service, MINUTE))


async def test_what_a_schedule_says_goes_out_once_in_the_conversation_however_often_it_runs(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with a_house(database, tmp_path, Script("Hello.").model, clock) as house:
        received = await house.says("hello")
        await house.until_heard(received.conversation, 1)
        engine = engine_of(house.service, MINUTE)
        for _ in range(2):
            run = ScheduledRun("digest", clock.at, 1, False, asyncio.Event(), engine.send)
            await run.send(received.conversation, "Your digest.", tenant="acme")
            await run.send(received.conversation, "And more.", tenant="acme")
            house.wake()
        assert (await house.until_heard(received.conversation, 3))[1:] == ["Your digest.", "And more."]
        assert [(task.state, task.kind) for task in await house.tasks(kind="notice")] == [("fired", "notice")] * 2
        run = ScheduledRun("digest", clock.at + MINUTE, 2, False, asyncio.Event(), engine.send)
        with pytest.raises(LookupError, match="has no conversation 4711"):
            await run.send(4711, "x", tenant="acme")
        with pytest.raises(LookupError):
            await run.send(received.conversation, "x", tenant="another")
        for words in ("", "  \0", "x" * 16_001):
            with pytest.raises(ValueError, match="1 to 16000 characters"):
                await run.send(received.conversation, words, tenant="acme")


async def test_what_a_run_says_one_after_another_is_said_in_that_order(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with a_house(database, tmp_path, Script("Hello.").model, clock) as house:
        conversation = (await house.says("hello")).conversation
        await house.until_heard(conversation, 1)
    async with a_house(database, tmp_path, Script().model, clock, poll=False) as house:
        run = ScheduledRun("digest", clock.at, 1, False, asyncio.Event(), engine_of(house.service, MINUTE).send)
        for words in ("one", "two"):
            await run.send(conversation, words, tenant="acme")
        async with database.transaction() as connection:
            assert not await claim(connection, clock, "w", MINUTE, "background", 10)
            assert not await claim(connection, clock, "w", MINUTE, "timed", 10)
            said = await claim(connection, clock, "w", MINUTE, "speak", 10)
        assert [task.payload["words"] for task in said] == ["one"]


async def test_a_customer_who_wants_nothing_more_is_sent_nothing_by_a_schedule(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with a_house(database, tmp_path, Script("Hello.").model, clock) as house:
        received = await house.says("hello")
        await house.until_heard(received.conversation, 1)
        async with database.transaction() as connection:
            await connection.execute(text("update contacts set stopped = 'customer'"))
        engine = engine_of(house.service, MINUTE)
        run = ScheduledRun("digest", clock.at, 1, False, asyncio.Event(), engine.send)
        await run.send(received.conversation, "Your digest.", tenant="acme")
        house.wake()

        async def is_skipped() -> bool:
            (task,) = await house.tasks(kind="notice")
            return task.state == "fired"

        await eventually(is_skipped)
        (task,) = await house.tasks(kind="notice")
        assert str(task.outcome).startswith("skipped")


async def test_after_a_silence_a_handler_runs_once_and_what_is_written_begins_it_anew(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    silences: list[Silence] = []

    async def remember(silence: Silence) -> None:
        silences.append(silence)

    scheduler = Scheduler(time_zone="UTC")
    watch = scheduler.on_idle(None, "15m", remember, tenant="acme")
    async with a_house(database, tmp_path, Script("Hello.").model, clock) as house:
        await with_schedules(house, scheduler)
        house.service.on_heard = scheduler.heard
        received = await house.says("hello")
        await eventually(partial(_sleeps, clock))
        clock.move(10 * MINUTE)
        began = clock.at
        await house.says("and another thing")
        await eventually(partial(_sleeps, clock))
        clock.move(10 * MINUTE)
        await eventually(partial(_sleeps, clock))
        assert silences == []
        clock.move(5 * MINUTE)
        await eventually(lambda: len(silences) == 1)
        assert silences == [Silence("acme", received.conversation, began)]
        assert watch.timers == {}  # one silence, once
        watch.cancel()
        await scheduler.stop()


def _sleeps(clock: MovableClock) -> bool:
    """Whether a timer has looked at the clock as it stands and sleeps on."""
    return clock.at + MINUTE in clock.sleepers.values()


async def test_an_application_with_a_mistake_keeps_the_service_from_starting(tmp_path: Path) -> None:
    process = await start("serve", directory=tmp_path, environ={"VUELVO_APP": "jobs:scheduler", "VUELVO_PORT": "0"})
    assert await process.ended() == 2
    said = "\n".join(process.said)
    assert "VUELVO_APP names the module 'jobs'" in said
    assert "Traceback" not in said


async def test_a_durable_schedule_runs_in_the_service_and_a_plain_one_too(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        textwrap.dedent("""
        from scheduler.scheduled import ScheduledRun, Scheduler

        scheduler = Scheduler(time_zone="Europe/Madrid")

        @scheduler.every("1s", id="beat")
        async def beat(run: ScheduledRun) -> None:
            print("durable", run.occurrence_key, run.fencing_token, flush=True)

        @scheduler.every("1s")
        async def plain() -> None:
            print("plain", flush=True)
        """)
    )
    process = await start("serve", directory=tmp_path, environ={"VUELVO_APP": "jobs:scheduler", "VUELVO_PORT": "0"})
    try:
        await process.until_said("durable beat@")
        await process.until_said("plain")
    finally:
        assert await process.stop() == 0
