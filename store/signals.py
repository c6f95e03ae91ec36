"""Hints between processes: something is due earlier, a conversation has a new message.

A hint is never the truth: whoever listens looks into the database, and looks again after a while without any hint. So
a lost hint costs a moment, never a message. Hints of this process are heard at once; those of others come by
LISTEN/NOTIFY on a connection of its own, which proves itself alive by hearing its own probe.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import Database

log = logging.getLogger(__name__)

CHANNEL = "vuelvo"
PAUSE = 0.02
"""Seconds between two NOTIFYs of one process: a burst becomes one, and does not queue behind the notify lock."""
PROBE_EVERY = 15.0
PROBE_LIMIT = 5.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
"""Seconds between attempts to listen again."""


NOTIFY = text("""
select pg_backend_pid(), pg_notify(:channel, topic) from unnest(cast(:topics as text[])) as topic
""")


async def notify(connection: AsyncConnection, topics: Sequence[str]) -> int | None:
    """Hint topics to every process that listens, once this transaction commits: for whoever runs no Signals.

    Returns the number under which listeners see who hinted; None when there was no topic.
    """
    row = (await connection.execute(NOTIFY, {"channel": CHANNEL, "topics": topics})).first()
    return None if row is None else int(row[0])


class Subscription:
    """One listener's own flag, so that nobody clears another's hint."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the listener."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a hint, at most so many seconds; return whether one came. Hints since the last wait count."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._event.clear()
        return True


class Signals:
    """Carries hints, named by a topic such as `due` or `message 12`."""

    def __init__(
        self, database: Database, *, probe_every: float = PROBE_EVERY, probe_limit: float = PROBE_LIMIT
    ) -> None:
        """`probe_every` and `probe_limit` are seconds."""
        self._database, self._probe_every, self._probe_limit = database, probe_every, probe_limit
        self._listeners: dict[str, set[Callable[[], None]]] = defaultdict(set)
        self._unsent: set[str] = set()
        self._unsent_now = asyncio.Event()
        self._teller: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.is_alive = False
        """True while hints of other processes are proven to arrive."""

    async def start(self) -> None:
        """Begin to listen and to tell others."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._tell())]

    async def stop(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @contextlib.contextmanager
    def subscribe(self, topic: str) -> Iterator[Subscription]:
        """Hear hints on a topic for as long as the block runs."""
        subscription = Subscription()
        with self.calling(topic, subscription.set):
            yield subscription

    @contextlib.contextmanager
    def calling(self, topic: str, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` at each hint on a topic for as long as the block runs; no other block may be given the same one."""
        self._listeners[topic].add(listener)
        try:
            yield
        finally:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def hint(self, topic: str) -> None:
        """Tell listeners, here at once and elsewhere soon. Call it after the commit, never inside a transaction."""
        self._wake(topic)
        if self._tasks:
            self._unsent.add(topic)
            self._unsent_now.set()

    def _wake(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener()

    def _wake_all(self) -> None:
        for topic in self._listeners:
            self._wake(topic)

    async def _tell(self) -> None:
        while True:
            await self._unsent_now.wait()
            self._unsent_now.clear()
            topics, self._unsent = sorted(self._unsent), set()
            try:
                async with (
                    self._database.transaction() as connection
                ):  # before it commits, the listener knows the teller
                    self._teller = await notify(connection, topics)
            except Exception as problem:  # a hint may be lost; the reason is told, the work goes on
                log.warning("could not tell other processes of news: %s", type(problem).__name__)
            await asyncio.sleep(PAUSE)

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    await self._listen_once()
                except (psycopg.Error, OSError) as problem:
                    if self.is_alive:
                        pause = FIRST_PAUSE
                    if pause == FIRST_PAUSE:
                        log.warning("not hearing other processes (%s), looking every second", type(problem).__name__)
                    self.is_alive = False
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads reconnects, no secret
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self.is_alive = False

    async def _listen_once(self) -> None:
        url = self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, connect_timeout=10, application_name="vuelvo listener"
        ) as connection:
            with _hung_up_after(connection, self._probe_limit):
                await connection.execute(f"listen {CHANNEL}")
            probe = f"probe {random.getrandbits(64):x}"
            while True:
                with _hung_up_after(connection, self._probe_limit):
                    await connection.execute("select pg_notify(%s, %s)", (CHANNEL, probe))
                heard, until = False, time.monotonic() + self._probe_limit
                while not heard:
                    if (left := until - time.monotonic()) <= 0:
                        raise TimeoutError("the listener did not hear its own probe")
                    # What arrives together is read to its end: a hint behind the probe would be lost otherwise.
                    async for notice in connection.notifies(timeout=left, stop_after=1):
                        heard = heard or notice.payload == probe
                        self._wake(notice.payload)
                if not self.is_alive:
                    self.is_alive = True
                    self._wake_all()  # for what was missed until now
                async for notice in connection.notifies(timeout=self._probe_every):
                    if notice.pid != self._teller:  # whoever listens here has heard it
                        self._wake(notice.payload)


@contextlib.contextmanager
def _hung_up_after(connection: psycopg.AsyncConnection, seconds: float) -> Iterator[None]:
    """Break a connection whose server does not answer within the block and so many seconds.

    To cancel the wait would not do: that asks the same silent server once more, and waits for it.
    """
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        timer = asyncio.get_running_loop().call_later(seconds, line.shutdown, socket.SHUT_RDWR)
        try:
            yield
        finally:
            timer.cancel()
