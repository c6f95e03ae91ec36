"""`vuelvo keys`: made, listed and taken back."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from app.tenants_file import to_stored
from scheduler.task import OWN
from store import api_keys, tenants
from store.database import Database
from store.secrets import SecretBox
from tests.support.house import a_config
from tests.support.loaded import VUELVO
from tests.support.shell import KEY, Shell


@pytest.fixture
async def shell(tmp_path: Path, database_url: str, database: Database) -> Shell:
    """A command line where there are two tenants."""
    async with database.transaction() as connection:
        for name in ("acme", "globex"):
            await tenants.apply(connection, name, to_stored(a_config(name), SecretBox(KEY.encode())), [])
    return Shell(tmp_path, database_url)


async def opens(database: Database, key: str) -> tuple[str, list[str]] | None:
    async with database.transaction() as connection:
        found = await api_keys.find(connection, key)
    return None if found is None else (found.tenant, list(found.scopes))


async def test_a_key_is_printed_once_alone_on_a_line_of_standard_output(
    shell: Shell, database: Database, database_url: str
) -> None:
    """Started anew, apart from the others, since the two outputs are told apart."""
    made = await asyncio.create_subprocess_exec(
        *(VUELVO, "keys", "create", "--tenant", "acme", "--name", "the shop's server"),
        cwd=shell.directory,
        env={**os.environ, "VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, rest = (told.decode() for told in await made.communicate())
    assert made.returncode == 0, rest
    (key,) = out.splitlines()
    assert await opens(database, key) == ("acme", ["book", "read", "cancel"])
    assert key not in rest
    assert "shown this once" in rest
    code, listed = await shell.run("keys", "list")
    assert (code, key in listed, "the shop's server" in listed) == (0, False, True)


async def test_a_key_has_the_scopes_it_was_given_and_no_more(shell: Shell, database: Database) -> None:
    made = await shell.json("keys", "create", "--tenant", "acme", "--scopes", "cancel, read")
    assert (made["tenant"], made["scopes"], made["name"]) == ("acme", ["read", "cancel"], "")
    assert await opens(database, made["key"]) == ("acme", ["read", "cancel"])
    (listed,) = await shell.json("keys", "list", "--tenant", "acme")
    assert (listed["id"], listed["scopes"], listed["revoked_at"]) == (made["id"], ["read", "cancel"], None)
    assert set(listed) == {"id", "tenant", "name", "scopes", "created_at", "revoked_at"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", listed["created_at"])


async def test_a_revoked_key_opens_nothing_stays_listed_and_the_others_still_open(
    shell: Shell, database: Database
) -> None:
    first, second = [await shell.json("keys", "create", "--tenant", name) for name in ("acme", "globex")]
    assert (await shell.run("keys", "revoke", first["id"], "--tenant", "globex"))[0] == 2, "it is not theirs"
    assert await opens(database, first["key"]) is not None
    assert await shell.run("keys", "revoke", first["id"], "--tenant", "acme") == (
        0,
        f"{first['id']} opens nothing any more",
    )
    assert await opens(database, first["key"]) is None
    assert await opens(database, second["key"]) is not None
    listed = await shell.json("keys", "list")
    assert [(row["tenant"], row["revoked_at"] is None) for row in listed] == [("acme", False), ("globex", True)]
    code, said = await shell.run("keys", "revoke", first["id"], "--tenant", "acme")
    assert code == 2
    assert "vuelvo keys list --tenant acme" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("create", "--tenant", "nobody"), "there is no tenant 'nobody': see vuelvo tenants list"),
        (("create", "--tenant", OWN), f"there is no tenant '{OWN}'"),
        (("create",), "--tenant"),
        (("create", "--tenant", "acme", "--scopes", "book,sing"), "there is no scope 'sing': give some of book,read"),
        (("create", "--tenant", "acme", "--scopes", ","), "a key without a scope opens nothing"),
        (("create", "--tenant", "acme", "--name", "n" * 201), "201 characters"),
        (("list", "--tenant", "nobody"), "there is no tenant 'nobody'"),
        (("revoke", "0123456789", "--tenant", "acme"), "no key '0123456789' that opens anything"),
        (("revoke", "0123456789", "--tenant", "nobody"), "there is no tenant 'nobody'"),
        (("revoke", "0123456789"), "--tenant"),
    ],
)
async def test_what_is_asked_wrongly_ends_with_2_and_makes_nothing(
    shell: Shell, database: Database, words: tuple[str, ...], problem: str
) -> None:
    code, said = await shell.run("keys", *words)
    assert (code, problem in said) == (2, True), said
    async with database.transaction() as connection:
        assert await api_keys.all_of(connection, None) == []
