"""`schedule_followup`: one committed row, and what to tell the customer."""

import hashlib
import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_ai import ModelRetry, RunContext

from agent.context import PENDING_LIMIT, PROMPT, TurnContext, Voice
from agent.language import fold
from agent.offline_request import read
from agent.prompt import defang
from scheduler.book import Booked, Booking, book
from scheduler.errors import BadTime, KeyReused
from scheduler.find import Found, each_once, pending_followups
from scheduler.when import duration, local_instant

ABOUT_LIMIT = 2000
SAME_TIME = timedelta(minutes=1)
"""Two attempts at one turn compute an instant a little apart."""
MOST_LINES = 20
_ANY_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time; delays are read without it


async def schedule_followup(
    ctx: RunContext[TurnContext], about: str, delay: str | None = None, at: str | None = None
) -> dict[str, Any]:
    """Book a message or a piece of work for later in this conversation; the result is sent here by itself.

    Args:
        about: What to remind of or to do, complete enough to be understood later without the conversation.
        delay: Elapsed time from now, such as "10 seconds", "2 hours", "1h30m", "3 days", "6 weeks".
        at: Local date and time in the customer's time zone, such as "2026-12-01 09:30".
            Give either delay or at. Give neither for work that should start now in the background.
    """
    context = ctx.deps
    context.has_tried = True
    about = bare(about)
    if delay and at:
        raise ModelRetry("give either delay or at, not both")
    when = " ".join((delay or at or "now").lower().split())
    try:
        due, problem = _due(context, delay, at), None
    except ModelRetry as refused:
        due, problem = None, refused
    before = _met_before(context, when, about, due)  # looked for first: its time may be past by now
    if before is not None:
        booked, about = (
            Booked(before.id, before.booked_for, replay=True, state=before.state),
            str(before.payload.get("about")),
        )
    elif due is None:
        raise problem or ModelRetry("Nothing was booked.")
    else:
        booked = await _book(context, about, when, due)
    if booked.state == "cancelled":
        raise ModelRetry(
            "this very answer has booked that and cancelled it again, so nothing is booked: if the customer wants it after"
            " all, book it in other words"
        )
    context.booked.append(booked)
    context.on_booked()
    return _answer(context, booked, about)


def bare(about: str) -> str:
    """Return what a follow-up is about as it is kept, on one line. Raises ModelRetry for what cannot be."""
    about = " ".join(defang(about).replace("\x00", "").split())
    if not about:
        raise ModelRetry("about is empty: say what the follow-up is about")
    if len(about) > ABOUT_LIMIT:
        raise ModelRetry(f"about is longer than {ABOUT_LIMIT} characters: shorten it")
    return about


def _due(context: TurnContext, delay: str | None, at: str | None) -> datetime | timedelta:
    voice = context.voice
    try:
        if at:
            due: datetime | timedelta = local_instant(at, voice.zone, voice.now)
        else:
            length = duration(delay) if delay else timedelta()
            due = max(length - _lateness(context, length), timedelta()) if delay else timedelta()
    except BadTime as problem:
        raise ModelRetry(f"{problem}. Nothing was booked.") from problem
    is_possible, advice = context.assess(due if isinstance(due, datetime) else voice.now + due)
    if not is_possible:
        raise ModelRetry(f"{advice} Nothing was booked.")
    return due


def _lateness(context: TurnContext, delay: timedelta) -> timedelta:
    """Return what a delay has lost already, when the turn comes long after the message it answers.

    A few seconds of thinking are not counted: "in ten seconds" is said, and heard, with the answer. Of several messages
    the one counts in which our own rules read that very delay, or else the last.
    """
    if context.voice.now - context.asked[0].at <= PROMPT:
        return timedelta()
    asked = next((message for message in reversed(context.asked) if _asks_for(message.text, delay)), context.asked[-1])
    late = context.voice.now - asked.at
    return late if late > PROMPT else timedelta()


def _asks_for(text: str, delay: timedelta) -> bool:
    for line in text.splitlines()[:MOST_LINES]:
        request = read(line, "en", _ANY_TIME)
        try:
            if request.delay and duration(request.delay) == delay:
                return True
        except BadTime:
            continue
    return False


async def _book(context: TurnContext, about: str, when: str, due: datetime | timedelta) -> Booked:
    voice = context.voice
    same = hashlib.sha256(f"{when}\n{about.casefold()}".encode()).hexdigest()[:24]
    async with context.database.transaction() as connection:
        await context.hold(connection)
        pending = each_once(await pending_followups(connection, voice.tenant, voice.conversation))
        try:
            booked = await book(
                connection,
                context.clock,
                Booking(
                    tenant=voice.tenant,
                    kind="followup",
                    due=due,
                    conversation=voice.conversation,
                    channel=voice.channel,
                    payload={"about": about, "language": voice.language, "when": when, "is_work": when == "now"},
                    reply_to=context.reply_to,
                    parent=context.turn,
                    idempotency_key=f"turn:{context.turn}:{same}",
                ),
            )
        except KeyReused as problem:
            raise ModelRetry(
                "this very answer has booked that already, worded almost the same: it is not booked a second time"
            ) from problem
        if len(pending) >= PENDING_LIMIT and not booked.replay:
            raise ModelRetry(
                f"{PENDING_LIMIT} follow-ups are pending in this conversation, the most there may be. Nothing was booked:"
                " offer to cancel one."
            )
    return booked


def _met_before(context: TurnContext, when: str, about: str, due: datetime | timedelta | None) -> Found | None:
    """Return what answering these very messages has booked before and this call means again: the same thing at the same time.

    Raises ModelRetry, once for each call, where only one of the two is the same: the model may mean that one in other words,
    or something else that is still to be booked.
    """
    before = [found for found in context.booked_before if found.kind == "followup"]
    at_that_time = [found for found in before if _is_same_time(context, found, when, due)]
    so_called = [found for found in before if is_same(str(found.payload.get("about")), about)]
    for found in at_that_time:
        if found in so_called:
            context.booked_before.remove(found)
            return found
    near = [*at_that_time, *so_called]
    if near and (when, about) not in context.doubted:
        context.doubted.add((when, about))
        known = "; ".join(
            f"{found.payload.get('about')!r} at {local_time(found.booked_for, context.voice)[0]}" for found in near
        )
        raise ModelRetry(
            f"Answering these very messages has booked already: {known}. If you mean that, call again with exactly its words"
            " and its time. If you mean something else, call again just as you did, and it is booked too."
        )
    return None


def _is_same_time(context: TurnContext, found: Found, when: str, due: datetime | timedelta | None) -> bool:
    theirs = str(found.payload.get("when"))
    if theirs == when or "now" in (theirs, when):
        return theirs == when
    try:
        if duration(theirs) == duration(when):
            return True
    except BadTime:
        pass  # one of them is a date
    if due is None:
        return False
    instant = due if isinstance(due, datetime) else context.voice.now + due
    return abs(found.booked_for - instant) < SAME_TIME


def is_same(about: str, other: str) -> bool:
    """Tell whether two follow-ups are about the same, but for case, accents and what stands between the words."""
    return re.findall(r"\w+", fold(about)) == re.findall(r"\w+", fold(other))


def local_time(at: datetime, voice: Voice, zone: ZoneInfo | None = None) -> tuple[str, str]:
    """Return an instant as the customer reads it, and the zone, theirs or the given one; with seconds where they matter."""
    is_near, zone = at - voice.now < timedelta(minutes=2), zone or voice.zone
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S" if is_near else "%Y-%m-%d %H:%M"), zone.key


_STATUS = {"scheduled": "booked", "firing": "booked", "fired": "already said in this conversation"}


def _answer(context: TurnContext, booked: Booked, about: str) -> dict[str, Any]:
    at, zone = local_time(booked.due_at, context.voice)
    _, advice = context.assess(booked.due_at)
    return {
        "booked": True,
        "id": booked.id,
        "local_time": at,
        "time_zone": zone,
        "about": about,
        "replay": booked.replay,
        "status": _STATUS.get(booked.state, booked.state),
        **({"how": advice} if advice else {}),
    }
