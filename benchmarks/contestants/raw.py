"""What PostgreSQL and psycopg allow: a script that keeps Vuelvo's rows, indexes, lane and event log, and nothing else.

No tenants' shares, no elders, no holds, no recovery, no renewal of leases. It completes one batch and claims the next in one transaction, sent as one
pipeline; the fence is compared.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg

from benchmarks.contestants.contestant import Signal, Started
from benchmarks.contestants.vuelvo import CONVERSATIONS, TENANT, Vuelvo, fill
from store.database import bucket_of

BATCH = 500
CONNECTIONS = 4
CAP = 5.0
"""Seconds to sleep at most."""
CHANNEL = "raw"

CLAIM = f"""
with due as materialized (
    select t.bucket, t.tenant, t.id, t.conversation
      from tasks t
      join conversations c on c.bucket = t.bucket and c.tenant = t.tenant and c.id = t.conversation
     where t.state = 'scheduled' and t.hold is null and t.lane and t.due_at <= now() and c.lane_task is null
     order by t.due_at, t.id
     limit {BATCH}
       for update of t, c skip locked),
first as (select distinct on (bucket, tenant, conversation) * from due order by bucket, tenant, conversation, id),
claimed as (
    update tasks t
       set state = 'firing', fence = t.fence + 1, attempt = t.attempt + 1, worker = 'raw', claimed_at = now(),
           lease_until = now() + interval '60 seconds'
      from first
     where t.bucket = first.bucket and t.tenant = first.tenant and t.id = first.id
 returning t.*),
noted as (
    insert into task_events (bucket, tenant, task, at, event, fence, detail)
    select bucket, tenant, id, now(), 'claimed', fence, worker from claimed),
held as (
    update conversations c set lane_task = claimed.id, lane_fence = claimed.fence
      from claimed
     where c.bucket = claimed.bucket and c.tenant = claimed.tenant and c.id = claimed.conversation)
select bucket, tenant, id, fence, due_at, conversation, payload from claimed order by due_at, id
"""

COMPLETE = """
with given as materialized (
    select * from unnest(%s::smallint[], %s::text[], %s::bigint[], %s::bigint[]) as g (bucket, tenant, id, fence)),
done as (
    update tasks t
       set state = 'fired', outcome = 'delivered', worker = null, lease_until = null, sending = false, ended_at = now()
      from given
     where t.bucket = given.bucket and t.tenant = given.tenant and t.id = given.id and t.fence = given.fence
 returning t.*),
freed as (
    update conversations c set lane_task = null, lane_fence = null
      from done
     where c.bucket = done.bucket and c.tenant = done.tenant and c.id = done.conversation
       and c.lane_task = done.id and c.lane_fence = done.fence),
noted as (
    insert into task_events (bucket, tenant, task, at, event, fence, detail)
    select bucket, tenant, id, now(), state, fence, outcome from done)
select count(*) from done
"""

NEXT = """
select extract(epoch from min(due_at) - now())::float from tasks
 where state = 'scheduled' and hold is null and lane and due_at > now()
"""

BOOK = """
with booked as (
    insert into tasks (bucket, tenant, kind, conversation, channel, payload, due_at, booked_for, lane, key, subject,
                       idempotency_key, payload_hash)
    select g.bucket, g.tenant, 'turn', g.conversation, 'web', g.payload::jsonb, now() + g.delay, now() + g.delay, true,
           g.key, g.subject, g.idempotency_key, g.payload_hash
      from {rows} as g (bucket, tenant, conversation, payload, delay, key, subject, idempotency_key, payload_hash)
 returning *)
insert into task_events (bucket, tenant, task, at, event, fence, detail)
select bucket, tenant, id, created_at, 'booked', fence, kind from booked
"""
BOOK_ONE = BOOK.format(
    rows="(values (%s::smallint, %s::text, %s::bigint, %s::text, %s::interval, %s::text, %s::text, %s::text, %s::bytea))"
)
BOOK_MANY = BOOK.format(
    rows="unnest(%s::smallint[], %s::text[], %s::bigint[], %s::text[], %s::interval[], %s::text[], %s::text[],"
    " %s::text[], %s::bytea[])"
)

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


async def connect(url: str) -> Connection:
    """Open a connection that commits by itself, and whose plans look rows up in indexes as memory and SSDs allow.

    With the default costs the planner reads the whole of a small table for 500 keys.
    """
    return await psycopg.AsyncConnection.connect(url, autocommit=True, options="-c random_page_cost=1.1")


class _Client:
    def __init__(self, idle: asyncio.Queue[Connection], conversations: Sequence[int]) -> None:
        self._idle, self._conversations = idle, conversations

    def _row(self, number: int, delay: timedelta) -> tuple[Any, ...]:
        payload = {"about": "call Ana"}
        conversation = self._conversations[number % len(self._conversations)]
        same = json.dumps(["turn", conversation, payload], sort_keys=True, separators=(",", ":"))
        return (
            *(bucket_of(TENANT), TENANT, conversation, json.dumps(payload), delay),
            *(f"order:{number}", f"customer:{number % 1000}", f"booking:{number}"),
            hashlib.sha256(same.encode()).digest(),
        )

    async def _execute(self, statement: str, given: Sequence[Any], delay: timedelta) -> None:
        connection = await self._idle.get()
        await connection.execute(statement.encode(), given, prepare=True)
        if delay.total_seconds() < CAP:  # what is due later is found in time without a word
            await connection.execute(f"notify {CHANNEL}")
        self._idle.put_nowait(connection)

    async def book(self, number: int, delay: timedelta) -> None:
        await self._execute(BOOK_ONE, self._row(number, delay), delay)

    async def book_many(self, numbers: Sequence[int], delay: timedelta) -> None:
        columns = zip(*(self._row(number, delay) for number in numbers), strict=True)
        await self._execute(BOOK_MANY, [list(column) for column in columns], delay)


class Raw:
    """The bound to compare with."""

    name = "raw"
    has_uvloop = True
    share = 1.0
    is_busy = Vuelvo.is_busy
    booked = Vuelvo.booked
    finished = Vuelvo.finished

    async def fill(self, url: str, due: int, future: int) -> None:
        """The very tables of Vuelvo."""
        await fill(url, due, future)

    @asynccontextmanager
    async def client(self, url: str, at_once: int) -> AsyncIterator[_Client]:
        """Book with one connection for each that books."""
        async with contextlib.AsyncExitStack() as stack:
            idle: asyncio.Queue[Connection] = asyncio.Queue()
            for _ in range(at_once):
                idle.put_nowait(await stack.enter_async_context(await connect(url)))
            connection = await idle.get()
            rows = await connection.execute(f"select id from conversations order by id limit {CONVERSATIONS}".encode())
            conversations = [row[0] for row in await rows.fetchall()]
            idle.put_nowait(connection)
            yield _Client(idle, conversations)

    async def work(self, url: str, started: Started, go: Signal, stop: Signal, *, is_tuned: bool) -> None:
        """Claim and complete on some connections, and listen on one more."""
        async with contextlib.AsyncExitStack() as stack:
            number = CONNECTIONS if is_tuned else 1
            connections = [await stack.enter_async_context(await connect(url)) for _ in range(number)]
            listener = await stack.enter_async_context(await connect(url))
            await listener.execute(f"listen {CHANNEL}".encode())
            woken = asyncio.Event()
            await go()

            async def listen() -> None:
                async for _ in listener.notifies():
                    woken.set()

            tasks = [asyncio.create_task(_claim(connection, started, woken)) for connection in connections]
            tasks.append(asyncio.create_task(listen()))
            await stop()
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result


async def _claim(connection: Connection, started: Started, woken: asyncio.Event) -> None:
    done: list[tuple[Any, ...]] = []
    while True:
        async with connection.pipeline(), connection.transaction():
            if done:
                given = [[row[column] for row in done] for column in range(4)]
                completed = await connection.execute(COMPLETE, given, prepare=True)
            claimed = await connection.execute(CLAIM.encode(), prepare=True)
        if done:
            found = await completed.fetchone()
            assert found is not None
            assert found[0] == len(done), "a claim was lost"
        done = await claimed.fetchall()
        for row in done:
            started(row[4])  # the handler
        if not done:
            woken.clear()
            next_due = await (await connection.execute(NEXT, prepare=True)).fetchone()
            seconds = CAP if next_due is None or next_due[0] is None else min(next_due[0], CAP)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), max(seconds, 0))


CONTESTANT = Raw()
