"""The benchmarks' contestants really do the work that is counted. No time is looked at here."""

from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import measures
from benchmarks.__main__ import arguments, table
from benchmarks.big import big
from benchmarks.contestants import NAMES, find
from benchmarks.deferred import deferred
from benchmarks.live import live
from benchmarks.measures import Measure
from benchmarks.process import check_finished, filled
from benchmarks.renewals import renewals
from benchmarks.server import Server
from benchmarks.text import text
from benchmarks.visitors import visitors

ALL = list(NAMES)


@pytest.fixture
def server(server_url: str) -> Server:
    """A server on which the measures make their databases."""
    return Server(server_url)


async def test_every_contestant_finishes_what_was_due(server: Server) -> None:
    """A run raises unless the rows say that each job was finished."""
    (measure,) = await measures.drain(ALL, 1, 60, 1, server)
    assert {name: len(runs) for name, runs in measure.figures.items()} == dict.fromkeys(ALL, 1)


async def test_two_workers_finish_what_was_due(server: Server) -> None:
    assert await measures.drain_rate(server, find("vuelvo"), 300, workers=2)
    await server.drop_templates()


@pytest.mark.parametrize("name", ALL)
async def test_jobs_that_nobody_performed_do_not_count(server: Server, name: str) -> None:
    async with filled(server, find(name), 5) as database:
        with pytest.raises(AssertionError, match=f"{name} finished 0 of 5 jobs"):
            await check_finished(server, find(name), database, 5)
    await server.drop_templates()


@pytest.mark.parametrize("name", ALL)
async def test_every_contestant_books(server: Server, name: str) -> None:
    async with filled(server, find(name)) as database:
        async with find(name).client(server.address(database), 2) as client:
            await client.book(0, timedelta(days=30))
            await client.book_many(range(1, 10), timedelta(days=30))
        ((booked,),) = await server.execute(find(name).booked, database=database)
    await server.drop_templates()
    assert booked == 10


async def test_jobs_booked_ahead_by_another_process_are_begun(server: Server) -> None:
    p50, p99 = await measures.latency(["vuelvo"], 1, 10, 0.2, server)
    assert 0 <= p50.figures["vuelvo"][0] <= p99.figures["vuelvo"][0]


async def test_future_jobs_are_left_alone(server: Server) -> None:
    """A run raises if any of them is counted as finished."""
    assert await measures.drain_rate(server, find("procrastinate"), 10, future=40)
    assert await measures.drain_rate(server, find("vuelvo"), 10, future=40)
    await server.drop_templates()


async def test_the_big_table_is_asked_by_both(server: Server) -> None:
    """A run raises unless each found and cancelled what it was asked for; the last of 50,000 are what is cancelled by key."""
    asked = {measure.title: set(measure.figures) for measure in await big(1, 50_000, 3, server)}
    for title in ("find by subject: p50", "cancel 10,000 by id", "cancel 10,000 by key prefix"):
        assert asked[f"{title}, 50,000 future rows"] == {"raw", "vuelvo"}


async def test_turns_are_answered_by_the_service_and_by_the_bare_script(server: Server) -> None:
    """A run raises unless each turn has its reply and has ended."""
    measured = await live(1, 4, 2, server)
    assert all(list(measure.figures) == ["bare script", "vuelvo", "Pydantic AI's run alone"] for measure in measured)


async def test_every_visitor_who_listens_hears_what_was_said(server: Server) -> None:
    """A run raises unless each stream brought what was said to its visitor."""
    measured = {each.title.partition(": ")[2]: each.unit for each in await visitors(1, 12, 0.1, 3, 0, server)}
    assert measured["memory for each more"] == "KB"
    assert measured["from commit to browser, all at once: p95"] == "ms"


async def test_runs_are_cancelled_while_others_book_and_are_booked_over_http(server: Server) -> None:
    """A run raises unless each was cancelled, and each booking answered 202."""
    measured = {each.title: set(each.figures) for each in await deferred(1, 30, 20, 10, 0.2, server)}
    assert "cancel" in measured["30 deferred runs of one tenant, 20 of others, booking going on"]
    assert {"1 connection", "32 connections"} <= measured["bookings over HTTP, 0.2 s of each"]


async def test_a_file_of_renewals_is_taken_in_by_a_process_of_its_own(server: Server) -> None:
    """A run raises unless each line became what it should."""
    seconds, memory = await renewals(1, 30, server)
    assert set(seconds.figures) == set(memory.figures) == {"new", "the same again", "all moved"}


async def test_long_texts_are_cut_for_both_networks() -> None:
    titles = [measure.title for measure in await text(1, (500, 1_000))]
    assert len(titles) == 6
    assert "a text of 500 UTF-16 units, cut and rendered for Telegram" in titles


def test_a_measure_is_shown_with_ratios_that_mean_the_same_either_way() -> None:
    more = Measure("drain", "jobs/s", {"raw": [200.0], "vuelvo": [100.0, 90.0, 300.0]})
    less = Measure("late", "ms", {"raw": [2.0], "vuelvo": [4.0]}, is_less_better=True)
    assert more.ratio("raw") == less.ratio("raw") == 0.5
    assert "| vuelvo | 100 | 100, 90, 300 | 1.00 |" in table(more)


def test_a_measure_takes_its_size_from_the_command_line(tmp_path: Path) -> None:
    given = arguments(["drain", "--rows", "10", "--runs", "2", "--only", "raw,vuelvo", "--json", str(tmp_path / "x")])
    assert (given.measure, given.rows, given.runs, given.only) == ("drain", 10, 2, ["raw", "vuelvo"])
