"""The hot statements are answered by the index that was made for them, whether planned for their values or for any."""

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.book import BOOKED_BEFORE
from scheduler.cancel import CANCEL, CANCEL_LABELLED, COUNT_LABELLED
from scheduler.claim import (
    NEXT_DUE,
    PATIENCE,
    claim_statement,
)
from scheduler.find import COUNT_TROUBLED, FAILED, OLDEST_DUE, beyond, search_for, search_for_one
from scheduler.gather import JOIN
from scheduler.hold import RELEASE
from scheduler.lease import RENEW
from scheduler.recovery import HOLDERS, RECOVER
from scheduler.settle import END, GIVE_BACK, KEEP_TEXT
from scheduler.task import ACTIVE, TROUBLED, Pool
from store.database import Database, bucket_of
from tests.support.factories import a_conversation

FILL = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for, state, outcome, ended_at)
select bucket, tenant, 'followup', id, 'web', n % 2 = 0, now() + at, now() + at, state, outcome, ended_at
  from conversations, generate_series(1, 500) as n,
       (values ('scheduled', null, null, interval '1 day'), ('fired', 'delivered', now(), interval '-1 day'))
       as rows(state, outcome, ended_at, at)
 where state = 'fired' or n <= cast(:coming as integer)
"""
DUE = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for)
select bucket, tenant, 'followup', id, 'web', n = 0, now(), now() from conversations, generate_series(0, 1) as n
"""
CLAIMED = """
update tasks set state = 'firing', worker = 'w', lease_until = now() where id in (select max(id) from tasks)
"""
BUCKET = bucket_of("acme")
BASE = {"now": None, "bucket": BUCKET, "tenant": "acme", "id": 4711, "fence": 3}
CLAIM = {
    "now": None,
    "worker": "w",
    "lease": timedelta(seconds=60),
    "slots": 32,
    "free": 64,
    "since": None,
    "full": ["f"],
    "busy": ["b"],
    "held": [1],
}


@pytest.fixture(params=[500, 0], ids=["much to come", "nothing to come"])
async def full(database: Database, request: pytest.FixtureRequest) -> Database:
    """50,000 tasks to come, or none; 50,000 that are done, a few that are due, one that is being performed."""
    async with database.transaction() as connection:
        for n in range(100):
            await a_conversation(connection, address=f"person {n}")
        await connection.execute(text(FILL), {"coming": request.param})
        await connection.execute(text(DUE))
        await connection.execute(text(CLAIMED))
        await connection.execute(text("analyze tasks"))
        await connection.execute(text("analyze conversations"))
    return database


async def plan_for_these(connection: AsyncConnection, statement: str, given: dict[str, Any]) -> str:
    rows = await connection.execute(text(f"explain {statement}"), given)
    return "\n".join(row[0] for row in rows)


async def plan_in_the_long_run(connection: AsyncConnection, statement: str, given: dict[str, Any]) -> str:
    """Return the plan of a statement that comes again and again: the server may then plan it once for all values."""
    places = {name: number for number, name in enumerate(given, start=1)}
    numbered = re.sub(r"(?<!:):([a-z_0-9]+)", lambda found: f"${places[found[1]]}", statement)
    raw = (await connection.get_raw_connection()).driver_connection
    assert isinstance(raw, psycopg.AsyncConnection)
    async with psycopg.AsyncClientCursor(raw) as cursor:
        await cursor.execute(f"prepare asked as {numbered}".encode())
        for _ in range(10):
            values = f"({', '.join(['%s'] * len(given))})" if given else ""
            await cursor.execute(f"explain execute asked{values}".encode(), list(given.values()))
        plan = "\n".join([row[0] async for row in cursor])
        await cursor.execute("deallocate asked")
    return plan


QUESTIONS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "claim to speak",
        claim_statement("speak", in_bucket=False, most=32),
        {**CLAIM, "patience": PATIENCE},
        ["tasks_due_to_speak", "tasks_pending_in_conversation"],
    ),
    (
        "claim to write",
        claim_statement("timed", in_bucket=False, most=32),
        CLAIM,
        ["tasks_due_timed", "tasks_pkey"],
    ),
    (
        "claim work in the background",
        claim_statement("background", in_bucket=False, most=32),
        CLAIM,
        ["tasks_due_background", "tasks_pkey"],
    ),
    (
        "claim to speak in a bucket",
        claim_statement("speak", in_bucket=True, most=32),
        {**CLAIM, "patience": PATIENCE, "bucket": BUCKET},
        ["tasks_pending_in_conversation"],
    ),
    (
        "claim to write in a bucket",
        claim_statement("timed", in_bucket=True, most=32),
        {**CLAIM, "bucket": BUCKET},
        ["tasks_due_timed"],
    ),
    (
        "claim with needs",
        claim_statement("application", in_bucket=False, most=32),
        {**CLAIM, "offers": ["schedule:a", "schedule:b"]},
        ["tasks_due_with_needs", "tasks_pkey", "hashed SubPlan"],
    ),
    (
        "next due",
        NEXT_DUE,
        {"now": None},
        ["tasks_due_to_speak", "tasks_due_timed", "tasks_due_background", "tasks_due_with_needs"],
    ),
    (
        "end",
        END,
        {
            "now": None,
            "buckets": [BUCKET],
            "tenants": ["acme"],
            "ids": [4711],
            "fences": [3],
            "states": ["fired"],
            "outcomes": ["delivered"],
            "errors": [None],
            "seqs": [1],
        },
        ["tasks_pkey"],
    ),
    (
        "give back",
        GIVE_BACK,
        {
            **BASE,
            "delay": None,
            "hold": None,
            "error": None,
            "is_fault": False,
            "is_unsent": False,
            "is_mended": False,
            "words": None,
            "message_seq": None,
            "keep": None,
        },
        ["tasks_pkey"],
    ),
    (
        "keep text",
        KEEP_TEXT,
        {**BASE, "words": "words", "conversation": None, "channel": None, "more": "{}"},
        ["tasks_pkey"],
    ),
    ("recover", RECOVER, {"now": None, "gone": ["w"], "batch": 500}, ["tasks_claimed", "tasks_pkey"]),
    ("who holds", HOLDERS, {}, ["tasks_claimed"]),
    ("oldest due", OLDEST_DUE, {"now": None}, ["tasks_due_to_speak", "tasks_due_timed", "tasks_due_background"]),
    (
        "cancel",
        CANCEL,
        {
            "now": None,
            "bucket": BUCKET,
            "tenant": "acme",
            "ids": [1, 2],
            "conversation": None,
            "kinds": None,
            "by": None,
        },
        ["tasks_pkey"],
    ),
    (
        "gather",
        JOIN,
        {
            "now": None,
            "pause": timedelta(seconds=2),
            "longest": timedelta(seconds=5),
            "bucket": BUCKET,
            "tenant": "acme",
            "conversation": 7,
        },
        ["tasks_pending_in_conversation"],
    ),
    (
        "release",
        RELEASE,
        {"now": None, "bucket": BUCKET, "tenant": "acme", "holds": ["window closed"], "conversation": 7},
        ["tasks_pending_in_conversation"],
    ),
    (
        "replay",
        BOOKED_BEFORE,
        {"bucket": BUCKET, "tenant": "acme", "idempotency_key": "k"},
        ["tasks_idempotency"],
    ),
    (
        "renew",
        RENEW,
        {"now": None, "lease": timedelta(seconds=60), "buckets": [1], "tenants": ["acme"], "ids": [1], "fences": [1]},
        ["tasks_pkey"],
    ),
]


async def test_what_an_operator_looks_for_is_found_by_the_index_of_what_went_wrong(full: Database) -> None:
    async with full.transaction() as connection:
        await connection.execute(
            text("update tasks set state = 'failed', error = 'no', outcome = null, ended_at = now() where id < 9")
        )
        await connection.execute(text("analyze tasks"))
        for states in (("failed",), ("uncertain",), TROUBLED):
            for tenant in (None, "acme"):
                plan = await plan_for_these(connection, *search_for(tenant=tenant, states=states))
                assert "using tasks_troubled" in plan, plan
        for statement, given in ((COUNT_TROUBLED, {}), (FAILED, {"tenant": "acme"}), (FAILED, {"tenant": None})):
            plan = await plan_for_these(connection, statement, given)
            assert "tasks_troubled" in plan, plan
        plan = await plan_for_these(connection, *search_for_one(None, 4711))
        assert "Seq Scan on tasks" not in plan, plan
        assert "tasks_pkey" in plan, plan


PEOPLE = """
insert into contacts (bucket, tenant, channel, address, address_key)
select :bucket, 'acme', 'web', 'visitor ' || n, 'visitor ' || n from generate_series(1, 30000) as n
"""
THEIR_TASKS = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for)
select bucket, tenant, 'followup', id, 'web', n % 2 = 0, now() + n * interval '1 day', now() + n * interval '1 day'
  from conversations, generate_series(1, 4) as n
"""


@pytest.fixture
async def peopled(database: Database) -> Database:
    """120,000 tasks to come in 30,000 conversations, and nothing due."""
    async with database.transaction() as connection:
        await a_conversation(connection)
        await connection.execute(text(PEOPLE), {"bucket": BUCKET})
        await connection.execute(
            text("insert into conversations (bucket, tenant, contact) select bucket, tenant, id from contacts offset 1")
        )
        for table in (
            "contacts",
            "conversations",
        ):  # a foreign key is else looked up as it was when they were all but empty
            await connection.execute(text(f"analyze {table}"))
        await connection.execute(text(THEIR_TASKS))
        await connection.execute(text("analyze tasks"))
    return database


async def test_a_claim_that_is_planned_once_begins_with_what_is_due_however_many_conversations_there_are(
    peopled: Database,
) -> None:
    async with peopled.transaction() as connection:
        await connection.execute(text("set local plan_cache_mode = force_generic_plan"))  # as the poller has it
        pools: list[tuple[Pool, str]] = [
            ("speak", "tasks_due_to_speak"),
            ("timed", "tasks_due_timed"),
            ("background", "tasks_due_background"),
        ]
        for pool, index in pools:
            for most in (1, 32, 1024):
                given = {**CLAIM, "patience": PATIENCE} if pool == "speak" else CLAIM
                statement = claim_statement(pool, in_bucket=False, most=most)
                plan = await plan_in_the_long_run(connection, statement, given)
                assert f"using {index} on tasks t " in plan, plan
                assert "Seq Scan" not in plan, plan


LABELLED = """
insert into tasks (bucket, tenant, kind, conversation, channel, lane, due_at, booked_for, subject, key)
select c.bucket, c.tenant, 'followup', c.id, 'web', false, now() + interval '1 day', now() + interval '1 day',
       'policy:' || n / 50, 'batch:' || lpad(cast(n / 1000 as text), 3, '0') || ':' || n
  from generate_series(0, 99999) as n, (select * from conversations order by id limit 1) as c
"""


@pytest.fixture
async def labelled(database: Database) -> Database:
    """100,000 tasks to come of one tenant: 50 of each subject, 1,000 whose key begins with the same."""
    async with database.transaction() as connection:
        await a_conversation(connection)
        await connection.execute(text(LABELLED))
        await connection.execute(text("analyze tasks"))
        await connection.execute(text("analyze tenants"))
    return database


async def test_what_is_pending_under_a_label_is_found_and_cancelled_by_its_index(labelled: Database) -> None:
    for name, label in (("subject", "policy:7"), ("key", "batch:007:7777"), ("key_prefix", "batch:007:")):
        given = {"bucket": BUCKET, "tenant": "acme", "kinds": None, name: label}
        if name == "key_prefix":
            given["beyond"] = beyond(label)
        column, index = ("subject", "tasks_subject") if name == "subject" else ("key", "tasks_key")
        async with labelled.transaction() as connection:
            await connection.execute(text("set local plan_cache_mode = force_generic_plan"))  # in the long run
            searches = [
                search_for(tenant=tenant, states=ACTIVE, **{name: label})  # type: ignore[arg-type]
                for tenant in ("acme", None)
            ]
            cancelling = (CANCEL_LABELLED[name], {"now": None, "by": None, **given})
            for statement, values in (*searches, (COUNT_LABELLED[name], given), cancelling):
                for plan_of in (plan_for_these, plan_in_the_long_run):
                    plan = await plan_of(connection, statement, values)
                    assert re.search(rf"using {index} on tasks.*\n +Index Cond: .* AND \({column} ", plan), plan
                    assert "Seq Scan on tasks" not in plan, plan
            assert "using tasks_pkey on tasks t" in plan, plan
            if name == "subject":
                plan = await plan_for_these(connection, *searches[0])
                assert "Sort" not in plan, f"the next due are read in their order:\n{plan}"


async def test_a_booking_without_a_label_is_in_no_index_of_labels(full: Database) -> None:
    async with full.transaction() as connection:
        sizes = "select pg_relation_size('tasks_subject'), pg_relation_size('tasks_key')"
        assert (await connection.execute(text(sizes))).one() == (8192, 8192), (
            "their first page, which says what they are"
        )


SETTLING = {"end", "give back", "keep text", "renew"}
"""What every task is settled or kept by, one by one, by its key."""


async def test_no_hot_statement_reads_through_the_tasks_that_are_done_or_to_come(full: Database) -> None:
    for name, statement, given, indexes in QUESTIONS:
        for plan_of in (plan_for_these, plan_in_the_long_run):
            async with full.transaction() as connection:
                plan = await plan_of(connection, statement, given)
            asked = f"{name}, {plan_of.__name__}:\n{plan}"
            assert "Seq Scan on tasks" not in plan, asked
            for index in indexes:
                assert index in plan, asked
            if name in SETTLING:
                # Small to the planner, since few rows are in such a state at a time, and full of dead entries.
                assert "tasks_claimed" not in plan, asked
                assert "tasks_pending" not in plan, asked
