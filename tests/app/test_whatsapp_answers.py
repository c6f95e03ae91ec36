"""Each answer of Twilio's, and what becomes of a follow-up that meets it: to be laid beside its list of errors.

All rows share one office. Each has a customer of its own, by whose number Twilio knows what to answer.

https://www.twilio.com/docs/api/errors
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from app.speak import PACED
from channels.whatsapp import codes
from channels.whatsapp.reconcile import LOOKS
from scheduler.clock import MovableClock
from store.database import Database
from tests.app.test_whatsapp import CUSTOMER, REMINDER, Office, an_office, book_for
from tests.support.course import AGAIN_SOON, BLOCKED, FAILED, LONG, MINUTE, NOW, PAUSED, SOON, Case, Course, runs
from tests.support.twilio_server import (
    BAD_GATEWAY,
    Accept,
    Answer,
    Behaviour,
    Drop,
    Hang,
    Message,
    Reject,
    TwilioServer,
)

one_loop = pytest.mark.asyncio(loop_scope="module")

WHOLE = "HX" + "2" * 32
SAYS_ALL = {"sid": WHOLE, "language": "en", "variables": {"1": "text"}}

# Certainly not sent.
AGAIN_IN_A_MINUTE = Course("said", (MINUTE,), 2)
AGAIN_AS_ASKED = Course("said", (timedelta(seconds=90),), 2)
AGAIN_IN_HOURS = Course("said", (timedelta(hours=4),), 2)
# Nobody knows.
LOOKED_UP_IN_VAIN = Course("said", (LOOKS[0], LOOKS[1] - LOOKS[0], SOON), 2)
LOOKED_UP_AND_FOUND = Course("said", (LOOKS[0],))
# Taken, and reported as failed each time.
ONCE = Course("failed", (MINUTE,), 2)
LATER = Course("failed", (timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8)), 5)
BY_TEMPLATE = Course("failed", (NOW,), 2)


@dataclass(frozen=True)
class Row:
    """What Twilio does, what comes of it, and words that the operator reads."""

    meets: Behaviour
    course: Course
    says: str
    fails: tuple[int | None, ...] = ()
    """The error code under which what was taken is reported as failed, if it is."""
    is_late: bool = False
    """Whether the customer's window is shut by then, so that it goes by template."""


def refused(status: int, code: int, course: Course, says: str, retry_after: float | None = None) -> Row:
    return Row(Reject(status, code, retry_after=retry_after), course, says)


def lost(meets: Behaviour, course: Course = LOOKED_UP_IN_VAIN) -> Row:
    return Row(meets, course, "Twilio")


def failed_at_once(code: int, course: Course, says: str) -> Row:
    return Row(Accept("failed", code), course, says)


def text(code: int | None, course: Course, says: str) -> Row:
    return Row(Accept(), course, says, (code,))


def template(code: int | None, course: Course, says: str) -> Row:
    return Row(Accept(), course, says, (code,), is_late=True)


# The answer to the request

ANSWERS = {
    "429, too many at a time": refused(429, 20429, AGAIN_SOON, "too many requests to Twilio at a time"),
    "429 that names a time": refused(429, 20429, AGAIN_AS_ASKED, "too many requests to Twilio at a time", 90),
    "429, the rate": refused(429, 63018, AGAIN_SOON, "too many messages from this sender, or to this customer"),
    "429, another code": refused(429, 14107, AGAIN_SOON, "too many requests to Twilio"),
    "429, the account's day": refused(429, 63038, AGAIN_IN_HOURS, "ask Twilio for a higher limit"),
    "429, the day, naming a short time": refused(429, 63038, AGAIN_IN_HOURS, "ask Twilio for a higher limit", 1),
    "the sender's queue": refused(429, 21611, AGAIN_IN_A_MINUTE, "the sender's queue at Twilio is full"),
    "the sender's queue, by 400": refused(400, 21611, AGAIN_IN_A_MINUTE, "the sender's queue at Twilio is full"),
    "401": refused(401, 20003, PAUSED, "does not accept the account SID and auth token; mend that"),
    "403": refused(403, 20003, PAUSED, "does not accept the account SID and auth token; mend that"),
    "401 in another shape": Row(Answer(401, "<html>"), PAUSED, "Twilio refused the account with HTTP 401; mend that"),
    "403 in another shape": Row(Answer(403, "<html>"), PAUSED, "Twilio refused the account with HTTP 403; mend that"),
    "bad To": refused(400, 21211, FAILED, "the customer's address is not valid"),
    "To that cannot receive": refused(400, 21614, FAILED, "the customer's address cannot receive messages"),
    "bad From": refused(400, 21212, FAILED, "the sender is not valid"),
    "From of another": refused(400, 21606, FAILED, "the sender does not belong to the Twilio account"),
    "no From": refused(400, 21603, FAILED, "the message has no sender"),
    "too long": refused(400, 21617, FAILED, "the text is too long"),
    "a variable too long": refused(400, 21658, FAILED, "a variable of the template is too long"),
    "too many media": refused(400, 21623, FAILED, "too many media"),
    "no text": refused(400, 21602, FAILED, "the message has no text"),
    "bad variables": refused(400, 21656, FAILED, "the template's variables are not valid"),
    "400, another code": refused(400, 21999, FAILED, "Twilio refused the message with HTTP 400"),
    "opted out": refused(400, 21610, BLOCKED, "the customer has opted out"),
    "region": refused(400, 21408, FAILED, "allow it in Twilio's console"),
    "404": refused(404, 20404, PAUSED, "the account SID or the API address is wrong; mend that"),
    "500": lost(Reject(500, 20500)),
    "500 though it was taken": lost(Answer(500, "{}", accepted=True), LOOKED_UP_AND_FOUND),
    "502": lost(BAD_GATEWAY),
    "503": lost(Reject(503, 20503, retry_after=1)),
    "504": lost(Answer(504, "", "text/plain")),
    "no answer": lost(Hang()),
    "no answer though it was taken": lost(Hang(accepted=True), LOOKED_UP_AND_FOUND),
    "connection closed": lost(Drop()),
    "connection closed though it was taken": lost(Drop(accepted=True), LOOKED_UP_AND_FOUND),
    "taken, without an id": lost(Accept(with_sid=False), LOOKED_UP_AND_FOUND),
    "failed at once": failed_at_once(63024, FAILED, "the customer's address is not on WhatsApp"),
    "failed at once, for the block": failed_at_once(63014, BLOCKED, "the customer has blocked the sender"),
    "failed at once, for the sender": failed_at_once(63007, PAUSED, "not a WhatsApp sender of this Twilio account"),
    "failed at once, for nothing": failed_at_once(63010, ONCE, "something went wrong at WhatsApp"),
    "failed at once, for the rate": failed_at_once(63018, LATER, "too many messages from this sender"),
    "failed at once, for the window": failed_at_once(63016, BY_TEMPLATE, "more than 24 hours have passed"),
    "refused for the window": refused(400, 63016, BY_TEMPLATE, "more than 24 hours have passed"),
}

# What is reported of a message that was taken

REPORTS = {
    63016: text(63016, BY_TEMPLATE, "more than 24 hours have passed since the customer's last message"),
    63003: text(63003, FAILED, "WhatsApp cannot reach the customer's address"),
    63024: text(63024, FAILED, "the customer's address is not on WhatsApp"),
    63002: text(63002, PAUSED, "WhatsApp does not know the sender; mend that"),
    63007: text(63007, PAUSED, "not a WhatsApp sender of this Twilio account; mend that"),
    63008: text(63008, PAUSED, "not set up rightly at Twilio; mend that"),
    63013: template(63013, FAILED, "the content breaks a rule of WhatsApp's"),
    63014: text(63014, BLOCKED, "the customer has blocked the sender or opted out"),
    63015: text(63015, FAILED, "the customer has not joined the sandbox"),
    63018: text(63018, LATER, "too many messages from this sender, or to this customer"),
    63019: text(63019, FAILED, "a file could not be fetched or sent"),
    63021: template(63021, FAILED, "the content is not valid for WhatsApp, or too long"),
    63005: text(63005, FAILED, "WhatsApp does not take this content"),
    63030: text(63030, FAILED, "WhatsApp does not know a parameter of the message"),
    63010: text(63010, ONCE, "something went wrong at WhatsApp"),
    63012: text(63012, ONCE, "something went wrong at WhatsApp"),
    63023: text(63023, ONCE, "something went wrong on the way to WhatsApp"),
    30500: text(30500, ONCE, "something went wrong at Twilio"),
    63027: template(63027, FAILED, "not there in this language: name another in the tenant's file"),
    63028: template(63028, FAILED, "other places than were filled: mend its variables in the tenant's file"),
    63029: template(63029, FAILED, "could not be fetched: name another in the tenant's file"),
    63040: template(63040, FAILED, "Meta has rejected the template: submit another, and name it in the tenant's file"),
    63041: template(63041, LATER, "Meta has paused the template"),
    63042: template(63042, FAILED, "Meta has disabled the template: submit another, and name it in the tenant's file"),
    63032: text(63032, FAILED, "Meta keeps messages from this customer for now"),
    63049: template(63049, LATER, "use one of the category utility"),
    63051: text(63051, PAUSED, "Meta has locked the WhatsApp business account; mend that"),
    63020: text(63020, PAUSED, "the WhatsApp sender is not set up at Meta; mend that"),
    63022: text(63022, PAUSED, "no valid certificate at Meta; mend that"),
    63001: text(63001, PAUSED, "does not accept the sender's credentials; mend that"),
    30001: text(30001, LATER, "Twilio's queue is full"),
    99999: text(99999, FAILED, "Twilio took the message and then failed it"),
    None: text(None, FAILED, "the provider reports it as undelivered"),
}


class Customer(Case):
    """A customer who writes to the office."""

    def __init__(self, office: Office, address: str) -> None:
        super().__init__(office.house, office.clock, "whatsapp", address)
        self.office = office

    @property
    def taken(self) -> list[Message]:
        """The attempts that Twilio took."""
        return [one for one in self.office.twilio.messages if one.to == self.address and one.body != "Hello."]

    @property
    def arrived(self) -> int:
        return sum(one.status not in ("failed", "undelivered") for one in self.taken)

    async def fails(self, code: int | None) -> None:
        await self.office.reports("undelivered", code, self.office.twilio.messages.index(self.taken[-1]))


Writes = Callable[[], Awaitable[Customer]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def customer(lasting_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Writes]:
    """Return a customer who has just written, and was answered."""
    clock, database, cases = MovableClock(), Database(lasting_url), dict[str, Customer]()

    def decide(form: dict[str, str]) -> Behaviour:
        case = cases[form["To"]]
        if form.get("Body") == "Hello.":
            return Accept()
        case.tries.append(form)
        behaviour: Behaviour = case.meets.pop(0) if case.meets else Accept()
        if isinstance(behaviour, Hang):
            case.is_patient()
        return behaviour

    async with (
        TwilioServer(now=lambda: clock.at, approvals={WHOLE: "approved"}, decide=decide) as twilio,
        an_office(
            *(database, tmp_path_factory.mktemp("office"), clock, twilio, "Hello."), section={"templates": [SAYS_ALL]}
        ) as office,
    ):

        async def write() -> Customer:
            case = Customer(office, f"whatsapp:+52155{len(cases):08}")
            cases[case.address] = case
            await office.goes_by(LONG)  # whatever came of the row before is over
            case.conversation = await office.hears("hello", case.address)
            return case

        yield write
    await database.close()


async def check(case: Customer, row: Row, course: Course, log: pytest.LogCaptureFixture) -> None:
    """Let a follow-up meet a row, as often as it fails by it."""
    times = course.tries if course.ends == "failed" else 1
    case.meets = [row.meets] * times
    if isinstance(row.meets, Hang):
        await case.is_impatient()
    delay = LONG if row.is_late else timedelta(seconds=10)
    await runs(case, course, row.says, log, reports=row.fails * times, delay=delay)
    by_template = [row.is_late or (row.course is BY_TEMPLATE and number > 0) for number in range(course.tries)]
    sent = [("ContentSid" in form, "Body" in form) for form in case.tries[: course.tries]]
    assert sent == [(one, not one) for one in by_template]


@pytest.mark.parametrize("answer", ANSWERS)
@one_loop
async def test_each_answer_has_its_one_consequence(
    customer: Writes, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    await check(await customer(), ANSWERS[answer], ANSWERS[answer].course, caplog)


@pytest.mark.parametrize("code", REPORTS)
@one_loop
async def test_each_report_of_a_failure_has_its_one_consequence(
    customer: Writes, caplog: pytest.LogCaptureFixture, code: int | None
) -> None:
    await check(await customer(), REPORTS[code], REPORTS[code].course, caplog)


@pytest.mark.parametrize("code", [code for code, row in REPORTS.items() if row.course.waits])
@one_loop
async def test_a_failure_that_passes_ends_in_one_message(
    customer: Writes, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    course = replace(REPORTS[code].course, ends="said", waits=REPORTS[code].course.waits[:1], tries=2)
    await check(await customer(), REPORTS[code], course, caplog)


def test_every_code_that_is_known_has_a_row() -> None:
    answered = {row.meets.code for row in ANSWERS.values() if isinstance(row.meets, Reject)}
    assert codes.CODES.keys() <= answered | REPORTS.keys()


@pytest.mark.parametrize("where", ["http://127.0.0.1:1", "http://twilio.invalid", "https:"])
async def test_a_connection_that_is_refused_an_unknown_host_and_a_failed_handshake_are_tried_again(
    database: Database, tmp_path: Path, clock: MovableClock, where: str
) -> None:
    async with TwilioServer(now=lambda: clock.at) as twilio:
        url = twilio.url.replace("http:", where) if where == "https:" else where
        async with an_office(database, tmp_path, clock, twilio, url=url) as office:
            await book_for(office, CUSTOMER, "call Ana")
            office.house.wake()
            await office.has_tried("not_sent")
            task = await office.followup()
            assert "Twilio cannot be reached" in str(task.error)
            assert SOON / 2 <= task.due_at - clock.at <= SOON
        async with an_office(database, tmp_path, clock, twilio) as office:
            await office.falls_due(span=SOON)
            await office.goes_by(LONG)
            assert await office.deliveries("outcome") == ["not_sent", "accepted"]
        assert office.tried == [REMINDER]


@one_loop
async def test_a_sender_whose_queue_is_full_is_not_tried_for_anybody_else_before_that_is_over(
    customer: Writes,
) -> None:
    first, second = await customer(), await customer()
    first.meets = [Reject(429, 21611)]
    await first.books(timedelta(seconds=10))
    await second.books(timedelta(seconds=20))
    await first.goes_by(timedelta(seconds=10))
    await first.rests()
    await first.goes_by(timedelta(seconds=10))
    assert (await second.rests()).error == PACED
    await first.goes_by(timedelta(seconds=50))
    for case, tries in ((first, 2), (second, 1)):
        await case.house.until_state(case.task, "fired")
        assert (len(case.tries), case.arrived) == (tries, 1)


@one_loop
async def test_a_template_that_meta_has_paused_waits_until_it_is_approved_again(
    customer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await customer()
    approvals = case.office.twilio.approvals
    await case.books(LONG)
    await case.goes_by(LONG)
    assert (await case.rests()).state == "fired"
    monkeypatch.setitem(approvals, WHOLE, "paused")
    await case.fails(63041)
    for minutes, says in ((5, "Meta has paused the template"), (15, "is paused at Meta"), (15, "is paused at Meta")):
        found = await case.rests()
        assert (found.state, len(case.tries)) == ("scheduled", 1)
        assert says in str(found.error)
        assert found.due_at - case.clock.at == minutes * MINUTE
        await case.goes_by(minutes * MINUTE)
    await case.rests()
    monkeypatch.setitem(approvals, WHOLE, "approved")
    await case.goes_by(15 * MINUTE)
    await case.house.until_state(case.task, "fired")
    assert (len(case.tries), case.arrived) == (2, 1)
