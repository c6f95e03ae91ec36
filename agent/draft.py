"""What may be seen of an answer while the model writes it."""

import re
from collections.abc import Callable

from agent.context import TurnContext
from agent.promises import promises_to_return
from agent.prompt import TURN_RULES
from agent.speech import LONGEST, clean, repeats_instructions

_SENTENCE = re.compile(r"[.!?…]['\"”»)\]*_]*(?=\s)|\n")

STEP = 1.1
"""By how much a draft grows at least. It is checked from its beginning each time, so sentence by sentence a long answer would
keep the whole service waiting."""


class Draft:
    """Shows an answer sentence by sentence, as far as the checks that the whole of it must pass can already be made.

    A promise is not shown before it is booked, nor anything behind it. A draft is no answer: it may be taken back when the
    model is asked again, and only what is sent in the end stands in the conversation.
    """

    def __init__(self, context: TurnContext, show: Callable[[str], None]) -> None:
        """`show` is given all that may be seen so far, each time there is more or other."""
        self._context, self._show = context, show
        self._read, self._shown = 0, ""

    def grow(self, written: str) -> None:
        """Take in what the model has written of its answer so far, which begins anew when it is asked again."""
        if len(written) < self._read:
            self._read = 0
        ends = [found.end() for found in _SENTENCE.finditer(written, self._read)]
        if not ends or ends[-1] < self._read * STEP:
            return
        self._read = ends[-1]
        said = self._sayable(written[: self._read])
        if said and said != self._shown:
            self._shown = said
            self._show(said)

    def _sayable(self, text: str) -> str:
        if len(text) > LONGEST:
            return ""
        said = clean(text)
        is_kept = self._context.booked or self._context.booked_before
        if not is_kept and promises_to_return(said):
            return ""
        return "" if repeats_instructions(said, TURN_RULES, self._context.voice.section.instructions) else said
