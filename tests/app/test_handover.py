"""A person takes a conversation over: the agent is silent there until it is given back, and nobody is answered twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from sqlalchemy import text

from app import handover
from app.handover import NotWithPerson
from app.http import application
from app.moved import follow
from app.signed_in import bring_along
from app.wiring import apply_tenants
from channels.message import Received
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.find import Found
from scheduler.hold import WITH_PERSON
from scheduler.recovery import expire_held
from store import conversations
from store.conversations import Listed
from store.database import Database
from tests.app.test_speak import Counter, Line
from tests.app.test_whatsapp import an_office
from tests.support.asgi import calling
from tests.support.claims import LEASE, take
from tests.support.factories import a_conversation, lanes
from tests.support.house import House, a_config, a_house
from tests.support.model import Script, books
from tests.support.shell import Shell
from tests.support.twilio_server import TwilioServer
from tests.support.wait import eventually

TOLD = "I am passing this on: a person at Acme will answer you here."
BOOKED = (books("call Ana", delay="10 seconds"), "Booked.")
SOON = timedelta(seconds=10)


def asks(why: str = "wants a discount") -> ToolCallPart:
    """The model calls ask_a_person."""
    return ToolCallPart("ask_a_person", {"why": why})


class Desk:
    """A running house, and the person who takes conversations over."""

    def __init__(self, house: House, clock: MovableClock, script: Script) -> None:
        self.house, self.clock, self.script = house, clock, script
        self.database = house.service.database

    async def says(self, words: str) -> Received:
        """The customer writes, not at once after what they wrote before: that would be waited for."""
        self.clock.move(timedelta(seconds=2))
        return await self.house.says(words)

    async def pauses(self, conversation: int, why: str | None = None) -> bool:
        async with self.database.transaction() as connection:
            return await conversations.hand_over(connection, "acme", conversation, why)

    async def resumes(self, conversation: int) -> bool:
        async with self.database.transaction() as connection:
            done = await handover.resume(connection, self.clock, "acme", conversation)
        self.house.wake()
        return done

    async def replies(self, conversation: int, words: str) -> int:
        tenant = await self.house.service.tenant_called("acme")
        async with self.database.transaction() as connection:
            talk = await conversations.find(connection, "acme", conversation)
            assert talk is not None
            said = await handover.reply(connection, self.clock, tenant, talk, words)
        self.house.wake()
        return said.id

    async def until_held(self, kind: str = "turn") -> Found:
        held: list[Found] = []

        async def is_held() -> bool:
            held[:] = [one for one in await self.house.tasks(kind=kind) if one.hold == WITH_PERSON]
            return bool(held)

        await eventually(is_held)
        return held[0]

    async def until_quiet(self) -> None:
        """Wait until nothing is due, and nothing is performed."""
        busy = text(
            "select count(*) from tasks where state = 'firing' or (state = 'scheduled' and hold is null and due_at <= :now)"
        )

        async def is_quiet() -> bool:
            self.house.wake()
            async with self.database.transaction() as connection:
                return not await connection.scalar(busy, {"now": self.clock.at})

        await eventually(is_quiet)

    async def waiting(self) -> Sequence[Listed]:
        async with self.database.transaction() as connection:
            return await conversations.listed(connection, "acme", is_waiting=True)

    async def goes_by(self, span: timedelta) -> None:
        await self.house.goes_by(self.clock, span)
        await self.until_quiet()


@pytest.fixture
async def desk(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Desk]:
    async for desk in a_desk(database, tmp_path, clock, "Hello."):
        yield desk


async def a_desk(
    database: Database, directory: Path, clock: MovableClock, *lines: Any, **config: Any
) -> AsyncIterator[Desk]:
    script = Script(*lines)
    async with a_house(database, directory, script.model, clock, config=config) as house:
        yield Desk(house, clock, script)


async def opened(desk: Desk, answers: int = 1) -> int:
    """A customer writes and is answered; return the conversation."""
    conversation = (await desk.says("hello")).conversation
    await desk.house.until_heard(conversation, answers)
    await desk.until_quiet()
    return conversation


async def test_while_a_person_has_it_the_agent_says_nothing_and_afterwards_answers_all_of_it_once(desk: Desk) -> None:
    conversation = await opened(desk)
    assert await desk.pauses(conversation)
    assert not await desk.pauses(conversation)
    await desk.says("is anybody there?")
    turn = await desk.until_held()
    await desk.says("please answer")
    await desk.goes_by(timedelta(hours=1))
    assert (await desk.house.heard(conversation), len(desk.script.asked)) == (["Hello."], 1)
    assert await desk.resumes(conversation)
    assert not await desk.resumes(conversation)
    assert await desk.house.until_heard(conversation, 2) == ["Hello.", "Hello."]
    await desk.until_quiet()
    said = str(desk.script.asked[-1])
    assert ("is anybody there?" in said, "please answer" in said, len(desk.script.asked)) == (True, True, 2)
    assert (await desk.house.until_state(turn.id, "fired")).outcome == "delivered"


async def test_a_person_says_something_once_and_what_they_answered_is_not_answered_again(desk: Desk) -> None:
    conversation = await opened(desk)
    await desk.pauses(conversation)
    await desk.says("what does it cost?")
    turn = await desk.until_held()
    said = await desk.replies(conversation, "It costs 20.")
    await desk.house.until_state(said, "fired")
    assert (await desk.house.until_state(turn.id, "cancelled")).hold is None
    log = await desk.house.log(conversation)
    assert [(one.kind, one.text) for one in log[2:]] == [("message", "what does it cost?"), ("notice", "It costs 20.")]
    await desk.says("thank you, and by card?")
    await desk.until_held()
    await desk.resumes(conversation)
    await desk.house.until_heard(conversation, 3)
    await desk.until_quiet()
    prompt = str(desk.script.asked[-1][-1])
    assert ("by card" in prompt, "what does it cost" in prompt) == (True, False)
    assert "It costs 20." in str(desk.script.asked[-1]), "the agent knows what the person said"
    assert len(await desk.house.heard(conversation)) == 3


async def test_nothing_is_left_to_answer_when_the_person_has_answered_all(desk: Desk) -> None:
    conversation = await opened(desk)
    await desk.pauses(conversation)
    await desk.says("what does it cost?")
    await desk.until_held()
    await desk.replies(conversation, "It costs 20.")
    await desk.resumes(conversation)
    await desk.until_quiet()
    assert await desk.house.heard(conversation) == ["Hello.", "It costs 20."]
    assert len(desk.script.asked) == 1


async def test_only_who_has_taken_a_conversation_over_can_answer_in_it(desk: Desk) -> None:
    conversation = await opened(desk)
    with pytest.raises(NotWithPerson, match=f"vuelvo conversations pause {conversation}"):
        await desk.replies(conversation, "It costs 20.")
    await desk.pauses(conversation)
    for words in ("", " \0 ", "x" * 16_001):
        with pytest.raises(ValueError, match="1 to 16000 characters"):
            await desk.replies(conversation, words)
    assert await desk.house.tasks(kind="notice") == []


async def test_the_agent_hands_over_and_the_customer_is_told_so_once(
    database: Database, tmp_path: Path, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async for desk in a_desk(database, tmp_path, clock, asks("wants a discount of 40%"), "It was never said."):
        conversation = (await desk.says("I want a discount, let me talk to a person")).conversation
        assert await desk.house.until_heard(conversation, 1) == [TOLD]
        await desk.until_held()
        await desk.says("hello?")
        await desk.goes_by(timedelta(minutes=1))
        assert await desk.house.heard(conversation) == [TOLD]
        assert len(desk.script.asked) == 1, "the run ends with the call"
        (listed,) = await desk.waiting()
        assert (listed.id, listed.unanswered, listed.with_person_why) == (conversation, 2, "wants a discount of 40%")
    lines = [one.getMessage() for one in caplog.records if "waits for a person" in one.getMessage()]
    assert lines == [f"conversation {conversation} of tenant acme waits for a person"]


async def test_after_a_crash_of_the_turn_that_handed_over_the_customer_is_told_once_all_the_same(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(asks(), "Hello again.")
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        desk = Desk(house, clock, script)
        conversation = (await house.says("a person, please")).conversation
        (turn,) = await take(database, clock)
        counter = Counter(house, clock, Line(), script)
        await counter.perform(turn)
        clock.move(LEASE + timedelta(seconds=1))
        await counter.say()
        assert await house.heard(conversation) == [TOLD]
        # Had it died after its commit: the turn comes back, and finds that the conversation is a person's.
        assert (await desk.until_held()).id == turn.id
        assert await desk.resumes(conversation)
        await counter.say()
        assert await counter.nothing_is_due()
        assert await house.heard(conversation) == [TOLD, "Hello again."]


async def test_it_is_told_in_the_customers_language(database: Database, tmp_path: Path, clock: MovableClock) -> None:
    async for desk in a_desk(database, tmp_path, clock, asks()):
        conversation = (await desk.says("quiero hablar con una persona, por favor")).conversation
        assert await desk.house.until_heard(conversation, 1) == [
            "Le paso con una persona de Acme, que le responderá aquí."
        ]


async def test_what_is_booked_waits_and_goes_out_when_it_is_given_back(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, *BOOKED):
        conversation = await opened(desk)
        await desk.pauses(conversation)
        await desk.goes_by(SOON)
        held = await desk.until_held("followup")
        assert (held.state, desk.script.asked_for_followups()) == ("scheduled", 0)
        await desk.resumes(conversation)
        assert (await desk.house.until_state(held.id, "fired")).outcome == "delivered"
        assert len(await desk.house.heard(conversation)) == 2


async def test_what_is_booked_goes_on_where_the_tenant_says_so(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, *BOOKED, handover={"booked": "go on"}):
        conversation = await opened(desk)
        await desk.pauses(conversation)
        await desk.goes_by(SOON)
        assert len(await desk.house.until_heard(conversation, 2)) == 2


async def test_what_waits_goes_on_when_the_tenants_file_says_so_by_then_but_turns_still_wait(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, *BOOKED):
        conversation = await opened(desk)
        await desk.pauses(conversation)
        await desk.says("hello?")
        await desk.goes_by(SOON)
        held = await desk.until_held("followup")
        await apply_tenants(desk.house.service, [a_config("acme", handover={"booked": "go on"})])
        desk.house.service._tenants.clear()
        await desk.goes_by(timedelta(seconds=3))
        assert (await desk.house.until_state(held.id, "fired")).outcome == "delivered"
        await desk.until_held("turn")
        assert len(await desk.house.heard(conversation)) == 2


async def test_what_waits_can_be_cancelled_and_expires_like_anything_held(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    lines = (books("call Ana", delay="10 seconds"), "Booked.", books("call Bea", delay="10 seconds"), "Booked.")
    async for desk in a_desk(database, tmp_path, clock, *lines):
        conversation = await opened(desk)
        await desk.says("and Bea")
        await desk.house.until_heard(conversation, 2)
        await desk.pauses(conversation)
        await desk.goes_by(SOON)
        first, second = sorted(await desk.house.tasks(), key=lambda one: one.id)
        await desk.until_held("followup")
        async with database.transaction() as connection:
            assert (await cancel(connection, clock, "acme", [first.id])).cancelled == [first.id]
            await connection.exec_driver_sql(f"update tasks set expires_at = '2026-11-29' where id = {second.id}")
            assert await expire_held(connection, clock) == 1
        await desk.resumes(conversation)
        await desk.until_quiet()
        assert len(await desk.house.heard(conversation)) == 2


@pytest.mark.parametrize("has_come_back", [False, True])
async def test_what_is_written_when_a_person_comes_is_not_said_and_is_written_anew_if_they_give_it_back(
    database: Database, tmp_path: Path, clock: MovableClock, has_come_back: bool
) -> None:
    async for desk in a_desk(database, tmp_path, clock, "An old answer.", "A new answer."):
        desk.script.gate.clear()
        conversation = (await desk.says("hello")).conversation
        await desk.script.reached.wait()
        await desk.pauses(conversation)
        if has_come_back:
            await desk.resumes(conversation)
        desk.script.gate.set()
        if has_come_back:  # it was the agent's when it began, and is now
            assert await desk.house.until_heard(conversation, 1) == ["An old answer."]
            return
        await desk.until_held()
        assert await desk.house.heard(conversation) == []
        await desk.resumes(conversation)
        assert await desk.house.until_heard(conversation, 1) == ["A new answer."]


async def test_a_person_who_answers_while_the_agent_writes_is_the_only_one_who_does(desk: Desk) -> None:
    desk.script.gate.clear()
    conversation = (await desk.says("hello")).conversation
    await desk.script.reached.wait()
    await desk.pauses(conversation)
    await desk.replies(conversation, "Good morning, I am Eva.")
    await desk.resumes(conversation)
    desk.script.gate.set()
    await desk.until_quiet()
    assert await desk.house.until_heard(conversation, 1) == ["Good morning, I am Eva."]
    (turn,) = await desk.house.tasks(kind="turn")
    assert turn.state == "cancelled"


async def test_what_is_booked_while_it_is_written_does_not_slip_out(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, *BOOKED):
        conversation = await opened(desk)
        desk.script.followup_gate.clear()
        desk.script.reached.clear()
        await desk.house.goes_by(clock, SOON)
        await desk.script.reached.wait()
        await desk.pauses(conversation)
        desk.script.followup_gate.set()
        held = await desk.until_held("followup")
        assert await desk.house.heard(conversation) == ["Booked."]
        await desk.resumes(conversation)
        await desk.house.until_state(held.id, "fired")
        assert len(await desk.house.heard(conversation)) == 2


async def test_giving_back_waits_for_whoever_is_just_holding_a_turn(desk: Desk, database: Database) -> None:
    """Whichever comes first, the turn is not left held in a conversation that is the agent's."""
    conversation = await opened(desk)
    for _ in range(20):
        await desk.pauses(conversation)
        await desk.says("hello?")
        await asyncio.gather(desk.resumes(conversation), desk.until_quiet())
        await desk.until_quiet()
    assert [one for one in await desk.house.tasks(kind="turn") if one.state != "fired"] == []
    assert set((await lanes(database)).values()) == {None}


# ---- Networks

TELEGRAM = {"telegram": {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_"}}


async def test_what_was_kept_to_be_said_is_held_at_the_second_door_and_a_send_that_began_is_found_out(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script, line = Script(followups=("Call Ana.",)), Line()
    async with a_house(database, tmp_path, script.model, clock, poll=False, config={"channels": TELEGRAM}) as house:
        counter = Counter(house, clock, line, script)
        task = await counter.written()
        saying = await counter.claimed()
        talk = saying.conversation or 0
        line.waits_for = [1.0]

        async def pauses_meanwhile(seconds: float) -> None:
            async with database.transaction() as connection:
                assert await conversations.hand_over(connection, "acme", talk, None)

        clock.sleep = pauses_meanwhile  # type: ignore[method-assign]
        await counter.perform(saying)
        assert (line.sent, (await counter.task()).hold) == ([], WITH_PERSON)
        async with database.transaction() as connection:
            assert await handover.resume(connection, clock, "acme", talk)
        await counter.say()
        assert ([part.text for part in line.sent], (await counter.task()).state) == (["Call Ana."], "fired")
        assert (await counter.task()).id == task


async def test_in_a_closed_window_a_persons_words_wait_like_any_notice(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with TwilioServer(now=lambda: clock.at) as twilio, an_office(database, tmp_path, clock, twilio) as office:
        conversation = await office.hears("hello")
        desk = Desk(office.house, clock, office.script)
        await desk.pauses(conversation)
        said = await desk.replies(conversation, "We have looked: it costs 20.")
        await office.house.until_state(said, "fired")
        assert office.sent[-1] == "We have looked: it costs 20."
        await office.goes_by(timedelta(hours=25))
        late = await desk.replies(conversation, "Are you still there?")
        assert (await office.until_held(late)).hold == "window closed"
        await office.writes("yes")
        await office.house.until_state(late, "fired")
        assert office.sent[-1] == "Are you still there?"


async def test_who_has_opted_out_is_answered_by_a_person_if_they_ask_and_not_otherwise(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with (
        TwilioServer(now=lambda: clock.at) as twilio,
        an_office(database, tmp_path, clock, twilio, "Hello.") as office,
    ):
        conversation = await office.hears("hello")
        desk = Desk(office.house, clock, office.script)
        await desk.pauses(conversation)
        await office.hears("STOP")
        assert office.sent[-1].startswith("Done: Acme will not write"), "it is confirmed although a person has it"
        with pytest.raises(ValueError, match="opted out"):
            await desk.replies(conversation, "A word more.")
        await office.writes("but what about my claim?")
        await desk.until_held()
        said = await desk.replies(conversation, "It is paid.")
        await office.house.until_state(said, "fired")
        assert office.sent[-1] == "It is paid."


# ---- What an operator sees


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return Shell(tmp_path, database_url)


async def test_an_operator_lists_reads_takes_over_answers_and_gives_back(
    shell: Shell, database: Database, tmp_path: Path
) -> None:
    async with a_house(database, tmp_path, Script("Hello.").model) as house:
        number = "whatsapp:+573001234567"
        conversation = (await house.says("hello", address=number)).conversation
        await house.until_heard(conversation, 1)
        code, said = await shell.run("conversations", "pause", str(conversation), "--why", "a claim")
        assert (code, f"resume {conversation}" in said) == (0, True), said
        assert (await shell.run("conversations", "pause", str(conversation)))[0] == 2
        (row,) = await shell.json("conversations", "list", "--tenant", "acme", "--waiting")
        assert (row["id"], row["address"], row["unanswered"], row["why"]) == (
            conversation,
            "whatsapp:…67",
            0,
            "a claim",
        )
        assert "3001234567" not in (await shell.run("conversations", "list", "--tenant", "acme"))[1]
        code, said = await shell.run("conversations", "reply", str(conversation), "Good", "morning.")
        assert code == 0, said
        assert await house.until_heard(conversation, 2) == ["Hello.", "Good morning."]
        shown = await shell.json("conversations", "show", str(conversation))
        assert (shown["address"], shown["why"], [one["text"] for one in shown["messages"]]) == (
            number,
            "a claim",
            ["hello", "Hello.", "Good morning."],
        )
        code, said = await shell.run("conversations", "show", str(conversation))
        assert (code, "customer: hello" in said, "notice: Good morning." in said) == (0, True, True)
        assert (await shell.run("conversations", "resume", str(conversation)))[0] == 0
        assert (await shell.run("conversations", "resume", str(conversation)))[0] == 2
        code, said = await shell.run("conversations", "reply", str(conversation), "Again.")
        assert (code, "pause" in said) == (2, True), said
        assert await shell.json("conversations", "list", "--tenant", "acme", "--waiting") == []


async def test_what_is_not_there_is_named(shell: Shell) -> None:
    for words in (["show", "7"], ["pause", "7"], ["resume", "7"], ["reply", "7", "x"], ["list", "--tenant", "nobody"]):
        code, said = await shell.run("conversations", *words)
        assert (code, "there is no" in said) == (2, True), said


async def test_conversations_with_a_person_are_a_gauge(desk: Desk) -> None:
    async def gauge() -> str:
        async with calling(application(desk.house.run)) as http:
            text: str = (await http.get("/metrics")).text
        return next(line for line in text.splitlines() if line.startswith("vuelvo_conversations_with_a_person{"))

    conversation = await opened(desk)
    assert await gauge() == 'vuelvo_conversations_with_a_person{tenant="acme"} 0'
    await desk.pauses(conversation)
    assert await gauge() == 'vuelvo_conversations_with_a_person{tenant="acme"} 1'


# ---- Conversations that move


async def test_a_visitor_who_signs_in_stays_with_the_person(desk: Desk, database: Database) -> None:
    visitor = await opened(desk)
    async with database.transaction() as connection:
        user = await a_conversation(connection, address="user:7")
    await desk.pauses(visitor, "a claim")
    await desk.says("is anybody there?")
    await desk.until_held()
    async with database.transaction() as connection:
        await bring_along(desk.clock, connection, "acme", visitor, user)
    (listed,) = await desk.waiting()
    assert (listed.id, listed.unanswered, listed.with_person_why) == (user, 1, "a claim")
    await desk.resumes(user)
    assert await desk.house.until_heard(user, 2) == ["Hello.", "Hello."]


async def test_what_waited_in_a_chat_that_goes_on_in_another_conversation_is_not_left_waiting(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script, line = Script(followups=("Call Ana.",)), Line()
    async with a_house(database, tmp_path, script.model, clock, poll=False, config={"channels": TELEGRAM}) as house:
        counter = Counter(house, clock, line, script)
        await counter.written()
        saying = await counter.claimed()
        async with database.transaction() as connection:
            assert await conversations.hand_over(connection, "acme", saying.conversation or 0, None)
            other = await a_conversation(connection, channel="telegram", address="-100")
        await counter.perform(saying)
        assert (await counter.task()).hold == WITH_PERSON
        async with database.transaction() as connection:
            await follow(connection, "acme", "telegram", "42", "-100")
        await counter.say()
        task = await counter.task()
        assert (task.state, task.conversation, [part.text for part in line.sent]) == ("fired", other, ["Call Ana."])
