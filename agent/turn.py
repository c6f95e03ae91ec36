"""A live turn: the customer wrote, the agent answers, and books what does not fit into the answer."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset

from agent.context import PROMPT, TurnContext
from agent.draft import Draft
from agent.errors import NothingToSay
from agent.phrases import phrase
from agent.promises import names, promises_to_return
from agent.prompt import TURN_RULES, history, instructions, last_words, matters_frame
from agent.rhythm import rhythm, zone_for
from agent.run import RETRIES, run
from agent.speech import LONGEST, clean, repeats_instructions
from agent.tools.ask_a_person import ask_a_person
from agent.tools.cancel_followup import cancel_followup
from agent.tools.list_followups import list_followups
from agent.tools.mark_renewal import mark_renewal, where_there_are_matters
from agent.tools.schedule_followup import local_time, schedule_followup
from agent.tools.schedule_recurring import schedule_recurring
from scheduler.find import get, pending_followups
from store.messages import Message

log = logging.getLogger(__name__)

BOOKING = (schedule_followup, schedule_recurring)
ABOUT_SHOWN = 100
"""How many characters of what is pending the model is shown, when it is asked which it means."""


def answering_agent() -> Agent[TurnContext, str]:
    """Make the agent that answers: it may book, list and cancel, and it is held to what it promises."""
    agent = Agent(
        deps_type=TurnContext,
        output_type=str,
        name="turn",
        retries={"tools": RETRIES, "output": RETRIES},
        # One after the other and in the order of the calls, so that limits hold and "cancel, then list" means that.
        tools=[
            *(Tool(tool, sequential=True) for tool in (*BOOKING, list_followups, cancel_followup, ask_a_person)),
            Tool[TurnContext](mark_renewal, sequential=True, prepare=where_there_are_matters),
        ],
    )

    @agent.output_validator
    async def check(ctx: RunContext[TurnContext], text: str) -> str:
        ctx.deps.has_tried |= _has_called_to_book(ctx.messages)
        return await _sayable(ctx.deps, text)

    return agent


_BOOKING_NAMES = frozenset(tool.__name__ for tool in BOOKING)


def _has_called_to_book(messages: Sequence[ModelMessage]) -> bool:
    """Tell whether a run has called a tool that books: a call with arguments that are none never reaches the tool."""
    parts = (part for message in messages for part in message.parts)
    return any(isinstance(part, ToolCallPart) and part.tool_name in _BOOKING_NAMES for part in parts)


async def _sayable(context: TurnContext, text: str) -> str:
    """Return what may be said of a reply; raises ModelRetry to ask the model again."""
    if len(text) > LONGEST:
        raise ModelRetry(f"The answer is longer than {LONGEST} characters. Write a much shorter one.")
    said = clean(text)
    if not said:
        raise ModelRetry("The answer was empty. Write the answer for the customer.")
    if repeats_instructions(said, TURN_RULES, context.voice.section.instructions):
        raise ModelRetry(
            "The answer repeated your instructions, which the customer must not see. Answer the customer only."
        )
    if promises_to_return(said) and not (context.booked or context.booked_before):
        await _must_be_named(context, said)
    return said


async def _must_be_named(context: TurnContext, said: str) -> None:
    """Raise ModelRetry unless a promise names something pending from before; beside a refused booking none does."""
    voice = context.voice
    async with context.database.autocommit() as connection:
        pending = await pending_followups(connection, voice.tenant, voice.conversation)
    shown = [] if context.has_tried else [(str(one.payload.get("about", "")), one.booked_for) for one in pending]
    now = voice.now.astimezone(voice.zone)
    if any(names(said, about, at.astimezone(voice.zone), now) for about, at in shown):
        return
    context.refused_promises += 1
    log.info("a reply of tenant %s promised to come back without a booking; it is asked again", voice.tenant)
    listed = "; ".join(f"{about[:ABOUT_SHOWN]} at {local_time(at, voice)[0]}" for about, at in shown)
    raise ModelRetry(
        "You promised to come back, but this answer has booked nothing."
        + (f" Pending from before: {listed}. If you mean one of these, name it and its time." if listed else "")
        + " Either book it with schedule_followup or schedule_recurring now, or answer without promising anything for later."
    )


async def answer(
    agent: Agent[TurnContext, str],
    model: Model[Any],
    context: TurnContext,
    messages: Sequence[Message],
    *,
    unanswered: Sequence[Message],
    has_left_out: bool = False,
    show: Callable[[str], None] | None = None,
    toolsets: Sequence[AbstractToolset[Any]] = (),
) -> str:
    """Return the reply to the customer's unanswered messages, given the messages before and between them.

    `has_left_out` says that there were more of them, before these, than one answer can be to. With `show` the model's answer
    is streamed, and `show` is given as much of it as may be seen so far, as in `Draft`. `toolsets` are the tenant's own tools.
    Raises HandedOver when a person is to answer; ModelUnavailable or NothingToSay, when it is worth trying again. A model that keeps promising without booking
    is answered for: the customer is told that nothing is booked.
    """
    voice = context.voice
    told = instructions(voice, TURN_RULES)
    if unanswered[-1].at - unanswered[0].at > PROMPT:
        told += (
            "\nThe customer's messages came at different times, each given above it. Book what one of them asks for in some"
            " time with at, counted from that message's time."
        )
    if has_left_out:
        told += "\nThe customer wrote even more before these messages, which is left out: say that you did not read it."
    if context.matters:
        told += matters_frame(voice, context.matters)
    if context.booked_before:
        done = "; ".join(
            f"{found.payload.get('about')} at {local_time(found.booked_for, voice)[0]}"
            for found in context.booked_before
        )
        told += (
            f"\nIn answering this very message you have already booked: {done}."
            " Call the same tool with the same words to get the details; do not book it a second time. What is not among"
            " it is still to be booked."
        )
    try:
        return await run(
            agent,
            model,
            last_words(voice, unanswered),
            context=context,
            instructions=told,
            history=history(messages),
            seconds=voice.section.answer_timeout,
            on_text=Draft(context, show).grow if show else None,
            toolsets=toolsets,
        )
    except NothingToSay:
        if not (context.booked or context.booked_before or context.has_tried or context.refused_promises):
            raise
        log.warning("the model of tenant %s could not word its answer; the customer is told what stands", voice.tenant)
        return await what_stands(context) or phrase("not_booked", voice.language)


async def what_stands(context: TurnContext) -> str:
    """Say in plain words what is booked, when the model cannot; an empty text when nothing is."""
    voice = context.voice
    ids = {booked.id for booked in context.booked} | {found.id for found in context.booked_before}
    async with context.database.autocommit() as connection:
        stands = [await get(connection, voice.tenant, id) for id in sorted(ids)]
    lines = []
    for found in filter(None, stands):
        at, zone = local_time(found.booked_for, voice, zone_for(found, voice.zone))
        about = str(found.payload.get("about", ""))
        if found.kind == "schedule":
            about += f", {rhythm(found.payload, voice.language)}"
        lines.append(phrase("booked", voice.language, about=about, local_time=at, time_zone=zone))
    return "\n".join(lines)
