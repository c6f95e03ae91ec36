"""`/openapi.json`: open to everybody, and what it says is so."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app.api.routes import ENDPOINTS
from app.functions import App
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_functions import Cart, Server, Shop, serving

CALL = "/v1/functions/{path}"


@pytest.fixture
async def server(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Server]:
    async with serving(database, tmp_path, clock) as server:
        yield server


async def described(server: Server) -> Any:
    answer = await server.http.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def refs(told: object) -> set[str]:
    """Return whatever a description refers to."""
    if isinstance(told, dict):
        own = {told["$ref"]} if isinstance(told.get("$ref"), str) else set()
        return own.union(*map(refs, told.values()))
    return set().union(*map(refs, told)) if isinstance(told, list) else set()


async def test_every_route_is_described_with_its_refusals_to_whoever_asks(server: Server) -> None:
    told = await described(server)
    assert told["openapi"] == "3.1.0"
    assert told["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for method, address, scope, _ in ENDPOINTS:
        operation = told["paths"][re.sub(r":\w+}", "}", address)][method.lower()]
        assert {"401", "403", "405", "500", "503"} <= set(operation["responses"])
        assert operation["x-scope"] == scope
    assert {"202", "409", "413", "429", "502", "504"} <= set(told["paths"][CALL]["post"]["responses"])
    names = {one["name"] for one in told["paths"][CALL]["post"]["parameters"]}
    assert {"Vuelvo-Schedule-In", "Vuelvo-Schedule-At", "Vuelvo-Key", "Idempotency-Key", "path"} <= names


async def test_each_function_has_a_path_of_its_own_with_what_it_takes(server: Server) -> None:
    told = await described(server)
    for path in server.shop.app.functions:
        operation = told["paths"][f"/v1/functions{path}"]["post"]
        assert "path" not in {one["name"] for one in operation["parameters"]}
    body = told["paths"]["/v1/functions/send-followup"]["post"]["requestBody"]
    assert body["required"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Cart"}
    assert told["components"]["schemas"]["Cart"] == Cart.model_json_schema()
    assert not told["paths"]["/v1/functions/stop"]["post"]["requestBody"]["required"]


async def test_whatever_a_description_refers_to_is_in_it_and_no_operation_has_another_s_name(server: Server) -> None:
    told = await described(server)
    for ref in refs(told):
        found = told
        for part in ref.removeprefix("#/").split("/"):
            found = found[part]
    names = [operation["operationId"] for path in told["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)
    assert "in" in told["components"]["schemas"]["FollowupBody"]["properties"]


async def test_models_of_one_name_and_models_that_no_schema_can_say_are_described_all_the_same(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    class Odd(BaseModel, arbitrary_types_allowed=True):
        app: App

    def another() -> type[BaseModel]:
        class Cart(BaseModel):
            items: list[str]

        return Cart

    shop = Shop()

    @shop.app.function("/another", input=another())
    async def of_another(given: Any) -> None:
        """Take another cart."""

    @shop.app.function("/odd", input=Odd)
    async def odd(given: Any) -> None: ...

    async with serving(database, tmp_path, clock, shop) as server:
        told = await described(server)
    schemas = told["components"]["schemas"]

    def schema(path: str) -> Any:
        return told["paths"][f"/v1/functions{path}"]["post"]["requestBody"]["content"]["application/json"]["schema"]

    assert set(schemas[schema("/another")["$ref"].rpartition("/")[2]]["properties"]) == {"items"}
    assert set(schemas[schema("/send-followup")["$ref"].rpartition("/")[2]]["properties"]) == {"user", "cart"}
    assert schema("/odd")["type"] == ["object", "array"]
    assert told["paths"]["/v1/functions/another"]["post"]["description"].startswith("Take another cart.")


async def test_a_method_that_an_address_does_not_take_is_refused_with_those_that_it_takes(server: Server) -> None:
    for method, path, allowed in (
        ("GET", "/v1/functions/stop", {"POST"}),
        ("DELETE", "/v1/tasks", {"GET", "HEAD"}),
        ("PUT", "/v1/followups", {"POST"}),
        ("POST", "/openapi.json", {"GET", "HEAD"}),
    ):
        answer = await server.http.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
        assert set(answer.headers["allow"].split(", ")) == allowed
