"""What a run of the agent is given. Identity comes from here, never from what the model writes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from agent.section import AgentSection
from scheduler.book import Booked
from scheduler.clock import Clock
from scheduler.find import Found
from store.database import Database
from store.messages import Message

PROMPT = timedelta(seconds=10)
"""A message answered within this time counts as answered when it came, and messages so close together as one."""
PENDING_LIMIT = 20
"""Follow-ups that may be pending in one conversation."""


@dataclass(frozen=True, slots=True)
class Voice:
    """In whose name the agent speaks, and to whom."""

    tenant: str
    business: str
    section: AgentSection
    conversation: int
    channel: str
    zone: ZoneInfo
    """The contact's zone where it is known, else the tenant's."""
    language: str
    customer: str | None
    now: datetime


Mark = Literal["renewed", "not interested", "call me", "ask again"]
"""What a customer says of something of theirs that is due."""


@dataclass(frozen=True, slots=True)
class Matter:
    """Something of the customer's that is due on a day, of which the business has written to them by itself."""

    number: int
    due: date
    facts: Mapping[str, str]
    """What is known of it, by name."""
    planned: Sequence[datetime]
    """When the business writes about it again."""


async def _nothing(number: int, what: Mark, on: date | None, why: str | None) -> str:
    raise LookupError("there is nothing to mark")


@dataclass(slots=True)
class TurnContext:
    """A live turn: what its tools may touch, and what they did."""

    voice: Voice
    turn: int
    database: Database
    clock: Clock
    reply_to: str | None
    asked: Sequence[Message]
    """What is answered, at least one message: a delay counts from it, should the answer come late."""
    hold: Callable[[AsyncConnection], Awaitable[object]]
    """Locks the turn's claim for the rest of a transaction; raises LostClaim when it is another worker's by now."""
    assess: Callable[[datetime], tuple[bool, str]]
    """Given when an answer would fall due, whether it can reach the customer then, and what there is to say of that."""
    on_booked: Callable[[], None]
    """Wakes the poller, after the commit."""
    matters: Sequence[Matter] = ()
    """What of the customer's the business has written about, and is open."""
    mark: Callable[[int, Mark, date | None, str | None], Awaitable[str]] = _nothing
    """Notes what a customer says of a matter, by its number; returns what that leads to. Raises LookupError, ValueError in words."""
    booked_before: list[Found] = field(default_factory=list)
    """What earlier attempts at this very turn have booked, and this one has not met yet."""
    doubted: set[tuple[str, str]] = field(default_factory=set)
    """Calls of which it was asked whether they mean what was booked before."""
    booked: list[Booked] = field(default_factory=list)
    has_tried: bool = False
    """Whether a booking was tried, done or not."""
    has_called: bool = False
    """Whether a tool of the tenant's own was called, which may have done something."""
    refused_promises: int = 0
    """How often the model promised to come back without a row to keep the promise."""

    def has_changed_something(self) -> bool:
        """Tell whether doing this turn again from the start could do something twice."""
        return self.has_tried or self.has_called or bool(self.booked)
