"""The broker's story: what is due on a day is spoken of before it, at decent hours, until somebody says enough."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic_ai.messages import ToolCallPart
from sqlalchemy import text

from app import renewals as enrolling
from app.renewals import UnknownCadence
from app.wiring import apply_tenants
from scheduler.clock import MovableClock
from scheduler.find import Found
from store import contacts, renewals, usage
from store.database import Database
from store.messages import Message
from store.renewals import Event, Renewal, Wanted
from tests.support.house import House, a_config, a_house
from tests.support.model import Script, books

BOGOTA = ZoneInfo("America/Bogota")
CONFIG: dict[str, Any] = {
    "hours": {"open": {"mon-fri": "09:00-19:00", "sat": "10:00-14:00"}, "days_off": ["2026-12-25"]},
    "cadences": {
        "policy": {
            "steps": [
                {"offset": "-6w", "about": "the policy of the {car} ends on {due}: ask whether to renew it"},
                {"offset": "-2w", "text": {"en": "{name}, it ends on {due}.", "es": "{name}, acaba el {due}."}},
                {"offset": "-3d", "text": {"en": "Last call: {due}."}, "by_due": True},
            ]
        }
    },
}
BY = "a test"
START = datetime(2026, 12, 1, 9, tzinfo=BOGOTA)
SOON = timedelta(minutes=1)
ANA = Wanted("policy-17", date(2027, 3, 1), "policy", {"web": "ana"}, "Ana", fields={"car": "Fiat"})


@dataclass
class Broker:
    """A broker's service, with Ana's conversation on the page."""

    house: House
    clock: MovableClock
    script: Script
    conversation: int

    async def enrols(self, *wanted: Wanted) -> list[str]:
        tenant = await self.house.service.tenant("acme")
        assert tenant is not None
        return list(await enrolling.enrol(self.house.service, tenant, wanted, BY))

    async def applies(self, **more: Any) -> None:
        await apply_tenants(self.house.service, [a_config("acme", **{**CONFIG, **more})])
        self.house.service._tenants.clear()

    async def planned(self, state: str = "scheduled", subject: str = "policy-17") -> list[tuple[str, str]]:
        """Return the steps in a state and when they come, in Bogota."""
        tasks = await self.house.tasks(kind="notice", states=[state], subject=subject, tenant="acme")
        return [(step(one), f"{one.due_at.astimezone(BOGOTA):%Y-%m-%d %H:%M}") for one in tasks]

    async def comes(self, local: str) -> None:
        """Let time go by until a local time in Bogota, looking at each instant at which something is due."""
        until = datetime.fromisoformat(local).replace(tzinfo=BOGOTA)
        await self.quiet()
        while (due := await self.next_due()) is not None and due <= until:
            await self.house.goes_by(self.clock, max(due - self.clock.at, timedelta()))
            await self.quiet()
        await self.house.goes_by(self.clock, until - self.clock.at)

    async def next_due(self) -> datetime | None:
        async with self.house.service.database.transaction() as connection:
            found: datetime | None = await connection.scalar(
                text("select min(due_at) from tasks where state = 'scheduled' and hold is null")
            )
            return found

    async def quiet(self) -> None:
        """Wait until nothing that is due is left undone."""
        busy = text(
            "select count(*) from tasks where state = 'firing' or (state = 'scheduled' and hold is null and due_at <= :now)"
        )
        given = {"now": self.clock.at}
        for _ in range(1000):
            async with self.house.service.database.transaction() as connection:
                if not await connection.scalar(busy, given):
                    return
            self.house.wake()
            await asyncio.sleep(0.01)
        raise TimeoutError("something is due for ever")

    async def told(self, conversation: int | None = None) -> list[str]:
        """Return the notices that were said."""
        log: Sequence[Message] = await self.house.log(conversation or self.conversation)
        return [message.text for message in log if message.kind == "notice"]

    async def renewal(self, subject: str = "policy-17") -> Renewal:
        async with self.house.service.database.transaction() as connection:
            return (await renewals.under(connection, "acme", subject))[0]

    async def story(self, subject: str = "policy-17") -> list[tuple[str, str | None]]:
        id = (await self.renewal(subject)).id
        async with self.house.service.database.transaction() as connection:
            events: Sequence[Event] = await renewals.story(connection, "acme", id)
        return [(one.event, one.detail) for one in events]

    async def closes(self, state: renewals.State, subject: str = "policy-17") -> bool:
        return await enrolling.close(self.house.service, "acme", subject, state, BY)

    async def outcomes(self) -> list[tuple[str, str, str | None]]:
        tasks = await self.house.tasks(kind="notice", tenant="acme")
        return sorted((step(one), one.state, one.outcome) for one in tasks)


def step(task: Found) -> str:
    return str(task.payload["step"])


@pytest.fixture(name="broker")
async def a_broker(database: Database, tmp_path: Path) -> AsyncIterator[Broker]:
    clock, script = MovableClock(START), Script(followups=("Your policy ends. Renew it?",))
    async with a_house(database, tmp_path, model=script.model, clock=clock, config=CONFIG) as house:
        conversation = (await house.says("hello")).conversation
        await house.until_heard(conversation, 1)
        yield Broker(house, clock, script, conversation)


async def test_a_policy_is_spoken_of_six_weeks_two_weeks_and_three_days_before_it_ends(broker: Broker) -> None:
    assert await broker.enrols(ANA) == ["new"]
    assert await broker.planned() == [
        ("-6w", "2027-01-18 10:00"),
        ("-2w", "2027-02-15 10:00"),
        ("-3d", "2027-02-26 10:00"),
    ]
    await broker.comes("2027-01-18 09:59")
    assert await broker.told() == []
    await broker.comes("2027-01-18 10:01")
    assert await broker.told() == ["Your policy ends. Renew it?"]
    await broker.comes("2027-03-10 10:00")
    assert await broker.told() == [
        "Your policy ends. Renew it?",
        "Ana, it ends on 1 March 2027.",
        "Last call: 1 March 2027.",
    ]
    assert [state for _, state, _ in await broker.outcomes()] == ["fired"] * 3


async def test_the_agent_words_a_notice_from_what_is_known_of_the_renewal(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    asked = str(broker.script.asked[-1])
    assert "the policy of the Fiat ends on 1 March 2027: ask whether to renew it" in asked
    assert "Kind: notice" in asked
    assert "car: Fiat" in asked


async def test_once_it_is_renewed_nothing_more_is_said(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-20 10:00")
    assert await broker.closes("renewed")
    assert not await broker.closes("renewed")
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 1
    assert [(name, state) for name, state, _ in await broker.outcomes()] == [
        ("-2w", "cancelled"),
        ("-3d", "cancelled"),
        ("-6w", "fired"),
    ]
    assert [event for event, _ in await broker.story()] == ["enrolled", "renewed"]


async def test_who_answers_is_not_reminded_any_more(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await broker.house.says("yes, tell me more")
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 1
    assert ("-2w", "fired", "skipped: replied") in await broker.outcomes()


async def test_who_wrote_before_the_first_notice_is_reminded_all_the_same(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-10 10:00")
    await broker.house.says("hello again")
    await broker.comes("2027-02-16 10:00")
    assert len(await broker.told()) == 2


async def test_who_opts_out_hears_nothing_more(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    async with broker.house.service.database.transaction() as connection:
        assert await contacts.stop(connection, "acme", broker.conversation, "customer")
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 1
    assert ("-3d", "fired", "skipped: opted out") in await broker.outcomes()


async def test_the_same_again_changes_nothing(broker: Broker) -> None:
    await broker.enrols(ANA)
    before = await broker.outcomes()
    assert await broker.enrols(ANA) == ["unchanged"]
    assert (await broker.outcomes(), await broker.story()) == (before, [("enrolled", "2027-03-01")])


async def test_a_moved_due_day_is_planned_anew_and_what_was_said_stays_said(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    assert await broker.enrols(replace(ANA, due=date(2027, 4, 1))) == ["moved"]
    assert await broker.planned() == [("-2w", "2027-03-18 10:00"), ("-3d", "2027-03-29 10:00")]
    assert (await broker.story())[-1] == ("moved", "2027-03-01 to 2027-04-01")
    await broker.comes("2027-04-10 10:00")
    assert len(await broker.told()) == 3


async def test_of_many_that_move_at_once_each_keeps_what_was_said_of_it(broker: Broker) -> None:
    later = replace(ANA, subject="policy-18", due=date(2027, 6, 1))
    same = replace(ANA, subject="policy-19", due=date(2027, 7, 1))
    await broker.enrols(ANA, later, same)
    await broker.comes("2027-01-18 10:01")
    moved = [replace(ANA, due=date(2027, 4, 1)), replace(later, due=date(2027, 6, 8)), replace(same, name="Eva")]
    assert await broker.enrols(*moved, replace(ANA, subject="policy-20")) == ["moved", "moved", "changed", "new"]
    assert [name for name, _ in await broker.planned()] == ["-2w", "-3d"]
    assert await broker.planned(subject="policy-18") == [
        ("-6w", "2027-04-27 10:00"),
        ("-2w", "2027-05-25 10:00"),
        ("-3d", "2027-06-05 10:00"),
    ]
    assert len(await broker.planned(subject="policy-19")) == 3
    assert [event for event, _ in await broker.story("policy-19")] == ["enrolled", "changed"]


async def test_a_change_that_is_none_of_the_plan_leaves_the_plan(broker: Broker) -> None:
    await broker.enrols(ANA)
    before = [one.id for one in await broker.house.tasks(kind="notice")]
    assert await broker.enrols(replace(ANA, name="Ana María")) == ["changed"]
    assert [one.id for one in await broker.house.tasks(kind="notice")] == before
    await broker.comes("2027-02-15 10:01")
    assert (await broker.told())[-1] == "Ana María, it ends on 1 March 2027."


async def test_after_it_is_closed_the_same_subject_is_a_new_renewal(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await broker.closes("renewed")
    assert await broker.enrols(replace(ANA, due=date(2028, 3, 1))) == ["new"]
    assert [name for name, _ in await broker.planned()] == ["-6w", "-2w", "-3d"]


async def test_what_falls_on_a_quiet_sunday_or_a_day_off_comes_at_the_next_open_hour(broker: Broker) -> None:
    await broker.enrols(
        replace(ANA, due=date(2027, 1, 31), subject="sunday"), replace(ANA, due=date(2027, 2, 5), subject="off")
    )
    assert (await broker.planned(subject="sunday"))[1] == ("-2w", "2027-01-18 09:00")  # the 17th is a Sunday
    assert (await broker.planned(subject="off"))[0] == ("-6w", "2026-12-26 10:00")  # the 25th is a day off


async def test_hours_that_change_after_the_planning_are_kept_all_the_same(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.applies(hours={"open": {"tue": "11:00-12:00"}})
    await broker.comes("2027-01-18 23:00")
    assert await broker.told() == []
    assert (await broker.planned())[0] == ("-6w", "2027-01-19 11:00")
    await broker.comes("2027-01-19 11:01")
    assert len(await broker.told()) == 1


async def test_a_customer_hears_one_notice_a_day_unless_the_tenant_says_otherwise(broker: Broker) -> None:
    await broker.enrols(ANA, replace(ANA, subject="policy-18"))
    await broker.comes("2027-01-18 18:00")
    assert len(await broker.told()) == 1
    await broker.comes("2027-01-19 09:30")
    assert len(await broker.told()) == 2


async def test_nothing_is_said_to_a_stranger_who_has_not_agreed(broker: Broker) -> None:
    await broker.enrols(replace(ANA, addresses={"web": "nobody"}))
    await broker.comes("2027-01-18 10:01")
    assert ("-6w", "fired", "skipped: no consent") in await broker.outcomes()


async def test_a_cadence_that_is_not_there_is_refused_with_those_that_are(broker: Broker) -> None:
    with pytest.raises(UnknownCadence, match="there are: policy"):
        await broker.enrols(replace(ANA, cadence="yearly"))


async def test_a_step_that_is_taken_out_of_the_file_fails_in_words(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.applies(cadences={})
    await broker.comes("2027-01-18 10:01")
    (failed,) = await broker.house.tasks(kind="notice", states=["failed"])
    assert "has no step '-6w'" in (failed.error or "")


async def test_a_contact_in_another_zone_hears_it_by_their_own_clock(broker: Broker) -> None:
    await broker.house.says("hola", address="luis", time_zone="Europe/Madrid")
    await broker.enrols(replace(ANA, addresses={"web": "luis"}))
    (first, *_) = await broker.house.tasks(kind="notice", subject="policy-17", tenant="acme")
    assert f"{first.due_at.astimezone(ZoneInfo('Europe/Madrid')):%Y-%m-%d %H:%M}" == "2027-01-18 10:00"


async def answers_with(broker: Broker, words: str, **mark: Any) -> str:
    """The customer writes, the model marks the renewal and answers; return what it was told."""
    number = (await broker.renewal()).id
    broker.script._lines[:] = [ToolCallPart("mark_renewal", {"number": number, **mark}), "It is noted."]
    heard = len(await broker.house.heard(broker.conversation))
    await broker.house.says(words)
    await broker.house.until_heard(broker.conversation, heard + 1)
    return str(broker.script.asked[-1])


async def test_an_answer_to_a_notice_lands_in_a_turn_that_knows_what_it_is_about(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    broker.script._lines[:] = ["It is the policy of your Fiat."]
    await broker.house.says("what was that about?")
    await broker.house.until_heard(broker.conversation, 3)
    number = (await broker.renewal()).id
    told = str(broker.script.asked[-1][-1])
    assert f"Matter {number}: due on 2027-03-01; subject: policy-17; car: Fiat" in told
    assert "2027-02-15 10:00:00 Monday, 2027-02-26 10:00:00 Friday" in told
    assert "not follow-ups that the customer asked for" in told
    assert "mark_renewal" in broker.script.tools[-1]
    assert "mark_renewal" not in broker.script.tools[0], "before anything was written about there is nothing to mark"


async def test_a_customer_who_has_renewed_is_marked_so_and_hears_nothing_more(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    assert "nothing more is written about it" in await answers_with(broker, "done!", what="renewed", why="paid online")
    assert (await broker.renewal()).state == "renewed"
    assert (await broker.story())[-1] == ("renewed", "paid online")
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 1


async def test_a_customer_who_is_not_interested_is_lost(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await answers_with(broker, "no thanks", what="not interested")
    assert (await broker.renewal()).state == "lost"


async def test_a_customer_who_wants_a_call_is_left_to_a_person(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await answers_with(broker, "call me", what="call me", why="after five")
    found = await broker.renewal()
    assert (found.state, found.stopped) == ("open", "call me")
    assert (await broker.story())[-2:] == [("stopped", "call me"), ("call me", "after five")]
    assert await broker.planned() == []


async def test_a_customer_who_wants_to_be_asked_again_is_and_by_the_steps_after_that_day(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    told = await answers_with(broker, "ask me on the 20th of February", what="ask again", on="2027-02-20")
    assert "asked again on 2027-02-20 10:00 (America/Bogota)" in told
    assert await broker.planned() == [
        ("asked again on 2027-02-20", "2027-02-20 10:00"),
        ("-3d", "2027-02-26 10:00"),
    ]
    await broker.comes("2027-03-10 10:00")
    assert len(await broker.told()) == 3


async def test_a_day_on_which_nobody_can_be_asked_again_is_told_to_the_model(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    told = await answers_with(broker, "ask me yesterday", what="ask again", on="2027-01-17")
    assert "cannot be: give a day from tomorrow on" in told
    assert (await broker.renewal()).said == ["-6w"]


@pytest.mark.parametrize("words", ["Which reminders do I have?", "Why did you write to me?", "Cancel the reminder"])
async def test_without_a_model_who_asks_about_a_notice_is_told_whose_it_is_and_nothing_is_booked_or_taken_back(
    broker: Broker, words: str
) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    await broker.applies(agent={"model": "offline"})
    await broker.house.says(words)
    assert (await broker.house.until_heard(broker.conversation, 3))[-1] == (
        "Acme has written to you about policy-17, which is due on 1 March 2027. That notice is Acme's own."
    )
    assert await broker.house.tasks() == []
    assert [name for name, _ in await broker.planned()] == ["-2w", "-3d"]


async def test_nobody_marks_what_is_another_s(broker: Broker) -> None:
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 10:01")
    other = (await broker.house.says("hi", address="luis")).conversation
    await broker.house.until_heard(other, 1)
    assert "mark_renewal" not in broker.script.tools[-1]


async def test_a_tenant_says_no_more_notices_in_a_day_than_its_budget_and_the_rest_the_next_day(broker: Broker) -> None:
    talks = {name: (await broker.house.says("hi", address=name)).conversation for name in ("luis", "eva")}
    await broker.applies(budget={"notices_a_day": 2})
    # Each at an hour of its own: of those that are written at the same moment a few more may be said.
    zones = {"luis": "America/Mexico_City", "eva": "America/Caracas"}
    await broker.enrols(
        ANA, *(replace(ANA, subject=name, addresses={"web": name}, time_zone=zones[name]) for name in talks)
    )
    await broker.comes("2027-01-18 18:59")
    told = [len(await broker.told(talk)) for talk in (broker.conversation, *talks.values())]
    assert sum(told) == 2
    assert (await broker.planned(subject=broker_of(told, talks)))[0] == ("-6w", "2027-01-19 09:00")
    await broker.comes("2027-01-19 18:59")
    assert [len(await broker.told(talk)) for talk in (broker.conversation, *talks.values())] == [1, 1, 1]


def broker_of(told: list[int], talks: dict[str, int]) -> str:
    """Return the subject of whoever was not told."""
    return ("policy-17", *talks)[told.index(0)]


async def test_without_tokens_what_the_agent_words_waits_and_what_is_fixed_is_said(broker: Broker) -> None:
    await broker.applies(budget={"tokens_a_day": 0})
    await broker.enrols(ANA)
    await broker.comes("2027-01-18 18:00")
    assert await broker.told() == []
    (waits,) = [one for one in await broker.house.tasks(kind="notice", tenant="acme") if step(one) == "-6w"]
    assert waits.error == "the tenant's budget for the day is used up"
    assert (await broker.planned())[0] == ("-6w", "2027-01-19 09:00")
    await broker.comes("2027-02-15 18:00")
    assert await broker.told() == ["Ana, it ends on 1 March 2027."]
    await broker.applies()
    await broker.comes("2027-02-17 18:00")
    assert "Your policy ends. Renew it?" in await broker.told()


async def test_tokens_are_counted_for_runs_that_nobody_watches_and_answers_are_not_held(broker: Broker) -> None:
    await broker.applies(budget={"tokens_a_day": 1})
    luis = (await broker.house.says("hi", address="luis", time_zone="Europe/Madrid")).conversation
    await broker.enrols(ANA, replace(ANA, subject="second", addresses={"web": "luis"}))
    await broker.comes("2027-01-18 18:00")
    assert (len(await broker.told(luis)), len(await broker.told())) == (1, 0), "in Madrid it is ten o'clock earlier"
    async with broker.house.service.database.transaction() as connection:
        used = await usage.of(connection, "acme", date(2027, 1, 18))
    assert (used.tokens > 0, used.messages) == (True, 1)
    heard = len(await broker.house.heard(broker.conversation))
    await broker.house.says("and now?")
    await broker.house.until_heard(broker.conversation, heard + 1)


async def test_a_reminder_beyond_the_budget_is_said_in_its_stored_words(broker: Broker) -> None:
    await broker.applies(budget={"tokens_a_day": 0})
    broker.script._lines[:] = [books(delay="1 hour"), "It is booked for ten."]
    await broker.house.goes_by(broker.clock, SOON)
    await broker.house.says("remind me in an hour to call Ana")
    await broker.house.until_heard(broker.conversation, 2)
    await broker.comes("2026-12-01 10:02")
    assert (await broker.house.heard(broker.conversation))[-1] == "Reminder: call Ana"
    assert broker.script.asked_for_followups() == 0
