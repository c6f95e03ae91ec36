"""`cancel_followup`: takes back one thing that was booked in this conversation."""

from typing import Any

from pydantic_ai import ModelRetry, RunContext

from agent.context import TurnContext
from scheduler import cancel, operate
from scheduler.find import pending_followups, whole


async def cancel_followup(ctx: RunContext[TurnContext], id: int) -> dict[str, Any]:
    """Cancel something booked in this conversation; what recurs comes no more.

    Args:
        id: Its id, as list_followups gives it.
    """
    context, voice = ctx.deps, ctx.deps.voice
    async with context.database.transaction() as connection:
        pending = await pending_followups(connection, voice.tenant, voice.conversation)
        about = next((str(found.payload.get("about", "")) for found in pending if found.id == id), None)
        if about is None:
            raise ModelRetry(
                f"nothing with the id {id} is pending in this conversation: look it up with list_followups"
            )
        ids = await whole(connection, voice.tenant, voice.conversation, id)
        await operate.lock(connection, voice.tenant, context.turn, *ids)
        await context.hold(connection)
        done = await cancel.cancel_followup(
            connection, context.clock, voice.tenant, voice.conversation, id, by="the customer"
        )
    # What this turn booked and took back again keeps no promise.
    context.booked[:] = [booked for booked in context.booked if booked.id not in done.cancelled]
    return {"cancelled": list(done.cancelled), "raced": list(done.raced), "about": about}
