"""`ask_a_person`: hands the conversation to a person of the business, and has the customer told so."""

import logging
from datetime import timedelta

from pydantic_ai import RunContext

from agent.context import TurnContext
from agent.errors import HandedOver
from scheduler.book import Booking, book
from store import conversations

log = logging.getLogger(__name__)

WHY_LIMIT = 500


async def ask_a_person(ctx: RunContext[TurnContext], why: str) -> None:
    """Hand this conversation to a person of the business, who answers from then on; the customer is told so by itself.

    Args:
        why: What the person has to know or decide, in a sentence.
    """
    context, voice = ctx.deps, ctx.deps.voice
    async with context.database.transaction() as connection:
        await context.hold(connection)
        words = " ".join(why.replace("\0", "").split())[:WHY_LIMIT]
        now = context.clock.override()
        # One row and one moment: whatever dies after this commit, the customer is told once, and this turn says nothing.
        if await conversations.hand_over(connection, voice.tenant, voice.conversation, words or None, now=now):
            told = Booking(
                voice.tenant,
                "turn",
                timedelta(),
                voice.conversation,
                voice.channel,
                payload={"phrase": "with_a_person", "language": voice.language},
                reply_to=context.reply_to,
                parent=context.turn,
                lane=True,
            )
            await book(connection, context.clock, told)
    context.on_booked()
    log.info("conversation %d of tenant %s waits for a person", voice.conversation, voice.tenant)
    raise HandedOver
