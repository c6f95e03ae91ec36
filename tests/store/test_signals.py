"""Hints within a process and between processes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from store.database import Database
from store.signals import CHANNEL, Signals
from tests.support.proxy import a_proxy
from tests.support.wait import eventually

LONG = 10.0
"""Seconds no test waits for, unless it fails."""


@asynccontextmanager
async def started(url: str, *, probe_every: float = 15.0, probe_limit: float = 5.0) -> AsyncIterator[Signals]:
    """One process's signals, proven to hear."""
    database = Database(url, pool_size=2)
    signals = Signals(database, probe_every=probe_every, probe_limit=probe_limit)
    await signals.start()
    try:
        await eventually(lambda: signals.is_alive)
        yield signals
    finally:
        await signals.stop()
        await database.close()


async def kill_listeners(server_url: str, database_url: str) -> int:
    async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator:
        rows = await operator.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = %s and application_name = 'vuelvo listener'",
            (make_url(database_url).database,),
        )
        return len(await rows.fetchall())


async def test_a_hint_is_heard_in_the_same_process_at_once_and_without_a_database() -> None:
    signals = Signals(Database("postgresql://nobody@127.0.0.1:1/nothing"))
    with signals.subscribe("due") as mine, signals.subscribe("other") as other:
        signals.hint("due")
        assert await mine.wait(0)
        assert not await mine.wait(0), "one hint wakes once"
        assert not await other.wait(0)


async def test_a_hint_reaches_another_process(database_url: str) -> None:
    async with started(database_url) as here, started(database_url) as there:
        with (
            there.subscribe("message 7") as theirs,
            there.subscribe("message 8") as others,
            here.subscribe("x") as mine,
        ):
            here.hint("message 7")
            assert await theirs.wait(LONG)
            assert not await others.wait(0)
            there.hint("x")
            assert await mine.wait(LONG), "and the other way round"


async def test_nobody_hears_their_own_hint_again_from_the_database(database_url: str) -> None:
    async with started(database_url) as here, started(database_url) as there:
        with here.subscribe("due") as mine, here.subscribe("answer") as answer, there.subscribe("due") as theirs:
            here.hint("due")
            assert await mine.wait(LONG)
            assert await theirs.wait(LONG)
            there.hint("answer")
            assert await answer.wait(LONG), "which comes after what was told before it"
            assert not await mine.wait(0)


async def test_a_hint_that_comes_before_the_wait_is_not_lost(database_url: str) -> None:
    async with started(database_url) as here, started(database_url) as there:
        with there.subscribe("due") as early, there.subscribe("due") as late:
            here.hint("due")
            assert await early.wait(LONG)
            assert await late.wait(0), "it came while nobody waited here"


async def test_nobody_clears_anothers_hint(database_url: str) -> None:
    async with started(database_url) as signals:
        with signals.subscribe("due") as first:
            with signals.subscribe("due") as second:
                signals.hint("due")
                assert await first.wait(0)
                assert await second.wait(0)
                signals.hint("due")
                assert await second.wait(0)
            signals.hint("due")
            assert await first.wait(0), "another's leaving takes nobody along"
        signals.hint("due")  # to nobody


async def test_a_burst_of_hints_is_a_few_notifications(database_url: str) -> None:
    heard: list[str] = []
    async with (
        started(database_url) as signals,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as raw,
    ):
        await raw.execute(f"listen {CHANNEL}")
        for _ in range(10):
            for _ in range(100):
                signals.hint("due")
            await asyncio.sleep(0)
        signals.hint("the last")
        async with asyncio.timeout(LONG):
            async for notice in raw.notifies():
                heard.append(notice.payload)
                if notice.payload == "the last":
                    break
    assert 1 <= heard.count("due") <= 5


async def test_different_topics_of_a_burst_all_arrive(database_url: str) -> None:
    topics = [f"message {n}" for n in range(300)]
    async with started(database_url) as here, started(database_url) as there:
        heard = set()

        async def hear(topic: str) -> None:
            with there.subscribe(topic) as subscription:
                if await subscription.wait(LONG):
                    heard.add(topic)

        hearing = [asyncio.create_task(hear(topic)) for topic in topics]
        await asyncio.sleep(0)  # every one of them has subscribed
        for topic in topics:
            here.hint(topic)
        await asyncio.gather(*hearing)
    assert heard == set(topics)


async def test_a_listener_that_lost_its_connection_says_so_comes_back_and_hears_again(
    database_url: str, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(database_url) as here, started(database_url) as there:
        assert await kill_listeners(server_url, database_url) == 2
        await eventually(lambda: not here.is_alive and not there.is_alive)
        await eventually(lambda: here.is_alive and there.is_alive)
        with there.subscribe("due") as theirs:
            here.hint("due")
            assert await theirs.wait(LONG)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 2
    assert all("not hearing other processes" in line for line in told)


async def test_a_connection_lost_again_and_again_is_looked_for_each_time_as_soon_as_the_first(
    database_url: str, server_url: str
) -> None:
    async with started(database_url) as signals:
        for _ in range(4):
            assert await kill_listeners(server_url, database_url) == 1
            await eventually(lambda: not signals.is_alive)
            await eventually(lambda: signals.is_alive, seconds=3)


async def test_whoever_listens_looks_again_when_hearing_comes_back_since_a_hint_may_have_been_missed(
    database_url: str, server_url: str
) -> None:
    async with started(database_url) as signals:
        with signals.subscribe("due") as mine, signals.subscribe("message 1") as other:
            await kill_listeners(server_url, database_url)
            await eventually(lambda: not signals.is_alive)
            assert await mine.wait(LONG)
            assert await other.wait(LONG)
            assert signals.is_alive


async def test_a_connection_that_is_open_on_one_side_only_is_noticed(database_url: str) -> None:
    async with (
        a_proxy(database_url) as (proxy, through),
        started(through, probe_every=0.1, probe_limit=0.3) as there,
        started(database_url) as here,
    ):
        proxy.freeze()
        async with asyncio.timeout(3):
            await eventually(lambda: not there.is_alive)
        proxy.cut()
        proxy.mend()
        await eventually(lambda: there.is_alive)
        with there.subscribe("due") as theirs:
            here.hint("due")
            assert await theirs.wait(LONG)


async def test_a_listener_that_cannot_even_begin_is_not_alive_until_it_can(database_url: str) -> None:
    async with a_proxy(database_url) as (proxy, through):
        proxy.cut()
        database = Database(through)
        signals = Signals(database)
        await signals.start()
        with signals.subscribe("due") as mine:
            signals.hint("due")
            assert await mine.wait(0), "this process's own hints need no database"
            assert not signals.is_alive
            proxy.mend()
            await eventually(lambda: signals.is_alive)
        await signals.stop()
        await database.close()


async def test_hints_that_could_not_be_told_stop_nothing(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with a_proxy(database_url) as (proxy, through), started(through) as here, started(database_url) as there:
        proxy.cut()
        here.hint("due")
        await eventually(lambda: "could not tell other processes" in caplog.text)
        proxy.mend()
        with there.subscribe("due") as theirs:
            here.hint("due")
            assert await theirs.wait(LONG)


async def test_a_process_that_has_stopped_hears_and_tells_nothing_more(database_url: str, server_url: str) -> None:
    async with started(database_url) as there:
        database = Database(database_url)
        signals = Signals(database)
        await signals.start()
        await eventually(lambda: signals.is_alive)
        await signals.stop()
        assert not signals.is_alive
        with signals.subscribe("due") as mine, there.subscribe("due") as theirs, there.subscribe("late") as late:
            there.hint("due")
            assert await theirs.wait(LONG)
            assert not await mine.wait(0.2)
            signals.hint("late")
            assert not await late.wait(0.2)
        assert await kill_listeners(server_url, database_url) == 1, "its connection is closed"
        await database.close()
