"""Markdown as the blocks of a rich message (Bot API 10.2, InputRichMessage), where plain text cannot show what it has.

Telegram would read the Markdown itself, and with it raw HTML, pictures to fetch, mentions and `$` for formulas. It is given
blocks instead: in them nothing is live but what was put there, and nothing can fail to be read.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyromark

from channels.telegram.literal import DEFINITION, HTML, hide, is_harmless, show

DEPTH = 16
"""How deep formatting and blocks may stand in each other (Bot API, rich message limits)."""

Piece = str | dict[str, Any]
"""A RichText or an InputRichBlock as the Bot API spells it."""

_OPTIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH | pyromark.Options.ENABLE_TASKLISTS
_LITERAL = re.compile(rf"(?<!\\)(?:{HTML}|{DEFINITION}|(?<!~)~(?!~))")  # a single ~ says "about"
_ADDRESS = re.compile(r"(https?://[^\s<>\"]*[^\s<>.,;:!?'\"»)\]*_])", re.IGNORECASE)
_FORMATS = {"Strong": "bold", "Emphasis": "italic", "Strikethrough": "strikethrough"}
_INLINE = {*_FORMATS.values(), "code", "url", "email_address"}


@dataclass(slots=True)
class _Open:
    """What was begun and has not ended."""

    kind: str
    given: Any = None
    inside: list[Any] = field(default_factory=list)


def rich_message(source: str) -> dict[str, Any] | None:
    """Return Markdown as an InputRichMessage; None where it has nothing that plain text with entities cannot show.

    That is a heading, a table, a rule, a list within a list or a list to tick off. Links lead to the web or to an e-mail
    address only, pictures become links, raw HTML and formulas stay as they are written, and no name or command is live.
    None also for what is nested deeper than Telegram reads.
    """
    is_structured = False
    is_rtl = _is_right_to_left(source)
    opened = [_Open("Document")]
    for event in pyromark.events(hide(source, _LITERAL), options=_OPTIONS):
        kind, given = _named(event)
        inside = opened[-1].inside
        match kind:
            case "Start":
                kind, given = _named(given)
                is_structured |= kind in ("Heading", "Table") or (kind == "List" and _is_within(opened, "List"))
                opened.append(_Open(kind, given))
                if len(opened) > DEPTH:
                    return None
            case "End":
                ended = opened.pop()
                opened[-1].inside += _ended(ended, _is_within(opened, "Link"), is_rtl)
            case "Text" if opened[-1].kind == "CodeBlock" or _is_within(opened, "Link", "Image"):
                inside.append(show(given))
            case "Text":
                inside += _with_links(show(given))
            case "Code":
                inside.append({"type": "code", "text": show(given)})
            case "SoftBreak" | "HardBreak":
                inside.append("\n")
            case "Rule":
                is_structured = True
                inside.append({"type": "divider"})
            case "TaskListMarker":
                is_structured = True
                item = next(one for one in reversed(opened) if one.kind == "Item")
                item.given = {"has_checkbox": True} | ({"is_checked": True} if given else {})
            case _:  # HTML that was not hidden, after a backslash that is itself one
                inside.append(show(given))
    if not is_structured or not (blocks := _blocks(opened[0].inside)):
        return None
    return {"blocks": blocks, "skip_entity_detection": True} | ({"is_rtl": True} if is_rtl else {})


def _named(event: Any) -> tuple[str, Any]:
    """Return what an event, or what begins with it, is called, and what it brings."""
    return (event, None) if isinstance(event, str) else next(iter(event.items()))


def _ended(ended: _Open, is_in_link: bool, is_rtl: bool) -> list[Any]:
    """Return what came to an end as pieces for what it stood in."""
    inside = ended.inside
    match ended.kind:
        case "Strong" | "Emphasis" | "Strikethrough":
            return [{"type": _FORMATS[ended.kind], "text": _text(inside)}] if inside else []
        case "Link" | "Image":
            return _link(show(ended.given["dest_url"]), inside, is_in_link)
        case "Paragraph" | "HtmlBlock":
            return _blocks(inside)
        case "Heading":
            return [{"type": "heading", "text": _text(inside), "size": int(ended.given["level"][1:])}] if inside else []
        case "CodeBlock":
            language = show(ended.given["Fenced"]).split() if isinstance(ended.given, dict) else []
            code = "".join(inside).removesuffix("\n")
            return [{"type": "pre", "text": code} | ({"language": language[0]} if language else {})] if code else []
        case "BlockQuote":
            return [{"type": "blockquote", "blocks": blocks}] if (blocks := _blocks(inside)) else []
        case "Item":
            return [{"blocks": blocks} | (ended.given or {})] if (blocks := _blocks(inside)) else []
        case "List":
            if ended.given is not None:
                inside = [item | {"value": value, "type": "1"} for value, item in enumerate(inside, ended.given)]
            return [{"type": "list", "items": inside}] if inside else []
        case "TableCell" | "TableHead" | "TableRow":
            return [inside]
        case "Table":
            return [{"type": "table", "cells": _cells(inside, ended.given, is_rtl), "is_bordered": True}]
    return inside


def _cells(rows: list[list[list[Piece]]], sides: tuple[str, ...], is_rtl: bool) -> list[list[dict[str, Any]]]:
    start = "right" if is_rtl else "left"
    return [
        [
            {"align": start if side == "None" else side.lower(), "valign": "middle"}
            | ({"text": _text(inside)} if inside else {})
            | ({"is_header": True} if row is rows[0] else {})
            for inside, side in zip(row, sides, strict=True)
        ]
        for row in rows
    ]


def _link(url: str, inside: list[Piece], is_in_link: bool) -> list[Piece]:
    """Return a link, or its words alone where it may not be one; a picture is a link too, and so is never fetched."""
    if is_in_link or not is_harmless(url):
        return inside
    words = _text(inside or [url])
    if url.lower().startswith("mailto:"):
        return [{"type": "email_address", "text": words, "email_address": url[len("mailto:") :]}]
    return [{"type": "url", "text": words, "url": url}]


def _with_links(text: str) -> list[Piece]:
    """Return a text in which web addresses are links, since Telegram is asked to look for nothing by itself."""
    return [
        {"type": "url", "text": part, "url": part} if place % 2 else part
        for place, part in enumerate(_ADDRESS.split(text))
        if part
    ]


def _blocks(inside: list[Piece]) -> list[Piece]:
    """Return pieces as blocks: what stands between two of them is a paragraph, as in the items of a list."""
    blocks: list[Piece] = []
    for is_inline, pieces in groupby(inside, lambda piece: isinstance(piece, str) or piece.get("type") in _INLINE):
        found = list(pieces)
        if not is_inline:
            blocks += found
        elif any(not isinstance(piece, str) or piece.strip() for piece in found):
            blocks.append({"type": "paragraph", "text": _text(found)})
    return blocks


def _text(pieces: list[Piece]) -> Piece | list[Piece]:
    return pieces[0] if len(pieces) == 1 else pieces


def _is_within(opened: list[_Open], *kinds: str) -> bool:
    return any(one.kind in kinds for one in opened)


def _is_right_to_left(text: str) -> bool:
    """Tell whether a text's first letter is of a script that runs from right to left."""
    directions = (unicodedata.bidirectional(character) for character in text)
    return next((direction for direction in directions if direction in ("L", "R", "AL")), "L") != "L"
