"""Signatures of calls from server to server: ours, by Standard Webhooks, and the proof of those that others make.

Ours: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. A call carries `webhook-id`,
`webhook-timestamp` and `webhook-signature`; signed are id, timestamp and body.

    WebhookError
    ├── NoSecret         there is no secret to prove it with, or it is none: nothing is believed then
    ├── NotSigned        it bears no signature, or not all that belongs to one
    ├── WrongSignature   it is signed with another secret, or was altered
    └── WrongTime        it was signed too long ago, or in the future: perhaps it is sent again by somebody else
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

PREFIX = "whsec_"
TOLERANCE = timedelta(minutes=5)
"""How far the time of a signature may be from ours, either way."""
LEAST_KEY, LARGEST_KEY = 24, 64
"""Bytes of a key that we sign with, as the specification says."""

Kind = Literal["standard", "github", "shopify", "stripe"]
"""In what form a signature is written. Many others use one of these forms, under a header of their own."""
HEADERS: Mapping[Kind, str] = {
    "standard": "webhook-signature",
    "github": "x-hub-signature-256",
    "shopify": "x-shopify-hmac-sha256",
    "stripe": "stripe-signature",
}


class WebhookError(Exception):
    """A call that is not proved to come from whom it says; the message repeats nothing of it."""


class NoSecret(WebhookError):
    """Nothing can be proved without a secret."""


class NotSigned(WebhookError):
    """There is no signature."""


class WrongSignature(WebhookError):
    """No signature is right."""


class WrongTime(WebhookError):
    """It was not signed just now."""


@dataclass(frozen=True, slots=True)
class Proved:
    """What is known of a call that is proved, beside its body."""

    id: str | None = None
    """The same each time it is sent: keep it for a while, to do once what is sent twice. Only Standard Webhooks signs one."""
    at: datetime | None = None
    """When it was signed; None in the forms that do not say."""


def key_of(secret: str) -> bytes:
    """Return the key that a secret of Standard Webhooks stands for. Raises NoSecret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise NoSecret(f"a secret of Standard Webhooks is {PREFIX} and base64")
    return key


def sign(secrets: Sequence[str], id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that sign a call, with a signature by each secret: two while one takes the other's place.

    `at` is the time of this attempt, `id` the same for every attempt. Raises NoSecret, ValueError for an id with a full stop.
    """
    if "." in id:
        raise ValueError("a full stop parts what is signed, so none may stand in the id")
    if not secrets:
        raise NoSecret("there is no secret to sign with")
    stamp = str(int(at.timestamp()))
    signed = f"{id}.{stamp}.".encode() + body
    signatures = [f"v1,{_base64(hmac.digest(key_of(secret), signed, 'sha256'))}" for secret in secrets]
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": " ".join(signatures)}


def verify_webhook(
    kind: Kind,
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    header: str | None = None,
    now: datetime | None = None,
) -> Proved:
    """Prove that a webhook comes from a service that knows a secret; with several secrets, one of them.

    `body` is what came, byte for byte: JSON that was read and written again is another text. `header` is the name of the
    signature's header where a service uses the form of `kind` under another.

    Raises NoSecret, NotSigned, WrongSignature, WrongTime; ValueError for a kind that there is not.
    """
    if kind not in HEADERS:
        raise ValueError(f"there is no kind {kind!r}: give one of {', '.join(HEADERS)}")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(isinstance(one, str) and one for one in secrets):
        raise NoSecret("give the secret that the service signs with: without one nothing is believed")
    there = {name.lower(): value for name, value in headers.items()}

    def read(name: str) -> str:
        if not (value := there.get(name.lower(), "").strip()):
            raise NotSigned(f"the header {name} is missing")
        return value

    given, id, stamp = read(header or HEADERS[kind]), None, None
    if kind == "standard":
        id, stamp = read("webhook-id"), read("webhook-timestamp")
        signatures = [one.removeprefix("v1,") for one in given.split() if one.startswith("v1,")]
        signed = _bytes(f"{id}.{stamp}.") + body
    elif kind == "stripe":
        pairs = [(name, value) for name, _, value in (part.strip().partition("=") for part in given.split(","))]
        stamp = dict(pairs).get("t", "")
        signatures = [value.lower() for name, value in pairs if name == "v1"]
        signed = _bytes(f"{stamp}.") + body
    else:
        signatures = [given.removeprefix("sha256=").lower() if kind == "github" else given]
        signed = body
    at = None if stamp is None else _time(stamp)
    write: Callable[[bytes], str] = _base64 if kind in ("standard", "shopify") else bytes.hex
    keys = [key_of(one) if kind == "standard" else one.encode() for one in secrets]
    right = [write(hmac.digest(key, signed, "sha256")).encode() for key in keys]
    # Each is compared with each, so that the time tells nothing of which was right.
    if not any([hmac.compare_digest(_bytes(one), other) for one in signatures for other in right]):  # noqa: C419
        raise WrongSignature("it is not signed with this secret, or was altered on its way")
    if at is not None and abs((now or datetime.now(UTC)) - at) > TOLERANCE:
        raise WrongTime(f"it was signed at another time than now, give or take {TOLERANCE}: is the clock right?")
    return Proved(id, at)


def _time(stamp: str) -> datetime:
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 11):
        raise NotSigned("its timestamp is no number of seconds")
    return datetime.fromtimestamp(int(stamp), UTC)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
