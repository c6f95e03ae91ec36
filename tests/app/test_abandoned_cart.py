"""The example of an abandoned cart: as a unit, on a database under a movable clock, and as a service that is called."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.functions import App
from app.rehearsal import Rehearsal
from app.testing import MockContext
from tests.support.process import serving
from tests.support.shell import KEY, Shell

EXAMPLES = Path(__file__).parents[2] / "examples"
ANA = {"user": "ana", "cart": "c1", "to": "+34600000001"}


@pytest.fixture
def cart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, as `VUELVO_APP=abandoned_cart:app` finds it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield import_module("abandoned_cart")
    del sys.modules["abandoned_cart"]


@pytest.fixture
def vuelvo_app(cart: Any) -> App:
    app: App = cart.app
    return app


async def call(cart: Any, path: str, given: dict[str, Any], mock: MockContext, shop: Any = None) -> Any:
    function = cart.shop_app(shop or cart.Shop()).functions[path]
    return await function.call(function.read(given), mock)


async def test_leaving_a_cart_books_its_follow_up_for_a_day_later(cart: Any) -> None:
    mock = MockContext()
    assert await call(cart, "/abandoned-cart", {**ANA, "event": "e1"}, mock) == {"booked": True, "id": 1}
    (booked,) = mock.called("schedule")
    assert (booked["in_"], booked["path"], booked["payload"]["channel"]) == ("24h", "/send-followup", "whatsapp")
    assert (booked["key"], booked["subject"]) == ("cart:ana:c1", "user_ana")


async def test_the_follow_up_goes_out_by_template_unless_it_is_paid_or_the_template_may_not(cart: Any) -> None:
    given, shop, mock = {**ANA, "channel": "whatsapp"}, cart.Shop(), MockContext(is_scheduled_fire=True)
    assert await call(cart, "/send-followup", given, mock, shop) == {"delivered": True}
    (sent,) = mock.called("send_template")
    assert (sent["to"], sent["channel"]) == (ANA["to"], "whatsapp")
    mock.has_template = False
    assert await call(cart, "/send-followup", given, mock, shop) == {"skipped": "template approved"}
    shop.paid.add("c1")
    assert await call(cart, "/send-followup", given, mock, shop) == {"skipped": "not paid yet"}
    assert len(mock.called("send_template")) == 1


async def test_it_is_booked_once_and_skipped_a_day_later_when_it_was_paid(deferred: Rehearsal) -> None:
    first = await deferred.call("/abandoned-cart", {**ANA, "event": "e1"})
    again = await deferred.call("/abandoned-cart", {**ANA, "event": "e1"})
    assert (first["booked"], again) == (True, {"booked": False, "id": first["id"]})
    assert await deferred.fire_due(after="23h") == []
    by_another = await deferred.call("/cart-paid", {"user": "bob", "cart": "c1"})
    assert by_another == {"cancelled": 0, "running": 0}, "under another key, so the check alone is left"
    (run,) = await deferred.fire_due(after="1h")
    assert (run.id, run.status, run.result) == (first["id"], "fired", {"skipped": "not paid yet"})


async def test_who_has_paid_or_wants_nothing_is_not_written_to(deferred: Rehearsal) -> None:
    for number, cart in enumerate(("c2", "c3")):
        await deferred.call("/abandoned-cart", {**ANA, "cart": cart, "event": f"e{number}"})
    assert await deferred.call("/cart-paid", {"user": "ana", "cart": "c2"}) == {"cancelled": 1, "running": 0}
    assert await deferred.call("/opt-out", {"user": "ana"}) == {"cancelled": 1, "running": 0}
    assert await deferred.fire_due(after="2d") == []
    assert [run.status for run in await deferred.tasks()] == ["cancelled", "cancelled"]


async def test_it_runs_as_its_first_lines_say(tmp_path: Path, database_url: str) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY, "VUELVO_DATA_DIR": str(tmp_path)}
    shell = Shell(EXAMPLES, database_url)
    async with serving(directory=EXAMPLES, environ={**environ, "VUELVO_APP": "abandoned_cart:app"}) as (_, address):
        key = (await shell.json("keys", "create", "--tenant", "demo"))["key"]
        async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {key}"}) as http:
            called = await http.post("/v1/functions/abandoned-cart", json={**ANA, "event": "e1"})
        assert (called.status_code, called.json()["booked"]) == (200, True)
        (listed,) = await shell.json("tasks", "list", "/send-followup")
        assert (listed["id"], listed["function"], listed["key"]) == (
            called.json()["id"],
            "/send-followup",
            "cart:ana:c1",
        )
