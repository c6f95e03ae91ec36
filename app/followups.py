"""Story two: a time came.

1. The poller has claimed a follow-up without its conversation's lane: the agent writes it, however long that takes, while
   the customer chats on. The text is kept on the row.
2. The poller claims it again with the lane: what has changed meanwhile is looked at (cancelled, expired, its guards), and it
   is said.
"""

import logging
from zoneinfo import ZoneInfo

from agent import followup
from agent.errors import AgentError, NothingToSay, TooSlow, UnknownModel
from app import guards
from app.budget import USED_UP, used_up
from app.handover import hindered_by, waits
from app.notices import is_of_renewal, still_wanted
from app.sent import GUARDS
from app.service import Service, run_of, voice_of
from app.speak import Speech, wait_for_agent
from scheduler import settle
from scheduler.cadences import next_day
from scheduler.errors import TryAgain
from scheduler.put_off import go_on, is_over, put_off
from scheduler.retry import BUDGET
from scheduler.task import Task
from store import conversations, messages, usage
from store.messages import Kind

log = logging.getLogger(__name__)

REMINDER_ATTEMPTS = 3
"""Attempts at wording a reminder before its stored words go out: it is due now."""


async def come_back(service: Service, task: Task) -> None:
    """Do the next step of a due follow-up: write it, or say it."""
    tenant = await service.tenant_of(task)
    if is_of_renewal(task) and not task.sending:
        async with service.database.transaction() as connection:  # of its own: a renewal is locked before its tasks
            if not await still_wanted(service, connection, tenant, task):
                return
    async with service.database.transaction() as connection:
        if await settle.is_cancelled(connection, task) and not task.sending:
            await settle.cancel(connection, service.clock, task)
            return
        if is_over(task) and not task.sending:
            await settle.expire(connection, service.clock, task)
            return
        conversation = await conversations.find(connection, task.tenant, task.conversation or 0)
        assert conversation is not None  # a foreign key holds it
        stopped = hindered_by(conversation, task)
        if stopped is not None and not task.sending:
            await settle.skip(connection, service.clock, task, GUARDS[stopped])
            return
        if waits(tenant, conversation, task) and not task.sending:
            await wait_for_agent(service, connection, task, tenant)
            return
        said = await messages.read(
            connection,
            task.tenant,
            conversation.id,
            before=conversation.last_seq + 1,
            limit=tenant.agent.history,
        )
    try:
        says_no = None if task.sending else await guards.first_no(service, tenant, conversation, task)
    except guards.NotKnown as problem:
        async with service.database.transaction() as connection:
            await put_off(connection, service.clock, task, str(problem))
        return
    if says_no is not None:
        async with service.database.transaction() as connection:
            await settle.skip(connection, service.clock, task, says_no)
        return
    # Only what comes again was booked with an end, and that has no guards; what is written may have one by its channel.
    if task.payload.get("guards") and task.expires_at is not None and task.text is None and not task.lane:
        async with service.database.transaction() as connection:
            await go_on(connection, task)
    words = str(task.payload["words"]) if task.text is None and task.lane else task.text
    if words is not None:
        lateness = (task.claimed_at - task.booked_for).total_seconds()
        service.counts.lateness.labels(task.tenant, conversation.channel).observe(max(lateness, 0))
        kind: Kind = "notice" if task.kind == "notice" else "followup"
        await Speech(service, tenant, conversation, task, words, kind=kind).say()
        return
    spent: list[int] = []
    day = task.claimed_at.astimezone(ZoneInfo(tenant.time_zone)).date()
    about, is_work = str(task.payload.get("about", "")), bool(task.payload.get("is_work"))
    language = str(task.payload.get("language") or tenant.languages[0])
    is_used_up = await used_up(service, tenant, task.claimed_at)
    if is_used_up and is_work:
        tomorrow = next_day(task.claimed_at, ZoneInfo(tenant.time_zone)) - task.claimed_at
        async with service.database.transaction() as connection:
            await settle.give_back(connection, service.clock, task, delay=tomorrow, error=USED_UP, is_fault=False)
        return
    try:
        if is_used_up:
            raise NothingToSay(USED_UP)
        if task.attempt > BUDGET:
            raise NothingToSay("its last attempts ended without a word, as they do when a worker is killed")
        words = await followup.write(
            service.returning,
            service.models.find(tenant.agent.model),
            voice_of(tenant, conversation, task.claimed_at, language=language),
            said,
            about=about,
            is_work=is_work,
            booked_at=task.created_at,
            on_usage=spent.append,
            toolsets=await service.servers.tools(tenant.tenant, tenant.agent, run_of(task)) if is_work else (),
        )
    except AgentError as problem:
        if not is_used_up and task.attempt < _most_attempts(problem, is_work=is_work):
            raise TryAgain(str(problem)) from problem
        if tenant.agent.unwritten == "nothing":
            await _give_up(service, task, problem)
            return
        log.error("a follow-up of tenant %s was not written: %s; its stored words go out", task.tenant, problem)
        words = followup.stored_words(language, about, is_work=is_work)
    async with service.database.transaction() as connection:
        await settle.keep_text(connection, service.clock, task, words)
        await usage.add(connection, task.tenant, day, tokens=sum(spent))


async def _give_up(service: Service, task: Task, problem: AgentError) -> None:
    """Fail a follow-up whose tenant would rather have nothing said than its stored words; an operator can retry it."""
    log.error("a follow-up of tenant %s was not written: %s; nothing goes out", task.tenant, problem)
    async with service.database.transaction() as connection:
        if await settle.is_cancelled(connection, task):
            await settle.cancel(connection, service.clock, task)
        else:
            await settle.fail(connection, service.clock, task, f"it was not written: {problem}")


def _most_attempts(problem: AgentError, *, is_work: bool) -> int:
    """Return how often a follow-up is written. A reminder whose model hangs is late already; for work nobody waits like that."""
    if isinstance(problem, UnknownModel):
        return 1
    if isinstance(problem, TooSlow):
        return 2 if is_work else 1
    return BUDGET if is_work else REMINDER_ATTEMPTS
