"""`vuelvo tasks list | get | cancel | retry | discard | settle`."""

import getpass
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, get_args

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cli import story
from app.cli.run import as_text, fail, opened, printable, run, show
from app.context import DONE
from app.deferred import PATH
from app.settings import Settings
from scheduler import find, operate
from scheduler.cancel import cancel as cancel_tasks
from scheduler.cancel import cancel_followup, cancel_labelled, count_labelled
from scheduler.clock import Clock
from scheduler.find import Found
from scheduler.poller import DUE
from scheduler.task import ACTIVE, OWN, TROUBLED, State
from store import tenants
from store.database import Database
from store.signals import notify

STATES = {"active": ACTIVE, "troubled": TROUBLED, **{state: (state,) for state in get_args(State)}}
INSTEAD = {
    "scheduled": "it is still to come, or waits for what its hold names; vuelvo tasks cancel takes it back",
    "firing": "it is being performed; vuelvo tasks cancel asks it to stop",
    "fired": "it is done",
    "failed": "vuelvo tasks retry has it done again, vuelvo tasks discard puts it away",
    "uncertain": "look whether it arrived, and say so with vuelvo tasks settle",
    "cancelled": "it has ended",
    "expired": "it has ended",
}
"""What an operator is told of a task that is in another state than they thought."""
AT_A_TIME = 500
"""Tasks moved in one transaction, where it may be many."""

Move = Callable[[AsyncConnection, Clock, str, int, str], Awaitable[bool]]
_TASK = click.IntRange(1, 2**63 - 1)
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


def _as_prefix(context: click.Context, option: click.Parameter, words: str | None) -> str | None:
    prefix = as_text(context, option, words)
    if prefix is not None:
        try:
            find.beyond(prefix)
        except ValueError as problem:
            raise click.BadParameter(str(problem)) from None
    return prefix


def _labels(command: Callable[..., None]) -> Callable[..., None]:
    """Add the labels that tasks are found by."""
    for add in (
        click.option("--key-prefix", callback=_as_prefix, help="Whose key begins so."),
        click.option("--key", callback=as_text, help="Of this key."),
        click.option("--subject", callback=as_text, help="Of this subject."),
    ):
        command = add(command)
    return command


@click.group()
def tasks() -> None:
    """List and look at tasks, and decide what becomes of them."""


def _row(task: Found) -> dict[str, Any]:
    """A task as it is shown: what it is about, and a function's result, are the customer's, so only shown when asked for."""
    row = {name: value for name, value in asdict(task).items() if name != "payload"}
    row["error"] = story.without_numbers(task.error)
    row["outcome"] = story.without_result(task.outcome)
    if task.kind == "function":
        row["function"] = task.kept.get("path")
    return row | {name: f"{value:%Y-%m-%d %H:%M:%S}Z" for name, value in row.items() if hasattr(value, "tzinfo")}


def _age(since: timedelta) -> str:
    seconds = max(int(since.total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


async def _check_tenant(connection: AsyncConnection, tenant: str | None) -> None:
    if tenant is not None and tenant != OWN and await tenants.find(connection, tenant) is None:
        fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)


def _content(task: Found) -> dict[str, Any]:
    """What a task is about; of a function, what it is given and what it returned."""
    if task.kind != "function":
        return {"payload": task.payload}
    is_done = task.outcome is not None and task.outcome.startswith(DONE)
    result = {"result": json.loads(str(task.outcome).removeprefix(DONE))} if is_done else {}
    return {"payload": task.kept.get("payload"), **result}


async def _list(
    settings: Settings, tenant: str | None, status: str, as_json: bool, limit: int, **chosen: str | None
) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        await _check_tenant(connection, tenant)
        found = await find.search(connection, tenant=tenant, states=STATES[status], limit=limit, **chosen)
        now = await Clock().now(connection)
    show(
        [_row(task) | {"age": _age(now - (task.ended_at or task.created_at))} for task in found],
        as_json=as_json,
        columns=[
            "id",
            "tenant",
            "kind",
            *(["function"] if any(task.kind == "function" for task in found) else []),
            "channel",
            "state",
            "hold",
            "booked_for",
            "age",
            "attempt",
            "outcome",
            "error",
        ],
    )


def _as_path(_: click.Context, __: click.Parameter, words: str | None) -> str | None:
    if words is not None and PATH.fullmatch(words) is None:
        raise click.BadParameter(f"{words[:60]!r} is no path of a function: it begins with /, such as /send-followup")
    return words


@tasks.command(name="list")
@click.argument("function", required=False, callback=_as_path)
@click.option("--tenant", callback=as_text, help="Only this tenant's.")
@_labels
@click.option("--status", type=click.Choice(list(STATES)), default="active", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@_as_json
def list_tasks(tenant: str | None, status: str, as_json: bool, limit: int, **chosen: str | None) -> None:
    """List tasks, or the runs of one FUNCTION, by its path: the next due first, or, of those that have ended, the last first.

    `active` is scheduled and firing, `troubled` is failed and uncertain. The age is the time since a task ended, or
    since it was booked.
    """
    run(_list)(tenant=tenant, status=status, as_json=as_json, limit=limit, **chosen)


async def _get(settings: Settings, task: int, payload: bool, as_json: bool) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        found = await find.get(connection, None, task)
        if found is None:
            fail(f"there is no task {task}", 2)
        told = await story.read(connection, found)
    row = _row(found) | (_content(found) if payload else {})
    if as_json:
        click.echo(json.dumps(row | told.as_json(), ensure_ascii=False, indent=2, default=datetime.isoformat))
        return
    for name, value in row.items():
        if value is not None:
            is_data = name in ("payload", "result")
            click.echo(printable(f"{name}: {json.dumps(value, ensure_ascii=False) if is_data else value}"))
    for line in told.lines():
        click.echo(printable(line))


@tasks.command()
@click.argument("task", type=_TASK)
@click.option("--payload", is_flag=True, help="Also what it is about, and a function's result.")
@_as_json
def get(task: int, payload: bool, as_json: bool) -> None:
    """Show one task whole, with its last error and its story: what became of it, and when (UTC)."""
    run(_get)(task=task, payload=payload, as_json=as_json)


def one_line(_: click.Context, option: click.Parameter, words: str | None) -> str | None:
    """Return an operator's words as they can be stored and shown in one line."""
    if words is None:
        return None
    line = _stored(words)
    if not line:
        raise click.BadParameter("there is nothing in it: say it in a word or two")
    return line


def _stored(words: str) -> str:
    return " ".join(words.replace("\0", "").encode("utf-8", "replace").decode().split())


def recorded(who: str | None, why: str | None) -> str:
    """Return who did something, and why, as it is kept with the task."""
    try:
        name = who or _stored(getpass.getuser())
    except (OSError, KeyError):  # a container's user may have none
        fail("say who you are with --by NAME", 2)
    return f"{name}: {why}" if why else name


_by = click.option("--by", callback=one_line, help="Who does it, for the task's story.  [default: the system's user]")
_why = click.option("--why", callback=one_line, help="Why, for the task's story.")
_why_required = click.option("--why", callback=one_line, required=True, help="Why, for the task's story.")


async def _cancel(settings: Settings, task: int, by: str, as_json: bool) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        found = await find.get(connection, None, task)
        if found is None:
            fail(f"there is no task {task}", 2)
        if found.kind == "schedule" and found.conversation is not None:  # with what of it is booked and not said yet
            done = await cancel_followup(connection, Clock(), found.tenant, found.conversation, task, by=by)
        else:
            done = await cancel_tasks(connection, Clock(), found.tenant, [task], by=by)
    if not done.cancelled and not done.raced:
        fail(f"task {task} is {found.state}: only a task that is scheduled or firing can be cancelled", 2)
    elif as_json:
        click.echo(json.dumps({"cancelled": list(done.cancelled), "raced": list(done.raced)}))
    else:
        for each in sorted([*done.cancelled, *done.raced]):
            click.echo(
                f"task {each}: " + ("cancelled" if each in done.cancelled else "already being performed (raced)")
            )


async def _cancel_labelled(
    settings: Settings, tenant: str, dry_run: bool, by: str, as_json: bool, **labels: str | None
) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        await _check_tenant(connection, tenant)
        if dry_run:
            count = await count_labelled(connection, tenant, **labels)
        else:
            done = await cancel_labelled(connection, Clock(), tenant, by=by, **labels)
    if dry_run:
        click.echo(json.dumps({"would_cancel_count": count}) if as_json else f"{_tasks(count)} would be cancelled")
    elif as_json:
        click.echo(json.dumps({"cancelled": list(done.cancelled), "raced": list(done.raced)}))
    else:
        raced = f", {len(done.raced)} already being performed (raced)" if done.raced else ""
        click.echo(f"{_tasks(len(done.cancelled))} cancelled{raced}")


def _tasks(count: int) -> str:
    return f"{count} {'task' if count == 1 else 'tasks'}"


@tasks.command()
@click.argument("task", required=False, type=_TASK)
@click.option("--tenant", callback=as_text, help="With a label: whose tasks.")
@_labels
@click.option("--dry-run", is_flag=True, help="With a label: only count them.")
@_by
@_why
@_as_json
def cancel(
    task: int | None,
    tenant: str | None,
    dry_run: bool,
    by: str | None,
    why: str | None,
    as_json: bool,
    **labels: str | None,
) -> None:
    """Cancel a task that is not done yet, or all of a tenant's under a label.

    Of one that comes again in a conversation, named by its number, also what of it is booked and not said yet.
    """
    count = sum(label is not None for label in labels.values())
    if task is not None and tenant is None and not count and not dry_run:
        run(_cancel)(task=task, by=recorded(by, why), as_json=as_json)
    elif task is None and tenant is not None and count == 1:
        run(_cancel_labelled)(tenant=tenant, dry_run=dry_run, by=recorded(by, why), as_json=as_json, **labels)
    else:
        raise click.UsageError(
            "name a task by its number, or say --tenant with one of --subject, --key and --key-prefix, and --dry-run to count"
        )


async def _move_these(database: Database, ids: Sequence[int], starts: str, move: Move, by: str, is_dry: bool) -> None:
    """Move these tasks, all or none. Ends with a line for each that is not in the state the move starts from."""
    async with database.transaction() as connection:
        wrong = []
        for task in ids:
            found = await find.get(connection, None, task)
            if found is None:
                wrong.append(f"there is no task {task}")
            elif found.state != starts or not (is_dry or await move(connection, Clock(), found.tenant, task, by)):
                wrong.append(f"task {task} is {found.state}, not {starts}: {INSTEAD[found.state]}")
        if wrong:
            fail("\nvuelvo: ".join([*wrong, "nothing was done"] if len(ids) > 1 else wrong), 2)


async def _move_failed(database: Database, tenant: str | None, move: Move, by: str, is_dry: bool) -> Sequence[int]:
    """Move what is failed now, some at a time; what fails anew meanwhile, or is moved by somebody else, is left alone."""
    async with database.transaction() as connection:
        await _check_tenant(connection, tenant)
        failed = await find.failed(connection, tenant)
    if is_dry:
        return [task for _, task in failed]
    moved: list[int] = []
    for start in range(0, len(failed), AT_A_TIME):
        some = failed[start : start + AT_A_TIME]
        async with database.transaction() as connection:
            moved += [task for whose, task in some if await move(connection, Clock(), whose, task, by)]
    return moved


def _move_many(move: Move, done: str, **given: Any) -> None:
    if given["all_failed"] == bool(given["ids"]) or (given["tenant"] is not None and not given["all_failed"]):
        raise click.UsageError(
            "name tasks by their numbers, or say --all --status failed, with --tenant for one tenant's"
        )
    run(_moved)(move, done, **given)


async def _moved(
    settings: Settings,
    move: Move,
    done: str,
    *,
    ids: Sequence[int],
    all_failed: bool,
    tenant: str | None,
    dry_run: bool,
    by: str,
    as_json: bool,
) -> None:
    async with opened(settings) as database:
        if all_failed:
            ids = await _move_failed(database, tenant, move, by, dry_run)
        else:
            ids = list(dict.fromkeys(ids))
            await _move_these(database, ids, "failed", move, by, dry_run)
        if move is operate.retry and ids and not dry_run:
            async with database.transaction() as connection:
                await notify(connection, [DUE])
    words = f"would be {done}" if dry_run else done
    if as_json:
        click.echo(json.dumps({words.replace(" ", "_"): list(ids)}))
    elif dry_run or all_failed:
        click.echo(f"{_tasks(len(ids))} {words}")
    else:
        for task in ids:
            click.echo(f"task {task}: {words}")


def _of_failed(command: Callable[..., None]) -> Callable[..., None]:
    """Add what is common to the commands that move failed tasks."""
    for add in (
        _as_json,
        click.option("--dry-run", is_flag=True, help="Only count them."),
        _by,
        click.option("--tenant", help="With --all: only this tenant's."),
        click.option("--status", type=click.Choice(["failed"]), default="failed", help="With --all: which."),
        click.option("--all", "all_failed", is_flag=True, help="All that are failed now."),
        click.argument("ids", metavar="[ID]...", nargs=-1, type=_TASK),
    ):
        command = add(command)
    return command


@tasks.command()
@_of_failed
@_why
def retry(status: str, by: str | None, why: str | None, **given: Any) -> None:
    """Have failed tasks done again, now. What was written already is sent as it is."""
    _move_many(operate.retry, "retried", by=recorded(by, why), **given)


@tasks.command()
@_of_failed
@_why_required
def discard(status: str, by: str | None, why: str | None, **given: Any) -> None:
    """Put failed tasks away: nothing more comes of them."""
    _move_many(operate.discard, "discarded", by=recorded(by, why), **given)


async def _settle(settings: Settings, task: int, delivered: bool, by: str, as_json: bool) -> None:
    async def move(connection: AsyncConnection, clock: Clock, tenant: str, task: int, by: str) -> bool:
        return await operate.settle(connection, clock, tenant, task, by, is_delivered=delivered)

    async with opened(settings) as database:
        await _move_these(database, [task], "uncertain", move, by, is_dry=False)
    state = "fired" if delivered else "failed"
    if as_json:
        click.echo(json.dumps({"id": task, "state": state}))
    else:
        click.echo(f"task {task}: {state}" + ("" if delivered else f"; {INSTEAD['failed']}"))


@tasks.command()
@click.argument("task", metavar="ID", type=_TASK)
@click.option("--delivered", is_flag=True, help="It arrived, as you have seen.")
@click.option("--not-delivered", is_flag=True, help="It did not. One of the two is required.")
@_by
@_why_required
@_as_json
def settle(task: int, delivered: bool, not_delivered: bool, by: str | None, why: str | None, as_json: bool) -> None:
    """Say of an uncertain task whether it arrived. It is not sent again by that."""
    if delivered == not_delivered:
        raise click.UsageError("say --delivered or --not-delivered, one of the two")
    run(_settle)(task=task, delivered=delivered, by=recorded(by, why), as_json=as_json)
