"""Telegram's updates, read into messages or refused."""

import copy
import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from lo_bot_api_emulator import LoBotApiEmulator

from channels.errors import Malformed, Refused
from channels.message import Inbound, Membership, Moved
from channels.telegram.bot import TelegramSection, open_bot
from channels.telegram.inbound import ALLOWED_UPDATES, check_secret, read_update
from tests.support.telegram_faults import serving

BOT = "99"
NAME = "clinic_bot"


def update(**message: Any) -> dict[str, Any]:
    """An update with a private message, changed as said; None takes a key away."""
    body: dict[str, Any] = {
        "message_id": 5,
        "date": 1,
        "chat": {"id": 42, "type": "private"},
        "from": {"id": 42, "is_bot": False, "first_name": "Ana", "last_name": "Ruiz", "language_code": "es-419"},
        "text": "Hola",
    } | message
    return {"update_id": 1001, "message": {key: value for key, value in body.items() if value is not None}}


def in_group(**message: Any) -> dict[str, Any]:
    return update(**({"chat": {"id": -100123, "type": "supergroup", "is_forum": True}} | message))


def read(raw: Any, bot_name: str | None = NAME) -> Inbound:
    inbound = read_update(raw, "acme", BOT, bot_name)
    assert isinstance(inbound, Inbound)
    return inbound


def in_business(**message: Any) -> dict[str, Any]:
    raw = update(**({"business_connection_id": "bc-_=1"} | message))
    return {"update_id": raw["update_id"], "business_message": raw["message"]}


def in_direct(**message: Any) -> dict[str, Any]:
    chat = {"id": -100555, "type": "supergroup", "is_direct_messages": True}
    topic = {"topic_id": 7, "user": {"id": 42, "is_bot": False, "first_name": "Ana"}}
    return update(**({"chat": chat, "direct_messages_topic": topic} | message))


def member(status: str, chat: Any = None, **more: Any) -> dict[str, Any]:
    bot = {"id": 99, "is_bot": True, "first_name": "Clinic"}
    change = {"chat": chat or {"id": 42, "type": "private"}, "new_chat_member": {"status": status, "user": bot, **more}}
    return {"update_id": 1001, "my_chat_member": change}


def test_a_private_message_becomes_an_inbound() -> None:
    assert read(update()) == Inbound(
        tenant="acme",
        channel="telegram",
        address="42",
        address_key="42",
        provider_id="99:1001:5",
        text="Hola",
        thread=None,
        reply_to="5",
        name="Ana Ruiz",
        language="es",
    )


@pytest.mark.parametrize(
    ("code", "language"),
    [("pt-br", "pt"), ("EN", "en"), ("fil", None), ("", None), (None, None), (7, None), ("e", None)],
)
def test_the_language_is_two_letters_or_unknown(code: Any, language: str | None) -> None:
    raw = update()
    raw["message"]["from"]["language_code"] = code
    assert read(raw).language == language


def test_a_start_command_arrives_as_it_was_typed() -> None:
    assert read(update(text="/start")).text == "/start"


def test_a_caption_is_read_and_what_it_belongs_to_is_named() -> None:
    assert read(update(text=None, photo=[{"file_id": "x"}], caption="¿Es correcta?")).text == "[photo] ¿Es correcta?"


@pytest.mark.parametrize("kind", ["photo", "voice", "sticker", "document", "video_note", "contact"])
def test_a_private_message_without_text_says_what_it_is(kind: str) -> None:
    assert read(update(text=None, **{kind: {"file_id": "x"}})).text == f"[{kind}]"


def test_a_place_and_a_film_are_named_by_the_more_telling_key() -> None:
    assert read(update(text=None, location={"latitude": 1}, venue={"title": "x"})).text == "[venue]"
    assert read(update(text=None, document={"file_id": "x"}, animation={"file_id": "x"})).text == "[animation]"


@pytest.mark.parametrize(
    "message",
    [
        {"text": "hey @Clinic_Bot, when?"},
        {"text": "@clinic_bot"},
        {"text": "/appointment tomorrow"},
        {"text": "/appointment@clinic_bot"},
        {"text": None, "photo": [{}], "caption": "@clinic_bot look"},
        {"text": "yes", "reply_to_message": {"message_id": 4, "from": {"id": 99, "is_bot": True}}},
    ],
)
def test_a_group_message_said_to_the_bot_is_read(message: dict[str, Any]) -> None:
    inbound = read(in_group(**message))
    assert inbound.address == "-100123"
    assert inbound.text == (message["text"] or message.get("caption"))


@pytest.mark.parametrize(
    "message",
    [
        {"text": "good morning all"},
        {"text": "write to @clinic_bot2"},
        {"text": "mail me@clinic_bot.example is not it: x@clinic_bot"},
        {"text": "/appointment@other_bot"},
        {"text": "/usr/bin/env"},
        {"text": "/stop@other_bot", "reply_to_message": {"message_id": 4, "from": {"id": 99, "is_bot": True}}},
        {"text": "yes", "reply_to_message": {"message_id": 4, "from": {"id": 98, "is_bot": False}}},
        {"text": None, "photo": [{}]},
        {
            "text": "in the topic the bot opened",
            "reply_to_message": {"message_id": 4, "from": {"id": 99}, "forum_topic_created": {"name": "x"}},
        },
    ],
)
def test_a_group_message_not_said_to_the_bot_is_passed_over(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="not to the bot"):
        read(in_group(**message))


@pytest.mark.parametrize(
    ("spoken_as", "account"),
    [
        ({"id": -100123, "type": "supergroup", "title": "Family"}, {"id": 1087968824, "username": "GroupAnonymousBot"}),
        ({"id": -100999, "type": "channel", "title": "Ana's"}, {"id": 136817688, "username": "Channel_Bot"}),
    ],
)
def test_whoever_speaks_as_the_group_or_as_a_channel_of_theirs_is_read_without_a_name(
    spoken_as: dict[str, Any], account: dict[str, Any]
) -> None:
    sender = {"is_bot": True, "first_name": "Telegram's", "language_code": "xx", **account}
    inbound = read(in_group(text="/stop", sender_chat=spoken_as, **{"from": sender}))
    assert (inbound.text, inbound.address, inbound.name, inbound.language) == ("/stop", "-100123", None, None)


def test_without_the_bots_name_a_mention_and_a_named_command_are_nobodys() -> None:
    for text in ("@clinic_bot hi", "/start@clinic_bot"):
        with pytest.raises(Malformed):
            read(in_group(text=text), bot_name=None)
    assert read(in_group(text="/start"), bot_name=None).text == "/start"


def test_a_topic_is_a_thread_and_a_thread_of_replies_is_not() -> None:
    assert read(in_group(text="/go", message_thread_id=7, is_topic_message=True)).thread == "7"
    assert read(in_group(text="/go", message_thread_id=7)).thread is None


READ = {"message", "business_message", "my_chat_member"}


@pytest.mark.parametrize("kind", sorted({*ALLOWED_UPDATES, "channel_post", "a_kind_to_come"} - READ))
def test_other_kinds_of_update_are_passed_over(kind: str) -> None:
    with pytest.raises(Malformed):
        read({"update_id": 1, kind: update()["message"] | {"business_connection_id": "bc1"}})


def test_all_that_is_read_is_asked_for() -> None:
    assert set(ALLOWED_UPDATES) > READ


# A business's own chats, and the direct messages of a channel


def test_a_customer_of_a_business_is_answered_through_its_connection() -> None:
    inbound = read(in_business())
    assert (inbound.address, inbound.address_key, inbound.thread) == ("42", "42", "business:bc-_=1")
    assert (inbound.text, inbound.reply_to, inbound.provider_id) == ("Hola", "5", "99:1001:5")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"from": {"id": 7, "is_bot": False, "first_name": "Eva"}}, "said by the business"),
        ({"business_connection_id": None}, "no business connection"),
        ({"business_connection_id": "a b"}, "no business connection"),
        ({"business_connection_id": "x" * 201}, "no business connection"),
        ({"business_connection_id": 7}, "no business connection"),
    ],
)
def test_what_the_business_itself_says_or_cannot_be_answered_is_passed_over(message: dict[str, Any], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read(in_business(**message))


def test_each_customer_of_a_channels_direct_messages_is_a_contact_of_their_own() -> None:
    inbound = read(in_direct())
    assert (inbound.address, inbound.thread, inbound.text) == ("-100555", "direct:7", "Hola")
    other = read(in_direct(direct_messages_topic={"topic_id": 8}))
    assert (other.address, other.thread) == ("-100555", "direct:8")
    assert other.address_key != inbound.address_key
    assert read(in_direct(text=None, photo=[{}])).text == "[photo]", "nobody else listens there"


@pytest.mark.parametrize(
    "message",
    [
        {"from": {"id": 7, "is_bot": False, "first_name": "Eva"}},
        {"sender_chat": {"id": -100556, "type": "channel"}},
        {"direct_messages_topic": None},
        {"direct_messages_topic": {"topic_id": "7"}},
        {"direct_messages_topic": {"topic_id": -7}},
    ],
)
def test_what_the_channel_says_or_has_no_topic_is_passed_over(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(in_direct(**message))


# Let in, and shut out


@pytest.mark.parametrize(
    ("status", "more", "is_in"),
    [
        ("kicked", {"until_date": 0}, False),
        ("left", {}, False),
        ("member", {}, True),
        ("administrator", {}, True),
        ("creator", {}, True),
        ("restricted", {"is_member": True, "can_send_messages": True}, True),
        ("restricted", {"is_member": True, "can_send_messages": False}, False),
        ("restricted", {"is_member": False, "can_send_messages": True}, False),
    ],
)
def test_word_of_a_chat_that_lets_the_bot_in_or_not(status: str, more: dict[str, Any], is_in: bool) -> None:
    for chat in ({"id": 42, "type": "private"}, {"id": -7, "type": "group"}):
        word = read_update(member(status, chat, **more), "acme", BOT)
        assert word == Membership("acme", "telegram", str(chat["id"]), is_in)


@pytest.mark.parametrize(
    "raw",
    [
        member("unheard of"),
        member("left", {"id": -1, "type": "channel"}),
        member("left", {"id": "42", "type": "private"}),
        {"update_id": 1, "my_chat_member": None},
        {"update_id": 1, "my_chat_member": {"chat": {"id": 42, "type": "private"}}},
    ],
)
def test_what_is_no_such_word_is_malformed(raw: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_update(raw, "acme", BOT)


# Moved


@pytest.mark.parametrize(
    "raw",
    [
        update(chat={"id": -7, "type": "group"}, migrate_to_chat_id=-1007),
        update(chat={"id": -1007, "type": "supergroup"}, migrate_from_chat_id=-7, text=None),
        update(chat={"id": -7, "type": "group"}, migrate_to_chat_id=-1007, **{"from": {"id": 1, "is_bot": True}}),
    ],
)
def test_a_group_that_became_a_supergroup_tells_of_it_in_both(raw: dict[str, Any]) -> None:
    assert read_update(raw, "acme", BOT) == Moved("acme", "telegram", "-7", "-1007")


@pytest.mark.parametrize(
    "message",
    [
        {"chat": {"id": -7, "type": "group"}, "migrate_to_chat_id": 42},
        {"chat": {"id": 42, "type": "private"}, "migrate_to_chat_id": -1007},
        {"chat": {"id": 42, "type": "private"}, "migrate_from_chat_id": -7},
        {"chat": {"id": -7, "type": "group"}, "migrate_to_chat_id": "-1007"},
        {"chat": {"id": -7, "type": "group"}, "migrate_to_chat_id": True},
        {"chat": {"id": -7, "type": "group"}, "migrate_to_chat_id": -(2**70)},
    ],
)
def test_nothing_but_a_group_moves_and_only_to_another(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_update(update(**message), "acme", BOT)


@pytest.mark.parametrize(
    "message",
    [
        {"from": {"id": 1, "is_bot": True, "first_name": "Other bot"}},
        {"from": {"id": 1, "first_name": "Who knows"}},
        {"from": {"id": 1, "is_bot": True, "first_name": "Other bot"}, "sender_chat": {"id": 42, "type": "private"}},
        {"from": None},
        {"chat": {"id": -1, "type": "channel"}},
        {"chat": {"id": "42", "type": "private"}},
        {"chat": {"id": True, "type": "private"}},
        {"chat": {"id": 2**70, "type": "private"}},
        {"chat": []},
        {"message_id": 5.0},
        {"message_id": -5},
        {"chat": {"id": -1, "type": "supergroup"}, "text": "/stop", "is_automatic_forward": True},
        {"message_thread_id": "7", "is_topic_message": True},
        {"text": ["Hola"]},
        {"text": " \n\t"},
        {"text": "\u2060 \u3164"},
        {"text": None, "new_chat_members": [{"id": 1}]},
    ],
)
def test_what_is_no_message_from_a_person_is_malformed(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(update(**message))


@pytest.mark.parametrize("raw", [None, [], "x", 7, {}, {"update_id": 1}, {"message": {}}])
def test_what_is_no_update_is_malformed(raw: Any) -> None:
    with pytest.raises(Malformed):
        read(raw)


def test_an_update_without_an_id_is_malformed() -> None:
    raw = update()
    del raw["update_id"]
    with pytest.raises(Malformed, match="update_id"):
        read(raw)


def test_text_no_database_takes_is_mended() -> None:
    raw = json.loads(r'{"text": "a\u0000b\ud83dc \ud83d\ude00"}')
    assert read(update(**raw)).text == "ab\ufffdc 😀"


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_FIELDS = [(), ("message",)] + [
    ("message", *path)
    for path in (
        ("chat",),
        ("chat", "id"),
        ("chat", "type"),
        ("from",),
        ("from", "is_bot"),
        ("from", "first_name"),
        ("from", "language_code"),
        ("text",),
        ("caption",),
        ("photo",),
        ("message_id",),
        ("message_thread_id",),
        ("is_topic_message",),
        ("reply_to_message",),
        ("reply_to_message", "from"),
    )
]


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(_FIELDS), value=_anything, group=st.booleans())
def test_whatever_stands_in_a_field_the_update_is_read_or_malformed(
    path: tuple[str, ...], value: Any, group: bool
) -> None:
    raw: Any = copy.deepcopy((in_group if group else update)(reply_to_message={"from": {"id": 99}}))
    if path:
        parent = raw
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value
    else:
        raw = value
    try:
        inbound = read(raw)
    except Malformed:
        return
    assert inbound.text.strip()
    assert inbound.address.lstrip("-").isdecimal()


def test_the_right_secret_passes() -> None:
    check_secret("s3cret_-", "s3cret_-")


@pytest.mark.parametrize("given", [None, "", "S3cret", "s3cret ", "s3cre", "sécret", "\udcff"])
def test_a_missing_or_wrong_secret_is_refused(given: str | None) -> None:
    with pytest.raises(Refused):
        check_secret(given, "s3cret")


@pytest.mark.parametrize("given", [None, "", "anything"])
def test_where_no_secret_is_set_nothing_passes(given: str | None) -> None:
    with pytest.raises(Refused, match="no webhook secret"):
        check_secret(given, "")


async def test_a_webhook_call_with_the_bots_secret_is_read_and_one_with_another_secret_is_kept_out() -> None:
    token = "99:AAbbCCddEEffGGhhIIjjKKllMM-_"
    expected = "new-secret"
    received: list[Inbound] = []

    async def hook(request: web.Request) -> web.Response:
        try:
            check_secret(request.headers.get("X-Telegram-Bot-Api-Secret-Token"), expected)
        except Refused:
            return web.Response(status=403)
        received.append(read(await request.json()))
        return web.Response()

    emulator = LoBotApiEmulator(allow_insecure_loopback_webhooks=True)
    ours = web.Application()
    ours.router.add_post("/hook", hook)
    async with serving(emulator.app()) as telegram, serving(ours) as here:
        bot = open_bot(TelegramSection.model_validate({"token": token}), telegram)
        await emulator.enqueue_update({"message": update(text="Hola")["message"]}, token=token)
        for secret in (None, "old-secret"):
            await bot.set_webhook(f"{here}/hook", secret_token=secret)
            assert received == []
        await bot.set_webhook(f"{here}/hook", secret_token=expected)
        await emulator.deliver_updates(token=token)
        waiting = (await bot.get_webhook_info()).pending_update_count
        await bot.session.close()
    assert [(inbound.text, inbound.provider_id) for inbound in received] == [("Hola", "99:1:5")]
    assert waiting == 0
