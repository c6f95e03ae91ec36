"""Whether a text shows anything: many a character takes no place on a screen."""

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Mn", "Me", "Zs", "Zl", "Zp"}
"""Categories of Unicode that show nothing by themselves: controls, joiners, marks without their letter, spaces."""
_EMPTY = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
"""Letters and symbols drawn as nothing: fillers of Hangul, Braille without a dot, a note without a head."""


def is_blank(text: str) -> bool:
    """Tell whether nothing of a text can be seen."""
    return all(character in _EMPTY or unicodedata.category(character) in _UNSEEN for character in text)
