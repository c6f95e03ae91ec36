"""What a business writes down: its file, checked with file, line and field named in whatever is wrong, and its stored form.

A file is YAML, one tenant a document. `${NAME}` in a text stands for an environment variable, `$${` for a plain `${`.
No value is ever repeated in a message: it may be a secret.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin
from zoneinfo import available_timezones

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints, ValidationError

from agent.language import Language
from agent.section import AgentSection
from app.cadence_section import BudgetSection, CadenceName, CadenceSection, CapsSection, HoursSection
from app.calls_section import CallsSection, FunctionPath, FunctionSection
from app.deferred import DEEPEST, holds_zero, is_deep
from channels.optout import OptOutSection
from channels.telegram.bot import TelegramSection
from channels.web.section import WebSection
from channels.whatsapp.section import Template, WhatsAppSection, wrong_templates
from scheduler.limits import LimitsSection
from scheduler.when import known_zone
from store.secrets import PREFIX, SecretBox, WrongKey

DEMO = Path(__file__).with_name("demo_tenant.yaml")
LARGEST_FILE = 1_000_000
"""Bytes."""
MOST_VALUES = 50_000
"""Values in one document, each counted as often as an alias repeats it."""
HIDDEN = "********"

Place = tuple[str | int, ...]


def _slug(given: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", given) is None:
        raise ValueError("write small letters a-z, digits and hyphens, at most 40, with a letter or digit first")
    return given


def _time_zone(given: str) -> str:
    if known_zone(given) is None:
        wanted = given.lower().replace(" ", "_")
        zones = {zone.lower(): zone for zone in sorted(available_timezones())}
        near = [name for name in zones if name.endswith(f"/{wanted}")] or difflib.get_close_matches(wanted, zones, 1)
        hint = f"; did you mean {zones[near[0]]}?" if near else ""
        raise ValueError(f"it must be a name of the IANA time zone database, such as America/Bogota{hint}")
    return given


class ChannelsSection(BaseModel, extra="forbid", frozen=True):
    """Where customers write. Only the web channel is there without being asked for; `web: null` takes it away."""

    web: WebSection | None = WebSection()
    telegram: TelegramSection | None = None
    whatsapp: WhatsAppSection | None = None


class HandoverSection(BaseModel, extra="forbid", frozen=True):
    """What becomes of what is booked in a conversation while a person answers there."""

    booked: Literal["hold", "go on"] = "hold"


class RetentionSection(BaseModel, extra="forbid", frozen=True):
    """How long what was said is kept."""

    messages_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """None is for ever."""


class TenantConfig(BaseModel, extra="forbid", frozen=True):
    """One tenant: who the business is, how its agent speaks, and where."""

    model_config = ConfigDict(hide_input_in_errors=True)

    tenant: Annotated[str, AfterValidator(_slug), Field(json_schema_extra={"pattern": "^[a-z0-9][a-z0-9-]{0,39}$"})]
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
    time_zone: Annotated[str, AfterValidator(_time_zone)]
    languages: Annotated[tuple[Language, ...], Field(min_length=1)] = ("en",)
    """The first is spoken where nothing tells another."""
    agent: AgentSection = AgentSection()
    channels: ChannelsSection = ChannelsSection()
    opt_out: OptOutSection = OptOutSection()
    limits: LimitsSection = LimitsSection()
    functions: Mapping[FunctionPath, FunctionSection] = {}
    """Functions elsewhere, by their paths."""
    calls: CallsSection | None = None
    hours: HoursSection = HoursSection()
    caps: CapsSection = CapsSection()
    budget: BudgetSection = BudgetSection()
    cadences: Mapping[CadenceName, CadenceSection] = {}
    """What customers are told around a due day, by the cadences' names."""
    handover: HandoverSection = HandoverSection()
    retention: RetentionSection = RetentionSection()

    @property
    def step_templates(self) -> Mapping[str, Template]:
        """The templates that steps of cadences name, by their numbers, as they would stand among WhatsApp's own."""
        return {
            one.sid: Template(
                sid=one.sid, language=language, purpose="notice", variables=dict.fromkeys(one.values, "text")
            )
            for cadence in self.cadences.values()
            for step in cadence.steps
            for language, one in (step.template or {}).items()
        }


class Problem(NamedTuple):
    """One thing that is wrong with a file."""

    file: str
    line: int | None
    field: str
    words: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.field}: {self.words}" if self.field else f"{where}: {self.words}"


class TenantFileError(Exception):
    """A tenants' file, or a stored tenant, that cannot be used; one problem a line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


UNUSABLE = (WrongKey, TenantFileError)
"""What is raised for a tenant that cannot be used as it is stored; applying its file again mends it."""


def load_file(path: Path, environ: Mapping[str, str]) -> list[TenantConfig]:
    """Read every tenant of a file; `environ` is what `${NAME}` is looked up in. Raises TenantFileError, all or nothing."""
    text = _read(path, "split it, one tenant a file")
    configs: list[TenantConfig] = []
    problems: list[Problem] = []
    first_lines: dict[str, int] = {}
    try:
        for node in _documents(text):
            if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null":
                continue  # nothing between two --- lines
            document = _Document(node, environ, path.parent)
            config = document.check()
            problems += [Problem(str(path), line, field, words) for line, field, words in document.problems]
            if config is None:
                continue
            line = document.line_of(("tenant",))
            if first_lines.setdefault(config.tenant, line) != line:
                words = f"this tenant is already written on line {first_lines[config.tenant]}"
                problems.append(Problem(str(path), line, "tenant", words))
            configs.append(config)
    except _Unreadable as problem:
        problems.append(Problem(str(path), problem.line, "", problem.words))
    if not configs and not problems:
        problems.append(Problem(str(path), None, "", "no tenant is written in it: it needs tenant, name and time_zone"))
    if problems:
        raise TenantFileError(sorted(set(problems), key=lambda problem: (problem.line or 0, problem.field)))
    return configs


def to_stored(config: TenantConfig, box: SecretBox) -> dict[str, Any]:
    """Return what was written of a tenant as JSON, with every secret sealed; the same tenant gives the same JSON.

    What was not written is left out, so that a default is always the present one.
    """
    return _dumped(config, lambda field, text: box.seal(config.tenant, field, text), exclude_unset=True)


def from_stored(stored: Mapping[str, Any], box: SecretBox) -> TenantConfig:
    """Return a tenant from its stored form. Raises WrongKey, or TenantFileError for what this version cannot read."""
    tenant = str(stored.get("tenant"))

    def opened(value: Any, place: Place) -> Any:
        match value:
            case dict():
                return {name: opened(inner, (*place, name)) for name, inner in value.items()}
            case list():
                return [opened(inner, (*place, index)) for index, inner in enumerate(value)]
            case str() if value.startswith(PREFIX):
                return box.open(tenant, _dotted(place), value)
        return value

    data = opened(dict(stored), ())
    try:
        return TenantConfig.model_validate(data)
    except ValidationError as error:
        raise TenantFileError(
            [
                Problem(f"tenant {tenant}, as stored", None, _shown_place(line["loc"]), _words(line["msg"], data))
                for line in error.errors(include_input=False, include_context=False)
            ]
        ) from None  # theirs may repeat a secret


def shown(config: TenantConfig) -> dict[str, Any]:
    """Return a tenant with its defaults as JSON fit to be seen: every secret is `********`."""
    return _dumped(config, lambda field, text: HIDDEN, exclude_unset=False)


def senders(config: TenantConfig) -> list[tuple[str, str]]:
    """Return the `(channel, sender)` pairs that belong to this tenant alone."""
    found = []
    if config.channels.telegram:
        found.append(("telegram", config.channels.telegram.bot_id))
    if config.channels.whatsapp:
        found.append(("whatsapp", config.channels.whatsapp.sender))
    return found


def taken_away(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return, in words, the channels, languages of templates, tools and functions that a tenant's stored form has and its next has not.

    Nothing is opened for that: what is there may be sealed with another key.
    """
    had, has = _sections(before), _sections(after)
    gone = [name for name in had if name not in has]
    spoke, speaks = (
        {template["language"] for template in sections.get("whatsapp", {}).get("templates", ())}
        for sections in (had, has)
    )
    words = [f"no longer on {', '.join(gone)}"] if gone else []
    if "whatsapp" in has and spoke - speaks:
        words.append(f"no longer with a template in {', '.join(sorted(spoke - speaks))}")
    tools, has_tools = (
        {tool["name"] for tool in stored.get("agent", {}).get("tools", ())} for stored in (before, after)
    )
    if tools - has_tools:
        words.append(f"no longer with the tool {', '.join(sorted(tools - has_tools))}")
    if called := set(before.get("functions", ())) - set(after.get("functions", ())):
        words.append(f"no longer calls {', '.join(sorted(called))} elsewhere")
    return words


def _sections(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored tenant's channels by name; the web is there unless it was taken away."""
    written = {"web": {}, **stored.get("channels", {})}
    return {name: section for name, section in written.items() if section is not None}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one tenant, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TenantConfig.model_json_schema()}


def _dumped(config: TenantConfig, secret: Callable[[str, str], str], *, exclude_unset: bool) -> dict[str, Any]:
    def walk(value: Any, plain: Any, place: Place) -> Any:
        match value:
            case SecretStr():
                return secret(_dotted(place), value.get_secret_value())
            case str() if value.startswith(PREFIX):
                return secret(_dotted(place), value)  # so that all that looks sealed is
            case dict():
                return {name: walk(inner, plain[name], (*place, name)) for name, inner in value.items()}
            case list() | tuple():
                return [walk(inner, plain[index], (*place, index)) for index, inner in enumerate(value)]
        return plain

    whole = config.model_dump(exclude_unset=exclude_unset)
    jsonable = config.model_dump(mode="json", exclude_unset=exclude_unset)
    return {name: walk(value, jsonable[name], (name,)) for name, value in whole.items()}


def _read_document(path: Path) -> Any:
    """Return what stands in a file of JSON or YAML, without `${NAME}`: it may be a stranger's. Raises TenantFileError."""
    text = _read(path, "leave out what is not needed of it")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = _read_yaml(path, text)
    if not _can_be_kept(data):
        words = f"it holds a number or a text that is none (a zero, or half of a pair), or is nested deeper than {DEEPEST} levels"
        raise TenantFileError([Problem(str(path), None, "", words)])
    return data


def _can_be_kept(data: object) -> bool:
    try:
        written = json.dumps(data, allow_nan=False, ensure_ascii=False)
        written.encode()
    except (ValueError, RecursionError):
        return False
    return not holds_zero(written) and not is_deep(written)


def _read_yaml(path: Path, text: str) -> Any:
    try:
        nodes = list(_documents(text))
        if len(nodes) != 1:
            raise _Unreadable(None, "write one document into it")
        document = _Document(nodes[0], None, path.parent)
        data = document.plain()
    except _Unreadable as problem:
        raise TenantFileError([Problem(str(path), problem.line, "", problem.words)]) from None
    if document.problems:
        raise TenantFileError([Problem(str(path), *problem) for problem in document.problems])
    return data


def _read(path: Path, way_out: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise TenantFileError([Problem(str(path), None, "", "there is no such file")]) from None
    except OSError as problem:
        raise TenantFileError([Problem(str(path), None, "", f"cannot be read: {problem.strerror}")]) from problem
    if len(data) > LARGEST_FILE:
        raise TenantFileError([Problem(str(path), None, "", f"it is larger than 1 MB: {way_out}")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise TenantFileError(
            [Problem(str(path), line, "", "this line is not UTF-8: save the file as UTF-8")]
        ) from None


# Reading a document by its nodes, since only they know their lines

_TAG = "tag:yaml.org,2002:"
_DIGITS = "[0-9]{1,18}"
_PARSED: dict[str, Callable[[str], object]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": lambda text: yaml.SafeLoader.bool_values[text.lower()],
    _TAG + "int": int,
    _TAG + "float": float,
}


class _Loader(yaml.SafeLoader):
    """Takes a plain word for a number only as everybody writes it: 1:30, 0x1F, 1e5 and 2026-11-29 are text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library declares it so
        first: [pair for pair in pairs if pair[0].removeprefix(_TAG) in ("null", "bool", "merge")]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.composed += 1
        if self.composed > MOST_VALUES:
            raise _Unreadable(self.line + 1, f"it holds more than {MOST_VALUES} values")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(_TAG + "int", re.compile(rf"[-+]?{_DIGITS}$"), list("-+0123456789"))
_Loader.add_implicit_resolver(_TAG + "float", re.compile(rf"[-+]?{_DIGITS}?\.{_DIGITS}$"), list("-+.0123456789"))


class _Unreadable(Exception):
    """A file that is no YAML, or more of it than anybody writes."""

    def __init__(self, line: int | None, words: str) -> None:
        super().__init__(words)
        self.line, self.words = line, words


def _documents(text: str) -> Iterator[yaml.Node]:
    """Yield the documents of a file. Raises _Unreadable."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Unreadable(line, "a character that may not stand in YAML: remove it") from None
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            yield node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Unreadable(mark.line + 1 if mark else None, f"this is not YAML: {_yaml_words(error)}") from None
    except RecursionError:
        raise _Unreadable(loader.line + 1, "it is nested too deeply") from None
    except (ValueError, OverflowError):  # of the library, which turns whatever digits stand there into a number
        raise _Unreadable(loader.line + 1, "an escape (\\U…) or a version (%YAML …) that YAML does not have") from None


_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")


class _Document:
    """One document of a file: its plain values, the line of each field, and what is wrong."""

    def __init__(self, node: yaml.Node, environ: Mapping[str, str] | None, directory: Path) -> None:
        """Without an `environ` nothing is looked up in it."""
        self.problems: list[tuple[int, str, str]] = []
        self._node = node
        self._environ = environ
        self._directory = directory
        self._lines: dict[Place, int] = {(): node.start_mark.line + 1}
        self._broken: set[Place] = set()
        self._entered: set[int] = set()
        self._values = 0

    def check(self) -> TenantConfig | None:
        """Return the tenant, or None after noting what is wrong."""
        if not isinstance(self._node, yaml.MappingNode):
            self._refuse((), "a tenant is written as fields: tenant: …, name: …, time_zone: …")
            return None
        data = self.plain()
        if data is None:
            return None
        try:
            config = TenantConfig.model_validate(data)
        except ValidationError as error:
            for line in error.errors(include_input=False, include_context=False):
                place = tuple(part for part in line["loc"] if part != "[key]")  # the library's word for a wrong name
                self._refuse_field(place, line["msg"], data)
            return None
        for field, words in wrong_templates(config.channels.whatsapp, config.languages):
            self._refuse(("channels", "whatsapp", "templates", *field), words)
        if config.functions and config.calls is None:
            self._refuse(
                ("functions",),
                "what is called elsewhere is signed, and there is nothing to sign with: add calls.secret",
            )
        if not self.problems and (config.agent.tools or config.agent.openapi):
            config = self._with_tools(config)
        return None if self.problems else config

    def plain(self) -> Any:
        """Return the document's values, or None after noting what is wrong."""
        try:
            return self._value(self._node, ())
        except _TooMuch:
            return None
        except RecursionError:  # aliases of aliases
            self._refuse((), "it is nested too deeply")
            return None

    def _with_tools(self, config: TenantConfig) -> TenantConfig:
        """Return a tenant whose tools are all written out, or note what is wrong with them."""
        openapi = import_module("app.openapi")  # what it stands on is loaded for those who have tools alone
        agent: Place = ("agent",)
        for index, tool in enumerate(config.agent.tools):
            for place, words in openapi.problems_of(tool):
                self._refuse((*agent, "tools", index, *place), words)
        tools = list(config.agent.tools)
        for index, described in enumerate(config.agent.openapi):
            here = (*agent, "openapi", index)
            try:
                document = _read_document(self._directory / described.file)
            except TenantFileError as problem:
                self._refuse((*here, "file"), str(problem.problems[0]))
                continue
            made, problems = openapi.tools(described, document)
            tools += made
            for place, words in problems:
                self._refuse((*here, *place), f"{described.file}: {words}")
        written = {name: getattr(config.agent, name) for name in config.agent.model_fields_set - {"openapi"}}
        try:
            section = AgentSection.model_validate({**written, "tools": tuple(tools)})
        except ValidationError as error:
            self._refuse((*agent, "tools"), _words(error.errors(include_context=False)[0]["msg"], tools))
            return config
        return config.model_copy(update={"agent": section})

    def line_of(self, place: Place) -> int:
        """Return the line of a field, or of the nearest one around it."""
        while place not in self._lines:
            place = place[:-1]
        return self._lines[place]

    def _refuse(self, place: Place, words: str) -> None:
        self._broken.add(place)
        self.problems.append((self.line_of(place), _shown_place(place), words))

    def _refuse_field(self, place: Place, message: str, data: Any) -> None:
        if any(place[:length] in self._broken for length in range(1, len(place) + 1)):
            return  # said already, and better
        model = _model_at(place[:-1])
        if model and place in self._lines and place[-1] not in model.model_fields:
            near = difflib.get_close_matches(str(place[-1]).lower(), model.model_fields, 1)
            way_out = f"did you mean {near[0]}?" if near else f"known here are {', '.join(model.model_fields)}"
            self._refuse(place, f"there is no such field; {way_out}")
        else:
            self._refuse(place, _words(message, _find(data, place)))

    def _value(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        with self._within(node, place):
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                fields = self._fields(node, place)
                self._lines |= {(*place, name): line for name, (line, _) in fields.items()}
                return {name: self._value(child, (*place, name)) for name, (_, child) in fields.items()}
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                self._lines |= {(*place, index): child.start_mark.line + 1 for index, child in enumerate(node.value)}
                return [self._value(child, (*place, index)) for index, child in enumerate(node.value)]
        self._refuse(place, "it has a tag (!…) that may not stand in this file: remove it")
        return None

    def _fields(self, node: yaml.MappingNode, place: Place) -> dict[str, tuple[int, yaml.Node]]:
        own: dict[str, tuple[int, yaml.Node]] = {}
        merged: dict[str, tuple[int, yaml.Node]] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if key.tag == _TAG + "merge":
                for source in child.value if isinstance(child, yaml.SequenceNode) else [child]:
                    with self._within(source, place):
                        if isinstance(source, yaml.MappingNode):
                            merged = self._fields(source, place) | merged
                        else:
                            self._refuse(place, "what << takes in must be fields, or a list of such")
            elif not isinstance(key, yaml.ScalarNode):
                self._refuse(place, "a field's name must be plain text")
            elif key.value in own:
                self._lines[*place, key.value] = line
                self._refuse((*place, key.value), f"it is written twice, first on line {own[key.value][0]}")
            else:
                own[key.value] = (line, child)
        return merged | own

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if parsed := _PARSED.get(node.tag):
            try:
                return parsed(node.value)
            except (ValueError, KeyError):
                self._refuse(place, "it does not fit its tag (!!…)")
        elif node.tag != _TAG + "str":
            self._refuse(place, "it has a tag (!…) that may not stand in this file: remove it")
        text = str(node.value)
        if (environ := self._environ) is not None:
            text = _REFERENCE.sub(lambda found: self._referred(found, place, environ), text)
        try:
            is_text = b"\0" not in text.encode()
        except UnicodeEncodeError:
            is_text = False
        if not is_text:
            self._refuse(place, "it holds characters that are no text (a zero, or half of a pair): remove them")
        return text

    def _referred(self, found: re.Match[str], place: Place, environ: Mapping[str, str]) -> str:
        if found[0] == "$${":
            return "${"
        if found[1] is None:
            self._refuse(place, "write ${NAME} for an environment variable, or $${ for a plain ${")
        elif found[1] not in environ:
            self._refuse(
                place, f"the environment variable {found[1]} is not set: set it, or write $${{ for a plain ${{"
            )
        else:
            return environ[found[1]]
        return ""

    @contextmanager
    def _within(self, node: yaml.Node, place: Place) -> Iterator[None]:
        self._values += 1 + len(node.value)
        if self._values > MOST_VALUES:
            self._refuse(place[:1], f"with its aliases it holds more than {MOST_VALUES} values")
            raise _TooMuch
        if id(node) in self._entered:
            self._refuse(place, "it is an alias of something it stands in")
            raise _TooMuch
        self._entered.add(id(node))
        yield
        self._entered.remove(id(node))


class _TooMuch(Exception):
    """A document cannot be unfolded; its problem is noted."""


# In words


def _yaml_words(error: yaml.MarkedYAMLError) -> str:
    # The names of aliases and anchors are left out: a secret that begins with * or & is read as one.
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return re.sub(r"(alias|anchor|tag handle|directive) '.*?'", r"\1", said, flags=re.DOTALL).split(";")[0]


def _words(message: str, value: Any) -> str:
    if message == "Field required":
        return "it is missing"
    if message.startswith("Extra inputs"):
        return "there is no such field"
    if message.startswith("Input should be a valid") and value is None:
        return "it is empty"
    if message.startswith("Input should be a valid string"):
        return "it must be text: write it in quotes"
    if message.startswith("Input should be a valid dictionary"):
        return "it must hold fields"
    if message.startswith("Input should be a valid tuple"):
        return "it must be a list, such as [en, es]"
    said = message.removeprefix("Value error, ")
    return re.sub("^(Input|String|Value|Tuple) should", "it must", said).replace("it must match", "it must match the")


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def _shown_place(place: Place) -> str:
    # What stands where a field's name should may be a secret; a name or a path has no digits, a place of a template no more
    # than two.
    name = r"[A-Za-z_ -]{1,40}|/[A-Za-z_./-]{0,40}|[0-9]{1,2}"
    is_name = [isinstance(part, int) or re.fullmatch(name, part) for part in place]
    return _dotted(tuple(part if fits else "…" for part, fits in zip(place, is_name, strict=True)))


def _find(data: Any, place: Place) -> Any:
    try:
        for part in place:
            data = data[part]
    except (KeyError, IndexError, TypeError):
        return None
    return data


def _model_at(place: Place) -> type[BaseModel] | None:
    """Return the model whose fields stand at a place of the file."""
    model: type[BaseModel] | None = TenantConfig
    is_among_many = False
    for part in place:
        if is_among_many:  # the part is the name, or the number, of one of them
            is_among_many = False
            continue
        field = model.model_fields.get(str(part)) if model else None
        model = next(_models_in(field.annotation), None) if field else None
        is_among_many = field is not None and get_origin(field.annotation) in (tuple, Mapping)
    return None if is_among_many else model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
