"""Who listens: every open stream of this process, and one look at the database for all of them.

Hints wake a stream at once. A hint can be lost, so every few seconds one statement asks for all conversations that are listened
to whether there is more than was told; a stream looks by itself only when it is woken.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence

from sqlalchemy.exc import SQLAlchemyError

from store.database import Database, bucket_of, sql
from store.signals import Signals

log = logging.getLogger(__name__)

LOOK_AGAIN = 5.0
"""Seconds between two looks while hints are proven to arrive."""
LOOK_AGAIN_DEAF = 1.0
"""Seconds between two looks while they are not."""
MOST_STREAMS = 10
"""Streams of one conversation, each of which holds a connection; with one more the oldest ends, as it may long be dead."""
_AT_ONCE = 1000

STATES = """
select w.tenant, w.id, v.last_seq, v.seen_seq
  from unnest(cast(:buckets as smallint[]), cast(:tenants as text[]), cast(:ids as bigint[])) as w(bucket, tenant, id)
  left join conversations v on v.bucket = w.bucket and v.tenant = w.tenant and v.id = w.id
"""


class Listener:
    """One open stream: what it has told so far, and what wakes it."""

    def __init__(self, tenant: str, conversation: int, cursor: int) -> None:
        self.tenant, self.conversation = tenant, conversation
        self.cursor, self.seen = cursor, -1
        self.is_over = False
        """Set when the stream is to end: the browser connects again, if it may."""
        self._woken, self._is_written = asyncio.Event(), False

    def wake(self) -> None:
        """Have it look."""
        self._woken.set()

    def hear_of_writing(self) -> None:
        """Tell it that an answer is being written."""
        self._is_written = True
        self._woken.set()

    def end(self) -> None:
        """Have it end."""
        self.is_over = True
        self._woken.set()

    def begin_look(self) -> bool:
        """Forget what woke it, since it is about to look; return whether it has heard of an answer being written."""
        self._woken.clear()
        is_written, self._is_written = self._is_written, False
        return is_written

    async def wait(self, seconds: float) -> bool:
        """Return when it is woken, or after so many seconds; whether it was woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._woken.wait()
        return self._woken.is_set()


class Listeners:
    """Every open stream of this process."""

    def __init__(self, database: Database, signals: Signals, stopping: asyncio.Event) -> None:
        """When `stopping` is set, all end."""
        self._database, self._signals, self._stopping = database, signals, stopping
        self._of: dict[tuple[str, int], list[Listener]] = {}
        self._watching: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def joined(self, tenant: str, conversation: int, cursor: int) -> Iterator[Listener]:
        """Give a listener that is woken as long as the block runs."""
        listener = Listener(tenant, conversation, cursor)
        key = tenant, conversation
        with (
            self._signals.calling(f"message {conversation}", listener.wake),
            self._signals.calling(f"typing {conversation}", listener.hear_of_writing),
        ):
            others = self._of.setdefault(key, [])
            alive = [each for each in others if not each.is_over]
            for oldest in alive[: max(len(alive) - MOST_STREAMS + 1, 0)]:
                oldest.end()
            others.append(listener)
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())
            try:
                yield listener
            finally:
                others.remove(listener)
                if not others:
                    del self._of[key]
                if not self._of and self._watching:
                    self._watching.cancel()
                    self._watching = None

    async def _watch(self) -> None:
        is_lost = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN if self._signals.is_alive else LOOK_AGAIN_DEAF):
                    await self._stopping.wait()
            if self._stopping.is_set():
                for listener in (each for some in self._of.values() for each in some):
                    listener.end()
                return
            try:
                everyone = list(self._of)
                for first in range(0, len(everyone), _AT_ONCE):
                    await self._look(everyone[first : first + _AT_ONCE])
                is_lost = False
            except Exception as problem:  # all pages depend on it, whatever it is: the next look may be luckier
                if not is_lost:
                    is_known = isinstance(problem, SQLAlchemyError | OSError)
                    log.warning(
                        "cannot look for what open pages miss: %s",
                        type(problem).__name__,
                        exc_info=None if is_known else problem,
                    )
                is_lost = True

    async def _look(self, of: Sequence[tuple[str, int]]) -> None:
        """Wake every listener that has not told all there is to tell, or whose conversation is gone."""
        given = {
            "buckets": [bucket_of(tenant) for tenant, _ in of],
            "tenants": [tenant for tenant, _ in of],
            "ids": [conversation for _, conversation in of],
        }
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(sql(STATES), given)).all()
        for tenant, conversation, last, seen in rows:
            for listener in self._of.get((tenant, conversation), ()):
                if last is None or last > listener.cursor or seen != listener.seen:
                    listener.wake()
