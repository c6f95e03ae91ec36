"""What an operator writes down: environment variables that begin with `VUELVO_`, and a `.env` file.

They are read once, here, into one frozen object. Whatever is wrong is reported together.
"""

import contextlib
import difflib
import io
import os
import re
import secrets
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from dotenv.parser import parse_stream
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from sqlalchemy.exc import ArgumentError

from scheduler.errors import BadTime
from scheduler.when import duration
from store.database import engine_url

PREFIX = "VUELVO_"
_OF_THE_TESTS = "VUELVO_TEST_"
_NOT_SHOWN = {"database_url", "secret_key", "mcp_key"}
_KEY_FILE = "secret.key"
_MODEL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OLLAMA_API_KEY")
"""Read by the providers' libraries, which find out what cannot be sent only when a customer waits."""


class SettingsError(Exception):
    """Settings that cannot be used; one problem a line, each with the name of the variable and the way out."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def _database_url(given: str) -> str:
    form = "write postgresql://USER:PASSWORD@HOST:5432/NAME, with %40 and the like for @ : / ? # in the password"
    if not given.startswith(("postgresql://", "postgres://")):
        raise ValueError(form)
    try:
        engine_url(given)
    except (ArgumentError, ValueError):
        raise ValueError(form) from None  # theirs may repeat the password
    return given


def _http_url(given: str) -> str:
    problem = "write an address such as https://example.com, without a user, ? or #"
    try:
        parts = urlsplit(given)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(problem) from None
    if not is_whole or "@" in parts.netloc or re.search(r"[?#\s]", given):
        raise ValueError(problem)
    return given.rstrip("/")


def _duration(given: object) -> object:
    try:
        return duration(given) if isinstance(given, str) else given
    except BadTime as problem:
        raise ValueError(str(problem)) from problem


def _networks(given: object) -> object:
    if not isinstance(given, str):
        return given
    words = [word for word in re.split(r"[,\s]+", given) if word]
    try:
        return tuple(str(ip_network(word)) for word in words)
    except ValueError:
        raise ValueError(
            "write addresses and networks with commas between them, such as 10.0.0.7,10.1.0.0/16,fd00::/8"
        ) from None


def _home(given: Path) -> Path:
    return Path(os.path.expanduser(given))


def _secret_key(given: SecretStr) -> SecretStr:
    if len(given.get_secret_value()) < 32:
        raise ValueError("it must be at least 32 characters long: make one with `openssl rand -hex 32`")
    return given


HttpUrl = Annotated[str, AfterValidator(_http_url)]


class Settings(BaseModel):
    """The settings, checked. `docs/settings.md` says what each means."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database_url: Annotated[str, AfterValidator(_database_url)] | None = Field(default=None, repr=False)
    data_dir: Annotated[Path, AfterValidator(_home)] = Path(".vuelvo")
    model: str | None = None
    public_url: HttpUrl | None = None
    """Without a slash at the end."""
    secret_key: Annotated[SecretStr, AfterValidator(_secret_key)] | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 lets the system choose."""
    poll_interval: Annotated[timedelta, BeforeValidator(_duration)] = Field(
        default=timedelta(seconds=5), ge=timedelta(milliseconds=100), le=timedelta(hours=1)
    )
    lease: Annotated[timedelta, BeforeValidator(_duration)] = Field(
        default=timedelta(seconds=60), ge=timedelta(seconds=1), le=timedelta(hours=1)
    )
    app: str | None = None
    """`module:object`: the developer's own functions and schedules."""
    deployment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = None
    """Which of several versions side by side this process is: a pinned run is performed by its own alone."""
    defer_dev: bool = False
    """Whether bookings of deferred runs are simulated: checked and logged, and nothing is booked."""
    mcp_key: SecretStr | None = Field(default=None, repr=False)
    """A tenant's key, with which `vuelvo mcp` acts."""
    telegram_api_url: HttpUrl | None = None
    twilio_api_url: HttpUrl | None = None
    trusted_proxies: Annotated[tuple[str, ...], BeforeValidator(_networks)] | None = None
    """Networks of reverse proxies, whose word counts of whom they ask for (`X-Forwarded-For`)."""
    log_format: Literal["text", "json"] = "text"


def load(environ: Mapping[str, str] | None = None, env_file: Path | None = Path(".env")) -> Settings:
    """Read the settings from an environment (by default the process's own) and a `.env` file, if there is one.

    The environment goes before the file, and an empty value stands for the default. With the process's own environment,
    what else the file holds (the model providers' keys) is put there. Raises SettingsError.
    """
    written, problems = _read_env_file(env_file) if env_file else ({}, [])
    given = {name: _Given(value, f"{env_file}:{line}") for name, (value, line) in written.items()}
    given |= {name: _Given(value, None) for name, value in (os.environ if environ is None else environ).items()}
    ours = {name: given[name] for name in given if name.upper().startswith(PREFIX)}
    fields = {PREFIX + field.upper(): field for field in Settings.model_fields}
    for name in ours.keys() - fields.keys():
        if not name.startswith(_OF_THE_TESTS):
            near = difflib.get_close_matches(name.upper(), fields, 1)
            way_out = f"did you mean {near[0]}?" if near else "the settings are listed in docs/settings.md"
            problems.append(f"{ours[name].named(name)} is not a setting: {way_out}")
    for name in _MODEL_KEYS:
        if name in given and given[name].value and re.fullmatch("[!-~]+", given[name].value) is None:
            problems.append(
                f"{given[name].named(name)} is no key: it holds a space or a character such as … or é; "
                "put the key there that the provider shows, or remove it"
            )
    values: dict[str, Any] = {
        field: ours[name].value if field == "secret_key" else ours[name].value.strip()
        for name, field in fields.items()
        if name in ours and ours[name].value.strip()
    }
    if "database_url" in values and "secret_key" not in values:
        problems.append(
            f"{PREFIX}SECRET_KEY is missing: with {PREFIX}DATABASE_URL it is needed, the same for every process; "
            "make one with `openssl rand -hex 32`"
        )
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        for line in error.errors():
            field = str(line["loc"][0])
            name = PREFIX + field.upper()
            value = values[field]
            is_shown = field not in _NOT_SHOWN and "@" not in value
            what = f"is {value[:60]!r}" if is_shown else "cannot be used"
            problems.append(f"{ours[name].named(name)} {what}: {_WAYS_OUT.get(line['type']) or _said(line['msg'])}")
    if problems:
        raise SettingsError(sorted(problems))
    if environ is None:
        export_env_file({name: value for name, (value, _) in written.items()}, os.environ)
    return settings


def export_env_file(written: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Put what a `.env` file holds besides the settings into an environment, where it is not set there already.

    The model providers' libraries look for their keys there themselves.
    """
    for name, value in written.items():
        if not name.upper().startswith(PREFIX):
            environ.setdefault(name, value)


def secret_key(settings: Settings) -> bytes:
    """Return the secret key: the one set, else the one kept in the data directory, made there the first time.

    Raises SettingsError when it cannot be kept or read.
    """
    if settings.secret_key is not None:
        return settings.secret_key.get_secret_value().encode("utf-8", "surrogateescape")
    path = settings.data_dir / _KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes().strip()
    except OSError as problem:
        raise SettingsError(
            [
                f"{path} cannot be used ({problem.strerror}): let the service's user read and write {settings.data_dir}, "
                f"or set {PREFIX}SECRET_KEY"
            ]
        ) from problem
    if len(key) < 32:
        raise SettingsError(
            [f"{path} is damaged: put it back from a backup, or remove it and apply the tenants' files again"]
        )
    return key


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_urlsafe(48).encode())
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all, and never in the place of another: of two processes, one makes the key.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class _Given(NamedTuple):
    value: str
    place: str | None
    """File and line; None is the environment."""

    def named(self, name: str) -> str:
        return f"{name} ({self.place})" if self.place else name


_WAYS_OUT = {"bool_parsing": "write true or false", "int_parsing": "write a whole number"}


def _said(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")


def _read_env_file(path: Path) -> tuple[dict[str, tuple[str, int]], list[str]]:
    """Return what a `.env` file sets, `name: (value, line)`, and what is wrong with it. Lines are never repeated."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}, []
    except IsADirectoryError:
        return {}, [f"{path} is a directory, and settings are read from a file of this name: rename it"]
    except OSError as problem:
        return {}, [f"{path} cannot be read ({problem.strerror}): let the service's user read it, or remove it"]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        return {}, [f"{path}:{line}: this line is not UTF-8: save the file as UTF-8"]
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return {}, [f"{path}:{line}: this line holds a zero byte: save the file as plain UTF-8 text"]
    written: dict[str, tuple[str, int]] = {}
    problems: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        original = binding.original.string
        blank = original[: len(original) - len(original.lstrip())]
        line = binding.original.line + len(re.findall(r"\r\n|\n|\r", blank))
        if binding.error:
            problems.append(
                f"{path}:{line}: this is not NAME=value; mind quotes that are not closed, or write # before it"
            )
        elif binding.key is not None and binding.value is None:
            problems.append(f"{path}:{line}: this line has no =: write NAME=value, or # before it")
        elif binding.key is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", binding.key):
            problems.append(f"{path}:{line}: what stands before = is not a name: letters, digits and _")
        elif binding.key is not None and binding.value is not None:
            written[binding.key] = (binding.value, line)
    return written, problems
