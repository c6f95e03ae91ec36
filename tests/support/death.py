"""Workers that die at a point of their path, and the customer's phone that outlives them.

A point is the moment before or after a commit, a provider's call, or a model's answer.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage
from sqlalchemy.ext.asyncio import AsyncConnection

from app.wiring import performer
from channels.message import (
    Accepted,
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
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.section import WhatsAppSection
from scheduler import recovery
from scheduler.clock import MovableClock
from scheduler.events import story
from scheduler.find import Found, search
from store import deliveries
from store.database import Database, metadata
from store.deliveries import Delivery
from tests.support.claims import LEASE, take
from tests.support.factories import lanes
from tests.support.house import House, a_house
from tests.support.model import Line, Script, books
from tests.support.twilio_server import TwilioServer

ANSWER, REMINDER = "Booked, I will remind you.", "Call Ana!, Call Ana!"
"""Each in two parts. Those of the reminder are the same: who looks up one of them must not take the other for it."""

_is_acting: ContextVar[bool] = ContextVar("is_acting", default=False)
"""True in what the worker itself does; what the service does beside it has no points."""


class Died(BaseException):
    """The worker is no more. Not an Exception, so that nobody handles it."""


class Life:
    """A worker's life: passes points, and ends at one of them."""

    def __init__(self, ends_at: int | None = None) -> None:
        self.ends_at, self.is_over = ends_at, False
        self.passed: list[str] = []

    def pass_point(self, name: str) -> None:
        """Die here where it is the time, and at whatever comes after that."""
        if self.is_over:
            raise Died
        if _is_acting.get():
            self.passed.append(name)
            if len(self.passed) == self.ends_at:
                self.is_over = True
                raise Died

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Do what the worker does, up to its death."""
        token = _is_acting.set(True)
        try:
            yield
        except BaseException:  # libraries may wrap it
            if not self.is_over:
                raise
        finally:
            _is_acting.reset(token)


class MortalDatabase(Database):
    """A worker's view of a database: nothing is committed by the dead."""

    def __init__(self, shared: Database, life: Life) -> None:
        """Use another's connections: to open them, and to compile every statement, would be most of a short life."""
        self.url, self.engine, self.on_commit = shared.url, shared.engine, None
        self.life = life

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction whose commit has a point on either side."""
        async with super().transaction() as connection:
            yield connection
            self.life.pass_point("before a commit")
        self.life.pass_point("after a commit")


class Phone:
    """The customer's phone, on a network that takes everything and tells nothing afterwards."""

    name = "telegram"
    address = "42"
    section: Mapping[str, Any] = {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_"}
    looks: Sequence[timedelta] = ()
    waits = timedelta(days=30)
    gap: timedelta = timedelta()
    on_unknown: OnUnknown = "at_most_once"
    delay = "1h"
    """In how long the customer wants to be reminded."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []
        """The provider's id and the text of all that arrived, in order."""
        self.asked: list[timedelta] = []
        """How long after it began a lost send was looked up, for each look."""

    def forget(self, clock: MovableClock) -> None:
        """Be a new phone, in the time of this clock."""
        self.got, self.asked = [], []

    def split(self, text: str) -> Parts:
        return text.split(", ")

    def wait(self, address: str, thread: str | None = None) -> float:
        return 0.0

    async def send(self, part: Part) -> Outcome:
        self.got.append((f"m{len(self.got)}", part.text))
        return Accepted(self.got[-1][0])

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        raise AssertionError("its window is open")

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        raise AssertionError("nobody has chosen one")

    def remedy(self, code: int | None) -> Remedy:
        return "none"

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        raise AssertionError("it is known that this network cannot be asked")

    async def look_at_files(self, text: str) -> str:
        return text

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        return Reach(True)

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        return False

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        return

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return


class WhatsAppPhone(Phone):
    """The same behind Twilio, which can be asked for what it was given. With a template, the reminder is for after the window."""

    name = "whatsapp"
    address = "whatsapp:+573001234567"

    def __init__(self, twilio: TwilioServer, on_unknown: OnUnknown, *templates: Mapping[str, Any]) -> None:
        super().__init__()
        account = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
        self.section = {**account, "unknown": on_unknown, "templates": list(templates)}
        self.delay = "25h" if templates else "1h"
        self.twilio, self.channel = twilio, WhatsAppChannel(WhatsAppSection.model_validate(self.section), twilio.url)
        self.looks, self.on_unknown = self.channel.looks, self.channel.on_unknown

    def forget(self, clock: MovableClock) -> None:
        super().forget(clock)
        self.twilio.messages.clear()
        self.twilio.now = lambda: clock.at

    async def send(self, part: Part) -> Outcome:
        outcome = await self.channel.send(part)
        self.got = [(message.sid, message.body) for message in self.twilio.messages]
        return outcome

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        return await self.channel.fill(purpose, language, words)

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        return await self.channel.check(filled)

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        return self.channel.assess(origin, due, now)

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        self.asked.append(self.twilio.now() - lost.started_at)
        return await self.channel.look_up(lost)

    async def close(self) -> None:
        await self.channel.close()


class MortalLine(Phone):
    """A worker's line to a phone."""

    def __init__(self, phone: Phone, life: Life) -> None:
        super().__init__()
        self.phone, self.life = phone, life
        self.name, self.looks, self.on_unknown = phone.name, phone.looks, phone.on_unknown
        self.fill, self.assess = phone.fill, phone.assess  # type: ignore[method-assign]

    async def send(self, part: Part) -> Outcome:
        self.life.pass_point("before a send")
        outcome = await self.phone.send(part)
        self.life.pass_point("after a send")
        return outcome

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        self.life.pass_point("before a look-up")
        answer = await self.phone.look_up(lost)
        self.life.pass_point("after a look-up")
        return answer


def a_script(life: Life, delay: str, *, has_booked: bool) -> Script:
    """A model that books once and then answers, and during whose answers its worker may die."""

    def line(words: Line) -> Line:
        def say(messages: list[ModelMessage]) -> Any:
            life.pass_point("while the model answers")
            return words(messages) if callable(words) else words

        return say

    booked = books("call Ana", delay=delay)
    return Script(*([] if has_booked else [line(booked)]), line(ANSWER), followups=(line(REMINDER),))


@dataclass(frozen=True, slots=True)
class Story:
    """What came of one customer's wish in the hands of some workers."""

    passed: list[list[str]]
    """The points that each worker passed."""
    seen: list[str]
    """What the customer saw."""
    said: list[str]
    """What stands in the log as said to them."""
    became: list[tuple[str, str]]
    """Kind and state of each task."""
    events: list[list[str]]
    """What happened to each task."""
    sends: list[Delivery]
    """Every attempt at a part."""
    ids: list[str]
    """The provider's ids of what arrived."""
    asked: list[timedelta]
    """How long after it began a lost send was looked up, for each look."""


class World:
    """Where workers live and die. Nothing of one story is left in the next."""

    def __init__(self, database: Database, directory: Path, phone: Phone | None) -> None:
        """Without a phone the customer is on the web."""
        self.database, self.directory, self.phone = database, directory, phone

    async def story(self, *deaths: int) -> Story:
        """Let one worker after another die, each at a point of its own, and the last one live."""
        clock, passed = MovableClock(), []
        await self._forget(clock)
        for death in deaths:
            async with self._a_life(clock, death) as (life, _):
                assert life.is_over, f"it does not come to point {death}"
            passed.append(life.passed)
            clock.move(LEASE + timedelta(seconds=1))
        async with self._a_life(clock) as (life, house):
            return await self._told(house, [*passed, life.passed])

    async def _forget(self, clock: MovableClock) -> None:
        if self.phone is not None:
            self.phone.forget(clock)
        async with self.database.transaction() as connection:
            await connection.exec_driver_sql("set local lock_timeout = '10s'")  # the dead hold nothing any more
            for table in reversed(metadata.sorted_tables):  # a tenth of the time of a fresh database, or of a truncate
                await connection.execute(table.delete())

    @asynccontextmanager
    async def _a_life(self, clock: MovableClock, death: int | None = None) -> AsyncIterator[tuple[Life, House]]:
        """Let a worker do what there is to do, up to its death."""
        life, phone = Life(death), self.phone
        async with self.database.transaction() as connection:
            await recovery.recover(connection, clock)
            has_booked = bool(await search(connection, kind="followup"))
        database, script = (
            MortalDatabase(self.database, life),
            a_script(life, phone.delay if phone else Phone.delay, has_booked=has_booked),
        )
        config = {"channels": {phone.name: phone.section}} if phone else {}
        async with a_house(database, self.directory, script.model, clock, poll=False, config=config) as house:
            if phone is not None:
                line = MortalLine(phone, life)
                house.service.make_channel = lambda _tenant, _name: line
            with life.acting():
                await self._live(house, clock)
            yield life, house

    async def _live(self, house: House, clock: MovableClock) -> None:
        """Take in what the customer wrote, and do what falls due until nothing is to come; what waits for them they tap for."""
        where = {"channel": self.phone.name, "address": self.phone.address} if self.phone else {}
        await house.says("remind me in an hour to call Ana", provider_id="1", **where)
        too_late = clock.at + timedelta(hours=28)
        while waiting := await self._waiting():
            due_at = min((task.due_at for task in waiting if task.hold is None), default=None)
            if due_at is None:
                clock.move(timedelta(minutes=1))
                await house.says("Show it", provider_id="2", is_tap=True, **where)
                continue
            clock.set(max(clock.at, due_at))
            assert clock.at < too_late, "it comes to an end"
            due = await take(house.service.database, clock, "mortal")
            assert due, "what is due can be claimed"
            for task in due:
                await performer(house.service)(task)

    async def _waiting(self) -> Sequence[Found]:
        """Return each scheduled task."""
        async with self.database.transaction() as connection:
            return await search(connection, states=("scheduled",))

    async def _told(self, house: House, passed: list[list[str]]) -> Story:
        assert set((await lanes(self.database)).values()) == {None}
        tasks = [*await house.tasks(kind="turn"), *await house.tasks()]
        said = await house.heard(tasks[0].conversation or 0)
        async with self.database.transaction() as connection:
            events = [[event.event for event in await story(connection, "acme", task.id)] for task in tasks]
            sends = [one for task in tasks for one in await deliveries.of_task(connection, "acme", task.id)]
        return Story(
            passed=passed,
            seen=[text for _, text in self.phone.got] if self.phone else said,
            said=said,
            became=[(task.kind, task.state) for task in tasks],
            events=events,
            sends=sends,
            ids=[provider_id for provider_id, _ in self.phone.got] if self.phone else [],
            asked=list(self.phone.asked) if self.phone else [],
        )


@asynccontextmanager
async def a_world(
    database: Database,
    directory: Path,
    channel: str,
    on_unknown: OnUnknown = "at_most_once",
    *templates: Mapping[str, Any],
) -> AsyncIterator[World]:
    """Give the customer a phone on this channel, and the tenant templates."""
    if channel != "whatsapp":
        yield World(database, directory, Phone() if channel == "telegram" else None)
        return
    async with TwilioServer(approvals={str(template["sid"]): "approved" for template in templates}) as twilio:
        phone = WhatsAppPhone(twilio, on_unknown, *templates)
        yield World(database, directory, phone)
        await phone.close()
