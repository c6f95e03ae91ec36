"""How the web channel speaks: the bubble is the message's row, so it commits together with the task that wrote it."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from store import messages
from store.messages import Kind


async def write(
    connection: AsyncConnection,
    tenant: str,
    conversation: int,
    kind: Kind,
    text: str,
    *,
    task: int,
    now: datetime | None,
    asked_at: datetime | None = None,
) -> int:
    """Write a bubble in the caller's transaction and return its sequence number.

    `asked_at` is when a follow-up was asked for. It is delivered when that commits, whether or not a browser is connected. Give the hint `message {conversation}`
    afterwards, so that open pages show it at once.
    """
    return await messages.add(
        connection, tenant, conversation, "assistant", kind, text, now=now, task=task, asked_at=asked_at
    )
