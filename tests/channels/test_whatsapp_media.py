"""Files that come in by WhatsApp: told of by type and size, read from Twilio alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from channels.whatsapp import media
from channels.whatsapp.inbound import read_message
from channels.whatsapp.media import LARGEST, type_of
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.section import WhatsAppSection
from tests.support.twilio_server import TwilioServer
from tests.support.wait import eventually

JPEG, PDF = b"\xff\xd8\xff\xe0" + b"x" * 49_148, b"%PDF-1.7\n" + b"x" * 91


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with TwilioServer() as server:
        yield server


def section_for(twilio: TwilioServer, **other: Any) -> WhatsAppSection:
    fields = {"account_sid": twilio.account_sid, "auth_token": twilio.auth_token, "sender": twilio.sender}
    return WhatsAppSection.model_validate(fields | other)


@pytest.fixture
async def channel(twilio: TwilioServer) -> AsyncIterator[WhatsAppChannel]:
    channel = WhatsAppChannel(section_for(twilio), twilio.url)
    yield channel
    await channel.close()


def came_in(twilio: TwilioServer, text: str, *files: tuple[str, bytes | None]) -> str:
    """Return what stands in the conversation when a message with files has come in."""
    return read_message(section_for(twilio), "acme", twilio.file_form(text, *files)).text


async def test_a_file_is_told_of_by_type_and_size_and_the_password_stays_at_twilio(
    twilio: TwilioServer, channel: WhatsAppChannel
) -> None:
    text = came_in(twilio, "My policy", ("image/jpeg", JPEG), ("application/pdf", PDF))
    assert text.count("https://api.twilio.com/2010-04-01/Accounts/") == 2
    assert twilio.fetched == [], "nothing is fetched while the webhook waits"
    assert await channel.look_at_files(text) == "My policy\n[image/jpeg, 48 KB]\n[application/pdf, 100 bytes]"
    assert sorted((path.split("/")[1], has_password) for path, has_password in twilio.fetched) == [
        ("2010-04-01", True),
        ("2010-04-01", True),
        ("store", False),
        ("store", False),
    ]


async def test_a_file_is_what_its_content_says(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    text = came_in(twilio, "", ("image/jpeg", PDF), ("media", b"GIF89a"), ("text/plain", b"hello"))
    assert (
        await channel.look_at_files(text) == "[application/pdf, 100 bytes]\n[image/gif, 6 bytes]\n[text/plain, 5 bytes]"
    )


async def test_no_more_is_read_than_whatsapp_carries(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    whole, longer = JPEG[:4] + bytes(LARGEST - 4), JPEG[:4] + bytes(3 * LARGEST)
    text = came_in(twilio, "", ("image/jpeg", whole), ("image/jpeg", longer))
    assert await channel.look_at_files(text) == "[image/jpeg, 16.0 MB]\n[image/jpeg, more than 16 MB]"
    await eventually(lambda: twilio.cut_short == 1)


async def test_nobody_follows_to_another_host(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    text = came_in(twilio, "Here", ("image/jpeg", JPEG))
    async with TwilioServer() as other:
        other.files.update(twilio.files)
        twilio.store = f"{other.url}/store"
        assert await channel.look_at_files(text) == text
        assert other.fetched == []


@pytest.mark.parametrize(
    ("where", "may"),
    [
        ("https://mms.twiliocdn.com/AC/x?Expires=1", True),
        ("https://media.twiliocdn.com/x", True),
        ("https://api.twilio.com/x", True),
        ("https://s3-external-1.amazonaws.com/media.twiliocdn.com/x", True),
        ("https://media.s3.us-east-1.amazonaws.com/x", True),
        ("http://mms.twiliocdn.com/x", False),
        ("https://mms.twiliocdn.com:8443/x", False),
        ("https://me@mms.twiliocdn.com/x", False),
        ("https://eviltwiliocdn.com/x", False),
        ("https://mms.twiliocdn.com.evil.example/x", False),
        ("https://ec2-10-0-0-1.compute-1.amazonaws.com/x", False),
        ("https://169.254.169.254/latest/meta-data", False),
        ("file:///etc/passwd", False),
    ],
)
def test_twilio_may_send_on_to_its_store_alone(where: str, may: bool) -> None:
    assert media._may_follow(httpx.URL(where), httpx.URL(media.API)) is may


async def test_a_circle_of_redirects_ends(twilio: TwilioServer, channel: WhatsAppChannel) -> None:
    text = came_in(twilio, "", ("image/jpeg", JPEG))
    (sid,) = twilio.files
    account = f"/2010-04-01/Accounts/{twilio.account_sid}/Messages/MM1/Media"
    twilio.store = twilio.url + account
    assert await channel.look_at_files(text) == text
    assert [has_password for _, has_password in twilio.fetched] == [True, False]
    assert sid in twilio.fetched[1][0]


async def test_a_file_that_cannot_be_read_leaves_the_note_as_it_is(
    twilio: TwilioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = came_in(twilio, "Here", ("image/jpeg", JPEG))
    wrong = WhatsAppChannel(section_for(twilio, auth_token="wrong"), twilio.url)
    assert await wrong.look_at_files(text) == text
    channel = WhatsAppChannel(section_for(twilio), twilio.url)
    hangs = came_in(twilio, "", ("application/pdf", None))
    monkeypatch.setattr(media, "TIMEOUT", 0.2)
    async with asyncio.timeout(5):
        assert await channel.look_at_files(hangs) == hangs
    twilio.files.clear()
    assert await channel.look_at_files(text) == text
    async with twilio.down():
        assert await channel.look_at_files(text) == text
    await wrong.close()
    await channel.close()


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example/2010-04-01/Accounts/{account}/Messages/MM{a}/Media/ME{a}",
        "https://api.twilio.com.evil.example/2010-04-01/Accounts/{account}/Messages/MM{a}/Media/ME{a}",
        "http://api.twilio.com/2010-04-01/Accounts/{account}/Messages/MM{a}/Media/ME{a}",
        "https://api.twilio.com/2010-04-01/Accounts/AC{a}/Messages/MM{a}/Media/ME{a}",
        "https://api.twilio.com/2010-04-01/Accounts/{account}/Messages/../Media/ME{a}",
        "https://api.twilio.com/2010-04-01/Accounts/{account}.json",
    ],
)
async def test_what_a_customer_writes_like_a_note_leads_nowhere_else(
    twilio: TwilioServer, channel: WhatsAppChannel, link: str
) -> None:
    text = f"[image/jpeg, {link.format(account=twilio.account_sid, a='1' * 32)}]"
    assert await channel.look_at_files(text) == text
    assert twilio.fetched == []


@pytest.mark.parametrize(
    ("head", "declared", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/jpeg", "image/png"),
        (b"RIFF\n\0\0\0WEBPVP8 ", "image/webp", "image/webp"),
        (b"\0\0\0\x20ftypM4A ", "audio/aac", "audio/mp4"),
        (b"\0\0\0\x20ftypisom", "video/mp4", "video/mp4"),
        (b"\0\0\0\x18ftyp3gp4", "video/3gpp", "video/3gpp"),
        (b"OggS\0\x02", "audio/ogg", "audio/ogg"),
        (b"PK\x03\x04", "image/jpeg", "application/zip"),
        (
            b"PK\x03\x04",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        (b"", "image/jpeg", "image/jpeg"),
        (b"xx%PDF-", "text/plain", "text/plain"),
    ],
)
def test_a_type_is_known_by_how_a_file_begins(head: bytes, declared: str, expected: str) -> None:
    assert type_of(head, declared) == expected
