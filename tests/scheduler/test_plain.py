"""Schedules in memory, and a scheduler that has no database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy.exc import SQLAlchemyError

from scheduler.clock import MovableClock
from scheduler.idle import Silence
from scheduler.plain import Present
from scheduler.scheduled import Engine, ScheduledRun, Scheduler
from store.database import Database
from store.signals import Signals
from tests.support.wait import eventually

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
START = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    await scheduler.start()
    try:
        yield
    finally:
        await scheduler.stop()


def sleeps_until(clock: MovableClock, at: datetime) -> bool:
    """Whether a schedule sleeps until then, or for the minute after which it looks at the clock again."""
    return min(at, clock.at + MINUTE) in clock.sleepers.values()


def _has(signals: list[asyncio.Event], count: int) -> bool:
    return len(signals) == count


async def move(clock: MovableClock, by: timedelta, then: datetime) -> None:
    """Let time pass minute by minute, until what comes next is slept for."""
    until = clock.at + by
    while clock.at < until:
        clock.set(min(clock.at + MINUTE, until))
        await eventually(lambda: not clock.has_sleepers_due())
    await eventually(partial(sleeps_until, clock, then))


async def test_each_comes_on_its_grid_and_what_comes_while_it_runs_is_left_out(clock: MovableClock) -> None:
    runs: list[datetime] = []
    gate = asyncio.Event()
    gate.set()
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def heartbeat(run: ScheduledRun) -> None:
        runs.append(run.scheduled_at)
        await gate.wait()

    async with running(scheduler):
        await move(clock, timedelta(), START + MINUTE)
        assert await heartbeat.next_run_at() == START + MINUTE
        await move(clock, MINUTE, START + 2 * MINUTE)
        gate.clear()
        clock.move(MINUTE)
        await eventually(lambda: len(runs) == 2)
        clock.move(timedelta(minutes=2, seconds=30))
        gate.set()
        await eventually(partial(sleeps_until, clock, START + 5 * MINUTE))
        await move(clock, 30 * SECOND, START + 6 * MINUTE)
    assert runs == [START + number * MINUTE for number in (1, 2, 5)]
    assert heartbeat.time_zone is None


async def test_a_delay_comes_once_and_zero_is_now(clock: MovableClock) -> None:
    runs: list[str] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    async def now(run: ScheduledRun) -> None:
        runs.append(f"now {run.scheduled_at:%H:%M}")

    async def later() -> None:
        runs.append("later")

    scheduler.delay(0, now)
    task = scheduler.delay(timedelta(hours=2), later)
    async with running(scheduler):
        await eventually(lambda: runs == ["now 14:00"])
        await eventually(partial(sleeps_until, clock, START + 2 * HOUR))
        clock.move(2 * HOUR)
        await eventually(lambda: runs == ["now 14:00", "later"])
        assert await task.next_run_at() is None
        clock.move(10 * HOUR)
        assert clock.sleepers == {}


async def test_the_zone_of_a_schedule_goes_before_the_schedulers(clock: MovableClock) -> None:
    async def handler() -> None: ...

    scheduler = Scheduler(time_zone="America/Bogota", clock=clock)
    own = scheduler.cron("0 9 * * *", handler, time_zone="Europe/Madrid")
    default = scheduler.cron("0 9 * * *", handler)
    async with running(scheduler):
        await eventually(lambda: len(clock.sleepers) == 2)
        assert await own.next_run_at() == datetime(2026, 11, 30, 8, tzinfo=UTC)
        assert await default.next_run_at() == datetime(2026, 11, 29, 14, tzinfo=UTC) + timedelta(days=1)
    assert (own.time_zone, default.time_zone) == ("Europe/Madrid", "America/Bogota")


async def test_cancelled_it_comes_no_more_also_from_within(clock: MovableClock) -> None:
    runs: list[int] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def twice() -> None:
        runs.append(len(runs))
        if len(runs) == 2:
            await twice.cancel()

    async def never() -> None:
        runs.append(99)

    other = scheduler.every("1m", never)
    async with running(scheduler):
        await other.cancel()
        await move(clock, timedelta(), START + MINUTE)
        await move(clock, MINUTE, START + 2 * MINUTE)
        clock.move(MINUTE)
        await eventually(lambda: len(runs) == 2)
        await eventually(lambda: not clock.sleepers)
        assert await twice.next_run_at() is None
    assert runs == [0, 1]


async def test_a_handler_that_fails_is_logged_and_comes_again(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def fails() -> None:
        runs.append(1)
        raise ValueError("out of paper")

    async with running(scheduler):
        await move(clock, timedelta(), START + MINUTE)
        await move(clock, MINUTE, START + 2 * MINUTE)
        await move(clock, MINUTE, START + 3 * MINUTE)
    assert len(runs) == 2
    assert "fails failed at 2026-11-29T14:01:00.000Z" in caplog.text


async def test_a_handler_that_awaits_what_was_cancelled_comes_again(clock: MovableClock) -> None:
    runs: list[datetime] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def awaits_what_was_cancelled(run: ScheduledRun) -> None:
        runs.append(run.scheduled_at)
        raise asyncio.CancelledError

    async with running(scheduler):
        await move(clock, timedelta(), START + MINUTE)
        await move(clock, MINUTE, START + 2 * MINUTE)
        await move(clock, MINUTE, START + 3 * MINUTE)
    assert runs == [START + MINUTE, START + 2 * MINUTE]


async def test_without_a_database_what_is_durable_is_kept_in_memory_and_a_warning_says_so_once(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[ScheduledRun] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    async def handler(run: ScheduledRun) -> None:
        runs.append(run)

    for name in ("one", "two"):
        scheduler.every("1m", handler, id=name, missed="catch-up")
    async with running(scheduler):
        await eventually(lambda: len(clock.sleepers) == 2)
        clock.move(MINUTE)
        await eventually(lambda: len(runs) == 2)
        assert await scheduler.forget_task("one")
        assert not await scheduler.forget_task("one")
        with pytest.raises(RuntimeError, match="no service here"):
            await runs[0].send(1, "words", tenant="acme")
    assert sorted(run.occurrence_key for run in runs) == [
        "one@2026-11-29T14:01:00.000Z",
        "two@2026-11-29T14:01:00.000Z",
    ]
    assert runs[0].fencing_token != runs[1].fencing_token
    assert caplog.text.count("do not survive a restart") == 1


async def test_stopped_a_run_is_told_and_started_again_it_goes_on(clock: MovableClock) -> None:
    signals: list[asyncio.Event] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def waits(run: ScheduledRun) -> None:
        signals.append(run.signal)
        await asyncio.Event().wait()

    for number in (1, 2):
        async with running(scheduler):
            await eventually(partial(sleeps_until, clock, clock.at + MINUTE))
            clock.move(MINUTE)
            await eventually(partial(_has, signals, number))
        assert signals[-1].is_set()


async def test_a_handler_that_swallows_that_it_is_stopped_does_not_keep_the_scheduler_from_it(
    clock: MovableClock,
) -> None:
    begun = asyncio.Event()
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def swallows() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    await scheduler.start()
    await move(clock, timedelta(), START + MINUTE)
    clock.move(MINUTE)
    await begun.wait()
    async with asyncio.timeout(5):
        await scheduler.stop()
    assert not [work for work in asyncio.all_tasks() if work.get_name().startswith("schedule")]


async def test_a_silence_is_minded_though_the_database_is_away_for_a_while(
    database: Database, clock: MovableClock
) -> None:
    outages, silences = [OSError(), None, OSError(), None], list[Silence]()

    async def last_heard(tenant: str, conversation: int) -> datetime | None:
        if (outage := outages.pop(0)) is not None:
            raise outage
        return START

    async def still_there(silence: Silence) -> None:
        silences.append(silence)

    scheduler = Scheduler(time_zone="UTC")
    scheduler.on_idle(7, "1m", still_there, tenant="acme")
    await scheduler.start(Engine(database, clock, Signals(database), SECOND, None, last_heard))
    for left in (3, 1):
        await eventually(partial(_has_left, outages, left))
        await eventually(lambda: bool(clock.sleepers))
        clock.move(SECOND)
        if left == 3:
            await eventually(partial(_has_left, outages, 2))
            await move(clock, timedelta(), clock.at + MINUTE)
            clock.move(MINUTE)
    await eventually(lambda: len(silences) == 1)
    await scheduler.stop()


async def test_whatever_is_raised_after_a_silence_is_logged(
    database: Database, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def last_heard(tenant: str, conversation: int) -> datetime | None:
        return START

    async def leaves(silence: Silence) -> None:
        raise SystemExit(3)

    scheduler = Scheduler(time_zone="UTC")
    scheduler.on_idle(7, "1m", leaves, tenant="acme")
    await scheduler.start(Engine(database, clock, Signals(database), SECOND, None, last_heard))
    await move(clock, timedelta(), START + MINUTE)
    clock.move(MINUTE)
    await eventually(lambda: "after a silence in conversation 7" in caplog.text)
    await scheduler.stop()


def _has_left(outages: list[OSError | None], count: int) -> bool:
    return len(outages) == count


async def test_started_twice_each_comes_once_all_the_same(clock: MovableClock) -> None:
    runs: list[datetime] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)

    @scheduler.every("1m")
    async def heartbeat(run: ScheduledRun) -> None:
        runs.append(run.scheduled_at)

    await scheduler.start()
    async with running(scheduler):
        await move(clock, timedelta(), START + MINUTE)
        await move(clock, MINUTE, START + 2 * MINUTE)
    assert runs == [START + MINUTE]
    assert not [work for work in asyncio.all_tasks() if work.get_name().startswith("schedule")]


async def test_a_start_that_the_database_cut_off_may_be_done_again(database: Database, clock: MovableClock) -> None:
    runs: list[datetime] = []
    scheduler = Scheduler(time_zone="UTC")

    async def notes(run: ScheduledRun) -> None:
        runs.append(run.scheduled_at)

    scheduler.every("1m", notes)
    scheduler.every("1m", notes, id="durable")
    nobody = Database("postgresql+psycopg://postgres@127.0.0.1:1/none")
    signals = Signals(database)
    with pytest.raises(SQLAlchemyError):
        await scheduler.start(Engine(nobody, clock, signals, SECOND))
    await scheduler.start(Engine(database, clock, signals, SECOND))
    await move(clock, timedelta(), START + MINUTE)
    await move(clock, MINUTE, START + 2 * MINUTE)
    assert runs == [START + MINUTE]
    await scheduler.stop()
    await nobody.close()


async def test_registered_while_it_runs_it_begins(clock: MovableClock) -> None:
    runs: list[int] = []
    scheduler = Scheduler(time_zone="UTC", clock=clock)
    async with running(scheduler):

        @scheduler.delay("30s")
        async def late() -> None:
            runs.append(1)

        await eventually(partial(sleeps_until, clock, START + 30 * SECOND))
        clock.move(30 * SECOND)
        await eventually(lambda: runs == [1])


async def test_the_database_tells_the_time_and_is_asked_once_a_minute(database: Database) -> None:
    class Told(MovableClock):
        asked = 0

        def override(self) -> None:
            return None

        async def now(self, connection: object) -> datetime:
            self.asked += 1
            return START

    clock = Told()
    present = Present(clock, database)
    assert [await present.now() for _ in range(3)] == [START] * 3
    clock.move(30 * SECOND)
    assert await present.now() == START + 30 * SECOND
    assert clock.asked == 1
    clock.move(31 * SECOND)
    assert await present.now() == START  # asked again: the database's clock was set back
    assert clock.asked == 2
