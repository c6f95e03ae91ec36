"""Templates: what WhatsApp carries when the 24 hours are over. Which one is sent, with what in its places, and whether it may be.

What a place may hold is checked before it is sent, since Meta refuses it only afterwards (Twilio's 63013 and 63021):
something, no line break, no tab, no more than four spaces in a row; all of it with the template's own words in 1,024
characters.
https://www.twilio.com/docs/content/using-variables-with-content-api
https://developers.facebook.com/docs/whatsapp/message-templates/guidelines
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from channels.message import Filled, NotSent, Rejected, units
from channels.whatsapp.section import Template
from store.blank import is_blank

ROOM = 800
"""UTF-16 units that all places together may take: the template's own words need the rest of the 1,024."""
LABEL_ROOM = 200
"""Of a place that only names something; what is longer is cut."""
FRESH = 240.0
"""Seconds for which what Twilio said of a template's approval is believed: one can be paused at any time. Less than passes
before a message is sent again that failed because of that (63041): then it is asked first."""
SILENT = 60.0
"""Seconds for which one that cannot be looked up is not asked for again: each look may take as long as a call at most."""
LATER = 900.0
"""Seconds until a template that cannot be used now is looked at again."""

Approval = Literal["approved", "received", "pending", "paused", "rejected", "disabled", "unsubmitted"]

_SPACES = re.compile(r" {5,}")
_BREAKS = re.compile(r"[\r\n\t\v\f\x85\u2028\u2029]")


def fill(template: Template, words: Mapping[str, str]) -> dict[str, str] | None:
    """Return what stands in a template's places; None where the message does not fit in."""
    values = {}
    for place, word in template.variables.items():
        said = words.get(word, "").strip()
        if word == "text":
            if _BREAKS.search(said) or _SPACES.search(said):
                return None
        else:
            said = " ".join(said.split())
            said = said if units(said) <= LABEL_ROOM else _cut(said)
        if is_blank(said):
            return None
        values[place] = said
    return values if sum(map(units, values.values())) <= ROOM else None


def _cut(label: str) -> str:
    head = label.encode("utf-16-le")[: 2 * (LABEL_ROOM - 1)].decode("utf-16-le", "ignore")
    return head.rstrip() + "…"


def choose(templates: Sequence[Template], purpose: str, language: str, words: Mapping[str, str]) -> Filled | Rejected:
    """Return the first template for this purpose and language into which the message fits; Rejected where there is none."""
    for template in templates:
        if (template.purpose, template.language) == (purpose, language):
            values = fill(template, words)
            if values is not None:
                return Filled(template.sid, values, template.is_whole)
    return Rejected(
        f"the 24 hours are over, and the tenant has no template for a {purpose} in {language!r} that it fits into"
    )


class Approvals:
    """What Twilio says of each template, asked for now and then."""

    def __init__(self, ask: Callable[[str], Awaitable[str]], clock: Callable[[], float]) -> None:
        """`ask` returns a template's approval for WhatsApp; what it raises means that nobody can tell now.

        `clock` tells seconds that never go back.
        """
        self._ask, self._clock = ask, clock
        self._known: dict[str, tuple[float, str]] = {}

    async def check(self, filled: Filled) -> Filled | NotSent | Rejected:
        """Return the same if it may be sent, as far as is known: what cannot be found out is found out by sending."""
        known = self._known.get(filled.id)
        if known is None or self._clock() - known[0] > FRESH:
            try:
                known = self._known[filled.id] = self._clock(), await self._ask(filled.id)
            except Exception:  # unreachable, refused, or an answer that cannot be read
                self._known[filled.id] = self._clock() - FRESH + SILENT, ""
                return filled
        match known[1]:
            case "paused" | "pending" | "received":
                return NotSent(f"the template {filled.id} is {known[1]} at Meta", LATER)
            case "rejected" | "disabled" | "unsubmitted":
                return Rejected(
                    f"the template {filled.id} is {known[1]} at Meta: submit another, and name it in the file"
                )
        return filled
