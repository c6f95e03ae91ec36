"""What an operator is told of Telegram bots on the command line."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.doctor import look_at_bots
from channels.telegram.inbound import ALLOWED_UPDATES
from store.database import Database
from tests.support.house import a_config, settings
from tests.support.shell import TOKEN, Shell
from tests.support.telegram_faults import DROP, Answer, TelegramFaults, ok, refused, telegram_faults

PUBLIC = "https://bot.example"
HOOK = f"{PUBLIC}/hooks/telegram/acme"
AGAIN = "vuelvo telegram set-webhook --tenant acme"


@pytest.fixture
async def faults() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


def webhook(url: str = HOOK, waiting: int = 0, **more: Any) -> Answer:
    usual = {"has_custom_certificate": False, "allowed_updates": list(ALLOWED_UPDATES)}
    return ok({"url": url, "pending_update_count": waiting, **usual, **more})


FAILED: dict[str, Any] = {"last_error_date": 1, "last_error_message": "Connection refused"}
AUTO: dict[str, str] = {}


@pytest.mark.parametrize(
    ("answer", "section", "public_url", "is_well", "words"),
    [
        (webhook(), AUTO, PUBLIC, True, f"webhook {HOOK}; 0 updates waiting"),
        (webhook(**FAILED), AUTO, PUBLIC, True, "0 updates waiting; last error: Connection refused"),
        (webhook(waiting=3), AUTO, PUBLIC, True, "3 updates waiting"),
        (webhook(waiting=3, **FAILED), AUTO, PUBLIC, False, "Telegram does not get its updates delivered there"),
        (webhook(""), AUTO, PUBLIC, False, f"no webhook; 0 updates waiting; it should be {HOOK}: {AGAIN}"),
        (webhook("https://other.example/x"), AUTO, PUBLIC, False, f"it should be {HOOK}: {AGAIN}"),
        (webhook(allowed_updates=["message"]), AUTO, PUBLIC, False, f"it was set for other kinds of updates: {AGAIN}"),
        (webhook(allowed_updates=None), AUTO, PUBLIC, True, HOOK),
        (webhook(""), AUTO, None, True, "no webhook"),
        (webhook("https://old.example/x"), AUTO, None, False, "nothing is heard while that is set"),
        (webhook("https://old.example/x"), {"receive": "polling"}, PUBLIC, True, "webhook https://old.example/x"),
        (webhook(""), {"receive": "webhook"}, None, False, "set VUELVO_PUBLIC_URL"),
        (refused(401, "Unauthorized"), AUTO, PUBLIC, False, "refuses the token of bot 123456: put the one @BotFather"),
        (DROP, AUTO, PUBLIC, False, "Telegram does not tell the webhook of bot 123456 (TelegramNetworkError)"),
        (Answer(502, "<html>"), AUTO, PUBLIC, False, "Telegram does not tell the webhook of bot 123456"),
    ],
)
async def test_a_bots_webhook_is_shown_and_judged(
    tmp_path: Path,
    faults: TelegramFaults,
    answer: Answer | str,
    section: dict[str, str],
    public_url: str | None,
    is_well: bool,
    words: str,
) -> None:
    noted: list[tuple[str, bool, str]] = []
    faults.begin(answer)
    config = a_config(channels={"telegram": {"token": TOKEN, **section}})
    told = settings(tmp_path, public_url=public_url, telegram_api_url=faults.url)
    await look_at_bots([a_config("globex"), config], told, lambda *one: noted.append(one))
    ((check, judged, said),) = noted
    assert (check, judged) == ("telegram acme", is_well), said
    assert words in said
    assert TOKEN not in said
    assert [call.method for call in faults.calls] == ["getWebhookInfo"]


async def test_a_webhook_is_set_for_all_that_is_read_with_the_menu_and_the_doctor_looks_at_it(
    database: Database, tmp_path: Path, database_url: str, faults: TelegramFaults
) -> None:
    shell = Shell(tmp_path, database_url)
    environ = {"VUELVO_PUBLIC_URL": PUBLIC, "VUELVO_TELEGRAM_API_URL": faults.url}
    (tmp_path / "acme.yaml").write_text(
        "tenant: acme\nname: Acme\ntime_zone: UTC\nlanguages: [es]\nchannels: {telegram: {token: '${ACME_TOKEN}'}}\n"
    )
    assert (await shell.run("tenants", "apply", "acme.yaml"))[0] == 0
    # What the menu meets stops nothing.
    faults.fallbacks["setMyCommands"] = refused(400, "Bad Request: BOT_COMMAND_INVALID")
    assert (await shell.run_anew("telegram", "set-webhook", "--tenant", "acme", **environ))[0] == 0
    faults.fallbacks.clear()
    faults.calls.clear()
    code, said = await shell.run("telegram", "set-webhook", "--tenant", "acme", **environ)
    assert (code, f"Telegram tells {HOOK}" in said) == (0, True), said
    hook, *menus = faults.calls
    assert (hook.method, hook.fields["url"]) == ("setWebhook", HOOK)
    assert hook.fields["allowed_updates"] == list(ALLOWED_UPDATES)
    assert hook.fields["secret_token"]
    assert [(call.method, call.fields.get("language_code")) for call in menus] == [
        ("setMyCommands", None),
        ("setMyCommands", "es"),
    ]
    assert {"command": "stop", "description": "No recibir más mensajes"} in menus[0].fields["commands"]
    faults.fallbacks["getWebhookInfo"] = webhook("")
    code, said = await shell.run("doctor", **environ)
    assert code == 1
    assert f"BAD  telegram acme: no webhook; 0 updates waiting; it should be {HOOK}: {AGAIN}" in said
