import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from app.tenants_file import (
    DEMO,
    HIDDEN,
    LARGEST_FILE,
    Problem,
    TenantConfig,
    TenantFileError,
    from_stored,
    json_schema,
    load_file,
    senders,
    shown,
    taken_away,
    to_stored,
)
from store.secrets import SecretBox, WrongKey

PAGE = (Path(__file__).parents[2] / "docs/tenants.md").read_text()
BOX = SecretBox(b"k" * 32)
SHORT = "tenant: acme\nname: Acme\ntime_zone: America/Bogota\n"
TOKEN = "123456789:AAhunter2hunter2hunter2hunter2"
ENVIRON = {"ACME_TELEGRAM_TOKEN": TOKEN, "ACME_TWILIO_SID": "AC" + "0a" * 16, "ACME_TWILIO_TOKEN": "hunter2"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "acme.yaml"


def load(file: Path, text: str | bytes, environ: dict[str, str] | None = None) -> list[TenantConfig]:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_file(file, environ or {})


def refused(file: Path, text: str | bytes, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(TenantFileError) as caught:
        load(file, text, environ)
    lines = str(caught.value).splitlines()
    assert [str(problem) for problem in caught.value.problems] == lines
    assert "hunter2" not in f"{caught.value!r}"
    return [line.replace(str(file), "acme.yaml") for line in lines]


def example(file: Path) -> TenantConfig:
    text = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert text
    (config,) = load(file, text[1], ENVIRON)
    return config


def test_three_lines_make_a_tenant_with_a_widget(file: Path) -> None:
    (config,) = load(file, SHORT)
    assert (config.tenant, config.name, config.time_zone, config.languages) == (
        "acme",
        "Acme",
        "America/Bogota",
        ("en",),
    )
    assert config.channels.web is not None
    assert senders(config) == []
    (without,) = load(file, SHORT + "channels: {web: null}")
    assert without.channels.web is None


def test_the_example_of_the_page_can_be_used_as_it_stands(file: Path) -> None:
    config = example(file)
    assert config.languages == ("es", "en")
    assert config.channels.telegram is not None
    assert config.channels.telegram.token.get_secret_value() == TOKEN
    assert senders(config) == [("telegram", "123456789"), ("whatsapp", "whatsapp:+14155238886")]


def fields_of(model: type[BaseModel], before: str = "") -> list[str]:
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner = [
            each for each in (field.annotation, *getattr(field.annotation, "__args__", ())) if isinstance(each, type)
        ]
        models = [each for each in inner if issubclass(each, BaseModel)]
        if not models or before:
            found.append(before + name)
        for each in models:
            found += fields_of(each, f"{before}{name}.")
    return found


def test_the_table_of_the_page_lists_every_field_there_is() -> None:
    assert re.findall(r"^\| `([a-z_.]+)` \|", PAGE, re.MULTILINE) == fields_of(TenantConfig)


def test_the_demo_tenant_needs_no_account() -> None:
    (config,) = load_file(DEMO, {})
    assert (config.tenant, config.time_zone, config.languages) == ("demo", "UTC", ("en", "es", "pt"))
    assert senders(config) == []
    assert config.channels.web is not None


def test_everything_wrong_is_told_at_once_with_line_and_field(file: Path) -> None:
    text = """\
tenant: Acme Inc.
name: ""
time_zone: Bogota
languges: [en]
agent:
  history: many
  model:
    - openai
  answer_timeout: 0
channels:
  web:
    origins:
      - https://shop.example
      - shop.example
    title: Yes
  telegram:
    reciev: auto
  whatsapp:
    account_sid: AC1
    auth_tokne: hunter2
    sender: +14155238886
name: Acme
"""
    problems = refused(file, text)
    assert [line.split(": ")[:2] for line in problems] == [
        ["acme.yaml:1", "tenant"],
        ["acme.yaml:3", "time_zone"],
        ["acme.yaml:4", "languges"],
        ["acme.yaml:6", "agent.history"],
        ["acme.yaml:7", "agent.model"],
        ["acme.yaml:9", "agent.answer_timeout"],
        ["acme.yaml:14", "channels.web.origins.1"],
        ["acme.yaml:15", "channels.web.title"],
        ["acme.yaml:16", "channels.telegram.token"],
        ["acme.yaml:17", "channels.telegram.reciev"],
        ["acme.yaml:18", "channels.whatsapp.auth_token"],
        ["acme.yaml:19", "channels.whatsapp.account_sid"],
        ["acme.yaml:20", "channels.whatsapp.auth_tokne"],
        ["acme.yaml:21", "channels.whatsapp.sender"],
        ["acme.yaml:22", "name"],
    ]
    assert "acme.yaml:4: languges: there is no such field; did you mean languages?" in problems
    assert "acme.yaml:15: channels.web.title: it must be text: write it in quotes" in problems
    assert "acme.yaml:16: channels.telegram.token: it is missing" in problems
    assert "acme.yaml:20: channels.whatsapp.auth_tokne: there is no such field; did you mean auth_token?" in problems
    assert "acme.yaml:22: name: it is written twice, first on line 2" in problems
    assert problems[1].endswith("did you mean America/Bogota?")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "acme.yaml: no tenant is written in it: it needs tenant, name and time_zone"),
        ("# only words\n---\n", "acme.yaml: no tenant is written in it: it needs tenant, name and time_zone"),
        ("- acme", "acme.yaml:1: a tenant is written as fields: tenant: …, name: …, time_zone: …"),
        (SHORT + "agent:", "acme.yaml:4: agent: it is empty"),
        (SHORT + "agent: hunter2", "acme.yaml:4: agent: it must hold fields"),
        (SHORT + "languages: es", "acme.yaml:4: languages: it must be a list, such as [en, es]"),
        (SHORT + "languages: []", "acme.yaml:4: languages: it must have at least 1 item after validation, not 0"),
        (SHORT + "languages: [en, de]", "acme.yaml:4: languages.1: it must be 'en', 'es' or 'pt'"),
        ("tenant: a\nname: b\n", "acme.yaml:1: time_zone: it is missing"),
        (SHORT + "a: [", "acme.yaml:4: this is not YAML: while parsing"),
        (SHORT + "a: b: hunter2", "acme.yaml:4: this is not YAML: mapping values are not allowed here"),
        (SHORT + "\tagent: {}", "acme.yaml:4: this is not YAML"),
        (SHORT + "agent: *hunter2", "acme.yaml:4: this is not YAML: found undefined alias"),
        (SHORT + "agent: {instructions: \x01}", "acme.yaml:4: a character that may not stand in YAML: remove it"),
        (
            SHORT + 'agent: {instructions: "\\0"}',
            "acme.yaml:4: agent.instructions: it holds characters that are no text",
        ),
        (SHORT + "agent: !!python/object/apply:os.getcwd []", "acme.yaml:4: agent: it has a tag"),
        (SHORT + "agent: {model: !secret hunter2}", "acme.yaml:4: agent.model: it has a tag"),
        (SHORT + "agent: {history: !!int hunter2}", "acme.yaml:4: agent.history: it does not fit its tag"),
        (SHORT + "? [a]\n: b", "acme.yaml:1: a field's name must be plain text"),
        (SHORT + "agent: &a {model: *a}", "acme.yaml:4: agent.model: it is an alias of something it stands in"),
        (SHORT + "agent: &a {<<: *a}", "acme.yaml:4: agent: it is an alias of something it stands in"),
        (SHORT + "agent: {<<: hunter2}", "acme.yaml:4: agent: what << takes in must be fields"),
        (SHORT + "agent: " + "[" * 500, "acme.yaml:4: it is nested too deeply"),
        (
            SHORT + "channels: {telegram: {token: 123456789}}",
            "acme.yaml:4: channels.telegram.token: it must be text: write it in quotes",
        ),
        (
            SHORT + "channels: {telegram: {token: hunter2}}",
            "acme.yaml:4: channels.telegram.token: this is not a Telegram",
        ),
        ("tenant: acme\nname: Acme\ntime_zone: ../etc/passwd", "acme.yaml:3: time_zone: it must be a name of the IANA"),
        (SHORT + "---\n" + SHORT, "acme.yaml:5: tenant: this tenant is already written on line 1"),
        (SHORT.encode() + b"# caf\xe9", "acme.yaml:4: this line is not UTF-8: save the file as UTF-8"),
        (SHORT + "agent: {answer_timeout: 1:30}", "acme.yaml:4: agent.answer_timeout: it must be a valid number"),
        (SHORT + "agent: {answer_timeout: " + "1:" * 400_000 + "1}", "acme.yaml:4: agent.answer_timeout: it must be"),
        (SHORT + "agent: {answer_timeout: " + "1:" * 400 + "1.5}", "acme.yaml:4: agent.answer_timeout: it must be"),
        (SHORT + "agent: {answer_timeout: !!int 1:1}", "acme.yaml:4: agent.answer_timeout: it does not fit its tag"),
        (SHORT + f"agent: {{history: {'9' * 5000}}}", "acme.yaml:4: agent.history: Unable to parse"),
        (SHORT + f"agent: {{history: !!int {'9' * 5000}}}", "acme.yaml:4: agent.history: it does not fit its tag"),
        (SHORT + "agent: {history: 0x1F}", "acme.yaml:4: agent.history: it must be a valid integer"),
        (SHORT + "agent: {answer_timeout: .inf}", "acme.yaml:4: agent.answer_timeout: it must be a valid number"),
        (SHORT + "agent: {answer_timeout: !!float nan}", "acme.yaml:4: agent.answer_timeout: it must be"),
        (SHORT + 'agent: {instructions: "\\UDEADBEEF"}', "acme.yaml:4: an escape (\\U…) or a version (%YAML …)"),
        (SHORT + 'agent: {instructions: "\\U00110000"}', "acme.yaml:4: an escape (\\U…) or a version (%YAML …)"),
        ("%YAML 1." + "9" * 5000 + "\n--- {}", "acme.yaml:1: an escape (\\U…) or a version (%YAML …)"),
        (SHORT + "a:\n" + "- b\n" * 60_000, "acme.yaml:49997: it holds more than 50000 values"),
        (SHORT + "---\n" * 60_000, "acme.yaml:49997: it holds more than 50000 values"),
        (
            SHORT
            + "".join(f"a{at + 1}: &a{at + 1} {'[' * 100}*a{at}{']' * 100}\n" for at in range(9)).replace("*a0", ""),
            "acme.yaml:1: it is nested too deeply",
        ),
        (b"#" * (LARGEST_FILE + 1), "acme.yaml: it is larger than 1 MB: split it, one tenant a file"),
    ],
)
def test_one_thing_wrong_is_one_line(file: Path, text: str | bytes, problem: str) -> None:
    (said,) = refused(file, text)
    assert said.startswith(problem)


@pytest.mark.parametrize(("written", "history"), [("12", 12), ("+12", 12), ("012", 12), ("'12'", 12), ("!!int 12", 12)])
def test_a_number_is_what_it_looks_like(file: Path, written: str, history: int) -> None:
    (config,) = load(file, SHORT + f"agent: {{history: {written}, answer_timeout: 1.5}}")
    assert (config.agent.history, config.agent.answer_timeout) == (history, 1.5)


_PIECES = (
    *("%YAML 1.", "%TAG ! a:%FF%", "!!int ", "!!float ", "!!null ", "!!bool ", "!<", "!%FF ", "&", "*", "<<: ", "= "),
    *("1:1", "0x", "1e999", ".inf", "_", "~", "\\UDEADBEEF", "\\uD800", "\\x", "|9\n", ">-\n", "? ", "- ", ": ", ", "),
    *("{", "}", "[", "]", "'", '"', "#", "\n", "\n---\n", "\n...\n", "\t", "\0", "\x85", "\u2028", "\ufeff", "${", "é"),
    *("9" * 5000, "1:" * 200, "2026-11-29 10:00:00"),
)
_SEEDS = (SHORT, re.sub("[$]{.*?}", "x", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]))


@given(
    st.sampled_from(_SEEDS),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 8), st.sampled_from(_PIECES)), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_is_a_tenant_or_clear_lines(seed: str, edits: list[tuple[int, int, str]]) -> None:
    for at, length, piece in edits:
        at = at % (len(seed) + 1)
        seed = seed[:at] + piece + seed[at + length :]
    told: tuple[Problem, ...] = ()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "acme.yaml"
        file.write_bytes(seed.encode())
        try:
            load_file(file, {})
        except TenantFileError as error:
            told = error.problems
    assert all(problem.line and "\n" not in str(problem) for problem in told if "no tenant" not in problem.words)


def test_what_stands_where_a_name_should_is_not_repeated(file: Path) -> None:
    text = SHORT + f"channels: {{telegram: {{{TOKEN}}}}}"
    assert refused(file, text) == [
        "acme.yaml:4: channels.telegram.token: it is missing",
        "acme.yaml:4: channels.telegram.…: there is no such field; known here are token, receive, unknown, drafts, rich",
    ]


@pytest.mark.parametrize("joint", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_that_unfold_without_end_are_refused(file: Path, joint: str) -> None:
    bomb = "".join(
        f"a{level}: &a{level} {joint.format(', '.join([f'*a{level - 1}'] * 10))}\n" for level in range(1, 30)
    )
    (said,) = refused(file, "a0: &a0 {x: 1}\n" + bomb)
    assert said.endswith("with its aliases it holds more than 50000 values")


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(TenantFileError, match=r"nowhere\.yaml: there is no such file$"):
        load_file(tmp_path / "nowhere.yaml", {})
    with pytest.raises(TenantFileError, match=f"^{re.escape(str(tmp_path))}: cannot be read: Is a directory$"):
        load_file(tmp_path, {})


WITH_TEMPLATES = f"""\
languages: [es, en]
channels:
  whatsapp:
    account_sid: AC{"0" * 32}
    auth_token: t
    sender: "+14155238886"
    templates:
      - sid: HX{"1" * 32}
        language: es
        variables: {{"1": name, "2": about}}
      - sid: HX{"2" * 32}
        language: en
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "language: en",
            "language: pt",
            "15: …templates.1.language: this tenant speaks es, en: add pt to languages first",
        ),
        ('{"1"', '{"0"', '13: …templates.0.variables.0: a place is named by its number, from 1 on, as in "1"'),
        ('{"1"', "{first", '13: …templates.0.variables.first: a place is named by its number, from 1 on, as in "1"'),
        ('{"1"', '{"3"', "13: …templates.0.variables: its places begin at 1 and leave none out: 1 is missing"),
        ('"2"', '"5"', "13: …templates.0.variables: its places begin at 1 and leave none out: 2, 3, 4 are missing"),
        ("about", "phone", "13: …templates.0.variables.2: it must be 'name', 'about', 'text', 'business' or 'time'"),
        ("HX1", "HY1", "11: …templates.0.sid: this is not a template of Twilio: HX and 32 digits and letters a-f"),
        ("language: en", "language: english", "15: …templates.1.language: write two small letters, as in es"),
        (
            "AC0",
            "0",
            "7: channels.whatsapp.account_sid: this is not an account SID of Twilio: AC and 32 digits and letters a-f",
        ),
    ],
)
def test_what_is_wrong_with_a_template_is_said_in_words(file: Path, old: str, new: str, problem: str) -> None:
    assert len(load(file, SHORT + WITH_TEMPLATES)) == 1
    (said,) = refused(file, SHORT + WITH_TEMPLATES.replace(old, new, 1))
    assert said.startswith("acme.yaml:" + problem.replace("…", "channels.whatsapp."))


def test_a_template_that_is_not_sent_by_keeps_no_stored_tenant_from_being_read(file: Path) -> None:
    (config,) = load(file, SHORT + WITH_TEMPLATES)
    stored = to_stored(config, BOX)
    stored["languages"] = ["es"]
    stored["channels"]["whatsapp"]["templates"][0]["variables"] = {"2": "name"}
    assert from_stored(stored, BOX).languages == ("es",)


def test_names_of_variables_are_replaced_and_can_be_written_plainly(file: Path) -> None:
    text = SHORT + "agent:\n  instructions: ${GREETING} costs $5, written $${GREETING}\n  history: ${HISTORY}\n"
    (config,) = load(file, text, {"GREETING": "Tea ${x}", "HISTORY": "12"})
    assert config.agent.instructions == "Tea ${x} costs $5, written ${GREETING}"
    assert config.agent.history == 12


def test_a_variable_that_is_not_set_is_named_once(file: Path) -> None:
    text = SHORT + "channels:\n  telegram:\n    token: ${ACME_TOKEN}\nagent:\n  model: ${not a name}\n"
    assert refused(file, text) == [
        "acme.yaml:6: channels.telegram.token: the environment variable ACME_TOKEN is not set: "
        "set it, or write $${ for a plain ${",
        "acme.yaml:8: agent.model: write ${NAME} for an environment variable, or $${ for a plain ${",
    ]


def test_a_variable_that_holds_no_text_is_refused(file: Path) -> None:
    (said,) = refused(file, SHORT + "agent: {instructions: '${X}'}", {"X": "\udcff"})
    assert said.startswith("acme.yaml:4: agent.instructions: it holds characters that are no text")


def test_anchors_and_merges_are_followed(file: Path) -> None:
    text = SHORT + "agent: &agent {instructions: Be brief., history: 10}\n---\n" + SHORT.replace("acme", "other")
    first, second = load(file, text)
    assert (first.agent.history, second.tenant) == (10, "other")
    (merged,) = load(file, SHORT + "agent: {<<: [{history: 10, model: a:b}, {history: 11}], model: c:d}")
    assert (merged.agent.history, merged.agent.model) == (10, "c:d")


def test_problems_of_all_documents_are_told_and_none_is_loaded(file: Path) -> None:
    text = SHORT + "x: 1\n---\n" + SHORT.replace("acme", "other") + "---\n" + SHORT + "z: 1\n---\na: ["
    assert [line.split(": ")[0] for line in refused(file, text)] == ["acme.yaml:4", "acme.yaml:13", "acme.yaml:15"]


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts_in(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts_in(inner)]
    return [value] if isinstance(value, str) else []


def test_a_stored_tenant_holds_its_secrets_sealed_and_comes_back_the_same(file: Path) -> None:
    config = example(file)
    stored = json.loads(json.dumps(to_stored(config, BOX)))
    sealed = [text for text in texts_in(stored) if text.startswith("sealed:")]
    assert len(sealed) == 2
    assert "hunter2" not in json.dumps(stored)
    assert from_stored(stored, BOX) == config
    assert to_stored(from_stored(stored, BOX), BOX) == stored


def test_the_same_file_is_stored_the_same_and_defaults_are_left_to_the_code(file: Path) -> None:
    assert to_stored(example(file), BOX) == to_stored(example(file), BOX)
    (short,) = load(file, SHORT)
    assert to_stored(short, BOX) == {"tenant": "acme", "name": "Acme", "time_zone": "America/Bogota"}
    (off,) = load(file, SHORT + "channels: {web: null}")
    assert to_stored(off, BOX)["channels"] == {"web": None}


def test_a_plain_text_that_looks_sealed_comes_back_as_it_was(file: Path) -> None:
    (config,) = load(file, SHORT + "agent: {instructions: 'sealed:v1:abc'}")
    assert from_stored(to_stored(config, BOX), BOX).agent.instructions == "sealed:v1:abc"


def test_a_secret_does_not_open_with_another_key_or_for_another_tenant(file: Path) -> None:
    stored = to_stored(example(file), BOX)
    with pytest.raises(WrongKey, match=r"channels\.telegram\.token of tenant acme"):
        from_stored(stored, SecretBox(b"l" * 32))
    with pytest.raises(WrongKey, match=r"channels\.telegram\.token of tenant other"):
        from_stored({**stored, "tenant": "other"}, BOX)


def test_a_stored_tenant_that_this_version_cannot_read_is_told_without_its_secrets(file: Path) -> None:
    stored = to_stored(example(file), BOX)
    stored["channels"]["whatsapp"]["region"] = "ie1"
    stored["colour"] = "hunter2"
    with pytest.raises(TenantFileError) as caught:
        from_stored(stored, BOX)
    assert str(caught.value).splitlines() == [
        "tenant acme, as stored: channels.whatsapp.region: there is no such field",
        "tenant acme, as stored: colour: there is no such field",
    ]
    assert caught.value.__suppress_context__


def test_a_tenant_is_shown_with_its_defaults_and_without_its_secrets(file: Path) -> None:
    seen = shown(example(file))
    assert "hunter2" not in json.dumps(seen)
    bot = {"token": HIDDEN, "receive": "auto", "unknown": "at_most_once", "drafts": True, "rich": False}
    assert seen["channels"]["telegram"] == bot
    assert seen["channels"]["whatsapp"]["auth_token"] == HIDDEN
    assert seen["channels"]["whatsapp"]["previous_auth_token"] is None
    assert seen["agent"]["history"] == 40


def test_the_secrets_of_identities_are_sealed_each_in_its_place_and_never_shown(file: Path) -> None:
    secrets = ["hunter2-" * 4, "retnuh2-" * 4]
    text = SHORT + "channels: {web: {identity: {secrets: ['${NEW}', '${OLD}']}, session: {idle: 30d}}}"
    (config,) = load(file, text, {"NEW": secrets[0], "OLD": secrets[1]})
    stored = to_stored(config, BOX)
    assert stored == to_stored(config, BOX)
    assert "hunter2" not in json.dumps(stored)
    assert from_stored(json.loads(json.dumps(stored)), BOX) == config
    web = shown(config)["channels"]["web"]
    assert web["identity"]["secrets"] == [HIDDEN, HIDDEN]
    assert web["session"] == {"idle": "30d", "absolute": "730d"}
    stored["channels"]["web"]["identity"]["secrets"].reverse()
    with pytest.raises(WrongKey):
        from_stored(stored, BOX)
    assert refused(file, text, {"NEW": "hunter2", "OLD": secrets[1]}) == [
        "acme.yaml:4: channels.web.identity.secrets.0: it must have at least 32 characters: make one with"
        " `openssl rand -hex 32`"
    ]


SERVERS = (
    SHORT
    + """agent:
  mcp:
    - name: shop
      url: https://tools.example/mcp
      allow: [stock, price]
      headers: {Authorization: "Bearer ${TOKEN}", X-Shop: "7"}
      timeout: 1m
"""
)


def test_the_headers_of_a_tenants_own_servers_are_sealed_and_never_shown(file: Path) -> None:
    (config,) = load(file, SERVERS, {"TOKEN": "hunter2"})
    (server,) = config.agent.mcp
    assert server.headers["Authorization"].get_secret_value() == "Bearer hunter2"
    stored = json.loads(json.dumps(to_stored(config, BOX)))
    assert "hunter2" not in json.dumps(stored)
    assert stored["agent"]["mcp"][0]["timeout"] == "60s"
    assert from_stored(stored, BOX) == config
    assert to_stored(from_stored(stored, BOX), BOX) == stored
    (seen,) = shown(config)["agent"]["mcp"]
    assert seen["headers"] == {"Authorization": HIDDEN, "X-Shop": HIDDEN}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("https://tools", "http://tools", "acme.yaml:7: agent.mcp.0.url: write an address such as https://"),
        ("https://tools", "https://me:pw@tools", "acme.yaml:7: agent.mcp.0.url: write an address"),
        (".example/mcp", ".example:8443/mcp", "acme.yaml:7: agent.mcp.0.url: write an address"),
        (".example/mcp", ".example:x/mcp", "acme.yaml:7: agent.mcp.0.url: write an address"),
        ("name: shop", "name: my_shop", "acme.yaml:6: agent.mcp.0.name: write small letters"),
        ("[stock, price]", "[]", "acme.yaml:8: agent.mcp.0.allow: it must have at least 1 item"),
        ("      allow: [stock, price]\n", "", "acme.yaml:6: agent.mcp.0.allow: it is missing"),
        ("timeout: 1m", "timeout: 1h", "acme.yaml:10: agent.mcp.0.timeout: write 1 second to 2 minutes"),
        ("timeout: 1m", "timeout: soon", "acme.yaml:10: agent.mcp.0.timeout: "),
        ("timeout: 1m", "time_out: 1m", "acme.yaml:10: agent.mcp.0.time_out: there is no such field"),
        (
            '"Bearer ${TOKEN}"',
            '"Bearer\\n${TOKEN}"',
            "acme.yaml:9: agent.mcp.0.headers.Authorization: a header's value",
        ),
    ],
)
def test_what_is_wrong_with_a_tenants_own_server_is_said_in_words(file: Path, old: str, new: str, problem: str) -> None:
    assert old in SERVERS
    (said,) = refused(file, SERVERS.replace(old, new), {"TOKEN": "hunter2"})
    assert said.startswith(problem)


def test_two_servers_of_one_name_are_refused(file: Path) -> None:
    again = "    - {name: shop, url: 'https://other.example/mcp', allow: [stock]}\n"
    assert refused(file, SERVERS + again, {"TOKEN": "t"}) == ["acme.yaml:5: agent.mcp: two servers have the name shop"]


TOOLS = (
    SHORT
    + """agent:
  tools:
    - name: order_status
      about: Where an order is.
      url: https://shop.example/orders/{order}?in={lang}
      input:
        type: object
        properties: {order: {type: string, minLength: 1}, lang: {enum: [en, es]}}
        required: [order]
      headers: {Authorization: "Bearer ${TOKEN}"}
      timeout: 1m
  openapi:
    - name: shop
      file: apis/shop.yaml
      allow: [cancel]
      headers: {X-Key: "${TOKEN}"}
"""
)
DOCUMENT = """openapi: "3.1.0"
servers: [{url: https://shop.example/api}]
paths:
  /orders/{id}:
    delete:
      operationId: cancel
      summary: Takes ${HOME} back.
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
"""


def beside(file: Path, text: str | bytes) -> None:
    (file.parent / "apis").mkdir(exist_ok=True)
    (file.parent / "apis/shop.yaml").write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_tools_of_a_tenant_are_stored_so_that_they_need_no_other_file(file: Path, as_json: bool) -> None:
    beside(file, json.dumps(yaml.safe_load(DOCUMENT)) if as_json else DOCUMENT)
    (config,) = load(file, TOOLS, {"TOKEN": "hunter2", "HOME": "hunter2"})
    assert [tool.name for tool in config.agent.tools] == ["order_status", "shop__cancel"]
    assert config.agent.openapi == ()
    written, described = config.agent.tools
    assert written.headers["Authorization"].get_secret_value() == "Bearer hunter2"
    assert (described.method, described.url) == ("DELETE", "https://shop.example/api/orders/{id}")
    assert described.about == "Takes ${HOME} back.", "a stranger's file reads nothing of the environment"
    stored = json.loads(json.dumps(to_stored(config, BOX)))
    assert "hunter2" not in json.dumps(stored)
    assert "openapi" not in stored["agent"]
    assert from_stored(stored, BOX) == config
    assert to_stored(from_stored(stored, BOX), BOX) == stored
    assert [tool["headers"] for tool in shown(config)["agent"]["tools"]] == [
        {"Authorization": HIDDEN},
        {"X-Key": HIDDEN},
    ]
    assert "hunter2" not in json.dumps(shown(config))
    (without,) = load(file, SHORT)
    assert taken_away(stored, to_stored(without, BOX)) == ["no longer with the tool order_status, shop__cancel"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("https://shop", "http://shop", "8: agent.tools.0.url: write an address such as https://"),
        ("//shop.example/orders", "//{order}.example/orders", "8: agent.tools.0.url: its host may have no place"),
        ("//shop.example/orders", "//shop.example:{order}/orders", "8: agent.tools.0.url: write an address"),
        ("//shop.example/orders", "//10.0.0.7/orders", "8: agent.tools.0.url: write the name of its host, not a number"),
        ("//shop.example/orders", "//localhost/orders", "8: agent.tools.0.url: its host is no public name"),
        ("{order}?", "{the-order}?", "8: agent.tools.0.url: write a place as {name}"),
        ("{order}?", "{number}?", "8: agent.tools.0.url: the place {number} needs an argument"),
        ("{order}?", "{lang}?", "8: agent.tools.0.url: the place {lang} needs an argument"),
        ("in={lang}", "in={zone}", "8: agent.tools.0.url: the place {zone} needs an argument"),
        ("in={lang}", "in=x{lang}", "8: agent.tools.0.url: a place in the query is a whole value"),
        ("in={lang}", "{lang}=x", "8: agent.tools.0.url: write a place as {name}"),
        ("name: order_status", "name: cancel_followup", "6: agent.tools.0.name: a tool of the assistant's own"),
        ("name: order_status", "name: order status", "6: agent.tools.0.name: write letters"),
        ("name: order_status", "name: shop__cancel", "5: agent.tools: two tools have the name shop__cancel"),
        ("      about: Where an order is.\n", "", "6: agent.tools.0.about: it is missing"),
        ("      headers: {Auth", "      method: HEAD\n      headers: {Auth", "13: agent.tools.0.method: it must be 'GET'"),
        ("      headers: {Auth", "      body: order\n      headers: {Auth", "13: agent.tools.0.body: a GET has no body"),
        ("Authorization:", "Host:", "13: agent.tools.0.headers: these are not yours to write: accept-encoding"),
        ("Authorization:", "x-y: '1', X-Y:", "13: agent.tools.0.headers: a header is written twice"),
        ("type: object", "type: array", "10: agent.tools.0.input.type: the arguments of a tool are an object"),
        ("type: string, min", "type: text, min", "11: agent.tools.0.input.properties.order.type: this is no JSON Schema"),
        ("minLength", "minLen", "11: agent.tools.0.input.properties.order.minLen: this keyword cannot be used"),
        ("minLength: 1", "$ref: 'https://x.example'", "11: agent.tools.0.input.properties.order.…: nothing may refer"),
        ("minLength: 1", "pattern: '(?=x)'", "11: agent.tools.0.input.properties.order.pattern: this pattern cannot"),
        ("{enum: [en, es]}", "{not: " * 200 + "5" + "}" * 200, "9: agent.tools.0.input: it is nested deeper than 100"),
        ("{enum: [en, es]}", "5", "11: agent.tools.0.input.properties.lang: it must be a JSON Schema"),
        ("timeout: 1m", "timeout: 1h", "14: agent.tools.0.timeout: write 1 second to 2 minutes"),
        ("apis/shop", "../shop", "17: agent.openapi.0.file: write the name of a file beside this one"),
        ("apis/shop", "/etc/shop", "17: agent.openapi.0.file: write the name of a file beside this one"),
        ("apis/shop", "apis/none", "17: agent.openapi.0.file: DIR/apis/none.yaml: there is no such file"),
        ("[cancel]", "[canel]", "18: agent.openapi.0.allow.0: apis/shop.yaml: it has no operation of this name; did you"),
        ("allow:", "server: 'https://shop.example?x'\n      allow:", "18: agent.openapi.0.server: write an address"),
        ("name: shop\n", "name: my shop\n", "16: agent.openapi.0.name: write small letters"),
        ("  openapi:\n", "  mcp: [{name: shop, url: 'https://a.example', allow: [b]}]\n  openapi:\n", "4: agent: two of mcp"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tenants_own_tool_is_said_in_words(file: Path, old: str, new: str, problem: str) -> None:
    beside(file, DOCUMENT)
    assert old in TOOLS
    (said,) = refused(file, TOOLS.replace(old, new), {"TOKEN": "hunter2"})
    assert said.replace(str(file.parent), "DIR").startswith(f"acme.yaml:{problem}")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("openapi: [", ":1: this is not YAML"),
        ('{"openapi": NaN', ":1: this is not YAML"),
        ("", ": write one document into it"),
        ("a: 1\n---\na: 2", ": write one document into it"),
        ("a: !x 1", ":1: a: it has a tag"),
        ("a: &a [*a]", ":1: a.0: it is an alias of something it stands in"),
        ("[" * 5_000, ":1: it is nested too deeply"),
        (b"a: \xff", ":1: this line is not UTF-8"),
        (b"#" * (LARGEST_FILE + 1), ": it is larger than 1 MB: leave out what is not needed of it"),
        ("openapi: 2", "it is no OpenAPI document"),
        (r'{"a": "\u0000"}', "it holds a number or a text that is none"),
        (r'{"a": "\ud800"}', "it holds a number or a text that is none"),
        ('{"a": 1e999}', "it holds a number or a text that is none"),
        (
            "[" * 101 + "]" * 101,
            "it holds a number or a text that is none (a zero, or half of a pair), or is nested deeper",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_said_with_its_name(file: Path, document: str | bytes, problem: str) -> None:
    beside(file, document)
    (said,) = refused(file, TOOLS, {"TOKEN": "hunter2"})
    assert said.startswith("acme.yaml:17: agent.openapi.0.file: ")
    assert f"apis/shop.yaml{problem}" in said or f"apis/shop.yaml: {problem}" in said


def test_an_origin_of_files_is_written_in_quotes(file: Path) -> None:
    (config,) = load(file, SHORT + "channels: {web: {origins: ['null']}}")
    assert config.channels.web is not None
    assert config.channels.web.origins == ("null",)
    assert refused(file, SHORT + "channels: {web: {origins: [null]}}") == [
        "acme.yaml:4: channels.web.origins.0: it is empty"
    ]


def test_the_json_schema_knows_every_field_and_no_other() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert list(schema["properties"]) == list(TenantConfig.model_fields)
    assert schema["required"] == ["tenant", "name", "time_zone"]
    models = [schema, *schema["$defs"].values()]
    assert len(models) == 28
    assert all(model["additionalProperties"] is False for model in models)
    assert schema["$defs"]["HttpTool"]["properties"]["input"]["type"] == "object"
    assert schema["$defs"]["TelegramSection"]["properties"]["token"]["writeOnly"] is True


SIGNING, FORMER = "whsec_" + "hunter2A" * 4, "whsec_" + "hunter2B" * 5
ELSEWHERE = """\
functions:
  "/check-cart":
    url: https://shop.example/check
    timeout: 45s
calls:
  secret: ${NEW}
  previous_secret: ${OLD}
"""


def test_functions_elsewhere_are_read_and_what_signs_their_calls_is_sealed(file: Path) -> None:
    (config,) = load(file, SHORT + ELSEWHERE, {"NEW": SIGNING, "OLD": FORMER})
    assert config.functions["/check-cart"].timeout == timedelta(seconds=45)
    assert config.calls is not None
    assert config.calls.secrets == [SIGNING, FORMER]
    stored = to_stored(config, BOX)
    assert stored["functions"] == {"/check-cart": {"url": "https://shop.example/check", "timeout": "45s"}}
    assert "hunter2" not in json.dumps(stored) + repr(config)
    assert from_stored(json.loads(json.dumps(stored)), BOX) == config
    assert shown(config)["calls"] == {"secret": HIDDEN, "previous_secret": HIDDEN}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("https:", "http:", "6: functions./check-cart.url: only https is called: begin it with https://"),
        ("shop.example", "10.0.0.1", "6: functions./check-cart.url: write the name of its host, not a number"),
        ("shop.example", "ana:hunter2@a.example", "6: functions./check-cart.url: no user and no password may stand"),
        ("45s", "0s", "7: functions./check-cart.timeout: write 1 second to 5 minutes, such as 30s"),
        ("45s", "6m", "7: functions./check-cart.timeout: write 1 second to 5 minutes, such as 30s"),
        ("timeout", "timeuot", "7: functions./check-cart.timeuot: there is no such field; did you mean timeout?"),
        ("/check-cart", "check-cart", "5: functions.check-cart: a function's path begins with /"),
        ("/check-cart", "/check cart", "5: functions.…: a function's path begins with /"),
        ("    url: https://shop.example/check\n", "", "5: functions./check-cart.url: it is missing"),
        ("${NEW}", "hunter2", "9: calls.secret: it is whsec_ and 24 to 64 bytes in base64: make one with"),
        ("${NEW}", "whsec_hunter2=", "9: calls.secret: it is whsec_ and 24 to 64 bytes in base64"),
        ("${NEW}", SIGNING[6:], "9: calls.secret: it is whsec_ and 24 to 64 bytes in base64"),
        ("${NEW}", SIGNING[:-16], "9: calls.secret: it is whsec_ and 24 to 64 bytes in base64"),
        ("${NEW}", SIGNING + "AAAA" * 20, "9: calls.secret: it is whsec_ and 24 to 64 bytes in base64"),
        ("  secret: ${NEW}\n", "", "8: calls.secret: it is missing"),
        (
            "calls:\n  secret: ${NEW}\n  previous_secret: ${OLD}\n",
            "",
            "4: functions: what is called elsewhere is signed",
        ),
    ],
)
def test_what_is_wrong_with_a_function_elsewhere_is_said_in_words(file: Path, old: str, new: str, problem: str) -> None:
    environ = {"NEW": SIGNING, "OLD": SIGNING}
    assert len(load(file, SHORT + ELSEWHERE, environ)) == 1
    assert old in ELSEWHERE
    (said,) = refused(file, SHORT + ELSEWHERE.replace(old, new, 1), environ)
    assert said.startswith("acme.yaml:" + problem)
