"""What an operator does on the command line about tasks that went wrong."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from app.cli.tasks import tasks
from app.deferred import needs_of
from scheduler import operate, schedules, settle
from scheduler.book import Booking, book
from scheduler.claim import claim
from scheduler.clock import Clock
from scheduler.events import story
from scheduler.poller import DUE
from scheduler.recurrence import every
from scheduler.settle import End
from scheduler.task import OWN
from store import deliveries
from store.database import Database
from store.signals import Signals
from tests.support.claims import LEASE, fields, take
from tests.support.factories import a_conversation, a_followup, a_tenant, states
from tests.support.shell import Shell
from tests.support.wait import eventually

CLOCK = Clock()
SECOND = timedelta(seconds=1)


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return Shell(tmp_path, database_url)


async def ended_badly(
    database: Database, count: int, *, tenant: str = "acme", becomes: str = "failed", error: str = "no such number"
) -> list[int]:
    """Return follow-ups that were written and whose send ended so."""
    async with database.transaction() as connection:
        conversation = await a_conversation(connection, tenant)
        booked = [(await a_followup(connection, CLOCK, conversation, tenant=tenant)).id for _ in range(count)]
    for task in await take(database, CLOCK, work=count):
        async with database.transaction() as connection:
            await settle.keep_text(connection, CLOCK, task, "Call Ana")
    for _ in booked:
        (task,) = await take(database, CLOCK, work=0)
        async with database.transaction() as connection:
            await settle.open_door(connection, CLOCK, task, "Call Ana")
            if becomes == "failed":
                await settle.fail(connection, CLOCK, task, error)
            else:
                await settle.leave_uncertain(connection, CLOCK, task, error, 3)
    return booked


async def last_line(database: Database, task: int) -> tuple[str, str | None]:
    async with database.transaction() as connection:
        event = (await story(connection, "acme", task))[-1]
        return event.event, event.detail


async def test_ten_permanent_failures_are_listed_and_counted_some_retried_and_the_rest_discarded(
    shell: Shell, database: Database
) -> None:
    failed = await ended_badly(database, 10)
    (theirs,) = await ended_badly(database, 1, tenant="rival")
    (uncertain,) = await ended_badly(database, 1, becomes="uncertain", error="cut off")

    listed = await shell.json("tasks", "list", "--status", "failed", "--tenant", "acme")
    assert sorted(row["id"] for row in listed) == failed
    assert {(row["error"], row["age"][-1]) for row in listed} == {("no such number", "s")}
    troubled = await shell.json("tasks", "list", "--status", "troubled")
    assert sorted(row["id"] for row in troubled) == sorted([*failed, theirs, uncertain])

    assert await shell.run("tasks", "retry", "--all", "--tenant", "acme", "--dry-run") == (
        0,
        "10 tasks would be retried",
    )
    words = ("--by", "eva", "--why", "the number was  mended")
    assert await shell.run("tasks", "retry", str(failed[1]), str(failed[0]), *words) == (
        0,
        f"task {failed[1]}: retried\ntask {failed[0]}: retried",
    )
    assert await fields(database, failed[0], "state", "text", "attempt", "sending") == (
        "scheduled",
        "Call Ana",
        0,
        False,
    )
    assert await last_line(database, failed[0]) == ("retried", "eva: the number was mended")

    every = ("--all", "--status", "failed", "--tenant", "acme")
    assert await shell.json("tasks", "discard", *every, "--by", "eva", "--why", "too late") == {"discarded": failed[2:]}
    assert await last_line(database, failed[9]) == ("discarded", "eva: too late")
    now = await states(database)
    assert [now[task] for task in failed] == ["scheduled"] * 2 + ["cancelled"] * 8
    assert (now[theirs], now[uncertain]) == ("failed", "uncertain")
    assert await shell.run("tasks", "discard", *every, "--why", "too late") == (0, "0 tasks discarded")


async def test_nothing_is_done_when_one_of_the_tasks_is_in_another_state_and_each_is_told_the_way_out(
    shell: Shell, database: Database
) -> None:
    (failed,) = await ended_badly(database, 1)
    (uncertain,) = await ended_badly(database, 1, becomes="uncertain", error="cut off")
    code, said = await shell.run("tasks", "retry", str(failed), str(uncertain), "999999")
    assert code == 2
    assert said.splitlines() == [
        f"vuelvo: task {uncertain} is uncertain, not failed: look whether it arrived, and say so with vuelvo tasks settle",
        "vuelvo: there is no task 999999",
        "vuelvo: nothing was done",
    ]
    code, said = await shell.run("tasks", "settle", str(failed), "--delivered", "--why", "seen in the chat")
    assert (code, said) == (
        2,
        f"vuelvo: task {failed} is failed, not uncertain: vuelvo tasks retry has it done again,"
        " vuelvo tasks discard puts it away",
    )
    code, said = await shell.run("tasks", "retry", "--all", "--tenant", "nobody")
    assert (code, said) == (2, "vuelvo: there is no tenant 'nobody': see vuelvo tenants list")
    assert await states(database) == {failed: "failed", uncertain: "uncertain"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("retry",), "--all --status failed"),
        (("retry", "1", "--all"), "--all --status failed"),
        (("retry", "1", "--tenant", "acme"), "--all --status failed"),
        (("retry", "--all", "--status", "uncertain"), "uncertain"),
        (("discard", "1"), "--why"),
        (("discard", "1", "--why", "  "), "there is nothing in it"),
        (("settle", "1", "--delivered", "--not-delivered", "--why", "seen"), "one of the two"),
        (("settle", "1", "--why", "seen"), "--delivered"),
        (("settle", "1", "--delivered"), "--why"),
        (("cancel",), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "1", "--tenant", "acme"), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "1", "--key", "k"), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "1", "--dry-run"), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "--key", "k"), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "--tenant", "acme"), "--tenant with one of --subject, --key and --key-prefix"),
        (("cancel", "--tenant", "acme", "--key", "k", "--subject", ""), "--tenant with one of --subject"),
        (("cancel", "--tenant", "acme", "--key-prefix", ""), "'--key-prefix': a key prefix is at least one character"),
        (("cancel", "--tenant", "acme", "--key", "a\0"), "'--key': it is not text in UTF-8, or has a NUL"),
        (("cancel", "--tenant", "acme", "--subject", "\udcff"), "'--subject': it is not text in UTF-8"),
        (("cancel", "--tenant", "\ud800", "--subject", "s"), "'--tenant': it is not text in UTF-8"),
        (("list", "send-followup"), "no path of a function: it begins with /"),
        (("list", "--key-prefix", "\udcff"), "'--key-prefix': it is not text in UTF-8"),
        (("list", "--tenant", "a\0"), "'--tenant': it is not text in UTF-8, or has a NUL"),
    ],
)
def test_what_is_left_out_or_contradicts_itself_is_named_and_exits_with_2(words: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(tasks, words, terminal_width=200)
    assert (result.exit_code, problem in result.output) == (2, True), result.output


async def test_an_uncertain_task_is_settled_by_what_somebody_saw(shell: Shell, database: Database) -> None:
    here, gone = await ended_badly(database, 2, becomes="uncertain", error="cut off")
    words = ("--by", "eva", "--why", "looked in the chat")
    assert await shell.run("tasks", "settle", str(here), "--delivered", *words) == (0, f"task {here}: fired")
    assert await shell.json("tasks", "settle", str(gone), "--not-delivered", *words) == {"id": gone, "state": "failed"}
    assert await fields(database, here, "state", "outcome") == ("fired", "delivered")
    assert await fields(database, gone, "state", "error") == ("failed", "not delivered, as eva: looked in the chat")
    assert await last_line(database, here) == ("settled", "delivered, as eva: looked in the chat")


async def test_a_cancel_is_recorded_with_who_asked(shell: Shell, database: Database) -> None:
    async with database.transaction() as connection:
        booked = await a_followup(connection, CLOCK, await a_conversation(connection), due=timedelta(hours=1))
    assert await shell.run("tasks", "cancel", str(booked.id), "--by", "eva") == (0, f"task {booked.id}: cancelled")
    assert await last_line(database, booked.id) == ("cancelled", "eva")


@pytest.mark.parametrize("is_over", [False, True])
async def test_what_comes_again_is_cancelled_with_what_of_it_is_booked_and_not_said_yet(
    shell: Shell, database: Database, is_over: bool
) -> None:
    async with database.transaction() as connection:
        conversation = await a_conversation(connection)
        recurring = schedules.Schedule("chat:1", every("1d"), tenant="acme", conversation=conversation, channel="web")
        stored = (await schedules.register(connection, CLOCK, [recurring]))["chat:1"]
        booked = await a_followup(connection, CLOCK, conversation, due=timedelta(minutes=1), parent=stored.task)
        other = await a_followup(connection, CLOCK, conversation, due=timedelta(minutes=1))
        if is_over:
            await connection.execute(
                text(
                    "update tasks set state = 'fired', outcome = 'delivered', ended_at = now() where kind = 'schedule'"
                )
            )
    ended = [booked.id] if is_over else [stored.task, booked.id]
    code, said = await shell.run("tasks", "cancel", str(stored.task), "--by", "eva")
    assert (code, said.splitlines()) == (0, [f"task {task}: cancelled" for task in ended])
    assert await states(database) == {
        stored.task: "fired" if is_over else "cancelled",
        booked.id: "cancelled",
        other.id: "scheduled",
    }


async def test_the_applications_own_schedules_are_shown_retried_and_cancelled_as_tasks_are(
    shell: Shell, database: Database
) -> None:
    async with database.transaction() as connection:
        ours = schedules.Schedule("digest", every("1d"), needs="schedule:digest")
        task = (await schedules.register(connection, CLOCK, [ours]))["digest"].task
        await connection.execute(text("update tasks set state = 'failed', error = 'paper', ended_at = now()"))
    mine = ("--tenant", OWN)
    assert [row["id"] for row in await shell.json("tasks", "list", *mine, "--status", "failed")] == [task]
    assert "error: paper" in (await shell.run("tasks", "get", str(task)))[1].splitlines()
    assert await shell.run("tasks", "retry", str(task), "--by", "eva") == (0, f"task {task}: retried")
    code, said = await shell.run("tasks", "discard", str(task), "--why", "too late")
    assert (code, said.partition(":")[2]) == (
        2,
        f" task {task} is scheduled, not failed: it is still to come, or waits for what its hold names;"
        " vuelvo tasks cancel takes it back",
    )
    assert await shell.run("tasks", "cancel", *mine, "--key", "digest", "--dry-run") == (0, "1 task would be cancelled")
    assert await shell.run("tasks", "cancel", str(task), "--by", "eva") == (0, f"task {task}: cancelled")
    assert await states(database) == {task: "cancelled"}


async def test_tasks_are_found_and_cancelled_by_their_labels(shell: Shell, database: Database) -> None:
    async with database.transaction() as connection:
        here, theirs = [await a_conversation(connection, tenant) for tenant in ("acme", "rival")]
        soon, later = [
            (
                await a_followup(
                    connection, CLOCK, here, due=timedelta(days=n), subject="policy:7", key=f"renewal:7:{n}"
                )
            ).id
            for n in (1, 2)
        ]
        other = (await a_followup(connection, CLOCK, here, due=timedelta(days=3), subject="policy:70", key="r%")).id
        rivals = (
            await a_followup(
                connection, CLOCK, theirs, tenant="rival", due=timedelta(days=3), subject="policy:7", key="renewal:7:3"
            )
        ).id
        firing = (await a_followup(connection, CLOCK, here, key="now:1")).id
    await take(database, CLOCK)

    async def listed(*words: str) -> list[int]:
        return [row["id"] for row in await shell.json("tasks", "list", *words)]

    assert await listed("--subject", "policy:7") == [soon, later, rivals]
    assert await listed("--tenant", "acme", "--subject", "policy:7", "--key", "renewal:7:2") == [later]
    assert await listed("--key-prefix", "r%") == [other]
    assert await listed("--subject", "x" * 100_000) == []

    mine = ("tasks", "cancel", "--tenant", "acme")
    assert await shell.run(*mine, "--key-prefix", "renewal:7:", "--dry-run") == (0, "2 tasks would be cancelled")
    assert await shell.json(*mine, "--key", "renewal:7:1", "--dry-run") == {"would_cancel_count": 1}
    assert set((await states(database)).values()) == {"scheduled", "firing"}, "they were only counted"
    assert await shell.run(*mine, "--key", "x" * 100_000) == (0, "0 tasks cancelled")
    assert await shell.run(*mine, "--key", "renewal:7:1", "--by", "eva", "--why", "renewed") == (0, "1 task cancelled")
    assert await last_line(database, soon) == ("cancelled", "eva: renewed")
    assert await shell.json(*mine, "--subject", "policy:7") == {"cancelled": [later], "raced": []}
    assert await shell.run(*mine, "--key-prefix", "now:") == (0, "0 tasks cancelled, 1 already being performed (raced)")
    assert await shell.run("tasks", "cancel", "--tenant", "nobody", "--key", "k") == (
        2,
        "vuelvo: there is no tenant 'nobody': see vuelvo tenants list",
    )
    now = await states(database)
    assert [now[task] for task in (soon, later, other, rivals, firing)] == [
        *("cancelled", "cancelled", "scheduled", "scheduled", "firing")
    ]


async def test_the_runs_of_a_function_are_listed_by_its_path_and_shown_with_what_came_of_them(
    shell: Shell, database: Database
) -> None:
    async with database.transaction() as connection:
        await a_tenant(connection)
        due = {"/send-followup": timedelta(), "/fails": timedelta(), "/survey": timedelta(days=1)}
        done, failed, later = [
            (
                await book(
                    connection,
                    CLOCK,
                    Booking(
                        *("acme", "function", wait),
                        payload={"path": path, "payload": {"cart": "c1"}},
                        needs=needs_of(path),
                        subject="user_42",
                    ),
                )
            ).id
            for path, wait in due.items()
        ]
        claimed = await claim(connection, CLOCK, "w", LEASE, "application", 10, offers=list(map(needs_of, due)))
        one, other = sorted(claimed, key=lambda task: task.id)
        ends = [
            End(one, "fired", outcome='done: {"to": "+34 600 000 001"}'),
            End(other, "failed", error="OSError: no line to +34 600 000 001"),
        ]
        await settle.end_each(connection, ends, CLOCK)

    async def listed(*words: str) -> list[int]:
        return [row["id"] for row in await shell.json("tasks", "list", *words)]

    assert await listed("/survey") == [later]
    assert await listed("/survey", "--subject", "user_42", "--tenant", "acme") == [later]
    assert await listed("/survey", "--subject", "user_43") == []
    assert await listed("/send-followup") == [], "what is active, unless it is said otherwise"
    assert await listed("/send-followup", "--status", "fired") == [done]
    assert await listed("/nowhere") == []
    assert "/fails" in (await shell.run("tasks", "list", "--status", "failed"))[1]

    code, said = await shell.run("tasks", "get", str(done))
    assert (code, "outcome: done" in said.splitlines(), "function: /send-followup" in said.splitlines()) == (
        0,
        True,
        True,
    )
    assert "fired: done" in said
    assert not re.search(r"c1|600 000", said), "neither what it was given nor what it returned"
    whole = await shell.json("tasks", "get", str(done), "--payload")
    assert (whole["payload"], whole["result"]) == ({"cart": "c1"}, {"to": "+34 600 000 001"})
    assert 'payload: {"cart": "c1"}' in (await shell.run("tasks", "get", str(done), "--payload"))[1]
    whole = await shell.json("tasks", "get", str(failed), "--payload")
    assert (whole["error"], "result" in whole) == ("OSError: no line to +…", False)


async def test_a_retry_wakes_the_workers_that_run(shell: Shell, database: Database) -> None:
    (failed,) = await ended_badly(database, 1)
    signals = Signals(database)
    await signals.start()
    try:
        await eventually(lambda: signals.is_alive)
        with signals.subscribe(DUE) as hints:
            assert await shell.run("tasks", "retry", str(failed)) == (0, f"task {failed}: retried")
            async with asyncio.timeout(10):
                await hints.wait(60)
    finally:
        await signals.stop()


async def test_a_task_is_shown_with_its_story_its_sends_among_it_and_nothing_of_the_customers(
    shell: Shell, database: Database
) -> None:
    worker = "host-1/boot:1/4711/99"
    async with database.transaction() as connection:
        conversation = await a_conversation(connection, channel="whatsapp", address="+15551234567")
        booked = await a_followup(connection, CLOCK, conversation)
    (writing,) = await take(database, CLOCK, worker)
    async with database.transaction() as connection:
        await settle.keep_text(connection, CLOCK, writing, "Call Ana")
    (saying,) = await take(database, CLOCK, worker)
    for attempt in range(2):
        async with database.transaction() as connection:
            await settle.open_door(connection, CLOCK, saying, "Call Ana")
            template = "HX1" if attempt else None
            delivery = await deliveries.start(
                connection, "acme", conversation, booked.id, 0, "whatsapp", template=template
            )
        async with database.transaction() as connection:
            if attempt == 0:
                await deliveries.end(
                    connection, "acme", delivery, "rejected", "no channel for +1 555 123-4567 (63007)", None
                )
                await settle.fail(connection, CLOCK, saying, "no channel for +1 555 123-4567 (63007)")
                await operate.retry(connection, CLOCK, "acme", booked.id, "eva: the number was mended")
            else:
                await deliveries.end(connection, "acme", delivery, "accepted", None, "SM1")
                await deliveries.note_status(connection, "acme", delivery, "SM1", "delivered", None)
                await settle.deliver(connection, CLOCK, saying, 3)
        if attempt == 0:
            (saying,) = await take(database, CLOCK, "w")

    code, said = await shell.run("tasks", "get", str(booked.id))
    assert code == 0
    assert not re.search(r"555.?123", said)
    assert "Ana" not in said
    lines = said.splitlines()
    date = next(n for n, line in enumerate(lines) if line.endswith(" (UTC)"))
    assert [line.split("  ", 2)[2] for line in lines[date + 1 :] if line.startswith("  ")] == [
        "booked: followup",
        "claimed by host-1 (4711)",
        "written",
        "claimed by host-1 (4711)",
        "sending",
        "part 1, attempt 1: rejected: no channel for +… (63007)",
        "failed: no channel for +… (63007)",
        "retried: eva: the number was mended",
        "claimed by w",
        "sending",
        "part 1, attempt 2: accepted SM1, by template HX1, delivered by now",
        "fired: delivered (message 3)",
    ]
    whole = await shell.json("tasks", "get", str(booked.id))
    assert [event["event"] for event in whole["events"]][-1] == "fired"
    fields = ("attempt", "outcome", "provider_status", "template")
    assert [tuple(send[field] for field in fields) for send in whole["deliveries"]] == [
        (1, "rejected", None, None),
        (2, "accepted", "delivered", "HX1"),
    ]
    assert "payload" not in whole


async def test_the_words_of_an_error_are_shown_as_words_and_obeyed_by_nothing(shell: Shell, database: Database) -> None:
    """They may quote whatever came from another server: no markup, no sequence for the terminal, no further line."""
    words = "OSError: [/tmp/x] [red]:cat:\x1b[2J\nstate: fired"
    (task,) = await ended_badly(database, 1, error=words)
    for command in (("list", "--status", "failed"), ("get", str(task))):
        code, said = await shell.run("tasks", *command)
        assert (code, "OSError: [/tmp/x] [red]:cat:\\x1b[2J" in said) == (0, True), said
        assert "state: fired" not in said.splitlines()


async def test_a_task_whose_payload_was_damaged_is_shown_all_the_same(shell: Shell, database: Database) -> None:
    async with database.transaction() as connection:
        await a_tenant(connection)
        run = Booking("acme", "function", SECOND, payload={"path": "/a", "payload": {}}, needs=needs_of("/a"))
        task = (await book(connection, CLOCK, run)).id
        await connection.execute(text("update tasks set payload = '[]' where id = :id"), {"id": task})
    for command in (("list",), ("get", str(task), "--payload")):
        code, said = await shell.run("tasks", *command)
        assert (code, "function" in said) == (0, True), said
