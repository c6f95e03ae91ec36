"""What a text may carry, and where a long one written in Markdown may be cut."""

import re
from collections.abc import Callable

import pyromark

from store.blank import is_blank

# Where a cut reads well, best first. Each pattern ends where the next piece begins.
_BOUNDARIES = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…]['\"”»)\]*_]*\s"),
    re.compile(r"\s"),
)
_INLINE = {"Strong", "Emphasis", "Strikethrough", "Link", "Image"}
_OPTIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH
_FENCE = re.compile(r"(`{3,}|~{3,})[^\n]*\n")
_SMALLEST_WINDOW = 128
_LONGEST_OPENER = 40
"""Together with the smallest window: an opener repeated in the next piece leaves room for text, so the cut gets on."""


def clean(text: str) -> str:
    """Return a text without what no database or network carries: NUL and lone halves of a surrogate pair."""
    return text.replace("\0", "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def split_markdown(text: str, limit: int, rendered: Callable[[str], int]) -> list[str]:
    """Cut Markdown into pieces, in order, of at most `limit` UTF-16 units both as written and as `rendered` counts them.

    Cuts fall between paragraphs, lines, sentences or words, outside emphasis, links and code where that is possible;
    a longer fenced code block is closed in one piece and opened again in the next. Only white space at a cut is
    dropped, and a piece of which nothing can be seen. `rendered` is never given more than `limit` units. A blank text gives one empty piece.
    """
    pieces = []
    rest = clean(text).strip()
    window = limit
    while rest:
        piece, left = _cut(rest, window)
        # Rendering can add: a table's cells are filled up to the widest, each list in a list is pushed in.
        while rendered(piece) > limit and window > _SMALLEST_WINDOW:
            window = max(window // 2, _SMALLEST_WINDOW)
            piece, left = _cut(rest, window)
        if not is_blank(piece):  # no network carries one, and refused it would keep back the rest
            pieces.append(piece)
        rest = left
        # What follows is likely to grow as much: to try the whole limit each time would cost far more than is sent.
        window = min(2 * window, limit)
    return pieces or [""]


def _cut(text: str, size: int) -> tuple[str, str]:
    """Return a first piece of at most `size` units and what is left, neither of them beginning with white space."""
    head = _head(text, size)
    if len(head) == len(text):
        return text, ""
    # Looking past the window finds the end of what is still open there.
    inline, fenced = _spans(text[: 2 * len(head)])
    inside = bytearray(2 * len(head) + 1)
    for start, end in (*inline, *fenced):
        inside[start + 1 : end] = b"\1" * (end - start - 1)

    at = _last_boundary(head, len(head) // 2, inside)
    if at == 0:
        around = next((span for span in fenced if span[0] < len(head) < span[1]), None)
        if around and (pair := _cut_code(text, size, *around)):
            return pair
        at = _last_boundary(head, 0, inside) or len(head)
    return text[:at].rstrip(), text[at:].lstrip()


def _head(text: str, size: int) -> str:
    """Return the longest beginning of at most `size` UTF-16 units, in whole characters."""
    return text[:size].encode("utf-16-le")[: 2 * size].decode("utf-16-le", "ignore")


def _last_boundary(head: str, floor: int, inside: bytearray) -> int:
    """Return the last good place to cut after `floor`, or 0."""
    for pattern in _BOUNDARIES:
        ends = [match.end() for match in pattern.finditer(head) if match.end() > floor and not inside[match.end()]]
        if ends:
            return ends[-1]
    return 0


def _cut_code(text: str, size: int, start: int, end: int) -> tuple[str, str] | None:
    """Cut within the fenced code block at `start`: closed in the first piece, opened again in the second."""
    opener = _FENCE.match(text, start)
    if opener is None or len(opener[0]) > _LONGEST_OPENER:
        return None
    head = _head(text, size - len(opener[1]) - 1)
    at = head.rfind("\n", opener.end()) + 1 or len(head)
    if at <= opener.end():
        return None
    piece = text[:at] + ("" if text[at - 1] == "\n" else "\n") + opener[1]
    if not text[at:end].strip("`~ \t\n"):
        return piece, text[end:].lstrip()
    return piece, opener[0] + text[at:]


def _spans(text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return where inline markup and where fenced code stands, in characters."""
    inline, fenced = [], []
    source = text.encode()
    for payload, where in pyromark.events_with_range(text, options=_OPTIONS):
        if not isinstance(payload, dict):
            continue
        opened = payload.get("Start")
        kind = next(iter(opened), None) if isinstance(opened, dict) else opened
        if "Code" not in payload and kind != "CodeBlock" and kind not in _INLINE:
            continue
        start = len(source[: where["start"]].decode())
        span = start, start + len(source[where["start"] : where["end"]].decode())
        if kind != "CodeBlock":
            inline.append(span)
        elif _FENCE.match(text, start):
            fenced.append(span)
    return inline, fenced
