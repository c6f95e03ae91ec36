"""Proves that a webhook was sent by Twilio.

| the request has                              | it is checked with                                   |
|----------------------------------------------|------------------------------------------------------|
| no X-Twilio-Webhooks-Signature-Settings      | the auth tokens and SHA-1, if the tenant allows that |
| that header, naming HMAC_SHA1 or no algorithm | the signing keys and SHA-1, if the tenant allows that |
| that header, naming HMAC_SHA256              | the signing keys and SHA-256                         |
| that header, naming anything else            | nothing: it is refused                               |

The header is not signed itself. Whoever changes it must still know the secret that is asked for then.

Twilio signs an address as it was given, and may escape more of its query when it asks for it: `'`, `@`, `ñ`.
https://github.com/twilio/twilio-node/pull/621
https://www.twilio.com/docs/usage/webhooks/webhooks-security
https://www.twilio.com/docs/usage/webhooks/webhook-shared-keys
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from pydantic import SecretStr
from starlette.datastructures import ImmutableMultiDict
from twilio.request_validator import HMAC_SHA1, HMAC_SHA256, RequestValidator, get_signature_algorithm

from channels.errors import Refused
from channels.whatsapp.section import WhatsAppSection

_FORM = "application/x-www-form-urlencoded"
_ESCAPED_WITHOUT_NEED = re.compile("(?:%[89A-F][0-9A-F])+|%(?:2[14789ACF]|3[ABF]|40)", re.IGNORECASE)
"""What can stand in a query as it is, and separates nothing there (RFC 3986 and 3987, `iquery`)."""


def check(section: WhatsAppSection, url: str, form: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> None:
    """Return when the request carries Twilio's signature under a present or previous secret, else raise Refused.

    `url` is the configured public URL + the raw path + `?` and the raw query string, byte for byte as they were
    received (decoded as UTF-8, nothing unquoted): Twilio signs the address it was given, and a URL rebuilt from the
    request differs behind a proxy and where a framework encodes anew. `form` holds every parameter in the order
    received, blank and repeated ones too. A signature carries no time, so a repeat passes; MessageSid stops it.
    """
    signatures = _of(headers, "x-twilio-signature")
    content_types = _of(headers, "content-type")
    if len(signatures) != 1:
        raise Refused("The request has no X-Twilio-Signature, or several.")
    if len(content_types) != 1 or content_types[0].partition(";")[0].strip().lower() != _FORM:
        raise Refused(f"The request is not {_FORM}.")

    algorithm, secrets = _scheme(section, headers)
    for secret in filter(None, secrets):
        for given in {url, _unescaped(url)}:
            if _is_signed(secret.get_secret_value(), given, form, signatures[0], algorithm):
                return
    raise Refused("X-Twilio-Signature does not fit the public URL, the form and the secret.")


def _of(headers: Mapping[str, str], wanted: str) -> list[str]:
    return [value for name, value in headers.items() if name.lower() == wanted]


def _scheme(section: WhatsAppSection, headers: Mapping[str, str]) -> tuple[str, Sequence[SecretStr | None]]:
    """Return the algorithm, and the secrets with which it may have been used. Raises Refused."""
    settings = _of(headers, "x-twilio-webhooks-signature-settings")
    if len(settings) > 1:
        raise Refused("The request has several X-Twilio-Webhooks-Signature-Settings.")
    algorithm = get_signature_algorithm(settings[0]).upper() if settings else HMAC_SHA1
    if algorithm not in (HMAC_SHA1, HMAC_SHA256):  # the library would write what a stranger sent into the log
        raise Refused("The request is signed with an algorithm that nobody here knows.")
    if section.signature == "sha256" and algorithm != HMAC_SHA256:
        raise Refused("The request is not signed with SHA-256, as this tenant wants it.")
    if settings:
        return algorithm, (section.signing_key, section.previous_signing_key)
    return algorithm, (section.auth_token, section.previous_auth_token)


def _unescaped(url: str) -> str:
    """Return the URL with nothing escaped in its query that need not be."""
    path, mark, query = url.partition("?")
    return path + mark + _ESCAPED_WITHOUT_NEED.sub(_as_given, query)


def _as_given(escaped: re.Match[str]) -> str:
    try:
        return unquote(escaped[0], errors="strict")
    except UnicodeDecodeError:  # no text in UTF-8
        return escaped[0]


def _is_signed(secret: str, url: str, form: Sequence[tuple[str, str]], signature: str, algorithm: str) -> bool:
    try:
        return bool(RequestValidator(secret).validate(url, ImmutableMultiDict(form), signature, algorithm))
    except Exception as error:  # the validator raises various errors on odd requests, and none of them is proof
        raise Refused(f"The signature cannot be checked: {type(error).__name__}.") from None
