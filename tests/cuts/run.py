"""The run itself: a database, a server, a line and a browser for each visitor, and what is done to them."""

import asyncio
import os
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from playwright.async_api import Browser, BrowserContext, Page
from playwright.async_api import Error as BrowserError
from sqlalchemy import text

from channels.web import outbound
from store import messages
from store.database import Database
from store.embedded import EmbeddedServer
from store.messages import Message
from store.migrate import migrate
from store.signals import notify
from tests.cuts.plan import EVERYTHING, KILLS, Disturbance, Plan
from tests.cuts.verdict import Back, Verdict, Written
from tests.support.chromium import open_chromium
from tests.support.process import Process, start
from tests.support.proxy import Proxy, a_proxy

TENANT = "demo"
KEY = "the secret key of a service that is cut off"
LEASE = "5s"
"""A turn that was killed is taken up again after it."""
PATIENCE = 60.0
"""Seconds after which a page that does not show the log is given up."""
PAGE_JS = Path(__file__).with_name("page.js")
SHOWN_AT_LEAST = 50
"""Messages that a page shows when it has come back."""
NOBODY = 10**12
"""The task that has said the news: there is none of this number."""


class Broken(Exception):
    """A page does not come to show the log, not even after a reload."""


class House:
    """The service, which can be killed, and its database."""

    def __init__(self, database: Database, url: str, directory: Path) -> None:
        self.database, self._directory = database, directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._environ = {
            "VUELVO_DATABASE_URL": url,
            "VUELVO_SECRET_KEY": KEY,
            "VUELVO_LEASE": LEASE,
            "VUELVO_PORT": str(self.port),
        }
        self._process: Process | None = None
        self._killing = asyncio.Lock()
        self._kills: list[tuple[float, float]] = []

    async def start(self) -> None:
        """Start the service, and return when it serves."""
        self._process = await start("serve", directory=self._directory, environ=self._environ)
        await self._process.until_said("Vuelvo is here")

    async def kill(self, seconds: float) -> None:
        """Kill it, and start it again after a while; one kill at a time."""
        async with self._killing:
            assert self._process is not None
            began = time.time()
            self._kills.append((began, float("inf")))
            await self._process.kill()
            await asyncio.sleep(seconds)
            await self.start()
            self._kills[-1] = began, time.time()

    async def until_up(self) -> None:
        """Return when nobody is killing it."""
        async with self._killing:
            return

    def was_up(self, since: float) -> bool:
        """Tell whether it has not been down since a moment, in seconds since the epoch."""
        return all(end < since for _, end in self._kills)

    async def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.is_running:
            await self._process.stop()

    async def tell(self, conversation: int, mark: str) -> None:
        """Say something as the end of a task does."""
        async with self.database.transaction() as connection:
            words = f"This is {mark}"
            await outbound.write(connection, TENANT, conversation, "followup", words, task=NOBODY, now=None)
            await notify(connection, [f"message {conversation}"])

    async def log(self, conversation: int) -> Sequence[Message]:
        """Return what was said in a conversation."""
        async with self.database.transaction() as connection:
            return await messages.read(connection, TENANT, conversation, limit=100_000)

    async def conversations(self) -> list[int]:
        """Return all there are."""
        async with self.database.transaction() as connection:
            return list((await connection.execute(text("select id from conversations order by id"))).scalars())


class Visitor:
    """Somebody with a browser of his own, behind a line of his own."""

    def __init__(
        self, number: int, house: House, wire: Proxy, url: str, context: BrowserContext, verdict: Verdict
    ) -> None:
        self.number, self.house, self.wire, self.url = number, house, wire, url
        self._context, self._verdict = context, verdict
        self.conversation = 0
        self.written: list[Written] = []
        self.news: list[str] = []
        self._pages = 0
        self._during: Disturbance | int = number

    async def begin(self) -> None:
        """Open the page, and write for the first time."""
        await self._context.expose_binding("tellCuts", lambda _, problem: self._complain(problem))
        await self._context.add_init_script(path=PAGE_JS)
        self._page, self._page_number = await self._open()
        known = set(await self.house.conversations())
        await self._type(self._page, f"I am visitor {self.number}")
        async with asyncio.timeout(PATIENCE):
            while not (mine := set(await self.house.conversations()) - known):
                await self._page.evaluate("cuts.change(200)")
        (self.conversation,) = mine
        await self._check(self._page)

    async def suffer(self, disturbance: Disturbance, together: asyncio.Barrier) -> None:
        """Meet one disturbance, and look whether all is well afterwards."""
        self._during = disturbance
        if disturbance.kind == EVERYTHING:
            await together.wait()
        began = time.time()
        restored = await self._meet(disturbance)
        shown = await self._page.evaluate(
            "([marks, within]) => cuts.until(marks, within)", [list(disturbance.news), PATIENCE * 1000]
        )
        if shown is not None:
            back = max(shown / 1000 - restored, 0.0)
            is_alone = disturbance.kind in KILLS or self.house.was_up(began)
            self._verdict.backs.append(Back(disturbance.kind, back, is_alone))
        self.wire.hang_up()
        await self._check_or_heal()
        self._verdict.done[disturbance.kind] += 1
        self._during = self.number

    async def finish(self) -> None:
        """Come back once more, look at everything from the beginning, and have the log judged."""
        await self._until_reminded()
        await self._page.reload()
        await self._check_or_heal()
        everything = self._page.get_by_role("log")
        try:
            async with asyncio.timeout(PATIENCE):
                while await self._shown(self._page) != _told(await self.house.log(self.conversation)):
                    await everything.evaluate("log => { log.scrollTop = log.scrollHeight; log.scrollTop = 0 }")
                    await self._page.evaluate("cuts.change(500)")
        except TimeoutError:
            self._complain(f"the whole history is not what the log holds: {await self._difference()}")
        log = await self.house.log(self.conversation)
        self._verdict.judge_log(self.number, log, self.written, self.news)

    # What is done

    async def _meet(self, disturbance: Disturbance) -> float:
        """Do one thing; return when it was over, in seconds since the epoch."""
        match disturbance.kind:
            case "cut":
                self.wire.cut()
                await self._live(disturbance)
                self.wire.mend()
            case "held":
                self.wire.freeze()
                await self._live(disturbance)
                self.wire.thaw()
            case "offline":
                self.wire.freeze()
                await self._context.set_offline(True)
                await self._live(disturbance)
                self.wire.thaw()
                await self._context.set_offline(False)
            case "asleep":
                await self._write(disturbance)
                await self._page.evaluate("cuts.fallAsleep()")
                await self._speak(disturbance)
                await asyncio.sleep(disturbance.seconds)
                await self._page.evaluate("cuts.wakeUp()")
            case "slow":
                self.wire.pause = 0.02 + disturbance.chance * 0.3
                await self._live(disturbance)
                self.wire.pause = 0.0
            case "answer lost":
                self.wire.cut_at_answer(f"POST /widget/{TENANT}/messages ".encode())
                await self._live(disturbance, lasts=False)
                async with asyncio.timeout(PATIENCE):
                    await self.wire.was_cut.wait()
                self.wire.mend()
            case "dead, network changed":
                self.wire.die()
                await self._live(disturbance)
                await self._change_network()
            case "dead, unnoticed":
                self.wire.die()
                await self._live(disturbance, lasts=False)
            case "reload":
                await self._live(disturbance, lasts=False)
                return await self._reload()
            case "reload without network":
                self.wire.cut()
                await self._live(disturbance)
                await self._reload_in_vain()
                self.wire.mend()
                return await self._reload()
            case "closed and opened":
                await self._write(disturbance)
                await self._page.close()
                await self._speak(disturbance)
                await asyncio.sleep(disturbance.seconds)
                began = time.time()
                self._page, _ = await self._open()
                return began
            case "two tabs":
                return await self._use_two_tabs(disturbance)
            case "server killed":
                killing = asyncio.create_task(self.house.kill(disturbance.seconds / 5))
                await self._live(disturbance, lasts=False)
                await killing
            case "all at once":
                await self._meet_everything(disturbance)
        return time.time()

    async def _meet_everything(self, disturbance: Disturbance) -> None:
        """The server dies, the lines are cut or held or dead, and some reload, all while everybody writes."""
        killing = None if self.number else asyncio.create_task(self.house.kill(1.0))
        (self.wire.cut, self.wire.freeze, self.wire.die)[int(disturbance.chance * 3)]()
        await self._live(disturbance)
        if killing is not None:
            await killing
        await self.house.until_up()
        self.wire.mend()
        self.wire.thaw()
        await self._change_network()
        if disturbance.chance * 100 % 2 < 1:
            await self._reload()

    async def _change_network(self) -> None:
        await self._context.set_offline(True)
        self.wire.hang_up()
        await self._context.set_offline(False)

    async def _use_two_tabs(self, disturbance: Disturbance) -> float:
        """Open another page, write on both, and close one of them; the other must know it all."""
        other, number = await self._open()
        await self._live(disturbance, lasts=False)
        for each in disturbance.words:
            again = Written(type(each)(f"{each.mark}0", None), number)
            await self._type(other, again.word.text)
            self.written.append(again)
        restored = time.time()
        if disturbance.chance < 0.5:
            await self._check(self._page, other)
            await other.close()
        elif disturbance.chance < 0.75:
            await other.close()  # right after it was written on it
            restored = await self._reload()
        else:
            await self._page.close()
            self._page, self._page_number = other, number
            restored = await self._reload()
        return restored

    async def _live(self, disturbance: Disturbance, *, lasts: bool = True) -> None:
        """Let the visitor write and the service speak; with `lasts`, until the disturbance has taken its time."""
        began = time.monotonic()
        await asyncio.gather(self._write(disturbance), self._speak(disturbance))
        if lasts:
            await asyncio.sleep(max(disturbance.seconds - (time.monotonic() - began), 0))

    async def _write(self, disturbance: Disturbance) -> None:
        for word in disturbance.words:
            await self._type(self._page, word.text)
            self.written.append(Written(word, self._page_number))

    async def _speak(self, disturbance: Disturbance) -> None:
        for mark in disturbance.news:
            await self.house.tell(self.conversation, mark)
            self.news.append(mark)

    # The pages

    async def _open(self) -> tuple[Page, int]:
        page = await self._context.new_page()
        page.on("pageerror", lambda problem: self._complain(f"an error in the page: {problem}"))
        self._pages += 1
        await self._go(page)
        return page, self._pages

    async def _go(self, page: Page) -> None:
        """Load the page, as often as a server that is killed makes it fail."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await page.goto(self.url, wait_until="commit")
                    await page.get_by_role("textbox").wait_for(timeout=5_000)
                    return
                except BrowserError:
                    await asyncio.sleep(0.2)

    async def _reload(self) -> float:
        """Load the page again; return when that began."""
        began = time.time()
        await self._go(self._page)
        return began

    async def _reload_in_vain(self) -> None:
        try:
            await self._page.reload()
        except BrowserError:
            return
        self._complain("the page came without a network")

    async def _type(self, page: Page, words: str) -> None:
        field = page.get_by_role("textbox")
        await field.fill(words)
        await field.press("Enter")

    # What must hold

    def _complain(self, problem: str) -> None:
        self._verdict.complain(self._during, problem)

    async def _check_or_heal(self) -> None:
        try:
            await self._check(self._page)
        except TimeoutError:
            self._complain(f"the page does not come to show the log: {await self._difference()}")
            await self._reload()
            try:
                await self._check(self._page)
            except TimeoutError as problem:
                raise Broken(f"{self._during}: not even after a reload: {await self._difference()}") from problem

    async def _check(self, *pages: Page) -> None:
        """Wait until pages show the end of the log and nothing else. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            for page in pages:
                while not await self._shows_the_log(page):
                    await page.evaluate("cuts.change(200)")

    async def _shows_the_log(self, page: Page) -> bool:
        if await page.evaluate("cuts.isTroubled()"):
            return False
        shown = await self._shown(page)
        told = _told(await self.house.log(self.conversation))
        return len(shown) >= min(SHOWN_AT_LEAST, len(told)) and shown == told[-len(shown) :]

    async def _shown(self, page: Page) -> list[tuple[str, str]]:
        return [_plain(*each) for each in await page.evaluate("cuts.shown()")]

    async def _difference(self) -> str:
        """Name what is shown otherwise than it stands in the log, from the end on."""
        shown = await self._shown(self._page)
        told = _told(await self.house.log(self.conversation))
        at = next((at for at in range(1, len(told) + 1) if shown[-at:][:1] != told[-at:][:1]), 0)
        twice = [words for words, count in Counter(shown).items() if count > Counter(told)[words]]
        missing = [words for words in told[-max(len(shown), SHOWN_AT_LEAST) :] if words not in shown]
        return (
            f"{len(shown)} of {len(told)} are shown; too often {twice[:5]}; missing {missing[:5]}; "
            f"the first from the end that differs is number {at}: {shown[-at - 1 :][:3]} where the log has {told[-at - 1 :][:3]}"
        )

    async def _until_reminded(self) -> None:
        """Wait for what was asked for last; what does not come is judged with the rest."""
        wanted = {each.word.mark for each in self.written if each.word.remind_in}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            told = " ".join(each.text for each in await self.house.log(self.conversation) if each.kind == "followup")
            if all(f"{mark}." in told for mark in wanted):
                return
            await self._page.evaluate("cuts.change(200)")


def _told(log: Sequence[Message]) -> list[tuple[str, str]]:
    return [_plain(message.role, message.text) for message in log]


def _plain(role: str, words: str) -> tuple[str, str]:
    """Without what Markdown and the page make of white space and marks."""
    return role, re.sub(r"[\s*_`]+", "", words)


async def run(plan: Plan, directory: Path) -> Verdict:
    """Run a plan on a database of its own, and judge it."""
    verdict = Verdict(plan)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_database(directory))
        database = Database(url)
        stack.push_async_callback(database.close)
        await migrate(database)
        house = House(database, url, directory)
        stack.push_async_callback(house.stop)
        await house.start()
        browser = await stack.enter_async_context(open_chromium())
        visitors = [await _arrive(stack, number, house, browser, verdict) for number in range(plan.visitors)]
        together = asyncio.Barrier(plan.visitors)

        async def live(visitor: Visitor) -> None:
            for disturbance in plan.of_visitors[visitor.number]:
                await visitor.suffer(disturbance, together)
            await together.wait()  # the server is killed no more
            await visitor.finish()

        try:
            async with asyncio.TaskGroup() as group:
                for visitor in visitors:
                    group.create_task(live(visitor))
        except* Broken as problem:
            verdict.broken += map(str, problem.exceptions)
        if (found := len(await house.conversations())) != plan.visitors:
            verdict.broken.append(f"{plan.visitors} visitors have {found} conversations")
    return verdict


async def _arrive(stack: AsyncExitStack, number: int, house: House, browser: Browser, verdict: Verdict) -> Visitor:
    wire, url = await stack.enter_async_context(a_proxy(f"http://127.0.0.1:{house.port}"))
    context = await browser.new_context(locale="en-GB", reduced_motion="reduce")
    stack.push_async_callback(context.close)
    visitor = Visitor(number, house, wire, url, context, verdict)
    await visitor.begin()
    return visitor


@asynccontextmanager
async def _database(directory: Path) -> AsyncIterator[str]:
    """An empty database: on the server of `VUELVO_TEST_DATABASE_URL`, or on an embedded one."""
    given = os.environ.get("VUELVO_TEST_DATABASE_URL")
    server = None if given else await EmbeddedServer.start(directory / "database")
    url, name = given or (server.url if server else ""), f"cuts_{uuid4().hex[:12]}"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"create database {name}".encode())
        try:
            yield url.rpartition("/")[0] + "/" + name
        finally:
            await connection.execute(f"drop database {name} with (force)".encode())
            if server:
                await server.stop()
