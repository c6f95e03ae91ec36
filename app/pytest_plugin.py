"""A pytest plugin: the fixture `deferred`, a developer's functions on a real database, with a clock that a test moves.

    async def test_the_cart_is_followed_up(deferred):
        await deferred.call("/abandoned-cart", {"user": "ana", "cart": "c1"})
        (run,) = await deferred.fire_due(after="24h")
        assert run.result == {"delivered": True}

It is there wherever Vuelvo is installed, and loads nothing of the service before a test asks for it. `vuelvo_app = shop:app`
in pytest's settings names the application, or a fixture `vuelvo_app` returns it. The database is an embedded one that is
made for the run, or one on the server that `--vuelvo-database-url` names; never the one that the service's settings name.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# ruff: noqa: PLC0415 - pytest imports this in every run, also in those that want nothing of it

if TYPE_CHECKING:
    from app.functions import App
    from app.rehearsal import Rehearsal

try:
    from pytest_asyncio import fixture as _pytest_asyncio_fixture

    _async_fixture: Callable[..., Any] = _pytest_asyncio_fixture
except ImportError:  # anyio's plugin takes pytest's own
    _async_fixture = pytest.fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is named above."""
    parser.addini("vuelvo_app", "Your application, module:object, for the fixture deferred.", default="")
    parser.getgroup("vuelvo").addoption(
        "--vuelvo-database-url",
        metavar="URL",
        help="A PostgreSQL server, as a user who may create databases on it: each test that asks for the fixture deferred gets"
        " a new one. Without it an embedded server is started.",
    )


def app_called(name: str) -> "App":
    """Return the application `module:object`. Raises pytest.UsageError."""
    if not name:
        raise pytest.UsageError(
            "the fixture deferred needs your application: set vuelvo_app = module:object in pytest's settings, or write a"
            " fixture vuelvo_app that returns it"
        )
    from app import application

    try:
        return application.load(name)
    except application.ApplicationError as problem:
        raise pytest.UsageError(str(problem).replace("VUELVO_APP", "vuelvo_app")) from problem


@pytest.fixture
def vuelvo_app(pytestconfig: pytest.Config) -> "App":
    """The application whose functions are tested; override it to return your own."""
    return app_called(pytestconfig.getini("vuelvo_app"))


@pytest.fixture
def vuelvo_tenant() -> dict[str, Any]:
    """The tenant in whose name functions are called, as its file says it; override it for another."""
    return {"tenant": "test", "name": "Test", "time_zone": "UTC"}


@pytest.fixture(scope="session")
def vuelvo_server_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of the server on which databases are made."""
    if given := pytestconfig.getoption("--vuelvo-database-url"):
        yield given
        return
    from store.throwaway import a_server

    with a_server() as url:
        yield url


@pytest.fixture(scope="session")
def vuelvo_template(vuelvo_server_url: str) -> Iterator[str]:
    """The name of a database with the schema and nothing in it."""
    from store.throwaway import a_template

    with a_template(vuelvo_server_url) as name:
        yield name


@pytest.fixture
def vuelvo_database_url(vuelvo_server_url: str, vuelvo_template: str) -> Iterator[str]:
    """The address of a test's own database."""
    from store.throwaway import a_database, address_of

    with a_database(vuelvo_server_url, vuelvo_template) as name:
        yield address_of(vuelvo_server_url, name)


@_async_fixture
async def deferred(
    vuelvo_app: "App", vuelvo_tenant: dict[str, Any], vuelvo_database_url: str, tmp_path: Path
) -> AsyncIterator["Rehearsal"]:
    """Your functions, called and booked on a database of this test's own, under a clock that stands still."""
    from app.rehearsal import rehearsing

    async with rehearsing(vuelvo_app, vuelvo_database_url, tmp_path, vuelvo_tenant) as rehearsal:
        yield rehearsal
