"""What will go out: the steps of a tenant's renewals that are booked, and what of them would be held or left out as things stand.

It looks at what is on the table, so what it shows is what will be done, unless customers, the tenant's file or the renewals change
until then. Guards are not asked, and budgets not counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from app.cadence_section import StepSection
from app.notices import TOO_LATE
from app.renewals import keys_of
from app.sent import GUARDS
from app.tenants_file import TenantConfig
from scheduler.cadences import next_day
from scheduler.when import known_zone
from store.database import bucket_of, sql

# Both by index: a tenant's notices in their order, and each one's renewal by its number.
BOOKED = """
select t.due_at, t.payload ->> 'step' as step, t.payload ->> 'about' as about, r.id, r.subject, r.name, r.addresses, r.language,
       r.agreed, r.stopped, r.said, r.spoken_at, r.due, r.cadence
  from tasks t
  join renewals r on r.bucket = t.bucket and r.tenant = t.tenant and r.id = cast(t.payload ->> 'renewal' as bigint)
 where t.bucket = :bucket and t.tenant = :tenant and t.kind = 'notice' and t.state in ('scheduled', 'firing')
   and t.due_at < :until and t.payload ? 'renewal'
 order by t.due_at, t.id
"""
KNOWN = """
select distinct on (c.channel, c.address_key) c.channel, c.address_key, v.id, v.last_inbound_at, c.stopped, c.time_zone
  from contacts c
  join conversations v on v.bucket = c.bucket and v.tenant = c.tenant and v.contact = c.id
  join unnest(cast(:channels as text[]), cast(:keys as text[])) as g (channel, address_key)
    on g.channel = c.channel and g.address_key = c.address_key
 where c.bucket = :bucket and c.tenant = :tenant
 order by c.channel, c.address_key, v.last_inbound_at desc nulls last, v.id desc
"""


NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """One step that is booked."""

    at: datetime
    """When it will be said as things stand (UTC); what is left out, when it would have been."""
    zone: str
    """Of whoever is written to."""
    subject: str
    name: str | None
    step: str
    channel: str | None
    says: str
    """What it is about, or its text, as the file has it."""
    held: str | None
    """Why it comes later than booked, or not at all."""
    is_left_out: bool


@dataclass(frozen=True, slots=True)
class _Place:
    conversation: int
    channel: str
    heard_at: datetime | None
    stopped: str | None
    zone: str | None


async def upcoming(connection: AsyncConnection, tenant: TenantConfig, now: datetime, days: int) -> Sequence[Upcoming]:
    """Return what is booked of a tenant's renewals for so many days, in the order in which it will be said."""
    given: dict[str, Any] = {"bucket": bucket_of(tenant.tenant), "tenant": tenant.tenant}
    rows = (await connection.execute(sql(BOOKED), {**given, "until": now + timedelta(days=days)})).all()
    reach = {row.id: keys_of(row.addresses) for row in rows}
    pairs = sorted({pair for each in reach.values() for pair in each})
    given |= {"channels": [channel for channel, _ in pairs], "keys": [key for _, key in pairs]}
    known = {
        (row.channel, row.address_key): _Place(row.id, row.channel, row.last_inbound_at, row.stopped, row.time_zone)
        for row in (await connection.execute(sql(KNOWN), given) if pairs else ())
    }
    return sorted(_each(tenant, rows, reach, known, now), key=lambda one: one.at)


def _each(
    tenant: TenantConfig,
    rows: Sequence[Any],
    reach: Mapping[int, Sequence[tuple[str, str]]],
    known: Mapping[tuple[str, str], _Place],
    now: datetime,
) -> Iterator[Upcoming]:
    there = {channel for channel in ("web", "telegram", "whatsapp") if getattr(tenant.channels, channel) is not None}
    steps = {(name, step.called): step for name, section in tenant.cadences.items() for step in section.steps}
    zones: dict[str | None, ZoneInfo] = {None: ZoneInfo(tenant.time_zone)}
    heard: Counter[tuple[int, date]] = Counter()
    for row in rows:
        pairs = [pair for pair in reach[row.id] if pair[0] in there]
        places = [known[pair] for pair in pairs if pair in known]
        place = max(places, key=_last, default=None)
        told = place.zone if place else None
        zone = zones.get(told) or zones.setdefault(told, known_zone(told) or zones[None])
        step = steps.get((row.cadence, row.step))
        if row.about is not None:
            step = StepSection(offset="0d", name=row.step, about=row.about)
        why = _why_not(tenant, row, step, place, dict(pairs))
        at, later = max(row.due_at, now), None
        if why is None and step is not None:
            at, later = _when(tenant, row, step, zone, at, heard, place)
            why = TOO_LATE if at is None else None
        channel = place.channel if place else ("whatsapp" if "whatsapp" in dict(pairs) else None)
        yield Upcoming(
            at or row.due_at,
            zone.key,
            row.subject,
            row.name,
            row.step,
            channel,
            _says(step, row.language or tenant.languages[0]),
            why or later,
            why is not None,
        )


def _last(place: _Place) -> tuple[datetime, int]:
    return place.heard_at or NEVER, place.conversation


def _why_not(
    tenant: TenantConfig, row: Any, step: StepSection | None, place: _Place | None, pairs: Mapping[str, str]
) -> str | None:
    """Return why a step is left out, as `app.notices.judge` would say; None where nothing speaks against it."""
    if row.stopped is not None:
        return str(row.stopped)
    if step is None:
        return "not in the tenant's file any more"
    if not row.agreed and (place is None or place.heard_at is None):
        return "no consent"
    if place is None:
        return None if "whatsapp" in pairs else "cannot be reached"
    if place.stopped is not None:
        return GUARDS["customer" if place.stopped == "customer" else "provider"]
    others = [one for one in row.said if one != row.step]
    has_replied = others and place.heard_at and row.spoken_at and place.heard_at > row.spoken_at
    return "replied" if has_replied and "replied" in tenant.cadences[row.cadence].stop else None


def _when(
    tenant: TenantConfig,
    row: Any,
    step: StepSection,
    zone: ZoneInfo,
    at: datetime,
    heard: Counter[tuple[int, date]],
    place: _Place | None,
) -> tuple[datetime | None, str | None]:
    """Return when it will be said, None for never, and why later than booked."""
    who = place.conversation if place else -int(row.id)
    later: str | None = None
    while True:
        opens = tenant.hours.hours.next_open(at, zone)
        if opens is None or (step.by_due and opens.astimezone(zone).date() > row.due):
            return None, None
        if opens > at:
            at, later = opens, later or "quiet hours"
        day = (who, at.astimezone(zone).date())
        if heard[day] < tenant.caps.notices_a_day:
            heard[day] += 1
            return at, later
        at, later = next_day(at, zone), later or "enough for a day"


def _says(step: StepSection | None, language: str) -> str:
    if step is None:
        return ""
    if step.text is not None:
        return next((words for one, words in step.text.items() if one == language), next(iter(step.text.values())))
    return step.about or ""
