"""The watcher of all open streams: whatever it meets, it goes on, and it ends with the last of them."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

import web_widget.listeners
from store import messages
from tests.web_widget.conftest import Service, Visitor
from web_widget.listeners import MOST_STREAMS, Listener


async def test_whatever_a_look_meets_the_next_one_is_made(
    visitor: Visitor, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web_widget.listeners, "LOOK_AGAIN_DEAF", 0.05)
    look = service.listeners._look
    failed = 0

    async def fail(of: Any) -> None:
        nonlocal failed
        failed += 1
        if failed < 3:
            raise RuntimeError("nobody has thought of this")
        await look(of)

    monkeypatch.setattr(service.listeners, "_look", fail)
    with service.listeners.joined("acme", visitor.conversation, 0) as listener:
        listener.seen = 0
        async with service.database.transaction() as connection:
            await messages.add(connection, "acme", visitor.conversation, "assistant", "followup", "quietly")
        assert await listener.wait(5)
    assert caplog.text.count("cannot look") == 1


async def test_the_eleventh_stream_ends_the_first_of_its_own_conversation_alone(
    visitor: Visitor, service: Service
) -> None:
    with ExitStack() as stack:

        def join(tenant: str, talk: int) -> Listener:
            return stack.enter_context(service.listeners.joined(tenant, talk, 0))

        other, elsewhere = join("other", visitor.conversation), join("acme", visitor.conversation + 1)
        own = [join("acme", visitor.conversation) for _ in range(MOST_STREAMS + 2)]
        assert [each.is_over for each in own] == [True, True] + [False] * MOST_STREAMS
        assert not other.is_over
        assert not elsewhere.is_over
        watching = service.listeners._watching
        assert watching is not None
    assert not service.listeners._of
    with pytest.raises(asyncio.CancelledError):
        await watching
