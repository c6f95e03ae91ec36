"""Schedules: how soon a cron expression's next run is known, and what a hundred thousand that fall due at once do to others."""

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import SecretStr
from sqlalchemy import text

from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import apply_tenants, running
from benchmarks.main_job import instant_model
from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from scheduler.book import Booking, book
from scheduler.cron import parse
from scheduler.errors import BadSchedule
from scheduler.poller import DUE
from store import contacts, conversations
from store.contacts import Contact
from store.database import Database, bucket_of

EXPRESSIONS = (
    "* * * * *",
    "0 9 * * 1-5",
    "30 2 * * *",
    "*/15 9-17 * * mon-fri",
    "0 0 29 2 *",
    "0 0 13 * 5",
    "0 0 */28 2 1",
)
NEVER = ("0 0 30 2 *", "60 * * * *", "0 0 31 4,6,9,11 *", "* * * * 8")
CROWD = "crowd"
"""The tenant whose schedules fall due at once."""
OTHER = "demo"
FILL = """
insert into tasks (bucket, tenant, kind, conversation, channel, payload, due_at, booked_for, lane, key, idempotency_key)
select :bucket, :tenant, 'schedule', :conversation, 'web', cast(:payload as jsonb), :due + n * interval '0.1 ms',
       :due + n * interval '0.1 ms', false, 'chat:' || n, 'schedule:chat:' || n
  from generate_series(1, :rows) as n
"""


def next_runs(runs: int, times: int = 2000) -> list[Measure]:
    """Return microseconds for the next run of each expression, from times spread over four years, and for a refusal."""
    zone, begin = ZoneInfo("Europe/Madrid"), datetime(2026, 1, 1, tzinfo=UTC)
    taken: dict[str, list[float]] = {}
    for _ in range(runs):
        for expression in EXPRESSIONS:
            cron, each = parse(expression, zone), []
            for number in range(times):
                after = begin + number * timedelta(hours=17, minutes=31)
                began = time.perf_counter()
                cron.next_run(after)
                each.append((time.perf_counter() - began) * 1e6)
            taken.setdefault(f"{expression}: p50", []).append(statistics.median(each))
            taken.setdefault(f"{expression}: worst", []).append(max(each))
        for expression in NEVER:
            began = time.perf_counter()
            with contextlib.suppress(BadSchedule):
                parse(expression, zone)
            taken.setdefault(f"{expression}: refused", []).append((time.perf_counter() - began) * 1e6)
    return [Measure("next run of a cron expression in Europe/Madrid", "us", taken, is_less_better=True)]


async def crowd(runs: int, rows: int, seconds: float, server: Server | None = None) -> list[Measure]:
    """Let a tenant's schedules fall due within ten seconds, and return by how much another's follow-ups are late."""
    late: dict[str, list[float]] = {"p50": [], "p99": [], "worst": [], "schedules done meanwhile": []}
    async with contextlib.AsyncExitStack() as stack:
        own = server if server is not None else await stack.enter_async_context(own_server())
        for _ in range(runs):
            async with own.database() as name:
                found, done = await _one(own.address(name), rows, seconds)
            late["p50"].append(statistics.median(found))
            late["p99"].append(statistics.quantiles(found, n=100)[98] if len(found) > 1 else found[0])
            late["worst"].append(max(found))
            late["schedules done meanwhile"].append(done)
    return [
        Measure(f"another tenant's follow-ups while {rows:,} schedules are due", "ms late", late, is_less_better=True)
    ]


async def _one(url: str, rows: int, seconds: float) -> tuple[list[float], float]:
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as directory:
        key = SecretStr("a secret key for nothing but benchmarks")
        settings = Settings(data_dir=Path(directory), database_url=url, secret_key=key)
        async with running(settings, model=instant_model(), poll=False) as house:
            given: dict[str, Any] = {"tenant": CROWD, "name": "Crowd", "time_zone": "UTC", "channels": {"web": {}}}
            await apply_tenants(house.service, [TenantConfig.model_validate(given)])
            await _fill(house.service.database, rows)
        async with running(settings, model=instant_model()) as house:
            service, other = house.service, 0
            async with service.database.transaction() as connection:
                other = await _open(connection, OTHER, "somebody else")
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                async with service.database.transaction() as connection:
                    about = {"about": "call Ana", "language": "en", "when": "1s", "is_work": False}
                    soon = Booking(OTHER, "followup", timedelta(seconds=1), other, "web", payload=about)
                    await book(connection, service.clock, soon)
                service.signals.hint(DUE)
                await asyncio.sleep(0.25)
            await asyncio.sleep(5)
            async with service.database.transaction() as connection:
                told = await connection.execute(
                    text(
                        "select extract(epoch from m.at - t.booked_for) * 1000 as ms from tasks t"
                        " left join messages m on m.bucket = t.bucket and m.tenant = t.tenant and m.task = t.id"
                        " where t.tenant = :tenant and t.kind = 'followup'"
                    ),
                    {"tenant": OTHER},
                )
                figures = [row.ms for row in told]
                done = await connection.scalar(
                    text("select count(*) from task_events where tenant = :tenant and event = 'ran'"), {"tenant": CROWD}
                )
    assert None not in figures, f"{figures.count(None)} of {len(figures)} follow-ups were not said in time"
    return [float(ms) for ms in figures], float(done or 0)


async def _open(connection: Any, tenant: str, address: str) -> int:
    contact = await contacts.meet(connection, Contact(tenant, "web", address, address))
    return await conversations.open_conversation(connection, tenant, contact, None)


async def _fill(database: Database, rows: int) -> None:
    payload = {"spec": "every 86400s", "missed": "skip", "max_catch_up": 10, "about": "the crowd", "language": "en"}
    async with database.transaction() as connection:
        now: datetime = await connection.scalar(text("select now()"))
        talks = [await _open(connection, CROWD, f"visitor {number}") for number in range(100)]
        for number, talk in enumerate(talks):
            await connection.execute(
                text(
                    FILL.replace("'chat:' || n", f"'chat:{number}:' || n").replace(
                        "'schedule:chat:' || n", f"'schedule:chat:{number}:' || n"
                    )
                ),
                {
                    "bucket": bucket_of(CROWD),
                    "tenant": CROWD,
                    "conversation": talk,
                    "payload": json.dumps({**payload, "expires_after": 7200}),
                    "due": now + timedelta(seconds=3),
                    "rows": rows // len(talks),
                },
            )
        await connection.execute(text("analyze tasks"))


async def recurring(runs: int, rows: int, seconds: float, server: Server | None = None) -> list[Measure]:
    """Both."""
    return [*next_runs(runs), *await crowd(runs, rows, seconds, server)]
