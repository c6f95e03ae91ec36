"""A visitor writes, and signs in: what they have said and what they wait for is the user's, once and whole."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from sqlalchemy import text

from app.http import application
from channels.web import outbound as web
from scheduler import settle
from scheduler.clock import MovableClock
from scheduler.find import Found
from store import conversations
from store.database import Database
from store.messages import Message
from tests.support.asgi import calling
from tests.support.claims import take
from tests.support.house import House, a_house
from tests.support.model import Script, books
from tests.support.wait import eventually, waits_for_a_lock

SECRET = "0123456789abcdef" * 2
ACME = {"channels": {"web": {"identity": {"secrets": [SECRET]}}}}


def identity(user: str = "user-7", **more: Any) -> str:
    return jwt.encode({"sub": user, "aud": "acme", "exp": int(time.time()) + 3600, **more}, SECRET, "HS256")


@dataclass(frozen=True)
class Browser:
    """What a visitor's browser holds, and does with it."""

    http: httpx.AsyncClient
    token: str
    conversation: int

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return await self.http.request(method, f"/widget/acme/{path}", headers=headers, **more)

    async def write(self, words: str, client_id: str) -> httpx.Response:
        return await self.ask("POST", "messages", json={"text": words, "client_id": client_id})

    async def read(self) -> list[str]:
        return [each["text"] for each in (await self.ask("GET", "messages")).json()["messages"]]

    async def sign_in(self, user: str = "user-7", **more: Any) -> "Browser":
        answer = await self.ask("POST", "sessions/identify", json={"identity": identity(user, **more)})
        assert answer.status_code == 201, answer.text
        assert answer.json()["rotate_after"] == 86400
        return Browser(self.http, answer.json()["token"], answer.json()["conversation"])


@dataclass
class Shop:
    """A service, and the browsers of those who visit it."""

    house: House
    http: httpx.AsyncClient
    script: Script

    async def visit(self, **told: Any) -> Browser:
        opened = (await self.http.post("/widget/acme/sessions", json=told)).json()
        return Browser(self.http, opened["token"], opened["conversation"])

    async def user(self, user: str = "user-7") -> Browser:
        return await self.visit(identity=identity(user))

    async def quiet(self, browser: Browser) -> list[str]:
        """Wait until everything has been answered there, and return what was said."""

        async def is_answered() -> bool:
            return all(turn.state not in ("scheduled", "firing") for turn in await self.house.tasks(kind="turn"))

        await eventually(is_answered)
        return await browser.read()

    async def log(self, conversation: int) -> Sequence[Message]:
        return await self.house.log(conversation)

    async def followup(self) -> Found:
        (task,) = await self.house.tasks()
        return task


@asynccontextmanager
async def a_shop(database: Database, directory: Path, *lines: Any, **more: Any) -> AsyncIterator[Shop]:
    script = Script(*(lines or ("Hello.",)))
    async with (
        a_house(database, directory, script.model, config=ACME, **more) as house,
        calling(application(house.run)) as http,
    ):
        yield Shop(house, http, script)


async def counts(database: Database) -> tuple[int, int]:
    async with database.transaction() as connection:
        found = await connection.execute(
            text("select (select count(*) from contacts), (select count(*) from conversations)")
        )
        contacts, talks = found.one()
        return contacts, talks


async def test_a_users_first_sign_in_makes_the_visitors_conversation_theirs(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, books(delay="1h"), "Booked.") as shop:
        visitor = await shop.visit(language="es", time_zone="Europe/Madrid")
        await visitor.write("remind me", "one")
        await shop.quiet(visitor)
        user = await visitor.sign_in(name="Ana")
        assert user.conversation == visitor.conversation
        assert await user.read() == ["remind me", "Booked."]
        assert [each["about"] for each in (await user.ask("GET", "pending")).json()["pending"]] == ["call Ana"]
        async with database.transaction() as connection:
            found = await conversations.find(connection, "acme", user.conversation)
        assert found is not None
        assert (found.address, found.name, found.language, found.time_zone) == (
            "user:user-7",
            "Ana",
            "es",
            "Europe/Madrid",
        )
        assert (await visitor.ask("GET", "messages")).status_code == 401
        assert await counts(database) == (1, 1)


async def test_an_answer_that_is_being_written_at_a_first_sign_in_is_unharmed(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, "Hello, whoever you are.") as shop:
        shop.script.gate.clear()
        visitor = await shop.visit()
        await visitor.write("hello", "one")
        await eventually(shop.script.reached.is_set)
        user = await visitor.sign_in()
        shop.script.gate.set()
        assert await shop.quiet(user) == ["hello", "Hello, whoever you are."]
        assert len(shop.script.asked) == 1


async def test_what_a_visitor_said_stands_behind_what_the_user_has_said_before(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, "One.", books(delay="1h"), "Two.", "Three.") as shop:
        before = await shop.user()
        await before.write("from the phone", "same")
        await shop.quiet(before)
        visitor = await shop.visit(time_zone="Europe/Madrid")
        await visitor.write("remind me", "same")
        await shop.quiet(visitor)
        theirs = await shop.log(visitor.conversation)

        user = await visitor.sign_in()
        assert user.conversation == before.conversation
        assert await user.read() == ["from the phone", "One.", "remind me", "Two."]
        told = (await user.ask("GET", "messages")).json()
        assert [each["seq"] for each in told["messages"]] == [1, 2, 3, 4]
        assert told["seq"] == 4
        assert [each.at for each in (await shop.log(user.conversation))[2:]] == [each.at for each in theirs]
        assert [each["about"] for each in (await user.ask("GET", "pending")).json()["pending"]] == ["call Ana"]
        assert (await shop.followup()).conversation == user.conversation
        assert await counts(database) == (1, 1)
        assert (await visitor.ask("GET", "messages")).status_code == 401
        assert await before.read() == await user.read()
        turns = {turn.message_seq: turn.conversation for turn in await shop.house.tasks(kind="turn")}
        assert turns == {2: user.conversation, 4: user.conversation}

        await user.write("and now?", "two")
        assert await shop.quiet(user) == ["from the phone", "One.", "remind me", "Two.", "and now?", "Three."]


async def test_what_was_answered_before_is_not_answered_again(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, "One.", "Two.", "Three.") as shop:
        before, visitor = await shop.user(), await shop.visit()
        for browser in (before, visitor):
            await browser.write("hello", "one")
            await shop.quiet(browser)
        user = await visitor.sign_in()
        await user.write("what now?", "two")
        await shop.quiet(user)
        asked = str(shop.script.asked[-1][-1].parts[-1].content)  # type: ignore[union-attr]
        assert "what now?" in asked
        assert "hello" not in asked


async def test_an_answer_that_is_being_written_is_found_in_the_users_conversation_once(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, "One.", "Two.", "Three.") as shop:
        before = await shop.user()
        await before.write("from the phone", "one")
        await shop.quiet(before)
        shop.script.gate.clear()
        shop.script.reached.clear()
        visitor = await shop.visit()
        await visitor.write("a question", "one")
        await eventually(shop.script.reached.is_set)
        user = await visitor.sign_in()
        shop.script.gate.set()
        said = await shop.quiet(user)
        assert said[:3] == ["from the phone", "One.", "a question"]
        assert len(said) == 4
        assert await counts(database) == (1, 1)


async def test_what_a_visitor_books_while_they_sign_in_is_booked_once(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, "One.", books(delay="1h"), "Booked.") as shop:
        before = await shop.user()
        await before.write("from the phone", "one")
        await shop.quiet(before)
        shop.script.reached.clear()
        shop.script._stops_at = 3  # the model has booked, and has not said so yet
        visitor = await shop.visit()
        await visitor.write("remind me in an hour to call Ana", "one")
        await eventually(lambda: len(shop.script.asked) == 3)
        user = await visitor.sign_in()
        shop.script.gate.set()
        assert (await shop.quiet(user))[3:] == ["Booked."]
        assert (await shop.followup()).conversation == user.conversation


async def test_a_followup_that_is_being_written_comes_in_the_users_conversation(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, "One.", books(delay="0s"), "In a moment.") as shop:
        before = await shop.user()
        await before.write("from the phone", "one")
        await shop.quiet(before)
        shop.script.followup_gate.clear()
        visitor = await shop.visit()
        await visitor.write("remind me now", "one")
        await eventually(shop.script.asked_for_followups)  # type: ignore[arg-type]
        await shop.quiet(visitor)
        user = await visitor.sign_in()
        shop.script.followup_gate.set()
        await shop.house.until_state((await shop.followup()).id, "fired")
        said = (await user.ask("GET", "messages")).json()["messages"]
        assert [each["text"] for each in said[3:]] == ["In a moment.", "Here is your reminder: call Ana."]
        assert said[-1]["kind"] == "followup"


async def test_a_message_whose_answer_was_lost_is_known_again_after_the_sign_in(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path) as shop:
        before, visitor = await shop.user(), await shop.visit()
        await before.write("from the phone", "one")
        await shop.quiet(before)
        sent = [(await visitor.write(words, words)).json()["seq"] for words in ("a", "b")]
        assert sent == [1, 2]
        await shop.quiet(visitor)
        user = await visitor.sign_in()
        for words in ("a", "b"):
            again = await user.write(words, words)
            assert again.status_code == 200
            assert (await user.read())[again.json()["seq"] - 1] == words
        assert (await user.write("from the phone", "one")).json()["seq"] == 1


async def test_who_signs_in_twice_or_in_two_tabs_at_once_loses_nothing(database: Database, tmp_path: Path) -> None:
    for is_known in (False, True):
        async with a_shop(database, tmp_path) as shop:
            name = f"user-{is_known}"
            if is_known:
                await (await shop.user(name)).write("from the phone", "one")
            visitor = await shop.visit()
            await visitor.write("hello", "one")
            await shop.quiet(visitor)
            tabs = await asyncio.gather(*(visitor.sign_in(name) for _ in range(6)))
            assert len({tab.conversation for tab in tabs}) == 1
            for tab in tabs:
                assert (await tab.read()).count("hello") == 1
            late = await visitor.sign_in(name)
            assert await late.read() == await tabs[0].read()
            again = await late.ask("POST", "sessions/identify", json={"identity": identity(name)})
            assert (again.status_code, set(again.json())) == (200, {"conversation", "seq"})
            assert again.json()["conversation"] == late.conversation


async def test_a_new_user_who_signs_in_on_two_devices_at_once_has_one_conversation(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        visitors = [await shop.visit() for _ in range(5)]
        for number, visitor in enumerate(visitors):
            await visitor.write(f"from device {number}", "one")
        devices = await asyncio.gather(*(visitor.sign_in() for visitor in visitors))
        assert len({device.conversation for device in devices}) == 1
        assert sorted(await devices[0].read()) == [f"from device {number}" for number in range(5)]
        assert (await devices[0].ask("GET", "messages")).json()["seq"] == 5
        assert await counts(database) == (1, 1)


async def test_without_the_visitors_token_nothing_of_theirs_is_merged(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        visitor = await shop.visit()
        await visitor.write("mine", "one")
        told = await shop.http.post("/widget/acme/sessions/identify", json={"identity": identity()})
        user = Browser(shop.http, told.json()["token"], told.json()["conversation"])
        assert await user.read() == []
        guessed = Browser(shop.http, "guessed", 0)
        assert await (await guessed.sign_in("user-8")).read() == []
        assert await visitor.read() == ["mine"]


async def test_with_another_users_token_nothing_is_merged_and_it_is_replaced(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        eva = await shop.user("eva")
        await eva.write("mine", "one")
        ana = await eva.sign_in("ana")
        assert await ana.read() == []
        assert (await eva.ask("GET", "messages")).status_code == 401
        assert await (await shop.user("eva")).read() == ["mine"]


async def test_a_visitor_who_signs_in_as_two_users_at_once_is_merged_into_one_of_them(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        visitor = await shop.visit()
        await visitor.write("mine", "one")
        users = await asyncio.gather(*(visitor.sign_in(name) for name in ("ana", "eva")))
        assert sorted([await user.read() for user in users]) == [[], ["mine"]]


async def test_messages_that_come_in_while_their_visitor_signs_in_are_taken_or_refused_and_none_is_lost(
    database: Database, tmp_path: Path
) -> None:
    for is_known in (False, True):
        async with a_shop(database, tmp_path, poll=False) as shop:
            name = f"user-{is_known}"
            if is_known:
                await (await shop.user(name)).write("from the phone", "phone")
            visitor = await shop.visit()
            texts = [f"message {number}" for number in range(12)]
            user, answers = await asyncio.gather(
                visitor.sign_in(name), asyncio.gather(*(visitor.write(words, words) for words in texts))
            )
            statuses = {answer.status_code for answer in answers}
            assert statuses <= {202, 401}
            again = [await user.write(words, words) for words in texts]
            assert [one.status_code == 200 for one in again] == [one.status_code == 202 for one in answers]
            said = await user.read()
            assert sorted(said)[-12:] == sorted(texts)
            assert len(said) == 12 + is_known
        assert (await counts(database))[0] == 1 + is_known


async def test_a_message_that_waits_for_the_sign_in_is_not_written_where_nobody_reads_it(
    database: Database, tmp_path: Path
) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        await shop.user()
        visitor = await shop.visit()
        async with database.transaction() as connection:
            # Somebody has the contact, so that both wait for it: the sign-in first.
            await connection.execute(
                text("select from contacts where address like 'visitor:%' for update"),
            )
            signing_in = asyncio.create_task(visitor.sign_in())
            await eventually(lambda: waits_for_a_lock(database))
            writing = asyncio.create_task(visitor.write("hello", "one"))
            await asyncio.sleep(0)
        user = await signing_in
        answer = await writing
        if answer.status_code == 401:
            assert (await user.write("hello", "one")).status_code == 202
        assert await user.read() == ["hello"]
        assert await counts(database) == (1, 1)


async def test_what_was_seen_and_what_was_not_stays_so(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, "One.", "Two.") as shop:
        before, visitor = await shop.user(), await shop.visit()
        for browser in (before, visitor):
            await browser.write("hello", "one")
            await shop.quiet(browser)
        await before.ask("POST", "seen", json={"seq": 2})
        await visitor.ask("POST", "seen", json={"seq": 1})
        user = await visitor.sign_in()
        async with database.transaction() as connection:
            seen = await connection.scalar(text("select seen_seq from conversations"))
        assert (seen, user.conversation) == (3, before.conversation)


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_answer_that_is_being_committed_while_its_visitor_signs_in_goes_along(
    database: Database, tmp_path: Path, clock: MovableClock, is_known: bool
) -> None:
    async with a_shop(database, tmp_path, clock=clock, poll=False) as shop:
        if is_known:
            await shop.user()
        visitor = await shop.visit()
        await visitor.write("hello", "one")
        (turn,) = await take(database, clock)
        async with database.transaction() as writing:
            assert not await settle.is_cancelled(writing, turn)
            signing_in = asyncio.create_task(visitor.sign_in())
            if is_known:  # else nobody waits
                await eventually(lambda: waits_for_a_lock(database))
            talk = visitor.conversation
            seq = await web.write(writing, "acme", talk, "reply", "Hello.", task=turn.id, now=clock.at)
            await conversations.mark_answered(writing, "acme", talk, 1)
            await settle.deliver(writing, clock, turn, seq)
        signed_in = await signing_in
        assert await signed_in.read() == ["hello", "Hello."]
        (ended,) = await shop.house.tasks(kind="turn")
        assert (ended.state, ended.conversation, ended.message_seq) == ("fired", signed_in.conversation, 2)
        assert await counts(database) == (1, 1)


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_token_asked_for_while_its_visitor_signs_in_opens_nothing_of_the_users(
    database: Database, tmp_path: Path, is_known: bool
) -> None:
    async with a_shop(database, tmp_path, poll=False) as shop:
        if is_known:
            await shop.user()
        visitor = await shop.visit()
        user, answers = await asyncio.gather(
            visitor.sign_in(), asyncio.gather(*(visitor.ask("POST", "sessions/rotate") for _ in range(8)))
        )
        assert {answer.status_code for answer in answers} <= {201, 401}
        tokens = [answer.json()["token"] for answer in answers if answer.status_code == 201]
        for token in (visitor.token, *tokens):
            old = Browser(shop.http, token, user.conversation)
            assert (await old.ask("GET", "messages")).status_code == 401
        assert (await user.ask("GET", "messages")).status_code == 200
