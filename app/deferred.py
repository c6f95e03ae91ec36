"""Deferred runs: a function of the developer's, or an address of the tenant's, called once at a time.

The same for HTTP, for a function's context and for the tests: here is checked what may be booked, and here it is booked,
found, cancelled and moved. What is booked never changes; to move a run is to cancel it and to book another, in one transaction.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler import cancel, find, limits
from scheduler.batch import Batch
from scheduler.book import LONGEST_LABEL, Booked, Booking, book_each
from scheduler.cancel import Cancelled
from scheduler.clock import Clock
from scheduler.errors import BadTime, KeyReused, LimitReached
from scheduler.find import Found
from scheduler.limits import LimitsSection
from scheduler.poller import DUE
from scheduler.task import ACTIVE
from scheduler.when import duration
from store.database import Database
from store.signals import Signals, notify

LARGEST_PAYLOAD = 64 * 1024
"""Bytes of JSON."""
MOST_CANCELLED = 10_000
"""Runs that one cancel by a label may meet."""
LARGEST_PAGE = 100
LAST_PAGE = 1_000_000
DEEPEST = 100
"""Objects and arrays within each other in a payload or a result: what is read must be written again, however deep the caller stands."""
STATUSES = ("active", "scheduled", "firing", "fired", "cancelled", "failed", "expired", "uncertain")
"""What a list may be asked for; active is scheduled or firing."""
CALLED = "function"
"""What a worker needs to call an address: nothing; so every worker has it."""
KEY = "run:"
"""Begins the idempotency keys of deferred runs, which other kinds of task have too."""
LONGEST = LONGEST_LABEL - len(KEY)
"""Characters of a key, a subject or an idempotency key."""
CANCELLABLE = ("function", "followup", "notice")
"""Kinds of task that a tenant's server may have booked under a label."""

PATH = re.compile(r"/[A-Za-z0-9_.~/-]{0,199}")


class DeferError(Exception):
    """A deferred run that cannot be booked, found, cancelled or moved; the message says why and the way out."""


class BadBooking(DeferError, ValueError):
    """What was given cannot be booked."""


class PayloadTooLarge(BadBooking):
    """The payload is larger than may be kept."""


class NoSuchFunction(DeferError, LookupError):
    """There is no function at the path."""


class NoSuchTask(DeferError, LookupError):
    """There is no such task of the tenant."""


class TooMany(DeferError):
    """A cancel would meet more than it may."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count:,} tasks have this label, and one cancel takes {MOST_CANCELLED:,} at most: narrow it, by a longer key prefix"
        )
        self.count = count


class Raced(DeferError):
    """What was to be moved has begun, or has ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """What to call, when, with what."""

    path: str
    due: datetime | timedelta
    payload: Mapping[str, Any] | Sequence[Any]
    key: str | None = None
    subject: str | None = None
    idempotency_key: str | None = None
    pin: str | None = None
    """The deployment that alone may perform it."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what was found, and how much there is in all."""

    data: Sequence[Found]
    total: int
    page: int
    per_page: int


def checked(
    path: str,
    payload: object,
    *,
    in_: str | float | timedelta | None = None,
    at: str | datetime | None = None,
    key: str | None = None,
    subject: str | None = None,
    idempotency_key: str | None = None,
    pin: str | None = None,
) -> Run:
    """Return a run that can be booked: `in_` a time from now (a number is seconds), or `at` an instant with its offset.

    Whether an instant is past is known when it is booked. Raises BadBooking, PayloadTooLarge.
    """
    if not isinstance(path, str) or PATH.fullmatch(path) is None:
        raise BadBooking(
            f"the path {str(path)[:60]!r} is no route of a function: it begins with / and has 200 characters at most"
        )
    for name, label in (("key", key), ("subject", subject), ("idempotency_key", idempotency_key)):
        if label is not None:
            check_label(name, label)
    if (in_ is None) == (at is None):
        raise BadBooking("give a time from now (in) or an instant (at), one of the two")
    return Run(
        path, _delay(in_) if in_ is not None else _instant(at), _payload(payload), key, subject, idempotency_key, pin
    )


def check_label(name: str, label: object) -> None:
    """Raise BadBooking for what is no label: empty, too long, or nothing that can be stored."""
    if not isinstance(label, str) or not 0 < len(label) <= LONGEST or not is_storable(label):
        raise BadBooking(f"{name} is a text of 1 to {LONGEST} characters: shorten it, or leave it out")


def _delay(given: str | float | timedelta) -> timedelta:
    if isinstance(given, timedelta):
        if given < timedelta():
            raise BadBooking(f"{given} lies before now: give a time from now")
        given = given.total_seconds()
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise BadBooking(f"in is a duration such as 24h, or a number of seconds, not {type(given).__name__}")
    try:
        # Whatever is longer is refused as it is booked, by the tenant's own limit.
        return min(duration(given, timedelta.max), limits.MOST_LEAD + timedelta(days=1))
    except BadTime as problem:
        raise BadBooking(str(problem)) from problem


def _instant(given: str | datetime | None) -> datetime:
    if isinstance(given, str):
        words = given
        try:
            given = datetime.fromisoformat(words.strip())
        except ValueError as problem:
            raise BadBooking(
                f"at is {words[:60]!r}: write a date and time of ISO 8601, such as 2026-12-24T18:00:00Z"
            ) from problem
    if not isinstance(given, datetime):
        raise BadBooking(f"at is a date and time, not {type(given).__name__}")
    if given.utcoffset() is None:
        raise BadBooking(
            f"at is {given.isoformat()} of no zone: end it with Z or an offset, such as {given.isoformat()}Z"
        )
    try:
        return given.astimezone(UTC)
    except OverflowError as problem:
        raise BadBooking(f"at is {given.isoformat()}, beyond the calendar: give one that is nearer") from problem


def _payload(given: object) -> Mapping[str, Any] | Sequence[Any]:
    if given is None:
        given = {}
    if not isinstance(given, Mapping | list | tuple):
        raise BadBooking(f"the payload is an object or an array, not {type(given).__name__}: put it into one")
    try:
        written = json.dumps(given, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(written.encode())
    except UnicodeEncodeError as problem:
        raise BadBooking("the payload holds half of a surrogate pair, which is no character: take it out") from problem
    except RecursionError as problem:
        raise BadBooking(_TOO_DEEP) from problem
    except (TypeError, ValueError) as problem:
        raise BadBooking(f"the payload cannot be written as JSON: {problem}") from problem
    if size > LARGEST_PAYLOAD:
        raise PayloadTooLarge(
            f"the payload is {size:,} bytes of JSON, and {LARGEST_PAYLOAD:,} may be kept: keep it with you and book its number"
        )
    if holds_zero(written):
        raise BadBooking("the payload holds a zero byte, which no row can keep: take it out")
    if is_deep(written):
        raise BadBooking(_TOO_DEEP)
    return json.loads(written)  # type: ignore[no-any-return]


_TOO_DEEP = f"the payload is nested deeper than {DEEPEST} levels: make it flatter"
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def holds_zero(written: str) -> bool:
    """Tell whether JSON holds a zero byte; a backslash before the words u0000 is none."""
    return _ZERO.search(written) is not None


def is_deep(written: str) -> bool:
    """Tell whether JSON is nested deeper than may be kept."""
    depth = 0
    for mark in re.findall(r"[\[\]{}]", _TEXT.sub("", written)):
        depth += 1 if mark in "[{" else -1
        if depth > DEEPEST:
            return True
    return False


def is_storable(label: str) -> bool:
    """Tell whether a text can be kept: it has no zero byte, and no half of a surrogate pair."""
    return "\0" not in label and not any("\ud800" <= one <= "\udfff" for one in label)


class Deferred:
    """The deferred runs of every tenant of an installation."""

    def __init__(self, database: Database, clock: Clock, signals: Signals) -> None:
        self._database, self._clock, self._signals = database, clock, signals
        # One for each tenant: where one of a tenant's own transactions keeps its bookings waiting, no other's wait with them.
        self._batches: defaultdict[str, Batch[tuple[Booking, LimitsSection], Booked]] = defaultdict(
            lambda: Batch(database, self._book_each)
        )

    async def book(
        self,
        tenant: str,
        run: Run,
        limit: LimitsSection,
        *,
        is_called: bool,
        connection: AsyncConnection | None = None,
    ) -> Booked:
        """Book a run within the tenant's limits; `is_called` says that it is an address, which any worker can call.

        With a `connection` it is booked in the caller's own transaction, and is there once that has committed; without one it
        is committed when this returns. The same idempotency key and payload again returns the first booking.

        Raises BadBooking for what is past or too far away, LimitReached, KeyReused.
        """
        booking = _booking(tenant, run, is_called=is_called)
        if connection is None:
            booked = await self._batches[tenant].do((booking, limit))
            self._signals.hint(DUE)
        else:
            (booked,) = _each(await self._book_each(connection, [(booking, limit)]))
            await notify(connection, [DUE])  # only the database knows when that transaction commits
        return booked

    async def _book_each(
        self, connection: AsyncConnection, given: Sequence[tuple[Booking, LimitsSection]]
    ) -> Sequence[Booked | KeyReused | LimitReached | BadBooking]:
        active = await limits.active(connection, [booking.tenant for booking, _ in given])
        keys = [
            (booking.tenant, booking.idempotency_key) for booking, _ in given if booking.idempotency_key is not None
        ]
        known = await limits.known(connection, keys) if keys else set()
        now = await self._clock.now(connection)
        refused: list[LimitReached | BadBooking | None] = []
        for booking, limit in given:
            key = (booking.tenant, booking.idempotency_key)
            is_new = booking.idempotency_key is None or key not in known
            refusal: LimitReached | BadBooking | None = _untimely(booking.due, now, limit.lead) if is_new else None
            if is_new and refusal is None and active[booking.tenant] >= limit.active:
                refusal = LimitReached(
                    f"{limit.active:,} deferred runs are booked, the most the tenant may have at a time: wait until some"
                    " have run, or cancel what is not wanted any more"
                )
            elif is_new and refusal is None:
                active[booking.tenant] += 1
                known |= {(booking.tenant, booking.idempotency_key)} if booking.idempotency_key is not None else set()
            refused.append(refusal)
        chosen = [booking for (booking, _), refusal in zip(given, refused, strict=True) if refusal is None]
        booked = iter(await book_each(connection, chosen, self._clock) if chosen else [])
        return [refusal or next(booked) for refusal in refused]

    async def find(
        self,
        tenant: str,
        *,
        status: str = "active",
        function: str | None = None,
        key: str | None = None,
        subject: str | None = None,
        page: int = 1,
        per_page: int = 20,
        kinds: Sequence[str] = ("function",),
    ) -> Page:
        """Return a page of a tenant's runs: the next due first, or of those that have ended the last first.

        Raises BadBooking for a status that there is not, or a page that is none.
        """
        check_page(status, page, per_page, function=function, key=key, subject=subject)
        states = ACTIVE if status == "active" else (status,)
        async with self._database.autocommit() as connection:
            rows, total = await find.page_of(
                connection,
                tenant,
                kinds=kinds,
                states=states,
                function=function,
                key=key,
                subject=subject,
                limit=per_page,
                offset=(page - 1) * per_page,
            )
        return Page(rows, total, page, per_page)

    async def get(self, tenant: str, task: int, kinds: Collection[str] = CANCELLABLE) -> Found:
        """Return one task. Raises NoSuchTask."""
        async with self._database.autocommit() as connection:
            found = await find.get(connection, tenant, task)
        if found is None or found.kind not in kinds:
            raise NoSuchTask(f"there is no task {task}: it may have been deleted, long after it ended")
        return found

    async def cancel(
        self,
        tenant: str,
        *,
        subject: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        by: str,
        kinds: Sequence[str] = CANCELLABLE,
    ) -> Cancelled:
        """Cancel what is booked under one label; what is being performed is named as raced.

        Raises BadBooking unless exactly one label is given, TooMany when it is on more than may be cancelled at once.
        """
        labels = one_of(subject=subject, key=key, key_prefix=key_prefix)
        async with self._database.transaction() as connection:
            if (count := await cancel.count_labelled(connection, tenant, kinds=kinds, **labels)) > MOST_CANCELLED:
                raise TooMany(count)
            done = await cancel.cancel_moving(connection, self._clock, tenant, kinds=kinds, by=by, **labels)
            if (count := len(done.cancelled) + len(done.raced)) > MOST_CANCELLED:
                raise TooMany(count)  # some came meanwhile; nothing of it is committed
        return done

    async def would_cancel(
        self,
        tenant: str,
        *,
        subject: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        kinds: Sequence[str] = CANCELLABLE,
    ) -> int:
        """Return how many tasks that would cancel now. Raises BadBooking unless exactly one label is given."""
        labels = one_of(subject=subject, key=key, key_prefix=key_prefix)
        async with self._database.autocommit() as connection:
            return await cancel.count_labelled(connection, tenant, kinds=kinds, **labels)

    async def reschedule(
        self, tenant: str, task: int, due: datetime | timedelta, limit: LimitsSection, *, by: str
    ) -> Booked:
        """Cancel a run and book it anew for another time, in one transaction; return the new one.

        Raises NoSuchTask, Raced when it has begun or ended, BadBooking for what is past or too far away.
        """
        async with self._database.transaction() as connection:
            await limits.active(connection, [tenant])
            found = await find.get(connection, tenant, task)
            if found is None or found.kind not in CANCELLABLE:
                raise NoSuchTask(f"there is no task {task}: it may have been deleted, long after it ended")
            if found.kind != "function":
                raise BadBooking(
                    f"the task {task} is a {found.kind}: runs of functions are moved; cancel it and book another"
                )
            done = await cancel.cancel(connection, self._clock, tenant, [task], kinds=["function"], by=by)
            if not done.cancelled:
                raise Raced(
                    f"the run {task} is {'being performed' if done.raced else found.state}: only what is scheduled can be moved"
                )
            booking = Booking(
                tenant,
                "function",
                due,
                payload=found.payload,
                key=found.key,
                subject=found.subject,
                needs=found.needs,
                parent=task,
            )
            check_time(due, await self._clock.now(connection), limit.lead)
            (booked,) = _each(await book_each(connection, [booking], self._clock))
        self._signals.hint(DUE)
        return booked


def _booking(tenant: str, run: Run, *, is_called: bool) -> Booking:
    needs = CALLED if is_called else needs_of(run.path)
    return Booking(
        tenant,
        "function",
        run.due,
        payload={"path": run.path, "payload": run.payload},
        key=run.key,
        subject=run.subject,
        idempotency_key=None if run.idempotency_key is None else KEY + run.idempotency_key,
        needs=needs if run.pin is None else f"{needs}@{run.pin}",
    )


def needs_of(path: str) -> str:
    """Return what a worker must have to run the developer's function at a path."""
    return f"{CALLED}:{path}"


def offers(paths: Collection[str], deployment: str | None) -> set[str]:
    """Return what a worker with functions at these paths, of a deployment, can do."""
    each = {CALLED, *map(needs_of, paths)}
    return each if deployment is None else each | {f"{one}@{deployment}" for one in each}


def check_time(due: datetime | timedelta, now: datetime, lead: timedelta) -> None:
    """Raise BadBooking for what is past at `now`, or further away than `lead`."""
    if (wrong := _untimely(due, now, lead)) is not None:
        raise wrong


def check_page(status: str, page: int, per_page: int, **labels: str | None) -> None:
    """Raise BadBooking for a status that there is not, a page that is none, or a label that none can be."""
    if status not in STATUSES:
        raise BadBooking(f"there is no status {status!r:.40}: give one of {', '.join(STATUSES)}")
    for name, label in labels.items():
        if label is not None and (not isinstance(label, str) or not is_storable(label)):
            raise BadBooking(f"{name} is a text, and holds no zero byte and no half of a surrogate pair")
    for name, number, most in (("page", page, LAST_PAGE), ("per_page", per_page, LARGEST_PAGE)):
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            raise BadBooking(f"{name} is a number from 1 to {most:,}")


def _untimely(given: datetime | timedelta, now: datetime, lead: timedelta) -> BadBooking | None:
    """Return what is wrong with a time: it is past, which is told with the present, or too far away."""
    due = given if isinstance(given, datetime) else now + given
    if due <= now and isinstance(given, datetime):
        return BadBooking(
            f"at is {due:%Y-%m-%dT%H:%M:%SZ}, which is past: it is now {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
    if due - now > lead:
        return BadBooking(f"that is more than {lead.days} days away, the longest that can be booked")
    return None


def _each(results: Sequence[Booked | Exception]) -> list[Booked]:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Booked)]


def one_of(**labels: str | None) -> dict[str, str]:
    """Return the one label that is given. Raises BadBooking for none, for several, and for what is no label."""
    given = {name: label for name, label in labels.items() if label is not None}
    if len(given) != 1:
        raise BadBooking(f"give exactly one of {', '.join(labels)}, not {' and '.join(given) or 'none'}")
    ((name, label),) = given.items()
    if not isinstance(label, str) or not label or not is_storable(label):
        raise BadBooking(f"{name} is a text of at least one character")
    if name == "key_prefix":
        try:
            find.beyond(label)
        except ValueError as problem:
            raise BadBooking(str(problem)) from problem
    return given
