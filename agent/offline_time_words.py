"""The words of time in English, Spanish and Portuguese, as patterns over folded text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.language import Language


@dataclass(frozen=True, slots=True)
class TimeWords:
    """What one language says of time. The groups in the patterns are named by what they hold."""

    numbers: Mapping[str, int]
    units: Mapping[str, str]
    """Each word for a unit, and the unit's name in the tools' language."""
    weekdays: Mapping[str, int]
    """By the first three letters; Monday is 0."""
    months: Mapping[str, int]
    near_days: Mapping[str, int]
    parts: Mapping[str, str]
    month_may_come_first: bool
    piece: re.Pattern[str]
    delay: re.Pattern[str]
    clocks: tuple[re.Pattern[str], ...]
    days: tuple[re.Pattern[str], ...]
    part: re.Pattern[str]
    every: re.Pattern[str]
    vague: re.Pattern[str]
    joint: re.Pattern[str]


def _counted(text: str, tens: str, glue: str) -> dict[str, int]:
    """Number words: `text` counts up from 1 (`a/b` are two words for one number), `tens` counts 20, 30, 40…"""
    ones = {word: number for number, words in enumerate(text.split(), 1) for word in words.split("/")}
    numbers = dict(ones)
    for ten, word in enumerate(tens.split(), 2):
        numbers[word] = 10 * ten
        numbers |= {f"{word}{glue}{one}": 10 * ten + number for one, number in ones.items() if number < 10}
    return numbers


_ENGLISH = _counted(
    "a/an/one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen",
    "twenty thirty forty fifty sixty seventy eighty ninety",
    "-",
)
_ENGLISH |= {word.replace("-", " "): number for word, number in _ENGLISH.items()}
_ENGLISH |= {"couple of": 2, "a couple of": 2, "a couple": 2, "a dozen": 12, "another": 1}

_SPANISH = _counted(
    "un/una/uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis diecisiete dieciocho"
    " diecinueve veinte veintiuno/veintiun/veintiuna veintidos veintitres veinticuatro veinticinco veintiseis veintisiete"
    " veintiocho veintinueve",
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    " y ",
)
_SPANISH |= {"un par de": 2, "una docena de": 12, "otra": 1, "otro": 1}

_PORTUGUESE = _counted(
    "um/uma dois/duas tres quatro cinco seis sete oito nove dez onze doze treze catorze/quatorze quinze dezesseis dezessete dezoito"
    " dezenove",
    "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    " e ",
)
_PORTUGUESE |= {"um par de": 2, "uma duzia de": 12, "outra": 1, "outro": 1}


def _units(**words: str) -> dict[str, str]:
    return {word: unit for unit, names in words.items() for word in names.split()}


def _any(words: Mapping[str, object]) -> str:
    return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + ")"


def _months(names: str) -> dict[str, int]:
    return {name[:3]: number for number, name in enumerate(names.split(), 1)}


# Digits begin where no digit stands before them, so that a long run of digits is read once and not from each of its digits.
_DIGITS = r"(?<![0-9.,:])[0-9]+(?:[.,][0-9]{1,6})?"
_HOUR = r"(?<![0-9.,:/-])[0-9]{1,2}"
_MINUTE = r"(?P<minute>[0-9]{2})"
_NO_MORE = r"(?![0-9]|[:.,/][0-9]|[-–][0-9]| ?(?:[%€$]|percent\b|por ciento\b|euros?\b|dollars?\b|dolares\b|reais\b|pesos\b))"
_AM_PM = r"(?: ?(?P<m>[ap])\.? ?m\b\.?)?"
_ISO = r"(?<![0-9-])(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})(?![0-9-])(?:t(?=[0-9]))?"
_SLASHED = r"(?<![0-9/.])(?P<day>[0-9]{1,2})(?P<slash>/)(?P<month>[0-9]{1,2})(?:/(?P<year>[0-9]{4}|[0-9]{2}))?(?![0-9/])"
_DOTTED = r"(?<![0-9/.])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})(?![0-9])"


def _piece(numbers: Mapping[str, int], units: Mapping[str, str], halved: str, and_half: str, quarters: str) -> str:
    number, unit = rf"(?:{_DIGITS}|\b{_any(numbers)}\b)", _any(units)
    return (
        rf"{halved.format(unit=f'(?P<halved>{unit})')}(?![a-z])"
        rf"|{quarters.format(number=f'(?P<quarters>{_any(numbers)})')}(?![a-z])"
        rf"|(?:(?P<number_and_half>{number}) ?)?\b(?P<unit_and_half>{unit}) {and_half}(?![a-z])"
        rf"|(?P<number>{number}) ?(?P<unit>{unit})(?![a-z])(?:(?<=h)(?P<minutes>[0-9]{{2}})(?![0-9a-z:]))?"
    )


def _delay(piece: str, glue: str, before: str, after: str) -> re.Pattern[str]:
    one = re.sub(r"\(\?P<\w+>", "(?:", piece)
    several = rf"(?:{one})(?:{glue}(?:{one})){{0,3}}"
    return re.compile(rf"\b{before} {several}|(?<![a-z0-9]){several} {after}\b")
