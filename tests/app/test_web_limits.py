"""How much is taken from one visitor and from one address, in how many processes they ask whatever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from app.http import application
from store.database import Database
from tests.support.house import House, a_house
from web_widget.sessions import web_sessions

HOME = "203.0.113.7"


@dataclass(frozen=True)
class Net:
    """Whoever asks from one address."""

    http: httpx.AsyncClient

    async def opens(self, tenant: str = "acme", **told: Any) -> httpx.Response:
        return await self.http.post(f"/widget/{tenant}/sessions", json=told)

    async def visitor(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(await self.opens()).json()['token']}"}

    async def writes(self, visitor: dict[str, str], client_id: str) -> httpx.Response:
        body = {"text": client_id, "client_id": client_id}
        return await self.http.post("/widget/acme/messages", json=body, headers=visitor)


@asynccontextmanager
async def a_net(house: House, host: str = HOME) -> AsyncIterator[Net]:
    transport = httpx.ASGITransport(application(house.run), client=(host, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://vuelvo.test") as http:
        yield Net(http)


def limits(**most: int) -> dict[str, Any]:
    return {"channels": {"web": {"limits": most}}}


def is_too_many(answer: httpx.Response) -> int:
    """Return after how many seconds one more is let in."""
    assert (answer.status_code, answer.json()["type"]) == (429, "too-many")
    return int(answer.headers["retry-after"])


async def goes_by(database: Database, seconds: float) -> None:
    """As if all that was written was written so long ago."""
    async with database.transaction() as connection:
        for table, column in (("messages", "at"), ("web_sessions", "created_at")):
            statement = text(f"update {table} set {column} = {column} - make_interval(secs => :seconds)")
            await connection.execute(statement, {"seconds": seconds})


async def test_sixty_messages_are_taken_in_a_minute_and_one_more_when_it_was_told(
    database: Database, tmp_path: Path
) -> None:
    async with a_house(database, tmp_path, poll=False) as house, a_net(house) as net:
        visitor, another = await net.visitor(), await net.visitor()
        for number in range(60):
            assert (await net.writes(visitor, f"message {number}")).status_code == 202
            if number == 29:
                await goes_by(database, 20)
        wait = is_too_many(await net.writes(visitor, "one more"))
        assert 30 <= wait <= 40
        assert (await net.writes(another, "hello")).status_code == 202
        await goes_by(database, wait - 10)
        assert is_too_many(await net.writes(visitor, "one more")) <= 10
        await goes_by(database, 10)
        assert (await net.writes(visitor, "one more")).status_code == 202


async def test_a_repeat_is_never_refused(database: Database, tmp_path: Path) -> None:
    async with (
        a_house(database, tmp_path, poll=False, config=limits(messages_a_minute=2)) as house,
        a_net(house) as net,
    ):
        visitor = await net.visitor()
        seqs = [(await net.writes(visitor, name)).json()["seq"] for name in ("one", "two")]
        is_too_many(await net.writes(visitor, "three"))
        again = [await net.writes(visitor, name) for name in ("one", "two")]
        assert [(answer.status_code, answer.json()["seq"]) for answer in again] == [(200, seqs[0]), (200, seqs[1])]


async def test_of_the_last_message_sent_twice_at_once_neither_is_refused(database: Database, tmp_path: Path) -> None:
    async with (
        a_house(database, tmp_path, poll=False, config=limits(messages_a_minute=1)) as house,
        a_net(house) as net,
    ):
        visitor = await net.visitor()
        answers = await asyncio.gather(*(net.writes(visitor, "one") for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200] * 7 + [202]


async def test_the_limit_is_one_for_all_processes(database: Database, tmp_path: Path) -> None:
    config = limits(messages_a_minute=10, sessions_an_hour=15)
    async with (
        a_house(database, tmp_path, poll=False, config=config) as one,
        a_house(database, tmp_path, poll=False, config=config) as two,
        a_net(one) as here,
        a_net(two) as there,
    ):
        visitor = await here.visitor()
        answers = await asyncio.gather(
            *((here, there)[number % 2].writes(visitor, str(number)) for number in range(30))
        )
        assert sorted(answer.status_code for answer in answers) == [202] * 10 + [429] * 20
        opened = await asyncio.gather(*((here, there)[number % 2].opens() for number in range(30)))
        assert sorted(answer.status_code for answer in opened) == [201] * 14 + [429] * 16


async def test_120_sessions_are_opened_in_an_hour_and_one_more_when_it_was_told(
    database: Database, tmp_path: Path
) -> None:
    async with (
        a_house(database, tmp_path, poll=False) as house,
        a_net(house) as net,
        a_net(house, "198.51.100.1") as other,
    ):
        for number in range(120):
            assert (await net.opens()).status_code == 201
            if number == 0:
                await goes_by(database, 1800)
        wait = is_too_many(await net.opens())
        assert 1700 <= wait <= 1800
        assert (await other.opens()).status_code == 201
        await goes_by(database, wait - 60)
        assert is_too_many(await net.opens()) <= 60
        await goes_by(database, 60)
        assert (await net.opens()).status_code == 201
        is_too_many(await net.opens())


async def test_whoever_signs_out_or_rotates_does_not_get_around_it(database: Database, tmp_path: Path) -> None:
    async with (
        a_house(database, tmp_path, poll=False, config=limits(sessions_an_hour=3)) as house,
        a_net(house) as net,
    ):
        signed_out, rotated = await net.visitor(), await net.visitor()
        assert (await net.http.delete("/widget/acme/sessions", headers=signed_out)).status_code == 204
        for _ in range(12):
            answer = await net.http.post("/widget/acme/sessions/rotate", headers=rotated)
            rotated = {"Authorization": f"Bearer {answer.json()['token']}"}
            assert (await net.http.get("/widget/acme/messages", headers=rotated)).status_code == 200
        assert (await net.opens()).status_code == 201
        is_too_many(await net.opens())


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (HOME, HOME, True),
        (HOME, "203.0.113.8", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        (f"::ffff:{HOME}", HOME, True),
        ("::ffff:203.0.113.8", f"::ffff:{HOME}", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        (f"{HOME}:54321", HOME, True),
        (f"{HOME}:54321", "203.0.113.8:54321", False),
        ("[2001:db8:1:2::1]:443", "2001:db8:1:2::2", True),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::2", True),
    ],
)
async def test_an_address_is_one_of_ipv4_or_a_network_of_ipv6(
    database: Database, tmp_path: Path, one: str, other: str, is_same: bool
) -> None:
    async with (
        a_house(database, tmp_path, poll=False, config=limits(sessions_an_hour=1)) as house,
        a_net(house, one) as here,
        a_net(house, other) as there,
    ):
        assert (await here.opens()).status_code == 201
        assert (await there.opens()).status_code == (429 if is_same else 201)


async def test_of_an_address_nothing_is_kept_that_tells_it(database: Database, tmp_path: Path) -> None:
    async with a_house(database, tmp_path, poll=False) as house, a_net(house) as net:
        await net.opens("acme")
        await net.opens("demo")
        async with database.transaction() as connection:
            rows = (await connection.execute(select(web_sessions))).all()
    assert HOME not in str(rows)
    assert len({bytes(row.address) for row in rows}) == len(rows)


async def test_a_claim_in_a_header_does_not_get_around_it(database: Database, tmp_path: Path) -> None:
    async with (
        a_house(database, tmp_path, poll=False, config=limits(sessions_an_hour=1)) as house,
        a_net(house) as net,
    ):
        answers = [
            await net.http.post("/widget/acme/sessions", headers={"X-Forwarded-For": f"198.51.100.{number}"})
            for number in range(3)
        ]
        assert [answer.status_code for answer in answers] == [201, 429, 429]
