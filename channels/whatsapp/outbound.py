"""Sends WhatsApp messages through Twilio."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import httpx
from twilio.base.exceptions import TwilioException

from channels.message import (
    REACHABLE,
    Accepted,
    Filled,
    Lost,
    NotSent,
    OnUnknown,
    Origin,
    Outcome,
    Part,
    Parts,
    Reach,
    Rejected,
    Remedy,
    Status,
    Unknown,
    units,
)
from channels.pace import Pace, Rate, within
from channels.text import split_markdown
from channels.whatsapp import codes, markup, media, reconcile, templates, window
from channels.whatsapp.call import BEFORE_THE_REQUEST, Call, client_of, shown
from channels.whatsapp.section import WhatsAppSection
from channels.whatsapp.templates import Approvals

logger = logging.getLogger(__name__)

LIMIT = 1500
"""UTF-16 units of one piece. Twilio takes 1600, and does not say in which unit it counts."""
TO_ONE_PERSON = Rate(3, every=6.0)
"""About what Meta lets one number send to one person before it answers 131056, which is Twilio's 63018."""
TYPING_TIMEOUT = 5.0
MOST_VALIDITY = 36_000
"""Seconds for which Twilio keeps a message it cannot deliver; also what it does when it is told nothing."""


class WhatsAppChannel:
    """One tenant's WhatsApp sender at Twilio.

    Free text goes out within the customer's 24-hour window, after it a template of the tenant's. Twilio cannot be asked to send a message
    at most once: a send that was cut off is Unknown, and the callback at `status_url(delivery)`, or a look-up, tells later.
    """

    name: str = "whatsapp"
    looks: Sequence[timedelta] = reconcile.LOOKS
    gap: timedelta = timedelta(seconds=2)

    def __init__(
        self,
        section: WhatsAppSection,
        api_url: str | None = None,
        status_url: Callable[[int], str] | None = None,
        timeout: float = 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the settings; nothing is opened yet.

        `api_url` is another server that stands for all of Twilio's, `status_url` gives the address Twilio reports a
        delivery's fate to. `timeout` is in seconds: Twilio itself gives up after about 26, and below that a slow answer
        would become Unknown. `clock` tells seconds that never go back, for the pace and for how old an approval is.
        """
        self.on_unknown: OnUnknown = section.unknown
        self.waits = timedelta(days=section.hold_days)
        limit = section.per_second
        self._pace = Pace(within(limit, max(1, limit // 10)), lambda _: TO_ONE_PERSON, clock)
        self._approvals = Approvals(self._ask_for_approval, clock)
        self._section = section
        self._api_url = api_url
        self._status_url = status_url
        self._timeout = timeout
        self._http: httpx.AsyncClient | None = None
        self._files = asyncio.Semaphore(media.AT_ONCE)

    def split(self, text: str) -> Parts:
        """Return the Markdown text in WhatsApp's markup, in pieces of at most 1500 UTF-16 units."""
        cut = split_markdown(text, LIMIT, lambda piece: units(markup.convert(piece)))
        pieces = [markup.convert(piece) for piece in cut]
        return [piece for piece in pieces if piece.strip()] or [""]

    async def open(self) -> None:
        """Load twilio's client."""
        await asyncio.to_thread(client_of, self._section, Call(self._connections(), self._api_url))

    def wait(self, address: str, thread: str | None = None) -> float:
        """Return for how many seconds a send to this address must wait."""
        return self._pace.wait(address)

    async def send(self, part: Part) -> Outcome:
        """Send one piece once. Accepted means that Twilio has it; whether WhatsApp took it comes by callback."""
        self._pace.take(part.address)
        if part.template is None and not part.text.strip():
            return Rejected("the message has no text")
        content = (
            {"body": part.text}
            if part.template is None
            else {"content_sid": part.template.id, "content_variables": json.dumps(part.template.values)}
        )
        call = Call(self._connections(), self._api_url)
        client = client_of(self._section, call)
        try:
            async with asyncio.timeout(self._timeout):
                message = await client.messages.create_async(
                    to=part.address,
                    from_=self._section.sender,
                    **content,
                    status_callback=self._status_url(part.delivery) if self._status_url else None,
                    validity_period=None if part.lives is None else _validity(part.lives),
                )
        except TwilioException as error:
            said = getattr(error, "msg", None) or getattr(error, "detail", None) or getattr(error, "title", None)
            code = codes.code_of(getattr(error, "code", None))
            outcome = codes.judge(call.status, code, shown(self._section, said), call.retry_after)
            # A day's count frees up bit by bit, and whether it has is told by trying.
            if isinstance(outcome, NotSent) and outcome.retry_after is not None and code != codes.DAY_FULL:
                self._pace.close(outcome.retry_after)
            return outcome
        except BEFORE_THE_REQUEST as error:
            return NotSent(f"Twilio cannot be reached: {type(error).__name__}: {shown(self._section, error)}")
        except UnicodeEncodeError:
            return Rejected("the text or the address holds half a character and cannot be encoded")
        except TimeoutError:
            return Unknown(f"Twilio did not answer within {self._timeout:g} s")
        except Exception as error:  # cut off, or an answer that cannot be read: the message may be on its way
            logger.warning("The answer of Twilio to delivery %s is lost: %s", part.delivery, type(error).__name__)
            return Unknown(f"the answer of Twilio is lost: {type(error).__name__}: {shown(self._section, error)}")

        if message.status in ("failed", "undelivered"):
            return codes.judge_failed(codes.code_of(message.error_code), shown(self._section, message.error_message))
        if not message.sid or not isinstance(message.sid, str):
            return Unknown(f"Twilio answered HTTP {call.status} without a message's id")
        return Accepted(message.sid)

    async def fill(self, purpose: str, language: str, words: Mapping[str, str]) -> Filled | NotSent | Rejected:
        """Return the first of the tenant's templates into which the words fit, if Meta lets it be sent now."""
        shown = {name: markup.convert(said) if name == "text" else said for name, said in words.items()}
        chosen = templates.choose(self._section.templates, purpose, language, shown)
        return await self._approvals.check(chosen) if isinstance(chosen, Filled) else chosen

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        """Return a template of the tenant's with what stands in its places, if Meta lets it be sent now."""
        if not filled.is_named and all(filled.id != template.sid for template in self._section.templates):
            return Rejected(f"the template {filled.id} is not in the tenant's file: name it there, and apply it")
        return await self._approvals.check(filled)

    async def _ask_for_approval(self, template: str) -> str:
        client = client_of(self._section, Call(self._connections(), self._api_url))
        async with asyncio.timeout(self._timeout):
            told = await client.content.v1.contents(template).approval_fetch().fetch_async()
        return str(told.whatsapp["status"])

    def remedy(self, code: int | None) -> Remedy:
        """Tell what is left of a message that failed with this code, by the table in `codes.py`."""
        return codes.remedy(code)

    async def look_up(self, lost: Lost) -> Sequence[Status] | Unknown:
        """Ask Twilio for the messages that may be this one."""
        call = Call(self._connections(), self._api_url)
        client = client_of(self._section, call)
        try:
            async with asyncio.timeout(self._timeout):
                return await reconcile.search(client.messages, self._section.sender, lost)
        except TwilioException:
            return Unknown(f"Twilio answered HTTP {call.status} when asked")
        except Exception as error:  # unreachable, or an answer that cannot be read
            return Unknown(f"Twilio cannot be asked: {type(error).__name__}: {shown(self._section, error)}")

    async def look_at_files(self, text: str) -> str:
        """Return the text with type and size of the files that it names, as far as they can be read."""
        return await media.fill_in(text, self._section, self._connections(), self._api_url, self._files)

    def assess(self, origin: Origin, due: datetime, now: datetime) -> Reach:
        """Tell whether the customer's 24-hour window, as last renewed, is still open at `due`, or what is left after it."""
        last = origin.last_inbound_at
        if last is not None and origin.refused_at is not None and origin.refused_at >= last:
            last = None  # Meta knows better
        if window.is_open(last, due):
            return REACHABLE
        ours = [
            one
            for one in self._section.templates
            if one.purpose == origin.purpose and origin.language in (None, one.language)
        ]
        if ours:
            return Reach(
                True,
                by_template=True,
                advice="That is more than 24 hours after the customer's last message, so WhatsApp carries only an approved"
                " template then."
                + (
                    ""
                    if any(one.is_whole for one in ours)
                    else " The customer gets a short notice that the answer is ready, and the answer itself as soon as they"
                    " tap its button or write. Tell them so."
                ),
            )
        if last is None or not window.is_open(last, now):
            return Reach(
                False,
                advice="WhatsApp carries a message to this customer only within 24 hours of the last one they wrote, and"
                " that time is over. Say plainly that you cannot promise an answer here.",
            )
        closes = window.closes_at(last).astimezone(UTC)
        return Reach(
            False,
            advice=f"WhatsApp carries a message to this customer only until {closes:%Y-%m-%d %H:%M} UTC, since that is 24"
            " hours after the last one they wrote. Offer a time before that, or say plainly that you cannot promise it here.",
        )

    def shows_drafts(self, address: str, thread: str | None) -> bool:
        """WhatsApp shows no drafts."""
        return False

    async def typing(self, address: str, thread: str | None, reply_to: str | None, words: str = "") -> None:
        """Show the typing bubble under the customer's message `reply_to`; nothing happens without one."""
        if reply_to is None:
            return
        client = client_of(self._section, Call(self._connections(), self._api_url))
        try:
            async with asyncio.timeout(TYPING_TIMEOUT):
                await client.messaging.v2.typing_indicator.create_async(channel="whatsapp", message_id=reply_to)
        except Exception as error:  # a bubble is never worth an error
            logger.debug("The typing bubble was not shown: %s", type(error).__name__)

    async def close(self) -> None:
        """Release connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _connections(self) -> httpx.AsyncClient:
        """Return the connections of this channel, opened in the running loop when first needed."""
        if self._http is None:
            # Connecting ends well before the whole call does, so that a dead network is told from a lost answer.
            timeout = httpx.Timeout(None, connect=self._timeout / 4, pool=self._timeout / 4)
            self._http = httpx.AsyncClient(timeout=timeout, trust_env=False)
        return self._http


def _validity(lives: timedelta) -> int:
    """Return how many seconds Twilio may try for: 1 to 36,000."""
    return int(min(max(lives.total_seconds(), 1), MOST_VALIDITY))
