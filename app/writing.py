"""Showing that an answer is being written, and, where the channel can, what there is of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from sqlalchemy.exc import SQLAlchemyError

from app.service import Service
from channels.channel import Channel
from scheduler.task import Task
from store import drafts
from store.conversations import Conversation

TYPING_EVERY = 4.5
"""Seconds; Telegram shows the sign for five."""
DRAFT_EVERY = 1.5
"""Seconds from one draft to the next, and to the first: what is written sooner than that is simply said."""
DRAFT_EVERY_ON_WEB = 0.3
LATE_DRAFT = 2.0
"""Seconds for which the answer waits for a draft on its way, which would else be seen after it."""


class Page:
    """A conversation's pages on the web: a hint finds them in whatever process they listen, and they read the draft by themselves."""

    def __init__(
        self, service: Service, conversation: Conversation, answers: int, *, has_drafts: bool, is_first: bool
    ) -> None:
        """`answers` numbers the customer's message that is answered; where it is not the first attempt, another left words."""
        self._service, self._conversation, self._answers, self._has_drafts = service, conversation, answers, has_drafts
        self._shown = "" if is_first else None

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        """Tell whether the tenant has its answers shown while they are written."""
        return self._has_drafts

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        """Show that an answer is being written, and what there is of it. Best effort: a draft may be lost."""
        talk = self._conversation
        if words != self._shown:
            with suppress(SQLAlchemyError):
                async with self._service.database.autocommit() as connection:
                    await drafts.put(connection, talk.tenant, talk.id, self._answers, words)
            self._shown = words
        self._service.signals.hint(f"typing {talk.id}")


@asynccontextmanager
async def shown(
    screen: Channel | Page, conversation: Conversation, task: Task
) -> AsyncIterator[Callable[[str], None] | None]:
    """Show it as long as the block runs, which must end before the answer is sent.

    Gives what to call with the words so far; None where no drafts are shown.
    """
    every = DRAFT_EVERY_ON_WEB if isinstance(screen, Page) else DRAFT_EVERY
    words, has_more = "", asyncio.Event()
    call: asyncio.Future[None] | None = None

    def show(so_far: str) -> None:
        nonlocal words
        words = so_far
        has_more.set()

    async def tell() -> None:
        nonlocal call
        while True:
            call = asyncio.ensure_future(screen.typing(conversation.address, conversation.thread, task.reply_to, words))
            await asyncio.shield(call)
            await asyncio.sleep(every)
            with suppress(TimeoutError):
                async with asyncio.timeout(TYPING_EVERY - every):
                    await has_more.wait()
            has_more.clear()

    telling = asyncio.create_task(tell())
    try:
        yield show if screen.shows_drafts(conversation.address, conversation.thread) else None
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        if call is not None:
            if words:
                await asyncio.wait([call], timeout=LATE_DRAFT)
            call.cancel()
