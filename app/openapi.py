"""Operations of an OpenAPI document (3.0, 3.1) as a tenant's own tools, which then need the document no more.

Only what the tenant allows is made a tool. What refers to something in the document is written out, what refers elsewhere is
refused, and what cannot be sent (headers and cookies that the tenant's file does not give, values in a query that are not written
one by one, bodies that are no JSON) is left out where it may be, and refused where it must be there.

https://spec.openapis.org/oas/v3.0.4.html, https://spec.openapis.org/oas/v3.1.1.html
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from pydantic import ValidationError

from agent.arguments import MANY, NAMED, ONE, PLAIN, Place, compiled
from agent.http_tools import wrong
from agent.section import PLACE, HttpTool, Method, OpenApi
from agent.servers import LARGEST_SCHEMA, tool_name
from app.deferred import DEEPEST as DEEPEST_JSON
from app.deferred import is_deep
from app.outside import BadAddress, checked_url

METHODS: Mapping[str, Method] = {"get": "GET", "post": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}
DEEPEST = 30
"""Levels of a schema, what it refers to among them."""
MOST_PARTS = 1_000
"""Schemas in one operation's, each counted as often as it is referred to."""
MOST_NAMED = 20
"""Operations that are named where one is not there."""
LONGEST_WORDS = 300
"""Characters of a description of one argument."""
SENT = frozenset({"accept", "authorization", "content-type"})
"""Headers that are no parameters, whatever a document says (Parameter Object, `name`)."""


class Unfit(Exception):
    """An operation, or a document, that cannot be made tools of; the words say why."""


def problems_of(tool: HttpTool) -> Iterator[tuple[Place, str]]:
    """Yield what keeps a tool from being used, as far as its text tells, by its field."""
    if is_deep(json.dumps(tool.input)):
        yield ("input",), f"it is nested deeper than {DEEPEST_JSON} levels"
        return
    yield from wrong(tool)
    try:
        checked_url(PLACE.sub("x", tool.url))
    except BadAddress as problem:
        yield ("url",), str(problem)


def tools(section: OpenApi, document: object) -> tuple[list[HttpTool], list[tuple[Place, str]]]:
    """Return the allowed operations as tools, and what is wrong, by the section's field."""
    made: dict[str, HttpTool] = {}
    problems: list[tuple[Place, str]] = []
    try:
        reader = _Document(document)
        operations = list(reader.operations())
    except Unfit as problem:
        return [], [(("file",), str(problem))]
    ids = [operation.id for operation in operations]
    for index, allowed in enumerate(section.allow):
        try:
            if allowed not in ids:
                near = difflib.get_close_matches(allowed, ids, 1)
                there = f"did you mean {near[0]}?" if near else f"there are {_listed(ids)}"
                raise Unfit(f"it has no operation of this name; {there}")
            if ids.count(allowed) > 1:
                raise Unfit("two operations have this name")
            name = tool_name(section.name, allowed)
            if name in made:
                raise Unfit(f"two of its tools would be called {name}: their names differ too late, or in signs alone")
            made[name] = operations[ids.index(allowed)].tool(name, section)
        except Unfit as problem:
            problems.append((("allow", index), str(problem)))
    return list(made.values()), problems


def _listed(ids: list[str]) -> str:
    more = ", …" if len(ids) > MOST_NAMED else ""
    return ", ".join(sorted(ids)[:MOST_NAMED]) + more if ids else "none: give operations an operationId"


class _Document:
    """A document, and how it is read."""

    def __init__(self, whole: object) -> None:
        if not isinstance(whole, dict) or re.match(r"3\.[01](\.|$)", str(whole.get("openapi"))) is None:
            raise Unfit("it is no OpenAPI document of version 3.0 or 3.1")
        self.whole: dict[str, Any] = whole
        self.is_old = str(whole["openapi"]).startswith("3.0")

    def operations(self) -> Iterator["_Operation"]:
        """Yield the operations that have a name."""
        for path, given in self._fields(self.whole.get("paths", {})).items():
            item = self.found(given)
            for name, method in METHODS.items():
                if name in item and isinstance(id := self.found(item[name]).get("operationId"), str):
                    yield _Operation(self, id, path, method, item, self.found(item[name]))

    def found(self, given: object) -> dict[str, Any]:
        """Return fields, those that are referred to if it refers to any."""
        for _ in range(DEEPEST):
            fields = self._fields(given)
            if "$ref" not in fields:
                return fields
            given = self.at(fields["$ref"])
        raise Unfit("what it refers to ($ref) refers on and on")

    def at(self, ref: object) -> Any:
        """Return what stands where a reference says."""
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise Unfit("it refers to another document ($ref), which is not read: put all into one")
        value: Any = self.whole
        for part in ref[2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(name)] if isinstance(value, list) else value[name]
            except (LookupError, TypeError, ValueError):
                raise Unfit("it refers to something ($ref) that is not in the document") from None
        return value

    @staticmethod
    def _fields(given: object) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise Unfit("what should be fields in it is something else")
        return given


class _Operation:
    """One operation, to be made a tool."""

    def __init__(
        self, document: _Document, id: str, path: str, method: Method, item: dict[str, Any], fields: dict[str, Any]
    ) -> None:
        self.id = id
        self._document, self._path, self._method, self._item, self._fields = document, path, method, item, fields
        self._takes: dict[str, Any] = {}
        self._required: list[str] = []
        self._parts = 0

    def tool(self, name: str, section: OpenApi) -> HttpTool:
        """Return it as a tool. Raises Unfit."""
        places: dict[str, str] = {}
        pairs: list[str] = []
        given = {header.lower() for header in section.headers}
        if self._method != "GET":
            given.add("idempotency-key")
        for parameter in self._parameters():
            called, where = str(parameter.get("name")), parameter.get("in")
            if where == "path" and f"{{{called}}}" not in self._path:
                continue
            is_required = where == "path" or parameter.get("required") is True
            if where in ("path", "query") and (schema := self._sendable(parameter)) is not None:
                place = f"{{{self._argument(called, schema, is_required=is_required)}}}"
                if where == "path":
                    places[called] = place
                else:
                    pairs.append(f"{quote(called, safe='')}={place}")
            elif where in ("path", "query") and is_required:
                raise Unfit(f"it takes {called} in its {where} in a way that cannot be sent: write this tool by hand")
            elif where == "header" and is_required and called.lower() not in given | SENT:
                raise Unfit(f"it takes the header {called}: give it in headers")
            elif where == "cookie" and is_required and "cookie" not in given:
                raise Unfit(f"it takes the cookie {called}: give it in headers, as Cookie")
        body = self._body()
        input = {"type": "object", "properties": self._takes, "additionalProperties": False}
        if self._required:
            input["required"] = self._required
        if len(json.dumps(input)) > LARGEST_SCHEMA:
            raise Unfit(
                f"what it takes is longer than {LARGEST_SCHEMA:,} characters of JSON Schema: write this tool by hand, with"
                " what is needed of it"
            )
        more = {"timeout": section.timeout} if "timeout" in section.model_fields_set else {}
        try:
            made = HttpTool(
                name=name,
                about=self._about(),
                url=self._server(section) + self._filled(places) + ("?" + "&".join(pairs) if pairs else ""),
                method=self._method,
                input=input,
                body=body,
                headers=section.headers,
                **more,
            )
        except ValidationError as error:
            (first, *_) = error.errors(include_input=False, include_context=False)
            raise Unfit(
                f"its {'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
            ) from None
        for field, words in problems_of(made):
            raise Unfit(f"its {'.'.join(map(str, field))}: {words}")
        return made

    def _parameters(self) -> list[dict[str, Any]]:
        """Return what it takes beside a body; its own before those of its path."""
        found: dict[tuple[object, object], dict[str, Any]] = {}
        for fields in (self._item, self._fields):
            given = fields.get("parameters", [])
            if not isinstance(given, list):
                raise Unfit("its parameters are no list")
            for one in map(self._document.found, given):
                found[str(one.get("in")), str(one.get("name"))] = one
        return list(found.values())

    def _sendable(self, parameter: dict[str, Any]) -> Any:
        """Return the schema of a parameter in a path or a query; None when it is written in a way that we do not write."""
        where = parameter["in"]
        content = parameter.get("content")
        if content is not None:
            media = _json_of(content)
            return self._schema(media.get("schema", {})) if media is not None and where == "query" else None
        schema = self._schema(parameter.get("schema", {}))
        types = schema.get("type", []) if isinstance(schema, dict) else []
        types = types if isinstance(types, list) else [types]
        if parameter.get("style", {"path": "simple", "query": "form"}[where]) not in ("simple", "form"):
            return None
        if "object" in types or ("array" in types and (where == "path" or parameter.get("explode", True) is not True)):
            return None
        if words := parameter.get("description"):
            schema = {**schema, "description": str(words)[:LONGEST_WORDS]} if isinstance(schema, dict) else schema
        return schema

    def _body(self) -> str | None:
        """Return the name of the argument that is the body."""
        if self._fields.get("requestBody") is None:
            return None
        body = self._document.found(self._fields["requestBody"])
        is_required = body.get("required") is True
        media = _json_of(body.get("content", {}))
        if media is None or self._method == "GET":
            if is_required:
                raise Unfit("it takes a body that is no JSON, or has one in a GET: write this tool by hand")
            return None
        return self._argument("body", self._schema(media.get("schema", {})), is_required=is_required)

    def _argument(self, called: str, schema: Any, *, is_required: bool) -> str:
        name = re.sub(r"[^A-Za-z0-9_]", "_", called)[:50]
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        while name in self._takes:
            name += "_"
        self._takes[name] = schema
        if is_required:
            self._required.append(name)
        return name

    def _filled(self, places: Mapping[str, str]) -> str:
        if not self._path.startswith("/"):  # it would go on where the host ends
            raise Unfit("its path does not begin with /")
        parts = re.split(r"\{([^{}]*)\}", self._path)
        if unknown := [name for name in parts[1::2] if name not in places]:
            raise Unfit(f"it does not say what {unknown[0]} in its path is")
        return "".join(places[part] if index % 2 else part for index, part in enumerate(parts))

    def _server(self, section: OpenApi) -> str:
        if section.server is not None:
            return section.server.rstrip("/")
        for fields in (self._fields, self._item, self._document.whole):
            servers = fields.get("servers")
            if isinstance(servers, list) and servers and isinstance(servers[0], dict):
                url, known = str(servers[0].get("url")), servers[0].get("variables")
                for name, variable in known.items() if isinstance(known, dict) else ():
                    url = url.replace(f"{{{name}}}", str(variable.get("default")) if isinstance(variable, dict) else "")
                if not url.startswith("https://") or re.search(r"[{}?]", url):
                    raise Unfit("the document says no full address (https://…) where it is served: give it as server")
                return url.rstrip("/")
        raise Unfit("the document does not say where it is served: give it as server")

    def _about(self) -> str:
        said = (self._fields.get(name) for name in ("summary", "description"))
        return "\n".join(dict.fromkeys(filter(None, map(_text, said))))[:1000].strip() or f"{self._method} {self._path}"

    def _schema(self, given: Any, within: tuple[str, ...] = (), depth: int = 0) -> Any:
        """Return a schema as JSON Schema 2020-12 that refers to nothing. What holds itself may be anything, there."""
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            raise Unfit("what it takes is nested too deeply, or too large: write this tool by hand")
        if isinstance(given, bool):
            return given
        if not isinstance(given, dict):
            raise Unfit("a schema of it is none")
        if "$ref" in given:
            ref = given["$ref"]
            if ref in within:
                return {}
            target = self._schema(self._document.at(ref), (*within, ref), depth + 1)
            beside = self._schema({name: value for name, value in given.items() if name != "$ref"}, within, depth + 1)
            if isinstance(target, dict) and beside.keys() <= {"title", "description", "default"}:
                return {**target, **beside}
            return {"allOf": [target, beside]}
        made: dict[str, Any] = {}
        for keyword, value in given.items():
            if keyword in ONE:
                made[keyword] = self._schema(value, within, depth + 1)
            elif keyword in MANY and isinstance(value, list):
                made[keyword] = [self._schema(one, within, depth + 1) for one in value]
            elif keyword == "properties" and isinstance(value, dict):
                sent = {name: one for name, one in value.items() if not self._is_read_only(one)}
                made[keyword] = {name: self._schema(one, within, depth + 1) for name, one in sent.items()}
            elif keyword in NAMED and isinstance(value, dict):
                made[keyword] = {name: self._schema(one, within, depth + 1) for name, one in value.items()}
            elif keyword == "description":
                made[keyword] = str(value)[:LONGEST_WORDS]
            elif keyword == "pattern" and (not isinstance(value, str) or compiled(value) is None):
                continue  # the server's to check
            elif keyword in PLAIN - {"examples", "title"}:
                made[keyword] = value
        if isinstance(made.get("required"), list) and isinstance(properties := given.get("properties"), dict):
            hidden = [name for name, one in properties.items() if self._is_read_only(one)]
            made["required"] = [name for name in made["required"] if name not in hidden]
        if "patternProperties" in given:
            made = {name: value for name, value in made.items() if not name.endswith("Properties")}
        return self._newer(given, made) if self._document.is_old else made

    def _is_read_only(self, given: Any) -> bool:
        return isinstance(given, dict) and self._document.found(given).get("readOnly") is True

    @staticmethod
    def _newer(given: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """Return a schema of 3.0, which has words of its own for what may be null and for what is no limit itself."""
        for word, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(is_out := made.get(word), bool):
                del made[word]
                if is_out and limit in made:
                    made[word] = made.pop(limit)
        if given.get("nullable") is not True:
            return made
        if not isinstance(made.get("type"), str):
            return {"anyOf": [made, {"type": "null"}]}
        made["type"] = [made["type"], "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return made


def _text(given: object) -> str | None:
    return given.strip() if isinstance(given, str) else None


def _json_of(content: object) -> dict[str, Any] | None:
    """Return what a content says of its JSON."""
    for media, fields in content.items() if isinstance(content, dict) else ():
        if re.fullmatch(r"application/([\w.-]+\+)?json", str(media).partition(";")[0].strip().lower()) and isinstance(
            fields, dict
        ):
            return fields
    return None
