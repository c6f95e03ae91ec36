"""What must hold when a schedule is over, judged by what the providers took and by what the database says.

- **Nothing is seen twice.** No part of anything is at its person's side twice, unless nobody could know: Telegram, where
  the tenant wants it at least once; WhatsApp, where Twilio's list did not show it at either look and no callback had come, or
  one had said that it failed. What Twilio says has arrived, has.
- **Nothing is lost.** Each task is `fired` with every part taken; `failed` after a refusal or a failure that the provider
  told, or twenty sends that certainly did not go out; `uncertain`; or held, for a reason that it had. Each message of a
  customer is answered by one of these.
- **Uncertain is what nobody knows.** A task is `uncertain` if and only if the last attempt at one of its parts, none of
  which is known to have arrived, is `unknown`, and no delivery is `unknown` whose fate could be known at once.
- **Order.** Of two things said in one conversation the one that was due first is seen first, unless it was put off. The
  parts of one thing are seen in order, unless one of them was sent again after it had been accepted.
- **A delivery's outcome is the truth**: what the provider did with that very attempt, as far as it could be known.
- Whatever was sent once is never written again, is in the conversation's log once, and nobody is left in the lane.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from channels.whatsapp.window import is_open
from tests.faults.plan import TENANT_REFUSED, TOO_LATE_CODE, Schedule
from tests.faults.trial import Attempt, Evidence

SENDS, ASKS, ATTEMPTS = 20, 12, 5
"""What is promised: sends that certainly did not go out, questions that nobody answered, attempts that nobody knows of."""
PASSES = {TOO_LATE_CODE: 99, 63018: 4, 63012: 1}
"""How often a message that failed so is sent again; what is too late waits for the customer, or goes by template."""
PUT_OFF = {"returned", "uncertain", "resumed", "reopened", "released", "recovered", "failed"}
OUTCOMES = {"Accepted": "accepted", "Rejected": "rejected", "NotSent": "not_sent", "Unknown": "unknown"}


class Verdict:
    """One schedule's evidence, judged."""

    def __init__(self, schedule: Schedule, evidence: Evidence) -> None:
        self.schedule, self.evidence = schedule, evidence
        self.broken: list[str] = list(evidence.problems)
        """What does not hold."""
        self.counts: dict[str, Counter[str]] = {"telegram": Counter(), "whatsapp": Counter()}
        self.met: Counter[tuple[str, str]] = Counter((one.network, one.fault) for one in evidence.attempts)
        self.attempts = {one.delivery: one for one in evidence.attempts}
        self.deliveries: dict[int, list[Any]] = defaultdict(list)
        for row in evidence.deliveries:
            self.deliveries[row.task].append(row)
        self.stories: dict[int, list[Any]] = defaultdict(list)
        for event in evidence.events:
            self.stories[event.task].append(event)
        self.seen_first: dict[int, int] = {}
        """Where the first part of each task stands among all that people got."""
        self._judge()

    def _judge(self) -> None:
        for row in self.evidence.deliveries:
            self._judge_delivery(row)
        for task in self.evidence.tasks:
            self._judge_seen(task)
            self._judge_state(task)
            self._judge_log(task)
            self._judge_parts_order(task)
        self._judge_order()
        for row in self.evidence.conversations:
            if row.lane_task is not None:
                self._break(f"conversation {row.id} is left in the lane of task {row.lane_task}")
            self._judge_answers(row)

    # Of one attempt

    def _judge_delivery(self, row: Any) -> None:
        attempt = self.attempts.get(row.id)
        if attempt is None:
            if row.outcome not in ("unknown", "not_sent"):  # it was cut off before it was sent
                self._break(f"delivery {row.id} was never sent, and is {row.outcome}")
            return
        told = attempt.outcome and OUTCOMES[type(attempt.outcome).__name__]
        known = attempt.known
        if told is not None and not attempt.is_cut and told != known:
            self._break(f"delivery {row.id} met {attempt.fault!r}, and the channel made {told} of that")
        allowed = {known} if known != "unknown" else set(self._may_become(row, attempt))
        if attempt.proved_at is not None:
            allowed = {"accepted"}
        elif attempt.told or attempt.has_failed:
            allowed |= {"rejected"} if self._was_failed(attempt) else set()
        if self._has_arrived(row.task, row.part):
            allowed |= {"unknown"}  # nobody looks for another attempt at what has arrived
        if row.outcome not in allowed:
            self._break(
                f"delivery {row.id} is {row.outcome}, met {attempt.fault!r}, and should be {sorted(map(str, allowed))}"
            )
        if row.provider_id is not None and row.provider_id != attempt.provider_id:
            self._break(
                f"delivery {row.id} bears the id of another message: {row.provider_id}, not {attempt.provider_id}"
            )
        if row.outcome == "accepted" and row.provider_id is None:
            self._break(f"delivery {row.id} is accepted under no id")

    def _may_become(self, row: Any, attempt: Attempt) -> Iterator[str]:
        """What may be made of an attempt of which nobody knew at first."""
        is_taken, wants = attempt.is_taken, self.schedule.unknown[attempt.network]
        if attempt.is_cut and attempt.outcome is not None:
            yield OUTCOMES[type(attempt.outcome).__name__]  # it may have been committed all the same
        if attempt.network == "telegram":
            yield "unknown" if wants == "at_most_once" or row.attempt >= ATTEMPTS else "not_sent"
            return
        if is_taken:
            yield "accepted"
            if attempt.told:
                return  # a callback has settled it
        if not is_taken or attempt.is_looked_for_in_vain:
            if wants == "at_least_once" and row.attempt < ATTEMPTS and row.not_found == 2:
                yield "not_sent"
            elif row.not_found == 2:
                yield "unknown"
        if row.asked - row.not_found >= ASKS:
            yield "unknown"

    def _was_failed(self, attempt: Attempt) -> bool:
        return any(report.code for report in attempt.told) or attempt.has_failed

    # Of one task

    def _has_arrived(self, task: int, part: int) -> bool:
        return any(row.part == part and row.outcome == "accepted" for row in self.deliveries[task])

    def _parts(self, task: Any) -> int:
        rows = self.deliveries[task.id]
        if any(row.template and row.part == 0 for row in rows) or task.text is None:
            return 1
        marks = [self.attempts[row.id].mark for row in rows if row.id in self.attempts]
        return self.schedule.parts.get(marks[0], 1) if marks else 1

    def _tries(self, task: Any, part: int) -> list[Attempt]:
        rows = (row for row in self.deliveries[task.id] if row.part == part)
        return [self.attempts[row.id] for row in rows if row.id in self.attempts]

    def _judge_seen(self, task: Any) -> None:
        counts = self.counts[task.channel]
        counts["messages"] += 1
        counts["sends"] += len(self.deliveries[task.id])
        parts = {row.part for row in self.deliveries[task.id]}
        for part in sorted(parts):
            seen = [one for one in self._tries(task, part) if one.is_seen]
            counts["seen"] += bool(seen)
            if len(seen) < 2:
                continue
            could_know = [one for one, after in pairwise(seen) if self._could_be_known(one, after)]
            counts["twice, known" if could_know else "twice, unknowable"] += 1
            for one in could_know:
                self._break(
                    f"part {part} of task {task.id} ({one.mark}) was seen {len(seen)} times; delivery {one.delivery} could be known"
                )
        first = [one.place for one in self._tries(task, 0) if one.place is not None]
        if first:
            self.seen_first[task.id] = min(first)

    def _could_be_known(self, one: Attempt, after: Attempt) -> bool:
        """Tell whether it was, or could have been, known that this arrived before it was sent again."""
        if one.failed_at is not None and (one.proved_at is None or after.at < one.proved_at):
            return False  # the provider had said that it did not
        if one.known != "unknown" or self.schedule.unknown[one.network] == "at_most_once":
            return True
        return one.network == "whatsapp" and not one.is_looked_for_in_vain

    def _judge_state(self, task: Any) -> None:
        counts, rows = self.counts[task.channel], self.deliveries[task.id]
        last = {row.part: row for row in rows}
        outcomes = {row.outcome for row in last.values() if not self._has_arrived(task.id, row.part)}
        name = f"task {task.id} ({task.kind})"
        counts[task.state if task.hold is None else "held"] += 1
        if (task.state == "uncertain") != ("unknown" in outcomes or None in outcomes):
            self._break(f"{name} is {task.state}, and its deliveries are {[row.outcome for row in rows]}")
        match task.state:
            case "fired" if task.outcome == "delivered":
                for part in range(self._parts(task)):
                    accepted = [row for row in rows if row.part == part and row.outcome == "accepted"]
                    if not accepted:
                        self._lost(task, f"{name} is fired, and its part {part} was not accepted")
                    elif not any(one.is_taken for one in self._tries(task, part)):
                        self._lost(task, f"{name} is fired, and its part {part} was not taken")
            case "fired":
                if task.outcome == "skipped: blocked":
                    if not any(row.reason and "blocked" in row.reason for of in self.deliveries.values() for row in of):
                        self._lost(task, f"{name} is {task.outcome}, and nobody has blocked the sender")
                elif task.outcome != "skipped: nothing left to answer":
                    self._lost(task, f"{name} is {task.outcome}")
            case "failed":
                not_sent = sum(row.outcome == "not_sent" for row in rows)
                if not any(row.outcome == "rejected" for row in last.values()) and not_sent < SENDS:
                    self._lost(task, f"{name} is failed ({task.error}), and nobody has refused it")
                self._judge_given_up(name, rows, last)
            case "uncertain":
                pass
            case "scheduled" if task.hold is not None:
                self._judge_hold(task, name)
            case _:
                self._lost(task, f"{name} is left {task.state}")

    def _judge_given_up(self, name: str, rows: Sequence[Any], last: dict[int, Any]) -> None:
        """A failure that will pass, as the provider says, is not the end before it was tried again."""
        refused = [row for row in last.values() if row.outcome == "rejected"]
        for row in refused:
            tries = sum(one.part == row.part and one.code == row.code for one in rows)
            most = 0 if row.template and row.code == TOO_LATE_CODE else PASSES.get(row.code, 0)
            if tries > most or row.id not in self.attempts or not self.attempts[row.id].is_taken:
                return  # this one was reason enough
        for row in refused:
            self._break(f"{name} is failed, though {row.code} passes and part {row.part} could be sent again")

    def _judge_hold(self, task: Any, name: str) -> None:
        tries = [self.attempts[row.id] for row in self.deliveries[task.id] if row.id in self.attempts]
        if task.hold == "channel paused":
            if not any(one.fault == TENANT_REFUSED for one in tries):
                self._lost(task, f"{name} is held as channel paused, and nobody has refused the tenant")
            return
        refused = any(
            row.code == TOO_LATE_CODE for row in self.evidence.deliveries if row.conversation == task.conversation
        )
        conversation = next(row for row in self.evidence.conversations if row.id == task.conversation)
        last = self.stories[task.id][-1].at
        if task.channel != "whatsapp" or not (
            refused or not is_open(conversation.last_inbound_at, last + timedelta(minutes=1))
        ):
            self._lost(task, f"{name} is held as {task.hold}, and the window is open")

    def _judge_log(self, task: Any) -> None:
        written = [row for row in self.evidence.messages if row.task == task.id]
        must = task.state == "uncertain" or (task.state == "fired" and task.outcome == "delivered")
        if len(written) > 1 or (must and not written):
            self._break(f"task {task.id} ({task.state}) stands {len(written)} times in the conversation")

    def _judge_parts_order(self, task: Any) -> None:
        places = []
        for part in range(self._parts(task)):
            tries = self._tries(task, part)
            if sum(one.is_taken for one in tries) > 1:
                return  # one was sent again, after it had failed or been lost
            places += [one.place for one in tries if one.place is not None]
        if places != sorted(places):
            self._break(f"the parts of task {task.id} were seen out of order")

    def _judge_order(self) -> None:
        for elder in self.evidence.tasks:
            if elder.id not in self.seen_first or {event.event for event in self.stories[elder.id]} & PUT_OFF:
                continue
            for task in self.evidence.tasks:
                if task.conversation != elder.conversation or task.id not in self.seen_first:
                    continue
                if elder.booked_for >= task.booked_for or elder.kind != task.kind:
                    continue
                if self.seen_first[task.id] < self.seen_first[elder.id]:
                    self._break(
                        f"task {task.id} was seen before task {elder.id}, which was due first and never put off"
                    )

    def _judge_answers(self, row: Any) -> None:
        asked = [
            message
            for message in self.evidence.messages
            if message.conversation == row.id and message.role == "customer"
        ]
        if asked and row.answered_seq < asked[-1].seq:
            self._break(f"conversation {row.id}: message {asked[-1].seq} is not answered (up to {row.answered_seq})")

    def _lost(self, task: Any, words: str) -> None:
        self.counts[task.channel]["lost"] += 1
        self._break(words)

    def _break(self, words: str) -> None:
        self.broken.append(words)

    def complaint(self) -> str:
        """What does not hold, and the whole story."""
        tasks = [
            f"task {task.id} {task.kind} in {task.conversation}: {task.state} {task.outcome or task.hold or ''} {task.error or ''}"
            for task in self.evidence.tasks
        ]
        rows = [
            f"delivery {row.id} of task {row.task}, part {row.part}, attempt {row.attempt}: {row.outcome} {row.provider_status or ''}"
            f" {row.code or ''} (asked {row.asked}, not found {row.not_found}) {row.reason or ''}"
            for row in self.evidence.deliveries
        ]
        plan = (
            f"unknown: {self.schedule.unknown}, templates: {self.schedule.templates}, outages: {self.schedule.outages}"
        )
        head = f"Seed {self.schedule.seed} ({plan})"
        return "\n".join((head, *(f"  !! {one}" for one in self.broken), *self.evidence.story, *tasks, *rows))
