"""The stream: what is said in a conversation, as Server-Sent Events, each message once and in order.

What a browser is told comes from the log alone, read after its cursor; hints only say when to look. Between two looks no
connection is held. Events:

- `message`, with its sequence number as `id`: what a browser sends back as `Last-Event-ID` when it reconnects
- `typing`: an answer is being written, until it comes or 30 seconds pass
- `delta`: more of the words of that answer, or with `is_first` all there are. It is no message: the next message of the
  assistant takes its place, and the end of `typing` takes it away
- `seen`: up to where the visitor has seen, on this or another page
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from store import messages
from store.database import bucket_of, sql
from store.messages import Message
from web_widget.bubbles import bubble
from web_widget.listeners import Listener
from web_widget.web import Web

log = logging.getLogger(__name__)

KEEP_ALIVE = 10.0
"""Seconds of silence after which a comment is sent; a browser takes a connection silent for 25 s for dead."""
TYPING_LASTS = 30.0
"""Seconds after which an answer announced as being written is no longer believed in."""
PAGE = 100
"""Messages read at once."""

# What is being written is only asked for when there is a hint of it, and at first, when a hint may have come too early to be heard.
STATE = """
select v.last_seq, v.seen_seq, d.text,
       :is_written and exists (
         select from messages m
          where m.bucket = v.bucket and m.tenant = v.tenant and m.conversation = v.id
            and m.seq > v.answered_seq and m.role = 'customer')
  from conversations v
  left join drafts d on :is_written and d.bucket = v.bucket and d.tenant = v.tenant and d.conversation = v.id
                    and d.answers > v.answered_seq and d.at > now() - make_interval(secs => :typing_lasts)
 where v.bucket = :bucket and v.tenant = :tenant and v.id = :conversation
"""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the conversation found."""

    messages: Sequence[Message]
    seen: int
    draft: str
    """What there is of the answer that is being written."""
    is_unanswered: bool
    """Whether the customer waits for an answer. Like the draft only looked up when asked for."""


class _Told:
    """What a browser has been told on one stream, and what it is told next."""

    def __init__(self, listener: Listener, typing_lasts: float) -> None:
        self._listener, self._typing_lasts = listener, typing_lasts
        self.typing_until: float | None = None
        """Until when the browser believes that an answer is being written, by the loop's clock."""
        self._draft = ""

    def news(self, look: _Look, now: float, *, is_hinted: bool) -> list[str]:
        """Return the events of what a look has found; `is_hinted` says that an answer is said to be written."""
        chunks = [_event("message", bubble(message), message.seq) for message in look.messages]
        if look.messages:
            self._listener.cursor = look.messages[-1].seq
        if any(message.role == "assistant" for message in look.messages):
            self._draft = ""
        if any(message.kind == "reply" for message in look.messages):
            chunks += self.end_of_typing()
        elif look.is_unanswered and (
            is_hinted or look.draft
        ):  # a hint may come late, even after the answer it announced
            if self.typing_until is None:
                chunks.append(_event("typing", {"typing": True}))
            self.typing_until = now + self._typing_lasts
            if look.draft != self._draft:
                is_more = self._draft != "" and look.draft.startswith(self._draft)
                more = look.draft.removeprefix(self._draft) if is_more else look.draft
                chunks.append(_event("delta", {"text": more, "is_first": not is_more}))
                self._draft = look.draft
        if look.seen != self._listener.seen:
            self._listener.seen = look.seen
            chunks.append(_event("seen", {"seq": look.seen}))
        return chunks

    def end_of_typing(self) -> list[str]:
        """Return the event that takes dots and draft away, when they are shown."""
        if self.typing_until is None:
            return []
        self.typing_until, self._draft = None, ""
        return [_event("typing", {"typing": False})]


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
    try:
        with web.listeners.joined(tenant, conversation, after) as listener:
            told = _Told(listener, typing_lasts)
            yield ": welcome\n\n"
            spoke_at = now()
            is_first = is_woken = True
            while not web.stopping.is_set() and not listener.is_over:
                chunks: list[str] = []
                has_more = False
                if is_woken:
                    is_hinted = listener.begin_look()
                    # Shielded, because a browser that leaves cancels this, and a cancelled read costs a connection.
                    look = await asyncio.shield(
                        _look(web, listener, is_written=is_hinted or is_first, typing_lasts=typing_lasts)
                    )
                    if look is None:
                        return
                    chunks = told.news(look, now(), is_hinted=is_hinted)
                    is_first, has_more = False, len(look.messages) == PAGE
                if told.typing_until is not None and now() >= told.typing_until:
                    chunks += told.end_of_typing()
                if not chunks and now() - spoke_at >= keep_alive:
                    chunks = [": still here\n\n"]
                if chunks:
                    yield "".join(chunks)
                    spoke_at = now()
                until = min(spoke_at + keep_alive, told.typing_until or spoke_at + keep_alive)
                is_woken = has_more or await listener.wait(until - now())
    except SQLAlchemyError as problem:
        # The browser comes back by itself, and continues where it was.
        log.warning("a stream of tenant %s ended: the database could not be read (%s)", tenant, type(problem).__name__)


async def _look(web: Web, listener: Listener, *, is_written: bool, typing_lasts: float) -> _Look | None:
    """Read what is new; None when the conversation is gone."""
    tenant, conversation, after = listener.tenant, listener.conversation, listener.cursor
    given: dict[str, Any] = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    given |= {"is_written": is_written, "typing_lasts": typing_lasts}
    async with web.database.autocommit() as connection:
        row = (await connection.execute(sql(STATE), given)).first()
        if row is None:
            return None
        last, seen, draft, is_unanswered = row
        new: Sequence[Message] = ()
        if last > after:
            new = await messages.read(connection, tenant, conversation, after=after, limit=PAGE)
    return _Look(new, seen, draft or "", is_unanswered)


def _event(name: str, content: dict[str, Any], seq: int | None = None) -> str:
    # JSON has no line break of its own, so one data line carries it.
    identity = f"id: {seq}\n" if seq is not None else ""
    return f"{identity}event: {name}\ndata: {json.dumps(content, ensure_ascii=False, separators=(',', ':'))}\n\n"
