"""Functions that send templates: to whoever has written before, once, and never one that is not approved."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.context import Context, NoChannel
from app.deferred import BadBooking, checked
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_templates import READY, SAYS, TELLS, WHOLE, an_office_with
from tests.app.test_whatsapp import CUSTOMER, Office
from tests.support.twilio_server import TwilioServer
from tests.support.wait import eventually

PAUSED = "HX" + "9" * 32
IS_PAUSED = {"sid": PAUSED, "language": "en", "variables": {"1": "about"}}
NUMBER = CUSTOMER.removeprefix("whatsapp:")


@pytest.fixture
async def twilio(clock: MovableClock) -> AsyncIterator[TwilioServer]:
    approvals = {READY: "approved", WHOLE: "approved", PAUSED: "rejected"}
    async with TwilioServer(now=lambda: clock.at, approvals=approvals) as twilio:
        yield twilio


async def fires(office: Office, clock: MovableClock, handler: Any) -> int:
    """Register a function, book it, let it fall due; return its task."""
    functions = office.house.run.functions
    functions.app.function("/remind")(handler)
    tenant = await office.house.service.tenant("acme")
    assert tenant is not None
    booked = await functions.book(tenant, checked("/remind", {}, in_="1d"))
    await office.goes_by(timedelta(days=2))
    return booked.id


async def test_a_function_sends_a_template_to_a_customer_who_has_written_once_though_it_runs_twice(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    runs: list[Context] = []

    async def remind(given: Any, ctx: Context) -> Any:
        runs.append(ctx)
        templates = ctx.templates.for_("whatsapp")
        if not await templates.has(READY) or await templates.has(PAUSED) or await templates.has("HX" + "0" * 32):
            return {"skipped": "template"}
        params = ["María", "https://shop.example/recover"]
        await ctx.send_template(template=READY, to=NUMBER, params=params, channel="whatsapp")
        if len(runs) == 1:
            raise OSError("cut off after it was sent")
        return {"delivered": True}

    async with an_office_with(database, tmp_path, clock, twilio, TELLS, IS_PAUSED, lines=("Hello.",)) as office:
        conversation = await office.hears("hello")
        task = await fires(office, clock, remind)
        await eventually(lambda: len(twilio.messages) == 2)
        await office.goes_by(timedelta(hours=1))
        assert (await office.house.until_state(task, "fired")).outcome == 'done: {"delivered": true}'
        assert len(runs) == 2
        assert len(twilio.messages) == 2, "the answer, and the template once"
        assert (twilio.messages[-1].to, twilio.messages[-1].content_sid) == (CUSTOMER, READY)
        assert twilio.messages[-1].variables == {"1": "María", "2": "https://shop.example/recover"}
        assert "María" in (await office.house.heard(conversation))[-1], "it stands in the conversation"


async def test_a_template_that_is_refused_by_meta_fails_with_the_reason_and_is_not_sent(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    async def remind(given: Any, ctx: Context) -> None:
        await ctx.send_template(template=PAUSED, to=CUSTOMER, params=["Ana"], channel="whatsapp")

    async with an_office_with(database, tmp_path, clock, twilio, IS_PAUSED, lines=("Hello.",)) as office:
        await office.hears("hello")
        await fires(office, clock, remind)

        async def has_failed() -> bool:
            notices = await office.house.tasks(kind="notice")
            return [(one.state, "rejected at Meta" in (one.error or "")) for one in notices] == [("failed", True)]

        await eventually(has_failed)
        assert len(twilio.messages) == 1


async def test_who_has_not_written_is_not_written_to_and_what_is_not_the_tenant_s_is_not_sent(
    database: Database, tmp_path: Path, clock: MovableClock, twilio: TwilioServer
) -> None:
    problems: list[Exception] = []

    async def remind(given: Any, ctx: Context) -> None:
        each: tuple[dict[str, Any], ...] = (
            {"template": WHOLE, "to": "+573009999999", "channel": "whatsapp", "params": ["Ana"]},
            {"template": READY, "to": NUMBER, "channel": "whatsapp", "params": ["Ana"]},
            {"template": WHOLE, "to": NUMBER, "channel": "whatsapp", "params": [""]},
            {"template": WHOLE, "to": NUMBER, "channel": "telegram", "params": ["Ana"]},
            {"template": WHOLE, "to": NUMBER, "params": ["Ana"]},
        )
        for how in each:
            try:
                await ctx.send_template(**how)
            except Exception as problem:
                problems.append(problem)

    async with an_office_with(database, tmp_path, clock, twilio, SAYS, lines=("Hello.",)) as office:
        await office.hears("hello")
        task = await fires(office, clock, remind)
        await office.house.until_state(task, "fired")
        assert [type(problem) for problem in problems] == [LookupError, BadBooking, BadBooking, BadBooking, NoChannel]
        assert "put the channel into the payload" in str(problems[-1])
        assert len(twilio.messages) == 1
