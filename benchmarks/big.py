"""A table with ten million future rows: what a look costs that finds nothing, a look-up, a cancel of many.

Beside Vuelvo's functions the raw statements, on the same rows and by the same indexes.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.contestants.raw import CLAIM, Connection, connect
from benchmarks.contestants.vuelvo import TENANT, fill
from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from scheduler.cancel import cancel, cancel_labelled
from scheduler.claim import claim, next_due
from scheduler.clock import Clock
from scheduler.find import pending_followups, search
from scheduler.task import ACTIVE
from store.database import Database, bucket_of

CANCELLED = 10_000
"""As many begin with the same key."""
IN_CONVERSATION = 50
"""Tasks of one conversation, and of one subject."""
CANCEL = """
with chosen as materialized (
    select bucket, tenant, id from tasks
     where bucket = %(bucket)s and tenant = %(tenant)s and {which} and state in ('scheduled', 'firing')
     order by id
       for update),
asked as (
    update tasks t set state = 'cancelled', ended_at = now()
      from chosen
     where t.bucket = chosen.bucket and t.tenant = chosen.tenant and t.id = chosen.id and t.state = 'scheduled'
 returning t.*)
insert into task_events (bucket, tenant, task, at, event, fence, detail)
select bucket, tenant, id, now(), 'cancelled', fence, null from asked
"""
FIND = """
select * from tasks
 where bucket = %(bucket)s and tenant = %(tenant)s and {which} and state in ('scheduled', 'firing')
 order by booked_for, id
"""


async def _timed(ways: Mapping[str, Callable[[int], Awaitable[object]]], times: int) -> dict[str, tuple[float, float]]:
    """Return p50 and p99 of each way in milliseconds. They take turns call by call, so that a change of the clock meets all."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(times):
        for name, step in ways.items():
            began = time.perf_counter()
            await step(number)
            taken[name].append((time.perf_counter() - began) * 1000)
    return {name: (statistics.median(each), statistics.quantiles(each, n=100)[98]) for name, each in taken.items()}


async def big(runs: int, rows: int, times: int, server: Server | None = None) -> list[Measure]:
    """Fill once, then ask `times` times; `runs` cancels of each kind."""
    if server is None:
        async with own_server() as own:
            return await big(runs, rows, times, own)
    async with server.database() as name:
        url = server.address(name)
        await fill(url, 0, rows, kind="followup", conversations=rows // IN_CONVERSATION)
        await server.execute("vacuum (freeze, analyze)", "checkpoint", database=name)
        database = Database(url)
        async with await connect(url) as raw, database.autocommit(is_planned_once=True) as looking:
            found = await _ask(database, looking, raw, runs, times, rows)
        await database.close()
    return [Measure(f"{title}, {rows:,} future rows", "ms", found[title], is_less_better=True) for title in found]


async def _ask(
    database: Database, looking: AsyncConnection, raw: Connection, runs: int, times: int, rows: int
) -> dict[str, dict[str, list[float]]]:
    """Ask on Vuelvo's database, where `looking` is the connection as a poller has it, and on `raw`."""
    clock, lease = Clock(), timedelta(seconds=60)
    cancelled = min(CANCELLED, rows // (2 * runs + 2))
    of = {"bucket": bucket_of(TENANT), "tenant": TENANT}
    async with database.transaction() as connection:
        first = (await connection.execute(text("select min(id) from conversations"))).scalar_one()
        lowest = (await connection.execute(text("select min(id) from tasks"))).scalar_one()

    async def look(_: int) -> None:
        await next_due(looking, clock)

    async def our_claim(_: int) -> None:
        assert not await claim(looking, clock, "bench", lease, "speak", 32)

    async def their_claim(_: int) -> None:
        assert not await (await raw.execute(CLAIM.encode(), prepare=True)).fetchall()

    async def our_find(number: int) -> None:
        async with database.autocommit() as connection:
            assert await pending_followups(connection, TENANT, first + number)

    async def their_find(number: int) -> None:
        given = {**of, "conversation": first + number}
        statement = FIND.format(which="conversation = %(conversation)s")
        assert await (await raw.execute(statement.encode(), given, prepare=True)).fetchall()

    async def our_subject(number: int) -> None:
        async with database.autocommit() as connection:
            subject = f"customer:{number}"
            assert await search(connection, tenant=TENANT, states=ACTIVE, subject=subject, limit=IN_CONVERSATION)

    async def their_subject(number: int) -> None:
        given = {**of, "subject": f"customer:{number}"}
        statement = FIND.format(which="subject = %(subject)s")
        assert await (await raw.execute(statement.encode(), given, prepare=True)).fetchall()

    def ids(place: int) -> list[int]:
        return list(range(lowest + place * cancelled, lowest + (place + 1) * cancelled))

    async def our_cancel(number: int) -> None:
        async with database.transaction() as connection:
            done = await cancel(connection, clock, TENANT, ids(2 * number))
            assert len(done.cancelled) == cancelled

    async def their_cancel(number: int) -> None:
        given = {**of, "ids": ids(2 * number + 1)}
        done = await raw.execute(CANCEL.format(which="id = any(%(ids)s)").encode(), given)
        assert done.rowcount == cancelled

    def prefix(place: int) -> str:
        return f"batch:{2 * runs + 1 + place:06}:"  # behind those that are cancelled by id

    async def our_key(number: int) -> None:
        async with database.transaction() as connection:
            done = await cancel_labelled(connection, clock, TENANT, key_prefix=prefix(2 * number))
            assert len(done.cancelled) == CANCELLED

    async def their_key(number: int) -> None:
        given = {**of, "prefix": f"{prefix(2 * number + 1)}%"}
        done = await raw.execute(CANCEL.format(which="key like %(prefix)s").encode(), given)
        assert done.rowcount == CANCELLED

    found: dict[str, dict[str, list[float]]] = {}
    for title, count, ways in (
        ("a look that finds nothing", times, {"vuelvo": look}),
        ("an empty claim", times, {"raw": their_claim, "vuelvo": our_claim}),
        ("find what is pending in a conversation", times, {"raw": their_find, "vuelvo": our_find}),
        ("find by subject", times, {"raw": their_subject, "vuelvo": our_subject}),
    ):
        taken = await _timed(ways, count)
        found[f"{title}: p50"] = {name: [cuts[0]] for name, cuts in taken.items()}
        found[f"{title}: p99"] = {name: [cuts[1]] for name, cuts in taken.items()}
    cancels: dict[str, list[float]] = {"raw": [], "vuelvo": []}
    by_prefix: dict[str, list[float]] = {"raw": [], "vuelvo": []}
    for number in range(runs):
        for kept, step in (
            (cancels["raw"], their_cancel),
            (cancels["vuelvo"], our_cancel),
            (by_prefix["raw"], their_key),
            (by_prefix["vuelvo"], our_key),
        ):
            began = time.perf_counter()
            await step(number)
            kept.append((time.perf_counter() - began) * 1000)
    found[f"cancel {cancelled:,} by id"] = cancels
    found[f"cancel {CANCELLED:,} by key prefix"] = by_prefix
    return found
