"""Renewals over HTTP: enrolled, changed, looked at and closed, by a tenant's server."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_docs import ROOT, blocks, curl, lines
from tests.app.test_functions import Server, a_key, serving
from tests.app.test_renewals import BOGOTA, CONFIG, START

ANA: dict[str, Any] = {
    "due": "2027-03-01",
    "cadence": "policy",
    "channels": {"whatsapp": "+57 300 123 4567"},
    "name": "Ana",
    "fields": {"car": "Fiat"},
    "agreed": True,
}
AT = "/v1/renewals/policy-17"


@pytest.fixture
async def server(database: Database, tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, MovableClock(START), config=CONFIG, poll=False) as server:
        yield server


async def put(server: Server, path: str = AT, **more: Any) -> httpx.Response:
    return await server.call(path, {**ANA, **more}, method="PUT")


def planned(told: Any) -> list[tuple[str, str]]:
    """Return the steps to come and when they come, in Bogota."""
    return [
        (step["step"], f"{datetime.fromisoformat(step['at']).astimezone(BOGOTA):%Y-%m-%d %H:%M}")
        for step in told["steps"]
        if step["state"] == "scheduled"
    ]


async def test_a_renewal_is_enrolled_with_its_plan_and_put_again_it_stays_as_it_is(server: Server) -> None:
    first = await put(server)
    assert (first.status_code, first.json()["became"]) == (201, "new")
    plan = [("-6w", "2027-01-18 10:00"), ("-2w", "2027-02-15 10:00"), ("-3d", "2027-02-26 10:00")]
    assert planned(first.json()) == plan
    assert first.json()["channels"] == ["whatsapp"]
    assert "3001234567" not in first.text
    again = await put(server)
    assert (again.status_code, again.json()["became"], planned(again.json())) == (200, "unchanged", plan)
    assert [one["event"] for one in (await server.get(AT))["events"]] == ["enrolled"]


async def test_another_due_day_plans_it_anew_and_another_name_does_not(server: Server) -> None:
    tasks = [step["task"] for step in (await put(server)).json()["steps"]]
    renamed = (await put(server, name="Ana María")).json()
    assert (renamed["became"], [step["task"] for step in renamed["steps"]]) == ("changed", tasks)
    moved = (await put(server, due="2027-04-01")).json()
    assert (moved["became"], [name for name, _ in planned(moved)]) == ("moved", ["-6w", "-2w", "-3d"])
    assert {step["state"] for step in moved["steps"] if step["task"] in tasks} == {"cancelled"}
    told = [(one["event"], one["detail"]) for one in (await server.get(AT))["events"]]
    assert told[1:] == [("changed", None), ("moved", "2027-03-01 to 2027-04-01")]


async def test_it_is_closed_once_and_in_one_way(server: Server) -> None:
    await put(server)
    closed = await server.call(f"{AT}/close", {"as": "renewed", "why": "paid"})
    assert (closed.status_code, closed.json()["state"], planned(closed.json())) == (200, "renewed", [])
    assert (await server.call(f"{AT}/close", {"as": "renewed"})).status_code == 200
    otherwise = await server.call(f"{AT}/close", {"as": "lost"})
    assert (otherwise.status_code, "renewed already" in otherwise.text) == (409, True)
    assert [(one["event"], one["by"], one["detail"]) for one in (await server.get(AT))["events"]][1:] == [
        ("renewed", "the API", "paid")
    ]
    assert (await put(server, due="2028-03-01")).status_code == 201


async def test_a_subject_may_have_slashes_and_letters_of_any_kind(server: Server) -> None:
    path = "/v1/renewals/p%C3%B3liza%2F2027/close"
    assert (await put(server, path)).json()["subject"] == "póliza/2027/close"
    assert (await server.get(path))["subject"] == "póliza/2027/close"
    assert (await server.call(f"{path}/close", {"as": "lost"})).json()["state"] == "lost"


async def test_what_cannot_be_taken_is_refused_by_name_and_nothing_is_booked(server: Server) -> None:
    long = "x" * 2001
    cases: list[tuple[dict[str, Any], str]] = [
        ({"due": "01/03/2027"}, "write a date such as"),
        ({"due": "2027-02-30"}, "write a date such as"),
        ({"due": "2020-03-01"}, "more than 400 days ago"),
        ({"due": "2099-03-01"}, "more than 30 years ahead"),
        ({"cadence": "yearly"}, "there are: policy"),
        ({"channels": {}}, "where the customer is reached"),
        ({"channels": {"whatsapp": "300 123 4567"}}, "with a plus and its country"),
        ({"channels": {"telegram": "@ana"}}, "the chat's number"),
        ({"channels": {"web": ""}}, "web is empty"),
        ({"channels": {"pigeon": "ana"}}, "pigeon"),
        ({"language": "fr"}, "it speaks en, es, pt"),
        ({"time_zone": "Mars/Olympus"}, "no time zone"),
        ({"fields": {}}, "{car}"),
        ({"name": None}, "{name}"),
        ({"fields": {"car": long}}, "car is a text"),
        ({"fields": {"car": "Fiat", "due": "never"}}, "the field due"),
        ({"fields": {"car": "Fiat", "a\0": "b"}}, "a field's name"),
        ({"fields": {"car": "Fiat\0"}}, "car is a text"),
        ({"name": "x" * 101}, "name is a text"),
        ({"agreed": "yes"}, "agreed"),
        ({"stopped": None}, "stopped"),
    ]
    for more, words in cases:
        refused = await put(server, **more)
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    body = json.dumps({**ANA, "name": "\ud800"})
    half = await server.http.put(AT, content=body, headers={"authorization": f"Bearer {server.key}"})
    assert (half.status_code, "name" in half.json()["detail"]) == (422, True)
    assert "3001234567" not in (await put(server, channels={"whatsapp": "3001234567"})).text
    assert (await put(server, f"/v1/renewals/{'x' * 500}")).status_code == 422
    assert (await server.get("/v1/tasks"))["total"] == 0
    for close in ({}, {"as": "open"}, {"as": "lost", "why": "\0"}, {"as": "lost", "why": long}):
        assert (await server.call(f"{AT}/close", close)).status_code == 422
    assert (await server.call(f"{AT}/close", {"as": "lost"})).status_code == 404
    assert (await server.call(AT, method="GET")).status_code == 404


async def test_a_key_does_what_its_scopes_allow_and_sees_its_own_tenant_alone(
    server: Server, database: Database
) -> None:
    await put(server)
    reader = Server(server.house, server.http, await a_key(database, "acme", "read"), server.shop, server.clock)
    assert (await reader.get(AT))["state"] == "open"
    assert (await put(reader)).status_code == 403
    assert (await reader.call(f"{AT}/close", {"as": "lost"})).status_code == 403
    wrong = await server.call(AT, method="DELETE")
    assert (wrong.status_code, set(wrong.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "PUT"})


async def test_the_requests_of_the_page_are_answered_as_it_says(server: Server) -> None:
    answers = []
    for _, block in blocks(ROOT / "docs/renewals.md", "sh"):
        for words in lines(block):
            if words[0] == "curl":
                answers.append(await curl(server.http, [word.replace("$KEY", server.key) for word in words]))
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert [answer.json()["state"] for answer in answers] == ["open", "open", "renewed"]
