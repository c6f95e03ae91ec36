"""The stream: what is said in a conversation, as Server-Sent Events, each message once and in order.

What a browser is told comes from the log alone, read after its cursor; hints only say when to look. Between two looks no
connection is held. Events:

- `message`, with its sequence number as `id`: what a browser sends back as `Last-Event-ID` when it reconnects
- `typing`: an answer is being written, until it comes or 30 seconds pass
- `seen`: up to where the visitor has seen, on this or another page
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from store import messages
from store.conversations import conversations
from store.database import bucket_of
from store.messages import Message
from web_widget.bubbles import LAST_SEQ, bubble
from web_widget.web import Web

log = logging.getLogger(__name__)

KEEP_ALIVE = 10.0
"""Seconds of silence after which a comment is sent; a browser takes a connection silent for 25 s for dead."""
LOOK_AGAIN = 5.0
"""Seconds between two looks while hints are proven to arrive."""
LOOK_AGAIN_DEAF = 1.0
"""Seconds between two looks while they are not."""
TYPING_LASTS = 30.0
"""Seconds after which an answer announced as being written is no longer believed in."""
MOST_STREAMS = 10
"""Streams of one conversation, each of which holds a connection: as many tabs as anybody has open."""
PAGE = 100
"""Messages read at once."""

_A_WHILE = 3600.0


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the log found."""

    messages: Sequence[Message]
    seen: int
    is_unanswered: bool
    """Whether the last word is the visitor's; only looked up when asked for."""


async def events(
    web: Web,
    tenant: str,
    conversation: int,
    after: int,
    *,
    keep_alive: float = KEEP_ALIVE,
    typing_lasts: float = TYPING_LASTS,
) -> AsyncGenerator[str, None]:
    """Yield the events of a conversation after a sequence number until the service stops or the conversation is gone."""
    now = asyncio.get_running_loop().time
    with (
        # Before the first look, so that nothing said in between is missed.
        web.signals.subscribe(f"message {conversation}") as news,
        web.signals.subscribe(f"typing {conversation}") as typing,
    ):
        # These live on from wait to wait: a wait that is cancelled forgets its hint.
        stop_told = asyncio.create_task(web.stopping.wait())
        news_told = asyncio.create_task(news.wait(_A_WHILE))
        typing_told = asyncio.create_task(typing.wait(_A_WHILE))
        web.streams[conversation] += 1
        cursor, seen = after, -1
        is_hinted, typing_until = False, 0.0
        try:
            yield ": welcome\n\n"
            spoke_at = now()
            while not web.stopping.is_set():
                # Shielded, because a browser that leaves cancels this, and a cancelled read costs a connection.
                look = await asyncio.shield(_look(web, tenant, conversation, cursor, ask_who_spoke_last=is_hinted))
                if look is None:
                    return
                chunks = [_event("message", bubble(message), message.seq) for message in look.messages]
                if chunks:
                    cursor = look.messages[-1].seq
                is_answered = any(message.role == "assistant" for message in look.messages)
                if typing_until and (is_answered or now() >= typing_until):
                    typing_until = 0.0
                    chunks.append(_event("typing", {"typing": False}))
                # A hint may come late, even after the answer it announced.
                if is_hinted and look.is_unanswered:
                    if not typing_until:
                        chunks.append(_event("typing", {"typing": True}))
                    typing_until = now() + typing_lasts
                if look.seen != seen:
                    seen = look.seen
                    chunks.append(_event("seen", {"seq": seen}))
                if not chunks and now() - spoke_at >= keep_alive:
                    chunks.append(": still here\n\n")
                if chunks:
                    yield "".join(chunks)
                    spoke_at = now()
                is_hinted = False
                if len(look.messages) == PAGE:
                    continue

                until = spoke_at + keep_alive
                if typing_until:
                    until = min(until, typing_until)
                longest = LOOK_AGAIN if web.signals.is_alive else LOOK_AGAIN_DEAF
                await asyncio.wait(
                    {stop_told, news_told, typing_told},
                    timeout=max(min(longest, until - now()), 0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if news_told.done():
                    news_told = asyncio.create_task(news.wait(_A_WHILE))
                if typing_told.done():
                    is_hinted = typing_told.result()
                    typing_told = asyncio.create_task(typing.wait(_A_WHILE))
        except SQLAlchemyError as problem:
            # The browser comes back by itself, and continues where it was.
            log.warning(
                "a stream of tenant %s ended: the database could not be read (%s)", tenant, type(problem).__name__
            )
        finally:
            web.streams[conversation] -= 1
            if not web.streams[conversation]:
                del web.streams[conversation]
            for told in (stop_told, news_told, typing_told):
                told.cancel()


async def _look(web: Web, tenant: str, conversation: int, after: int, *, ask_who_spoke_last: bool) -> _Look | None:
    """Read what is new; None when the conversation is gone."""
    state = select(conversations.c.last_seq, conversations.c.seen_seq).where(
        conversations.c.bucket == bucket_of(tenant),
        conversations.c.tenant == tenant,
        conversations.c.id == conversation,
    )
    async with web.database.transaction() as connection:
        row = (await connection.execute(state)).first()
        if row is None:
            return None
        new: Sequence[Message] = ()
        if row.last_seq > after:
            new = await messages.read(connection, tenant, conversation, after=after, limit=PAGE)
        last: Sequence[Message] = ()
        if ask_who_spoke_last:
            last = await messages.read(connection, tenant, conversation, before=LAST_SEQ, limit=1)
    return _Look(new, row.seen_seq, bool(last) and last[-1].role == "customer")


def _event(name: str, content: dict[str, Any], seq: int | None = None) -> str:
    # JSON has no line break of its own, so one data line carries it.
    identity = f"id: {seq}\n" if seq is not None else ""
    return f"{identity}event: {name}\ndata: {json.dumps(content, ensure_ascii=False, separators=(',', ':'))}\n\n"
