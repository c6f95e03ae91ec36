"""The schema as the migrations make it, held against the schema as the code declares it."""

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text

import scheduler
import store
import web_widget
from store.database import Database, metadata
from store.migrate import LOCK, migrate, newest, revision
from tests.support.wait import eventually

COLUMNS = """
select format('%s.%s %s notnull=%s default=%s identity=%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity)
  from pg_attribute a
  join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attnum > 0 and not a.attisdropped
"""
CONSTRAINTS = """
select format('%s.%s: %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  from pg_constraint where connamespace = 'public'::regnamespace
"""
INDEXES = """
select pg_get_indexdef(i.indexrelid)
  from pg_index i join pg_class c on c.oid = i.indexrelid and c.relnamespace = 'public'::regnamespace
"""
OPTIONS = """
select format('%s: %s', relname, (select array_agg(option order by option) from unnest(reloptions) as option))
  from pg_class where relkind in ('r', 'p', 'i', 'S') and relnamespace = 'public'::regnamespace
"""
OTHERS = """
select format('%s %s', relkind, relname) from pg_class where relnamespace = 'public'::regnamespace
union select format('trigger %s', tgname) from pg_trigger where not tgisinternal
union select format('type %s', typname) from pg_type where typnamespace = 'public'::regnamespace
union select format('function %s', proname) from pg_proc where pronamespace = 'public'::regnamespace
"""
KEYS = """
select i.indrelid::regclass::text as relation, c.relname as key,
       (select array_agg(a.attname::text order by place.n)
          from unnest(i.indkey::int[]) with ordinality as place(attnum, n)
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = place.attnum) as columns
  from pg_index i join pg_class c on c.oid = i.indexrelid and c.relnamespace = 'public'::regnamespace
 where i.indisunique
"""
GLOBAL = {"senders", "alembic_version"}
"""A bot belongs to one tenant of all, and the schema has one version: the only keys that no bucket begins."""


def declare_every_table() -> None:
    """Import every module of the packages that have tables, so that none is forgotten when it is added."""
    for package in (store, scheduler, web_widget):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.startswith("store.migrations"):
                importlib.import_module(module.name)


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    """A database with nothing in it."""
    database = Database(empty_url, pool_size=2)
    yield database
    await database.close()


async def catalogue(database: Database) -> dict[str, set[str]]:
    """Return what the server itself says of the schema."""
    found = {}
    questions = {"columns": COLUMNS, "constraints": CONSTRAINTS, "indexes": INDEXES, "options": OPTIONS, "all": OTHERS}
    async with database.transaction() as connection:
        for name, question in questions.items():
            rows = (await connection.execute(text(question))).scalars()
            found[name] = {row for row in rows if "alembic_version" not in row}
    return found


def downgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(store.__path__))) / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.downgrade(config, "base")


async def test_the_migrations_make_exactly_what_the_code_declares(database: Database, empty: Database) -> None:
    declare_every_table()
    async with empty.transaction() as connection:
        await connection.run_sync(metadata.create_all)
    migrated, declared = await catalogue(database), await catalogue(empty)
    for kind, of_migrations in migrated.items():
        assert of_migrations == declared[kind], kind
    assert {"r tasks", "r messages", "r web_sessions", "i tasks_due_to_speak"} <= migrated["all"]
    assert any("autovacuum_vacuum_cost_delay=0" in option for option in migrated["options"])


async def test_every_key_begins_with_bucket_and_tenant_save_the_global_ones(database: Database) -> None:
    async with database.transaction() as connection:
        keys = (await connection.execute(text(KEYS))).all()
    assert {key.relation for key in keys if key.columns[:2] != ["bucket", "tenant"]} == GLOBAL
    assert {key.key for key in keys} >= {"tasks_pkey", "tasks_idempotency", "messages_of_inbound", "senders_pkey"}


async def test_the_way_down_leaves_nothing_and_the_way_up_leads_to_the_same(database: Database) -> None:
    before = await catalogue(database)
    async with database.engine.connect() as connection:
        await connection.run_sync(downgrade)
        await connection.commit()
    assert await revision(database) is None
    assert not any((await catalogue(database)).values())
    assert await migrate(database) is True
    assert await catalogue(database) == before


async def test_four_processes_that_migrate_at_once_end_well_and_one_of_them_did_it(empty_url: str) -> None:
    databases = [Database(empty_url, pool_size=2) for _ in range(4)]
    try:
        async with asyncio.timeout(30):
            did = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(did) == [False, False, False, True]
        assert {await revision(database) for database in databases} == {newest()}
    finally:
        for database in databases:
            await database.close()


async def test_an_up_to_date_database_is_not_locked_and_an_outdated_one_is(
    database: Database, database_url: str, empty: Database, empty_url: str
) -> None:
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as holder,
        await psycopg.AsyncConnection.connect(empty_url, autocommit=True) as other,
    ):
        await holder.execute("select pg_advisory_lock(%s)", (LOCK,))
        await other.execute("select pg_advisory_lock(%s)", (LOCK,))
        async with asyncio.timeout(10):
            assert await migrate(database) is False

        async def is_waiting() -> bool:
            found = await other.execute(
                "select count(*) from pg_locks where locktype = 'advisory' and not granted"
                " and database = (select oid from pg_database where datname = current_database())"
            )
            return await found.fetchone() == (1,)

        migrating = asyncio.create_task(migrate(empty))
        await eventually(is_waiting)
        assert not migrating.done()
        assert await revision(empty) is None
        await other.execute("select pg_advisory_unlock(%s)", (LOCK,))
        async with asyncio.timeout(10):
            assert await migrating is True


async def test_a_database_newer_than_the_code_is_refused_and_the_lock_given_back(
    database: Database, database_url: str
) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("update alembic_version set version_num = '9999'"))
    with pytest.raises(CommandError, match="9999"):
        await migrate(database)
    assert await revision(database) == "9999"
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        assert await (await other.execute("select pg_try_advisory_lock(%s)", (LOCK,))).fetchone() == (True,)


async def test_a_migration_that_fails_leaves_nothing_half_done_and_can_be_run_again(empty: Database) -> None:
    async with empty.transaction() as connection:
        await connection.execute(text("create table tasks (in_the_way int)"))
    with pytest.raises(Exception, match="already exists"):
        await migrate(empty)
    assert await revision(empty) == "0001"
    async with empty.transaction() as connection:
        await connection.execute(text("drop table tasks"))
    assert await migrate(empty) is True
    assert await revision(empty) == newest()
