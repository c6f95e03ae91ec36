"""What a run of the agent is given, without the service around it."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from agent.context import TurnContext, Voice
from agent.section import AgentSection
from scheduler.clock import MovableClock
from store.database import Database
from store.messages import Message
from tests.support.factories import a_conversation, a_turn

SUNDAY = datetime(2026, 11, 29, 14, 0, tzinfo=UTC)
"""Nine in the morning in Bogota; also where a test's clock stands."""


def a_voice(**more: Any) -> Voice:
    """Return a voice that says only what matters to the test: Acme's, in Bogota, in English."""
    usual: dict[str, Any] = {
        "tenant": "acme",
        "business": "Acme",
        "section": AgentSection(),
        "conversation": 1,
        "channel": "web",
        "zone": ZoneInfo("America/Bogota"),
        "language": "en",
        "customer": None,
        "now": SUNDAY,
    }
    return Voice(**{**usual, **more})


async def _held(_: AsyncConnection) -> None:
    """The claim is never lost here."""


async def a_turn_context(database: Database, clock: MovableClock, address: str = "ana", **voice: Any) -> TurnContext:
    """Return a live turn in a conversation of its own."""
    async with database.transaction() as connection:
        conversation = await a_conversation(connection, address=address)
        turn = await a_turn(connection, clock, conversation)
    return TurnContext(
        voice=a_voice(conversation=conversation, now=clock.at, **voice),
        turn=turn.id,
        database=database,
        clock=clock,
        reply_to=None,
        asked=[Message(1, "customer", "message", "remind me to call Ana", clock.at)],
        hold=_held,
        assess=lambda due: (True, ""),
        on_booked=lambda: None,
    )


def said(*words: str, first: int = 1) -> list[Message]:
    """Return what was said in turns, the customer first."""
    return [
        Message(number, "assistant", "reply", text, SUNDAY)
        if (number - first) % 2
        else Message(number, "customer", "message", text, SUNDAY)
        for number, text in enumerate(words, first)
    ]
