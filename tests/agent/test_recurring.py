"""What the agent books that comes again: its times, its refusals, and its change into another."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic_ai.messages import ToolCallPart

from agent.context import PENDING_LIMIT, TurnContext
from agent.rhythm import how_often, in_words, rhythm
from scheduler.clock import MovableClock
from scheduler.find import booked_for_the_same
from store.database import Database
from tests.agent.test_turn import Turn, fill, pending, take
from tests.support.runs import a_turn_context

MADRID = ZoneInfo("Europe/Madrid")


def again(about: str = "send the report", **how: Any) -> ToolCallPart:
    """The model calls schedule_recurring."""
    return ToolCallPart("schedule_recurring", {"about": about, **how})


def told(turn: Turn) -> list[str]:
    """What the tools answered, refusals too, as texts."""
    return [str(result) for result in turn.results]


async def test_it_is_one_row_and_its_next_three_times_are_told_in_the_customers_zone(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock, zone=MADRID)
    turn = await take(context, [again(cron="0 9 * * 1")], "I will remind you every Monday at 9:00.")
    (task,) = await pending(context)
    assert turn.results == [
        {
            "booked": True,
            "id": task.id,
            "about": "send the report",
            "how_often": "0 9 * * 1",
            "local_times": ["2026-11-30 09:00", "2026-12-07 09:00", "2026-12-14 09:00"],
            "time_zone": "Europe/Madrid",
            "until": None,
            "times": None,
            "replay": False,
            "status": "booked",
        }
    ]
    assert turn.reply == "I will remind you every Monday at 9:00."
    assert (task.kind, task.state, task.channel, task.parent) == ("schedule", "scheduled", "web", context.turn)
    assert task.booked_for == datetime(2026, 11, 30, 8, tzinfo=UTC)
    assert str(task.key).startswith("chat:")
    assert task.payload == {
        "spec": "TZ=Europe/Madrid 0 9 * * 1",
        "missed": "run-once",
        "max_catch_up": 10,
        "about": "send the report",
        "language": "en",
        "expires_after": 7200,
    }


async def test_an_interval_counts_from_now_and_ends_after_so_many_times(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [again(every="2 weeks", times=2)], "Done.")
    (task,) = await pending(context)
    assert task.booked_for == clock.at + timedelta(weeks=2)
    assert turn.results[0]["local_times"] == ["2026-12-13 09:00", "2026-12-27 09:00"]
    assert (turn.results[0]["times"], turn.results[0]["how_often"]) == (2, "every 1209600s")


async def test_the_last_day_is_included_and_nothing_after_it_is_told(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [again(cron="30 23 * * *", until="2026-11-30")], "Done.")
    assert turn.results[0]["local_times"] == ["2026-11-29 23:30", "2026-11-30 23:30"]


async def test_a_time_that_the_clocks_move_is_named(database: Database, clock: MovableClock) -> None:
    clock.set(datetime(2027, 3, 27, 12, tzinfo=UTC))
    context = await a_turn_context(database, clock, zone=MADRID)
    turn = await take(context, [again(cron="30 2 * * *")], "Done.")
    assert turn.results[0]["local_times"] == ["2027-03-28 03:30", "2027-03-29 02:30", "2027-03-30 02:30"]
    assert turn.results[0]["clock_change"] == ["2027-03-28 03:30: moved, since the clocks skip its own time"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "how often it comes is missing"),
        ({"times": 3}, "times alone says not how often"),
        ({"cron": "0 9 * * 1", "every": "1h"}, "either cron or every"),
        ({"cron": "0 9 * * 1", "times": 1}, "what comes once does not recur: book it with schedule_followup"),
        ({"every": "1h", "times": 1}, "what comes once does not recur: book it with schedule_followup"),
        ({"every": "1h", "times": 0}, "what comes once does not recur"),
        ({"cron": "0 9 * *"}, "cron: .* has 4 fields"),
        ({"cron": "0 25 * * *"}, "cron: the hour '25'"),
        ({"cron": "0 9 30 2 *"}, "never comes"),
        ({"cron": "0 9 29 2 *"}, "more than 400 days"),
        ({"every": "59s"}, "every: '59s' is too often"),
        ({"every": "0s"}, "every: .*too short"),
        ({"every": "a fortnight"}, "every: .*not a part of a duration"),
        ({"every": "401 days"}, "more than 400 days"),
        ({"cron": "0 9 * * 1", "until": "2026-12-31", "times": 3}, "either until or times"),
        ({"cron": "0 9 * * 1", "until": "Christmas"}, "until: 'Christmas' is not a local date"),
        ({"cron": "0 9 * * 1", "until": "9999-12-31"}, "until: '9999-12-31' is not a local date"),
        ({"cron": "0 9 * * 1", "until": "2026-11-29"}, "until: it would come first at 2026-11-30 09:00"),
        ({"cron": "0 9 * * 1", "replaces": 999}, "replaces: nothing recurring with the id 999"),
    ],
)
async def test_what_cannot_be_booked_is_refused_naming_the_part_and_that_nothing_was_booked(
    database: Database, clock: MovableClock, how: dict[str, Any], words: str
) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [again(**how)], "How often, please?")
    (refusal,) = told(turn)
    assert re.search(words, refusal), refusal
    assert "Nothing was booked." in refusal
    assert await pending(context) == []
    assert context.booked == []


@pytest.mark.parametrize(
    "call",
    [
        ToolCallPart("schedule_followup", {"about": "send the report", "delay": "10m", "every": "10m"}),
        again(every="10m", once=True),
        again(every="10m", times=1),
    ],
)
async def test_once_with_an_interval_is_neither_booked_once_nor_again_and_again(
    database: Database, clock: MovableClock, call: ToolCallPart
) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [call], "Once, or again and again?")
    assert len(turn.results) == 1
    assert turn.reply == "Once, or again and again?"
    assert await pending(context) == []


async def test_what_could_not_reach_the_customer_is_refused(database: Database, clock: MovableClock) -> None:
    def assess(due: datetime) -> tuple[bool, str]:
        return due < clock.at + timedelta(hours=24), "The window closes in a day."

    context = replace(await a_turn_context(database, clock), assess=assess)
    turn = await take(context, [again(every="10 hours")], [again(every="10 hours", times=2)], "Twice, then.")
    assert told(turn)[0].startswith("The window closes in a day. Nothing was booked.")
    (task,) = await pending(context)
    assert task.payload["times"] == 2


async def test_changed_in_chat_the_old_one_goes_as_the_new_one_comes(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [again(cron="0 9 * * 1")], "Done.")
    (old,) = await pending(context)
    await take(context, [again(cron="0 9 * * 2", replaces=old.id)], "Done.")
    (new,) = await pending(context)
    assert (new.payload["spec"], [booked.id for booked in context.booked]) == (
        "TZ=America/Bogota 0 9 * * 2",
        [new.id],
    )


async def test_a_change_that_is_refused_leaves_the_old_one(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await fill(context, PENDING_LIMIT)
    (first, *_) = await pending(context)
    await take(context, [again(cron="61 9 * * 2", replaces=first.id)], "How often?")
    await take(context, [again(cron="0 9 * * 2", replaces=first.id)], "How often?")
    assert len(await pending(context)) == PENDING_LIMIT
    assert first in await pending(context), "it is none that recurs"


async def test_the_same_turn_taken_again_books_it_once(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [again(cron="0 9 * * 1")], "Done.")
    (old,) = await pending(context)
    call = again(cron="0 9 * * 2", replaces=old.id)
    await take(context, [call], "Done.")
    turn = await take(context, [call], "Done.")
    (new,) = await pending(context)
    assert (turn.results[0]["id"], turn.results[0]["replay"]) == (new.id, True)


async def test_another_turn_to_the_same_messages_finds_it_though_it_words_it_otherwise(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    await take(context, [again(cron="0 9 * * 1")], "Done.")
    (first,) = await pending(context)
    async with database.transaction() as connection:
        before = await booked_for_the_same(
            connection, "acme", context.voice.conversation, turn=context.turn, since=clock.at
        )
    assert [found.id for found in before] == [first.id]
    later = replace(context, booked=[], booked_before=list(before), doubted=set())
    turn = await take(
        later,
        [again("the report, send it", cron="0 9 * * 1")],
        [again("Send the report", cron="0 9 * * 1")],
        "I will remind you every Monday.",
    )
    assert "has booked already: 'send the report'" in told(turn)[0]
    assert [found.id for found in await pending(context)] == [first.id]


async def test_a_recurring_one_counts_once_among_what_may_be_pending(database: Database, clock: MovableClock) -> None:
    context = await a_turn_context(database, clock)
    await fill(context, PENDING_LIMIT - 1)
    await take(context, [again(cron="0 9 * * 1")], "Done.")
    turn = await take(context, [again(cron="0 9 * * 2")], "Which shall I cancel?")
    assert "20 follow-ups are pending" in told(turn)[0]
    assert len(await pending(context)) == PENDING_LIMIT


async def test_it_is_listed_with_how_often_and_when_it_ends_and_cancelled_like_any_other(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock, zone=MADRID)
    await take(context, [again(cron="0 9 * * 1", times=5)], "Done.")
    (task,) = await pending(context)
    elsewhere = replace(context, voice=replace(context.voice, zone=ZoneInfo("America/Bogota")))
    turn = await take(elsewhere, [ToolCallPart("list_followups", {})], "That is all.")
    assert turn.results == [
        [
            {
                "id": task.id,
                "about": "send the report",
                "local_time": "2026-11-30 09:00",
                "time_zone": "Europe/Madrid",
                "status": "booked",
                "recurring": True,
                "how_often": "0 9 * * 1",
                "until": None,
                "times_left": 5,
            }
        ]
    ]
    turn = await take(context, [ToolCallPart("cancel_followup", {"id": task.id})], "Gone.")
    assert turn.results == [{"cancelled": [task.id], "raced": [], "about": "send the report"}]
    assert await pending(context) == []


async def test_a_model_that_cannot_word_it_is_answered_for_with_what_stands(
    database: Database, clock: MovableClock
) -> None:
    context = await a_turn_context(database, clock)
    turn = await take(context, [again(cron="0 9 * * 1", times=5)], "")
    assert turn.reply == "Booked: send the report, every Monday, 5 more times. 2026-11-30 09:00 (America/Bogota)"


async def test_the_advice_is_for_the_last_time_that_is_told(database: Database, clock: MovableClock) -> None:
    def assess(due: datetime) -> tuple[bool, str]:
        return True, "Open this page once a week." if due > clock.at + timedelta(days=7) else ""

    context = replace(await a_turn_context(database, clock), assess=assess)
    turn = await take(context, [again(cron="0 9 * * 1")], "Done.")
    assert turn.results[0]["how"] == "Open this page once a week."


async def test_a_promise_may_name_what_recurs_and_one_that_booked_nothing_is_refused(
    database: Database, clock: MovableClock
) -> None:
    context: TurnContext = await a_turn_context(database, clock)
    lines = ("I will remind you every Monday at 9.", "I cannot do that.")
    turn = await take(context, *lines)
    assert (turn.reply, context.refused_promises) == ("I cannot do that.", 1)
    await take(context, [again(cron="0 9 * * 1")], "Done.")
    later = replace(context, booked=[], has_tried=False, refused_promises=0)
    turn = await take(later, "I will remind you of the report every Monday at 9.")
    assert (turn.reply, later.refused_promises) == ("I will remind you of the report every Monday at 9.", 0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("TZ=Europe/Madrid 0 9 * * 1", ("every Monday", "cada lunes", "toda segunda-feira")),
        (
            "TZ=Europe/Madrid 0 9 * * 1,7",
            ("every Monday and every Sunday", "cada lunes y cada domingo", "toda segunda-feira e todo domingo"),
        ),
        ("TZ=Europe/Madrid 30 8 * * *", ("every day", "cada día", "todos os dias")),
        ("TZ=Europe/Madrid 0 9 * * 1-5", ("every weekday", "de lunes a viernes", "de segunda a sexta")),
        ("TZ=Europe/Madrid 0 10 1 * *", ("on day 1 of every month", "el día 1 de cada mes", "no dia 1 de cada mês")),
        ("TZ=Europe/Madrid 0 10 1 5 *", ("every year on 5-1", "cada año el 1/5", "todo ano em 1/5")),
        ("TZ=Europe/Madrid */5 9-17 * * 1", ("*/5 9-17 * * 1",) * 3),
        ("TZ=Europe/Madrid 0 9 1 * 1", ("0 9 1 * 1",) * 3),
        ("TZ=Europe/Madrid 0 9 * * 2-4", ("0 9 * * 2-4",) * 3),
        ("TZ=Europe/Madrid @daily", ("@daily",) * 3),
        ("every 7200s", ("every 2 hours", "cada 2 horas", "a cada 2 horas")),
        ("every 604800s", ("every week", "cada semana", "toda semana")),
        ("every 90s", ("every 90 seconds", "cada 90 segundos", "a cada 90 segundos")),
        ("every 90.5s", ("every 90.5s",) * 3),
    ],
)
def test_how_often_is_said_in_words_where_there_are_any(spec: str, words: tuple[str, str, str]) -> None:
    assert tuple(in_words(how_often(spec), language) for language in ("en", "es", "pt")) == words


def test_when_it_ends_is_said_beside_it() -> None:
    every_day = {"spec": "TZ=Europe/Madrid 0 9 * * *"}
    assert rhythm(every_day | {"until": "2026-12-31"}, "es") == "cada día, hasta el 2026-12-31"
    assert rhythm(every_day | {"times": 5, "said": 2}, "en") == "every day, 3 more times"
    assert rhythm(every_day | {"times": 5, "said": 4}, "pt") == "todos os dias, mais uma vez"
