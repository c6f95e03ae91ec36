"""Deferred runs as they are specified, in the order of their document: each example, row and problem that no other file shows."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.context import CancelledRuns, Context
from app.deferred import BadBooking, PayloadTooLarge, TooMany, needs_of
from app.functions import App
from app.guard import Guard
from app.rehearsal import Rehearsal
from app.testing import MockContext
from app.wiring import apply_tenants
from scheduler.book import Booking, book_many
from scheduler.clock import MovableClock
from scheduler.errors import KeyReused
from store.database import Database
from tests.app import test_functions
from tests.app.test_functions import HOUR, Server, a_key, serving
from tests.app.test_templates import READY, TELLS, an_office_with
from tests.app.test_whatsapp import CUSTOMER
from tests.support.house import a_config
from tests.support.shell import Shell
from tests.support.twilio_server import TwilioServer
from tests.support.wait import eventually

DAY = timedelta(days=1)
TELEGRAM = {"token": "123456789:AAhunter2hunter2hunter2hunter2hunter"}


@dataclass
class Shop(test_functions.Shop):
    """A developer's application; a test says what its checks find."""

    found: dict[str, object] = field(default_factory=dict)
    """What a check says, or raises: yes unless it is here."""
    asked: list[str] = field(default_factory=list)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        super().__post_init__()

        @self.app.function("/note")
        async def note(given: Any, ctx: Context) -> Any:
            return {"fired": ctx.is_scheduled_fire, "at": str(ctx.scheduled_at), "given": given}

        @self.app.function("/remind-by-channel")
        async def remind_by_channel(given: Any, ctx: Context) -> Any:
            return (await ctx.schedule(in_="24h", path="/note", payload={**given, "channel": ctx.channel})).id

        @self.app.function("/book-for-event")
        async def book_for_event(given: dict[str, Any], ctx: Context) -> Any:
            booking = await ctx.schedule(in_="24h", path="/note", payload=given, idempotency_key="event-7")
            return booking.idempotent_replay

        @self.app.function("/checked")
        async def checked(given: dict[str, str], ctx: Context) -> Any:
            async def is_unpaid() -> object:
                return self.says("not paid yet")

            chain = ctx.guard.when("not paid yet", is_unpaid)
            chain.when("template approved", lambda: self.says("template approved"))
            return await chain.run(lambda: self.send(given))

        @self.app.function("/checked-late")
        async def checked_late(given: dict[str, str], ctx: Context) -> Any:
            async def is_active() -> object:
                self.begun.set()
                await self.may_go_on.wait()
                return self.says("still active")

            return await ctx.guard.when("still active", is_active).run(lambda: self.send(given))

    def says(self, check: str) -> object:
        self.asked.append(check)
        said = self.found.get(check, True)
        if isinstance(said, Exception):
            raise said
        return said

    def send(self, given: dict[str, str]) -> dict[str, bool]:
        self.sent.append(given["cart"])
        return {"delivered": True}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def vuelvo_app(shop: Shop) -> App:
    return shop.app


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock, shop: Shop) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock, shop) as server:
        yield server


def a_context(server: Server, path: str = "/note") -> Context:
    """What a function at a path books, finds and cancels by."""
    return Context("acme", path, "call:1", server.house.run.functions.booker(a_config()))


# Book from the handler


async def test_a_call_s_channel_travels_in_what_it_books_and_a_call_that_names_none_of_several_is_told_so(
    database: Database, tmp_path: Path, clock: MovableClock, shop: Shop
) -> None:
    two: dict[str, Any] = {"channels": {"web": {}, "telegram": TELEGRAM}}
    async with serving(database, tmp_path, clock, shop, config=two, public_url="https://vuelvo.example") as server:
        call = "/v1/functions/remind-by-channel"
        booked = (await server.call(call, {"user": "ana"}, vuelvo_channel="telegram")).json()
        assert (await server.get(f"/v1/tasks/{booked}"))["payload"] == {"user": "ana", "channel": "telegram"}
        for headers, words in (
            ({}, "send it in the header Vuelvo-Channel"),
            ({"vuelvo_channel": "whatsapp"}, "which has web, telegram"),
        ):
            refused = await server.call(call, {"user": "ana"}, **headers)
            assert (refused.status_code, words in refused.json()["detail"]) == (422, True)
        assert (await server.get("/v1/tasks"))["total"] == 1


# Parameters


async def test_a_run_is_booked_for_as_long_from_now_as_is_said_however_short(deferred: Rehearsal) -> None:
    ctx, now = deferred.context(), deferred.clock.at
    for said, span in (
        ("30m", timedelta(minutes=30)),
        ("24h", DAY),
        ("1h30m", timedelta(minutes=90)),
        ("3d", 3 * DAY),
        (90, timedelta(seconds=90)),
        (0.5, timedelta(seconds=0.5)),
        (timedelta(weeks=1), timedelta(weeks=1)),
        ("5s", timedelta(seconds=5)),
        ("1s", timedelta(seconds=1)),
        (0, timedelta()),
    ):
        assert (await ctx.schedule(in_=said, path="/note")).scheduled_at == now + span
    assert len(await deferred.fire_due(after=5)) == 4, "not even what is due at once is refused as past"


async def test_what_no_run_can_be_booked_with_is_refused_and_nothing_is_booked(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    usual: dict[str, Any] = {"in_": "1h", "path": "/note"}
    for wrong, words in (
        ({"in_": "30m1h"}, "from the largest to the smallest"),
        ({"path": "note"}, "begins with /"),
        ({"payload": "text"}, "an object or an array"),
        ({"payload": 7}, "an object or an array"),
        ({"key": ""}, "key is a text"),
        ({"subject": 42}, "subject is a text"),
        ({"idempotency_key": "e" * 497}, "idempotency_key is a text"),
    ):
        with pytest.raises(BadBooking, match=words):
            await ctx.schedule(**{**usual, **wrong})
    assert await deferred.tasks() == []


async def test_a_run_is_given_the_object_or_the_array_that_was_booked_or_an_empty_object(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    for given in ({"user": "42", "n": [1, None]}, [1, {"a": "ñ"}], None):
        await ctx.schedule(in_=1, path="/note", payload=given)
    runs = await deferred.fire_due(after=1)
    got = [run.result["given"] for run in sorted(runs, key=lambda run: run.id)]
    assert got == [{"user": "42", "n": [1, None]}, [1, {"a": "ñ"}], {}]


# Absolute time


async def test_an_instant_is_a_date_or_its_text_and_everything_else_is_as_for_a_delay(deferred: Rehearsal) -> None:
    ctx, christmas = deferred.context(), datetime(2026, 12, 24, 18, tzinfo=UTC)
    given: dict[str, Any] = {"path": "/note", "payload": {"user": "ana"}}
    for at in (christmas, "2026-12-24T18:00:00Z", "2026-12-24T13:00:00-05:00"):
        booked = await ctx.schedule_at(at=at, **given)
        assert (booked.scheduled_at, booked.idempotent_replay) == (christmas, False)
    labelled = await ctx.schedule_at(
        at=christmas, **given, key="k", subject="s", idempotency_key="e", pin_deployment=True
    )
    again = await ctx.schedule_at(at=christmas, **given, idempotency_key="e")
    assert (again.id, again.idempotent_replay) == (labelled.id, True)
    (found,) = (await ctx.find_deferred(key="k", subject="s")).data
    assert (found.id, found.payload) == (labelled.id, {"user": "ana"})
    with pytest.raises(KeyReused):
        await ctx.schedule_at(at=christmas, path="/note", payload={"user": "bob"}, idempotency_key="e")


async def test_an_instant_that_is_past_or_cannot_be_read_raises_with_what_is_wrong(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    for at, words in (
        (deferred.clock.at - timedelta(seconds=1), "which is past: it is now 2026-11-29T14:00:00Z"),
        (deferred.clock.at, "which is past"),
        ("2020-01-01T00:00:00Z", "which is past"),
        ("Christmas", "ISO 8601"),
        (datetime(2026, 12, 24, 18), "of no zone"),  # noqa: DTZ001 - that is what is wrong with it
    ):
        with pytest.raises(BadBooking, match=words):
            await ctx.schedule_at(at=at, path="/note")
    assert await deferred.tasks() == []


# Avoid duplicates


async def test_a_function_that_uses_its_key_for_another_payload_raises_and_its_caller_is_answered_409(
    server: Server,
) -> None:
    answers = [await server.call("/v1/functions/book-for-event", {"cart": cart}) for cart in ("c1", "c1", "c2")]
    assert [answer.status_code for answer in answers] == [200, 200, 409]
    assert [answer.json() for answer in answers[:2]] == [False, True]
    assert "used with another payload" in answers[2].json()["detail"]
    assert (await server.get("/v1/tasks"))["total"] == 1


# Book from an HTTP request


async def test_without_a_header_that_says_when_it_runs_now_and_a_misspelt_one_runs_and_books_nothing(
    server: Server,
) -> None:
    now = await server.call("/v1/functions/checked", {"cart": "c1"})
    assert (now.status_code, now.json(), server.shop.sent) == (200, {"delivered": True}, ["c1"])
    for misspelt in ("vuelvo_schedule", "vuelvo_schedule_every", "vuelvo_shedule_in", "vuelvo_idempotency_key"):
        for more in ({}, {"vuelvo_schedule_in": "1h"}):
            refused = await server.call("/v1/functions/checked", {"cart": "c2"}, **{misspelt: "1h"}, **more)
            assert refused.status_code == 422
            assert (
                f"'{misspelt.replace('_', '-')}' means nothing here: use vuelvo-schedule-in" in refused.json()["detail"]
            )
    assert server.shop.sent == ["c1"]
    assert (await server.get("/v1/tasks"))["total"] == 0


# Receive the fire


async def test_a_fire_is_told_from_a_call_by_its_context_and_has_the_payload_of_the_booking(server: Server) -> None:
    given = {"userId": "42", "message": "Your appointment is tomorrow"}
    called = await server.call("/v1/functions/note", given)
    assert called.json() == {"fired": False, "at": "None", "given": given}
    booked = (await server.call("/v1/functions/note", given, vuelvo_schedule_in="5m")).json()["id"]
    await server.fires(timedelta(minutes=5))
    await server.house.until_state(booked, "fired")
    told = (await server.get(f"/v1/tasks/{booked}"))["result"]
    assert told == {"fired": True, "at": "2026-11-29 14:05:00+00:00", "given": given}


# Check before acting


@pytest.mark.parametrize(
    ("found", "result", "asked"),
    [
        ({}, {"delivered": True}, ["not paid yet", "template approved"]),
        ({"not paid yet": False}, {"skipped": "not paid yet"}, ["not paid yet"]),
        ({"template approved": False}, {"skipped": "template approved"}, ["not paid yet", "template approved"]),
        ({"not paid yet": None, "template approved": False}, {"skipped": "not paid yet"}, ["not paid yet"]),
    ],
)
async def test_checks_are_made_in_order_up_to_the_first_that_says_no_and_what_is_sent_or_skipped_is_the_answer(
    server: Server, shop: Shop, found: dict[str, object], result: Any, asked: list[str]
) -> None:
    shop.found = found
    assert (await server.call("/v1/functions/checked", {"cart": "c1"})).json() == result
    assert (shop.asked, shop.sent) == (asked, ["c1"] if "delivered" in result else [])


async def test_a_check_that_raises_has_not_said_no_so_nothing_is_sent_or_skipped_and_it_is_asked_again(
    deferred: Rehearsal, shop: Shop
) -> None:
    shop.found = {"template approved": OSError("the registry is down")}
    await deferred.context().schedule(in_=1, path="/checked", payload={"cart": "c1"})
    assert await deferred.fire_due(after=1) == []
    (waits,) = await deferred.tasks()
    assert (waits.status, waits.result, shop.sent) == ("scheduled", None, [])
    assert "CheckFailed: the check 'template approved' raised OSError: the registry is down" in str(waits.error)
    shop.found = {}
    (done,) = await deferred.fire_due(after="10m")
    assert (done.id, done.attempt, shop.sent) == (waits.id, 2, ["c1"])


async def test_each_chain_is_a_fresh_one() -> None:
    ctx = MockContext()
    for said, result in ((False, {"skipped": "not paid yet"}), (True, "sent")):
        assert await ctx.guard.when("not paid yet", lambda said=said: said).run(lambda: "sent") == result
    assert await ctx.guard.run(lambda: "sent") == "sent", "a chain without checks stops nothing"


def test_a_check_without_a_name_of_its_own_or_that_cannot_be_called_is_refused() -> None:
    chain = Guard().when("not paid yet", lambda: True)
    for name, check, problem in (
        ("not paid yet", lambda: True, ValueError),
        ("", lambda: True, ValueError),
        ("n" * 201, lambda: True, ValueError),
        ("template approved", True, TypeError),
    ):
        with pytest.raises(problem):
            chain.when(name, check)  # type: ignore[arg-type]


async def test_a_cart_s_follow_up_goes_out_by_its_template_or_is_skipped_while_that_may_not_be_sent(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    paused = "HX" + "9" * 32
    approvals = {READY: "approved", paused: "rejected"}
    templates = (TELLS, {"sid": paused, "language": "es", "variables": {"1": "name", "2": "about"}})
    async with (
        TwilioServer(now=lambda: clock.at, approvals=approvals) as twilio,
        an_office_with(database, tmp_path, clock, twilio, *templates, lines=("Hello.",)) as office,
    ):
        functions = office.house.run.functions

        @functions.app.function("/send-followup")
        async def send_followup(given: dict[str, str], ctx: Context) -> Any:
            registry = ctx.templates.for_(given["channel"])
            params = ["María", f"https://shop.example/recover?c={given['cart']}"]

            async def send() -> dict[str, bool]:
                await ctx.send_template(
                    template=given["template"], to=CUSTOMER, params=params, channel=given["channel"]
                )
                return {"delivered": True}

            return await ctx.guard.when("template approved", lambda: registry.has(given["template"])).run(send)

        await office.hears("hello")
        tenant = await office.house.service.tenant("acme")
        assert tenant is not None
        ctx = Context("acme", "/abandoned-cart", "call:1", functions.booker(tenant), _channel="whatsapp")
        booked = [
            await ctx.schedule(
                in_="24h", path="/send-followup", payload={"cart": "c1", "template": template, "channel": ctx.channel}
            )
            for template in (paused, READY)
        ]
        await office.goes_by(DAY)
        ended = [await office.house.until_state(one.id, "fired") for one in booked]
        assert [one.outcome for one in ended] == ["skipped: template approved", 'done: {"delivered": true}']
        await eventually(lambda: len(twilio.messages) == 2)
        assert twilio.messages[-1].content_sid == READY
        assert twilio.messages[-1].variables == {"1": "María", "2": "https://shop.example/recover?c=c1"}


# Look up what is booked


async def test_what_is_booked_is_found_by_where_it_stands_whichever_function_looks(server: Server, shop: Shop) -> None:
    ctx = a_context(server, "/my-reminders")
    each: dict[str, Any] = {"key": "k", "subject": "user_42"}
    ids = {
        "scheduled": (await ctx.schedule(in_="2h", path="/note", **each)).id,
        "firing": (await ctx.schedule(in_="1h", path="/checked-late", payload={"cart": "c1"}, **each)).id,
        "fired": (await ctx.schedule(in_="1h", path="/note", **each)).id,
        "failed": (await ctx.schedule(in_="1h", path="/stop", **each)).id,
    }
    ids["cancelled"] = (await ctx.schedule(in_="1h", path="/note", key="mine", subject="user_42")).id
    await ctx.schedule(in_="1d", path="/note", key="k2", subject="user_43")
    assert (await ctx.cancel_deferred(key="mine")).cancelled == [ids["cancelled"]]
    await server.fires(HOUR)
    for state, task in ids.items():
        await server.house.until_state(task, state)
    for status in (*ids, "active"):
        wanted = [ids["firing"], ids["scheduled"]] if status == "active" else [ids[status]]
        how: dict[str, Any] = {} if status == "active" else {"status": status}
        found = await ctx.find_deferred(subject="user_42", **how)
        assert ([run.id for run in found.data], found.total) == (wanted, len(wanted)), status
        over_http = await server.get(f"/v1/tasks?subject=user_42&status={status}")
        assert ([one["id"] for one in over_http["data"]], over_http["total"]) == (wanted, len(wanted))
    (row,) = (await ctx.find_deferred(key="k", status="scheduled")).data
    assert (row.scheduled_at, row.key, row.function) == (server.clock.at + HOUR, "k", "/note")
    assert [run.id for run in (await ctx.find_deferred(key="k", function="/note")).data] == [ids["scheduled"]]
    shop.may_go_on.set()


async def test_twenty_are_on_a_page_unless_another_number_up_to_a_hundred_is_asked_for(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    booked = [(await ctx.schedule(in_=n, path="/note")).id for n in range(1, 24)]
    pages: list[tuple[dict[str, Any], list[int]]] = [
        ({}, booked[:20]),
        ({"page": 2}, booked[20:]),
        ({"page": 3}, []),
        ({"per_page": 5, "page": 2}, booked[5:10]),
        ({"per_page": 100}, booked),
    ]
    for how, expected in pages:
        found = await ctx.find_deferred(**how)
        assert ([run.id for run in found.data], found.total) == (expected, 23)
    refused: list[dict[str, Any]] = [{"per_page": 101}, {"per_page": 0}, {"page": 0}, {"status": "pending"}]
    for wrong in refused:
        with pytest.raises(BadBooking):
            await ctx.find_deferred(**wrong)


# Cancel


async def test_of_a_customer_who_opts_out_what_is_pending_is_cancelled_and_what_is_firing_is_left_to_its_check(
    server: Server, shop: Shop
) -> None:
    ctx = a_context(server, "/opt-out")
    how: dict[str, Any] = {"path": "/checked-late", "payload": {"cart": "c1"}, "subject": "user_42"}
    firing, pending = [(await ctx.schedule(in_=wait, **how)).id for wait in ("1h", "2h")]
    await server.fires(HOUR)
    await shop.begun.wait()
    shop.found = {"still active": False}
    done = await ctx.cancel_deferred(subject="user_42")
    assert (done.cancelled, done.raced) == ([pending], [firing])
    shop.may_go_on.set()
    assert (await server.house.until_state(firing, "fired")).outcome == "skipped: still active"
    await server.fires(2 * HOUR)
    assert (await server.house.until_state(pending, "cancelled")).attempt == 0
    assert shop.asked == ["still active"]
    assert shop.sent == []


async def test_a_cancel_takes_exactly_one_label_and_what_is_counted_first_is_what_goes(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    keys = ("summer-promo:1", "summer-promo:2", "summer-promo", "summer-%", "winter-promo:1")
    booked = [(await ctx.schedule(in_="1h", path="/note", key=key, subject=key)).id for key in keys]
    refused: list[dict[str, Any]] = [
        {},
        {"key": "a", "subject": "b"},
        {"key": "a", "key_prefix": "a"},
        {"key_prefix": ""},
    ]
    for labels in refused:
        for is_dry in (True, False):
            with pytest.raises(BadBooking):
                await ctx.cancel_deferred(**labels, dry_run=is_dry)
    preview = await ctx.cancel_deferred(key_prefix="summer-promo:", dry_run=True)
    assert preview == CancelledRuns(would_cancel_count=2)
    assert (await ctx.find_deferred()).total == 5, "they were only counted"
    assert (await ctx.cancel_deferred(key_prefix="summer-promo:")).cancelled == booked[:2]
    assert (await ctx.cancel_deferred(key_prefix="summer-%")).cancelled == [booked[3]]
    assert (await ctx.cancel_deferred(key="summer-promo")).cancelled == [booked[2]]
    assert (await ctx.cancel_deferred(subject="winter-promo:1")).cancelled == [booked[4]]


# Limits


async def some_booked(database: Database, clock: MovableClock, count: int, key: str = "k") -> list[int]:
    """Book runs of /note for an hour from now, keyed by their numbers, past what a tenant may."""
    bookings = [
        Booking(
            "acme",
            "function",
            HOUR,
            payload={"path": "/note", "payload": {}},
            key=f"{key}:{n}",
            needs=needs_of("/note"),
        )
        for n in range(count)
    ]
    async with database.transaction() as connection:
        return [one.id for one in await book_many(connection, clock, bookings)]


async def test_of_a_thousand_that_a_tenant_may_have_active_the_last_is_booked_and_no_other_until_one_has_ended(
    server: Server, database: Database
) -> None:
    await some_booked(database, server.clock, 999)
    conversation = (await server.house.says("hello")).conversation
    await apply_tenants(server.house.service, [a_config("globex")])
    theirs = Server(server.house, server.http, await a_key(database, "globex"), server.shop, server.clock)

    async def book(at: Server = server) -> int:
        return (await at.call("/v1/functions/note", {}, vuelvo_schedule_in="1h")).status_code

    followup = {"conversation": conversation, "about": "call Ana", "in": "1h"}
    assert (await server.call("/v1/followups", followup)).status_code == 202, "what is no run takes no place"
    assert [await book(), await book(), await book(theirs)] == [202, 429, 202]
    await server.call("/v1/tasks/cancel", {"key": "k:0"})
    assert [await book(), await book()] == [202, 429]
    refused = await server.call("/v1/functions/note", {}, vuelvo_schedule_in="1h")
    assert "1,000 deferred runs are booked" in refused.json()["detail"]


async def test_the_furthest_that_can_be_booked_is_400_days_away_or_as_many_as_the_tenant_is_given(
    server: Server,
) -> None:
    async def book(span: timedelta) -> tuple[int, str]:
        seconds = str(int(span.total_seconds()))
        instant = (server.clock.at + span).isoformat()
        answers = [
            await server.call("/v1/functions/note", {}, **{name: given})
            for name, given in (("vuelvo_schedule_in", seconds), ("vuelvo_schedule_at", instant))
        ]
        assert answers[0].status_code == answers[1].status_code
        return answers[1].status_code, answers[1].json().get("detail", "")

    second = timedelta(seconds=1)
    assert [(await book(span))[0] for span in (400 * DAY, 400 * DAY + second)] == [202, 422]
    await apply_tenants(server.house.service, [a_config("acme", limits={"lead_days": 30})])
    server.house.service._tenants.clear()
    assert (await book(30 * DAY))[0] == 202
    status, words = await book(30 * DAY + second)
    assert (status, "more than 30 days away" in words) == (422, True)


async def test_a_function_may_book_64_kb_and_not_a_byte_more(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    await ctx.schedule(in_=1, path="/note", payload={"x": "x" * 65_528})
    with pytest.raises(PayloadTooLarge, match="65,537 bytes of JSON, and 65,536 may be kept"):
        await ctx.schedule(in_=1, path="/note", payload={"x": "x" * 65_529})
    assert [len(run.payload["x"]) for run in await deferred.tasks()] == [65_528]


async def test_ten_thousand_are_cancelled_by_one_call_and_of_one_more_none(server: Server, database: Database) -> None:
    await some_booked(database, server.clock, 10_001, "summer-promo")
    ctx = a_context(server)
    assert (await ctx.cancel_deferred(key_prefix="summer-promo:", dry_run=True)).would_cancel_count == 10_001
    with pytest.raises(TooMany, match="10,001 tasks have this label, and one cancel takes 10,000 at most"):
        await ctx.cancel_deferred(key_prefix="summer-promo:")
    assert (await ctx.find_deferred()).total == 10_001
    await ctx.cancel_deferred(key="summer-promo:0")
    assert len((await ctx.cancel_deferred(key_prefix="summer-promo:")).cancelled) == 10_000


# Common problems


async def test_of_a_run_that_never_fired_the_command_line_says_why_it_failed_or_who_cancelled_it(
    server: Server, tmp_path: Path, database_url: str
) -> None:
    ctx, shell = a_context(server), Shell(tmp_path, database_url)
    failed, opted_out, cancelled = [
        (await ctx.schedule(in_="1h", path=path, payload={"user": "42"}, key=key)).id
        for path, key in (("/stop", "a"), ("/note", "b"), ("/note", "c"))
    ]
    await ctx.cancel_deferred(key="b")
    await server.call("/v1/tasks/cancel", {"key": "c"})
    await server.fires(HOUR)
    await server.house.until_state(failed, "failed")
    for task, state, last in (
        (failed, "failed", "failed: Stop: nobody wants it any more"),
        (opted_out, "cancelled", "cancelled: a function"),
        (cancelled, "cancelled", "cancelled: the API"),
    ):
        code, said = await shell.run("tasks", "get", str(task), "--payload")
        lines = said.splitlines()
        assert (code, f"state: {state}" in lines, 'payload: {"user": "42"}' in lines) == (0, True, True), said
        assert lines[-1].endswith(last)
        assert ("error: Stop: nobody wants it any more" in lines) == (task == failed)
