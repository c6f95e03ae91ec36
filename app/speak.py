"""Saying a task's words on its channel and settling it, with its conversation's lane in hand.

On the web the bubble and the task's end are one transaction: truly once. On a network the second door comes first: the
text and a delivery row are committed, then the provider is called, then what came of it is committed.

A delivery whose outcome nobody knows is not simply sent again. The task waits behind the second door, its lane free; the
provider is asked for the message, where it can be, and its own word may come meanwhile (`go_on`). What it did not have
when it was asked, or cannot be asked for, the tenant decides: sent again, or left `uncertain`.

Where the channel carries no free text now, a template of the tenant's goes out. Either it says all, in the place of the
only part; or it tells that a message waits, and the task is held until the customer writes. What its deliveries say by
then, and what is left to do, is in `app/sent.py`.

A channel has a pace. Before the second door it is asked whether a send may begin: a little while is waited out with the
lane in hand, and for longer the task is given back. What is left of a message that was said in part waits longer in its
lane, so that nothing comes between its parts; and each part waits until the one before has left the provider.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent.phrases import phrase
from app import sent
from app.handover import hindered_by, waits
from app.moved import follow
from app.service import FRESH, OUTCOMES, Service, chosen_template, zone_of
from app.tenants_file import UNUSABLE, TenantConfig, from_stored
from channels.channel import Channel
from channels.message import (
    Accepted,
    Filled,
    Lost,
    NotSent,
    Origin,
    Outcome,
    Part,
    Reach,
    Rejected,
    Unknown,
)
from channels.web import outbound as web
from scheduler import operate, settle
from scheduler.errors import LostClaim
from scheduler.find import texts_of_unknown_fate
from scheduler.hold import CHANNEL_PAUSED, TOPIC_GONE, WINDOW_CLOSED, WITH_PERSON, keep_waiting
from scheduler.move import lock_pending
from scheduler.retry import BUDGET, LONGEST, backoff
from scheduler.task import Task
from store import contacts, conversations, deliveries, messages, tenants
from store.conversations import Conversation
from store.deliveries import NOTICE, Delivery
from store.messages import Kind

log = logging.getLogger(__name__)

CUT_OFF = "a send was begun and cut off before its outcome was known; it may have arrived"
SENDS = 20
"""Attempts at sending what certainly did not go out, before it is given up: an outage of half an hour or more."""
PATIENCE = 3.0
"""Seconds for which a task that may not be sent yet keeps its lane, and its place among those that are performed."""
LONG_PATIENCE = 15.0
"""Seconds for one that must not be passed: it was said in part, or has been given back before."""
EARLY = 0.5
"""Seconds by which one that was given back is in its lane before others could be."""
PACED = "it waits its turn: the channel carries no more now"
ASKS = 12
"""How often a provider that cannot tell is asked for a lost send, before that is given up: about an hour."""


async def pause(
    service: Service, connection: AsyncConnection, task: Task, known: TenantConfig | None, **more: Any
) -> None:
    """Hold a task until its tenant is applied; or let it come again soon, if that was done since we looked.

    `known` is the tenant as we found it, None if it could not be used; `more` is for `settle.give_back`.
    """
    await keep_waiting(connection, task, CHANNEL_PAUSED)
    if await _is_applied_since(service, connection, task, known):
        await settle.give_back(connection, service.clock, task, delay=timedelta(seconds=FRESH), **more)
    else:
        await settle.give_back(connection, service.clock, task, hold=CHANNEL_PAUSED, **more)


async def wait_for_agent(service: Service, connection: AsyncConnection, task: Task, tenant: TenantConfig) -> None:
    """Hold a task until its conversation is the agent's again; or let it come again soon, if that was done since we looked."""
    await keep_waiting(connection, task, WITH_PERSON)
    found = await conversations.find(connection, task.tenant, task.conversation or 0)
    if found is None or not waits(tenant, found, task):
        await settle.give_back(connection, service.clock, task)
    elif await _is_applied_since(service, connection, task, tenant):
        await settle.give_back(connection, service.clock, task, delay=timedelta(seconds=FRESH))
    else:
        await settle.give_back(connection, service.clock, task, hold=WITH_PERSON)


async def _is_applied_since(
    service: Service, connection: AsyncConnection, task: Task, known: TenantConfig | None
) -> bool:
    row = await tenants.find(connection, task.tenant)
    try:
        now = from_stored(row.config, service.box) if row else None
    except UNUSABLE:
        now = None
    return now != known


class Speech:
    """One task's words on their way out."""

    def __init__(
        self,
        service: Service,
        tenant: TenantConfig,
        conversation: Conversation,
        task: Task,
        words: str,
        *,
        kind: Kind,
        answers_up_to: int | None = None,
        error: str | None = None,
    ) -> None:
        """`answers_up_to` is the customer's last message this answers; with `error` the task ends as failed all the same."""
        self.service, self.tenant, self.conversation, self.task = service, tenant, conversation, task
        self.words, self.kind, self.answers_up_to, self.error = words, kind, answers_up_to, error

    async def say(self) -> None:
        """Say it, once, and settle the task. Raises LostClaim when the task is another worker's by now."""
        if self.conversation.channel == "web":
            await self._write_bubble()
            return
        channel = await self.service.channel(self.tenant, self.conversation.channel)
        if self.task.sending and not await self._find_out(channel):
            return
        if channel is None:
            log.warning(
                "tenant %s has no %s channel now; task %d waits", self.task.tenant, self.task.channel, self.task.id
            )
            async with self.service.database.transaction() as connection:
                # The task before its conversation, as everybody locks them.
                gone = f"the tenant has no {self.task.channel} channel now: put it back into the file, and apply it"
                await pause(self.service, connection, self.task, self.tenant, error=gone, is_fault=False)
                await self._mark_answered(connection)
            return
        async with self.service.database.autocommit() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        arrived = sent.arrived(so_far)
        is_all_said = bool(arrived) and len(arrived) >= len(self._parts(channel, so_far))
        if self.conversation.stopped is not None and not is_all_said:
            async with self.service.database.transaction() as connection:
                if await self._ends_unwanted(connection, has_begun=bool(arrived)):
                    return
        if (chosen := self.task.payload.get("template")) is not None and not is_all_said:
            await self._send_chosen(channel, so_far, chosen_template(self.tenant, str(chosen["id"]), chosen["values"]))
            return
        reach = self._reach(channel, so_far)
        if is_all_said or (reach.possible and not reach.by_template):
            await self._send(channel, so_far)
        elif self.kind == "reply" or not reach.possible or sent.accepted(so_far):
            if not await self._wait_for_customer(channel, so_far):
                await self._send(channel, so_far)
        else:
            await self._send_template(channel, so_far)

    async def _pause(self, connection: AsyncConnection, reason: str | None = None) -> None:
        await pause(
            self.service,
            connection,
            self.task,
            self.tenant,
            error=self._counted(reason),
            is_unsent=reason is not None,
            words=self.words,
        )

    def _counted(self, reason: str | None) -> str | None:
        """Return the reason as the task's error, which counts the attempt, as long as its attempts are not used up.

        What a network refuses is not the task's own fault, and past them it would be taken for one that kills workers.
        """
        return reason if self.task.attempt < BUDGET else None

    def _reach(self, channel: Channel, so_far: Sequence[Delivery]) -> Reach:
        written, now = self.conversation, self.task.claimed_at
        origin = Origin(
            written.channel,
            written.address,
            written.last_inbound_at,
            sent.refused_at(channel, so_far),
            written.thread,
            purpose=self.kind,
        )
        return channel.assess(origin, now, now)

    async def _wait_for_customer(self, channel: Channel, so_far: Sequence[Delivery], reason: str | None = None) -> bool:
        """Hold the task until the customer writes; False when they just have."""
        async with self.service.database.transaction() as connection:
            if not await self._hold_for_customer(connection, channel, so_far, reason):
                return False
            await self._mark_answered(connection)
        log.warning("task %d of tenant %s waits until its customer writes again", self.task.id, self.task.tenant)
        return True

    async def _hold_for_customer(
        self,
        connection: AsyncConnection,
        channel: Channel,
        so_far: Sequence[Delivery],
        reason: str | None = None,
        *,
        is_mended: bool = False,
    ) -> bool:
        await keep_waiting(connection, self.task, WINDOW_CLOSED)
        found = await conversations.find(connection, self.task.tenant, self.conversation.id)
        self.conversation = found or self.conversation
        reach = self._reach(channel, so_far)
        if reach.possible and not reach.by_template:
            return False
        await settle.give_back(
            connection,
            self.service.clock,
            self.task,
            hold=WINDOW_CLOSED,
            error=reason,
            is_fault=False,
            is_unsent=True,
            is_mended=is_mended,
            words=self.words,
            message_seq=await self._log(connection) if sent.arrived(so_far) else None,
            keep=channel.waits,
        )
        return True

    async def _wait_for_topic(self, connection: AsyncConnection, channel: Channel | None, reason: str) -> None:
        """Hold the task until somebody writes in its topic, or its tenant is applied; try again soon if that has just been.

        Never said in the chat beside it: others read there.
        """
        await keep_waiting(connection, self.task, TOPIC_GONE)
        found = await conversations.find(connection, self.task.tenant, self.conversation.id)
        is_open_again = found is not None and found.last_seq != self.conversation.last_seq
        if not is_open_again:
            is_open_again = await _is_applied_since(self.service, connection, self.task, self.tenant)
        await settle.give_back(
            connection,
            self.service.clock,
            self.task,
            delay=timedelta(seconds=FRESH) if is_open_again else None,
            hold=None if is_open_again else TOPIC_GONE,
            error=reason,
            is_fault=False,
            is_unsent=True,
            words=self.words,
            keep=channel.waits if channel else None,
        )
        log.warning("task %d of tenant %s waits: %s", self.task.id, self.task.tenant, reason)

    async def _send_template(self, channel: Channel, so_far: Sequence[Delivery]) -> None:
        """Send what the channel carries now: the message in a template, or word that it waits for the customer."""
        payload = self.task.payload
        language = str(payload.get("language") or self.tenant.languages[0])
        # What a renewal is asked about again stands there in our words, not in the customer's.
        about = self.task.subject if "renewal" in payload else payload.get("about")
        words = {
            "name": self.conversation.name or phrase("customer", language),
            "about": str(about or ""),
            "text": self.words,
            "business": self.tenant.name,
            "time": self.task.booked_for.astimezone(zone_of(self.tenant, self.conversation)).strftime("%Y-%m-%d %H:%M"),
        }
        match await channel.fill(self.kind, language, words):
            case Filled() as filled if filled.is_whole:
                await self._send(channel, so_far, filled)
            case Filled() as filled:
                await self._send_notice(channel, filled)
            case NotSent() as later:
                await self._wait_for_template(channel, later)
            case Rejected(reason):
                log.error("a message of tenant %s cannot go out: %s", self.task.tenant, reason)
                if not await self._wait_for_customer(channel, so_far, reason):
                    await self._send(channel, so_far)

    async def _send_chosen(self, channel: Channel, so_far: Sequence[Delivery], chosen: Filled) -> None:
        """Send a template that the business's own code has chosen, whether the customer has written lately or not."""
        match await channel.check(chosen):
            case Filled() as filled:
                await self._send(channel, so_far, filled)
            case NotSent() as later:
                await self._wait_for_template(channel, later)
            case Rejected(reason):
                log.error("a template of tenant %s cannot go out: %s", self.task.tenant, reason)
                async with self.service.database.transaction() as connection:
                    await settle.fail(connection, self.service.clock, self.task, reason)

    async def _wait_for_template(self, channel: Channel, later: NotSent) -> None:
        log.warning("task %d of tenant %s waits: %s", self.task.id, self.task.tenant, later.reason)
        async with self.service.database.transaction() as connection:
            await settle.give_back(
                connection,
                self.service.clock,
                self.task,
                delay=timedelta(seconds=later.retry_after or 0),
                error=later.reason,
                is_fault=False,
                keep=channel.waits,
            )

    async def _send_notice(self, channel: Channel, filled: Filled) -> None:
        await channel.open()
        if not await self._wait_its_turn(channel, self._patience()):
            return
        delivery = await self._begin(NOTICE, has_begun=False, template=filled)
        if delivery is None:
            return
        outcome = await channel.send(self._part(delivery, NOTICE, "", filled))
        self.service.counts.sent(self.task.tenant, channel.name, outcome)
        await self._settle_part(channel, delivery, outcome, is_notice=True, has_begun=False)

    def _part(self, delivery: int, number: int, words: str, template: Filled | None) -> Part:
        ends = self.task.expires_at
        return Part(
            delivery=delivery,
            address=self.conversation.address,
            text=words,
            thread=self.conversation.thread,
            reply_to=self.task.reply_to if number == 0 and template is None else None,
            scheduled=self.kind != "reply",
            template=template,
            lives=None if ends is None else ends - self.task.claimed_at,
        )

    async def _mark_answered(self, connection: AsyncConnection) -> None:
        """The text is committed, so what it answers is answered, whatever becomes of the text."""
        if self.answers_up_to is not None:
            await conversations.mark_answered(connection, self.task.tenant, self.conversation.id, self.answers_up_to)

    async def _write_bubble(self) -> None:
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, self.task):
                await settle.cancel(connection, self.service.clock, self.task)
            else:
                seq = await web.write(
                    connection,
                    self.task.tenant,
                    self.conversation.id,
                    self.kind,
                    self.words,
                    task=self.task.id,
                    now=self.service.clock.override(),
                    asked_at=self.task.created_at if self.kind == "followup" else None,
                )
                await self._mark_answered(connection)
                await self._end_said(connection, seq)
        self.service.signals.hint(f"message {self.conversation.id}")

    async def _end_said(self, connection: AsyncConnection, seq: int) -> None:
        if self.error is not None:
            await settle.fail(connection, self.service.clock, self.task, self.error)
        else:
            await settle.deliver(connection, self.service.clock, self.task, seq)

    async def _find_out(self, channel: Channel | None) -> bool:
        """Find out what became of what is behind the second door; False when it waits or has ended with that."""
        async with self.service.database.autocommit() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        has_begun = bool(sent.arrived(so_far))
        for lost in sent.lost(so_far):
            if channel is not None and self._is_to_be_asked_for(lost, channel):
                await self._look_up(channel, lost)
            unknown = Unknown(lost.reason or CUT_OFF)
            if not await self._settle_part(channel, lost.id, unknown, has_begun=has_begun):
                return False
        for refused in sent.refused(so_far):  # by a callback, or to a worker that was late
            if sent.remedy_for(channel, so_far, refused)[0] not in sent.AGAIN:
                refusal = sent.refusal(channel, refused)
                return await self._settle_part(channel, refused.id, refusal, has_begun=has_begun)
        return True

    def _is_to_be_asked_for(self, lost: Delivery, channel: Channel) -> bool:
        """Tell whether it is time for the next look."""
        looks = channel.looks[lost.not_found :]
        return bool(looks) and lost.started_at + looks[0] <= self.task.claimed_at

    async def _look_up(self, channel: Channel, lost: Delivery) -> None:
        """Ask the provider for a lost part, and keep what it says."""
        tenant, text, others = self.task.tenant, None, tuple[str, ...]()
        if lost.template is None:
            text = channel.split(self.words)[lost.part]
        else:
            async with self.service.database.autocommit() as connection:
                for other in await texts_of_unknown_fate(connection, tenant, self.conversation.id, but=self.task.id):
                    others = (*others, *channel.split(other))
        answer = await channel.look_up(Lost(self.conversation.address, text, lost.started_at, others))
        found = () if isinstance(answer, Unknown) else answer
        async with self.service.database.transaction() as connection:
            await operate.lock(connection, tenant, self.task.id)
            known = await deliveries.known_ids(connection, tenant, [one.provider_id for one in found])
            for one in found:
                if one.provider_id not in known:
                    await deliveries.note_status(
                        connection, tenant, lost.id, one.provider_id, one.status, one.reason, one.code
                    )
                    return
            await deliveries.note_asked(connection, tenant, lost.id, is_missing=not isinstance(answer, Unknown))
            await settle.is_sending(connection, self.task)  # else another worker counts the same look
        if isinstance(answer, Unknown):
            log.warning("what became of task %d of tenant %s cannot be told: %s", self.task.id, tenant, answer.reason)

    async def _send(self, channel: Channel, so_far: Sequence[Delivery], template: Filled | None = None) -> None:
        parts = self._parts(channel, so_far) if template is None else [self.words]
        arrived = sent.arrived(so_far)
        accepted = {one.part: one.id for one in so_far if one.outcome == "accepted"}
        for number, words in enumerate(parts):
            if number in arrived:
                continue
            await channel.open()
            if number - 1 in accepted:
                await self._wait_until_left(accepted[number - 1], channel.gap)
            if not await self._wait_its_turn(channel, LONG_PATIENCE if arrived else self._patience()):
                return
            delivery = await self._begin(number, has_begun=bool(arrived), template=template)
            if delivery is None:
                return
            outcome = await channel.send(self._part(delivery, number, words, template))
            self.service.counts.sent(self.task.tenant, channel.name, outcome)
            is_last = number == len(parts) - 1
            if not await self._settle_part(channel, delivery, outcome, is_last=is_last, has_begun=bool(arrived)):
                return
            arrived.add(number)
            accepted[number] = delivery
        # Only here when the last part was known to have arrived before: by a callback, or from a worker that lost the claim.
        async with self.service.database.transaction() as connection:
            await settle.is_sending(connection, self.task)  # the task before its conversation, as everybody locks them
            await self._end_sent(connection, channel)

    def _parts(self, channel: Channel, so_far: Sequence[Delivery]) -> Sequence[str]:
        return [self.words] if sent.is_said_by_template(so_far) else channel.split(self.words)

    def _patience(self) -> float:
        has_come_back = self.task.text is not None and self.task.due_at != self.task.booked_for
        return LONG_PATIENCE if has_come_back else PATIENCE

    async def _wait_its_turn(self, channel: Channel, patience: float) -> bool:
        """Wait until a send may begin; False when that takes so long that the task was given back.

        It comes back a little early and waits out the rest with the lane in hand: else what falls due at the last moment,
        and was booked later, would pass it.
        """
        while wait := channel.wait(self.conversation.address, self.conversation.thread):
            if wait > patience:
                await self._come_again(max(wait - PATIENCE - EARLY, 0.001) if wait > PATIENCE else wait)
                return False
            await self.service.clock.sleep(wait)
            patience -= wait
        return True

    async def _come_again(self, seconds: float) -> None:
        delay = timedelta(seconds=seconds)
        async with self.service.database.transaction() as connection:
            await settle.give_back(
                connection, self.service.clock, self.task, delay=delay, error=PACED, is_fault=False, words=self.words
            )
            await settle.queue_up(connection, self.task)
            await self._mark_answered(connection)

    async def _wait_until_left(self, delivery: int, gap: timedelta) -> None:
        """Wait until the provider says that it sent a part on, which is what comes after it may follow; or for the gap."""
        with self.service.signals.subscribe(f"delivery {delivery}") as hints:
            if not gap or await self._has_left(delivery):
                return
            await hints.wait(gap.total_seconds())

    async def _has_left(self, delivery: int) -> bool:
        async with self.service.database.autocommit() as connection:
            return (await self._delivery(connection, delivery)).has_left

    async def _begin(self, number: int, *, has_begun: bool, template: Filled | None = None) -> int | None:
        """Pass the second door with one part; None when nothing is to be sent now.

        The task was cancelled before anything left the house; the customer wants nothing more; or that very part is known to
        have arrived by now.
        """
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, self.task) and not has_begun:
                await settle.cancel(connection, self.service.clock, self.task)
                return None
            if number in sent.accepted(await deliveries.of_task(connection, self.task.tenant, self.task.id)):
                await settle.give_back(connection, self.service.clock, self.task)  # so it was told while this waited
                return None
            if await self._ends_unwanted(connection, has_begun=has_begun):
                return None
            await settle.open_door(connection, self.service.clock, self.task, self.words)
            await self._mark_answered(connection)
            return await deliveries.start(
                connection,
                self.task.tenant,
                self.conversation.id,
                self.task.id,
                number,
                self.conversation.channel,
                template=template.id if template else None,
                now=self.service.clock.override(),
            )

    async def _ends_unwanted(self, connection: AsyncConnection, *, has_begun: bool) -> bool:
        """End what was not just asked for if somebody has said by now that nothing more is to be sent; tell whether they have.

        Of a long text the rest is left unsaid. An answer is finished. Where a person has taken the conversation over, what has
        not begun is held, which is told in the same way.
        """
        if self.kind == "reply":
            return False
        await settle.is_sending(connection, self.task)  # the task before its conversation, as everybody locks them
        found = await conversations.find(connection, self.task.tenant, self.conversation.id)
        if found is not None and not has_begun and not self.task.sending and waits(self.tenant, found, self.task):
            await wait_for_agent(self.service, connection, self.task, self.tenant)
            return True
        stopped = None if found is None else hindered_by(found, self.task)
        if stopped is None:
            return False
        seq = await self._log(connection) if has_begun else None
        await settle.skip(connection, self.service.clock, self.task, sent.GUARDS[stopped], seq)
        return True

    async def _settle_part(
        self,
        channel: Channel | None,
        delivery: int,
        outcome: Outcome,
        *,
        is_last: bool = False,
        is_notice: bool = False,
        has_begun: bool,
    ) -> bool:
        """Commit what came of one part, or what is known of it by now; return whether the next may follow."""
        try:
            async with self.service.database.transaction() as connection:
                if isinstance(outcome, NotSent) and outcome.moved_to is not None:
                    tenant, talk = self.task.tenant, self.conversation.id
                    await contacts.lock(connection, tenant, talk)
                    await lock_pending(connection, tenant, await conversations.of_the_same(connection, tenant, talk))
                await settle.is_sending(
                    connection, self.task
                )  # the task before its conversation, as everybody locks them
                outcome = await self._keep(connection, channel, delivery, outcome)
                match outcome:
                    case Accepted() if is_last:
                        await self._end_sent(connection, channel)
                    case Accepted() if is_notice and channel:
                        await self._wait_told(connection, channel)
                    case Rejected() if await self._has_arrived_otherwise(connection, delivery):
                        await settle.give_back(connection, self.service.clock, self.task)
                    case Rejected(reason, tenant_fault=True) if not has_begun:
                        await self._pause(connection, reason)
                        log.error("%s of tenant %s is refused: %s", self.task.channel, self.task.tenant, reason)
                    case Rejected(reason, is_place_gone=True) if not has_begun:
                        await self._wait_for_topic(connection, channel, reason)
                    case Rejected():
                        await self._settle_rejected(connection, channel, delivery, outcome, has_begun=has_begun)
                    case NotSent():
                        await self._try_again(connection, outcome, has_begun=has_begun)
                    case Unknown(reason):
                        await self._wait_for_word(connection, channel, delivery, reason, has_begun=has_begun)
        except (LostClaim, SQLAlchemyError):
            await self._record(channel, delivery, outcome)
            raise
        return isinstance(outcome, Accepted) and not is_last

    async def _has_arrived_otherwise(self, connection: AsyncConnection, delivery: int) -> bool:
        """Tell whether another attempt at the same part is known by now to have arrived."""
        so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        return any(one.id == delivery and one.part in sent.accepted(so_far) for one in so_far)

    async def _settle_rejected(
        self, connection: AsyncConnection, channel: Channel | None, delivery: int, refusal: Rejected, *, has_begun: bool
    ) -> None:
        """Let it be sent again, or by template, where that can help; else it has failed."""
        so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        failed = next(one for one in so_far if one.id == delivery)
        remedy, delay = sent.remedy_for(channel, so_far, failed)
        if remedy in sent.AGAIN:
            await settle.give_back(
                connection,
                self.service.clock,
                self.task,
                delay=delay,
                error=refusal.reason,
                is_fault=False,
                is_unsent=not has_begun,
                words=self.words,
            )
            return
        await self._end_unsaid(connection, refusal.reason, is_in_part=has_begun)
        if refusal.is_blocked:
            tenant, talk = self.task.tenant, self.conversation.id
            await contacts.stop(connection, tenant, talk, "provider", since=failed.started_at)

    async def _end_sent(self, connection: AsyncConnection, channel: Channel | None) -> None:
        """Every part was accepted; one of them may have been reported as failed meanwhile, which counts as if it came now."""
        await self._end_said(connection, await self._log(connection))
        tenant, task = self.task.tenant, self.task.id
        so_far = await deliveries.of_task(connection, tenant, task)
        for failed in (one for one in sent.missing(so_far) if one.part != NOTICE):
            by = "what was reported meanwhile"
            await sent.did_not_arrive(self.service, connection, tenant, channel, failed.id, task, by)

    async def _wait_told(self, connection: AsyncConnection, channel: Channel) -> None:
        """The customer has been told that a message waits: let it follow when they write, which they may have done by now."""
        so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        if not await self._hold_for_customer(connection, channel, so_far, is_mended=True):
            await settle.give_back(
                connection, self.service.clock, self.task, is_unsent=True, is_mended=True, words=self.words
            )

    async def _keep(
        self, connection: AsyncConnection, channel: Channel | None, delivery: int, outcome: Outcome
    ) -> Outcome:
        """Record the outcome of a send and return it; or the one that a callback, faster than the answer, has proved."""
        provider_id = outcome.provider_id if isinstance(outcome, Accepted) else None
        reason = None if isinstance(outcome, Accepted) else outcome.reason
        name = OUTCOMES[type(outcome)]
        code = outcome.code if isinstance(outcome, Rejected) else None
        if await deliveries.end(connection, self.task.tenant, delivery, name, reason, provider_id, code):
            return outcome
        known = await self._delivery(connection, delivery)
        if known.outcome == "accepted" and known.provider_id is not None:
            return Accepted(known.provider_id)
        if known.outcome == "rejected":
            if isinstance(outcome, Rejected):
                return outcome
            return sent.refusal(channel, known)
        return outcome

    async def _delivery(self, connection: AsyncConnection, delivery: int) -> Delivery:
        so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        return next(one for one in so_far if one.id == delivery)

    async def _try_again(self, connection: AsyncConnection, outcome: NotSent, *, has_begun: bool) -> None:
        """Let it be sent again, unless it was tried often enough."""
        so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        tries = sum(one.outcome == "not_sent" for one in so_far)
        if tries >= SENDS:
            await self._end_unsaid(connection, outcome.reason, is_in_part=has_begun)
            return
        delay = None if outcome.moved_to else backoff(tries, outcome.retry_after)
        if delay is not None and delay > LONGEST:
            log.error("task %d of tenant %s waits %s: %s", self.task.id, self.task.tenant, delay, outcome.reason)
        await settle.give_back(
            connection,
            self.service.clock,
            self.task,
            delay=delay,
            error=self._counted(outcome.reason),
            is_unsent=not has_begun,
        )
        if outcome.moved_to is not None:  # this task, its lane free by now, among the rest
            moved = self.conversation
            await follow(connection, moved.tenant, moved.channel, moved.address_key, outcome.moved_to)

    async def _wait_for_word(
        self, connection: AsyncConnection, channel: Channel | None, delivery: int, reason: str, *, has_begun: bool
    ) -> None:
        """Let it be looked up later; once that is over, do as the tenant wants."""
        lost = await self._delivery(connection, delivery)
        looks = channel.looks[lost.not_found :] if channel else ()
        age = await self.service.clock.now(connection) - lost.started_at
        if looks and lost.asked - lost.not_found < ASKS:
            await settle.give_back(
                connection,
                self.service.clock,
                self.task,
                # A look that was due and told nothing is repeated, later and later.
                delay=looks[0] - age if age < looks[0] else min(age, LONGEST),
                error=reason,
                is_fault=False,
                message_seq=await self._log(connection),
            )
        elif channel and not looks and channel.on_unknown == "at_least_once" and lost.attempt < BUDGET:
            await deliveries.end(connection, self.task.tenant, delivery, "not_sent", reason, None)
            await self._try_again(connection, NotSent(reason), has_begun=has_begun)
        else:
            await settle.leave_uncertain(connection, self.service.clock, self.task, reason, await self._log(connection))
            log.warning("task %d of tenant %s is uncertain: %s", self.task.id, self.task.tenant, reason)

    async def _end_unsaid(self, connection: AsyncConnection, reason: str, *, is_in_part: bool) -> None:
        seq = await self._log(connection) if is_in_part else None
        await settle.fail(connection, self.service.clock, self.task, self.error or reason, seq)
        log.warning("task %d of tenant %s was refused: %s", self.task.id, self.task.tenant, reason)

    async def _log(self, connection: AsyncConnection) -> int:
        """Let it stand in the conversation, once: what may have arrived, or was said in part, stands there already.

        An answer to it must make sense.
        """
        if self.task.message_seq is not None:
            return self.task.message_seq
        return await messages.add(
            connection,
            self.task.tenant,
            self.conversation.id,
            "assistant",
            self.kind,
            self.words,
            now=self.service.clock.override(),
            task=self.task.id,
        )

    async def _record(self, channel: Channel | None, delivery: int, outcome: Outcome) -> None:
        """Keep the truth about a send even where the task could not be settled by it; another may have given it up."""
        async with self.service.database.transaction() as connection:
            await operate.lock(connection, self.task.tenant, self.task.id)
            await self._keep(connection, channel, delivery, outcome)
            if isinstance(outcome, Accepted | Rejected):
                by = "the provider's late answer"
                await sent.go_on(self.service, connection, self.task.tenant, channel, self.task.id, by)
