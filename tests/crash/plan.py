"""What a run is made of, all of it from one seed: what is booked and for when, who is killed, what providers do.

Two runs of one seed have the same schedule; how the processes' steps interleave is the machine's affair.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal

Channel = Literal["web", "telegram", "whatsapp"]
CHANNELS: tuple[Channel, ...] = ("web", "telegram", "whatsapp")

Fault = Literal["none", "slow", "busy", "broken", "refused for good", "cut", "taken and cut", "hung", "taken and hung"]
"""What a provider does with one send. `taken …` are seen by the person, though the sender is not told."""
RATES: dict[Fault, float] = {
    "slow": 0.04,
    "busy": 0.04,
    "broken": 0.01,
    "refused for good": 0.01,
    "cut": 0.01,
    "taken and cut": 0.01,
    "hung": 0.004,
    "taken and hung": 0.004,
}
UNDECIDABLE = ("broken", "cut", "taken and cut", "hung", "taken and hung")
"""After these nobody who was not there can tell whether the message was taken."""

MOST_IN_CONVERSATION = 20
"""As many may be pending in one conversation when a customer asks for them."""
LONG = 15
"""One follow-up of so many is long enough to be cut into several parts on every network."""


@dataclass(frozen=True)
class FollowUp:
    """One follow-up to come: `pieces` are the marks it holds, each of them once."""

    number: int
    conversation: int
    channel: Channel
    due: float
    """Seconds after the run's beginning."""
    is_asked_for: bool
    """Whether the customer asks for it with a message, instead of its being booked by us."""
    asked: float
    """Then, when they write."""
    pieces: tuple[str, ...]

    @property
    def about(self) -> str:
        """What it is about. It is said back word for word by the offline model."""
        if len(self.pieces) == 1:
            return self.pieces[0]
        return " ".join(f"{piece} " + "and so on " * 60 + "to here." for piece in self.pieces)

    @property
    def delay(self) -> int:
        """For how many seconds from their message the customer asks for it."""
        return max(round(self.due - self.asked), 1)


@dataclass(frozen=True)
class Plan:
    """A run's size and its seed, and what follows from them."""

    followups: int = 10_000
    conversations: int = 500
    workers: int = 4
    seconds: float = 300
    """Over how long what is booked falls due."""
    seed: int = 1
    most_kills: int | None = None
    """After so many kills there are no more; None: they go on until all is said, or twice the time is over."""
    restarts: int = 3
    waits_for_word: bool = True
    """Whether the run goes on until every provider has been asked for what was lost, which takes some minutes."""

    def __post_init__(self) -> None:
        if self.followups > self.conversations * MOST_IN_CONVERSATION:
            raise ValueError(f"at most {MOST_IN_CONVERSATION} follow-ups fit into one conversation")

    def _random(self, *of: object) -> Random:
        return Random(repr((self.seed, *of)))

    @cached_property
    def booked(self) -> list[FollowUp]:
        """Every follow-up. One conversation of ten is a customer's who asks for each; some come in a rush."""
        random = self._random("booked")
        found = []
        last: dict[int, float] = {}
        for number in range(self.followups):
            conversation = number % self.conversations
            due = random.uniform(1, self.seconds)
            if conversation in last and random.random() < 0.2:
                due = last[conversation] + random.uniform(0, 0.2)
            last[conversation] = due
            is_asked_for = conversation // len(CHANNELS) % 10 == 1
            is_long = not is_asked_for and random.random() < 1 / LONG
            found.append(
                FollowUp(
                    number=number,
                    conversation=conversation,
                    channel=CHANNELS[conversation % len(CHANNELS)],
                    due=due,
                    is_asked_for=is_asked_for,
                    asked=max(0.0, due - random.uniform(2, 6)),
                    pieces=tuple(f"m{number:05}p{piece}" for piece in range(8 if is_long else 1)),
                )
            )
        return found

    def faults(self, channel: Channel) -> Iterator[tuple[Fault, float]]:
        """What the provider does with each send in turn, and after how many seconds."""
        random = self._random("faults", channel)
        hung = 33.0 if self.seconds >= 60 else 3.0  # beyond what the channels wait for an answer, if there is time
        while True:
            (fault,) = random.choices(("none", *RATES), (1 - sum(RATES.values()), *RATES.values()))
            after = {"slow": random.uniform(0.2, 3), "hung": hung, "taken and hung": hung}.get(fault, 0.0)
            yield fault, after

    def kills(self) -> Iterator[tuple[float, int, float | None]]:
        """How long the workers are left alone, which one is killed then, and after how long again while it starts.

        The next pause begins when the one that was killed works again: on a machine on which a worker takes longer to
        start than another lives, there would soon be none to kill.
        """
        random = self._random("kills")
        while True:
            pause, index, again = random.uniform(2, 5), random.randrange(self.workers), random.uniform(0, 2)
            yield pause, index, again if random.random() < 0.1 else None

    @property
    def database_restarts(self) -> list[tuple[float, Literal["fast", "immediate"]]]:
        """When the database is restarted, in seconds after the beginning, and how: one of three at once."""
        random = self._random("restarts")
        modes: list[Literal["fast", "immediate"]] = ["fast", "immediate", "fast"]
        random.shuffle(modes)
        span = self.seconds / self.restarts if self.restarts else 0
        return [((n + random.uniform(0.3, 0.8)) * span, modes[n % 3]) for n in range(self.restarts)]

    def outages(self, channel: Channel) -> list[tuple[float, float]]:
        """From when to when a provider refuses connections, in seconds after the beginning."""
        random = self._random("outages", channel)
        span = self.seconds / 2
        starts = [(n + random.uniform(0.1, 0.9)) * span for n in range(2)]
        return [(start, start + random.uniform(0.5, 2)) for start in starts]

    def callbacks(self, message: int) -> list[tuple[float, str]]:
        """What Twilio reports of a message it took, each so many seconds later: late, never, twice, out of order."""
        random = self._random("callbacks", message)
        reports = [(random.expovariate(1), status) for status in ("sent", "delivered", "read") if random.random() < 0.7]
        reports += [report for report in reports if random.random() < 0.2]
        return sorted((min(after, 10) * random.choice((1, 1, 3)), status) for after, status in reports)
