"""Durable schedules: a row that comes again, run by one replica, whatever happens to the others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from scheduler import operate, recovery, recurrence, schedules
from scheduler.clock import MovableClock
from scheduler.errors import BadSchedule
from scheduler.poller import DUE, Poller
from scheduler.scheduled import Engine, ScheduledRun, Scheduler
from scheduler.schedules import Schedule
from scheduler.task import OWN
from store.database import Database
from store.signals import Signals
from tests.support.wait import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GRACE = timedelta(seconds=10)
START = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)


@dataclass
class Replica:
    """One process with an application's schedules."""

    database: Database
    clock: MovableClock
    scheduler: Scheduler
    poller: Poller
    signals: Signals

    async def look(self) -> None:
        """Let it look for what is due, and wait until it has found nothing more to do."""
        before = self.poller.beat_at
        self.signals.hint(DUE)
        await eventually(lambda: self.poller.beat_at != before)


@dataclass
class Runs:
    """A handler that notes its runs; it waits inside while `gate` is closed."""

    runs: list[ScheduledRun] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    async def __call__(self, run: ScheduledRun) -> None:
        self.begun.set()
        await self.gate.wait()
        self.runs.append(run)
        if self.fails:
            raise ValueError("out of paper")

    def slots(self) -> list[str]:
        """The slots that were run, `!` behind those that were run as missed."""
        return [f"{run.scheduled_at:%H:%M:%S}{'!' if run.missed else ''}" for run in self.runs]


@asynccontextmanager
async def a_replica(
    url: str, clock: MovableClock, prepare: Callable[[Scheduler], object], name: str = "w"
) -> AsyncIterator[Replica]:
    """Start a process whose application registers schedules, and stop it in the end."""
    database = Database(url, pool_size=5)
    signals = Signals(database)
    scheduler = Scheduler(time_zone="UTC")
    prepare(scheduler)
    poller = Poller(
        database,
        clock,
        signals,
        scheduler.perform,
        name=name,
        interval=MINUTE,
        offers=lambda: scheduler.offers,
        on_lost=scheduler.lose,
    )
    await scheduler.start(Engine(database, clock, signals, GRACE))
    poller.start()
    try:
        yield Replica(database, clock, scheduler, poller, signals)
    finally:
        await scheduler.stop()
        await poller.stop(grace=SECOND)
        await database.close()


async def rows(database: Database) -> list[dict[str, Any]]:
    async with database.transaction() as connection:
        found = await connection.execute(text("select * from tasks where kind = 'schedule' order by key"))
        return [dict(row._mapping) for row in found]


async def row(database: Database) -> dict[str, Any]:
    (found,) = await rows(database)
    return found


async def story(database: Database, *events: str) -> list[tuple[str, str]]:
    async with database.transaction() as connection:
        found = await connection.execute(
            text("select event, detail from task_events where event = any(:events) order by id"),
            {"events": list(events)},
        )
        return [(line.event, line.detail) for line in found]


async def waits(database: Database) -> bool:
    return [each["state"] for each in await rows(database)] == ["scheduled"]


async def is_planned_for(database: Database, slot: datetime) -> bool:
    return bool((await row(database))["booked_for"] == slot)


def every(runs: Runs, interval: str = "1m", **options: Any) -> Callable[[Scheduler], object]:
    return lambda scheduler: scheduler.every(interval, runs, id="sync", **options)


async def pass_time(replica: Replica, by: timedelta, runs: Runs, count: int) -> None:
    """Move the clock, and wait until the handler has run so often in all and the schedule waits again."""
    replica.clock.move(by)
    replica.signals.hint(DUE)
    await eventually(lambda: len(runs.runs) == count)
    await eventually(lambda: waits(replica.database))


async def test_each_slot_runs_once_on_its_grid(database_url: str, clock: MovableClock) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, every(runs)) as replica:
        for number in range(1, 4):
            await pass_time(replica, MINUTE + SECOND * (number == 1), runs, number)
        assert runs.slots() == ["14:01:00", "14:02:00", "14:03:00"]
        keys = [run.occurrence_key for run in runs.runs]
        assert keys[0] == "sync@2026-11-29T14:01:00.000Z"
        assert len(set(keys)) == 3
        assert [run.fencing_token for run in runs.runs] == [1, 2, 3]
        assert (await row(replica.database))["booked_for"] == START + 4 * MINUTE


async def test_booted_three_times_it_is_one_row_with_the_same_next_run(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    seen = []
    for _ in range(3):
        async with a_replica(database_url, clock, every(Runs(), "1h")):
            seen.append(await row(database))
        clock.move(10 * MINUTE)
    assert seen[0]["booked_for"] == START + HOUR
    assert seen[0] == seen[1] == seen[2]


async def test_of_two_replicas_one_runs_each_slot(database_url: str, clock: MovableClock) -> None:
    one, two = Runs(), Runs()
    async with (
        a_replica(database_url, clock, every(one), "one") as first,
        a_replica(database_url, clock, every(two), "two") as second,
    ):
        for number in range(1, 6):
            clock.move(MINUTE)
            first.signals.hint(DUE)
            second.signals.hint(DUE)
            await eventually(partial(_has_run, number, one, two))
            await eventually(lambda: waits(first.database))
        assert sorted(one.slots() + two.slots()) == [f"14:0{number}:00" for number in range(1, 6)]


async def test_restarted_right_after_its_daily_run_it_does_not_run_again_in_that_slot(
    database_url: str, clock: MovableClock
) -> None:
    runs = Runs()

    def daily(scheduler: Scheduler) -> None:
        scheduler.cron("0 15 * * *", runs, id="daily", missed="catch-up")

    async with a_replica(database_url, clock, daily) as replica:
        await pass_time(replica, HOUR, runs, 1)
    async with a_replica(database_url, clock, daily) as replica:
        await replica.look()
        clock.move(MINUTE)
        await replica.look()
        assert runs.slots() == ["15:00:00"]
        assert (await row(replica.database))["booked_for"] == START + HOUR + DAY


@pytest.mark.parametrize(
    ("policy", "ran", "told"),
    [
        ("skip", [], "skip: none run; skipped from 2026-11-29T14:01:00.000Z until 2026-11-29T14:05:00.000Z"),
        (
            "run-once",
            ["14:01:00!"],
            "run-once: 1 run, from 2026-11-29T14:01:00.000Z; skipped from 2026-11-29T14:02:00.000Z until 2026-11-29T14:05:00.000Z",
        ),
        (
            "catch-up",
            ["14:01:00!", "14:02:00!", "14:03:00!", "14:04:00!"],
            "catch-up: 4 run, from 2026-11-29T14:01:00.000Z",
        ),
    ],
)
async def test_what_nobody_was_there_to_run_follows_the_policy_and_is_told(
    database: Database, database_url: str, clock: MovableClock, policy: str, ran: list[str], told: str
) -> None:
    async with a_replica(database_url, clock, every(Runs(), missed=policy)):
        pass
    clock.move(timedelta(minutes=4, seconds=30))
    runs = Runs()
    async with a_replica(database_url, clock, every(runs, missed=policy)) as replica:
        await eventually(lambda: is_planned_for(database, START + 5 * MINUTE))
        assert runs.slots() == ran
        assert len({run.fencing_token for run in runs.runs}) <= 1
        assert await story(database, "missed") == [("missed", told)]
        await pass_time(replica, 30 * SECOND, runs, len(ran) + 1)  # and goes on, on the old grid
        assert runs.slots()[-1] == "14:05:00"


async def test_a_long_run_and_two_restarts_leave_an_interval_on_its_grid(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    for number in (1, 2):
        async with a_replica(database_url, clock, every(runs, "2h")) as replica:
            clock.set(START + number * 2 * HOUR)
            runs.gate.clear()
            runs.begun.clear()
            replica.signals.hint(DUE)
            await runs.begun.wait()
            clock.move(3 * MINUTE)
            runs.gate.set()
            await eventually(lambda number=number: is_planned_for(database, START + (number + 1) * 2 * HOUR))  # type: ignore[misc]
        clock.move(MINUTE)
    assert runs.slots() == ["16:00:00", "18:00:00"]


async def test_a_slot_claimed_within_the_grace_is_not_missed(database_url: str, clock: MovableClock) -> None:
    async with a_replica(database_url, clock, every(Runs())):
        pass
    clock.move(MINUTE + GRACE)
    runs = Runs()
    async with a_replica(database_url, clock, every(runs)):
        await eventually(lambda: bool(runs.runs))
        assert runs.slots() == ["14:01:00"]


async def test_of_much_that_was_missed_no_more_than_wanted_is_caught_up(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async with a_replica(database_url, clock, every(Runs(), missed="catch-up", max_catch_up=3)):
        pass
    clock.move(10 * DAY)
    runs = Runs()
    async with a_replica(database_url, clock, every(runs, missed="catch-up", max_catch_up=3)):
        await eventually(lambda: len(runs.runs) == 3)
        await eventually(lambda: waits(database))
        assert runs.slots() == ["14:01:00!", "14:02:00!", "14:03:00!"]
        assert (await row(database))["booked_for"] == clock.at + MINUTE
        ((_, told),) = await story(database, "missed")
        assert "skipped from 2026-11-29T14:04:00.000Z" in told


async def _dies(url: str, clock: MovableClock, prepare: Callable[[Scheduler], object], runs: Runs) -> None:
    """A process that is killed in the middle of a run: nothing of it is settled."""
    async with a_replica(url, clock, prepare, "dead") as replica:
        replica.signals.hint(DUE)
        await runs.begun.wait()
        replica.poller._perform = None  # type: ignore[assignment]
        async with replica.database.transaction() as connection:
            await connection.execute(text("update tasks set fence = fence + 1"))  # what it commits counts no more


@pytest.mark.parametrize("policy", ["skip", "run-once", "catch-up"])
async def test_a_run_cut_off_by_a_crash_runs_again_as_itself_and_the_policy_is_for_what_came_after(
    database: Database, database_url: str, clock: MovableClock, policy: str
) -> None:
    dying = Runs()
    dying.gate.clear()
    async with a_replica(database_url, clock, every(dying, missed=policy)):
        pass
    clock.move(MINUTE)
    await _dies(database_url, clock, every(dying, missed=policy), dying)
    clock.move(3 * MINUTE)
    async with database.transaction() as connection:
        await connection.execute(text("update tasks set lease_until = created_at where state = 'firing'"))
        await recovery.recover(connection, clock)
    runs = Runs()
    after = {"skip": [], "run-once": ["14:02:00!"], "catch-up": ["14:02:00!", "14:03:00!", "14:04:00"]}[policy]
    async with a_replica(database_url, clock, every(runs, missed=policy)):
        await eventually(lambda: len(runs.runs) >= 1 + len(after))
        await eventually(lambda: waits(database))
        assert runs.slots()[0] == "14:01:00"
        assert [slot.rstrip("!") for slot in runs.slots()[1:]] == [slot.rstrip("!") for slot in after]


async def test_slots_that_come_while_it_runs_are_not_dropped_unseen(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    for policy, expected in (
        ("skip", ["14:01:00", "14:05:00"]),
        ("run-once", ["14:01:00", "14:02:00!", "14:05:00"]),
        ("catch-up", ["14:01:00", "14:02:00!", "14:03:00!", "14:04:00!", "14:05:00"]),
    ):
        clock.set(START)
        runs = Runs()
        runs.gate.clear()

        async with a_replica(database_url, clock, every(runs, missed=policy)) as replica:
            clock.move(MINUTE)
            replica.signals.hint(DUE)
            await runs.begun.wait()
            clock.move(timedelta(minutes=3, seconds=20))
            runs.gate.set()
            await eventually(partial(_has_run, len(expected) - 1, runs))
            clock.set(START + 5 * MINUTE)
            replica.signals.hint(DUE)
            await eventually(partial(_has_run, len(expected), runs))
            assert runs.slots() == expected
            assert await replica.scheduler.forget_task("sync")


async def test_a_catch_up_that_is_stopped_goes_on_from_the_first_it_did_not_run(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async with a_replica(database_url, clock, every(Runs(), missed="catch-up")):
        pass
    clock.move(timedelta(minutes=4, seconds=30))

    class Slow(Runs):
        async def __call__(self, run: ScheduledRun) -> None:
            if len(self.runs) == 2:
                self.begun.set()
                await asyncio.wait_for(run.signal.wait(), 10)
                return
            self.runs.append(run)

    slow, runs = Slow(), Runs()
    async with a_replica(database_url, clock, every(slow, missed="catch-up")):
        await slow.begun.wait()
    assert slow.slots() == ["14:01:00!", "14:02:00!"]
    async with a_replica(database_url, clock, every(runs, missed="catch-up")):
        await eventually(lambda: len(runs.runs) == 1)
        assert runs.slots() == ["14:04:00!"]  # the third was told to end, and ended
        assert await story(database, "missed") == [
            ("missed", "catch-up: 3 run, from 2026-11-29T14:01:00.000Z; not run from 2026-11-29T14:04:00.000Z"),
            ("missed", "catch-up: 1 run, from 2026-11-29T14:04:00.000Z"),
        ]


async def test_a_handler_that_fails_is_told_and_the_next_slot_comes(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs(fails=True)
    async with a_replica(database_url, clock, every(runs)) as replica:
        await pass_time(replica, MINUTE, runs, 1)
        assert (await row(database))["error"] == "ValueError: out of paper"
        runs.fails = False
        await pass_time(replica, MINUTE, runs, 2)
        assert (await row(database))["error"] is None
        assert await story(database, "ran") == [
            ("ran", "2026-11-29T14:01:00.000Z: ValueError: out of paper"),
            ("ran", "2026-11-29T14:02:00.000Z"),
        ]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("problem", "words"),
    [(asyncio.CancelledError(), "CancelledError: "), (SystemExit(3), "SystemExit: 3"), (Mute(), "Mute")],
)
async def test_whatever_a_handler_raises_it_has_had_its_run(
    database: Database, database_url: str, clock: MovableClock, problem: BaseException, words: str
) -> None:
    runs: list[datetime] = []

    async def raises(run: ScheduledRun) -> None:
        runs.append(run.scheduled_at)
        raise problem

    async with a_replica(database_url, clock, lambda scheduler: scheduler.every("1m", raises, id="sync")) as replica:
        for number in range(1, 4):
            clock.move(MINUTE)
            replica.signals.hint(DUE)
            await eventually(partial(is_planned_for, database, START + (number + 1) * MINUTE))
        stored = await row(database)
    assert runs == [START + number * MINUTE for number in (1, 2, 3)]
    assert (stored["state"], stored["error"]) == ("scheduled", words)


async def test_a_catch_up_whose_handler_swallows_that_its_claim_is_lost_runs_no_further(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs: list[ScheduledRun] = []

    async def swallows(run: ScheduledRun) -> None:
        runs.append(run)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with a_replica(
        database_url,
        clock,
        lambda scheduler: scheduler.every("1m", swallows, id="sync", missed="catch-up", lease="1s"),
    ) as replica:
        clock.move(5 * MINUTE)
        replica.signals.hint(DUE)
        await eventually(lambda: len(runs) == 1)
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set fence = fence + 1"))
        await eventually(lambda: not replica.poller._running)
        assert runs[0].signal.is_set()
    assert [run.scheduled_at for run in runs] == [START + MINUTE]


async def test_another_time_is_planned_anew_and_nothing_of_the_old_is_missed(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async with a_replica(database_url, clock, every(Runs(), "1h", missed="catch-up")):
        pass
    clock.move(5 * HOUR)
    runs = Runs()
    async with a_replica(database_url, clock, every(runs, "30m", missed="catch-up")) as replica:
        await replica.look()
        assert (await row(database))["booked_for"] == clock.at + 30 * MINUTE
        assert runs.runs == []

    def in_zone(zone: str) -> Callable[[Scheduler], object]:
        return lambda scheduler: scheduler.cron("0 9 * * *", runs, id="sync", time_zone=zone)

    async with a_replica(database_url, clock, in_zone("Europe/Madrid")):
        assert (await row(database))["booked_for"] == datetime(2026, 11, 30, 8, tzinfo=UTC)
    async with a_replica(database_url, clock, in_zone("America/Bogota")):
        assert (await row(database))["booked_for"] == datetime(2026, 11, 30, 14, tzinfo=UTC)
    assert len(await rows(database)) == 1


async def test_changed_while_it_runs_it_goes_on_with_the_new_time(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs, other = Runs(), Runs()
    runs.gate.clear()
    async with a_replica(database_url, clock, every(runs)) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await runs.begun.wait()
        async with a_replica(database_url, clock, every(other, "1h"), "new"):
            runs.gate.set()
            await eventually(lambda: waits(database))
            assert (await row(database))["booked_for"] == clock.at + HOUR


async def test_one_that_comes_once_comes_once_though_it_is_registered_again(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()

    def reminder(scheduler: Scheduler) -> None:
        scheduler.delay("2h", runs, id="reminder:17", missed="run-once")

    async with a_replica(database_url, clock, reminder):
        pass
    clock.move(HOUR)
    async with a_replica(database_url, clock, reminder):  # a restart does not push it back
        assert (await row(database))["booked_for"] == START + 2 * HOUR
    clock.move(3 * HOUR)
    async with a_replica(database_url, clock, reminder):
        await eventually(lambda: len(runs.runs) == 1)
        await eventually(lambda: _is(database, "fired"))
    assert runs.slots() == ["16:00:00!"]
    async with a_replica(database_url, clock, reminder) as replica:
        await replica.look()
        clock.move(DAY)
        await replica.look()
        assert len(runs.runs) == 1
        assert await replica.scheduler.forget_task("reminder:17")
    async with a_replica(database_url, clock, reminder) as replica:  # forgotten, it is new
        assert (await row(database))["booked_for"] == clock.at + 2 * HOUR
        clock.move(2 * HOUR)
        replica.signals.hint(DUE)
        await eventually(lambda: len(runs.runs) == 2)
        assert runs.runs[1].fencing_token > runs.runs[0].fencing_token


def _has_run(count: int, *handlers: Runs) -> bool:
    return sum(len(each.runs) for each in handlers) >= count


async def _is(database: Database, state: str) -> bool:
    return bool((await row(database))["state"] == state)


async def test_a_reminder_that_was_missed_is_dropped_under_skip_and_says_so(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    def reminder(scheduler: Scheduler) -> None:
        scheduler.delay("2h", Runs(), id="reminder")

    async with a_replica(database_url, clock, reminder):
        pass
    clock.move(3 * HOUR)
    async with a_replica(database_url, clock, reminder):
        await eventually(lambda: _is(database, "fired"))
        assert (await row(database))["outcome"] == "skipped: missed"


async def test_a_reminder_that_failed_runs_when_it_is_retried_however_late(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs(fails=True)
    async with a_replica(database_url, clock, lambda scheduler: scheduler.delay("1m", runs, id="sync")) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await eventually(lambda: _is(database, "failed"))
        clock.move(HOUR)
        runs.fails = False
        async with database.transaction() as connection:
            assert await operate.retry(connection, clock, OWN, (await row(database))["id"], "somebody")
        replica.signals.hint(DUE)
        await eventually(lambda: _is(database, "fired"))
        assert runs.slots() == ["14:01:00", "14:01:00"]
        assert "run" not in (await row(database))["payload"]


@pytest.mark.parametrize(
    ("length", "exact"), [("6 weeks", 42 * DAY), ("90 days", 90 * DAY), ("400 days", 400 * DAY), (0, timedelta())]
)
async def test_a_long_delay_comes_at_the_exact_instant(
    database: Database, database_url: str, clock: MovableClock, length: str | int, exact: timedelta
) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, lambda scheduler: scheduler.delay(length, runs, id="long")) as replica:
        if exact:
            clock.move(exact - timedelta(microseconds=1))
            await replica.look()
            assert runs.runs == []
            clock.move(timedelta(microseconds=1))
        replica.signals.hint(DUE)
        await eventually(lambda: len(runs.runs) == 1)
        assert runs.runs[0].scheduled_at == START + exact


async def test_cancelled_it_comes_no_more_and_made_again_its_token_goes_on(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, every(runs)) as replica:
        await pass_time(replica, MINUTE, runs, 1)
        (task,) = replica.scheduler._durable.values()
        await task.cancel()
        assert await _is(database, "cancelled")
        assert await task.next_run_at() is None
        clock.move(MINUTE)
        await replica.look()
        again = replica.scheduler.every("1m", runs, id="sync")
        assert await again.next_run_at() == clock.at + MINUTE
        await pass_time(replica, MINUTE, runs, 2)
        assert runs.runs[1].fencing_token > runs.runs[0].fencing_token


async def test_cancelled_while_it_runs_that_run_is_its_last(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    runs.gate.clear()
    async with a_replica(database_url, clock, every(runs)) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await runs.begun.wait()
        assert await replica.scheduler.forget_task("sync")
        runs.gate.set()
        await eventually(lambda: _is(database, "cancelled"))
        assert len(runs.runs) == 1


@pytest.mark.parametrize("is_by_itself", [True, False])
async def test_a_catch_up_that_is_cancelled_meanwhile_runs_no_further(
    database: Database, database_url: str, clock: MovableClock, is_by_itself: bool
) -> None:
    async with a_replica(database_url, clock, every(Runs(), missed="catch-up")):
        pass
    clock.move(5 * MINUTE)
    ran: list[datetime] = []

    def prepare(scheduler: Scheduler) -> None:
        async def cancels(run: ScheduledRun) -> None:
            ran.append(run.scheduled_at)
            if is_by_itself:
                await scheduler.forget_task("sync")
                return
            async with database.transaction() as connection:
                await schedules.forget(connection, clock, "sync")

        scheduler.every("1m", cancels, id="sync", missed="catch-up")

    async with a_replica(database_url, clock, prepare):
        await eventually(lambda: _is(database, "cancelled"))
        assert ran == [START + MINUTE]
        assert await story(database, "missed", "ran") == [
            ("missed", "catch-up: 1 run, from 2026-11-29T14:01:00.000Z; not run from 2026-11-29T14:02:00.000Z"),
            ("ran", "2026-11-29T14:01:00.000Z"),
        ]


async def test_a_catch_up_that_another_has_taken_meanwhile_begins_no_further_slot(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async with a_replica(database_url, clock, every(Runs(), missed="catch-up")):
        pass
    clock.move(5 * MINUTE)
    ran: list[datetime] = []

    async def is_passed_by(run: ScheduledRun) -> None:
        ran.append(run.scheduled_at)
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set fence = fence + 1, worker = 'other'"))

    async with a_replica(
        database_url, clock, lambda scheduler: scheduler.every("1m", is_passed_by, id="sync", missed="catch-up")
    ) as replica:
        await eventually(lambda: bool(ran) and not replica.poller._running)
        assert ran == [START + MINUTE]
        assert (await row(database))["worker"] == "other"


async def test_cancelled_while_it_is_being_stored_it_does_not_come(
    database: Database, database_url: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate, register = asyncio.Event(), asyncio.Event(), schedules.register

    async def registers_late(*given: Any, **more: Any) -> Any:
        begun.set()
        await gate.wait()
        return await register(*given, **more)

    async with a_replica(database_url, clock, lambda scheduler: None) as replica:
        monkeypatch.setattr(schedules, "register", registers_late)
        task = replica.scheduler.every("1m", Runs(), id="sync")
        await begun.wait()
        await task.cancel()
        gate.set()
        await eventually(lambda: _is_stored_as(database, "cancelled"))
        assert not replica.scheduler.offers


async def _is_stored_as(database: Database, state: str) -> bool:
    return [each["state"] for each in await rows(database)] == [state]


async def test_one_that_comes_once_and_is_forgotten_by_its_own_run_is_new_when_it_is_made_again(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs: list[ScheduledRun] = []

    async def done(run: ScheduledRun) -> None:
        runs.append(run)
        await replica.scheduler.forget_task(run.task_id)

    async with a_replica(
        database_url, clock, lambda scheduler: scheduler.delay("1m", done, id="reminder:17")
    ) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await eventually(lambda: _is(database, "cancelled"))
        task = replica.scheduler.delay("1m", done, id="reminder:17")
        assert await task.next_run_at() == clock.at + MINUTE
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await eventually(lambda: len(runs) == 2)
        await eventually(lambda: _is(database, "cancelled"))


async def test_one_that_comes_once_and_is_changed_while_it_runs_goes_on_with_the_new_time(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    old, new = Runs(), Runs()
    old.gate.clear()
    async with a_replica(database_url, clock, lambda scheduler: scheduler.delay("1m", old, id="sync")) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await old.begun.wait()
        async with a_replica(database_url, clock, every(new, "5m"), "new"):
            old.gate.set()
            await eventually(lambda: waits(database))
            assert await is_planned_for(database, START + 6 * MINUTE)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_what_came_again_and_failed_is_planned_when_it_is_made_one_that_comes_once(
    database: Database, database_url: str, clock: MovableClock, state: str
) -> None:
    async with a_replica(database_url, clock, every(Runs())):
        pass
    async with database.transaction() as connection:
        given = {"state": state}
        await connection.execute(text("update tasks set state = :state, error = 'x', ended_at = created_at"), given)
    async with a_replica(database_url, clock, lambda scheduler: scheduler.delay("1m", Runs(), id="sync")):
        assert await _is(database, "scheduled")


async def test_a_stale_runner_is_told_before_it_is_cancelled_and_what_it_commits_is_refused(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    is_told: list[bool] = []
    begun = asyncio.Event()

    async def stalls(run: ScheduledRun) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_told.append(run.signal.is_set())

    async with a_replica(
        database_url, clock, lambda scheduler: scheduler.every("1m", stalls, id="sync", lease="1s"), "stale"
    ) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await begun.wait()
        async with database.transaction() as connection:  # another replica has taken it
            await connection.execute(text("update tasks set fence = fence + 1, worker = 'other'"))
        await eventually(lambda: is_told == [True])
        assert (await row(database))["worker"] == "other"


async def test_a_lease_of_its_own_is_renewed_every_third_of_it(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    runs.gate.clear()
    async with a_replica(database_url, clock, every(runs, lease="1s")) as replica:
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await runs.begun.wait()
        assert (await row(database))["lease_until"] == clock.at + SECOND
        clock.move(timedelta(milliseconds=700))
        await eventually(lambda: _leased_until(database, clock.at + SECOND))
        runs.gate.set()
        await eventually(lambda: waits(database))


async def _leased_until(database: Database, at: datetime) -> bool:
    return bool((await row(database))["lease_until"] == at)


async def test_registering_locks_in_the_order_in_which_leases_are_renewed(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    def kept(id: str) -> Schedule:
        return Schedule(id, recurrence.every("1m"))

    for id in ("b", "a"):
        async with database.transaction() as connection:
            await schedules.register(connection, clock, [kept(id)])
    other = Database(database_url, pool_size=2)
    first = text("select from tasks where key = 'b' for update")
    second = text("select from tasks where key = 'a' for update nowait")

    async def register() -> None:
        async with other.transaction() as connection:
            await schedules.register(connection, clock, [kept("a"), kept("b")])

    waiting = text(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    )

    async def waits_for_a_lock() -> bool:
        async with other.autocommit() as connection:
            return bool(await connection.scalar(waiting))

    async with database.transaction() as connection:
        await connection.execute(first)
        registering = asyncio.create_task(register())
        await eventually(waits_for_a_lock)
        await connection.execute(second)
    await registering
    await other.close()


async def test_the_story_of_a_schedule_does_not_grow_for_ever(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, every(runs)) as replica:
        await pass_time(replica, MINUTE, runs, 1)
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set fence = 1098"))
        await pass_time(replica, MINUTE, runs, 2)
        assert len(await story(database, "claimed")) == 2
        await pass_time(replica, MINUTE, runs, 3)
        assert len(await story(database, "claimed")) == 2
        assert [event for event, _ in await story(database, "ran")] == ["ran"] * 2


@pytest.mark.parametrize("is_retried", [True, False])
async def test_what_kills_its_workers_is_not_run_any_more_until_it_is_retried_or_registered_again(
    database: Database, database_url: str, clock: MovableClock, is_retried: bool
) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, every(runs)) as replica:
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set attempt = 10"))
        clock.move(MINUTE)
        replica.signals.hint(DUE)
        await eventually(lambda: _is(database, "failed"))
        clock.move(HOUR)
        await replica.look()
        assert runs.runs == []
        if is_retried:
            async with database.transaction() as connection:
                id = (await row(database))["id"]
                assert await operate.retry(connection, clock, OWN, id, "somebody")
            replica.signals.hint(DUE)
            await eventually(lambda: is_planned_for(database, clock.at + MINUTE))
    async with a_replica(database_url, clock, every(runs)):
        stored = await row(database)
        assert (stored["state"], stored["booked_for"]) == ("scheduled", clock.at + MINUTE)


async def test_what_no_code_registers_is_kept_and_never_run_and_told_at_the_start(
    database: Database, database_url: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_replica(database_url, clock, every(Runs())):
        pass
    clock.move(HOUR)
    async with a_replica(database_url, clock, lambda scheduler: scheduler.every("1m", Runs(), id="other")) as replica:
        clock.move(MINUTE)
        await replica.look()
        orphan = next(each for each in await rows(database) if each["key"] == "sync")
        assert (orphan["state"], orphan["booked_for"], orphan["fence"]) == ("scheduled", START + MINUTE, 0)
        told = [line.message for line in caplog.records if "no handler here" in line.message]
        assert len(told) == 1
        assert "sync" in told[0]
        assert await replica.scheduler.forget_task("sync")
        assert not await replica.scheduler.forget_task("never there")


async def test_registered_while_it_runs_it_is_durable_too(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    runs = Runs()
    async with a_replica(database_url, clock, lambda scheduler: None) as replica:
        task = replica.scheduler.every("1m", runs, id="late")
        assert await task.next_run_at() == clock.at + MINUTE
        await pass_time(replica, MINUTE, runs, 1)


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda s: [s.every("1m", Runs(), id="a"), s.every("1m", Runs(), id="a")], "registered twice"),
        (lambda s: s.every("1m", Runs(), time_zone="UTC"), "a zone is for cron alone"),
        (lambda s: s.delay("1m", Runs(), time_zone="UTC"), "a zone is for cron alone"),
        (lambda s: s.every("1m", Runs(), mised="skip"), "no option mised"),
        (lambda s: s.every("1m", Runs(), once=True), "no option once"),
        (lambda s: s.delay("1m", Runs(), every="1m"), "no option every"),
        (lambda s: s.cron("0 9 * * *", Runs(), time_zone="Europe/Madird"), "'Europe/Madird' is not a time zone"),
        (lambda s: s.every("0s", Runs()), "too short"),
        (lambda s: s.every("-5s", Runs()), "negative"),
        (lambda s: s.every("1m30h", Runs()), "from the largest to the smallest"),
        (lambda s: s.every(True, Runs()), "True is not an interval"),
        (lambda s: s.delay("-1s", Runs()), "negative"),
        (lambda s: s.delay(timedelta(days=-1), Runs()), "must be between nothing"),
        (lambda s: s.every("1m", Runs(), id=""), "1 to 400 characters"),
        (lambda s: s.every("1m", Runs(), id="x" * 401), "1 to 400 characters"),
        (lambda s: s.every("1m", Runs(), id="a", missed="never"), "skip, run-once, catch-up"),
        (lambda s: s.every("1m", Runs(), id="a", max_catch_up=0), "at least 1"),
        (lambda s: s.every("1m", Runs(), id="a", max_catch_up=100_001), "at most 100000"),
        (lambda s: s.every("1m", Runs(), id="a", max_catch_up=1.5), "1.5 is not how many"),
        (lambda s: s.every("1m", Runs(), id="a", max_catch_up="5"), "'5' is not how many"),
        (lambda s: s.every("1m", Runs(), id="\ud800"), "surrogate"),
        (lambda s: s.every("1m", Runs(), id=17), "must be a text"),
        (lambda s: s.cron("0 9 * * *", Runs(), time_zone="right/Europe/Madrid"), "is not a time zone"),
        (lambda s: s.cron("0 9 * * *", Runs(), time_zone="localtime"), "is not a time zone"),
        (lambda s: s.every("1m", Runs), "is not an async function"),
        (lambda s: s.every("1m", Runs(), id="a", lease="0.5s"), "at least a second"),
        (lambda s: s.every("1m", lambda: None), "is not an async function"),
        (lambda s: s.cron("0 0 30 2 *", Runs()), "never comes"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_it_is_registered(register: Callable[[Any], object], words: str) -> None:
    scheduler = Scheduler(time_zone="UTC")
    with pytest.raises(BadSchedule, match=words):
        register(scheduler)


@pytest.mark.parametrize("length", [timedelta(microseconds=5), 0.00005, 0, "0.5s", timedelta(days=36_525), 1e9])
def test_the_text_of_a_delay_is_read_as_the_same(length: Any) -> None:
    delay = recurrence.once(length)
    assert recurrence.read(delay.text) == delay


async def test_a_handler_may_be_given_some_of_its_arguments_beforehand(clock: MovableClock) -> None:
    async def remind(order: int, run: ScheduledRun) -> None: ...

    assert Scheduler(time_zone="UTC").every("1m", partial(remind, 17)).id == "partial"


def test_an_unknown_zone_of_all_is_refused_and_local_is_a_zone() -> None:
    with pytest.raises(BadSchedule, match="not a time zone"):
        Scheduler(time_zone="Mars/Olympus")

    async def handler() -> None: ...

    assert Scheduler(time_zone="Asia/Kathmandu").cron("0 9 * * *", handler).time_zone == "Asia/Kathmandu"
    assert "/" in (Scheduler().cron("0 9 * * *", handler).time_zone or "") + "/"


async def test_ended_ones_are_deleted_by_command_and_no_others(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    def some(scheduler: Scheduler) -> None:
        scheduler.every("1m", Runs(), id="kept")
        scheduler.every("1m", Runs(), id="gone")

    async with a_replica(database_url, clock, some) as replica:
        await replica.scheduler.forget_task("gone")
        clock.move(DAY)
        async with database.transaction() as connection:
            assert await schedules.purge(connection, clock, 2 * DAY) == 0
            assert await schedules.purge(connection, clock, HOUR) == 1
    assert [each["key"] for each in await rows(database)] == ["kept"]
    assert OWN not in await _tenants(database)


async def _tenants(database: Database) -> Sequence[str]:
    async with database.transaction() as connection:
        return list((await connection.execute(text("select tenant from tenants"))).scalars())


async def test_one_that_has_failed_is_listed_with_its_number_and_one_that_was_cancelled_is_not(
    database: Database, clock: MovableClock
) -> None:
    async with database.transaction() as connection:
        for id in ("a", "b"):
            one = Schedule(id, recurrence.every("1m"))
            number = (await schedules.register(connection, clock, [one]))[id].task
        await connection.execute(
            text("update tasks set state = 'failed', error = 'it died', ended_at = now() where id = :id"),
            {"id": number},
        )
        await schedules.forget(connection, clock, "a")
        listed = await schedules.find_all(connection)
    assert [(each.task, each.id, each.state, each.error, each.next_run_at) for each in listed] == [
        (number, "b", "failed", "it died", None)
    ]
