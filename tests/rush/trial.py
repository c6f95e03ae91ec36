"""One rush: as many contacts as one likes, each with a policy that is due to be spoken of now, and workers that are killed."""

from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlalchemy import text

from app import renewals
from store.database import Database
from store.renewals import Wanted
from tests.support.factories import a_conversation
from tests.support.house import House, a_house
from tests.support.process import start
from tests.support.shell import KEY
from tests.support.wait import eventually

ZONE = ZoneInfo("America/Bogota")
CADENCE = {"policy": {"past": "latest", "steps": [{"offset": "-1d", "text": {"en": "{subject} ends on {due}."}}]}}
BATCH = 500
SAID = "select count(*) from messages where kind = 'notice'"
LEFT = "select count(*) from tasks where state in ('scheduled', 'firing')"
TIMES = """
select v.id, count(m.seq)
  from conversations v
  left join messages m on m.bucket = v.bucket and m.tenant = v.tenant and m.conversation = v.id and m.kind = 'notice'
 group by v.id
"""
ENDS = "select coalesce(outcome, state), count(*) from tasks group by 1"
RECOVERED = "select count(*) from task_events where event = 'recovered'"


async def rush(
    database: Database, database_url: str, directory: Path, contacts: int, kills: int
) -> tuple[Counter[int], Counter[str], int]:
    """Let two workers tell everybody, of whom one is killed so often, and another takes its place.

    Returns to how many contacts it was said how often, what became of how many steps, and how many claims were recovered.
    """
    async with a_house(database, directory, poll=False, config={"cadences": CADENCE}) as house:
        await _enrol(house, contacts)
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY, "VUELVO_LEASE": "10s"}
    workers = [await start("work", directory=directory, environ=environ) for _ in range(2)]
    try:
        for kill in range(kills):
            await eventually(partial(_is_at_least, database, SAID, contacts * (kill + 1) // (kills + 2)), 600)
            await workers.pop(0).kill()
            workers.append(await start("work", directory=directory, environ=environ))
        await eventually(partial(_is_none, database, LEFT), 600)
    finally:
        for worker in workers:
            await worker.stop()
    async with database.transaction() as connection:
        times = Counter(count for _, count in await connection.execute(text(TIMES)))
        ends = Counter({end: count for end, count in await connection.execute(text(ENDS))})  # noqa: C416 - rows are no pairs to mypy
        recovered = await connection.scalar(text(RECOVERED)) or 0
    return times, ends, recovered


async def _enrol(house: House, contacts: int) -> None:
    today = datetime.now(ZONE).date()
    tenant = await house.service.tenant("acme")
    assert tenant is not None
    for first in range(0, contacts, BATCH):
        names = [f"P-{number}" for number in range(first, min(first + BATCH, contacts))]
        async with house.service.database.transaction() as connection:
            for name in names:
                await a_conversation(connection, address=name)
        wanted = [Wanted(name, today, "policy", {"web": name}, agreed=True) for name in names]
        await renewals.enrol(house.service, tenant, wanted, "a rush")


async def _is_at_least(database: Database, question: str, count: int) -> bool:
    async with database.transaction() as connection:
        return (await connection.scalar(text(question)) or 0) >= count


async def _is_none(database: Database, question: str) -> bool:
    return not await _is_at_least(database, question, 1)
