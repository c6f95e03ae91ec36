"""Vuelvo itself: its poller, its booking, its schema."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from sqlalchemy import text

from benchmarks.contestants.contestant import Signal, Started
from scheduler.batch import Batch
from scheduler.book import Booking, book_each, book_many
from scheduler.clock import Clock
from scheduler.poller import DUE, Poller
from scheduler.settle import End
from scheduler.task import Kind, Task
from store import tenants
from store.database import Database, bucket_of
from store.migrate import migrate
from store.signals import Signals

TENANT = "bench"
CONVERSATIONS = 1000
"""At least so many; jobs are spread over them."""
SLOTS = 2000

# The history of a task begins with its booking, so there is a line of it for each.
FILL = """
with booked as (
    insert into tasks (bucket, tenant, kind, conversation, channel, payload, due_at, booked_for, lane, key, subject)
    select :bucket, :tenant, :kind, :first + n % :conversations, 'web', '{"about": "call Ana"}', due, due, true,
           'batch:' || lpad(cast(n / 10000 as text), 6, '0') || ':' || n, 'customer:' || n / 50
      from generate_series(0, :rows - 1) n,
           lateral (select case when n < :future then now() + interval '30 days' + n * interval '1 second'
                                else now() end as due) as d
     order by n
 returning *)
insert into task_events (bucket, tenant, task, at, event, fence, detail)
select bucket, tenant, id, created_at, 'booked', fence, kind from booked
"""


async def fill(url: str, due: int, future: int, *, kind: Kind = "turn", conversations: int = CONVERSATIONS) -> None:
    """Make Vuelvo's schema and fill it, the future first; every due task has a conversation of its own."""
    database = Database(url)
    await migrate(database)
    conversations = max(due, conversations)
    given = {"bucket": bucket_of(TENANT), "tenant": TENANT}
    async with database.transaction() as connection:
        await tenants.apply(connection, TENANT, {}, ())
        await connection.execute(
            text(
                "insert into contacts (bucket, tenant, channel, address, address_key)"
                " select :bucket, :tenant, 'web', 'visitor ' || n, 'visitor ' || n from generate_series(1, :conversations) n"
            ),
            {**given, "conversations": conversations},
        )
    for statement in (
        "analyze contacts",  # else each row's foreign key is looked up by reading the whole table
        "insert into conversations (bucket, tenant, contact) select bucket, tenant, id from contacts order by id",
        "analyze conversations",
    ):
        async with database.transaction() as connection:
            await connection.execute(text(statement))
    async with database.transaction() as connection:
        first = await connection.scalar(text("select min(id) from conversations"))
        numbers = {"first": first, "future": future, "rows": due + future, "conversations": conversations}
        await connection.execute(text(FILL), {**given, **numbers, "kind": kind})
    await database.close()


async def find_conversations(database: Database) -> Sequence[int]:
    """Return the ids of the conversations jobs are booked in."""
    async with database.transaction() as connection:
        return list(await connection.scalars(text(f"select id from conversations order by id limit {CONVERSATIONS}")))


class _Client:
    def __init__(self, database: Database, signals: Signals, conversations: Sequence[int]) -> None:
        self._database, self._signals, self._conversations = database, signals, conversations
        self._bookings = Batch(database, partial(book_each, clock=Clock()))

    def _booking(self, number: int, delay: timedelta) -> Booking:
        return Booking(
            TENANT,
            "turn",
            delay,
            self._conversations[number % len(self._conversations)],
            "web",
            {"about": "call Ana"},
            key=f"order:{number}",
            subject=f"customer:{number % 1000}",
            idempotency_key=f"booking:{number}",
            lane=True,
        )

    async def book(self, number: int, delay: timedelta) -> None:
        await self._bookings.do(self._booking(number, delay))
        self._signals.hint(DUE)

    async def book_many(self, numbers: Sequence[int], delay: timedelta) -> None:
        async with self._database.transaction() as connection:
            await book_many(connection, Clock(), [self._booking(number, delay) for number in numbers])
        self._signals.hint(DUE)


class Vuelvo:
    """The service's own engine."""

    name = "vuelvo"
    has_uvloop = False
    share = 1.0
    is_busy = (
        "select exists (select from tasks where state = 'scheduled' and hold is null and lane and due_at <= now())"
        " or exists (select from tasks where lease_until is not null)"
    )
    booked = "select count(*) from tasks"
    finished = (
        "select count(*) from tasks t where state = 'fired' and outcome = 'delivered' and 3 ="
        " (select count(*) from task_events e where e.bucket = t.bucket and e.tenant = t.tenant and e.task = t.id)"
        " and not exists (select from conversations where lane_task is not null)"
    )

    async def fill(self, url: str, due: int, future: int) -> None:
        """Fill Vuelvo's schema."""
        await fill(url, due, future)

    @asynccontextmanager
    async def client(self, url: str, at_once: int) -> AsyncIterator[_Client]:
        """Book as the service does: hints go out beside the bookings."""
        database = Database(url, pool_size=at_once)
        signals = Signals(database)
        with signals.subscribe(DUE) as ready:
            await signals.start()
            while not signals.is_alive:  # cut off while it connects, it would leave a connection that a drop waits for
                await ready.wait(1)
        yield _Client(database, signals, await find_conversations(database))
        await signals.stop()
        await database.close()

    async def work(self, url: str, started: Started, go: Signal, stop: Signal, *, is_tuned: bool) -> None:
        """Run a poller whose tasks end at once; the poller ends them in batches."""
        database = Database(url)
        signals = Signals(database)

        async def perform(task: Task) -> End:
            started(task.due_at)
            return End(task, "fired", outcome="delivered")

        slots = SLOTS if is_tuned else 64  # the default
        poller = Poller(database, Clock(), signals, perform, slots=slots)
        await signals.start()
        async with database.transaction() as connection:
            await connection.execute(text("select"))
        await go()
        poller.start()
        await stop()
        await poller.stop()
        await signals.stop()
        await database.close()


CONTESTANT = Vuelvo()
