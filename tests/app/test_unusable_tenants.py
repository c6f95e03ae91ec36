"""A tenant whose stored configuration cannot be used: what it has to do waits, and whoever asks is told to come again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.http import application
from app.receivers import Receivers
from app.service import FRESH
from app.tenants_file import senders, to_stored
from app.wiring import apply_tenants, performer
from scheduler.clock import MovableClock
from scheduler.retry import BUDGET
from store import tenants
from store.database import Database
from store.secrets import SecretBox
from tests.support.asgi import calling
from tests.support.claims import take
from tests.support.factories import a_conversation, a_followup, a_turn, states
from tests.support.house import House, a_config, a_house
from tests.support.twilio_server import TwilioServer
from tests.support.wait import eventually, waits_for_a_lock

TWILIO = TwilioServer()
CONFIG = a_config(
    channels={
        "telegram": {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_", "receive": "webhook"},
        "whatsapp": {"account_sid": TWILIO.account_sid, "auth_token": TWILIO.auth_token, "sender": TWILIO.sender},
    }
)
FAULTS = ["another key", "a section unknown here", "removed"]


@pytest.fixture
async def house(database: Database, tmp_path: Path, clock: MovableClock) -> AsyncIterator[House]:
    async with a_house(database, tmp_path, clock=clock, poll=False) as house:
        yield house


async def spoil(database: Database, fault: str) -> None:
    """Another process, with another key or of another version, has done something to the tenant."""
    async with database.transaction() as connection:
        match fault:
            case "another key":
                box = SecretBox(b"another secret key than the service's own")
                await tenants.apply(connection, "acme", to_stored(CONFIG, box), senders(CONFIG))
            case "a section unknown here":
                newer = '{"tenant": "acme", "name": "Acme", "time_zone": "America/Bogota", "telepathy": {}}'
                update = text(
                    "update tenants set config = cast(:newer as jsonb), revision = revision + 1 where tenant = 'acme'"
                )
                await connection.execute(update, {"newer": newer})
            case "removed":
                # Only by hand, with the constraint that holds it out of the way.
                drop = text("alter table contacts drop constraint contacts_bucket_tenant_fkey")
                await connection.execute(drop)
                await connection.execute(text("delete from tenants where tenant = 'acme'"))


async def books(house: House, clock: MovableClock) -> None:
    """Book a turn and two follow-ups of acme, all due."""
    async with house.service.database.transaction() as connection:
        for number in range(2):
            await a_followup(connection, clock, await a_conversation(connection, address=f"visitor {number}"))
        await a_turn(connection, clock, await a_conversation(connection, address="visitor 2"))


async def perform_what_is_due(house: House, clock: MovableClock) -> int:
    """Claim what is due and perform it; return how much it was."""
    due = await take(house.service.database, clock)
    for task in due:
        await performer(house.service)(task)
    return len(due)


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_due_waits_until_the_tenant_is_applied_and_costs_no_attempt(
    house: House, clock: MovableClock, database: Database, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    await books(house, clock)
    for _ in range(2 * BUDGET):
        await spoil(database, fault)
        assert await perform_what_is_due(house, clock) == 3
        assert await perform_what_is_due(house, clock) == 0
        for task in [*await house.tasks(), *await house.tasks(kind="turn")]:
            assert (task.state, task.hold, task.attempt, task.error) == ("scheduled", "channel paused", 0, None)
        if fault == "removed":
            async with database.transaction() as connection:
                await connection.execute(
                    text(
                        "alter table contacts add constraint contacts_bucket_tenant_fkey"
                        " foreign key (bucket, tenant) references tenants (bucket, tenant) not valid"
                    )
                )
        await apply_tenants(house.service, [CONFIG])
    assert await perform_what_is_due(house, clock) == 3
    assert await perform_what_is_due(house, clock) == 2
    assert set((await states(database)).values()) == {"fired"}
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    (error,) = errors
    assert "tenant acme" in error
    assert "until its file is applied again" in error


async def test_a_tenant_mended_in_the_very_moment_in_which_it_is_found_unusable_is_not_waited_for(
    house: House, clock: MovableClock, database: Database
) -> None:
    await books(house, clock)
    await spoil(database, "another key")
    task, *_ = await take(database, clock)
    async with database.transaction() as connection:
        # It is being applied: whatever was held has been released already.
        stored = to_stored(CONFIG, house.service.box)
        await tenants.apply(connection, "acme", stored, senders(CONFIG))
        work = asyncio.ensure_future(performer(house.service)(task))
        await eventually(lambda: waits_for_a_lock(database))
        assert not work.done()
    await work
    (found,) = [each for each in [*await house.tasks(), *await house.tasks(kind="turn")] if each.id == task.id]
    assert (found.state, found.hold, found.attempt) == ("scheduled", None, 0)
    assert (found.due_at - clock.at).total_seconds() == FRESH


@pytest.mark.parametrize("fault", FAULTS[:2])
async def test_whoever_knocks_is_told_to_come_again_later(
    house: House, database: Database, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    await spoil(database, fault)
    asked = [
        ("POST", "/hooks/telegram/acme"),
        ("POST", "/hooks/whatsapp/acme"),
        ("POST", "/hooks/whatsapp/acme/status/1"),
        ("POST", "/widget/acme/sessions"),
        ("POST", "/widget/acme/messages"),
        ("GET", "/widget/acme/messages"),
        ("GET", "/widget/acme/stream"),
        ("GET", "/widget/acme/pending"),
        ("GET", "/widget/acme.js"),
        ("GET", "/widget/acme"),
    ]
    async with calling(application(house.run)) as http:
        for method, path in asked:
            answer = await http.request(method, path, json={} if method == "POST" else None)
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json"), path
            assert "later" in answer.json()["detail"]
            assert int(answer.headers["retry-after"]) > 0
            assert "sealed" not in answer.text
            assert "telepathy" not in answer.text
        assert (await http.post("/widget/demo/sessions", json={})).status_code == 201, "the others are served"
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_readyz_names_the_tenant_and_stays_ready_for_the_others_until_it_is_applied(
    house: House, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def problems(http: httpx.AsyncClient) -> list[str]:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")
        told: list[str] = answer.json()["problems"]
        return told

    stopping = asyncio.Event()
    receivers = Receivers(house.service, house.run.settings, stopping, look_every=0.01)
    async with calling(application(house.run)) as http:
        assert await problems(http) == []
        looking = asyncio.create_task(receivers.run())
        await spoil(database, "another key")
        await eventually(lambda: bool(house.service.unusable))
        (problem,) = await problems(http)
        assert "acme" in problem
        await apply_tenants(house.service, [CONFIG])
        await eventually(lambda: not house.service.unusable)
        assert await problems(http) == []
        stopping.set()
        await looking
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
