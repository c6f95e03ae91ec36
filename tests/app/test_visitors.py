"""What the agent is told of a visitor, and the visitor of what they asked for."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart
from sqlalchemy import text

from app.http import application
from scheduler.clock import MovableClock
from store.database import Database
from tests.support.asgi import calling
from tests.support.house import a_house
from tests.support.model import Script, books

SECRET = "0123456789abcdef" * 2


def told(script: Script) -> list[Any]:
    """Return what its tools have answered the model."""
    parts = [part for message in script.asked[-1] for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize(
    ("delay", "web", "says"),
    [
        ("6 days", {}, None),
        ("6 weeks", {}, "in this browser at least once every week."),
        ("6 weeks", {"identity": {"secrets": [SECRET]}}, "every week, or sign in on this page."),
        ("2 days", {"session": {"idle": "1d"}}, "at least once every 24 hours."),
        ("2 days", {"session": {"absolute": "1d"}}, "closes for their browser on "),
    ],
)
async def test_the_agent_is_told_what_an_anonymous_visitor_must_do_to_find_the_answer(
    database: Database, tmp_path: Path, delay: str, web: dict[str, Any], says: str | None
) -> None:
    script = Script(books(delay=delay), "Booked.")
    async with (
        a_house(database, tmp_path, script.model, config={"channels": {"web": web}}) as house,
        calling(application(house.run)) as http,
    ):
        opened = (await http.post("/widget/acme/sessions")).json()
        headers = {"Authorization": f"Bearer {opened['token']}"}
        await http.post("/widget/acme/messages", json={"text": "remind me", "client_id": "one"}, headers=headers)
        await house.until_heard(opened["conversation"], 1)
    (answer,) = told(script)
    assert answer["booked"] is True
    if says is None:
        assert "how" not in answer
    else:
        assert says in answer["how"]


async def test_of_a_user_the_agent_is_told_nothing(database: Database, tmp_path: Path) -> None:
    script = Script(books(delay="6 weeks"), "Booked.")
    async with a_house(database, tmp_path, script.model) as house:
        received = await house.says("remind me", address="user:user-7")
        await house.until_heard(received.conversation, 1)
    assert "how" not in told(script)[0]


async def test_a_followup_tells_when_it_was_asked_for(database: Database, tmp_path: Path, clock: MovableClock) -> None:
    script = Script(books(delay="2 days"), "Booked.")
    async with (
        a_house(database, tmp_path, script.model, clock) as house,
        calling(application(house.run)) as http,
    ):
        opened = (await http.post("/widget/acme/sessions")).json()
        headers = {"Authorization": f"Bearer {opened['token']}"}
        await http.post("/widget/acme/messages", json={"text": "remind me", "client_id": "one"}, headers=headers)
        house.wake()
        await house.until_heard(opened["conversation"], 1)
        clock.move(timedelta(days=2))
        house.wake()
        await house.until_heard(opened["conversation"], 2)
        async with database.transaction() as connection:
            await connection.execute(text("delete from tasks"))  # as after ninety days
        log = (await http.get("/widget/acme/messages", headers=headers)).json()["messages"]
    assert [message.get("asked_at") for message in log] == [None, None, "2026-11-29T14:00:00.000Z"]
    assert [message["kind"] for message in log] == ["message", "reply", "followup"]
    assert log[2]["at"].startswith("2026-12-01T14:00:00")


async def test_what_falls_due_after_its_visitors_session_has_ended_is_said_in_their_conversation_all_the_same(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(books(delay="2 days"), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house, calling(application(house.run)) as http:
        opened = (await http.post("/widget/acme/sessions")).json()
        headers = {"Authorization": f"Bearer {opened['token']}"}
        await http.post("/widget/acme/messages", json={"text": "remind me", "client_id": "one"}, headers=headers)
        house.wake()
        await house.until_heard(opened["conversation"], 1)
        async with database.transaction() as connection:
            await connection.execute(text("delete from web_sessions"))
        clock.move(timedelta(days=2))
        house.wake()
        assert len(await house.until_heard(opened["conversation"], 2)) == 2
        (task,) = await house.tasks()
        assert (await house.until_state(task.id, "fired")).outcome == "delivered"


async def test_sessions_that_have_ended_are_deleted_with_what_else_is_old(database: Database, tmp_path: Path) -> None:
    async with a_house(database, tmp_path) as house, calling(application(house.run)) as http:
        for _ in range(2):
            assert (await http.post("/widget/acme/sessions")).status_code == 201
        async with database.transaction() as connection:
            await connection.execute(
                text("update web_sessions set used_at = now() - interval '431 days' where conversation = 1")
            )
        assert house.run.poller is not None
        await house.run.poller.delete_old()
        async with database.transaction() as connection:
            assert list(await connection.scalars(text("select conversation from web_sessions"))) == [2]
