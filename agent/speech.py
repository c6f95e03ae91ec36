"""What a customer may hear of what a model wrote."""

import re
from collections.abc import Iterable, Sequence

from store.blank import is_blank

ECHO_LENGTH = 8
"""As many words in a row of our own rules are an echo of them."""
LONG_ECHO_LENGTH = 30
"""As many words in a row of the tenant's instructions are an echo of them: a customer may well be told a sentence of those
word for word (opening hours, a price), but not the whole."""

LONGEST = 16_000
"""Characters of an answer that are read at all: a chat carries less, and reading takes time that others wait for."""

MOST_ROUNDS = 8
"""Taking one thing away can put another together, so cleaning is repeated until nothing changes; text that outlasts this
many rounds was built to, and none of it is said."""

_UNSPEAKABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_THOUGHT = re.compile(
    r"<(?P<close>/?)(?:\w{1,12}:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad)(?: [^<>]{0,200})?>",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"<(?P<close>/?)(?:\w{1,12}:)?(?:tool_(?:calls?|responses?|results?|use)|function(?:_calls?|_results?)?|invoke)"
    r"(?:[ =][^<>]{0,200})?>",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"(?:<[|｜](?:im_start|start|start_header_id)[|｜]>|<start_of_turn>)(?:(?:assistant|model|system|user|tool)\b)?"
    r"|<[|｜][^<>\s]{1,40}[|｜]>|<end_of_turn>|</?s>|\[/?(?:TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|INST)\]",
    re.IGNORECASE,
)
_FRAME = re.compile(r"[*_~`\\]{0,6}\[/?vuelvo ?:(?:[^\]\n]{0,200}\]|[\w-]{0,80})[*_~`]{0,6}", re.IGNORECASE)
_EMPTY_FENCE = re.compile(r"^`{3}\w{0,12}\n\s?`{3}$", re.MULTILINE)
_ROLE = re.compile(
    r"[*_`]{0,3}\[?(?:assistant|asistente|assistente)\]?[*_`]{0,3} ?:[*_`]{0,3}(?=\s|\w|[¿¡]|$)", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_]+")

_GONE = "\x00"


def clean(text: str) -> str:
    """Return the text without what must never reach a customer; an empty string when nothing is left that can be seen.

    Gone are reasoning blocks, closed or not, our own frame marks however they are decorated, tool calls written as text,
    the tokens of chat templates, the name of the role at the start, control characters except newline and tab.
    A lone `</think>` ends a thought whose beginning the model's template has swallowed: what stands before it goes too.
    """
    for _ in range(MOST_ROUNDS):
        cleaned = _clean_once(text)
        if cleaned == text:
            return "" if is_blank(cleaned) else cleaned
        text = cleaned
    return ""


def echoes(text: str, secret_texts: Sequence[str], length: int = ECHO_LENGTH) -> bool:
    """Tell whether the text repeats `length` or more words in a row of a secret text, whatever stands between the words."""
    secret_runs = {run for secret in secret_texts for run in _runs(secret, length)}
    return bool(secret_runs) and any(run in secret_runs for run in _runs(text, length))


def repeats_instructions(text: str, rules: str, instructions: str) -> bool:
    """Tell whether a text gives away what the model was told: our rules of a run, or the tenant's instructions."""
    return echoes(text, [rules]) or echoes(text, [instructions], LONG_ECHO_LENGTH)


def _clean_once(text: str) -> str:
    text = _UNSPEAKABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _without_blocks(text, _THOUGHT, is_begun_before=True)
    text = _without_blocks(text, _CALL, is_begun_before=False)
    text = _FRAME.sub(_GONE, _TOKEN.sub(_GONE, text))
    text = _EMPTY_FENCE.sub("", _without_emptied_lines(text)).strip()
    role = _ROLE.match(text)
    return text[role.end() :].strip() if role else text


def _without_blocks(text: str, tag: re.Pattern[str], *, is_begun_before: bool) -> str:
    """A closing tag that nothing opened ends a block begun before the text, or else is debris by itself."""
    kept: list[str] = []
    depth, position = 0, 0
    for found in tag.finditer(text):
        if depth == 0:
            kept += [text[position : found.start()], _GONE]
        if not found["close"]:
            depth += 1
        elif depth > 0:
            depth -= 1
        elif is_begun_before:
            kept.clear()
        position = found.end()
    return "".join(kept) + (text[position:] if depth == 0 else "")


def _without_emptied_lines(text: str) -> str:
    lines = (line for line in text.split("\n") if _GONE not in line or line.strip(f" \t{_GONE}"))
    return "\n".join(line.replace(_GONE, "") for line in lines)


def _runs(text: str, length: int) -> Iterable[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return zip(*(words[start:] for start in range(length)), strict=False)
