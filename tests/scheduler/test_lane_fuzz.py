"""Two and four sessions over one database, doing what workers do at random, and a model of what must hold.

Seeded: the choices are the same in every run; how the sessions interleave is the machine's, and must not matter.
"""

import asyncio
import random
from collections import defaultdict
from datetime import timedelta

import pytest
from sqlalchemy import text

from scheduler import recovery, settle
from scheduler.cancel import cancel
from scheduler.clock import Clock
from scheduler.errors import LostClaim
from scheduler.task import Task
from store.database import Database
from tests.support.claims import take
from tests.support.factories import a_conversation, a_followup, a_turn, lanes, states


class World:
    """What the sessions share: who speaks where, and what was said."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database, self.clock, self.random = database, Clock(), random.Random(seed)
        self.speaking: dict[int, int] = {}
        self.said: dict[int, list[int]] = defaultdict(list)
        self.crashed: list[tuple[str, Task]] = []
        self.retried: set[int] = set()
        self.workers = 0

    async def work(self, session: int, until: int) -> None:
        worker = f"session {session}"
        while len(await self.left()) > until:
            claimed = await take(self.database, self.clock, worker, speak=self.random.choice((1, 3, 8)), work=3)
            for task in claimed:
                if task.lane:
                    assert task.conversation is not None
                    assert task.conversation not in self.speaking, "two speak in one conversation"
                    self.speaking[task.conversation] = task.id
            if not claimed:
                await asyncio.sleep(0.002)
            for task in claimed:
                await self.perform(task, worker)

    async def perform(self, task: Task, worker: str) -> None:
        await asyncio.sleep(0)
        conversation = task.conversation or 0
        fate = self.random.random()
        if fate < 0.1:
            self.crashed.append((worker, task))
            await self.bury(task)
            return
        async with self.database.transaction() as connection:
            is_cancelled = await settle.is_cancelled(connection, task)
            if task.lane:
                del self.speaking[conversation]
            if is_cancelled:
                await settle.cancel(connection, self.clock, task)
            elif fate < 0.2:
                self.retried.add(task.id)
                await settle.give_back(connection, self.clock, task, delay=timedelta(milliseconds=20), error="again")
            elif task.lane:
                await settle.deliver(connection, self.clock, task, None)
                self.said[conversation].append(task.id)
            else:
                await settle.keep_text(connection, self.clock, task, "text")

    async def bury(self, task: Task) -> None:
        """A worker died with this task: recovery returns it, and what the dead would commit counts for nothing."""
        if task.attempt > 1:  # it comes back after a pause
            self.retried.add(task.id)
        async with self.database.transaction() as connection:
            await connection.execute(
                text("update tasks set worker = 'dead' where id = :id and fence = :fence"),
                {"id": task.id, "fence": task.fence},
            )
        if task.lane:
            del self.speaking[task.conversation or 0]
        while await self.is_held(task):  # one that somebody is cancelling just then is left to the next pass
            async with self.database.transaction() as connection:
                await recovery.recover(connection, self.clock, ["dead"])
        with pytest.raises(LostClaim):
            async with self.database.transaction() as connection:
                await settle.deliver(connection, self.clock, task, None)

    async def is_held(self, task: Task) -> bool:
        async with self.database.transaction() as connection:
            held = text("select count(*) from tasks where id = :id and fence = :fence and state = 'firing'")
            return bool(await connection.scalar(held, {"id": task.id, "fence": task.fence}))

    async def left(self) -> list[int]:
        return [task for task, state in (await states(self.database)).items() if state in ("scheduled", "firing")]


@pytest.mark.parametrize(("sessions", "seed"), [(2, 1), (2, 2), (4, 3), (4, 4)])
async def test_one_thing_at_a_time_in_order_and_nothing_twice(database: Database, sessions: int, seed: int) -> None:
    world = World(database, seed)
    async with database.transaction() as connection:
        conversations = [await a_conversation(connection, address=f"person {n}") for n in range(6)]
        turns = [(await a_turn(connection, world.clock, world.random.choice(conversations))).id for _ in range(60)]
        followups = [
            (
                await a_followup(
                    connection,
                    world.clock,
                    world.random.choice(conversations),
                    due=timedelta(milliseconds=world.random.randrange(0, 300)),
                )
            ).id
            for _ in range(40)
        ]
        doomed = world.random.sample(followups, 8)

    async def cancel_some() -> None:
        for task in doomed:
            await asyncio.sleep(0.01)
            async with database.transaction() as connection:
                await cancel(connection, world.clock, "acme", [task])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for session in range(sessions):
            group.create_task(world.work(session, until=0))
        group.create_task(cancel_some())

    final = await states(database)
    said = [task for tasks in world.said.values() for task in tasks]
    assert sorted(said) == sorted(task for task, state in final.items() if state == "fired")
    assert len(said) == len(set(said)), "something was said twice"
    assert set(final.values()) <= {"fired", "cancelled"}
    assert {task for task, state in final.items() if state == "cancelled"} <= set(doomed)
    assert set(turns) <= set(said)
    assert set((await lanes(database)).values()) == {None}
    for tasks in world.said.values():
        in_order = [task for task in tasks if task in turns and task not in world.retried]
        assert in_order == sorted(in_order), "turns were answered out of order"
