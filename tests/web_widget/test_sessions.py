import json
import re
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select, text

from scheduler.when import LONGEST_LEAD
from store import conversations
from store.database import Database
from tests.web_widget.conftest import SHOP, Service, Visitor, a_visitor
from web_widget.sessions import TIME_TO_READ, web_sessions


async def _age(database: Database, column: str, days: int) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            text(f"update web_sessions set {column} = now() - make_interval(days => :days)"), {"days": days}
        )


async def test_a_session_opens_a_conversation_of_an_anonymous_visitor(
    http: httpx.AsyncClient, service: Service
) -> None:
    answer = await http.post(
        "/widget/acme/sessions", json={"language": "pt-BR", "time_zone": "America/Sao_Paulo"}, headers={"Origin": SHOP}
    )
    assert answer.status_code == 201
    assert set(answer.json()) == {"token", "conversation", "seq"}
    assert answer.json()["seq"] == 0
    async with service.database.transaction() as connection:
        found = await conversations.find(connection, "acme", answer.json()["conversation"])
    assert found is not None
    assert re.fullmatch(r"visitor:[0-9a-f]{32}", found.address)
    assert (found.channel, found.language, found.time_zone) == ("web", "pt", "America/Sao_Paulo")


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "../../etc/passwd", "/etc/localtime", "America", "", 7, "A" * 5000, "\0"]
)
async def test_a_time_zone_that_is_none_is_ignored(http: httpx.AsyncClient, service: Service, zone: object) -> None:
    answer = await http.post("/widget/acme/sessions", content=json.dumps({"language": "x\ud800", "time_zone": zone}))
    assert answer.status_code == 201
    async with service.database.transaction() as connection:
        found = await conversations.find(connection, "acme", answer.json()["conversation"])
    assert found is not None
    assert (found.language, found.time_zone) == (None, None)


async def test_only_the_hash_of_a_token_is_stored(http: httpx.AsyncClient, service: Service) -> None:
    token = (await http.post("/widget/acme/sessions")).json()["token"]
    async with service.database.transaction() as connection:
        stored = (await connection.execute(select(web_sessions))).one()
    assert len(token) >= 43
    assert token.encode() not in bytes(stored.token_hash)
    assert token not in str(stored)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "messages"),
        ("POST", "messages"),
        ("POST", "seen"),
        ("GET", "pending"),
        ("DELETE", "pending/1"),
        ("GET", "stream"),
    ],
)
async def test_no_door_opens_without_the_tenants_own_token(
    http: httpx.AsyncClient, visitor: Visitor, method: str, path: str
) -> None:
    elsewhere = await a_visitor(http, "other")
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": visitor.headers["Authorization"].replace("Bearer", "Basic")},
        elsewhere.headers,
    ):
        answer = await http.request(method, f"/widget/acme/{path}", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert "Open a new one" in answer.json()["detail"]


async def test_a_token_opens_only_its_own_conversation(http: httpx.AsyncClient, visitor: Visitor) -> None:
    await visitor.write("mine")
    another = await a_visitor(http)
    assert (await another.ask("GET", "messages")).json() == {"messages": [], "seq": 0}


async def test_a_session_is_bound_to_the_page_it_was_opened_on(http: httpx.AsyncClient) -> None:
    visitor = await a_visitor(http, Origin=SHOP)
    statuses = {
        origin: (await visitor.ask("GET", "messages", headers={"Origin": origin} if origin else {})).status_code
        for origin in (SHOP, "https://vuelvo.example", "")
    }
    assert statuses == {SHOP: 200, "https://vuelvo.example": 401, "": 200}


async def test_a_session_outlives_the_furthest_thing_booked_in_it_at_its_last_use(
    visitor: Visitor, service: Service
) -> None:
    answers = []
    for column, days in (("created_at", 4000), ("used_at", 0), ("used_at", LONGEST_LEAD.days + 29)):
        await _age(service.database, column, days)
        answers.append((await visitor.ask("GET", "messages")).status_code)
    await _age(service.database, "used_at", LONGEST_LEAD.days + 31)
    answers.append((await visitor.ask("GET", "messages")).status_code)
    assert answers == [200, 200, 200, 401]


def test_the_page_says_how_long_a_conversation_can_be_opened_again() -> None:
    page = (Path(__file__).parents[2] / "docs/widget.md").read_text()
    assert f"for {(LONGEST_LEAD + TIME_TO_READ).days} days after its last use" in page


async def test_its_use_is_noted_once_an_hour(visitor: Visitor, service: Service) -> None:
    async def age() -> float:
        async with service.database.transaction() as connection:
            seconds = text("select extract(epoch from now() - used_at) from web_sessions")
            return float((await connection.execute(seconds)).scalar_one())

    noted = []
    for minutes in (59, 61):
        async with service.database.transaction() as connection:
            await connection.execute(
                text("update web_sessions set used_at = now() - make_interval(mins => :minutes)"), {"minutes": minutes}
            )
        await visitor.ask("GET", "messages")
        noted.append(await age() < 60)
    assert noted == [False, True]


async def test_a_conversation_that_is_deleted_takes_its_sessions_along(visitor: Visitor, service: Service) -> None:
    async with service.database.transaction() as connection:
        await connection.execute(text("delete from conversations"))
    assert (await visitor.ask("GET", "messages")).status_code == 401
