"""What is sent to Telegram, judged by an independent reading of the Bot API: lengths in UTF-16 units, bounds of entities, fields."""

from dataclasses import replace
from typing import Any

import pytest
from aiogram.exceptions import TelegramBadRequest
from aiogram.methods import SendMessage, SendMessageDraft, SendRichMessage
from aiogram.types import MessageEntity
from teremok import MockBot

from benchmarks.long_texts import LONG_TEXTS
from channels.message import Accepted, Part, units
from channels.telegram.bot import TelegramSection
from channels.telegram.outbound import LIMIT, TelegramChannel

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMM-_"
PART = Part(delivery=1, address="42", text="", reply_to="5")
TABLE = "# Precios\n\n| Plan | Mes |\n|:--|--:|\n| *Básico* | $5 |\n\n- uno\n  - [dos](https://a.example)"


def channel_of(bot: MockBot, rich: bool = False) -> TelegramChannel:
    channel = TelegramChannel(TelegramSection.model_validate({"token": TOKEN, "rich": rich}), None)
    channel._bot = bot
    return channel


async def test_it_refuses_what_telegram_does() -> None:
    bot = MockBot(token=TOKEN)
    with pytest.raises(TelegramBadRequest, match="too long"):
        await bot.send_message(42, "😀" * (LIMIT // 2 + 1))
    with pytest.raises(TelegramBadRequest, match="out of text bounds"):
        await bot.send_message(42, "😀", entities=[MessageEntity(type="bold", offset=1, length=2)])


MIXED = "**Ana** 😀 [aquí](https://a.example) `código` ~~no~~ *موعدك* 👩‍👩‍👧‍👦 > cita\n\n> **cita** _larga_ 🇨🇴\n\n- uno **dos**\n\n"
TEXTS: dict[str, str] = {kind: text(10_000) for kind, text in LONG_TEXTS.items()} | {
    "mixed": MIXED * 60,
    "emphasis in right to left": "**موعدك** مع _الطبيب_ 😀 יום **שלישי** `code`. " * 200,
}


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("kind", TEXTS)
async def test_every_part_of_a_long_text_is_taken_at_once(kind: str, rich: bool) -> None:
    bot = MockBot(token=TOKEN)
    channel = channel_of(bot, rich)
    parts = channel.split(TEXTS[kind])
    for number, text in enumerate(parts, 1):
        assert await channel.send(replace(PART, text=text)) == Accepted(str(number))
    assert len(bot.requests) == len(parts)
    for sent in bot.requests.all:
        if isinstance(sent, SendMessage):
            assert_entities_are_whole(sent.text, sent.entities or [])


def assert_entities_are_whole(text: str, entities: list[MessageEntity]) -> None:
    """Hold that each stands over whole characters, and that of two that meet one is within the other."""
    raw = text.encode("utf-16-le")
    for entity in entities:
        assert raw[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le").strip()
    ends: list[int] = []
    for one in sorted(entities, key=lambda entity: (entity.offset, -entity.length)):
        ends = [end for end in ends if end > one.offset]
        assert all(one.offset + one.length <= end for end in ends)
        ends.append(one.offset + one.length)


async def test_a_table_is_taken_as_a_rich_message() -> None:
    bot = MockBot(token=TOKEN)
    assert await channel_of(bot, rich=True).send(replace(PART, text=TABLE)) == Accepted("1")
    [sent] = bot.requests.all
    assert isinstance(sent, SendRichMessage)
    assert sent.chat_id == "42"
    assert sent.reply_parameters
    assert sent.reply_parameters.message_id == 5
    assert [block.type for block in sent.rich_message.blocks or []] == ["heading", "table", "list"]
    assert (sent.rich_message.markdown, sent.rich_message.html, sent.rich_message.media) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "said", "asked_again"),
    [(400, "Bad Request: RICH_MESSAGE_INVALID", 2), (404, "Not Found: method not found", 1)],
)
async def test_what_is_refused_as_a_rich_message_is_taken_by_entities(code: int, said: str, asked_again: int) -> None:
    bot = MockBot(token=TOKEN)
    channel = channel_of(bot, rich=True)
    refusal: dict[str, Any] = {"ok": False, "error_code": code, "description": said}
    bot.add_result(SendRichMessage, **refusal)
    for number in ("1", "2"):
        assert await channel.send(replace(PART, text=TABLE)) == Accepted(number)
    assert len(bot.requests.send_rich_message) == asked_again
    assert len(bot.requests.send_message) == 3 - asked_again
    [plain] = [sent.text for sent in bot.requests.all[:2] if isinstance(sent, SendMessage)]
    assert plain.startswith("Precios\n")


async def test_drafts_are_taken_too() -> None:
    bot = MockBot(token=TOKEN)
    channel = channel_of(bot)
    for text in TEXTS.values():
        await channel.typing("42", None, "5", text)
    drafts = [sent for sent in bot.requests.all if isinstance(sent, SendMessageDraft)]
    assert len(drafts) == len(bot.requests) == len(TEXTS)
    for draft in drafts:
        assert draft.text
        assert units(draft.text) <= LIMIT, "which it does not look at in drafts"
        assert_entities_are_whole(draft.text, draft.entities or [])
