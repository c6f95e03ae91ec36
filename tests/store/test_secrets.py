import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.secrets import SecretBox, WrongKey

BOX = SecretBox(b"k" * 32)
FIELD = "channels.telegram.token"


@given(st.text())
def test_what_is_sealed_opens_again(text: str) -> None:
    assert BOX.open("acme", FIELD, BOX.seal("acme", FIELD, text)) == text


def test_a_sealed_text_names_its_key_and_hides_its_words() -> None:
    sealed = BOX.seal("acme", FIELD, "123456:SECRET")
    assert re.fullmatch(rf"sealed:v1:{BOX.key_id}:[A-Za-z0-9_=-]+", sealed)
    assert re.fullmatch("[0-9a-f]{8}", BOX.key_id)
    body = base64.urlsafe_b64decode(sealed.rpartition(":")[2])
    assert b"SECRET" not in body
    assert b"k" * 8 not in body


def test_sealing_again_changes_nothing_but_another_text_tenant_field_or_key_does() -> None:
    sealed = BOX.seal("acme", FIELD, "token")
    assert BOX.seal("acme", FIELD, "token") == sealed
    others = [
        BOX.seal("acme", FIELD, "tokem"),
        BOX.seal("acmf", FIELD, "token"),
        BOX.seal("acme", "channels.whatsapp.auth_token", "token"),
        SecretBox(b"l" * 32).seal("acme", FIELD, "token"),
    ]
    assert len({sealed, *others}) == 5


def test_a_sealed_text_of_another_release_still_opens() -> None:
    # Rows written long ago must open: neither the derivation of keys nor the form may ever change under the name v1.
    assert BOX.seal("acme", FIELD, "token") == "sealed:v1:1f6aea02:uyXLNJC1qg7UOWsSW26HMDKaOst4"
    assert BOX.derive("purpose") == "Ncn0wOBmPbRkoJqSyKZt2jIprvwNHq_ZWtDdlSi2RDY"


@pytest.mark.parametrize(("tenant", "field"), [("other", FIELD), ("acme", "agent.token"), ("acmec", FIELD[1:])])
def test_moved_to_another_tenant_or_field_it_does_not_open(tenant: str, field: str) -> None:
    with pytest.raises(WrongKey, match="altered or moved; apply the tenant's file again"):
        BOX.open(tenant, field, BOX.seal("acme", FIELD, "token"))


def test_another_key_is_told_with_both_ids_and_the_way_out() -> None:
    other = SecretBox(b"l" * 32)
    with pytest.raises(WrongKey) as caught:
        other.open("acme", FIELD, BOX.seal("acme", FIELD, "token"))
    said = str(caught.value)
    assert BOX.key_id in said
    assert other.key_id in said
    assert "VUELVO_SECRET_KEY" in said
    assert f"{FIELD} of tenant acme" in said


def test_no_single_changed_letter_goes_unnoticed() -> None:
    sealed = BOX.seal("acme", FIELD, "token!!")  # 23 bytes: no letter of the base64 is without meaning but one
    head, _, body = sealed.rpartition(":")
    for place, letter in enumerate(body.rstrip("=")[:-1]):
        altered = body[:place] + ("A" if letter != "A" else "B") + body[place + 1 :]
        with pytest.raises(WrongKey):
            BOX.open("acme", FIELD, f"{head}:{altered}")


@pytest.mark.parametrize(
    "stored", ["", "token", "sealed:v1:", f"sealed:v1:{BOX.key_id}:", f"sealed:v1:{BOX.key_id}:@@@", "sealed:v2:ab:cd"]
)
def test_what_was_never_sealed_is_refused(stored: str) -> None:
    with pytest.raises(WrongKey, match="acme"):
        BOX.open("acme", FIELD, stored)


def test_a_derived_token_is_fit_for_a_header_and_belongs_to_key_and_purpose() -> None:
    token = BOX.derive("telegram webhook acme 123")
    assert re.fullmatch("[A-Za-z0-9_-]{43}", token)
    assert token == SecretBox(b"k" * 32).derive("telegram webhook acme 123")
    assert token != BOX.derive("telegram webhook acme 124")
    assert token != SecretBox(b"l" * 32).derive("telegram webhook acme 123")
