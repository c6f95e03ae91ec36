"""`list_followups`: what is still to come in this conversation."""

from typing import Any

from pydantic_ai import RunContext

from agent.context import TurnContext
from agent.rhythm import how_often, times_left, zone_for
from agent.tools.schedule_followup import local_time
from scheduler.find import Found, each_once, pending_followups


async def list_followups(ctx: RunContext[TurnContext]) -> list[dict[str, Any]]:
    """List what is booked in this conversation and has not come yet, with local times; of what recurs the next one."""
    voice = ctx.deps.voice
    async with ctx.deps.database.autocommit() as connection:
        pending = each_once(await pending_followups(connection, voice.tenant, voice.conversation))
    return [
        {
            "id": found.id,
            "about": str(found.payload.get("about", "")),
            "local_time": local_time(found.booked_for, voice, zone_for(found, voice.zone))[0],
            "time_zone": zone_for(found, voice.zone).key,
            "status": "being done now"
            if found.state == "firing"
            else f"waiting: {found.hold}"
            if found.hold
            else "booked",
            "recurring": found.kind == "schedule",
            **(_recurs(found) if found.kind == "schedule" else {}),
        }
        for found in pending
    ]


def _recurs(found: Found) -> dict[str, Any]:
    return {
        "how_often": how_often(str(found.payload["spec"])),
        "until": found.payload.get("until"),
        "times_left": times_left(found.payload),
    }
