"""What the widget's routes are handed: they find, receive and cancel through functions given by whoever wires them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from channels.message import Inbound, Received
from channels.web.section import WebSection
from store.database import Database
from store.signals import Signals
from web_widget.listeners import Listeners
from web_widget.sessions import Merge


@dataclass(frozen=True, slots=True)
class WebTenant:
    """A tenant as its visitors meet it."""

    name: str
    title: str
    section: WebSection
    languages: Sequence[str]
    """Two letters each, at least one, all of them the widget's too; the first is used where the visitor's is none of them."""
    time_zone: str
    """IANA name."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Something booked in a conversation that has not ended yet."""

    id: int
    about: str
    at: datetime
    """When it is due; aware."""
    time_zone: str
    """IANA name of the zone in which the customer thinks of that time."""


@dataclass(frozen=True, slots=True)
class Web:
    """Everything the widget's routes need of the service."""

    database: Database
    signals: Signals
    find_tenant: Callable[[str], Awaitable[WebTenant | None]]
    """A tenant with a widget, by name."""
    receive: Callable[[Inbound], Awaitable[Received]]
    """Commits a message together with its turn."""
    pending: Callable[[str, int], Awaitable[Sequence[Pending]]]
    """What is booked in a tenant's conversation."""
    cancel: Callable[[str, int, int], Awaitable[str | None]]
    """Cancels a task of a tenant's conversation: `cancelled`, `raced`, or None when it is not pending there."""
    stopping: asyncio.Event
    """Set when the service shuts down: every stream ends."""
    merge: Merge
    """Moves what an anonymous visitor has said and booked into the conversation of the user they turned out to be."""
    on_merged: Callable[[int], None]
    """Told after the commit in which conversation it goes on."""
    secret: bytes
    """The installation's own; addresses are hashed with it."""
    listeners: Listeners
    """The open streams of this process."""
