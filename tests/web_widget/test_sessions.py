import asyncio
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select, text

from channels.web.section import ABSOLUTE, IDLE, SessionSection
from scheduler.when import LONGEST_LEAD
from store import conversations
from store.database import Database
from tests.web_widget.conftest import SHOP, Service, Visitor, a_visitor, a_web_tenant
from web_widget.identity import Identity
from web_widget.sessions import MOST_TOKENS, Visit, delete_old, find_session, rotate, sign_in, web_sessions


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
    assert set(answer.json()) == {"token", "conversation", "seq", "rotate_after"}
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
        ("POST", "sessions/rotate"),
        ("DELETE", "sessions"),
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
    assert timedelta(days=30) + LONGEST_LEAD == IDLE
    answers = []
    for days in (LONGEST_LEAD.days + 29, LONGEST_LEAD.days + 31):
        await _age(service.database, "used_at", days)
        answers.append((await visitor.ask("GET", "messages")).status_code)
    assert answers == [200, 401]


async def test_a_session_that_is_used_every_day_ends_all_the_same(visitor: Visitor, service: Service) -> None:
    answers = []
    for days in (ABSOLUTE.days - 1, ABSOLUTE.days + 1):
        await _age(service.database, "created_at", days)
        answers.append((await visitor.ask("GET", "messages")).status_code)
    assert answers == [200, 401]


async def test_a_tenant_can_let_sessions_live_less_long(http: httpx.AsyncClient, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", session={"idle": "2d", "absolute": "10d"})
    answers = []
    for column, days in (("used_at", 1), ("used_at", 3), ("created_at", 9), ("created_at", 11)):
        visitor = await a_visitor(http)
        await _age(service.database, column, days)
        answers.append((await visitor.ask("GET", "messages")).status_code)
    assert answers == [200, 401, 200, 401]


async def test_the_use_of_a_session_that_lives_for_minutes_is_noted_within_them(
    http: httpx.AsyncClient, service: Service
) -> None:
    service.tenants["acme"] = a_web_tenant("acme", session={"idle": "10m"})
    visitor = await a_visitor(http)
    for _ in range(3):
        async with service.database.transaction() as connection:
            await connection.execute(text("update web_sessions set used_at = used_at - interval '9 minutes'"))
        assert (await visitor.ask("GET", "messages")).status_code == 200


async def _rotated(visitor: Visitor) -> Visitor:
    answer = await visitor.ask("POST", "sessions/rotate")
    assert answer.status_code == 201, answer.text
    assert answer.json()["rotate_after"] == 86400
    return replace(visitor, headers={"Authorization": f"Bearer {answer.json()['token']}"})


async def _opens(visitor: Visitor, **headers: str) -> bool:
    answer = await visitor.ask("GET", "messages", headers=headers)
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


async def _time_passes(database: Database, **span: int) -> None:
    """As if all that was written was written so long ago."""
    ago = {"by": timedelta(**span)}
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "update web_sessions set created_at = created_at - cast(:by as interval),"
                " used_at = used_at - cast(:by as interval), ends_at = ends_at - cast(:by as interval)"
            ),
            ago,
        )


async def test_an_old_token_lives_until_its_successor_is_used_and_a_minute_longer(
    visitor: Visitor, service: Service
) -> None:
    new = await _rotated(visitor)
    await _time_passes(service.database, days=20)
    assert await _opens(visitor)
    assert await _opens(new)
    assert await _opens(visitor)
    await _time_passes(service.database, seconds=59)
    assert await _opens(visitor)
    assert await _opens(new)
    await _time_passes(service.database, seconds=2)
    assert not await _opens(visitor)
    assert await _opens(new)


async def test_a_lost_answer_to_a_rotation_loses_nothing(visitor: Visitor, service: Service) -> None:
    await _rotated(visitor)
    await _time_passes(service.database, days=3)
    again = await _rotated(visitor)
    assert await _opens(again)
    await _time_passes(service.database, minutes=2)
    assert await _opens(again)
    assert not await _opens(visitor)


async def test_two_tabs_that_rotate_at_once_both_go_on(visitor: Visitor, service: Service) -> None:
    one, other = await asyncio.gather(_rotated(visitor), _rotated(visitor))
    assert [await _opens(each) for each in (one, other, visitor)] == [True, True, True]
    await _time_passes(service.database, minutes=2)
    assert [await _opens(each) for each in (one, other, visitor)] == [True, True, False]


async def test_a_chain_of_tokens_keeps_its_beginning(visitor: Visitor, service: Service) -> None:
    tokens = [visitor]
    for _ in range(3):
        await _time_passes(service.database, days=240)
        tokens.append(await _rotated(tokens[-1]))
        assert await _opens(tokens[-1])
    await _time_passes(service.database, days=9)
    assert await _opens(tokens[-1])
    await _time_passes(service.database, days=2)
    assert not await _opens(tokens[-1])


async def test_of_a_chain_no_more_than_a_few_tokens_are_kept(visitor: Visitor, service: Service) -> None:
    for _ in range(3 * MOST_TOKENS):
        new = await _rotated(visitor)
        assert await _opens(new)
    async with service.database.transaction() as connection:
        count = (await connection.execute(text("select count(*) from web_sessions"))).scalar_one()
    assert count <= MOST_TOKENS + 2
    assert await _opens(new)


async def test_a_token_that_has_ended_is_not_rotated(visitor: Visitor, service: Service) -> None:
    assert await _opens(await _rotated(visitor))
    await _time_passes(service.database, minutes=2)
    assert (await visitor.ask("POST", "sessions/rotate")).status_code == 401


async def test_a_rotated_token_is_bound_to_the_same_page(http: httpx.AsyncClient) -> None:
    new = await _rotated(await a_visitor(http, Origin=SHOP))
    assert not await _opens(new, Origin="https://vuelvo.example")
    assert await _opens(new, Origin=SHOP)


async def test_whoever_signs_out_leaves_no_token_that_opens_anything(visitor: Visitor, service: Service) -> None:
    new = await _rotated(visitor)
    signed_out = await visitor.ask("DELETE", "sessions")
    assert (signed_out.status_code, signed_out.content) == (204, b"")
    assert [await _opens(each) for each in (visitor, new)] == [False, False]
    assert (await visitor.ask("DELETE", "sessions")).status_code == 401


async def test_another_visitors_session_is_not_ended(http: httpx.AsyncClient, visitor: Visitor) -> None:
    another, elsewhere = await a_visitor(http), await a_visitor(http, "other")
    assert (await replace(elsewhere, tenant="acme").ask("DELETE", "sessions")).status_code == 401
    assert (await another.ask("DELETE", "sessions")).status_code == 204
    assert [await _opens(each) for each in (visitor, elsewhere, another)] == [True, True, False]


async def test_sessions_that_open_nothing_any_more_are_deleted(http: httpx.AsyncClient, service: Service) -> None:
    visitors = [await a_visitor(http) for _ in range(5)]
    idle, old, signed_out, just_now, _ = visitors
    await signed_out.ask("DELETE", "sessions")
    await _time_passes(service.database, minutes=61)
    await just_now.ask("DELETE", "sessions")
    for visitor, column, age in ((idle, "used_at", IDLE), (old, "created_at", ABSOLUTE)):
        async with service.database.transaction() as connection:
            await connection.execute(
                text(
                    f"update web_sessions set {column} = now() - cast(:age as interval) where conversation = :conversation"
                ),
                {"age": age + timedelta(seconds=1), "conversation": visitor.conversation},
            )
    assert await delete_old(service.database, batch=2) == 3
    async with service.database.transaction() as connection:
        left = set(await connection.scalars(select(web_sessions.c.conversation)))
    assert left == {each.conversation for each in visitors[3:]}


def test_the_page_says_how_long_a_conversation_can_be_opened_again() -> None:
    page = (Path(__file__).parents[2] / "docs/widget.md").read_text()
    assert f"for {IDLE.days} days after its last use" in page
    assert f"{ABSOLUTE.days} days in all" in page


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


async def test_whoever_waited_while_a_visitor_signed_in_finds_their_session_ended(
    visitor: Visitor, service: Service
) -> None:
    """By the time its transaction began it still lived; what counts is when it looks."""
    life, visit = SessionSection(), Visit(SHOP, None, 10)
    async with service.database.transaction() as late:
        await late.execute(text("select now()"))
        async with service.database.transaction() as connection:
            token = visitor.headers["Authorization"].removeprefix("Bearer ")
            held = await find_session(connection, "acme", token, origin=None, life=life)
            assert held is not None
            ana = await sign_in(connection, "acme", Identity("ana"), held, visit, service.web.merge)
        assert await rotate(late, "acme", held, life=life) is None
        eva = await sign_in(late, "acme", Identity("eva"), held, visit, service.web.merge)
    assert ana.conversation == visitor.conversation
    assert eva.conversation != ana.conversation
    async with service.database.transaction() as connection:
        for opened in (ana, eva):
            found = await find_session(connection, "acme", opened.token, origin=SHOP, life=life)
            assert found is not None
            assert found.conversation == opened.conversation
