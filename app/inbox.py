"""Story one: a message came.

1. `receive`: contact and conversation are found or opened, the message is recorded and its turn booked, in one
   transaction, before the channel is told that it arrived. A repeat stops at its provider's id. What asks the service
   itself for something (a command, a word of opting out) is done in that transaction, and its turn needs no model.
2. `answer`: the poller has claimed the turn and holds the conversation's lane. The agent reads what was said and answers.
   If the customer wrote more meanwhile, and nothing has been booked yet, it reads again: one answer to all of it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent import turn
from agent.context import Mark, TurnContext
from agent.errors import AgentError, HandedOver, NothingToSay, TooSlow, UnknownModel
from agent.phrases import phrase
from app import commands, renewals
from app.handover import waits
from app.moved import follow
from app.sent import is_told_of
from app.service import Service, language_of, run_of, voice_of
from app.speak import Speech, wait_for_agent
from app.tenants_file import TenantConfig
from app.writing import Page, shown
from channels import optout
from channels.channel import Channel
from channels.message import REACHABLE, Inbound, Incoming, Membership, Moved, Origin, Received
from channels.optout import Wish
from channels.telegram.commands import Command
from channels.telegram.commands import read as read_command
from channels.web import reach as web_reach
from channels.web.inbound import NotThere, Terms, TooMany
from scheduler import settle
from scheduler.book import Booking, book
from scheduler.cancel import cancel
from scheduler.errors import LostClaim, TryAgain
from scheduler.find import Found, booked_for_the_same, pending_followups
from scheduler.gather import gather_turn, has_turn
from scheduler.hold import TOPIC_GONE, WINDOW_CLOSED, release
from scheduler.poller import DUE
from scheduler.retry import BUDGET
from scheduler.task import Task
from store import contacts, conversations, messages
from store.contacts import Contact
from store.conversations import Conversation
from store.messages import Message
from web_widget import sessions

log = logging.getLogger(__name__)

GATHER = timedelta(seconds=1)
"""How long a turn waits for the next of several quick messages, where people type in pieces."""
QUICK = timedelta(seconds=1)
GATHER_ON_WEB = timedelta(milliseconds=300)
"""On the web the first message is answered at once; only one that follows within a second of another waits."""
READ_AGAIN = 5
"""How often one turn may start over because more was written."""
UNANSWERED = 50
"""Messages that one turn answers; of more, written while nobody answered, the first are left out, and the model is told."""
ATTEMPTS = 3
"""Attempts at an answer before the customer is told that there is none now."""


OPTED_OUT = (
    "This customer has asked to be sent nothing more, so nothing can be booked for them. Say so, and that they can take it"
    " back with the word START."
)


async def take_in(service: Service, incoming: Incoming) -> None:
    """Take in what a provider tells us; committed when this returns. Raises what `receive` raises."""
    if isinstance(incoming, Membership):
        await note_membership(service, incoming)
    elif isinstance(incoming, Moved):
        async with service.database.transaction() as connection:
            await follow(connection, incoming.tenant, incoming.channel, incoming.address_key, incoming.address)
    else:
        await receive(service, incoming)


async def note_membership(service: Service, word: Membership) -> None:
    """Note that a chat has shut the tenant's sender out, or let it in again: what is pending there is skipped, or said.

    Of a chat in which nobody has spoken nothing is kept.
    """
    async with service.database.transaction() as connection:
        conversation = await conversations.of_address(connection, word.tenant, word.channel, word.address_key)
        if conversation is None:
            return
        change = contacts.go_on if word.is_in else contacts.stop
        await change(connection, word.tenant, conversation, "provider")


async def receive(service: Service, inbound: Inbound) -> Received:
    """Record a customer's message and book the turn that answers it; committed when this returns.

    Raises what `Service.tenant` raises, and TenantFileError for a tenant that is not there; WebError for a visitor's
    message that is not taken in on the terms of its session.
    """
    tenant = None if inbound.channel == "web" else await service.tenant_called(inbound.tenant)
    command = read_command(inbound.text) if inbound.channel == "telegram" else None
    wish: Wish | None = None
    if command is not None:
        wish = "stop" if command.name == "stop" else None
    elif tenant is not None:
        wish = optout.read(inbound.text, tenant.languages, tenant.opt_out)
    key = f"{inbound.channel}:{inbound.provider_id}"
    try:
        received = await _record(service, tenant, inbound, key, command, wish)
    except IntegrityError:
        # Two processes took in the same message at the same moment: the other one's row stands.
        received = await _record(service, tenant, inbound, key, command, wish)
    if wish == "stop":  # of a repeat too: the first time may have been cut off here
        await _cancel_all(service, inbound.tenant, received.conversation)
    if received.is_new:
        service.counts.received.labels(inbound.tenant, inbound.channel).inc()
        service.signals.hint(DUE)
        service.signals.hint(f"message {received.conversation}")
        service.on_heard(inbound.tenant, received.conversation)
    return received


async def _record(
    service: Service,
    tenant: TenantConfig | None,
    inbound: Inbound,
    key: str,
    command: Command | None,
    wish: Wish | None,
) -> Received:
    async with service.database.transaction() as connection:
        known = await messages.seq_of_inbound(connection, inbound.tenant, key)
        if known is not None:
            return Received(*known, is_new=False)
        contact = Contact(
            tenant=inbound.tenant,
            channel=inbound.channel,
            address=inbound.address,
            address_key=inbound.address_key,
            name=inbound.name,
            language=inbound.language,
            time_zone=inbound.time_zone,
        )
        opened = await conversations.open_with(connection, contact, inbound.thread, now=service.clock.override())
        if inbound.terms is not None:
            repeat = await _agree(service, connection, inbound, inbound.terms, opened.id, key)
            if repeat is not None:
                return repeat
        is_quick = opened.silence is not None and opened.silence < QUICK
        asked: dict[str, Any] | None = None
        if tenant is not None and command is not None and command.name != "stop":
            # Before the conversation is locked by its new message: the task before its conversation, as everybody locks them.
            asked = await _obey(service, connection, tenant, opened.id, command)
        seq = await messages.add(
            connection,
            inbound.tenant,
            opened.id,
            "customer",
            "message",
            inbound.text,
            now=service.clock.override(),
            inbound_key=key,
        )
        if tenant is not None:  # the web carries free text at any time, to whoever has opened the page
            waited = 0
            if wish != "stop":  # who wants nothing more is not sent what waited for them
                ended = (WINDOW_CLOSED, TOPIC_GONE) if inbound.channel == "telegram" else (WINDOW_CLOSED,)
                waited = await release(connection, service.clock, inbound.tenant, *ended, conversation=opened.id)
            if opened.stopped == "provider":
                await contacts.go_on(connection, inbound.tenant, opened.id, "provider")
            if asked is not None:
                await _book_words(service, connection, inbound, opened.id, asked)
                return Received(opened.id, seq, is_new=True)
            if wish == "stop" or (wish == "start" and opened.stopped == "customer"):
                await _grant(service, connection, tenant, inbound, opened.id, seq, wish)
                return Received(opened.id, seq, is_new=True)
            is_for_what_waits = inbound.is_tap and (waited or await is_told_of(connection, inbound.tenant, opened.id))
            if is_for_what_waits and not await has_turn(connection, inbound.tenant, opened.id):
                # It asks for what waits, and that is the answer.
                await conversations.mark_answered(connection, inbound.tenant, opened.id, seq)
                return Received(opened.id, seq, is_new=True)
        await gather_turn(
            connection,
            service.clock,
            tenant=inbound.tenant,
            conversation=opened.id,
            channel=inbound.channel,
            reply_to=inbound.reply_to,
            pause=GATHER if inbound.channel != "web" else GATHER_ON_WEB if is_quick else timedelta(),
        )
    return Received(opened.id, seq, is_new=True)


async def _agree(
    service: Service, connection: AsyncConnection, inbound: Inbound, terms: Terms, conversation: int, key: str
) -> Received | None:
    """Look whether a visitor's message can be taken in; return what a repeat is a repeat of. Raises NotThere, TooMany.

    The contact is locked: nobody signs its visitor in meanwhile, and no other message of theirs is counted.
    """
    if conversation != terms.conversation:
        raise NotThere("the visitor has signed in: their conversation goes on in the user's")
    wait = await messages.full_for(
        connection,
        inbound.tenant,
        conversation,
        most=terms.most_a_minute,
        span=timedelta(minutes=1),
        now=service.clock.override(),
    )
    if wait is None:
        return None
    # A repeat may have been taken in while this one waited for the contact.
    known = await messages.seq_of_inbound(connection, inbound.tenant, key)
    if known is None:
        raise TooMany(wait)
    return Received(*known, is_new=False)


async def _obey(
    service: Service, connection: AsyncConnection, tenant: TenantConfig, conversation: int, command: Command
) -> dict[str, Any]:
    """Do what a command asks for, and return what is to be said of it, as a turn's payload."""
    asked = await commands.obey(service, connection, tenant, conversation, command)
    if command.name == "start" and await contacts.go_on(connection, tenant.tenant, conversation, "customer"):
        asked["phrase"] = "opted_in"
    return asked


async def _grant(
    service: Service,
    connection: AsyncConnection,
    tenant: TenantConfig,
    inbound: Inbound,
    conversation: int,
    seq: int,
    wish: Wish,
) -> None:
    """Note that a customer wants nothing more, or does after all, and have it confirmed if that is news."""
    do = contacts.stop if wish == "stop" else contacts.go_on
    is_news = await do(connection, tenant.tenant, conversation, "customer")
    await conversations.mark_answered(connection, tenant.tenant, conversation, seq)
    if is_news:
        found = await conversations.find(connection, tenant.tenant, conversation)
        assert found is not None
        said = {"phrase": "opted_out" if wish == "stop" else "opted_in"}
        language = await commands.last_language(connection, tenant, found)
        await _book_words(service, connection, inbound, conversation, said | {"language": language})


async def _book_words(
    service: Service, connection: AsyncConnection, inbound: Inbound, conversation: int, payload: dict[str, Any]
) -> None:
    """Book the turn that says what needs no model."""
    turn_of = Booking(
        tenant=inbound.tenant,
        kind="turn",
        due=timedelta(),
        conversation=conversation,
        channel=inbound.channel,
        payload=payload,
        reply_to=inbound.reply_to,
        lane=True,
    )
    await book(connection, service.clock, turn_of)


async def _cancel_all(service: Service, tenant: str, conversation: int) -> None:
    """Cancel what is pending for a customer who has opted out; what is being said just now stops before it goes out.

    In a transaction of its own: that of their message holds the conversation, which those who hold a task wait for. Should
    it not come to this, nothing goes out either: whoever comes back with it finds that they have opted out.
    """
    async with service.database.transaction() as connection:
        talk = await conversations.find(connection, tenant, conversation)
        if talk is None or talk.stopped != "customer":  # they have taken it back, and this is an old repeat
            return
        pending = []
        for where in await conversations.of_the_same(connection, tenant, conversation):
            pending += [one.id for one in await pending_followups(connection, tenant, where)]
        await cancel(connection, service.clock, tenant, pending, by="the customer, who opted out")


async def answer(service: Service, task: Task) -> None:
    """Answer what the customer has written and nobody has answered yet, and settle the turn."""
    tenant = await service.tenant_of(task)
    read = await _read(service, tenant, task)
    if waits(tenant, read.conversation, task) and not task.sending:
        await _wait(service, tenant, task)
        return
    if task.text is None and task.payload.get("phrase"):
        words = await commands.words_for(service, tenant, read.conversation, task.payload)
        await Speech(service, tenant, read.conversation, task, words, kind="reply").say()
        return
    if task.text is not None:  # written before, and cut off or refused on its way out
        await Speech(service, tenant, read.conversation, task, task.text, kind="reply").say()
        return
    if not read.unanswered:
        async with service.database.transaction() as connection:
            await settle.skip(connection, service.clock, task, "nothing left to answer")
        return
    async with shown(await _screen(service, tenant, read, task), read.conversation, task) as show:
        # What failed may have failed in streaming, which not every model and server can; then it is asked for whole.
        speech = await _write(service, tenant, read, task, show if task.attempt == 1 else None)
    if speech is None:
        await _wait(service, tenant, task)
    else:
        await speech.say()


async def _wait(service: Service, tenant: TenantConfig, task: Task) -> None:
    """Let a turn wait until its conversation is the agent's again."""
    async with service.database.transaction() as connection:
        await wait_for_agent(service, connection, task, tenant)


async def _screen(service: Service, tenant: TenantConfig, read: "_Read", task: Task) -> Channel | Page:
    """Return where the customer can see that an answer is being written."""
    name = read.conversation.channel
    if name != "web" and (channel := await service.channel(tenant, name)):
        return channel
    web = tenant.channels.web
    has_drafts = name == "web" and web is not None and web.drafts
    return Page(service, read.conversation, read.unanswered[-1].seq, has_drafts=has_drafts, is_first=task.attempt == 1)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a turn is to answer, and what it must know for that."""

    conversation: Conversation
    said: Sequence[Message]
    """As much of what was said beside the unanswered as the model is given."""
    unanswered: Sequence[Message]
    booked_before: Sequence[Found]
    now: datetime


async def _write(
    service: Service, tenant: TenantConfig, read: _Read, task: Task, show: Callable[[str], None] | None
) -> Speech | None:
    """Have the answer written; `show` is given what may be seen of it meanwhile.

    None where a person has taken the conversation over by then: what was written is not said.
    """
    error: str | None = None
    answered_for = False
    for _ in range(READ_AGAIN):
        read = await _with_files(service, tenant, read)
        conversation, answered = read.conversation, read.unanswered[-1].seq
        context = await _context(service, tenant, read, task)
        try:
            if task.attempt > BUDGET:
                raise NothingToSay("its last attempts ended without a word, as they do when a worker is killed")
            words = await turn.answer(
                service.answering,
                service.models.find(tenant.agent.model),
                context,
                read.said,
                unanswered=read.unanswered,
                has_left_out=len(read.unanswered) == UNANSWERED,
                show=show,
                toolsets=await service.servers.tools(tenant.tenant, tenant.agent, run_of(task)),
            )
        except HandedOver:
            return None
        except AgentError as problem:
            if task.attempt < ATTEMPTS and not isinstance(problem, UnknownModel | TooSlow):
                raise TryAgain(str(problem)) from problem
            log.error("a turn of tenant %s got no answer: %s", task.tenant, problem)
            words = await turn.what_stands(context)
            if words:  # and what else was asked for nobody knows; that must be written again, and this must not
                words += "\n" + phrase("not_finished", context.voice.language)
            else:
                words, error = phrase("no_answer", context.voice.language), str(problem)[:500]
            answered_for = True
        finally:
            if context.refused_promises:
                service.counts.refused_promises.labels(task.tenant).inc(context.refused_promises)
        async with service.database.autocommit() as connection:
            conversation = await _conversation(connection, task)
        if waits(tenant, conversation, task):
            return None
        if answered_for or context.has_changed_something():
            break
        if conversation.last_seq == read.conversation.last_seq:
            break
        read = await _read(service, tenant, task)
        if not read.unanswered or read.unanswered[-1].seq == answered:
            break
    return Speech(service, tenant, conversation, task, words, kind="reply", answers_up_to=answered, error=error)


async def _read(service: Service, tenant: TenantConfig, task: Task) -> _Read:
    async with service.database.autocommit() as connection:
        now = await service.clock.now(connection)
        conversation = await _conversation(connection, task)
        said, unanswered = await messages.to_answer(
            connection,
            task.tenant,
            conversation.id,
            conversation.answered_seq,
            most=UNANSWERED,
            history=tenant.agent.history,
        )
        if conversation.channel == "telegram":  # a command has a turn of its own
            said = sorted([*said, *filter(_is_command, unanswered)], key=lambda message: message.seq)
            unanswered = [message for message in unanswered if not _is_command(message)]
        booked_before: Sequence[Found] = []
        if unanswered:
            booked_before = await booked_for_the_same(
                connection, task.tenant, conversation.id, turn=task.id, since=unanswered[0].at
            )
    return _Read(conversation, said, unanswered, booked_before, now)


def _is_command(message: Message) -> bool:
    return read_command(message.text) is not None


async def _with_files(service: Service, tenant: TenantConfig, read: _Read) -> _Read:
    """Return it with what can be learned of the files that came; that is kept, so that it is looked at once."""
    conversation = read.conversation
    channel = None if conversation.channel == "web" else await service.channel(tenant, conversation.channel)
    if channel is None:
        return read
    texts = await asyncio.gather(*(channel.look_at_files(message.text) for message in read.unanswered))
    seen = [replace(message, text=text) for message, text in zip(read.unanswered, texts, strict=True)]
    changed = [pair for pair in zip(read.unanswered, seen, strict=True) if pair[0] != pair[1]]
    if not changed:
        return read
    async with service.database.transaction() as connection:
        for old, new in changed:
            await messages.replace(connection, tenant.tenant, conversation.id, old.seq, old.text, new.text)
    return replace(read, unanswered=seen)


async def _conversation(connection: AsyncConnection, task: Task) -> Conversation:
    conversation = await conversations.find(connection, task.tenant, task.conversation or 0)
    if conversation is None:
        # What refers to it is gone or moved, this claim with it: its visitor has signed in.
        raise LostClaim(f"the conversation of task {task.id} of tenant {task.tenant} goes on in another")
    return conversation


async def _context(service: Service, tenant: TenantConfig, read: _Read, task: Task) -> TurnContext:
    conversation, unanswered, now = read.conversation, read.unanswered, read.now
    channel = None if conversation.channel == "web" else await service.channel(tenant, conversation.channel)
    language = language_of(tenant, conversation, unanswered[-1].text)
    written = conversation.last_inbound_at
    origin = Origin(conversation.channel, conversation.address, written, thread=conversation.thread, language=language)

    lives_until = await _lives_until(service, tenant, conversation)

    def assess(due: datetime) -> tuple[bool, str]:
        if conversation.stopped == "customer":
            return False, OPTED_OUT
        if channel is not None:
            reach = channel.assess(origin, due, now)
        elif tenant.channels.web is not None:
            reach = web_reach.assess(
                conversation.address,
                due,
                now,
                lives_until=lives_until,
                idle=tenant.channels.web.session.idle,
                can_sign_in=tenant.channels.web.identity is not None,
            )
        else:
            reach = REACHABLE
        return reach.possible, reach.advice

    return TurnContext(
        voice=voice_of(tenant, conversation, now, language=language),
        turn=task.id,
        database=service.database,
        clock=service.clock,
        reply_to=task.reply_to,
        asked=unanswered,
        hold=partial(settle.is_cancelled, task=task),
        assess=assess,
        on_booked=lambda: service.signals.hint(DUE),
        booked_before=list(read.booked_before),
        matters=await renewals.matters(service, tenant.tenant, conversation.id),
        mark=partial(_mark, service, tenant, conversation.id, task),
    )


async def _mark(
    service: Service,
    tenant: TenantConfig,
    conversation: int,
    task: Task,
    number: int,
    what: Mark,
    on: date | None,
    why: str | None,
) -> str:
    return await renewals.mark(
        service, tenant, conversation, number, what, on, why, partial(settle.is_cancelled, task=task)
    )


async def _lives_until(service: Service, tenant: TenantConfig, conversation: Conversation) -> datetime | None:
    """Return when an anonymous visitor can open their conversation no more, however often they do; None where it is open."""
    section = tenant.channels.web
    if section is None or not conversation.address.startswith(web_reach.ANONYMOUS) or conversation.channel != "web":
        return None
    async with service.database.autocommit() as connection:
        return await sessions.lives_until(connection, tenant.tenant, conversation.id, section.session)
