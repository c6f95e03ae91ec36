"""A message of the log as a visitor's browser is told of it, the same in the list and in the stream."""

import re
from datetime import UTC, datetime
from typing import Any

from store.messages import Message

LAST_SEQ = 2**31 - 1
"""The greatest sequence number there can be."""

_SENT_AS = re.compile(r"web:[0-9]+:(.+)", re.DOTALL)  # the channel, the conversation, the client_id


def bubble(message: Message) -> dict[str, Any]:
    """Return `{"seq", "role", "kind", "text", "at"}`; a customer is called a visitor here.

    A follow-up has `"asked_at"` too, and a visitor's message the `"client_id"` under which it was sent.
    """
    told = {
        "seq": message.seq,
        "role": "visitor" if message.role == "customer" else "assistant",
        "kind": message.kind,
        "text": message.text,
        "at": instant(message.at),
    }
    if message.kind == "followup" and message.asked_at is not None:
        told["asked_at"] = instant(message.asked_at)
    sent_as = _SENT_AS.fullmatch(message.inbound_key or "")
    if sent_as:
        told["client_id"] = sent_as[1]
    return told


def instant(at: datetime) -> str:
    """Return an aware time as ISO 8601 in UTC: `2026-11-29T14:00:00.000Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
