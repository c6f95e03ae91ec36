"""One PostgreSQL for each process of the run, one empty copy of the migrated schema for each test that asks for a database.

The server is the embedded one, told not to wait for the disk, since what a test loses with the machine is of no use. Set
`VUELVO_TEST_DATABASE_URL` to run against another server (as its superuser).
"""

import os
from collections.abc import AsyncIterator, Generator, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import certifi
import psycopg
import pytest

from scheduler.clock import MovableClock
from store.database import Database
from store.throwaway import a_database, a_server, a_template, address_of
from tests.support.databases import Databases

# Where this is installed as it stands, our plugin is one already.
pytest_plugins = [] if entry_points(group="pytest11", name="vuelvo") else ["app.pytest_plugin"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in what a test logged: a report crosses to the process that prints it as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


LONG = (
    "test_crash",
    "test_cuts",
    "test_replicas",
    "test_machine",
    "test_death",
    "test_processes",
    "test_faults",
    "test_benchmarks",
)
"""Files with tests that take half a minute, some of it waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, so that no process is left alone with one of them in the end."""
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Believe one certificate authority instead of all there are, which each new client would read: no test speaks to a server that any of them vouches for."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a server on which tests may create databases."""
    given = os.environ.get("VUELVO_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with a_server() as url:
        yield url


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database that has been migrated and is cloned for each test."""
    with a_template(server_url) as name:
        yield name


@pytest.fixture(scope="session")
def vuelvo_server_url(server_url: str) -> str:
    """The server on which our own plugin makes its databases."""
    return server_url


@pytest.fixture(scope="session")
def vuelvo_template(template: str) -> str:
    """The database of which it makes them."""
    return template


@pytest.fixture(scope="session")
def databases(server_url: str, template: str) -> Iterator[Databases]:
    """Copies of the migrated template."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        databases = Databases(connection, server_url, template)
        yield databases
        databases.drop()


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """The address of a fresh, migrated, empty database."""
    with databases.one() as url:
        yield url


@pytest.fixture(scope="module")
def lasting_url(databases: Databases) -> Iterator[str]:
    """The address of one database for all tests of a file, each of which must leave the others' rows alone."""
    with databases.one() as url:
        yield url


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """The address of a database with nothing in it."""
    with a_database(server_url) as name:
        yield address_of(server_url, name)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A fresh, migrated, empty database."""
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture
def clock() -> MovableClock:
    """A clock that stands still until the test moves it."""
    return MovableClock()
