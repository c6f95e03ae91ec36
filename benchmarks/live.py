"""Live turns: from an inbound message to its committed reply, with a model that answers at once.

Beside it, in the same process and on the same database: Pydantic AI's own run of the same agent; and a bare script that
runs the same agent and sends the very statements of a turn, as they were overheard from the service, through psycopg.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus
from pydantic import SecretStr
from sqlalchemy import event, text

from agent import turn
from agent.context import TurnContext
from app import inbox
from app.service import Service, voice_of
from app.settings import Settings
from app.wiring import performer, running
from benchmarks.main_job import instant_model
from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from channels.message import Inbound
from scheduler.poller import Poller
from scheduler.task import Task
from store import contacts, conversations
from store.contacts import Contact
from store.messages import Message

TENANT = "demo"
WARM_UP = 20
# Far apart, so that a value overheard tells what it is.
FIRST = {"contacts": 1_000_001, "conversations": 2_000_001, "tasks": 3_000_001}

Turn = Callable[[int], Awaitable[None]]
"""Has the visitor of this number say something, and returns once the reply is committed."""


@dataclass
class Transaction:
    """What was sent at once: with a commit of its own, or a statement that commits by itself."""

    is_alone: bool
    statements: list[tuple[str, Any]] = field(default_factory=list)


def _address(number: int) -> str:
    return f"visitor {number:09}"


async def _open_conversations(service: Service, count: int) -> None:
    async with service.database.transaction() as connection:
        for table, first in FIRST.items():
            await connection.execute(text(f"alter table {table} alter column id restart with {first}"))
        for number in range(count):
            address = _address(number)
            contact = await contacts.meet(connection, Contact(TENANT, "web", address, address))
            opened = await conversations.open_conversation(connection, TENANT, contact, None)
            assert opened == FIRST["conversations"] + number


@asynccontextmanager
async def _served(service: Service) -> AsyncIterator[Turn]:
    """The service's own way: `inbox.receive`, its poller, its story."""
    replied: dict[int, asyncio.Future[None]] = {}
    perform = performer(service)

    async def tell(task: Task) -> None:
        await perform(task)
        replied[task.conversation or 0].set_result(None)

    async def say(number: int) -> None:
        address, conversation = _address(number), FIRST["conversations"] + number
        reply = replied[conversation] = asyncio.get_running_loop().create_future()
        inbound = Inbound(
            tenant=TENANT,
            channel="web",
            address=address,
            address_key=address,
            provider_id=f"{conversation}:{number}",
            text="hello",
        )
        await inbox.receive(service, inbound)
        await reply
        del replied[conversation]

    poller = Poller(service.database, service.clock, service.signals, tell)
    poller.start()
    yield say
    await poller.stop()


@dataclass
class Heard:
    """The statements of one turn, transaction by transaction."""

    receive: list[Transaction] = field(default_factory=list)
    claim: list[Transaction] = field(default_factory=list)
    perform: list[Transaction | None] = field(default_factory=list)
    """None stands where the model was asked."""


async def _overhear(service: Service, say: Turn, number: int, asked: list[Callable[[], None]]) -> Heard:
    """Have one turn taken, and return what it sent. `asked` is called by the model."""
    heard, engine = Heard(), service.database.engine.sync_engine
    own = asyncio.current_task()
    lines: list[psycopg.AsyncConnection[Any]] = []

    def where() -> list[Any]:
        current = asyncio.current_task()
        if current is own:
            return heard.receive
        if current is not None and current.get_name() == "poller":
            return heard.claim
        return heard.perform if current is not None and current.get_name().startswith("task ") else []

    class Overheard(psycopg.AsyncCursor[Any]):
        async def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
            if self.connection.info.transaction_status == TransactionStatus.IDLE:
                where().append(Transaction(self.connection.autocommit))
            if part := where():
                part[-1].statements.append((query if isinstance(query, str) else query.decode(), params))
            return await super().execute(query, params, **how)

    def listen(connection: Any, record: object, proxy: object) -> None:
        lines.append(connection.driver_connection)
        lines[-1].cursor_factory = Overheard

    event.listen(engine, "checkout", listen)
    asked.append(lambda: heard.perform.append(None))
    await say(number)
    asked.clear()
    event.remove(engine, "checkout", listen)
    for line in lines:
        line.cursor_factory = psycopg.AsyncCursor
    heard.claim = [each for each in heard.claim if "claimed as" in each.statements[-1][0]]  # the look that found it
    assert heard.receive
    assert heard.claim
    assert None in heard.perform
    return heard


def _with(given: Any, instead: Mapping[int, int], number: int, other: int) -> Any:
    """Return overheard values for another visitor."""
    if isinstance(given, dict):
        return {name: _with(value, instead, number, other) for name, value in given.items()}
    if isinstance(given, list):
        return [_with(value, instead, number, other) for value in given]
    if isinstance(given, str):
        before = f"{FIRST['conversations'] + number}:{number}"
        return given.replace(_address(number), _address(other)).replace(
            before, f"{FIRST['conversations'] + other}:{other}"
        )
    return instead.get(given, given) if type(given) is int else given


@asynccontextmanager
async def _bare(service: Service, heard: Heard, number: int, task: int, run_model: Turn) -> AsyncIterator[Turn]:
    """The same statements and the same run, with nothing around them."""
    url = service.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    replied: dict[int, asyncio.Future[None]] = {}
    booked = asyncio.Event()
    turns: set[asyncio.Task[None]] = set()
    async with contextlib.AsyncExitStack() as stack:
        idle: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()
        for _ in range(10):
            idle.put_nowait(
                await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
            )

        async def send(transaction: Transaction, instead: Mapping[int, int], other: int) -> list[tuple[Any, ...]]:
            connection, rows = await idle.get(), []
            async with contextlib.nullcontext() if transaction.is_alone else connection.transaction():
                for statement, given in transaction.statements:
                    cursor = await connection.execute(statement.encode(), _with(given, instead, number, other))
                    rows = await cursor.fetchall() if cursor.description else []
            idle.put_nowait(connection)
            return rows

        async def perform(claimed: int, conversation: int) -> None:
            try:
                await steps(claimed, conversation)
                replied[conversation].set_result(None)
            except Exception as problem:
                replied[conversation].set_exception(problem)

        async def steps(claimed: int, conversation: int) -> None:
            other = conversation - FIRST["conversations"]
            instead = {FIRST["conversations"] + number: conversation, task: claimed}
            for transaction in heard.perform:
                if transaction is None:
                    await run_model(other)
                else:
                    await send(transaction, instead, other)

        async def claim() -> None:
            while True:
                await booked.wait()
                booked.clear()
                while rows := await send(heard.claim[0], {}, number):
                    for row in rows:  # by the columns of scheduler.task.CLAIMED
                        turns.add(begun := asyncio.create_task(perform(row[1], row[3])))
                        begun.add_done_callback(turns.discard)

        async def say(other: int) -> None:
            conversation = FIRST["conversations"] + other
            reply = replied[conversation] = asyncio.get_running_loop().create_future()
            instead = {
                FIRST["conversations"] + number: conversation,
                FIRST["contacts"] + number: FIRST["contacts"] + other,
            }
            for transaction in heard.receive:
                await send(transaction, instead, other)
            booked.set()
            await asyncio.wait([reply, claiming], return_when=asyncio.FIRST_COMPLETED)
            if claiming.done():
                claiming.result()
            reply.result()
            del replied[conversation]

        claiming = asyncio.create_task(claim())
        yield say
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)


async def _one_by_one(say: Turn, numbers: Sequence[int]) -> list[float]:
    taken = []
    for number in numbers:
        began = time.perf_counter()
        await asyncio.wait_for(say(number), 60)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def _at_once(say: Turn, numbers: Sequence[int], at_once: int) -> float:
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await asyncio.wait_for(say(number), 60)

    began = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(at_once)])
    return len(numbers) / (time.perf_counter() - began)


async def _check(service: Service, replies: int) -> None:
    async with service.database.transaction() as connection:
        found = await connection.scalar(text("select count(*) from messages where role = 'assistant'"))
        fired = await connection.scalar(text("select count(*) from tasks where state = 'fired'"))
        again = await connection.scalar(text("select count(*) from tasks where attempt > 1"))
    done = f"{found} replies and {fired} turns done, of {replies}; {again} of them tried again"
    assert (found, fired, again) == (replies, replies, 0), done


async def live(runs: int, turns: int, at_once: int, server: Server | None = None) -> list[Measure]:
    """Take turns one by one, then many at once; every turn is a conversation's first."""
    asked: list[Callable[[], None]] = []

    def tell() -> None:
        for each in asked:
            each()

    p50: dict[str, list[float]] = {name: [] for name in ("bare script", "vuelvo", "Pydantic AI's run alone")}
    p99: dict[str, list[float]] = {name: [] for name in p50}
    rates: dict[str, list[float]] = {name: [] for name in p50}
    async with contextlib.AsyncExitStack() as stack:
        own = server if server is not None else await stack.enter_async_context(own_server())
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="vuelvo-bench-"))
        database = await stack.enter_async_context(own.database())
        settings = Settings(
            data_dir=Path(directory),
            database_url=own.address(database),
            secret_key=SecretStr("a secret key for nothing but benchmarks"),
        )
        house = await stack.enter_async_context(running(settings, model=instant_model(tell), poll=False))
        service = house.service
        warm_up = min(WARM_UP, turns)
        each = warm_up + 2 * turns
        await _open_conversations(service, 1 + runs * 2 * each)
        run_model = await _model_run(service)
        numbers = iter(range(1 + runs * 2 * each))
        overheard = next(numbers)
        async with _served(service) as say:
            heard = await _overhear(service, say, overheard, asked)
        for _ in range(runs):
            for name, way in (
                ("bare script", _bare(service, heard, overheard, FIRST["tasks"], run_model)),
                ("vuelvo", _served(service)),
                ("Pydantic AI's run alone", contextlib.nullcontext(run_model)),
            ):
                chosen = [0] * each if name.startswith("Pydantic") else [next(numbers) for _ in range(each)]
                async with way as say:
                    await _one_by_one(say, chosen[:warm_up])
                    taken = await _one_by_one(say, chosen[warm_up : warm_up + turns])
                    rates[name].append(await _at_once(say, chosen[warm_up + turns :], at_once))
                p50[name].append(statistics.median(taken))
                p99[name].append(statistics.quantiles(taken, n=100)[98])
        await _check(service, 1 + runs * 2 * each)
    return [
        Measure(f"inbound message to committed reply, {turns} turns one by one: p50", "ms", p50, is_less_better=True),
        Measure(f"inbound message to committed reply, {turns} turns one by one: p99", "ms", p99, is_less_better=True),
        Measure(f"live turns on one process, {at_once} at once", "turns/s", rates),
    ]


async def _model_run(service: Service) -> Turn:
    """Return the run of the model in a turn of the demo tenant, by itself."""
    tenant = await service.tenant(TENANT)
    assert tenant is not None
    async with service.database.transaction() as connection:
        conversation = await conversations.find(connection, TENANT, FIRST["conversations"])
    assert conversation is not None
    now = datetime.now(UTC)
    said = [Message(1, "customer", "message", "hello", now)]

    async def unheld(_: object) -> None:
        return None

    async def run_model(_: int) -> None:
        context = TurnContext(
            voice=voice_of(tenant, conversation, now, language="en"),
            turn=0,
            database=service.database,
            clock=service.clock,
            reply_to=None,
            asked=said,
            hold=unheld,
            assess=lambda due: (True, ""),
            on_booked=lambda: None,
        )
        model = service.models.find(tenant.agent.model)
        await turn.answer(service.answering, model, context, [], unanswered=said, show=lambda words: None)

    return run_model
