"""Tenants, their senders, and who may receive for a bot."""

import asyncio

import pytest
from sqlalchemy import text

from store import tenants
from store.database import Database
from store.secrets import SecretBox
from store.tenants import SenderTaken
from tests.support.wait import eventually

BOT = ("telegram", "bot 1")
WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


async def apply(database: Database, tenant: str, config: dict[str, object], *senders: tuple[str, str]) -> bool:
    async with database.transaction() as connection:
        return await tenants.apply(connection, tenant, config, senders)


async def revision(database: Database, tenant: str = "acme") -> int | None:
    async with database.transaction() as connection:
        found = await tenants.find(connection, tenant)
        return found.revision if found else None


async def hold(database: Database, receiver: str, seconds: float = 60, sender: str = "bot 1") -> bool:
    async with database.transaction() as connection:
        return await tenants.hold_receiver(connection, "telegram", sender, receiver, seconds)


async def test_applying_says_whether_anything_changed_and_counts_revisions(database: Database) -> None:
    assert await apply(database, "acme", {"name": "Acme", "languages": ["es"]}) is True
    assert await apply(database, "acme", {"languages": ["es"], "name": "Acme"}) is False
    assert await revision(database) == 1
    assert await apply(database, "acme", {"name": "Acme", "languages": ["es", "en"]}) is True
    assert await revision(database) == 2
    async with database.transaction() as connection:
        found = await tenants.find(connection, "acme")
    assert found is not None
    assert found.config == {"name": "Acme", "languages": ["es", "en"]}


async def test_every_tenant_is_listed_by_name_and_an_unknown_one_is_none(database: Database) -> None:
    for name in ("zeta", "acme", "ñandú"):
        await apply(database, name, {})
    async with database.transaction() as connection:
        assert {tenant.tenant for tenant in await tenants.find_all(connection)} == {"acme", "zeta", "ñandú"}
        assert [t.tenant for t in await tenants.find_all(connection) if t.tenant.isascii()] == ["acme", "zeta"]
        assert await tenants.find(connection, "Acme") is None


async def test_a_sender_belongs_to_one_tenant_and_the_refused_one_is_left_as_it_was(database: Database) -> None:
    await apply(database, "acme", {}, BOT)
    await apply(database, "rival", {"name": "before"})
    with pytest.raises(SenderTaken, match=r"telegram sender bot 1 already belongs to tenant 'acme'"):
        await apply(database, "rival", {"name": "after"}, ("telegram", "bot 2"), BOT)
    assert await revision(database, "rival") == 1
    assert await apply(database, "acme", {"more": 1}, BOT, ("telegram", "bot 2")), (
        "bot 2 was not kept by the refused one"
    )


async def test_a_sender_that_is_given_up_is_free_for_another_tenant(database: Database) -> None:
    await apply(database, "acme", {}, BOT, ("whatsapp", "+1"))
    await apply(database, "acme", {}, ("whatsapp", "+1"))
    await apply(database, "rival", {}, BOT)
    with pytest.raises(SenderTaken, match="'rival'"):
        await apply(database, "acme", {}, BOT)
    with pytest.raises(SenderTaken, match="'acme'"):
        await apply(database, "rival", {}, ("whatsapp", "+1"))
    await apply(database, "acme", {})
    await apply(database, "rival", {}, ("whatsapp", "+1"))


async def test_the_same_name_on_two_channels_is_two_senders(database: Database) -> None:
    await apply(database, "acme", {}, ("whatsapp", "1"))
    await apply(database, "rival", {}, ("telegram", "1"))
    with pytest.raises(SenderTaken):
        await apply(database, "rival", {}, ("whatsapp", "1"))


async def test_of_two_tenants_that_ask_for_a_sender_at_once_one_gets_it(database: Database) -> None:
    both = await asyncio.gather(*(apply(database, name, {}, BOT) for name in ("acme", "rival")), return_exceptions=True)
    assert both.count(True) == 1
    (refused,) = (one for one in both if one is not True)
    assert isinstance(refused, SenderTaken)


async def test_a_sender_given_up_while_another_asks_for_it_goes_to_who_asks(database: Database) -> None:
    await apply(database, "acme", {}, BOT)

    async def is_waiting() -> bool:
        async with database.transaction() as connection:
            return bool(await connection.scalar(text(WAITING)))

    async with database.transaction() as giving_up:
        await tenants.apply(giving_up, "acme", {}, ())
        asking = asyncio.create_task(apply(database, "rival", {}, BOT))
        await eventually(is_waiting)
    async with asyncio.timeout(10):
        assert await asking is True
    assert await hold(database, "me")
    with pytest.raises(SenderTaken, match="'rival'"):
        await apply(database, "acme", {}, BOT)


async def test_one_process_at_a_time_receives_for_a_bot(database: Database) -> None:
    await apply(database, "acme", {}, BOT)
    assert await hold(database, "first")
    assert not await hold(database, "second")
    assert await hold(database, "first"), "it renews its own right"
    async with database.transaction() as connection:
        await tenants.release_receiver(connection, *BOT, "second")
    assert not await hold(database, "second"), "only the holder gives it back"
    async with database.transaction() as connection:
        await tenants.release_receiver(connection, *BOT, "first")
    assert await hold(database, "second")


async def test_the_right_to_receive_runs_out(database: Database) -> None:
    await apply(database, "acme", {}, BOT)
    assert await hold(database, "dead", seconds=-1)
    assert await hold(database, "alive")
    assert not await hold(database, "dead")


async def test_nobody_receives_for_a_bot_that_nobody_has(database: Database) -> None:
    assert not await hold(database, "me", sender="unknown")


async def test_of_many_that_ask_for_the_right_at_once_one_gets_it(database: Database) -> None:
    await apply(database, "acme", {}, BOT)
    got = await asyncio.gather(*(hold(database, f"process {n}") for n in range(8)))
    assert got.count(True) == 1


async def test_the_keys_with_which_anything_is_sealed_are_known_by_their_ids(database: Database) -> None:
    async def key_ids() -> set[str]:
        async with database.transaction() as connection:
            return await tenants.key_ids(connection)

    one, other = SecretBox(b"1" * 32), SecretBox(b"2" * 32)
    await apply(
        database, "plain", {"agent": {"instructions": 'Say "sealed:v1:00000000:word" and \\"sealed:v1:1:" to all.'}}
    )
    assert await key_ids() == set()
    await apply(database, "acme", {"channels": {"a": one.seal("acme", "a", "x"), "b": [one.seal("acme", "b", "y")]}})
    assert await key_ids() == {one.key_id}
    await apply(database, "globex", {"channels": {"a": other.seal("globex", "a", "x")}})
    assert await key_ids() == {one.key_id, other.key_id}
