"""The command line, as processes on a database of their own."""

import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from app.cli.run import PlainLines
from scheduler.clock import Clock
from store.database import Database
from tests.support.factories import a_conversation, a_followup, a_turn
from tests.support.process import start
from tests.support.shell import TOKEN, Shell

ACME = """\
tenant: acme
name: Acme
time_zone: America/Bogota
languages: [es, en]
channels:
  telegram:
    token: ${ACME_TOKEN}
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return Shell(tmp_path, database_url)


async def test_each_command_finds_all_it_needs_when_it_is_started_by_itself(shell: Shell) -> None:
    """The others call one that is loaded. Serve and work, templates, telegram, keys and mcp are started anew where they are tested."""
    for words, answer in (
        (["migrate"], ""),
        (["tenants", "list"], "demo"),
        (["doctor"], "ok   database"),
        (["tasks", "list"], "nothing"),
        (["chat", "--stay", "0"], "Write, for example"),
    ):
        code, said = await shell.run_anew(*words)
        assert (code, answer in said) == (0, True), f"{words}: {code} {said}"


async def test_a_tenant_is_applied_listed_and_shown_without_its_secrets(shell: Shell) -> None:
    (shell.directory / "acme.yaml").write_text(ACME)
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, "acme: applied")
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, "acme: unchanged")
    assert [(row["tenant"], row["channels"]) for row in await shell.json("tenants", "list")] == [
        ("acme", "web, telegram"),
        ("demo", "web"),
    ]
    code, shown = await shell.run("tenants", "show", "acme")
    assert code == 0
    assert TOKEN not in shown
    assert json.loads(shown)["time_zone"] == "America/Bogota"


async def test_an_apply_says_which_channels_and_which_languages_of_templates_it_takes_away(shell: Shell) -> None:
    file = shell.directory / "acme.yaml"
    templates = "".join(
        f"      - {{sid: HX{digit * 32}, language: {language}}}\n"
        for digit, language in (("1", "es"), ("2", "es"), ("3", "en"))
    )
    twilio = f"  whatsapp:\n    account_sid: AC{'0' * 32}\n    auth_token: t\n    sender: '+14155238886'\n"
    file.write_text(f"{ACME}{twilio}    templates:\n{templates}")
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, "acme: applied")
    file.write_text(f"{ACME}{twilio}    templates:\n{templates.splitlines()[2]}\n")
    said = "acme: applied; no longer with a template in es"
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, said)
    file.write_text(ACME.split("channels:")[0] + "channels:\n  web: null\n" + twilio)
    said = "acme: applied; no longer on web, telegram; no longer with a template in en"
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, said)
    file.write_text(ACME)
    assert await shell.run("tenants", "apply", "acme.yaml") == (0, "acme: applied; no longer on whatsapp")


async def test_a_broken_file_is_one_clear_line_and_applies_nothing(shell: Shell) -> None:
    (shell.directory / "good.yaml").write_text(ACME)
    (shell.directory / "bad.yaml").write_text("tenant: bad\nname: Bad\ntime_zone: Bogota\nchanels: {}\n")
    code, said = await shell.run("tenants", "apply", "good.yaml", "bad.yaml")
    assert code == 2
    assert "bad.yaml:3: time_zone" in said
    assert "bad.yaml:4: chanels" in said
    assert [row["tenant"] for row in await shell.json("tenants", "list")] == ["demo"]


async def test_a_bot_of_another_tenant_is_refused(shell: Shell) -> None:
    (shell.directory / "acme.yaml").write_text(ACME)
    (shell.directory / "rival.yaml").write_text(ACME.replace("acme", "rival").replace("Acme", "Rival"))
    assert (await shell.run("tenants", "apply", "acme.yaml"))[0] == 0
    code, said = await shell.run("tenants", "apply", "rival.yaml")
    assert code == 2
    assert "already belongs to tenant 'acme'" in said
    assert TOKEN not in said
    assert [row["tenant"] for row in await shell.json("tenants", "list")] == ["acme", "demo"]


async def test_tasks_are_listed_looked_at_and_cancelled(shell: Shell, database: Database) -> None:
    clock = Clock()
    async with database.transaction() as connection:
        booked = await a_followup(connection, clock, await a_conversation(connection), due=timedelta(hours=1))
    (listed,) = await shell.json("tasks", "list")
    assert (listed["id"], listed["state"], listed["tenant"]) == (booked.id, "scheduled", "acme")
    assert "payload" not in listed
    whole = await shell.json("tasks", "get", str(booked.id), "--payload")
    assert whole["payload"] == {"about": "call Ana"}
    assert await shell.json("tasks", "cancel", str(booked.id)) == {"cancelled": [booked.id], "raced": []}
    code, said = await shell.run("tasks", "cancel", str(booked.id))
    assert (code, "is cancelled" in said) == (2, True)
    code, said = await shell.run("tasks", "get", "999999")
    assert (code, said) == (2, "vuelvo: there is no task 999999")
    assert await shell.json("tasks", "list") == []


async def test_the_doctor_says_what_is_well_and_what_is_not(shell: Shell) -> None:
    assert await shell.run("migrate") == (0, "the schema is at 0014, as before")
    checks = {check["check"]: check["ok"] for check in await shell.json("doctor")}
    assert checks["database"]
    assert checks["schema"]
    code, said = await shell.run("doctor", VUELVO_MODEL="nobody:knows-it")
    assert code != 0
    assert "VUELVO_MODEL" in said


@pytest.mark.parametrize(
    ("public_url", "warns"),
    [("http://bot.example", True), ("https://bot.example", False), ("http://localhost:8000", False)],
)
async def test_the_doctor_warns_of_a_public_address_that_no_webhook_comes_to(
    shell: Shell, public_url: str, warns: bool
) -> None:
    code, said = await shell.run("doctor", VUELVO_PUBLIC_URL=public_url)
    warning = (
        "warn public address: VUELVO_PUBLIC_URL is http://bot.example: Telegram and Twilio refuse http, make it https"
    )
    assert (code, warning in said, "public address" in said) == (0, warns, warns)


async def test_the_doctor_sees_that_nobody_does_what_is_due_and_a_whatsapp_that_nobody_can_call(
    shell: Shell, database: Database
) -> None:
    sid, token = "AC" + "0" * 32, "1" * 32
    file = shell.directory / "twilio.yaml"
    file.write_text(
        "tenant: acme\nname: Acme\ntime_zone: UTC\nlanguages: [en]\nchannels:\n  whatsapp:\n"
        f"    account_sid: {sid}\n    auth_token: '{token}'\n    sender: '+14155238886'\n"
    )
    assert (await shell.run("tenants", "apply", "twilio.yaml"))[0] == 0
    async with database.transaction() as connection:
        await a_turn(connection, Clock(), await a_conversation(connection), due=timedelta(minutes=-2))
    code, said = await shell.run("doctor")
    assert code == 1
    assert "BAD  tenant acme: whatsapp is not heard: set VUELVO_PUBLIC_URL" in said
    assert "BAD  tasks: 1 scheduled; one has been due for 12" in said
    assert "start vuelvo serve or vuelvo work" in said


async def test_the_doctor_warns_of_a_page_that_others_can_read_along(shell: Shell) -> None:
    (shell.directory / "shop.yaml").write_text(
        "tenant: acme\nname: Acme\ntime_zone: UTC\nchannels:\n  web:\n"
        "    origins: ['http://shop.example', 'https://shop.example', 'http://localhost:3000', 'null']\n"
    )
    assert (await shell.run("tenants", "apply", "shop.yaml"))[0] == 0
    code, said = await shell.run("doctor")
    assert code == 0
    assert said.count("comes without https") == 1
    assert "warn tenant acme: the page http://shop.example comes without https" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("tasks", "list", "--status", "lost"), "lost"),
        (("tasks", "list", "--tenant", "nobody"), "there is no tenant 'nobody': see vuelvo tenants list"),
        (("tasks", "get", "abc"), "abc"),
        (("tenants", "show", "nobody"), "nobody"),
        (("tenants", "apply", "missing.yaml"), "missing.yaml"),
        (("chat", "--tenant", "nobody"), "nobody"),
        (("sing",), "sing"),
    ],
)
async def test_a_bad_argument_is_named_and_exits_with_2(shell: Shell, words: tuple[str, ...], problem: str) -> None:
    code, said = await shell.run(*words)
    assert code == 2
    assert problem in said


async def test_a_database_that_is_no_database_is_waited_for_and_said_so(shell: Shell) -> None:
    process = await shell.start("work", VUELVO_DATABASE_URL="postgresql://nobody:secret-word@127.0.0.1:1/none")
    line = await process.until_said("cannot be used yet")
    assert "secret-word" not in line
    assert await process.stop() in (0, 130, -15)


async def test_in_the_terminal_what_falls_due_appears_and_ctrl_c_leaves_cleanly(shell: Shell) -> None:
    chat = await shell.start("chat", can_write=True)
    await chat.until_said("Ctrl-C")
    chat.write("remind me in 2 seconds to call Ana")
    assert "call Ana" in await chat.until_said("I'll remind you")
    await chat.until_said("] Reminder: call Ana")
    chat.interrupt()
    assert await chat.ended() in (0, 130)
    assert not [line for line in chat.said if "Traceback" in line]


@pytest.mark.parametrize("words", [("doctor",), ("tasks", "list"), ("tenants", "list"), ("migrate",)])
async def test_what_needs_a_database_ends_when_there_is_none(shell: Shell, words: tuple[str, ...]) -> None:
    code, said = await shell.run(*words, VUELVO_DATABASE_URL="postgresql://nobody:secret-word@127.0.0.1:1/none")
    assert code == 1
    assert "cannot be used" in said
    assert "secret-word" not in said


async def test_another_secret_key_than_the_stored_secrets_were_sealed_with_is_refused_at_the_start(
    shell: Shell,
) -> None:
    other = {"VUELVO_SECRET_KEY": "another secret key than the one before", "VUELVO_PORT": "0"}
    (shell.directory / "acme.yaml").write_text(ACME)
    await shell.run("migrate")
    assert (await shell.run("tenants", "apply", "acme.yaml"))[0] == 0
    for words in (("serve",), ("serve", "--no-poller"), ("work",), ("chat",), ("tenants", "list")):
        code, said = await shell.run(*words, **other)
        (line,) = said.splitlines()
        assert code == 2, words
        assert line.startswith("vuelvo: ")
        assert "VUELVO_SECRET_KEY" in line
        assert "vuelvo tenants apply" in line
    code, said = await shell.run("doctor", **other)
    assert (code, "VUELVO_SECRET_KEY" in said) == (1, True)
    assert (await shell.run("tenants", "apply", "acme.yaml", **other))[0] == 0, "the way out"
    assert (await shell.run("tenants", "list", **other))[0] == 0


async def test_a_database_that_is_newer_than_the_program_is_one_clear_line(shell: Shell, database: Database) -> None:
    async with database.transaction() as connection:
        await connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    for words in (("migrate",), ("serve",), ("tasks", "list")):
        code, said = await shell.run(*words, VUELVO_PORT="0")
        (line,) = said.splitlines()
        assert (code, "use the version that made it" in line) == (1, True)


async def test_a_key_file_that_is_damaged_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / ".vuelvo").mkdir()
    (tmp_path / ".vuelvo/secret.key").write_text("short")
    process = await start("chat", directory=tmp_path)
    assert await process.ended() == 2
    assert "secret.key is damaged" in process.said[-1]
    assert not any("Traceback" in line for line in process.said)


def test_what_is_logged_of_somebody_s_words_stays_in_its_line() -> None:
    record = logging.LogRecord("vuelvo", logging.INFO, "", 1, "it says %s", ("a\nWARNING vuelvo: b \x1b[2J",), None)
    line = PlainLines("%(levelname)s %(name)s: %(message)s").format(record)
    assert line == "INFO vuelvo: it says a\\nWARNING vuelvo: b \\x1b[2J"
