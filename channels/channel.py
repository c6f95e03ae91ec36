"""The seam between the service and a network: everything the service asks of a channel whose messages leave the house.

The web channel is not one of these: its bubble is a row, written in the same transaction as the task's end
(`channels/web/outbound.py`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from channels.message import (
    Filled,
    Lost,
    NotSent,
    OnUnknown,
    Origin,
    Outcome,
    Part,
    Parts,
    Reach,
    Rejected,
    Remedy,
    Status,
    Unknown,
)


class Channel(Protocol):
    """One tenant's sender on one network: a Telegram bot, a WhatsApp number."""

    name: str
    """`telegram` or `whatsapp`."""
    looks: Sequence[timedelta]
    """How long after a send began the provider is asked for it, where nobody knows its outcome. Empty: it cannot be asked."""
    waits: timedelta
    """How long a message that cannot reach the customer now is kept for them."""
    gap: timedelta
    """How long the next piece of a message waits for word that the last one has left the provider, to come after it."""
    on_unknown: OnUnknown
    """What is done with such a send when the provider did not have it at any of these looks, or cannot be asked."""

    def split(self, text: str) -> Parts:
        """Cut a message, written in Markdown, into pieces this channel can carry, in order. At least one."""
        ...

    async def open(self) -> None:
        """Load what sending needs, which can take seconds, before a send is said to have begun. Never raises."""
        ...

    def wait(self, address: str, thread: str | None = None) -> float:
        """Return for how many seconds a send to this address must wait, not to be faster than the provider takes it.

        Each thread of an address asks for itself; the pace is the address's.
        0 when it may begin now: then its place is kept until it does, for a few seconds. `send` counts it.
        """
        ...

    async def send(self, part: Part) -> Outcome:
        """Send one piece once, now. Never raises for what a provider or a network does, never tries again by itself."""
        ...

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        """Return an approved text for a purpose (`followup`, `notice`) in a language, with these words in its places.

        NotSent when the one there is cannot be used yet; Rejected when there is none. Never raises for what a provider or a
        network does.
        """
        ...

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        """Return an approved text that somebody has chosen and filled in, if it is the tenant's and may be sent now; else as `fill`."""
        ...

    def remedy(self, code: int | None) -> Remedy:
        """Tell what is left to do for a message that was taken and failed with this code."""
        ...

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        """Return what the provider has that may be a lost send, the likeliest first; Unknown when it cannot tell now.

        Of equal texts it has one message each: leave out those known to be another delivery's. Never raises for what a
        provider or a network does.
        """
        ...

    async def look_at_files(self, text: str) -> str:
        """Return a customer's text with what can be learned of the files that it names; as it is where nothing can.

        Never raises for what a provider or a network does.
        """
        ...

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        """Tell whether a message sent at `due` can reach the customer, and how, as far as is known at `now`."""
        ...

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        """Tell whether an answer can be shown there while it is being written."""
        ...

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        """Show that an answer is being written, and `words`, what there is of it, where drafts are shown.

        Best effort: errors are swallowed.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
