"""`schedule_recurring`: one committed row that comes again, and what to tell the customer.

A fixed time of day is five fields of cron, read here in the customer's zone; what only counts elapsed time is an interval.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from sqlalchemy.ext.asyncio import AsyncConnection

from agent.context import PENDING_LIMIT, TurnContext
from agent.rhythm import how_often
from agent.tools.schedule_followup import bare, is_same, local_time
from scheduler import operate, schedules
from scheduler.book import Booked
from scheduler.cancel import cancel_followup
from scheduler.errors import BadSchedule
from scheduler.find import Found, each_once, pending_followups, whole
from scheduler.recurrence import ByCron, Recurrence, by_cron, slots_until
from scheduler.recurrence import every as every_so_often
from scheduler.when import LONGEST_LEAD

SHORTEST = timedelta(minutes=1)
EXPIRES_AFTER = timedelta(hours=2)
"""How late one of them is still said."""
SHOWN = 3
"""Coming times that are told."""
_NOTHING = "Nothing was booked."


@dataclass(frozen=True, slots=True)
class _End:
    """When it comes no more."""

    until: date | None = None
    """In the customer's zone; the last day included."""
    at: datetime | None = None
    """The instant (UTC) at which that day is over."""
    times: int | None = None

    def cut(self, times: Sequence[datetime]) -> list[datetime]:
        """Return those of the times that still come."""
        return [at for at in times if self.at is None or at < self.at][: self.times]


async def schedule_recurring(
    ctx: RunContext[TurnContext],
    about: str,
    cron: str | None = None,
    every: str | None = None,
    until: str | None = None,
    times: int | None = None,
    replaces: int | None = None,
) -> dict[str, Any]:
    """Book a message that comes again and again in this conversation, such as every Monday at 9; it is sent here by itself.

    Args:
        about: What to remind of, complete enough to be understood later without the conversation.
        cron: Five fields "minute hour day-of-month month weekday" in the customer's time zone: "0 9 * * 1" is every Monday
            at 9, "30 8 * * 1-5" every weekday at 8:30, "0 10 1 * *" the 1st of every month at 10.
        every: Elapsed time from now, such as "2 hours" or "2 weeks". Give either cron or every; for a time of day give cron.
        until: The last local date on which it comes, such as "2026-12-31". Without until and times it goes on until cancelled.
        times: How often it comes in all, at least 2. Give either until or times, not both.
        replaces: The id of something recurring booked here that this one takes the place of, as list_followups gives it.
    """
    context = ctx.deps
    context.has_tried = True
    about = bare(about)
    rule = _rule(context, cron, every, times)
    end = _end(context, until, times)
    before = _met_before(context, rule, end, about)
    if before is not None:
        booked, about = Booked(before.id, before.booked_for, replay=True, state=before.state), before.payload["about"]
    else:
        booked = await _book(context, about, rule, end, replaces)
    if booked.state == "cancelled":
        raise ModelRetry(
            "this very answer has booked that and cancelled it again, so nothing is booked: if the customer wants it after"
            " all, book it in other words"
        )
    context.booked.append(booked)
    context.on_booked()
    return _answer(context, booked, str(about), rule, end)


def _refuse(words: str) -> ModelRetry:
    return ModelRetry(f"{words.rstrip('. ')}. {_NOTHING}")


def _rule(context: TurnContext, cron: str | None, every: str | None, times: int | None) -> Recurrence:
    if not cron and not every:
        if times is not None:
            raise _refuse(
                "times alone says not how often it comes: give cron or every beside it, or book one time with schedule_followup"
            )
        raise _refuse("how often it comes is missing: give cron, five fields, or every, such as '2 hours'")
    if cron and every:
        raise _refuse("give either cron or every, not both")
    if times is not None and times < 2:
        raise _refuse(f"times is {times}, and what comes once does not recur: book it with schedule_followup")
    try:
        if cron:
            return by_cron(cron, context.voice.zone.key)
        rule = every_so_often(str(every))
    except BadSchedule as problem:
        raise _refuse(f"{'cron' if cron else 'every'}: {problem}") from problem
    if rule.interval < SHORTEST:
        raise _refuse(f"every: {every!r} is too often, it may come once a minute at most")
    return rule


def _end(context: TurnContext, until: str | None, times: int | None) -> _End:
    if not until:
        return _End(times=times)
    if times is not None:
        raise _refuse("give either until or times, not both")
    zone = context.voice.zone
    try:
        last = date.fromisoformat(until.strip())
        over = datetime.combine(last + timedelta(days=1), time(), zone).astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise _refuse(f"until: {until[:40]!r} is not a local date such as 2026-12-31") from problem
    return _End(until=last, at=over)


def _coming(rule: Recurrence, first: datetime, end: _End) -> list[datetime]:
    """Return the next times that are told."""
    return end.cut(list(islice(slots_until(rule, first, datetime.max.replace(tzinfo=UTC)), SHOWN)))


def _check(context: TurnContext, rule: Recurrence, end: _End) -> None:
    voice = context.voice
    first = rule.first(voice.now)
    if first - voice.now > LONGEST_LEAD:
        raise _refuse(f"it would come first in more than {LONGEST_LEAD.days} days, the longest that can be booked")
    coming = _coming(rule, first, end)
    if not coming:
        raise _refuse(
            f"until: it would come first at {local_time(first, voice)[0]} ({voice.zone.key}), and {end.until} is before that"
        )
    for at in coming:
        is_possible, advice = context.assess(at)
        if not is_possible:
            raise ModelRetry(f"{advice} {_NOTHING}")


async def _book(context: TurnContext, about: str, rule: Recurrence, end: _End, replaces: int | None) -> Booked:
    voice = context.voice
    same = f"{rule.text}\n{end.until}\n{end.times}\n{about.casefold()}"
    key = f"chat:{context.turn}:{hashlib.sha256(same.encode()).hexdigest()[:24]}"
    async with context.database.transaction() as connection:
        if replaces is not None:  # in the order of their numbers, as everybody locks many
            ids = await whole(connection, voice.tenant, voice.conversation, replaces)
            await operate.lock(connection, voice.tenant, context.turn, *ids)
        await context.hold(connection)
        known = (await schedules.find(connection, [key], tenant=voice.tenant)).get(key)
        if known is not None:
            return Booked(known.task, known.next_run_at or voice.now, replay=True, state=known.state)
        _check(context, rule, end)
        if replaces is not None:
            await _cancel(context, connection, replaces)
        if len(each_once(await pending_followups(connection, voice.tenant, voice.conversation))) >= PENDING_LIMIT:
            raise ModelRetry(
                f"{PENDING_LIMIT} follow-ups are pending in this conversation, the most there may be. Nothing was booked:"
                " offer to cancel one."
            )
        schedule = schedules.Schedule(
            key,
            rule,
            policy="run-once",
            tenant=voice.tenant,
            conversation=voice.conversation,
            channel=voice.channel,
            parent=context.turn,
            more={
                "about": about,
                "language": voice.language,
                "until": end.until and end.until.isoformat(),
                "ends_at": end.at and end.at.isoformat(),
                "times": end.times,
                "expires_after": EXPIRES_AFTER.total_seconds(),
            },
        )
        stored = (await schedules.register(connection, context.clock, [schedule]))[key]
    return Booked(stored.task, stored.next_run_at or voice.now, replay=False)


async def _cancel(context: TurnContext, connection: AsyncConnection, replaces: int) -> None:
    """Cancel what is replaced. What this turn booked and took back again keeps no promise."""
    voice = context.voice
    pending = await pending_followups(connection, voice.tenant, voice.conversation)
    if not any(found.id == replaces and found.kind == "schedule" for found in pending):
        raise _refuse(
            f"replaces: nothing recurring with the id {replaces} is pending in this conversation: look it up with list_followups"
        )
    done = await cancel_followup(
        connection, context.clock, voice.tenant, voice.conversation, replaces, by="the customer, who changed it"
    )
    context.booked[:] = [booked for booked in context.booked if booked.id not in done.cancelled]


def _met_before(context: TurnContext, rule: Recurrence, end: _End, about: str) -> Found | None:
    """Return what answering these very messages has booked before and this call means again.

    Raises ModelRetry, once for each call, where only its times or only its words are the same.
    """
    before = [found for found in context.booked_before if found.kind == "schedule"]
    times = (rule.text, end.until and end.until.isoformat(), end.times)
    at_those_times = [
        found for found in before if times == tuple(found.payload.get(name) for name in ("spec", "until", "times"))
    ]
    so_called = [found for found in before if is_same(str(found.payload["about"]), about)]
    for found in at_those_times:
        if found in so_called:
            context.booked_before.remove(found)
            return found
    near = [*at_those_times, *so_called]
    if near and (rule.text, about) not in context.doubted:
        context.doubted.add((rule.text, about))
        known = "; ".join(f"{found.payload['about']!r}, {found.payload['spec']}" for found in near)
        raise ModelRetry(
            f"Answering these very messages has booked already: {known}. If you mean that, call again with exactly its words"
            " and its times. If you mean something else, call again just as you did, and it is booked too."
        )
    return None


def _answer(context: TurnContext, booked: Booked, about: str, rule: Recurrence, end: _End) -> dict[str, Any]:
    voice = context.voice
    coming = _coming(rule, booked.due_at, end)
    moved = []
    if isinstance(rule, ByCron):
        moved = [at for at in coming if rule.cron.next_run(at - timedelta(microseconds=1)).is_moved]
    _, advice = context.assess(coming[-1] if coming else booked.due_at)
    return {
        "booked": True,
        "id": booked.id,
        "about": about,
        "how_often": how_often(rule.text),
        "local_times": [local_time(at, voice)[0] for at in coming],
        "time_zone": voice.zone.key,
        "until": end.until.isoformat() if end.until else None,
        "times": end.times,
        "replay": booked.replay,
        "status": "booked",
        **(
            {"clock_change": [f"{local_time(at, voice)[0]}: moved, since the clocks skip its own time" for at in moved]}
            if moved
            else {}
        ),
        **({"how": advice} if advice else {}),
    }
