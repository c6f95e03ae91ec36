"""A machine that does at random whatever can be done to tasks, three workers beside each other, and a model of what must hold.

After each step every row is as the model says, each lane is held by the one task that speaks, and each claim was lawful:
due, free, the first of its conversation, and not nothing while something could be claimed. A worker that crashed comes
back from the dead and tries to settle what it held: that counts only as long as nobody has taken it from it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import operate, recovery, settle
from scheduler.cancel import cancel
from scheduler.claim import PATIENCE, claim
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.events import story
from scheduler.hold import WINDOW_CLOSED, release
from scheduler.lease import renew
from scheduler.task import Pool, Task, tasks
from store.database import Database
from tests.support.factories import a_conversation, a_followup, a_turn

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
WORKERS = ("one", "two", "three")
POOLS: tuple[Pool, ...] = ("speak", "timed", "background")
PLACES = range(1000)
"""Which of several, by place; always taken modulo how many there are."""

LEAVING = ("returned", "recovered", "written", "fired", "failed", "uncertain", "cancelled", "expired")
"""The events with which a claim ends."""

Work = Callable[[AsyncConnection], Awaitable[Any]]


@dataclass
class Row:
    """A task as the model has it."""

    id: int
    conversation: int
    is_turn: bool
    due: datetime
    is_timed: bool
    lane: bool
    state: str = "scheduled"
    hold: str | None = None
    sending: bool = False
    cancel_requested: bool = False
    fence: int = 0
    lease_until: datetime | None = None

    @property
    def pool(self) -> Pool:
        return "speak" if self.lane else "timed" if self.is_timed else "background"


Action = Callable[..., None]
ACTIONS: dict[str, dict[str, Sequence[Any]]] = {}
"""What may be done, with what."""
LIKELY = {"take", "let_time_pass", "recover", "open_the_door"}
ONLY_IF: dict[str, Callable[["Machine"], bool]] = {}


def action(**given: Sequence[Any]) -> Callable[[Action], Action]:
    """Let a method be one of the things that may be done. Hypothesis' own rules it leaves out by the dozen in each run."""

    def note(method: Action) -> Action:
        ACTIONS[method.__name__] = given
        return method

    return note


def only_if(condition: Callable[["Machine"], bool]) -> Callable[[Action], Action]:
    """Do it only while there is something to do it to."""

    def note(method: Action) -> Action:
        ONLY_IF[method.__name__] = condition
        return method

    return note


class Machine(RuleBasedStateMachine):
    """What may happen to tasks."""

    url: ClassVar[str]

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.clock = MovableClock()
        self.rows: dict[int, Row] = {}
        self.held: list[tuple[str, Task]] = []
        """What workers hold, or think they hold: those who crashed do not know it."""
        self.database = Database(self.url)

        async def begin() -> list[int]:
            async with self.database.transaction() as connection:
                await connection.execute(text("truncate tasks, task_events, conversations, contacts, tenants cascade"))
                return [await a_conversation(connection, address=f"person {n}") for n in range(2)]

        self.conversations = self.runner.run(begin())
        for wait in (0, 2):  # so that there is something to do from the first step on
            self.book_turn(wait, wait)
            self.book_followup(wait, wait)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.check_stories()
            self.runner.run(self.database.close())
            self.runner.close()

    def do(self, work: Work) -> Any:
        async def in_transaction() -> Any:
            async with self.database.transaction() as connection:
                return await work(connection)

        return self.runner.run(in_transaction())

    @rule(chance=st.integers(0, 2**32 - 1))
    def act(self, chance: int) -> None:
        choose = random.Random(chance)
        could = [name for name in ACTIONS if name not in ONLY_IF or ONLY_IF[name](self)]
        name = choose.choice(could + [likely for likely in could if likely in LIKELY])
        getattr(self, name)(**{word: choose.choice(values) for word, values in ACTIONS[name].items()})

    # What may be done

    @action(place=PLACES, wait=range(4))
    def book_turn(self, place: int, wait: int) -> None:
        talk, due = self.conversations[place % 2], wait * SECOND
        booked = self.do(lambda c: a_turn(c, self.clock, talk, due=due))
        self.rows[booked.id] = Row(booked.id, talk, True, self.clock.at + due, wait > 0, lane=True)

    @action(place=PLACES, wait=range(4))
    def book_followup(self, place: int, wait: int) -> None:
        talk, due = self.conversations[place % 2], wait * SECOND
        booked = self.do(lambda c: a_followup(c, self.clock, talk, due=due))
        self.rows[booked.id] = Row(booked.id, talk, False, self.clock.at + due, wait > 0, lane=False)

    @action(seconds=[1, 1, 2, 5, 31, 61])
    def let_time_pass(self, seconds: int) -> None:
        self.clock.move(seconds * SECOND)

    @only_if(lambda self: any(self.could_be_claimed(pool) for pool in POOLS))
    @action(worker=WORKERS, pool=POOLS, limit=range(1, 4))
    def take(self, worker: str, pool: Pool, limit: int) -> None:
        could = self.could_be_claimed(pool)
        claimed = self.do(lambda c: claim(c, self.clock, worker, LEASE, pool, limit))
        assert len(claimed) <= limit
        assert bool(claimed) == bool(could), f"{pool}: {[task.id for task in claimed]} of {could}"
        assert {task.id for task in claimed} <= could
        for task in claimed:
            row = self.rows[task.id]
            row.state, row.fence, row.lease_until = "firing", row.fence + 1, self.clock.at + LEASE
            assert (task.fence, task.pool, task.sending) == (row.fence, row.pool, row.sending)
            self.held.append((worker, task))

    def could_be_claimed(self, pool: Pool) -> set[int]:
        now = self.clock.at
        due = [
            row
            for row in self.rows.values()
            if row.state == "scheduled" and row.hold is None and row.due <= now and row.pool == pool
        ]
        if pool != "speak":
            return {row.id for row in due}
        firsts = set()
        for talk in self.conversations:
            here = [row for row in self.rows.values() if row.conversation == talk]
            if any(row.state == "firing" and row.lane for row in here):
                continue
            elders = [
                row
                for row in here
                if row.state in ("scheduled", "firing")
                and not (row.lane or row.hold or row.is_turn)
                and row.is_timed
                and row.due > now - PATIENCE
            ]
            free = [
                row
                for row in due
                if row.conversation == talk
                and (row.is_turn or not any((elder.due, elder.id) < (row.due, row.id) for elder in elders))
            ]
            if free:
                firsts.add(min(free, key=lambda row: (row.due, row.id)).id)
        return firsts

    def settle(self, place: int, work: Callable[[AsyncConnection, Task], Awaitable[Any]]) -> Row | None:
        """Settle one of the claims as its worker would; None when it is another's by now, and nothing has changed."""
        worker, task = self.held[place % len(self.held)]
        row = self.rows[task.id]
        is_ours = row.state == "firing" and row.fence == task.fence
        if not is_ours:
            self.held.remove((worker, task))
            with pytest.raises(LostClaim):
                self.do(lambda c: work(c, task))
            return None
        self.do(lambda c: work(c, task))
        return row

    def leave(self, row: Row | None, state: str) -> None:
        if row is not None:
            self.held = [(worker, task) for worker, task in self.held if task.id != row.id or task.fence != row.fence]
            row.state, row.lease_until = state, None

    @only_if(lambda self: bool(self.held))
    @action(place=PLACES, end=["deliver", "fail", "leave_uncertain", "skip", "expire", "cancel"])
    def end(self, place: int, end: str) -> None:
        words = {"fail": ("refused",), "leave_uncertain": ("cut off",), "skip": ("a guard",), "deliver": (None,)}
        row = self.settle(place, lambda c, task: getattr(settle, end)(c, self.clock, task, *words.get(end, ())))
        becomes = {"deliver": "fired", "fail": "failed", "leave_uncertain": "uncertain", "skip": "fired"}
        self.leave(row, becomes.get(end, {"expire": "expired", "cancel": "cancelled"}.get(end, "")))
        if row is not None:
            row.sending = False

    @only_if(lambda self: bool(self.held))
    @action(place=PLACES)
    def open_the_door(self, place: int) -> None:
        row = self.settle(place, lambda c, task: settle.open_door(c, self.clock, task, "words"))
        if row is not None:
            row.sending = True

    @only_if(lambda self: any(not task.lane for _, task in self.held))
    @action(place=PLACES)
    def keep_the_text(self, place: int) -> None:
        writing = [claim for claim in self.held if not claim[1].lane]
        place = self.held.index(writing[place % len(writing)])
        row = self.settle(place, lambda c, task: settle.keep_text(c, self.clock, task, "words"))
        if row is not None:
            self.leave(row, "cancelled" if row.cancel_requested else "scheduled")
            row.lane = True

    @only_if(lambda self: bool(self.held))
    @action(place=PLACES, wait=[None, 0, 2, 90], is_held=(False, True), is_unsent=(False, True))
    def give_back(self, place: int, wait: int | None, is_held: bool, is_unsent: bool) -> None:
        delay, hold = None if wait is None else wait * SECOND, WINDOW_CLOSED if is_held else None
        row = self.settle(
            place,
            lambda c, task: settle.give_back(
                c, self.clock, task, delay=delay, hold=hold, is_unsent=is_unsent, error="no"
            ),
        )
        if row is None:
            return
        row.sending = row.sending and not is_unsent
        is_cancelled = row.cancel_requested and not row.sending
        self.leave(row, "cancelled" if is_cancelled else "scheduled")
        row.hold = None if is_cancelled else hold
        row.due = row.due if delay is None else self.clock.at + delay

    @only_if(lambda self: any(row.hold for row in self.rows.values()))
    @action()
    def end_the_hold(self) -> None:
        self.do(lambda c: release(c, self.clock, "acme", WINDOW_CLOSED))
        for row in self.rows.values():
            if row.state == "scheduled" and row.hold:
                row.hold, row.due = None, min(row.due, self.clock.at)

    @only_if(lambda self: bool(self.held))
    @action(worker=WORKERS)
    def renew(self, worker: str) -> None:
        mine = [task for holder, task in self.held if holder == worker]
        lost = self.do(lambda c: renew(c, self.clock, mine, LEASE)) if mine else []
        for task in mine:
            row = self.rows[task.id]
            is_ours = row.state == "firing" and row.fence == task.fence
            assert (task in lost) == (not is_ours)
            if is_ours:
                row.lease_until = self.clock.at + LEASE

    @only_if(lambda self: any(row.state == "firing" for row in self.rows.values()))
    @action(gone=[(), *((worker,) for worker in WORKERS)])
    def recover(self, gone: tuple[str, ...]) -> None:
        dead = [
            row
            for row in self.rows.values()
            if row.state == "firing"
            and (
                (row.lease_until or self.clock.at) < self.clock.at
                or any(task.id == row.id and task.fence == row.fence and worker in gone for worker, task in self.held)
            )
        ]
        assert self.do(lambda c: recovery.recover(c, self.clock, sorted(gone))) == len(dead)
        for row in dead:
            is_cancelled = row.cancel_requested and not row.sending
            row.state, row.fence, row.lease_until = "cancelled" if is_cancelled else "scheduled", row.fence + 1, None
            row.due = self.due_after_death(row)

    def due_after_death(self, row: Row) -> datetime:
        """From the second death on a task waits a little, at random: how long is for the database to choose."""
        due: datetime = self.do(lambda c: c.scalar(select(tasks.c.due_at).where(tasks.c.id == row.id)))
        assert due == row.due or self.clock.at < due <= self.clock.at + 64 * SECOND
        return due

    @only_if(lambda self: bool(self.rows))
    @action(places=[[n, n + 7, n + 31][: n % 3 + 1] for n in range(100)])
    def cancel(self, places: list[int]) -> None:
        ids = sorted({list(self.rows)[place % len(self.rows)] for place in places})
        done = self.do(lambda c: cancel(c, self.clock, "acme", ids))
        active = [self.rows[id] for id in ids if self.rows[id].state in ("scheduled", "firing")]
        assert sorted([*done.cancelled, *done.raced]) == [row.id for row in active]
        for row in active:
            if row.state == "scheduled" and not row.sending:
                row.state, row.hold = "cancelled", None
                assert row.id in done.cancelled
            else:
                row.cancel_requested = True
                assert row.id in done.raced

    @only_if(lambda self: any(row.state in ("failed", "uncertain") for row in self.rows.values()))
    @action(place=PLACES, move=["retry", "discard", "arrived", "lost", "resume"])
    def operate(self, place: int, move: str) -> None:
        ended = [row for row in self.rows.values() if row.state in ("failed", "uncertain") or row.sending]
        row = ended[place % len(ended)]
        before = row.state
        if move in ("arrived", "lost"):
            is_delivered = move == "arrived"
            moved = self.do(lambda c: operate.settle(c, self.clock, "acme", row.id, "eva", is_delivered=is_delivered))
        else:
            moved = self.do(lambda c: getattr(operate, move)(c, self.clock, "acme", row.id, "eva"))
        waits = before == "scheduled" and row.sending
        lawful = {
            "retry": before == "failed",
            "discard": before == "failed",
            "arrived": before == "uncertain",
            "lost": before == "uncertain",
            "resume": before == "uncertain" or waits,
        }
        assert moved == lawful[move]
        if not moved:
            return
        row.state = {"discard": "cancelled", "arrived": "fired", "lost": "failed"}.get(move, "scheduled")
        if move == "retry":
            row.due, row.sending, row.cancel_requested, row.hold = self.clock.at, False, False, None
        if move == "resume":
            row.due, row.sending = min(row.due, self.clock.at), True

    # What must hold

    @invariant()
    def every_row_and_every_lane_is_as_the_model_says(self) -> None:
        if not getattr(self, "rows", None):
            return
        columns = ("id", "state", "hold", "sending", "cancel_requested", "fence", "lease_until", "lane", "due_at")

        async def look(connection: AsyncConnection) -> tuple[list[Any], dict[int, int | None]]:
            found = await connection.execute(select(*(tasks.c[name] for name in columns)).order_by(tasks.c.id))
            lanes = await connection.execute(text("select id, lane_task from conversations"))
            return [tuple(row) for row in found], {row.id: row.lane_task for row in lanes}

        found, lanes = self.do(look)
        assert found == [
            (
                row.id,
                row.state,
                row.hold,
                row.sending,
                row.cancel_requested,
                row.fence,
                row.lease_until,
                row.lane,
                row.due,
            )
            for row in sorted(self.rows.values(), key=lambda row: row.id)
        ]
        speaking: dict[int, int | None] = dict.fromkeys(self.conversations)
        for row in self.rows.values():
            if row.state == "firing" and row.lane:
                assert speaking[row.conversation] is None, "two speak in one conversation"
                speaking[row.conversation] = row.id
        assert lanes == speaking

    def check_stories(self) -> None:
        """Every story begins with the booking, and each claim in it was left once, or is held."""
        for row in self.rows.values():
            told = [event.event for event in self.do(partial(story, tenant="acme", task=row.id))]
            assert told[0] == "booked"
            is_claimed = False
            for event in told:
                if event in ("claimed", *LEAVING):
                    # A cancel may also come while nobody holds it.
                    assert is_claimed != (event == "claimed") or event == "cancelled", told
                    is_claimed = event == "claimed"
            assert is_claimed == (row.state == "firing"), told


@pytest.fixture
def machine_url(database_url: str) -> str:
    Machine.url = database_url
    return database_url


@pytest.mark.usefixtures("machine_url")
def test_whatever_is_done_in_whatever_order_every_row_is_as_it_must_be() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
