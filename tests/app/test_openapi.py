"""OpenAPI documents: what is made a tool of, what is left out, and what is refused."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent.http_tools import request
from agent.section import HttpTool, OpenApi
from app import openapi
from app.openapi import tools

ID = {"name": "order-id", "in": "path", "required": True, "schema": {"type": "string"}}
PAINT = {
    "type": "object",
    "required": ["id", "colour"],
    "properties": {
        "id": {"type": "string", "readOnly": True},
        "colour": {"$ref": "#/components/schemas/Colour"},
        "coats": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
        "over": {"$ref": "#/components/schemas/Paint"},
        "code": {"type": "string", "pattern": "(?=x)", "xml": {"name": "c"}},
    },
}


def a_document(operation: dict[str, Any] | None = None, method: str = "get", **more: Any) -> dict[str, Any]:
    path = {"parameters": [ID], method: {"operationId": "getOrder", **(operation or {})}}
    return {
        "openapi": "3.0.3",
        "servers": [{"url": "https://{where}.example/api/", "variables": {"where": {"default": "shop"}}}],
        "paths": {"/orders/{order-id}": path},
        "components": {
            "schemas": {"Colour": {"type": "string", "enum": ["red", "blue"], "description": "Which."}, "Paint": PAINT},
            "parameters": {"Id": ID},
        },
        **more,
    }


def a_section(**more: Any) -> OpenApi:
    return OpenApi.model_validate({"name": "shop", "file": "shop.json", "allow": ["getOrder"], **more})


def made(document: dict[str, Any], **more: Any) -> HttpTool:
    (tool,), problems = tools(a_section(**more), document)
    assert problems == []
    Draft202012Validator.check_schema(tool.input)
    assert "$ref" not in json.dumps(tool.input)
    return tool


def refused(document: Any, **more: Any) -> str:
    found, ((_, words),) = tools(a_section(**more), document)
    assert found == []
    return words


def test_an_allowed_operation_is_a_tool_and_no_other() -> None:
    document = a_document({"summary": "Tells.", "description": "Where it is."})
    document["paths"]["/orders"] = {"delete": {"operationId": "wipe"}}
    tool = made(document, headers={"Authorization": "Bearer x"}, timeout="5s")
    assert (tool.name, tool.about, tool.method) == ("shop__getOrder", "Tells.\nWhere it is.", "GET")
    assert tool.url == "https://shop.example/api/orders/{order_id}"
    assert tool.input == {
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    }
    assert tool.headers["Authorization"].get_secret_value() == "Bearer x"
    assert tool.timeout.total_seconds() == 5
    assert made(document, server="https://other.example/v2/").url == "https://other.example/v2/orders/{order_id}"


def test_what_stands_in_a_query_or_a_body_is_sent_where_it_stands() -> None:
    operation = {
        "parameters": [
            {"name": "filter[of]", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
            {"name": "body", "in": "query", "description": "Named so.", "schema": {"type": "integer"}},
            {"name": "where", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
        ],
        "requestBody": {"required": True, "content": {"application/vnd.shop+json": {"schema": {"type": "array"}}}},
    }
    tool = made(a_document(operation, "post"))
    assert tool.input["required"] == ["order_id", "body_"]
    assert tool.input["properties"]["body"]["description"] == "Named so."
    arguments = {"order_id": "1", "filter_of_": ["a", "b"], "where": {"x": 1}, "body_": [1]}
    assert request(tool, arguments) == (
        "https://shop.example/api/orders/1?filter%5Bof%5D=a&filter%5Bof%5D=b&where=%7B%22x%22%3A%201%7D",
        b"[1]",
    )


def test_a_schema_is_written_out_in_the_words_of_today() -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Paint"}}}}
    tool = made(a_document({"requestBody": {"$ref": "#/components/requestBodies/P"}}, "put", components={
        **a_document()["components"], "requestBodies": {"P": body}
    }))  # fmt: skip
    assert tool.input["properties"]["body"] == {
        "type": "object",
        "required": ["colour"],
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"], "description": "Which."},
            "coats": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            "over": {},
            "code": {"type": "string"},
        },
    }
    assert tool.input["required"] == ["order_id"]


def test_what_is_beside_a_reference_holds_too_and_null_can_be_one_of_a_list() -> None:
    schema = {
        "anyOf": [
            {"$ref": "#/components/schemas/Colour", "description": "Of it."},
            {"$ref": "#/components/schemas/Colour", "maxLength": 3},
            {"type": "string", "enum": ["a"], "nullable": True},
            {"allOf": [{}], "nullable": True},
        ]
    }
    tool = made(a_document({"parameters": [{"name": "c", "in": "query", "schema": schema}]}))
    colour = {"type": "string", "enum": ["red", "blue"], "description": "Which."}
    assert tool.input["properties"]["c"]["anyOf"] == [
        {**colour, "description": "Of it."},
        {"allOf": [colour, {"maxLength": 3}]},
        {"type": ["string", "null"], "enum": ["a", None]},
        {"anyOf": [{"allOf": [{}]}, {"type": "null"}]},
    ]


def test_what_need_not_be_sent_and_cannot_be_is_left_out() -> None:
    operation = {
        "parameters": [
            {"name": "nowhere", "in": "path", "required": True, "schema": {}},
            {"name": "X-Trace", "in": "header", "schema": {}},
            {"name": "Accept", "in": "header", "required": True, "schema": {}},
            {"name": "X-Key", "in": "header", "required": True, "schema": {}},
            {"name": "session", "in": "cookie", "schema": {}},
            {"name": "ids", "in": "query", "explode": False, "schema": {"type": "array"}},
            {"name": "of", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
        ],
        "requestBody": {"content": {"multipart/form-data": {}}},
    }
    tool = made(a_document(operation, "post"), headers={"x-key": "1"})
    assert (list(tool.input["properties"]), tool.url.partition("?")[2]) == (["order_id"], "")
    assert request(tool, {"order_id": "1"}) == ("https://shop.example/api/orders/1", None)


def required(where: str, **more: Any) -> dict[str, Any]:
    return {"parameters": [{"name": "x", "in": where, "required": True, "schema": {}, **more}]}


def body(schema: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (required("header"), "it takes the header x: give it in headers"),
        (required("cookie"), "it takes the cookie x: give it in headers, as Cookie"),
        (required("query", style="deepObject"), "it takes x in its query in a way that cannot be sent"),
        (required("path", name="order-id", style="matrix"), "it takes order-id in its path in a way that cannot be sent"),
        ({"requestBody": {"required": True, "content": {"text/csv": {}}}}, "it takes a body that is no JSON"),
        (body({"$ref": "https://evil.example/x.json"}), "it refers to another document"),
        (body({"$ref": "other.yaml#/x"}), "it refers to another document"),
        (body({"$ref": "#/components/nothing"}), "it refers to something ($ref) that is not in the document"),
        (body({"$ref": "#/components/schemas/Deep"}), "it is nested too deeply" ),
        (body({"enum": ["x" * 9_000]}), "what it takes is longer than 8,000 characters"),
        (body({"properties": {"a": {"readOnly": True}}, "required": [{}]}), "its input.properties.body.required.0: this is no JSON Schema"),
        (body({"default": json.loads("[" * 101 + "]" * 101)}), "its input: it is nested deeper than 100 levels"),
        (body({"type": "text"}), "its input.properties.body.type: this is no JSON Schema"),
        (body("text"), "a schema of it is none"),
        ({"servers": [{"url": "/api"}]}, "the document says no full address"),
        ({"servers": [{"url": "https://{x}/api"}]}, "the document says no full address"),
        ({"servers": [{"url": "https://10.0.0.7/api"}]}, "its url: write the name of its host"),
        ({"servers": [{"url": "https://me:pw@shop.example"}]}, "its url: write an address"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_tool_is_refused_in_words(operation: dict[str, Any], words: str) -> None:
    document = a_document(operation, "post")
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"properties": {"x": deep}}
    document["components"]["schemas"]["Deep"] = deep
    assert words.removeprefix("it is ") in refused(document)


@pytest.mark.parametrize("path", ["@evil.example/{order-id}", ".evil.example/{order-id}", ":8443/{order-id}"])
def test_no_path_goes_on_where_the_host_ends(path: str) -> None:
    document = a_document()
    document["paths"] = {path: document["paths"].popitem()[1]}
    assert refused(document, server="https://shop.example") == "its path does not begin with /"


def test_what_refers_to_much_again_and_again_ends() -> None:
    def referring(to: int) -> dict[str, Any]:
        return {"properties": {name: {"$ref": f"#/components/schemas/S{to}"} for name in "abcd"}}

    schemas = {"S12": {}, **{f"S{number}": referring(number + 1) for number in range(12)}}
    operation = body({"$ref": "#/components/schemas/S0"})
    words = refused(a_document(operation, "post", components={"schemas": schemas}))
    assert "nested too deeply, or too large" in words


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "it is no OpenAPI document of version 3.0 or 3.1"),
        ({"swagger": "2.0"}, "it is no OpenAPI document of version 3.0 or 3.1"),
        (a_document(openapi="3.2.0"), "it is no OpenAPI document of version 3.0 or 3.1"),
        (a_document(paths=[]), "what should be fields in it is something else"),
        (a_document({"operationId": "getOrders"}), "it has no operation of this name; did you mean getOrders?"),
        (a_document({"operationId": "x"}), "it has no operation of this name; there are x"),
        (a_document({"operationId": None}), "it has no operation of this name; there are none: give operations"),
        (a_document(servers=[]), "the document does not say where it is served: give it as server"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_in_words(document: Any, words: str) -> None:
    assert refused(document).startswith(words)


def test_names_that_are_one_are_refused() -> None:
    document = a_document()
    document["paths"]["/again"] = {"get": {"operationId": "getOrder"}}
    assert refused(document) == "two operations have this name"
    document["paths"] = {"/a": {"get": {"operationId": "a.b"}, "put": {"operationId": "a b"}}}
    (_,), ((place, words),) = tools(a_section(allow=["a.b", "a b"]), document)
    assert (place, words.partition(":")[0]) == (("allow", 1), "two of its tools would be called shop__a_b")


def test_the_words_of_3_1_stay_as_they_are() -> None:
    schema = {"type": ["integer", "null"], "exclusiveMinimum": 0, "nullable": True, "patternProperties": {"(a+)+": {}}}
    parameter = {"name": "n", "in": "query", "schema": {**schema, "additionalProperties": False}}
    tool = made(a_document({"parameters": [parameter, {"$ref": "#/components/parameters/Id"}]}, openapi="3.1.1"))
    assert tool.input["properties"]["n"] == {"type": ["integer", "null"], "exclusiveMinimum": 0}


def test_every_method_a_tool_can_have_is_read() -> None:
    assert list(openapi.METHODS.values()) == list(HttpTool.model_fields["method"].annotation.__args__)  # type: ignore[union-attr]
