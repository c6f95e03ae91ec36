"""Buckets, addresses and transactions."""

import asyncio
import contextlib
import select
import socket
import time
from typing import Any

import psycopg
import pytest
from sqlalchemy import bindparam, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError

from store.database import BUCKETS, OUTAGES, Database, bucket_of, engine_url, is_distributed, tell_on_commit
from tests.support.wait import eventually


def test_a_tenants_bucket_never_changes_since_its_rows_lie_there() -> None:
    assert {name: bucket_of(name) for name in ("acme", "rival", "ñandú", "")} == {
        "acme": 62,
        "rival": 12,
        "ñandú": 22,
        "": 0,
    }


def test_tenants_spread_over_every_bucket() -> None:
    assert {bucket_of(f"tenant {n}") for n in range(2000)} == set(range(BUCKETS))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"])
def test_every_way_to_write_a_postgresql_address_is_driven_by_psycopg(scheme: str) -> None:
    url = engine_url(f"{scheme}://ana:p%40ss@db.example:6432/talk?sslmode=require")
    assert (url.drivername, url.password, url.port, dict(url.query)) == (
        "postgresql+psycopg",
        "p@ss",
        6432,
        {"sslmode": "require"},
    )


@pytest.mark.parametrize("url", ["mysql://localhost/talk", "sqlite:///talk.db"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="postgresql://"):
        engine_url(url)


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ArgumentError):
        engine_url("localhost, please")


INSERT = text("insert into tenants (bucket, tenant, config) values (0, :tenant, '{}')")


async def tenants(database: Database) -> list[str]:
    async with database.transaction() as connection:
        return list(await connection.scalars(text("select tenant from tenants")))


async def test_a_transaction_commits_at_its_end_and_leaves_nothing_after_an_exception(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(INSERT, {"tenant": "kept"})
        assert await tenants(database) == [], "nobody sees it before the commit"

    async def change_ones_mind() -> None:
        async with database.transaction() as connection:
            await connection.execute(INSERT, {"tenant": "undone"})
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_ones_mind()
    assert await tenants(database) == ["kept"]


async def test_a_pooled_connection_that_died_is_replaced_before_anyone_notices(
    database: Database, server_url: str
) -> None:
    async with database.transaction() as connection:
        dead = await connection.scalar(text("select pg_backend_pid()"))
    async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator:
        await operator.execute("select pg_terminate_backend(%s, 5000)", (dead,))
    async with database.transaction() as connection:
        assert await connection.scalar(text("select pg_backend_pid()")) != dead


async def test_a_pooled_connection_that_is_closed_at_our_own_end_is_replaced_too(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    async with database.transaction() as connection:
        line = (await connection.get_raw_connection()).driver_connection
        assert line is not None
    await line.close()
    async with database.transaction() as connection:
        assert await connection.scalar(text("select 1")) == 1
    await database.close()


async def test_a_pooled_connection_is_only_asked_whether_it_lives_when_it_has_something_to_say(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, other = Database(database_url, pool_size=1), Database(database_url)
    dialect, asked = database.engine.dialect, []
    ping = dialect.do_ping

    def do_ping(connection: Any) -> bool:
        asked.append(connection)
        return ping(connection)

    async def use() -> tuple[int, int]:
        """Return the backend's process and our end of the line."""
        async with database.transaction() as connection:
            await connection.execute(text("listen news"))
            raw = await connection.get_raw_connection()
            assert raw.driver_connection is not None
            return int(await connection.scalar(text("select pg_backend_pid()"))), raw.driver_connection.fileno()

    monkeypatch.setattr(dialect, "do_ping", do_ping)
    first = await use()
    assert await use() == first
    assert not asked
    async with other.transaction() as connection:
        await connection.execute(text("notify news"))
    await eventually(lambda: bool(select.select([first[1]], [], [], 0)[0]))
    assert await use() == first, "it is kept"
    assert len(asked) == 1
    await database.close()
    await other.close()


async def test_more_transactions_at_once_than_connections_wait_and_open_no_further_ones(database_url: str) -> None:
    database = Database(database_url, pool_size=2)

    async def backend() -> int:
        async with database.transaction() as connection:
            return int((await connection.execute(text("select pg_backend_pid()"))).scalar_one())

    assert len({await one for one in asyncio.as_completed([backend() for _ in range(12)])}) == 2
    await database.close()


async def test_a_connection_killed_within_a_transaction_is_an_error_and_the_next_one_works(
    database: Database, server_url: str
) -> None:
    async def be_killed() -> None:
        async with (
            await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator,
            database.transaction() as connection,
        ):
            pid = await connection.scalar(text("select pg_backend_pid()"))
            await operator.execute("select pg_terminate_backend(%s, 5000)", (pid,))
            await connection.execute(text("select 1"))

    with pytest.raises(DBAPIError):
        await be_killed()
    async with database.transaction() as connection:
        assert await connection.scalar(text("select 1")) == 1


async def test_each_statement_of_a_connection_that_commits_by_itself_is_kept_whatever_follows(
    database: Database,
) -> None:
    news: list[object] = []
    database.on_commit = news.extend

    async def fail_later() -> None:
        async with database.autocommit() as connection:
            await connection.execute(INSERT, {"tenant": "kept"})
            tell_on_commit(connection, "kept")
            assert await tenants(database) == ["kept"]
            await connection.execute(text("select 1 / 0"))

    with pytest.raises(DBAPIError, match="division by zero"):
        await fail_later()
    assert await tenants(database) == ["kept"]
    assert news == [], "nothing is told of a block that failed"
    async with database.autocommit() as connection:
        tell_on_commit(connection, "news")
    assert news == ["news"]


async def test_a_plan_is_made_once_where_that_is_asked_for_and_as_usual_afterwards(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    async with database.autocommit(is_planned_once=True) as connection:
        for _ in range(8):
            await connection.execute(text("select count(*) from tenants where tenant = :tenant"), {"tenant": "acme"})
        plans = await connection.execute(text("select generic_plans, custom_plans from pg_prepared_statements"))
        assert plans.first() == (3, 0), "it is prepared when it has come five times"
    async with database.transaction() as connection:
        assert await connection.scalar(text("show plan_cache_mode")) == "auto"
    await database.close()


@pytest.mark.parametrize("end", ["well", "with an error", "cancelled", "killed"])
async def test_after_one_that_commits_by_itself_the_next_is_a_transaction_again(
    database_url: str, server_url: str, end: str
) -> None:
    database = Database(database_url, pool_size=1)

    async def use() -> None:
        async with database.autocommit(is_planned_once=True) as connection:
            pid = await connection.scalar(text("select pg_backend_pid()"))
            if end == "with an error":
                await connection.execute(text("select 1 / 0"))
            if end == "cancelled":
                sleep = asyncio.create_task(connection.execute(text("select pg_sleep(60)")))
                await asyncio.sleep(0)
                sleep.cancel()
                await sleep
            if end == "killed":
                async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator:
                    await operator.execute("select pg_terminate_backend(%s, 5000)", (pid,))
                await connection.execute(text("select 1"))

    with contextlib.suppress(DBAPIError, asyncio.CancelledError):
        await use()

    async def change_ones_mind() -> None:
        async with database.transaction() as connection:
            await connection.execute(INSERT, {"tenant": "undone"})
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_ones_mind()
    assert await tenants(database) == []
    async with database.transaction() as connection:
        assert await connection.scalar(text("show plan_cache_mode")) == "auto"
    await database.close()


async def test_one_that_is_cancelled_at_the_door_leaves_no_connection_without_transactions(database_url: str) -> None:
    database = Database(database_url, pool_size=1)

    async def use() -> None:
        async with database.autocommit() as connection:
            await connection.execute(text("select 1"))

    async def is_autocommit() -> bool:
        async with database.transaction() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            assert isinstance(raw, psycopg.AsyncConnection)
            return raw.autocommit

    for steps in range(40):
        task = asyncio.create_task(use())
        for _ in range(steps % 20):
            await asyncio.sleep(0)
        # The driver lets others go on before its next step when it has not done so for 5 ms, as in a quiet process.
        time.sleep(0.006)  # noqa: ASYNC251 - that is what is shown
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not await is_autocommit(), f"cancelled after {steps} steps"
    await database.close()


async def test_a_cancellation_stays_one_though_the_server_does_not_answer_it(database_url: str) -> None:
    database = Database(database_url, pool_size=1)

    async def sleep() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("select pg_sleep(60)"))

    task = asyncio.create_task(sleep())
    await eventually(lambda: is_asleep(database_url))
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # and does not wait for the server to hear of it
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await tenants(database) == []
    await database.close()


async def is_asleep(url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        busy = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        found = await (await connection.execute(busy)).fetchone()
    return bool(found and found[0])


async def test_a_statement_that_brings_its_own_values_has_them(database: Database) -> None:
    async with database.transaction() as connection:
        assert await connection.scalar(text("select cast(:x as integer)").bindparams(x=5)) == 5
        chosen = text("select 3 in :these").bindparams(bindparam("these", expanding=True))
        assert await connection.scalar(chosen, {"these": [1, 2, 3]})


async def test_rows_without_columns_are_counted_all_the_same(database: Database) -> None:
    async with database.transaction() as connection:
        assert (await connection.execute(text("select from generate_series(1, 3)"))).all() == [(), (), ()]


async def test_a_statement_that_is_cancelled_is_cancelled_at_the_server_and_its_transaction_undone(
    database_url: str,
) -> None:
    database, other = Database(database_url, pool_size=1), Database(database_url)
    is_written = asyncio.Event()

    async def write_and_wait() -> None:
        async with database.transaction() as connection:
            await connection.execute(INSERT, {"tenant": "undone"})
            is_written.set()
            await connection.execute(text("select pg_sleep(60)"))

    waiting = asyncio.create_task(write_and_wait())
    await is_written.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await tenants(database) == []
    busy = "select count(*) from pg_stat_activity where query like '%pg_sleep(60)%' and state = 'active' and pid <> "

    async def is_at_rest() -> bool:
        async with other.autocommit() as connection:
            return bool(await connection.scalar(text(f"{busy} pg_backend_pid()")) == 0)

    await eventually(is_at_rest)  # it hears of it at once, and takes a moment to stop
    await database.close()
    await other.close()


async def test_what_breaks_a_rule_of_the_tables_is_told_by_its_kind(database: Database) -> None:
    async def insert_twice() -> None:
        async with database.transaction() as connection:
            for _ in range(2):
                await connection.execute(INSERT, {"tenant": "acme"})

    with pytest.raises(IntegrityError, match="tenants_pkey"):
        await insert_twice()


async def test_a_lost_connection_is_an_outage_and_a_mistake_is_none(database: Database, server_url: str) -> None:
    async def lose() -> None:
        async with (
            await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator,
            database.transaction() as connection,
        ):
            pid = await connection.scalar(text("select pg_backend_pid()"))
            await operator.execute("select pg_terminate_backend(%s, 5000)", (pid,))
            await connection.execute(text("select 1"))

    async def mistake() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("selct 1"))

    with pytest.raises(OUTAGES):
        await lose()
    with pytest.raises(ProgrammingError) as mistaken:
        await mistake()
    assert not isinstance(mistaken.value, OUTAGES)


async def test_a_percent_sign_and_a_cast_are_what_they_look_like(database: Database) -> None:
    async with database.transaction() as connection:
        found = await connection.execute(text("select 'a%' like '%', 7::text || :more"), {"more": "%s"})
        assert found.one() == (True, "7%s")
        assert await connection.scalar(text("select '100%'")) == "100%"


async def test_an_error_does_not_tell_what_was_written(database: Database) -> None:
    with pytest.raises(DBAPIError) as failed:
        async with database.transaction() as connection:
            await connection.execute(
                text("select 1 / cast(:n as int), cast(:words as text)"), {"n": 0, "words": "sí, voy"}
            )
    assert "division by zero" in str(failed.value)
    assert "sí, voy" not in str(failed.value)


async def test_a_server_that_vanished_without_a_word_is_given_up_within_seconds(database: Database) -> None:
    async with database.engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert isinstance(raw, psycopg.AsyncConnection)
        with socket.fromfd(raw.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:
            idle = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            unanswered = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert 0 < idle <= 30
    assert 0 < unanswered <= 30_000


async def test_a_database_that_is_closed_holds_no_connection(database_url: str, server_url: str) -> None:
    database = Database(database_url)
    async with database.transaction() as connection:
        name = await connection.scalar(text("select current_database()"))
    held = "select count(*) from pg_stat_activity where datname = %s and backend_type = 'client backend'"
    async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as operator:
        assert await (await operator.execute(held, (name,))).fetchone() == (1,)
        await database.close()
        # The server needs a moment to see that the client hung up; this waits for exactly that.
        await operator.execute(
            "do $$ begin for i in 1..500 loop perform pg_stat_clear_snapshot();"
            f" exit when (select count(*) from pg_stat_activity where datname = '{name}') = 0;"
            " perform pg_sleep(0.01); end loop; end $$"
        )
        assert await (await operator.execute(held, (name,))).fetchone() == (0,)


async def test_a_plain_postgresql_is_not_taken_for_a_distributed_one(database: Database) -> None:
    assert not await is_distributed(database)
