"""The measures that all contestants share. Each returns figures by contestant, run by run, in turn."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from benchmarks.contestants import Contestant, find
from benchmarks.process import LOOK, PATIENCE, Child, booker, check_finished, filled, worker
from benchmarks.server import Server, own_server

Figures = dict[str, list[float]]
OURS = "vuelvo"


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured."""

    title: str
    unit: str
    figures: Mapping[str, Sequence[float]]
    """Every run of each contestant."""
    is_less_better: bool = False

    def ratio(self, name: str) -> float | None:
        """Return how Vuelvo's median compares with another's; above one Vuelvo is the better."""
        ours, theirs = self.figures.get(OURS), self.figures[name]
        if not ours or not statistics.median(theirs) or not statistics.median(ours):
            return None
        ratio = statistics.median(ours) / statistics.median(theirs)
        return 1 / ratio if self.is_less_better else ratio


async def in_turn(
    names: Sequence[str], runs: int, step: Callable[[Contestant], Awaitable[Sequence[float]]], *, figures: int = 1
) -> list[Figures]:
    """Run a step for each contestant, as often as asked, one after the other: a slow minute of the disk meets all."""
    found: list[Figures] = [{name: [] for name in names} for _ in range(figures)]
    for _ in range(runs):
        for name in names:
            for kept, figure in zip(found, await step(find(name)), strict=True):
                kept[name].append(figure)
    return found


def scaled(contestant: Contestant, rows: int) -> int:
    """Return how many of the rows a contestant is given."""
    return max(int(rows * contestant.share), min(rows, 10))


async def drain_rate(server: Server, contestant: Contestant, rows: int, *, workers: int = 1, future: int = 0) -> float:
    """Return jobs per second, from the word to the commit of the last."""
    async with filled(server, contestant, rows, future) as database, contextlib.AsyncExitStack() as stack:
        url = server.address(database)
        children = [await stack.enter_async_context(worker(contestant, url, is_tuned=True)) for _ in range(workers)]
        began = time.perf_counter()
        for each in children:
            each.tell()
        await _until_done(contestant, url, children, rows)
        took = time.perf_counter() - began
        for each in children:
            each.tell()
            await each.result()
        await check_finished(server, contestant, database, rows)
    return rows / took


async def _until_done(contestant: Contestant, url: str, workers: Sequence[Child], jobs: int) -> None:
    """Return as soon as that many jobs were begun and the last of them is committed."""
    began = time.perf_counter()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as look:
        while sum(each.count for each in workers) < jobs:
            await _wait(began)
        while (await (await look.execute(contestant.is_busy.encode())).fetchall())[0][0]:
            await _wait(began)


async def _wait(began: float) -> None:
    if time.perf_counter() - began > PATIENCE:
        raise TimeoutError("the run does not end")
    await asyncio.sleep(LOOK)


async def drain(
    names: Sequence[str], runs: int, rows: int, workers: int, server: Server | None = None
) -> list[Measure]:
    """Due no-op jobs on the table, each in a conversation of its own; with one worker process, then two, up to `workers`."""

    async def step(contestant: Contestant) -> list[float]:
        count = scaled(contestant, rows)
        return [await drain_rate(own, contestant, count, workers=number) for number in numbers]

    numbers = range(1, workers + 1)
    async with _server(server) as own:
        found = await in_turn(names, runs, step, figures=workers)
    title = f"drain {_rows(names, rows)} due jobs, worker processes"
    return [Measure(f"{title}: {number}", "jobs/s", figures) for number, figures in zip(numbers, found, strict=True)]


async def book(names: Sequence[str], runs: int, rows: int, server: Server | None = None) -> list[Measure]:
    """Delayed jobs booked by one process, one by one, 10 at a time."""
    figures = await _book(names, runs, rows, at_once=10, batch=1, server=server)
    return [Measure(f"book {rows:,} jobs one by one, 10 at a time", "jobs/s", figures)]


async def bulk(names: Sequence[str], runs: int, rows: int, server: Server | None = None) -> list[Measure]:
    """Delayed jobs booked by one process on one connection, 1,000 in a statement."""
    figures = await _book(names, runs, rows, at_once=1, batch=1000, server=server)
    return [Measure(f"book {rows:,} jobs in bulk, 1,000 at a time", "jobs/s", figures)]


async def _book(
    names: Sequence[str], runs: int, rows: int, *, at_once: int, batch: int, server: Server | None
) -> Figures:
    async def step(contestant: Contestant) -> list[float]:
        async with filled(own, contestant) as database:
            url = own.address(database)
            async with booker(contestant, url, rows, at_once=at_once, batch=batch, lead=30 * 86400) as child:
                child.tell()
                took = await child.result()
            ((booked,),) = await own.execute(contestant.booked, database=database)
            assert booked == rows, f"{contestant.name} booked {booked} of {rows} jobs"
        return [rows / took]

    async with _server(server) as own:
        (figures,) = await in_turn(names, runs, step)
    return figures


async def latency(
    names: Sequence[str], runs: int, rows: int, seconds: float, server: Server | None = None
) -> list[Measure]:
    """From due to the handler's beginning, everything at its defaults, booked by another process."""
    lead = 2.0

    async def step(contestant: Contestant) -> list[float]:
        async with filled(own, contestant) as database:
            url = own.address(database)
            async with (
                worker(contestant, url, is_tuned=False, is_timed=True) as working,
                booker(contestant, url, rows, at_once=1, lead=lead, step=seconds / rows) as booking,
            ):
                working.tell()
                booking.tell()
                await booking.result()
                await _until_done(contestant, url, [working], rows)
                working.tell()
                late = await working.result()
            await check_finished(own, contestant, database, rows)
        return [statistics.median(late), statistics.quantiles(late, n=100)[98]]

    async with _server(server) as own:
        p50, p99 = await in_turn(names, runs, step, figures=2)
    title = f"from due to the handler's beginning, {rows} jobs over {seconds:g} s, at defaults"
    return [
        Measure(f"{title}: p50", "ms", p50, is_less_better=True),
        Measure(f"{title}: p99", "ms", p99, is_less_better=True),
    ]


async def idle(names: Sequence[str], runs: int, seconds: float, server: Server | None = None) -> list[Measure]:
    """What a worker at its defaults asks of the database while there is nothing to do."""

    async def step(contestant: Contestant) -> list[float]:
        async with filled(own, contestant) as database:
            calls = f"select coalesce(sum(calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid where datname = '{database}'"
            commits = f"select xact_commit from pg_stat_database where datname = '{database}'"
            async with worker(contestant, own.address(database), is_tuned=False) as working:
                working.tell()
                await asyncio.sleep(min(15, seconds))  # it settles; its counts of the start come within 10 s
                before = [(await own.execute(query))[0][0] for query in (calls, commits)]
                began = time.perf_counter()
                await asyncio.sleep(seconds)
                after = [(await own.execute(query))[0][0] for query in (calls, commits)]
                took = time.perf_counter() - began
                working.tell()
                await working.result()
        return [float(then - now) / took for now, then in zip(before, after, strict=True)]

    async with _server(server, preload="pg_stat_statements") as own:
        await own.execute("create extension if not exists pg_stat_statements")
        statements, transactions = await in_turn(names, runs, step, figures=2)
    return [
        Measure(f"an idle worker, over {seconds:g} s: statements", "per s", statements, is_less_better=True),
        Measure(f"an idle worker, over {seconds:g} s: transactions", "per s", transactions, is_less_better=True),
    ]


async def future(names: Sequence[str], runs: int, rows: int, later: int, server: Server | None = None) -> list[Measure]:
    """The drain rate with rows on the table that are due in a month, against none."""

    async def step(contestant: Contestant) -> list[float]:
        # Each of procrastinate's claims looks at every future row: a hundredth, or the run would take an hour.
        count = max(rows // 100, 10) if contestant.share < 1 else rows
        without = await drain_rate(own, contestant, count)
        beside = await drain_rate(own, contestant, count, future=later)
        return [without, beside, beside / without]

    async with _server(server) as own:
        without, beside, share = await in_turn(names, runs, step, figures=3)
    return [
        Measure(f"drain {rows:,} due jobs (procrastinate: {max(rows // 100, 10):,}) alone", "jobs/s", without),
        Measure(f"the same beside {later:,} future jobs", "jobs/s", beside),
        Measure("the second over the first", "", share),
    ]


def _rows(names: Sequence[str], rows: int) -> str:
    others = [f"{name}: {count:,}" for name in names if (count := scaled(find(name), rows)) != rows]
    return f"{rows:,}" + (f" ({', '.join(others)})" if others else "")


@contextlib.asynccontextmanager
async def _server(given: Server | None, preload: str | None = None) -> AsyncIterator[Server]:
    if given is not None:
        try:
            yield given
        finally:
            await given.drop_templates()
        return
    async with own_server(preload=preload) as server:
        yield server
