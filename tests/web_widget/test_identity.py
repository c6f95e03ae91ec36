"""Who a visitor says they are, and what of it is believed."""

import base64
import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import text

from store import conversations
from store.database import Database
from tests.web_widget.conftest import SHOP, Service, Visitor, a_visitor, a_web_tenant
from web_widget.identity import LONGEST, Identity, NotProved, prove

SECRET, OTHER, OLD = "0123456789abcdef" * 2, "fedcba9876543210" * 2, "old-old-old-old-" * 2
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def claims(now: float, **more: Any) -> dict[str, Any]:
    """What a tenant's server says of its user; None leaves a claim out."""
    told = {"sub": "user-7", "aud": "acme", "exp": int(now) + 3600, **more}
    return {name: value for name, value in told.items() if value is not None}


def signed(secret: str = SECRET, /, *, now: float | None = None, **more: Any) -> str:
    """A token as a tenant's server makes it."""
    return jwt.encode(claims(time.time() if now is None else now, **more), secret, "HS256")


def at_noon(**more: Any) -> str:
    return signed(now=NOW.timestamp(), **more)


def by_hand(header: Mapping[str, Any], payload: object, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_who_is_named_is_who_the_tenants_server_signed_for() -> None:
    assert prove(at_noon(), [SECRET], "acme", NOW) == Identity("user-7")
    assert prove(at_noon(sub="José 7", name="  José\nÁlvarez "), [SECRET], "acme", NOW) == Identity(
        "José 7", "José Álvarez"
    )


def test_while_secrets_change_both_are_taken_and_no_third() -> None:
    for secret in (SECRET, OLD):
        assert prove(signed(secret, now=NOW.timestamp()), [SECRET, OLD], "acme", NOW).user == "user-7"
    with pytest.raises(NotProved, match="not signed with one of the tenant's secrets"):
        prove(signed(OTHER, now=NOW.timestamp()), [SECRET, OLD], "acme", NOW)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (None, "must be a token"),
        (7, "must be a token"),
        ("", "must be a token"),
        ("x" * (LONGEST + 1), "must be a token"),
        ("é.é.é", "must be a token"),
        ("not a token", "not a JSON Web Token"),
        ("a.b.c", "not a JSON Web Token"),
        ("..", "not a JSON Web Token"),
        (by_hand({"alg": "HS256"}, ["sub"]), "not signed"),
        ("[" * 1500 + ".b.c", "not a JSON Web Token"),
        (base64.urlsafe_b64encode(b"[" * 3000).rstrip(b"=").decode() + ".b.c", "must be a token|not a JSON Web Token"),
        (by_hand({"alg": "none"}, claims(NOW.timestamp())), "HS256"),
        (by_hand({"alg": "None", "typ": "JWT"}, claims(NOW.timestamp())), "HS256"),
        (by_hand({"alg": "hs256"}, claims(NOW.timestamp())), "HS256"),
        (by_hand({}, claims(NOW.timestamp())), "not a JSON Web Token|HS256"),
        (by_hand({"alg": "HS512"}, claims(NOW.timestamp()), b"x" * 64), "HS256"),
        (signed(OTHER, now=NOW.timestamp()), "not signed"),
        (at_noon(exp=None), "no exp"),
        (at_noon(sub=None), "no sub"),
        (at_noon(aud=None), "no aud"),
        (at_noon(aud="other"), "aud is not"),
        (at_noon(aud=["acme"]), "aud is not"),
        (at_noon(aud=["acme", "other"]), "aud is not"),
        (at_noon(aud="ACME"), "aud is not"),
        (at_noon(exp=NOW.timestamp() - 61), "expired"),
        (at_noon(exp=0), "expired"),
        (at_noon(exp=NOW.timestamp() + 24 * 3600 + 61), "24 hours"),
        (at_noon(exp=2**60), "not a number of seconds"),
        (at_noon(exp=1e400), "not a number of seconds"),
        (at_noon(exp=math.nan), "not a number of seconds"),
        (at_noon(exp="soon"), "not a number of seconds"),
        (at_noon(exp=str(int(NOW.timestamp()) + 60)), "not a number of seconds"),
        (at_noon(exp=True), "not a number of seconds"),
        (at_noon(nbf=NOW.timestamp() + 61), "not valid yet"),
        (at_noon(sub=""), "1 to 200"),
        (at_noon(sub="x" * 201), "1 to 200"),
        (at_noon(sub="a\0b"), "1 to 200"),
        (at_noon(sub="half \ud83d"), "1 to 200"),
        (at_noon(name=7), "name must be a text"),
        (at_noon(name="a\0"), "name must be a text"),
    ],
    ids=lambda given: "token",
)
def test_what_proves_nothing_is_refused_and_not_repeated(token: object, says: str) -> None:
    with pytest.raises(NotProved, match=says) as refused:
        prove(token, [SECRET], "acme", NOW)
    assert "user-7" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_sub_that_is_no_text_is_refused() -> None:
    for sub in (7, ["a"], True):
        token = by_hand_signed({"sub": sub, "aud": "acme", "exp": NOW.timestamp() + 60})
        with pytest.raises(NotProved, match="sub must be a text"):
            prove(token, [SECRET], "acme", NOW)


def by_hand_signed(payload: Mapping[str, Any]) -> str:
    """A token whose claims the library would not sign."""
    return jwt.api_jws.encode(json.dumps(payload).encode(), SECRET, "HS256")


def test_two_servers_clocks_may_differ_by_a_minute() -> None:
    for exp in (NOW.timestamp() - 59, NOW.timestamp() + 24 * 3600 + 59):
        assert prove(at_noon(exp=exp), [SECRET], "acme", NOW).user == "user-7"


def test_a_public_key_is_no_secret() -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for header in (
        {"alg": "RS256"},
        {"alg": "RS256", "jwk": {"kty": "oct", "k": "AA"}},
        {"alg": "RS256", "kid": "../x"},
    ):
        with pytest.raises(NotProved, match="HS256"):
            prove(by_hand(header, claims(NOW.timestamp()), b"x" * 256), [pem], "acme", NOW)


def test_a_critical_extension_that_nobody_knows_is_refused() -> None:
    token = jwt.encode(claims(NOW.timestamp()), SECRET, "HS256", headers={"crit": ["b64"], "b64": False})
    with pytest.raises(NotProved):
        prove(token, [SECRET], "acme", NOW)


@pytest.fixture
def knowing(service: Service) -> Service:
    """`acme` takes identities, and anonymous visitors too; so does `other`, with another secret."""
    for name, secrets in (("acme", (SECRET, OLD)), ("other", (OTHER,))):
        service.tenants[name] = a_web_tenant(name, origins=(SHOP,), identity={"secrets": secrets})
    return service


def require(service: Service) -> None:
    """`acme` lets in nobody else from now on."""
    service.tenants["acme"] = a_web_tenant("acme", origins=(SHOP,), identity={"secrets": (SECRET,), "required": True})


async def signed_in(http: httpx.AsyncClient, **more: Any) -> Visitor:
    """Open a session of a user's."""
    answer = await http.post("/widget/acme/sessions", json={"identity": signed(**more)})
    assert answer.status_code == 201, answer.text
    told = answer.json()
    return Visitor(http, told["conversation"], {"Authorization": f"Bearer {told['token']}"})


async def test_a_user_has_one_conversation_on_all_devices(http: httpx.AsyncClient, knowing: Service) -> None:
    phone, desk = await signed_in(http, name="Ana"), await signed_in(http)
    assert phone.conversation == desk.conversation
    assert (await phone.write("hello")).status_code == 202
    assert (await desk.ask("GET", "messages")).json()["seq"] == 1
    async with knowing.database.transaction() as connection:
        found = await conversations.find(connection, "acme", desk.conversation)
    assert found is not None
    assert (found.address, found.address_key, found.name) == ("user:user-7", "user:user-7", "Ana")
    another = await signed_in(http, sub="user-8")
    assert another.conversation != phone.conversation
    assert (await another.ask("GET", "messages")).json()["seq"] == 0


@pytest.mark.parametrize("path", ["sessions", "sessions/identify"])
@pytest.mark.parametrize(
    "token",
    [
        signed(OTHER),
        signed(OTHER, aud="other"),
        signed(aud="other"),
        signed(exp=None),
        signed(exp=int(time.time()) - 100),
        signed(exp=int(time.time()) + 90_000),
        by_hand({"alg": "none"}, claims(time.time())),
        "",
        7,
        {"sub": "user-7"},
    ],
    ids=lambda given: "sessions" if str(given).startswith("sessions") else "token",
)
async def test_a_false_identity_opens_nothing_not_even_anonymously(
    http: httpx.AsyncClient, knowing: Service, path: str, token: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    visitor = await a_visitor(http)
    answer = await visitor.ask("POST", path, json={"identity": token})
    assert (answer.status_code, answer.json()["type"]) == (403, "identity-invalid")
    assert (await visitor.ask("GET", "messages")).status_code == 200
    assert await _sessions(knowing.database) == 1
    assert str(token) not in answer.text or not token
    assert "user-7" not in caplog.text + answer.text


async def test_a_name_of_a_megabyte_is_not_even_read(http: httpx.AsyncClient, knowing: Service) -> None:
    answer = await http.post("/widget/acme/sessions", json={"identity": signed(sub="x" * 1_000_000)})
    assert answer.status_code == 413


async def test_a_tenant_that_takes_no_identities_says_so(http: httpx.AsyncClient) -> None:
    for path in ("sessions", "sessions/identify"):
        answer = await http.post(f"/widget/acme/{path}", json={"identity": signed()})
        assert (answer.status_code, answer.json()["type"]) == (403, "identity-invalid")


async def _sessions(database: Database) -> int:
    async with database.transaction() as connection:
        return int((await connection.execute(text("select count(*) from web_sessions"))).scalar_one())


DOORS = [
    ("GET", "messages"),
    ("POST", "messages"),
    ("POST", "seen"),
    ("GET", "pending"),
    ("DELETE", "pending/1"),
    ("GET", "stream"),
    ("POST", "sessions/rotate"),
]


@pytest.mark.parametrize(("method", "path"), DOORS)
async def test_where_an_identity_is_required_no_anonymous_token_opens_a_door_any_more(
    http: httpx.AsyncClient, knowing: Service, method: str, path: str
) -> None:
    visitor = await a_visitor(http)
    require(knowing)
    answer = await visitor.ask(method, path, json={"text": "hello", "client_id": "one", "seq": 0})
    assert (answer.status_code, answer.json()["type"]) == (403, "identity-required")
    assert knowing.inbound == []


async def test_where_an_identity_is_required_users_are_let_in_and_nobody_else(
    http: httpx.AsyncClient, knowing: Service
) -> None:
    require(knowing)
    for body in ({}, {"identity": None}):
        refused = await http.post("/widget/acme/sessions", json=body)
        assert (refused.status_code, refused.json()["type"]) == (403, "identity-required")
    assert await _sessions(knowing.database) == 0
    user = await signed_in(http)
    assert (await user.write("hello")).status_code == 202
    rotated = (await user.ask("POST", "sessions/rotate")).json()["token"]
    user = replace(user, headers={"Authorization": f"Bearer {rotated}"})
    assert (await user.ask("GET", "messages")).json()["seq"] == 1


async def test_an_anonymous_visitor_can_sign_in_and_out_where_an_identity_is_required_by_now(
    http: httpx.AsyncClient, knowing: Service
) -> None:
    visitor, leaving = await a_visitor(http), await a_visitor(http)
    await visitor.write("hello")
    require(knowing)
    assert (await leaving.ask("DELETE", "sessions")).status_code == 204
    told = (await visitor.ask("POST", "sessions/identify", json={"identity": signed()})).json()
    user = Visitor(http, told["conversation"], {"Authorization": f"Bearer {told['token']}"})
    assert [each["text"] for each in (await user.ask("GET", "messages")).json()["messages"]] == ["hello"]


async def test_a_session_of_a_user_is_bound_to_its_page_too(http: httpx.AsyncClient, knowing: Service) -> None:
    visitor = await a_visitor(http, Origin=SHOP)
    stolen = await visitor.ask(
        "POST", "sessions/identify", json={"identity": signed()}, headers={"Origin": "https://vuelvo.example"}
    )
    user = Visitor(http, stolen.json()["conversation"], {"Authorization": f"Bearer {stolen.json()['token']}"})
    assert (
        user.conversation != visitor.conversation
    )  # from another page its token proves nothing, and nothing is merged
    assert (await visitor.ask("GET", "messages", headers={"Origin": SHOP})).status_code == 200
    assert (await user.ask("GET", "messages", headers={"Origin": SHOP})).status_code == 401
    assert (await user.ask("GET", "messages", headers={"Origin": "https://vuelvo.example"})).status_code == 200


async def test_an_expired_token_does_not_end_the_session_it_opened(http: httpx.AsyncClient, knowing: Service) -> None:
    user = await signed_in(http, exp=int(time.time()) - 30)
    assert (await user.ask("GET", "messages")).status_code == 200
