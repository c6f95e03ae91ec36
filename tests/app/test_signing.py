"""Signatures: ours as others read them, and theirs as they publish them."""

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.signing import (
    Kind,
    NoSecret,
    NotSigned,
    Proved,
    WebhookError,
    WrongSignature,
    WrongTime,
    sign,
    verify_webhook,
)
from tests.app.test_docs import ROOT, blocks

PAGE = ROOT / "docs/elsewhere.md"
# The example by which the libraries of Standard Webhooks are tested.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", datetime.fromtimestamp(1614265330, UTC), b'{"test": 2432232314}'
SIGNED = {
    "webhook-id": ID,
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
OTHER = "whsec_" + base64.b64encode(b"another secret of 32 bytes.......").decode()
# https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
GITHUB = ("It's a Secret to Everybody", b"Hello, World!")
GITHUB_SIGNED = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def digest(secret: str, signed: bytes) -> "hmac.HMAC":
    return hmac.new(secret.encode(), signed, hashlib.sha256)


def stripe(secret: str, body: bytes, at: datetime) -> str:
    stamp = int(at.timestamp())
    return f"t={stamp},v1={digest(secret, f'{stamp}.'.encode() + body).hexdigest()},v0=6ffbb59b2300aae63f272406069a9788"


def one_of(kind: Kind) -> tuple[bytes, dict[str, str], str]:
    """Return a webhook of a kind: body, headers, secret."""
    if kind == "standard":
        return BODY, dict(SIGNED), SECRET
    if kind == "github":
        return GITHUB[1], {"X-Hub-Signature-256": GITHUB_SIGNED}, GITHUB[0]
    if kind == "shopify":
        return BODY, {"X-Shopify-Hmac-Sha256": base64.b64encode(digest("hush", BODY).digest()).decode()}, "hush"
    return BODY, {"Stripe-Signature": stripe("whsec_of_stripe", BODY, AT)}, "whsec_of_stripe"


KINDS: tuple[Kind, ...] = ("standard", "github", "shopify", "stripe")


def test_we_sign_as_the_libraries_of_standard_webhooks_do() -> None:
    assert sign([SECRET], ID, AT, BODY) == SIGNED


def test_while_a_secret_is_changed_a_call_bears_a_signature_by_each() -> None:
    headers = sign([OTHER, SECRET], ID, AT, BODY)
    assert headers["webhook-signature"].split(" ")[1] == SIGNED["webhook-signature"]
    for secret in (SECRET, OTHER):
        assert verify_webhook("standard", BODY, headers, secret, now=AT) == Proved(ID, AT)


def test_nothing_is_signed_without_a_secret_or_with_an_id_that_could_be_read_in_two_ways() -> None:
    for secrets in ([], [""], ["whsec_"], ["whsec_not base64"], [SECRET, "whsec_é"]):
        with pytest.raises(NoSecret):
            sign(secrets, ID, AT, BODY)
    with pytest.raises(ValueError, match="full stop"):
        sign([SECRET], "run.1", AT, BODY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_webhook_is_proved_by_its_secret_or_by_one_of_several(kind: Kind) -> None:
    body, headers, secret = one_of(kind)
    proved = verify_webhook(kind, body, headers, secret, now=AT)
    assert proved == Proved(ID if kind == "standard" else None, AT if kind in ("standard", "stripe") else None)
    assert verify_webhook(kind, body, headers, [OTHER, secret], now=AT) == proved
    shouted = {name.upper(): value for name, value in headers.items()}
    assert verify_webhook(kind, body, shouted, secret, now=AT) == proved


@pytest.mark.parametrize("kind", KINDS)
def test_with_another_secret_or_another_body_it_is_not(kind: Kind) -> None:
    body, headers, secret = one_of(kind)
    for other_body, other_secret in ((body + b" ", secret), (b"", secret), (body, OTHER), (body, [OTHER, OTHER])):
        with pytest.raises(WrongSignature):
            verify_webhook(kind, other_body, headers, other_secret, now=AT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("secret", ["", [], [""], ["right", ""], [None]])
def test_without_a_secret_nothing_is_believed(kind: Kind, secret: Any) -> None:
    body, headers, right = one_of(kind)
    if isinstance(secret, list):
        secret = [right if one == "right" else one for one in secret]
    # Signed with nothing, as somebody would who hopes that there is nothing to sign with.
    headers["X-Hub-Signature-256"] = "sha256=" + digest("", body).hexdigest()
    headers["X-Shopify-Hmac-Sha256"] = base64.b64encode(digest("", body).digest()).decode()
    headers["Stripe-Signature"] = stripe("", body, AT)
    with pytest.raises(NoSecret):
        verify_webhook(kind, body, headers, secret, now=AT)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "not base64 either!"])
def test_what_is_no_secret_of_standard_webhooks_proves_nothing(secret: str) -> None:
    with pytest.raises(NoSecret, match="whsec_ and base64"):
        verify_webhook("standard", BODY, SIGNED, secret, now=AT)


@pytest.mark.parametrize("kind", KINDS)
def test_what_bears_no_signature_is_told_so(kind: Kind) -> None:
    body, headers, secret = one_of(kind)
    for name in headers:
        for value in ("", "  "):
            with pytest.raises(NotSigned, match="missing"):
                verify_webhook(kind, body, {**headers, name: value}, secret, now=AT)
        with pytest.raises(NotSigned, match="missing"):
            verify_webhook(kind, body, {key: headers[key] for key in headers if key != name}, secret, now=AT)


@pytest.mark.parametrize("kind", ["standard", "stripe"])
@pytest.mark.parametrize("seconds", [-301, -300, 0, 300, 301])
def test_a_time_is_five_minutes_from_ours_at_most_either_way(kind: Kind, seconds: int) -> None:
    body, headers, secret = one_of(kind)
    now = AT + timedelta(seconds=seconds)
    if abs(seconds) > 300:
        with pytest.raises(WrongTime):
            verify_webhook(kind, body, headers, secret, now=now)
    else:
        assert verify_webhook(kind, body, headers, secret, now=now).at == AT


def test_without_a_time_given_it_is_now() -> None:
    with pytest.raises(WrongTime):
        verify_webhook("standard", BODY, SIGNED, SECRET)
    assert verify_webhook("standard", BODY, sign([SECRET], ID, datetime.now(UTC), BODY), SECRET).id == ID


NONSENSE = (
    "x",
    "v1",
    "v1,",
    "v1,,",
    "sha256=",
    "t=",
    "t=,v1=",
    "v1=é",
    "\udcff",
    "t=1,t=2,v1=0",
    "=" * 9,
    "v1a,x",
    "\0",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_in_any_header_proves_nothing_and_breaks_nothing(kind: Kind, value: str) -> None:
    body, headers, secret = one_of(kind)
    for name in headers:
        with pytest.raises((NotSigned, WrongSignature)):
            verify_webhook(kind, body, {**headers, name: value}, secret, now=AT)


@pytest.mark.parametrize("stamp", ["1e9", "-1", "1614265330.0", "٣", "9" * 40, " "])
def test_a_timestamp_is_a_number_of_seconds(stamp: str) -> None:
    with pytest.raises((NotSigned, WrongSignature)):
        verify_webhook("standard", BODY, {**SIGNED, "webhook-timestamp": stamp}, SECRET, now=AT)


def test_of_two_times_the_one_that_is_looked_at_is_the_one_that_is_signed() -> None:
    late = AT + timedelta(days=1)
    given = stripe("k", BODY, AT)
    for both in (f"t={int(late.timestamp())},{given}", f"{given},t={int(late.timestamp())}"):
        with pytest.raises((WrongSignature, WrongTime)):
            verify_webhook("stripe", BODY, {"stripe-signature": both}, "k", now=late)


def test_one_right_signature_among_others_is_enough() -> None:
    signature = f"v1a,x v1,AAAA {SIGNED['webhook-signature']} v2,y"
    assert verify_webhook("standard", BODY, {**SIGNED, "webhook-signature": signature}, SECRET, now=AT).id == ID


def test_another_service_of_the_same_form_is_proved_under_its_own_header() -> None:
    headers = {"X-Signature": digest("k", BODY).hexdigest().upper()}
    assert verify_webhook("github", BODY, headers, "k", header="x-signature") == Proved()
    with pytest.raises(ValueError, match="there is no kind 'gitlab'"):
        verify_webhook("gitlab", BODY, headers, "k")  # type: ignore[arg-type]


def test_no_error_repeats_what_came_or_a_secret() -> None:
    body, headers, _ = one_of("standard")
    told = []
    for given, secret in ((headers, OTHER), (headers, "hunter2"), ({**headers, "webhook-id": ""}, SECRET)):
        with pytest.raises(WebhookError) as problem:
            verify_webhook("standard", body, given, secret, now=AT)
        told.append(str(problem.value))
    assert not any(part in words for words in told for part in ("hunter2", OTHER, ID, "g0hM9"))


async def node(code: str, *given: str) -> str:
    ran = await asyncio.create_subprocess_exec("node", "-e", code, *given, stdout=asyncio.subprocess.PIPE)
    return (await ran.communicate())[0].decode().strip()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
async def test_the_function_of_the_page_believes_us_and_nobody_else() -> None:
    (code,) = (block for _, block in blocks(PAGE, "js"))
    now = datetime.now(UTC)
    rotating = sign([OTHER, SECRET], "run:7", now, BODY)
    cases: list[tuple[Mapping[str, str], bytes, bool]] = [
        (rotating, BODY, True),
        (sign([OTHER], "run:7", now, BODY), BODY, False),
        (rotating, BODY + b" ", False),
        ({**rotating, "webhook-id": "run:8"}, BODY, False),
        (sign([SECRET], "run:7", now - timedelta(minutes=6), BODY), BODY, False),
        ({}, BODY, False),
        ({**rotating, "webhook-timestamp": "soon"}, BODY, False),
    ]
    calls = json.dumps([[headers, body.decode(), SECRET] for headers, body, _ in cases])
    told = await node(code + f"console.log(JSON.stringify({calls}.map((one) => isFromVuelvo(...one))))")
    assert json.loads(told) == [right for *_, right in cases]


def test_the_webhook_of_the_page_is_proved_as_it_shows() -> None:
    (code,) = (block for _, block in blocks(PAGE, "python"))
    shown: dict[str, Any] = {}
    exec(code, shown)  # noqa: S102 - the page's own
    secret, body = GITHUB
    assert shown["is_from_github"]({"X-Hub-Signature-256": GITHUB_SIGNED}, body, secret) is True
    assert shown["is_from_github"]({"X-Hub-Signature-256": GITHUB_SIGNED}, body, "another") is False
