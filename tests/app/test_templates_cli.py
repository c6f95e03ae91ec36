"""`vuelvo templates` and what `vuelvo doctor` says of templates, as processes, on a stand-in for Twilio."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from app.cli.templates import _lines
from app.tenants_file import load_file
from tests.support.shell import Shell
from tests.support.twilio_server import Accept, Drop, Reject, TwilioServer

READY = "Hola {{1}}, ya tenemos la respuesta sobre {{2}}. Toque el botón y la recibirá aquí."
FIRST, SECOND, THIRD = ("HX" + digit * 32 for digit in "123")
TOKEN = "twilio-auth-token"


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with TwilioServer(auth_token=TOKEN) as twilio:
        yield twilio


@pytest.fixture
def shell(tmp_path: Path, database_url: str, twilio: TwilioServer) -> Shell:
    shell = Shell(tmp_path, database_url)
    shell.sets(VUELVO_TWILIO_API_URL=twilio.url, VUELVO_PUBLIC_URL="https://bot.example", ACME_TWILIO_TOKEN=TOKEN)
    return shell


def file_of(twilio: TwilioServer, templates: str = "") -> str:
    return (
        "tenant: acme\nname: Acme\ntime_zone: America/Bogota\nlanguages: [es, en]\nchannels:\n  whatsapp:\n"
        f"    account_sid: {twilio.account_sid}\n    auth_token: ${{ACME_TWILIO_TOKEN}}\n    sender: '+14155238886'\n"
        f"{templates}"
    )


def named(sid: str, language: str = "es") -> str:
    return _lines({"sid": sid, "language": language, "variables": {"1": "name", "2": "about"}})


async def apply(shell: Shell, text: str) -> None:
    (shell.directory / "acme.yaml").write_text(text)
    code, said = await shell.run("tenants", "apply", "acme.yaml")
    assert code == 0, said


def words(**more: str | None) -> list[str]:
    usual: dict[str, str | None] = {
        "tenant": "acme", "name": "answer_ready", "language": "es", "body": READY, "button": "Ver la respuesta"
    }  # fmt: skip
    return [word for name, value in (usual | more).items() if value is not None for word in (f"--{name}", value)]


async def test_what_is_submitted_is_printed_as_the_file_takes_it_and_listed_until_it_is_approved(
    shell: Shell, twilio: TwilioServer
) -> None:
    await apply(shell, file_of(twilio))
    code, said = await shell.run_anew("templates", "submit", *words())
    assert code == 0, said
    (sid,) = twilio.contents
    assert said.startswith(f"{sid} is submitted as answer_ready in es: received at Meta.")
    assert f"vuelvo templates status {sid} --tenant acme says when" in said
    assert twilio.contents[sid].types["twilio/quick-reply"]["actions"][0]["title"] == "Ver la respuesta"

    printed = said[said.index("    templates:") : said.index("vuelvo templates status")]
    await apply(shell, file_of(twilio, printed))
    (config,) = load_file(shell.directory / "acme.yaml", {"ACME_TWILIO_TOKEN": TOKEN})
    assert config.channels.whatsapp is not None
    (template,) = config.channels.whatsapp.templates
    assert (template.sid, template.language) == (sid, "es")
    assert template.variables == {"1": "name", "2": "about"}

    here, gap = await shell.json("templates", "list", "--tenant", "acme")
    assert (here["sid"], here["status"], here["in_file"], here["body"]) == (sid, "received", True, READY)
    assert "received at Meta" in here["note"]
    assert (gap["sid"], gap["language"], gap["status"]) == (None, "en", "none")
    twilio.approvals[sid] = "approved"
    told = await shell.json("templates", "status", sid, "--tenant", "acme")
    assert (told["status"], told["name"], told["category"]) == ("approved", "answer_ready", "UTILITY")
    code, said = await shell.run("templates", "submit", *words())
    taken = f"vuelvo: --name: there is {sid} of this name in es already, approved at Meta"
    assert (code, said) == (2, f"{taken}: nothing was submitted: choose another --name")


async def test_the_list_marks_what_is_named_and_not_there_or_not_approved_and_what_the_file_lacks(
    shell: Shell, twilio: TwilioServer
) -> None:
    await apply(shell, file_of(twilio, named(FIRST) + named(SECOND).replace("    templates:\n", "")))
    twilio.has_template(SECOND, READY, language="es", status="rejected", rejection="TAG_CONTENT_MISMATCH")
    twilio.has_template(THIRD, "Hello {{1}}, it is ready.", language="en_US")
    rows = await shell.json("templates", "list", "--tenant", "acme")
    assert [(row["sid"], row["status"], row["in_file"]) for row in rows] == [
        (FIRST, "none", True),
        (SECOND, "rejected", True),
        (THIRD, "approved", False),
        (None, "none", False),
    ]
    notes = [row["note"] for row in rows]
    assert "not in this account" in notes[0]
    assert "TAG_CONTENT_MISMATCH" in notes[1]
    assert notes[2] == "the file names none in 'en'"
    assert "no template in 'en'" in notes[3]
    code, said = await shell.run("templates", "list", "--tenant", "acme")
    assert code == 0
    assert all(note in " ".join(said.split()) for note in notes)
    assert TOKEN not in said


async def test_places_may_be_said(shell: Shell, twilio: TwilioServer) -> None:
    await apply(shell, file_of(twilio))
    body = "Le recordamos esto, como nos pidió: {{1}} Estamos aquí para lo que necesite."
    more = words(body=body, button=None, place="1=text")
    code, said = await shell.run("templates", "submit", *more, "--category", "utility", "--json")
    assert code == 0, said
    assert json.loads(said)["template"]["variables"] == {"1": "text"}
    (made,) = twilio.contents.values()
    assert made.variables == {"1": "Su póliza vence el 1 de diciembre."}
    assert made.category == "UTILITY"


async def test_what_is_asked_wrongly_is_named_and_makes_nothing(shell: Shell, twilio: TwilioServer) -> None:
    await apply(shell, file_of(twilio))
    wrong: list[tuple[dict[str, str | None], list[str]]] = [
        ({"body": "{{1}}, hola.", "name": "No"}, ["--name: ", "--body: ", "Nothing was submitted."]),
        ({"language": "pt"}, ["--language: Meta has no plain Portuguese"]),
        ({"language": "pt_BR"}, ["--language: acme speaks es, en, not pt"]),
        ({"place": "1=phone"}, ["--place", "1=phone", "name, about, text"]),
        ({"place": "3=name"}, ["vuelvo: --place: say of each place in the body", "Nothing was submitted."]),
        ({"tenant": "demo"}, ["there is no tenant 'demo' with a WhatsApp channel"]),
        ({"category": "AUTHENTICATION"}, ["--category"]),
    ]
    for more, says in wrong:
        code, said = await shell.run("templates", "submit", *words(**more))
        assert code == 2, said
        assert all(one in said for one in says), said
    code, said = await shell.run("templates", "status", "HX12", "--tenant", "acme")
    assert (code, "is not the number of a template" in said) == (2, True)
    code, said = await shell.run("templates", "status", FIRST, "--tenant", "acme")
    assert (code, said) == (2, f"vuelvo: there is no template {FIRST} in this account: see vuelvo templates list")
    assert twilio.contents == {}


async def test_what_goes_wrong_at_twilio_is_one_line(shell: Shell, twilio: TwilioServer) -> None:
    await apply(shell, file_of(twilio))
    for fault, says in (
        (Reject(401, 20003, "Authenticate"), "Twilio does not accept the account SID and auth token"),
        (Drop(), "the answer of Twilio is lost"),
    ):
        twilio.behave_with_templates(fault)
        code, said = await shell.run("templates", "list", "--tenant", "acme")
        (line,) = said.splitlines()
        assert code == 1
        assert says in line
        assert TOKEN not in line
    twilio.behave_with_templates(Accept(), Accept(), Reject(400, 20001, "Too many templates"))
    code, said = await shell.run("templates", "submit", *words())
    assert (code, "Too many templates" in said, twilio.contents) == (1, True, {})


async def test_the_doctor_says_of_each_template_whether_it_is_approved(shell: Shell, twilio: TwilioServer) -> None:
    await apply(shell, file_of(twilio, named(FIRST) + named(SECOND, "en").replace("    templates:\n", "")))
    twilio.has_template(FIRST, READY, language="es")
    twilio.has_template(SECOND, READY, language="en", status="pending")
    code, said = await shell.run("doctor")
    assert code == 0, said
    assert f"ok   tenant acme: template {FIRST}: approved, in 'es'" in said
    assert f"warn tenant acme: template {SECOND}: pending at Meta: what needs it waits" in said
    twilio.approvals[FIRST] = "disabled"
    del twilio.contents[SECOND]
    code, said = await shell.run("doctor")
    assert code == 1
    assert f"BAD  tenant acme: template {FIRST}: disabled at Meta" in said
    assert f"BAD  tenant acme: template {SECOND}: named in the file, and not in this account" in said
    twilio.behave_with_templates(Drop())
    code, said = await shell.run("doctor")
    assert code == 1
    assert "BAD  tenant acme: Twilio does not tell its templates: the answer of Twilio is lost" in said
    assert TOKEN not in said


async def test_the_templates_of_a_cadence_s_steps_are_listed_and_looked_at_with_the_places_that_they_fill(
    shell: Shell, twilio: TwilioServer
) -> None:
    steps = [
        {
            "offset": offset,
            "text": {"es": "Vence el {due}."},
            "template": {"es": {"sid": sid, "values": {"1": "{due}"}}},
        }
        for offset, sid in (("-6w", SECOND), ("-2w", THIRD))
    ]
    await apply(shell, file_of(twilio, named(FIRST)) + yaml.safe_dump({"cadences": {"policy": {"steps": steps}}}))
    twilio.has_template(FIRST, READY, language="es")
    twilio.has_template(SECOND, "Vence el {{1}}.", language="es")
    twilio.has_template(THIRD, READY, language="es")
    code, said = await shell.run("doctor")
    assert code == 1
    assert f"ok   tenant acme: template {SECOND}: approved, in 'es'" in said
    assert f"BAD  tenant acme: template {THIRD}: its text has the places 1, 2, and the file fills 1" in said
    listed = await shell.json("templates", "list", "--tenant", "acme")
    assert [(one["sid"], one["in_file"]) for one in listed if one["sid"]] == [
        (FIRST, True),
        (SECOND, True),
        (THIRD, True),
    ]


async def test_the_doctor_finds_a_wrong_token_where_there_is_no_template_either(
    shell: Shell, twilio: TwilioServer
) -> None:
    shell.sets(ACME_TWILIO_TOKEN="another-token")
    await apply(shell, file_of(twilio))
    code, said = await shell.run("doctor")
    assert code == 1
    assert "Twilio does not accept the account SID and auth token" in said
    assert "another-token" not in said


async def test_the_doctor_warns_of_a_language_without_a_template_and_says_what_happens_then(
    shell: Shell, twilio: TwilioServer
) -> None:
    await apply(shell, file_of(twilio))
    code, said = await shell.run("doctor")
    assert code == 0, said
    assert "warn tenant acme: whatsapp has no template: a follow-up for later than 24 hours" in said
    await apply(shell, file_of(twilio, named(FIRST)))
    twilio.has_template(FIRST, READY, language="es")
    checks = await shell.json("doctor")
    (warning,) = [check for check in checks if check["warning"]]
    assert warning["ok"]
    assert "no template in 'en'" in warning["detail"]
    assert "for 30 days at most" in warning["detail"]
