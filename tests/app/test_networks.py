"""What holds on Telegram and on WhatsApp alike: one story, told on whichever of them the customer writes."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from pydantic_ai.messages import ToolCallPart

from app.hooks import telegram_secret
from app.http import application
from app.inbox import GATHER
from app.speak import SENDS
from app.wiring import apply_tenants
from channels.message import units
from scheduler.clock import MovableClock
from scheduler.events import story
from scheduler.find import Found
from scheduler.retry import LONGEST
from store import deliveries, tenants
from store.database import Database
from store.tenants import SenderTaken
from tests.app.test_telegram import ANSWER, BOOKED, DUE, OTHER, REMINDER, TOKEN, goes_by, update
from tests.app.test_whatsapp import with_gap
from tests.support.asgi import calling
from tests.support.claims import fields
from tests.support.house import House, a_config, a_house
from tests.support.model import Line, Script, books
from tests.support.telegram_faults import HANG, Answer, Call, TelegramFaults, accepted, ok, refused, telegram_faults
from tests.support.twilio_server import Accept, Behaviour, Form, Hang, Reject, TwilioServer
from tests.support.wait import eventually

BOTS = {"acme": TOKEN, "globex": OTHER}
NUMBERS = {"acme": "whatsapp:+14155238886", "globex": "whatsapp:+14155238887"}
NOWHERE = "http://127.0.0.1:1"
WEEK = timedelta(weeks=1)


class Network(ABC):
    """A provider's stand-in, and the customers who write through it."""

    name: str
    customer: str
    """The address of whoever writes."""
    limit: int
    """UTF-16 units that one message may have."""

    @abstractmethod
    def section(self, tenant: str = "acme") -> dict[str, Any]:
        """Return what a tenant's file says of it; each tenant has a sender of its own."""

    @abstractmethod
    def reached_at(self, url: str | None = None) -> dict[str, Any]:
        """Return the setting that says where its API is: here, or elsewhere."""

    @abstractmethod
    def message(self, text: str) -> Any:
        """Return what it tells of a new message."""

    @abstractmethod
    async def post(self, http: httpx.AsyncClient, house: House, message: Any) -> httpx.Response:
        """Call a tenant's webhook."""

    @abstractmethod
    def meets(self, *fates: str) -> None:
        """Let each of the next sends be `taken`, refused for now (`busy`) or for good, or `stalled`: taken, never answered."""

    @abstractmethod
    def meanwhile(self, does: Callable[[], Awaitable[None]]) -> None:
        """Let this happen while each send that is taken is under way."""

    @property
    @abstractmethod
    def tried(self) -> list[tuple[str, str]]:
        """To whom each send went that came in, and what it says."""

    @property
    def said(self) -> list[str]:
        """What each of them says."""
        return [words for _, words in self.tried]

    async def brings(self, house: House, message: Any) -> None:
        """Call the webhook, and see it acknowledged with nothing in the answer."""
        async with calling(application(house.run)) as http:
            answer = await self.post(http, house, message)
        assert (answer.is_success, answer.content) == (True, b"")


class OnTelegram(Network):
    name, customer, limit = "telegram", "42", 4096

    def __init__(self, faults: TelegramFaults) -> None:
        self._faults, self._fates, self._number = faults, deque[Answer | str](), 1000
        self._meanwhile: Callable[[], Awaitable[None]] | None = None
        faults.decide = self._decide

    async def _decide(self, call: Call) -> Answer | str:
        if call.method != "sendMessage":
            return ok(True)
        fate = self._fates.popleft() if self._fates else accepted()
        if self._meanwhile and fate == accepted():
            await self._meanwhile()
        return fate

    def section(self, tenant: str = "acme") -> dict[str, Any]:
        return {"token": BOTS[tenant]}

    def reached_at(self, url: str | None = None) -> dict[str, Any]:
        return {"telegram_api_url": url or self._faults.url}

    def message(self, text: str) -> Any:
        self._number += 1
        return update(self._number, message_id=self._number, text=text)

    async def post(self, http: httpx.AsyncClient, house: House, message: Any) -> httpx.Response:
        secret = telegram_secret(house.service.box, house.tenant, BOTS[house.tenant].partition(":")[0])
        headers = {"X-Telegram-Bot-Api-Secret-Token": secret}
        return await http.post(f"/hooks/telegram/{house.tenant}", json=message, headers=headers)

    def meets(self, *fates: str) -> None:
        known: dict[str, Answer | str] = {
            "taken": accepted(),
            "refused": refused(400, "Bad Request: chat not found"),
            "busy": refused(429, "Too Many Requests: retry after 2", retry_after=2),
            "stalled": HANG,
        }
        self._fates.extend(known[fate] for fate in fates)

    def meanwhile(self, does: Callable[[], Awaitable[None]]) -> None:
        self._meanwhile = does

    @property
    def tried(self) -> list[tuple[str, str]]:
        sends = [call.fields for call in self._faults.calls if call.method == "sendMessage"]
        assert not any("parse_mode" in fields for fields in sends), "there is nothing that could be escaped wrongly"
        return [(fields["chat_id"], fields["text"]) for fields in sends]


class OnWhatsApp(Network):
    name, customer, limit = "whatsapp", "whatsapp:+5215512345678", 1600

    def __init__(self, twilio: TwilioServer) -> None:
        self._twilio = twilio

    def section(self, tenant: str = "acme") -> dict[str, Any]:
        twilio = self._twilio
        twilio.other_senders.add(NUMBERS[tenant])
        return {
            "account_sid": twilio.account_sid,
            "auth_token": twilio.auth_token,
            "sender": NUMBERS[tenant],
        }

    def reached_at(self, url: str | None = None) -> dict[str, Any]:
        return {"twilio_api_url": url or self._twilio.url}

    def message(self, text: str) -> Any:
        return self._twilio.inbound_form(text, self.customer)

    async def post(self, http: httpx.AsyncClient, house: House, message: Any) -> httpx.Response:
        form: Form = [(name, NUMBERS[house.tenant] if name == "To" else value) for name, value in message]
        path = f"/hooks/whatsapp/{house.tenant}"
        return await http.post(path, content=urlencode(form), headers=self._twilio.sign(f"{http.base_url}{path}", form))

    def meets(self, *fates: str) -> None:
        known: dict[str, Behaviour] = {
            "taken": Accept(),
            "refused": Reject(400, 21614),
            "busy": Reject(429, 20429),
            "stalled": Hang(accepted=True),
        }
        self._twilio.behave(*(known[fate] for fate in fates))

    def meanwhile(self, does: Callable[[], Awaitable[None]]) -> None:
        self._twilio.on_taken = lambda _: does()

    @property
    def tried(self) -> list[tuple[str, str]]:
        return [(form["To"], form["Body"]) for form in self._twilio.creates]


@pytest.fixture(params=["telegram", "whatsapp"])
async def network(request: pytest.FixtureRequest, clock: MovableClock) -> AsyncIterator[Network]:
    if request.param == "telegram":
        async with telegram_faults() as faults:
            yield OnTelegram(faults)
    else:
        async with TwilioServer(now=lambda: clock.at) as twilio:
            yield OnWhatsApp(twilio)


class Office:
    """A running house that is written to on one network."""

    def __init__(self, house: House, clock: MovableClock, network: Network, script: Script) -> None:
        self.house, self.clock, self.network, self.script = house, clock, network, script

    async def writes(self, text: str) -> int:
        """The customer writes; returns the turn, which nobody has answered yet."""
        await self.network.brings(self.house, self.network.message(text))
        return max(turn.id for turn in await self.house.tasks(kind="turn"))

    async def hears(self, text: str = "remind me to call Ana") -> None:
        """The customer writes, and is answered."""
        turn = await self.writes(text)
        await self.goes_by(GATHER)
        await self.house.until_state(turn, "fired")

    async def goes_by(self, span: timedelta) -> None:
        await goes_by(self.house, self.clock, span)

    async def followup(self) -> Found:
        (task,) = await self.house.tasks()
        return task

    async def falls_due(self, state: str = "fired", span: timedelta = DUE) -> Found:
        """Let the follow-up's time come, and wait for what becomes of it."""
        await self.goes_by(span)
        return await self.house.until_state((await self.followup()).id, state)

    async def until(self, state: str, step: timedelta) -> Found:
        """Let time pass, step by step, until the follow-up has come to a state."""

        async def is_so() -> bool:
            await self.goes_by(step)
            return (await self.followup()).state == state

        await eventually(is_so, 30)
        return await self.followup()

    async def until_said(self, words: str) -> None:
        """Let time pass, step by step, until this is the last that was said."""

        async def is_so() -> bool:
            await self.goes_by(timedelta(seconds=6))
            return self.network.said[-1:] == [words]

        await eventually(is_so, 30)

    async def has_come_to(self, *outcomes: str) -> bool:
        """Tell whether the follow-up's attempts have come to this, and it waits for the next."""
        return await self.outcomes() == list(outcomes) and (await self.followup()).state == "scheduled"

    async def outcomes(self) -> list[str | None]:
        task = (await self.followup()).id
        async with self.house.service.database.transaction() as connection:
            return [one.outcome for one in await deliveries.of_task(connection, self.house.tenant, task)]


@asynccontextmanager
async def an_office(
    database: Database,
    directory: Path,
    clock: MovableClock,
    network: Network,
    *lines: Line,
    url: str | None = None,
    **followups: Any,
) -> AsyncIterator[Office]:
    script = Script(*(lines or BOOKED), **followups)
    more: dict[str, Any] = {"config": {"channels": {network.name: network.section()}}, **network.reached_at(url)}
    async with a_house(database, directory, script.model, clock, **more) as house:
        house.service.make_channel = with_gap(house.service.make_channel, timedelta())
        yield Office(house, clock, network, script)


async def test_what_was_promised_in_three_minutes_comes_after_three_minutes_where_it_was_asked_for(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    lines = (books("call Ana", delay="3 minutes"), ANSWER)
    async with an_office(database, tmp_path, clock, network, *lines) as office:
        await office.hears("remind me in 3 minutes to call Ana")
        task = await office.followup()
        assert (task.channel, task.booked_for - clock.at) == (network.name, timedelta(minutes=3))
        await office.goes_by(timedelta(minutes=2, seconds=59.9))
        assert network.said == [ANSWER]
        await office.falls_due(span=timedelta(seconds=0.1))
        await office.goes_by(timedelta(hours=1))
    assert network.tried == [(network.customer, ANSWER), (network.customer, REMINDER)]


async def test_what_falls_due_while_an_answer_is_being_written_is_said_after_it(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network, *BOOKED, "Once upon a time.") as office:
        await office.hears()
        office.script.gate.clear()
        office.script.reached.clear()
        turn = await office.writes("tell me a story")
        await office.goes_by(GATHER)
        await office.script.reached.wait()
        await office.goes_by(DUE)
        followup = (await office.followup()).id

        async def is_written() -> bool:
            return await fields(database, followup, "text", "state") == (REMINDER, "scheduled")

        await eventually(is_written)
        for _ in range(2):
            await office.goes_by(timedelta())
        assert await is_written(), "it waits for its turn"
        office.script.gate.set()
        for task in (turn, followup):
            await office.house.until_state(task, "fired")
    assert network.said == [ANSWER, "Once upon a time.", REMINDER]


async def test_a_model_that_thinks_for_long_keeps_no_webhook_waiting_and_a_repeat_meanwhile_is_the_same_turn(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network, "Hello.", "A second answer.") as office:
        office.script.gate.clear()
        message = network.message("hello")
        await network.brings(office.house, message)
        await office.goes_by(GATHER)
        await office.script.reached.wait()
        clock.move(timedelta(seconds=70))
        for _ in range(3):
            await network.brings(office.house, message)
        office.script.gate.set()
        (turn,) = await office.house.tasks(kind="turn")
        await office.house.until_state(turn.id, "fired")
        await office.goes_by(timedelta(minutes=1))
        assert len(await office.house.tasks(kind="turn")) == 1
    assert network.said == ["Hello."]


async def test_one_message_brought_to_two_processes_at_once_is_answered_once(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with (
        an_office(database, tmp_path, clock, network) as one,
        an_office(database, tmp_path, clock, network) as two,
    ):
        message = network.message("remind me to call Ana")
        await asyncio.gather(*(network.brings(office.house, message) for office in (one, two) * 5))
        (turn,) = await one.house.tasks(kind="turn")
        await one.goes_by(GATHER)
        await two.goes_by(timedelta())
        await one.house.until_state(turn.id, "fired")
        await two.falls_due()
        assert len(await one.house.tasks(kind="turn")) == 1
    assert network.said == [ANSWER, REMINDER]


async def test_a_channel_taken_out_of_the_tenants_file_for_a_minute_delays_what_is_due_by_that_minute(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.FRESH", 0.0)  # the file that is applied counts at once
    async with an_office(database, tmp_path, clock, network) as office:
        await office.hears()
        await apply_tenants(office.house.service, [a_config()])
        await office.goes_by(DUE)

        async def is_held() -> bool:
            return (await office.followup()).hold == "channel paused"

        await eventually(is_held)
        await office.goes_by(timedelta(minutes=1))
        assert network.said == [ANSWER]
        await apply_tenants(office.house.service, [a_config(channels={network.name: network.section()})])
        await office.falls_due(span=timedelta())
    assert network.said == [ANSWER, REMINDER]


async def test_a_model_that_calls_for_a_tool_to_send_with_before_it_writes_is_heard_once(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    followups = (ToolCallPart("send_message", {"text": "Call Ana!"}), REMINDER)
    async with an_office(database, tmp_path, clock, network, followups=followups) as office:
        await office.hears()
        await office.falls_due()
        await office.goes_by(timedelta(hours=1))
        assert office.script.asked_for_followups() == 2, (
            "once for the call, which came to nothing, and once for the words"
        )
    assert network.said == [ANSWER, REMINDER]


@pytest.mark.parametrize(
    "text", ["!" * 4096, "." * 4096, " ".join(f"This is sentence {number}." for number in range(220))[:5000]]
)
async def test_a_long_text_arrives_whole_and_in_order_in_messages_that_are_short_enough(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network, text: str
) -> None:
    async with an_office(database, tmp_path, clock, network, followups=(text,)) as office:
        await office.hears()
        await office.goes_by(DUE)
        await office.until("fired", timedelta(seconds=6))
        await office.goes_by(timedelta(hours=1))
    parts = network.said[1:]
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert len(parts) <= units(text) // (network.limit // 2) + 1
    assert all(units(part) <= network.limit for part in parts)


async def test_a_part_that_is_refused_after_another_arrived_is_told_to_the_operator_alone(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    text = " ".join(f"This is sentence {number}." for number in range(220))
    async with an_office(database, tmp_path, clock, network, followups=(text,)) as office:
        await office.hears()
        network.meets("taken", "refused")
        failed = await office.falls_due("failed")
        assert any(words in str(failed.error) for words in ("chat not found", "cannot receive messages"))
        assert await office.outcomes() == ["accepted", "rejected"]
    async with an_office(database, tmp_path, clock, network) as office:
        await office.goes_by(WEEK)
        assert (await office.followup()).state == "failed"
    answer, first, second = network.said
    assert (answer, first.partition(".")[0]) == (ANSWER, "This is sentence 0")
    assert second.partition(".")[0] == f"This is sentence {first.count('.')}"


async def test_what_was_given_up_is_not_said_after_a_restart_and_stays_failed(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network) as office:
        await office.hears()
    async with an_office(database, tmp_path, clock, network, url=NOWHERE) as office:
        await office.goes_by(DUE)
        failed = await office.until("failed", LONGEST)
        assert await office.outcomes() == ["not_sent"] * SENDS
    async with an_office(database, tmp_path, clock, network) as office:
        await office.goes_by(WEEK)
        found = await office.followup()
        assert (found.state, found.error) == ("failed", failed.error)
    assert network.said == [ANSWER]


async def test_a_provider_that_stalls_is_given_up_after_thirty_seconds_and_keeps_no_other_tenant_waiting(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with an_office(database, tmp_path, clock, network) as office:
        await office.hears()
        network.meets("stalled")
        await office.goes_by(DUE)
        await eventually(lambda: network.said == [ANSWER, REMINDER])
        await apply_tenants(
            office.house.service, [a_config("globex", channels={network.name: network.section("globex")})]
        )
        other = Office(House(office.house.run, "globex"), clock, network, Script())
        async with asyncio.timeout(20):
            await network.brings(other.house, network.message("hello"))
            (turn,) = await office.house.tasks(kind="turn", tenant="globex")
            await office.goes_by(GATHER)
            await other.house.until_state(turn.id, "fired", 20)
        (task,) = await office.house.tasks(tenant="acme")
        assert task.state == "firing"

        loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time
        monkeypatch.setattr(loop, "time", lambda: now() + 30)

        async def is_unknown() -> bool:
            async with database.transaction() as connection:
                return [one.outcome for one in await deliveries.of_task(connection, "acme", task.id)] == ["unknown"]

        await eventually(is_unknown)


async def test_a_sender_of_one_tenant_is_refused_to_another_and_nothing_of_that_is_kept(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network) as office:
        with pytest.raises(SenderTaken, match=f"the {network.name} sender .* already belongs to tenant 'acme'"):
            await apply_tenants(
                office.house.service, [a_config("globex", channels={network.name: network.section("acme")})]
            )
        async with database.transaction() as connection:
            assert await tenants.find(connection, "globex") is None


async def test_of_three_that_are_pending_the_one_under_way_is_stopped_before_it_goes_out(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    delays = ("10 seconds", "1 hour", "2 hours")
    lines = [line for delay in delays for line in (books(f"call Ana in {delay}", delay=delay), "Booked.")]
    async with an_office(database, tmp_path, clock, network, *lines) as office:
        for _ in delays:
            await office.hears()
        office.script.followup_gate.clear()
        office.script.reached.clear()
        await office.goes_by(DUE)
        await office.script.reached.wait()
        await office.writes("STOP")
        first, *others = sorted(await office.house.tasks(), key=lambda task: task.booked_for)
        assert (first.state, [task.state for task in others]) == ("firing", ["cancelled"] * 2)
        async with database.transaction() as connection:
            assert (await story(connection, "acme", first.id))[-1].event == "cancel requested"
        office.script.followup_gate.set()
        await office.house.until_state(first.id, "cancelled")
        await office.goes_by(timedelta(hours=3))
    assert REMINDER not in network.said


LONG = " ".join(f"This is sentence {number}." for number in range(220))
OPTED_OUT = "Done: Acme will not write to you any more. To hear from us again, write START."


async def test_of_a_long_follow_up_nothing_is_sent_any_more_once_the_customer_has_opted_out_while_its_first_part_went_out(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network, followups=(LONG,)) as office:
        await office.hears()

        async def opts_out() -> None:
            if len(network.said) == 2:
                await office.writes("STOP")

        network.meanwhile(opts_out)
        skipped = await office.falls_due()
        assert skipped.outcome == "skipped: opted out"
        assert LONG in await office.house.heard(skipped.conversation or 0), "what was said of it stands there"
        await office.until_said(OPTED_OUT)
        await office.goes_by(WEEK)
    assert [words[:18] for words in network.said] == [ANSWER[:18], LONG[:18], OPTED_OUT[:18]]


async def test_of_a_long_follow_up_nothing_is_sent_any_more_once_the_customer_has_opted_out_while_its_rest_waits(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network, followups=(LONG,)) as office:
        await office.hears()
        network.meets("taken", "busy")
        await office.goes_by(DUE)
        task = await office.followup()
        await eventually(partial(office.has_come_to, "accepted", "not_sent"))
        await office.writes("STOP")
        await office.until("fired", timedelta(seconds=6))
        assert (await office.followup()).outcome == "skipped: opted out"
        assert LONG in await office.house.heard(task.conversation or 0), "what was said of it stands there"
        await office.until_said(OPTED_OUT)
        await office.goes_by(WEEK)
    assert [words[:18] for words in network.said].count(LONG[:18]) == 1
    assert len(network.said) == 4


async def test_a_long_answer_under_way_is_finished_though_the_customer_opts_out(
    database: Database, tmp_path: Path, clock: MovableClock, network: Network
) -> None:
    async with an_office(database, tmp_path, clock, network, LONG) as office:

        async def opts_out() -> None:
            if len(network.said) == 1:
                await office.writes("STOP")

        network.meanwhile(opts_out)
        await office.writes("tell me all of it")
        await office.until_said(OPTED_OUT)
    assert "".join("".join(network.said).split()) == "".join((LONG + OPTED_OUT).split())
