"""What a tenant knows can be taken out, of everybody or of one contact; and a database can be saved and brought back."""

import json
import os
import stat
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from app import renewals as enrolling
from scheduler.clock import MovableClock
from store.database import Database
from store.renewals import Wanted
from tests.app.test_erase import RENEWALS
from tests.support.house import House, a_house
from tests.support.model import Script, books
from tests.support.shell import Shell

NUMBER = "whatsapp:+573001234567"


@pytest.fixture
async def shop(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[tuple[House, int]]:
    """Ana, on the page, and Bea, who has booked a reminder; a policy of Ana's."""
    script = Script("Hello.", books("call Eva", delay="1 hour"), "Booked.")
    async with a_house(database, tmp_path, script.model, clock, config=RENEWALS) as house:
        ana = (await house.says("hello, «Ñandú»\nand more", name="Ana")).conversation
        await house.until_heard(ana, 1)
        clock.move(timedelta(seconds=2))
        bea = (await house.says("remind me", address="bea")).conversation
        await house.until_heard(bea, 1)
        wanted = [Wanted("p-1", date(2027, 3, 1), "policy", {"web": "ana"}, "Ana", fields={"car": "Fiat"})]
        await enrolling.enrol(house.service, await house.service.tenant_called("acme"), wanted, "a test")
        yield house, ana


async def lines(shell: Shell, *words: str) -> list[dict[str, Any]]:
    file = shell.directory / "out.jsonl"
    code, said = await shell.run("export", "--tenant", "acme", *words, str(file))
    assert code == 0, said
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_all_of_a_tenants_is_a_line_each_with_its_kind(
    shop: tuple[House, int], tmp_path: Path, database_url: str
) -> None:
    shell = Shell(tmp_path, database_url)
    found = await lines(shell)
    kinds = [one["kind"] for one in found]
    assert [kinds.count(kind) for kind in ("contact", "conversation", "message", "task", "renewal")] == [2, 2, 4, 4, 1]
    assert len(kinds) == 13
    first = next(one for one in found if one["kind"] == "message")
    assert (first["text"], first["role"], first["message_kind"]) == ("hello, «Ñandú»\nand more", "customer", "message")
    assert next(one for one in found if one.get("task_kind") == "followup")["payload"]["about"] == "call Eva"
    assert next(one for one in found if one["kind"] == "renewal")["fields"] == {"car": "Fiat"}
    assert all("bucket" not in one for one in found)
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o600
    assert not (tmp_path / "out.jsonl.part").exists()


async def test_one_contacts_is_theirs_alone(shop: tuple[House, int], tmp_path: Path, database_url: str) -> None:
    _, ana = shop
    shell = Shell(tmp_path, database_url)
    by_address = await lines(shell, "--channel", "web", "--contact", "ana")
    assert by_address == await lines(shell, "--conversation", str(ana))
    kinds = [one["kind"] for one in by_address]
    assert kinds == ["contact", "conversation", "message", "message", "task", "renewal"]
    (bea,) = [one for one in await lines(shell, "--channel", "web", "--contact", "bea") if one["kind"] == "contact"]
    assert bea["address"] == "bea"


async def test_it_is_written_whole_or_not_at_all_and_to_standard_output_where_that_is_asked_for(
    shop: tuple[House, int], tmp_path: Path, database_url: str
) -> None:
    shell = Shell(tmp_path, database_url)
    code, said = await shell.run("export", "--tenant", "acme", "-")
    assert (code, sum(line.startswith('{"kind"') for line in said.splitlines())) == (0, 13), said
    old = tmp_path / "kept.jsonl"
    old.write_text("as it was")
    for words in (["--tenant", "nobody"], ["--tenant", "acme", "--channel", "web", "--contact", "eva"]):
        assert (await shell.run("export", *words, str(old)))[0] == 2
    assert old.read_text() == "as it was"
    assert "kept.jsonl.part" not in os.listdir(tmp_path)
    code, said = await shell.run("export", "--tenant", "acme", str(tmp_path / "nowhere" / "x"))
    assert (code, "cannot be written" in said) == (2, True), said
    assert (await shell.run("export", "--tenant", "acme", "--contact", "ana", str(old)))[0] == 2
