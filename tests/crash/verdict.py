"""What must hold when all is over, and the table that says so.

- **Nothing is lost.** Each follow-up is on the table once, and is `fired` with all of it seen by its person; or `failed`,
  after the provider really refused it for good; or `uncertain`. The same goes for the answers to customers. (A short run
  does not wait for a provider to be asked for what was lost: that waits, named so, and counts as uncertain.) What a
  customer asked for may have been refused, and was not lost when they have read so: its time may be past by then.
- **Nothing is seen twice.** Each piece of each follow-up, and each answer, is seen once at most, at its person's side, by
  its person alone. A long follow-up holds several pieces, so that its parts are told apart.
- **Uncertain has a cause.** A provider did something with this very send that nobody can decide; or, between `sending`
  and `uncertain`, its worker was killed, the database was restarted, or the provider's connections were cut. So there are
  no more of them than sends that were hit. Each is counted once, the provider's own doing first.
- **Order.** In each conversation, of two follow-ups booked for different times the earlier is seen first, whoever was
  killed in between; unless the earlier was put off (a retry, or its second dead worker) or `uncertain`, was booked after
  the later one was claimed to be said, or was still not written when the later one was claimed PATIENCE after the earlier
  one was due. Of these last it is printed how many there were.
- **Every story is whole.** Each `claimed` is followed by one event that leaves the claim, under the same fence, or by
  `recovered`; the last event agrees with the state. No task is left active and no lane held.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.claim import PATIENCE
from tests.crash.fire import Evidence, Fire, Harm, pieces_of
from tests.crash.plan import CHANNELS, UNDECIDABLE, Fault, FollowUp, Plan
from tests.crash.providers import Seen, Telegram, Twilio

REFUSALS = ("nothing was booked", "I could not answer just now")
"""What is told to a customer whose request came to nothing."""
LEAVES = ("written", "returned", "fired", "failed", "uncertain", "cancelled", "expired")
"""What ends a claim by its own worker's word."""
AFTER_THE_END = {"retried": "scheduled", "resumed": "scheduled", "discarded": "cancelled"}
ONE_MOMENT = 5.0
"""Seconds: an event bears the time at which its transaction began, and is seen once that is committed, which takes a while
on a busy machine."""

What = tuple[bool, str]
"""A piece, and whether it was named in an answer rather than said as a follow-up."""


@dataclass(frozen=True)
class Sighting:
    """A piece at a person's side; `place` grows with each message of the channel."""

    address: str
    at: float
    place: int


async def burn(plan: Plan, directory: Path) -> "Verdict":
    """Run a plan, with all it writes in a directory, and judge it."""
    fire = Fire(plan, directory)
    return Verdict(plan, await fire.burn(), fire.twilio, fire.telegram)


def is_answer(words: str) -> bool:
    """Tell whether somebody is told that they will be reminded, by the model or for want of it, rather than reminded."""
    return "remind you" in words or words.startswith("Booked: ")


class Verdict:
    """One run's evidence, judged."""

    def __init__(self, plan: Plan, evidence: Evidence, twilio: Twilio, telegram: Telegram) -> None:
        self.plan, self.evidence = plan, evidence
        self.broken: list[tuple[int | None, str]] = [(None, problem) for problem in evidence.problems]
        """What does not hold: the task, and what is wrong with it."""
        self.counts: dict[str, Counter[str]] = {channel: Counter() for channel in CHANNELS}
        self.late: dict[str, list[float]] = {channel: [] for channel in CHANNELS}
        self.causes: Counter[str] = Counter()
        self.pairs, self.passed, self.answers = 0, 0, 0
        self.stories: dict[int, list[Any]] = defaultdict(list)
        for event in evidence.events:
            self.stories[event.task].append(event)
        bubbles = [Seen(str(row.conversation), row.text, row.at.timestamp()) for row in evidence.bubbles]
        self.seen: dict[What, list[Sighting]] = defaultdict(list)
        for log in (bubbles, telegram.seen(), twilio.seen()):
            for place, seen in enumerate(log):
                for piece in pieces_of(seen.text):
                    self.seen[is_answer(seen.text), piece].append(Sighting(seen.address, seen.at, place))
        logs = (*bubbles, *telegram.seen(), *twilio.seen())
        self.refused = {seen.address for seen in logs if any(words in seen.text for words in REFUSALS)}
        """Who was told that something could not be booked."""
        self.met: dict[What, set[Fault]] = defaultdict(set)
        for words, fault in (*twilio.met(), *telegram.met()):
            for piece in pieces_of(words):
                self.met[is_answer(words), piece].add(fault)
        self._judge()

    def _judge(self) -> None:
        tasks: dict[str, list[Any]] = defaultdict(list)
        answering: dict[int, list[FollowUp]] = defaultdict(list)
        for task in self.evidence.tasks:
            if task.kind == "followup":
                tasks[next(iter(pieces_of(task.payload["about"])), "")].append(task)
        spoken: dict[int, list[tuple[FollowUp, Any]]] = defaultdict(list)
        for followup in self.plan.booked:
            self.counts[followup.channel]["booked"] += 1
            found = tasks[followup.pieces[0]]
            if not found and self.evidence.addresses[followup.conversation] in self.refused:
                self.counts[followup.channel]["refused"] += 1
                continue
            if len(found) != 1:
                self._break(None, f"{followup.pieces[0]} ({followup.channel}) is booked {len(found)} times")
                self.counts[followup.channel]["lost"] += not found
                continue
            (task,) = found
            if task.parent is not None:
                answering[task.parent].append(followup)
            self._judge_followup(followup, task)
            spoken[followup.conversation].append((followup, task))
        for task in self.evidence.tasks:
            if task.kind == "turn":
                self._judge_answer(task, answering[task.id])
            if wrong := flaw(self.stories[task.id], task.state):
                self._break(task.id, f"its story is not whole: {wrong}")
        for said in spoken.values():
            self._judge_order(said)
        if self.evidence.lanes_held:
            self._break(None, f"{self.evidence.lanes_held} lanes are still held")

    def _judge_followup(self, followup: FollowUp, task: Any) -> None:
        counts = self.counts[followup.channel]
        what = [(False, piece) for piece in followup.pieces]
        is_whole = self._look(followup, task, what)
        counts["seen"] += is_whole
        counts["failed"] += task.state == "failed"
        counts["uncertain"] += self._is_uncertain(task)
        if task.state == "fired":
            self.late[followup.channel].append(
                self.seen[what[0]][0].at - task.booked_for.timestamp() if is_whole else 0
            )
        if not self._is_accounted_for(task, what, is_whole=is_whole):
            counts["lost"] += 1

    def _judge_answer(self, task: Any, asked_for: list[FollowUp]) -> None:
        what = [(True, piece) for followup in asked_for for piece in followup.pieces]
        if what:
            self.answers += 1
            is_whole = self._look(asked_for[0], task, what)
            self._is_accounted_for(task, what, is_whole=is_whole)
        elif task.state not in ("fired", "failed", "uncertain"):
            self._break(task.id, f"it is left {task.state}")

    def _look(self, followup: FollowUp, task: Any, what: list[What]) -> bool:
        """Count what was seen twice, or by somebody else; tell whether all of it was seen."""
        for one in what:
            if len(self.seen[one]) > 1:
                self.counts[followup.channel]["doubles"] += 1
                self._break(task.id, f"{one[1]} was seen {len(self.seen[one])} times")
            for sighting in self.seen[one]:
                if sighting.address != self.evidence.addresses[followup.conversation]:
                    self._break(task.id, f"{one[1]} was seen by somebody else")
        return all(self.seen[one] for one in what)

    def _is_accounted_for(self, task: Any, what: list[What], *, is_whole: bool) -> bool:
        if task.state == "fired" and task.outcome == "delivered" and is_whole:
            return True
        if task.kind == "turn" and task.outcome == "skipped: nothing left to answer":
            return True  # while this one was dead another turn has answered, and is judged for it
        met = {fault for one in what for fault in self.met[one]}
        if task.state == "failed" and "refused for good" in met:
            return True
        if self._is_uncertain(task):
            cause = self._cause(task, met)
            self.causes[cause] += 1
            if cause == "nothing":
                self._break(task.id, "it is uncertain, and nothing had hit its send")
            return True
        seen = "seen" if is_whole else "not seen, or not all of it"
        self._break(task.id, f"it is {task.state} ({task.outcome or task.error or task.hold}) and was {seen}")
        return False

    def _is_uncertain(self, task: Any) -> bool:
        """Tell whether nobody knows, or nobody knows yet, whether it went out."""
        is_waiting = task.state == "scheduled" and task.sending and not self.plan.waits_for_word
        return task.state == "uncertain" or is_waiting

    def _cause(self, task: Any, met: set[Fault]) -> str:
        """Return what made a task uncertain."""
        if met.intersection(UNDECIDABLE):
            return "provider"
        sent = worker = None
        for event in self.stories[task.id]:
            if event.event == "claimed":
                claimed = event.detail
            elif event.event == "sending":
                sent, worker = event.at.timestamp(), claimed
        if sent is None:
            return "nothing"
        settled = self.stories[task.id][-1].at.timestamp()
        harms = [harm for harm in self.evidence.harms if harm.begin <= settled and harm.end >= sent]
        for harm in sorted(harms, key=lambda one: ("kill", "restart", "outage").index(one.kind)):
            if self._hits(harm, task.channel, str(worker)):
                return harm.kind
        return "nothing"

    def _hits(self, harm: Harm, channel: str, worker: str) -> bool:
        if harm.kind == "kill":
            return worker.split("/")[-2:-1] == [harm.of]
        return harm.kind == "restart" or harm.of == channel

    def _judge_order(self, said: list[tuple[FollowUp, Any]]) -> None:
        said = [(followup, task) for followup, task in said if self.seen[False, followup.pieces[0]]]
        for earlier, elder in said:
            gone_back = {event.event for event in self.stories[elder.id]} & {"returned", "uncertain", "resumed"}
            if gone_back or elder.due_at != elder.booked_for or elder.booked_for <= elder.created_at:
                continue
            for later, task in said:
                if elder.booked_for >= task.booked_for:
                    continue
                self.pairs += 1
                first, second = self.seen[False, earlier.pieces[0]][0], self.seen[False, later.pieces[0]][0]
                if first.place > second.place:
                    self._judge_pair(elder, task, second.at)

    def _judge_pair(self, elder: Any, task: Any, seen: float) -> None:
        claimed = [event.at for event in self.stories[task.id] if event.event == "claimed"]
        to_say = max((at for at in claimed if at.timestamp() <= seen), default=claimed[0])
        written = next((event.at for event in self.stories[elder.id] if event.event == "written"), None)
        if elder.created_at > to_say:
            return
        was_unwritten = written is None or (to_say - written).total_seconds() < ONE_MOMENT
        if to_say - elder.due_at >= PATIENCE and was_unwritten:
            self.passed += 1
            return
        self._break(elder.id, f"it was booked for {elder.booked_for:%H:%M:%S.%f}, and this was seen before it:")
        self._break(task.id, f"it was booked for {task.booked_for:%H:%M:%S.%f}")

    def _break(self, task: int | None, words: str) -> None:
        self.broken.append((task, words))

    # What is printed

    def table(self) -> Iterator[str]:
        """The table, line by line."""
        kinds = Counter(harm.kind for harm in self.evidence.harms)
        yield "| channel | booked | seen | doubles | lost | uncertain | failed | kills | restarts | late p50 / p99 / max (s) |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        columns = ("booked", "seen", "doubles", "lost", "uncertain", "failed")
        for channel in CHANNELS:
            counts = (str(self.counts[channel][column]) for column in columns)
            yield f"| {channel} | {' | '.join(counts)} | | | {_cuts(self.late[channel])} |"
        sums = (str(sum(counts[column] for counts in self.counts.values())) for column in columns)
        late = [one for each in self.late.values() for one in each]
        yield f"| all | {' | '.join(sums)} | {kinds['kill']} | {kinds['restart']} | {_cuts(late)} |"

    def notes(self) -> Iterator[str]:
        """What else README may say of the run."""
        plan = self.plan
        yield (
            f"{plan.followups} follow-ups over {plan.conversations} conversations, due within {plan.seconds:g} s, "
            f"{plan.workers} workers, seed {plan.seed}; all was over after {self.evidence.seconds:.0f} s."
        )
        modes = [harm.of for harm in self.evidence.harms if harm.kind == "restart"]
        yield f"The database was restarted {', '.join(modes) or 'never'}."
        causes = ", ".join(f"{count} by {cause}" for cause, count in sorted(self.causes.items()))
        yield f"Uncertain, answers to customers included: {causes or 'none'}."
        refused = sum(counts["refused"] for counts in self.counts.values())
        yield f"Refused, and the customer told so: {refused}."
        yield f"{self.answers} answers were judged as well. Of {self.pairs} pairs {self.passed} went by an elder not yet written."

    def complaints(self, most: int = 5) -> Iterator[str]:
        """What does not hold, and the stories of the first tasks concerned."""
        yield f"{len(self.broken)} things do not hold:"
        for task, words in self.broken[:most]:
            yield f"- {words}" if task is None else f"- task {task}: {words}"
            for event in self.stories.get(task or 0, ()):
                yield f"    {event.at:%H:%M:%S.%f} {event.event} (fence {event.fence}) {event.detail or ''}"


def flaw(story: Sequence[Any], state: str) -> str | None:
    """Return what is wrong with a task's story, or None."""
    now, fence = "", 0
    for event in story:
        match now, event.event:
            case "", "booked":
                now = "scheduled"
            case "scheduled", "claimed" if event.fence == fence + 1:
                now, fence = "firing", event.fence
            case "firing", "sending" if event.fence == fence:
                pass
            case "firing", left if left in LEAVES and event.fence == fence:
                now = "scheduled" if left in ("written", "returned") else left
            case "firing", "recovered" if event.fence == fence + 1:
                now, fence = "scheduled", event.fence
            case "scheduled", "released" | "resumed":
                pass
            case (("failed" | "uncertain"), moved) if moved in AFTER_THE_END:
                now = AFTER_THE_END[moved]
            case "uncertain", "settled":
                now = state
            case _:
                return f"{event.event} with fence {event.fence} when it was {now or 'not booked'} with fence {fence}"
    return None if now == state else f"it ends as {now or 'not booked'}, and the task is {state}"


def _cuts(late: Sequence[float]) -> str:
    if len(late) < 2:
        return "–"
    cuts = statistics.quantiles(late, n=100, method="inclusive")
    return f"{statistics.median(late):.2f} / {cuts[98]:.2f} / {max(late):.2f}"
