"""Every order of the statements of two sessions, on the real database, and what must hold in each.

A claim, a settlement, a cancel, a recovery, a renewal or a booking is a transaction of a few statements. Two sessions each
have a short program of them. A step is one statement, or a commit, so whatever one does can come while a transaction of
the other is open; what waits for a row of the other is told from what is done by asking the server.

Where a statement of its own is at stake it is two steps: the one in which it begins, so that from then on it sees what was
committed before, and the one in which it goes on. It stops between them at a gate, a policy on the table that waits for a
lock of ours before it lets the first row be seen.

The pairs of programs below have 1,992 orders in all, and each is run.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import comb
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import recovery, settle
from scheduler.book import Booking, book
from scheduler.cancel import cancel, cancel_labelled
from scheduler.claim import PATIENCE, claim
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.gather import gather_turn
from scheduler.hold import WINDOW_CLOSED, keep_waiting
from scheduler.lease import renew
from scheduler.task import Pool, Task
from store import messages
from store.database import Database
from tests.support.claims import LEASE
from tests.support.factories import a_conversation, a_followup, a_tenant, a_turn
from tests.support.interleave import Step, interleave, is_done, orders

SECOND = timedelta(seconds=1)
SUBJECT, NEEDS = "user_ana", "function:/run"

LOOK = """
select t.id, t.conversation, t.kind, t.state, t.lane, t.hold, t.due_at, t.booked_for > t.created_at as is_timed, t.fence,
       t.lease_until, t.cancel_requested, t.needs, c.lane_task, c.lane_fence
  from tasks t left join conversations c on c.bucket = t.bucket and c.tenant = t.tenant and c.id = t.conversation
 order by t.id
"""
KEEP = [f"create unlogged table kept_{table} as table {table}" for table in ("conversations", "tasks", "task_events")]
BEGIN_AGAIN = """
do $$ begin
    delete from messages;
    delete from task_events;
    delete from tasks;
    insert into tasks overriding system value select * from kept_tasks;
    insert into task_events overriding system value select * from kept_task_events;
    update conversations c
       set lane_task = kept.lane_task, lane_fence = kept.lane_fence, last_seq = kept.last_seq
      from kept_conversations kept where kept.id = c.id;
end $$
"""

GATE = [
    """
    create function is_let_through() returns boolean language plpgsql volatile as $$ begin
        perform pg_advisory_lock_shared(pg_backend_pid()), pg_advisory_unlock_shared(pg_backend_pid());
        return true;
    end $$
    """,
    "create policy gate on tasks using (is_let_through()) with check (true)",
    "alter table tasks enable row level security",
    # Policies hold for everybody but superusers; this role is on every server.
    "grant all on all tables in schema public to pg_write_all_data",
    "grant all on all sequences in schema public to pg_write_all_data",
]

Line = tuple[str, int]
"""An event and the fence under which it happened."""


@dataclass(eq=False)
class Session:
    """One of the two: its connection, what it holds or thinks it holds, and what it has done but not committed."""

    name: str
    connection: AsyncConnection
    pid: int
    held: list[Task] = field(default_factory=list)
    is_open: bool = False
    is_lost: bool = False
    """A statement found the claim lost, so the transaction will be rolled back."""
    is_claiming: bool = False
    is_cancelled: bool = False
    under_way: asyncio.Future[None] | None = None
    """A statement that stands at the gate."""
    settled: Task | None = None
    renewed: list[tuple[Task, datetime]] = field(default_factory=list)
    recovered: int | None = None
    told: list[tuple[int, Line]] = field(default_factory=list)
    said: list[int] = field(default_factory=list)

    def tells(self, task: int, event: str, fence: int) -> None:
        """Let a line be expected in a task's story once this is committed."""
        self.told.append((task, (event, fence)))


class World:
    """What is committed, and what the sessions have done to bring it about."""

    def __init__(self, sessions: Sequence[Session], observer: AsyncConnection, observer_pid: int) -> None:
        self.clock = MovableClock()
        self.observer, self.observer_pid = observer, observer_pid
        self.sessions = {session.name: session for session in sessions}
        self.rows: dict[int, Row[Any]] = {}
        self.stories: dict[int, list[Line]] = defaultdict(list)
        self.claims: set[tuple[int, int]] = set()
        self.said: list[int] = []
        self.talks: list[int] = []
        self.tasks: list[int] = []

    def other(self, me: Session) -> Session:
        return next(session for session in self.sessions.values() if session is not me)

    async def is_waiting(self, name: str) -> bool:
        """Ask the server whether this session waits for a lock of the other."""
        me = self.sessions[name]
        is_waiting = await self.is_blocked(me.pid, self.other(me).pid)
        assert not (is_waiting and me.is_claiming), "a claim waits"
        return is_waiting

    async def is_blocked(self, pid: int, by: int) -> bool:
        given = {"pid": pid, "by": by}
        return bool(await self.observer.scalar(text("select :by = any(pg_blocking_pids(:pid))"), given))

    async def close_gate(self, me: Session) -> None:
        await self.observer.execute(text("select pg_advisory_lock(:pid)"), {"pid": me.pid})

    async def open_gate(self, me: Session) -> None:
        await self.observer.execute(text("select pg_advisory_unlock(:pid)"), {"pid": me.pid})

    async def take(self, step: "Do", me: Session) -> None:
        """Take one step of a session; what comes after a lost claim is left out, up to the rollback."""
        if me.is_lost and step is not commit:
            return
        try:
            await step(self, me)
        except LostClaim:
            me.is_lost = True

    async def look(self) -> dict[int, Row[Any]]:
        return {row.id: row for row in await self.observer.execute(text(LOOK))}

    async def begin(self, pair: "Pair") -> None:
        """Set up what is there before the two programs, and keep it."""
        await self.observer.execute(
            text("truncate tasks, task_events, messages, conversations, contacts, tenants cascade")
        )
        await self.observer.execute(text("drop table if exists kept_conversations, kept_tasks, kept_task_events"))
        await pair.given(self, self.observer)
        self.stories.update({task: [("booked", 0)] for task in self.tasks})
        self.rows = await self.look()
        for name, program in (("A", pair.a_before), ("B", pair.b_before)):
            for step in program:
                await self.take(step, self.sessions[name])
        for statement in KEEP:
            await self.observer.execute(text(statement))
        self.kept = (self.clock.at, self.rows, deepcopy(self.stories), set(self.claims), list(self.said))
        self.kept_held = {name: list(session.held) for name, session in self.sessions.items()}

    async def begin_again(self) -> None:
        """Bring back what was kept."""
        await self.observer.execute(text(BEGIN_AGAIN))
        at, self.rows, stories, claims, said = self.kept
        self.clock.set(at)
        self.stories, self.claims, self.said = deepcopy(stories), set(claims), list(said)
        for name, session in self.sessions.items():
            session.held = list(self.kept_held[name])

    async def run(self, pair: "Pair", order: str) -> None:
        """Run both programs in this order."""
        programs: dict[str, list[Step]] = {
            name: [partial(self.take, step, self.sessions[name]) for step in program]
            for name, program in (("A", pair.a), ("B", pair.b))
        }
        try:
            await interleave(order, programs, self.is_waiting)
        finally:  # whatever failed, nothing is left standing at the gate
            at_gate = [session.under_way for session in self.sessions.values() if session.under_way]
            for statement in at_gate:
                statement.cancel()
            await asyncio.gather(*at_gate, return_exceptions=True)
        await self.check_stories()

    # What must hold

    def check_lanes(self) -> None:
        """In each conversation at most one speaks, and its lane names that one, or nobody."""
        for talk in {row.conversation for row in self.rows.values()} - {None}:
            here = [row for row in self.rows.values() if row.conversation == talk]
            speaking = [(row.id, row.fence) for row in here if row.state == "firing" and row.lane]
            assert [(here[0].lane_task, here[0].lane_fence)] == (speaking or [(None, None)])

    def could_be_claimed(self, pool: Pool) -> set[int]:
        """What a claim may take, as far as is committed: to speak, the first of each conversation whose lane is free."""
        now = self.clock.at
        due = [
            row
            for row in self.rows.values()
            if row.state == "scheduled" and row.hold is None and row.due_at <= now and row.lane == (pool == "speak")
            if (row.needs is not None) == (pool == "application")
        ]
        if pool == "application":
            return {row.id for row in due}
        if pool != "speak":
            return {row.id for row in due if row.is_timed == (pool == "timed")}
        firsts: dict[int, int] = {}
        for row in sorted(due, key=lambda row: (row.due_at, row.id)):
            if row.lane_task is None and (row.kind == "turn" or not self.has_elder(row)):
                firsts.setdefault(row.conversation, row.id)
        return set(firsts.values())

    def has_elder(self, younger: Row[Any]) -> bool:
        """Tell whether a follow-up must wait for one that is still being written."""
        return any(
            row.conversation == younger.conversation
            and row.state in ("scheduled", "firing")
            and not row.lane
            and row.is_timed
            and (row.due_at, row.id) < (younger.due_at, younger.id)
            and row.due_at > self.clock.at - PATIENCE
            for row in self.rows.values()
        )

    async def check_stories(self) -> None:
        """Each task's story is what the sessions committed, in that order, and lawful; what was undone has left nothing."""
        found: dict[int, list[Line]] = defaultdict(list)
        for row in await self.observer.execute(text("select task, event, fence from task_events order by id")):
            found[row.task].append((row.event, row.fence))
        assert found == self.stories
        assert set(found) == set(self.rows)
        for task, story in found.items():
            check_story(story, self.rows[task])
        said = await self.observer.execute(text("select task from messages where task is not null"))
        assert sorted(row.task for row in said) == sorted(self.said)
        assert len(set(self.said)) == len(self.said), "something was said twice"


ENDS = ("fired", "cancelled")


def check_story(story: Sequence[Line], row: Row[Any]) -> None:
    """It was booked, then claimed and left by turns, each time under a higher fence, and nothing came after its end."""
    assert story[0] == ("booked", 0), story
    state, fence, is_asked, has_begun = "scheduled", 0, False, False
    for event, under in story[1:]:
        assert state in ("scheduled", "firing"), story
        match event:
            case "claimed":
                assert (state, under) == ("scheduled", fence + 1), story
                state = "firing"
            case "cancel requested":
                assert under == fence, story
                assert state == "firing" or has_begun, story
                is_asked = True
            case "sending":
                assert (state, under) == ("firing", fence), story
                has_begun = True
            case "cancelled" if state == "scheduled":
                assert under == fence, story
                state = event
            case "fired" | "cancelled" | "written" | "returned" | "recovered":
                is_recovery = event == "recovered" or (event == "cancelled" and under > fence)
                assert (state, under) == ("firing", fence + is_recovery), story
                state = event if event in ENDS else "scheduled"
                assert not (is_asked and state == "scheduled" and not has_begun), story
            case _:
                raise AssertionError(story)
        fence = under
    assert (row.state, row.fence) == (state, fence), story


# The steps

Do = Callable[[World, Session], Awaitable[None]]
Program = tuple[Do, ...]


def in_two(program: Program) -> Program:
    """Let the first statement of a program be two steps: it begins, and goes on."""

    async def begin(world: World, me: Session) -> None:
        await world.close_gate(me)
        me.under_way = asyncio.ensure_future(program[0](world, me))
        await is_done(me.under_way, partial(world.is_blocked, me.pid, world.observer_pid))

    async def go_on(world: World, me: Session) -> None:
        assert me.under_way is not None
        await world.open_gate(me)
        await me.under_way
        me.under_way = None

    return (begin, go_on, *program[1:])


async def commit(world: World, me: Session) -> None:
    """Commit, or roll back where the claim was lost; then look at what is committed now."""
    await (me.connection.rollback() if me.is_lost else me.connection.commit())
    before, world.rows = world.rows, await world.look()
    if me.is_lost:
        mine = world.rows[me.held[0].id]
        assert (mine.state, mine.fence) != ("firing", me.held[0].fence), "a claim that is still held counts as lost"
    else:
        if me.recovered is not None:
            back = [row for row in world.rows.values() if row.id in before and is_back(before[row.id], row)]
            assert len(back) == me.recovered
            for row in back:
                me.tells(row.id, "cancelled" if row.state == "cancelled" else "recovered", row.fence)
        for task, until in me.renewed:
            row = world.rows[task.id]
            assert row.fence == task.fence
            assert row.state != "firing" or row.lease_until == until
        for told, line in me.told:
            world.stories[told].append(line)
        world.said += me.said
    if me.is_lost or me.settled:
        me.held.pop(0)
    me.is_open = me.is_lost = me.is_claiming = me.is_cancelled = False
    me.settled, me.recovered, me.renewed, me.told, me.said = None, None, [], [], []
    world.check_lanes()


def is_back(before: Row[Any], now: Row[Any]) -> bool:
    """Tell whether recovery has returned a task meanwhile."""
    return bool(before.state == "firing" and now.state != "firing" and now.fence == before.fence + 1)


def claims(pool: Pool, limit: int = 10) -> Do:
    async def step(world: World, me: Session) -> None:
        me.is_open = me.is_claiming = True
        could, is_alone, before = world.could_be_claimed(pool), not world.other(me).is_open, world.rows
        claimed = await claim(me.connection, world.clock, me.name, LEASE, pool, limit, offers=[NEEDS])
        me.is_claiming = False
        ids = {task.id for task in claimed}
        assert ids <= could, "a younger one is claimed before its elder, or what is not to be claimed at all"
        if is_alone and not world.other(me).is_open and world.rows is before:
            assert len(ids) == min(len(could), limit), "what nobody holds is not claimed"
        for task in claimed:
            assert (task.id, task.fence) not in world.claims, "claimed twice under one fence"
            world.claims.add((task.id, task.fence))
            me.tells(task.id, "claimed", task.fence)
            me.held.append(task)

    return step


def with_claim(work: Callable[[World, Session, Task], Awaitable[None]]) -> Do:
    """Let a session do this with the first of the tasks it holds, or thinks it holds; without one, nothing."""

    async def step(world: World, me: Session) -> None:
        if me.held:
            me.is_open = True
            await work(world, me, me.held[0])

    return step


@with_claim
async def look(world: World, me: Session, task: Task) -> None:
    me.is_cancelled = await settle.is_cancelled(me.connection, task)


@with_claim
async def say(world: World, me: Session, task: Task) -> None:
    if me.is_cancelled:
        await settle.cancel(me.connection, world.clock, task)
        me.settled = task
        me.tells(task.id, "cancelled", task.fence)
    else:
        talk = task.conversation or 0
        await messages.add(me.connection, "acme", talk, "assistant", "reply", "Hello.", task=task.id)
        me.said.append(task.id)


@with_claim
async def deliver(world: World, me: Session, task: Task) -> None:
    if not me.is_cancelled:
        await settle.deliver(me.connection, world.clock, task, None)
        me.settled = task
        me.tells(task.id, "fired", task.fence)


@with_claim
async def book_on(world: World, me: Session, task: Task) -> None:
    later = Booking("acme", "followup", timedelta(hours=1), task.conversation, "web", parent=task.id)
    me.tells((await book(me.connection, world.clock, later)).id, "booked", 0)


@with_claim
async def open_door(world: World, me: Session, task: Task) -> None:
    if me.is_cancelled:
        await settle.cancel(me.connection, world.clock, task)
        me.settled = task
        me.tells(task.id, "cancelled", task.fence)
    else:
        await settle.open_door(me.connection, world.clock, task, "Hello.")
        me.tells(task.id, "sending", task.fence)


@with_claim
async def keep_text(world: World, me: Session, task: Task) -> None:
    state = await settle.keep_text(me.connection, world.clock, task, "Hello.")
    me.settled = task
    me.tells(task.id, "written" if state == "scheduled" else state, task.fence)


def gives_back(delay: timedelta | None = None) -> Do:
    @with_claim
    async def step(world: World, me: Session, task: Task) -> None:
        state = await settle.give_back(me.connection, world.clock, task, delay=delay, error="no answer")
        me.settled = task
        me.tells(task.id, "returned" if state == "scheduled" else state, task.fence)

    return step


@with_claim
async def keep_customer_waiting(world: World, me: Session, task: Task) -> None:
    await keep_waiting(me.connection, task, WINDOW_CLOSED)


@with_claim
async def hold(world: World, me: Session, task: Task) -> None:
    state = await settle.give_back(me.connection, world.clock, task, hold=WINDOW_CLOSED)
    me.settled = task
    me.tells(task.id, "returned" if state == "scheduled" else state, task.fence)


def cancels(*places: int) -> Do:
    """Let a session cancel these of the tasks that were booked at first, by place."""

    async def step(world: World, me: Session) -> None:
        me.is_open = True
        done = await cancel(me.connection, world.clock, "acme", [world.tasks[place] for place in places])
        assert not set(done.cancelled) & set(done.raced)
        for event, ids in (("cancelled", done.cancelled), ("cancel requested", done.raced)):
            for task in ids:
                fence = await me.connection.scalar(text("select fence from tasks where id = :id"), {"id": task})
                me.tells(task, event, fence)

    return step


async def cancel_label(world: World, me: Session) -> None:
    me.is_open = True
    done = await cancel_labelled(me.connection, world.clock, "acme", subject=SUBJECT, kinds=["function"])
    assert not set(done.cancelled) & set(done.raced)
    for event, ids in (("cancelled", done.cancelled), ("cancel requested", done.raced)):
        for task in ids:
            fence = await me.connection.scalar(text("select fence from tasks where id = :id"), {"id": task})
            me.tells(task, event, fence)


async def commit_cancel(world: World, me: Session) -> None:
    """Commit, and see that the cancel has met whatever was booked under the label."""
    await commit(world, me)
    for row in world.rows.values():
        assert row.state in ENDS or row.cancel_requested, "a cancel by a label has overlooked one"


@with_claim
async def begin_to_run(world: World, me: Session, task: Task) -> None:
    if me.is_cancelled:
        await settle.cancel(me.connection, world.clock, task)
        me.settled = task
        me.tells(task.id, "cancelled", task.fence)


async def recover(world: World, me: Session) -> None:
    me.is_open = True
    dead = [row for row in world.rows.values() if row.lease_until is not None and row.lease_until < world.clock.at]
    me.recovered = await recovery.recover(me.connection, world.clock)
    assert me.recovered <= len(dead)


def renews(name: str) -> Do:
    """Let a session renew what that one holds, as a worker does while others of its connections settle."""

    async def step(world: World, me: Session) -> None:
        me.is_open = True
        held, until = list(world.sessions[name].held), world.clock.at + LEASE
        lost = await renew(me.connection, world.clock, held, LEASE)
        me.renewed = [(task, until) for task in held if task not in lost]

    return step


def books(due: timedelta) -> Do:
    async def step(world: World, me: Session) -> None:
        me.is_open = True
        me.tells((await a_turn(me.connection, world.clock, world.talks[0], due=due)).id, "booked", 0)

    return step


async def hear(world: World, me: Session) -> None:
    me.is_open = True
    await messages.add(me.connection, "acme", world.talks[0], "customer", "message", "Hi.")


async def gather(world: World, me: Session) -> None:
    turn = await gather_turn(
        me.connection,
        world.clock,
        tenant="acme",
        conversation=world.talks[0],
        channel="web",
        reply_to=None,
        pause=timedelta(),
    )
    if turn not in world.rows:
        me.tells(turn, "booked", 0)


async def the_lease_runs_out(world: World, me: Session) -> None:
    world.clock.move(LEASE + SECOND)


CLAIM = (claims("speak"), commit)
CLAIM_ONE = (claims("speak", limit=1), commit)
CLAIM_TO_WRITE = (claims("timed"), commit)
CLAIM_ONE_TO_WRITE = (claims("timed", limit=1), commit)
CLAIM_TO_RUN = (claims("application"), commit)
DELIVER = (deliver, commit)
RUN = (look, begin_to_run, commit, deliver, commit)
CANCEL_LABEL = (cancel_label, commit_cancel)
SAY = (look, say, deliver, commit)
BOOK_AND_DELIVER = (book_on, deliver, commit)
OPEN_DOOR = (look, open_door, commit)
KEEP_TEXT = (keep_text, commit)
GIVE_BACK, GIVE_BACK_FOR_LATER = (gives_back(), commit), (gives_back(5 * SECOND), commit)
HOLD = (keep_customer_waiting, hold, commit)
RECOVER = (recover, commit)
LEASE_RUNS_OUT = (the_lease_runs_out,)
BOOK_EARLIER, BOOK_LATER = (books(-60 * SECOND), commit), (books(timedelta()), commit)
RENEW = (renews("A"), commit)
HEAR = (hear, gather, commit)


def CANCEL(*places: int) -> Program:  # noqa: N802 - as the others
    return (cancels(*places), commit)


# The worlds

Given = Callable[[World, AsyncConnection], Awaitable[None]]


def turns(*counts: int) -> Given:
    """So many turns in each of so many conversations."""

    async def given(world: World, connection: AsyncConnection) -> None:
        for number, count in enumerate(counts):
            talk = await a_conversation(connection, address=f"person {number}")
            world.talks.append(talk)
            world.tasks += [(await a_turn(connection, world.clock, talk)).id for _ in range(count)]

    return given


def followups(count: int) -> Given:
    """So many follow-ups of one conversation, booked for one time after the other, all due."""

    async def given(world: World, connection: AsyncConnection) -> None:
        world.talks.append(await a_conversation(connection))
        for number in range(count):
            booked = await a_followup(connection, world.clock, world.talks[0], due=(number + 1) * SECOND)
            world.tasks.append(booked.id)
        world.clock.move(count * SECOND)

    return given


def functions(count: int) -> Given:
    """So many runs of a function, all under one label, all due."""

    async def given(world: World, connection: AsyncConnection) -> None:
        await a_tenant(connection)
        for _ in range(count):
            run = Booking("acme", "function", timedelta(), subject=SUBJECT, needs=NEEDS)
            world.tasks.append((await book(connection, world.clock, run)).id)

    return given


async def a_followup_and_a_turn(world: World, connection: AsyncConnection) -> None:
    """A follow-up and a turn of one conversation."""
    await followups(1)(world, connection)
    world.tasks.append((await a_turn(connection, world.clock, world.talks[0])).id)


@dataclass(frozen=True)
class Pair:
    """Two programs, what is there before them, and ways in which the tasks stand afterwards, each in one order or another.

    Where a claim met a lock there are more: it leaves alone what it can take a moment later.
    """

    given: Given
    a: Program
    b: Program
    ends: set[str]
    a_before: Program = ()
    b_before: Program = ()

    @property
    def count(self) -> int:
        """In how many orders the two can be run."""
        return comb(len(self.a) + len(self.b), len(self.a))


PAIRS = {
    "two workers take the turns of a conversation": Pair(
        turns(2), CLAIM + SAY, CLAIM, {"fired firing", "fired scheduled"}
    ),
    "two workers take one turn each of two conversations": Pair(
        turns(2, 2),
        CLAIM_ONE + DELIVER,
        CLAIM_ONE,
        {"fired scheduled firing scheduled", "firing scheduled fired scheduled"},
    ),
    "a worker settles and takes the next while another looks for work": Pair(
        turns(3),
        DELIVER + CLAIM,
        CLAIM + DELIVER,
        {"fired fired firing", "fired fired scheduled", "fired firing scheduled"},
        a_before=CLAIM,
    ),
    "a worker has looked when another takes the lane": Pair(
        turns(2), in_two(CLAIM), CLAIM + DELIVER, {"fired firing", "fired scheduled", "firing scheduled"}
    ),
    "a worker has looked when an earlier turn is booked and taken": Pair(
        turns(1),
        in_two(CLAIM),
        BOOK_EARLIER + CLAIM,
        {"firing scheduled", "scheduled firing"},
    ),
    "a worker has looked when the lane is given up": Pair(
        turns(2), in_two(CLAIM), GIVE_BACK + CLAIM, {"firing scheduled"}, b_before=CLAIM
    ),
    "a worker has looked when what it saw is cancelled": Pair(
        turns(2), in_two(CLAIM), CANCEL(0) + CLAIM, {"cancelled firing", "firing scheduled"}
    ),
    "two workers have looked for something to write": Pair(
        followups(2),
        in_two(CLAIM_ONE_TO_WRITE),
        CLAIM_ONE_TO_WRITE + KEEP_TEXT,
        {"firing scheduled", "scheduled firing"},
    ),
    "a worker whose lease has run out says it all the same": Pair(
        turns(1), SAY, RECOVER + CLAIM, {"fired", "firing"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "a lease runs out while its worker settles": Pair(
        turns(2),
        LEASE_RUNS_OUT + in_two(DELIVER),
        RECOVER + CLAIM,
        {"fired firing", "fired scheduled", "firing scheduled"},
        a_before=CLAIM,
    ),
    "a worker whose lease has run out books on and delivers": Pair(
        turns(1),
        BOOK_AND_DELIVER,
        RECOVER + CLAIM,
        {"fired scheduled", "firing"},
        a_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a worker whose lease has run out gives it back": Pair(
        turns(2),
        in_two(GIVE_BACK),
        RECOVER + CLAIM,
        {"firing scheduled", "scheduled scheduled"},
        a_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a worker whose lease has run out keeps what it has written": Pair(
        followups(1),
        in_two(KEEP_TEXT),
        RECOVER + CLAIM_TO_WRITE,
        {"scheduled", "firing"},
        a_before=CLAIM_TO_WRITE + LEASE_RUNS_OUT,
    ),
    "a worker whose lease has run out passes the second door": Pair(
        turns(1), OPEN_DOOR, RECOVER + CLAIM, {"firing"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "a dead claim is seen and settled before it is recovered": Pair(
        turns(2),
        DELIVER,
        in_two(RECOVER) + CLAIM,
        {"fired firing", "fired scheduled", "firing scheduled"},
        a_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a worker whose lease has run out holds its turn until the customer writes": Pair(
        turns(2),
        HOLD,
        RECOVER + CLAIM,
        {"firing scheduled", "scheduled firing", "scheduled scheduled"},
        a_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a turn is held while it is cancelled": Pair(turns(1), HOLD, in_two(CANCEL(0)), {"cancelled"}, a_before=CLAIM),
    "a lease is renewed as it runs out": Pair(
        turns(1), RENEW + DELIVER, RECOVER + CLAIM, {"fired", "firing"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "a lease that is being renewed is recovered": Pair(
        turns(1), in_two(RENEW), RECOVER + CLAIM, {"firing"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "a lease that has run out is seen and renewed before it is recovered": Pair(
        turns(1), RENEW, in_two(RECOVER) + CLAIM, {"firing"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "a lease is renewed while its task is settled": Pair(
        turns(2), SAY, in_two(RENEW), {"fired scheduled"}, a_before=CLAIM
    ),
    "two recover at once": Pair(
        turns(2, 1),
        in_two(RECOVER),
        RECOVER + CLAIM,
        {"firing scheduled firing"},
        a_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a turn is cancelled while it is said": Pair(
        turns(2), SAY, in_two(CANCEL(0)), {"cancelled scheduled", "fired scheduled"}, a_before=CLAIM
    ),
    "both turns are cancelled while they are claimed and delivered": Pair(
        turns(2), CLAIM + DELIVER + CLAIM, CANCEL(1, 0), {"cancelled cancelled", "fired cancelled", "fired firing"}
    ),
    "a turn is cancelled and the next claimed by another": Pair(
        turns(2), CANCEL(0) + CLAIM, CLAIM + GIVE_BACK, {"cancelled firing", "cancelled scheduled"}
    ),
    "a turn is cancelled behind its second door": Pair(
        turns(1), OPEN_DOOR + GIVE_BACK, in_two(CANCEL(0)), {"cancelled", "scheduled"}, a_before=CLAIM
    ),
    "a turn is cancelled while a dead claim is recovered": Pair(
        turns(2),
        in_two(CANCEL(0)),
        RECOVER + CLAIM,
        {"cancelled firing", "firing scheduled"},
        b_before=CLAIM + LEASE_RUNS_OUT,
    ),
    "a turn that died behind its second door is cancelled": Pair(
        turns(1), CANCEL(0), RECOVER + CLAIM, {"firing"}, b_before=CLAIM + OPEN_DOOR + LEASE_RUNS_OUT
    ),
    "a turn is given back that was cancelled and recovered": Pair(
        turns(1), GIVE_BACK, CANCEL(0) + RECOVER, {"cancelled"}, a_before=CLAIM + LEASE_RUNS_OUT
    ),
    "two turns are cancelled while one after the other is delivered": Pair(
        turns(1, 1), DELIVER + DELIVER, in_two(CANCEL(1, 0)), {"fired fired"}, a_before=CLAIM
    ),
    "two cancel the same": Pair(turns(2), CANCEL(0, 1), in_two(CANCEL(1, 0)) + CLAIM, {"cancelled cancelled"}),
    "an earlier turn is booked": Pair(
        turns(1),
        BOOK_EARLIER + CLAIM,
        CLAIM + DELIVER,
        {"fired firing", "fired scheduled", "firing fired", "scheduled fired", "scheduled firing"},
    ),
    "a later turn is booked": Pair(turns(1), BOOK_LATER + CLAIM, CLAIM, {"firing scheduled"}),
    "a turn is given back while another looks for work": Pair(
        turns(2),
        GIVE_BACK + CLAIM,
        CLAIM + DELIVER,
        {"fired firing", "fired scheduled", "firing scheduled"},
        a_before=CLAIM,
    ),
    "a turn is given back for later while another looks for work": Pair(
        turns(2), GIVE_BACK_FOR_LATER, CLAIM + DELIVER, {"scheduled fired", "scheduled scheduled"}, a_before=CLAIM
    ),
    "a customer writes while a turn is said": Pair(turns(1), SAY, HEAR, {"fired scheduled"}, a_before=CLAIM),
    "a customer writes while a turn is claimed": Pair(
        turns(1), in_two(CLAIM) + DELIVER, HEAR, {"fired", "fired scheduled"}
    ),
    "a customer writes while a dead claim is recovered": Pair(
        turns(1), RECOVER + CLAIM, HEAR, {"firing", "firing scheduled"}, b_before=CLAIM + LEASE_RUNS_OUT
    ),
    "two workers write the follow-ups of a conversation": Pair(
        followups(2), CLAIM_ONE_TO_WRITE + KEEP_TEXT, CLAIM_ONE_TO_WRITE + KEEP_TEXT, {"scheduled scheduled"}
    ),
    "the text of an elder is kept while its younger could be said": Pair(
        followups(2),
        KEEP_TEXT + CLAIM,
        CLAIM + DELIVER,
        {"fired firing", "fired scheduled", "firing scheduled"},
        a_before=CLAIM_ONE_TO_WRITE,
        b_before=CLAIM_ONE_TO_WRITE + KEEP_TEXT,
    ),
    "an elder that is being written is cancelled": Pair(
        followups(2),
        KEEP_TEXT + CLAIM,
        CANCEL(0) + CLAIM,
        {"cancelled firing", "firing scheduled"},
        a_before=CLAIM_ONE_TO_WRITE,
        b_before=CLAIM_ONE_TO_WRITE + KEEP_TEXT,
    ),
    "a follow-up is written while a turn is said": Pair(
        a_followup_and_a_turn,
        KEEP_TEXT + CLAIM,
        CLAIM + DELIVER,
        {"fired firing", "fired scheduled", "firing fired", "firing scheduled", "scheduled fired"},
        a_before=CLAIM_TO_WRITE,
    ),
    "a follow-up whose writer died is recovered while a turn is said": Pair(
        a_followup_and_a_turn,
        KEEP_TEXT,
        CLAIM + RECOVER + DELIVER,
        {"fired scheduled", "scheduled fired"},
        a_before=CLAIM_TO_WRITE + LEASE_RUNS_OUT,
    ),
    "functions are cancelled by their label while they are claimed": Pair(
        functions(2),
        CLAIM_TO_RUN + DELIVER,
        in_two(CANCEL_LABEL) + CLAIM_TO_RUN,
        {"cancelled cancelled", "fired firing"},
    ),
    "functions are cancelled by their label while they begin": Pair(
        functions(2),
        RUN,
        in_two(CANCEL_LABEL),
        {"cancelled fired", "fired firing"},
        a_before=CLAIM_TO_RUN,
    ),
    "a function is given back while it is cancelled by its label": Pair(
        functions(2),
        GIVE_BACK,
        in_two(CANCEL_LABEL) + CLAIM_TO_RUN,
        {"cancelled firing"},
        a_before=CLAIM_TO_RUN,
    ),
    "a function whose worker died is cancelled by its label": Pair(
        functions(1),
        RECOVER + CLAIM_TO_RUN,
        in_two(CANCEL_LABEL),
        {"cancelled", "firing"},
        b_before=CLAIM_TO_RUN + LEASE_RUNS_OUT,
    ),
}


# The tests


@pytest.fixture(scope="module")
def url(server_url: str, template: str) -> Iterator[str]:
    """The address of one database for all of them: each order begins with the same rows."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template}")
        address = server_url.rpartition("/")[0] + "/" + name
        with psycopg.connect(address, autocommit=True) as prepare:
            for statement in GATE:
                prepare.execute(statement)
        yield address
        connection.execute(f"drop database {name} with (force)")


@asynccontextmanager
async def a_world(url: str) -> AsyncIterator[World]:
    database = Database(url)
    try:
        async with (
            database.engine.connect() as a,
            database.engine.connect() as b,
            database.engine.connect() as observer,
        ):
            await observer.execution_options(isolation_level="AUTOCOMMIT")
            sessions = [Session(name, one, await pid_of(one)) for name, one in (("A", a), ("B", b))]
            for session in sessions:
                await session.connection.execute(text("set role pg_write_all_data"))
                await session.connection.commit()
            yield World(sessions, observer, await pid_of(observer))
    finally:
        await database.close()


async def pid_of(connection: AsyncConnection) -> int:
    return int(await connection.scalar(text("select pg_backend_pid()")))


@pytest.mark.parametrize("name", PAIRS)
async def test_in_every_order_one_speaks_at_a_time_in_order_and_nothing_is_done_twice(url: str, name: str) -> None:
    pair = PAIRS[name]
    ends, count = set(), 0
    async with a_world(url) as world:
        await world.begin(pair)
        for order in orders(len(pair.a), len(pair.b)):
            await world.begin_again()
            try:
                await world.run(pair, order)
            except Exception as problem:
                problem.add_note(f"in the order {order}")
                raise
            ends.add(" ".join(row.state for row in world.rows.values()))
            count += 1
    assert count == pair.count
    assert pair.ends <= ends


def test_no_order_is_left_out() -> None:
    """So that a pair that is dropped is noticed."""
    assert f"{sum(pair.count for pair in PAIRS.values()):,} orders in all" in str(__doc__)


async def test_a_statement_that_waits_is_told_from_one_that_is_done_and_goes_on_when_it_is_let_go(url: str) -> None:
    found = {}
    async with a_world(url) as world:
        await world.begin(Pair(turns(1), (), (), set(), a_before=CLAIM))
        for order in orders(2, 2):
            await world.begin_again()
            done: list[str] = []

            async def lock(name: str, done: list[str] = done) -> None:
                await world.sessions[name].connection.execute(text("select from tasks for update"))
                done.append(name)

            async def let_go(name: str, done: list[str] = done) -> None:
                done.append(name.lower())
                await world.sessions[name].connection.commit()

            programs = {name: [partial(lock, name), partial(let_go, name)] for name in "AB"}
            await interleave(order, programs, world.is_waiting)
            found[order] = "".join(done)
    assert found == {
        "AABB": "AaBb",
        "ABAB": "AaBb",
        "ABBA": "AaBb",
        "BAAB": "BbAa",
        "BABA": "BbAa",
        "BBAA": "BbAa",
    }
