"""A tenant's templates at Twilio, which calls them contents: listing them, asking for one, submitting a new one to Meta.

What Meta would refuse is found before anything is made:

| field    | rule                                                                                                     |
|----------|----------------------------------------------------------------------------------------------------------|
| name     | small letters, digits and underscores                                                                    |
| language | one that Meta has: there is no plain Portuguese                                                          |
| body     | 1,024 characters, with what stands in the places; places are `{{1}}`, `{{2}}`… with none left out, words |
|          | before, after and between them, and for x of them at least 2x + 1 words                                  |
| place    | each place of the body, and no other, with what stands there                                             |
| button   | 20 characters, no place in it                                                                            |

https://www.twilio.com/docs/content/using-variables-with-content-api
https://www.twilio.com/docs/content/content-api-resources
https://developers.facebook.com/docs/whatsapp/message-templates/guidelines
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

import httpx
from twilio.base.exceptions import TwilioException

from channels.errors import NotDone
from channels.message import units
from channels.whatsapp import codes
from channels.whatsapp.call import BEFORE_THE_REQUEST, Call, client_of, shown
from channels.whatsapp.section import Template, WhatsAppSection, Word
from channels.whatsapp.templates import LABEL_ROOM, LATER, ROOM

BODY_LIMIT = 1024
"""UTF-16 units of a template's text, with what stands in its places."""
BUTTON_LIMIT = 20
PAGE, PAGES = 100, 100
"""Templates asked for at a time, and how often: an account may have 6,000."""

Category = Literal["UTILITY", "MARKETING"]
Level = Literal["ok", "warning", "bad"]

SAMPLES: Mapping[str, Mapping[Word, str]] = {
    "en": {"name": "Ana", "about": "the renewal of your policy", "text": "Your policy ends on 1 December."},
    "es": {"name": "Ana", "about": "la renovación de su póliza", "text": "Su póliza vence el 1 de diciembre."},
    "pt": {"name": "Ana", "about": "a renovação da sua apólice", "text": "A sua apólice vence em 1 de dezembro."},
}
"""What stands in a place while Meta looks at a template, which it does not do without."""

_PLACE = re.compile(r"\{\{([1-9][0-9]?)\}\}")
_NAME = re.compile("[a-z0-9_]{1,512}")
_LANGUAGE = re.compile("[a-z]{2}(_[A-Z]{2})?")
_BY_COUNT: Mapping[int, Sequence[Word]] = {
    0: (),
    1: ("about",),
    2: ("name", "about"),
    3: ("name", "about", "business"),
    4: ("name", "about", "business", "time"),
}


@dataclass(frozen=True, slots=True)
class Content:
    """One template as Twilio has it."""

    sid: str
    name: str
    language: str
    """As Meta writes it: `es`, `pt_BR`."""
    status: str
    """`approved`, `received`, `pending`, `paused`, `rejected` or `disabled`; `unsubmitted` while Meta was not asked."""
    category: str
    rejection: str
    """Why Meta rejected it; empty otherwise."""
    body: str

    @property
    def places(self) -> frozenset[str]:
        """The numbers of the places in its text."""
        return frozenset(_PLACE.findall(self.body))


@dataclass(frozen=True, slots=True)
class Draft:
    """A template to be submitted."""

    name: str
    language: str
    body: str
    button: str | None = None
    category: Category = "UTILITY"
    places: Mapping[str, Word] = field(default_factory=dict)
    """What will stand in each place; see `usual_places`."""


def usual_places(body: str) -> dict[str, Word]:
    """Return what is taken to stand in each place of a text with up to four of them; of one with more, nothing."""
    numbers = sorted(set(_PLACE.findall(body)), key=int)
    return dict(zip(numbers, _BY_COUNT.get(len(numbers), ()), strict=False))


def problems(draft: Draft) -> Iterator[str]:
    """Yield what Meta would refuse a draft for, each beginning with the name of the field."""
    if not _NAME.fullmatch(draft.name):
        yield "name: write small letters a-z, digits and _, as in answer_ready"
    if draft.language == "pt":
        yield "language: Meta has no plain Portuguese: write pt_BR or pt_PT"
    elif not _LANGUAGE.fullmatch(draft.language):
        yield "language: write it as Meta does, such as en, es, es_MX or pt_BR"
    yield from _problems_of_body(draft)
    if draft.button is not None and not (draft.button.strip() and units(draft.button) <= BUTTON_LIMIT):
        yield f"button: write at least one character, and at most {BUTTON_LIMIT}"
    if draft.button is not None and "{{" in draft.button:
        yield "button: nothing can stand in for a part of it"


def _problems_of_body(draft: Draft) -> Iterator[str]:
    numbers = [int(number) for number in _PLACE.findall(draft.body)]
    around = _PLACE.split(draft.body)[::2]
    own = "".join(around)
    if not own.strip():
        yield "body: it has no words of its own"
        return
    if "{{" in own or "}}" in own:
        yield "body: a place is written {{1}}, {{2}} and so on, with nothing else between the brackets"
        return
    if set(numbers) != set(range(1, len(set(numbers)) + 1)):
        yield "body: number the places {{1}}, {{2}}, {{3}} without leaving one out"
    elif set(draft.places) != {str(number) for number in numbers}:
        yield "place: say of each place in the body, and of no other, what stands there, as in 1=name"
    if not _has_words(around[0]) or not _has_words(around[-1]):
        yield "body: Meta wants words before the first place and after the last one; a full stop is none"
    if not all(map(_has_words, around[1:-1])):
        yield "body: Meta wants words between two places"
    if sum(map(_has_words, own.split())) < 2 * len(numbers) + 1:
        yield f"body: beside {len(numbers)} of its places, Meta wants at least {2 * len(numbers) + 1} words of its own"
    filled = ROOM if "text" in draft.places.values() else min(ROOM, LABEL_ROOM * len(numbers))
    if units(own) + filled > BODY_LIMIT:
        most = (
            f"{BODY_LIMIT - filled:,} of its own, since its places may take {filled}" if filled else f"{BODY_LIMIT:,}"
        )
        yield f"body: it has {units(own):,} characters, and may have {most}"


def _has_words(text: str) -> bool:
    return re.search(r"\w", text) is not None


def judge(template: Template, content: Content | None) -> tuple[Level, str]:
    """Return how well a template that a tenant's file names can be sent, by what Twilio has; and that in words."""
    if content is None:
        return "bad", "named in the file, and not in this account: it cannot be sent"
    if not content.language.startswith(template.language):
        return "bad", f"it is in {content.language!r}, and the file says {template.language!r}"
    if content.places != set(template.variables):
        return "bad", (
            f"its text has the places {_listed(content.places)}, and the file fills {_listed(template.variables)}:"
            " it cannot be sent"
        )
    match content.status:
        case "approved":
            return "ok", ""
        case "rejected" | "disabled" | "unsubmitted":
            because = f" ({content.rejection})" if content.rejection else ""
            return "bad", f"{content.status} at Meta{because}: submit another, and name it in the file"
    minutes = LATER / 60
    return "warning", f"{content.status} at Meta: what needs it waits, and is tried again every {minutes:g} minutes"


def _listed(numbers: Any) -> str:
    return ", ".join(sorted(numbers, key=int)) or "none"


def gaps(section: WhatsAppSection, languages: Sequence[str]) -> dict[str, str]:
    """Return the languages of a tenant in which it has no template, each with what happens then; "" stands for all."""
    named = {one.language for one in section.templates if one.purpose == "followup"}
    if not named:
        return {
            "": "no template: a follow-up for later than 24 hours after the customer's last message is refused when it"
            " is to be booked"
        }
    return {
        language: f"no template in {language!r}: a follow-up in it for later than 24 hours after the customer's last message"
        " is refused when it is to be booked; one that is late all the same waits until the customer writes, for"
        f" {section.hold_days} days at most"
        for language in languages
        if language not in named
    }


Told = TypeVar("Told")


class Contents:
    """One tenant's templates at Twilio; `async with` closes the connections. Whatever is not done raises NotDone."""

    def __init__(self, section: WhatsAppSection, api_url: str | None = None, timeout: float = 30) -> None:
        """`api_url` is another server that stands for all of Twilio's; `timeout` is in seconds, for one request."""
        self._section = section
        self._api_url = api_url
        self._timeout = timeout
        self._http = httpx.AsyncClient(timeout=None, trust_env=False)  # noqa: S113 - a whole call is timed instead

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def find_all(self) -> Sequence[Content]:
        """Return every template of the account, with what Meta says of it."""
        return await self._ask(_listed_by)

    async def find(self, sid: str) -> Content | None:
        """Return one template; None where the account has none of this number."""
        try:
            one = await self._ask(lambda client: client.content.v1.contents(sid).fetch_async())
            told = await self._ask(lambda client: client.content.v1.contents(sid).approval_fetch().fetch_async())
        except NotDone as problem:
            if problem.status == 404:
                return None
            raise
        return _content(one, told.whatsapp)

    async def submit(self, draft: Draft, business: str) -> Content:
        """Make a template and ask Meta to approve it; where that is refused, it is taken away again."""
        one = await self._ask(lambda client: client.content.v1.contents.create_async(_request(client, draft, business)))
        content = _content(one, None)
        try:
            told = await self._ask(lambda client: _ask_for_approval(client, content.sid, draft))
        except NotDone as problem:
            if problem.is_certain:
                with suppress(NotDone):
                    await self._ask(lambda client: client.content.v1.contents(content.sid).delete_async())
                raise
            raise NotDone(
                f"{problem}. The template {content.sid} was made, and may have been submitted: look with"
                f" vuelvo templates status {content.sid}",
                is_certain=False,
            ) from problem
        return _content(one, {"name": told.name, "category": told.category, "status": told.status})

    async def _ask(self, what: Callable[[Any], Awaitable[Told]]) -> Told:
        call = Call(self._http, self._api_url)
        client = await asyncio.to_thread(client_of, self._section, call)
        try:
            async with asyncio.timeout(self._timeout):
                return await what(client)
        except NotDone:
            raise
        except TwilioException as error:
            raise self._refusal(error, call.status) from None  # theirs holds what was sent
        except BEFORE_THE_REQUEST as error:
            raise NotDone(f"Twilio cannot be reached ({type(error).__name__})") from None
        except UnicodeEncodeError:
            raise NotDone("the text holds half a character and cannot be encoded") from None
        except TimeoutError:
            raise NotDone(f"Twilio did not answer within {self._timeout:g} seconds", is_certain=False) from None
        except Exception as error:  # cut off, or an answer that cannot be read
            raise NotDone(f"the answer of Twilio is lost ({type(error).__name__})", is_certain=False) from None

    def _refusal(self, error: TwilioException, status: int) -> NotDone:
        said = getattr(error, "msg", None) or getattr(error, "detail", None) or getattr(error, "title", None)
        code = codes.code_of(getattr(error, "code", None)) or (20003 if status in (401, 403) else None)
        words = codes.CODES[code][1] if code in codes.CODES else f"Twilio refused it with HTTP {status}"
        return NotDone(
            words + codes.quoted(code, shown(self._section, said)),
            status=status,
            is_certain=400 <= status < 500 and status != 408,
        )


async def _listed_by(client: Any) -> list[Content]:
    found: list[Content] = []
    page = await client.content.v1.content_and_approvals.page_async(page_size=PAGE)
    for _ in range(PAGES):
        found += [_content(one, one.approval_requests) for one in page]
        page = await page.next_page_async()
        if page is None:
            return found
    raise NotDone(f"Twilio has more than {PAGE * PAGES:,} templates in this account, too many to list")


def _content(one: Any, approval: Any) -> Content:
    told = approval if isinstance(approval, Mapping) else {}
    return Content(
        sid=str(one.sid),
        name=str(told.get("name") or one.friendly_name or ""),
        language=str(one.language or ""),
        status=str(told.get("status") or "unsubmitted").lower(),
        category=str(told.get("category") or ""),
        rejection=str(told.get("rejection_reason") or ""),
        body=next((str(kind["body"]) for kind in (one.types or {}).values() if kind and kind.get("body")), ""),
    )


def _request(client: Any, draft: Draft, business: str) -> Any:
    body = {"body": draft.body}
    reply = {"type": "QUICK_REPLY", "title": draft.button, "id": "show"}
    types = {"twilio/text": body} if draft.button is None else {"twilio/quick-reply": {**body, "actions": [reply]}}
    content = {"friendly_name": draft.name, "language": draft.language, "types": types}
    samples = _samples(draft, business)
    return client.content.v1.contents.ContentCreateRequest(content | ({"variables": samples} if samples else {}))


def _samples(draft: Draft, business: str) -> dict[str, str]:
    known = {**SAMPLES.get(draft.language[:2], SAMPLES["en"]), "business": business, "time": "2026-12-01 09:30"}
    return {number: known[word] for number, word in draft.places.items()}


async def _ask_for_approval(client: Any, sid: str, draft: Draft) -> Any:
    approvals = client.content.v1.contents(sid).approval_create
    wanted = approvals.ContentApprovalRequest({"name": draft.name, "category": draft.category})
    return await approvals.create_async(wanted)
