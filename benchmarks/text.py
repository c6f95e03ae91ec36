"""How long it takes to cut a long text for a network and to render its parts, and whether that grows with its length."""

import gc
import time
from collections.abc import Callable

from pydantic import SecretStr

from benchmarks.long_texts import LONG_TEXTS
from benchmarks.measures import Measure
from channels.telegram.bot import TelegramSection
from channels.telegram.outbound import TelegramChannel, render
from channels.whatsapp.outbound import WhatsAppChannel
from channels.whatsapp.section import WhatsAppSection

SIZES = (8_000, 16_000)
"""UTF-16 units."""


def _telegram() -> Callable[[str], object]:
    channel = TelegramChannel(TelegramSection(token=SecretStr("99:AAbbCCddEEffGGhhIIjjKKllMM-_")), None)
    return lambda words: [render(part) for part in channel.split(words)]


def _whatsapp() -> Callable[[str], object]:
    account = {"account_sid": "AC" + "0a" * 16, "auth_token": "token", "sender": "whatsapp:+14155238886"}
    return WhatsAppChannel(WhatsAppSection.model_validate(account)).split


async def text(runs: int, sizes: tuple[int, ...] = SIZES) -> list[Measure]:
    """Cut and render a text of each awkward kind for both networks; then the longest beside the shortest."""
    found: list[Measure] = []
    for network, make in (("Telegram", _telegram), ("WhatsApp", _whatsapp)):
        cut = make()
        cut(LONG_TEXTS["prose"](sizes[0]))  # what is loaded once is not the text's
        taken = {size: {kind: _timed(cut, give(size), runs) for kind, give in LONG_TEXTS.items()} for size in sizes}
        found += [
            Measure(f"a text of {size:,} UTF-16 units, cut and rendered for {network}", "ms", figures, True)
            for size, figures in taken.items()
        ]
        growth = {
            kind: [last / first for first, last in zip(taken[sizes[0]][kind], taken[sizes[-1]][kind], strict=True)]
            for kind in LONG_TEXTS
        }
        found.append(Measure(f"{network}: {sizes[-1]:,} units over {sizes[0]:,}", "times", growth, True))
    return found


def _timed(cut: Callable[[str], object], words: str, runs: int) -> list[float]:
    """Return how many milliseconds of processor time each run took: nothing here waits, and others on the machine do not count.

    A full collection of garbage, which may fall into any run, takes as long as the heap is large: it is held off.
    """
    figures = []
    gc.disable()
    try:
        for _ in range(runs):
            began = time.thread_time()
            cut(words)
            figures.append((time.thread_time() - began) * 1000)
    finally:
        gc.enable()
    return figures
