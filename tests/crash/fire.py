"""The run itself: a database, a server, workers, customers, and what is done to them."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import psycopg
from sqlalchemy import text

from app.database import when_it_can_be_used
from app.hooks import telegram_secret
from app.tenants_file import senders, to_stored
from scheduler.book import Booking, book_many
from scheduler.clock import Clock
from store import tenants
from store.database import Database
from store.embedded import EmbeddedServer
from store.embedded_user import Account
from store.migrate import migrate
from store.secrets import SecretBox
from tests.crash.plan import FollowUp, Plan
from tests.crash.providers import Telegram, Twilio
from tests.support.factories import a_conversation
from tests.support.house import a_config
from tests.support.process import Process, start

TENANT = "acme"
KEY = "the secret key of a service under fire"
TOKEN = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
LEASE = "15s"
"""Short, but longer than a worker on a busy machine is kept from renewing it."""
READY = "working: "
"""What a worker says when it is."""
IN_ONE_BOOKING = 1000
POSTED_TWICE = 5
"""One message of a customer of so many is brought twice, as webhooks are."""

Came = TypeVar("Came")


@dataclass(frozen=True)
class Harm:
    """Something that was done, from before it began until after it was over, in seconds since the epoch."""

    kind: Literal["kill", "restart", "outage"]
    of: str
    """The process id killed, how the database was stopped, or the channel whose provider was gone."""
    begin: float
    end: float


@dataclass
class Evidence:
    """What is left when all is over."""

    tasks: Sequence[Any]
    events: Sequence[Any]
    bubbles: Sequence[Any]
    lanes_held: int
    harms: Sequence[Harm]
    addresses: dict[int, str]
    """Where the person of each of the plan's conversations is."""
    seconds: float
    problems: list[str] = field(default_factory=list)
    """What went wrong with the run's own end."""


class Fire:
    """One run."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.twilio, self.telegram = Twilio(plan), Telegram(plan)
        self.harms: list[Harm] = []
        self.addresses: dict[int, str] = {}
        self._problems: list[str] = []
        self._workers: list[Process] = []
        self._processes: dict[str, Process] = {}
        self._begin = 0.0
        self._enough = asyncio.Event()
        """Set when nobody needs to be killed any more."""

    async def burn(self) -> Evidence:
        """Run it from beginning to end."""
        async with AsyncExitStack() as stack:
            self._server = await EmbeddedServer.start(self.directory / "database")
            stack.push_async_callback(self._server.stop)
            with psycopg.connect(self._server.url, autocommit=True) as connection:
                connection.execute("alter system set max_connections = 300")
            await self._restart_database("fast")
            self._database = Database(self._server.url)
            stack.push_async_callback(self._database.close)
            await self._prepare()
            await stack.enter_async_context(self.twilio.server)
            stack.push_async_callback(self.twilio.close)
            await self.telegram.start()
            stack.push_async_callback(self.telegram.stop)
            stack.push_async_callback(self._stop_processes)
            await self._start_processes()
            return await self._burn()

    async def _burn(self) -> Evidence:
        self._begin = time.time() + 1 + self.plan.followups / 2000
        await self._book()
        reporting = asyncio.create_task(self.twilio.report())
        killing = asyncio.create_task(self._kill_workers())
        try:
            await asyncio.gather(
                self._restart_often(),
                self._go_down(self.twilio.server.down, "whatsapp"),
                self._go_down(self.telegram.down, "telegram"),
                self._write_as_customers(),
                self._until(self.plan.seconds),
            )
            await self._until_nothing_is_active()
            self._enough.set()
            await killing
            await self.twilio.reported()
            await self._until_nothing_is_active()
        finally:
            for task in (killing, reporting):
                task.cancel()
            await asyncio.gather(killing, reporting, return_exceptions=True)
        seconds = time.time() - self._begin
        await self._stop_processes()
        return await self._ask_database(partial(self._gather, seconds))

    async def _until(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self._begin + seconds - time.time()))

    # Setting up

    async def _prepare(self) -> None:
        await migrate(self._database)
        channels = {
            # All customers are at one address here.
            "web": {"limits": {"messages_a_minute": 6000, "sessions_an_hour": 1_000_000}},
            "telegram": {"token": TOKEN},
            "whatsapp": {
                "account_sid": self.twilio.server.account_sid,
                "auth_token": self.twilio.server.auth_token,
                "sender": self.twilio.server.sender,
            },
        }
        config = a_config(TENANT, channels=channels)
        self._box = SecretBox(KEY.encode())
        async with self._database.transaction() as connection:
            await tenants.apply(connection, TENANT, to_stored(config, self._box), senders(config))

    async def _start_processes(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._environ = {
            "VUELVO_DATABASE_URL": self._server.url,
            "VUELVO_SECRET_KEY": KEY,
            "VUELVO_LEASE": LEASE,
            "VUELVO_PUBLIC_URL": self._url,
            "VUELVO_PORT": str(port),
            "VUELVO_TWILIO_API_URL": self.twilio.server.url,
            "VUELVO_TELEGRAM_API_URL": self.telegram.url,
        }
        self._serving = await self._start("serve", "--no-poller")
        self._workers = [await self._start("work") for _ in range(self.plan.workers)]
        await self._serving.until_said("Vuelvo is here", 120)
        await asyncio.gather(*(worker.until_said(READY, 120) for worker in self._workers))

    async def _start(self, *words: str) -> Process:
        process = await start(*words, directory=self.directory, environ=self._environ)
        self._processes[f"{len(self._processes):03} {words[0]} {process.pid}"] = process
        return process

    async def _stop_processes(self) -> None:
        """End what runs, in order, and keep what all of them have written beside the database."""
        for name, process in self._processes.items():
            if process.is_running:
                if "work" in name:
                    await process.until_said(READY, 120)
                if (code := await process.stop(60)) != 0:
                    self._problems.append(f"process {name} ended with exit code {code}")
            (self.directory / f"{name.replace(' ', '-')}.log").write_text("\n".join(process.said))

    async def _book(self) -> None:
        """Open the conversations, and book at once what no customer asks for."""
        conversations: dict[int, int] = {}
        booked = [followup for followup in self.plan.booked if not followup.is_asked_for]
        async with self._database.transaction() as connection:
            for followup in booked:
                number, channel = followup.conversation, followup.channel
                if number not in conversations:
                    address = address_of(followup)
                    opened = await a_conversation(connection, TENANT, channel=channel, address=address)
                    conversations[number] = opened
                    self.addresses[number] = str(opened) if channel == "web" else address
            await connection.execute(text("update conversations set last_inbound_at = now()"))
        for at in range(0, len(booked), IN_ONE_BOOKING):
            bookings = [
                Booking(
                    TENANT,
                    "followup",
                    datetime.fromtimestamp(self._begin, UTC) + timedelta(seconds=followup.due),
                    conversations[followup.conversation],
                    followup.channel,
                    {"about": followup.about, "language": "en", "is_work": False},
                )
                for followup in booked[at : at + IN_ONE_BOOKING]
            ]
            async with self._database.transaction() as connection:
                await book_many(connection, Clock(), bookings)

    # What is done to it

    async def _kill_workers(self) -> None:
        """Kill one after another: while things fall due, and as long again while what is left is being said."""
        for pause, index, again in islice(self.plan.kills(), self.plan.most_kills):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), pause)
            if self._enough.is_set() or time.time() > self._begin + 2 * self.plan.seconds:
                return
            await self._kill_worker(index)
            if again is not None:
                await asyncio.sleep(again)
                await self._kill_worker(index)
            await self._workers[index].until_said(READY, 120)

    async def _kill_worker(self, index: int) -> None:
        worker, begin = self._workers[index], time.time()
        await worker.kill()
        self.harms.append(Harm("kill", str(worker.pid), begin, time.time()))
        self._workers[index] = await self._start("work")

    async def _restart_often(self) -> None:
        for at, mode in self.plan.database_restarts:
            await self._until(at)
            begin = time.time()
            await self._restart_database(mode)
            self.harms.append(Harm("restart", mode, begin, time.time()))

    async def _restart_database(self, mode: str) -> None:
        cluster = self.directory / "database" / "postgres"
        account = Account(cluster)
        stop = ("stop", "-m", mode, "-w", "-s")
        pg_ctl = await asyncio.create_subprocess_exec(
            str(account.programs / "pg_ctl"), "-D", account.path(cluster), *stop, **account.inside(cluster)
        )
        assert await pg_ctl.wait() == 0
        await self._server.ensure()

    async def _go_down(self, down: Callable[[], Any], channel: Literal["telegram", "whatsapp"]) -> None:
        for begin, end in self.plan.outages(channel):
            await self._until(begin)
            began = time.time()
            async with down():
                await self._until(end)
            self.harms.append(Harm("outage", channel, began, time.time()))

    # Customers

    async def _write_as_customers(self) -> None:
        asking: dict[int, list[FollowUp]] = {}
        for followup in self.plan.booked:
            if followup.is_asked_for:
                asking.setdefault(followup.conversation, []).append(followup)
        async with httpx.AsyncClient(base_url=self._url, timeout=15, trust_env=False) as http:
            await asyncio.gather(*(self._write(http, wanted) for wanted in asking.values()))

    async def _write(self, http: httpx.AsyncClient, wanted: list[FollowUp]) -> None:
        """One customer asks for each of their reminders when it is time to, and again until they are heard."""
        first = wanted[0]
        headers: dict[str, str] = {}
        if first.channel == "web":
            opened = await self._post(partial(http.post, f"/widget/{TENANT}/sessions", json={"language": "en"}))
            headers = {"Authorization": f"Bearer {opened['token']}"}
            self.addresses[first.conversation] = str(opened["conversation"])
        else:
            self.addresses[first.conversation] = address_of(first)
        for followup in sorted(wanted, key=lambda one: one.asked):
            await self._until(followup.asked)
            words = f"remind me in {followup.delay} seconds to {followup.about}"
            post = self._message(http, followup, words, headers)
            await asyncio.gather(*(self._post(post) for _ in range(1 if followup.number % POSTED_TWICE else 2)))

    def _message(
        self, http: httpx.AsyncClient, followup: FollowUp, words: str, headers: dict[str, str]
    ) -> Callable[[], Awaitable[httpx.Response]]:
        if followup.channel == "web":
            message = {"text": words, "client_id": followup.about}
            return partial(http.post, f"/widget/{TENANT}/messages", json=message, headers=headers)
        if followup.channel == "whatsapp":
            form = self.twilio.server.inbound_form(words, address_of(followup))
            return partial(self.twilio.post, f"{self._url}/hooks/whatsapp/{TENANT}", form)
        person = {"id": int(address_of(followup)), "is_bot": False, "first_name": "Ana", "language_code": "en"}
        chat = {"id": person["id"], "type": "private"}
        written = {"message_id": 1, "date": 1, "chat": chat, "from": person, "text": words}
        update = {"update_id": followup.number + 1, "message": written}
        secret = telegram_secret(self._box, TENANT, TOKEN.partition(":")[0])
        named = {"X-Telegram-Bot-Api-Secret-Token": secret}
        return partial(http.post, f"/hooks/telegram/{TENANT}", json=update, headers=named)

    async def _post(self, post: Callable[[], Awaitable[httpx.Response]]) -> dict[str, Any]:
        """Post until it is taken: the database may be away."""
        async with asyncio.timeout(120):
            while True:
                try:
                    answer = await post()
                except httpx.HTTPError:
                    pass
                else:
                    if answer.is_success:
                        return dict(json.loads(answer.content or b"{}"))
                    if answer.status_code < 500:
                        raise AssertionError(f"a customer's message was refused: {answer.text}")
                await asyncio.sleep(0.3)

    # The end

    async def _ask_database(self, ask: Callable[[], Awaitable[Came]]) -> Came:
        return await when_it_can_be_used(self._database, ask, is_patient=True)

    async def _until_nothing_is_active(self) -> None:
        deadline = time.time() + 600 + self.plan.followups / 10
        while active := await self._ask_database(self._count_active):
            if time.time() > deadline:
                self._problems.append(f"{active} tasks were still active when the time to wait was over")
                return
            await asyncio.sleep(0.5)

    async def _count_active(self) -> int:
        lost = "select from deliveries d where d.bucket = t.bucket and d.tenant = t.tenant and d.task = t.id and d.outcome = 'unknown'"
        waits = (
            "" if self.plan.waits_for_word else f" and not (t.state = 'scheduled' and t.sending and exists ({lost}))"
        )
        active = text(f"select count(*) from tasks t where t.state in ('scheduled', 'firing'){waits}")
        async with self._database.transaction() as connection:
            return int((await connection.execute(active)).scalar_one())

    async def _gather(self, seconds: float) -> Evidence:
        async with self._database.transaction() as connection:

            async def rows(statement: str) -> Sequence[Any]:
                return (await connection.execute(text(statement))).all()

            return Evidence(
                tasks=await rows("select * from tasks order by id"),
                events=await rows("select task, id, at, event, fence, detail from task_events order by task, id"),
                bubbles=await rows(
                    "select m.conversation, m.text, m.at from messages m"
                    " join tasks t on t.bucket = m.bucket and t.tenant = m.tenant and t.id = m.task"
                    " where m.role = 'assistant' and t.channel = 'web' order by m.conversation, m.seq"
                ),
                lanes_held=(await rows("select count(*) from conversations where lane_task is not null"))[0][0],
                harms=self.harms,
                addresses=self.addresses,
                seconds=seconds,
                problems=self._problems,
            )


def address_of(followup: FollowUp) -> str:
    """Return where the person of a follow-up's conversation is."""
    number = followup.conversation
    addresses = {"web": f"visitor {number}", "telegram": f"{1000 + number}", "whatsapp": f"whatsapp:+1415{number:07}"}
    return addresses[followup.channel]


def pieces_of(words: str) -> list[str]:
    """Return the marks that a message holds."""
    return re.findall(r"\bm\d{5,}p\d+\b", words)
