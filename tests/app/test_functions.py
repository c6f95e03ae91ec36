"""Functions: called, booked, run at their time, found, cancelled and moved, over HTTP and from each other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from sqlalchemy import text

from app.addresses import keys
from app.called import Called
from app.context import Context
from app.functions import App, Stop
from app.http import application
from app.tenants_file import to_stored
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from scheduler.poller import DUE
from store import api_keys, contacts, conversations, tenants
from store.contacts import Contact
from store.database import Database
from tests.support.asgi import calling
from tests.support.house import House, a_config, a_house
from tests.support.wait import eventually

HOUR = timedelta(hours=1)
OFFICE_CHANNELS = {
    "channels": {
        "web": {},
        "telegram": {"token": "99:" + "t" * 30},
        "whatsapp": {"account_sid": "AC" + "0a" * 16, "auth_token": "a token", "sender": "+14155238886"},
    }
}


class Cart(BaseModel):
    user: str
    cart: str


@dataclass
class Shop:
    """A developer's application, and what its functions saw."""

    app: App = field(default_factory=lambda: App(time_zone="UTC"))
    paid: set[str] = field(default_factory=set)
    sent: list[str] = field(default_factory=list)
    fires: list[Context] = field(default_factory=list)
    failing: int = 0

    def __post_init__(self) -> None:
        @self.app.function("/abandoned-cart", input=Cart)
        async def abandoned_cart(cart: Cart, ctx: Context) -> dict[str, Any]:
            booking = await ctx.schedule(
                in_="24h",
                path="/send-followup",
                payload={"user": cart.user, "cart": cart.cart},
                key=f"cart:{cart.user}:{cart.cart}",
                subject=f"user_{cart.user}",
                idempotency_key=f"abandoned-cart:{cart.cart}",
            )
            ctx.log("booked", id=booking.id)
            return {"booked": not booking.idempotent_replay, "id": booking.id, "at": booking.scheduled_at.isoformat()}

        @self.app.function("/send-followup", input=Cart)
        async def send_followup(cart: Cart, ctx: Context) -> Any:
            self.fires.append(ctx)
            if self.failing:
                self.failing -= 1
                raise OSError("the shop is down")

            async def send() -> dict[str, bool]:
                self.sent.append(cart.cart)
                return {"delivered": True}

            async def is_unpaid() -> bool:
                return cart.cart not in self.paid

            return await ctx.guard.when("not paid yet", is_unpaid).when("cart known", lambda: True).run(send)

        @self.app.function("/stop")
        async def stop(given: Any) -> None:
            raise Stop("nobody wants it any more")

        @self.app.function("/forgets-to-run")
        async def forgets(given: Any, ctx: Context) -> None:
            ctx.guard.when("never asked", lambda: True)

        @self.app.function("/nested/path.v2")
        async def echo(given: Any) -> Any:
            return given


@dataclass
class Server:
    """A tenant's server: its key, and a client."""

    house: House
    http: httpx.AsyncClient
    key: str
    shop: Shop
    clock: MovableClock

    async def call(self, path: str, payload: Any = None, method: str = "POST", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.request(
            method, path, json=payload, headers={"authorization": f"Bearer {self.key}", **named}
        )

    async def get(self, path: str) -> Any:
        return (await self.call(path, method="GET")).json()

    async def fires(self, span: timedelta) -> None:
        await self.house.goes_by(self.clock, span)


async def a_key(database: Database, tenant: str, *scopes: str) -> str:
    async with database.transaction() as connection:
        return (await api_keys.create(connection, tenant, scopes=scopes or api_keys.SCOPES))[1]


@asynccontextmanager
async def serving(
    database: Database, directory: Path, clock: MovableClock, shop: Shop | None = None, **more: Any
) -> AsyncIterator[Server]:
    shop = shop or Shop()
    async with (
        a_house(database, directory, clock=clock, app=shop.app, **more) as house,
        calling(application(house.run)) as http,
    ):
        yield Server(house, http, await a_key(database, "acme"), shop, clock)


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock) as server:
        yield server


ANA = {"user": "ana", "cart": "c1"}


async def test_an_abandoned_cart_is_followed_up_a_day_later_once(server: Server) -> None:
    called = await server.call("/v1/functions/abandoned-cart", ANA)
    again = await server.call("/v1/functions/abandoned-cart", ANA)
    assert (called.status_code, called.json()["booked"], again.json()["booked"]) == (200, True, False)
    assert called.json()["id"] == again.json()["id"]
    await server.fires(timedelta(hours=23, minutes=59))
    assert not server.shop.fires
    await server.fires(timedelta(minutes=1))
    await server.house.until_state(called.json()["id"], "fired")
    assert server.shop.sent == ["c1"]
    (ctx,) = server.shop.fires
    assert (ctx.is_scheduled_fire, ctx.task_id, ctx.tenant) == (True, called.json()["id"], "acme")
    told = await server.get(f"/v1/tasks/{called.json()['id']}")
    assert told["status"] == "fired"
    assert (told["outcome"], told["result"], told["payload"]) == ("done", {"delivered": True}, ANA)


async def test_a_check_that_says_no_skips_the_run_and_is_named(server: Server) -> None:
    booked = (await server.call("/v1/functions/abandoned-cart", ANA)).json()["id"]
    server.shop.paid.add("c1")
    await server.fires(timedelta(hours=24))
    await server.house.until_state(booked, "fired")
    assert server.shop.sent == []
    assert (await server.get(f"/v1/tasks/{booked}"))["outcome"] == "skipped: not paid yet"


async def test_any_call_is_deferred_by_a_header(server: Server) -> None:
    booked = await server.call(
        "/v1/functions/send-followup", ANA, vuelvo_schedule_in="5m", vuelvo_key="k", vuelvo_subject="s"
    )
    assert booked.status_code == 202
    assert booked.json() == {
        "id": booked.json()["id"],
        "scheduled_at": (server.clock.at + timedelta(minutes=5)).isoformat().replace("+00:00", "Z"),
        "idempotent_replay": False,
    }
    at = (server.clock.at + HOUR).isoformat()
    assert (await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_at=at)).status_code == 202
    assert (await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="90")).status_code == 202
    found = await server.get("/v1/tasks?function=/send-followup")
    assert [one["scheduled_at"] for one in found["data"]] == sorted(one["scheduled_at"] for one in found["data"])
    assert (found["total"], found["page"], found["per_page"]) == (3, 1, 20)
    (one,) = (await server.get("/v1/tasks?key=k&subject=s"))["data"]
    assert one["id"] == booked.json()["id"]


@pytest.mark.parametrize(
    ("headers", "payload", "status", "words"),
    [
        ({"vuelvo_schedule_in": "5m"}, "text", 422, "an object or an array, not str"),
        ({"vuelvo_schedule_in": "5m"}, 7, 422, "an object or an array, not int"),
        ({"vuelvo_schedule_in": "30m1h"}, ANA, 422, "30m1h"),
        ({"vuelvo_schedule_in": "-5m"}, ANA, 422, "-5m"),
        ({"vuelvo_schedule_in": "401d"}, ANA, 422, "400 days"),
        ({"vuelvo_schedule_in": "soon"}, ANA, 422, "soon"),
        ({"vuelvo_schedule_at": "2020-01-01T00:00:00Z"}, ANA, 422, "it is now 2026-11-29T14:00:00Z"),
        ({"vuelvo_schedule_at": "2026-12-24"}, ANA, 422, "of no zone"),
        ({"vuelvo_schedule_at": "Christmas"}, ANA, 422, "ISO 8601"),
        ({"vuelvo_schedule_at": "2029-12-24T18:00:00Z"}, ANA, 422, "400 days"),
        ({"vuelvo_schedule_in": "5m", "vuelvo_schedule_at": "2026-12-24T18:00:00Z"}, ANA, 422, "one of the two"),
        ({"vuelvo_schedule_in": "5m", "vuelvo_key": "k" * 497}, ANA, 422, "key is a text of 1 to 496"),
        ({"vuelvo_schedule_in": "5m", "vuelvo_pin_deployment": "true"}, ANA, 422, "VUELVO_DEPLOYMENT"),
        ({"vuelvo_schedule_in": "5m", "vuelvo_pin_deployment": "perhaps"}, ANA, 422, "true or false"),
        ({"vuelvo_key": "k"}, ANA, 422, "belongs to a booking"),
        ({"vuelvo_schedule_in": "5m"}, {"user": "ana"}, 422, "cart: Field required"),
        ({}, {"user": "ana"}, 422, "cart: Field required"),
        ({"vuelvo_schedule_in": "5m"}, {"user": "ana", "cart": "x" * 65_600}, 413, "65,536"),
    ],
)
async def test_what_cannot_be_booked_is_refused_with_the_reason(
    server: Server, headers: dict[str, str], payload: Any, status: int, words: str
) -> None:
    answer = await server.call("/v1/functions/send-followup", payload, **headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert words in answer.json()["detail"]
    assert (await server.get("/v1/tasks"))["total"] == 0


async def test_a_function_that_there_is_not_gets_404_now_and_later(server: Server) -> None:
    for headers in ({}, {"vuelvo_schedule_in": "5m"}):
        answer = await server.call("/v1/functions/nowhere", ANA, **headers)
        assert answer.status_code == 404
        assert "/send-followup" in answer.json()["detail"]


async def test_of_fifty_requests_with_one_idempotency_key_one_books(server: Server) -> None:
    def book(payload: Any) -> Any:
        return server.call("/v1/functions/send-followup", payload, vuelvo_schedule_in="1h", idempotency_key="event-7")

    answers = await asyncio.gather(*(book(ANA) for _ in range(50)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 49}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Counter(answer.json()["idempotent_replay"] for answer in answers) == {False: 1, True: 49}
    other = await book({"user": "ana", "cart": "another"})
    assert other.status_code == 409
    assert (await server.get("/v1/tasks"))["total"] == 1


async def test_the_last_place_is_given_once_and_what_has_ended_takes_none(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    few: dict[str, Any] = {"config": {"limits": {"active": 10}}}
    async with serving(database, tmp_path, clock, **few) as server, serving(database, tmp_path, clock, **few) as second:

        def book(at: Server, key: str) -> Any:
            return at.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", idempotency_key=key)

        answers = await asyncio.gather(*(book(at, f"{n}") for n in range(15) for at in (server, second)))
        codes = Counter(answer.status_code for answer in answers)
        assert codes[202] == 10
        assert codes[202] + codes[200] + codes[429] == 30
        assert (await server.get("/v1/tasks"))["total"] == 10
        known = next(answer.json()["id"] for answer in answers if answer.status_code == 202)
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "10 deferred runs" in refused.json()["detail"]
        moved = await server.call(f"/v1/tasks/{known}/reschedule", {"in": "2h"})
        assert moved.status_code == 202, "to move one takes no second place"
        await server.call("/v1/tasks/cancel", {"key_prefix": "none"})
        assert (await book(server, "one more")).status_code == 429
        await server.fires(3 * HOUR)
        await eventually(lambda: len(server.shop.sent) + len(second.shop.sent) == 10)
        assert (await book(server, "one more")).status_code == 202


async def test_what_is_cancelled_does_not_run_and_a_dry_run_only_counts(server: Server) -> None:
    for n in range(3):
        await server.call(
            "/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", vuelvo_key=f"promo:{n}", vuelvo_subject="ana"
        )
    assert (await server.call("/v1/tasks/cancel", {"key_prefix": "promo:", "dry_run": True})).json() == {
        "would_cancel_count": 3
    }
    done = (await server.call("/v1/tasks/cancel", {"key": "promo:1"})).json()
    assert (len(done["cancelled"]), done["raced"]) == (1, [])
    assert len((await server.call("/v1/tasks/cancel", {"subject": "ana"})).json()["cancelled"]) == 2
    await server.fires(2 * HOUR)
    assert server.shop.fires == []
    for body in ({}, {"key": "a", "subject": "b"}, {"key": ""}, {"kay": "a"}):
        assert (await server.call("/v1/tasks/cancel", body)).status_code == 422


async def test_a_run_is_moved_by_cancelling_it_and_booking_another(server: Server) -> None:
    booked = (await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", vuelvo_key="k")).json()[
        "id"
    ]
    moved = await server.call(f"/v1/tasks/{booked}/reschedule", {"in": "3h"})
    assert (moved.status_code, moved.json()["cancelled"]) == (202, booked)
    new = await server.get(f"/v1/tasks/{moved.json()['id']}")
    assert (new["key"], new["payload"], new["status"]) == ("k", ANA, "scheduled")
    assert (await server.get(f"/v1/tasks/{booked}"))["status"] == "cancelled"
    assert (await server.call(f"/v1/tasks/{booked}/reschedule", {"in": "3h"})).status_code == 409
    assert (await server.call(f"/v1/tasks/{new['id']}/reschedule", {"at": "2020-01-01T00:00:00Z"})).status_code == 422
    assert (await server.get(f"/v1/tasks/{new['id']}"))["status"] == "scheduled", "a refused move cancels nothing"
    await server.fires(2 * HOUR)
    assert server.shop.fires == []
    await server.fires(HOUR)
    await eventually(lambda: server.shop.sent == ["c1"])


async def test_a_run_that_raises_is_tried_again_and_keeps_its_error(server: Server) -> None:
    server.shop.failing = 1
    booked = (await server.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(timedelta(minutes=1))
    await eventually(lambda: len(server.shop.fires) == 1)
    await server.house.until_state(booked, "scheduled")
    assert "the shop is down" in (await server.get(f"/v1/tasks/{booked}"))["error"]
    await server.fires(HOUR)
    await server.house.until_state(booked, "fired")
    assert {ctx.run_id for ctx in server.shop.fires} == {f"run:{booked}"}
    assert [ctx.attempt for ctx in server.shop.fires] == [1, 2]


@pytest.mark.parametrize(("path", "words"), [("stop", "nobody wants it any more"), ("forgets-to-run", "'never asked'")])
async def test_a_run_that_is_not_to_be_tried_again_has_failed(server: Server, path: str, words: str) -> None:
    booked = (await server.call(f"/v1/functions/{path}", {}, vuelvo_schedule_in="1m")).json()["id"]
    await server.fires(timedelta(minutes=1))
    failed = await server.house.until_state(booked, "failed")
    assert words in (failed.error or "")
    assert failed.attempt == 1


async def test_what_cannot_be_read_any_more_fails_and_all_others_run(server: Server, database: Database) -> None:
    ids = [
        (
            await server.call("/v1/functions/send-followup", {"user": "ana", "cart": str(n)}, vuelvo_schedule_in="1m")
        ).json()["id"]
        for n in range(3)
    ]
    async with database.transaction() as connection:
        await connection.execute(text("update tasks set payload = '{}' where id = :id"), {"id": ids[1]})
    await server.fires(timedelta(minutes=1))
    await server.house.until_state(ids[1], "failed")
    await eventually(lambda: sorted(server.shop.sent) == ["0", "2"])


async def test_arrays_and_nested_paths_are_taken(server: Server) -> None:
    assert (await server.call("/v1/functions/nested/path.v2", [1, {"a": None}])).json() == [1, {"a": None}]
    assert (await server.call("/v1/functions/nested/path.v2")).json() == {}


async def test_another_tenant_s_key_sees_cancels_and_moves_nothing(server: Server, database: Database) -> None:
    await apply_tenants(server.house.service, [a_config("globex")])
    booked = (
        await server.call(
            "/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", vuelvo_key="k", idempotency_key="e"
        )
    ).json()["id"]
    theirs = Server(server.house, server.http, await a_key(database, "globex"), server.shop, server.clock)
    assert (await theirs.get("/v1/tasks"))["data"] == []
    assert (await theirs.call(f"/v1/tasks/{booked}", method="GET")).status_code == 404
    assert (await theirs.call(f"/v1/tasks/{booked}/reschedule", {"in": "2h"})).status_code == 404
    assert (await theirs.call("/v1/tasks/cancel", {"key": "k"})).json() == {"cancelled": [], "raced": []}
    same = await theirs.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1h", idempotency_key="e")
    assert same.status_code == 202, "equal keys of two tenants do not meet"


async def test_a_key_opens_what_its_scopes_say_and_nothing_once_it_is_revoked(
    server: Server, database: Database
) -> None:
    reader = Server(server.house, server.http, await a_key(database, "acme", "read"), server.shop, server.clock)
    assert (await reader.call("/v1/tasks", method="GET")).status_code == 200
    refused = await reader.call("/v1/tasks/cancel", {"key": "k"})
    assert (refused.status_code, "read" in refused.json()["detail"]) == (403, True)
    assert (await reader.call("/v1/functions/stop", {})).status_code == 403
    async with database.transaction() as connection:
        assert await api_keys.revoke(connection, "acme", reader.key.split("_")[2])
    for key in (reader.key, server.key[:-1] + ("A" if server.key[-1] != "A" else "B"), "vk_acme", ""):
        reader.key = key
        assert (await reader.call("/v1/tasks", method="GET")).status_code == 401


async def test_a_follow_up_is_booked_into_a_conversation_and_refused_where_there_is_none(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    body = {"conversation": conversation, "about": "call Ana", "in": "1h", "subject": "ana"}
    booked = await server.call("/v1/followups", body)
    assert booked.status_code == 202
    assert (await server.get("/v1/tasks"))["data"][0]["kind"] == "followup"
    for wrong in ({"conversation": None}, {"conversation": 10**6}, {"about": ""}, {"in": None}, {"in": "never"}):
        refused = await server.call("/v1/followups", {**body, **wrong})
        assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert (await server.get("/v1/tasks"))["total"] == 1
    await server.fires(HOUR)
    await server.house.until_state(booked.json()["id"], "fired")


async def test_of_many_follow_ups_that_are_booked_at_once_no_more_than_may_be_are_pending(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    body = {"conversation": conversation, "about": "call Ana", "in": "1h"}
    answers = await asyncio.gather(*(server.call("/v1/followups", body) for _ in range(30)))
    assert Counter(answer.status_code for answer in answers) == {202: 20, 429: 10}


async def test_a_follow_up_with_a_guard_is_skipped_by_its_name_once_the_customer_has_written(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    await server.house.until_heard(conversation, 1)
    body = {"conversation": conversation, "about": "call Ana", "in": "1h", "guards": [{"guard": "no reply since"}]}
    first = (await server.call("/v1/followups", body)).json()["id"]
    await server.fires(HOUR)
    assert (await server.house.until_state(first, "fired")).outcome == "delivered"
    second = (await server.call("/v1/followups", body)).json()["id"]
    server.clock.move(timedelta(minutes=1))
    await server.house.says("I am here")
    await server.fires(HOUR)
    assert (await server.house.until_state(second, "fired")).outcome == "skipped: no reply since"
    for wrong in (
        [{"guard": "full moon"}],
        [{"guard": "no reply since", "more": 1}],
        [{"guard": "no reply since"}] * 6,
        "x",
    ):
        assert (await server.call("/v1/followups", {**body, "guards": wrong})).status_code == 422


async def test_a_pinned_run_waits_for_its_own_deployment(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with serving(database, tmp_path, clock, deployment="blue") as blue:
        pinned = await blue.call(
            "/v1/functions/send-followup", ANA, vuelvo_schedule_in="1m", vuelvo_pin_deployment="true"
        )
        free = await blue.call("/v1/functions/send-followup", ANA, vuelvo_schedule_in="1m")
    async with serving(database, tmp_path, clock, deployment="green") as green:
        await green.fires(timedelta(minutes=1))
        await green.house.until_state(free.json()["id"], "fired")
        left = await green.get(f"/v1/tasks/{pinned.json()['id']}")
        assert (left["status"], left["deployment"]) == ("scheduled", "blue"), "it is shown, not lost"
    async with serving(database, tmp_path, clock, deployment="blue") as blue:
        await blue.house.until_state(pinned.json()["id"], "fired")


async def test_what_is_booked_in_the_caller_s_own_transaction_runs_as_soon_as_that_is_committed(
    server: Server, database_url: str
) -> None:
    """And not at the poller's next look: when it was hinted, nothing of it could be seen."""
    functions, service, poller = server.house.run.functions, server.house.service, server.house.run.poller
    ctx, theirs = Context("acme", "/x", "call:1", functions.booker(a_config())), Database(database_url)
    assert poller is not None
    poller._interval = timedelta(minutes=5)
    await eventually(lambda: service.signals.is_alive)
    async with AsyncExitStack() as stack, theirs.transaction() as connection:
        stack.push_async_callback(theirs.close)
        booked = await ctx.schedule(in_=0, path="/send-followup", payload=ANA, connection=connection)
        before = poller.beat_at
        service.signals.hint(DUE)
        await eventually(lambda: poller.beat_at != before)
    await server.house.until_state(booked.id, "fired")


async def test_a_booking_in_the_caller_s_own_transaction_is_there_with_it_or_not_at_all(server: Server) -> None:
    functions, database = server.house.run.functions, server.house.service.database
    ctx = Context("acme", "/x", "call:1", functions.booker(a_config()))

    async def change_my_mind() -> None:
        async with database.transaction() as connection:
            await ctx.schedule(in_=60, path="/send-followup", payload=ANA, connection=connection)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_my_mind()
    assert (await server.get("/v1/tasks"))["total"] == 0
    async with database.transaction() as connection:
        await ctx.schedule_at(
            at=datetime(2026, 12, 24, 18, tzinfo=UTC), path="/send-followup", payload=ANA, connection=connection
        )
    assert (await server.get("/v1/tasks"))["total"] == 1


async def test_a_file_that_was_applied_a_moment_ago_is_read_before_a_function_is_said_to_be_missing(
    server: Server,
) -> None:
    """Each process knows a tenant's file for two seconds; what was booked by another may be of a newer one."""
    assert (await server.call("/v1/functions/added", {})).status_code == 404
    house = server.house
    added = a_config("acme", functions={"/added": {"url": "https://shop.example/added"}})
    async with house.service.database.transaction() as connection:
        stored = to_stored(added, house.service.box)
        await tenants.apply(connection, "acme", stored, [])
    booked = await server.call("/v1/functions/added", {}, vuelvo_schedule_in="1h")
    assert booked.status_code == 202
    assert isinstance(await house.run.functions.find(a_config("acme"), "/added"), Called)


async def test_a_header_that_means_nothing_at_an_address_is_refused_there(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    body = {"conversation": conversation, "about": "call Ana", "in": "1h"}
    for name in ("vuelvo_key", "vuelvo_idempotency_key", "vuelvo_schedule_in"):
        refused = await server.call("/v1/followups", body, **{name: "1h"})
        assert (refused.status_code, "means nothing here: use idempotency-key" in refused.text) == (422, True)
    refused = await server.call("/v1/functions/send-followup", ANA, idempotency_key="e1")
    assert (refused.status_code, "belongs to a booking" in refused.json()["detail"]) == (422, True)
    assert (await server.get("/v1/tasks"))["total"] == 0


async def test_a_follow_up_is_not_moved_and_is_not_said_to_be_missing(server: Server) -> None:
    conversation = (await server.house.says("hello")).conversation
    body = {"conversation": conversation, "about": "call Ana", "in": "1h"}
    task = (await server.call("/v1/followups", body)).json()["id"]
    refused = await server.call(f"/v1/tasks/{task}/reschedule", {"in": "2h"})
    assert (refused.status_code, "is a followup: runs of functions are moved" in refused.json()["detail"]) == (
        422,
        True,
    )
    assert (await server.get(f"/v1/tasks/{task}"))["payload"] == {"about": "call Ana"}


@pytest.mark.parametrize(
    ("channel", "address", "to"),
    [
        ("web", "user:u-42", {"web": "u-42"}),
        ("telegram", "123456789", {"telegram": "123456789"}),
        ("whatsapp", "whatsapp:+5491112345678", {"whatsapp": "+54 11 1234-5678"}),
    ],
)
async def test_a_follow_up_is_booked_with_whoever_has_an_address(
    database: Database, tmp_path: Path, clock: MovableClock, channel: str, address: str, to: dict[str, str]
) -> None:
    async with serving(database, tmp_path, clock, config=OFFICE_CHANNELS) as server:
        met = Contact("acme", channel, address, keys(channel, address)[0])
        async with database.transaction() as connection:
            contact = await contacts.meet(connection, met)
            conversation = await conversations.open_conversation(connection, "acme", contact, None)
        body = {"to": to, "about": "call Ana", "in": "1h"}
        task = (await server.call("/v1/followups", body)).json()["id"]
        assert (await server.get(f"/v1/tasks/{task}"))["conversation"] == conversation
        wrongs: list[dict[str, Any]] = [{"to": {channel: "nobody?"}}, {"to": {}}, {"to": {"fax": "1"}}]
        for wrong in [*wrongs, {"conversation": conversation}]:
            assert (await server.call("/v1/followups", {**body, **wrong})).status_code == 422
