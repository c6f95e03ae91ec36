"""The engine, the transaction, and the names all tables share.

Statements that are text go to the driver directly: on the way through SQLAlchemy a statement costs twice its time. The pool,
transactions, errors, what a statement of its expression language is, and the migrations are SQLAlchemy's.
"""

import functools
import select
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg
from psycopg.pq import ExecStatus
from sqlalchemy import CursorResult, MetaData, TextClause, event, text
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect
from sqlalchemy.engine import URL, Dialect, IteratorResult, make_url
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

BUCKETS = 64
"""Into how many buckets tenants are hashed: the unit in which data can be spread over servers."""

# A server that vanished without a word, as one behind a broken network does, is given up after 20 seconds: by itself the
# system would wait a quarter of an hour for an answer.
_DEAD_PEER = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 20_000}

_NEWS = "news"

_PLAN_ONCE, _PLAN_AS_USUAL = text("set plan_cache_mode = force_generic_plan"), text("reset plan_cache_mode")

OUTAGES = (OperationalError, InterfaceError, PoolTimeout)
"""What says that the database cannot be reached now, rather than that it was asked for something wrong."""

sql = functools.cache(text)
"""One of our own statements, made ready the first time it is used: to read a long one for its parameters takes a while."""

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)
"""Every table of the service, whichever package declares it; migrations are held against it in the tests."""


def bucket_of(tenant: str) -> int:
    """Return the bucket a tenant lives in: stable across processes, versions and machines."""
    return zlib.crc32(tenant.encode()) % BUCKETS


def engine_url(url: str) -> URL:
    """Return the address for SQLAlchemy of a `postgres://` or `postgresql://` URL, always driven by psycopg.

    Raises sqlalchemy.exc.ArgumentError for what is not a URL, ValueError for another kind of database.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ValueError("it must start with postgresql://")
    return parsed.set(drivername="postgresql+psycopg")


@functools.lru_cache(maxsize=2000)
def _for_driver(words: str) -> bytes:
    """Return a statement with its parameters written as the driver wants them."""
    dialect = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]
    return str(text(words).compile(dialect=dialect)).encode()


@functools.lru_cache(maxsize=2000)
def _is_plain(statement: object) -> bool:
    """Tell whether a statement is text whose parameters all come with the call."""
    return type(statement) is TextClause and all(
        one.required and not one.expanding for one in statement._bindparams.values()
    )


@functools.lru_cache(maxsize=2000)
def _columns(*names: bytes | None) -> SimpleResultMetaData:
    return SimpleResultMetaData([(name or b"").decode() for name in names])


class Connection(AsyncConnection):
    """A connection that hands text to the driver as it is."""

    @property
    def driver(self) -> psycopg.AsyncConnection[Any]:
        """The driver's own connection; not to be kept beyond this one."""
        return cast("psycopg.AsyncConnection[Any]", self._proxied.connection.driver_connection)

    async def execute(self, statement: Any, parameters: Any = None, **options: Any) -> CursorResult[Any]:
        """Execute one statement; whatever goes wrong is an error of SQLAlchemy's, and does not tell what was written."""
        if not _is_plain(statement) or isinstance(parameters, list):
            return cast("CursorResult[Any]", await super().execute(statement, parameters, **options))
        driver = self.driver
        try:
            cursor = await driver.execute(_for_driver(statement.text), parameters or {})
            # Its `description` would be a large object for each column, of which the name alone is wanted.
            found = cursor.pgresult
            has_rows = found is not None and found.status == ExecStatus.TUPLES_OK
            names = [found.fname(at) for at in range(found.nfields)] if found and has_rows else []
            rows = await cursor.fetchall() if has_rows else []
        except BaseException as problem:
            if is_lost := driver.closed:  # after a cancellation too, where the server did not answer that either
                await self.invalidate(problem)
            if not isinstance(problem, psycopg.Error):
                raise
            raise DBAPIError.instance(
                *(statement.text, None, problem, psycopg.Error),
                hide_parameters=True,
                connection_invalidated=is_lost,
                dialect=self.dialect,
            ) from problem
        return cast("CursorResult[Any]", IteratorResult(_columns(*names), iter(rows)))


class Database:
    """One pool of connections to one PostgreSQL."""

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        self.url = engine_url(url)
        """Further connections are opened to its host and port."""
        self.engine: AsyncEngine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=0,  # one beyond the pool's size is closed after each use, and to open it costs as much as a turn
            hide_parameters=True,  # an error is logged and kept; what customers say and their numbers are not
            connect_args={"application_name": "vuelvo", "connect_timeout": 10, **_DEAD_PEER},
        )
        event.listen(self.engine.sync_engine, "do_connect", self._turn_to_address)
        event.listen(self.engine.sync_engine, "checkout", self._check_alive)
        self.on_commit: Callable[[Sequence[object]], None] | None = None
        """Told after each commit what was left with `tell_on_commit`; never of what was rolled back."""

    def move_to(self, url: str) -> None:
        """Follow the server to another host or port."""
        self.url = engine_url(url)

    def _turn_to_address(self, dialect: Dialect, record: object, args: object, given: dict[str, Any]) -> None:
        address = {"host": self.url.host, "port": self.url.port}
        given.update({name: value for name, value in address.items() if value is not None})

    def _check_alive(self, connection: Any, record: object, proxy: object) -> None:
        """Replace a connection whose server has hung up: its end is there to be read, and costs no question.

        So is one that still commits every statement by itself, since whoever lent it was cancelled while giving it back. One that has something else to say is asked. A peer that vanished without a word is found out by its silence.
        """
        dialect, line = self.engine.dialect, select.poll()
        if connection.driver_connection.autocommit:
            raise DisconnectionError("it was not given back as it was taken")
        try:
            line.register(connection.driver_connection.fileno(), select.POLLIN)
            if line.poll(0):
                dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as problem:
            raise DisconnectionError("the line is dead") from problem

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that commits at the end of the block and rolls back on an exception.

        Keep it short, and never wait for a network call inside.
        """
        async with Connection(self.engine) as connection, self._telling(connection), connection.begin():
            yield connection

    @asynccontextmanager
    async def autocommit(self, *, is_planned_once: bool = False) -> AsyncIterator[AsyncConnection]:
        """Lend a connection on which every statement is a transaction of its own: a third of the time, where there is one.

        With `is_planned_once` a statement that comes again and again is planned once, for whatever values: to plan a long one
        takes several times as long as to find that nothing is there.
        """
        connection = Connection(self.engine)
        async with connection, self._telling(connection):
            driver = connection.driver
            try:
                await driver.set_autocommit(True)
                if is_planned_once:
                    await connection.execute(_PLAN_ONCE)
                yield connection
            finally:
                if not driver.closed:
                    try:
                        if is_planned_once:
                            await connection.execute(_PLAN_AS_USUAL)
                        await driver.set_autocommit(False)
                    except (
                        BaseException
                    ):  # whoever has it next relies on its transactions; should this be cut off, see checkout
                        await connection.invalidate()
                        raise

    @asynccontextmanager
    async def _telling(self, connection: AsyncConnection) -> AsyncIterator[None]:
        news: list[object] = []
        connection.info[_NEWS] = news
        yield
        if news and self.on_commit:
            self.on_commit(news)

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


def tell_on_commit(connection: AsyncConnection, *what: object) -> None:
    """Leave something that `Database.on_commit` is told once this transaction is committed."""
    connection.info.get(_NEWS, []).extend(what)


async def is_distributed(database: Database) -> bool:
    """Tell whether the tables may be spread over several servers, as Citus does it."""
    async with database.transaction() as connection:
        return bool(await connection.scalar(text("select exists (select from pg_extension where extname = 'citus')")))
