"""Saying a task's words on its channel and settling it, with its conversation's lane in hand.

On the web the bubble and the task's end are one transaction: truly once. On a network the second door comes first: the
text and a delivery row are committed, then the provider is called, then what came of it is committed. Whoever finds a
delivery that was begun and never ended cannot know, and says so instead of sending again.
"""

import logging
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app.service import Service
from app.tenants_file import TenantConfig
from channels.channel import Channel
from channels.message import Accepted, NotSent, Origin, Outcome, Part, Rejected, Unknown
from channels.web import outbound as web
from scheduler import settle
from scheduler.errors import LostClaim
from scheduler.hold import CHANNEL_PAUSED, WINDOW_CLOSED
from scheduler.retry import BUDGET, backoff
from scheduler.task import Task
from store import contacts, conversations, deliveries, messages
from store.conversations import Conversation
from store.deliveries import Delivery
from store.messages import Kind

log = logging.getLogger(__name__)

CUT_OFF = "a send was begun and cut off before its outcome was known; it may have arrived"


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
        if channel is None:
            log.warning(
                "tenant %s has no %s channel now; task %d waits", self.task.tenant, self.task.channel, self.task.id
            )
            await self._hold(CHANNEL_PAUSED)
            return
        origin = Origin(self.conversation.channel, self.conversation.address, self.conversation.last_inbound_at)
        if not self.task.sending and not channel.assess(origin, self.task.claimed_at, self.task.claimed_at).possible:
            log.warning("task %d of tenant %s waits until its customer writes again", self.task.id, self.task.tenant)
            await self._hold(WINDOW_CLOSED)
            return
        await self._send(channel)

    async def _hold(self, reason: str) -> None:
        async with self.service.database.transaction() as connection:
            await self._mark_answered(connection)
            await settle.give_back(connection, self.service.clock, self.task, hold=reason, words=self.words)

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

    async def _send(self, channel: Channel) -> None:
        parts = channel.split(self.words)
        async with self.service.database.transaction() as connection:
            so_far = await deliveries.of_task(connection, self.task.tenant, self.task.id)
        cut_off = [delivery for delivery in so_far if delivery.outcome is None]
        if cut_off:
            await self._record(cut_off, Unknown(CUT_OFF))
            await self._leave_uncertain(CUT_OFF)
            return
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

    async def _begin(self, number: int, *, has_begun: bool) -> int | None:
        """Pass the second door with one part; None when the task was cancelled before anything left the house."""
        async with self.service.database.transaction() as connection:
            if await settle.is_cancelled(connection, self.task) and not has_begun:
                await settle.cancel(connection, self.service.clock, self.task)
                self._count("cancelled")
                return None
            await settle.open_door(connection, self.task, self.words)
            await self._mark_answered(connection)
            return await deliveries.start(
                connection, self.task.tenant, self.conversation.id, self.task.id, number, self.conversation.channel
            )

    async def _settle_part(self, delivery: int, outcome: Outcome, *, is_last: bool, has_begun: bool) -> bool:
        """Commit what came of one part; return whether the next may follow."""
        try:
            match outcome:
                case Accepted(provider_id):
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "accepted", None, provider_id)
                        if is_last:
                            state = await self._end_said(connection, await self._log(connection))
                            self._count(state)
                    return not is_last
                case Rejected(reason, tenant_fault=True) if not has_begun:
                    async with self.service.database.transaction() as connection:
                        await deliveries.end(connection, self.task.tenant, delivery, "rejected", reason, None)
                        await settle.give_back(
                            connection, self.service.clock, self.task, hold=CHANNEL_PAUSED, error=reason, is_unsent=True
                        )
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
                    await self._leave_uncertain(reason)
        except LostClaim:
            await self._record([delivery], outcome)
            raise
        return False

    async def _try_again(
        self, delivery: int, reason: str, retry_after: float | None, moved_to: str | None, *, has_begun: bool
    ) -> None:
        async with self.service.database.transaction() as connection:
            await deliveries.end(connection, self.task.tenant, delivery, "not_sent", reason, None)
            if moved_to is not None:
                moved = self.conversation
                await contacts.move(connection, moved.tenant, moved.channel, moved.address_key, moved_to)
            if self.task.attempt >= BUDGET:
                await self._end_unsaid(connection, reason, is_in_part=has_begun)
                self._count("failed")
            else:
                await settle.give_back(
                    connection,
                    self.service.clock,
                    self.task,
                    delay=None if moved_to else backoff(self.task.attempt, retry_after),
                    error=reason,
                    is_unsent=True,
                )

    async def _end_unsaid(self, connection: AsyncConnection, reason: str, *, is_in_part: bool) -> None:
        if is_in_part:
            await self._log(connection)
        await settle.fail(connection, self.service.clock, self.task, self.error or reason)

    async def _leave_uncertain(self, reason: str) -> None:
        """It may have arrived, so it stands in the conversation: an answer to it must make sense."""
        async with self.service.database.transaction() as connection:
            await self._log(connection)
            await settle.leave_uncertain(connection, self.service.clock, self.task, reason)
        log.warning("task %d of tenant %s is uncertain: %s", self.task.id, self.task.tenant, reason)
        self._count("uncertain")

    async def _log(self, connection: AsyncConnection) -> int:
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

    async def _record(self, begun: Sequence[Delivery] | Sequence[int], outcome: Outcome) -> None:
        """Keep the truth about a send even where the claim is lost: it names no task's end."""
        name = {Accepted: "accepted", Rejected: "rejected", NotSent: "not_sent", Unknown: "unknown"}[type(outcome)]
        provider_id = outcome.provider_id if isinstance(outcome, Accepted) else None
        reason = None if isinstance(outcome, Accepted) else outcome.reason
        async with self.service.database.transaction() as connection:
            for delivery in begun:
                number = delivery.id if isinstance(delivery, Delivery) else delivery
                await deliveries.end(connection, self.task.tenant, number, name, reason, provider_id)

    def _count(self, state: str) -> None:
        self.service.counts.settled.labels(self.task.tenant, self.task.kind, state).inc()
