import pytest
from pydantic import BaseModel, ValidationError

from channels.whatsapp.section import WhatsAppSection

SID = "AC" + "0a" * 16
TOKEN = "s3cret-auth-token"


class TenantFile(BaseModel):
    whatsapp: WhatsAppSection


def errors_of(section: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        TenantFile.model_validate({"whatsapp": section})
    return f"{caught.value} {caught.value.errors()}"


@pytest.mark.parametrize("written", ["+14155238886", "whatsapp:+14155238886"])
def test_the_sender_is_kept_with_its_prefix(written: str) -> None:
    section = WhatsAppSection.model_validate({"account_sid": SID, "auth_token": TOKEN, "sender": written})
    assert section.sender == "whatsapp:+14155238886"
    assert section.previous_auth_token is None
    assert TOKEN not in repr(section)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("sender", 14155238886, "in quotes"),
        ("sender", "4155238886", "plus sign"),
        ("sender", "+1 415 523 8886", "no spaces"),
        ("sender", "whatsapp:+14155238886\n", "no spaces"),
        ("account_sid", "AC123", "not an account SID of Twilio: AC and 32 digits and letters a-f"),
        ("account_sid", SID + "\n", "not an account SID of Twilio"),
        ("auth_token", "", "at least 1"),
        ("auth_token", None, "valid string"),
        ("auth_tokne", "x", "not permitted"),
    ],
)
def test_a_wrong_value_is_refused_and_named(field: str, value: object, says: str) -> None:
    said = errors_of({"account_sid": SID, "auth_token": TOKEN, "sender": "+14155238886", field: value})
    assert says in said
    assert f"whatsapp.{field}" in said


@pytest.mark.parametrize(
    "section",
    [
        {"account_sid": SID, "auth_token": TOKEN},  # a missing field shows the whole section by default
        {"account_sid": TOKEN, "auth_token": TOKEN, "sender": "+14155238886"},
        {"account_sid": SID, "auth_token": {"value": TOKEN}, "sender": "+14155238886"},
        {"account_sid": SID, "auth_tokne": TOKEN, "sender": "+14155238886"},
        {"account_sid": SID, "auth_token": "t", "previous_auth_token": [TOKEN], "sender": "+14155238886"},
        {"account_sid": SID, "auth_token": "t", "sender": TOKEN},
        {"account_sid": SID, "auth_token": TOKEN, "sender": "+14155238886", "signature": "sha256"},
        {"account_sid": SID, "auth_token": "t", "sender": "+14155238886", "previous_signing_key": TOKEN},
        {"account_sid": SID, "auth_token": "t", "sender": "+14155238886", "signing_key": [TOKEN]},
    ],
)
def test_an_error_never_repeats_a_secret(section: dict[str, object]) -> None:
    assert TOKEN not in errors_of(section)
