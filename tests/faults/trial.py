"""One schedule, run: a house with a tenant on both networks, the providers that fail it, and the customers.

A send is witnessed on its way: it is known what it met, what our channel made of that, whether the person got it, and
whether it was cut off by a restart. Time stands still while anything is in hand and then jumps to what comes next.
"""

import asyncio
import heapq
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import httpx
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from sqlalchemy import text

from app.hooks import telegram_secret
from app.http import application
from app.tenants_file import TenantConfig
from app.wiring import apply_tenants, performer
from channels.channel import Channel
from channels.message import (
    Filled,
    Lost,
    NotSent,
    OnUnknown,
    Origin,
    Outcome,
    Part,
    Parts,
    Reach,
    Rejected,
    Remedy,
    Status,
    Unknown,
)
from channels.telegram.outbound import TelegramChannel
from channels.whatsapp.outbound import WhatsAppChannel
from scheduler.book import Booking, book
from scheduler.clock import MovableClock
from scheduler.poller import Poller
from store.database import Database
from tests.faults.plan import (
    FAULTS,
    HUNG,
    KILLED,
    LATE,
    MOVED,
    NEVER,
    NONE,
    TOO_LATE,
    TOO_LATE_CODE,
    UNREACHABLE,
    Network,
    Report,
    Said,
    Schedule,
)
from tests.support.asgi import calling
from tests.support.house import House, a_config, a_house
from tests.support.telegram_faults import (
    DROP,
    HANG,
    Answer,
    Call,
    TelegramFaults,
    accepted,
    ok,
    refused,
    telegram_faults,
)
from tests.support.twilio_server import Accept, Behaviour, Drop, Hang, Message, Reject, TwilioServer
from tests.support.twilio_server import Answer as TwilioAnswer

PUBLIC = "https://bot.example"
TOKEN = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
NOWHERE = "http://127.0.0.1:9"
"""Nobody listens on the discard port of a machine of today."""
IMPATIENT = 0.15
"""Seconds after which a send is given up that is known to hang; others have all the patience there is."""
MOST_LATE = 0.05
"""Seconds for which an answer waits for a later one to pass it."""
STUCK = 20.0
"""Seconds of real time after which what is due and not done is taken for stuck."""
MOST_STEPS = 300
MOST_KILLS = 3
TEMPLATE = "HX" + "a" * 32
MARK = re.compile(r"\b[mk][0-9]+\b")
ROOM: Mapping[str, int] = {"telegram": 4096, "whatsapp": 1500}
BUSY = "select exists (select from tasks where state = 'firing' or state = 'scheduled' and hold is null and due_at <= :now)"
NEXT = "select min(due_at) from tasks where state = 'scheduled' and hold is null"
IN_HAND = "select id from deliveries where outcome is null"
HELD = "select distinct conversation, hold from tasks where state = 'scheduled' and hold is not null order by 1, 2"
EVIDENCE = {
    "tasks": "select * from tasks order by id",
    "deliveries": "select * from deliveries order by id",
    "events": "select * from task_events order by id",
    "messages": "select * from messages order by conversation, seq",
    "conversations": "select * from conversations order by id",
}


def words_of(said: Said, network: Network) -> str:
    """Return what is said: as long as it takes for its number of parts, its mark in every line."""
    length = 0 if said.parts == 1 else int(ROOM[network] * (said.parts - 0.5))
    lines = [f"{said.mark} line 0: the blue house has nine windows."]
    while sum(len(line) + 1 for line in lines) < length:
        lines.append(f"{said.mark} line {len(lines)}: " + "the garden is green and wide. " * 3)
    return "\n".join(line.strip() for line in lines)


@dataclass
class Attempt:
    """One call of a channel's `send`."""

    network: Network
    delivery: int
    mark: str
    words: str
    """What it carries; names the delivery where it is a template."""
    number: int
    """Of the attempts at these words, from 1."""
    fault: str
    at: datetime
    outcome: Outcome | None = None
    is_posted: bool = False
    """Whether it came as far as the provider: on a busy machine the impatient may give up before."""
    is_cut: bool = False
    """Whether a restart came before its outcome was committed."""
    place: int | None = None
    """Where it stands among all that people got; None when they did not."""
    provider_id: str | None = None
    """What the provider calls the message it took."""
    message: Message | None = None
    """WhatsApp's."""
    told: list[Report] = field(default_factory=list)
    """The callbacks that came."""
    proved_at: datetime | None = None
    """When a callback first said that it arrived."""
    failed_at: datetime | None = None
    """When a callback first said that it did not."""
    is_looked_for_in_vain: bool = False
    """Whether a look came while Twilio's list did not show it, though it had it."""

    @property
    def known(self) -> str:
        """What could be known of it at once."""
        if not self.is_cut and not self.is_posted and isinstance(self.outcome, NotSent):
            return "not_sent"
        return "unknown" if self.is_cut else FAULTS[self.network][self.fault].known

    @property
    def is_taken(self) -> bool:
        """Whether the provider took it."""
        return self.place is not None

    @property
    def is_seen(self) -> bool:
        """Whether the person has it: the provider has said so, or has never said otherwise."""
        if self.proved_at is not None:
            return True
        return self.is_taken and not any(report.code for report in self.told) and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether the provider has it as failed."""
        return self.message is not None and self.message.error_code is not None


@dataclass
class Evidence:
    """What is left when all is over."""

    tasks: Sequence[Any]
    deliveries: Sequence[Any]
    events: Sequence[Any]
    messages: Sequence[Any]
    conversations: Sequence[Any]
    attempts: Sequence[Attempt]
    story: list[str]
    problems: list[str]
    """What went wrong on the way."""
    conversation_of: Sequence[int]
    """The ids of the schedule's conversations."""


class Witness:
    """The tenant's own channel, with what each send is to meet; it has no part in what is made of that.

    It keeps no pace: nobody sleeps in a schedule, in which time goes on when all is done.
    """

    gap = timedelta()

    def __init__(self, trial: "Trial", tenant: TenantConfig, name: Network) -> None:
        self.trial, self.network, self.name = trial, name, str(name)
        make = trial.makers[name]
        self.lines: dict[str, Channel] = {
            "patient": make(tenant, trial.urls[name], 30.0),
            "impatient": make(tenant, trial.urls[name], IMPATIENT),
            "unreachable": make(tenant, NOWHERE, 30.0),
        }
        self.line = self.lines["patient"]
        self.looks, self.waits = self.line.looks, self.line.waits
        self.on_unknown: OnUnknown = self.line.on_unknown

    def split(self, text: str) -> Parts:
        return self.line.split(text)

    async def open(self) -> None:
        await self.line.open()

    def wait(self, address: str, thread: str | None = None) -> float:
        return 0.0

    async def look_at_files(self, text: str) -> str:
        return await self.line.look_at_files(text)

    async def send(self, part: Part) -> Outcome:
        attempt = self.trial.begins(self.network, part)
        which = "unreachable" if attempt.fault == UNREACHABLE else "impatient" if attempt.fault in HUNG else "patient"
        try:
            attempt.outcome = await self.lines[which].send(part)
        finally:
            self.trial.ends(attempt)
        return attempt.outcome

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        return await self.line.fill(purpose, language, words)

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        return await self.line.check(filled)

    def remedy(self, code: int | None) -> Remedy:
        return self.line.remedy(code)

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        return await self.lines[self.trial.asks(self.network, lost)].look_up(lost)

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        return self.line.assess(origin, due, now)

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        return False

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        """Left out: nothing depends on it, and it would be every second call."""

    async def close(self) -> None:
        for line in self.lines.values():
            await line.close()


class Trial:
    """One schedule on a database that holds nothing yet."""

    def __init__(self, schedule: Schedule, database: Database, directory: Path) -> None:
        self.schedule, self.database, self.directory = schedule, database, directory
        self.clock = MovableClock()
        self.begin = self.clock.at
        self.twilio = TwilioServer(now=lambda: self.clock.at)
        self.telegram = TelegramFaults()
        self.attempts: list[Attempt] = []
        self.story: list[str] = []
        self.problems: list[str] = []
        self.asked: set[str] = set()
        """Of what the model was asked to write."""
        self.said: dict[str, Said] = {said.mark: said for things in schedule.things for said in things}
        self.addresses = [self._address(number) for number in range(len(schedule.conversations))]
        self.moved: dict[str, str] = {}
        """Telegram's groups that became supergroups, and where they are now."""
        self.conversation_of: list[int] = []
        self.urls: dict[str, str] = {}
        self.makers: dict[str, Callable[[TenantConfig, str, float], Channel]] = {
            "telegram": self._make_telegram,
            "whatsapp": self._make_whatsapp,
        }
        self._agenda: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self._numbers, self._places, self._ids = count(), count(), count(1)
        self._kill = False
        self._kills = 0
        self._answered = asyncio.Event()
        self._marks_sent: set[str] = set()
        self._open_house: House | None = None
        self._poller: Poller | None = None
        self._http: httpx.AsyncClient | None = None
        self._stack = AsyncExitStack()

    def _address(self, number: int) -> str:
        if self.schedule.conversations[number] == "whatsapp":
            return f"whatsapp:+57300123456{number}"
        return f"{-200 - number}" if self.schedule.is_group[number] else f"{100 + number}"

    @property
    def now(self) -> float:
        """Seconds from the beginning."""
        return (self.clock.at - self.begin).total_seconds()

    def tell(self, words: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:9.1f}  {words}")

    # The house

    @property
    def _house(self) -> House:
        assert self._open_house is not None
        return self._open_house

    def _make_telegram(self, tenant: TenantConfig, url: str, timeout: float) -> Channel:
        assert tenant.channels.telegram is not None
        return TelegramChannel(tenant.channels.telegram, url, timeout)

    def _make_whatsapp(self, tenant: TenantConfig, url: str, timeout: float) -> Channel:
        assert tenant.channels.whatsapp is not None
        where = f"{PUBLIC}/hooks/whatsapp/{tenant.tenant}/status"
        return WhatsAppChannel(tenant.channels.whatsapp, url, lambda delivery: f"{where}/{delivery}", timeout)

    def _make_witness(self, tenant: TenantConfig, name: str) -> Channel:
        return Witness(self, tenant, cast("Network", name))

    def _config(self) -> dict[str, Any]:
        variables = {"notice": {"1": "name", "2": "about"}, "whole": {"1": "text"}}.get(self.schedule.templates)
        whatsapp: dict[str, Any] = {
            "account_sid": self.twilio.account_sid,
            "auth_token": self.twilio.auth_token,
            "sender": self.twilio.sender,
            "unknown": self.schedule.unknown["whatsapp"],
            "templates": [{"sid": TEMPLATE, "language": "en", "variables": variables}] if variables else [],
        }
        telegram = {"token": TOKEN, "receive": "webhook", "unknown": self.schedule.unknown["telegram"]}
        return {"channels": {"telegram": telegram, "whatsapp": whatsapp}, "languages": ["en"]}

    async def _open(self) -> None:
        self._stack = AsyncExitStack()
        told: dict[str, Any] = {"config": self._config(), "public_url": PUBLIC, "twilio_api_url": self.twilio.url}
        self._open_house = await self._stack.enter_async_context(
            a_house(self.database, self.directory, FunctionModel(self._write), self.clock, poll=False, **told)
        )
        service = self._house.service
        service.make_channel = self._make_witness
        # Only now, or what is due would go out by a channel without a witness.
        self._poller = Poller(self.database, self.clock, service.signals, performer(service))
        self._poller.start()
        self._http = await self._stack.enter_async_context(calling(application(self._house.run)))

    async def _close(self) -> None:
        assert self._poller is not None
        await self._poller.stop(timedelta(0))
        for attempt in self.attempts:
            attempt.is_cut |= attempt.outcome is None
        in_hand = set(await self._scalars(IN_HAND))
        for attempt in self.attempts:
            attempt.is_cut |= attempt.delivery in in_hand
        self._http = None
        await self._stack.aclose()

    async def _restart(self) -> None:
        self.tell("the process is restarted")
        await self._close()
        self._kill = False
        await self._open()

    async def _write(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
        mark = MARK.findall(str(prompts[-1].content))[-1]
        if mark in self._marks_sent:
            self.problems.append(f"the model is asked to write {mark} again after it was sent")
        self.tell(f"the model writes {mark}")
        said = self.said[mark]
        return ModelResponse(parts=[TextPart(words_of(said, self.schedule.conversations[said.conversation]))])

    # What a send meets

    def begins(self, network: Network, part: Part) -> Attempt:
        """A send begins: decide what it meets."""
        words = part.text if part.template is None else f"template {part.delivery}"
        told = part.text if part.template is None else " ".join(part.template.values.values())
        mark = (MARK.findall(told) or ["?"])[0]
        number = 1 + sum(one.words == words for one in self.attempts)
        fault = self.schedule.fault(network, words, number)
        if self._is_down(network):
            fault = UNREACHABLE
        elif fault in KILLED:
            self._kills += 1
            fault = fault if self._kills <= MOST_KILLS else NONE
        elif fault == MOVED and not (part.address.startswith("-2") and part.address not in self.moved):
            fault = NONE
        if network == "telegram" and part.address in self.moved:
            fault = MOVED
        attempt = Attempt(network, part.delivery, mark, words, number, fault, self.clock.at)
        self.attempts.append(attempt)
        self._marks_sent.add(mark)
        kind = "" if part.template is None else " by template"
        self.tell(f"{network} send of {words[:12]!r}{kind} ({mark}, delivery {part.delivery}): {fault}")
        return attempt

    def ends(self, attempt: Attempt) -> None:
        """A send has ended, or was cut off."""
        if attempt.outcome is None:
            attempt.is_cut = True
        self.tell(f"delivery {attempt.delivery}: {attempt.outcome or 'cut off'}")

    def asks(self, network: Network, lost: Lost) -> str:
        """Return over which line a lost send is looked up, and note what is looked for in vain."""
        is_down = self._is_down(network) or self.schedule.is_list_down
        for attempt in self.attempts:
            if attempt.message and not attempt.message.is_listed and lost.text in (None, attempt.words):
                attempt.is_looked_for_in_vain = True
        self.tell(f"{network} is asked for {str(lost.text)[:12]!r}{', and is down' if is_down else ''}")
        return "unreachable" if is_down else "patient"

    def _is_down(self, network: Network) -> bool:
        return any(net == network and start <= self.now < end for net, start, end in self.schedule.outages)

    def _decide_whatsapp(self, form: dict[str, str]) -> Behaviour:
        attempt = self._of_delivery(form["StatusCallback"])
        fault, attempt.is_posted = attempt.fault, True
        if fault in KILLED:
            self._wants_restart()
        if fault == NONE and attempt.number % 2:
            self._answered.set()
        behaviours: dict[str, Behaviour] = {
            NONE: Accept(),
            LATE: Accept(),
            "refused for good": Reject(400, 63024),
            "refused the tenant": Reject(401, 20003),
            TOO_LATE: Reject(400, TOO_LATE_CODE),
            "hung": Hang(),
            "taken and hung": Hang(accepted=True),
            "cut": Drop(),
            "taken and cut": Drop(accepted=True),
            "killed": Hang(),
            "taken and killed": Hang(accepted=True),
            "busy": Reject(429, 20429),
            "busy for long": Reject(429, 20429, retry_after=90),
            "502 in HTML": TwilioAnswer(502, "<html>Bad Gateway</html>"),
            "taken, 502 in HTML": TwilioAnswer(502, "<html>Bad Gateway</html>", accepted=True),
            "500 without a word": TwilioAnswer(500, "{}", "application/json"),
            "taken, 500 without a word": TwilioAnswer(500, "{}", "application/json", accepted=True),
            "taken, no id in the answer": Accept(with_sid=False),
            "taken, the answer unreadable": TwilioAnswer(201, "<html>", accepted=True),
        }
        return behaviours[fault]

    def _of_delivery(self, callback: str) -> Attempt:
        delivery = int(callback.rpartition("/")[2])
        return next(attempt for attempt in reversed(self.attempts) if attempt.delivery == delivery)

    async def _whatsapp_took(self, message: Message) -> None:
        assert message.status_callback is not None
        attempt = self._of_delivery(message.status_callback)
        if attempt.message is not None:
            self.problems.append(f"delivery {attempt.delivery} was posted twice")
        attempt.message, attempt.provider_id, attempt.place = message, message.sid, next(self._places)
        fate = self.schedule.fate(attempt.words, attempt.number)
        message.is_listed = fate.listed_after == 0
        if 0 < fate.listed_after < NEVER:
            self._plan(self.now + fate.listed_after, partial(self._list, message))
        for report in fate.reports:
            if report.after == 0:
                await self._report(attempt, report)
            else:
                self._plan(self.now + report.after, partial(self._report, attempt, report))
        await self._maybe_late(attempt)

    async def _list(self, message: Message) -> None:
        message.is_listed = True

    async def _maybe_late(self, attempt: Attempt) -> None:
        if attempt.fault == LATE:
            self._answered.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), MOST_LATE)

    async def _report(self, attempt: Attempt, report: Report) -> None:
        """WhatsApp makes something of a message, and tells it if it does."""
        message = attempt.message
        assert message is not None
        assert message.status_callback is not None
        if report.after == 0:  # the answer on its way is from before
            self._plan(self.now, partial(self._make, message, report))
        else:
            await self._make(message, report)
        if not report.is_told or self._http is None:
            self.tell(f"delivery {attempt.delivery} is {report.status} {report.code or ''}, untold")
            return
        attempt.told.append(report)
        if report.code:
            attempt.failed_at = attempt.failed_at or self.clock.at
        elif report.status in ("delivered", "read"):
            attempt.proved_at = attempt.proved_at or self.clock.at
        self.tell(f"callback for delivery {attempt.delivery}: {report.status} {report.code or ''}")
        await self._post(message.status_callback, self.twilio.status_form(message, report.status, report.code))

    async def _make(self, message: Message, report: Report) -> None:
        message.status, message.error_code = report.status, report.code

    async def _post(self, url: str, form: Sequence[tuple[str, str]]) -> None:
        assert self._http is not None
        path = url.removeprefix(PUBLIC)
        answer = await self._http.post(path, content=urlencode(form), headers=self.twilio.sign(url, form))
        if answer.status_code != 204:
            self.problems.append(f"POST {path} was answered {answer.status_code}")

    async def _decide_telegram(self, call: Call) -> Answer | str:
        if call.method != "sendMessage":
            return ok(True)
        first = str(call.fields["text"]).split("\n")[0]
        ours = (one for one in reversed(self.attempts) if one.network == "telegram" and one.words.startswith(first))
        attempt = next(ours)
        fault, attempt.is_posted = attempt.fault, True
        if fault == "not as a reply" and "reply_parameters" in call.fields:
            return refused(400, "Bad Request: message to be replied not found")
        if fault == MOVED:
            chat = str(call.fields["chat_id"])
            self.moved.setdefault(chat, f"-100{chat[1:]}")
            return refused(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=int(self.moved[chat]),
            )
        if fault in KILLED:
            self._wants_restart()
        if FAULTS["telegram"][fault].is_taken:
            if attempt.place is not None:
                self.problems.append(f"delivery {attempt.delivery} was posted twice")
            attempt.place, number = next(self._places), next(self._ids)
            attempt.provider_id = str(number)
            await self._maybe_late(attempt)
        if fault == NONE:
            self._answered.set()
        answers: dict[str, Callable[[], Answer | str]] = {
            NONE: lambda: accepted(number),
            LATE: lambda: accepted(number),
            "not as a reply": lambda: accepted(number),
            "refused for good": lambda: refused(403, "Forbidden: bot was blocked by the user"),
            "refused the tenant": lambda: refused(401, "Unauthorized"),
            "hung": lambda: HANG,
            "taken and hung": lambda: HANG,
            "killed": lambda: HANG,
            "taken and killed": lambda: HANG,
            "cut": lambda: DROP,
            "taken and cut": lambda: DROP,
            "busy": lambda: refused(429, "Too Many Requests: retry later"),
            "busy for long": lambda: refused(429, "Too Many Requests: retry after 90", retry_after=90),
            "502 in HTML": lambda: Answer(502, "<html>Bad Gateway</html>"),
            "taken, 502 in HTML": lambda: Answer(502, "<html>Bad Gateway</html>"),
            "500 without a word": lambda: Answer(500, {"ok": False, "error_code": 500}),
            "taken, 500 without a word": lambda: Answer(500, {"ok": False, "error_code": 500}),
            "taken, no id in the answer": lambda: ok({"date": 1}),
            "taken, the rest unreadable": lambda: ok({"message_id": number, "date": "never", "chat": 5}),
        }
        return answers[fault]()

    def _wants_restart(self) -> None:
        self._kill = True
        self._house.wake()

    # The customers, and time

    def _plan(self, at: float, action: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._agenda, (at, next(self._numbers), action))

    async def _customer_writes(self, said: Said) -> None:
        number = said.conversation
        address = self.addresses[number] = self.moved.get(self.addresses[number], self.addresses[number])
        self.tell(f"the customer of conversation {number} writes {said.mark}")
        if self.schedule.conversations[number] == "whatsapp":
            form = self.twilio.inbound_form(f"Please answer {said.mark}", address)
            await self._post(f"{PUBLIC}/hooks/whatsapp/acme", form)
            return
        assert self._http is not None
        kind = "private" if not address.startswith("-") else "supergroup" if address.startswith("-100") else "group"
        update = next(self._ids)
        person = {"id": 42, "is_bot": False, "first_name": "Ana"}
        message = {
            "message_id": update,
            "date": 1,
            "chat": {"id": int(address), "type": kind},
            "from": person,
            "text": f"/ask Please answer {said.mark}",
        }
        secret = telegram_secret(self._house.service.box, "acme", "99")
        answer = await self._http.post(
            "/hooks/telegram/acme",
            json={"update_id": update, "message": message},
            headers={"X-Telegram-Bot-Api-Secret-Token": secret},
        )
        if answer.status_code != 200:
            self.problems.append(f"an update was answered {answer.status_code}")

    async def _operator_mends(self) -> None:
        self.tell("the tenant's file is applied")
        await apply_tenants(self._house.service, [a_config("acme", **self._config())])

    async def run(self) -> Evidence:
        """Run it from beginning to end."""
        async with self.twilio, telegram_faults() as self.telegram:
            self.twilio.decide, self.twilio.on_taken = self._decide_whatsapp, self._whatsapp_took
            self.twilio.approvals[TEMPLATE] = "approved"
            self.telegram.decide = self._decide_telegram
            self.urls = {"telegram": self.telegram.url, "whatsapp": self.twilio.url}
            await self._open()
            try:
                await self._live()
                rows = {name: await self._rows(statement) for name, statement in EVIDENCE.items()}
            finally:
                await self._close()
        return Evidence(
            **rows,
            attempts=self.attempts,
            story=self.story,
            problems=self.problems,
            conversation_of=self.conversation_of,
        )

    async def _live(self) -> None:
        answers, followups = self.schedule.things
        opening = [said for said in answers if said.at == 0]
        for said in opening:
            await self._customer_writes(said)
        self.conversation_of = await self._scalars("select id from conversations order by id")
        for said in followups:
            await self._book(said)
        for said in answers[len(opening) :]:
            self._plan(said.at, partial(self._customer_writes, said))
        for at in self.schedule.restarts:
            self._plan(at, self._restart)
        for at in self.schedule.mends:
            self._plan(at, self._operator_mends)
        has_come_back = not self.schedule.comes_back
        for _ in range(MOST_STEPS):
            await self._settle()
            comes = await self._next()
            if comes is None and not has_come_back:
                has_come_back = True
                await self._let_go()
                continue
            if comes is None:
                return
            self.clock.set(max(self.clock.at, comes))
            self._wake()
            while self._agenda and self._agenda[0][0] <= self.now + 1e-5:  # the clock knows microseconds
                await heapq.heappop(self._agenda)[2]()
        self.problems.append("it does not come to an end")

    async def _book(self, said: Said) -> None:
        network, conversation = self.schedule.conversations[said.conversation], self.conversation_of[said.conversation]
        self.tell(f"{said.mark} is booked in conversation {said.conversation} ({network}) for {said.at:.1f}")
        payload = {"about": said.mark, "language": "en"}
        due = self.begin + timedelta(seconds=said.at)
        async with self.database.transaction() as connection:
            await book(
                connection, self.clock, Booking("acme", "followup", due, conversation, network, payload, reply_to=None)
            )

    async def _let_go(self) -> None:
        """End what holds whatever is held: the customer writes, the operator applies the file."""
        for row in await self._rows(HELD):
            if row.hold == "channel paused":
                await self._operator_mends()
            else:
                number = self.conversation_of.index(row.conversation)
                mark = f"m{100 + number}"
                said = self.said[mark] = Said(mark, number, self.now, 1)
                await self._customer_writes(said)

    async def _next(self) -> datetime | None:
        due: datetime | None = (await self._scalars(NEXT))[0]
        agenda = self.begin + timedelta(seconds=self._agenda[0][0]) if self._agenda else None
        return min((at for at in (due, agenda) if at is not None), default=None)

    def _wake(self) -> None:
        self._house.wake()

    async def _settle(self) -> None:
        """Return when nothing is in hand and nothing is due."""
        until = time.monotonic() + STUCK
        self._wake()
        while self._kill or (await self._scalars(BUSY, now=self.clock.at))[0]:
            if self._kill:
                await self._restart()
            with self._house.service.signals.subscribe("due") as hints:
                await hints.wait(0.02)
            if time.monotonic() > until:
                raise TimeoutError("\n".join(("something is due and is not done", *self.story)))

    async def _rows(self, statement: str, **given: Any) -> Sequence[Any]:
        async with self.database.autocommit() as connection:
            return (await connection.execute(text(statement), given)).all()

    async def _scalars(self, statement: str, **given: Any) -> list[Any]:
        return [row[0] for row in await self._rows(statement, **given)]
