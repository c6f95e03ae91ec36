"""Finding tasks."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler import settle
from scheduler.book import Booking, book
from scheduler.cancel import cancel
from scheduler.clock import MovableClock
from scheduler.find import beyond, get, oldest_due, pending_followups, search
from store.database import Database
from tests.support.claims import take
from tests.support.factories import a_conversation, a_followup, a_turn

HOUR = timedelta(hours=1)


@pytest.fixture
async def conversation(database: Database) -> int:
    async with database.transaction() as connection:
        return await a_conversation(connection)


async def test_what_is_pending_in_a_conversation_is_its_active_followups_and_notices_in_order(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        other = await a_conversation(connection, address="bea")
        fired = (await a_followup(connection, clock, conversation)).id
    (done,) = await take(database, clock)
    async with database.transaction() as connection:
        await settle.deliver(connection, clock, done, 1)
        firing = (await a_followup(connection, clock, conversation)).id
    (held,) = await take(database, clock)
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation)
        later = (await a_followup(connection, clock, conversation, due=2 * HOUR, about="later")).id
        sooner = (await book(connection, clock, Booking("acme", "notice", HOUR, conversation, "web"))).id
        await a_followup(connection, clock, other, due=HOUR)
        found = await pending_followups(connection, "acme", conversation)
        assert [one.id for one in found] == [firing, sooner, later]
        assert [one.state for one in found] == ["firing", "scheduled", "scheduled"]
        assert (found[2].payload, found[2].booked_for) == ({"about": "later"}, clock.at + 2 * HOUR)
        assert await pending_followups(connection, "rival", conversation) == []
        await settle.give_back(connection, clock, held, delay=9 * HOUR, error="again")
        assert [one.id for one in await pending_followups(connection, "acme", conversation)] == [
            firing,
            sooner,
            later,
        ], "in the order of what was promised, not of the next attempt"
    assert fired not in (firing, sooner, later)


async def test_a_task_is_found_whole_by_its_tenant_or_by_whoever_may_see_all(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        booked = await a_followup(connection, clock, conversation)
    (held,) = await take(database, clock)
    clock.move(HOUR)
    async with database.transaction() as connection:
        await settle.fail(connection, clock, held, "no such number")
        mine, anyones = [await get(connection, tenant, booked.id) for tenant in ("acme", None)]
        assert mine == anyones
        assert await get(connection, "rival", booked.id) is None
        assert await get(connection, None, booked.id + 1) is None
    assert mine is not None
    assert (mine.state, mine.error, mine.attempt, mine.ended_at) == ("failed", "no such number", 1, clock.at)
    assert (mine.tenant, mine.kind, mine.channel, mine.outcome) == ("acme", "followup", "web", None)


async def test_a_search_is_by_tenant_state_and_kind_with_the_next_due_first(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        theirs = await a_conversation(connection, "rival")
        late = (await a_followup(connection, clock, conversation, due=2 * HOUR)).id
        turn = (await a_turn(connection, clock, conversation, due=HOUR)).id
        other = (await a_followup(connection, clock, theirs, tenant="rival", due=timedelta(minutes=1))).id
        now = (await a_followup(connection, clock, conversation)).id
    await take(database, clock)
    async with database.transaction() as connection:

        async def found(**chosen: object) -> list[int]:
            return [one.id for one in await search(connection, **chosen)]  # type: ignore[arg-type]

        assert await found() == [now, other, turn, late]
        assert await found(limit=2) == [now, other]
        assert await found(tenant="acme") == [now, turn, late]
        assert await found(kind="turn") == [turn]
        assert await found(states=["firing"]) == [now]
        assert await found(states=["scheduled", "firing"], kind="followup", tenant="rival") == [other]
        assert await found(states=["fired"]) == []


async def test_a_search_is_by_subject_and_key_exactly_as_given_and_finds_the_next_due_first(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async with database.transaction() as connection:
        theirs = await a_conversation(connection, "rival")

        async def booked(hours: int, **labels: str) -> int:
            return (await a_followup(connection, clock, conversation, due=hours * HOUR, **labels)).id

        late = await booked(3, subject="policy:7", key="renewal:7:30 days")
        soon = await booked(1, subject="policy:7", key="renewal:7:10 days")
        ended = await booked(2, subject="policy:7", key="renewal:7:20 days")
        for other in ("Policy:7", "policy:7 ", "policy:70"):
            await booked(1, subject=other, key=other)
        await booked(1)
        rivals = (await a_followup(connection, clock, theirs, tenant="rival", subject="policy:7")).id
        await cancel(connection, clock, "acme", [ended])

        async def found(**chosen: object) -> list[int]:
            return [one.id for one in await search(connection, **chosen)]  # type: ignore[arg-type]

        pending = ("scheduled", "firing")
        assert await found(tenant="acme", states=pending, subject="policy:7") == [soon, late]
        assert await found(tenant="acme", states=pending, subject="policy:7", limit=1) == [soon]
        assert await found(states=pending, subject="policy:7") == [rivals, soon, late], "of every tenant"
        assert await found(tenant="acme", states=pending, key="renewal:7:30 days") == [late]
        assert await found(tenant="acme", states=pending, key="renewal:7:") == []
        assert await found(tenant="acme", states=pending, key_prefix="renewal:7:") == [soon, late]
        assert await found(tenant="acme", states=pending, subject="policy:7", key_prefix="renewal:7:3") == [late]
        assert await found(tenant="acme", states=pending, subject="policy:8", key_prefix="renewal:7:3") == []
        assert await found(tenant="rival", states=pending, key_prefix="r") == []
        assert await found(tenant="acme", subject="policy:7") == [soon, late, ended], "of every state"
        assert await found(tenant="acme", states=["cancelled"], key_prefix="renewal:") == [ended]


KEYS = (
    *(
        "100%",
        "100% sure",
        "1000",
        "a_b",
        "a_bc",
        "axb",
        "a\\b",
        "a\\bc",
        "a\\\\b",
        "ab",
        "aB",
        "a",
        "",
        "é",
        "éa",
        "è",
        "z",
    ),
    *("\ud7ff!", "\ue000", "\U0010ffff", "a\U0010ffff", "a\U0010ffffb", "b", "\uffff", "\U00010000"),
)


@pytest.mark.parametrize(
    "prefix", ["100%", "1", "a", "a_b", "a_", "a\\b", "a\\", "é", "\ud7ff", "a\U0010ffff", "\uffff"]
)
async def test_the_beginning_of_a_key_is_taken_character_by_character(
    database: Database, clock: MovableClock, conversation: int, prefix: str
) -> None:
    async with database.transaction() as connection:
        booked = {key: (await a_followup(connection, clock, conversation, key=key)).id for key in KEYS}
        found = await search(connection, tenant="acme", key_prefix=prefix, limit=100)
    assert [one.id for one in found] == [booked[key] for key in KEYS if key.startswith(prefix)]
    assert found, "each of them begins a key"


_TEXT = st.text(st.one_of(st.sampled_from("ab%_\x00\x7f\ud7ff\ue000\uffff\U0010ffff"), st.characters(codec="utf-8")))


@given(_TEXT.filter(lambda text: text.strip("\U0010ffff")), _TEXT, st.booleans())
@example("a\ud7ff", "a\ue000", False)
@example("a\U0010ffff", "b", False)
def test_all_that_begins_with_a_text_and_nothing_else_lies_between_it_and_what_is_beyond(
    prefix: str, other: str, is_begun_with_it: bool
) -> None:
    key = prefix + other if is_begun_with_it else other
    lies_between = prefix.encode() <= key.encode() < beyond(prefix).encode()
    assert lies_between == key.startswith(prefix)


@pytest.mark.parametrize("prefix", ["", "\U0010ffff"])
async def test_a_prefix_that_limits_nothing_is_refused(database: Database, prefix: str) -> None:
    async with database.transaction() as connection:
        with pytest.raises(ValueError, match="prefix"):
            await search(connection, tenant="acme", key_prefix=prefix)


async def test_the_age_of_the_oldest_due_task_leaves_out_what_is_held_firing_or_to_come(
    database: Database, clock: MovableClock, conversation: int
) -> None:
    async def age() -> float:
        async with database.transaction() as connection:
            return await oldest_due(connection, clock.at)

    assert await age() == 0
    async with database.transaction() as connection:
        await a_followup(connection, clock, conversation)
    (held,) = await take(database, clock)
    clock.move(HOUR)
    assert await age() == 0, "it is being performed"
    async with database.transaction() as connection:
        await settle.give_back(connection, clock, held, hold="window closed")
        await a_followup(connection, clock, conversation, due=HOUR)
    assert await age() == 0, "one waits for something else than time, one is not due"
    async with database.transaction() as connection:
        await a_turn(connection, clock, conversation, due=timedelta(minutes=-2))
        await a_turn(connection, clock, conversation, due=timedelta(minutes=-1))
    assert await age() == 120
