"""A machine that enrols, moves and closes renewals, lets customers answer and opt out, time pass and workers die, at random.

After each step it looks at every notice that was said: never one after a stop, never two for one step, never one outside open hours.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pydantic_ai.messages import ModelMessage
from sqlalchemy import text

from app import renewals as enrolling
from app.wiring import performer
from scheduler import recovery, settle
from scheduler.claim import claim
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim, TryAgain
from scheduler.task import Pool, Task
from store import contacts
from store.database import Database
from store.renewals import State, Wanted
from tests.support.house import House, a_config, a_house
from tests.support.model import Script

BOGOTA = ZoneInfo("America/Bogota")
START = datetime(2026, 12, 1, 8, tzinfo=BOGOTA)
LEASE = timedelta(seconds=60)
POOLS: tuple[Pool, ...] = ("timed", "speak", "background")
PEOPLE = ("ana", "luis")
SUBJECTS = ("car", "house", "life")
CONFIG = {
    "hours": {"open": {"mon-fri": "09:00-19:00"}, "days_off": ["2026-12-08"]},
    "caps": {"notices_a_day": 2},
    "cadences": {
        "policy": {
            "past": "latest",
            "steps": [
                {"offset": "-2w", "about": "it ends on {due}"},
                {"offset": "-3d", "text": {"en": "Soon."}},
                {"offset": "0d", "text": {"en": "Today."}, "by_due": True},
                {"offset": "+2d", "text": {"en": "It has ended."}},
            ],
        }
    },
}


ACTIONS = ("enrol", "move", "close", "reply", "opt", *["wait"] * 7)


class Died(BaseException):
    """A worker that dies where it stands."""


@dataclass
class Open:
    """A renewal as the model has it."""

    wanted: Wanted
    said_at: datetime | None = None
    """When it was first spoken of, in this round."""


class Machine(RuleBasedStateMachine):
    """What may happen to renewals."""

    url: ClassVar[str]
    directory: ClassVar[Path]
    said: ClassVar[int] = 0
    """Notices in all runs."""

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.clock = MovableClock(START)
        self.open_ones: dict[str, Open] = {}
        self.answered: dict[str, datetime] = {}
        self.out: set[str] = set()
        self.seen: set[int] = set()
        self.steps: set[tuple[int, str]] = set()
        self.dies = False
        self.runner.run(self._begin())
        for number, subject in enumerate(SUBJECTS):
            self.enrol(subject, PEOPLE[number % 2], 16 + number)

    async def _begin(self) -> None:
        self.database = Database(self.url)
        async with self.database.transaction() as connection:
            tables = "renewals, renewal_events, usage, tasks, task_events, messages, conversations, contacts, senders, tenants"
            await connection.execute(text(f"truncate {tables} cascade"))

        def words(messages: list[ModelMessage]) -> str:
            if self.dies:
                raise Died
            return "It ends soon."

        script = Script(followups=(words,))
        house = a_house(self.database, self.directory, model=script.model, clock=self.clock, poll=False, config=CONFIG)
        self.house: House = await self.stack.enter_async_context(house)
        self.talks = {name: (await self.house.says("hello", address=name)).conversation for name in PEOPLE}
        self.tenant = a_config("acme", **CONFIG)
        await self._perform()

    def teardown(self) -> None:
        self.runner.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self.stack.aclose()
        await self.database.close()

    @rule(
        what=st.sampled_from(ACTIONS),
        subject=st.sampled_from(SUBJECTS),
        who=st.sampled_from(PEOPLE),
        days=st.integers(0, 25),
        state=st.sampled_from(["renewed", "lost", "withdrawn"]),
        hours=st.sampled_from([5, 11, 24, 72, 24 * 5]),
        has=st.booleans(),
    )
    def do(self, what: str, subject: str, who: str, days: int, state: State, hours: int, has: bool) -> None:
        """Do one thing. Of rules of their own Hypothesis leaves some out for a whole run, and then hardly anything is said."""
        if what == "enrol" or (what == "move" and subject in self.open_ones):
            self.enrol(subject, who, days)
        elif what == "close":
            self.close(subject, state)
        elif what == "reply":
            self.reply(who)
        elif what == "opt":
            self.opt_out_or_in(who, is_out=has)
        else:
            self.let_time_pass(hours, dies=has)

    def enrol(self, subject: str, who: str, days: int) -> None:
        due = self.clock.at.astimezone(BOGOTA).date() + timedelta(days=days)
        before = self.open_ones.get(subject)
        wanted = replace(before.wanted, due=due) if before else Wanted(subject, due, "policy", {"web": who}, who)
        (became,) = self.runner.run(enrolling.enrol(self.house.service, self.tenant, [wanted], "a machine"))
        is_same = before is not None and before.wanted.due == due
        assert became == ("new" if before is None else "unchanged" if is_same else "moved")
        if not is_same:
            self.open_ones[subject] = Open(wanted)

    def close(self, subject: str, state: State) -> None:
        closed = self.runner.run(enrolling.close(self.house.service, "acme", subject, state, "a machine"))
        assert closed == (self.open_ones.pop(subject, None) is not None)

    def reply(self, who: str) -> None:
        self.clock.move(timedelta(seconds=1))
        self.runner.run(self.house.says("yes?", address=who))
        self.answered[who] = self.clock.at
        self.runner.run(self._perform())

    def opt_out_or_in(self, who: str, *, is_out: bool) -> None:
        async def do() -> None:
            async with self.database.transaction() as connection:
                change = contacts.stop if is_out else contacts.go_on
                await change(connection, "acme", self.talks[who], "customer")

        self.runner.run(do())
        (self.out.add if is_out else self.out.discard)(who)

    def let_time_pass(self, hours: int, *, dies: bool) -> None:
        until = self.clock.at + timedelta(hours=hours)
        self.dies = dies
        self.runner.run(self._perform())
        while (due := self.runner.run(self._next_due())) is not None and due <= until:
            # What is due and was not done waits for another of its conversation.
            self.clock.set(due if due > self.clock.at else self.clock.at + timedelta(seconds=1))
            self.runner.run(self._perform())
        self.clock.set(max(until, self.clock.at))
        self.runner.run(self._perform())

    async def _next_due(self) -> datetime | None:
        async with self.database.transaction() as connection:
            found: datetime | None = await connection.scalar(
                text("select min(due_at) from tasks where state = 'scheduled' and hold is null")
            )
            return found

    async def _perform(self) -> None:
        """Do all that is due; the first that asks the model may die of it, and is recovered after its lease."""
        perform = performer(self.house.service)
        while True:
            async with self.database.transaction() as connection:
                taken: list[Task] = []
                for pool in POOLS:
                    taken += await claim(connection, self.clock, "one", LEASE, pool, 10)
            if not taken:
                break
            for task in taken:
                await self._do(perform, task)
        await self._look()

    async def _do(self, perform: object, task: Task) -> None:
        assert callable(perform)
        try:
            end = await perform(task)
        except Died:
            self.dies = False
            self.clock.move(LEASE + timedelta(seconds=1))
            async with self.database.transaction() as connection:
                await recovery.recover(connection, self.clock)
        except LostClaim:
            pass  # it was recovered with what the dead held, and comes again
        except TryAgain as problem:
            async with self.database.transaction() as connection:
                await settle.give_back(connection, self.clock, task, delay=timedelta(seconds=1), error=str(problem))
        else:
            assert end is None

    async def _look(self) -> None:
        """Look at each notice that was said since the last look, which nothing has happened since but its saying."""
        async with self.database.transaction() as connection:
            rows = await connection.execute(
                text(
                    "select t.id, t.ended_at, t.conversation, (t.payload ->> 'renewal')::bigint as renewal,"
                    " t.payload ->> 'step' as step, r.subject from tasks t join renewals r on r.id = (t.payload ->> 'renewal')::bigint"
                    " where t.kind = 'notice' and t.state = 'fired' and t.outcome = 'delivered' order by t.ended_at, t.id"
                )
            )
            said = [row for row in rows if row.id not in self.seen]
        for row in said:
            self.seen.add(row.id)
            Machine.said += 1
            who = next(name for name, talk in self.talks.items() if talk == row.conversation)
            local = row.ended_at.astimezone(BOGOTA)
            assert self.tenant.hours.hours.is_open(row.ended_at, BOGOTA), f"said at {local}"
            assert (row.renewal, row.step) not in self.steps, "two for one step"
            self.steps.add((row.renewal, row.step))
            assert who not in self.out, "said after they opted out"
            found = self.open_ones.get(row.subject)
            assert found is not None, "said after it was closed"
            if found.said_at is not None:
                answered = self.answered.get(who)
                assert answered is None or answered <= found.said_at, "said after they answered"
            else:
                found.said_at = row.ended_at
        async with self.database.transaction() as connection:
            twice = await connection.execute(
                text("select count(*) from messages where kind = 'notice' group by task having count(*) > 1")
            )
            assert twice.all() == []


@pytest.mark.parametrize("seed", [1])
def test_whatever_happens_no_notice_comes_after_a_stop_or_twice_or_where_it_is_closed(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    Machine.url, Machine.directory = database_url, tmp_path
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Machine.said > 30, "else it has shown nothing"
