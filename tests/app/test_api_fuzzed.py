"""Whatever the description allows, and what it does not, is answered as it says: seeded, and bounded in time."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from scheduler.clock import MovableClock
from store import api_keys
from store.database import Database
from tests.app.test_functions import Server, Shop, a_key, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 12
"""Of each operation, to its description and against it."""
TRIES = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Line(BaseModel):
    sku: str
    count: int | None = None
    notes: list[str] = []


async def keys_of(server: Server, database: Database) -> list[str]:
    """Return keys that open all, some and nothing."""
    revoked = await a_key(database, "acme")
    async with database.transaction() as connection:
        await api_keys.revoke(connection, "acme", revoked.split("_")[2])
    broken = [revoked, server.key[:-1], server.key + "x", "vk_acme_", "\xff", ""]
    return [server.key] * 12 + [await a_key(database, "acme", "read"), *broken]


async def send(server: Server, case: Any, key: str) -> httpx.Response:
    """Send what was thought out, with a key."""
    given = case.as_transport_kwargs(base_url="http://vuelvo.test")
    given["headers"] = {name: value for name, value in given["headers"].items() if name.lower() != "authorization"}
    words = requests.Request(
        **{name: given.get(name) for name in ("method", "url", "headers", "params", "data", "json", "cookies")}
    ).prepare()
    sent = [(name.encode(), _bytes(value)) for name, value in words.headers.items()]
    sent.append((b"authorization", b"Bearer " + key.encode("latin-1")))
    return await server.http.request(str(words.method), str(words.url), content=words.body, headers=sent)  # type: ignore[arg-type]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")


async def test_no_request_is_answered_otherwise_than_described(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    shop, statuses = Shop(), Counter[int]()
    del shop.app.functions["/forgets-to-run"]  # which answers 500, as it should

    @shop.app.function("/line", input=Line)
    async def line(given: Line) -> dict[str, Any]:
        """Take a line."""
        return given.model_dump()

    async with serving(database, tmp_path, clock, shop, poll=False) as server:
        loop, keys = asyncio.get_running_loop(), await keys_of(server, database)
        described = schemathesis.openapi.from_dict((await server.http.get("/openapi.json")).json())

        def judge(operation: Any, mode: GenerationMode) -> None:
            @TRIES
            @given(case=operation.as_strategy(generation_mode=mode), key=st.sampled_from(keys))
            def one(case: Any, key: str) -> None:
                answer = asyncio.run_coroutine_threadsafe(send(server, case, key), loop).result(30)
                statuses[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            one()

        def judge_all() -> None:
            for found in described.get_all_operations():
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    assert isinstance(found, Ok)
                    judge(found.ok(), mode)

        await asyncio.to_thread(judge_all)
    assert {200, 202, 401, 403, 404, 422} <= set(statuses), statuses
