"""`vuelvo tenants apply | list | show`."""

import json
import os
from pathlib import Path

import click

from agent.errors import UnknownModel
from agent.models import check_model
from app.cli.run import fail, run, show
from app.settings import Settings
from app.tenants_file import TenantFileError, from_stored, load_file, shown
from app.wiring import apply_tenants, running
from store import tenants as stored
from store.tenants import SenderTaken


@click.group()
def tenants() -> None:
    """Apply, list and show tenants."""


async def _apply(settings: Settings, files: tuple[str, ...]) -> None:
    configs, problems = [], []
    for file in files:
        try:
            configs += load_file(Path(file), os.environ)
        except TenantFileError as problem:
            problems.append(str(problem))
    names = [config.tenant for config in configs]
    problems += [
        f"the tenant {name!r} stands in these files more than once"
        for name in sorted({n for n in names if names.count(n) > 1})
    ]
    for config in configs:
        try:
            if config.agent.model is not None:
                check_model(config.agent.model)
        except UnknownModel as problem:
            problems.append(f"tenant {config.tenant}: agent.model: {problem}")
    if problems:
        fail("\n".join(problems) + "\nNothing was applied.", 2)
    async with running(settings, poll=False, is_patient=False, any_key=True) as house:
        try:
            changed = await apply_tenants(house.service, configs)
        except SenderTaken as problem:
            fail(f"{problem}. Nothing was applied.", 2)
    for name, gone in changed.items():
        click.echo(f"{name}: " + ("unchanged" if gone is None else "; ".join(["applied", *gone])))


@tenants.command()
@click.argument("files", nargs=-1, required=True)
def apply(files: tuple[str, ...]) -> None:
    """Store the tenants in these YAML files, all or none. The same file again changes nothing.

    What was held, and a bot that was refused, is tried again by that too.
    """
    run(_apply)(files=files)


async def _list(settings: Settings, as_json: bool) -> None:
    async with running(settings, poll=False, is_patient=False) as house:
        async with house.service.database.transaction() as connection:
            rows = await stored.find_all(connection)
        configs = [from_stored(row.config, house.service.box) for row in rows]
    show(
        [
            {
                "tenant": config.tenant,
                "name": config.name,
                "time_zone": config.time_zone,
                "channels": ", ".join(
                    name for name in ("web", "telegram", "whatsapp") if getattr(config.channels, name) is not None
                ),
            }
            for config in configs
        ],
        as_json=as_json,
        columns=["tenant", "name", "time_zone", "channels"],
    )


@tenants.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_tenants(as_json: bool) -> None:
    """List the tenants."""
    run(_list)(as_json=as_json)


async def _show(settings: Settings, tenant: str) -> None:
    async with running(settings, poll=False, is_patient=False) as house:
        found = await house.service.tenant(tenant)
    if found is None:
        fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
    else:
        click.echo(json.dumps(shown(found), ensure_ascii=False, indent=2))


@tenants.command(name="show")
@click.argument("tenant")
@click.option("--json", "as_json", is_flag=True, help="As JSON (it always is).")
def show_tenant(tenant: str, as_json: bool) -> None:
    """Show one tenant's configuration, secrets hidden."""
    run(_show)(tenant=tenant)
