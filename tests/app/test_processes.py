"""The service as processes: over plain HTTP, killed and started again, many workers on one database."""

import asyncio
import socket
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.speak import CUT_OFF
from scheduler.clock import Clock
from store.database import Database
from tests.support.factories import a_conversation, a_followup
from tests.support.house import a_house
from tests.support.openai_server import Call, Hangs, OpenAIServer, Says
from tests.support.process import Process, serving, start
from tests.support.twilio_server import Hang, TwilioServer
from tests.support.visitor import Visitor
from tests.support.wait import eventually

KEY = "a secret for the tests of the service"


def at(message: dict[str, str]) -> datetime:
    return datetime.fromisoformat(message["at"])


async def test_a_reminder_in_ten_seconds_comes_in_ten_seconds_in_list_and_stream_and_once(tmp_path: Path) -> None:
    async with serving(directory=tmp_path, is_anew=True) as (_, url), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/")).status_code == 200
        visitor = await Visitor.open(http)
        async with visitor.listening() as streamed:
            await visitor.say("remind me in 10 seconds to call Ana")
            (reply,) = await visitor.until("reply")
            asked = (await visitor.messages())[0]
            assert at(reply) - at(asked) < timedelta(seconds=2)
            assert "America/Bogota" in reply["text"]
            (reminder,) = await visitor.until("followup")
            assert timedelta(seconds=10) <= at(reminder) - at(asked) <= timedelta(seconds=12)
            assert "call Ana" in reminder["text"]
            await eventually(lambda: len(streamed) == 3)
            assert streamed == await visitor.messages()
            assert (await http.get("/readyz")).status_code == 200


async def test_killed_after_booking_the_reminder_still_comes_once(tmp_path: Path) -> None:
    async with serving(directory=tmp_path) as (process, url), httpx.AsyncClient(base_url=url) as http:
        visitor = await Visitor.open(http)
        await visitor.say("remind me in 3 seconds to call Ana")
        await visitor.until("reply")
        await process.kill()
    async with serving(directory=tmp_path) as (process, url), httpx.AsyncClient(base_url=url) as http:
        again = visitor.at(http)
        await again.until("followup")
        assert [message["kind"] for message in await again.messages()] == ["message", "reply", "followup"]
        assert await process.stop() == 0


async def test_a_worker_tells_whether_it_is_well_and_what_it_did(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    worker = await start("work", "--port", port, directory=tmp_path, environ=environ, is_anew=True)
    try:
        await worker.until_said("working")
        async with database.transaction() as connection:
            conversation = await a_conversation(connection, "demo")
            due = await Clock().now(connection)
            await a_followup(connection, Clock(), conversation, tenant="demo", due=due)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

            async def has_counted() -> bool:
                settled = (
                    'vuelvo_tasks_settled_total{kind="followup",outcome="delivered",state="fired",tenant="demo"} 1.0'
                )
                return settled in (await http.get("/metrics")).text

            await eventually(has_counted)
            assert (await http.get("/healthz")).json() == {"status": "alive"}
            assert (await http.get("/readyz")).json()["status"] == "ready"
            assert (await http.get("/")).status_code == 404, "it serves nobody else"
        other = await start("work", "--port", port, directory=tmp_path, environ=environ)
        assert "--port" in await other.until_said("cannot listen")
        assert await other.ended() == 1
    finally:
        assert await worker.stop() == 0


async def test_three_workers_say_two_hundred_tasks_in_order_and_none_twice(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY}
    clock = Clock()
    async with serving("--no-poller", directory=tmp_path, environ=environ):
        workers = [await start("work", directory=tmp_path, environ=environ) for _ in range(3)]
        try:
            await asyncio.gather(*(worker.until_said("working") for worker in workers))
            async with database.transaction() as connection:
                due = await clock.now(connection) + timedelta(seconds=1)
                conversations = [
                    await a_conversation(connection, "demo", address=f"visitor {number}") for number in range(20)
                ]
                booked = defaultdict(list)
                for number in range(200):
                    conversation = conversations[number % 20]
                    more = {"tenant": "demo", "due": due, "about": f"number {number}"}
                    booked[conversation].append((await a_followup(connection, clock, conversation, **more)).id)  # type: ignore[arg-type]

            async def said() -> list[tuple[int, int]]:
                async with database.transaction() as connection:
                    rows = await connection.execute(
                        text(
                            "select conversation, task from messages where kind = 'followup' order by conversation, seq"
                        )
                    )
                    return [(row.conversation, row.task) for row in rows]

            async def is_done() -> bool:
                return len(await said()) >= 200

            await eventually(is_done, 60)
            assert await said() == [
                (conversation, task) for conversation in conversations for task in booked[conversation]
            ]
            async with database.transaction() as connection:
                counted = await connection.execute(text("select state, count(*) from tasks group by 1"))
                assert [tuple(row)[:2] for row in counted] == [("fired", 200)]
        finally:
            assert await asyncio.gather(*(worker.stop() for worker in workers)) == [0, 0, 0]


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async with serving(directory=tmp_path) as (_, url):
        other = await start("serve", directory=tmp_path, environ={"VUELVO_PORT": url.rpartition(":")[2]})
        assert await other.ended() == 1
        assert [line for line in other.said if "cannot listen" in line and "VUELVO_PORT" in line]
        assert not any("Traceback" in line for line in other.said)


async def test_two_processes_share_the_embedded_database_and_wake_each_other(tmp_path: Path) -> None:
    environ = {"VUELVO_POLL_INTERVAL": "1h"}
    async with serving("--no-poller", directory=tmp_path, environ=environ) as (_, url):
        worker = await start("work", directory=tmp_path, environ=environ)
        await worker.until_said("working")
        async with httpx.AsyncClient(base_url=url) as http:
            visitor = await Visitor.open(http)
            await eventually(lambda: hears(http))
            await visitor.say("hello")
            await visitor.until("reply", seconds=5)
        assert await worker.stop() == 0


async def hears(http: httpx.AsyncClient) -> bool:
    return bool((await http.get("/readyz")).json()["hears_other_processes"])


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("tenants", "--help")])
async def test_help_answers(tmp_path: Path, words: tuple[str, ...]) -> None:
    process: Process = await start(*words, directory=tmp_path)
    assert await process.ended() == 0
    assert any("Usage" in line for line in process.said)


async def test_a_broken_env_file_is_reported_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("VUELVO_PORT=eighty\nVUELVO_POTR=8000\n")
    process = await start("serve", directory=tmp_path)
    assert await process.ended() == 2
    said = "\n".join(process.said)
    assert "VUELVO_PORT" in said
    assert "VUELVO_POTR" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("when", ["it writes a reminder", "it answers after booking"])
async def test_killed_while_the_model_is_writing_the_customer_gets_everything_once(tmp_path: Path, when: str) -> None:
    book = Says(Call("schedule_followup", {"about": "call Ana", "delay": "2 seconds"}))
    is_reminder = when == "it writes a reminder"
    answers = (book, "Booked.") if is_reminder else (book, Hangs(), book, "Booked.")
    reminders = (Hangs(), "Time to call Ana.") if is_reminder else ("Time to call Ana.",)
    async with OpenAIServer(*answers, followups=reminders) as model:
        environ = {"VUELVO_MODEL": "openai-chat:local", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "any"}
        async with (
            serving(directory=tmp_path, environ=environ) as (process, url),
            httpx.AsyncClient(base_url=url) as http,
        ):
            visitor = await Visitor.open(http)
            await visitor.say("remind me in 2 seconds to call Ana")
            await eventually(lambda: len(model.asked) == (3 if is_reminder else 2), 30)
            await process.kill()
        async with serving(directory=tmp_path, environ=environ) as (_, url), httpx.AsyncClient(base_url=url) as http:
            again = visitor.at(http)
            await again.until("followup")
            await again.until("reply")
            said = await again.messages()
            assert sorted(message["text"] for message in said) == [
                "Booked.",
                "Time to call Ana.",
                "remind me in 2 seconds to call Ana",
            ]


async def test_killed_after_the_provider_took_it_and_restarted_twice_it_is_found_and_said_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    async with TwilioServer() as twilio:
        section = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
        environ = {
            "VUELVO_DATABASE_URL": database_url,
            "VUELVO_SECRET_KEY": KEY,
            "VUELVO_TWILIO_API_URL": twilio.url,
            "VUELVO_POLL_INTERVAL": "1s",
        }
        twilio.behave(Hang(accepted=True))
        config = {"channels": {"whatsapp": section}}
        async with a_house(database, tmp_path, poll=False, config=config) as house:
            said = await house.says("hello", channel="whatsapp", address="whatsapp:+5215512345678")
            (turn,) = await house.tasks(kind="turn")
            first = await start("work", directory=tmp_path, environ=environ)
            await twilio.attempts(1)
            await first.kill()

            async def waits() -> bool:
                (found,) = await house.tasks(kind="turn")
                return (found.state, found.error) == ("scheduled", CUT_OFF)

            second = await start("work", directory=tmp_path, environ=environ)
            await eventually(waits, 60)
            await second.kill()
            async with database.transaction() as connection:  # more than a minute goes by
                await connection.exec_driver_sql("update deliveries set started_at = started_at - interval '2 minutes'")
                await connection.exec_driver_sql("update tasks set due_at = now()")
            twilio.messages[0].created_at -= timedelta(minutes=2)
            third = await start("work", directory=tmp_path, environ=environ)
            try:
                fired = await house.until_state(turn.id, "fired", 60)
            finally:
                assert await third.stop() == 0
            assert (fired.outcome, fired.error) == ("delivered", None)
            assert await house.heard(said.conversation) == [twilio.messages[0].body]
        assert len(twilio.creates) == len(twilio.messages) == 1
