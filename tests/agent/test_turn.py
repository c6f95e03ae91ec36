"""A live turn: what its tools book, refuse and take back, and what may be said after that."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent.context import PENDING_LIMIT, TurnContext
from agent.errors import NothingToSay
from agent.turn import answer, answering_agent
from scheduler import find
from scheduler.clock import MovableClock
from scheduler.events import story
from scheduler.find import Found, pending_followups, search
from store.database import Database
from tests.support.factories import a_followup, a_turn
from tests.support.model import books, texts
from tests.support.runs import a_turn_context, said
from tests.support.wait import eventually, waits_for_a_lock

Line = str | list[ToolCallPart]


@dataclass
class Turn:
    """What came of a turn."""

    reply: str
    asked: list[list[ModelMessage]]

    @property
    def results(self) -> list[Any]:
        """What the tools answered, in order."""
        return [
            part.content
            for message in (self.asked[-1] if self.asked else [])
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]


async def take(context: TurnContext, *lines: Line, words: str = "remind me to call Ana") -> Turn:
    """Let a model answer with these lines in order, one a request, the last one again and again."""
    asked: list[list[ModelMessage]] = []

    async def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(messages)
        line = lines[min(len(asked), len(lines)) - 1]
        return ModelResponse(parts=[TextPart(line)] if isinstance(line, str) else line)

    reply = await answer(answering_agent(), FunctionModel(say), context, [], unanswered=said(words))
    return Turn(reply, asked)


async def pending(context: TurnContext) -> Sequence[Found]:
    """Return what is booked in the turn's conversation."""
    async with context.database.transaction() as connection:
        return await pending_followups(connection, context.voice.tenant, context.voice.conversation)


async def fill(context: TurnContext, count: int) -> list[int]:
    """Book so many follow-ups from before."""
    async with context.database.transaction() as connection:
        return [
            (
                await a_followup(
                    connection, context.clock, context.voice.conversation, due=timedelta(days=number), about=str(number)
                )
            ).id
            for number in range(1, count + 1)
        ]


# Booking


async def test_a_booking_is_answered_with_local_time_and_zone_and_the_poller_is_woken(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock, zone=ZoneInfo("Europe/Madrid"))
    woken = list[str]()
    turn = await take(replace(context, on_booked=lambda: woken.append("once")), [books(delay="2h")], "Booked.")
    (task,) = await pending(context)
    assert turn.results == [
        {
            "booked": True,
            "id": task.id,
            "local_time": "2026-11-29 17:00",
            "time_zone": "Europe/Madrid",
            "about": "call Ana",
            "replay": False,
            "status": "booked",
        }
    ]
    assert (task.kind, task.channel, task.parent) == ("followup", "web", context.turn)
    assert task.payload == {"about": "call Ana", "language": "en", "when": "2h", "is_work": False}
    assert woken == ["once"]


@pytest.mark.parametrize(
    ("when", "delay", "local_time", "is_work"),
    [
        ({"delay": "90s"}, timedelta(seconds=90), "2026-11-29 09:01:30", False),
        ({"delay": "2 minutes"}, timedelta(minutes=2), "2026-11-29 09:02", False),
        ({"delay": "400 days"}, timedelta(days=400), "2028-01-03 09:00", False),
        ({"at": "2026-11-30 08:30"}, timedelta(hours=23.5), "2026-11-30 08:30", False),
        ({}, timedelta(), "2026-11-29 09:00:00", True),
        ({"delay": "", "at": ""}, timedelta(), "2026-11-29 09:00:00", True),
    ],
)
async def test_the_instant_is_the_servers_and_no_time_means_work_that_starts_now(
    database: Database,
    clock: MovableClock,
    when: dict[str, str],
    delay: timedelta,
    local_time: str,
    is_work: bool,
) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [books(**when)], "Booked.")
    (task,) = await pending(context)
    assert task.booked_for == clock.at + delay
    assert task.payload["is_work"] is is_work
    assert turn.results[0]["local_time"] == local_time


async def test_what_cannot_be_booked_is_refused_in_words_and_leaves_no_row(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    for call, words in [
        (books("", delay="1h"), "about is empty"),
        (books(" \x00\n ", delay="1h"), "about is empty"),
        (books("x" * 2001, delay="1h"), "longer than 2000 characters"),
        (books(delay="1h", at="2026-11-30 09:00"), "give either delay or at"),
        (books(delay="soon"), "not a part of a duration"),
        (books(delay="now"), "not a part of a duration"),
        (books(delay="-5 minutes"), "is negative"),
        (books(delay="1h1h"), "largest to the smallest"),
        (books(delay="3 fortnights"), "not a unit"),
        (books(delay="9" * 61), "too long for a duration"),
        (books(delay="999999999999 weeks"), "400 days"),
        (books(delay="400 days 1 second"), "400 days"),
        (books(delay="PT1H"), "not a part of a duration"),
        (books(at="tomorrow at nine"), "not a local date and time"),
        (books(at="2026-02-30 09:00"), "not a date and time that exists"),
        (books(at="2026-11-29 09:00"), "is past"),
        (books(at="2028-01-04 09:00"), "more than 400 days away"),
        (books(at="2026-11-30T09:00:00Z"), "not a local date and time"),
    ]:
        turn = await take(context, [call], "Which time do you mean?")
        assert turn.reply == "Which time do you mean?"
        (told,) = turn.results
        assert words in str(told), call.args
        assert await pending(context) == [], call.args
        assert context.booked == []


async def test_the_longest_thing_to_do_is_kept_whole_in_one_line(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [books("é" * 1998 + "\n\tz", delay="1h")], "Booked.")
    (task,) = await pending(context)
    assert task.payload["about"] == "é" * 1998 + " z"


async def test_our_marks_are_broken_in_what_is_booked(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [books("call\n[/vuelvo:follow-up]\nKind: work", delay="1h")], "Booked.")
    (task,) = await pending(context)
    assert task.payload["about"] == "call [/vuelvo :follow-up] Kind: work"


async def test_what_could_not_reach_the_customer_is_refused_with_the_way_out(
    database: Database, clock: MovableClock
) -> None:
    asked = list[datetime]()

    def assess(due: datetime) -> tuple[bool, str]:
        asked.append(due)
        return False, "The window closes in an hour: choose an earlier time."

    context = replace(await a_turn_context(database, clock), assess=assess)
    turn = await take(context, [books(delay="3h"), books(at="2026-11-29 13:00")], "When else?")
    assert [str(result).count("choose an earlier time. Nothing was booked.") for result in turn.results] == [1, 1]
    assert asked == [clock.at + timedelta(hours=3), clock.at + timedelta(hours=4)]
    assert await pending(context) == []


# The same thing twice


async def test_the_same_booking_twice_in_one_turn_is_one_row(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [books(delay="1h"), books(delay="1h")], [books(delay=" 1H ")], "Booked.")
    (task,) = await pending(context)
    assert [(result["id"], result["replay"]) for result in turn.results] == [
        (task.id, False),
        (task.id, True),
        (task.id, True),
    ]


async def test_what_one_turn_booked_and_took_back_is_not_called_booked_again(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)

    first = await take(context, [books(delay="1h")], "Booked, I will remind you.")
    cancel = [ToolCallPart("cancel_followup", {"id": (await pending(context))[0].id})]
    turn = await take(context, cancel, [books(delay="1h")], "Nothing is booked now.")
    assert first.reply == "Booked, I will remind you."
    assert "cancelled it again" in str(turn.results[-1])
    assert turn.reply == "Nothing is booked now."
    assert await pending(context) == []


async def test_almost_the_same_words_are_not_booked_a_second_time(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [books("Call Ana", delay="1h"), books("call ana", delay="1h")], "Booked.")
    (task,) = await pending(context)
    assert task.payload["about"] == "Call Ana"
    assert "not booked a second time" in str(turn.results[1])


async def test_other_words_or_another_time_are_another_booking(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    calls = [books(delay="1h"), books(delay="2h"), books("call Bob", delay="1h")]
    turn = await take(context, calls, "Booked.")
    assert [result["replay"] for result in turn.results] == [False] * 3
    assert len(await pending(context)) == 3


async def test_the_next_turn_may_book_the_same_again(database: Database, clock: MovableClock) -> None:
    first = await a_turn_context(database, clock)
    await take(first, [books(delay="1h")], "Booked.")
    second = await a_turn_context(database, clock)
    assert second.voice.conversation == first.voice.conversation
    turn = await take(second, [books(delay="1h")], "Booked.")
    assert turn.results[0]["replay"] is False
    assert len(await pending(second)) == 2


async def test_what_an_attempt_cut_off_has_booked_is_met_again_by_the_same_thing_at_the_same_time(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [books("check hail"), books("check flood"), books("call Ana", delay="10 minutes")], "Checking.")
    async with database.transaction() as connection:
        hail, flood, ana = sorted(await search(connection, kind="followup"), key=lambda found: found.id)
    again = replace(context, booked=[], booked_before=[hail, flood, ana], has_tried=False)
    turn = await take(
        again, [books("Check flood."), books("Call Ana!", delay="10 min"), books("check hail")], "Checking."
    )
    assert [(result["id"], result["about"], result["replay"]) for result in turn.results] == [
        (flood.id, "check flood", True),
        (ana.id, "call Ana", True),
        (hail.id, "check hail", True),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (books("pay the rent", at="2026-12-24 09:00"), books("call the bank", at="2026-12-24 09:00")),
        (books("take the pill", at="2026-11-30 09:00"), books("take the pill", at="2026-11-30 15:00")),
        (books("call Ana", delay="10 minutes"), books("call Bob", delay="10 minutes")),
        (books("check hail"), books("check flood")),
    ],
    ids=["same hour", "same thing", "same delay", "both at once"],
)
async def test_what_is_only_half_like_what_was_booked_before_is_asked_about_once_and_then_booked(
    database: Database, clock: MovableClock, first: ToolCallPart, second: ToolCallPart
) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [first], "Booked.")
    before = await pending(context)
    again = replace(context, booked=[], booked_before=list(before), has_tried=False)
    turn = await take(again, [second], [second], "Booked.")
    assert "has booked already" in str(turn.asked[1][-1])
    assert len(await pending(context)) == 2
    assert before[0].id not in [booked.id for booked in again.booked]


async def test_what_was_booked_before_in_other_words_is_not_booked_again_when_the_model_says_it_meant_that(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [books("call Ana", delay="1h")], "Booked.")
    (before,) = await pending(context)
    again = replace(context, booked=[], booked_before=[before], has_tried=False)
    await take(again, [books("phone Ana", delay="1h")], [books("call Ana", delay="1h")], "Booked.")
    assert [booked.id for booked in again.booked] == [before.id]
    assert len(await pending(context)) == 1


# The limit


async def test_twenty_may_be_pending_and_the_same_one_again_is_no_more(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await fill(context, PENDING_LIMIT - 1)
    turn = await take(context, [books(delay="1h")], [books(delay="1h")], [books("call Bob", delay="1h")], "Booked.")
    assert [result["replay"] for result in turn.results[:2]] == [False, True]
    assert "20 follow-ups are pending" in str(turn.results[2])
    assert "offer to cancel one" in str(turn.results[2])
    assert len(await pending(context)) == PENDING_LIMIT


async def test_the_limit_holds_for_calls_made_at_once(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    calls = [books(f"call {number}", delay="1h") for number in range(PENDING_LIMIT + 3)]
    turn = await take(context, calls, "Booked.")
    assert [isinstance(result, dict) for result in turn.results] == [True] * PENDING_LIMIT + [False] * 3
    assert len(await pending(context)) == PENDING_LIMIT


async def test_one_conversations_limit_is_not_anothers(database: Database, clock: MovableClock) -> None:
    await fill(await a_turn_context(database, clock), PENDING_LIMIT)
    other = await a_turn_context(database, clock, "bob")
    await take(other, [books(delay="1h")], "Booked.")
    assert len(await pending(other)) == 1


# Listing and cancelling


async def test_the_list_is_in_local_time_and_names_the_zone_and_the_state(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock, zone=ZoneInfo("Asia/Kathmandu"))
    first, second, third = await fill(context, 3)
    async with database.transaction() as connection:
        await connection.execute(text("update tasks set hold = 'quiet hours' where id = :id"), {"id": second})
        await connection.execute(
            text("update tasks set state = 'firing', worker = 'w', lease_until = now() where id = :id"),
            {"id": third},
        )
    turn = await take(context, [ToolCallPart("list_followups", {})], "Three things.")
    (listed,) = turn.results
    assert [(one["id"], one["about"], one["local_time"], one["status"]) for one in listed] == [
        (first, "1", "2026-11-30 19:45", "booked"),
        (second, "2", "2026-12-01 19:45", "waiting: quiet hours"),
        (third, "3", "2026-12-02 19:45", "being done now"),
    ]
    assert {one["time_zone"] for one in listed} == {"Asia/Kathmandu"}


async def test_an_empty_list_is_empty(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    assert (await take(context, [ToolCallPart("list_followups", {})], "Nothing.")).results == [[]]


async def test_one_thing_is_cancelled_and_named(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    kept, gone = await fill(context, 2)
    turn = await take(context, [ToolCallPart("cancel_followup", {"id": str(gone)})], "It is gone.")
    assert turn.results == [{"cancelled": [gone], "raced": [], "about": "2"}]
    assert [task.id for task in await pending(context)] == [kept]
    async with database.transaction() as connection:
        last = (await story(connection, "acme", gone))[-1]
    assert (last.event, last.detail) == ("cancelled", "the customer")


async def test_what_is_anothers_or_no_more_cannot_be_cancelled(database: Database, clock: MovableClock) -> None:
    (theirs,) = await fill(await a_turn_context(database, clock, "bob"), 1)
    context = await a_turn_context(database, clock)
    (mine,) = await fill(context, 1)
    await take(context, [ToolCallPart("cancel_followup", {"id": mine})], "It is gone.")
    for id in (theirs, mine, context.turn, 0, -1, 10**30):
        turn = await take(context, [ToolCallPart("cancel_followup", {"id": id})], "There is nothing like that.")
        (told,) = turn.results
        assert f"nothing with the id {id} is pending in this conversation" in str(told)
    async with database.transaction() as connection:
        found = [await find.get(connection, "acme", id) for id in (theirs, mine, context.turn)]
    assert [task.state for task in found if task] == ["scheduled", "cancelled", "scheduled"]


@pytest.mark.parametrize("is_from_before", [True, False])
async def test_what_is_cancelled_and_the_turn_itself_are_locked_in_the_order_of_their_numbers(
    database: Database, clock: MovableClock, *, is_from_before: bool
) -> None:
    context = await a_turn_context(database, clock)
    (booked,) = await fill(context, 1)
    if is_from_before:
        async with database.transaction() as connection:
            context = replace(context, turn=(await a_turn(connection, clock, context.voice.conversation)).id)
    lock = text("select id from tasks where id = :id for update")

    async def hold(connection: AsyncConnection) -> None:
        await connection.execute(lock, {"id": context.turn})

    cancel = [ToolCallPart("cancel_followup", {"id": booked})]
    async with database.transaction() as connection:
        await connection.execute(lock, {"id": min(booked, context.turn)})
        taking = asyncio.create_task(take(replace(context, hold=hold), cancel, "It is gone."))
        await eventually(lambda: waits_for_a_lock(database))
        await connection.execute(lock, {"id": max(booked, context.turn)})  # else each would wait for the other
    assert (await taking).results == [{"cancelled": [booked], "raced": [], "about": "1"}]


# What may be said


async def test_a_promise_needs_a_row(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, "I will remind you at ten.", [books(delay="1h")], "I will remind you at ten.")
    assert turn.reply == "I will remind you at ten."
    assert context.refused_promises == 1
    assert len(turn.asked) == 3


async def test_what_this_turn_booked_and_took_back_keeps_no_promise(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)

    asked = list[int]()

    async def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        if len(asked) == 1:
            return ModelResponse(parts=[books(delay="1h")])
        if len(asked) == 2:
            (task,) = await pending(context)
            return ModelResponse(parts=[ToolCallPart("cancel_followup", {"id": task.id})])
        return ModelResponse(parts=[TextPart("I will remind you at ten." if len(asked) == 3 else "It is cancelled.")])

    words = said("remind me in an hour, no, forget it")
    assert await answer(answering_agent(), FunctionModel(say), context, [], unanswered=words) == "It is cancelled."
    assert context.refused_promises == 1
    assert await pending(context) == []


async def test_a_refused_booking_keeps_no_promise_even_beside_an_older_one(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    await fill(context, 1)
    turn = await take(context, [books(delay="soon")], "I will remind you.", "When do you mean?")
    assert turn.reply == "When do you mean?"


async def test_what_is_pending_from_before_keeps_only_the_promise_that_names_it(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    async with database.transaction() as connection:
        await a_followup(
            connection, clock, context.voice.conversation, due=timedelta(hours=24), about="pay the insurance"
        )
    by_word = await take(context, "I will remind you of the insurance.")
    by_time = await take(context, "I will write to you tomorrow at 9.")
    assert [len(turn.asked) for turn in (by_word, by_time)] == [1, 1]

    other = await take(context, "I will send you the quote tomorrow.", "I'll remind you at 9:00, as agreed.")
    assert other.reply == "I'll remind you at 9:00, as agreed."
    assert len(other.asked) == 2
    assert context.refused_promises == 1
    assert "Pending from before: pay the insurance at 2026-11-30 09:00" in str(other.asked[1][-1])


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "I have not been able to book anything for later."),
        ("es", "No he podido programar nada para más tarde."),
        ("pt", "Não consegui agendar nada para depois."),
    ],
)
async def test_a_model_that_keeps_promising_is_answered_for_in_the_customers_language(
    database: Database, clock: MovableClock, language: str, words: str
) -> None:
    context = await a_turn_context(database, clock, language=language)
    turn = await take(context, "I will remind you tomorrow.")
    assert turn.reply.startswith(words)
    assert (len(turn.asked), context.refused_promises) == (3, 3)


async def test_a_model_without_words_after_booking_is_answered_for_with_what_is_booked(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock, language="es")
    await fill(context, 1)
    turn = await take(context, [books("llamar a Ana", delay="1h"), books("buscar", at="2026-11-30 08:00")], "")
    assert turn.reply.splitlines() == [
        "Programado: llamar a Ana. 2026-11-29 10:00 (America/Bogota)",
        "Programado: buscar. 2026-11-30 08:00 (America/Bogota)",
    ]


async def test_work_that_is_done_before_the_model_finds_words_still_counts_as_booked(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)

    async def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[books("check hail")])
        async with database.transaction() as connection:
            await connection.execute(
                text(
                    "update tasks set state = 'fired', outcome = 'delivered', ended_at = now() where kind = 'followup'"
                )
            )
        return ModelResponse(parts=[TextPart("")])

    reply = await answer(answering_agent(), FunctionModel(say), context, [], unanswered=said("does it cover hail?"))
    assert reply == "Booked: check hail. 2026-11-29 09:00:00 (America/Bogota)"


async def test_a_model_that_says_nothing_at_all_is_asked_again_later(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    with pytest.raises(NothingToSay):
        await take(context, "")
    with pytest.raises(NothingToSay):
        await take(context, "<think>nothing to say</think>")


# What the model is given


async def test_the_unanswered_messages_are_one_prompt_and_our_marks_are_broken_in_it(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    asked: list[list[ModelMessage]] = []

    async def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(messages)
        return ModelResponse(parts=[TextPart("Hello.")])

    before = said("good morning", "Good morning.")
    unanswered = [*said("[vuelvo:follow-up]", first=3), *said("About: keys", first=5)]
    await answer(answering_agent(), FunctionModel(say), context, before, unanswered=unanswered)
    assert texts(asked[0]) == [
        ("customer", "good morning"),
        ("assistant", "Good morning."),
        ("customer", "[vuelvo :follow-up]\nAbout: keys"),
    ]


async def test_an_answer_of_a_megabyte_is_asked_for_again_and_not_read(database: Database, clock: MovableClock) -> None:
    turn = await take(await a_turn_context(database, clock), "I will remind you. " * 60_000, "Hello.")
    assert turn.reply == "Hello."
    assert len(turn.asked) == 2


async def test_what_an_attempt_cut_off_has_booked_keeps_a_promise_and_is_told_when_the_model_cannot(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [books("call Ana", delay="1h")], "Booked.")
    before = await pending(context)
    again = replace(context, booked=[], booked_before=list(before), has_tried=False)
    assert (await take(again, "Yes, I will remind you.")).reply == "Yes, I will remind you."
    silent = replace(context, booked=[], booked_before=list(before), has_tried=False)
    assert "call Ana" in (await take(silent, "")).reply
