"""`list_followups`: what is still to come in this conversation."""

from typing import Any

from pydantic_ai import RunContext

from agent.context import TurnContext
from agent.tools.schedule_followup import local_time
from scheduler.find import pending_followups


async def list_followups(ctx: RunContext[TurnContext]) -> list[dict[str, Any]]:
    """List what is booked in this conversation and has not come yet, with local times."""
    voice = ctx.deps.voice
    async with ctx.deps.database.autocommit() as connection:
        pending = await pending_followups(connection, voice.tenant, voice.conversation)
    return [
        {
            "id": found.id,
            "about": str(found.payload.get("about", "")),
            "local_time": local_time(found.booked_for, voice)[0],
            "time_zone": voice.zone.key,
            "status": "being done now"
            if found.state == "firing"
            else f"waiting: {found.hold}"
            if found.hold
            else "booked",
            "recurring": False,
        }
        for found in pending
    ]
