"""Rich messages of Telegram, where a tenant wants them: what goes as one, what nothing in it may be, and what a refusal leads to."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from aiogram.types import InputRichMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.long_texts import LONG_TEXTS
from channels.message import Accepted, NotSent, Outcome, Part, Rejected, Unknown, units
from channels.telegram.bot import TelegramSection
from channels.telegram.outbound import LIMIT, TelegramChannel, render
from channels.telegram.rich import DEPTH, rich_message
from tests.support.telegram_faults import DROP, HANG, Answer, TelegramFaults, refused, telegram_faults

# One server for the file, and channels closed together: closing aiogram's session takes a quarter of a second.
one_loop = pytest.mark.asyncio(loop_scope="module")

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMM-_"
RICH = TelegramSection.model_validate({"token": TOKEN, "rich": True})
PLAIN = TelegramSection.model_validate({"token": TOKEN})
PRICES = "# Precios\n\n| Plan | Mes |\n|:--|--:|\n| *Básico* | $5 |\n| Plus | $12 |"
PART = Part(delivery=1, address="42", text=PRICES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[TelegramFaults]:
    async with telegram_faults() as faults:
        yield faults


@pytest.fixture
def faults(server: TelegramFaults) -> TelegramFaults:
    server.begin()
    return server


Opening = Callable[..., TelegramChannel]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opening(server: TelegramFaults) -> AsyncIterator[Opening]:
    """What gives a new channel of the tenant's."""
    channels = []

    def opened(section: TelegramSection = RICH, timeout: float = 30.0) -> TelegramChannel:
        channels.append(TelegramChannel(section, server.url, timeout))
        return channels[-1]

    yield opened
    await asyncio.gather(*(channel.close() for channel in channels))


@pytest.fixture
def channel(opening: Opening, faults: TelegramFaults) -> TelegramChannel:
    return opening()


def methods(faults: TelegramFaults) -> list[str]:
    return [call.method for call in faults.calls]


# What goes as one


@one_loop
async def test_a_table_goes_as_a_rich_message_to_its_place(channel: TelegramChannel, faults: TelegramFaults) -> None:
    assert await channel.send(replace(PART, address="-100123", thread="7", reply_to="5")) == Accepted("77")
    [call] = faults.calls
    assert (call.bot, call.method) == (TOKEN, "sendRichMessage")
    assert call.fields == {
        "chat_id": "-100123",
        "message_thread_id": "7",
        "reply_parameters": {"message_id": 5, "allow_sending_without_reply": True},
        "rich_message": {
            "blocks": [
                {"type": "heading", "text": "Precios", "size": 1},
                {
                    "type": "table",
                    "is_bordered": True,
                    "cells": [
                        [
                            {"text": "Plan", "align": "left", "valign": "middle", "is_header": True},
                            {"text": "Mes", "align": "right", "valign": "middle", "is_header": True},
                        ],
                        [
                            {"text": {"type": "italic", "text": "Básico"}, "align": "left", "valign": "middle"},
                            {"text": "$5", "align": "right", "valign": "middle"},
                        ],
                        [
                            {"text": "Plus", "align": "left", "valign": "middle"},
                            {"text": "$12", "align": "right", "valign": "middle"},
                        ],
                    ],
                },
            ],
            "skip_entity_detection": True,
        },
    }


@pytest.mark.parametrize(
    ("thread", "fields"),
    [
        (None, {}),
        ("15", {"message_thread_id": "15"}),
        ("direct:7", {"direct_messages_topic_id": "7"}),
        ("business:bc-_=1", {"business_connection_id": "bc-_=1"}),
    ],
)
@one_loop
async def test_it_goes_the_way_its_thread_says_and_no_other(
    channel: TelegramChannel, faults: TelegramFaults, thread: str | None, fields: dict[str, str]
) -> None:
    assert await channel.send(replace(PART, thread=thread)) == Accepted("77")
    [call] = faults.calls
    assert call.fields == {"chat_id": "42", "rich_message": call.fields["rich_message"]} | fields


@one_loop
async def test_without_the_option_it_goes_as_before(opening: Opening, faults: TelegramFaults) -> None:
    channel = opening(PLAIN)
    assert await channel.send(PART) == Accepted("77")
    [call] = faults.calls
    assert (call.method, call.fields["text"]) == ("sendMessage", render(PRICES)[0])


@pytest.mark.parametrize(
    "text",
    [
        "# Título",
        "Uno\n===",
        "| a | b |\n|---|---|\n| c | d |",
        "antes\n\n---\n\ndespués",
        "- uno\n  - dos",
        "1. uno\n   - dos",
        "- [ ] por hacer\n- [x] hecho",
        "> # Título",
    ],
)
@one_loop
async def test_what_plain_text_cannot_show_is_rich(channel: TelegramChannel, faults: TelegramFaults, text: str) -> None:
    assert await channel.send(replace(PART, text=text)) == Accepted("77")
    assert methods(faults) == ["sendRichMessage"]


@pytest.mark.parametrize(
    "text",
    [
        "Hola",
        "**a** *b* ~~c~~ `d` [e](https://e.example)",
        "- uno\n- dos",
        "1. uno\n2. dos",
        "> cita",
        "```\n# no es un título\n| ni | tabla |\n|--|--|\n```",
        "$5 o $6, a || b, <b>x</b>",
        "#hashtag",
        "#",
        "> " * (DEPTH + 1) + "# demasiado",
        "> " * 1500 + "# demasiado",
    ],
)
@one_loop
async def test_everything_else_goes_as_before(channel: TelegramChannel, faults: TelegramFaults, text: str) -> None:
    assert await channel.send(replace(PART, text=text)) == Accepted("77")
    assert methods(faults) == ["sendMessage"]


@pytest.mark.parametrize(
    "link",
    ["https://a.example", "a.example/x", "t.me/x", "[aquí](http://localhost)", "<https://a.example>", "a@b.example"],
)
@one_loop
async def test_a_scheduled_part_with_a_link_goes_as_before_and_shows_no_preview(
    channel: TelegramChannel, faults: TelegramFaults, link: str
) -> None:
    part = replace(PART, text=f"{PRICES}\n\nVer {link}")
    await channel.send(replace(part, scheduled=True))
    await channel.send(part)
    assert methods(faults) == ["sendMessage", "sendRichMessage"]
    assert faults.calls[0].fields["link_preview_options"] == {"is_disabled": True}


@one_loop
async def test_a_scheduled_part_without_a_link_is_rich(channel: TelegramChannel, faults: TelegramFaults) -> None:
    text = f"{PRICES}\n\nA las 9.30 h. Gracias."
    assert await channel.send(replace(PART, text=text, scheduled=True)) == Accepted("77")
    assert methods(faults) == ["sendRichMessage"]


def test_a_part_is_cut_as_before() -> None:
    text = "# Título\n\n" + "Una **frase** con `código` y 😀. " * 400 + PRICES
    pieces = TelegramChannel(RICH, None).split(text)
    assert list(pieces) == list(TelegramChannel(PLAIN, None).split(text))
    assert all(units(render(piece)[0]) <= LIMIT for piece in pieces)


# What an answer leads to


REFUSED_BY_MANY: dict[str, Answer] = {
    said: refused(400, f"Bad Request: {said}")
    for said in (
        "can't parse rich message",
        "RICH_MESSAGE_EMAIL_INVALID",
        "too many blocks",
        "message is too long",
        "rich message must be non-empty",
    )
} | {"nothing": Answer(400, {"ok": False})}


@pytest.mark.parametrize("said", REFUSED_BY_MANY)
@one_loop
async def test_what_telegram_refuses_goes_once_as_before(
    channel: TelegramChannel, faults: TelegramFaults, said: str
) -> None:
    part = replace(PART, address="-1007", thread="7", reply_to="5")
    faults.begin(REFUSED_BY_MANY[said])
    assert await channel.send(part) == Accepted("77")
    assert methods(faults) == ["sendRichMessage", "sendMessage"]
    first, second = (call.fields for call in faults.calls)
    assert second["text"] == render(PRICES)[0]
    assert {"type": "bold", "offset": 0, "length": 7} in second["entities"]
    place = ("chat_id", "message_thread_id", "reply_parameters")
    assert [second[name] for name in place] == [first[name] for name in place]

    faults.begin()
    await channel.send(part)
    assert methods(faults) == ["sendRichMessage"], "one part was refused, not all to come"


@one_loop
async def test_a_refusal_of_both_is_the_second_ones(channel: TelegramChannel, faults: TelegramFaults) -> None:
    faults.begin(refused(400, "Bad Request: RICH_INVALID"), refused(400, "Bad Request: chat not found"))
    outcome = await channel.send(PART)
    assert isinstance(outcome, Rejected)
    assert "chat not found" in outcome.reason
    assert len(faults.calls) == 2


@one_loop
async def test_a_second_call_whose_outcome_is_unknown_is_the_last(
    channel: TelegramChannel, faults: TelegramFaults
) -> None:
    faults.begin(refused(400, "Bad Request: RICH_INVALID"), DROP)
    assert isinstance(await channel.send(PART), Unknown)
    assert len(faults.calls) == 2


@one_loop
async def test_a_gone_message_to_reply_to_is_left_out_and_it_stays_rich(
    channel: TelegramChannel, faults: TelegramFaults
) -> None:
    faults.begin(refused(400, "Bad Request: message to be replied not found"))
    assert await channel.send(replace(PART, reply_to="5", thread="7")) == Accepted("77")
    assert methods(faults) == ["sendRichMessage", "sendRichMessage"]
    assert ["reply_parameters" in call.fields for call in faults.calls] == [True, False]


@one_loop
async def test_a_groups_topic_that_is_gone_is_never_left(channel: TelegramChannel, faults: TelegramFaults) -> None:
    gone = refused(400, "Bad Request: message thread not found")
    faults.begin(gone, gone)
    outcome = await channel.send(replace(PART, address="-1007", thread="7"))
    assert isinstance(outcome, Rejected)
    assert outcome.is_place_gone
    assert {call.fields.get("message_thread_id") for call in faults.calls} == {"7"}


@pytest.mark.parametrize("said", ["Not Found: method not found", "Not Found"])
@one_loop
async def test_a_server_that_does_not_know_the_method_is_asked_for_it_once(
    channel: TelegramChannel, faults: TelegramFaults, said: str
) -> None:
    faults.begin(refused(404, said))
    assert await channel.send(PART) == Accepted("77")
    assert await channel.send(PART) == Accepted("77")
    assert methods(faults) == ["sendRichMessage", "sendMessage", "sendMessage"]


@pytest.mark.parametrize("second", [refused(404, "Not Found"), refused(401, "Unauthorized")])
@one_loop
async def test_a_token_that_is_not_known_is_so_for_the_plain_message_too(
    channel: TelegramChannel, faults: TelegramFaults, second: Answer
) -> None:
    faults.begin(refused(404, "Not Found"), second)
    outcome = await channel.send(PART)
    assert isinstance(outcome, Rejected)
    assert outcome.tenant_fault
    assert len(faults.calls) == 2


ENDS: dict[str, tuple[Answer | str, Callable[[Outcome], bool]]] = {
    "429": (
        refused(429, "Too Many Requests: retry after 7", retry_after=7),
        lambda o: isinstance(o, NotSent) and o.retry_after == 7.0,
    ),
    "a group that became a supergroup": (
        refused(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-100777),
        lambda o: isinstance(o, NotSent) and o.moved_to == "-100777",
    ),
    "403": (
        refused(403, "Forbidden: bot was blocked by the user"),
        lambda o: isinstance(o, Rejected) and o.is_blocked,
    ),
    "401": (refused(401, "Unauthorized"), lambda o: isinstance(o, Rejected) and o.tenant_fault),
    "409": (refused(409, "Conflict"), lambda o: isinstance(o, Unknown)),
    "413": (refused(413, "Request Entity Too Large"), lambda o: isinstance(o, Rejected)),
    "500": (refused(500, "Internal Server Error"), lambda o: isinstance(o, Unknown)),
    "502 with HTML": (Answer(502, "<html>Bad Gateway</html>"), lambda o: isinstance(o, Unknown)),
    "400 with HTML": (Answer(400, "<html>Bad Request</html>"), lambda o: isinstance(o, Unknown)),
    "404 with HTML": (Answer(404, "<html>Not Found</html>"), lambda o: isinstance(o, Unknown)),
    "200 that is not ok": (Answer(200, {"ok": False, "description": "x"}), lambda o: isinstance(o, Unknown)),
    "5xx JSON without a description": (Answer(503, {"ok": False}), lambda o: isinstance(o, Unknown)),
    "accepted, but otherwise unreadable": (
        Answer(200, {"ok": True, "result": {"message_id": 78, "rich_message": {"blocks": "new"}}}),
        lambda o: o == Accepted("78"),
    ),
    "accepted without an id": (Answer(200, {"ok": True, "result": {"date": 1}}), lambda o: isinstance(o, Unknown)),
    "a connection closed after the request": (DROP, lambda o: isinstance(o, Unknown)),
}


@pytest.mark.parametrize("row", ENDS)
@one_loop
async def test_every_other_answer_means_what_it_means_for_any_message_and_ends_it(
    channel: TelegramChannel, faults: TelegramFaults, row: str
) -> None:
    answer, is_right = ENDS[row]
    faults.begin(answer)
    outcome = await channel.send(PART)
    assert is_right(outcome), outcome
    assert methods(faults) == ["sendRichMessage"]


@one_loop
async def test_no_answer_is_unknown_and_nothing_follows_it(opening: Opening, faults: TelegramFaults) -> None:
    channel = opening(timeout=0.3)
    faults.begin(HANG)
    assert await channel.send(PART) == Unknown("no answer from Telegram within 0.3 seconds")
    await faults.dropped.wait()
    assert methods(faults) == ["sendRichMessage"]


# What it shows

LIVE = {"url": "url", "email_address": "email_address"}
SHOWN = {"paragraph", "heading", "pre", "divider", "list", "blockquote", "table"}
FORMATS = {"bold", "italic", "strikethrough", "code"}


def pieces(of: Any) -> Iterator[dict[str, Any]]:
    """Every block and every formatted text, however deep."""
    if isinstance(of, dict):
        if ("type" in of and "blocks" not in of) or of.get("type") == "blockquote":
            yield of
        of = list(of.values())
    if isinstance(of, list):
        for one in of:
            yield from pieces(one)


def words(of: Any) -> str:
    """What a reader sees, without white space."""
    if isinstance(of, str):
        return "".join(of.split())
    if isinstance(of, list):
        return "".join(words(one) for one in of)
    return "".join(words(of[name]) for name in ("text", "blocks", "items", "cells") if name in of)


def rich(source: str) -> dict[str, Any]:
    found = rich_message(source)
    assert found is not None
    InputRichMessage.model_validate(found)
    return found


def test_every_block_is_shown_as_what_it_is() -> None:
    source = (
        "## Plan **A**\n\nHola ~~no~~ `x < 5`\nsí  \nfin.\n\n"
        "- [x] hecho\n- [ ] por hacer\n\n  3. tres\n  4. cuatro\n\n     más\n\n"
        "> cita\n> > de otra\n\n```python\nprint('<b>$5~6')\n```\n\n---\n"
    )
    assert rich(source)["blocks"] == [
        {"type": "heading", "size": 2, "text": ["Plan ", {"type": "bold", "text": "A"}]},
        {
            "type": "paragraph",
            "text": [
                "Hola ",
                {"type": "strikethrough", "text": "no"},
                " ",
                {"type": "code", "text": "x < 5"},
                "\n",
                "sí",
                "\n",
                "fin.",
            ],
        },
        {
            "type": "list",
            "items": [
                {"blocks": [{"type": "paragraph", "text": "hecho"}], "has_checkbox": True, "is_checked": True},
                {
                    "blocks": [
                        {"type": "paragraph", "text": "por hacer"},
                        {
                            "type": "list",
                            "items": [
                                {"blocks": [{"type": "paragraph", "text": "tres"}], "value": 3, "type": "1"},
                                {
                                    "blocks": [
                                        {"type": "paragraph", "text": "cuatro"},
                                        {"type": "paragraph", "text": "más"},
                                    ],
                                    "value": 4,
                                    "type": "1",
                                },
                            ],
                        },
                    ],
                    "has_checkbox": True,
                },
            ],
        },
        {
            "type": "blockquote",
            "blocks": [
                {"type": "paragraph", "text": "cita"},
                {"type": "blockquote", "blocks": [{"type": "paragraph", "text": "de otra"}]},
            ],
        },
        {"type": "pre", "text": "print('<b>$5~6')", "language": "python"},
        {"type": "divider"},
    ]


def test_a_row_too_long_or_too_short_is_as_long_as_the_head() -> None:
    table = rich("| a | b |\n|---|:-:|\n| 1 | 2 | 3 |\n| 4 |")["blocks"][0]
    assert [[cell.get("text") for cell in row] for row in table["cells"]] == [["a", "b"], ["1", "2"], ["4", None]]
    assert [cell["align"] for cell in table["cells"][1]] == ["left", "center"]


def test_a_text_in_arabic_or_hebrew_runs_from_right_to_left() -> None:
    for text in ("# **موعدك** مع A", "1 # \n\n| התור |\n|--|\n| a |"):
        assert rich(text)["is_rtl"] is True
    assert rich("| התור | a |\n|--|:--|\n| b | c |")["blocks"][0]["cells"][1][0]["align"] == "right"
    assert "is_rtl" not in rich("# A موعدك")


@pytest.mark.parametrize(
    "source",
    [
        "<b>x</b> <script>alert(1)</script>",
        '<img src="https://evil.example/?q=1"/>',
        "<details><summary>a</summary>b</details>",
        "<tg-map lat='1' long='2'/>",
        "\\\\<b>x</b>",
        "<div>\n# y\n</div>",
        "$5 a $6 y $$E=mc^2$$",
        "||x|| ==y==",
        "[^1] y\n\n[^1]: nota",
        "[a]: https://a.example",
        "@ana #tema /start $ACME +57 300 123 4567 4111 1111 1111 1111",
        "cuesta ~10 a ~20",
        "`<b>` y `$x$`",
    ],
)
def test_what_telegram_would_read_into_markdown_stays_as_it_is_written(source: str) -> None:
    found = rich(f"# Título\n\n{source}\n")
    assert {piece["type"] for piece in pieces(found)} <= {"heading", "paragraph", "code", "url"}
    assert all(piece["url"] == piece["text"] for piece in pieces(found) if piece["type"] == "url")
    expected = source.replace("\\\\", "\\").replace("`", "").replace("# y", "y")
    assert words(found) == "Título" + "".join(expected.split())
    assert found["skip_entity_detection"] is True


@pytest.mark.parametrize(
    "url",
    [
        "tg://user?id=1",
        "TG://user?id=1",
        "tg://emoji?id=5368324170671202286",
        "tg://time?unix=1647531900",
        "javascript:alert(1)",
        "file:///x",
        "tel:+123",
        "#top",
        "x",
    ],
)
def test_a_link_to_anything_but_the_web_or_an_address_is_only_text(url: str) -> None:
    found = rich(f"# Ver [esto]({url}) y ![eso]({url})\n\n[a]({url})")
    assert {piece["type"] for piece in pieces(found)} == {"heading", "paragraph"}
    assert words(found) == "Verestoyesoa"


def test_links_to_the_web_and_to_an_address_are_links_and_a_picture_is_one_too() -> None:
    found = rich(
        "# Ver\n\n[esto](https://a.example/?q=$1~2) <https://b.example> https://c.example/x_y?a=1&b=2. "
        "![foto](https://d.example/p.png) ![](http://e.example) [![f](https://f.example)](https://g.example) "
        "[Ana](mailto:ana@h.example) `https://i.example` [https://j.example](https://k.example)"
    )
    assert [(words(piece), piece[LIVE[piece["type"]]]) for piece in pieces(found) if piece["type"] in LIVE] == [
        ("esto", "https://a.example/?q=$1~2"),
        ("https://b.example", "https://b.example"),
        ("https://c.example/x_y?a=1&b=2", "https://c.example/x_y?a=1&b=2"),
        ("foto", "https://d.example/p.png"),
        ("http://e.example", "http://e.example"),
        ("f", "https://g.example"),
        ("Ana", "ana@h.example"),
        ("https://j.example", "https://k.example"),
    ]
    assert {piece["type"] for piece in pieces(found)} <= {*LIVE, *SHOWN, "code"}


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_a_part_of_a_long_text_loses_no_word(kind: str) -> None:
    for part in TelegramChannel(RICH, None).split(LONG_TEXTS[kind](10_000)):
        piece = f"# Título\n\n{part}"
        shown = words(rich(piece))
        assert [word for word in re.findall(r"[^\W_]+", piece.replace("```python", "")) if word not in shown] == []


_bits = st.sampled_from(
    [
        "# T\n\n",
        "| a | b |\n|---|---|\n| c |\n",
        "\n---\n",
        "- punto\n",
        "    - dentro\n",
        "1. uno\n",
        "- [x] hecho\n",
        "> cita ",
        "```\nx\n",
        "`",
        "**",
        "_",
        "~",
        "[",
        "](tg://user?id=1)",
        "![",
        "](https://evil.example/?q=1)",
        '<img src="https://evil.example">',
        "<tg-emoji>",
        "$x$",
        "|",
        "\\",
        "\n",
        "\n\n",
        " ",
        "\ufdd0",
        "ñ😀",
        "https://a.example",
    ]
)


@settings(max_examples=300, deadline=None)
@given(bits=st.lists(_bits, min_size=1, max_size=40))
def test_whatever_is_written_only_what_is_listed_here_is_shown(bits: list[str]) -> None:
    source = "# T\n\n" + "".join(bits)
    found = rich_message(source)
    if found is not None:
        InputRichMessage.model_validate(found)
        assert {piece["type"] for piece in pieces(found)} <= {*SHOWN, *FORMATS, *LIVE}
        assert all(piece["url"].startswith("https://") for piece in pieces(found) if piece["type"] == "url")
        assert set(found) <= {"blocks", "skip_entity_detection", "is_rtl"}
        for word in ("punto", "dentro", "hecho", "cita"):
            assert words(found).count(word) == render(source)[0].count(word), word


def test_the_option_is_off_unless_the_tenant_wants_it() -> None:
    assert (PLAIN.rich, RICH.rich) == (False, True)
