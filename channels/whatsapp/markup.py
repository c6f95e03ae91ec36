"""Turns Markdown into what WhatsApp shows, in linear time.

| Markdown                          | WhatsApp          |
|-----------------------------------|-------------------|
| `**b**`, `__b__`                  | `*b*`             |
| `*i*`, `_i_`                      | `_i_`             |
| `~~s~~`                           | `~s~`             |
| fences with a language or tildes  | plain ``` fences  |
| `[text](url)`, `![alt](url)`      | `text: url`       |
| `# heading`                       | `*heading*`       |
| `* item`, `+ item`                | `- item`          |
| numbers, quotes, code, tables     | as they are       |
"""

import re

_FENCE = re.compile(r"[ ]{0,3}(`{3,}+|~{3,}+)([^`]*+)")
_BULLET = re.compile(r"([ \t]*+)[*+](?=[ \t])")
_HEADING = re.compile(r"[ ]{0,3}#{1,6}[ \t]++(.*)")

# Possessive throughout: no part is ever read twice.
_INLINE = re.compile(
    r"""
      (?P<verbatim> `[^`]++` | https?://(?:(?!~~)[^\s<>*])++ )
    | \\(?P<escaped> [!-/:-@\[-`{-~] )
    | !?\[(?P<label> [^\[\]]*+ )\]
      \(\s*+<?+(?P<url> [^()<>\s]*+(?:\([^()<>\s]*+\)[^()<>\s]*+)*+ )>?+(?:\s++"[^"]*+")?+\s*+\)
    | <(?P<link> (?:https?://|mailto:)[^<>\s]++ )>
    | (?P<mark> \*++|_++|~++ )
    """,
    re.VERBOSE,
)
_MARKS = {"*": "_", "_": "_", "**": "*", "__": "*", "***": "*_", "___": "*_", "~~": "~"}
_MARKS_IN_BOLD = _MARKS | {"**": "", "__": "", "***": "_", "___": "_"}


def convert(markdown: str) -> str:
    """Return the text in WhatsApp's markup; words, addresses and code stay as they are."""
    lines: list[str] = []
    fence = ""
    for line in markdown.replace("\r\n", "\n").split("\n"):
        found = _FENCE.fullmatch(line)
        if fence:
            closes = found and found[1].startswith(fence) and not found[2].strip()
            lines.append("```" if closes else line)
            fence = "" if closes else fence
        elif found:
            lines.append("```")
            fence = found[1]
        else:
            lines.append(_line(line))
    return "\n".join([*lines, "```"] if fence else lines)


def _line(line: str) -> str:
    if heading := _HEADING.fullmatch(line):
        title = heading[1].strip()
        bare = title.rstrip("#")
        if bare.rstrip() != bare or not bare:  # closing hashes stand apart: "C#" keeps its own
            title = bare.rstrip()
        return f"*{_inline(title, _MARKS_IN_BOLD)}*" if title else line
    return _inline(_BULLET.sub(r"\1-", line, count=1) if _BULLET.match(line) else line, _MARKS)


def _inline(text: str, styles: dict[str, str]) -> str:
    out: list[str] = []
    opened: dict[str, int] = {}  # mark -> where in `out` it stands, the latest last
    end = 0
    for found in _INLINE.finditer(text):
        out.append(text[end : found.start()])
        end = found.end()
        mark = found["mark"]
        if mark is None:
            out.append(_plain(found, styles))
            continue
        before, after = text[found.start() - 1 : found.start()], text[end : end + 1]
        if mark in opened and not before.isspace() and not after.isalnum():
            at = opened[mark]
            opened = {other: place for other, place in opened.items() if place < at}
            out[at] = styles[mark]
            out.append(styles[mark][::-1])
        else:
            if mark in styles and after.strip() and not before.isalnum():
                opened.pop(mark, None)
                opened[mark] = len(out)
            out.append(mark)
    return "".join([*out, text[end:]])


def _plain(found: re.Match[str], styles: dict[str, str]) -> str:
    """Return what stands for a piece of Markdown that is not an emphasis mark."""
    if found["url"] is None:
        return found["verbatim"] or found["escaped"] or found["link"].removeprefix("mailto:")
    label, url = _inline(found["label"], styles).strip(), found["url"].removeprefix("mailto:")
    if not label or not url or label == url:
        return label or url
    return f"{label}: {url}"
