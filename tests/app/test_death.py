"""A worker dies at every single point of the path, and what recovery makes of it.

A point is the moment before or after a commit, a provider's call, or a model's answer. A first run in which nobody dies
counts the points by passing them, so that one which is added to the path cannot be forgotten; then the worker dies at
each of them in turn, another one takes over, and the customer must have been answered and reminded once, or it must say
so that nobody can know.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from sqlalchemy.ext.asyncio import AsyncConnection

from app.wiring import performer
from channels.message import Accepted, Lost, OnUnknown, Origin, Outcome, Part, Parts, Reach, Status, Unknown
from scheduler import recovery
from scheduler.events import story
from scheduler.find import search
from store.database import Database
from tests.support.claims import LEASE, take
from tests.support.clock import MovableClock
from tests.support.factories import lanes
from tests.support.house import House, a_house
from tests.support.model import Line, Script, books

BOOKED, ANSWER, REMINDER = books("call Ana", delay="1h"), "Booked, I will remind you.", "Here it is: call Ana."
TELEGRAM = {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_"}

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
    """A worker's database: nothing is committed by the dead."""

    life: Life

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with super().transaction() as connection:
            yield connection
            self.life.pass_point("before a commit")
        self.life.pass_point("after a commit")


class Phone:
    """The customer's phone, on a network that takes everything and tells nothing afterwards."""

    name = "telegram"
    looks: Sequence[timedelta] = ()
    on_unknown: OnUnknown = "at_most_once"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def split(self, text: str) -> Parts:
        return text.split(", ")

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        return Unknown("it tells nothing")

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        return Reach(True)

    async def typing(self, address: str, thread: str | None, reply_to: str | None) -> None:
        return

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return


class MortalLine(Phone):
    """A worker's line to that phone."""

    def __init__(self, phone: Phone, life: Life) -> None:
        self.phone, self.life = phone, life

    async def send(self, part: Part) -> Outcome:
        self.life.pass_point("before a send")
        self.phone.seen.append(part.text)
        self.life.pass_point("after a send")
        return Accepted(f"m{len(self.phone.seen)}")


def a_script(life: Life, *, has_booked: bool) -> Script:
    """A model that books once and then answers, and during whose answers its worker may die."""

    def line(words: Line) -> Line:
        def say(messages: list[ModelMessage]) -> Any:
            life.pass_point("while the model answers")
            return words(messages) if callable(words) else words

        return say

    return Script(*([] if has_booked else [line(BOOKED)]), line(ANSWER), followups=(line(REMINDER),))


@asynccontextmanager
async def a_worker(
    url: str, directory: Path, clock: MovableClock, channel: str, phone: Phone, life: Life, *, has_booked: bool
) -> AsyncIterator[House]:
    database = MortalDatabase(url)
    database.life = life
    script = a_script(life, has_booked=has_booked)
    config: dict[str, Any] = {"channels": {"telegram": TELEGRAM}} if channel == "telegram" else {}
    async with a_house(database, directory, script.model, clock, poll=False, config=config) as house:
        house.service.make_channel = lambda _tenant, _name: MortalLine(phone, life)
        yield house
    await database.close()


async def lives(house: House, clock: MovableClock, channel: str, life: Life) -> None:
    """Take in what the customer wrote, and do what is due until nothing is to come."""
    database = house.service.database
    with life.acting():
        await house.says("remind me in an hour to call Ana", channel=channel, address="42", provider_id="1")
        for _ in range(3):
            while due := await take(database, clock, "mortal"):
                for task in due:
                    await performer(house.service)(task)
            clock.move(timedelta(hours=2))


async def a_life(
    url: str, directory: Path, channel: str, ends_at: int | None
) -> tuple[Life, list[str], list[tuple[str, str]], list[list[str]]]:
    """Let a worker die at a point and another one take over; return what was passed, seen, became of it, and the stories."""
    clock, phone, life = MovableClock(), Phone(), Life(ends_at)
    async with a_worker(url, directory, clock, channel, phone, life, has_booked=False) as house:
        await lives(house, clock, channel, life)
    assert life.is_over == (ends_at is not None)
    clock.move(LEASE + timedelta(seconds=1))
    database = Database(url)
    async with database.transaction() as connection:
        await recovery.recover(connection, clock)
        has_booked = bool(await search(connection, kind="followup"))
    await database.close()
    survivor = Life()
    async with a_worker(url, directory, clock, channel, phone, survivor, has_booked=has_booked) as house:
        await lives(house, clock, channel, survivor)
        tasks = [*await house.tasks(kind="turn"), *await house.tasks()]
        if channel == "web":
            phone.seen = await house.heard(tasks[0].conversation or 0)
        async with house.service.database.transaction() as connection:
            stories = [[event.event for event in await story(connection, "acme", task.id)] for task in tasks]
        assert set((await lanes(house.service.database)).values()) == {None}
    return life, phone.seen, [(task.kind, task.state) for task in tasks], stories


def is_whole(story: list[str]) -> bool:
    """Whether each claim of a story was left once."""
    left = {"returned", "recovered", "written", "fired", "failed", "uncertain", "cancelled"}
    steps = [event for event in story if event == "claimed" or event in left]
    return (
        all(step == "claimed" if n % 2 == 0 else step in left for n, step in enumerate(steps)) and len(steps) % 2 == 0
    )


@pytest.fixture
def fresh_url(server_url: str, template: str) -> Iterator[Callable[[], str]]:
    """Makes fresh databases, one for each life."""
    import psycopg  # noqa: PLC0415

    made: list[str] = []

    def make() -> str:
        name = f"life_{len(made)}_{template[-6:]}"
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"create database {name} template {template}")
        made.append(name)
        return server_url.rpartition("/")[0] + "/" + name

    yield make
    with psycopg.connect(server_url, autocommit=True) as connection:
        for name in made:
            connection.execute(f"drop database {name} with (force)")


@pytest.mark.parametrize("channel", ["web", "telegram"])
async def test_whatever_point_a_worker_dies_at_the_customer_hears_once_or_it_says_so(
    fresh_url: Callable[[], str], tmp_path: Path, channel: str
) -> None:
    parts = [*ANSWER.split(", "), *REMINDER.split(", ")] if channel == "telegram" else [ANSWER, REMINDER]
    life, seen, became, stories = await a_life(fresh_url(), tmp_path, channel, None)
    assert (seen, became) == (parts, [("turn", "fired"), ("followup", "fired")])
    points = life.passed
    assert {"before a commit", "after a commit", "while the model answers"} <= set(points)
    open_sends = 0
    for point in range(1, len(points) + 1):
        life, seen, became, stories = await a_life(fresh_url(), tmp_path, channel, point)
        at = f"{point} of {len(points)}, {points[point - 1]}: {life.passed[-3:]}: {seen}, {became}, {stories}"
        assert life.passed == points[:point], "the path to a point is always the same"
        assert [kind for kind, _ in became] == ["turn", "followup"], at
        assert len(seen) == len(set(seen)), f"something was seen twice: {at}"
        assert all(map(is_whole, stories)), at
        uncertain = [kind for kind, state in became if state == "uncertain"]
        assert {state for _, state in became} <= {"fired", "uncertain"}, at
        if uncertain:
            open_sends += 1
            assert channel == "telegram", at
            assert any("a send" in near for near in points[point - 2 : point + 1]), at
        else:
            assert seen == parts, at
    assert (open_sends > 0) == (channel == "telegram")
