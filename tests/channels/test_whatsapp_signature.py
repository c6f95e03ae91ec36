from collections.abc import Mapping, Sequence

import pytest
from pydantic import SecretStr, ValidationError

from channels.errors import Refused
from channels.whatsapp import signature
from channels.whatsapp.section import WhatsAppSection
from tests.support.twilio_server import TwilioServer

URL = "https://vuelvo.example/hooks/whatsapp/acme"


@pytest.fixture
def twilio() -> TwilioServer:
    return TwilioServer()


@pytest.fixture
def section(twilio: TwilioServer) -> WhatsAppSection:
    return WhatsAppSection(
        account_sid=twilio.account_sid, auth_token=SecretStr(twilio.auth_token), sender=twilio.sender
    )


def refused(section: WhatsAppSection, url: str, form: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> str:
    with pytest.raises(Refused) as caught:
        signature.check(section, url, form, headers)
    return str(caught.value)


def test_the_example_of_twilios_own_library_is_accepted() -> None:
    section = WhatsAppSection(account_sid="AC" + "0" * 32, auth_token=SecretStr("12345"), sender="+18005551212")
    form = [
        ("CallSid", "CA1234567890ABCDE"),
        ("Digits", "1234"),
        ("From", "+14158675309"),
        ("To", "+18005551212"),
        ("Caller", "+14158675309"),
    ]
    headers = {
        "X-Twilio-Signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    signature.check(section, "https://mycompany.com/myapp.php?foo=1&bar=2", form, headers)
    assert refused(section, "https://mycompany.com/myapp.php?foo=1&bar=3", form, headers)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://vuelvo.example:8443/hooks/whatsapp/acme",
        "https://vuelvo.example/hooks/whatsapp/o'brien",
        "https://vuelvo.example/hooks/whatsapp/acme?a=one%20two",
        "https://vuelvo.example/hooks/whatsapp/acme?nombre=José&b=%C3%A9",
        "https://vuelvo.example/hooks/whatsapp/acme?b=2&a=1&b=1",
    ],
)
def test_the_url_as_twilio_was_given_it_is_accepted(twilio: TwilioServer, section: WhatsAppSection, url: str) -> None:
    form = twilio.inbound_form("Hola")
    headers = twilio.sign(url, form)
    signature.check(section, url, form, headers)
    signature.check(section, url, form, {name.lower(): value for name, value in headers.items()})
    assert refused(section, url + "/", form, headers)


@pytest.mark.parametrize(
    ("given", "asked_for"),
    [
        ("?who=o'brien", "?who=o%27brien"),
        ("?to=sip:ana@vuelvo.example", "?to=sip%3Aana%40vuelvo.example"),
        ("?to=sip:ana@vuelvo.example", "?to=sip%3aana%40vuelvo.example"),
        ("?nombre=José&b=a%20%26+c", "?nombre=Jos%C3%A9&b=a%20%26+c"),
        ("?b=%ff'", "?b=%ff%27"),
    ],
)
def test_what_twilio_escapes_without_need_when_it_asks_for_a_url_is_signed_as_it_was_given(
    twilio: TwilioServer, section: WhatsAppSection, given: str, asked_for: str
) -> None:
    form = twilio.inbound_form("Hola")
    signature.check(section, URL + asked_for, form, twilio.sign(URL + given, form))
    signature.check(section, URL + asked_for, form, twilio.sign(URL + asked_for, form))
    assert refused(section, URL + asked_for, form, twilio.sign(URL + given + "x", form))


@pytest.mark.parametrize("spoken_to", ["https://vuelvo.example:443", "https://vuelvo.example"])
def test_the_default_port_may_be_named_or_not(twilio: TwilioServer, section: WhatsAppSection, spoken_to: str) -> None:
    form = twilio.inbound_form("Hola")
    signature.check(section, URL, form, twilio.sign(f"{spoken_to}/hooks/whatsapp/acme", form))


@pytest.mark.parametrize(
    ("signed", "rebuilt"),
    [
        (URL + "?a=one%20two", URL + "?a=one two"),
        (URL + "?a=one%20two", URL + "?a=one+two"),
        (URL + "?nombre=Jos%C3%A9", URL + "?nombre=José"),
        (URL + "?a=1&b=2", URL + "?a=1%26b=2"),
        (URL + "?a=one+two", URL + "?a=one%2Btwo"),
        (URL + "/o'brien", URL + "/o%27brien"),
        (URL + "?b=2&a=1", URL + "?a=1&b=2"),
        (URL, URL + "/"),
        (URL, URL.replace("https", "http")),
        (URL, URL.replace("vuelvo", "VUELVO")),
        (URL, URL.replace("acme", "other")),
    ],
)
def test_a_url_written_otherwise_is_refused(
    twilio: TwilioServer, section: WhatsAppSection, signed: str, rebuilt: str
) -> None:
    form = twilio.inbound_form("Hola")
    assert refused(section, rebuilt, form, twilio.sign(signed, form))


def test_the_previous_token_is_accepted_while_it_is_named(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.inbound_form("Hola")
    headers = twilio.sign(URL, form, token="the-token-before")
    assert refused(section, URL, form, headers)
    rotating = section.model_copy(update={"previous_auth_token": SecretStr("the-token-before")})
    signature.check(rotating, URL, form, headers)
    signature.check(rotating, URL, form, twilio.sign(URL, form))
    assert refused(rotating, URL, form, twilio.sign(URL, form, token="a third"))


@pytest.mark.parametrize("text", ["", "  Hola  ", "una\r\ndos\ntres", "¿Qué tal? 👋🏽", "a&b=c+d%20e"])
def test_every_field_counts_as_it_was_sent(twilio: TwilioServer, section: WhatsAppSection, text: str) -> None:
    form = [*twilio.inbound_form(text, ButtonText=""), ("SomethingNew", " x ")]
    headers = twilio.sign(URL, form)
    signature.check(section, URL, form, headers)
    assert refused(section, URL, [(name, value + " ") for name, value in form], headers)
    assert refused(section, URL, [pair for pair in form if pair[0] != "ButtonText"], headers)
    assert refused(section, URL, [pair for pair in form if pair[0] != "SomethingNew"], headers)


def test_a_repeated_field_counts_with_each_of_its_values(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = [*twilio.inbound_form("Hola"), ("Tag", "b"), ("Tag", "a"), ("Tag", "b")]
    headers = twilio.sign(URL, form)
    signature.check(section, URL, form, headers)
    assert refused(section, URL, [pair for pair in form if pair != ("Tag", "a")], headers)


def test_an_odd_request_is_refused_and_never_an_error(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.inbound_form("Hola")
    good = twilio.sign(URL, form)
    signed = good["X-Twilio-Signature"]
    json = good | {"Content-Type": "application/json"}
    assert refused(section, URL, form, {})
    assert refused(section, URL, form, {"Content-Type": good["Content-Type"]})
    assert refused(section, URL, form, {"X-Twilio-Signature": signed})
    assert refused(section, URL, form, good | {"x-twilio-signature": signed})
    assert refused(section, URL, form, json)
    assert refused(section, URL + "?bodySHA256=0", [], json | twilio.sign(URL + "?bodySHA256=0", []) | json)
    for odd in ("", "é", "x" * 100_000, signed.lower(), signed[:-1], signed + " "):
        assert refused(section, URL, form, good | {"X-Twilio-Signature": odd})
    for url in ("", "https://[::1", "https://vuelvo.example:port/", URL + "?a=\udce9"):
        assert refused(section, url, form, good)
    assert refused(section, URL, [("Body", "\ud83d")], good)


def test_a_refusal_never_repeats_the_token(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.inbound_form("Hola")
    said = refused(section, URL + "/", form, twilio.sign(URL, form))
    assert twilio.auth_token not in said
    assert "+52" not in said


# With a shared key and SHA-256

SETTINGS = "X-Twilio-Webhooks-Signature-Settings"


def signing(section: WhatsAppSection, **more: object) -> WhatsAppSection:
    """Return the section of a tenant that has a shared key at Twilio."""
    given = section.model_dump() | {"signing_key": "the-shared-key", "sender": section.sender} | more
    return WhatsAppSection.model_validate(given)


def test_what_is_signed_with_the_shared_key_is_accepted_and_nothing_else_where_the_tenant_wants_that(
    twilio: TwilioServer, section: WhatsAppSection
) -> None:
    form, strict, lenient = twilio.inbound_form("Hola"), signing(section, signature="sha256"), signing(section)
    by_token = twilio.sign(URL, form)
    twilio.signing_key = "the-shared-key"
    by_key, by_key_and_sha1 = twilio.sign(URL, form), twilio.sign(URL, form, algorithm="HMAC_SHA1")
    assert by_key[SETTINGS] == "key=webhooks_sharedkey_01,algorithm=HMAC_SHA256"
    signature.check(strict, URL, form, by_key)
    signature.check(strict, URL, form, {name.lower(): value for name, value in by_key.items()})
    assert "not signed with SHA-256" in refused(strict, URL, form, by_token)
    assert "not signed with SHA-256" in refused(strict, URL, form, by_key_and_sha1)
    for headers in (by_token, by_key, by_key_and_sha1):
        signature.check(lenient, URL, form, headers)
    assert refused(section, URL, form, by_key), "without a key there is nothing to check it with"
    assert refused(strict, URL + "/", form, by_key)
    assert refused(strict, URL, form[1:], by_key)


def test_one_secret_does_not_stand_for_the_other(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form, lenient = twilio.inbound_form("Hola"), signing(section)
    strict = signing(section, signature="sha256")
    by_token = twilio.sign(URL, form)
    twilio.signing_key = "the-shared-key"
    by_key = twilio.sign(URL, form)
    for both in (lenient, strict):
        assert refused(both, URL, form, by_token | {SETTINGS: "key=x,algorithm=HMAC_SHA1"})
        assert refused(both, URL, form, by_token | {SETTINGS: "key=x,algorithm=HMAC_SHA256"})
        assert refused(both, URL, form, {name: value for name, value in by_key.items() if name != SETTINGS})
    twilio.auth_token, twilio.signing_key = "somebody's", twilio.auth_token
    assert refused(strict, URL, form, twilio.sign(URL, form)), "the auth token is no shared key"


def test_the_previous_key_is_accepted_while_it_is_named(twilio: TwilioServer, section: WhatsAppSection) -> None:
    form = twilio.inbound_form("Hola")
    rotating = signing(section, signature="sha256", previous_signing_key="the-key-before")
    for key in ("the-shared-key", "the-key-before"):
        twilio.signing_key = key
        signature.check(rotating, URL, form, twilio.sign(URL, form))
    assert refused(signing(section, signature="sha256"), URL, form, twilio.sign(URL, form))
    twilio.signing_key = "a third"
    assert refused(rotating, URL, form, twilio.sign(URL, form))


@pytest.mark.parametrize("wanted", ["sha1", "sha256"])
def test_odd_settings_are_refused_and_never_an_error(
    twilio: TwilioServer, section: WhatsAppSection, caplog: pytest.LogCaptureFixture, wanted: str
) -> None:
    form, tenant = twilio.inbound_form("Hola"), signing(section, signature=wanted)
    twilio.signing_key = "the-shared-key"
    good = twilio.sign(URL, form)
    signature.check(tenant, URL, form, good)
    odd = (
        "",
        ",",
        "=",
        "algorithm=",
        "algorithm=HMAC_MD5",
        "algorithm=none",
        "algorithm=é\ud800",
        "algorithm" * 10_000,
    )
    for settings in odd:
        assert refused(tenant, URL, form, good | {SETTINGS: settings})
    assert refused(tenant, URL, form, good | {SETTINGS.lower(): good[SETTINGS]})
    twice = "key=1,algorithm=HMAC_SHA1,algorithm=HMAC_SHA256"
    assert refused(tenant, URL, form, good | {SETTINGS: twice})
    assert caplog.records == [], "a stranger writes nothing into the log"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"signature": "sha256"}, "signing_key"),
        ({"previous_signing_key": "before"}, "signing_key, which is missing"),
        ({"signature": "md5", "signing_key": "a-key"}, "'sha1' or 'sha256'"),
        ({"signing_key": ""}, "at least 1"),
    ],
)
def test_a_setting_that_could_prove_nothing_is_refused(
    section: WhatsAppSection, more: dict[str, object], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        WhatsAppSection.model_validate(section.model_dump() | more)
