"""Saying a task's words on its channel and settling it, with its conversation's lane in hand.

On the web the bubble and the task's end are one transaction: truly once. On a network the second door comes first: the
text and a delivery row are committed, then the provider is called, then what came of it is committed. Whoever finds a
delivery that was begun and whose outcome nobody knows says so instead of sending again.
"""

import logging
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.service import FRESH, Service
from app.tenants_file import UNUSABLE, TenantConfig, from_stored
from channels.channel import Channel
from channels.message import Accepted, NotSent, Origin, Outcome, Part, Rejected, Unknown
from channels.web import outbound as web
from scheduler import settle
from scheduler.errors import LostClaim
from scheduler.hold import CHANNEL_PAUSED, WINDOW_CLOSED, keep_waiting
from scheduler.retry import BUDGET, backoff
from scheduler.task import Task
from store import contacts, conversations, deliveries, messages, tenants
from store.conversations import Conversation
from store.messages import Kind

log = logging.getLogger(__name__)

CUT_OFF = "a send was begun and cut off before its outcome was known; it may have arrived"
SENDS = 20
"""Attempts at sending what certainly did not go out, before it is given up: an outage of half an hour or more."""


async def pause(
    service: Service, connection: AsyncConnection, task: Task, known: TenantConfig | None, **more: Any
) -> None:
    """Hold a task until its tenant is applied; or let it come again soon, if that was done since we looked.

    `known` is the tenant as we found it, None if it could not be used; `more` is for `settle.give_back`.
    """
    await keep_waiting(connection, task, CHANNEL_PAUSED)
    row = await tenants.find(connection, task.tenant)
    try:
        now = from_stored(row.config, service.box) if row else None
    except UNUSABLE:
        now = None
    if now != known:
        await settle.give_back(connection, service.clock, task, delay=timedelta(seconds=FRESH), **more)
    else:
        await settle.give_back(connection, service.clock, task, hold=CHANNEL_PAUSED, **more)


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
        if await self._was_cut_off():
            return
        channel = await self.service.channel(self.tenant, self.conversation.channel)
        if channel is None:
            log.warning(
                "tenant %s has no %s channel now; task %d waits", self.task.tenant, self.task.channel, self.task.id
            )
            async with self.service.database.transaction() as connection:
                await self._mark_answered(connection)
                await self._pause(connection)
        elif self.task.sending or self._is_reachable(channel) or not await self._wait_for_customer(channel):
            await self._send(channel)

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

    def _is_reachable(self, channel: Channel) -> bool:
        origin = Origin(self.conversation.channel, self.conversation.address, self.conversation.last_inbound_at)
        return channel.assess(origin, self.task.claimed_at, self.task.claimed_at).possible

    async def _wait_for_customer(self, channel: Channel) -> bool:
        """Hold the task until the customer writes; False when they just have."""
        async with self.service.database.transaction() as connection:
            await keep_waiting(connection, self.task, WINDOW_CLOSED)
            self.conversation = (
                await conversations.find(connection, self.task.tenant, self.conversation.id) or self.conversation
            )
            if self._is_reachable(channel):
                return False
            await self._mark_answered(connection)
            await settle.give_back(connection, self.service.clock, self.task, hold=WINDOW_CLOSED, words=self.words)
        log.warning("task %d of tenant %s waits until its customer writes again", self.task.id, self.task.tenant)
        return True

    async def _mark_answered(self, connection: AsyncConnection) -> None:
        """The text is committed, so what it answers is answered, whatever becomes of the text."""
        if self.answers_up_to is not None:
            await conversations.mark_answered(connection, self.task.tenant, self.conversation.id, self.answers_up_to)

    async def _write_bubble(self) -> None:
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, self.task):
                await settle.cancel(connection, self.service.clock, self.task)
                state = "cancelled"
            else:
                seq = await web.write(
                    connection,
                    self.task.tenant,
                    self.conversation.id,
                    self.kind,
                    self.words,
                    task=self.task.id,
                    now=self.service.clock.override(),
                )
                await self._mark_answered(connection)
                state = await self._end_said(connection, seq)
        self._count(state)
        self.service.signals.hint(f"message {self.conversation.id}")

    async def _end_said(self, connection: AsyncConnection, seq: int) -> str:
        if self.error is not None:
            await settle.fail(connection, self.service.clock, self.task, self.error)
            return "failed"
        await settle.deliver(connection, self.service.clock, self.task, seq)
        return "delivered"

    async def _was_cut_off(self) -> bool:
        """Tell whether something is behind the second door of which nobody knows what became; the task ends there."""
        if not self.task.sending:
            return False
        async with self.service.database.transaction() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
            lost = [delivery for delivery in so_far if delivery.outcome in (None, "unknown")]
            if not lost:
                return False
            reason = lost[0].reason or CUT_OFF
            for delivery in lost:
                await deliveries.end(connection, self.task.tenant, delivery.id, "unknown", reason, None)
            await self._leave_uncertain(connection, reason)
        self._count("uncertain")
        return True

    async def _send(self, channel: Channel) -> None:
        parts = channel.split(self.words)
        async with self.service.database.transaction() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        arrived = {delivery.part for delivery in so_far if delivery.outcome == "accepted"}
        for number, words in enumerate(parts):
            if number in arrived:
                continue
            delivery = await self._begin(number, has_begun=bool(arrived))
            if delivery is None:
                return
            outcome = await channel.send(
                Part(
                    delivery=delivery,
                    address=self.conversation.address,
                    text=words,
                    thread=self.conversation.thread,
                    reply_to=self.task.reply_to if number == 0 else None,
                    scheduled=self.kind != "reply",
                )
            )
            if not await self._settle_part(
                delivery, outcome, is_last=number == len(parts) - 1, has_begun=bool(arrived)
            ):
                return
            arrived.add(number)
        # Only here when the last part was known to have arrived before: by a callback, or from a worker that lost the claim.
        async with self.service.database.transaction() as connection:
            state = await self._end_said(connection, await self._log(connection))
        self._count(state)

    async def _begin(self, number: int, *, has_begun: bool) -> int | None:
        """Pass the second door with one part; None when the task was cancelled before anything left the house."""
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, self.task) and not has_begun:
                await settle.cancel(connection, self.service.clock, self.task)
                self._count("cancelled")
                return None
            await settle.open_door(connection, self.service.clock, self.task, self.words)
            await self._mark_answered(connection)
            return await deliveries.start(
                connection, self.task.tenant, self.conversation.id, self.task.id, number, self.conversation.channel
            )

    async def _settle_part(self, delivery: int, outcome: Outcome, *, is_last: bool, has_begun: bool) -> bool:
        """Commit what came of one part; return whether the next may follow."""
        try:
            if isinstance(outcome, Unknown):
                outcome = await self._proved(delivery) or outcome
            match outcome:
                case Accepted(provider_id):
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "accepted", None, provider_id)
                        state = await self._end_said(connection, await self._log(connection)) if is_last else None
                    if state is not None:
                        self._count(state)
                    return not is_last
                case Rejected(reason, tenant_fault=True) if not has_begun:
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "rejected", reason, None)
                        await self._pause(connection, reason)
                    log.error("the %s channel of tenant %s is refused: %s", self.task.channel, self.task.tenant, reason)
                case Rejected(reason):
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "rejected", reason, None)
                        await self._end_unsaid(connection, reason, is_in_part=has_begun)
                    log.warning("task %d of tenant %s was refused: %s", self.task.id, self.task.tenant, reason)
                    self._count("failed")
                case NotSent(reason, retry_after, moved_to):
                    await self._try_again(delivery, reason, retry_after, moved_to, has_begun=has_begun)
                case Unknown(reason):
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "unknown", reason, None)
                        await self._leave_uncertain(connection, reason)
                    self._count("uncertain")
        except (LostClaim, SQLAlchemyError):
            await self._record(delivery, outcome)
            raise
        return False

    async def _proved(self, delivery: int) -> Accepted | None:
        """Return what a callback, faster than the answer that never came, has proved."""
        async with self.service.database.transaction() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        ids = [one.provider_id for one in so_far if one.id == delivery and one.provider_id is not None]
        return Accepted(ids[0]) if ids else None

    async def _try_again(
        self, delivery: int, reason: str, retry_after: float | None, moved_to: str | None, *, has_begun: bool
    ) -> None:
        async with self.service.database.transaction() as connection:
            await deliveries.end(connection, self.task.tenant, delivery, "not_sent", reason, None)
            if moved_to is not None:
                moved = self.conversation
                await contacts.move(connection, moved.tenant, moved.channel, moved.address_key, moved_to)
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
            tries = sum(one.outcome == "not_sent" for one in so_far)
            if tries >= SENDS:
                await self._end_unsaid(connection, reason, is_in_part=has_begun)
                self._count("failed")
            else:
                await settle.give_back(
                    connection,
                    self.service.clock,
                    self.task,
                    delay=None if moved_to else backoff(tries, retry_after),
                    error=self._counted(reason),
                    is_unsent=not has_begun,
                )

    async def _end_unsaid(self, connection: AsyncConnection, reason: str, *, is_in_part: bool) -> None:
        seq = await self._log(connection) if is_in_part else None
        await settle.fail(connection, self.service.clock, self.task, self.error or reason, seq)

    async def _leave_uncertain(self, connection: AsyncConnection, reason: str) -> None:
        """It may have arrived, so it stands in the conversation: an answer to it must make sense."""
        seq = await self._log(connection)
        await settle.leave_uncertain(connection, self.service.clock, self.task, reason, seq)
        log.warning("task %d of tenant %s is uncertain: %s", self.task.id, self.task.tenant, reason)

    async def _log(self, connection: AsyncConnection) -> int:
        """Let it stand in the conversation, once: what was uncertain, or said in part, stands there already."""
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

    async def _record(self, delivery: int, outcome: Outcome) -> None:
        """Keep the truth about a send even where the task could not be settled by it."""
        name = {Accepted: "accepted", Rejected: "rejected", NotSent: "not_sent", Unknown: "unknown"}[type(outcome)]
        provider_id = outcome.provider_id if isinstance(outcome, Accepted) else None
        reason = None if isinstance(outcome, Accepted) else outcome.reason
        async with self.service.database.transaction() as connection:
            await deliveries.end(connection, self.task.tenant, delivery, name, reason, provider_id)

    def _count(self, state: str) -> None:
        self.service.counts.settled.labels(self.task.tenant, self.task.kind, state).inc()
