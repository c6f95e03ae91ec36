"""What a schedule of faults is made of, all of it from one seed: what is said to whom and when, and what goes wrong.

What a send meets is drawn for the very words it carries and the number of the attempt, not from a common row of draws: it
does not depend on which of two sends comes first, which is the machine's affair.
"""

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal

Network = Literal["telegram", "whatsapp"]
NETWORKS: tuple[Network, ...] = ("telegram", "whatsapp")
Known = Literal["accepted", "rejected", "not_sent", "unknown"]
"""What a sender can know of a send that met a fault."""


@dataclass(frozen=True)
class Fault:
    """What a provider or the network does with one send."""

    is_taken: bool
    """Whether the person gets it all the same."""
    known: Known


NONE, LATE, UNREACHABLE, MOVED = "none", "answered late", "unreachable", "moved"
HUNG = ("hung", "taken and hung")
KILLED = ("killed", "taken and killed")
TENANT_REFUSED, TOO_LATE = "refused the tenant", "refused as too late"
TOO_LATE_CODE = 63016

_COMMON: dict[str, Fault] = {
    NONE: Fault(True, "accepted"),
    LATE: Fault(True, "accepted"),
    "refused for good": Fault(False, "rejected"),
    TENANT_REFUSED: Fault(False, "rejected"),
    "hung": Fault(False, "unknown"),
    "taken and hung": Fault(True, "unknown"),
    "cut": Fault(False, "unknown"),
    "taken and cut": Fault(True, "unknown"),
    "killed": Fault(False, "unknown"),
    "taken and killed": Fault(True, "unknown"),
    UNREACHABLE: Fault(False, "not_sent"),
    "busy": Fault(False, "not_sent"),
    "busy for long": Fault(False, "not_sent"),
    "502 in HTML": Fault(False, "unknown"),
    "taken, 502 in HTML": Fault(True, "unknown"),
    "500 without a word": Fault(False, "unknown"),
    "taken, 500 without a word": Fault(True, "unknown"),
    "taken, no id in the answer": Fault(True, "unknown"),
}
FAULTS: dict[Network, dict[str, Fault]] = {
    "telegram": {
        **_COMMON,
        "taken, the rest unreadable": Fault(True, "accepted"),
        "not as a reply": Fault(True, "accepted"),
        MOVED: Fault(False, "not_sent"),
    },
    "whatsapp": {
        **_COMMON,
        TOO_LATE: Fault(False, "rejected"),
        "taken, the answer unreadable": Fault(True, "unknown"),
    },
}

FAILURES = (63016, 63018, 63012, 63024)
"""With what a message that was taken fails later: too late; too many; an inner fault; not on WhatsApp."""
NEVER = 1e9
"""Seconds."""


@dataclass(frozen=True)
class Report:
    """What WhatsApp makes of a message, so many seconds after it was taken; 0 is before the answer."""

    after: float
    status: str
    code: int | None = None
    is_told: bool = True
    """Whether it comes by callback; else it shows only when Twilio is asked."""


@dataclass(frozen=True)
class Fate:
    """What becomes of a message that was taken."""

    reports: tuple[Report, ...]
    listed_after: float
    """From when on, in seconds, Twilio's list shows it."""

    @property
    def has_failed(self) -> bool:
        """Whether the person does not get it after all, or Twilio says so."""
        return any(report.code for report in self.reports)


@dataclass(frozen=True)
class Said:
    """Something that is to reach a person: the answer to a message, or a follow-up."""

    mark: str
    """Stands in every line of it."""
    conversation: int
    at: float
    """When it is asked for, or falls due, in seconds from the beginning."""
    parts: int


@dataclass(frozen=True)
class Schedule:
    """One schedule, and what follows from its seed."""

    seed: int

    def random(self, *of: object) -> Random:
        """Return the source of what is drawn for something."""
        return Random(repr((self.seed, *of)))

    @cached_property
    def conversations(self) -> list[Network]:
        """The network of each."""
        random = self.random("conversations")
        return [random.choice(NETWORKS) for _ in range(random.randint(1, 3))]

    @cached_property
    def is_group(self) -> list[bool]:
        """Whether a conversation on Telegram is a group's, which may become a supergroup."""
        return [self.random("group", number).random() < 0.5 for number in range(len(self.conversations))]

    @cached_property
    def unknown(self) -> dict[Network, str]:
        """What the tenant wants done with a send of which nobody can tell."""
        often = {"telegram": "at_most_once", "whatsapp": "at_least_once"}
        seldom = {"telegram": "at_least_once", "whatsapp": "at_most_once"}
        return {net: (seldom if self.random("unknown", net).random() < 0.25 else often)[net] for net in NETWORKS}

    @cached_property
    def templates(self) -> str:
        """Whether the tenant has a template: none, one that tells of a message (`notice`), or one that says it (`whole`)."""
        return self.random("templates").choice(("none", "notice", "whole"))

    @cached_property
    def things(self) -> tuple[list[Said], list[Said]]:
        """The answers, the first of each conversation at its beginning, and the follow-ups: three to eight in all."""
        random = self.random("things")
        rooms = len(self.conversations)
        count = random.randint(max(3, rooms + 1), 8)
        answers, followups = [], []
        moments = [random.uniform(2, 150) for _ in range(count)]
        for number in range(count):
            is_answer = number < rooms or random.random() < 0.3
            parts = random.choice((1, 1, 1, 2, 3))
            if is_answer:
                at = 0.0 if number < rooms else moments[number]
                answers.append(Said(f"m{number}", number if number < rooms else random.randrange(rooms), at, parts))
            else:
                at = random.choice(moments)  # now and then two at one moment
                followups.append(Said(f"k{number}", random.randrange(rooms), at, parts))
        return answers, followups

    @cached_property
    def parts(self) -> dict[str, int]:
        """How many parts each thing has."""
        return {said.mark: said.parts for things in self.things for said in things}

    @cached_property
    def restarts(self) -> list[float]:
        """When the process is restarted, besides amid a send."""
        random = self.random("restarts")
        return [random.uniform(0, 400) for _ in range(random.choice((0, 0, 1, 2)))]

    @cached_property
    def outages(self) -> list[tuple[Network, float, float]]:
        """Which provider refuses connections, from when to when."""
        random = self.random("outages")
        found: list[tuple[Network, float, float]] = []
        for network in NETWORKS:
            if random.random() < 0.3:
                start = random.uniform(0, 200)
                found.append((network, start, start + random.choice((5, 60, 600, 6000))))
        return found

    @cached_property
    def mends(self) -> list[float]:
        """When the operator applies the tenant's file."""
        random = self.random("mends")
        return [random.uniform(60, 900) for _ in range(random.choice((0, 1, 2)))]

    @cached_property
    def comes_back(self) -> bool:
        """Whether whoever a message waits for writes once more in the end."""
        return self.random("comes back").random() < 0.6

    @cached_property
    def is_list_down(self) -> bool:
        """Whether Twilio can never be asked for what it has."""
        return self.random("list").random() < 0.05

    def fault(self, network: Network, words: str, attempt: int) -> str:
        """Return what the attempt of that number, from 1, at saying these words meets."""
        random = self.random("fault", network, words, attempt)
        rate = self.random("rate").choice((0.2, 0.5, 0.8)) / (1 + attempt // 4)
        return random.choice(list(FAULTS[network])) if random.random() < rate else NONE

    def fate(self, words: str, attempt: int) -> Fate:
        """Return what becomes of such a message on WhatsApp once it is taken."""
        random = self.random("fate", words, attempt)
        kind = random.choices(("quiet", "arrives", "fails", "conflict"), (3, 5, 3, 1))[0]
        good = [Report(_pause(random), status) for status in ("sent", "delivered", "read") if random.random() < 0.7]
        bad = Report(_pause(random), random.choice(("failed", "undelivered")), random.choice(FAILURES))
        reports = {
            "quiet": [Report(random.uniform(0, 9), "delivered", is_told=False)],
            "arrives": good,
            "fails": [*good[:1], bad],
            "conflict": [*good, bad],
        }[kind]
        if kind == "fails" and random.random() < 0.2:
            reports = [Report(bad.after, bad.status, bad.code, is_told=False)]
        reports += [report for report in reports if random.random() < 0.2]  # twice
        listed_after = random.choices((0.0, random.uniform(1, 250), NEVER), (8, 3, 1))[0]
        return Fate(tuple(reports), listed_after)


def _pause(random: Random) -> float:
    """Return after how many seconds a report comes: before the answer, soon, in a while, late."""
    return random.choice((0.0, random.uniform(0, 5), random.uniform(5, 100), random.uniform(100, 1500)))
