"""A stream that outlives its session tells nothing more."""

from collections.abc import AsyncGenerator
from functools import partial

import httpx
import pytest

from tests.web_widget.conftest import SHOP, Service, Visitor, a_visitor, a_web_tenant
from web_widget import routes
from web_widget.admitted import while_admitted
from web_widget.stream import events


async def test_a_stream_ends_before_it_tells_anything_to_whom_it_is_closed() -> None:
    asked: list[int] = []
    closed: list[bool] = []

    async def told() -> AsyncGenerator[str, None]:
        try:
            for chunk in (": welcome", "one", ": still here", "two", ": still here", "three"):
                yield chunk
        finally:
            closed.append(True)

    async def is_admitted() -> bool:
        asked.append(len(asked))
        return len(asked) < 2

    assert [chunk async for chunk in while_admitted(told(), is_admitted, every=0)] == [
        ": welcome",
        "one",
        ": still here",
    ]
    assert (len(asked), closed) == (2, [True])


async def test_between_two_looks_a_stream_takes_its_session_for_alive() -> None:
    async def told() -> AsyncGenerator[str, None]:
        for _ in range(1000):
            yield "a word"

    async def is_admitted() -> bool:
        raise AssertionError("nobody is asked so soon")

    assert len([chunk async for chunk in while_admitted(told(), is_admitted)]) == 1000


async def test_what_is_said_after_signing_out_does_not_reach_an_open_stream(visitor: Visitor, service: Service) -> None:
    async def is_admitted() -> bool:
        return (await visitor.ask("GET", "messages")).status_code == 200

    stream = while_admitted(events(service.web, "acme", visitor.conversation, 0), is_admitted, every=0)
    assert (await anext(stream)).startswith(":")
    await service.say(visitor.conversation, "one")
    seen = ""
    async for chunk in stream:
        seen += chunk
        if '"one"' in seen:
            await visitor.ask("DELETE", "sessions")
            await service.say(visitor.conversation, "two")
    assert '"two"' not in seen


async def test_a_page_that_may_not_embed_the_widget_any_more_is_told_nothing_on_its_open_stream(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "while_admitted", partial(while_admitted, every=0))
    async with service.served() as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as http:
        visitor = await a_visitor(http, origin=SHOP)
        headers = {**visitor.headers, "origin": SHOP}
        async with http.stream("GET", "/widget/acme/stream", headers=headers) as answer:
            stream = answer.aiter_text()
            await service.say(visitor.conversation, "one")
            seen = ""
            while '"one"' not in seen:
                seen += await anext(stream)
            service.tenants["acme"] = a_web_tenant("acme", origins=("https://another.example",))
            await service.say(visitor.conversation, "two")
            assert "two" not in "".join([chunk async for chunk in stream])
