"""The seam between the service and a network: everything the service asks of a channel whose messages leave the house.

The web channel is not one of these: its bubble is a row, written in the same transaction as the task's end
(`channels/web/outbound.py`).
"""

from datetime import datetime
from typing import Protocol

from channels.message import Origin, Outcome, Part, Parts, Reach


class Channel(Protocol):
    """One tenant's sender on one network: a Telegram bot, a WhatsApp number."""

    name: str
    """`telegram` or `whatsapp`."""

    def split(self, text: str) -> Parts:
        """Cut a message, written in Markdown, into pieces this channel can carry, in order. At least one."""
        ...

    async def send(self, part: Part) -> Outcome:
        """Send one piece once. Never raises for what a provider or a network does, never tries again by itself."""
        ...

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        """Tell whether free text sent at `due` can reach the customer, as far as is known at `now`."""
        ...

    async def typing(self, address: str, thread: str | None, reply_to: str | None) -> None:
        """Show that an answer is being written. Best effort: errors are swallowed."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
