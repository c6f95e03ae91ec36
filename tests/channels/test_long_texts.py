"""Long texts of every awkward kind, cut for both networks: nothing is lost, each part fits, and the work grows with the text."""

import re
from collections import Counter
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from benchmarks.long_texts import LONG_TEXTS
from channels.channel import Channel
from channels.message import units
from channels.telegram.bot import TelegramSection
from channels.telegram.outbound import LIMIT as TELEGRAM_LIMIT
from channels.telegram.outbound import TelegramChannel, render
from channels.whatsapp.outbound import LIMIT as WHATSAPP_LIMIT
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.section import WhatsAppSection
from store.blank import is_blank

TELEGRAM = TelegramChannel(TelegramSection(token=SecretStr("99:AAbbCCddEEffGGhhIIjjKKllMM-_")), None)
WHATSAPP = WhatsAppChannel(
    WhatsAppSection(account_sid="AC" + "0a" * 16, auth_token=SecretStr("token"), sender="whatsapp:+14155238886")
)
CHANNELS: dict[str, tuple[Channel, int, Callable[[str], str]]] = {
    "telegram": (TELEGRAM, TELEGRAM_LIMIT, lambda part: render(part)[0]),
    "whatsapp": (WHATSAPP, WHATSAPP_LIMIT, lambda part: part),
}
SIZES = (8_000, 10_000, 16_000)
WORD = re.compile(r"[^\W_]+")
SIGN = re.compile(r"[^\w\s|:`*-]")
"""What a text holds beside its words and its markup; rules of tables and fences are drawn anew in each part."""
FENCE = "```python"
"""Its language is markup."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", LONG_TEXTS)
@pytest.mark.parametrize("name", CHANNELS)
def test_a_long_text_loses_nothing_and_each_part_fits(name: str, kind: str, size: int) -> None:
    channel, limit, shown = CHANNELS[name]
    text = LONG_TEXTS[kind](size)
    parts = channel.split(text)
    assert all(0 < units(part) <= limit and 0 < units(shown(part)) <= limit for part in parts)
    seen = "\n".join(shown(part) for part in parts)
    for pattern in (WORD, SIGN):
        wanted = Counter(pattern.findall(text.replace(FENCE, "```")))
        missing = wanted - Counter(pattern.findall(seen))
        assert not {word: count for word, count in missing.items() if not _is_cut(word, limit)}
    if kind in ("brackets", "emoji"):
        assert "".join(seen.split()) == text, "16,000 brackets; 5,000 emoji are 10,000 units"


def _is_cut(word: str, limit: int) -> bool:
    """Tell whether a word is too long for one part, and so stands in two."""
    return units(word) > limit


@pytest.mark.parametrize("kind", LONG_TEXTS)
@pytest.mark.parametrize("name", CHANNELS)
def test_no_more_parts_than_twice_what_would_do(name: str, kind: str) -> None:
    channel, limit, _ = CHANNELS[name]
    text = LONG_TEXTS[kind](SIZES[-1])
    assert len(channel.split(text)) <= 2 * units(text) / limit + 1


@pytest.mark.parametrize("unseen", ["\u200b", "\u200b \n", "\u0301", "\u2060\u3164", "\u202e\u2066"])
@pytest.mark.parametrize("name", CHANNELS)
def test_no_part_is_blank_which_would_be_refused_and_keep_back_what_comes_after_it(name: str, unseen: str) -> None:
    channel, _, shown = CHANNELS[name]
    parts = channel.split("before " + unseen * 12_000 + " after")
    assert not [part for part in parts if is_blank(shown(part))]
    assert parts[0].startswith("before")
    assert parts[-1].endswith("after")
    assert channel.split(unseen * 12_000) == [""]
