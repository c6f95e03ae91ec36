"""The commands customers have on Telegram."""

import pytest

from channels.telegram.commands import MENU, Command, read


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/start", Command("start")),
        ("/start ref_123-A", Command("start")),
        ("/Help", Command("help")),
        ("/pending@clinic_bot", Command("pending")),
        (" /stop@Clinic_bot\n", Command("stop")),
        ("/cancel", Command("cancel")),
        ("/cancel 12", Command("cancel", 12)),
        ("/cancel@clinic_bot #12", Command("cancel", 12)),
        ("/cancel 999999999999999999", Command("cancel", 999999999999999999)),
    ],
)
def test_a_message_that_is_only_a_command_is_one(text: str, command: Command) -> None:
    assert read(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pending",
        "see /pending",
        "/pending please",
        "/cancel the appointment",
        "/cancel 1 2",
        "/cancel -1",
        "/cancel \u0663",
        "/cancel 9999999999999999999",
        "/cancelled",
        "/stop it, please",
        "/start good morning",
        "/remind me in 10 seconds",
        "/pending@",
    ],
)
def test_whatever_else_is_said_is_for_the_model(text: str) -> None:
    assert read(text) is None


def test_every_command_of_the_menu_is_read() -> None:
    assert {found.name for name in MENU if (found := read(f"/{name}"))} == set(MENU)
