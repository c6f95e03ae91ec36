"""`vuelvo promises`."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import get_args

import click

from app.cli.run import as_text, fail, opened, run, show
from app.settings import Settings
from scheduler.promises import Line, Span, ledger
from store import tenants

COUNTS = ["promised", "kept", "late", "broken", "unknown", "released", "pending"]


def _row(line: Line) -> dict[str, object]:
    due = line.kept + line.late + line.broken + line.unknown
    share = {"kept_of_due": round(line.kept / due, 4) if due else None}
    return {**asdict(line), "since": f"{line.since:%Y-%m-%d}" if line.since else None, **share}


async def _promises(
    settings: Settings,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    by: Span | None,
    as_json: bool,
) -> None:
    async with opened(settings) as database, database.autocommit() as connection:
        if tenant is not None and await tenants.find(connection, tenant) is None:
            fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)
        lines = await ledger(
            connection,
            tenant,
            since=since and since.replace(tzinfo=UTC),
            until=until and until.replace(tzinfo=UTC) + timedelta(days=1),
            by=by,
        )
    rows = [_row(line) for line in lines]
    if not as_json:
        rows = [row | {"kept_of_due": _percent(row["kept_of_due"])} for row in rows]
    show(rows, as_json=as_json, columns=["tenant", *(["since"] if by else []), *COUNTS, "kept_of_due"])


def _percent(share: object) -> str:
    return f"{share:.1%}" if isinstance(share, float) else ""


_DATE = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option("--tenant", callback=as_text, help="Only this tenant's.")
@click.option("--since", type=_DATE, help="Promised for this day (UTC) or later.")
@click.option("--until", type=_DATE, help="Promised for this day (UTC) or earlier.")
@click.option("--by", type=click.Choice(get_args(Span)), help="A line for each day, week (from Monday) or month.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def promises(
    tenant: str | None, since: datetime | None, until: datetime | None, by: Span | None, as_json: bool
) -> None:
    """Show what became of what the assistant promised: of each follow-up that it booked in a conversation.

    Kept is said at most 5 minutes after its time. Released is what the customer took back. The share kept is of what was due.
    """
    run(_promises)(tenant=tenant, since=since, until=until, by=by, as_json=as_json)
