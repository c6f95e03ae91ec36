"""How fast messages go out: so many from one sender, so many to one recipient, as far as this process sends them.

Each rate is a burst, and after it one message each so many seconds (the "generic cell rate algorithm" of ATM Forum
TM 4.0: one number a rate, the time by which everything sent so far has been made up for). Where recipients differ, one
that has had its burst keeps no other waiting.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

KEPT = 5.0
"""Seconds for which a place is kept for whoever was told that they may send now."""
SWEEP = 60.0
"""Seconds between two looks for recipients that need not be remembered any more."""
NOTHING = 0.001
"""Seconds that are not worth waiting."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A burst of messages, and after it one each `every` seconds."""

    burst: int
    every: float


def within(limit: int, burst: int) -> Rate:
    """Return the fastest rate with this burst that never has more than `limit` messages in one second."""
    return Rate(burst, 1 / (limit - burst + 1))


class Pace:
    """The rates of one sender, and when it may send to whom."""

    def __init__(
        self, sender: Rate, recipient: Callable[[str], Rate], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`recipient` returns the rate for an address; `clock` tells seconds that never go back."""
        self._sender, self._recipient, self._clock = sender, recipient, clock
        self._made_up_at = -inf
        self._made_up_for: dict[str, float] = {}
        self._kept: dict[tuple[str, str | None], float] = {}
        self._closed_until: dict[str | None, float] = {}
        """For an address, or for all under None."""
        self._sweep_at = -inf

    def wait(self, address: str, thread: str | None = None) -> float:
        """Return for how many seconds a send to this address must wait; 0 when it may begin now.

        Nothing is set aside for whoever must wait. For one that need not, its place is kept for the few seconds until
        `take`, however often it is asked for: else all who ask in the same moment would be told to go ahead. The threads of
        an address ask each for itself.
        """
        now = self._clock()
        if (rest := self.rest(address)) > NOTHING:
            return rest
        if self._kept.get((address, thread), -inf) >= now:
            return 0.0
        to_them = self._recipient(address)
        free_at = max(_free_at(self._made_up_at, self._sender), _free_at(self._made_up_for.get(address, -inf), to_them))
        if free_at - now > NOTHING:
            return free_at - now
        self._spend(address, now)
        self._kept[address, thread] = now + KEPT
        return 0.0

    def take(self, address: str, thread: str | None = None) -> None:
        """Count a send that begins now; one whose place is kept has been counted."""
        now = self._clock()
        if self._kept.pop((address, thread), -inf) < now:
            self._spend(address, now)

    def close(self, seconds: float, address: str | None = None) -> None:
        """Let nothing begin for so many seconds, as the provider asks of this sender, or for one address."""
        until = self._clock() + seconds
        self._closed_until[address] = max(self._closed_until.get(address, -inf), until)

    def rest(self, address: str) -> float:
        """Return for how many seconds the provider still wants nothing sent there."""
        until = max(self._closed_until.get(None, -inf), self._closed_until.get(address, -inf))
        return max(until - self._clock(), 0.0)

    def _spend(self, address: str, now: float) -> None:
        self._sweep(now)
        self._made_up_at = max(self._made_up_at, now) + self._sender.every
        self._made_up_for[address] = max(self._made_up_for.get(address, -inf), now) + self._recipient(address).every

    def _sweep(self, now: float) -> None:
        """Forget the recipients whose whole burst is free again."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP
        self._made_up_for = {address: at for address, at in self._made_up_for.items() if at > now}
        self._kept = {who: until for who, until in self._kept.items() if until >= now}
        self._closed_until = {address: until for address, until in self._closed_until.items() if until > now}


def _free_at(made_up_at: float, rate: Rate) -> float:
    """Return from when on one more message is within the rate."""
    return made_up_at - (rate.burst - 1) * rate.every
