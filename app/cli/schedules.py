"""`vuelvo schedules list | preview | forget | purge`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import click
from tzlocal import get_localzone_name

from app import application
from app.cli.run import fail, run, show
from app.database import open_database
from app.settings import Settings
from scheduler import schedules as stored
from scheduler.clock import Clock
from scheduler.cron import Run, parse
from scheduler.errors import BadSchedule, BadTime
from scheduler.recurrence import zone_called
from scheduler.task import OWN
from scheduler.when import duration
from store.migrate import migrate

_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@dataclass(frozen=True, slots=True)
class _Shown:
    task: int
    """The number under which `vuelvo tasks get` tells its story."""
    tenant: str
    id: str
    when: str
    state: str
    next_run_at: str | None
    missed: str
    last_error: str | None
    orphan: bool | None
    """Whether the application has no handler for it; None where that is not asked, or not its matter."""


@click.group()
def schedules() -> None:
    """List and take away schedules, and see beforehand when cron comes."""


@schedules.command("list")
@click.option("--all", "with_ended", is_flag=True, help="Those that have come to their end or were cancelled, too.")
@_as_json
@run
async def list_schedules(settings: Settings, with_ended: bool, as_json: bool) -> None:
    """List the schedules that are stored, with when they come next, and those that have failed."""
    handlers = application.load(settings.app).scheduler.ids if settings.app else None
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.autocommit() as connection:
            found = await stored.find_all(connection, with_ended=with_ended)
    rows = [
        asdict(
            _Shown(
                each.task,
                each.tenant,
                each.id,
                each.spec,
                each.state,
                each.next_run_at.astimezone(UTC).isoformat() if each.next_run_at else None,
                each.policy,
                each.error,
                each.id not in handlers if handlers is not None and each.tenant == OWN else None,
            )
        )
        for each in found
    ]
    show(
        rows,
        as_json=as_json,
        columns=["task", "tenant", "id", "when", "state", "next_run_at", "missed", "orphan", "last_error"],
    )


@schedules.command()
@click.argument("expression")
@click.option("--zone", help="IANA time zone; this machine's as a default.")
@click.option("--from", "start", help="Local date and time to begin at, such as 2027-03-27T00:00; now as a default.")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@_as_json
def preview(expression: str, zone: str | None, start: str | None, count: int, as_json: bool) -> None:
    """Print the coming runs of a cron EXPRESSION, and mark those that a change of the clocks moves."""
    try:
        place = zone_called(zone or get_localzone_name() or "UTC")
        cron = parse(expression, place)
    except BadSchedule as problem:
        fail(str(problem), 2)
    try:
        runs = list(islice(cron.runs(_beginning(start, place)), count))
    except OverflowError:
        fail("it comes no more before the year 10000", 2)
    if as_json:
        told = [{"at": run.at.astimezone(place).isoformat(), "moved": run.is_moved} for run in runs]
        click.echo(json.dumps({"runs": told}, indent=2))
        return
    for line in _lines(runs, place):
        click.echo(line)


def _beginning(start: str | None, zone: ZoneInfo) -> datetime:
    if start is None:
        return datetime.now(UTC)
    try:
        given = datetime.fromisoformat(start)
    except ValueError:
        fail(f"--from is {start[:40]!r}: write a local date and time such as 2027-03-27T00:00", 2)
    # The time itself counts.
    return (given if given.tzinfo else given.replace(tzinfo=zone)).astimezone(UTC) - timedelta(microseconds=1)


def _lines(runs: Sequence[Run], zone: ZoneInfo) -> list[str]:
    moved = "  moved: the clocks skip the time it is meant for"
    return [f"{run.at.astimezone(zone):%a %Y-%m-%d %H:%M %z}{moved if run.is_moved else ''}" for run in runs]


@schedules.command()
@click.argument("id")
@run
async def forget(settings: Settings, id: str) -> None:
    """Take the application's schedule ID away, though no code registers it any more."""
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.transaction() as connection:
            is_gone = await stored.forget(connection, Clock(), id)
    if not is_gone:
        fail(f"there is no schedule {id!r}: vuelvo schedules list --all shows them", 2)
    click.echo(f"{id} comes no more")


@schedules.command()
@click.option("--older-than", default="30d", show_default=True, help="How long ago they must have ended, such as 30d.")
@run
async def purge(settings: Settings, older_than: str) -> None:
    """Delete what is left of schedules that ended long ago. Those that are made again count their tokens from the beginning."""
    try:
        kept = duration(older_than)
    except BadTime as problem:
        fail(f"--older-than: {problem}", 2)
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.transaction() as connection:
            gone = await stored.purge(connection, Clock(), kept)
    click.echo(f"{gone} deleted")
