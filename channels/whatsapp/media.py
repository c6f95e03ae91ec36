"""Files that a customer sends: the model is told their type and size. The file itself is looked at once and not kept.

When the message comes in, its note names the file with its address at Twilio, and nothing is fetched. Before the message
is answered the file is read, with the tenant's account, and the note is filled in; one that cannot be read stays as it is.
Twilio sends on to its store, which is given no password; to anywhere else nobody follows.

https://www.twilio.com/docs/messaging/api/media-resource
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from channels.whatsapp.section import WhatsAppSection

API = "https://api.twilio.com"
LARGEST = 16 * 1024 * 1024
"""Bytes; what WhatsApp carries at most. No more is read."""
TIMEOUT = 10.0
"""Seconds for one file, from when it is wanted."""
AT_ONCE = 4
"""Files that one sender reads at a time, so that they leave connections for what is sent."""
HOPS = 3
MOST = 10
"""Files looked at in one message, which is as many as Twilio puts into one."""

_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,50}/[a-z0-9][a-z0-9.+-]{0,70}")
_LINK = (
    rf"{re.escape(API)}/2010-04-01/Accounts/(?P<account>AC[0-9a-fA-F]{{32}})/Messages/[A-Z]{{2}}[0-9a-fA-F]{{32}}"
    r"/Media/ME[0-9a-fA-F]{32}"
)
_NOTE = re.compile(rf"\[(?P<type>{_TYPE.pattern}|media), (?P<link>{_LINK})\]")
_STORE = re.compile(
    r"(?:[a-z0-9-]+\.)*(?:twilio|twiliocdn)\.com|(?:[a-z0-9-]+\.)*s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com"
)
"""Hosts to which Twilio may send on. Of Amazon's only the store: under other names there stand machines of a private net."""
_LONGEST_MARK = 16
_MARKS = (
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF.{4}WEBP", "image/webp"),
    (rb"RIFF.{4}WAVE", "audio/wav"),
    (rb"%PDF-", "application/pdf"),
    (rb"OggS", "audio/ogg"),
    (rb"#!AMR", "audio/amr"),
    (rb"ID3|\xff[\xf2\xf3\xfa\xfb]", "audio/mpeg"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "audio/aac"),
    (rb".{4}ftypM4A", "audio/mp4"),
    (rb".{4}ftyp3g", "video/3gpp"),
    (rb".{4}ftyp(?:hei[cmx]|mif1)", "image/heic"),
    (rb".{4}ftyp", "video/mp4"),
    (rb"BEGIN:VCARD", "text/vcard"),
)
"""How files of each type begin, of those that WhatsApp carries."""
_OF_ZIP = re.compile(r"application/(?:zip|vnd\.openxmlformats-officedocument\..+|vnd\.oasis\.opendocument\..+)")
"""Types whose files begin as a zip does, and cannot be told apart by that."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a file."""

    head: bytes
    size: int
    """Bytes; more than LARGEST where no more was read."""


def note(declared: str, link: str) -> str:
    """Return the note under which a file that came in stands in the conversation, with its address if it is Twilio's."""
    declared = declared or "media"
    whole = f"[{declared}, {link}]"
    return whole if _NOTE.fullmatch(whole) else f"[{declared[:80]}]"


async def fill_in(
    text: str, section: WhatsAppSection, http: httpx.AsyncClient, api_url: str | None, gate: asyncio.Semaphore
) -> str:
    """Return a text in which the notes of this account's files tell their type and size, as far as they can be read.

    `gate` lets so many be read at a time.
    """
    notes = [one for one in _NOTE.finditer(text) if one["account"] == section.account_sid][:MOST]
    looks = await asyncio.gather(*(_look(one["link"], section, http, api_url, gate) for one in notes))
    for one, look in zip(notes, looks, strict=True):
        if look is not None:
            text = text.replace(one[0], f"[{type_of(look.head, one['type'])}, {_size(look.size)}]")
    return text


async def _look(
    link: str, section: WhatsAppSection, http: httpx.AsyncClient, api_url: str | None, gate: asyncio.Semaphore
) -> Look | None:
    """Read a file to its end, or as far as it may be; None where that fails."""
    base = httpx.URL(api_url or API)
    url = httpx.URL(str(base).rstrip("/") + httpx.URL(link).raw_path.decode())
    account: tuple[str, str] | None = (section.account_sid, section.auth_token.get_secret_value())
    try:
        async with asyncio.timeout(TIMEOUT), gate:
            for _ in range(HOPS + 1):
                # What is sent packed would be counted packed.
                async with http.stream("GET", url, auth=account, headers={"Accept-Encoding": "identity"}) as answer:
                    if answer.status_code == 200:
                        return await _read(answer.aiter_raw())
                    if not answer.has_redirect_location:
                        return None
                    url, account = url.join(answer.headers["Location"]), None
                    if not _may_follow(url, base):
                        return None
    except Exception:  # a note that is not filled in is no reason not to answer
        return None
    return None


def _may_follow(url: httpx.URL, base: httpx.URL) -> bool:
    if (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port):
        return True
    return url.scheme == "https" and url.port is None and not url.userinfo and bool(_STORE.fullmatch(url.host))


async def _read(chunks: AsyncIterator[bytes]) -> Look:
    head, size = b"", 0
    async for chunk in chunks:
        head = (head + chunk[:_LONGEST_MARK])[:_LONGEST_MARK]
        size += len(chunk)
        if size > LARGEST:
            break
    return Look(head, size)


def type_of(head: bytes, declared: str) -> str:
    """Return a file's type by how it begins; what it was declared as, where that does not tell."""
    if head.startswith(b"PK\x03\x04"):
        return declared if _OF_ZIP.fullmatch(declared) else "application/zip"
    return next((name for mark, name in _MARKS if re.match(mark, head, re.DOTALL)), declared)


def _size(size: int) -> str:
    if size > LARGEST:
        return f"more than {LARGEST // 1024**2} MB"
    if size < 1024:
        return f"{size} bytes"
    if size < 1024**2:
        return f"{size / 1024:.0f} KB"
    return f"{size / 1024**2:.1f} MB"
