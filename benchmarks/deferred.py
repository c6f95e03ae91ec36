"""Deferred runs: cancelling ten thousand by a label while others book, and booking over HTTP.

The service that is called is a `vuelvo serve` process at its defaults; its clients are connections of this process that send
the next request when the last is answered.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import text

from app.deferred import Deferred, Run, checked
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import apply_tenants, running
from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from benchmarks.visitors import serving
from scheduler.clock import Clock
from scheduler.limits import MOST_ACTIVE, LimitsSection
from store import api_keys, tenants
from store.database import Database, bucket_of
from store.migrate import migrate
from store.signals import Signals

SHOP, BOOKER = "shop", "booker"
"""The tenant whose runs are cancelled, and the one that books meanwhile."""
CONNECTIONS = (1, 2, 4, 8, 16, 32)
DRY_RUNS = 20
EACH = MOST_ACTIVE - 50
"""Bookings of a tenant before the next one's turn comes: a tenant may have no more than so many."""
APP = """
from app.functions import App

app = App(time_zone="UTC")


@app.function("/follow-up")
async def follow_up(given: object) -> None:
    pass
"""
PAYLOAD = {"user": "user_4711", "cart": "c-20261130-17", "words": "your cart is still here"}
FILL = """
insert into tasks (bucket, tenant, kind, payload, due_at, booked_for, lane, needs, key, subject)
select :bucket, :tenant, 'function', cast(:payload as jsonb), now() + interval '30 days' + n * interval '1 s',
       now() + interval '30 days' + n * interval '1 s', false, 'function:/follow-up', 'promo:' || n, 'user_' || n
  from generate_series(1, :rows) as n
"""


async def bulk_cancel(runs: int, rows: int, others: int, server: Server) -> list[Measure]:
    """Return how long a cancel of `rows` runs by a key prefix takes, and its dry run, among `others` of other tenants."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        async with server.database() as name, _filled(server.address(name), rows, others) as database:
            for what, figure in (await _cancel(database, rows)).items():
                found[what].append(figure)
    title = f"{rows:,} deferred runs of one tenant, {others:,} of others, booking going on"
    return [Measure(title, "ms", found, is_less_better=True)]


@asynccontextmanager
async def _filled(url: str, rows: int, others: int) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        await migrate(database)
        names = [f"other-{number}" for number in range(-(-others // MOST_ACTIVE))]
        async with database.transaction() as connection:
            for name in (SHOP, BOOKER, *names):
                await tenants.apply(connection, name, {}, ())
                count = {SHOP: rows, BOOKER: 0}.get(name, min(others, MOST_ACTIVE))
                payload = json.dumps({"path": "/follow-up", "payload": PAYLOAD})
                given = {"bucket": bucket_of(name), "tenant": name, "payload": payload, "rows": count}
                await connection.execute(text(FILL), given)
        async with database.autocommit() as connection:
            await connection.execute(text("vacuum (analyze) tasks"))
        yield database
    finally:
        await database.close()


async def _cancel(database: Database, rows: int) -> dict[str, float]:
    deferred = Deferred(database, Clock(), Signals(database))
    waits: list[float] = []
    has_booked, is_over = asyncio.Event(), asyncio.Event()

    async def go_on_booking() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            await deferred.book(BOOKER, _a_run(), LimitsSection(active=1_000_000), is_called=False)
            waits.append(_since(began))
            has_booked.set()

    async def until_booked() -> None:
        has_booked.clear()
        await has_booked.wait()

    booking = asyncio.create_task(go_on_booking())
    try:
        for _ in range(50):
            await until_booked()
        dry: list[float] = []
        for _ in range(DRY_RUNS):
            began = time.perf_counter()
            assert await deferred.would_cancel(SHOP, key_prefix="promo:") == rows
            dry.append(_since(began))
        before, began = len(waits), time.perf_counter()
        done = await deferred.cancel(SHOP, key_prefix="promo:", by="the benchmark")
        took = _since(began)
        await until_booked()
        assert (len(done.cancelled), len(done.raced)) == (rows, 0)
    finally:
        is_over.set()
        await booking
    return {
        "cancel": took,
        "dry run, median": statistics.median(dry),
        "dry run, worst": max(dry),
        "a booking meanwhile, worst": max(waits[before:]),
    }


def _a_run() -> Run:
    return checked("/follow-up", PAYLOAD, in_="24h", key="cart:1", subject="user_1")


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


class Client:
    """One connection that books, in the name of one tenant after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keys: Iterator[str]) -> None:
        self._reader, self._writer, self._keys = reader, writer, keys

    async def book(self) -> float:
        """Book one run and return how many ms that took. Raises RuntimeError for any answer but 202."""
        body = json.dumps(PAYLOAD).encode()
        head = (
            "POST /v1/functions/follow-up HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {next(self._keys)}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Vuelvo-Schedule-In: 24h\r\nVuelvo-Key: cart:1\r\nVuelvo-Subject: user_1\r\n\r\n"
        )
        began = time.perf_counter()
        self._writer.write(head.encode() + body)
        told = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(told.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        if not told.startswith(b"http/1.1 202 "):
            raise RuntimeError(f"a booking was answered {told.decode()}{answer.decode()}")
        return _since(began)

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def over_http(runs: int, bookings: int, seconds: float, server: Server) -> list[Measure]:
    """Return how long a booking takes on one connection, and how many are made in a second on ever more."""
    waits: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        async with server.database() as name:
            one, each = await _book(server.address(name), bookings, seconds)
        waits["p50"].append(statistics.median(one))
        waits["p99"].append(statistics.quantiles(one, n=100)[98])
        for connections, rate in each.items():
            rates[f"{connections} connection{'s' if connections > 1 else ''}"].append(rate)
    return [
        Measure(f"a booking over HTTP, {bookings:,} one by one", "ms", waits, is_less_better=True),
        Measure(f"bookings over HTTP, {seconds:g} s of each", "per s", rates),
    ]


async def _book(url: str, bookings: int, seconds: float) -> tuple[list[float], dict[int, float]]:
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as place:
        directory = Path(place)
        (directory / "shop.py").write_text(APP)
        keys = iter(await _keys(url, directory, int(bookings + 2000 * seconds * len(CONNECTIONS)) // EACH + 1))
        each_key = (key for key in keys for _ in range(EACH))
        async with serving(url, directory, VUELVO_APP="shop:app") as service:
            async with _clients(service.port, each_key, 1) as (client,):
                for _ in range(50):  # what is loaded, planned and opened at first use is
                    await client.book()
                one = [await client.book() for _ in range(bookings)]
            rates = {}
            for count in CONNECTIONS:
                async with _clients(service.port, each_key, count) as clients:
                    rates[count] = await _rate(clients, seconds)
    return one, rates


@asynccontextmanager
async def _clients(port: int, keys: Iterator[str], count: int) -> AsyncIterator[list[Client]]:
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port), keys) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def _rate(clients: Sequence[Client], seconds: float) -> float:
    async def go_on(client: Client) -> int:
        count = 0
        while time.perf_counter() < until:
            await client.book()
            count += 1
        return count

    began = time.perf_counter()
    until = began + seconds
    return sum(await asyncio.gather(*map(go_on, clients))) / (time.perf_counter() - began)


async def _keys(url: str, directory: Path, count: int) -> list[str]:
    """Make so many tenants, and return a key of each."""
    key = SecretStr("a secret key for nothing but benchmarks")
    settings = Settings(data_dir=directory, database_url=url, secret_key=key)
    async with running(settings, poll=False) as house:
        usual: dict[str, Any] = {"name": "Shop", "time_zone": "UTC", "channels": {"web": {}}}
        configs = [TenantConfig.model_validate({**usual, "tenant": f"shop-{number}"}) for number in range(count)]
        await apply_tenants(house.service, configs)
        async with house.service.database.transaction() as connection:
            return [(await api_keys.create(connection, config.tenant))[1] for config in configs]


async def deferred(
    runs: int, rows: int, others: int, bookings: int, seconds: float, server: Server | None = None
) -> list[Measure]:
    """Both."""
    if server is None:
        async with own_server() as own:
            return await deferred(runs, rows, others, bookings, seconds, own)
    return [
        *await bulk_cancel(runs, rows, others, server),
        *await over_http(runs, bookings, seconds, server),
    ]
