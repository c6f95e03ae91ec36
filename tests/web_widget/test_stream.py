import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import text

import web_widget.listeners
import web_widget.stream
from store import messages
from store.conversations import mark_seen
from store.drafts import put
from tests.web_widget.conftest import Event, Service, Visitor, a_visitor, next_event, read_events
from web_widget.listeners import MOST_STREAMS, Listener
from web_widget.stream import events
from web_widget.web import Web


@asynccontextmanager
async def _listening(
    service: Service, conversation: int, after: int = 0, **lasting: float
) -> AsyncIterator[AsyncIterator[Event]]:
    async with aclosing(events(service.web, "acme", conversation, after, **lasting)) as chunks:
        yield read_events(chunks)


async def _seqs(stream: AsyncIterator[Event], count: int) -> list[int]:
    return [(await next_event(stream, "message")).content["seq"] for _ in range(count)]


async def test_what_was_missed_comes_first_whatever_its_length(visitor: Visitor, service: Service) -> None:
    async with service.database.transaction() as connection:
        for number in range(250):
            await messages.add(connection, "acme", visitor.conversation, "assistant", "followup", str(number))
    async with _listening(service, visitor.conversation, after=3) as stream:
        assert await _seqs(stream, 247) == list(range(4, 251))


async def test_an_event_carries_what_the_list_carries(visitor: Visitor, service: Service) -> None:
    await visitor.write("two\nlines\r\n\n👩 data: x")
    async with _listening(service, visitor.conversation) as stream:
        event = await next_event(stream, "message")
    assert [event.content] == (await visitor.ask("GET", "messages")).json()["messages"]
    assert event.id == 1


async def test_a_hint_brings_a_message_at_once(visitor: Visitor, service: Service) -> None:
    service.signals.is_alive = True
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "seen")
        waiting = asyncio.create_task(next_event(stream, "message", 4.5))
        await asyncio.sleep(0)
        started = time.monotonic()
        await service.say(visitor.conversation, "now")
        assert (await waiting).content["text"] == "now"
    assert time.monotonic() - started < 1


async def test_a_message_without_any_hint_comes_all_the_same(visitor: Visitor, service: Service) -> None:
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "seen")
        async with service.database.transaction() as connection:
            await messages.add(connection, "acme", visitor.conversation, "assistant", "followup", "quietly")
        assert (await next_event(stream, "message", 3)).content["text"] == "quietly"


async def test_nothing_is_lost_or_doubled_while_everything_is_said_at_once(visitor: Visitor, service: Service) -> None:
    async def talk() -> None:
        for number in range(10):
            await service.say(visitor.conversation, str(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(talk())
        async with _listening(service, visitor.conversation) as stream:
            first = await _seqs(stream, 15)
        async with _listening(service, visitor.conversation, after=first[-1]) as stream:
            rest = await _seqs(stream, 25)
    assert first + rest == list(range(1, 41))


async def test_no_connection_is_held_while_waiting(visitor: Visitor, service: Service) -> None:
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "seen")
        waiting = asyncio.create_task(next_event(stream, "message"))
        await asyncio.sleep(0)
        async with service.database.transaction() as connection:
            others = "select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle'"
            assert (await connection.execute(text(f"{others} and pid <> pg_backend_pid()"))).scalar_one() == 0
        await service.say(visitor.conversation, "done")
        await waiting


async def test_typing_shows_until_the_answer_comes(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "message")
        service.signals.hint(f"typing {visitor.conversation}")
        assert (await next_event(stream, "typing")).content == {"typing": True}
        await service.say(visitor.conversation, "hi", "reply")
        assert (await anext(stream)).content["text"] == "hi"
        assert (await anext(stream)).content == {"typing": False}


async def test_typing_is_not_believed_for_ever(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    async with _listening(service, visitor.conversation, typing_lasts=0.05) as stream:
        await next_event(stream, "message")
        service.signals.hint(f"typing {visitor.conversation}")
        assert (await next_event(stream, "typing")).content == {"typing": True}
        assert (await next_event(stream, "typing")).content == {"typing": False}


async def test_a_typing_hint_that_comes_after_its_answer_shows_nothing(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    await service.say(visitor.conversation, "hi", "reply")
    async with _listening(service, visitor.conversation, after=2) as stream:
        await next_event(stream, "seen")
        service.signals.hint(f"typing {visitor.conversation}")
        for text_ in ("later", "later still"):
            await service.say(visitor.conversation, text_)
        told = [await anext(stream) for _ in range(2)]
    assert [event.content.get("text") for event in told] == ["later", "later still"]


async def test_what_was_seen_on_one_page_is_told_to_the_others(visitor: Visitor, service: Service) -> None:
    await service.say(visitor.conversation, "one")
    await service.say(visitor.conversation, "two")
    async with _listening(service, visitor.conversation) as stream:
        assert (await next_event(stream, "seen")).content == {"seq": 0}
        assert (await visitor.ask("POST", "seen", json={"seq": 1})).status_code == 204
        assert (await next_event(stream, "seen")).content == {"seq": 1}
        await visitor.ask("POST", "seen", json={"seq": 99})
        assert (await next_event(stream, "seen")).content == {"seq": 2}
        async with service.database.transaction() as connection:
            await mark_seen(connection, "acme", visitor.conversation, 1)
    async with _listening(service, visitor.conversation) as stream:
        assert (await next_event(stream, "seen")).content == {"seq": 2}


async def test_silence_is_broken_so_that_a_dead_connection_shows(visitor: Visitor, service: Service) -> None:
    stream = events(service.web, "acme", visitor.conversation, 0, keep_alive=0.05)
    async with aclosing(stream) as chunks, asyncio.timeout(5):
        assert [await anext(chunks) for _ in range(4)][2:] == [": still here\n\n"] * 2


async def test_a_stream_ends_when_the_service_stops_or_the_conversation_is_gone(
    visitor: Visitor, service: Service
) -> None:
    for end in ("stop", "delete"):
        async with _listening(service, visitor.conversation) as stream:
            await next_event(stream, "seen")
            if end == "stop":
                asyncio.get_running_loop().call_soon(service.stopping.set)
            else:
                service.stopping.clear()
                async with service.database.transaction() as connection:
                    await connection.execute(text("delete from conversations"))
            async with asyncio.timeout(3):
                assert [event async for event in stream] == []
        service.stopping.clear()


async def test_a_lost_database_ends_the_stream_quietly(
    visitor: Visitor, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "seen")
        async with service.database.transaction() as connection:
            await connection.execute(text("alter table messages rename to gone"))
            await connection.execute(text("update conversations set last_seq = 1"))
        async with asyncio.timeout(3):
            assert [event async for event in stream] == []
    assert "the database could not be read" in caplog.text


async def test_over_a_real_connection_it_resumes_where_the_browser_was(service: Service) -> None:
    service.answers = True
    async with (
        service.served() as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):
        visitor = await a_visitor(http)
        for name in ("one", "two"):
            await visitor.write(name, name)
        for headers, query, expected in (
            ({}, "", [1, 2, 3, 4]),
            ({}, "?after=2", [3, 4]),
            ({"Last-Event-ID": "3"}, "?after=1", [4]),
            ({"Last-Event-ID": "nonsense"}, "?after=3", [4]),
        ):
            url = f"/widget/acme/stream{query}"
            async with http.stream("GET", url, headers=visitor.headers | headers) as response:
                assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
                assert response.headers["cache-control"] == "no-cache"
                assert response.headers["x-accel-buffering"] == "no"
                assert await _seqs(read_events(response.aiter_text()), len(expected)) == expected
        assert (await visitor.ask("GET", "stream?after=x")).status_code == 422


async def test_of_too_many_streams_in_one_conversation_the_oldest_ends(
    visitor: Visitor, service: Service, http: httpx.AsyncClient
) -> None:
    another = await a_visitor(http)
    async with AsyncExitStack() as stack:
        theirs = await stack.enter_async_context(_listening(service, another.conversation))
        streams = [
            await stack.enter_async_context(_listening(service, visitor.conversation)) for _ in range(MOST_STREAMS)
        ]
        for stream in (theirs, *streams):
            await next_event(stream, "seen")
        for oldest in streams[:2]:
            newest = await stack.enter_async_context(_listening(service, visitor.conversation))
            await next_event(newest, "seen")
            async with asyncio.timeout(3):
                assert [event async for event in oldest] == []
        await service.say(visitor.conversation, "to all others")
        for stream in (*streams[2:], newest):
            assert (await next_event(stream, "message")).content["text"] == "to all others"
        await service.say(another.conversation, "to them")
        assert (await next_event(theirs, "message")).content["text"] == "to them"


async def test_one_look_is_made_for_all_who_listen(
    visitor: Visitor, service: Service, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_widget.listeners, "LOOK_AGAIN_DEAF", 0.05)
    visitors = [visitor] + [await a_visitor(http) for _ in range(4)]
    looks = list[int]()
    look_at = web_widget.stream._look

    async def counted(web: Web, listener: Listener, **more: Any) -> Any:
        looks.append(listener.conversation)
        return await look_at(web, listener, **more)

    monkeypatch.setattr(web_widget.stream, "_look", counted)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(_listening(service, each.conversation)) for each in visitors]
        for stream in streams:
            await next_event(stream, "seen")
        async with service.database.transaction() as connection:
            await messages.add(connection, "acme", visitors[2].conversation, "assistant", "followup", "quietly")
        assert (await next_event(streams[2], "message")).content["text"] == "quietly"
        assert looks.count(visitors[0].conversation) == 1, "who has nothing new does not look"


def _deltas(streamed: list[Event]) -> list[tuple[str, bool]]:
    return [(event.content["text"], event.content["is_first"]) for event in streamed if event.name == "delta"]


async def test_the_words_of_an_answer_come_as_they_are_written(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "message")
        heard = list[Event]()
        for words in ("Good morning.", "Good morning. We open at nine.", "Or at ten."):
            await service.drafts(visitor.conversation, words)
            heard.append(await next_event(stream, "delta"))
        assert _deltas(heard) == [("Good morning.", True), (" We open at nine.", False), ("Or at ten.", True)]
        async with _listening(service, visitor.conversation, after=1) as late:
            assert _deltas([await next_event(late, "delta")]) == [("Or at ten.", True)], "who comes late reads it whole"
        await service.say(visitor.conversation, "It is open.", "reply")
        assert [(await anext(stream)).name for _ in range(2)] == ["message", "typing"]
        service.signals.hint(f"typing {visitor.conversation}")
        await service.say(visitor.conversation, "later")
        assert (await anext(stream)).content["text"] == "later", "the draft of what is answered is old"


async def test_a_followup_that_comes_in_between_takes_the_place_of_a_draft_which_then_comes_whole(
    visitor: Visitor, service: Service
) -> None:
    await visitor.write("hello")
    async with _listening(service, visitor.conversation) as stream:
        await next_event(stream, "message")
        await service.drafts(visitor.conversation, "Good morning.")
        await next_event(stream, "delta")
        await service.say(visitor.conversation, "Call Ana")
        assert (await next_event(stream, "message")).content["kind"] == "followup"
        async with service.database.transaction() as connection:
            await put(connection, "acme", visitor.conversation, 1, "Good morning. We open at nine.")
        service.signals.hint(f"typing {visitor.conversation}")
        assert _deltas([await next_event(stream, "delta")]) == [("Good morning. We open at nine.", True)]


async def test_a_draft_that_is_not_believed_in_any_more_comes_whole_again(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    async with _listening(service, visitor.conversation, typing_lasts=1.0) as stream:  # a look later finds no draft
        await next_event(stream, "message")
        for _ in range(2):
            await service.drafts(visitor.conversation, "Good morning.")
            assert _deltas([await next_event(stream, "delta")]) == [("Good morning.", True)]
            assert (await next_event(stream, "typing")).content == {"typing": False}


async def test_a_service_that_stops_does_not_wait_for_its_listeners(service: Service) -> None:
    async with (
        service.served() as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):
        visitor = await a_visitor(http)
        async with http.stream("GET", "/widget/acme/stream", headers=visitor.headers) as response:
            chunks = response.aiter_text()
            await anext(chunks)
            service.stopping.set()
            async with asyncio.timeout(3):
                async for _ in chunks:
                    pass
