"""Story two, whole: a time came, and the agent comes back."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ToolCallPart
from sqlalchemy import text

from app.followups import REMINDER_ATTEMPTS
from scheduler import operate
from scheduler.clock import MovableClock
from scheduler.retry import BUDGET
from store.database import Database
from tests.support.factories import a_followup
from tests.support.house import House, a_house
from tests.support.model import Script, books, texts
from tests.support.wait import eventually

BOOKED = (books("call Ana", delay="10 seconds"), "Booked, I will remind you.")


async def book(house: House, words: str = "remind me in 10 seconds to call Ana", **more: str) -> int:
    """A customer has something booked; returns the conversation."""
    received = await house.says(words, **more)
    await house.until_heard(received.conversation, 1)
    return received.conversation


async def test_the_reminder_comes_when_it_is_due_once_and_in_the_same_conversation(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        clock.move(timedelta(seconds=9.9))
        house.wake()
        (task,) = await house.tasks()
        assert task.state == "scheduled"
        clock.move(timedelta(seconds=0.1))
        house.wake()
        told = await house.until_heard(conversation, 2)
        assert told[1] == "Here is your reminder: call Ana."
        fired = await house.until_state(task.id, "fired")
        assert (fired.outcome, fired.message_seq) == ("delivered", 3)
        assert [message.kind for message in await house.log(conversation)] == ["message", "reply", "followup"]
        assert script.asked_for_followups() == 1


async def test_a_restart_between_booking_and_due_loses_nothing(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    clock.move(timedelta(hours=1))
    async with a_house(database, tmp_path, script.model, clock) as house:
        assert len(await house.until_heard(conversation, 2)) == 2


async def test_what_was_sent_stands_in_the_history_as_the_assistants_own(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED, "Calling it done.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        clock.move(timedelta(seconds=10))
        house.wake()
        await house.until_heard(conversation, 2)
        await house.says("do that one")
        await house.until_heard(conversation, 3)
        assert texts(script.asked[-1]) == [
            ("customer", "remind me in 10 seconds to call Ana"),
            ("assistant", "Booked, I will remind you."),
            ("assistant", "Here is your reminder: call Ana."),
            ("customer", "do that one"),
        ]


async def test_a_followups_run_has_no_booking_tools_and_books_nothing(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED, followups=(books("call Ana again", delay="1h"), "Reminder."))
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        clock.move(timedelta(seconds=10))
        house.wake()
        assert (await house.until_heard(conversation, 2))[1] == "Reminder."
        assert script.tools[0] == [
            "ask_a_person",
            "cancel_followup",
            "list_followups",
            "schedule_followup",
            "schedule_recurring",
        ]
        assert script.tools[-1] == []
        assert len(await house.tasks(states=("scheduled", "firing", "fired"))) == 1


async def test_the_language_is_that_of_the_booking(database: Database, tmp_path: Path, clock: MovableClock) -> None:
    script = Script(books("call Ana", delay="10 seconds"), "Programado.", followups=("Recordatorio: llamar a Ana.",))
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house, "recuérdame en 10 segundos llamar a Ana")
        clock.move(timedelta(seconds=10))
        house.wake()
        await house.until_heard(conversation, 2)
        assert "Language: es" in str(texts(script.asked[-1])[-1])


async def test_a_reminder_is_delivered_whatever_the_model_makes_of_it(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    lines = ("<think>not worth notifying</think>", "", "I will get back to you about the bath.")
    script = Script(books("take a bath", delay="10 seconds"), "Booked.", followups=lines)
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house, "remind me to take a bath in 10 seconds")
        clock.move(timedelta(seconds=10))
        house.wake()
        assert (await house.until_heard(conversation, 2))[1] == "Reminder: take a bath"


async def test_what_has_expired_when_its_time_comes_is_not_said_and_no_model_is_asked(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script()
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        received = await house.says("hello")
        async with database.transaction() as connection:
            for hours in (1, 3):  # due in an hour; the first is worth nothing two hours from now
                await a_followup(
                    connection,
                    clock,
                    received.conversation,
                    due=timedelta(hours=1),
                    expires_at=clock.at + timedelta(hours=hours + 0.5),
                    about=f"worth saying for {hours} hours",
                )
    clock.move(timedelta(hours=2))
    async with a_house(database, tmp_path, script.model, clock) as house:
        late, still_good = await house.tasks()
        await house.until_state(late.id, "expired")
        await house.until_state(still_good.id, "fired")
        assert script.asked_for_followups() == 1


async def test_a_row_that_cannot_be_read_ends_in_words_and_keeps_none_of_the_others_waiting(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script()
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        received = await house.says("hello")
        async with database.transaction() as connection:
            broken = await a_followup(connection, clock, received.conversation)
            whole = [(await a_followup(connection, clock, received.conversation)).id for _ in range(3)]
            await connection.execute(text("""update tasks set payload = '["?"]' where id = :id"""), {"id": broken.id})
    async with a_house(database, tmp_path, script.model, clock) as house:
        for task in whole:
            await house.until_state(task, "fired")

        async def has_ended() -> bool:
            clock.move(timedelta(minutes=5))
            house.wake()
            return (await house.tasks(states=["failed"])) != []

        await eventually(has_ended)
        (failed,) = await house.tasks(states=["failed"])
        assert (failed.id, failed.attempt) == (broken.id, BUDGET)
        assert "AttributeError" in str(failed.error)


async def test_an_outage_of_the_model_delays_a_reminder_and_does_not_lose_it(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    down = ModelHTTPError(503, "script", "down")
    script = Script(*BOOKED, followups=(down, down, "Back: call Ana."))
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        await pass_time_until(house, clock, script, 3)
        assert (await house.until_heard(conversation, 2))[1] == "Back: call Ana."


async def test_when_the_model_stays_down_the_stored_words_go_out(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED, followups=(ModelHTTPError(503, "script", "down"),))
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        await pass_time_until(house, clock, script, REMINDER_ATTEMPTS)
        assert (await house.until_heard(conversation, 2))[1] == "Reminder: call Ana"
        assert script.asked_for_followups() == REMINDER_ATTEMPTS


async def test_a_tenant_may_have_nothing_said_instead_and_the_reminder_waits_for_an_operator(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    down = ModelHTTPError(503, "script", "down")
    script = Script(*BOOKED, followups=(*[down] * REMINDER_ATTEMPTS, "Back: call Ana."))
    async with a_house(database, tmp_path, script.model, clock, config={"agent": {"unwritten": "nothing"}}) as house:
        conversation = await book(house)
        await pass_time_until(house, clock, script, REMINDER_ATTEMPTS)
        (task,) = await house.tasks()
        task = await house.until_state(task.id, "failed")
        assert task.error is not None
        assert task.error.startswith("it was not written: ")
        assert len(await house.heard(conversation)) == 1
        async with house.service.database.transaction() as connection:
            await operate.retry(connection, clock, "acme", task.id, "eva: the model is back")
        house.wake()
        assert (await house.until_heard(conversation, 2))[1] == "Back: call Ana."


async def test_a_reminder_whose_model_hangs_goes_out_in_its_stored_words_after_one_wait(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    script.followup_gate.clear()
    config = {"agent": {"answer_timeout": 1}}
    async with a_house(database, tmp_path, script.model, clock, config=config) as house:
        conversation = await book(house)
        await pass_time_until(house, clock, script, 1)
        assert (await house.until_heard(conversation, 2))[1] == "Reminder: call Ana"
        assert script.asked_for_followups() == 1


async def pass_time_until(house: House, clock: MovableClock, script: Script, asked: int) -> None:
    """Let minutes pass until the model was asked to come back so often."""

    def pass_time() -> bool:
        clock.move(timedelta(minutes=5))
        house.wake()
        return script.asked_for_followups() >= asked

    await eventually(pass_time)


async def test_a_check_of_three_minutes_leaves_the_customer_free_to_chat(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(
        books("check whether the policy covers hail"),
        "I am checking.",
        "It is sunny.",
        "You are welcome.",
        followups=("Yes, hail is covered.",),
    )
    script.followup_gate.clear()
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house, "does my policy cover hail? check and tell me")
        await eventually(lambda: script.asked_for_followups() == 1)
        clock.move(timedelta(minutes=1))
        await house.says("how is the weather?")
        assert len(await house.until_heard(conversation, 2)) == 2
        clock.move(timedelta(minutes=2))
        await house.says("thanks")
        assert len(await house.until_heard(conversation, 3)) == 3
        script.followup_gate.set()
        assert (await house.until_heard(conversation, 4))[3] == "Yes, hail is covered."
        assert script.asked_for_followups() == 1


async def test_a_task_that_falls_due_during_a_turn_comes_after_it(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED, "An answer that took long.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        script.gate.clear()
        script.reached.clear()
        clock.move(timedelta(seconds=5))
        await house.says("tell me a long story")
        await eventually(script.reached.is_set)
        clock.move(timedelta(seconds=5))
        house.wake()
        await eventually(lambda: script.asked_for_followups() == 1)
        script.gate.set()
        told = await house.until_heard(conversation, 3)
        assert told[1:] == ["An answer that took long.", "Here is your reminder: call Ana."]


async def test_a_past_row_written_by_hand_fires_once_and_never_loops(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script()
    async with a_house(database, tmp_path, script.model, clock) as house:
        received = await house.says("hello")
        await house.until_heard(received.conversation, 1)
        async with database.transaction() as connection:
            past = await a_followup(connection, clock, received.conversation, due=clock.at - timedelta(days=400))
        house.wake()
        await house.until_state(past.id, "fired")
        clock.move(timedelta(days=1))
        house.wake()
        await house.says("hello again")
        await house.until_heard(received.conversation, 3)
        assert script.asked_for_followups() == 1


async def test_cancelled_while_it_is_being_written_it_is_not_said(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    script.followup_gate.clear()
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        (task,) = await house.tasks()
        clock.move(timedelta(seconds=10))
        house.wake()
        await house.until_state(task.id, "firing")
        async with database.transaction() as connection:
            await connection.execute(text("update tasks set cancel_requested = true where id = :id"), {"id": task.id})
        script.followup_gate.set()
        await house.until_state(task.id, "cancelled")
        assert len(await house.heard(conversation)) == 1


async def test_generation_longer_than_the_poll_interval_is_one_run(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    script.followup_gate.clear()
    async with a_house(database, tmp_path, script.model, clock, poll_interval=timedelta(seconds=0.1)) as house:
        conversation = await book(house)
        clock.move(timedelta(seconds=10))
        house.wake()
        await eventually(lambda: script.asked_for_followups() == 1)
        for _ in range(5):
            house.wake()
            await asyncio.sleep(0.02)
        script.followup_gate.set()
        await house.until_heard(conversation, 2)
        assert script.asked_for_followups() == 1


@pytest.mark.parametrize("tool", ["list_followups", "cancel_followup"])
async def test_nobody_sees_or_cancels_what_another_customer_has_booked(
    database: Database, tmp_path: Path, clock: MovableClock, tool: str
) -> None:
    script = Script(*BOOKED)
    async with a_house(database, tmp_path, script.model, clock) as house:
        await book(house)
        (task,) = await house.tasks()
        arguments = {"id": task.id} if tool == "cancel_followup" else {}
        script._lines = [ToolCallPart(tool, arguments), "Nothing there."]
        other = await house.says("what is pending?", address="mallory")
        await house.until_heard(other.conversation, 1)
        answer = str(script.asked[-1][-1])
        assert "call Ana" not in answer
        assert (await house.tasks())[0].state == "scheduled"


async def test_a_reminder_that_met_a_crash_loop_goes_out_as_it_was_booked_without_the_model(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(*BOOKED)
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        async with database.transaction() as connection:  # as often as its worker was killed
            await connection.execute(
                text("update tasks set attempt = :times where kind = 'followup'"), {"times": BUDGET}
            )
        clock.move(timedelta(seconds=10))
        house.wake()
        assert (await house.until_heard(conversation, 2))[1] == "Reminder: call Ana"
        assert script.asked_for_followups() == 0
