"""One follow-up and what becomes of it, whatever its channel: the state, the waits, the attempts, the operator's words."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from app.wiring import apply_tenants
from scheduler import find
from scheduler.book import Booking, book
from scheduler.clock import MovableClock
from scheduler.find import Found
from store import conversations
from tests.support.house import House
from tests.support.wait import eventually

NOW, SOON, MINUTE = timedelta(), timedelta(seconds=1), timedelta(minutes=1)
LONG = timedelta(hours=25)
"""So long that nothing more comes."""


@dataclass(frozen=True)
class Course:
    """What becomes of a follow-up, from its first attempt on."""

    ends: str
    """`said`, `failed`, `uncertain`, or what it is held for: said, if that is the channel, once the tenant is applied."""
    waits: tuple[timedelta, ...] = ()
    """How long it waits each time; SOON is anything from half of it to the whole."""
    tries: int = 1
    """How often the provider is asked to take it."""
    is_blocked: bool = False
    """Whether the customer is then taken to want nothing more."""


SAID = Course("said")
FAILED = Course("failed")
BLOCKED = Course("failed", is_blocked=True)
PAUSED = Course("channel paused")
AGAIN_AT_ONCE = Course("said", (NOW,), 2)
AGAIN_SOON = Course("said", (SOON,), 2)


class Case(ABC):
    """One customer, and a follow-up for them."""

    def __init__(self, house: House, clock: MovableClock, channel: str, address: str) -> None:
        self.house, self.clock, self.channel, self.address = house, clock, channel, address
        self.conversation = self.task = 0
        self.meets: list[Any] = []
        """What the next attempts meet; those after them are accepted."""
        self.tries: list[dict[str, Any]] = []
        """What each attempt at the follow-up said."""
        self._sender: Any = None

    @property
    @abstractmethod
    def arrived(self) -> int:
        """How many of the attempts reached the customer."""

    async def fails(self, code: int | None) -> None:
        """The provider reports the last attempt as failed."""
        raise NotImplementedError

    async def is_impatient(self) -> None:
        """The next call that is not answered is given up after a second."""
        tenant = await self.house.service.tenant(self.house.tenant)
        assert tenant is not None
        self._sender = await self.house.service.channel(tenant, self.channel)
        self._sender._timeout = 1.0

    def is_patient(self) -> None:
        """Every call that has not begun yet has time enough again, on the slowest machine."""
        self._sender._timeout = 30.0

    async def books(self, delay: timedelta) -> None:
        """A follow-up is booked."""
        payload = {"about": "call Ana", "language": "en"}
        booking = Booking(self.house.tenant, "followup", delay, self.conversation, self.channel, payload)
        async with self.house.service.database.transaction() as connection:
            self.task = (await book(connection, self.clock, booking)).id

    async def goes_by(self, span: timedelta) -> None:
        """Time passes."""
        await self.house.goes_by(self.clock, span)

    async def look(self) -> Found:
        """Return the follow-up as it is now."""
        async with self.house.service.database.transaction() as connection:
            found = await find.get(connection, self.house.tenant, self.task)
        assert found is not None
        return found

    async def rests(self) -> Found:
        """Wait until nothing happens to the follow-up without time, and return it."""

        async def does() -> bool:
            one = await self.look()
            if one.state == "scheduled":
                return one.hold is not None or one.due_at > self.clock.at
            return one.state != "firing"

        await eventually(does)
        return await self.look()

    async def stopped(self) -> str | None:
        """Return who has said that the customer is to be sent nothing more."""
        async with self.house.service.database.transaction() as connection:
            found = await conversations.find(connection, self.house.tenant, self.conversation)
        assert found is not None
        return found.stopped

    async def is_applied(self) -> None:
        """The tenant's file is applied, unchanged."""
        tenant = await self.house.service.tenant(self.house.tenant)
        assert tenant is not None
        await apply_tenants(self.house.service, [tenant])


async def runs(
    case: Case,
    course: Course,
    says: str,
    log: pytest.LogCaptureFixture,
    *,
    reports: Sequence[int | None] = (),
    delay: timedelta = timedelta(seconds=10),
) -> None:
    """Let a follow-up fall due after `delay`, and hold what becomes of it, its customer and its operator against the course.

    `says` are words the operator reads. Where it is said, it is reported as failed as long as `reports` has a code.
    """
    failures, waits = list(reports), [wait for wait in course.waits if wait]
    await case.books(delay)
    await case.goes_by(delay)
    while ((found := await case.rests()).state == "fired" and failures) or waits:
        if found.state == "fired" and failures:
            await case.fails(failures.pop(0))
            continue
        wait, left = waits.pop(0), found.due_at - case.clock.at
        assert (found.state, found.hold) == ("scheduled", None)
        assert says in str(found.error)
        assert case.address[-8:] not in str(found.error)
        assert wait / 2 <= left <= wait if wait == SOON else left == wait
        await case.goes_by(left)

    assert len(case.tries) == course.tries
    if course.ends == "said":
        assert (found.state, found.outcome, case.arrived) == ("fired", "delivered", 1)
    else:
        state = course.ends if course.ends in ("failed", "uncertain") else "scheduled"
        assert (found.state, found.hold or found.state, case.arrived) == (state, course.ends, 0)
        assert says in str(found.error)
    if course.ends in ("said", "uncertain"):
        assert len(await case.house.heard(case.conversation)) == 2, "it stands there once, after the answer"
    if course.ends != "said" or max(course.waits, default=NOW) > timedelta(hours=1):
        assert any(f"tenant {case.house.tenant}" in line and says in line for line in log.messages), log.messages
    assert case.address[-8:] not in f"{found.error} {log.text}", "their number is theirs"
    assert await case.stopped() == ("provider" if course.is_blocked else None)

    await case.goes_by(LONG)
    assert (len(case.tries), (await case.rests()).state) == (course.tries, found.state), "and no more"
    if course is PAUSED:
        await case.is_applied()
        assert (await case.house.until_state(case.task, "fired")).outcome == "delivered"
        assert (len(case.tries), case.arrived) == (course.tries + 1, 1)
