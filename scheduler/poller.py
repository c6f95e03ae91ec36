"""The poller: claims what is due, has it performed, and sleeps until the next is due.

It is woken by a hint (a booking in this process or another) and looks by itself after `interval` at the latest, or after
a second while hints of other processes are not proven to arrive. It never claims more than it has free slots for, and
holds no transaction while a task is performed.

There are four pools of slots, so that slow checks, or a developer's functions, keep neither an answer nor a reminder waiting;
in each of them a tenant gets no more than its share.
"""

import asyncio
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import recovery, retention, settle
from scheduler.batch import Batch
from scheduler.claim import claim, due_buckets, full, next_due
from scheduler.clock import Clock
from scheduler.errors import LostClaim, TryAgain
from scheduler.lease import renew
from scheduler.retry import BUDGET, QUARANTINE, backoff
from scheduler.settle import End
from scheduler.task import Pool, Task
from scheduler.worker import gone, worker_name
from store.database import OUTAGES, Database
from store.signals import Signals

log = logging.getLogger(__name__)

DUE = "due"
"""The topic on which a booking hints that something may be due earlier than thought."""
WHILE_DEAF = 1.0
WHILE_WAITING = 0.5
"""Seconds to sleep while a due task waits for its lane, in case whoever frees it is another process."""
AFTER_TROUBLE = 1.0
CLAIMS = 20
"""At most so many in a row of one pool, before the others are looked at and what the dead held is recovered."""
RESTS = 3
"""Where a tenant holds its share and has much more due, to look for what others have walks through all of it: for so many times
as long as that has taken, but no longer than a poll interval, only what fell due since is looked at."""
HOUR = timedelta(hours=1)


@dataclass(slots=True)
class _Walk:
    """What is due, walked through past the tenants that hold their share."""

    to: datetime | None = None
    """Until when what was due then has been looked at."""
    again_at: float = float("-inf")
    """When it is walked through from its beginning again, by `time.monotonic()`: something may have come to stand there."""


class Poller:
    """One worker: claims tasks and hands each to `perform`, which settles it or returns how it ends."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        signals: Signals,
        perform: Callable[[Task], Awaitable[End | None]],
        *,
        interval: timedelta = timedelta(seconds=5),
        lease: timedelta = timedelta(seconds=60),
        slots: int = 64,
        name: str | None = None,
        by_bucket: bool = False,
        count: Callable[[str, Task], None] = lambda event, task: None,
        delete_old_every: timedelta = HOUR,
        also_delete: Callable[[], Awaitable[object]] | None = None,
        offers: Callable[[], Collection[str]] = tuple,
        on_lost: Callable[[Task], None] = lambda task: None,
    ) -> None:
        """`slots` is how many tasks of each pool are performed at a time.

        `by_bucket` claims and recovers bucket by bucket, as tables that are distributed over servers want it.
        `count` is told of a `lease lost` and of what is `quarantined`. `also_delete` deletes what else is old, of what the
        scheduler knows nothing. `offers` says what this worker has that a task may need. `on_lost` is told of a task whose
        claim is another's by now, before its work is cancelled.
        """
        self._database, self._clock, self._signals, self._perform = database, clock, signals, perform
        self._interval, self._lease, self._slots = interval, lease, slots
        self.name, self._by_bucket = name or worker_name(), by_bucket
        self._count, self._delete_old_every, self._also_delete = count, delete_old_every, also_delete
        self._offers, self._on_lost = offers, on_lost
        self._ends = Batch(database, partial(settle.end_each, clock=clock), is_single=True)
        self._running: dict[Task, asyncio.Task[None]] = {}
        self._stopping = False
        self._loop: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cleaner: asyncio.Task[None] | None = None
        self._recovered_at = float("-inf")
        self._walks: defaultdict[tuple[Pool, int | None], _Walk] = defaultdict(_Walk)
        self._whole_at = float("inf")
        """When what this look has walked through in part only may be walked through whole, by `time.monotonic()`."""
        self._is_unsure = False
        """Whether a claim may have been made whose answer never came."""
        self.beat_at: float | None = None
        """When the poller last looked, by `time.monotonic()`; None before the first look."""

    def start(self) -> None:
        """Begin to claim."""
        self._loop = asyncio.create_task(self._poll(), name="poller")
        self._keeper = asyncio.create_task(self._keep_leases(), name="lease keeper")
        self._cleaner = asyncio.create_task(self._keep_deleting(), name="retention")

    async def stop(self, grace: timedelta = timedelta(seconds=10)) -> None:
        """Claim nothing more, let what is in hand finish within the grace time, and give the rest back.

        Cancelled meanwhile, it gives everything back at once.
        """
        self._stopping = True
        self._signals.hint(DUE)
        until = time.monotonic() + grace.total_seconds()
        try:
            if self._cleaner:
                self._cleaner.cancel()
            if self._loop:
                await asyncio.wait([self._loop], timeout=until - time.monotonic())
            if self._running:
                await asyncio.wait(self._running.values(), timeout=max(until - time.monotonic(), 0))
        finally:
            await _end(self._loop, self._cleaner, *self._running.values())
            await _end(self._keeper)

    async def _poll(self) -> None:
        with self._signals.subscribe(DUE) as hints:
            while not self._stopping:
                try:
                    # A connection of its own, so that it need not wait for one while all others are in use.
                    async with self._database.autocommit(is_planned_once=True) as connection:
                        while not self._stopping:
                            await hints.wait(await self._look(connection))
                    return
                except (*OUTAGES, OSError) as problem:
                    self._is_unsure = True
                    log.warning("the database does not answer (%s); the poller waits for it", _name(problem))
                    pause = AFTER_TROUBLE
                except Exception:  # nobody else would hear of it, and nothing would be performed any more
                    self._is_unsure = True
                    log.exception("the poller stumbled, and goes on")
                    pause = AFTER_TROUBLE
                await hints.wait(pause)

    async def _look(self, connection: AsyncConnection) -> float:
        """Recover, claim and start what is due; return for how many seconds nothing is expected."""
        await self._recover()
        pause = self._interval.total_seconds() if self._signals.is_alive else WHILE_DEAF
        self.beat_at = time.monotonic()
        is_any_claimed = False
        self._whole_at = float("inf")
        asked_at = time.monotonic()
        due = await next_due(connection, self._clock)
        each: dict[Pool, datetime | None] = {
            "speak": due.to_speak,
            "timed": due.timed,
            "background": due.background,
            "application": due.with_needs if self._offers() else None,
        }
        pools = [pool for pool, at in each.items() if due.is_due(at)]
        buckets = await due_buckets(connection, self._clock) if pools and self._by_bucket else [None]
        for bucket in buckets:
            for pool in pools:
                is_any_claimed |= await self._claim(connection, pool, bucket, due.now)
        if is_any_claimed:
            return 0.0
        if due.is_due(due.to_speak):
            pause = min(pause, WHILE_WAITING)
        pause = min(pause, max(self._whole_at - time.monotonic(), 0))
        # By now the database's clock has gone on.
        return min(pause, (due.later - due.now).total_seconds() - time.monotonic() + asked_at) if due.later else pause

    async def _claim(self, connection: AsyncConnection, pool: Pool, bucket: int | None, now: datetime) -> bool:
        """Claim and start what is due in one pool; tell whether there was anything. `now` is when it was seen to be due.

        As long as there is half as much as was asked for, it asks at once for more: the database claims while tasks begin here.
        Where a tenant came to hold its share, what it has due may have hidden what others have: it asks once more without it.
        """
        is_little = False
        for turn in range(CLAIMS):
            held = Counter(task.tenant for task in self._running if task.pool == pool)
            limit = (self._slots - held.total() + 1) // 2
            are_some_full = bool(full(held, limit))
            if limit == 0 or self._stopping or (is_little and not are_some_full):
                return turn > 0  # whoever finishes hints
            claimed = await self._claim_once(connection, pool, limit, held, bucket, now, past_full=are_some_full)
            for task in claimed:
                self._running[task] = asyncio.create_task(self._run(task), name=f"task {task.id}")
            if not claimed:
                return turn > 0
            is_little = len(claimed) < limit // 2
        return True

    async def _claim_once(
        self,
        connection: AsyncConnection,
        pool: Pool,
        limit: int,
        held: Counter[str],
        bucket: int | None,
        now: datetime,
        *,
        past_full: bool,
    ) -> Sequence[Task]:
        walk, began = self._walks[pool, bucket], time.monotonic()
        is_whole = not past_full or walk.to is None or began >= walk.again_at
        since, offers = None if is_whole else walk.to, self._offers() if pool == "application" else ()
        how = (connection, self._clock, self.name, self._lease)
        claimed = await claim(*how, pool, limit, held, bucket, since=since, offers=offers)
        if not past_full:
            return claimed
        if is_whole:
            ended = time.monotonic()
            walk.again_at = ended + min(RESTS * (ended - began), self._interval.total_seconds())
        else:
            self._whole_at = min(self._whole_at, walk.again_at)
        walk.to = claimed[-1].due_at if claimed else now
        return claimed

    async def _recover(self) -> None:
        if time.monotonic() - self._recovered_at < self._lease.total_seconds() / 3 and not self._is_unsure:
            return
        # What is in hand here is alive, however long the database was away, or the loop was blocked.
        await self._renew([task for task in self._running if task.lease is None], self._lease)
        for task in list(self._running):
            if task.lease is not None:
                await self._renew([task], task.lease)
        async with self._database.transaction() as connection:
            dead = gone(await recovery.holders(connection))
            buckets = await recovery.claimed_buckets(connection) if self._by_bucket else [None]
            recovered = sum([await recovery.recover(connection, self._clock, dead, bucket) for bucket in buckets])
            await recovery.expire_held(connection, self._clock)
            if self._is_unsure:
                # Of what bears this worker's name, nobody performs what is not in hand here.
                held = [task.id for task in self._running]
                await recovery.take_back(connection, self._clock, self.name, held)
        self._recovered_at, self._is_unsure = time.monotonic(), False
        if recovered:
            log.warning("recovered %d tasks of workers that died", recovered)

    async def _run(self, task: Task) -> None:
        keeper = asyncio.create_task(self._keep_lease(task, task.lease)) if task.lease is not None else None
        try:
            if task.attempt > QUARANTINE and not task.sending:
                self._count("quarantined", task)
                raise TryAgain("its last attempts ended without a word, as they do when a worker is killed")
            end = await self._perform(task)
            if end is not None:
                await self._ends.do(end)
        except LostClaim as lost:
            self._count("lease lost", task)
            log.warning("%s; nothing was settled", lost)
        except asyncio.CancelledError:
            if self._stopping:
                await self._return(task, error=None, delay=None)
            else:
                log.warning("task %d of tenant %s lost its lease, or was cancelled from within", task.id, task.tenant)
                await self._return(task, error="it was cancelled from within", delay=backoff(task.attempt))
        except TryAgain as problem:
            log.warning("task %d of tenant %s, attempt %d: %s", task.id, task.tenant, task.attempt, problem)
            await self._return(task, error=str(problem), delay=backoff(task.attempt, problem.at_least))
        except OUTAGES as problem:  # an outage is no fault of the task
            log.warning("task %d of tenant %s waits for the database (%s)", task.id, task.tenant, _name(problem))
            await self._return(task, error=None, delay=timedelta(seconds=AFTER_TROUBLE))
        except Exception as problem:
            log.exception("task %d of tenant %s failed at attempt %d", task.id, task.tenant, task.attempt)
            await self._return(task, error=f"{_name(problem)}: {problem}", delay=backoff(task.attempt))
        finally:
            if keeper is not None:
                keeper.cancel()
            self._running.pop(task, None)
            self._signals.hint(DUE)

    async def _return(self, task: Task, *, error: str | None, delay: timedelta | None) -> None:
        """Give a task back, or fail it once its attempts are used up. Whatever cannot be done, the lease will do.

        One whose send was begun is not called failed, since it may have arrived: whoever claims it next finds out.
        """
        try:
            async with self._database.transaction() as connection:
                if error is None:
                    await settle.give_back(connection, self._clock, task, delay=delay)
                elif task.attempt < BUDGET or await settle.is_sending(connection, task):
                    await settle.give_back(connection, self._clock, task, delay=delay, error=storable(error))
                else:
                    await settle.fail(connection, self._clock, task, storable(error))
        except LostClaim:
            self._count("lease lost", task)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("could not give task %d back (%s); its lease will", task.id, _name(problem))

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            await self._renew([task for task in self._running if task.lease is None], self._lease)

    async def _keep_lease(self, task: Task, lease: timedelta) -> None:
        """Renew a lease that is a task's own matter."""
        while True:
            await asyncio.sleep(lease.total_seconds() / 3)
            await self._renew([task], lease)

    async def _renew(self, held: Sequence[Task], lease: timedelta) -> None:
        if not held:
            return
        try:
            async with self._database.autocommit() as connection:
                lost = await renew(connection, self._clock, held, lease)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("could not renew leases (%s)", _name(problem))
            return
        except Exception:  # without a keeper every longer task would lose its lease
            log.exception("the lease keeper stumbled, and goes on")
            return
        for task in lost:
            if work := self._running.get(task):
                self._on_lost(task)
                work.cancel()

    async def delete_old(self) -> None:
        """Delete what ended long ago, as is done every so often by itself."""
        if deleted := await retention.delete_old(self._database, self._clock):
            log.info("deleted %d tasks that ended long ago", deleted)
        if self._also_delete:
            await self._also_delete()

    async def _keep_deleting(self) -> None:
        """Begin somewhere within the first interval, so that processes started together do not all do it at once."""
        pause = self._delete_old_every.total_seconds() * random.random()  # noqa: S311 - no secret
        while True:
            await asyncio.sleep(pause)
            pause = self._delete_old_every.total_seconds()
            try:
                await self.delete_old()
            except (SQLAlchemyError, OSError) as problem:
                log.warning("could not delete what ended long ago (%s)", _name(problem))
            except Exception:  # nobody else would hear of it, and the tables would grow for ever
                log.exception("the deletion of what ended long ago stumbled, and goes on")


async def _end(*works: asyncio.Task[None] | None) -> None:
    begun = [work for work in works if work is not None]
    for work in begun:
        work.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


def _name(problem: BaseException) -> str:
    return type(problem).__name__


def storable(words: str) -> str:
    """Return an error's words as the database can keep them: whatever was thrown may quote whatever came in."""
    return words.encode("utf-8", "replace").decode().replace("\x00", "")[:500]
