"""The words by which a customer says that they want nothing more, and that they do after all.

WhatsApp has no list of its own, so these are ours, or the tenant's; Telegram's `/stop` and `/start` mean the same. Only a
message that is nothing else counts, whatever its case, accents and punctuation.
"""

import re
import unicodedata
from typing import Annotated, Literal

from pydantic import BaseModel, Field

Word = Annotated[str, Field(min_length=2, max_length=40)]

_STOP = {
    "en": ("stop", "stop all", "stopall", "unsubscribe", "opt out"),
    "es": ("baja", "alto", "parar", "darme de baja", "dar de baja", "cancelar suscripcion"),
    "pt": ("parar", "sair", "descadastrar", "cancelar inscricao"),
}
_START = {
    "en": ("start", "unstop", "subscribe", "opt in"),
    "es": ("alta", "iniciar", "darme de alta", "suscribirme"),
    "pt": ("iniciar", "voltar", "inscrever"),
}
_LONGEST = 60
"""Characters; what is longer is no such word."""

Wish = Literal["stop", "start"]


class OptOutSection(BaseModel, extra="forbid", frozen=True):
    """A tenant's own words, beside those every customer can use in any of the tenant's languages."""

    stop: tuple[Word, ...] = ()
    start: tuple[Word, ...] = ()


def read(text: str, languages: tuple[str, ...], own: OptOutSection) -> Wish | None:
    """Return what a message that is only such a word asks for, or None. English's words count in every language."""
    if len(text) > _LONGEST:
        return None
    said = _fold(text)
    spoken = dict.fromkeys((*languages, "en"))
    for wish, words, ours in (("stop", _STOP, own.stop), ("start", _START, own.start)):
        if said and any(said == _fold(word) for word in (*ours, *(w for one in spoken for w in words.get(one, ())))):
            return "stop" if wish == "stop" else "start"
    return None


def _fold(text: str) -> str:
    bare = "".join(one for one in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(one))
    return " ".join(re.findall(r"\w+", bare))
