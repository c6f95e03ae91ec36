"""What a customer may see of an answer while it is being written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.context import TurnContext
from agent.draft import Draft
from agent.prompt import TURN_RULES
from agent.turn import answer, answering_agent
from scheduler.clock import MovableClock
from store.database import Database
from tests.support.model import Line, Script, books
from tests.support.runs import a_turn_context, said

SAID = "Good morning, Ana. The office opens at nine.\nBring your *policy* with you. "


async def seen(database: Database, clock: MovableClock, *texts: str) -> list[str]:
    """Return what is shown of these texts, each written character by character."""
    shown = list[str]()
    draft = Draft(await a_turn_context(database, clock), shown.append)
    for text in texts:
        for end in range(1, len(text) + 1):
            draft.grow(text[:end])
    return shown


async def answered_in_pieces(context: TurnContext, show: Callable[[str], None], *lines: Line) -> str:
    """Return the answer of a model that says these lines, each word by word."""
    model = Script(*lines).model
    return await answer(answering_agent(), model, context, [], unanswered=said("remind me to call Ana"), show=show)


async def test_it_grows_by_whole_sentences_and_lines(database: Database, clock: MovableClock) -> None:
    assert await seen(database, clock, SAID) == [
        "Good morning, Ana.",
        "Good morning, Ana. The office opens at nine.",
        "Good morning, Ana. The office opens at nine.\nBring your *policy* with you.",
    ]


async def test_nothing_is_shown_from_a_promise_on_that_no_booking_keeps(
    database: Database, clock: MovableClock
) -> None:
    promise = "Good morning. I will remind you tomorrow at nine. Anything else? No. "
    assert await seen(database, clock, promise) == ["Good morning."]


async def test_what_is_booked_may_be_promised(database: Database, clock: MovableClock) -> None:
    shown = list[str]()
    context = await a_turn_context(database, clock)
    await answered_in_pieces(context, shown.append, books(), "Booked. I will remind you at ten.")
    assert shown == ["Booked.", "Booked. I will remind you at ten."]


async def test_an_answer_that_is_asked_for_again_begins_anew(database: Database, clock: MovableClock) -> None:
    shown = list[str]()
    context = await a_turn_context(database, clock)
    reply = await answered_in_pieces(
        context, shown.append, "Sure. I will remind you tomorrow. ", "Nothing is booked. Shall I book it?"
    )
    assert shown == ["Sure.", "Nothing is booked.", "Nothing is booked. Shall I book it?"]
    assert reply == "Nothing is booked. Shall I book it?"


@pytest.mark.parametrize(
    "text",
    [
        "<think>She is angry. Be careful. </think>",
        "<think>She is angry. Be careful. ",
        " ".join(TURN_RULES.split()).split(". ", 3)[3] + " ",
        "<tool_call>schedule_followup. Now. ",
        "x" * 16_000 + ". ",
    ],
)
async def test_what_may_not_be_said_is_not_shown_either(database: Database, clock: MovableClock, text: str) -> None:
    assert await seen(database, clock, text) == []


async def test_the_tenants_instructions_are_not_shown(database: Database, clock: MovableClock) -> None:
    secret = " ".join(f"word{number}" for number in range(40))
    context = await a_turn_context(database, clock)
    section = context.voice.section.model_copy(update={"instructions": secret})
    shown = list[str]()
    Draft(replace(context, voice=replace(context.voice, section=section)), shown.append).grow(f"{secret}. And so on.")
    assert shown == []


async def test_the_longer_an_answer_grows_the_more_of_it_comes_at_a_time(
    database: Database, clock: MovableClock
) -> None:
    sentence = "The office opens at nine. "
    shown = list[str]()
    draft = Draft(await a_turn_context(database, clock), shown.append)
    for count in range(1, 401):
        draft.grow(sentence * count)
    assert len(shown) < 60, "each is checked from its beginning, while others wait"
    assert len(shown[-1]) > 0.9 * 400 * len(sentence)
