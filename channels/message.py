"""What goes in and out of a channel, the same for every channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from channels.web.inbound import Terms


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message as it came from a customer, proved to be the provider's."""

    tenant: str
    channel: str
    """`web`, `telegram` or `whatsapp`."""
    address: str
    """Where to answer, byte for byte as the provider gave it: a chat id, `whatsapp:+5215512345678`, a visitor's id."""
    address_key: str
    """The same person under every form of their address. For matching only, never sent to."""
    provider_id: str
    """Unique per tenant and channel; a second message with the same id is a repeat and changes nothing."""
    text: str
    thread: str | None = None
    """A forum topic or the like, to answer in the same place; each channel spells its own and reads it again."""
    reply_to: str | None = None
    """The provider's id of this message, to answer it as a reply."""
    name: str | None = None
    language: str | None = None
    """What the provider knows of the customer's language, for example `es`."""
    time_zone: str | None = None
    """IANA name, where the channel knows it (a browser does)."""
    is_tap: bool = False
    """Whether a button was tapped under a message of ours, rather than something written."""
    terms: Terms | None = None
    """On what terms a visitor's message is taken in, where it came through a session of theirs."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Word that a chat has let the tenant's sender in, or has shut it out, with nothing said in it."""

    tenant: str
    channel: str
    address_key: str
    """The chat, as in `Inbound`."""
    is_in: bool
    """False when the sender was blocked, removed or silenced there."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Word that a chat goes on under another address: a group that became a supergroup."""

    tenant: str
    channel: str
    address_key: str
    """The chat as it was known, as in `Inbound`."""
    address: str
    """Where it is now, which is its key too."""


Incoming = Inbound | Membership | Moved
"""What a provider tells us unasked."""


@dataclass(frozen=True, slots=True)
class Received:
    """An inbound message as it stands in the log, committed."""

    conversation: int
    seq: int
    is_new: bool
    """False for a repeat, which changed nothing."""


@dataclass(frozen=True, slots=True)
class Filled:
    """An approved text of the tenant's, with what stands in its places: all that some channels carry at some times."""

    id: str
    """The provider's."""
    values: Mapping[str, str]
    is_whole: bool
    """Whether it says the message itself; else it only tells that one is waiting, which follows when the customer answers."""
    is_named: bool = False
    """Whether it is known to stand in the tenant's file, though not among the channel's own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message, short enough for its channel, on its way out."""

    delivery: int
    """The id of the delivery row, committed before the provider is called."""
    address: str
    text: str
    thread: str | None = None
    reply_to: str | None = None
    scheduled: bool = False
    """True for a follow-up or a notice, false for the answer in a live turn."""
    template: Filled | None = None
    """Sent instead of the text."""
    lives: timedelta | None = None
    """After how long it is not worth delivering any more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider has it and gave it an id."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider refused it for good; trying again would be refused again."""

    reason: str
    """In words an operator can act on; never shown to a customer."""
    tenant_fault: bool = False
    """True when nothing will go out on this channel until the tenant mends it (a revoked token, a wrong account)."""
    code: int | None = None
    """The provider's own number for it."""
    is_blocked: bool = False
    """True when the customer has told the provider that they want nothing from this sender."""
    is_place_gone: bool = False
    """True when the chat is there but the place in it, a topic, is gone or closed; said elsewhere it would be overheard."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """It certainly did not go out; trying again is safe."""

    reason: str
    retry_after: float | None = None
    """Seconds the provider asked us to wait."""
    moved_to: str | None = None
    """The address the conversation has moved to (a group that became a supergroup)."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell whether it went out; it is never silently sent again."""

    reason: str


Outcome = Accepted | Rejected | NotSent | Unknown

OnUnknown = Literal["at_most_once", "at_least_once"]
"""What a tenant wants done with a send of which nobody can tell whether it went out: leave it, or send it again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A piece that was sent, and of which nobody knows what became."""

    address: str
    text: str | None
    """As `split` gave it; None for a template, of which the provider has its own wording."""
    started_at: datetime
    """When the send began, by our clock."""
    others: Sequence[str] = ()
    """Pieces of other messages to the same customer of which nobody knows either; what has such a text is not this one."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a provider says became of a message of ours, unasked or asked. Comes in any order, more than once, or never."""

    provider_id: str
    status: str
    """`queued`, `sent`, `delivered`, `read`, `failed`, `undelivered`, or a word the provider adds one day."""
    reason: str | None = None
    """Why it failed, in words an operator can act on."""
    code: int | None = None
    """The provider's own number for that."""


Remedy = Literal["none", "blocked", "once", "later", "template", "mend"]
"""What is left of a message that the provider took and then failed: nothing, now or ever, since the customer wants nothing
from this sender; another attempt, once or a few times, after a
pause; a template, since free text is not carried now; or the tenant mends its sender first."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from, and so where its answer goes."""

    channel: str
    address: str
    last_inbound_at: datetime | None
    """When the customer last wrote here; some channels only carry free text for a while after that."""
    refused_at: datetime | None = None
    """When the provider last refused free text as too late, which it knows better than we do."""
    thread: str | None = None
    """Where in the chat, as in `Inbound`."""
    language: str | None = None
    """What the answer will be written in, where that is known; `es`."""
    purpose: str = "followup"
    """What kind of message it is to carry, as in `Channel.fill`."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether an answer can still reach the customer at a given time."""

    possible: bool
    by_template: bool = False
    """Whether only an approved text can: it is possible then all the same."""
    advice: str = ""
    """For the agent: what to tell the customer, in English. Empty when there is nothing to say."""


def units(text: str) -> int:
    """Return the length of a text in UTF-16 units, in which the providers count."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


REACHABLE = Reach(possible=True)

Parts = Sequence[str]
