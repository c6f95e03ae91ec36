"""`POST /v1/followups`: books into a conversation that there is what its assistant will come back with."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from app.addresses import NoAddress, keys, read_address
from app.api.access import Caller, read_as
from app.api.functions import IDEMPOTENCY_KEY, booked_answer, check_headers, said
from app.deferred import KEY, BadBooking, check_time, checked
from app.guards import check
from app.guards_section import AnyGuard, Guards
from app.runs import Functions
from app.tenants_file import TenantConfig
from scheduler.book import Booked, Booking, book
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
    to: Annotated[dict[Literal["web", "telegram", "whatsapp"], str], Field(min_length=1, max_length=1)] | None = None
    """Or whom to write to: an address by its channel; the conversation in which they wrote last is meant."""
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
    check_headers(caller.request, [IDEMPOTENCY_KEY])
    body = await read_as(caller.request, FollowupBody)
    key = said(caller.request, IDEMPOTENCY_KEY)
    return booked_answer(await book_into(caller.functions, caller.tenant, **dict(body), idempotency_key=key))


async def _held_with(connection: AsyncConnection, tenant: str, to: Mapping[str, str]) -> int | None:
    """Return the conversation in which somebody wrote last, who is named by an address. Raises BadBooking."""
    ((channel, written),) = to.items()
    try:
        return await conversations.latest(connection, tenant, channel, keys(channel, read_address(channel, written)))
    except NoAddress as problem:
        raise BadBooking(f"to.{channel}: {problem}") from None


async def book_into(
    functions: Functions,
    config: TenantConfig,
    *,
    conversation: int | None,
    to: Mapping[str, str] | None = None,
    about: str,
    in_: str | float | None = None,
    at: str | None = None,
    is_work: bool = False,
    language: str | None = None,
    key: str | None = None,
    subject: str | None = None,
    guards: Sequence[AnyGuard] = (),
    idempotency_key: str | None = None,
) -> Booked:
    """Book a follow-up into a conversation of a tenant's. Raises BadBooking, LimitReached, KeyReused."""
    asked = checked("/", None, in_=in_, at=at, key=key, subject=subject, idempotency_key=idempotency_key)
    if (conversation is None) == (to is None):
        raise BadBooking(
            "conversation: a follow-up comes back to the conversation that it is booked into; give its number, or as to whom"
            " it is held with, and not both"
        )
    await check(functions.service, guards, config)
    service, tenant = functions.service, config.tenant
    async with service.database.transaction() as connection:
        number = conversation or await _held_with(connection, tenant, to or {})
        found = None
        if number is not None:
            await conversations.lock(
                connection, tenant, number
            )  # of two who book at once the second counts the first's
            found = await conversations.find(connection, tenant, number)
        if found is None or getattr(config.channels, found.channel) is None:
            raise BadBooking(
                f"conversation: the tenant has none {'with them' if to else f'numbered {conversation}'}, or not its channel any"
                " more: there is nowhere to come back to"
            )
        booking = Booking(
            tenant,
            "followup",
            asked.due,
            found.id,
            found.channel,
            payload={
                "about": about,
                "language": language or config.languages[0],
                "when": at or str(in_),
                "is_work": is_work,
                **({"guards": [guard.model_dump() for guard in guards]} if guards else {}),
            },
            key=asked.key,
            subject=asked.subject,
            idempotency_key=None if asked.idempotency_key is None else KEY + asked.idempotency_key,
        )
        booked = await book(connection, service.clock, booking)
        if not booked.replay:
            check_time(asked.due, await service.clock.now(connection), config.limits.lead)
        if not booked.replay and len(await pending_followups(connection, tenant, found.id)) > MOST_PENDING:
            raise LimitReached(f"{MOST_PENDING} follow-ups are pending in this conversation, the most there may be")
    service.signals.hint(DUE)
    return booked
