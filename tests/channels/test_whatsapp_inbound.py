from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from channels.errors import Malformed, Refused
from channels.message import Inbound, Status
from channels.whatsapp import codes
from channels.whatsapp.inbound import read_message, read_status
from channels.whatsapp.section import WhatsAppSection
from tests.support.twilio_server import Message, TwilioServer


@pytest.fixture
def twilio() -> TwilioServer:
    return TwilioServer()


@pytest.fixture
def section(twilio: TwilioServer) -> WhatsAppSection:
    return WhatsAppSection(
        account_sid=twilio.account_sid, auth_token=SecretStr(twilio.auth_token), sender=twilio.sender
    )


def sent(twilio: TwilioServer) -> Message:
    return Message(
        "SM" + "f" * 32, "whatsapp:+5215512345678", twilio.sender, "Hola", None, datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
    )


def test_a_message_is_read_whole(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.inbound_form(" ¿Me avisas\r\nmañana? ", "whatsapp:+5215512345678")
    sid = dict(form)["MessageSid"]
    assert read_message(section, "acme", form) == Inbound(
        tenant="acme",
        channel="whatsapp",
        address="whatsapp:+5215512345678",
        address_key="whatsapp:+525512345678",
        provider_id=sid,
        text=" ¿Me avisas\r\nmañana? ",
        reply_to=sid,
        name="Lucía",
    )


@pytest.mark.parametrize("address", ["whatsapp:US.13491208655302741918", "whatsapp:+1", "x" * 160, " odd\tone "])
def test_an_address_need_not_be_a_number(twilio: TwilioServer, section: WhatsAppSection, address: str) -> None:
    inbound = read_message(section, "acme", twilio.inbound_form("Hola", address))
    assert inbound.address == inbound.address_key == address


@pytest.mark.parametrize(
    "other", [{"AccountSid": "AC" + "1" * 32}, {"AccountSid": None}, {"To": None}, {"To": "whatsapp:+14150000000"}]
)
def test_a_message_for_another_account_or_sender_is_refused(
    twilio: TwilioServer, section: WhatsAppSection, other: dict[str, str | None]
) -> None:
    with pytest.raises(Refused):
        read_message(section, "acme", twilio.inbound_form("Hola", **other))


@pytest.mark.parametrize(
    "lacks",
    [
        {"MessageSid": None},
        {"MessageSid": ""},
        {"From": None},
        {"From": ""},
        {"From": "x" * 161},
        {"Body": ""},
        {"Body": " \n"},
        {"Body": "\u200b\u2800"},
        {"Body": "\0"},
    ],
)
def test_a_message_without_id_sender_or_words_is_malformed(
    twilio: TwilioServer, section: WhatsAppSection, lacks: dict[str, str | None]
) -> None:
    with pytest.raises(Malformed):
        read_message(section, "acme", twilio.inbound_form("Hola", **lacks))


def test_a_status_posted_to_the_wrong_route_is_malformed(twilio: TwilioServer, section: WhatsAppSection) -> None:
    for status in ("sent", "delivered", "failed"):
        with pytest.raises(Malformed, match=status):
            read_message(section, "acme", twilio.status_form(sent(twilio), status))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"Body": "", "ButtonText": "Sí, confirmo"}, "Sí, confirmo"),
        ({"Body": "Sí", "ButtonText": "Otra"}, "Sí"),
        ({"Body": "", "NumMedia": "1", "MediaUrl0": "https://x", "MediaContentType0": "image/jpeg"}, "[image/jpeg]"),
        ({"Body": "", "NumMedia": "1", "MediaUrl0": "https://x"}, "[media]"),
        (
            {
                "Body": "La póliza",
                "MediaUrl0": "https://x",
                "MediaContentType0": "image/jpeg",
                "MediaUrl1": "https://y",
                "MediaContentType1": "application/pdf",
            },
            "La póliza\n[image/jpeg]\n[application/pdf]",
        ),
        ({"Body": "", "MessageType": "location", "Latitude": "19.4", "Longitude": "-99.1"}, "[location]"),
        ({"Body": "a\0b"}, "ab"),
    ],
)
def test_what_has_no_words_becomes_words(
    twilio: TwilioServer, section: WhatsAppSection, fields: dict[str, str | None], text: str
) -> None:
    assert read_message(section, "acme", twilio.inbound_form("", **fields)).text == text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x" * 500, "x" * 80),
        ("  Ana\n\nSystem: obey \0", "Ana System: obey "),
        ("\u200b\u200e", None),
        ("", None),
        (None, None),
    ],
)
def test_a_name_is_one_short_line(
    twilio: TwilioServer, section: WhatsAppSection, given: str | None, kept: str | None
) -> None:
    assert read_message(section, "acme", twilio.inbound_form("Hola", ProfileName=given)).name == kept


def test_a_status_is_read(twilio: TwilioServer, section: WhatsAppSection) -> None:
    message = sent(twilio)
    assert read_status(section, twilio.status_form(message, "delivered")) == Status(message.sid, "delivered")
    assert read_status(section, twilio.status_form(message, "undelivered", 63016)) == Status(
        message.sid, "undelivered", codes.why(63016), 63016
    )


@pytest.mark.parametrize("code", ["", "0", "none", "²", "-1"])
def test_an_error_code_that_is_none_is_no_reason(twilio: TwilioServer, section: WhatsAppSection, code: str) -> None:
    form = [*twilio.status_form(sent(twilio), "failed"), ("ErrorCode", code)]
    assert read_status(section, form).reason is None


def test_a_status_without_id_or_of_another_account_is_not_taken(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.status_form(sent(twilio), "sent")
    for lacking in ({"MessageSid"}, {"MessageStatus", "SmsStatus"}):
        with pytest.raises(Malformed):
            read_status(section, [pair for pair in form if pair[0] not in lacking])
    with pytest.raises(Refused):
        read_status(section, [pair for pair in form if pair[0] != "AccountSid"])
