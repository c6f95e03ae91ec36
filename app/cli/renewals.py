"""`vuelvo renewals import | list | show | close`."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast, get_args
from zoneinfo import ZoneInfo

import click

from app.cli.run import as_text, fail, run, show
from app.cli.story import without_numbers
from app.cli.tasks import one_line, recorded
from app.cli.tenant import of_tenant
from app.renewal_files import Dates, Reading, Table, Unreadable, opened
from app.renewal_import import Report, refuse, take
from app.renewal_input import Checker, masked
from app.renewals import as_shown, step_shown, steps
from app.renewals import close as close_renewal
from app.service import Service
from app.settings import Settings
from app.tenants_file import TenantConfig
from scheduler.poller import DUE
from store import renewals as stored
from store.renewals import State
from store.signals import notify

MOST_SHOWN = 100
"""Refused lines that are shown, unless all are asked for as JSON."""


@click.group()
def renewals() -> None:
    """Take renewals in from a file, list, show and close them."""


async def _today(service: Service, tenant: TenantConfig) -> date:
    async with service.database.autocommit() as connection:
        return (await service.clock.now(connection)).astimezone(ZoneInfo(tenant.time_zone)).date()


def _mapped(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    mapped = {}
    for words in given:
        column, equals, field = words.rpartition("=")
        if not equals or not column.strip():
            raise click.BadParameter(f"{words[:60]!r} is not COLUMN=FIELD, such as --map Póliza=subject")
        mapped[column] = field
    return mapped


_tenant_option = click.option("--tenant", required=True, callback=as_text, help="Whose.")
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
_by = click.option("--by", callback=one_line, help="Who does it, for their story.  [default: the system's user]")


@renewals.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@_tenant_option
@click.option(
    "--map",
    "mapped",
    metavar="COLUMN=FIELD",
    multiple=True,
    callback=_mapped,
    help="What a column is; with no FIELD it is left out. May be given several times.",
)
@click.option("--cadence", metavar="NAME", help="The cadence of lines that name none.")
@click.option(
    "--dates",
    type=click.Choice(get_args(Dates), case_sensitive=False),
    help="How dates such as 03/04/2027 are written.",
)
@click.option("--sheet", metavar="NAME", help="Which sheet of a workbook, if not the first.")
@click.option("--strict", is_flag=True, help="Take nothing unless every line can be taken.")
@_by
@_as_json
def import_file(by: str | None, **given: Any) -> None:
    """Take in the renewals of FILE (.csv, .xlsx, .ics), each line one of them. The same file again changes nothing.

    Ends with 1 when lines were refused, with 2 when the file cannot be read.
    """
    run(_import)(by=recorded(by, None), **given)


async def _import(
    settings: Settings,
    file: Path,
    tenant: str,
    mapped: dict[str, str],
    cadence: str | None,
    dates: Dates | None,
    sheet: str | None,
    strict: bool,
    by: str,
    as_json: bool,
) -> None:
    report, most = Report(), None if as_json else MOST_SHOWN
    is_taken = True
    async with of_tenant(settings, tenant) as (service, config):
        checker = Checker(config, await _today(service, config))

        def reading(table: Table) -> Reading:
            return Reading(table, checker, mapped=mapped, cadence=cadence, dates=dates)

        def a_table() -> Any:
            return opened(file, sheet=sheet, zone=ZoneInfo(config.time_zone))

        try:
            if strict:
                with a_table() as table, _bar(table, "Checking") as told:
                    for number, _ in enumerate(refuse(reading(table).lines(), report, most)):
                        if number % 1000 == 0:
                            told()
                is_taken = not report.refused
            if is_taken:
                with a_table() as table, _bar(table, "Taking in") as told:
                    lines = refuse(reading(table).lines(), report, most)
                    await take(service, config, lines, report, by, told)
        except Unreadable as problem:
            if report.became.total():
                _tell(report, as_json=as_json)
            fail(f"{file}: {problem}", 2)
        finally:
            if report.became["new"] or report.became["moved"]:
                async with service.database.transaction() as connection:
                    await notify(connection, [DUE])
    _tell(report, as_json=as_json, is_taken=is_taken)
    if report.refused:
        raise SystemExit(1)


@contextmanager
def _bar(table: Table, label: str) -> Iterator[Callable[[], None]]:
    """Show how much of a file is read, where somebody looks on; gives what brings it up to date."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:
        yield lambda: bar.update(int(1000 * table.share) - bar.pos)
        bar.update(1000 - bar.pos)


def _tell(report: Report, *, as_json: bool, is_taken: bool = True) -> None:
    counts = {name: report.became[name] for name in ("new", "moved", "changed", "unchanged")}
    if as_json:
        refused = [{"line": one.line, "why": one.why} for one in report.shown]
        told = {**counts, "refused": refused, "not_written_to": report.strangers}
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    if is_taken:
        click.echo(", ".join(f"{count:,} {name}" for name, count in counts.items()) + f", {report.refused:,} refused")
    else:
        click.echo(f"{report.refused:,} refused, so nothing is taken")
    for one in report.shown:
        click.echo(f"line {one.line}: {one.why}")
    if (more := report.refused - len(report.shown)) > 0:
        click.echo(f"and {more:,} more; --json shows them all")
    if report.strangers:
        click.echo(f"{report.strangers:,} have neither agreed nor ever written: nothing is sent to them until they do")


@renewals.command(name="list")
@_tenant_option
@click.option(
    "--state",
    type=click.Choice([*get_args(State), "all"]),
    default="open",
    show_default=True,
)
@click.option("--due-before", type=click.DateTime(["%Y-%m-%d"]), help="Only what is due before this day.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@_as_json
def list_renewals(**given: Any) -> None:
    """List renewals, the first due first."""
    run(_list)(**given)


async def _list(
    settings: Settings, tenant: str, state: str, due_before: datetime | None, limit: int, as_json: bool
) -> None:
    async with of_tenant(settings, tenant) as (service, config), service.database.autocommit() as connection:
        found = await stored.find(
            connection,
            config.tenant,
            state=None if state == "all" else cast(State, state),
            due_before=None if due_before is None else due_before.date(),
            limit=limit,
        )
    rows = [as_shown(one) for one in found]
    if not as_json:
        rows = [row | {"channels": ", ".join(row["channels"]), "said": ", ".join(row["said"])} for row in rows]
    columns = ["subject", "due", "cadence", "name", "channels", "agreed", "state", "stopped", "said"]
    show(rows, as_json=as_json, columns=columns)


@renewals.command(name="show")
@click.argument("subject", callback=as_text)
@_tenant_option
@_as_json
def show_renewal(**given: Any) -> None:
    """Show the last renewal under SUBJECT: what it is, what is planned, what was said, and its story (UTC)."""
    run(_show)(**given)


async def _show(settings: Settings, subject: str, tenant: str, as_json: bool) -> None:
    async with of_tenant(settings, tenant) as (service, config), service.database.autocommit() as connection:
        found = await stored.under(connection, config.tenant, subject)
        if not found:
            fail(f"there is no renewal {subject!r}: vuelvo renewals list --state all shows which there are", 2)
        each = [step_shown(one) for one in await steps(connection, config, found[0])]
        story = await stored.story(connection, config.tenant, found[0].id)
    each = [one | {"error": without_numbers(one["error"])} for one in each]
    addresses = {channel: masked(address) for channel, address in found[0].addresses.items()}
    shown = as_shown(found[0]) | {"channels": addresses}
    if as_json:
        events = [
            {"at": one.at.astimezone(UTC).isoformat(), "event": one.event, "by": one.by, "detail": one.detail}
            for one in story
        ]
        click.echo(json.dumps(shown | {"steps": each, "events": events}, ensure_ascii=False, indent=2))
        return
    for name, value in shown.items():
        if value not in (None, [], {}):
            words = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else value
            click.echo(f"{name}: {', '.join(words) if isinstance(words, list) else words}")
    for one in each:
        told = [one["state"], one["outcome"], one["hold"] and f"waits: {one['hold']}", one["error"]]
        at = datetime.fromisoformat(one["at"])
        click.echo(f"  {at:%Y-%m-%d %H:%M}  {one['step']}  {', '.join(filter(None, told))}  (task {one['task']})")
    for event in story:
        words = f": {event.detail}" if event.detail else ""
        click.echo(f"  {event.at.astimezone(UTC):%Y-%m-%d %H:%M}  {event.event}{words} ({event.by})")


@renewals.command()
@click.argument("subject", callback=as_text)
@_tenant_option
@click.option("--as", "state", type=click.Choice(["renewed", "lost", "withdrawn"]), required=True)
@click.option("--why", callback=one_line, help="Why, for its story.")
@_by
@_as_json
def close(by: str | None, **given: Any) -> None:
    """Close the open renewal under SUBJECT: nothing more is said of it."""
    run(_close)(by=recorded(by, None), **given)


async def _close(
    settings: Settings, subject: str, tenant: str, state: State, why: str | None, by: str, as_json: bool
) -> None:
    async with of_tenant(settings, tenant) as (service, config):
        if not await close_renewal(service, config.tenant, subject, state, by, why):
            fail(f"no renewal {subject!r} is open: vuelvo renewals show tells what became of it", 2)
    click.echo(
        json.dumps({"subject": subject, "state": state}, ensure_ascii=False) if as_json else f"{subject}: {state}"
    )
