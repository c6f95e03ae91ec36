"""The doors at which providers knock: who is let in, what is refused, and that a refusal keeps and tells nothing."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from aiohttp import web
from sqlalchemy import func, select

from app.hooks import telegram_secret
from app.http import application
from channels.request import BODY_LIMIT
from channels.telegram.inbound import LARGEST
from scheduler.clock import Clock
from store.database import Database, metadata
from tests.support.asgi import a_port, calling, served
from tests.support.house import House, a_house
from tests.support.proxy import a_proxy
from tests.support.telegram_faults import serving
from tests.support.twilio_server import TwilioServer

TELEGRAM = {"token": "99:AAbbCCddEEffGGhhIIjjKKllMM-_"}
TWILIO = TwilioServer()
WHATSAPP = {"account_sid": TWILIO.account_sid, "auth_token": TWILIO.auth_token, "sender": TWILIO.sender}
ON_TELEGRAM, ON_WHATSAPP, ON_STATUS = "/hooks/telegram/acme", "/hooks/whatsapp/acme", "/hooks/whatsapp/acme/status/1"


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    """A house with both phone channels, in which nothing is answered."""
    config = {"channels": {"telegram": TELEGRAM, "whatsapp": WHATSAPP}}
    async with a_house(database, tmp_path, poll=False, config=config) as house:
        yield house


@pytest.fixture
async def http(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(application(house.run)) as http:
        yield http


def secret(house: House, tenant: str = "acme", bot: str = "99") -> dict[str, str]:
    """The header by which Telegram proves itself."""
    return {"X-Telegram-Bot-Api-Secret-Token": telegram_secret(house.service.box, tenant, bot)}


def update(number: int = 1001, /, **message: Any) -> dict[str, Any]:
    person = {"id": 42, "is_bot": False, "first_name": "Ana"}
    body = {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": person, "text": "hello"}
    return {"update_id": number, "message": body | message}


async def rows(house: House) -> dict[str, int]:
    """How many rows each table has."""
    async with house.service.database.transaction() as connection:
        return {
            table.name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in metadata.sorted_tables
        }


def is_a_problem(answer: httpx.Response, status: int) -> bool:
    """Tell whether an answer is a problem in its standard form, with words for a person and no trace of a program."""
    told = answer.json()
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["status"] == status
    assert len(told["detail"]) > 10
    assert not any(word in told["detail"] for word in ("Traceback", "Error", "psycopg", "sqlalchemy", ".py"))
    return True


# Telegram


@pytest.mark.parametrize("given", [{}, {"X-Telegram-Bot-Api-Secret-Token": "wrong"}])
async def test_a_wrong_or_missing_secret_gets_403_and_leaves_no_row(
    house: House, http: httpx.AsyncClient, given: dict[str, str]
) -> None:
    before = await rows(house)
    assert is_a_problem(await http.post(ON_TELEGRAM, json=update(), headers=given), 403)
    assert await rows(house) == before


@pytest.mark.parametrize(("tenant", "bot"), [("globex", "99"), ("acme", "98")])
async def test_the_secret_of_another_tenant_or_of_the_bot_before_this_one_gets_403(
    house: House, http: httpx.AsyncClient, tenant: str, bot: str
) -> None:
    assert is_a_problem(await http.post(ON_TELEGRAM, json=update(), headers=secret(house, tenant, bot)), 403)


async def test_an_update_is_recorded_with_its_turn_before_it_is_answered(house: House, http: httpx.AsyncClient) -> None:
    answer = await http.post(ON_TELEGRAM, json=update(text="good morning"), headers=secret(house))
    assert (answer.status_code, answer.content) == (200, b"")
    (turn,) = await house.tasks(kind="turn")
    assert turn.channel == "telegram"
    assert [message.text for message in await house.log(turn.conversation or 0)] == ["good morning"]


async def test_what_is_telegrams_but_nothing_to_answer_is_accepted_and_leaves_no_row(
    house: House, http: httpx.AsyncClient
) -> None:
    before = await rows(house)
    for content in (
        {},
        {"update_id": 7, "edited_message": update()["message"]},
        update(text=""),
        update(chat={"id": -7, "type": "channel"}),
        {"update_id": "x", "message": 7},
        {"message": update()["message"]},
    ):
        answer = await http.post(ON_TELEGRAM, json=content, headers=secret(house))
        assert (answer.status_code, answer.content) == (200, b"")
    assert await rows(house) == before


async def test_a_large_update_is_taken_in(house: House, http: httpx.AsyncClient) -> None:
    """As large as they come: letters as six bytes each, a mark on every other, in answer to a message of the same kind."""
    marks = [{"type": "custom_emoji", "offset": n, "length": 2, "custom_emoji_id": "5" * 19} for n in range(0, 4096, 2)]
    long = {"text": "ж" * 4096, "entities": marks}
    said = update(**long, reply_to_message={"message_id": 4, "from": {"id": 99, "is_bot": True}, **long})
    assert len(json.dumps(said)) > 4 * BODY_LIMIT
    answer = await http.post(ON_TELEGRAM, json=said, headers=secret(house))
    assert (answer.status_code, len(await house.tasks(kind="turn"))) == (200, 1)


@pytest.mark.parametrize(
    "content",
    [
        b'{"update_id": 1, "message": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"update_id": 1, "message": ' + b"[" * 200_000,
        b'{"update_id": ' + b"9" * 10_000 + b"}",
        b'{"update_id": 1e400, "message": {"chat": {"id": NaN, "type": "private"}}}',
        b'{"update_id": 1, "message": {"chat": {"id": 1, "type": "group"}, "from": {"is_bot": false}, "text": "\\ud83d@"}}',
        b'{"message": {"text": "@clinic_bot"}, "\\u0000": "\\udc00"}',
        b'[{"update_id": 1}]',
        b"\xff\xfe",
        b"null",
    ],
)
async def test_no_content_however_odd_is_a_fault_of_ours(house: House, http: httpx.AsyncClient, content: bytes) -> None:
    before = await rows(house)
    answer = await http.post(ON_TELEGRAM, content=content, headers=secret(house))
    assert answer.status_code in (200, 400, 503), answer.text
    assert await rows(house) == before


async def test_a_group_reaches_the_bot_by_the_name_telegram_gives_it_which_is_asked_for_once(
    database: Database, tmp_path: Path
) -> None:
    asked: list[str] = []
    answers = [web.Response(status=502, text="<html>")]

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.match_info["method"])
        me = {"id": 99, "is_bot": True, "first_name": "Clinic", "username": "clinic_bot"}
        return answers.pop() if answers else web.json_response({"ok": True, "result": me})

    bot_api = web.Application()
    bot_api.router.add_post("/bot{token}/{method}", answer)
    config = {"channels": {"telegram": TELEGRAM}}
    group = {"id": -7, "type": "supergroup"}
    async with (
        serving(bot_api) as url,
        a_house(database, tmp_path, poll=False, config=config, telegram_api_url=url) as house,
        calling(application(house.run)) as http,
    ):

        async def says(number: int, text: str) -> httpx.Response:
            return await http.post(ON_TELEGRAM, json=update(number, chat=group, text=text), headers=secret(house))

        assert (await says(1, "hi all")).status_code == 200
        assert asked == [], "nobody was named"
        assert is_a_problem(await says(2, "@clinic_bot hi"), 503)
        assert (await says(2, "@clinic_bot hi")).status_code == 200
        assert (await says(3, "@other_bot hi")).status_code == 200
        assert (await says(4, "@clinic_bot hi again")).status_code == 200
        (turn,) = await house.tasks(kind="turn")
        said = [message.text for message in await house.log(turn.conversation or 0)]
    assert said == ["@clinic_bot hi", "@clinic_bot hi again"]
    assert asked == ["getMe", "getMe"]


# WhatsApp


def signed(url: str, form: list[tuple[str, str]], token: str | None = None) -> dict[str, Any]:
    return {"content": urlencode(form), "headers": TWILIO.sign(url, form, token)}


HERE = f"http://vuelvo.test{ON_WHATSAPP}"


@pytest.mark.parametrize("fault", ["token", "url", "body", "no signature", "content type"])
async def test_a_signature_that_does_not_fit_gets_403_and_leaves_no_row(
    house: House, http: httpx.AsyncClient, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    form = TWILIO.inbound_form("hello")
    request = signed(HERE + "x" if fault == "url" else HERE, form, "other" if fault == "token" else None)
    match fault:
        case "body":
            request["content"] += "&Extra=1"
        case "no signature":
            del request["headers"]["X-Twilio-Signature"]
        case "content type":
            request["headers"]["Content-Type"] = "application/json"
    before = await rows(house)
    assert is_a_problem(await http.post(ON_WHATSAPP, **request), 403)
    assert await rows(house) == before
    assert "a webhook for whatsapp of tenant 'acme' was refused" in caplog.text


async def test_the_log_names_the_address_for_which_a_signature_does_not_fit_without_what_its_query_says(
    house: House, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    request = signed("https://other.example/hooks/whatsapp/acme?key=hunter2", TWILIO.inbound_form("hello"))
    assert is_a_problem(await http.post(ON_WHATSAPP + "?key=hunter2", **request), 403)
    assert f"The public URL here is {HERE!r}, with a query" in caplog.text
    assert "hunter2" not in caplog.text
    await http.post(ON_WHATSAPP, **request)
    assert f"The public URL here is {HERE!r}\n" in caplog.text


@pytest.mark.parametrize(
    "fields", [{"AccountSid": "AC" + "b" * 32}, {"To": "whatsapp:+14150000000"}], ids=["account", "sender"]
)
async def test_a_message_for_another_account_or_sender_gets_403_and_leaves_no_row(
    house: House, http: httpx.AsyncClient, fields: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    before = await rows(house)
    form = TWILIO.inbound_form("hello", **fields)
    assert is_a_problem(await http.post(ON_WHATSAPP, **signed(HERE, form)), 403)
    assert await rows(house) == before
    assert "a webhook for whatsapp of tenant 'acme' was refused" in caplog.text


async def test_the_same_message_again_is_one_turn(house: House, http: httpx.AsyncClient) -> None:
    form = TWILIO.inbound_form("hello")
    for _ in range(3):
        answer = await http.post(ON_WHATSAPP, **signed(HERE, form))
        assert (answer.status_code, answer.content) == (204, b"")
    assert len(await house.tasks(kind="turn")) == 1
    assert (await rows(house))["messages"] == 1


async def test_a_status_at_the_door_for_messages_starts_no_turn(house: House, http: httpx.AsyncClient) -> None:
    before = await rows(house)
    for status in ("queued", "sent", "delivered", "failed", "read"):
        form = [
            ("MessageSid", "SM" + "1" * 32),
            ("MessageStatus", status),
            ("SmsStatus", status),
            ("AccountSid", TWILIO.account_sid),
            ("From", TWILIO.sender),
            ("To", "whatsapp:+5215512345678"),
        ]
        assert (await http.post(ON_WHATSAPP, **signed(HERE, form))).status_code == 204
    assert await rows(house) == before


async def test_a_message_at_the_door_for_statuses_starts_no_turn(house: House, http: httpx.AsyncClient) -> None:
    before = await rows(house)
    form = TWILIO.inbound_form("hello")
    assert (await http.post(ON_STATUS, **signed(f"http://vuelvo.test{ON_STATUS}", form))).status_code == 204
    assert await rows(house) == before


@pytest.mark.parametrize(
    "public",
    [
        "https://bot.example:8443",
        "https://bot.example:8443/o'neill%20and%20co",
        "https://bot.example/ñ",
        "https://b.example",
    ],
)
async def test_the_public_address_is_what_was_signed_with_port_apostrophe_and_query_as_they_are(
    database: Database, tmp_path: Path, public: str
) -> None:
    text = "¿hola? it's me & you = 2+2 %"
    queries = {"": "", "?who=it's%20me&a=ñ": "?who=it%27s%20me&a=%C3%B1"}  # what Twilio was given, and what it asks for
    queries |= {query: query for query in ("?who=it%27s%20me&a=%C3%B1", "?who=it's", "?a=1&a=1&b=")}
    async with (
        a_house(
            database, tmp_path, poll=False, config={"channels": {"whatsapp": WHATSAPP}}, public_url=public
        ) as house,
        calling(application(house.run)) as http,
    ):
        for given, query in queries.items():
            form = TWILIO.inbound_form(text, ProfileName="Lucía O'Neill", Empty="")
            answer = await http.post(ON_WHATSAPP + query, **signed(f"{public}{ON_WHATSAPP}{given}", form))
            assert answer.status_code == 204, given
        (turn,) = await house.tasks(kind="turn")
        assert [one.text for one in await house.log(turn.conversation or 0)] == [text] * len(queries)


async def test_a_token_that_is_being_changed_is_still_taken(database: Database, tmp_path: Path) -> None:
    section = {**WHATSAPP, "auth_token": "the next one", "previous_auth_token": TWILIO.auth_token}
    async with (
        a_house(database, tmp_path, poll=False, config={"channels": {"whatsapp": section}}) as house,
        calling(application(house.run)) as http,
    ):
        for token in (TWILIO.auth_token, "the next one"):
            answer = await http.post(ON_WHATSAPP, **signed(HERE, TWILIO.inbound_form("hello"), token))
            assert answer.status_code == 204


# Bodies that are none


@pytest.mark.parametrize("wanted", ["sha1", "sha256"])
async def test_a_signature_of_the_shared_key_is_taken_and_an_odd_one_gets_403(
    database: Database, tmp_path: Path, wanted: str
) -> None:
    twilio = TwilioServer(signing_key="the-shared-key")
    whatsapp = WHATSAPP | {"signature": wanted, "signing_key": "the-shared-key", "previous_signing_key": "before"}
    async with (
        a_house(database, tmp_path, poll=False, config={"channels": {"whatsapp": whatsapp}}) as house,
        calling(application(house.run)) as http,
    ):

        async def post(settings: str | None = None, key: str = "the-shared-key") -> httpx.Response:
            form = twilio.inbound_form("hello")
            twilio.signing_key = key
            headers: dict[str, Any] = dict(twilio.sign(HERE, form))
            if settings is not None:
                headers["X-Twilio-Webhooks-Signature-Settings"] = settings.encode("latin-1")
            return await http.post(ON_WHATSAPP, content=urlencode(form), headers=headers)

        before = await rows(house)
        for settings in ("", "=", ",,,", "algorithm=HMAC_SHA512", "algorithm=HMAC_SHA1", "key=x", "\xff" * 50):
            assert is_a_problem(await post(settings), 403)
        assert is_a_problem(await post(key="a third"), 403)
        assert await rows(house) == before
        assert (await post()).status_code == 204
        assert (await post(key="before")).status_code == 204


async def test_a_body_that_cannot_be_read_is_refused(house: House, http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": "x", **secret(house)}
    before = await rows(house)
    for path, content, status in (
        (ON_TELEGRAM, b"{", 400),
        (ON_TELEGRAM, b"[1]", 400),
        (ON_TELEGRAM, b"[" * 60_000, 400),
        (ON_TELEGRAM, b'{"update_id": ' + b"9" * 5000 + b"}", 400),
        (ON_TELEGRAM, '{"text": "ñ"}'.encode("latin-1"), 400),
        (ON_TELEGRAM, b"\xff\xfe\x00", 400),
        (ON_WHATSAPP, b"Body=\xff", 403),
        (ON_WHATSAPP, b"a=1&" * 1000, 403),
        (ON_WHATSAPP, b"", 403),
        (ON_STATUS, b"\xff", 403),
    ):
        assert is_a_problem(await http.post(path, content=content, headers=headers), status), content[:20]
    assert await rows(house) == before


async def test_a_body_over_the_limit_is_refused_before_it_is_read_whole(house: House, http: httpx.AsyncClient) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 10_000
            yield b" " * 10_000

    for path, limit in ((ON_TELEGRAM, LARGEST), (ON_WHATSAPP, BODY_LIMIT), (ON_STATUS, BODY_LIMIT)):
        for announced, most in (({"Content-Length": "10000000"}, 0), ({}, limit + 10_000)):
            read = 0
            assert is_a_problem(await http.post(path, content=body(), headers=secret(house) | announced), 413)
            assert read <= most


async def test_over_a_real_connection_a_body_too_large_is_refused_on_its_announcement(house: House) -> None:
    head = f"POST {ON_WHATSAPP} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
    with a_port() as (listener, _):
        async with served(application(house.run), listener):
            answer = await exchange(listener, head.encode() + b"a=1")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer


async def exchange(listener: socket.socket, request: bytes) -> bytes:
    """Send these bytes and return what comes back until the other side closes."""
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("telegram/nobody", "a webhook for telegram of tenant 'nobody' was refused: There is no such tenant."),
        ("whatsapp/nobody", "a webhook for whatsapp of tenant 'nobody' was refused: There is no such tenant."),
        ("whatsapp/nobody/status/1", "a webhook for whatsapp of tenant 'nobody' was refused: There is no such tenant."),
        ("telegram/a%0Ab" + "c" * 90, "a webhook for telegram of tenant 'a\\nb" + "c" * 37 + "' was refused"),
        ("telegram/demo", "a webhook for telegram of tenant 'demo' was refused: This tenant has no Telegram channel."),
        ("whatsapp/demo", "a webhook for whatsapp of tenant 'demo' was refused: This tenant has no WhatsApp channel."),
    ],
)
async def test_what_comes_for_nobody_is_logged(
    house: House, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str, said: str
) -> None:
    assert is_a_problem(await http.post(f"/hooks/{path}", json=update()), 404)
    assert said in caplog.text


async def test_an_address_of_nobody_gets_404(house: House, http: httpx.AsyncClient) -> None:
    for path in (
        "/hooks/telegram/nobody",
        "/hooks/whatsapp/nobody",
        "/hooks/whatsapp/nobody/status/1",
        "/hooks/telegram/demo",
        "/hooks/whatsapp/demo",
        "/hooks/whatsapp/acme/status/one",
        "/hooks/whatsapp/acme/status/-1",
        "/hooks/whatsapp/acme/status/" + "9" * 5000,
        "/hooks/whatsapp/acme/status/%D9%A1",
        "/hooks/signal/acme",
        "/hooks",
        "/hooks/telegram/Acme",
        "/hooks/telegram/%F0%9F%98%80",
    ):
        assert is_a_problem(await http.post(path, json=update(), headers=secret(house)), 404), path


async def test_an_address_no_database_can_hold_is_the_callers_fault(house: House, http: httpx.AsyncClient) -> None:
    assert is_a_problem(await http.post("/hooks/telegram/%00", json=update()), 400)


async def test_any_method_but_post_gets_405(house: House, http: httpx.AsyncClient) -> None:
    for path in (ON_TELEGRAM, ON_WHATSAPP, ON_STATUS):
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            answer = await http.request(method, path)
            assert is_a_problem(answer, 405)
            assert answer.headers["allow"] == "POST"


async def test_a_status_for_a_delivery_that_is_none_changes_nothing(house: House, http: httpx.AsyncClient) -> None:
    before = await rows(house)
    for number, status in ((1, 204), (10**18 - 1, 204), (2**63, 404)):
        path = f"/hooks/whatsapp/acme/status/{number}"
        form = [("MessageSid", "SM1"), ("MessageStatus", "sent"), ("AccountSid", TWILIO.account_sid)]
        assert (await http.post(path, **signed(f"http://vuelvo.test{path}", form))).status_code == status
    assert await rows(house) == before


# What is wrong on our side


async def test_without_a_database_it_says_so_and_asks_to_come_again(house: House, http: httpx.AsyncClient) -> None:
    away = Database("postgresql://postgres@127.0.0.1:1/nowhere")
    kept, house.service.database = house.service.database, away
    try:
        answer = await http.post(ON_TELEGRAM, json=update(), headers=secret(house))
    finally:
        house.service.database = kept
        await away.close()
    assert is_a_problem(answer, 503)
    assert answer.headers["retry-after"] == "2"
    assert "nowhere" not in answer.text


async def test_a_message_whose_commit_was_not_heard_of_may_be_sent_again_and_is_one_turn(
    database_url: str, tmp_path: Path
) -> None:
    config = {"channels": {"telegram": TELEGRAM}}
    async with a_proxy(database_url) as (proxy, through):
        away = Database(through)
        async with (
            a_house(away, tmp_path, poll=False, config=config) as house,
            calling(application(house.run)) as http,
        ):
            assert await house.service.tenant("acme")
            session = (await http.post("/widget/acme/sessions")).json()
            on_web: dict[str, Any] = {
                "json": {"text": "hello", "client_id": "one"},
                "headers": {"Authorization": f"Bearer {session['token']}"},
            }
            on_telegram = {"json": update(), "headers": secret(house)}
            for path, request in ((ON_TELEGRAM, on_telegram), ("/widget/acme/messages", on_web)):
                proxy.cut_at_answer(b"insert into tasks", b"COMMIT")
                answer = await http.post(path, **request)
                assert is_a_problem(answer, 503)
                assert "again" in answer.json()["detail"]
                assert "kept" not in answer.json()["detail"]
                proxy.mend()
                assert (await http.post(path, **request)).status_code == 200
            assert [len(await house.log(turn.conversation or 0)) for turn in await house.tasks(kind="turn")] == [1, 1]
        await away.close()


async def test_a_surprise_is_no_trace(house: House, http: httpx.AsyncClient) -> None:
    class Broken(Clock):
        def override(self) -> None:
            raise LookupError("the secret of the clock")

    house.service.clock = Broken()
    answer = await http.post(ON_TELEGRAM, json=update(), headers=secret(house))
    assert is_a_problem(answer, 500)
    assert "secret" not in json.dumps(answer.json())
