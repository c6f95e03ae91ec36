"""What arguments a tool over HTTP takes: the part of JSON Schema (2020-12) that is understood, and how they are checked by it.

Nothing refers to anything else ($ref), so a check ends, and reads nothing from elsewhere. A pattern is one of an engine that
takes no longer than the text is long: both may be a stranger's.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators
from pydantic_core import SchemaError, SchemaValidator, core_schema
from pydantic_core import ValidationError as Mismatch

PLAIN = frozenset(
    """
    $comment const contentEncoding contentMediaType default dependentRequired deprecated description enum examples
    exclusiveMaximum exclusiveMinimum format maxContains maxItems maxLength maxProperties maximum minContains minItems
    minLength minProperties minimum multipleOf pattern readOnly required title type uniqueItems writeOnly
    """.split()  # noqa: SIM905 - one a line, they fill a screen
)
"""Keywords that hold no schema."""
ONE = frozenset(
    [
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
"""Keywords that hold one."""
MANY = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
"""Keywords that hold a list of them."""
NAMED = frozenset(["dependentSchemas", "properties"])
"""Keywords that hold them by names."""
MOST_TOLD = 5
"""Mistakes that the model is told at a time."""

Place = tuple[str | int, ...]


def compiled(pattern: str) -> SchemaValidator | None:
    """Return what tells whether a text has a place that fits a pattern; None for one that it cannot be told of in time."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _fits(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str) or (engine := compiled(pattern)) is None:
        return
    try:
        engine.validate_python(instance)
    except Mismatch:
        yield ValidationError(f"it does not match the pattern {pattern!r}")


_Validator: Any = validators.extend(Draft202012Validator, {"pattern": _fits})


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema as one that takes no arguments but its own, unless it says what else it takes."""
    return {"type": "object", "properties": {}, "additionalProperties": False, **schema}


def mistakes(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with arguments, in words for the model."""
    found = _Validator(closed(schema)).iter_errors(arguments)
    try:
        return [f"{error.json_path.removeprefix('$.')}: {error.message[:300]}" for error in islice(found, MOST_TOLD)]
    except (ArithmeticError, ValueError):
        return ["a number is too large"]


def misfits(schema: Mapping[str, Any]) -> list[tuple[Place, str]]:
    """Return what of a schema cannot be used, by its place, and why."""
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    return list(_unknown(schema, ())) or [
        (tuple(error.path), "this is no JSON Schema (2020-12)") for error in meta.iter_errors(schema)
    ]


def _unknown(schema: object, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield place, "it must be a JSON Schema"
        return
    for keyword, value in schema.items():
        here = (*place, keyword)
        if keyword in ONE:
            yield from _unknown(value, here)
        elif keyword in MANY and isinstance(value, list):
            for index, one in enumerate(value):
                yield from _unknown(one, (*here, index))
        elif keyword in NAMED and isinstance(value, dict):
            for name, one in value.items():
                yield from _unknown(one, (*here, name))
        elif keyword == "$ref":
            yield here, "nothing may refer to anything else here: write it out"
        elif keyword == "pattern" and isinstance(value, str) and compiled(value) is None:
            yield here, "this pattern cannot be used: write one without look-around and back references"
        elif keyword not in PLAIN | MANY | NAMED:
            yield here, "this keyword cannot be used here"
