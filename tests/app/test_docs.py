"""What README and docs/ show is so: links lead somewhere, commands and settings exist, examples load and answer."""

import asyncio
import inspect
import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
import httpx
import pytest
from click.testing import CliRunner
from pydantic_ai.toolsets import FunctionToolset
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agent.followup import returning_agent
from agent.offline_request import read
from agent.turn import answering_agent
from app import guards
from app.api import functions as api
from app.api.routes import ENDPOINTS
from app.cli import main
from app.context import Context
from app.deferred import KEY, LARGEST_PAGE, LARGEST_PAYLOAD, MOST_CANCELLED
from app.functions import TIMEOUT, App
from app.guards_section import AnyGuard
from app.http import application
from app.mcp.tools import TOOLS
from app.rehearsal import Rehearsal
from app.settings import Settings
from app.simulated import FIRST
from app.tenants_file import load_file
from app.testing import MockContext
from scheduler import limits
from scheduler.book import LONGEST_LABEL
from scheduler.clock import MovableClock
from scheduler.retry import BUDGET
from scheduler.scheduled import Scheduler
from scheduler.when import LONGEST_LEAD
from store import api_keys
from store.database import Database, engine_url
from tests.support.asgi import calling
from tests.support.house import a_house
from tests.support.wait import eventually
from web_widget.identity import Identity, prove

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = ROOT / "examples/acme.yaml"
ENVIRON = {
    "ACME_TELEGRAM_TOKEN": "123456789:AAhunter2hunter2hunter2hunter2",
    "ACME_TWILIO_SID": "AC" + "0a" * 16,
    "ACME_TWILIO_TOKEN": "hunter2",
    "ACME_CALLS_SECRET": "whsec_" + "hunter2A" * 4,
    "ACME_TOOLS_TOKEN": "hunter2",
}
OF_DEV = ("setup", "test", "check")
"""Commands of dev.py's own; all others are vuelvo's."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    """Return a page's name as a reader knows it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page in these languages, as (language, text)."""
    found = [(match[1], match[2]) for match in _FENCE.finditer(page.read_text())]
    return [block for block in found if block[0] in languages]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def lines(block: str) -> list[list[str]]:
    """Return a shell block's commands as words, without comments, and without the variables set before them."""
    commands = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words:
            commands.append(words)
    return commands


def vuelvo(words: Sequence[str]) -> list[str] | None:
    """Return what a command line says to vuelvo, or None when it calls something else. NAME is taken for a number or a name."""
    if words[0] == "vuelvo":
        said = words[1:]
    elif list(words[:2]) == ["python3", "dev.py"] and words[2:] and words[2] not in OF_DEV:
        said = words[2:]
    else:
        return None
    return [re.sub(r"^[A-Z]+…?$", "1", word) for word in said if word != "…"]


def parse(words: list[str]) -> None:
    """Parse a command line as click would to run it. Raises click.UsageError."""
    command: click.Command = main
    context = click.Context(command, info_name="vuelvo")
    while isinstance(command, click.Group):
        if not words:
            raise click.MissingParameter(ctx=context, param_type="command")
        word, *words = words
        found = command.get_command(context, word)
        if found is None:
            raise click.UsageError(f"there is no command {word}", context)
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=word, parent=context)
    command.make_context(command.name, words, parent=context)


LINKS = [
    pytest.param(page, link, id=f"{name(page)} {link}")
    for page in PAGES
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page))
    if "://" not in link
]
COMMANDS = [
    pytest.param(said, id=f"{name(page)} {' '.join(words)}")
    for page in PAGES
    for _, block in blocks(page, "sh")
    for words in lines(block)
    if (said := vuelvo(words)) is not None
]
MENTIONED = [
    pytest.param(said, id=f"{name(page)} {span}")
    for page in PAGES
    for span in re.findall(r"`([^`\n]+)`", prose(page))
    if re.match(r"(vuelvo|python3 dev\.py) [a-z]", span) and (said := vuelvo(span.split())) is not None
]
TENANTS = [
    pytest.param(block, id=f"{name(page)} {place}")
    for page in PAGES
    for place, (_, block) in enumerate(blocks(page, "yaml"))
    if re.search("^tenant:", block, re.MULTILINE)
]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_a_link_leads_to_a_file_and_a_heading_that_are_there(page: Path, link: str) -> None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.exists()
    assert not anchor or anchor in anchors(target)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_in_a_shell_block_can_be_typed_as_it_stands(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize("words", MENTIONED)
def test_a_command_in_a_sentence_has_a_real_name_and_real_options(words: list[str]) -> None:
    with suppress(click.MissingParameter):  # a sentence may leave out what it is not about
        parse(words)


@pytest.mark.parametrize(
    "words", [["sing"], ["tasks", "list", "--colour"], ["tasks", "get", "abc"], ["tasks", "settle"]]
)
def test_a_command_that_is_not_there_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


@pytest.mark.parametrize("page", [*PAGES, EXAMPLE, ROOT / ".env.example"], ids=name)
def test_every_setting_a_page_names_is_one(page: Path) -> None:
    settings = {f"VUELVO_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"VUELVO_[A-Z_]*[A-Z]", page.read_text())) - settings == set()


@pytest.mark.parametrize("block", TENANTS)
def test_a_tenant_shown_on_a_page_loads(tmp_path: Path, block: str) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(block)
    (tenant,) = load_file(file, ENVIRON)
    assert tenant.tenant == "acme"


def test_the_example_loads_as_it_stands_and_with_what_is_commented_out(tmp_path: Path) -> None:
    (plain,) = load_file(EXAMPLE, {})
    assert (plain.tenant, plain.channels.telegram, plain.channels.whatsapp) == ("acme", None, None)
    file = tmp_path / "acme.yaml"
    file.write_text(re.sub(r"^( +)#(?! \S)", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE))
    (whole,) = load_file(file, ENVIRON)
    assert whole.agent.model is not None
    assert whole.channels.telegram is not None
    assert whole.channels.whatsapp is not None


def test_the_offline_stand_in_reads_what_its_page_says_it_does() -> None:
    table = re.findall(r"^\| ([a-z ]+) \| (.+) \| (.+) \| (.+) \|$", prose(ROOT / "docs/models.md"), re.MULTILINE)
    kinds = {"list": "list", "cancel": "cancel"}
    expected = {
        words: (kinds.get(label, "booking"), language)
        for label, *cells in table
        for words, language in zip(cells, ("en", "es", "pt"), strict=True)
    }
    assert len(expected) == 24
    requests = {words: read(words, "en", datetime(2026, 7, 1, 10)) for words in expected}  # noqa: DTZ001 - a wall time
    assert {words: (request.kind, request.language) for words, request in requests.items()} == expected


async def test_the_requests_of_the_widgets_page_are_answered_as_it_shows(database: Database, tmp_path: Path) -> None:
    async with a_house(database, tmp_path, tenant="demo") as house, calling(application(house.run)) as http:
        token = "none yet"
        answers: list[Any] = []
        ends: list[Any] = []
        for language, block in blocks(ROOT / "docs/widget.md", "sh", "json"):
            if language == "json":
                assert [shape(answer) for answer in answers] == [shape(shown) for shown in values(block)]
                continue
            answers = []
            for words in lines(block):
                if words[1] == "-sN":
                    continue  # the stream never ends
                answer = await curl(http, [word.replace("$TOKEN", token) for word in words])
                assert answer.is_success, answer.text
                if not answer.content:
                    continue
                answers.append(answer.json())
                token = answers[-1].get("token", token)
                if words[-2] == "-d" and "client_id" in words[-1]:
                    await eventually(partial(is_quiet, http, token))
            ends.append(answers[-1] if answers else None)
        assert {"status": "cancelled"} in ends


async def test_the_servers_of_the_first_page_sign_what_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "0123456789abcdef" * 2
    monkeypatch.setenv("ACME_WIDGET_SECRET", secret)
    signers = {
        language: block
        for language, block in blocks(ROOT / "README.md", "python", "js", "php")
        if re.search("(def|function) vuelvo_?[iI]dentity", block)
    }
    tokens = []
    given: dict[str, Any] = {}
    exec(signers["python"], given)  # noqa: S102 - the page's own
    tokens.append(given["vuelvo_identity"]("user-7", "José"))
    for program, flag, call in (
        ("node", "-e", "console.log(vuelvoIdentity('user-7', 'José'))"),
        ("php", "-r", "echo vuelvo_identity('user-7', 'José');"),
    ):
        if shutil.which(program) is None:
            continue
        ran = await asyncio.create_subprocess_exec(
            program, flag, signers["js" if program == "node" else "php"] + call, stdout=asyncio.subprocess.PIPE
        )
        tokens.append((await ran.communicate())[0].decode().strip())
    for token in tokens:
        assert prove(token, [secret], "acme", datetime.now(UTC)) == Identity("user-7", "José")


async def curl(http: httpx.AsyncClient, words: Sequence[str]) -> httpx.Response:
    """Make the request that a curl command line makes."""
    method, url, body, headers = "GET", "", None, {}
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-s":
                pass
            case "-X":
                method = next(rest)
            case "-d":
                body = next(rest)
            case "-H":
                header, _, value = next(rest).partition(": ")
                headers[header] = value
            case _:
                assert not url
                assert not word.startswith("-")
                url = word
    return await http.request(method, url.removeprefix("http://localhost:8000"), content=body, headers=headers)


async def is_quiet(http: httpx.AsyncClient, token: str) -> bool:
    """Tell whether each message of the visitor has been answered."""
    log = await http.get("/widget/demo/messages", headers={"Authorization": f"Bearer {token}"})
    kinds = [message["kind"] for message in log.json()["messages"]]
    return kinds.count("reply") == kinds.count("message")


def shape(value: Any) -> Any:
    """Return what two answers of one kind have in common: names and types, and what a list is made of."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return type(value)


def values(text: str) -> Iterator[Any]:
    """Yield the JSON values that stand one after the other in a text."""
    decoder, place = json.JSONDecoder(), 0
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        value, place = decoder.raw_decode(text, place)
        yield value


FUNCTIONS, API = ROOT / "docs/functions.md", ROOT / "docs/api.md"
ANA = {"user": "ana", "cart": "c1", "to": "+34600000001", "event": "e1"}


@pytest.fixture
def shown() -> dict[str, Any]:
    """All that the page about functions shows in Python, as one module."""
    module: dict[str, Any] = {"__name__": "shown"}
    exec("\n".join(code for _, code in blocks(FUNCTIONS, "python")), module)  # noqa: S102 - the page's own
    return module


@pytest.fixture
async def engine(vuelvo_database_url: str) -> AsyncIterator[AsyncEngine]:
    """A developer's own, to the same database."""
    engine = create_async_engine(engine_url(vuelvo_database_url))
    yield engine
    await engine.dispose()


@pytest.fixture
def vuelvo_app(shown: dict[str, Any], engine: AsyncEngine) -> App:
    app: App = shown["app"]
    shown["orders"](app, engine)
    return app


async def test_each_test_that_the_page_about_functions_shows_passes(shown: dict[str, Any], deferred: Rehearsal) -> None:
    tests = [(name, test) for name, test in shown.items() if name.startswith("test_")]
    assert len(tests) == 3
    for _, test in tests:
        await (test(deferred) if "deferred" in inspect.signature(test).parameters else test())


async def test_a_cart_is_followed_up_by_template_where_nothing_speaks_against_it(shown: dict[str, Any]) -> None:
    mock, given = MockContext(is_scheduled_fire=True), {**ANA, "channel": "whatsapp"}
    follow_up = shown["app"].functions["/send-followup"]
    assert await follow_up.call(follow_up.read(given), mock) == {"delivered": True}
    assert mock.called("send_template")[0]["params"] == ["ana", "https://shop.example/recover?c=c1"]


async def test_functions_book_at_an_instant_and_once_as_shown(deferred: Rehearsal) -> None:
    booked = await deferred.call("/greet-at-christmas", {"user": "ana"})
    first, again = [await deferred.call("/cart-left", ANA) for _ in range(2)]
    assert (first["again"], again) == (False, {"id": first["id"], "again": True})
    (left,) = await deferred.tasks("/send-followup")
    assert left.scheduled_at == deferred.clock.at + timedelta(days=1)
    deferred.clock.set(datetime(2026, 12, 24, 17, 59, 59, tzinfo=UTC))
    greeted = (await deferred.fire_due(after=1))[-1]
    assert (greeted.id, greeted.result) == (booked["id"], "Merry Christmas, ana")


async def test_functions_find_cancel_and_move_as_shown(deferred: Rehearsal) -> None:
    booked = (await deferred.call("/abandoned-cart", ANA))["id"]
    assert await deferred.call("/my-reminders", {"user": "ana"}) == {"pending": [booked], "total": 1}
    moved = (await deferred.call("/postpone", {"run": booked}))["id"]
    assert moved != booked
    assert "too late" in await deferred.call("/postpone", {"run": booked})
    assert await deferred.call("/opt-out", {"user": "ana"}) == {"cancelled": 1, "in flight": 0}
    ctx = deferred.context()
    for number in range(3):
        await ctx.schedule(in_="1h", path="/news", payload={"user": "ana"}, key=f"summer-promo:{number}")
    assert await deferred.call("/end-promo") == {"cancelled": 3}
    assert await deferred.fire_due(after="2d") == []


async def test_functions_check_and_stop_as_shown(deferred: Rehearsal) -> None:
    ctx = deferred.context()
    for path, given in (
        ("/news", {"user": "ana"}),
        ("/news", {"user": "bob"}),
        ("/renew", {"plan": "closed"}),
        ("/send-reminder", {"user": "ana"}),
    ):
        await ctx.schedule(in_=1, path=path, payload=given)
    await deferred.fire_due(after=1)
    assert [(run.result, run.error) for run in await deferred.tasks()] == [
        ({"sent": True}, None),
        ({"skipped": "still active"}, None),
        (None, "Stop: the plan is not sold any more"),
        ({"fired": True, "user": "ana"}, None),
    ]


async def test_a_function_that_cannot_run_now_is_tried_again_without_using_attempts_up_as_shown(
    deferred: Rehearsal,
) -> None:
    await deferred.context().schedule(in_=1, path="/sync", payload={"crm": "down"})
    assert await deferred.fire_due(after=1) == []
    (put_off,) = await deferred.tasks("/sync")
    assert (put_off.status, put_off.error, put_off.attempt) == ("scheduled", "the CRM is down", 0)
    assert put_off.scheduled_at == deferred.clock.at
    assert await deferred.fire_due(after="4m59s") == []
    assert [run.error for run in await deferred.fire_due(after="25h")] == ["the CRM is down"]


async def test_a_booking_is_part_of_one_s_own_transaction_as_shown(deferred: Rehearsal, engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.exec_driver_sql("create table orders (number text primary key)")
    await deferred.call("/order", {"number": "A7"})
    with pytest.raises(IntegrityError):
        await deferred.call("/order", {"number": "A7"})
    (asked,) = await deferred.fire_due(after="2d")
    assert asked.result == {"asked about": "A7"}


async def test_the_requests_of_the_page_about_functions_are_answered_as_it_shows(
    shown: dict[str, Any], database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with (
        a_house(database, tmp_path, clock=clock, app=shown["app"]) as house,
        calling(application(house.run)) as http,
    ):
        async with database.transaction() as connection:
            _, key = await api_keys.create(connection, "acme")
        answers: list[Any] = []
        compared = 0
        for language, block in blocks(FUNCTIONS, "sh", "json"):
            requests = [words for words in lines(block) if words[0] == "curl"] if language == "sh" else []
            for words in requests:
                answer = await curl(http, [word.replace("$KEY", key) for word in words])
                assert answer.is_success, answer.text
                answers.append(answer.json())
            if language == "json":
                assert [shape(answer) for answer in answers] == [shape(value) for value in values(block)]
                compared, answers = compared + len(answers), []
        assert (compared, answers) == (4, [])


async def test_the_follow_up_of_the_page_about_the_api_is_booked_and_its_guards_are_all_there_are(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with (
        a_house(database, tmp_path, clock=clock) as house,
        calling(application(house.run)) as http,
    ):
        conversation = (await house.says("hello")).conversation
        async with database.transaction() as connection:
            _, key = await api_keys.create(connection, "acme")
        ((_, block),) = blocks(API, "sh")
        (words,) = lines(block.replace("$KEY", key).replace('"conversation": 12', f'"conversation": {conversation}'))
        answer = await curl(http, words)
        assert (answer.status_code, answer.json()["idempotent_replay"]) == (202, False)
        (booked,) = await house.tasks()
        assert booked.payload["guards"] == [{"guard": "no reply since"}]
    told = re.findall(r'^\| `(\{"guard": [^`]+\})` \|', prose(API), re.MULTILINE)
    kinds = [type(guard) for one in told for guard in guards.read([json.loads(one.replace("HX…", f"HX{32 * '0'}"))])]
    assert kinds == list(get_args(get_args(AnyGuard)[0]))


def test_the_limits_of_the_page_about_functions_are_those_that_are_kept() -> None:
    page = prose(FUNCTIONS)
    for words in (
        f"| {limits.MOST_ACTIVE:,}; what has fired",
        f"| {LONGEST_LEAD.days} days;",
        f"{LARGEST_PAYLOAD:,} bytes of JSON",
        f"| {MOST_CANCELLED:,} |",
        f"| {LARGEST_PAGE}, 20 as a default |",
        f"| {LONGEST_LABEL - len(KEY)} characters each |",
        f"({FIRST:,} and on)",
    ):
        assert words in page
    assert (timedelta(minutes=5), 5) == (TIMEOUT, BUDGET)
    for table, names in (
        ("parameter", parameters(Context.schedule) | parameters(Context.schedule_at)),
        ("filter", parameters(Context.find_deferred)),
    ):
        assert named(page, table) == names


def parameters(function: Any) -> set[str]:
    """Return what a method takes besides itself."""
    return set(inspect.signature(function).parameters) - {"self"}


def named(page: str, table: str) -> set[str]:
    """Return the names in the first column of the table that begins with this word."""
    rows = page.split(f"| {table} |")[1].split("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_header_and_address_of_the_api_is_in_its_table() -> None:
    page = prose(FUNCTIONS)
    told = {header.lower() for header in re.findall(r"^\| `([A-Za-z-]+)` \|", page, re.MULTILINE)}
    headers = {api.SCHEDULE_IN, api.SCHEDULE_AT, api.KEY, api.SUBJECT, api.PIN, api.CHANNEL, api.IDEMPOTENCY_KEY}
    assert headers <= told
    addresses = set(re.findall(r"^\| `((?:GET|POST|PUT) /v1/\S+)` \|", prose(API), re.MULTILINE))
    there = {
        f"{method} {address}".replace("{path:path}", "PATH").replace("{subject:path}", "SUBJECT").replace("{id}", "ID")
        for method, address, *_ in ENDPOINTS
    }
    assert addresses == there


def test_the_schedules_that_are_shown_can_be_registered() -> None:
    shown: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs/time.md", "python"):
        exec(code, shown)  # noqa: S102 - the page's own
    scheduler: Scheduler = shown["scheduler"]
    assert scheduler.ids == {"digest", "reminder:17"}
    assert (shown["digest"].time_zone, shown["reminder"].time_zone) == ("Europe/Madrid", None)


def test_the_preview_that_is_shown_is_what_is_printed() -> None:
    page = ROOT / "docs/time.md"
    (words,) = lines(blocks(page, "sh")[0][1])
    told = CliRunner().invoke(main, words[1:])
    assert told.output == blocks(page, "")[0][1]


def test_the_assistants_tools_are_in_their_list_with_their_arguments() -> None:
    (functions,) = answering_agent().toolsets
    assert isinstance(functions, FunctionToolset)
    taken = {
        name: list(tool.function_schema.json_schema["properties"]) or ["none"] for name, tool in functions.tools.items()
    }
    assert taken.keys() == {path.stem for path in (ROOT / "agent/tools").glob("[a-z]*.py")}
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+?) \| (.+?) \|", prose(ROOT / "docs/tools.md"), re.MULTILINE)
    assert {name: re.findall(r"\w+", arguments) for name, arguments, _ in rows} == taken
    assert {when.partition(",")[0] for _, _, when in rows} == {"in a live turn"}
    (none,) = returning_agent().toolsets
    assert isinstance(none, FunctionToolset)
    assert none.tools == {}


def test_the_tools_for_other_agents_are_in_their_table_with_their_arguments_and_scopes() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| `(book|read|cancel)` \| (.+?) \|", prose(ROOT / "docs/mcp.md"), re.MULTILINE)
    shown = {name: (scope, re.findall("`([a-z_]+)`", arguments)) for name, scope, arguments in rows}
    assert shown == {name: (tool.scope, list(tool.schema["properties"])) for name, tool in TOOLS.items()}


def test_the_agent_that_is_shown_is_one() -> None:
    shown: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs/mcp.md", "python"):
        exec(code, shown)  # noqa: S102 - the page's own
    parse(shown["vuelvo"].args)
    for _, config in blocks(ROOT / "docs/mcp.md", "json"):
        (server,) = json.loads(config)["mcpServers"].values()
        parse(server.get("args", ["mcp"]))
