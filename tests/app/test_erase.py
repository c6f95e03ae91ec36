"""A contact is erased: nothing is said to them any more, no word of theirs is left, and all counts are what they were."""

import asyncio
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app import erasure
from app import renewals as enrolling
from app.erasure import Speaking
from app.retention import delete_old, forget
from channels.message import Accepted, Outcome, Part, Unknown
from scheduler import operate
from scheduler.clock import MovableClock
from scheduler.promises import ledger
from store import deliveries, messages, renewals
from store import erase as people
from store.database import Database
from store.renewals import Wanted
from tests.app.test_handover import TELEGRAM, Desk, a_desk, opened
from tests.app.test_recurring import again
from tests.app.test_speak import Counter, Line
from tests.support.claims import take
from tests.support.factories import lanes
from tests.support.house import House, a_house
from tests.support.model import Script, books
from tests.support.shell import Shell
from tests.support.wait import eventually

SECRET = "hippopotamus"
"""A word that is the customer's."""
RENEWALS: dict[str, Any] = {
    "hours": {"open": {"mon-sun": "00:00-24:00"}},
    "cadences": {"policy": {"steps": [{"offset": "-6w", "text": {"en": "It ends on {due}, {name}."}}]}},
}


async def erases(house: House, conversation: int, **more: Any) -> dict[str, int]:
    database = house.service.database
    async with database.transaction() as connection:
        contact = await people.contact_of(connection, "acme", conversation)
    assert contact is not None
    return dict(await erasure.erase(database, house.service.clock, "acme", [contact], **more))


async def everything(database: Database) -> str:
    """Return all rows of all tables as text."""
    async with database.transaction() as connection:
        names = await connection.scalars(
            text("select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace")
        )
        found = []
        for name in names:
            rows = await connection.execute(text(f"select cast(to_jsonb(t) as text) from {name} t"))
            found += [f"{name}: {row[0]}" for row in rows]
    return "\n".join(found)


async def is_asked_to_stop(database: Database) -> bool:
    async with database.transaction() as connection:
        return bool(await connection.scalar(text("select bool_and(cancel_requested) from tasks")))


async def counts(database: Database) -> dict[str, int]:
    tables = (
        "contacts",
        "conversations",
        "messages",
        "tasks",
        "task_events",
        "deliveries",
        "renewals",
        "renewal_events",
    )
    async with database.transaction() as connection:
        return {name: await connection.scalar(text(f"select count(*) from {name}")) or 0 for name in tables}


async def test_no_word_and_no_address_is_left_and_what_is_counted_stays(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    about = f"feed the {SECRET}"
    lines = (
        books(about, delay="10 seconds"),
        f"I will remind you of the {SECRET}.",
        books(f"walk the {SECRET}", delay="1 hour"),
        "Booked.",
        again(about=about, every="2 hours"),
        "Booked.",
    )
    followups = (f"Feed the {SECRET}!",)
    script = Script(*lines, followups=followups)
    async with a_house(database, tmp_path, script.model, clock, config=RENEWALS) as house:
        desk = Desk(house, clock, script)
        address, name = f"ana-{SECRET}", f"Ana {SECRET}"
        conversation = 0
        for words in (f"remind me to feed my {SECRET}", "and to walk it", "again and again"):
            clock.move(timedelta(seconds=2))
            said = await house.says(words, address=address, name=name, language="en", time_zone="America/Lima")
            conversation = said.conversation
            await desk.until_quiet()
        await desk.goes_by(timedelta(seconds=10))
        wanted = Wanted(
            "policy-7", date(2027, 3, 1), "policy", {"web": address}, name, fields={"animal": SECRET}, agreed=True
        )
        other = Wanted("policy-8", date(2027, 3, 1), "policy", {"web": "bea"}, "Bea")
        await enrolling.enrol(house.service, await house.service.tenant_called("acme"), [wanted, other], "a test")
        async with database.transaction() as connection:
            (renewal,) = await renewals.under(connection, "acme", "policy-7")
            await renewals.note(connection, "acme", "moved", "eva", {renewal.id: f"at {SECRET}'s wish"}, now=clock.at)
            before_of = await ledger(connection)
        before = await counts(database)
        assert SECRET in await everything(database)
        done = await erases(house, conversation)
        assert (done["contacts"], done["conversations"], done["renewals"], done["cancelled"]) == (1, 1, 1, 3)
        assert SECRET not in await everything(database)
        after = await counts(database)
        assert (after.pop("task_events"), after.pop("renewal_events")) == (
            before.pop("task_events") + 3,
            before.pop("renewal_events") + 1,
        )
        assert after == before
        async with database.transaction() as connection:
            (line,) = await ledger(connection)
            assert (line.promised, line.kept, line.released) == (before_of[0].promised, 1, 1)
            assert [one.state for one in await renewals.under(connection, "acme", "policy-7")] == ["withdrawn"]
            assert [one.state for one in await renewals.under(connection, "acme", "policy-8")] == ["open"]
        await desk.goes_by(timedelta(days=1))
        assert await house.heard(conversation) == ["", "", "", ""]


async def test_whoever_writes_from_there_again_is_somebody_new(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, "Hello."):
        first = await opened(desk)
        await erases(desk.house, first)
        second = (await desk.says("hello again")).conversation
        assert second != first
        assert await desk.house.until_heard(second, 1) == ["Hello."]
        asked = str(desk.script.asked[-1])
        assert ("hello again" in asked, "Hello." in asked) == (True, False)


async def test_what_is_being_written_for_later_is_not_said(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, books("call Ana", delay="10 seconds"), "Booked."):
        conversation = await opened(desk)
        desk.script.followup_gate.clear()
        desk.script.reached.clear()
        await desk.house.goes_by(clock, timedelta(seconds=10))
        await desk.script.reached.wait()
        await erases(desk.house, conversation)
        desk.script.followup_gate.set()
        await desk.until_quiet()
        (task,) = await desk.house.tasks()
        assert (task.state, await desk.house.heard(conversation)) == ("cancelled", [""])
        assert set((await lanes(database)).values()) == {None}


async def test_an_answer_that_is_being_written_is_waited_for_and_asked_to_stop(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, "A long answer."):
        desk.script.gate.clear()
        conversation = (await desk.says("hello")).conversation
        await desk.script.reached.wait()
        with pytest.raises(Speaking, match="nothing was erased"):
            await erases(desk.house, conversation, looks=1)
        assert [one.text for one in await desk.house.log(conversation)] == ["hello"]
        erasing = asyncio.create_task(erases(desk.house, conversation))
        await eventually(partial(is_asked_to_stop, database))
        desk.script.gate.set()
        await erasing
        assert [(one.role, one.text) for one in await desk.house.log(conversation)] == [("customer", "")]


async def test_a_send_that_has_begun_is_waited_for_so_nothing_goes_out_afterwards(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script, sent, erased = Script(followups=("Call Ana.",)), asyncio.Event(), asyncio.Event()

    async def slowly(part: Part) -> Outcome:
        sent.set()
        await asyncio.sleep(0)
        assert not erased.is_set()
        return Accepted("7")

    line = Line(slowly)
    async with a_house(database, tmp_path, script.model, clock, poll=False, config={"channels": TELEGRAM}) as house:
        counter = Counter(house, clock, line, script)
        await counter.written()
        saying = await counter.claimed()
        conversation = saying.conversation or 0
        with pytest.raises(Speaking):
            await erases(house, conversation, looks=1)
        await counter.perform(saying)
        assert sent.is_set()
        await erases(house, conversation)
        erased.set()
        (task,) = await house.tasks()
        assert (task.state, task.outcome) == ("fired", "delivered")


async def test_a_claim_of_a_worker_that_is_gone_is_not_waited_for(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script = Script("Hello.")
    async with a_house(database, tmp_path, script.model, clock, poll=False) as house:
        conversation = (await house.says("hello")).conversation
        await take(database, clock)
        clock.move(timedelta(hours=1))
        assert (await erases(house, conversation, looks=1))["cancelled"] == 1


async def test_what_nobody_knew_the_fate_of_does_not_come_to_life_again(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    script, line = Script(followups=("Call Ana.|And Bea.",)), Line(Unknown("no answer"))
    async with a_house(database, tmp_path, script.model, clock, poll=False, config={"channels": TELEGRAM}) as house:
        counter = Counter(house, clock, line, script)
        task = await counter.written()
        await counter.say()
        found = await counter.task()
        assert found.state == "uncertain"
        await erases(house, found.conversation or 0)
        (lost,) = await counter.deliveries()
        async with database.transaction() as connection:
            said = ("m1", "undelivered", f"+57300{SECRET}")
            assert await deliveries.note_status(connection, "acme", lost.id, *said) is None
            assert not await operate.resume(connection, clock, "acme", task, "a late word")
            assert await operate.settle(connection, clock, "acme", task, "eva", is_delivered=False)
            assert await operate.retry(connection, clock, "acme", task, "eva")
        await counter.say()
        assert SECRET not in await everything(database)
        assert ((await counter.task()).outcome, len(line.sent)) == ("skipped: opted out", 1)


async def test_the_message_that_is_taken_in_at_that_moment_is_somebody_news(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, "Hello."):
        first = await opened(desk)
        for _ in range(10):
            said, _ = await asyncio.gather(desk.says("hello again"), erases(desk.house, first))
            await desk.until_quiet()
            kept = [one.text for one in await desk.house.log(said.conversation) if one.role == "customer"]
            # Before the erasure it is erased with the rest, after it it is a new contact's; never half of each.
            assert set(kept) == ({""} if said.conversation == first else {"hello again"})
            first = said.conversation


# ---- On the command line


async def test_an_operator_erases_by_address_or_conversation_and_is_asked_before(
    database: Database, tmp_path: Path, database_url: str
) -> None:
    shell = Shell(tmp_path, database_url)
    async with a_house(database, tmp_path, Script("Hello.").model) as house:
        number = "whatsapp:+5215512345678"
        key = "whatsapp:+525512345678"
        house.service.make_channel = lambda tenant, name: None
        talk = (await house.says("hello", channel="whatsapp", address=number, address_key=key)).conversation
        other = (await house.says("hello", address="bea")).conversation
        await house.until_heard(other, 1)
        where = ["contacts", "erase", "--tenant", "acme"]
        for words in ([], ["--channel", "whatsapp"], ["--conversation", str(talk), "--channel", "web", "bea"]):
            assert (await shell.run(*where, *words))[0] == 2
        code, said = await shell.run(*where, "--channel", "whatsapp", "+573009999999", "--yes")
        assert (code, "knows nobody" in said, "+573009999999" in said) == (2, True, False), said
        code, said = await shell.run(*where, "--channel", "whatsapp", "+525512345678")  # nobody says yes
        assert (code, "cannot be undone" in said, "5512345678" in said) == (1, True, False), said
        assert "5512345678" in await everything(database)
        code, said = await shell.run(*where, "--channel", "whatsapp", "+525512345678", "--yes")
        assert (code, said.startswith("erased: 1 contacts, 1 conversations, 1 messages")) == (0, True), said
        assert "5512345678" not in await everything(database)
        assert (await shell.json(*where, "--conversation", str(other), "--yes"))["messages"] == 2
        assert "bea" not in await everything(database)


# ---- After so many days


async def test_what_was_said_longer_ago_than_the_tenant_keeps_it_is_deleted_with_what_tasks_keep_of_it(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    lines = (books(f"feed the {SECRET}", delay="10 seconds"), f"I will feed the {SECRET}.")
    async for desk in a_desk(database, tmp_path, clock, *lines, retention={"messages_days": 30}):
        desk.script._followups = [f"Feed the {SECRET}."]
        old = await opened(desk)
        await desk.goes_by(timedelta(seconds=10))
        await delete_old(desk.house.service)
        assert len(await desk.house.log(old)) == 3
        clock.move(timedelta(days=30))
        desk.script._lines = ["Hello."]
        await desk.says("a new word")
        await desk.until_quiet()
        new = (await desk.house.says("from another", address="bea")).conversation
        await desk.until_quiet()
        await delete_old(desk.house.service)
        assert [one.text for one in await desk.house.log(old)] == ["a new word", "Hello."]
        assert len(await desk.house.log(new)) == 2
        assert SECRET not in await everything(database)
        (task,) = await desk.house.tasks()
        assert (task.state, task.outcome) == ("fired", "delivered"), "the row stays for its ninety days"


async def test_it_is_deleted_in_batches_and_another_tenants_is_kept(
    database: Database, tmp_path: Path, clock: MovableClock
) -> None:
    async for desk in a_desk(database, tmp_path, clock, "Hello."):
        conversation = await opened(desk)
        async with database.transaction() as connection:
            for _ in range(25):
                await messages.add(connection, "acme", conversation, "assistant", "notice", "x", now=clock.at)
        clock.move(timedelta(days=2))
        for number in range(5):
            await desk.house.says("new", address=f"visitor-{number}")
        await desk.until_quiet()
        assert await forget(desk.house.service, "globex", timedelta(days=1), batch=4, pause=0) == 0
        assert await forget(desk.house.service, "acme", timedelta(days=1), batch=4, pause=0) == 27
        assert await forget(desk.house.service, "acme", timedelta(days=1), batch=4, pause=0) == 0
        assert await desk.house.log(conversation) == []
