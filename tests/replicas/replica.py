"""One replica of the trial: `python -m tests.replicas.replica URL NAME TASKS SEED`. It is killed with -9; nothing is tidied."""

import asyncio
import logging
import os
import random
import sys
from datetime import timedelta

from sqlalchemy import text

from scheduler.clock import Clock
from scheduler.poller import Poller
from scheduler.scheduled import Engine, ScheduledRun, Scheduler
from store.database import Database
from store.signals import Signals
from tests.replicas.trial import POLICIES, interval_of, name_of

POLL = timedelta(seconds=0.5)
BEGIN = text("""
insert into runs (schedule, slot, fence, missed, pid, begun) values (:schedule, :slot, :fence, :missed, :pid, clock_timestamp())
returning id
""")
END = text("update runs set ended = clock_timestamp() where id = :id")


async def main(url: str, name: str, tasks: int, seed: int) -> None:
    """Run the trial's schedules until it is killed."""
    database = Database(url, pool_size=10)
    signals = Signals(database)
    await signals.start()
    dice = random.Random(f"{seed} {name} {os.getpid()}")
    scheduler = Scheduler(time_zone="UTC")

    async def handle(run: ScheduledRun) -> None:
        given = {"schedule": run.task_id, "slot": run.scheduled_at, "fence": run.fencing_token, "missed": run.missed}
        async with database.autocommit() as connection:
            run_id = await connection.scalar(BEGIN, {**given, "pid": os.getpid()})
        await asyncio.sleep(dice.random() * 0.3)
        async with database.autocommit() as connection:
            await connection.execute(END, {"id": run_id})

    for number in range(tasks):
        for policy in POLICIES:
            scheduler.every(
                interval_of(number), handle, id=name_of(number, policy), missed=policy, max_catch_up=1000, lease="3s"
            )
    poller = Poller(
        database,
        Clock(),
        signals,
        scheduler.perform,
        interval=POLL,
        lease=timedelta(seconds=3),
        offers=lambda: scheduler.offers,
        on_lost=scheduler.lose,
    )
    await scheduler.start(Engine(database, Clock(), signals, 2 * POLL))
    poller.start()
    print("up", flush=True)  # noqa: T201 - who started it waits for this
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
