"""`mark_renewal`: notes what the customer says of something of theirs that is due, of which the business has written."""

from datetime import date
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.tools import ToolDefinition

from agent.context import Mark, TurnContext


async def mark_renewal(
    ctx: RunContext[TurnContext], number: int, what: Mark, on: str | None = None, why: str | None = None
) -> dict[str, Any]:
    """Note what the customer says of a matter of theirs that the business has written about.

    Args:
        number: The matter's number.
        what: "renewed" once they have renewed it, "not interested" when they want it no more, "call me" when they want a person
            to call, "ask again" when they want to be asked on another day.
        on: With "ask again": the day, such as "2027-02-01".
        why: What they said, in a few words.
    """
    context = ctx.deps
    if number not in [matter.number for matter in context.matters]:
        known = ", ".join(str(matter.number) for matter in context.matters)
        raise ModelRetry(f"there is no matter {number}: there are {known}")
    day = None
    if what == "ask again":
        try:
            day = date.fromisoformat(on or "")
        except ValueError:
            raise ModelRetry('give the day on which to ask again as on, such as "2027-02-01"') from None
    context.has_called = True
    try:
        return {"done": await context.mark(number, what, day, why)}
    except (LookupError, ValueError) as problem:
        raise ModelRetry(str(problem)) from problem


async def where_there_are_matters(ctx: RunContext[TurnContext], tool: ToolDefinition) -> ToolDefinition | None:
    """Offer the tool only where there is something to mark."""
    return tool if ctx.deps.matters else None
