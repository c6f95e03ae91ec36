"""Renewals: enrolling, moving and closing them, and what is planned for each.

The steps of a renewal are tasks like any other, of the kind `notice`, booked when it is enrolled, under the keys
`renewal:ID:STEP`. When its due day moves, those that have not begun are taken back and booked anew in one transaction; what was
said stays said. Nobody needs to look through renewals to know what goes out: it is on the table of tasks.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from agent.context import Mark, Matter
from app.addresses import keys
from app.cadence_section import AT
from app.service import Service
from app.tenants_file import TenantConfig
from scheduler import find
from scheduler.book import Booking, book_many
from scheduler.cadences import Past, plan
from scheduler.cancel import cancel_prefixed
from scheduler.find import Found
from scheduler.open_hours import instant
from scheduler.poller import DUE
from scheduler.task import ACTIVE
from scheduler.when import LONGEST_LEAD
from store import contacts, renewals
from store.renewals import Renewal, State, Wanted

Became = Literal["new", "moved", "changed", "unchanged"]
"""What became of a renewal that somebody wants: opened; planned anew; changed, but not its plan; as it was."""
KEY = "renewal:"
BATCH = 500
"""Renewals that are planned anew in one transaction."""
MOST_PLANS = 50
"""Plans of one renewal whose steps are shown."""
MOST_MATTERS = 5
"""Renewals of which a turn is told."""


class UnknownCadence(ValueError):
    """A cadence that the tenant has not; the message says which there are."""


def planned_by(tenant: TenantConfig, cadence: str) -> str:
    """Return what tells two plans apart: a hash of the cadence's steps and of the hours."""
    section = tenant.cadences[cadence]
    words = [section.model_dump(mode="json", include={"at", "past", "steps"}), tenant.hours.model_dump(mode="json")]
    return hashlib.sha256(json.dumps([*words, tenant.time_zone], sort_keys=True).encode()).hexdigest()[:16]


async def enrol(service: Service, tenant: TenantConfig, wanted: Sequence[Wanted], by: str) -> list[Became]:
    """Open renewals, or make those that are open what is wanted of them, all in one transaction; return what became of each.

    Subjects must differ. Raises UnknownCadence.
    """
    for one in wanted:
        if one.cadence not in tenant.cadences:
            known = ", ".join(sorted(tenant.cadences)) or "none"
            raise UnknownCadence(f"there is no cadence {one.cadence[:40]!r}; there are: {known}")
    async with service.database.transaction() as connection:
        became = await _enrol(service, connection, tenant, wanted, by)
    service.signals.hint(DUE)
    return [became[one.subject] for one in wanted]


async def _enrol(
    service: Service, connection: AsyncConnection, tenant: TenantConfig, wanted: Sequence[Wanted], by: str
) -> Mapping[str, Became]:
    name, override = tenant.tenant, service.clock.override()
    now = await service.clock.now(connection)
    zones = await _zones(connection, tenant, wanted)
    became: dict[str, Became] = {}
    bookings: list[Booking] = []
    left = list(wanted)
    while left:
        known = await renewals.lock_open(connection, name, [one.subject for one in left])
        fresh = [one for one in left if one.subject not in known]
        marks = {cadence: planned_by(tenant, cadence) for cadence in {one.cadence for one in left}}
        opened = await renewals.insert(connection, name, [(one, marks[one.cadence]) for one in fresh], now=override)
        for one in fresh:
            if (id := opened.get(one.subject)) is not None:
                bookings += _bookings(tenant, one, id, 1, zones[one.subject], now)
                became[one.subject] = "new"
        dues = {opened[one.subject]: f"{one.due}" for one in fresh if one.subject in opened}
        await renewals.note(connection, name, "enrolled", by, dues, now=override)
        met = [(known[one.subject], one) for one in left if one.subject in known]
        done, more = await _change(service, connection, tenant, met, zones, now, by)
        became |= done
        bookings += more
        left = [one for one in fresh if one.subject not in opened]  # opened by somebody else in between
    if bookings:
        await book_many(connection, service.clock, bookings)
    return became


async def _change(
    service: Service,
    connection: AsyncConnection,
    tenant: TenantConfig,
    met: Sequence[tuple[Renewal, Wanted]],
    zones: Mapping[str, ZoneInfo],
    now: datetime,
    by: str,
    *,
    is_anew: bool = False,
) -> tuple[Mapping[str, Became], list[Booking]]:
    """Make open renewals that are locked what is wanted of them; return what became of each and what is to be booked for them.

    All of them are planned where it `is_anew`, else those whose plan is another by it.
    """
    name, override = tenant.tenant, service.clock.override()
    differing = [(renewal, wanted) for renewal, wanted in met if is_anew or wanted != renewal.wanted]
    moved = {renewal.id for renewal, wanted in differing if is_anew or _is_moved(renewal, wanted)}
    raced = await _take_back_all(service, connection, name, sorted(moved), by)
    marks = {cadence: planned_by(tenant, cadence) for cadence in {wanted.cadence for _, wanted in differing}}
    changes = [
        renewals.Change(
            renewal.id,
            wanted,
            marks[wanted.cadence] if renewal.id in moved else renewal.planned_by,
            is_replanned=renewal.id in moved,
            is_new_round=wanted.due != renewal.due,
            raced=raced.get(renewal.id, ()),
        )
        for renewal, wanted in differing
    ]
    numbers = await renewals.change_many(connection, name, changes) if changes else {}
    later = {renewal.id: f"{renewal.due} to {one.due}" for renewal, one in differing if one.due != renewal.due}
    others = {renewal.id: None for renewal, _ in differing if renewal.id not in later}
    await renewals.note(connection, name, "moved", by, later, now=override)
    await renewals.note(connection, name, "planned anew" if is_anew else "changed", by, others, now=override)
    became: dict[str, Became] = {wanted.subject: "unchanged" for _, wanted in met}
    became |= {wanted.subject: "moved" if renewal.id in moved else "changed" for renewal, wanted in differing}
    bookings: list[Booking] = []
    for renewal, wanted in differing:
        if renewal.id in moved:
            said = {*renewal.said, *raced.get(renewal.id, ())}
            zone = zones[wanted.subject]
            bookings += _bookings(tenant, wanted, renewal.id, numbers[renewal.id], zone, now, said=said)
    return became, bookings


def _is_moved(renewal: Renewal, wanted: Wanted) -> bool:
    """Tell whether what is wanted of a renewal is planned otherwise than it is."""
    told = (wanted.due, wanted.cadence, wanted.time_zone)
    return told != (renewal.due, renewal.cadence, renewal.time_zone)


async def _take_back(service: Service, connection: AsyncConnection, renewal: Renewal, by: str) -> list[str]:
    """Cancel what is booked for a renewal; return the steps that had begun already."""
    return (await _take_back_all(service, connection, renewal.tenant, [renewal.id], by)).get(renewal.id, [])


async def _take_back_all(
    service: Service, connection: AsyncConnection, tenant: str, ids: Sequence[int], by: str
) -> Mapping[int, list[str]]:
    """Cancel what is booked for renewals that are locked; return by their ids the steps that had begun already."""
    raced: dict[int, list[str]] = defaultdict(list)
    if not ids:
        return raced
    prefixes = [f"{KEY}{id}:" for id in ids]
    done = await cancel_prefixed(connection, service.clock, tenant, prefixes, kinds=["notice"], by=by)
    for task in done.raced:
        found = await find.get(connection, tenant, task)
        if found is not None and found.key is not None:
            raced[int(found.key.split(":", 2)[1])].append(step_of(found.key))
    return raced


def keys_of(addresses: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the channels and the address keys under which somebody with these addresses is known."""
    return [(channel, key) for channel, address in addresses.items() for key in keys(channel, address)[:1]]


def step_of(key: str) -> str:
    """Return the step whose task has this key."""
    return key.split(":", 2)[2]


def _bookings(
    tenant: TenantConfig,
    wanted: Wanted,
    renewal: int,
    number: int,
    zone: ZoneInfo,
    now: datetime,
    *,
    said: Sequence[str] | set[str] = (),
    past: Past | None = None,
) -> list[Booking]:
    section = tenant.cadences[wanted.cadence]
    steps = [step for step in section.plan if step.name not in said]
    return [
        Booking(
            tenant.tenant,
            "notice",
            planned.at,
            payload={"renewal": renewal, "step": planned.step.name},
            key=f"{KEY}{renewal}:{planned.step.name}",
            subject=wanted.subject,
            idempotency_key=f"{KEY}{renewal}:{number}:{planned.step.name}",
        )
        for planned in plan(steps, wanted.due, zone, tenant.hours.hours, now, past=past or section.past)
    ]


async def _zones(connection: AsyncConnection, tenant: TenantConfig, wanted: Sequence[Wanted]) -> Mapping[str, ZoneInfo]:
    """Return each one's zone by subject: what is said of it, what a channel tells, or else the tenant's."""
    unsaid = [one for one in wanted if one.time_zone is None]
    told = await contacts.zones(connection, tenant.tenant, [pair for one in unsaid for pair in keys_of(one.addresses)])
    found: dict[str, ZoneInfo] = {}
    for one in wanted:
        known = (told[pair] for pair in keys_of(one.addresses) if pair in told)
        found[one.subject] = ZoneInfo(one.time_zone or next(known, tenant.time_zone))
    return found


async def close(service: Service, tenant: str, subject: str, state: State, by: str, detail: str | None = None) -> bool:
    """Close the open renewal under a subject: nothing more is said of it. False when none is open.

    What is being said at this very moment stops before it goes out, where that can still be.
    """
    async with service.database.transaction() as connection:
        renewal = (await renewals.lock_open(connection, tenant, [subject])).get(subject)
        return renewal is not None and await close_locked(service, connection, renewal, state, by, detail)


async def close_locked(
    service: Service, connection: AsyncConnection, renewal: Renewal, state: State, by: str, detail: str | None = None
) -> bool:
    """Close a renewal that is locked; as `close`."""
    now = service.clock.override()
    if not await renewals.close(connection, renewal.tenant, renewal.id, state, now=now):
        return False
    await _take_back(service, connection, renewal, by)
    await renewals.note(connection, renewal.tenant, state, by, {renewal.id: detail}, now=now)
    return True


async def stop_locked(service: Service, connection: AsyncConnection, renewal: Renewal, why: str, by: str) -> bool:
    """Say nothing more of an open renewal that is locked, though it stays open; False when that was so already."""
    if not await renewals.stop(connection, renewal.tenant, renewal.id, why):
        return False
    await _take_back(service, connection, renewal, by)
    await renewals.note(connection, renewal.tenant, "stopped", by, {renewal.id: why}, now=service.clock.override())
    return True


AGAIN = "asked again on"
ASK_AGAIN = "the customer wanted to be asked again today whether they renew"


async def mark(
    service: Service,
    tenant: TenantConfig,
    conversation: int,
    renewal: int,
    what: Mark,
    on: date | None,
    why: str | None,
    hold: Callable[[AsyncConnection], Awaitable[object]],
) -> str:
    """Note what a customer has said of a renewal in their conversation; return what that leads to, for the model.

    `hold` locks whoever asks for it. Raises LookupError for one that is not open there, ValueError for a day that cannot be.
    """
    by, detail = "the customer", None if why is None else why[:500]
    async with service.database.transaction() as connection:
        found = await renewals.get(connection, tenant.tenant, renewal, lock=True)
        if found is None or found.conversation != conversation or found.state != "open":
            raise LookupError("this matter is closed already: nothing more is written about it")
        await hold(connection)
        if what == "ask again":
            assert on is not None
            said = await _ask_again(service, connection, tenant, found, on, by)
        elif what == "call me":
            if await stop_locked(service, connection, found, "call me", by):
                await renewals.note(
                    connection, tenant.tenant, what, by, {found.id: detail}, now=service.clock.override()
                )
            said = "noted: a person of the business is to call them; nothing more is written about it by itself"
        else:
            await close_locked(service, connection, found, "renewed" if what == "renewed" else "lost", by, detail)
            said = "noted: nothing more is written about it"
    service.signals.hint(DUE)
    return said


async def _ask_again(
    service: Service, connection: AsyncConnection, tenant: TenantConfig, renewal: Renewal, on: date, by: str
) -> str:
    """Have a renewal spoken of again on a day, and by those of its steps that come after it."""
    now = await service.clock.now(connection)
    zone = (await _zones(connection, tenant, [renewal.wanted]))[renewal.subject]
    section = tenant.cadences.get(renewal.cadence)
    at = time.fromisoformat(section.at) if section else AT
    opens = tenant.hours.hours.next_open(instant(on, at, zone), zone)
    if opens is None or not now < opens < now + LONGEST_LEAD:
        raise ValueError(f"{on} cannot be: give a day from tomorrow on, within {LONGEST_LEAD.days} days")
    raced = await _take_back(service, connection, renewal, by)
    change = renewals.Change(
        renewal.id, renewal.wanted, renewal.planned_by, is_replanned=True, is_new_round=True, raced=raced
    )
    number = (await renewals.change_many(connection, tenant.tenant, [change]))[renewal.id]
    step = f"{AGAIN} {on}"
    again = Booking(
        tenant.tenant,
        "notice",
        opens,
        payload={"renewal": renewal.id, "step": step, "about": ASK_AGAIN},
        key=f"{KEY}{renewal.id}:{step}",
        subject=renewal.subject,
        idempotency_key=f"{KEY}{renewal.id}:{number}:{step}",
    )
    said = {*renewal.said, *raced}
    rest = _bookings(tenant, renewal.wanted, renewal.id, number, zone, opens, said=said, past="skip") if section else []
    await book_many(connection, service.clock, [again, *rest])
    await renewals.note(connection, tenant.tenant, "ask again", by, {renewal.id: str(on)}, now=service.clock.override())
    return f"noted: they are asked again on {opens.astimezone(zone):%Y-%m-%d %H:%M} ({zone.key})"


async def matters(service: Service, tenant: str, conversation: int) -> Sequence[Matter]:
    """Return what of a customer's the business has written about in a conversation, and is open."""
    async with service.database.autocommit() as connection:
        open_ones = await renewals.open_in(connection, tenant, conversation)
        planned = {
            one.id: await find.search(
                connection, tenant=tenant, states=["scheduled"], kind="notice", key_prefix=f"{KEY}{one.id}:"
            )
            for one in open_ones[:MOST_MATTERS]
        }
    return [
        Matter(
            one.id,
            one.due,
            {"subject": one.subject, **one.fields},
            sorted(task.due_at for task in planned[one.id]),
        )
        for one in open_ones[:MOST_MATTERS]
    ]


async def steps(connection: AsyncConnection, tenant: TenantConfig, renewal: Renewal) -> Sequence[Found]:
    """Return what was booked of a renewal, what is to come and what has ended, by its times.

    Of the steps that its cadence has, and those that were said; of the last plans, where it was planned very often.
    """
    section = tenant.cadences.get(renewal.cadence)
    return await begun(connection, renewal, {*(step.name for step in (section.plan if section else ())), *renewal.said})


async def begun(connection: AsyncConnection, renewal: Renewal, names: Collection[str]) -> Sequence[Found]:
    """Return what was booked of these steps of a renewal, by its times; of the last plans, where it was planned very often."""
    plans = range(max(1, renewal.plan - MOST_PLANS + 1), renewal.plan + 1)
    keys = [f"{KEY}{renewal.id}:{number}:{name}" for number in plans for name in names]
    return await find.keyed(connection, renewal.tenant, keys)


def step_shown(task: Found) -> dict[str, Any]:
    """Return a step of a renewal as JSON; `at` is when it comes, or was to come."""
    return {
        "step": step_of(str(task.key)),
        "at": (task.due_at if task.state in ACTIVE else task.booked_for).astimezone(UTC).isoformat(),
        "state": task.state,
        "hold": task.hold,
        "outcome": task.outcome,
        "error": task.error,
        "task": task.id,
    }


def as_shown(renewal: Renewal) -> dict[str, Any]:
    """Return a renewal as JSON, without where its customer is reached."""
    return {
        "subject": renewal.subject,
        "due": renewal.due.isoformat(),
        "cadence": renewal.cadence,
        "channels": sorted(renewal.addresses),
        "name": renewal.name,
        "language": renewal.language,
        "time_zone": renewal.time_zone,
        "fields": dict(renewal.fields),
        "agreed": renewal.agreed,
        "state": renewal.state,
        "stopped": renewal.stopped,
        "said": list(renewal.said),
        "conversation": renewal.conversation,
    }


@dataclass(frozen=True, slots=True)
class PlannedAnew:
    """What planning anew comes to."""

    renewals: int
    taken_back: int
    booked: int
    same: int
    """Of those that are booked, how many come when they would have come."""


async def plan_anew(
    service: Service, tenant: TenantConfig, cadence: str | None, by: str, *, is_tried: bool
) -> PlannedAnew:
    """Plan open renewals anew that were planned by other steps or hours than those of now; only count where it `is_tried`."""
    total = PlannedAnew(0, 0, 0, 0)
    for name in [cadence] if cadence else sorted(tenant.cadences):
        marks, after = planned_by(tenant, name), 0
        while True:
            async with service.database.transaction() as connection:
                batch = await renewals.planned_otherwise(
                    connection, tenant.tenant, name, marks, after=after, limit=BATCH
                )
                now = await service.clock.now(connection)
                zones = await _zones(connection, tenant, [one.wanted for one in batch])
                bookings: list[Booking] = []
                before = {key: at for one in batch for key, at in (await _booked(connection, one)).items()}
                if is_tried:
                    for one in batch:
                        zone = zones[one.subject]
                        bookings += _bookings(tenant, one.wanted, one.id, one.plan + 1, zone, now, said=one.said)
                elif batch:
                    met = [(one, one.wanted) for one in batch]
                    _, bookings = await _change(service, connection, tenant, met, zones, now, by, is_anew=True)
                    await book_many(connection, service.clock, bookings)
                taken_back, same = len(before), sum(before.get(one.key or "") == one.due for one in bookings)
            total = PlannedAnew(
                total.renewals + len(batch),
                total.taken_back + taken_back,
                total.booked + len(bookings),
                total.same + same,
            )
            if len(batch) < BATCH:
                break
            after = batch[-1].id
    service.signals.hint(DUE)
    return total


async def _booked(connection: AsyncConnection, renewal: Renewal) -> Mapping[str, datetime]:
    """Return when the steps of a renewal come that are booked, by their tasks' keys."""
    tasks = await find.search(
        connection,
        tenant=renewal.tenant,
        states=["scheduled"],
        kind="notice",
        key_prefix=f"{KEY}{renewal.id}:",
        limit=1000,
    )
    return {task.key: task.due_at for task in tasks if task.key}
