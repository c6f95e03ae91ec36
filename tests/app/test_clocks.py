"""Wrong clocks: the database's decides, so a worker whose machine is five minutes off fires nothing early and steals no lease."""

import ast
import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from scheduler.clock import Clock
from store.database import Database
from tests.support.factories import a_conversation, a_followup
from tests.support.process import serving, start
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
KEY = "a secret for the tests of wrong clocks"
PACKAGES = ("app", "agent", "channels", "scheduler", "store", "web_widget")
MAY_ASK = {
    "app/called.py": "the time of a signature is compared with the other server's clock",
    "app/cli/doctor.py": "it tells by how much this machine's clock is off",
    "app/cli/schedules.py": "a preview needs no database",
    "app/signing.py": "another server's signature is compared with it",
    "app/testing.py": "a mock context has no database",
    "scheduler/plain.py": "schedules in memory, where there is no database",
}
ASKING = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time")}

# Python reads this when it starts. Whoever asks the machine for the time, in whatever library, is told another.
SKEW = """
import datetime, os, time
seconds = float(os.environ["SKEW"])
real_time, real = time.time, datetime.datetime
time.time = lambda: real_time() + seconds
time.time_ns = lambda: int(time.time() * 1e9)
class Any(type):
    def __instancecheck__(cls, one): return isinstance(one, real)
    def __subclasscheck__(cls, one): return issubclass(one, real)
class Skewed(real, metaclass=Any):
    @classmethod
    def now(cls, tz=None): return real.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls): return real.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = Skewed
"""


def test_nothing_that_a_database_could_tell_asks_the_machine_for_the_time() -> None:
    asking = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and (getattr(node.value, "id", None), node.attr) in ASKING:
                    asking.add(str(path.relative_to(ROOT)))
    assert asking == MAY_ASK.keys()


@pytest.mark.parametrize("skew", [300, -300])
async def test_a_worker_five_minutes_off_fires_nothing_early_and_steals_no_lease(
    database: Database, database_url: str, tmp_path: Path, skew: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SKEW)
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY, "VUELVO_LEASE": "5s"}
    clock = Clock()
    async with serving("--no-poller", directory=tmp_path, environ=environ):
        wrong = await start(
            "work", directory=tmp_path, environ={**environ, "PYTHONPATH": str(tmp_path), "SKEW": str(skew)}
        )
        right = await start("work", directory=tmp_path, environ=environ)
        try:
            await asyncio.gather(*(worker.until_said("working") for worker in (wrong, right)))
            async with database.transaction() as connection:
                held = await a_conversation(connection, "demo", address="whose worker is elsewhere")
                other = await a_followup(connection, clock, held, tenant="demo")
                # Held by a worker on another machine, under a lease that runs for a minute yet.
                await connection.execute(
                    text(
                        "update tasks set state = 'firing', worker = 'elsewhere/boot:1/7/7', fence = 1, attempt = 1,"
                        " claimed_at = now(), lease_until = now() + interval '1 minute' where id = :id"
                    ),
                    {"id": other.id},
                )
                for number in range(10):
                    talk = await a_conversation(connection, "demo", address=f"visitor {number}")
                    await a_followup(connection, clock, talk, tenant="demo", due=timedelta(seconds=2 + number / 5))

            async def are_said() -> bool:
                async with database.transaction() as connection:
                    return bool(await connection.scalar(text("select count(*) = 10 from messages")))

            await eventually(are_said, 60)
            async with database.transaction() as connection:
                early = await connection.scalar(
                    text("select count(*) from messages m join tasks t on t.id = m.task where m.at < t.booked_for")
                )
                events = set((await connection.execute(text("select event from task_events"))).scalars())
                kept = await connection.execute(text("select state, fence from tasks where id = :id"), {"id": other.id})
                assert [(row.state, row.fence) for row in kept] == [("firing", 1)]
            assert early == 0
            assert "recovered" not in events
        finally:
            assert list(await asyncio.gather(wrong.stop(), right.stop())) == [0, 0]


@pytest.mark.parametrize("skew", [300, -300])
async def test_on_a_machine_five_minutes_off_schedules_run_at_their_time(
    database: Database, database_url: str, tmp_path: Path, skew: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SKEW)
    (tmp_path / "jobs.py").write_text(
        "from scheduler.scheduled import Scheduler\n"
        "scheduler = Scheduler(time_zone='UTC')\n"
        "@scheduler.delay('3s', id='once')\n"
        "async def durable(): print('durable', flush=True)\n"
        "@scheduler.delay('3s')\n"
        "async def plain(): print('plain', flush=True)\n"
    )
    environ = {
        "VUELVO_DATABASE_URL": database_url,
        "VUELVO_SECRET_KEY": KEY,
        "VUELVO_APP": "jobs:scheduler",
        "SKEW": str(skew),
        "PYTHONPATH": str(tmp_path),
    }
    async with serving(directory=tmp_path, environ=environ) as (process, _):
        await process.until_said("plain")
        await process.until_said("durable")

        async def has_ended() -> bool:
            async with database.transaction() as connection:
                return bool(await connection.scalar(text("select ended_at is not null from tasks where key = 'once'")))

        await eventually(has_ended)
    async with database.transaction() as connection:
        late = await connection.scalar(text("select claimed_at - booked_for from tasks where key = 'once'"))
    assert timedelta() <= late < timedelta(seconds=10)
