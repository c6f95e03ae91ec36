"""The developer's side of schedules.

    scheduler = Scheduler(time_zone="Europe/Madrid")

    @scheduler.cron("0 9 * * mon-fri", id="digest", missed="run-once")
    async def digest(run: ScheduledRun) -> None: ...

    scheduler.every("30s", heartbeat)              # no id: in memory, every replica its own
    reminder = scheduler.delay("2h", remind, id="reminder:17", missed="run-once")
    await reminder.cancel()

With an `id` a schedule is durable: its next slot is stored, one replica runs each slot, and what was missed follows a policy.
Only when it comes is stored, never the handler: register it at every start, on every replica.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict, Unpack, overload

from sqlalchemy.exc import SQLAlchemyError
from tzlocal import get_localzone_name

from scheduler import recurrence, schedules, settle
from scheduler.clock import Clock
from scheduler.errors import BadSchedule, LostClaim
from scheduler.idle import IdleWatch, LastHeard, Silence
from scheduler.missed import MOST_CAUGHT_UP, Plan, Policy, plan
from scheduler.plain import Present, keep
from scheduler.recurrence import Recurrence, once
from scheduler.schedules import Schedule
from scheduler.task import Task
from store.database import Database
from store.signals import Signals

log = logging.getLogger(__name__)

LOCAL = "local"
"""The zone of this machine."""
AFTER_TROUBLE = 1.0
"""Seconds until what could not be registered is tried again."""
_NEEDS = "schedule:"

Send = Callable[[str, int, str, str], Awaitable[None]]
"""Says words in a tenant's conversation, once for a key."""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One run of one slot, as its handler has it."""

    task_id: str
    """The schedule's id; of one in memory, its handler's name."""
    scheduled_at: datetime
    """The slot that this run is for, not when it began; UTC."""
    fencing_token: int
    """Greater with every claim of the schedule, for ever; hand it on, so that what comes late can be refused. The runs of one
    catch-up share theirs."""
    missed: bool
    """Whether it is run by the policy for what was missed."""
    signal: asyncio.Event
    """Set when the service stops, or the claim is another's by now: come to an end."""
    _send: Send | None = field(default=None, repr=False)
    _said: list[int] = field(default_factory=list, repr=False)

    @property
    def occurrence_key(self) -> str:
        """The same for every run of the slot: use it as an idempotency key."""
        return f"{self.task_id}@{_iso(self.scheduled_at)}"

    async def send(self, conversation: int, words: str, *, tenant: str) -> None:
        """Say something in a tenant's conversation, on its channel, as its assistant. Run again, a slot says it once all the same.

        Raises RuntimeError where there is no service to say it, LookupError where there is no such conversation, ValueError for
        what is empty or too long, KeyReused where the slot said something else in this place when it ran before.
        """
        if self._send is None:
            raise RuntimeError("there is no service here that could send: run it with vuelvo serve or vuelvo work")
        self._said.append(conversation)
        await self._send(tenant, conversation, words, f"{self.occurrence_key}#{len(self._said)}")


Handler = Callable[[ScheduledRun], Awaitable[object]] | Callable[[], Awaitable[object]]
"""An async function; of the run it may know, or nothing."""
Length = str | float | timedelta
"""`30s`, `1h30m`, `10 seconds`, a number of seconds, or a timedelta."""


class Options(TypedDict, total=False):
    """How a schedule is kept."""

    id: str
    """Makes it durable: unique, the same at every start."""
    missed: Policy
    """What becomes of slots that nobody was there to run: `skip` (as a default), `run-once`, `catch-up`."""
    max_catch_up: int
    """How many missed slots are caught up at most: 10."""
    lease: Length
    """How long a claim lasts without a sign of life: the worker's, 60 s."""


class CronOptions(Options, total=False):
    """How one is kept that comes at wall times."""

    time_zone: str
    """IANA name, or `local`; the scheduler's own as a default."""


@dataclass(slots=True, eq=False)
class ScheduledTask:
    """What was scheduled."""

    scheduler: "Scheduler"
    schedule: Schedule
    handler: Handler
    is_durable: bool
    _next: datetime | None = None
    _loop: asyncio.Task[None] | None = None
    _registered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Its id; of one in memory, its handler's name."""
        return self.schedule.id

    @property
    def time_zone(self) -> str | None:
        """The zone its times are read in; None for what is elapsed time."""
        rule = self.schedule.recurrence
        return rule.cron.zone.key if isinstance(rule, recurrence.ByCron) else None

    async def next_run_at(self) -> datetime | None:
        """Return when it comes next, UTC; None when it will not, or is not known before the service has started."""
        return await self.scheduler.next_run_of(self)

    async def cancel(self) -> None:
        """Let it come no more, here and, if it is durable, on every replica. A run in hand is its last."""
        await self.scheduler.cancel(self)


Decorator = Callable[[Handler], ScheduledTask]


@dataclass(frozen=True, slots=True)
class Engine:
    """What durable schedules run on."""

    database: Database
    clock: Clock
    signals: Signals
    grace: timedelta
    """A slot that is claimed later than this after it was due is missed."""
    send: Send | None = None
    last_heard: LastHeard | None = None


class Scheduler:
    """The schedules of one application. Register them when it is loaded, on every replica; or while it runs."""

    def __init__(self, *, time_zone: str = LOCAL, clock: Clock | None = None) -> None:
        """`time_zone` is that of every cron schedule that names none: an IANA name, or `local`, this machine's.

        Raises BadSchedule for a zone that is not known here.
        """
        self.time_zone = _zone(time_zone)
        self._clock = clock or Clock()
        self._engine: Engine | None = None
        self._present = Present(self._clock, None)
        self._plain: list[ScheduledTask] = []
        self._durable: dict[str, ScheduledTask] = {}
        self._watches: list[IdleWatch] = []
        self._signals: dict[asyncio.Event, Task | None] = {}
        self._registering: set[asyncio.Task[None]] = set()
        self._tokens = 0
        self._is_running = False
        self.offers: set[str] = set()
        """What a worker with these handlers can run."""

    @property
    def ids(self) -> set[str]:
        """The ids of what is durable."""
        return set(self._durable)

    # ---- Registering

    @overload
    def cron(self, expression: str, handler: Handler, **options: Unpack[CronOptions]) -> ScheduledTask: ...
    @overload
    def cron(self, expression: str, **options: Unpack[CronOptions]) -> Decorator: ...
    def cron(
        self, expression: str, handler: Handler | None = None, **options: Unpack[CronOptions]
    ) -> ScheduledTask | Decorator:
        """Run a handler at the times of five fields, in a zone; as a call, or as a decorator.

        Raises BadSchedule for an expression that can never fire, an unknown zone, an id that is taken, or a bad option.
        """
        zone = options.pop("time_zone", None)
        return self._register(
            recurrence.by_cron(expression, self.time_zone if zone is None else _zone(zone)), handler, options
        )

    @overload
    def every(self, interval: Length, handler: Handler, **options: Unpack[Options]) -> ScheduledTask: ...
    @overload
    def every(self, interval: Length, **options: Unpack[Options]) -> Decorator: ...
    def every(
        self, interval: Length, handler: Handler | None = None, **options: Unpack[Options]
    ) -> ScheduledTask | Decorator:
        """Run a handler every so often, whatever the clocks do: `30s`, `1h30m`, a number of seconds, a timedelta.

        Raises BadSchedule for less than a second, an id that is taken, or a bad option; a zone is one.
        """
        return self._register(recurrence.every(interval), handler, options)

    @overload
    def delay(self, delay: Length, handler: Handler, **options: Unpack[Options]) -> ScheduledTask: ...
    @overload
    def delay(self, delay: Length, **options: Unpack[Options]) -> Decorator: ...
    def delay(
        self, delay: Length, handler: Handler | None = None, **options: Unpack[Options]
    ) -> ScheduledTask | Decorator:
        """Run a handler once, so long from now. With an id, from when it was registered first.

        One that has run stays stored, so that it does not run again when it is registered again, until it is cancelled or
        forgotten. Raises BadSchedule for what is no delay, an id that is taken, or a bad option; a zone is one.
        """
        return self._register(once(delay), handler, options)

    def _register(
        self, rule: Recurrence, handler: Handler | None, options: CronOptions | Options
    ) -> ScheduledTask | Decorator:
        if unknown := set(options) - Options.__annotations__.keys():
            why = ": a zone is for cron alone, elapsed time is the same in all" if "time_zone" in unknown else ""
            raise BadSchedule(f"there is no option {', '.join(sorted(unknown))} here{why}")
        if handler is None:
            return lambda given: self._add(rule, given, options)
        return self._add(rule, handler, options)

    def _add(self, rule: Recurrence, handler: Handler, options: Options) -> ScheduledTask:
        name = getattr(handler, "__qualname__", type(handler).__name__)
        if not (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)):
            raise BadSchedule(f"{name} is not an async function: write `async def`")
        id, lease = options.get("id"), options.get("lease")
        schedule = Schedule(
            name if id is None else id,
            rule,
            options.get("missed", "skip"),
            options.get("max_catch_up", MOST_CAUGHT_UP),
            None if lease is None else once(lease).delay,
            None if id is None else f"{_NEEDS}{id}",
        )
        task = ScheduledTask(self, schedule, handler, is_durable=id is not None)
        if id is None:
            self._plain.append(task)
        elif id in self._durable:
            raise BadSchedule(f"the id {id!r} is registered twice: each schedule needs one of its own")
        else:
            self._durable[id] = task
        if self._is_running:
            self._begin(task)
        return task

    def on_idle(
        self,
        conversation: int | None,
        after: Length,
        handler: Callable[[Silence], Awaitable[object]],
        *,
        tenant: str | None = None,
    ) -> IdleWatch:
        """Run a handler when the customer has written nothing in a conversation for so long; again after the next silence.

        Without a conversation it is for each that is written in from now on, of one tenant or of all. In memory: a restart
        forgets what was silent, and what is written begins it anew. Cancelling the watch ends it. Raises BadSchedule.
        """
        if conversation is not None and tenant is None:
            raise BadSchedule(f"say whose conversation {conversation} is: tenant=")
        watch = IdleWatch(once(after).delay, handler, tenant, conversation)
        self._watches.append(watch)
        if self._is_running and conversation is not None and tenant is not None:
            self._watch(watch, tenant, conversation, is_heard=False)
        return watch

    def heard(self, tenant: str, conversation: int) -> None:
        """Told of each message that a customer has written."""
        for watch in self._watches if self._is_running else ():
            if watch.minds(tenant, conversation):
                self._watch(watch, tenant, conversation, is_heard=True)

    def _watch(self, watch: IdleWatch, tenant: str, conversation: int, *, is_heard: bool) -> None:
        if self._engine is not None and self._engine.last_heard is not None:
            watch.begin(self._present, self._engine.last_heard, tenant, conversation, is_heard=is_heard)

    # ---- Running

    async def start(self, engine: Engine | None = None) -> None:
        """Begin to run what is registered. Without an engine durable schedules are kept in memory, and a warning says so.

        What runs already begins anew. Raises sqlalchemy.exc.SQLAlchemyError when they cannot be stored.
        """
        await self.stop()
        self._engine, self._is_running = engine, True
        if engine is not None:
            self._clock = engine.clock
        self._present = Present(self._clock, engine.database if engine else None)
        if engine is None:
            if self._durable:
                log.warning("there is no database for schedules: those with an id do not survive a restart")
            for task in (*self._plain, *self._durable.values()):
                self._begin(task)
            return
        for task in self._plain:
            self._begin(task)
        for watch in self._watches:
            if watch.tenant is not None and watch.conversation is not None:
                self._watch(watch, watch.tenant, watch.conversation, is_heard=False)
        await self._store(list(self._durable.values()))
        await self._tell_orphans(engine)

    async def stop(self) -> None:
        """Pause: nothing more is run here, what is running is told to end; what is stored stays."""
        self._is_running = False
        self.offers.clear()
        for signal in self._signals:
            signal.set()
        for watch in self._watches:
            watch.rest()
        loops = [task._loop for task in (*self._plain, *self._durable.values()) if task._loop is not None]
        for work in (*loops, *self._registering):
            work.cancel()
        await asyncio.gather(*loops, *self._registering, return_exceptions=True)
        for task in (*self._plain, *self._durable.values()):
            task._loop = None

    def _begin(self, task: ScheduledTask) -> None:
        if task.is_durable and self._engine is not None:
            work = asyncio.create_task(self._store_when_possible(task), name=f"registering {task.id}")
            self._registering.add(work)
            work.add_done_callback(self._registering.discard)
        else:
            task._loop = asyncio.create_task(self._keep(task), name=f"schedule {task.id}")

    async def _store_when_possible(self, task: ScheduledTask) -> None:
        while self._durable.get(task.id) is task:
            try:
                await self._store([task])
                return
            except (SQLAlchemyError, OSError) as problem:
                log.warning("the schedule %s is not stored yet (%s)", task.id, type(problem).__name__)
                await asyncio.sleep(AFTER_TROUBLE)

    async def _store(self, tasks: list[ScheduledTask]) -> None:
        engine = self._engine
        if engine is None or not tasks:
            return
        async with engine.database.transaction() as connection:
            stored = await schedules.register(connection, self._clock, [task.schedule for task in tasks])
            # Cancelled meanwhile, before there was anything to take away.
            for task in tasks:
                if task.id not in self._durable:
                    await schedules.forget(connection, self._clock, task.id)
        for task in tasks:
            if self._durable.get(task.id) is not task:
                continue
            task._next = stored[task.id].next_run_at
            self.offers.add(_NEEDS + task.id)
            task._registered.set()
        engine.signals.hint("due")

    async def _tell_orphans(self, engine: Engine) -> None:
        async with engine.database.autocommit() as connection:
            orphans = await schedules.orphans(connection, list(self.offers))
        if orphans:
            log.warning(
                "%d stored schedules have no handler here and wait for one: %s; vuelvo schedules forget takes one away",
                len(orphans),
                ", ".join(orphans[:10]),
            )

    async def _keep(self, task: ScheduledTask) -> None:
        def tell(at: datetime | None) -> None:
            task._next = at

        async def run(slot: datetime) -> bool:
            self._tokens += 1
            with self._signalled() as signal:
                await self._call(task, ScheduledRun(task.id, slot, self._tokens, False, signal, self._send))
            # Else it was stopped, though the handler would not hear of it; or the handler has cancelled it.
            return not _is_told_to_end() and (task in self._plain or self._durable.get(task.id) is task)

        await keep(task.schedule.recurrence, self._present, run, tell)

    @property
    def _send(self) -> Send | None:
        return self._engine.send if self._engine else None

    @contextmanager
    def _signalled(self, task: Task | None = None) -> Iterator[asyncio.Event]:
        signal = asyncio.Event()
        self._signals[signal] = task
        try:
            yield signal
        finally:
            del self._signals[signal]

    async def _call(self, task: ScheduledTask, run: ScheduledRun) -> str | None:
        """Run a handler; return what went wrong, in words for the operator. Whatever it raises, it has had its run.

        Where it was told to end and swallowed that, the run's signal is set.
        """
        try:
            takes_run = bool(inspect.signature(task.handler).parameters)
            await (task.handler(run) if takes_run else task.handler())  # type: ignore[call-arg]
        except (Exception, SystemExit, asyncio.CancelledError) as problem:
            if isinstance(problem, asyncio.CancelledError) and _is_told_to_end():
                raise
            log.exception("the schedule %s failed at %s", task.id, _iso(run.scheduled_at))
            return _words(problem)
        finally:
            if _is_told_to_end():
                run.signal.set()
        return None

    # ---- Running what is durable

    async def perform(self, task: Task) -> None:
        """Run what a claim of a schedule is for, and put it back until its next slot. Raises LostClaim."""
        engine = self._engine
        mine = self._durable.get(task.key or "")
        if engine is None or mine is None:
            raise LostClaim(f"the schedule of task {task.id} is not registered here any more")
        rule = mine.schedule.recurrence
        if task.payload["spec"] != rule.text:
            # Another version of the application has changed it: the row says when, and with what.
            rule = recurrence.read(task.payload["spec"])
        begun = task.payload.get("run")
        began = bool(begun["missed"]) if begun and datetime.fromisoformat(begun["slot"]) == task.booked_for else None
        todo = plan(
            rule,
            task.booked_for,
            task.claimed_at,
            policy=task.payload["missed"],
            most=task.payload["max_catch_up"],
            grace=engine.grace,
            began_missed=began,
        )
        told = _lines(todo, task.payload["missed"])
        if todo.skipped_from is not None:
            log.warning("the schedule %s missed its time, %s on; %s", mine.id, _iso(todo.skipped_from), told[-1][1])
        if todo.slots:
            async with engine.database.transaction() as connection:
                await schedules.begin(connection, task, todo.slots[0], is_missed=todo.is_missed)
        with self._signalled(task) as signal:
            await self._run_slots(engine, mine, task, rule, todo, told, signal)

    def lose(self, task: Task) -> None:
        """Told of each claim that is another's by now, before its work is cancelled."""
        for signal, of in self._signals.items():
            if of is task:
                signal.set()

    async def _run_slots(
        self,
        engine: Engine,
        mine: ScheduledTask,
        task: Task,
        rule: Recurrence,
        todo: Plan,
        told: list[tuple[str, str]],
        signal: asyncio.Event,
    ) -> None:
        error = None
        slot = None
        try:
            for slot in todo.slots:
                if slot != todo.slots[0] and (signal.is_set() or await self._is_cancelled(engine, task)):
                    # From here on next time, if there is one.
                    await self._go_on(engine, mine, task, slot, _cut_short(told, todo, slot), error)
                    return
                run = ScheduledRun(mine.id, slot, task.fence, todo.is_missed, signal, engine.send)
                error = await self._call(mine, run)
                told.append(("ran", _iso(slot) + (f": {error}" if error else "")))
        except asyncio.CancelledError:
            signal.set()
            if slot is not None and slot != todo.slots[0] and not self._is_running:
                await asyncio.shield(self._go_on(engine, mine, task, slot, _cut_short(told, todo, slot), error))
                return
            raise
        following = todo.following
        if following is None:
            outcome = None if error else "delivered" if todo.slots else "skipped: missed"
            await self._go_on(engine, mine, task, None, told, error, outcome)
            return
        if task.payload["missed"] == "skip" and todo.slots:  # what came during the run is left out
            async with engine.database.autocommit() as connection:
                following = rule.after(todo.slots[-1], await self._clock.now(connection)) or following
        await self._go_on(engine, mine, task, following, told, error)

    async def _is_cancelled(self, engine: Engine, task: Task) -> bool:
        """Tell whether a claim that goes on was cancelled meanwhile. Raises LostClaim."""
        try:
            async with engine.database.autocommit() as connection:
                return await settle.is_cancelled(connection, task)
        except (SQLAlchemyError, OSError):
            return False  # what it commits in the end is refused all the same

    async def _go_on(
        self,
        engine: Engine,
        mine: ScheduledTask,
        task: Task,
        slot: datetime | None,
        told: list[tuple[str, str]],
        error: str | None,
        outcome: str | None = None,
    ) -> None:
        async with engine.database.transaction() as connection:
            await schedules.go_on(connection, self._clock, task, slot, told, error=error, outcome=outcome)
        mine._next = slot

    # ---- Looking, and taking away

    async def next_run_of(self, task: ScheduledTask) -> datetime | None:
        """Return when a task comes next; see ScheduledTask.next_run_at."""
        engine = self._engine
        if not task.is_durable or engine is None:
            return task._next
        await task._registered.wait()
        async with engine.database.autocommit() as connection:
            found = (await schedules.find(connection, [task.id])).get(task.id)
        return found.next_run_at if found else None

    async def cancel(self, task: ScheduledTask) -> None:
        """Let a task come no more; see ScheduledTask.cancel."""
        if task.is_durable:
            await self.forget_task(task.id)
            return
        if task in self._plain:
            self._plain.remove(task)
        task._next = None
        if task._loop is not None and task._loop is not asyncio.current_task():
            task._loop.cancel()

    async def forget_task(self, id: str) -> bool:
        """Take a durable schedule away, here and wherever it is stored, an orphan or one that has run too; tell whether
        there was one. Its fencing token goes on where it was, should it be registered again."""
        mine = self._durable.pop(id, None)
        self.offers.discard(_NEEDS + id)
        if mine is not None:
            mine._next = None
            if mine._loop is not None and mine._loop is not asyncio.current_task():
                mine._loop.cancel()
        if self._engine is None:
            return mine is not None
        async with self._engine.database.transaction() as connection:
            return await schedules.forget(connection, self._clock, id)


def _is_told_to_end() -> bool:
    """Tell whether somebody has cancelled the work at hand; a CancelledError may also come from what a handler awaits."""
    work = asyncio.current_task()
    return work is not None and work.cancelling() > 0


def _words(problem: BaseException) -> str:
    """Return an error as the database can keep it, though it cannot say what it is."""
    try:
        words = f"{type(problem).__name__}: {problem}"
    except Exception:
        words = type(problem).__name__
    return words.encode("utf-8", "replace").decode().replace("\0", "")[:500]


def _lines(todo: Plan, policy: str) -> list[tuple[str, str]]:
    """Return what a schedule's story is told of what was missed."""
    if not todo.is_missed:
        return []
    ran = f"{len(todo.slots)} run, from {_iso(todo.slots[0])}" if todo.slots else "none run"
    skipped = f"; skipped from {_iso(todo.skipped_from)}" if todo.skipped_from else ""
    until = f" until {_iso(todo.following)}" if todo.following and todo.skipped_from else ""
    return [("missed", f"{policy}: {ran}{skipped}{until}")]


def _cut_short(told: list[tuple[str, str]], todo: Plan, slot: datetime) -> list[tuple[str, str]]:
    """Return what the story of a catch-up is told that did not come to this slot."""
    done = f"{todo.slots.index(slot)} run, from {_iso(todo.slots[0])}; not run from {_iso(slot)}"
    return [("missed", f"catch-up: {done}"), *told[1:]]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _zone(name: str) -> str:
    if name == LOCAL:
        name = get_localzone_name() or "UTC"
    return recurrence.zone_called(name).key
