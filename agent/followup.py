"""A follow-up's run: what was booked is due, and the agent writes the message that the customer gets.

It has the tenant's tools and no booking tools: a run that nobody watches cannot make more of its kind.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset

from agent.context import Voice
from agent.errors import NothingToSay
from agent.phrases import phrase
from agent.promises import promises_to_return
from agent.prompt import FOLLOWUP_RULES, NOTICE_RULES, followup_frame, history, instructions, notice_frame
from agent.run import RETRIES, run
from agent.speech import LONGEST, clean, repeats_instructions
from store.messages import Message

log = logging.getLogger(__name__)

REMINDER_SECONDS = 30.0
"""How long one attempt at wording a reminder may take: what is to be said is known, and it is due now."""


def returning_agent() -> Agent[Voice, str]:
    """Make the agent that comes back."""
    agent = Agent(deps_type=Voice, output_type=str, name="followup", retries={"tools": RETRIES, "output": RETRIES})

    @agent.output_validator
    def check(ctx: RunContext[Voice], text: str) -> str:
        if len(text) > LONGEST:
            raise ModelRetry(f"The message is longer than {LONGEST} characters. Write a much shorter one.")
        said = clean(text)
        if not said:
            raise ModelRetry("The message was empty. Write the message for the customer.")
        if any(
            repeats_instructions(said, rules, ctx.deps.section.instructions) for rules in (FOLLOWUP_RULES, NOTICE_RULES)
        ):
            raise ModelRetry("The message repeated your instructions, which the customer must not see.")
        if promises_to_return(said, bookings_count=False):
            raise ModelRetry(
                "You cannot book anything in this run: write the message without promising anything for later."
            )
        return said

    return agent


async def write(
    agent: Agent[Voice, str],
    model: Model[Any],
    voice: Voice,
    messages: Sequence[Message],
    *,
    about: str,
    is_work: bool,
    booked_at: datetime,
    facts: Mapping[str, str] | None = None,
    on_usage: Callable[[int], None] | None = None,
    toolsets: Sequence[AbstractToolset[Any]] = (),
) -> str:
    """Return the message, in the language the follow-up was booked in; `toolsets` are the tenant's own tools, for work.

    With `facts` it is a notice: the business writes by itself, about something of the customer's of which it knows these.
    When the model only writes what cannot be said, the booked words go out instead of nothing. Raises ModelUnavailable
    when it did not answer.
    """
    try:
        return await run(
            agent,
            model,
            followup_frame(voice, about, is_work=is_work, booked_at=booked_at)
            if facts is None
            else notice_frame(voice, about, facts),
            context=voice,
            instructions=instructions(voice, FOLLOWUP_RULES if facts is None else NOTICE_RULES),
            history=history(messages),
            seconds=voice.section.work_timeout if is_work else min(voice.section.answer_timeout, REMINDER_SECONDS),
            on_usage=on_usage,
            toolsets=toolsets if is_work else (),
        )
    except NothingToSay as problem:
        log.warning("a follow-up of tenant %s could not be worded: %s", voice.tenant, type(problem.__cause__).__name__)
        return stored_words(voice.language, about, is_work=is_work)


def stored_words(language: str, about: str, *, is_work: bool) -> str:
    """Return what is said when no model can: the reminder as booked, or that the work could not be finished."""
    return phrase("work_failed" if is_work else "reminder", language, about=about)
