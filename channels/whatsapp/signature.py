"""Proves that a webhook was sent by Twilio."""

from collections.abc import Mapping, Sequence

from starlette.datastructures import ImmutableMultiDict
from twilio.request_validator import RequestValidator

from channels.errors import Refused
from channels.whatsapp.section import WhatsAppSection

_FORM = "application/x-www-form-urlencoded"


def check(section: WhatsAppSection, url: str, form: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> None:
    """Return when the request carries Twilio's signature under the current or the previous token, else raise Refused.

    `url` is the configured public URL + the raw path + `?` and the raw query string, byte for byte as they were
    received (decoded as UTF-8, nothing unquoted): Twilio signs the address it was given, and a URL rebuilt from the
    request differs behind a proxy and where a framework encodes anew. `form` holds every parameter in the order
    received, blank and repeated ones too. A signature carries no time, so a repeat passes; MessageSid stops it.
    https://www.twilio.com/docs/usage/webhooks/webhooks-security
    """
    signatures = [value for name, value in headers.items() if name.lower() == "x-twilio-signature"]
    content_types = [value for name, value in headers.items() if name.lower() == "content-type"]
    if len(signatures) != 1:
        raise Refused("The request has no X-Twilio-Signature, or several.")
    if len(content_types) != 1 or content_types[0].partition(";")[0].strip().lower() != _FORM:
        raise Refused(f"The request is not {_FORM}.")

    for token in (section.auth_token, section.previous_auth_token):
        if token is not None and _is_signed(token.get_secret_value(), url, form, signatures[0]):
            return
    raise Refused("X-Twilio-Signature does not fit the public URL, the form and the auth token.")


def _is_signed(token: str, url: str, form: Sequence[tuple[str, str]], signature: str) -> bool:
    try:
        return bool(RequestValidator(token).validate(url, ImmutableMultiDict(form), signature))
    except Exception as error:  # the validator raises various errors on odd requests, and none of them is proof
        raise Refused(f"The signature cannot be checked: {type(error).__name__}.") from None
