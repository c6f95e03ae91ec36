"""Keys to the API: what opens, what does not, and that a key itself is nowhere."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from store import api_keys, tenants
from store.database import Database


@pytest.fixture
async def key(database: Database) -> str:
    """A key of acme, where there is another tenant whose name begins alike."""
    async with database.transaction() as connection:
        for name in ("acme", "acme-2"):
            await tenants.apply(connection, name, {}, [])
        return (await api_keys.create(connection, "acme", name="shop"))[1]


async def whose(database: Database, token: str) -> str | None:
    async with database.transaction() as connection:
        found = await api_keys.find(connection, token)
    return None if found is None else found.tenant


async def test_a_key_says_whose_it_is_and_what_it_may(database: Database, key: str) -> None:
    async with database.transaction() as connection:
        found = await api_keys.find(connection, key)
    assert found is not None
    assert (found.tenant, found.name, list(found.scopes)) == ("acme", "shop", ["book", "read", "cancel"])
    assert (found.id, found.revoked_at) == (key.split("_")[2], None)
    assert found.created_at.tzinfo is not None


async def test_a_key_is_kept_as_a_hash_alone(database: Database, key: str) -> None:
    secret = key.split("_", 3)[3]
    async with database.transaction() as connection:
        (row,) = await connection.execute(text("select cast(k as text) as whole, hash from api_keys k"))
    assert secret not in row.whole
    assert secret.encode() not in bytes(row.hash)
    assert len(bytes(row.hash)) == 32


async def test_what_is_no_key_opens_nothing(database: Database, key: str) -> None:
    other = "A" if key[-1] != "A" else "B"
    for token in (
        "",
        "vk_acme",
        key[:-1],
        key[:-1] + other,
        key + "A",
        f" {key}",
        f"{key}\n",
        key.upper(),
        key.replace("vk_acme_", "vk_acme-2_"),
        key.replace("vk_acme_", "vk_ACME_"),
        key.replace("vk_acme_", "vk_nobody_"),
        key.replace(key.split("_")[2], "0123456789"),
        "vk_acme_\ud800",
        "vk_acme_" + "é" * 10 + "_" + "a" * 43,
    ):
        assert await whose(database, token) is None, token
    assert await whose(database, key) == "acme"


async def test_two_keys_are_never_alike_and_one_that_is_revoked_leaves_the_other_open(
    database: Database, key: str
) -> None:
    async with database.transaction() as connection:
        number, second = await api_keys.create(connection, "acme", scopes=["read"])
        assert await api_keys.revoke(connection, "acme-2", number) is False, "it is not theirs to revoke"
        assert await api_keys.revoke(connection, "acme", number) is True
        assert await api_keys.revoke(connection, "acme", number) is False, "it was already"
    assert second != key
    assert (await whose(database, second), await whose(database, key)) == (None, "acme")


async def test_a_tenant_s_keys_are_listed_the_oldest_first_the_revoked_too(database: Database, key: str) -> None:
    numbers = [key.split("_")[2]]
    for _ in range(2):
        async with database.transaction() as connection:
            numbers.append((await api_keys.create(connection, "acme"))[0])
    async with database.transaction() as connection:
        theirs = (await api_keys.create(connection, "acme-2"))[0]
        await api_keys.revoke(connection, "acme", numbers[1])
        mine, every = [await api_keys.all_of(connection, tenant) for tenant in ("acme", None)]
        assert await api_keys.all_of(connection, "nobody") == []
    assert [(one.id, one.revoked_at is None) for one in mine] == [
        (numbers[0], True),
        (numbers[1], False),
        (numbers[2], True),
    ]
    assert [one.id for one in every] == [*numbers, theirs]


async def test_a_key_is_of_a_tenant_that_there_is_and_goes_with_it(database: Database, key: str) -> None:
    with pytest.raises(IntegrityError):
        async with database.transaction() as connection:
            await api_keys.create(connection, "nobody")
    async with database.transaction() as connection:
        await connection.execute(text("delete from tenants where tenant = 'acme'"))
    assert await whose(database, key) is None
