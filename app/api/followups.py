"""`POST /v1/followups`: books into a conversation that there is what its assistant will come back with."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access import Caller, read_as
from app.api.functions import IDEMPOTENCY_KEY, booked_answer, said
from app.deferred import KEY, BadBooking, check_time, checked
from app.guards import Guards
from scheduler.book import Booking, book
from scheduler.errors import LimitReached
from scheduler.find import pending_followups
from scheduler.poller import DUE
from store import conversations

MOST_PENDING = 20
"""Follow-ups pending in one conversation."""


class FollowupBody(BaseModel):
    """What is to be said, to whom, when."""

    model_config = ConfigDict(extra="forbid", strict=True)
    conversation: Annotated[int, Field(gt=0, lt=2**63)] | None = None
    about: Annotated[str, Field(min_length=1, max_length=500)]
    in_: Annotated[str | float | None, Field(alias="in")] = None
    at: str | None = None
    is_work: bool = False
    """Whether there is something to find out first, rather than to remind of."""
    language: Literal["en", "es", "pt"] | None = None
    key: str | None = None
    subject: str | None = None
    guards: Guards = []


async def book_followup(caller: Caller) -> Response:
    """Book one follow-up."""
    body = await read_as(caller.request, FollowupBody)
    asked = checked(
        "/",
        None,
        in_=body.in_,
        at=body.at,
        key=body.key,
        subject=body.subject,
        idempotency_key=said(caller.request, IDEMPOTENCY_KEY),
    )
    if body.conversation is None:
        raise BadBooking("conversation: a follow-up comes back to the conversation that it is booked into; name one")
    service, tenant = caller.functions.service, caller.tenant.tenant
    async with service.database.transaction() as connection:
        found = await conversations.find(connection, tenant, body.conversation)
        if found is None or getattr(caller.tenant.channels, found.channel) is None:
            raise BadBooking(
                f"conversation: the tenant has none numbered {body.conversation}, or not its channel any more: there is nowhere to come back to"
            )
        booking = Booking(
            tenant,
            "followup",
            asked.due,
            found.id,
            found.channel,
            payload={
                "about": body.about,
                "language": body.language or caller.tenant.languages[0],
                "when": body.at or str(body.in_),
                "is_work": body.is_work,
                **({"guards": [guard.model_dump() for guard in body.guards]} if body.guards else {}),
            },
            key=asked.key,
            subject=asked.subject,
            idempotency_key=None if asked.idempotency_key is None else KEY + asked.idempotency_key,
        )
        booked = await book(connection, service.clock, booking)
        if not booked.replay:
            check_time(asked.due, await service.clock.now(connection), caller.tenant.limits.lead)
        if not booked.replay and len(await pending_followups(connection, tenant, found.id)) > MOST_PENDING:
            raise LimitReached(f"{MOST_PENDING} follow-ups are pending in this conversation, the most there may be")
    service.signals.hint(DUE)
    return booked_answer(booked)
