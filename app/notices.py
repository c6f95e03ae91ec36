"""Story three: a step of a renewal is due.

1. The poller has claimed it without a conversation: whether it is still wanted, may be said now, and where its customer is
   reached is looked at; it is written, and looked at again. The text is kept on the row, with the conversation.
2. Claimed again with that conversation's lane it is looked at once more, and said as any notice is.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from agent import followup
from agent.errors import AgentError
from agent.language import Language, day_in_words
from app import guards
from app.budget import USED_UP, has_said_enough, used_up
from app.cadence_section import CadenceSection, StepSection
from app.renewals import begun, keys_of, step_of
from app.sent import GUARDS, accepted
from app.service import Service, voice_of, zone_of
from app.tenants_file import TenantConfig
from scheduler import find, settle
from scheduler.cadences import next_day
from scheduler.clock import Clock
from scheduler.errors import TryAgain
from scheduler.open_hours import instant
from scheduler.put_off import put_off
from scheduler.retry import BUDGET
from scheduler.task import Task
from store import contacts, conversations, deliveries, messages, renewals, usage
from store.contacts import Contact
from store.conversations import Conversation
from store.deliveries import NOTICE
from store.renewals import Renewal

log = logging.getLogger(__name__)

_PLACE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Say:
    """It is to be said, in this conversation."""

    renewal: Renewal
    section: CadenceSection
    step: StepSection
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Skip:
    """It is not wanted any more."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """It may not be said before an instant."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """It cannot be said; the words are for an operator."""

    error: str


Verdict = Say | Skip | Wait | Fail
CANCELLED, REPLIED, TOO_LATE = "cancelled", "replied", "past the due day"
UNSAID = ("failed", "expired")
"""States in which a step that was begun was not said, or not all of it."""


def is_of_renewal(task: Task) -> bool:
    """Tell whether a notice is a step of a renewal's."""
    return task.kind == "notice" and "renewal" in task.payload


async def give_notice(service: Service, task: Task) -> None:
    """Do what comes before a step is said: decide, and have it written."""
    tenant = await service.tenant_of(task)
    async with service.database.transaction() as connection:
        verdict = await judge(connection, service.clock, tenant, task)
        if not isinstance(verdict, Say):
            await _end(connection, service.clock, task, verdict)
            return
    try:
        says_no = await guards.first_no(service, tenant, verdict.conversation, task, verdict.step.guards)
    except guards.NotKnown as problem:
        async with service.database.transaction() as connection:
            await put_off(connection, service.clock, task, str(problem))
        return
    if says_no is not None:
        async with service.database.transaction() as connection:
            await _end(connection, service.clock, task, Skip(says_no))
        return
    if verdict.step.text is None and await used_up(service, tenant, task.claimed_at):
        until = next_day(task.claimed_at, ZoneInfo(tenant.time_zone))
        later = _not_before(tenant, verdict.renewal, verdict.step, verdict.conversation, until, USED_UP)
        async with service.database.transaction() as connection:
            assert not isinstance(later, Say)
            await _end(connection, service.clock, task, later)
        return
    spent: list[int] = []
    words, more = await _written(service, tenant, verdict, task, spent.append)
    async with service.database.transaction() as connection:
        again = await judge(connection, service.clock, tenant, task)
        if isinstance(again, Say) and again.conversation.id == verdict.conversation.id:
            talk = verdict.conversation
            now = service.clock.override()
            await renewals.note_said(connection, task.tenant, verdict.renewal.id, verdict.step.called, talk.id, now=now)
            await settle.keep_text(
                connection, service.clock, task, words, conversation=talk.id, channel=talk.channel, more=more
            )
            day = task.claimed_at.astimezone(ZoneInfo(tenant.time_zone)).date()
            await usage.add(connection, task.tenant, day, tokens=sum(spent), messages=1)
        elif isinstance(again, Say):  # they have written elsewhere meanwhile, and are told there
            await settle.give_back(connection, service.clock, task)
        else:
            await _end(connection, service.clock, task, again)


async def still_wanted(service: Service, connection: AsyncConnection, tenant: TenantConfig, task: Task) -> bool:
    """Look once more at a step that is written, before it is said; settle it and return False where it is not to be said now."""
    verdict = await judge(connection, service.clock, tenant, task, is_written=True)
    if isinstance(verdict, Say):
        return True
    await _end(connection, service.clock, task, verdict)
    return False


async def judge(
    connection: AsyncConnection, clock: Clock, tenant: TenantConfig, task: Task, *, is_written: bool = False
) -> Verdict:
    """Return what is to become of a step now. Its renewal, the contact and the task are locked, in this order."""
    verdict = await _judge(connection, tenant, task, is_written=is_written)
    return Skip(CANCELLED) if await settle.is_cancelled(connection, task) else verdict


async def _judge(connection: AsyncConnection, tenant: TenantConfig, task: Task, *, is_written: bool) -> Verdict:
    step_name = str(task.payload.get("step"))
    renewal = await renewals.get(connection, task.tenant, int(task.payload["renewal"]), lock=True)
    if renewal is None:
        return Skip("withdrawn")
    if renewal.state != "open":
        return Skip(renewal.state)
    if renewal.stopped is not None:
        return Skip(renewal.stopped)
    others = [one for one in renewal.said if one != step_name]
    if len(others) < len(renewal.said) and not is_written:
        return Skip("said before")
    section = tenant.cadences.get(renewal.cadence)
    step = _step(section, step_name, task) if section else None
    if section is None or step is None:
        return Fail(f"the tenant's file has no step {step_name[:60]!r} of a cadence {renewal.cadence!r} any more")
    at = await _where(connection, tenant, renewal, task if is_written else None)
    if not isinstance(at, Conversation):
        return at
    if at.stopped is not None:
        return Skip(GUARDS[at.stopped])
    if "replied" in section.stop and await _have_replied(connection, renewal, at, others, task if is_written else None):
        return Skip(REPLIED)
    return (
        _now_or_later(tenant, renewal, step, at, task.claimed_at)
        or (None if is_written else await _enough_for_a_day(connection, tenant, renewal, step, at, task.claimed_at))
        or Say(renewal, section, step, at)
    )


async def _have_replied(
    connection: AsyncConnection, renewal: Renewal, at: Conversation, others: Sequence[str], written: Task | None
) -> bool:
    """Tell whether the customer has written since other steps began, of which one was said.

    As far as is still known: one that failed or expired was not. Who was told that the `written` one waits has asked for it.
    """
    heard, spoken = at.last_inbound_at, renewal.spoken_at
    if not others or heard is None or spoken is None or heard <= spoken:
        return False
    unsaid = {step_of(str(one.key)) for one in await begun(connection, renewal, others) if one.state in UNSAID}
    if unsaid.issuperset(others):
        return False
    return written is None or NOTICE not in accepted(await deliveries.of_task(connection, written.tenant, written.id))


def _step(section: CadenceSection, name: str, task: Task) -> StepSection | None:
    """Return the step of a name, or the one that the customer themselves asked for."""
    about = task.payload.get("about")
    return section.step(name) if about is None else StepSection(offset="0d", name=name, about=str(about))


def _now_or_later(
    tenant: TenantConfig, renewal: Renewal, step: StepSection, at: Conversation, now: datetime
) -> Verdict | None:
    """Return what hinders it at this hour; None where nothing does."""
    zone = zone_of(tenant, at)
    opens = tenant.hours.hours.next_open(now, zone)
    if opens is None:
        return Fail("hours: nothing is ever open")
    if step.by_due and opens.astimezone(zone).date() > renewal.due:
        return Skip(TOO_LATE)
    return Wait(opens, "quiet hours") if opens > now else None


async def _enough_for_a_day(
    connection: AsyncConnection,
    tenant: TenantConfig,
    renewal: Renewal,
    step: StepSection,
    at: Conversation,
    now: datetime,
) -> Verdict | None:
    """Return when it is said to a customer who has heard enough today, by their own clock, or by a tenant that has said enough."""
    zone = zone_of(tenant, at)
    today = instant(now.astimezone(zone).date(), time(), zone)
    heard = await messages.notices_since(connection, at.tenant, at.id, today)
    to_hear = await find.written_notices(connection, at.tenant, at.id)
    if heard + len(to_hear) >= tenant.caps.notices_a_day:
        return _not_before(tenant, renewal, step, at, next_day(now, zone), "enough for a day")
    if await has_said_enough(connection, tenant, now):
        return _not_before(tenant, renewal, step, at, next_day(now, ZoneInfo(tenant.time_zone)), USED_UP)
    return None


def _not_before(
    tenant: TenantConfig, renewal: Renewal, step: StepSection, at: Conversation, until: datetime, why: str
) -> Verdict:
    """Return what becomes of a step that may not be said before an instant."""
    then = _now_or_later(tenant, renewal, step, at, until)
    return then if isinstance(then, Skip | Fail) else Wait(then.until if isinstance(then, Wait) else until, why)


async def _where(
    connection: AsyncConnection, tenant: TenantConfig, renewal: Renewal, written: Task | None
) -> Conversation | Verdict:
    """Return the conversation in which the customer wrote last; or, where they agreed to it, a new one on WhatsApp."""
    name = renewal.tenant
    there = [(channel, key) for channel, key in keys_of(renewal.addresses) if getattr(tenant.channels, channel, None)]
    number = written.conversation if written else await conversations.last_of(connection, name, there)
    if number is None and not renewal.agreed:
        return Skip("no consent")
    if number is None and "whatsapp" in dict(there):
        address = renewal.addresses["whatsapp"]
        met = Contact(name, "whatsapp", address, dict(there)["whatsapp"], renewal.name, renewal.language)
        number = await conversations.open_conversation(connection, name, await contacts.meet(connection, met), None)
    if number is None:
        return Skip("cannot be reached")
    await contacts.lock(connection, name, number)
    found = await conversations.find(connection, name, number)
    assert found is not None
    # It may have been opened for another renewal, or before they took it back.
    if found.last_inbound_at is None and not renewal.agreed:
        return Skip("no consent")
    return found


async def _end(connection: AsyncConnection, clock: Clock, task: Task, verdict: Skip | Wait | Fail) -> None:
    match verdict:
        case Skip(why) if why == CANCELLED:
            await settle.cancel(connection, clock, task)
        case Skip(why):
            if why == REPLIED and await renewals.stop(connection, task.tenant, int(task.payload["renewal"]), why):
                told = {int(task.payload["renewal"]): why}
                await renewals.note(connection, task.tenant, "stopped", "the customer", told, now=clock.override())
            await settle.skip(connection, clock, task, why)
        case Wait(until, why):
            await settle.give_back(connection, clock, task, delay=until - task.claimed_at, error=why, is_fault=False)
        case Fail(error):
            await settle.fail(connection, clock, task, error)


async def _written(
    service: Service, tenant: TenantConfig, say: Say, task: Task, on_usage: Callable[[int], None]
) -> tuple[str, Mapping[str, Any]]:
    """Return the words of a step, and what is kept beside them. Raises TryAgain."""
    try:
        return await words_of(
            service, tenant, say, task.claimed_at, has_failed=task.attempt > BUDGET, on_usage=on_usage
        )
    except AgentError as problem:
        if task.attempt < BUDGET:
            raise TryAgain(str(problem)) from problem
        return await words_of(service, tenant, say, task.claimed_at, has_failed=True)


async def words_of(
    service: Service,
    tenant: TenantConfig,
    say: Say,
    now: datetime,
    *,
    has_failed: bool = False,
    on_usage: Callable[[int], None] | None = None,
) -> tuple[str, Mapping[str, Any]]:
    """Return the words of a step, and what is kept beside them; without a model where that `has_failed`. Raises AgentError."""
    talk, step, renewal = say.conversation, say.step, say.renewal
    told = renewal.language or talk.language
    language = next((one for one in tenant.languages if one == told), tenant.languages[0])
    values = places(renewal, language)
    template = (step.template or {}).get(language) if talk.channel == "whatsapp" else None
    more: dict[str, Any] = {"language": language}
    if template is not None:
        # Meta takes no line break there, and no five spaces in a row.
        filled = {place: " ".join(fill(text, values).split()) for place, text in template.values.items()}
        more["template"] = {"id": template.sid, "values": filled}
    if step.text is not None:
        chosen = step.text.get(language) or next(iter(step.text.values()))
        return fill(chosen, values), more
    assert step.about is not None
    about = fill(step.about, values)
    if template is not None:
        return about, more
    if has_failed:
        return followup.stored_words(language, about, is_work=False), more
    async with service.database.autocommit() as connection:
        said = await messages.read(
            connection, talk.tenant, talk.id, before=talk.last_seq + 1, limit=tenant.agent.history
        )
    words = await followup.write(
        service.returning,
        service.models.find(tenant.agent.model),
        voice_of(tenant, talk, now, language=language),
        said,
        about=about,
        is_work=False,
        booked_at=now,
        facts=values,
        on_usage=on_usage,
    )
    return words, more


def places(renewal: Renewal, language: Language) -> Mapping[str, str]:
    """Return what a text's places stand for: the renewal's own fields, and who it is for and when it is due."""
    due = day_in_words(renewal.due, language)
    return {**renewal.fields, "name": renewal.name or "", "due": due, "subject": renewal.subject}


def named_in(text: str) -> set[str]:
    """Return the places that a text has."""
    return {found.strip() for found in _PLACE.findall(text)}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its places filled; one that nothing is known of is left empty."""
    return _PLACE.sub(lambda found: values.get(found[1].strip(), ""), text)
