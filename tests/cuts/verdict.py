"""What must hold in the end, and how it is told."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from store.messages import Message
from tests.cuts.plan import SHARES, Disturbance, Kind, Plan, Word

WANTED = 2.0
"""Seconds within which 95 of 100 are to be back after a cut of five seconds or less."""


@dataclass(frozen=True)
class Back:
    """How long it took a page, after it could, to show what was said meanwhile."""

    kind: Kind
    seconds: float
    is_alone: bool
    """Whether the server was not killed meanwhile for another visitor's sake."""


@dataclass(frozen=True)
class Written:
    """What a visitor has written, and on which page: what was written on one page keeps its order."""

    word: Word
    page: int


@dataclass
class Verdict:
    """One run, judged."""

    plan: Plan
    broken: list[str] = field(default_factory=list)
    """What does not hold."""
    backs: list[Back] = field(default_factory=list)
    done: Counter[Kind] = field(default_factory=Counter)
    """How often each thing was done."""
    said: Counter[str] = field(default_factory=Counter)
    """How much was written, told and reminded of."""

    def complain(self, of: Disturbance | int, problem: str) -> None:
        """Note that something does not hold."""
        self.broken.append(f"{of if isinstance(of, Disturbance) else f'visitor {of}'}: {problem}")

    def judge_log(self, visitor: int, log: Sequence[Message], written: Sequence[Written], news: Sequence[str]) -> None:
        """Look whether everything stands in a conversation's log once and in order."""
        places: Mapping[str, list[int]] = _places(log, "message")
        for each in written:
            self._count(visitor, each.word.mark, "what the visitor wrote", places)
        for page in {each.page for each in written}:
            own = [places[each.word.mark][0] for each in written if each.page == page and each.word.mark in places]
            if own != sorted(own):
                self.complain(visitor, "what was written on one page stands in another order in the log")
        told = _places(log, "followup")
        for mark in news:
            self._count(visitor, mark, "what the service said", told)
        reminders = [each.word.mark for each in written if each.word.remind_in]
        for mark in reminders:
            self._count(visitor, mark, "the reminder", told)
        self.said += Counter({"words": len(written), "news": len(news), "reminders": len(reminders)})

    def _count(self, visitor: int, mark: str, what: str, places: Mapping[str, list[int]]) -> None:
        found = len(places.get(mark, ()))
        if found != 1:
            self.complain(visitor, f"{what} ({mark}) is {'lost' if not found else f'there {found} times'}")

    def table(self) -> Iterator[str]:
        """Yield how long it took to be back, as a table of Markdown."""
        yield "| disturbance | times | measured | back within: median | p95 | worst |"
        yield "|---|---|---|---|---|---|"
        taken: dict[Kind, list[float]] = defaultdict(list)
        for back in self.backs:
            if back.is_alone:
                taken[back.kind].append(back.seconds)
        for kind in [*SHARES, *(kind for kind in self.done if kind not in SHARES)]:
            if times := self.done[kind]:
                yield f"| {kind} | {times} | {' | '.join(_figures(taken[kind]))} |"

    def summary(self) -> str:
        """Tell the whole in a few lines."""
        cuts = [back.seconds for back in self.backs if back.kind == "cut" and back.is_alone]
        within = f"{_p95(cuts):.2f} s" if cuts else "not measured"
        held = f"{len(self.broken)} things do not hold" if self.broken else "nothing lost, nothing twice, all in order"
        return (
            f"Seed {self.plan.seed}: {self.done.total()} disturbances of {self.plan.visitors} visitors, who wrote "
            f"{self.said['words']} messages and were told {self.said['news'] + self.said['reminders']} things: {held}. "
            f"After a cut p95 {within}, wanted {WANTED:g} s."
        )


def _places(log: Sequence[Message], kind: str) -> dict[str, list[int]]:
    """Where each mark stands that messages of a kind hold."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in log:
        if message.kind == kind:
            found[message.text.rstrip(".").rpartition(" ")[2]].append(message.seq)
    return found


def _figures(taken: Sequence[float]) -> list[str]:
    if not taken:
        return ["0", "", "", ""]
    return [str(len(taken)), *(f"{each:.2f} s" for each in (statistics.median(taken), _p95(taken), max(taken)))]


def _p95(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100, method="inclusive")[94] if len(taken) > 1 else taken[0]
