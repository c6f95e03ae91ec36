"""Durable schedules under kill -9: what is done to their replicas, and what must hold afterwards."""

import asyncio
import random
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import text

from scheduler.missed import POLICIES, Policy
from store.database import Database

__all__ = ["POLICIES", "Run", "Trial", "interval_of", "name_of"]

ROOT = Path(__file__).parents[2]
GRACE = timedelta(seconds=1)
"""Two poll intervals of a replica."""
TABLE = """
create table runs (
    id bigint generated always as identity primary key, schedule text not null, slot timestamptz not null,
    fence bigint not null, missed boolean not null, pid integer not null, begun timestamptz not null, ended timestamptz);
create table deaths (pid integer not null, at timestamptz not null);
"""


def interval_of(number: int) -> timedelta:
    """How often the schedules of this number come: every 1 to 5 s."""
    return timedelta(seconds=1 + number % 5)


def name_of(number: int, policy: Policy) -> str:
    """Its id."""
    return f"{policy} {number}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one slot, as its handler noted it."""

    slot: datetime
    fence: int
    missed: bool
    begun: datetime
    ended: datetime
    """Or when its process died."""
    is_whole: bool


@dataclass
class Trial:
    """One trial on an empty, migrated database."""

    url: str
    seconds: float
    tasks: int
    """Of each policy."""
    replicas: int
    kills_every: float
    outage: float
    seed: int = 1
    patience: float = 12
    """Seconds in the end for what is still to be run."""
    kills: int = 0
    wrong: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _alive: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def run(self) -> None:
        """Do it all, and fill in what was wrong."""
        dice = random.Random(self.seed)
        self._database = Database(self.url, pool_size=3)
        async with self._database.transaction() as connection:
            for statement in TABLE.split(";")[:-1]:
                await connection.execute(text(statement))
        try:
            await asyncio.gather(*(self._start() for _ in range(self.replicas)))
            await self._under_fire(dice, self.seconds / 2)
            await asyncio.gather(*(self._kill(process) for process in list(self._alive)))
            down = await self._now()
            await asyncio.sleep(self.outage)
            up = await self._now()
            await asyncio.gather(*(self._start() for _ in range(self.replicas)))
            await self._under_fire(dice, self.seconds / 2)
            end = await self._now()
            # What is due by now is run yet; then all is looked at as it was at that moment.
            await asyncio.sleep(self.patience)
        finally:
            await asyncio.gather(*(self._kill(process) for process in list(self._alive)))
        await self._judge(down, up, end)
        await self._database.close()

    async def _under_fire(self, dice: random.Random, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, dice.uniform(0.5, 1.5) * self.kills_every))
            if asyncio.get_running_loop().time() < until:
                await self._kill(dice.choice(self._alive))
                self.kills += 1
                await self._start()

    async def _start(self) -> None:
        words = [sys.executable, "-m", "tests.replicas.replica", self.url, "r", str(self.tasks), str(self.seed)]
        process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n", "a replica did not come up"
        self._alive.append(process)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        self._alive.remove(process)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with self._database.transaction() as connection:
            await connection.execute(text("insert into deaths values (:pid, clock_timestamp())"), {"pid": process.pid})

    async def _now(self) -> datetime:
        async with self._database.autocommit() as connection:
            found: datetime = await connection.scalar(text("select clock_timestamp()"))
            return found

    # ---- What must hold

    async def _judge(self, down: datetime, up: datetime, end: datetime) -> None:
        async with self._database.transaction() as connection:
            rows = await connection.execute(
                text("""
                select r.schedule, r.slot, r.fence, r.missed, r.begun, coalesce(r.ended, d.at) as ended,
                       r.ended is not null as is_whole, r.pid
                  from runs r left join deaths d on d.pid = r.pid order by r.schedule, r.begun, r.id
                """)
            )
            runs: dict[str, list[Run]] = defaultdict(list)
            for row in rows:
                runs[row.schedule].append(
                    Run(row.slot, row.fence, row.missed, row.begun, row.ended or end, row.is_whole)
                )
            planned = await connection.execute(
                text("select key, payload, booked_for, state from tasks where kind = 'schedule'")
            )
            stored: dict[str, Any] = {row.key: row for row in planned}
        for number in range(self.tasks):
            for policy in POLICIES:
                name = name_of(number, policy)
                self._look(name, policy, runs[name], interval_of(number), stored[name], down, up, end)

    def _look(
        self,
        name: str,
        policy: Policy,
        runs: Sequence[Run],
        interval: timedelta,
        stored: Any,
        down: datetime,
        up: datetime,
        end: datetime,
    ) -> None:
        if not runs:
            self.wrong.append(f"{name} was never run")
            return
        first = min(run.slot for run in runs)
        self.counts["runs"] += len(runs)
        self.counts["cut off"] += sum(not run.is_whole for run in runs)
        for before, after in pairwise(runs):
            if after.begun < before.ended:
                self.wrong.append(
                    f"{name}: {after.slot} began at {after.begun}, while {before.slot} ran until {before.ended}"
                )
            if after.fence < before.fence or (after.slot <= before.slot and after.fence == before.fence):
                self.wrong.append(f"{name}: fence {after.fence} of {after.slot} after {before.fence} of {before.slot}")
            if after.slot < before.slot and policy != "catch-up":
                self.wrong.append(f"{name}: {after.slot} after {before.slot}")
        drifting = [run.slot for run in runs if (run.slot - first) % interval]
        if drifting or (stored.booked_for - first) % interval:
            self.wrong.append(f"{name} drifts: {drifting[:3]}, next {stored.booked_for}")
        whole = {run.slot for run in runs if run.is_whole}
        self.counts["slots"] += len(whole)
        for run in runs:
            if not run.is_whole and run.slot not in whole and run.slot < end:
                self.wrong.append(f"{name}: {run.slot} was cut off and did not run again")
        if policy == "catch-up":
            slot = first
            while slot < end:
                if slot not in whole:
                    self.wrong.append(f"{name}: {slot} was never run")
                slot += interval
        # What fell due while nobody was there, and was too old when somebody was.
        begun_before = {run.slot for run in runs if run.begun <= down}
        lost = [
            first + number * interval
            for number in range(int((up - GRACE - first) / interval) + 1)
            if down < first + number * interval < up - GRACE
        ]
        ran = [slot for slot in lost if slot in whole and slot not in begun_before]
        if policy == "skip" and (ran or any(run.missed for run in runs)):
            self.wrong.append(f"{name} was run under skip for what was missed")
        if policy == "run-once" and len(ran) > 1:
            self.wrong.append(f"{name}: {len(ran)} of what was missed was run under run-once")
        self.counts[f"run as missed under {policy}"] += sum(run.missed for run in runs)
