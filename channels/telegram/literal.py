"""What of a Markdown text stays as it is written, and which of its links may be one."""

import re

HTML = r"<(?!https?://[^\s<>]+>)"
"""Where raw HTML could begin; a web address in angle brackets is none."""
DEFINITION = r"\](?=:)"
"""Where a link's definition could be, which a reader of Markdown leaves out."""

_HIDE = str.maketrans("<$|]~", "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4")
_SHOW = str.maketrans("\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4", "<$|]~")


def hide(source: str, what: re.Pattern[str]) -> str:
    """Put what is not to be read as markup behind code points that Unicode keeps for such inner use.

    Other than with a backslash, `show` brings it back in code as well as in prose.
    """
    return what.sub(lambda found: found[0].translate(_HIDE), source)


def show(text: str) -> str:
    """Return a text with what was hidden in it."""
    return text.translate(_SHOW)


def is_harmless(url: str) -> bool:
    """Tell whether a link leads to the web or to an e-mail address, and so neither into Telegram nor to a file."""
    return url.lower().startswith(("https://", "http://", "mailto:"))
