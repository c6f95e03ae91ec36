"""Something that comes again, whole: booked in the chat, said at each of its times, changed, and ended."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic_ai.messages import ToolCallPart

from app.http import _cancel, _pending
from app.moved import follow
from app.wiring import apply_tenants, performer
from scheduler import schedules
from scheduler.clock import MovableClock
from scheduler.errors import LostClaim
from scheduler.events import story
from scheduler.find import Found
from scheduler.recovery import recover
from scheduler.recurrence import every
from store import contacts
from store.database import Database
from tests.app.test_signed_in import a_shop
from tests.app.test_unusable_tenants import spoil
from tests.support.claims import take
from tests.support.house import House, a_house
from tests.support.model import Script
from tests.support.wait import eventually, waits_for_a_lock

DAILY = {"cron": "0 9 * * *"}
NINE = datetime(2026, 11, 30, 14, tzinfo=UTC)
"""Monday, 9:00 in Bogota: a day after the clock of the tests begins."""
DAY = timedelta(days=1)


def again(about: str = "send the report", **how: Any) -> ToolCallPart:
    """The model calls schedule_recurring."""
    return ToolCallPart("schedule_recurring", {"about": about, **(how or DAILY)})


async def book(house: House, words: str = "every day at 9 remind me to send the report", **more: Any) -> int:
    """A customer has it booked; returns the conversation."""
    received = await house.says(words, **more)
    await house.until_heard(received.conversation, 1)
    return received.conversation


async def recurs(house: House) -> Found:
    """Return the one that comes again."""
    (found,) = await house.tasks(kind="schedule")
    return found


async def comes_to(house: House, clock: MovableClock, at: datetime) -> None:
    """Let it be that time, and tell the poller."""
    clock.set(at)
    house.wake()


async def said(house: House, conversation: int) -> list[str]:
    """Return what was said at its times."""
    return [message.text for message in await house.log(conversation) if message.kind == "followup"]


async def lines(house: House, task: int, *events: str) -> list[tuple[str, str | None]]:
    """Return a task's story, as far as it is of these events."""
    async with house.service.database.transaction() as connection:
        return [(line.event, line.detail) for line in await story(connection, "acme", task) if line.event in events]


async def perform_all(house: House, clock: MovableClock) -> None:
    """Perform what is due until nothing is, without a poller."""
    while due := await take(house.service.database, clock):
        for task in due:
            await performer(house.service)(task)


async def test_it_is_said_at_each_of_its_times_as_a_followup_of_its_own(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "I will remind you every day at 9.", followups=("One.", "Two.", "Three."))
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        task = await recurs(house)
        for day, heard in enumerate(("One.", "Two.", "Three.")):
            await comes_to(house, clock, NINE + day * DAY - timedelta(seconds=1))
            assert len(await said(house, conversation)) == day
            await comes_to(house, clock, NINE + day * DAY)
            assert (await house.until_heard(conversation, day + 2))[-1] == heard
        occurrences = sorted(await house.tasks(), key=lambda found: found.booked_for)
        for day, one in enumerate(occurrences):
            await house.until_state(one.id, "fired")
            assert (one.parent, one.booked_for) == (task.id, NINE + day * DAY)
            assert one.payload == {
                "about": "send the report",
                "language": "en",
                "when": "TZ=America/Bogota 0 9 * * *",
                "is_work": False,
            }
        assert len(occurrences) == 3
        assert script.asked_for_followups() == 3
        assert (await recurs(house)).booked_for == NINE + 3 * DAY
        assert await lines(house, task.id, "ran", "missed") == [
            ("ran", (NINE + day * DAY).isoformat().replace("+00:00", "Z")) for day in range(3)
        ]


@pytest.mark.parametrize("friday", [datetime(2027, 3, 26, 12, tzinfo=UTC), datetime(2027, 10, 29, 12, tzinfo=UTC)])
async def test_nine_oclock_in_madrid_stays_nine_oclock_when_the_clocks_change(
    database: Database, tmp_path: Path, clock: MovableClock, friday: datetime
) -> None:
    script, madrid = Script(again(cron="0 9 * * 1-5"), "Booked."), ZoneInfo("Europe/Madrid")
    clock.set(friday)
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house, time_zone="Europe/Madrid")
        for count in (1, 2):
            task = await recurs(house)
            await comes_to(house, clock, task.booked_for)
            await house.until_heard(conversation, count + 1)
        slots = sorted(one.booked_for for one in await house.tasks())
        monday = friday.date() + 3 * DAY
        assert slots == [datetime.combine(day, time(9), madrid).astimezone(UTC) for day in (monday, monday + DAY)]


@pytest.mark.parametrize("end", [{"times": 2}, {"until": "2026-12-01"}])
async def test_after_so_many_times_or_the_last_day_it_has_ended(
    database: Database, tmp_path: Path, clock: MovableClock, end: dict[str, Any]
) -> None:
    script = Script(again(**DAILY, **end), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        task = await recurs(house)
        for day in range(2):
            await comes_to(house, clock, NINE + day * DAY)
            await house.until_heard(conversation, day + 2)
        assert (await house.until_state(task.id, "fired")).outcome == "delivered"
        await house.goes_by(clock, 3 * DAY)
        assert len(await said(house, conversation)) == 2


async def test_of_what_was_missed_only_the_latest_is_said_and_only_while_it_is_worth_saying(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(every="30 minutes"), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    begun = clock.at
    clock.set(begun + timedelta(hours=12, minutes=10))  # 24 of them have passed
    async with a_house(database, tmp_path, script.model, clock) as house:
        await house.until_heard(conversation, 2)
        task = await recurs(house)
        assert task.booked_for == begun + timedelta(hours=12, minutes=30)
        (one,) = await house.tasks()
        assert one.booked_for == begun + timedelta(hours=12)
        assert await lines(house, task.id, "missed") == [
            ("missed", "skipped from 2026-11-29T14:30:00Z, said 2026-11-30T02:00:00Z")
        ]


async def test_one_that_nobody_wants_any_more_is_skipped_and_that_stands_in_its_story(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    clock.set(NINE + timedelta(hours=2, seconds=1))
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        await perform_all(house, clock)
        task = await recurs(house)
        assert (task.state, task.booked_for) == ("scheduled", NINE + DAY)
        assert await house.tasks() == []
        assert await lines(house, task.id, "missed", "ran") == [
            ("missed", "skipped from 2026-11-30T14:00:00Z, none said")
        ]
        clock.set(NINE + DAY + timedelta(hours=1, minutes=59))
        await perform_all(house, clock)
        assert len(await said(house, conversation)) == 1, "it is worth saying still"


async def test_missed_until_its_last_day_is_over_it_has_ended_unsaid(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(**DAILY, until="2026-12-01"), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    clock.set(NINE + 10 * DAY)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        await perform_all(house, clock)
        task = await recurs(house)
        assert (task.state, task.outcome) == ("fired", "skipped: missed")
        assert await said(house, conversation) == []


async def test_killed_between_booking_one_and_putting_it_back_it_is_neither_lost_nor_said_twice(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    clock.set(NINE)

    async def dies(*_: Any, **__: Any) -> str:
        raise KeyboardInterrupt

    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        (claimed,) = await take(database, clock)
        with monkeypatch.context() as door:
            door.setattr(schedules, "go_on", dies)
            with pytest.raises(KeyboardInterrupt):
                await performer(house.service)(claimed)
        assert await house.tasks() == [], "what was booked is rolled back too"
        assert (await recurs(house)).booked_for == NINE
        async with database.transaction() as connection:
            assert await recover(connection, clock, ["w"]) == 1
        await perform_all(house, clock)
        assert len(await said(house, conversation)) == 1
        assert (await recurs(house)).booked_for == NINE + DAY


async def test_a_worker_that_lost_its_claim_books_nothing(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    clock.set(NINE)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        (stale,) = await take(database, clock)
        async with database.transaction() as connection:
            await recover(connection, clock, ["w"])
        await perform_all(house, clock)
        with pytest.raises(LostClaim):
            await performer(house.service)(stale)
        assert len(await said(house, conversation)) == 1
        assert len(await house.tasks()) == 1


async def test_cancelled_it_comes_no_more_nor_does_what_of_it_is_not_said_yet(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        task = await recurs(house)
        script.followup_gate.clear()
        await comes_to(house, clock, NINE)
        await eventually(script.asked_for_followups)  # type: ignore[arg-type]
        (one,) = await house.tasks()
        assert await _cancel(house.service, "acme", conversation, task.id) == "cancelled"
        script.followup_gate.set()
        await house.until_state(one.id, "cancelled")
        assert (await recurs(house)).state == "cancelled"
        await house.goes_by(clock, 2 * DAY)
        assert await said(house, conversation) == []


async def test_cancelled_while_one_of_it_is_being_booked_that_one_is_cancelled_too(
    database: Database, tmp_path: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_house(database, tmp_path, Script(again(), "Booked.").model, clock) as house:
        conversation = await book(house)
    clock.set(NINE)
    at_the_door, gate, go_on = asyncio.Event(), asyncio.Event(), schedules.go_on

    async def waits(*given: Any, **more: Any) -> str:
        at_the_door.set()
        await gate.wait()
        return await go_on(*given, **more)

    monkeypatch.setattr(schedules, "go_on", waits)
    async with a_house(database, tmp_path, clock=clock, poll=False) as house:
        (claimed,) = await take(database, clock)
        booking = asyncio.ensure_future(performer(house.service)(claimed))
        await at_the_door.wait()
        cancelling = asyncio.create_task(_cancel(house.service, "acme", conversation, claimed.id))
        await eventually(lambda: waits_for_a_lock(database))
        gate.set()
        await booking
        assert await cancelling == "cancelled"
        (one,) = await house.tasks()
        assert ((await recurs(house)).state, one.state) == ("cancelled", "cancelled")


async def test_a_customer_who_wants_nothing_more_ends_it(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        async with database.transaction() as connection:
            await contacts.stop(connection, "acme", conversation, "customer")
        clock.set(NINE)
        await perform_all(house, clock)
        task = await recurs(house)
        assert (task.state, task.outcome) == ("fired", "skipped: opted out")
        assert await house.tasks() == []


async def test_where_the_provider_is_shut_out_each_is_skipped_and_named_until_it_is_let_in(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        async with database.transaction() as connection:
            await contacts.stop(connection, "acme", conversation, "provider")
        clock.set(NINE)
        await perform_all(house, clock)
        async with database.transaction() as connection:
            await contacts.go_on(connection, "acme", conversation, "provider")
        clock.set(NINE + DAY)
        await perform_all(house, clock)
        outcomes = [one.outcome for one in sorted(await house.tasks(), key=lambda found: found.booked_for)]
        assert outcomes == ["skipped: blocked", "delivered"]


async def test_it_waits_for_a_tenant_that_cannot_be_used_and_then_only_the_latest_is_said(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        config = await house.service.tenant_called("acme")
        await spoil(database, "a section unknown here")
        house.service._tenants.clear()
        clock.set(NINE)
        await perform_all(house, clock)
        held = await recurs(house)
        assert (held.state, held.hold, held.attempt) == ("scheduled", "channel paused", 0)
        clock.set(NINE + 2 * DAY + timedelta(minutes=5))
        await apply_tenants(house.service, [config])
        await perform_all(house, clock)
        (one,) = await house.tasks()
        assert one.booked_for == NINE + 2 * DAY
        assert len(await said(house, conversation)) == 1


async def test_a_group_that_becomes_a_supergroup_takes_it_along(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.", "Hello.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        old = await book(house)
        elsewhere = (await house.says("hello", address="new")).conversation
        await house.until_heard(elsewhere, 1)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        clock.set(NINE)
        (claimed,) = await take(database, clock)  # in hand while the chat moves
        async with database.transaction() as connection:
            await follow(connection, "acme", "web", "ana", "new")
        await performer(house.service)(claimed)
        await perform_all(house, clock)
        moved, (one,) = await recurs(house), await house.tasks()
        assert {moved.conversation, one.conversation} == {elsewhere}
        assert (await said(house, old), len(await said(house, elsewhere))) == ([], 1)


async def test_a_visitor_who_signs_in_takes_it_along(database: Database, tmp_path: Path) -> None:
    async with a_shop(database, tmp_path, "One.", again(), "Every day.", "Three.") as shop:
        before = await shop.user()
        await before.write("from the phone", "same")
        await shop.quiet(before)
        visitor = await shop.visit(time_zone="Europe/Madrid")
        await visitor.write("remind me every day", "same")
        await shop.quiet(visitor)
        user = await visitor.sign_in()
        (found,) = await shop.house.tasks(kind="schedule")
        assert found.conversation == user.conversation
        (listed,) = (await user.ask("GET", "pending")).json()["pending"]
        assert listed["id"] == found.id
        assert (listed["about"], listed["time_zone"]) == ("send the report", "Europe/Madrid")
        assert datetime.fromisoformat(listed["at"]) == found.booked_for
        assert (await user.ask("DELETE", f"pending/{found.id}")).json() == {"status": "cancelled"}
        assert (await user.ask("GET", "pending")).json() == {"pending": []}
        assert (await user.ask("DELETE", f"pending/{found.id}")).status_code == 404


async def test_one_that_is_said_just_now_is_not_listed_beside_what_it_is_of(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        clock.set(NINE)
        (claimed,) = await take(database, clock)
        await performer(house.service)(claimed)
        (listed,) = await _pending(house.service, "acme", conversation)
        assert (listed.id, listed.at) == (claimed.id, NINE + DAY)
        assert len(await house.tasks(states=("scheduled",))) == 1


async def test_what_it_says_books_nothing_however_often(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    about = "each Monday at 9 remind me to book another reminder for every hour"
    async with a_house(database, tmp_path, clock=clock, poll=False) as house:
        received = await house.says("hello")
        async with database.transaction() as connection:
            await schedules.register(
                connection,
                clock,
                [
                    schedules.Schedule(
                        "chat:1",
                        every("1 minute"),
                        tenant="acme",
                        conversation=received.conversation,
                        channel="web",
                        more={"about": about, "language": "en", "expires_after": 7200},
                    )
                ],
            )
        for _ in range(10):
            clock.move(timedelta(minutes=1))
            await perform_all(house, clock)
        told = await said(house, received.conversation)
        assert len(told) == 10
        assert set(told) == {f"Reminder: {about}."}
        assert len(await house.tasks()) == 10
        assert len(await house.tasks(kind="schedule")) == 1


async def test_without_a_model_it_is_booked_said_listed_and_cancelled(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async with a_house(database, tmp_path, clock=clock) as house:
        conversation = await book(house, "every Monday at 9 remind me to send the report")
        assert await house.heard(conversation) == [
            'I\'ll remind you every Monday: "send the report". The next one comes tomorrow, Monday 30 November, at 09:00'
            " (America/Bogota)."
        ]
        await comes_to(house, clock, NINE)
        assert (await house.until_heard(conversation, 2))[1] == "Reminder: send the report."
        await house.says("what is pending?")
        listed = (await house.until_heard(conversation, 3))[2]
        assert '"send the report", on Monday 7 December at 09:00 (America/Bogota) (every Monday)' in listed
        clock.move(timedelta(minutes=5))
        await house.says("cancel the report")
        assert (await house.until_heard(conversation, 4))[3] == 'Cancelled: "send the report".'
        assert (await recurs(house)).state == "cancelled"


async def test_one_in_the_chat_is_changed_and_the_next_comes_at_its_new_time(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script(again(), "Booked.")
    async with a_house(database, tmp_path, script.model, clock) as house:
        conversation = await book(house)
        old = await recurs(house)
        script._lines[:] = [again(cron="0 8 * * *", replaces=old.id), "Changed: I will remind you every day at 8."]
        clock.move(timedelta(minutes=5))
        await house.says("make that 8")
        await house.until_heard(conversation, 2)
        states = {task.state: task.booked_for for task in await house.tasks(kind="schedule")}
        assert states == {"cancelled": NINE, "scheduled": NINE - timedelta(hours=1)}
        await comes_to(house, clock, NINE - timedelta(hours=1))
        await house.until_heard(conversation, 3)
        await house.goes_by(clock, timedelta(hours=2))
        assert len(await said(house, conversation)) == 1
