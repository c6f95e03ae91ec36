"""What is done to the visitors of a widget, and what is said meanwhile, all of it from one seed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal

Kind = Literal[
    "cut",
    "held",
    "offline",
    "asleep",
    "slow",
    "answer lost",
    "dead, network changed",
    "dead, unnoticed",
    "reload",
    "reload without network",
    "closed and opened",
    "two tabs",
    "server killed",
    "all at once",
]
EVERYTHING: Kind = "all at once"
UNNOTICED: Kind = "dead, unnoticed"
KILLS: tuple[Kind, ...] = ("server killed", EVERYTHING)

SHARES: dict[Kind, int] = {
    "cut": 31,  # every connection is reset, and every new one
    "held": 8,  # nothing passes, and nobody is told; then all of it does
    "offline": 8,  # the browser knows that it is
    "asleep": 4,  # the page is told that nobody looks at it, and that it is stopped; then that somebody does
    "slow": 6,  # every piece waits
    "answer lost": 9,  # what the visitor writes arrives, and the connection breaks before that is said
    "dead, network changed": 4,  # the connections are dead without a word, and the browser has a new network
    UNNOTICED: 2,  # the connections are dead without a word, and nothing tells
    "reload": 9,
    "reload without network": 4,  # the visitor reloads in vain, and again when the network is back
    "closed and opened": 8,
    "two tabs": 5,
    "server killed": 2,  # kill -9, and started again on the same port
}
"""How often each is done, in hundredths."""
BEFORE_EVERYTHING = 20
"""Disturbances of each visitor between two moments in which everything happens at once."""


@dataclass(frozen=True)
class Word:
    """Something a visitor writes."""

    mark: str
    remind_in: int | None
    """Asks to be reminded in so many seconds."""

    @property
    def text(self) -> str:
        """What is typed."""
        return f"remind me in {self.remind_in} seconds to call {self.mark}" if self.remind_in else f"I say {self.mark}"


@dataclass(frozen=True)
class Disturbance:
    """One thing done to one visitor."""

    number: int
    visitor: int
    kind: Kind
    seconds: float
    """How long it lasts."""
    words: Sequence[Word]
    """What the visitor writes meanwhile."""
    news: Sequence[str]
    """What the service says meanwhile, in this order."""
    chance: float
    """For what is left open: from 0 to 1."""

    def __str__(self) -> str:
        """Name it in a complaint."""
        return f"visitor {self.visitor}, disturbance {self.number} ({self.kind}, {self.seconds:.2f} s)"


@dataclass(frozen=True)
class Plan:
    """One run."""

    disturbances: int = 1000
    visitors: int = 5
    seed: int = 1
    longest: float = 5.0
    """Seconds that a disturbance lasts at most, unless somebody has to notice it."""
    is_patient: bool = True
    """Whether it waits for what only a browser's own patience finds out, half a minute each."""

    @cached_property
    def of_visitors(self) -> list[list[Disturbance]]:
        """What is done to each, in its order. All of them meet `all at once` together."""
        random = Random(self.seed)
        each = self.disturbances // self.visitors
        moments = {at for at in range(each) if at % BEFORE_EVERYTHING == BEFORE_EVERYTHING - 1} | {each - 1}
        kinds = self._kinds(random, (each - len(moments)) * self.visitors)
        found: list[list[Disturbance]] = [[] for _ in range(self.visitors)]
        for at in range(each):
            for visitor in range(self.visitors):
                kind = EVERYTHING if at in moments else kinds.pop()
                found[visitor].append(self._disturbance(random, at, visitor, kind))
        return found

    def _kinds(self, random: Random, count: int) -> list[Kind]:
        """Deal all kinds by their shares, each of them once before any of them again."""
        shares = {kind: share for kind, share in SHARES.items() if self.is_patient or kind != UNNOTICED}
        dealt = Counter(dict.fromkeys(shares, 0))
        deck: list[Kind] = []
        for _ in range(count):
            kind = max(shares, key=lambda one: shares[one] / (dealt[one] + 0.05))
            dealt[kind] += 1
            deck.append(kind)
        random.shuffle(deck)
        return deck

    def _disturbance(self, random: Random, at: int, visitor: int, kind: Kind) -> Disturbance:
        count = max(random.choice((0, 0, 1, 1, 2)), 1 if kind in ("answer lost", "reload without network") else 0)
        words = [
            Word(f"w{visitor}x{at}x{number}", random.randint(3, 6) if random.random() < 0.2 else None)
            for number in range(count)
        ]
        news = [f"n{visitor}x{at}x{number}" for number in range(random.choice((1, 1, 2, 3, 8)))]
        return Disturbance(at, visitor, kind, random.uniform(0, self.longest), words, news, random.random())
