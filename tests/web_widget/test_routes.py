import httpx
import pytest

from channels.message import Inbound
from channels.web.inbound import Terms
from tests.web_widget.conftest import SHOP, Service, Visitor, a_visitor, a_web_tenant, utc
from web_widget.web import Pending


async def _seqs(visitor: Visitor, query: str) -> list[int]:
    answer = await visitor.ask("GET", f"messages?{query}")
    assert answer.status_code == 200, answer.text
    return [message["seq"] for message in answer.json()["messages"]]


async def test_a_message_is_handed_on_as_it_was_written(http: httpx.AsyncClient, service: Service) -> None:
    opened = await http.post("/widget/acme/sessions", json={"language": "es", "time_zone": "America/Bogota"})
    told = opened.json()
    visitor = Visitor(http, told["conversation"], {"Authorization": f"Bearer {told['token']}"})
    answer = await visitor.write("  ¿Mañana a las 9? 👩‍👧\n")
    assert (answer.status_code, answer.json()) == (202, {"seq": 1})
    address = service.inbound[0].address
    assert address.startswith("visitor:")
    assert service.inbound == [
        Inbound(
            tenant="acme",
            channel="web",
            address=address,
            address_key=address,
            provider_id=f"{visitor.conversation}:one",
            text="¿Mañana a las 9? 👩‍👧",
            language="es",
            time_zone="America/Bogota",
            terms=Terms(visitor.conversation, most_a_minute=60),
        )
    ]


async def test_the_same_client_id_again_changes_nothing(visitor: Visitor) -> None:
    answers = [await visitor.write("hello", name) for name in ("one", "one", "two")]
    assert [(answer.status_code, answer.json()["seq"]) for answer in answers] == [(202, 1), (200, 1), (202, 2)]


async def test_two_visitors_may_use_the_same_client_id(http: httpx.AsyncClient) -> None:
    one, two = await a_visitor(http), await a_visitor(http)
    assert [(await each.write("hello")).status_code for each in (one, two)] == [202, 202]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"text": "  \n", "client_id": "a"}, "empty"),
        ({"text": "\u200b\ufeff \u3164", "client_id": "a"}, "empty"),
        ({"client_id": "a"}, "`text` must be a text"),
        ({"text": 7, "client_id": "a"}, "`text` must be a text"),
        ({"text": "x" * 4001, "client_id": "a"}, "at most 4000"),
        ({"text": "a\0b", "client_id": "a"}, "NUL"),
        ({"text": "hello"}, "`client_id` must be a text"),
        ({"text": "hello", "client_id": ""}, "1 to 100"),
        ({"text": "hello", "client_id": "x" * 101}, "1 to 100"),
        ({"text": "hello", "client_id": "a\0"}, "NUL"),
    ],
)
async def test_what_cannot_be_a_message_is_refused_with_the_reason(
    visitor: Visitor, service: Service, body: dict[str, object], says: str
) -> None:
    answer = await visitor.ask("POST", "messages", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert says in answer.json()["detail"]
    assert service.inbound == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"text": "half \\ud83d", "client_id": "a"}', 422),
        (b"{", 400),
        (b'["text"]', 400),
        (b'{"text": "\xff"}', 400),
        (b"[" * 60_000, 400),
        (b" " * 70_000, 413),
    ],
)
async def test_a_broken_body_is_a_problem_not_a_crash(visitor: Visitor, body: bytes, status: int) -> None:
    answer = await visitor.ask("POST", "messages", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_the_longest_text_is_taken_whole(visitor: Visitor) -> None:
    await visitor.write("👩" * 4000)
    assert (await visitor.ask("GET", "messages")).json()["messages"][0]["text"] == "👩" * 4000


async def test_the_log_tells_who_said_what_and_when(visitor: Visitor, service: Service) -> None:
    await visitor.write("hello")
    await service.say(visitor.conversation, "hi", "reply")
    await service.say(visitor.conversation, "as you asked", "followup")
    told = (await visitor.ask("GET", "messages?after=0")).json()
    assert [(each["role"], each["kind"], each["text"]) for each in told["messages"]] == [
        ("visitor", "message", "hello"),
        ("assistant", "reply", "hi"),
        ("assistant", "followup", "as you asked"),
    ]
    assert told["seq"] == 3
    assert all(each["at"].endswith("Z") and utc(each["at"]) for each in told["messages"])
    assert told["messages"][0].pop("client_id") == "one", "so that its page knows it again"
    assert set(told["messages"][0]) == {"seq", "role", "kind", "text", "at"}
    assert set(told["messages"][1]) == {"seq", "role", "kind", "text", "at"}


async def test_the_log_is_read_forwards_backwards_or_from_its_end(visitor: Visitor, service: Service) -> None:
    for number in range(60):
        await service.say(visitor.conversation, str(number))
    assert await _seqs(visitor, "after=57") == [58, 59, 60]
    assert await _seqs(visitor, "after=0&limit=2") == [1, 2]
    assert await _seqs(visitor, "before=4") == [1, 2, 3]
    assert await _seqs(visitor, "before=11&limit=2") == [9, 10]
    assert await _seqs(visitor, "after=8&before=11") == [9, 10]
    assert await _seqs(visitor, "") == list(range(11, 61))
    assert await _seqs(visitor, "before=1") == []


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "after=", "before=2147483648", "limit=0", "limit=101", "after=١"]
)
async def test_a_bad_number_is_refused(visitor: Visitor, query: str) -> None:
    answer = await visitor.ask("GET", f"messages?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize("seq", ["3", None, -1, True, 2**31, 1.5])
async def test_seen_wants_a_sequence_number(visitor: Visitor, seq: object) -> None:
    assert (await visitor.ask("POST", "seen", json={"seq": seq})).status_code == 422


async def test_what_is_pending_is_listed_and_cancelled(visitor: Visitor, service: Service) -> None:
    service.booked[visitor.conversation] = [Pending(7, "call Ana", utc("2026-12-01T15:00:00-05:00"), "America/Bogota")]
    assert (await visitor.ask("GET", "pending")).json() == {
        "pending": [{"id": 7, "about": "call Ana", "at": "2026-12-01T20:00:00.000Z", "time_zone": "America/Bogota"}]
    }
    cancelled = await visitor.ask("DELETE", "pending/7")
    assert (cancelled.status_code, cancelled.json()) == (200, {"status": "cancelled"})


@pytest.mark.parametrize("task", ["8", "x", "-1", "9" * 30, "%00", "9223372036854775808"])
async def test_what_is_not_pending_in_this_conversation_is_not_found(visitor: Visitor, task: str) -> None:
    answer = await visitor.ask("DELETE", f"pending/{task}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_one_visitors_pending_is_not_anothers(http: httpx.AsyncClient, service: Service) -> None:
    one, two = await a_visitor(http), await a_visitor(http)
    service.booked[one.conversation] = [Pending(7, "call Ana", utc("2026-12-01T15:00:00Z"), "UTC")]
    assert (await two.ask("GET", "pending")).json() == {"pending": []}
    assert (await two.ask("DELETE", "pending/7")).status_code == 404


@pytest.mark.parametrize("tenant", ["nobody", "%00", "a%2Fb", "acme%00"])
@pytest.mark.parametrize("path", ["sessions", "messages", "stream"])
async def test_an_unknown_tenant_is_not_found(http: httpx.AsyncClient, tenant: str, path: str) -> None:
    answer = await http.request("POST" if path == "sessions" else "GET", f"/widget/{tenant}/{path}")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/sessions", "POST, DELETE, OPTIONS"),
        ("PUT", "/messages", "GET, POST, OPTIONS"),
        ("POST", ".js", "GET, HEAD"),
        ("DELETE", "", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    http: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await http.request(method, f"/widget/acme{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_page_that_may_embed_the_widget_is_let_in_by_name(http: httpx.AsyncClient) -> None:
    for origin in (SHOP, "https://vuelvo.example"):
        asked = await http.options("/widget/acme/messages", headers={"Origin": origin})
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == origin
        assert asked.headers["access-control-allow-headers"] == "Authorization, Content-Type, Last-Event-ID"
        assert asked.headers["access-control-allow-methods"] == "GET, POST, DELETE"
        opened = await http.post("/widget/acme/sessions", headers={"Origin": origin})
        assert (opened.status_code, opened.headers["access-control-allow-origin"]) == (201, origin)
        assert opened.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in opened.headers


@pytest.mark.parametrize(
    "origin", ["https://shop.example.evil.example", "http://shop.example", "null", "https://evil.example"]
)
async def test_another_page_opens_no_session_and_can_read_why(http: httpx.AsyncClient, origin: str) -> None:
    assert (await http.options("/widget/acme/sessions", headers={"Origin": origin})).status_code == 204
    for method, path in (("POST", "sessions"), ("GET", "messages"), ("GET", "stream"), ("DELETE", "sessions")):
        answer = await http.request(method, f"/widget/acme/{path}", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["type"]) == (403, "origin-refused")
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "Origin"


async def test_a_star_lets_any_page_in(http: httpx.AsyncClient, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", origins=("*",))
    answer = await http.post("/widget/acme/sessions", headers={"Origin": "https://any.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, "https://any.example")


@pytest.mark.parametrize("origin", ["null", "http://localhost:5173", "http://127.0.0.1:8080", "http://[::1]:3000"])
async def test_a_tenant_that_names_no_origins_can_be_tried_from_a_file_or_this_machine(
    http: httpx.AsyncClient, origin: str
) -> None:
    visitor = await a_visitor(http, "other", Origin=origin)
    answer = await visitor.ask("GET", "messages", headers={"Origin": origin})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
    assert (await visitor.ask("GET", "messages", headers={"Origin": "http://localhost"})).status_code == 401


async def test_a_session_of_a_file_opens_nothing_once_the_tenant_names_its_origins(
    http: httpx.AsyncClient, service: Service
) -> None:
    visitor = await a_visitor(http, "other", Origin="null")
    service.tenants["other"] = a_web_tenant("other", origins=(SHOP,))
    for origin, status in (("null", 403), (SHOP, 401)):
        assert (await visitor.ask("GET", "messages", headers={"Origin": origin})).status_code == status


async def test_a_page_may_read_when_it_can_try_again(visitor: Visitor, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", origins=(SHOP,), limits={"messages_a_minute": 1})
    await visitor.write("one", "one")
    refused = await visitor.ask("POST", "messages", json={"text": "two", "client_id": "two"}, headers={"Origin": SHOP})
    assert (refused.status_code, refused.json()["type"], refused.headers["retry-after"]) == (429, "too-many", "7")
    assert refused.headers["access-control-expose-headers"] == "Retry-After"


async def test_a_refusal_can_be_read_by_the_page(http: httpx.AsyncClient) -> None:
    answer = await http.get("/widget/acme/messages", headers={"Origin": SHOP, "Authorization": "Bearer old"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, SHOP)
