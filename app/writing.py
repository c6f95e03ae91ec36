"""Showing that an answer is being written, and, where the channel can, what there is of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from app.service import Service
from channels.channel import Channel
from scheduler.task import Task
from store.conversations import Conversation

TYPING_EVERY = 4.5
"""Seconds; Telegram shows the sign for five."""
DRAFT_EVERY = 1.5
"""Seconds from one draft to the next, and to the first: what is written sooner than that is simply said."""
LATE_DRAFT = 2.0
"""Seconds for which the answer waits for a draft on its way, which would else be seen after it."""


@asynccontextmanager
async def shown(
    service: Service, channel: Channel | None, conversation: Conversation, task: Task
) -> AsyncIterator[Callable[[str], None] | None]:
    """Show it as long as the block runs, which must end before the answer is sent.

    Gives what to call with the words so far; None where the channel shows no drafts.
    """
    words, has_more = "", asyncio.Event()
    call: asyncio.Future[None] | None = None

    def show(so_far: str) -> None:
        nonlocal words
        words = so_far
        has_more.set()

    async def tell() -> None:
        nonlocal call
        while True:
            if channel is None:
                service.signals.hint(f"typing {conversation.id}")
            else:
                call = asyncio.ensure_future(
                    channel.typing(conversation.address, conversation.thread, task.reply_to, words)
                )
                await asyncio.shield(call)
            await asyncio.sleep(DRAFT_EVERY)
            with suppress(TimeoutError):
                async with asyncio.timeout(TYPING_EVERY - DRAFT_EVERY):
                    await has_more.wait()
            has_more.clear()

    telling = asyncio.create_task(tell())
    try:
        yield show if channel and channel.shows_drafts(conversation.address, conversation.thread) else None
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        if call is not None:
            if words:
                await asyncio.wait([call], timeout=LATE_DRAFT)
            call.cancel()
