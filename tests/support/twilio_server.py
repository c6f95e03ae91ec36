"""A server that stands in for Twilio: takes messages, remembers them, misbehaves when told to, and posts webhooks.

async with TwilioServer() as twilio:
    channel = WhatsAppChannel(section, api_url=twilio.url)     # section with twilio.account_sid, .auth_token, .sender
    twilio.behave(Reject(429, 20429, retry_after=7), Drop())   # the next two creates; after that all are accepted
    ...
    assert twilio.messages[0].body == "Hola"
    await twilio.post(hook_url, twilio.inbound_form("Hola"))   # a customer writes
    await twilio.report(twilio.messages[0], "delivered")       # the status callback
    async with twilio.down(): ...                              # connections are refused
    twilio.has_template("HX…", "Your {{1}} is ready now.")     # made and approved before
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Self
from urllib.parse import urlencode

import httpx
from aiohttp import web

Form = list[tuple[str, str]]


@dataclass(frozen=True)
class Accept:
    """Takes the message. With an error code it is failed from the start."""

    status: str = "queued"
    error_code: int | None = None
    with_sid: bool = True
    after: float = 0
    """Seconds until it says so."""


@dataclass(frozen=True)
class Reject:
    """Refuses the message with one of Twilio's own errors."""

    status: int
    code: int
    message: str = "Refused by the test"
    retry_after: float | None = None


@dataclass(frozen=True)
class Answer:
    """Answers something that is not Twilio's; with `accepted` the message was taken all the same."""

    status: int
    text: str
    content_type: str = "text/html"
    accepted: bool = False


@dataclass(frozen=True)
class Hang:
    """Never answers; with `accepted` the message was taken all the same."""

    accepted: bool = False


@dataclass(frozen=True)
class Drop:
    """Cuts the connection without an answer; with `accepted` the message was taken all the same."""

    accepted: bool = False
    after: float = 0
    """Seconds until it does so."""


Behaviour = Accept | Reject | Answer | Hang | Drop

BAD_GATEWAY = Answer(502, "<html><body><h1>502 Bad Gateway</h1></body></html>")


@dataclass
class Message:
    """A message that Twilio has, with the fate it has met so far."""

    sid: str
    to: str
    from_: str
    body: str
    status_callback: str | None
    created_at: datetime
    status: str = "queued"
    error_code: int | None = None
    content_sid: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    """The template it was made of, and what stands in its places."""
    is_listed: bool = True
    """False while the list is behind and does not show it yet."""


@dataclass
class Content:
    """A template, as it was made and submitted."""

    sid: str
    friendly_name: str
    language: str
    types: dict[str, dict[str, Any]]
    variables: dict[str, str] = field(default_factory=dict)
    name: str = ""
    category: str = ""
    rejection_reason: str = ""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class TwilioServer:
    """Twilio with one account and its WhatsApp sender, on a port of this machine while entered."""

    account_sid: str = "AC" + "0a" * 16
    auth_token: str = "twilio-auth-token"
    sender: str = "whatsapp:+14155238886"
    other_senders: set[str] = field(default_factory=set)
    """More WhatsApp senders of the account."""
    now: Callable[[], datetime] = _now
    messages: list[Message] = field(default_factory=list)
    """What was taken, in order."""
    creates: list[dict[str, str]] = field(default_factory=list)
    """The form of every attempt to create a message that carried the account's password, whatever became of it."""
    met: list[tuple[str, Behaviour]] = field(default_factory=list)
    """The text of every attempt that had no fault of its own, with the behaviour it met."""
    lists: list[dict[str, str]] = field(default_factory=list)
    """What was asked of the list of messages, page by page."""
    typings: list[dict[str, str]] = field(default_factory=list)
    """The form of every typing bubble."""
    approvals: dict[str, str] = field(default_factory=dict)
    """What Meta says of each template; one that is not here does not exist."""
    contents: dict[str, Content] = field(default_factory=dict)
    """The templates that were made, by their number; what Meta says of each stands in `approvals`."""
    pages: list[dict[str, str]] = field(default_factory=list)
    """What was asked of the list of templates, page by page."""
    signing_key: str | None = None
    """The secret of a shared key, with which webhooks are signed instead of the auth token."""
    asked_for_approval: list[str] = field(default_factory=list)
    files: dict[str, bytes | None] = field(default_factory=dict)
    """What customers have sent, by its number; of None the beginning comes and nothing after it."""
    store: str = ""
    """Where it sends on whoever asks for a file; to itself by default."""
    fetched: list[tuple[str, bool]] = field(default_factory=list)
    """The paths of files asked for, and whether with a password."""
    cut_short: int = 0
    """How many files were not read to their end."""
    per_second: int | None = None
    """So many messages are taken within one second; what is faster is refused with 429."""
    burst: int | None = None
    """So many messages to one person are taken at once, and then one each six seconds; else 429 and 63018."""
    url: str = ""
    """`http://127.0.0.1:PORT`, for `api_url`."""
    decide: Callable[[dict[str, str]], Behaviour] | None = None
    """Asked with its form what a create meets, instead of the script."""
    on_taken: Callable[[Message], Awaitable[None]] | None = None
    """Told of each message that is taken, before the create is answered."""

    def __post_init__(self) -> None:
        self._script: deque[Behaviour] = deque()
        self._when_asked: deque[Behaviour] = deque()
        self._with_templates: deque[Behaviour] = deque()
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._received = 0

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    # What a test tells it

    def behave(self, *script: Behaviour) -> None:
        """Let each of the next creates meet the next of these; those after them are accepted."""
        self._script.extend(script)

    def behave_when_asked(self, *script: Behaviour) -> None:
        """Let each of the next requests for a page of the list meet the next of these; those accepted are answered."""
        self._when_asked.extend(script)

    def behave_with_templates(self, *script: Behaviour) -> None:
        """Let each of the next requests about templates meet the next of these; those accepted are answered."""
        self._with_templates.extend(script)

    def has_template(
        self, sid: str, body: str, *, language: str = "en", status: str = "approved", rejection: str = ""
    ) -> None:
        """Let there be a template, with what Meta says of it."""
        name = f"template_{len(self.contents)}"
        types = {"twilio/text": {"body": body}}
        self.contents[sid] = Content(sid, name, language, types, {}, name, "UTILITY", rejection)
        self.approvals[sid] = status

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Refuse connections for as long as this is entered; what was taken is kept."""
        await self._stop()
        try:
            yield
        finally:
            await self._listen()

    async def attempts(self, count: int) -> None:
        """Wait until so many creates have come in."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.creates) >= count)

    # What it posts

    def inbound_form(self, text: str, sender: str = "whatsapp:+5215512345678", /, **fields: str | None) -> Form:
        """Return the form of a customer's message; `fields` adds or replaces some, None leaves one out."""
        self._received += 1
        sid = f"SM{self._received:032x}"
        form: dict[str, str | None] = {
            "SmsMessageSid": sid,
            "NumMedia": "0",
            "ProfileName": "Lucía",
            "MessageType": "text",
            "SmsSid": sid,
            "WaId": sender.removeprefix("whatsapp:+"),
            "SmsStatus": "received",
            "Body": text,
            "To": self.sender,
            "NumSegments": "1",
            "ReferralNumMedia": "0",
            "MessageSid": sid,
            "AccountSid": self.account_sid,
            "From": sender,
            "ApiVersion": "2010-04-01",
        }
        return [(name, value) for name, value in (form | fields).items() if value is not None]

    def file_form(self, text: str, *files: tuple[str, bytes | None], **fields: str | None) -> Form:
        """Return the form of a customer's message with files, each of a declared type."""
        media: dict[str, str | None] = {"NumMedia": str(len(files)), "MessageType": "document"}
        for number, (declared, content) in enumerate(files):
            sid = f"ME{len(self.files):032x}"
            self.files[sid] = content
            path = f"/2010-04-01/Accounts/{self.account_sid}/Messages/MM{'1' * 32}/Media/{sid}"
            media[f"MediaUrl{number}"] = "https://api.twilio.com" + path
            media[f"MediaContentType{number}"] = declared
        return self.inbound_form(text, **media | fields)

    def status_form(self, message: Message, status: str, error_code: int | None = None) -> Form:
        """Return the form that reports what became of a message."""
        form = [
            ("ChannelPrefix", "whatsapp"),
            ("ApiVersion", "2010-04-01"),
            ("MessageStatus", status),
            ("SmsSid", message.sid),
            ("SmsStatus", status),
            ("To", message.to),
            ("From", message.from_),
            ("MessageSid", message.sid),
            ("AccountSid", self.account_sid),
        ]
        return form if error_code is None else [*form, ("ErrorCode", str(error_code))]

    def sign(
        self, url: str, form: Sequence[tuple[str, str]], token: str | None = None, algorithm: str = "HMAC_SHA256"
    ) -> dict[str, str]:
        """Return the headers under which Twilio posts this form to this URL.

        Signed with the token, or with `signing_key` and this algorithm where there is one.
        """
        # Written from Twilio's description, not with its library, so that the two check each other.
        signed = url + "".join(name + value for name, value in sorted(set(form)))
        key = token or self.signing_key or self.auth_token
        is_shared = key != self.auth_token and self.signing_key is not None
        hashed = hashlib.sha256 if is_shared and algorithm == "HMAC_SHA256" else hashlib.sha1
        headers = {
            "X-Twilio-Signature": base64.b64encode(hmac.new(key.encode(), signed.encode(), hashed).digest()).decode(),
            "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8",
            "User-Agent": "TwilioProxy/1.1",
        }
        settings = {"X-Twilio-Webhooks-Signature-Settings": f"key=webhooks_sharedkey_01,algorithm={algorithm}"}
        return headers | (settings if is_shared else {})

    async def post(self, url: str, form: Sequence[tuple[str, str]], at: str | None = None) -> httpx.Response:
        """Post a form signed for `url`, to `at` where the service listens elsewhere than at its public URL."""
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it posts without TLS, and need not read whom to believe
        async with httpx.AsyncClient(verify=nobody, trust_env=False, timeout=15) as http:
            return await http.post(at or url, content=urlencode(form), headers=self.sign(url, form))

    async def report(
        self, message: Message, status: str, error_code: int | None = None, at: str | None = None
    ) -> httpx.Response:
        """Let a message meet its fate and post it to the address that was given with the message."""
        message.status, message.error_code = status, error_code
        assert message.status_callback, "this message was sent without a StatusCallback"
        return await self.post(message.status_callback, self.status_form(message, status, error_code), at)

    # What it answers

    async def _listen(self) -> None:
        self._released.clear()
        app = web.Application()
        account = "/2010-04-01/Accounts/{account}"
        app.router.add_post(account + "/Messages.json", self._create)
        app.router.add_get(account + "/Messages.json", self._list)
        app.router.add_get(account + "/Messages/{sid}.json", self._fetch)
        app.router.add_get(account + "/Messages/{sid}/Media/{file}", self._file)
        app.router.add_get("/store/{file}", self._stored)
        app.router.add_post("/v2/Indicators/Typing.json", self._typing)
        app.router.add_get("/v1/ContentAndApprovals", self._list_contents)
        app.router.add_post("/v1/Content", self._make_content)
        app.router.add_get("/v1/Content/{sid}", self._fetch_content)
        app.router.add_delete("/v1/Content/{sid}", self._delete_content)
        app.router.add_get("/v1/Content/{sid}/ApprovalRequests", self._approval)
        app.router.add_post("/v1/Content/{sid}/ApprovalRequests/whatsapp", self._submit_content)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def _stop(self) -> None:
        self._released.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return Twilio's answer to the wrong password or account, or None."""
        expected = base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {expected}":
            return _error(Reject(401, 20003, "Authenticate"))
        if request.match_info.get("account", self.account_sid) != self.account_sid:
            return _error(Reject(404, 20404, f"The requested resource {request.path} was not found"))
        return None

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        form = {name: str(value) for name, value in (await request.post()).items()}
        async with self._changed:
            self.creates.append(form)
            self._changed.notify_all()
        if fault := self._fault(form) or self._limit(form["To"]):
            return _error(fault)
        if self.decide is not None:
            behaviour = self.decide(form)
        else:
            behaviour = self._script.popleft() if self._script else Accept()
        self.met.append((form.get("Body", ""), behaviour))
        match behaviour:
            case Reject():
                return _error(behaviour)
            case Answer():
                if behaviour.accepted:
                    await self._take(form, Accept())
                return web.Response(status=behaviour.status, text=behaviour.text, content_type=behaviour.content_type)
            case Accept():
                message = await self._take(form, behaviour)
                payload = self._payload(message)
                if not behaviour.with_sid:
                    payload["sid"] = None
                await self._pause(behaviour.after)
                return web.json_response(payload, status=201)
        if behaviour.accepted:
            await self._take(form, Accept())
        if isinstance(behaviour, Hang):
            await self._released.wait()
        else:
            await self._pause(behaviour.after)
        if request.transport is not None:  # the other side may have given up first
            request.transport.abort()
        return web.Response()

    async def _misbehave(self, request: web.Request, script: deque[Behaviour]) -> web.StreamResponse | None:
        """Do what the script says next instead of answering; None where it says to answer."""
        match script.popleft() if script else Accept():
            case Reject() as reject:
                return _error(reject)
            case Answer() as answer:
                return web.Response(status=answer.status, text=answer.text, content_type=answer.content_type)
            case Hang():
                await self._released.wait()
                return web.Response()
            case Drop():
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
        return None

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until the server stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), seconds)

    def _fault(self, form: dict[str, str]) -> Reject | None:
        if not form.get("To"):
            return Reject(400, 21604, "A 'To' phone number is required.")
        if not form.get("From"):
            return Reject(400, 21603, "A 'From' phone number is required.")
        if form["From"] not in {self.sender, *self.other_senders}:
            return Reject(400, 63007, "Twilio could not find a Channel with the specified From address")
        if "ContentSid" in form:
            if "Body" in form or not re.fullmatch("HX[0-9a-fA-F]{32}", form["ContentSid"]):
                return Reject(400, 21655, "The ContentSid is Invalid")
            return None
        if not form.get("Body"):
            return Reject(400, 21602, "Message body is required.")
        if len(form["Body"].encode("utf-16-le")) // 2 > 1600:
            return Reject(400, 21617, "The concatenated message body exceeds the 1600 character limit.")
        return None

    def _limit(self, to: str) -> Reject | None:
        now, slack = self.now(), timedelta(milliseconds=10)
        recent = [one for one in self.messages if now - one.created_at < timedelta(seconds=1) - slack]
        if self.per_second is not None and len(recent) >= self.per_second:
            return Reject(429, 20429, "Too Many Requests", retry_after=1)
        theirs = [one for one in reversed(self.messages) if one.to == to] if self.burst is not None else []
        for count, one in enumerate(theirs, start=2 - (self.burst or 0)):
            if now - one.created_at < count * timedelta(seconds=6) - slack:
                return Reject(429, 63018, "Channels rate limit exceeded")
        return None

    async def _take(self, form: dict[str, str], accept: Accept) -> Message:
        message = Message(
            sid=f"SM{0xF000 + len(self.messages):032x}",
            to=form["To"],
            from_=form["From"],
            body=form.get("Body", f"Hello, {form.get('ContentVariables')}"),
            content_sid=form.get("ContentSid"),
            variables=json.loads(form.get("ContentVariables", "{}")),
            status_callback=form.get("StatusCallback"),
            created_at=self.now(),
            status=accept.status,
            error_code=accept.error_code,
        )
        self.messages.append(message)
        if self.on_taken is not None:
            await self.on_taken(message)
        return message

    async def _list(self, request: web.Request) -> web.StreamResponse:
        """Answer one page, the newest first, as `ListMessage` of Twilio's OpenAPI description says."""
        if refusal := self._refusal(request):
            return refusal
        wanted = dict(request.query)
        self.lists.append(wanted)
        if fault := await self._misbehave(request, self._when_asked):
            return fault
        size, number = int(wanted.pop("PageSize", "50")), int(wanted.pop("Page", "0"))
        token = wanted.pop("PageToken", None)
        if not 1 <= size <= 1000:
            return _error(Reject(400, 20006, "PageSize must be between 1 and 1000"))
        found = [message for message in reversed(self.messages) if message.is_listed and _fits(message, wanted)]
        # A page begins behind the message its token names, so that what comes in meanwhile moves nothing.
        start = 0 if token is None else 1 + [f"PA{message.sid}" for message in found].index(token)
        page = found[start : start + size]

        def uri(number: int, token: str | None = None) -> str:
            more = {"PageSize": str(size), "Page": str(number), **({} if token is None else {"PageToken": token})}
            return f"{request.path}?{urlencode(wanted | more)}"

        has_more = start + size < len(found)
        payload = {
            "messages": [self._payload(message) for message in page],
            "page": number,
            "page_size": size,
            "start": number * size,
            "end": number * size + max(len(page) - 1, 0),
            "uri": uri(number, token),
            "first_page_uri": uri(0),
            "previous_page_uri": uri(number - 1, token) if number else None,
            "next_page_uri": uri(number + 1, f"PA{page[-1].sid}") if has_more else None,
        }
        return web.json_response(payload)

    async def _fetch(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        for message in self.messages:
            if message.sid == request.match_info["sid"]:
                return web.json_response(self._payload(message))
        return _error(Reject(404, 20404, f"The requested resource {request.path} was not found"))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.fetched.append((request.path, "Authorization" in request.headers))
        if refusal := self._refusal(request):
            return refusal
        if request.match_info["file"] not in self.files:
            return _error(Reject(404, 20404, f"The requested resource {request.path} was not found"))
        where = self.store or f"{self.url}/store"
        return web.Response(status=307, headers={"Location": f"{where}/{request.match_info['file']}"})

    async def _stored(self, request: web.Request) -> web.StreamResponse:
        self.fetched.append((request.path, "Authorization" in request.headers))
        content = self.files[request.match_info["file"]]
        answer = web.StreamResponse(headers={"Content-Type": "text/html"})  # it need not be believed
        await answer.prepare(request)
        try:
            await answer.write(content if content is not None else b"%PDF-1.7")
            if content is None:
                await self._released.wait()
            await answer.write_eof()
        except ConnectionError:  # whoever has had enough hangs up
            self.cut_short += 1
        return answer

    async def _approval(self, request: web.Request) -> web.StreamResponse:
        """Answer as `FetchApprovalFetch` of Twilio's OpenAPI description says."""
        if trouble := self._refusal(request) or await self._misbehave(request, self._with_templates):
            return trouble
        sid = request.match_info["sid"]
        self.asked_for_approval.append(sid)
        if sid not in self.approvals and sid not in self.contents:
            return _missing(request)
        url = f"https://content.twilio.com{request.path}"
        return web.json_response(
            {"sid": sid, "account_sid": self.account_sid, "whatsapp": self._approval_of(sid), "url": url}
        )

    def _approval_of(self, sid: str) -> dict[str, Any]:
        made = self.contents.get(sid)
        return {
            "name": made.name if made else "ready",
            "category": made.category if made else "UTILITY",
            "content_type": next(iter(made.types)) if made else "twilio/text",
            "status": self.approvals.get(sid, "unsubmitted"),
            "rejection_reason": made.rejection_reason if made else "",
            "allow_category_change": True,
        }

    async def _list_contents(self, request: web.Request) -> web.StreamResponse:
        """Answer one page, as `ListContentAndApprovals` of Twilio's OpenAPI description says."""
        if trouble := self._refusal(request) or await self._misbehave(request, self._with_templates):
            return trouble
        wanted = dict(request.query)
        self.pages.append(wanted)
        size, number = int(wanted.get("PageSize", "50")), int(wanted.get("Page", "0"))
        page = list(self.contents)[number * size : (number + 1) * size]

        def url(number: int) -> str:
            return f"https://content.twilio.com{request.path}?PageSize={size}&Page={number}"

        meta = {
            "key": "contents",
            "page": number,
            "page_size": size,
            "url": url(number),
            "first_page_url": url(0),
            "previous_page_url": url(number - 1) if number else None,
            "next_page_url": url(number + 1) if (number + 1) * size < len(self.contents) else None,
        }
        told = [self._content(self.contents[sid]) | {"approval_requests": self._approval_of(sid)} for sid in page]
        return web.json_response({"meta": meta, "contents": told})

    async def _make_content(self, request: web.Request) -> web.StreamResponse:
        """Answer as `CreateContent` of Twilio's OpenAPI description says."""
        if trouble := self._refusal(request) or await self._misbehave(request, self._with_templates):
            return trouble
        wanted = await request.json()
        if not wanted.get("types") or not wanted.get("language") or "null" in json.dumps(wanted):
            return _error(Reject(400, 20001, "Invalid types. At least one content type definition is required"))
        sid = f"HX{0xE000 + len(self.contents):032x}"
        named = {name: wanted[name] for name in ("friendly_name", "language", "types")}
        self.contents[sid] = Content(sid, **named, variables=wanted.get("variables", {}))
        return web.json_response(self._content(self.contents[sid]), status=201)

    async def _fetch_content(self, request: web.Request) -> web.StreamResponse:
        if trouble := self._refusal(request) or await self._misbehave(request, self._with_templates):
            return trouble
        made = self.contents.get(request.match_info["sid"])
        return web.json_response(self._content(made)) if made else _missing(request)

    async def _delete_content(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        return web.Response(status=204) if self.contents.pop(request.match_info["sid"], None) else _missing(request)

    async def _submit_content(self, request: web.Request) -> web.StreamResponse:
        """Answer as `CreateApprovalCreate` of Twilio's OpenAPI description says."""
        if trouble := self._refusal(request) or await self._misbehave(request, self._with_templates):
            return trouble
        made, wanted = self.contents.get(request.match_info["sid"]), await request.json()
        if made is None:
            return _missing(request)
        made.name, made.category = wanted["name"], wanted["category"]
        self.approvals[made.sid] = "received"
        return web.json_response(self._approval_of(made.sid), status=201)

    def _content(self, made: Content) -> dict[str, Any]:
        url = f"https://content.twilio.com/v1/Content/{made.sid}"
        at = self.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        links = {"approval_create": f"{url}/ApprovalRequests/whatsapp", "approval_fetch": f"{url}/ApprovalRequests"}
        return {
            "sid": made.sid,
            "account_sid": self.account_sid,
            "friendly_name": made.friendly_name,
            "language": made.language,
            "types": made.types,
            "variables": made.variables,
            "date_created": at,
            "date_updated": at,
            "url": url,
            "links": links,
        }

    async def _typing(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        self.typings.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response({"success": True})

    def _payload(self, message: Message) -> dict[str, Any]:
        uri = f"/2010-04-01/Accounts/{self.account_sid}/Messages/{message.sid}"
        created = format_datetime(message.created_at.astimezone(UTC))
        return {
            "account_sid": self.account_sid,
            "api_version": "2010-04-01",
            "body": message.body,
            "date_created": created,
            "date_sent": created if _is_sent(message) else None,
            "date_updated": created,
            "direction": "outbound-api",
            "error_code": message.error_code,
            "error_message": None if message.error_code is None else "Failed by the test",
            "from": message.from_,
            "messaging_service_sid": None,
            "num_media": "0",
            "num_segments": "1",
            "price": None,
            "price_unit": None,
            "sid": message.sid,
            "status": message.status,
            "subresource_uris": {"media": f"{uri}/Media.json"},
            "to": message.to,
            "uri": f"{uri}.json",
        }


def _missing(request: web.Request) -> web.Response:
    return _error(Reject(404, 20404, f"The requested resource {request.path} was not found"))


def _is_sent(message: Message) -> bool:
    return message.status not in ("accepted", "queued")


def _fits(message: Message, wanted: dict[str, str]) -> bool:
    """Tell whether a message is one that a list was asked for: by recipient, sender, and the day it was sent."""
    if wanted.get("To", message.to) != message.to or wanted.get("From", message.from_) != message.from_:
        return False
    day = message.created_at.astimezone(UTC).date().isoformat() if _is_sent(message) else None
    tests: dict[str, Callable[[str, str], bool]] = {
        "DateSent": lambda sent, given: sent == given,
        "DateSent<": lambda sent, given: sent <= given,
        "DateSent>": lambda sent, given: sent >= given,
    }
    return all(day is not None and holds(day, wanted[name][:10]) for name, holds in tests.items() if name in wanted)


def _error(reject: Reject) -> web.Response:
    payload = {
        "code": reject.code,
        "message": reject.message,
        "more_info": f"https://www.twilio.com/docs/errors/{reject.code}",
        "status": reject.status,
    }
    headers = {} if reject.retry_after is None else {"Retry-After": f"{reject.retry_after:g}"}
    return web.json_response(payload, status=reject.status, headers=headers)
