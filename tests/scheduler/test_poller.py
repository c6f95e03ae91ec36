"""The poller: one worker, several, and a database that goes away.

Pollers that must be woken by a hint sleep a minute otherwise, longer than any test waits.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from scheduler import cancel, poller, recovery, settle
from scheduler.claim import claim
from scheduler.clock import Clock, MovableClock
from scheduler.errors import TryAgain
from scheduler.poller import DUE, Poller
from scheduler.retention import KEPT
from scheduler.retry import BUDGET, LONGEST, QUARANTINE
from scheduler.task import Task
from store.database import Database, bucket_of
from store.signals import Signals
from tests.support.claims import fields, row_of, take
from tests.support.factories import a_conversation, a_followup, a_tenant, a_turn, lanes, states
from tests.support.proxy import a_proxy
from tests.support.wait import eventually

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
NOW = timedelta()
Perform = Callable[[Task], Awaitable[None]]


class Worker:
    """One process: its pool, its signals, its poller, and what it performed."""

    def __init__(
        self, url: str, clock: Clock, name: str, perform: Perform | None, how: dict[str, timedelta | int]
    ) -> None:
        self.database, self.clock = Database(url, pool_size=5), clock
        self.signals = Signals(self.database)
        self.performed: list[Task] = []
        self.counted: list[tuple[str, int]] = []
        self._given = perform or self.deliver
        self.poller = Poller(
            self.database,
            clock,
            self.signals,
            self._perform,
            name=name,
            count=lambda event, task: self.counted.append((event, task.id)),
            **{"interval": MINUTE, **how},  # type: ignore[arg-type]
        )

    async def _perform(self, task: Task) -> None:
        self.performed.append(task)
        await self._given(task)

    async def deliver(self, task: Task) -> None:
        """Say it, which is instant and always succeeds."""
        async with self.database.transaction() as connection:
            await settle.deliver(connection, self.clock, task, None)


@asynccontextmanager
async def working(
    url: str,
    perform: Perform | None = None,
    *,
    clock: Clock | None = None,
    name: str = "w",
    is_hearing: bool = True,
    **how: timedelta | int,
) -> AsyncIterator[Worker]:
    """Run one worker; it hears other processes before the test goes on, unless told to be deaf."""
    worker = Worker(url, clock or Clock(), name, perform, how)
    if is_hearing:
        await worker.signals.start()
        await eventually(lambda: worker.signals.is_alive)
    worker.poller.start()
    try:
        yield worker
    finally:
        await worker.poller.stop(grace=timedelta(seconds=1))
        await worker.signals.stop()
        await worker.database.close()


async def has_looked(worker: Worker) -> None:
    """Wait until the poller has looked, found nothing and fallen asleep."""
    await eventually(lambda: worker.poller.beat_at is not None)
    before = worker.poller.beat_at
    worker.signals.hint(DUE)
    await eventually(lambda: worker.poller.beat_at != before)


async def all_in(database: Database, state: str, count: int) -> bool:
    return list((await states(database)).values()) == [state] * count


async def is_idle(database: Database) -> bool:
    """Whether nothing is to be done or being done."""
    return not {"scheduled", "firing"} & set((await states(database)).values())


async def is_back(database: Database, task: int, attempt: int) -> bool:
    """Whether a task was tried so many times and waits."""
    return await fields(database, task, "state", "attempt") == ("scheduled", attempt)


async def book_turns(
    database: Database, clock: Clock, count: int = 1, due: timedelta = NOW, people: int = 10**6
) -> list[int]:
    """Book turns, each in a conversation of its own unless there are fewer people."""
    async with database.transaction() as connection:
        known = [await a_conversation(connection, address=f"person {n}") for n in range(min(count, people))]
        return [(await a_turn(connection, clock, known[n % len(known)], due=due)).id for n in range(count)]


async def book_followups(database: Database, clock: Clock, count: int = 1, due: timedelta = NOW) -> list[int]:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection, address="somebody who waits")
        return [(await a_followup(connection, clock, conversation, due=due)).id for _ in range(count)]


async def test_what_is_due_is_performed_once_and_what_is_not_is_left(database: Database, database_url: str) -> None:
    due = await book_turns(database, Clock(), 5)
    later = await book_turns(database, Clock(), 1, due=MINUTE)
    async with working(database_url) as worker:
        await eventually(lambda: len(worker.performed) >= 5)
        await has_looked(worker)
    assert sorted(task.id for task in worker.performed) == due
    assert await states(database) == dict.fromkeys(due, "fired") | {later[0]: "scheduled"}
    assert set((await lanes(database)).values()) == {None}


async def test_a_booking_in_the_same_process_is_performed_at_once(database: Database, database_url: str) -> None:
    async with working(database_url) as worker:
        await has_looked(worker)
        (booked,) = await book_turns(worker.database, worker.clock)
        worker.signals.hint(DUE)
        await eventually(lambda: all_in(database, "fired", 1))
        assert worker.performed[0].id == booked


async def test_a_booking_in_another_process_is_performed_at_once(database: Database, database_url: str) -> None:
    async with working(database_url) as worker:
        await has_looked(worker)
        other = Signals(database)
        await other.start()
        await book_turns(database, Clock())
        other.hint(DUE)
        await eventually(lambda: all_in(database, "fired", 1))
        await other.stop()
        assert len(worker.performed) == 1


async def test_a_task_that_waits_for_a_lane_of_another_process_is_performed_as_soon_as_it_is_free(
    database: Database, database_url: str
) -> None:
    may_end = asyncio.Event()

    async def slowly(task: Task) -> None:
        await may_end.wait()
        await first.deliver(task)

    earlier, later = await book_turns(database, Clock(), 2, people=1)
    async with working(database_url, slowly, name="first") as first:
        await eventually(lambda: len(first.performed) == 1)
        async with working(database_url, name="second") as second:
            await has_looked(second)
            assert second.performed == []
            stopping = asyncio.create_task(first.poller.stop())
            may_end.set()
            await eventually(lambda: all_in(database, "fired", 2))
            await stopping
    assert [task.id for worker in (first, second) for task in worker.performed] == [earlier, later]


async def test_a_poller_sleeps_until_the_next_task_is_due_and_no_longer(database: Database, database_url: str) -> None:
    await book_turns(database, Clock(), 1, due=timedelta(seconds=0.7))
    await book_followups(database, Clock(), 1, due=timedelta(seconds=0.4))
    async with working(database_url) as worker:
        await eventually(lambda: all_in(database, "fired", 2))
    for task in worker.performed:
        assert NOW <= task.claimed_at - task.due_at < timedelta(seconds=5), "neither early nor a minute late"
    assert [task.kind for task in worker.performed] == ["followup", "turn"]


async def test_a_poller_that_hears_nobody_looks_by_itself_every_second(database: Database, database_url: str) -> None:
    async with working(database_url, is_hearing=False) as worker:
        await eventually(lambda: worker.poller.beat_at is not None)
        await book_turns(database, Clock())  # and nobody hints
        await eventually(lambda: all_in(database, "fired", 1))


async def test_no_more_is_claimed_than_there_are_free_slots(database: Database, database_url: str) -> None:
    await book_turns(database, Clock(), 12)
    await book_followups(database, Clock(), 12)
    running: Counter[bool] = Counter()
    most, claimed = 0, 0

    async def perform(task: Task) -> None:
        nonlocal most, claimed
        running[task.lane] += 1
        most = max(most, *running.values())
        async with database.transaction() as connection:
            firing = await connection.scalar(text("select count(*) from tasks where state = 'firing'")) or 0
            claimed = max(claimed, firing)
            await settle.deliver(connection, Clock(), task, None)
        running[task.lane] -= 1

    async with working(database_url, perform, slots=8) as worker:
        await eventually(lambda: all_in(database, "fired", 24))
    assert len(worker.performed) == 24
    assert most <= 8
    assert claimed <= 16


async def test_slow_background_work_keeps_neither_an_answer_nor_a_reminder_waiting(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        if task.pool == "background":
            await may_end.wait()
        await worker.deliver(task)

    reminders = await book_followups(database, clock, 3, due=SECOND)
    async with working(database_url, perform, clock=clock, slots=8) as worker:
        await book_followups(database, clock, 20)
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) >= 4)
        await has_looked(worker)
        assert len(worker.performed) == 4, "one tenant's share of eight"
        turns = await book_turns(database, clock, 5)
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) == 9)
        clock.move(SECOND)
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) == 12)
        done = {pool: sorted(task.id for task in worker.performed if task.pool == pool) for pool in ("speak", "timed")}
        assert done == {"speak": turns, "timed": reminders}
        may_end.set()
        await eventually(lambda: all_in(database, "fired", 28))


async def test_a_tenant_whose_turns_hang_keeps_no_other_tenant_waiting(database: Database, database_url: str) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        if task.tenant == "acme":
            await may_end.wait()
        await worker.deliver(task)

    async with working(database_url, perform, slots=8) as worker:
        await book_turns(database, Clock(), 30)
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) == 4)
        for _ in range(3):
            async with database.transaction() as connection:
                conversation = await a_conversation(connection, "quick")
                await a_turn(connection, Clock(), conversation, tenant="quick")
            worker.signals.hint(DUE)
        await eventually(lambda: [task.tenant for task in worker.performed[4:]] == ["quick"] * 3)
        may_end.set()
        await eventually(lambda: all_in(database, "fired", 33))


async def test_a_tenant_that_is_always_about_to_hold_its_share_hides_no_other_tenant(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    ends: list[asyncio.Event] = []

    async def perform(task: Task) -> None:
        if task.tenant == "acme":  # as one begins, an elder ends
            ends.append(asyncio.Event())
            if len(ends) > 7:
                ends[-8].set()
            await ends[-1].wait()
            return
        await worker.deliver(task)

    await book_followups(database, clock, 300, due=SECOND)
    clock.move(3 * SECOND)
    async with working(database_url, perform, clock=clock, slots=16) as worker:
        await eventually(lambda: len(worker.performed) > 20)
        async with database.transaction() as connection:
            conversation = await a_conversation(connection, "quick")
            await a_followup(connection, clock, conversation, tenant="quick", due=SECOND)
        clock.move(SECOND)
        before = len(worker.performed)
        await eventually(lambda: "quick" in [task.tenant for task in worker.performed])
        assert [task.tenant for task in worker.performed].index("quick") < before + 50
        for end in ends:
            end.set()


async def test_what_comes_to_stand_before_what_was_walked_through_is_found_too(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        if task.tenant == "acme":
            await may_end.wait()
        await worker.deliver(task)

    await book_followups(database, clock, 30, due=2 * SECOND)
    clock.move(3 * SECOND)
    async with working(database_url, perform, clock=clock, slots=8) as worker:
        await eventually(lambda: len(worker.performed) == 4)
        await has_looked(worker)
        async with database.transaction() as connection:
            conversation = await a_conversation(connection, "quick")
            elder = await a_followup(connection, clock, conversation, tenant="quick", due=SECOND)
            await connection.execute(
                text("update tasks set due_at = due_at - interval '3 seconds' where id = :id"), {"id": elder.id}
            )
        worker.signals.hint(DUE)
        await eventually(lambda: [task.tenant for task in worker.performed[4:]] == ["quick"])
        may_end.set()


async def test_a_look_at_what_is_new_alone_is_followed_by_a_whole_one_though_its_time_came_meanwhile(
    database: Database, database_url: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_moved = asyncio.Event()

    async def slow_claim(*given: Any, **how: Any) -> Any:
        if how.get("since") is not None and not is_moved.is_set():
            is_moved.set()
            async with database.transaction() as connection:
                conversation = await a_conversation(connection, "quick")
                elder = await a_followup(connection, clock, conversation, tenant="quick", due=SECOND)
                await connection.execute(
                    text("update tasks set due_at = due_at - interval '3 seconds' where id = :id"), {"id": elder.id}
                )
            (walk,) = worker.poller._walks.values()
            await asyncio.sleep(walk.again_at - time.monotonic())
        return await claim(*given, **how)

    async def perform(task: Task) -> None:
        if task.tenant == "acme":
            await asyncio.Event().wait()
        await worker.deliver(task)

    monkeypatch.setattr(poller, "claim", slow_claim)
    monkeypatch.setattr(poller, "RESTS", 50)  # so that there is such a look, however busy the machine is
    await book_followups(database, clock, 30, due=2 * SECOND)
    clock.move(3 * SECOND)
    async with working(database_url, perform, clock=clock, slots=8) as worker:
        await eventually(lambda: [task.tenant for task in worker.performed[4:]] == ["quick"])


async def test_a_poller_with_one_slot_still_does_both_kinds_of_work(database: Database, database_url: str) -> None:
    await book_turns(database, Clock(), 2)
    await book_followups(database, Clock(), 2)
    async with working(database_url, slots=1):
        await eventually(lambda: all_in(database, "fired", 4))


async def test_an_outage_of_the_database_uses_up_no_attempts(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async def perform(task: Task) -> None:
        if len(worker.performed) <= BUDGET + 2:
            raise OperationalError("select", {}, Exception("server closed the connection"))
        await worker.deliver(task)

    (booked,) = await book_turns(database, clock)
    async with working(database_url, perform, clock=clock) as worker:

        async def is_done() -> bool:
            clock.move(SECOND)
            worker.signals.hint(DUE)
            return await all_in(database, "fired", 1)

        await eventually(is_done)
    assert {task.attempt for task in worker.performed} == {1}
    assert await fields(database, booked, "error") == (None,)


async def test_what_fails_is_tried_again_after_growing_pauses_and_then_failed_in_words(
    database: Database, database_url: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def perform(task: Task) -> None:
        raise KeyError("there is no such\x00 thing \ud83d")

    (booked,) = await book_turns(database, clock)
    async with working(database_url, perform, clock=clock) as worker:
        for attempt in range(1, BUDGET):
            await eventually(lambda: is_back(database, booked, attempt))  # noqa: B023 - awaited within the turn
            assert len(worker.performed) == attempt
            row = await row_of(database, booked)
            assert SECOND / 2 <= (row["due_at"] - clock.at) / 2 ** (attempt - 1) <= SECOND
            assert "KeyError: 'there is no such" in row["error"]
            clock.move(LONGEST)
            worker.signals.hint(DUE)
        await eventually(lambda: all_in(database, "failed", 1))
    row = await row_of(database, booked)
    assert (row["attempt"], row["ended_at"]) == (BUDGET, clock.at)
    assert "KeyError: 'there is no such" in row["error"]
    assert set((await lanes(database)).values()) == {None}
    assert caplog.text.count("Traceback") == BUDGET, "each time, whoever operates it is told where"


async def test_what_asks_to_be_tried_again_is_with_its_words_kept_and_no_traceback(
    database: Database, database_url: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def perform(task: Task) -> None:
        if task.attempt == 1:
            raise TryAgain("the model is down")
        await worker.deliver(task)

    (booked,) = await book_turns(database, clock)
    async with working(database_url, perform, clock=clock) as worker:
        await eventually(lambda: is_back(database, booked, 1))
        assert await fields(database, booked, "error") == ("the model is down",)
        clock.move(LONGEST)
        worker.signals.hint(DUE)
        await eventually(lambda: all_in(database, "fired", 1))
    assert [task.attempt for task in worker.performed] == [1, 2]
    assert "Traceback" not in caplog.text


async def test_a_task_that_fails_for_the_last_time_behind_the_second_door_is_not_called_failed(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    """Something may have gone out: whoever claims it next must find out."""

    async def perform(task: Task) -> None:
        if task.sending:
            async with worker.database.transaction() as connection:
                await settle.leave_uncertain(connection, clock, task, "nobody can tell")
            return
        async with worker.database.transaction() as connection:
            await settle.open_door(connection, Clock(), task, "words")
        raise OSError("the line broke while it was being sent")

    (booked,) = await book_turns(database, clock)
    async with database.transaction() as connection:
        await connection.execute(text("update tasks set attempt = :done"), {"done": BUDGET - 1})
    async with working(database_url, perform, clock=clock) as worker:
        await eventually(lambda: is_back(database, booked, BUDGET))
        assert await fields(database, booked, "sending", "error") == (
            True,
            "OSError: the line broke while it was being sent",
        )
        clock.move(LONGEST)
        worker.signals.hint(DUE)
        await eventually(lambda: all_in(database, "uncertain", 1))
    assert await fields(database, booked, "error") == ("nobody can tell",)


async def test_a_task_under_which_every_worker_dies_is_given_up_before_it_kills_the_next(
    database: Database, database_url: str
) -> None:
    deadly, unresolved = await book_turns(database, Clock(), 2)
    async with database.transaction() as connection:
        await connection.execute(
            text("update tasks set attempt = :done, sending = id = :id"), {"done": QUARANTINE, "id": unresolved}
        )
    async with working(database_url) as worker:
        await eventually(lambda: len(worker.performed) == 1)
        await eventually(lambda: is_idle(database))
    assert await states(database) == {deadly: "failed", unresolved: "fired"}
    assert [task.id for task in worker.performed] == [unresolved], "what may have gone out is still found out about"
    assert "worker is killed" in (await fields(database, deadly, "error"))[0]
    assert worker.counted == [("quarantined", deadly)]


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("a fault of ours"),
        RuntimeError("\x00"),
        RuntimeError("\ud800" * 1000),
        RuntimeError(),
        TryAgain("\x00"),
        TimeoutError(),
        asyncio.CancelledError(),
        asyncio.QueueEmpty(),
        ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    ],
    ids=lambda problem: type(problem).__name__,
)
async def test_nothing_that_one_task_throws_stops_the_others(
    database: Database, database_url: str, clock: MovableClock, problem: BaseException
) -> None:
    (bad,) = await book_turns(database, clock)

    async def perform(task: Task) -> None:
        if task.id == bad and task.attempt == 1 and not has_thrown.is_set():
            has_thrown.set()
            raise problem
        await worker.deliver(task)

    has_thrown = asyncio.Event()
    async with working(database_url, perform, clock=clock) as worker:
        await has_thrown.wait()
        await book_turns(database, clock, 3)
        clock.move(LONGEST)
        worker.signals.hint(DUE)
        await eventually(lambda: all_in(database, "fired", 4))


async def test_a_task_cancelled_while_it_fails_is_cancelled_and_not_tried_again(
    database: Database, database_url: str, clock: MovableClock
) -> None:
    async def perform(task: Task) -> None:
        async with worker.database.transaction() as connection:
            assert (await cancel.cancel(connection, clock, "acme", [task.id])).raced == [task.id]
        raise TryAgain("not now")

    await book_turns(database, clock)
    async with working(database_url, perform, clock=clock) as worker:
        await eventually(lambda: all_in(database, "cancelled", 1))
        assert len(worker.performed) == 1


async def test_a_lease_is_renewed_while_its_task_runs_longer(database: Database, database_url: str) -> None:
    may_end = asyncio.Event()

    async def slowly(task: Task) -> None:
        await may_end.wait()
        await worker.deliver(task)

    (booked,) = await book_turns(database, Clock())
    async with working(database_url, slowly, name="first", lease=SECOND) as worker:
        await eventually(lambda: len(worker.performed) == 1)
        async with working(database_url, name="second", lease=SECOND, interval=SECOND / 10) as other:
            claimed_at = worker.performed[0].claimed_at

            async def is_twice_as_long() -> bool:
                async with database.transaction() as connection:
                    return bool(await Clock().now(connection) > claimed_at + 2 * SECOND)

            await eventually(is_twice_as_long)
            assert await fields(database, booked, "state", "fence", "worker") == ("firing", 1, "first")
            may_end.set()
            await eventually(lambda: all_in(database, "fired", 1))
            assert other.performed == []


async def test_a_task_whose_lease_was_lost_is_stopped_and_settles_nothing(
    database: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_stopped = asyncio.Event()

    async def forever(task: Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()

    (booked,) = await book_turns(database, Clock())
    async with working(database_url, forever, lease=timedelta(seconds=0.3)) as worker:
        await eventually(lambda: len(worker.performed) == 1)
        async with database.transaction() as connection:
            await connection.execute(
                text(
                    "update tasks set fence = fence + 1, worker = 'another', lease_until = now() + interval '1 hour';"
                    " update conversations set lane_fence = lane_fence + 1"
                )
            )
        before = await row_of(database, booked)
        async with asyncio.timeout(10):
            await is_stopped.wait()
        await eventually(lambda: f"task {booked} of tenant acme lost its lease" in caplog.text)
        assert await row_of(database, booked) == before
        assert list((await lanes(database)).values()) == [booked]
        later = await book_followups(worker.database, worker.clock)
        worker.signals.hint(DUE)
        await eventually(lambda: [task.id for task in worker.performed] == [booked, *later])
        assert worker.counted == [("lease lost", booked)]


async def test_a_poller_deletes_what_ended_long_ago_again_and_again_and_goes_on_after_trouble(
    database: Database, database_url: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave_one_behind() -> None:
        (task,) = await book_turns(database, clock)
        async with database.transaction() as connection:
            await cancel.cancel(connection, clock, "acme", [task])
        clock.move(KEPT + SECOND)

    async with (
        a_proxy(database_url) as (proxy, through),
        working(through, clock=clock, delete_old_every=SECOND / 100) as worker,
    ):
        for _ in range(2):
            await leave_one_behind()
            await eventually(lambda: all_in(database, "cancelled", 0))
        proxy.cut()
        await leave_one_behind()
        await eventually(lambda: "could not delete what ended long ago" in caplog.text)
        proxy.mend()
        await eventually(lambda: all_in(database, "cancelled", 0))
        assert worker.performed == []


async def test_the_claims_of_a_dead_worker_are_recovered_by_a_living_one(database: Database, database_url: str) -> None:
    booked = await book_turns(database, Clock(), 3)
    async with database.transaction() as connection:
        await connection.execute(
            text("update tasks set state = 'firing', fence = 1, attempt = 1, worker = 'dead', lease_until = now()")
        )
        await connection.execute(
            text("update conversations c set lane_task = t.id, lane_fence = 1 from tasks t where t.conversation = c.id")
        )
    async with working(database_url) as worker:
        await eventually(lambda: all_in(database, "fired", 3))
    assert sorted((task.id, task.attempt, task.fence) for task in worker.performed) == [(id, 2, 3) for id in booked]


async def test_a_stop_that_is_cut_short_gives_everything_back_at_once(database: Database, database_url: str) -> None:
    async def forever(task: Task) -> None:
        await asyncio.Event().wait()

    (booked,) = await book_turns(database, Clock())
    async with working(database_url, forever) as worker:
        await eventually(lambda: len(worker.performed) == 1)
        stopping = asyncio.create_task(worker.poller.stop(grace=MINUTE))
        await asyncio.sleep(0)
        stopping.cancel()  # as a second signal does
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert await fields(database, booked, "state", "attempt") == ("scheduled", 0)


async def test_stopping_lets_finish_what_can_and_gives_the_rest_back_uncounted(
    database: Database, database_url: str
) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        if task.id == quick:
            await may_end.wait()
            await worker.deliver(task)
        else:
            await asyncio.Event().wait()

    quick, slow = await book_turns(database, Clock(), 2)
    async with working(database_url, perform) as worker:
        await eventually(lambda: len(worker.performed) == 2)
        stopping = asyncio.create_task(worker.poller.stop(grace=SECOND / 2))
        (late,) = await book_turns(database, Clock())
        worker.signals.hint(DUE)
        may_end.set()
        await stopping
        assert await states(database) == {quick: "fired", slow: "scheduled", late: "scheduled"}
        assert await fields(database, slow, "attempt", "error", "worker", "sending") == (0, None, None, False)
        assert set((await lanes(database)).values()) == {None}
        assert len(worker.performed) == 2, "nothing more is claimed"


async def test_stopping_behind_the_second_door_does_not_hide_that_a_send_was_begun(
    database: Database, database_url: str
) -> None:
    async def perform(task: Task) -> None:
        async with worker.database.transaction() as connection:
            await settle.open_door(connection, Clock(), task, "words")
        is_sending.set()
        await asyncio.Event().wait()

    is_sending = asyncio.Event()
    (booked,) = await book_turns(database, Clock())
    async with working(database_url, perform) as worker:
        await is_sending.wait()
        await worker.poller.stop(grace=NOW)
    assert await fields(database, booked, "state", "sending", "text") == ("scheduled", True, "words")


async def test_a_poller_that_was_never_busy_stops_at_once_and_twice(database_url: str) -> None:
    async with working(database_url) as worker:
        async with asyncio.timeout(5):
            await worker.poller.stop(grace=MINUTE)
            await worker.poller.stop(grace=MINUTE)


async def test_every_connection_killed_costs_a_moment_and_nothing_else(
    database: Database, database_url: str, server_url: str
) -> None:
    async with working(database_url, lease=SECOND) as worker:
        await book_turns(database, Clock(), 20)
        worker.signals.hint(DUE)
        async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator:
            for _ in range(5):
                await operator.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s",
                    (make_url(database_url).database,),
                )
                await book_turns(database, Clock(), 2)

        async def is_done() -> bool:
            worker.signals.hint(DUE)
            return await all_in(database, "fired", 30)

        await eventually(is_done, seconds=20)
    assert set((await lanes(database)).values()) == {None}


async def test_a_database_that_is_away_is_waited_for_and_nothing_is_lost(
    database: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        if task.attempt == 1:
            await may_end.wait()
        await worker.deliver(task)

    async with a_proxy(database_url) as (proxy, through), working(through, perform, lease=2 * SECOND) as worker:
        (interrupted,) = await book_turns(database, Clock())
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) == 1)
        proxy.cut()
        may_end.set()
        (meanwhile,) = await book_turns(database, Clock())
        await eventually(lambda: "the database does not answer" in caplog.text)
        await eventually(lambda: f"could not give task {interrupted} back" in caplog.text)
        assert await states(database) == {interrupted: "firing", meanwhile: "scheduled"}
        proxy.mend()
        await eventually(lambda: all_in(database, "fired", 2), seconds=20)
    assert sorted(task.id for task in worker.performed) == [interrupted, interrupted, meanwhile]
    assert set((await lanes(database)).values()) == {None}


async def test_what_is_in_hand_while_the_database_is_away_for_longer_than_its_lease_is_begun_no_second_time(
    database: Database, database_url: str, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    may_end = asyncio.Event()

    async def perform(task: Task) -> None:
        await may_end.wait()
        await worker.deliver(task)

    async with a_proxy(database_url) as (proxy, through), working(through, perform, clock=clock) as worker:
        await book_turns(database, clock)
        worker.signals.hint(DUE)
        await eventually(lambda: len(worker.performed) == 1)
        proxy.cut()
        worker.signals.hint(DUE)
        await eventually(lambda: "the database does not answer" in caplog.text)
        clock.move(2 * MINUTE)  # its lease is one
        proxy.mend()
        await has_looked(worker)
        may_end.set()
        await eventually(lambda: all_in(database, "fired", 1))
    assert len(worker.performed) == 1
    assert worker.counted == []


async def test_a_database_that_is_silent_for_a_while_is_waited_for(database: Database, database_url: str) -> None:
    async with a_proxy(database_url) as (proxy, through), working(through) as worker:
        await has_looked(worker)
        proxy.freeze()
        await book_turns(database, Clock())
        worker.signals.hint(DUE)
        await eventually(lambda: proxy.held > 0)
        assert await all_in(database, "scheduled", 1)
        proxy.thaw()
        await eventually(lambda: all_in(database, "fired", 1))


async def test_a_poller_starts_while_its_database_is_away(database: Database, database_url: str) -> None:
    await book_turns(database, Clock())
    async with a_proxy(database_url) as (proxy, through):
        proxy.cut()
        async with working(through, is_hearing=False) as worker:
            worker.signals.hint(DUE)
            assert worker.poller.beat_at is None
            proxy.mend()
            await eventually(lambda: all_in(database, "fired", 1))
            assert worker.poller.beat_at is not None


async def test_four_workers_perform_everything_once_and_in_order_and_a_fifth_that_joins_changes_nothing(
    database: Database, database_url: str
) -> None:
    booked = await book_turns(database, Clock(), 200, people=20)
    speaking: set[int] = set()
    said: dict[int, list[int]] = defaultdict(list)
    by: dict[str, int] = defaultdict(int)

    def performer(name: str) -> Perform:
        async def perform(task: Task) -> None:
            conversation = task.conversation or 0
            assert conversation not in speaking, "two speak in one conversation"
            speaking.add(conversation)
            await asyncio.sleep(0.002)
            async with database.transaction() as connection:
                await settle.deliver(connection, Clock(), task, None)
                # Within the transaction: the lane is free only afterwards.
                speaking.discard(conversation)
                said[conversation].append(task.id)
                by[name] += 1

        return perform

    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(working(database_url, performer(f"w{n}"), name=f"w{n}", slots=4))
            for n in range(4)
        ]
        await eventually(lambda: sum(map(len, said.values())) >= 80, seconds=30)
        workers.append(await stack.enter_async_context(working(database_url, performer("w4"), name="w4", slots=4)))
        await eventually(lambda: all_in(database, "fired", 200), seconds=30)
    performed = [task.id for worker in workers for task in worker.performed]
    assert sorted(performed) == booked, "each was performed once"
    assert all(ids == sorted(ids) and len(ids) == 10 for ids in said.values()), "in order within its conversation"
    assert set((await lanes(database)).values()) == {None}
    async with database.transaction() as connection:
        assert await recovery.holders(connection) == []
        assert set((await connection.execute(text("select fence, attempt from tasks"))).all()) == {(1, 1)}
    assert sum(by.values()) == 200


async def test_workers_that_go_bucket_by_bucket_perform_recover_and_keep_the_order_all_the_same(
    database: Database, database_url: str
) -> None:
    said: dict[int, list[int]] = defaultdict(list)
    turns: dict[int, list[int]] = defaultdict(list)
    async with database.transaction() as connection:
        for tenant in (tenants := [f"tenant {n}" for n in range(6)]):
            people = [await a_conversation(connection, tenant, address=f"person {n}") for n in range(3)]
            for n in range(9):
                turns[people[n % 3]].append((await a_turn(connection, Clock(), people[n % 3], tenant=tenant)).id)
            await a_followup(connection, Clock(), people[0], tenant=tenant)
        assert len({bucket_of(tenant) for tenant in tenants}) > 3
    (dead,) = await take(database, Clock(), "dead", speak=1, work=0)
    async with database.transaction() as connection:
        await connection.execute(text("update tasks set lease_until = now() where id = :id"), {"id": dead.id})

    async def perform(task: Task) -> None:
        async with database.transaction() as connection:
            await settle.deliver(connection, Clock(), task, None)
            if task.lane:
                said[task.conversation or 0].append(task.id)

    async with AsyncExitStack() as stack:
        for n in range(2):
            await stack.enter_async_context(
                working(database_url, perform, name=f"w{n}", slots=8, lease=SECOND, by_bucket=True)
            )
        await eventually(lambda: all_in(database, "fired", 60), seconds=30)
    assert said == turns, "each once, and in order"
    assert set((await lanes(database)).values()) == {None}


async def test_a_look_that_goes_wrong_in_a_way_nobody_thought_of_is_told_and_the_next_one_is_made(
    database: Database, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenOnce(Clock):
        is_broken = True

        def override(self) -> None:
            if self.is_broken:
                self.is_broken = False
                raise ArithmeticError("nobody thought of this")

    await book_turns(database, Clock())
    with caplog.at_level(logging.ERROR):
        async with working(database_url, clock=BrokenOnce()):
            await eventually(lambda: all_in(database, "fired", 1))
    assert "nobody thought of this" in caplog.text


async def test_a_worker_whose_slots_are_nearly_all_taken_does_not_ask_again_and_again(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.transaction() as connection:
        for number in range(6):
            tenant = f"tenant-{number}"
            await a_tenant(connection, tenant)
            for person in range(70):
                talk = await a_conversation(connection, tenant, address=f"person {person}")
                await a_turn(connection, Clock(), talk, tenant=tenant)
    over, asked = asyncio.Event(), 0

    async def counted(*given: Any, **more: Any) -> Sequence[Task]:
        nonlocal asked
        asked += 1
        return await claim(*given, **more)

    monkeypatch.setattr("scheduler.poller.claim", counted)

    async def wait(task: Task) -> None:
        await over.wait()

    async with working(database_url, wait) as worker:
        await eventually(lambda: len(worker.performed) >= 62)
        before = asked
        looked = worker.poller.beat_at
        await eventually(lambda: worker.poller.beat_at != looked)
        assert asked - before < 10
        over.set()


async def test_a_claim_whose_answer_is_lost_is_taken_back_at_once_and_not_counted(
    database: Database, database_url: str
) -> None:
    async with database.transaction() as connection:
        for number in range(10):
            await a_turn(connection, Clock(), await a_conversation(connection, address=f"person {number}"))
    async with a_proxy(database_url) as (proxy, through):
        proxy.cut_at_answer(b"claimed as")
        async with working(through, is_hearing=False, lease=timedelta(hours=1)) as worker:
            await eventually(lambda: proxy.refused > 0)
            assert set((await states(database)).values()) == {"firing"}
            proxy.mend()
            await eventually(lambda: len(worker.performed) == 10)
    assert [task.attempt for task in worker.performed] == [1] * 10
    assert set((await states(database)).values()) == {"fired"}


async def test_a_worker_stops_within_its_grace_though_the_database_is_silent(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        a_proxy(database_url) as (proxy, through),
        working(through, is_hearing=False, interval=SECOND / 10) as worker,
    ):
        await eventually(lambda: worker.poller.beat_at is not None)
        proxy.freeze()
        await eventually(lambda: proxy.held > 0)
        async with asyncio.timeout(20):  # the grace, and what the driver takes to give a connection up
            await worker.poller.stop(grace=SECOND)
        proxy.cut()
        proxy.mend()
