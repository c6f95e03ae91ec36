"""`vuelvo tasks list | get | cancel`."""

import json
from dataclasses import asdict
from typing import Any, get_args

import click

from app.cli.run import fail, run, show
from app.database import open_database
from app.settings import Settings
from scheduler import find
from scheduler.cancel import cancel as cancel_tasks
from scheduler.clock import Clock
from scheduler.find import Found
from scheduler.task import ACTIVE, State
from store import tenants
from store.migrate import migrate

STATES = ("active", *get_args(State))


@click.group()
def tasks() -> None:
    """List, look at and cancel tasks."""


def _row(task: Found) -> dict[str, Any]:
    """A task as it is listed: what it is about is the customer's, so it is only shown when asked for."""
    row = {name: value for name, value in asdict(task).items() if name != "payload"}
    return row | {name: f"{value:%Y-%m-%d %H:%M:%S}Z" for name, value in row.items() if hasattr(value, "tzinfo")}


async def _list(settings: Settings, tenant: str | None, status: str, as_json: bool, limit: int) -> None:
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.transaction() as connection:
            if tenant is not None and await tenants.find(connection, tenant) is None:
                fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
            found = await find.search(
                connection, tenant=tenant, states=ACTIVE if status == "active" else (status,), limit=limit
            )
    show(
        [_row(task) for task in found],
        as_json=as_json,
        columns=["id", "tenant", "kind", "channel", "state", "hold", "booked_for", "attempt", "outcome", "error"],
    )


@tasks.command(name="list")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--status", type=click.Choice(STATES), default="active", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_tasks(tenant: str | None, status: str, as_json: bool, limit: int) -> None:
    """List tasks: the next due first, or, of those that have ended, the last ended first."""
    run(_list)(tenant=tenant, status=status, as_json=as_json, limit=limit)


async def _get(settings: Settings, task: int, payload: bool, as_json: bool) -> None:
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.transaction() as connection:
            found = await find.get(connection, None, task)
    if found is None:
        fail(f"there is no task {task}", 2)
    else:
        row = _row(found) | ({"payload": dict(found.payload)} if payload else {})
        if as_json:
            click.echo(json.dumps(row, ensure_ascii=False, indent=2))
        else:
            for name, value in row.items():
                if value is not None:
                    click.echo(f"{name}: {json.dumps(value, ensure_ascii=False) if name == 'payload' else value}")


@tasks.command()
@click.argument("task", type=click.IntRange(1, 2**63 - 1))
@click.option("--payload", is_flag=True, help="Also what it is about.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def get(task: int, payload: bool, as_json: bool) -> None:
    """Show one task whole, with its last error."""
    run(_get)(task=task, payload=payload, as_json=as_json)


async def _cancel(settings: Settings, task: int, as_json: bool) -> None:
    async with open_database(settings, is_patient=False) as database:
        await migrate(database)
        async with database.transaction() as connection:
            found = await find.get(connection, None, task)
            done = await cancel_tasks(connection, Clock(), found.tenant, [task]) if found else None
    if found is None or done is None:
        fail(f"there is no task {task}", 2)
    elif not done.cancelled and not done.raced:
        fail(f"task {task} is {found.state}: only a task that is scheduled or firing can be cancelled", 2)
    elif as_json:
        click.echo(json.dumps({"cancelled": list(done.cancelled), "raced": list(done.raced)}))
    else:
        click.echo(f"task {task}: " + ("cancelled" if done.cancelled else "already being performed (raced)"))


@tasks.command()
@click.argument("task", type=click.IntRange(1, 2**63 - 1))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def cancel(task: int, as_json: bool) -> None:
    """Cancel a task that is not done yet."""
    run(_cancel)(task=task, as_json=as_json)
