"""`vuelvo renewals`: a broker's file is taken in, looked through and changed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from store.database import Database
from tests.app.test_docs import ROOT, blocks, lines, vuelvo
from tests.app.test_renewals import CONFIG
from tests.support.shell import Shell

YEAR = datetime.now(UTC).year + 1
"""Commands have the time of day, so what is due is due next year."""
HEAD = "Póliza;Vencimiento;Nombre;WhatsApp;Web;Car;Consentimiento\n"
LINES = [
    f"P-1;{YEAR}-03-01;Ana;+57 300 123 4567;;Fiat;sí",
    f"P-2;01/03/{YEAR};Luis;+573001234568;;Seat;no",
    f"P-3;25/04/{YEAR};Eva;;eva-7;Opel;",
]


class Broker(Shell):
    """A broker's shell, with a tenant of today's: due days are a year ahead of it."""

    def writes(self, *lines: str, name: str = "policies.csv") -> str:
        (self.directory / name).write_text(HEAD + "".join(f"{line}\n" for line in lines))
        return name

    async def imports(self, *words: str, name: str = "policies.csv") -> tuple[int, Any]:
        usual = ("--tenant", "acme", "--cadence", "policy", "--by", "eva")
        code, said = await self.run("renewals", "import", name, *usual, *words, "--json")
        return code, json.loads(said) if said.startswith("{") else said


@pytest.fixture
async def broker(tmp_path: Path, database_url: str) -> Broker:
    broker = Broker(tmp_path, database_url)
    tenant = {"tenant": "acme", "name": "Acme", "time_zone": "America/Bogota", "languages": ["es", "en"], **CONFIG}
    (tmp_path / "acme.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(tenant))))
    code, said = await broker.run("tenants", "apply", "acme.yaml")
    assert code == 0, said
    return broker


async def rows(database: Database) -> list[tuple[Any, ...]]:
    """Return all that is stored of renewals, each row with where it lies, which changes with every write."""
    async with database.transaction() as connection:
        return [
            tuple(row)
            for table in ("renewals", "renewal_events", "tasks", "task_events")
            for row in await connection.execute(
                text(f"select '{table}', ctid::text, xmin::text from {table} order by ctid")
            )
        ]


async def test_a_file_is_taken_in_once_and_the_same_again_writes_nothing(broker: Broker, database: Database) -> None:
    broker.writes(*LINES)
    code, told = await broker.imports("--dates", "d/m/y")
    assert (code, told) == (
        0,
        {"new": 3, "moved": 0, "changed": 0, "unchanged": 0, "refused": [], "not_written_to": 2},
    )
    before = await rows(database)
    code, told = await broker.imports("--dates", "D/M/Y")
    assert (code, told["unchanged"], told["not_written_to"]) == (0, 3, 2)
    assert await rows(database) == before

    broker.writes(LINES[0].replace("03-01", "04-01"), LINES[1].replace("Luis", "Luis A."), LINES[2])
    code, told = await broker.imports("--dates", "D/M/Y")
    assert (code, [told[name] for name in ("new", "moved", "changed", "unchanged")]) == (0, [0, 1, 1, 1])


async def test_broken_lines_are_told_by_number_and_the_others_are_taken_unless_it_is_strict(broker: Broker) -> None:
    broker.writes(*LINES, f"P-4;{YEAR}-03-01;Ana;300 123 4567;;Fiat;sí", f"P-1;{YEAR}-03-01;Ana;;ana;Fiat;")
    refused = [
        (3, f"due is 01/03/{YEAR}: that is two days, say --dates D/M/Y or M/D/Y"),
        (5, "whatsapp: write the number with a plus and its country's code, as in +34 600 000 001"),
        (6, "the subject 'P-1' is on line 2 already"),
    ]
    code, told = await broker.imports("--strict")
    assert (code, told["new"]) == (1, 0)
    assert [(one["line"], one["why"]) for one in told["refused"]] == refused
    assert await broker.json("renewals", "list", "--tenant", "acme") == []
    code, told = await broker.imports()
    assert (code, told["new"]) == (1, 2)
    assert [(one["line"], one["why"]) for one in told["refused"]] == refused
    words = ("renewals", "import", "policies.csv", "--tenant", "acme", "--cadence", "policy")
    code, said = await broker.run(*words)
    assert (code, said.splitlines()[:2]) == (
        1,
        ["0 new, 0 moved, 0 changed, 2 unchanged, 3 refused", f"line 3: {refused[0][1]}"],
    )
    assert "1 have neither agreed nor ever written" in said
    code, said = await broker.run(*words, "--strict")
    assert (code, said.splitlines()[0]) == (1, "3 refused, so nothing is taken")


async def test_a_hundred_refused_lines_are_shown_and_all_as_json(broker: Broker) -> None:
    broker.writes(*[f"P-{number};never;Ana;;ana;Fiat;" for number in range(120)])
    code, said = await broker.run("renewals", "import", "policies.csv", "--tenant", "acme", "--cadence", "policy")
    assert (code, len(said.splitlines()), "and 20 more; --json shows them all" in said) == (1, 102, True)
    assert len((await broker.imports())[1]["refused"]) == 120


async def test_more_than_a_batch_is_taken_whole(broker: Broker, database: Database) -> None:
    lines = [f"P-{number:04};{YEAR}-03-01;Ana;+57300{number:07};;Fiat;sí" for number in range(2500)]
    broker.writes(*lines)
    assert (await broker.imports())[1]["new"] == 2500
    async with database.transaction() as connection:
        booked = await connection.scalar(text("select count(distinct key) from tasks where state = 'scheduled'"))
    assert booked == 7500
    broker.writes(*[line.replace("03-01", "03-08") for line in lines])
    assert (await broker.imports())[1]["moved"] == 2500


async def test_a_sheet_and_a_calendar_are_taken_like_a_text(broker: Broker) -> None:
    from tests.app.test_renewal_files import EVENT, a_book, a_calendar  # noqa: PLC0415 - it loads both libraries

    (broker.directory / "a.xlsx").write_bytes(a_book(*(line.split(";") for line in [HEAD.strip(), *LINES[::2]])))
    (broker.directory / "a.ics").write_text(a_calendar(EVENT.replace("2027", f"{YEAR}")))
    assert (
        await broker.imports(
            name="a.xlsx",
        )
    )[1]["new"] == 2
    assert (await broker.imports(name="a.ics"))[1]["new"] == 1
    listed = await broker.json("renewals", "list", "--tenant", "acme")
    assert sorted((one["subject"], one["name"]) for one in listed) == [
        ("P-1", "Ana"),
        ("P-3", "Eva"),
        ("policy-17", "Ana"),
    ]


async def test_what_cannot_be_read_ends_with_two_and_what_to_do(broker: Broker) -> None:
    broker.writes(*LINES)
    for words, said in (
        (("none.csv", "--tenant", "acme"), "none.csv cannot be read: No such file"),
        (("policies.csv", "--tenant", "nobody"), "there is no tenant 'nobody'"),
        (("policies.csv", "--tenant", "acme", "--cadence", "yearly"), "there are: policy"),
        (("policies.csv", "--tenant", "acme", "--map", "Ramo=kind"), "--map names a column"),
        (("policies.csv", "--tenant", "acme", "--map", "Ramo"), "is not COLUMN=FIELD"),
        (("policies.csv", "--tenant", "acme", "--map", "Car=x", "--map", "Nombre=x"), "'Nombre' and 'Car' are both x"),
        (("policies.csv", "--tenant", "acme", "--dates", "Y/M/D"), "--dates"),
        (("acme.yaml", "--tenant", "acme"), "none of .csv, .xlsx and .ics"),
    ):
        code, told = await broker.run("renewals", "import", *words)
        assert (code, said in told) == (2, True), told


async def test_renewals_are_listed_by_state_and_day_shown_with_masked_addresses_and_closed(broker: Broker) -> None:
    broker.writes(*LINES)
    await broker.imports("--dates", "D/M/Y")
    listed = await broker.json("renewals", "list", "--tenant", "acme", "--due-before", f"{YEAR}-04-25")
    assert [(one["subject"], one["due"], one["agreed"]) for one in listed] == [
        ("P-1", f"{YEAR}-03-01", True),
        ("P-2", f"{YEAR}-03-01", False),
    ]
    code, said = await broker.run("renewals", "list", "--tenant", "acme")
    assert (code, "P-3" in said, "whatsapp" in said, "300123" in said) == (0, True, True, False)

    shown = await broker.json("renewals", "show", "P-1", "--tenant", "acme")
    assert shown["channels"] == {"whatsapp": "+57…67"}
    assert [(one["step"], one["state"]) for one in shown["steps"]] == [
        ("-6w", "scheduled"), ("-2w", "scheduled"), ("-3d", "scheduled")
    ]  # fmt: skip
    assert [(one["event"], one["by"]) for one in shown["events"]] == [("enrolled", "eva")]
    code, said = await broker.run("renewals", "show", "P-1", "--tenant", "acme")
    assert (code, "channels: whatsapp +57…67" in said, "fields: Car Fiat" in said or "fields: car Fiat" in said) == (
        0,
        True,
        True,
    )
    assert "-6w  scheduled" in said
    assert f"enrolled: {YEAR}-03-01 (eva)" in said

    words = ("renewals", "close", "P-1", "--tenant", "acme", "--as")
    assert await broker.run(*words, "renewed", "--why", "paid", "--by", "eva") == (0, "P-1: renewed")
    code, said = await broker.run(*words, "lost")
    assert (code, "no renewal 'P-1' is open" in said) == (2, True)
    assert [
        one["subject"] for one in await broker.json("renewals", "list", "--tenant", "acme", "--state", "renewed")
    ] == ["P-1"]
    shown = await broker.json("renewals", "show", "P-1", "--tenant", "acme")
    assert {one["state"] for one in shown["steps"]} == {"cancelled"}
    assert (shown["events"][-1]["event"], shown["events"][-1]["detail"]) == ("renewed", "paid")
    code, said = await broker.run("renewals", "show", "P-9", "--tenant", "acme")
    assert (code, "there is no renewal 'P-9'" in said) == (2, True)


async def test_every_command_of_the_page_does_what_it_says_on_the_files_it_shows(broker: Broker) -> None:
    page = ROOT / "docs/renewals.md"
    files = {"yaml": "acme.yaml", "csv": "policies.csv"}
    for language, shown in blocks(page, *files):
        (broker.directory / files[language]).write_text(shown.replace("2027", f"{YEAR}"))
    assert (await broker.run("tenants", "apply", "acme.yaml"))[0] == 0
    told: dict[str, str] = {}
    for _, block in blocks(page, "sh"):
        for words in filter(None, map(vuelvo, lines(block))):
            code, said = await broker.run(*(word.replace("2027", f"{YEAR}") for word in words))
            assert code == 0, said
            told.setdefault(words[1], said)
    assert "2 new" in told["import"]
    assert f"POL-17   {YEAR}-03-01" in told["list"]
    assert "-6w  scheduled" in told["show"]
    assert told["close"] == "POL-17: renewed"
