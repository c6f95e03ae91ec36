"""`vuelvo cadences preview | walk | apply`."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any, BinaryIO, TextIO
from zoneinfo import ZoneInfo

import click

from agent.errors import AgentError
from app import notices, renewals
from app.cli.run import as_text, fail, run, show
from app.cli.tenant import of_tenant
from app.preview import Upcoming, upcoming
from app.service import Service
from app.settings import Settings
from app.tenants_file import TenantConfig
from scheduler.cadences import plan
from store import conversations
from store import renewals as stored

SHOWN = 50
"""Steps that are listed one by one; all of them are in a file, or as JSON."""
BY = "an operator"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""With what a cell begins that a spreadsheet may take for a formula (OWASP, CSV injection)."""

_of_tenant = click.option("--tenant", required=True, callback=as_text, help="Whose.")
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def cadences() -> None:
    """See beforehand what customers will be told around a due day, and plan anew after a cadence was changed."""


@cadences.command()
@_of_tenant
@click.option("--days", type=click.IntRange(1, 3660), default=90, show_default=True, help="From now on.")
@click.option(
    "--csv",
    "csv_file",
    type=click.File("w", encoding="utf-8", lazy=True),
    help="Write all of it to a CSV file; - is here.",
)
@click.option("--ics", "ics_file", type=click.File("wb", lazy=True), help="Write all of it to a calendar.")
@_as_json
@run
async def preview(
    settings: Settings, tenant: str, days: int, csv_file: TextIO | None, ics_file: BinaryIO | None, as_json: bool
) -> None:
    """Show what will go out, when, to whom, over which channel, and what would be held or left out and why. Sends nothing."""
    async with of_tenant(settings, tenant) as (service, config), service.database.autocommit() as connection:
        now = await service.clock.now(connection)
        found = await upcoming(connection, config, now, days)
    rows = [_row(one) for one in found]
    if csv_file is not None:
        writer = csv.DictWriter(csv_file, list(_COLUMNS))
        writer.writeheader()
        writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    if ics_file is not None:
        ics_file.write(_calendar(found, config, now))
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif csv_file is None and ics_file is None:
        _show(found, rows, config)


_COLUMNS = ("at", "zone", "subject", "name", "step", "channel", "says", "held", "is_left_out")


def _row(one: Upcoming) -> dict[str, Any]:
    return {**asdict(one), "at": one.at.astimezone(ZoneInfo(one.zone)).isoformat(timespec="minutes")}


def _plain(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _show(found: Sequence[Upcoming], rows: Sequence[dict[str, Any]], tenant: TenantConfig) -> None:
    show(rows[:SHOWN], as_json=False, columns=["at", "subject", "name", "step", "channel", "held"])
    if len(rows) > SHOWN:
        click.echo(f"… and {len(rows) - SHOWN:,} more: --csv, --ics and --json have all of them")
    zone = ZoneInfo(tenant.time_zone)
    going = [one for one in found if not one.is_left_out]
    a_day = Counter(one.at.astimezone(zone).date() for one in going)
    why = Counter(one.held for one in found if one.is_left_out)
    busiest = (
        f", at most {max(a_day.values()):,} on one day ({max(a_day, key=lambda day: a_day[day])})" if a_day else ""
    )
    click.echo(f"{len(going):,} will go out{busiest}; {len(found) - len(going):,} will not")
    for reason, count in why.most_common():
        click.echo(f"  {count:,}: {reason}")


def _calendar(found: Sequence[Upcoming], tenant: TenantConfig, now: datetime) -> bytes:
    from icalendar import Calendar, Event  # noqa: PLC0415 - no other command needs it

    calendar = Calendar()
    calendar.add("prodid", "-//Vuelvo//cadences//")
    calendar.add("version", "2.0")
    for one in found:
        if one.is_left_out:
            continue
        event = Event()
        event.add("uid", f"{tenant.tenant}/{one.subject}/{one.step}")
        event.add("dtstamp", now)
        event.add("dtstart", one.at.astimezone(UTC))
        event.add("summary", f"{one.name or one.subject}: {one.step}")
        event.add("description", one.says)
        calendar.add_component(event)
    return bytes(calendar.to_ical())


@cadences.command()
@_of_tenant
@click.argument("subject", callback=as_text)
@click.option(
    "--at", "start", type=click.DateTime(["%Y-%m-%d"]), help="The day on which the walk begins; today without it."
)
@_as_json
@run
async def walk(settings: Settings, tenant: str, subject: str, start: datetime | None, as_json: bool) -> None:
    """Go through all of one renewal from its first step to its last, with the texts, as if time went by. Sends nothing.

    Texts that the agent words are worded by the model, which may cost something.
    """
    async with of_tenant(settings, tenant) as (service, config):
        async with service.database.autocommit() as connection:
            now = await service.clock.now(connection)
            renewal = next(iter(await stored.under(connection, tenant, subject)), None)
        if renewal is None or renewal.cadence not in config.cadences:
            fail(f"there is no renewal {subject!r} of tenant {tenant!r} with a cadence of its file", 2)
        rows = await _walk(service, config, renewal, start.date() if start else None, now)
    show(rows, as_json=as_json, columns=["at", "step", "channel", "says"])


async def _walk(
    service: Service, tenant: TenantConfig, renewal: stored.Renewal, start: date | None, now: datetime
) -> list[dict[str, Any]]:
    section = tenant.cadences[renewal.cadence]
    async with service.database.autocommit() as connection:
        number = await conversations.last_of(connection, tenant.tenant, renewals.keys_of(renewal.addresses))
        talk = None if number is None else await conversations.find(connection, tenant.tenant, number)
    if talk is None:
        channel = next(iter(renewal.addresses), "web")
        talk = conversations.unopened(tenant.tenant, channel, renewal.name, renewal.language, renewal.time_zone)
    zone = ZoneInfo(renewal.time_zone or talk.time_zone or tenant.time_zone)
    begin = now if start is None else datetime(start.year, start.month, start.day, tzinfo=zone)
    rows = []
    for planned in plan(section.plan, renewal.due, zone, tenant.hours.hours, begin, past=section.past):
        step = section.step(planned.step.name)
        assert step is not None
        try:
            words, _ = await notices.words_of(service, tenant, notices.Say(renewal, section, step, talk), planned.at)
        except AgentError as problem:
            fail(f"the step {step.called} was not worded: {problem}")
        at = planned.at.astimezone(zone)
        rows.append(
            {"at": at.isoformat(timespec="minutes"), "step": step.called, "channel": talk.channel, "says": words}
        )
    return rows


@cadences.command()
@_of_tenant
@click.option("--cadence", callback=as_text, help="Only this one.")
@click.option("--yes", is_flag=True, help="Do it; without it only what would change is shown.")
@_as_json
@run
async def apply(settings: Settings, tenant: str, cadence: str | None, yes: bool, as_json: bool) -> None:
    """Plan open renewals anew whose cadence, or whose hours, were changed since they were planned.

    What was said stays said. Without --yes it shows how many that are, and what would come of their steps.
    """
    async with of_tenant(settings, tenant) as (service, config):
        if cadence is not None and cadence not in config.cadences:
            fail(f"there is no cadence {cadence!r}; there are: {', '.join(sorted(config.cadences)) or 'none'}", 2)
        done = await renewals.plan_anew(service, config, cadence, BY, is_tried=not yes)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    verb = "were" if yes else "would be"
    click.echo(
        f"{done.renewals:,} open renewals {verb} planned anew: {done.taken_back:,} steps {verb} taken back,"
        f" {done.booked:,} {verb} booked, {done.same:,} of them at the same time as before"
    )
    if not yes and done.renewals:
        click.echo("nothing is changed yet: --yes does it", err=True)
