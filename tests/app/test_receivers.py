"""Asking Telegram for messages: one process a bot, for as long as it should be asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.receivers import Receivers, is_polled
from app.wiring import apply_tenants
from store.database import Database
from store.signals import notify
from tests.support.house import House, a_config, a_house, settings
from tests.support.telegram_faults import serving
from tests.support.telegram_server import TelegramServer
from tests.support.wait import eventually

TOKEN = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
OTHER = "88:AAbbCCddEEffGGhhIIjjKKllMM-_"


def with_bot(token: str = TOKEN, **section: str) -> dict[str, Any]:
    return {"channels": {"telegram": {"token": token, **section}}}


@pytest.fixture
async def telegram() -> AsyncIterator[tuple[TelegramServer, str]]:
    server = TelegramServer()
    async with serving(server.app()) as url:
        yield server, url


@asynccontextmanager
async def receiving(house: House) -> AsyncIterator[asyncio.Event]:
    """Ask for messages as `vuelvo serve` does, for as long as the block runs or until the event is set."""
    stopping = asyncio.Event()
    asking = asyncio.create_task(Receivers(house.service, house.run.settings, stopping, look_every=0.05).run())
    try:
        yield stopping
    finally:
        stopping.set()
        await asking


async def all_is_heard(house: House, database_url: str) -> None:
    """Wait until every hint that another process, or a transaction of this one, gave before has arrived."""
    signals, other = house.service.signals, Database(database_url)
    await eventually(lambda: signals.is_alive)
    with signals.subscribe("the last") as last:
        async with other.transaction() as connection:
            await notify(connection, ["the last"])
        assert await last.wait(10)
    await other.close()


async def until_received(house: House, count: int) -> None:
    async def has() -> bool:
        async with house.service.database.transaction() as connection:
            return bool(await connection.scalar(text("select count(*) >= :n from messages"), {"n": count}))

    await eventually(has)


@pytest.mark.parametrize(
    ("section", "public_url", "polled"),
    [
        ({}, None, True),
        ({}, "https://bot.example", False),
        ({"receive": "polling"}, "https://bot.example", True),
        ({"receive": "webhook"}, None, False),
    ],
)
def test_a_bot_is_asked_where_no_webhook_can_bring_its_messages_or_where_its_tenant_says_so(
    tmp_path: Path, section: dict[str, str], public_url: str | None, polled: bool
) -> None:
    assert is_polled(a_config(**with_bot(**section)), settings(tmp_path, public_url=public_url)) is polled


def test_a_tenant_without_a_bot_is_not_asked_for(tmp_path: Path) -> None:
    assert not is_polled(a_config(), settings(tmp_path))


async def test_of_two_processes_one_asks_and_the_other_takes_over_when_it_stops(
    database: Database, tmp_path: Path, telegram: tuple[TelegramServer, str]
) -> None:
    server, url = telegram
    more: dict[str, Any] = {"poll": False, "config": with_bot(), "telegram_api_url": url}
    async with a_house(database, tmp_path, **more) as one, a_house(database, tmp_path, **more) as two:
        async with receiving(one) as stop:
            await eventually(lambda: server.count("getMe") == 1)
            async with receiving(two):
                for number in range(1, 11):
                    await server.says(f"message {number}", token=TOKEN)
                    await until_received(one, number)
                assert server.count("getMe") == 1, "each begins by asking who the bot is"
                assert server.count("getUpdates", 409) == 0
                stop.set()
                await eventually(lambda: server.count("getMe") == 2)
                await server.says("message 11", token=TOKEN)
                await until_received(two, 11)
        (turn,) = await one.tasks(kind="turn")
        said = [message.text for message in await one.log(turn.conversation or 0)]
        assert said == [f"message {number}" for number in range(1, 12)]


@pytest.mark.parametrize(("until", "asks"), [("1 hour", False), ("-1 second", True)])
async def test_a_process_that_died_is_followed_when_its_right_runs_out(
    database: Database, tmp_path: Path, telegram: tuple[TelegramServer, str], until: str, asks: bool
) -> None:
    server, url = telegram
    more: dict[str, Any] = {"poll": False, "telegram_api_url": url}
    async with a_house(database, tmp_path, config=with_bot(), **more) as house:
        # Of this one's bot nobody holds the right: once its message is here, everything was looked at.
        await apply_tenants(house.service, [a_config("globex", **with_bot(OTHER))])
        async with database.transaction() as connection:
            await connection.execute(
                text(
                    "update senders set receiver = 'dead', receiver_until = now() + cast(:until as interval)"
                    " where sender = '99'"
                ),
                {"until": until},
            )
        async with receiving(house):
            await server.says("for acme", token=TOKEN)
            await server.says("for globex", token=OTHER)
            await until_received(house, 2 if asks else 1)
        asked = {task.tenant for task in await house.tasks(kind="turn")}
    assert asked == ({"acme", "globex"} if asks else {"globex"})


async def test_a_tenant_is_asked_for_as_soon_as_it_has_a_bot_and_for_that_one_only(
    database: Database, tmp_path: Path, telegram: tuple[TelegramServer, str]
) -> None:
    server, url = telegram
    async with a_house(database, tmp_path, poll=False, telegram_api_url=url) as house, receiving(house):
        await apply_tenants(house.service, [a_config(**with_bot())])
        await server.says("hello", token=TOKEN)
        await until_received(house, 1)
        await apply_tenants(house.service, [a_config(**with_bot(OTHER))])
        await server.says("at the new bot", token=OTHER)
        await until_received(house, 2)
        await server.says("at the old bot", token=TOKEN)
        await server.says("at the new bot again", token=OTHER)
        await until_received(house, 3)
        (turn,) = await house.tasks(kind="turn")
        said = [message.text for message in await house.log(turn.conversation or 0)]
    assert said == ["hello", "at the new bot", "at the new bot again"]


async def test_a_tenant_that_cannot_be_read_keeps_no_other_from_being_asked_for(
    database: Database, tmp_path: Path, telegram: tuple[TelegramServer, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, url = telegram
    async with a_house(database, tmp_path, poll=False, config=with_bot(), telegram_api_url=url) as house:
        await apply_tenants(house.service, [a_config("aardvark", **with_bot(OTHER))])
        async with database.transaction() as connection:
            broken = (
                "update tenants set config = jsonb_set(config, '{time_zone}', '\"Mars\"') where tenant = 'aardvark'"
            )
            await connection.execute(text(broken))
        async with receiving(house):
            for number in (1, 2):
                await server.says("hello", token=TOKEN)
                await until_received(house, number)
    assert caplog.text.count("nothing is received for tenant aardvark") == 1


async def test_a_refused_token_is_not_asked_again_until_its_tenant_changes(
    database: Database, database_url: str, tmp_path: Path, telegram: tuple[TelegramServer, str]
) -> None:
    server, url = telegram
    server.revoked.add(TOKEN)
    async with a_house(database, tmp_path, poll=False, config=with_bot(), telegram_api_url=url) as house:
        await apply_tenants(house.service, [a_config("globex", **with_bot(OTHER))])
        await all_is_heard(house, database_url)
        async with receiving(house):
            await eventually(lambda: server.count("getMe", 401) == 1)
            for number in range(1, 6):
                await server.says("hello", token=OTHER)
                await until_received(house, number)
            await apply_tenants(house.service, [a_config(**with_bot("99:" + "n" * 30))])
            await server.says("hello", token="99:" + "n" * 30)
            await until_received(house, 6)
    assert server.count("getMe", 401) == 1


async def test_a_refused_bot_is_asked_again_once_another_process_applies_its_unchanged_file(
    database: Database,
    database_url: str,
    tmp_path: Path,
    telegram: tuple[TelegramServer, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, url = telegram
    server.revoked.add(TOKEN)
    more: dict[str, Any] = {"poll": False, "config": with_bot(), "telegram_api_url": url}
    async with a_house(database, tmp_path, **more) as house:
        await all_is_heard(house, database_url)
        async with receiving(house):
            again = (
                "tenant acme: its bot is asked again in 5 minutes, or as soon as its file is applied, changed or not"
            )
            await eventually(lambda: again in caplog.text)
            server.revoked.clear()
            other = Database(database_url)
            async with a_house(other, tmp_path, **more):
                pass  # it applies the same file, and ends at once
            await other.close()
            await server.says("hello", token=TOKEN)
            await until_received(house, 1)
    assert server.count("getMe", 401) == 1


async def test_a_database_that_is_away_or_any_surprise_is_survived(
    database: Database, tmp_path: Path, telegram: tuple[TelegramServer, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, url = telegram
    away = Database("postgresql://postgres@127.0.0.1:1/nowhere")
    async with a_house(database, tmp_path, poll=False, config=with_bot(), telegram_api_url=url) as house:
        house.service.database = away
        async with receiving(house):
            await eventually(lambda: "cannot look after the Telegram bots now" in caplog.text)
            del house.service.database
            await eventually(lambda: "looking after the Telegram bots failed" in caplog.text)
            house.service.database = database
            await server.says("hello", token=TOKEN)
            await until_received(house, 1)
    await away.close()
