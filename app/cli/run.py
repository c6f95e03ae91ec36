"""What every command does first and last: read the settings, set up the log, turn what is wrong into one clear line."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, NoReturn

import click
from alembic.util import CommandError
from sqlalchemy.exc import OperationalError

from agent.errors import UnknownModel
from app.application import ApplicationError
from app.database import DatabaseDown, open_database, why
from app.settings import Settings, SettingsError, load
from app.tenants_file import UNUSABLE
from store.database import Database
from store.embedded import EmbeddedServerError
from store.migrate import migrate


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """One line an entry, whatever somebody's words in it hold; a trace has its own below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Return the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)


def printable(words: str) -> str:
    """Return words with all that a terminal would obey, or a line would end at, shown as it is escaped in Python."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in words)


def set_up_log(settings: Settings, level: int = logging.INFO) -> None:
    """Write the log to standard error, in the form the settings ask for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if settings.log_format == "json" else PlainLines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Their info lines repeat addresses, and a Telegram token stands in its address.
    for library in (
        "httpx",
        "httpx2",
        "httpcore",
        "uvicorn.error",
        "aiogram",
        "aiohttp",
        "openai",
        "anthropic",
        "twilio",
        "mcp",
    ):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It repeats what it cannot read of a tenant's server, and raises it too.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
    # Whoever must wait for the database is told so, in the terminal too.
    logging.getLogger("app.database").setLevel(min(level, logging.WARNING))


def fail(message: str, code: int = 1) -> NoReturn:
    """End with a message on standard error and an exit code: 2 for what was asked wrongly, 1 for what went wrong."""
    click.echo(f"vuelvo: {message}", err=True)
    raise SystemExit(code)


def run(command: Callable[..., Coroutine[Any, Any, None]], *, level: int = logging.INFO) -> Callable[..., None]:
    """Make a click callback of an async function that is handed the settings first."""

    @wraps(command)
    def call(*given: Any, **options: Any) -> None:
        try:
            settings = load()
        except SettingsError as problem:
            fail(str(problem), 2)
        set_up_log(settings, level)
        try:
            asyncio.run(command(settings, *given, **options))
        except UnknownModel as problem:
            fail(f"VUELVO_MODEL: {problem}", 2)
        except (SettingsError, ApplicationError, *UNUSABLE) as problem:
            fail(str(problem), 2)
        except CommandError as problem:
            fail(
                f"the database's schema is not one this version knows ({problem}): use the version that made it, or newer"
            )
        except (EmbeddedServerError, DatabaseDown) as problem:
            fail(str(problem))
        except OperationalError as problem:
            fail(f"the database cannot be used any more: {why(problem)}")
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise SystemExit(130) from None

    return call


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Database]:
    """Open the database that there is, brought up to date. Raises DatabaseDown, EmbeddedServerError."""
    async with open_database(settings, is_patient=False, is_new=False) as database:
        await migrate(database)
        yield database


def as_text(_: click.Context, __: click.Parameter, words: str | None) -> str | None:
    """Return a name or a label exactly as given; none that is stored has what is refused here."""
    if words is not None and ("\0" in words or words.encode("utf-8", "replace").decode() != words):
        raise click.BadParameter("it is not text in UTF-8, or has a NUL character in it: give it as it is stored")
    return words


def _cell(value: Any) -> str:
    return "" if value is None else printable(" ".join(str(value).split()))


def show(rows: Any, *, as_json: bool, columns: list[str]) -> None:
    """Print rows (a list of dicts) as JSON or as a table."""
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2, default=str))
        return
    if not rows:
        click.echo("nothing")
        return
    from rich.console import Console  # noqa: PLC0415 - takes a tenth of a second to import, and only tables need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))  # in a plain text [b] and :cat: are words
    # In a pipe nothing is cut: whoever reads it there has no edge of a screen.
    Console(width=None if sys.stdout.isatty() else 400).print(table)
