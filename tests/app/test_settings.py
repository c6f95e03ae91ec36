import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import PREFIX, Settings, SettingsError, load, secret_key

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef0123456789abcdef"


def problems_of(environ: dict[str, str], env_file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(environ, env_file)
    return caught.value.problems


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / ".env"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_nothing_needs_to_be_set() -> None:
    settings = load({"PATH": "/bin"}, None)
    assert settings == Settings()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8000, Path(".vuelvo"))
    assert (settings.poll_interval, settings.lease) == (timedelta(seconds=5), timedelta(seconds=60))


def test_every_setting_is_read_from_its_variable() -> None:
    settings = load(
        {
            "VUELVO_DATABASE_URL": "postgres://u:p@db/vuelvo",
            "VUELVO_DATA_DIR": "/data",
            "VUELVO_MODEL": "openai:gpt-5-mini",
            "VUELVO_PUBLIC_URL": "https://bot.example/",
            "VUELVO_SECRET_KEY": KEY,
            "VUELVO_HOST": "0.0.0.0",
            "VUELVO_PORT": " 9000 ",
            "VUELVO_POLL_INTERVAL": "0.5s",
            "VUELVO_LEASE": "1m30s",
            "VUELVO_APP": "jobs:scheduler",
            "VUELVO_DEPLOYMENT": "blue-7",
            "VUELVO_DEFER_DEV": "1",
            "VUELVO_MCP_KEY": "vk_acme_hunter2",
            "VUELVO_TELEGRAM_API_URL": "http://localhost:8081/",
            "VUELVO_TWILIO_API_URL": "http://[::1]:8082/twilio/",
            "VUELVO_TRUSTED_PROXIES": "10.0.0.7, fd00::/8",
            "VUELVO_LOG_FORMAT": "json",
        },
        None,
    )
    assert settings.model_dump(exclude={"secret_key", "mcp_key"}) == {
        "database_url": "postgres://u:p@db/vuelvo",
        "data_dir": Path("/data"),
        "model": "openai:gpt-5-mini",
        "public_url": "https://bot.example",
        "host": "0.0.0.0",
        "port": 9000,
        "poll_interval": timedelta(seconds=0.5),
        "lease": timedelta(seconds=90),
        "app": "jobs:scheduler",
        "deployment": "blue-7",
        "defer_dev": True,
        "telegram_api_url": "http://localhost:8081",
        "twilio_api_url": "http://[::1]:8082/twilio",
        "log_format": "json",
        "trusted_proxies": ("10.0.0.7/32", "fd00::/8"),
    }
    assert secret_key(settings) == KEY.encode()
    assert "p@db" not in repr(settings)
    assert KEY not in repr(settings)
    assert settings.mcp_key is not None
    assert settings.mcp_key.get_secret_value() == "vk_acme_hunter2"
    assert "hunter2" not in repr(settings)
    with pytest.raises(ValidationError):
        settings.port = 1


@pytest.mark.parametrize("given", ["*", "localhost", "10.0.0.0/40", "10.0.0.1/8", "10.0.0.7;10.0.0.8"])
def test_what_is_no_network_is_no_trusted_proxy(given: str) -> None:
    (problem,) = problems_of({"VUELVO_TRUSTED_PROXIES": given})
    assert problem.startswith("VUELVO_TRUSTED_PROXIES is ")
    assert "write addresses and networks with commas between them" in problem


def test_all_problems_are_told_together_each_with_its_variable_and_what_was_given() -> None:
    problems = problems_of(
        {
            "VUELVO_PORT": "80000",
            "VUELVO_LEASE": "soon",
            "VUELVO_LOG_FORMAT": "xml",
            "VUELVO_MODLE": "openai:gpt-5-mini",
            "VUELVO_COLOUR_OF_THE_SKY": "blue",
            "VUELVO_DATABASE_URL": "mysql://root:hunter2@db/x",
        }
    )
    said = "\n".join(problems)
    assert len(problems) == 7
    assert "VUELVO_PORT is '80000': it must be less than or equal to 65535" in problems
    assert "VUELVO_LOG_FORMAT is 'xml': it must be 'text' or 'json'" in problems
    assert "VUELVO_MODLE is not a setting: did you mean VUELVO_MODEL?" in problems
    assert "VUELVO_COLOUR_OF_THE_SKY is not a setting: the settings are listed in docs/settings.md" in problems
    assert "VUELVO_LEASE is 'soon': " in said
    assert "VUELVO_DATABASE_URL cannot be used: write postgresql://" in said
    assert "VUELVO_SECRET_KEY is missing: with VUELVO_DATABASE_URL" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DATABASE_URL", "postgresql://u:hunter2@db:port/x", "write postgresql://USER"),
        ("DATABASE_URL", "hunter2", "write postgresql://USER"),
        ("SECRET_KEY", "hunter2", "at least 32 characters"),
        ("PUBLIC_URL", "bot.example", "such as https://example.com"),
        ("PUBLIC_URL", "ftp://bot.example", "such as https://example.com"),
        ("PUBLIC_URL", "https://bot.example/?a=1", "without a user, ? or #"),
        ("PUBLIC_URL", "https://u:hunter2@bot.example", "without a user"),
        ("PUBLIC_URL", "https://bot.example:port", "such as"),
        ("TELEGRAM_API_URL", "https://", "such as"),
        ("PORT", "http", "write a whole number"),
        ("PORT", "-1", "greater than or equal to 0"),
        ("POLL_INTERVAL", "0s", "greater than or equal to"),
        ("LEASE", "2h", "less than or equal to"),
        ("LEASE", "-5s", "negative"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_way_out(name: str, value: str, says: str) -> None:
    problems = problems_of({f"VUELVO_{name}": value, **({"VUELVO_SECRET_KEY": KEY} if name == "DATABASE_URL" else {})})
    assert len(problems) == 1
    assert problems[0].startswith(f"VUELVO_{name} ")
    assert says in problems[0]
    assert "hunter2" not in problems[0]


@pytest.mark.parametrize("value", ["tu-clave-aquí…", "sk-…", "sk-hunter2 ", "your key", "sk-hunter2\n", "\udcff"])
def test_a_placeholder_in_the_place_of_a_models_key_is_told_with_the_rest_and_not_repeated(
    tmp_path: Path, value: str
) -> None:
    problems = problems_of({"ANTHROPIC_API_KEY": value, "VUELVO_PORT": "x"})
    assert [problem.split(" is ")[0] for problem in problems] == ["ANTHROPIC_API_KEY", "VUELVO_PORT"]
    assert value not in problems[0]
    (problem,) = problems_of({}, write(tmp_path, "\nOPENAI_API_KEY=sk-…\n"))
    assert problem.startswith(f"OPENAI_API_KEY ({tmp_path / '.env'}:2) is no key")


@pytest.mark.parametrize("value", ["", "sk-hunter2_A+/=.", "any"])
def test_a_models_key_that_can_be_one_and_keys_of_others_are_left_alone(value: str) -> None:
    assert load({"OPENAI_API_KEY": value, "SOMEBODYS_API_KEY": "clave aquí"}, None) == Settings()


def test_an_empty_value_stands_for_the_default() -> None:
    assert load({"VUELVO_PORT": "", "VUELVO_MODEL": "  ", "VUELVO_SECRET_KEY": ""}, None) == Settings()
    said = problems_of({"VUELVO_DATABASE_URL": "postgresql://db/x", "VUELVO_SECRET_KEY": ""})
    assert [problem.split(" ")[0] for problem in said] == ["VUELVO_SECRET_KEY"]


def test_a_name_in_small_letters_is_a_typo_and_the_tests_own_variables_are_none() -> None:
    assert problems_of({"vuelvo_port": "1"}) == ("vuelvo_port is not a setting: did you mean VUELVO_PORT?",)
    assert load({"VUELVO_TEST_DATABASE_URL": "postgresql://db/x"}, None) == Settings()


def test_the_environment_goes_before_the_env_file(tmp_path: Path) -> None:
    env_file = write(tmp_path, "﻿# ours\nexport VUELVO_PORT=1234 # first\r\nVUELVO_HOST='::1'\nVUELVO_MODEL=openai:x\n")
    settings = load({"VUELVO_PORT": "4321", "VUELVO_MODEL": ""}, env_file)
    assert (settings.port, settings.host, settings.model) == (4321, "::1", None)


def test_there_need_not_be_an_env_file(tmp_path: Path) -> None:
    assert load({}, tmp_path / ".env") == Settings()


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"A=1\n\n\nsk-hunter2\n", 4, "has no ="),
        (b"A=1\nhunter2 and more\n", 2, "not NAME=value"),
        (b"A=1\nB='hunter2\n", 2, "quotes that are not closed"),
        (b"A=1\nB=2\nC=\xff\n", 3, "not UTF-8"),
        ("A=1\n".encode("utf-16"), 1, "not UTF-8"),
        (b"A=1\nB=\0\n", 2, "zero byte"),
        (b"\n 1A=hunter2\n", 2, "not a name"),
    ],
)
def test_a_broken_env_file_is_named_with_the_line(tmp_path: Path, content: bytes, line: int, says: str) -> None:
    env_file = write(tmp_path, content)
    (problem,) = problems_of({}, env_file)
    assert problem.startswith(f"{env_file}:{line}: ")
    assert says in problem
    assert "hunter2" not in problem


def test_an_env_file_that_is_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    (problem,) = problems_of({}, tmp_path / ".env")
    assert problem.startswith(f"{tmp_path / '.env'} is a directory")


def test_a_wrong_setting_in_the_env_file_is_named_with_its_line(tmp_path: Path) -> None:
    env_file = write(tmp_path, "\n\nVUELVO_PORT=x\nVUELVO_PROT=1\n")
    assert problems_of({}, env_file) == (
        f"VUELVO_PORT ({env_file}:3) is 'x': write a whole number",
        f"VUELVO_PROT ({env_file}:4) is not a setting: did you mean VUELVO_PORT?",
    )


def test_what_else_the_env_file_holds_reaches_the_libraries_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {"OPENAI_API_KEY": "outside", "VUELVO_HOST": "::1"}
    monkeypatch.setattr(os, "environ", ours)
    env_file = write(tmp_path, "OPENAI_API_KEY=inside\nANTHROPIC_API_KEY=a$b\nVUELVO_PORT=1\n")
    settings = load(env_file=env_file)
    assert (settings.host, settings.port) == ("::1", 1)
    assert ours == {"OPENAI_API_KEY": "outside", "ANTHROPIC_API_KEY": "a$b", "VUELVO_HOST": "::1"}


def test_an_environment_that_was_handed_in_is_left_alone_and_so_is_the_process_s(tmp_path: Path) -> None:
    handed: dict[str, str] = {}
    load(handed, write(tmp_path, "VUELVO_TEST_OF_EXPORT=1\nSOME_KEY_OF_A_TEST=1\n"))
    assert handed == {}
    assert "SOME_KEY_OF_A_TEST" not in os.environ


def test_the_secret_key_is_made_once_for_all_who_start_together_and_kept_private(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "made" / "here")
    together = threading.Barrier(8)

    def start(_: int) -> bytes:
        together.wait()
        return secret_key(settings)

    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(start, range(8)))
    assert len(keys) == 1
    assert keys == {secret_key(settings)}
    assert len(keys.pop()) >= 32
    (kept,) = settings.data_dir.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700


def test_a_secret_key_that_is_set_is_not_kept(tmp_path: Path) -> None:
    settings = load({"VUELVO_SECRET_KEY": KEY, "VUELVO_DATA_DIR": str(tmp_path)}, None)
    assert secret_key(settings) == KEY.encode()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_key_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_bytes(b"")
    with pytest.raises(SettingsError, match=r"secret\.key is damaged: put it back"):
        secret_key(Settings(data_dir=tmp_path))
    assert (tmp_path / "secret.key").read_bytes() == b""


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SettingsError, match=r"data/secret\.key cannot be used .* set VUELVO_SECRET_KEY"):
        secret_key(Settings(data_dir=tmp_path / "data"))


def test_a_tilde_in_the_data_directory_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/vuelvo")
    assert load({"VUELVO_DATA_DIR": "~/data"}, None).data_dir == Path("/home/vuelvo/data")


def test_the_page_about_settings_lists_each_with_its_default() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    listed = dict(re.findall(r"^\| `(VUELVO_[A-Z_]+)` \| (.*?) \|", page, re.MULTILINE))
    assert list(listed) == [PREFIX + field.upper() for field in Settings.model_fields]
    defaults = {name: default.strip("`") for name, default in listed.items() if default.startswith("`")}
    assert load(defaults, None) == Settings()
    unset = {name for name, default in listed.items() if not default.startswith("`")}
    assert unset == {PREFIX + name.upper() for name, field in Settings.model_fields.items() if field.default is None}


def test_the_example_env_file_shows_every_setting_and_changes_nothing_until_it_is_edited(tmp_path: Path) -> None:
    example = (ROOT / ".env.example").read_text()
    assert load({}, write(tmp_path, example)) == Settings()
    uncommented = re.sub(r"^#(?=[A-Z_]+=)", "", example, flags=re.MULTILINE)
    assert re.findall(r"^(VUELVO_[A-Z_]+)=", uncommented, re.MULTILINE) == [
        PREFIX + field.upper() for field in Settings.model_fields
    ]
    # No key stands there that someone could leave as it is.
    whole = load({"VUELVO_SECRET_KEY": KEY}, write(tmp_path, uncommented))
    unset = {name for name, field in Settings.model_fields.items() if field.default is None}
    assert all(getattr(whole, name) is not None for name in unset)
    assert whole.model_dump(exclude=unset) == Settings().model_dump(exclude=unset)
