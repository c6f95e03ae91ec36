"""A cancel by a label, a move and a fire of deferred runs that meet, and what must hold whatever the order.

The actors are the service's own code: workers claim and run as the poller does, a cancel and a move are what the API and a
function's context call, and what the dead held is recovered. A seed draws how many runs there are, what they do and
the order of every statement and commit.
"""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from app.context import Context
from app.deferred import Raced, Run
from app.functions import App, Stop
from app.wiring import performer
from scheduler import recovery
from scheduler.book import Booked
from scheduler.cancel import Cancelled
from scheduler.claim import claim
from scheduler.clock import MovableClock
from scheduler.limits import LimitsSection
from scheduler.poller import Poller
from tests.support.claims import LEASE
from tests.support.house import House, a_house
from tests.support.stage import Stage, StagedDatabase

TENANT, LABEL, OTHER = "acme", "user_ana", "user_bob"
HOUR = timedelta(hours=1)
WAYS = ("works", "works", "works", "raises", "stops", "takes long")
EMPTY = "delete from task_events; delete from tasks"
OPEN = ("scheduled", "firing")


@dataclass
class Theatre:
    """The service on a staged database, without a poller of its own."""

    house: House
    database: StagedDatabase
    clock: MovableClock
    observer: psycopg.AsyncConnection[Any]
    ways: dict[int, str] = field(default_factory=dict)
    """What a run does, by task."""
    begun: list[tuple[int, int]] = field(default_factory=list)
    """Each run that was begun: the task, and after how many steps."""

    @property
    def steps(self) -> int:
        """How many were taken."""
        return len(self.database.stage.taken) if self.database.stage else 10**9

    async def run(self, ctx: Context) -> None:
        """Run one of the functions."""
        assert ctx.task_id is not None
        self.begun.append((ctx.task_id, self.steps))
        match self.ways.get(ctx.task_id, "works"):
            case "raises" if ctx.attempt == 1:
                raise OSError("the shop is down")
            case "stops":
                raise Stop("nobody wants it any more")
            case "takes long":
                self.clock.move(LEASE + timedelta(seconds=1))


@asynccontextmanager
async def a_theatre(url: str, directory: Path) -> AsyncIterator[Theatre]:
    """Open one on an empty, migrated database."""
    app, database, clock = App(time_zone="UTC"), StagedDatabase(url), MovableClock()
    plain = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    async with (
        AsyncExitStack() as stack,
        a_house(database, directory, clock=clock, app=app, poll=False) as house,
        await psycopg.AsyncConnection.connect(plain, autocommit=True) as observer,
    ):
        stack.push_async_callback(database.close)
        theatre = Theatre(house, database, clock, observer)

        @app.function("/run")
        async def run(given: Any, ctx: Context) -> None:
            await theatre.run(ctx)

        yield theatre


@dataclass
class Trial:
    """One play, and what is wrong with how it ended."""

    theatre: Theatre
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Play it."""
        theatre, drawn = self.theatre, random.Random(self.seed)
        theatre.database.stage = None
        await theatre.observer.execute(EMPTY.encode())
        theatre.ways, theatre.begun = {}, []
        deferred = theatre.house.run.functions.deferred
        mine = [await self._book(LABEL, drawn) for _ in range(drawn.randint(1, 4))]
        others = [await self._book(OTHER, drawn)]
        cancelled_at: list[int] = []

        async def cancel() -> Cancelled:
            done = await deferred.cancel(TENANT, subject=LABEL, by="the test")
            cancelled_at.append(theatre.steps)
            return done

        actors: dict[str, Awaitable[object]] = {
            "worker": self._work("worker", drawn.choice([1, 3, 5])),
            "cancel": cancel(),
        }
        if drawn.random() < 0.4:
            actors["another worker"] = self._work("another worker", 5)
        if drawn.random() < 0.4:
            actors["recovery"] = self._recover()
        moved = drawn.choice(mine) if drawn.random() < 0.5 else None
        if moved is not None:
            actors["move"] = deferred.reschedule(TENANT, moved, HOUR, LimitsSection(), by="the test")
        if drawn.random() < 0.2:
            actors["another cancel"] = deferred.cancel(TENANT, subject=LABEL, by="the test")
        theatre.database.stage = stage = Stage(self.seed, theatre.observer)
        found = await stage.play(actors)
        theatre.database.stage = None
        for name, result in found.items():
            if isinstance(result, BaseException) and not (name == "move" and isinstance(result, Raced)):
                self._say(f"{name} raised {result!r}")
        if self.wrong:
            return
        self.counts["steps"] += len(stage.taken)
        await self._check(mine, moved, found, cancelled_at[0])
        before = list(theatre.begun)
        await self._drain()
        await self._check_ended(mine, others, moved, found, before)
        if self.wrong:
            self._say(f"the order was {' '.join(stage.taken)}")

    async def _book(self, subject: str, drawn: random.Random) -> int:
        run = Run("/run", drawn.choice([timedelta(), HOUR]), {}, subject=subject)
        booked = await self.theatre.house.run.functions.deferred.book(TENANT, run, LimitsSection(), is_called=False)
        self.theatre.ways[booked.id] = drawn.choice(WAYS)
        return booked.id

    async def _work(self, name: str, most: int) -> None:
        """Claim once, and run what was claimed, as the poller does."""
        theatre, service = self.theatre, self.theatre.house.service
        perform = performer(service, None, theatre.house.run.functions)
        poller = Poller(theatre.database, theatre.clock, service.signals, perform, lease=LEASE, name=name)
        async with theatre.database.autocommit() as connection:
            tasks = await claim(connection, theatre.clock, name, LEASE, "application", most, offers=["function:/run"])
        for task in tasks:
            await poller._run(task)

    async def _recover(self) -> None:
        async with self.theatre.database.transaction() as connection:
            await recovery.recover(connection, self.theatre.clock)

    async def _drain(self) -> None:
        """Let everything end that will."""
        for _ in range(10):
            if not any(row[1] in OPEN for row in (await self._rows()).values()):
                return
            self.theatre.clock.move(2 * HOUR)
            await self._recover()
            await self._work("the last", 100)

    # What must hold

    def _say(self, words: str) -> None:
        self.wrong.append(f"seed {self.seed}: {words}")

    async def _rows(self) -> dict[int, Any]:
        rows = await self.theatre.observer.execute(
            "select id, state, subject, parent, cancel_requested from tasks order by id"
        )
        return {row[0]: row for row in await rows.fetchall()}

    async def _stories(self) -> dict[int, list[str]]:
        stories: dict[int, list[str]] = defaultdict(list)
        for task, event in await (
            await self.theatre.observer.execute("select task, event from task_events order by id")
        ).fetchall():
            stories[task].append(event)
        return stories

    async def _check(self, mine: Sequence[int], moved: int | None, found: dict[str, Any], cancelled_at: int) -> None:
        rows, stories, done = await self._rows(), await self._stories(), found["cancel"]
        new = found["move"].id if isinstance(found.get("move"), Booked) else None
        ours = {*mine, *([new] if new is not None else [])}
        both = [*done.cancelled, *done.raced]
        self.counts.update(cancelled=len(done.cancelled), raced=len(done.raced), moved=new is not None)
        if len(set(both)) != len(both):
            self._say(f"a task is named twice: {done}")
        if not set(both) <= ours:
            self._say(f"{set(both) - ours} have another label")
        by_others = {moved} if new is not None else set()
        if isinstance(found.get("another cancel"), Cancelled):
            by_others |= {*found["another cancel"].cancelled, *found["another cancel"].raced}
        for task in ours - set(both):
            if rows[task][1] in OPEN or (rows[task][1] == "cancelled" and task not in by_others):
                self._say(f"task {task} is in neither of the two, and is {rows[task][1]}: {stories[task]}")
        for task in done.cancelled:
            if rows[task][1] != "cancelled" or stories[task][-1] != "cancelled":
                self._say(f"task {task} was cancelled and is {rows[task][1]}: {stories[task]}")
            if any(ran == task and at > cancelled_at for ran, at in self.theatre.begun):
                self._say(f"task {task} was begun after it was cancelled")
            if any(ran == task for ran, _ in self.theatre.begun) and "claimed" not in stories[task]:
                self._say(f"task {task} ran without a claim")
        if isinstance(found.get("move"), Raced) and len(rows) != len(mine) + 1:
            self._say("a move that was refused has booked")
        if new is not None and (rows[moved][1] != "cancelled" or rows[new][3] != moved):  # type: ignore[index]
            self._say(f"task {moved} was moved and is {rows[moved][1]}")  # type: ignore[index]

    async def _check_ended(
        self,
        mine: Sequence[int],
        others: Sequence[int],
        moved: int | None,
        found: dict[str, Any],
        before: Sequence[tuple[int, int]],
    ) -> None:
        rows, stories = await self._rows(), await self._stories()
        ended = Counter(row[1] for row in rows.values())
        if sum(ended[state] for state in ("fired", "failed", "cancelled")) != len(rows):
            self._say(f"something never ends: {dict(ended)}")
        late = {task for task, _ in self.theatre.begun[len(before) :]}
        for task in late & set(found["cancel"].cancelled):
            self._say(f"task {task} was cancelled and has run")
        if isinstance(found.get("move"), Booked) and moved in late:
            self._say(f"task {moved} was moved and has run all the same")
        for task in others:
            if rows[task][1] not in ("fired", "failed") or "cancel requested" in stories[task]:
                self._say(f"task {task} of another label is {rows[task][1]}: {stories[task]}")
        begun = Counter(task for task, _ in self.theatre.begun)
        for task, count in begun.items():
            if count > stories[task].count("claimed"):
                self._say(f"task {task} ran {count} times: {stories[task]}")
        self.counts.update(ran=sum(begun.values()))


async def play_all(url: str, directory: Path, seeds: range) -> tuple[Counter[str], list[str]]:
    """Play these seeds one after the other; return what was counted, and all that was wrong."""
    counts, wrong = Counter[str](), list[str]()
    async with a_theatre(url, directory) as theatre:
        for seed in seeds:
            trial = Trial(theatre, seed)
            await trial.run()
            counts += trial.counts
            wrong += trial.wrong
    return counts, wrong
