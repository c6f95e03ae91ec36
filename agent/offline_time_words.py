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
    of_month: re.Pattern[str]
    """A day of every month, by its number."""
    working: re.Pattern[str]
    """In what `every` has found: Monday to Friday."""
    rhythms: Mapping[str, str]
    """Words that are a rhythm by themselves, and what it is in the words of `offline_rhythm`."""
    until: re.Pattern[str]
    """Ends just before a day: the last one of something that repeats."""
    times: re.Pattern[str]
    """How often something that repeats comes in all."""
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


def _weekdays(names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split())}


def _months(names: str) -> dict[str, int]:
    return {name[:3]: number for number, name in enumerate(names.split(), 1)}


# Digits begin where no digit stands before them, so that a long run of digits is read once and not from each of its digits.
_DIGITS = r"(?<![0-9.,:])[0-9]+(?:[.,][0-9]{1,6})?"
_HOUR = r"(?<![0-9.,:/-])[0-9]{1,2}"
_MINUTE = r"(?P<minute>[0-9]{2})"
_NO_MORE = r"(?![0-9]|[:.,/][0-9]|[-–][0-9]| ?(?:[%€$]|percent\b|por ciento\b|euros?\b|dollars?\b|dolares\b|reais\b|pesos\b|[ap]\.? ?m\b))"
_AM_PM = r"(?: ?(?P<m>[ap])\.? ?m\b\.?)?"
_ISO = r"(?<![0-9-])(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})(?![0-9-])(?:t(?=[0-9]))?"
_SLASHED = (
    r"(?<![0-9/.])(?P<day>[0-9]{1,2})(?P<slash>/)(?P<month>[0-9]{1,2})(?:/(?P<year>[0-9]{4}|[0-9]{2}))?(?![0-9/])"
)
_DOTTED = r"(?<![0-9/.])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})(?![0-9])"


def _piece(numbers: Mapping[str, int], units: Mapping[str, str], *, half: str, and_half: str, quarter: str) -> str:
    number, unit = rf"(?:{_DIGITS}|\b{_any(numbers)}\b)", _any(units)
    return (
        rf"\b{half} (?P<halved>{unit})(?![a-z])"
        rf"|\b(?P<quarter>{quarter})(?![a-z])"
        rf"|(?:(?P<number_and_half>{number}) ?|\b)(?P<unit_and_half>{unit}) {and_half}(?![a-z])"
        rf"|(?P<number>{number}) ?(?P<unit>{unit})(?![a-z])(?:(?<=h)(?P<minutes>[0-9]{{2}})(?![0-9a-z:]))?"
    )


def _delay(piece: str, glue: str, before: str, after: str) -> re.Pattern[str]:
    one = re.sub(r"\(\?P<\w+>", "(?:", piece)
    several = rf"(?:{one})(?:{glue}(?:{one})){{0,3}}"
    return re.compile(rf"\b{before} {several}|(?<![a-z0-9]){several} {after}\b")


def _hours(numbers: Mapping[str, int]) -> str:
    named = {word: number for word, number in numbers.items() if number <= 12 and word not in _ARTICLES}
    return rf"(?P<hour>{_HOUR}|\b{_any(named)}\b)"


def _times(numbers: Mapping[str, int], before: str, word: str, per: str) -> re.Pattern[str]:
    """How often in all; "three times a day" says how often in a day."""
    return re.compile(rf"\b{before}(?P<number>[0-9]{{1,6}}|{_any(numbers)}) {word}\b(?! (?:{per})\b)")


_ARTICLES = {"a", "an", "un", "uno", "um", "another", "otra", "otro", "outra", "outro"}


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def _english() -> TimeWords:
    units = _units(
        second="seconds second secs sec s",
        minute="minutes minute mins min m",
        hour="hours hour hrs hr h",
        day="days day d",
        week="weeks week wks wk w",
        month="months month",
        year="years year",
    )
    months = _months("january february march april may june july august september october november december")
    month = (
        r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
        r"|nov(?:ember)?|dec(?:ember)?)\b"
    )
    weekday = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
    short_weekday = r"(?P<weekday>mon|tues?|wed|thurs?|thu|fri|sat|sun)"
    hour = _hours(_ENGLISH)
    day, year = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?", r"(?:,? (?P<year>[0-9]{4})(?![0-9:]))?"
    piece = _piece(
        _ENGLISH, units, half="half(?: an?)?", and_half="and a half", quarter="(?:(?:a|three) )?quarters? of an hour"
    )
    return TimeWords(
        numbers=_ENGLISH,
        units=units,
        weekdays=_weekdays("mon tue wed thu fri sat sun"),
        months=months,
        near_days={"today": 0, "day after tomorrow": 2}
        | dict.fromkeys(("tomorrow", "tommorow", "tommorrow", "tomorow", "tmrw", "tmr"), 1),
        parts={
            "morning": "morning",
            "afternoon": "afternoon",
            "evening": "afternoon",
            "tonight": "night",
            "at night": "night",
        },
        month_may_come_first=True,
        piece=re.compile(piece),
        delay=_delay(
            piece,
            ",? ?(?:and )?",
            "(?:in|after|within)(?: about| around| exactly| the next)?",
            "(?:from now|later|hence)",
        ),
        clocks=_compiled(
            rf"(?:\b(?:at|by|around) |@ ?){hour}(?:[:.h]{_MINUTE})?(?: o'?clock)?{_AM_PM}{_NO_MORE}"
            r"(?! (?:point|time|times|minutes?|hours?|seconds?|days?|weeks?)\b)",
            rf"{hour}:{_MINUTE}{_AM_PM}{_NO_MORE}",
            rf"(?:\bfor )?{hour}(?: ?(?P<m>[ap])\.? ?m\b\.?| o'?clock\b|(?= in the (?:morning|afternoon|evening)\b| at night\b| tonight\b))",
            rf"(?:\bat )?\b(?:(?P<half>half)|(?P<quarter>(?:a )?quarter)) past {hour}{_AM_PM}",
            rf"(?:\bat )?\b(?P<minus>(?:a )?quarter) to {hour}{_AM_PM}",
            rf"\bat (?P<minus>five|ten|twenty|twenty-five) to {hour}{_AM_PM}",
            r"(?:\b(?:at|by) )?\b(?:(?P<noon>noon|midday)|(?P<midnight>midnight))\b",
        ),
        days=_compiled(
            r"\b(?:(?:for|by) )?(?:the )?(?P<word>day after tomorrow|tomorrow|tomm?orr?ow|tmrw|tmr|today)\b",
            rf"\b(?:(?:on|next|this|coming|the|by|for) ){{0,3}}{weekday}\b",
            rf"\b(?:on|next|this) {short_weekday}\b\.?",
            rf"\b{short_weekday}\b\.?(?=,? (?:at |[0-9]))",
            rf"\b(?:(?:on|for|by) )?(?:the )?(?<![0-9]){day}(?: of)? {month}\.?{year}",
            rf"\b(?:(?:on|for|by) )?{month}\.? (?:the )?{day}(?![0-9:]){year}",
            r"\b(?:(?:on|by) )?the (?P<day>[0-9]{1,2})(?:st|nd|rd|th)\b",
            rf"(?:\b(?:on|for|by) )?{_ISO}",
            rf"(?:\b(?:on|for|by) )?{_SLASHED}",
            rf"(?:\b(?:on|for|by) )?{_DOTTED}",
        ),
        part=re.compile(
            r"\b(?:in the |this |on the )(morning|afternoon|evening)\b|(?<=day |row )(morning|afternoon|evening)\b"
            r"|\b(tonight|at night)\b"
        ),
        every=re.compile(
            r"\b(?:every|each) (?:working|business) day\b|\b(?:from )?monday (?:to|through) friday\b"
            r"|\b(?:every|each) (?:other |single |[0-9]{1,4} |[a-z]{3,6} )?(?:second|minute|hour|day|morning|afternoon|evening|night"
            r"|week|weekday|weekend|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b"
            r"|\b(?:daily|weekly|monthly|hourly|yearly|on weekdays)\b|\bon (?:mon|tues|wednes|thurs|fri|satur|sun)days\b"
        ),
        of_month=re.compile(
            r"\b(?:every|each) (?:month )?(?:on )?(?:the )?(?P<day>[0-9]{1,2}|first)(?:st|nd|rd|th)?(?: day)? of (?:the|each|every) month\b"
            r"|\b(?:on )?the (?P<named>[0-9]{1,2}|first)(?:st|nd|rd|th)?(?: day)? of (?:each|every) month\b"
            r"|\b(?:every|each) (?P<short>[0-9]{1,2})(?:st|nd|rd|th)\b"
        ),
        working=re.compile(r"\bweekdays?\b|\b(?:working|business) day\b|\bmonday (?:to|through) friday\b"),
        rhythms={
            "daily": "day",
            "weekly": "week",
            "monthly": "month",
            "yearly": "year",
            "hourly": "1 hours",
            "weekend": "weekday 6,0",
            "weekends": "weekday 6,0",
            "night": "day",
            "nights": "day",
        },
        until=re.compile(r"\b(?:until|till|til|through|up to)(?: and including)? (?:the )?$"),
        times=_times(_ENGLISH, "(?:for |only |exactly )?", "times(?: in (?:all|total))?", "a|per|each|every"),
        vague=re.compile(
            r"\b(?:later(?: today| on)?|soon|next (?:week|month|year)|in a (?:bit|while|moment)|in a few (?:minutes|hours|days|weeks)"
            r"|sometime|some other time)\b"
        ),
        joint=re.compile(r"[\s,]*(?:(?:at|on|the|of|in|for|and|by|that's)\b[\s,]*){0,2}"),
    )


def _spanish() -> TimeWords:
    units = _units(
        second="segundos segundo segs seg s",
        minute="minutos minuto minutitos minutito mins min m",
        hour="horas hora horitas horita hrs hr hs h",
        day="dias dia d",
        week="semanas semana",
        month="meses mes",
        year="anos ano",
    )
    months = _months("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre") | {
        "set": 9
    }
    month = (
        r"(?P<month>enero|febrero|marzo|abril|mayo|junio|julio|agosto|sep?tiembre|setiembre|octubre|noviembre|diciembre"
        r"|ene|feb|abr|jun|jul|ago|sept?|oct|nov|dic)\b"
    )
    hour = _hours(_SPANISH)
    few = r"[0-9]{1,2}|cinco|diez|quince|veinte|veinticinco|treinta|cuarenta y cinco|cuarenta"
    tail = (
        rf"(?:[:.h]{_MINUTE})?(?: ?(?:hs|h|hrs|horas?)(?![a-z]))?"
        rf"(?: y (?:(?P<half>media)|(?P<quarter>cuarto)|(?P<plus>{few}))\b)?(?: menos (?P<minus>cuarto|{few})\b)?"
        rf"(?: en punto| del mediodia)?{_AM_PM}{_NO_MORE}"
    )
    part = r"(manana|tarde|noche|madrugada)"
    piece = _piece(_SPANISH, units, half="medi[ao]", and_half="y medi[ao]", quarter="(?:(?:un|tres) )?cuartos? de hora")
    return TimeWords(
        numbers=_SPANISH | {"primero": 1},
        units=units,
        weekdays=_weekdays("lun mar mie jue vie sab dom"),
        months=months,
        near_days={"hoy": 0, "manana": 1, "pasado manana": 2},
        parts={"manana": "morning", "tarde": "afternoon", "noche": "night", "madrugada": "morning"},
        month_may_come_first=False,
        piece=re.compile(piece),
        delay=_delay(
            piece,
            ",? ?(?:y )?",
            "(?:en|dentro de|de aqui a|pasad[oa]s?)(?: unos| unas)?",
            "(?:mas tarde|desde ahora|despues)",
        ),
        clocks=_compiled(
            rf"\b(?:(?:a|para|sobre|hacia|desde) las?|tipo) {hour}{tail}",
            rf"{hour}:{_MINUTE}(?: ?(?:hs|h|hrs|horas))?{_AM_PM}{_NO_MORE}",
            rf"(?:\blas? )?{hour}(?: ?(?P<m>[ap])\.? ?m\b\.?|(?= (?:de|en|por) la (?:manana|tarde|noche|madrugada)\b))",
            r"(?:\bal? )?\b(?P<noon>medio ?dia)\b",
            r"(?:\ba )?(?:\bla )?\b(?P<midnight>media ?noche)\b",
        ),
        days=_compiled(
            r"(?:\bpara )?\b(?<!la )(?<!esta )(?P<word>pasado manana|manana|hoy)\b",
            r"\b(?:(?:el|este|proximo|para|del|al) ){0,3}(?P<weekday>lunes|martes|miercoles|jueves|viernes|sabado|domingo)\b"
            r"(?: (?:que viene|proximo|siguiente)\b)?",
            rf"\b(?:(?:el|para|dia|al) ){{0,3}}(?<![0-9])(?P<day>[0-9]{{1,2}}|primero)[°º]? de {month}"
            r"(?: (?:de|del) (?P<year>[0-9]{4})(?![0-9:]))?",
            r"\b(?:el dia|el|dia) (?P<day>[0-9]{1,2})(?![0-9]|[:.,/h-][0-9]| ?(?:%|horas?\b|minutos?\b|anos?\b|de [a-z]))",
            rf"(?:\b(?:el|para el) )?{_ISO}",
            rf"(?:\b(?:el|para el|dia|el dia|para el dia) )?{_SLASHED}",
            rf"(?:\b(?:el|para el) )?{_DOTTED}",
        ),
        part=re.compile(rf"\b(?:de|en|por|a) la {part}\b|\besta {part}\b"),
        every=re.compile(
            r"\b(?:cada|todos los) dias? (?:laborables?|habil(?:es)?)\b|\bde lunes a viernes\b|\bentre semana\b"
            r"|\b(?:cada|todos los) (?:fin|fines) de semana\b"
            r"|\b(?:cada|todos los|todas las) (?:[0-9]{1,4} |[a-z]{3,6} )?(?:segundo|minuto|hora|dia|manana|tarde|noche|semana|mes|ano"
            r"|lune|marte|miercole|jueve|vierne|sabado|domingo)(?:e?s)?\b|\b(?:diariamente|semanalmente|mensualmente|a diario)\b"
            r"|\blos (?:lunes|martes|miercoles|jueves|viernes|sabados|domingos)\b"
        ),
        of_month=re.compile(
            r"\b(?:cada|todos los) dias? (?P<day>[0-9]{1,2}|primero)(?: (?:de|del|de cada) mes\b)?(?![0-9:]| ?(?:h|horas?)\b)"
            r"|\b(?:(?:el|los|cada) )?(?:dias? )?(?<![0-9])(?P<named>[0-9]{1,2}|primero) de (?:cada|todos los) mes(?:es)?\b"
        ),
        working=re.compile(r"\b(?:laborables?|habil(?:es)?|lunes a viernes|entre semana)\b"),
        rhythms={
            "diariamente": "day",
            "diario": "day",
            "semanalmente": "week",
            "mensualmente": "month",
            "fin": "weekday 6,0",
            "fines": "weekday 6,0",
        },
        until=re.compile(r"\bhasta $"),
        times=_times(_SPANISH, "(?:solo )?", "veces(?: en total)?", "al|por|cada"),
        vague=re.compile(
            r"\b(?:mas tarde|luego|pronto|en un (?:rato|ratito|momento)|en unos (?:minutos|dias)|en unas horas"
            r"|(?:la )?(?:proxima semana|semana que viene)|(?:el )?(?:proximo mes|mes que viene))\b"
        ),
        joint=re.compile(r"[\s,]*(?:(?:a|de|del|el|la|en|por|para|y)\b[\s,]*){0,2}"),
    )


def _portuguese() -> TimeWords:
    units = _units(
        second="segundos segundo segs seg s",
        minute="minutos minuto minutinhos minutinho mins min m",
        hour="horas hora horinhas horinha hrs hr hs h",
        day="dias dia d",
        week="semanas semana",
        month="meses mes",
        year="anos ano",
    )
    months = _months("janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro")
    month = (
        r"(?P<month>janeiro|fevereiro|marco|abril|maio|junho|julho|agosto|setembro|outubro|novembro|dezembro"
        r"|jan|fev|mar|abr|mai|jun|jul|ago|set|out|nov|dez)\b"
    )
    hour = _hours(_PORTUGUESE)
    few = r"[0-9]{1,2}|cinco|dez|quinze|vinte e cinco|vinte|trinta|quarenta e cinco|quarenta"
    tail = (
        rf"(?:[:.h]{_MINUTE}(?:min|m)?(?![a-z]))?(?: ?(?:hs|hrs|horas?|h)(?![a-z0-9]))?"
        rf"(?: e (?:(?P<half>meia)|(?P<quarter>um quarto)|(?P<plus>{few}))\b)?(?: em ponto)?{_AM_PM}{_NO_MORE}"
    )
    ordinal = r"(?:segunda|terca|quarta|quinta|sexta)"
    piece = _piece(
        _PORTUGUESE, units, half="mei[ao]", and_half="e mei[ao]", quarter="(?:(?:um|tres) )?quartos? de hora"
    )
    return TimeWords(
        numbers=_PORTUGUESE | {"primeiro": 1},
        units=units,
        weekdays=_weekdays("seg ter qua qui sex sab dom"),
        months=months,
        near_days={"hoje": 0, "amanha": 1, "depois de amanha": 2},
        parts={"manha": "morning", "tarde": "afternoon", "noite": "night", "madrugada": "morning"},
        month_may_come_first=False,
        piece=re.compile(piece),
        delay=_delay(
            piece,
            ",? ?(?:e )?",
            "(?:em|daqui a|daqui|dentro de|apos)(?: uns| umas)?",
            "(?:mais tarde|a partir de agora|depois)",
        ),
        clocks=_compiled(
            rf"\b(?:as|pelas|pras|para as|ate as|la pelas|a(?= (?:0|1|13|uma)\b)) {hour}{tail}",
            rf"{hour}[:h]{_MINUTE}(?:min|m)?(?![a-z]){_AM_PM}{_NO_MORE}",
            rf"{hour} ?h(?![a-z0-9])",
            rf"{hour}(?: ?(?P<m>[ap])\.? ?m\b\.?|(?= (?:da|de|na) (?:manha|tarde|noite|madrugada)\b))",
            r"(?:\b(?:ao|no|a) )?\b(?P<noon>meio[- ]dia)\b(?: e (?P<half>meia)\b)?",
            r"(?:\ba )?\b(?P<midnight>meia[- ]noite)\b",
        ),
        days=_compiled(
            r"(?:\bpara )?\b(?P<word>depois de amanha|amanha|hoje)\b",
            rf"\b(?:(?:na|no|nesta|neste|esta|este|proxima|proximo|para|a|o) ){{0,3}}(?P<weekday>{ordinal}[- ]feira|terca|sabado"
            r"|domingo)\b(?: que vem\b)?",
            rf"\b(?:(?:na|nesta|esta|proxima|para) ){{1,3}}(?P<weekday>{ordinal})\b(?! (?:vez|parte|etapa|via|feira)\b)(?: que vem\b)?",
            rf"\b(?:na |a )?(?P<weekday>{ordinal}) que vem\b",
            rf"\b(?P<weekday>{ordinal})(?=,? (?:as [0-9]|(?:de|a) (?:manha|tarde|noite)\b|ao meio))",
            rf"\b(?:(?:no|em|o|para|dia) ){{0,3}}(?<![0-9])(?P<day>[0-9]{{1,2}}|primeiro)[°º]? de {month}"
            r"(?: de (?P<year>[0-9]{4})(?![0-9:]))?",
            r"\b(?:no |o |em )?dia (?P<day>[0-9]{1,2})(?![0-9]|[:.,/h-][0-9]| ?(?:%|de [a-z]))",
            rf"(?:\b(?:em|no|para) )?{_ISO}",
            rf"(?:\b(?:em|no|para|dia|no dia|para o dia) )?{_SLASHED}",
            rf"(?:\b(?:em|no|para) )?{_DOTTED}",
        ),
        part=re.compile(r"\b(?:de|da|pela|na|a|esta) (manha|tarde|noite|madrugada)\b"),
        every=re.compile(
            r"\b(?:cada|todo|todos os|nos) dias? (?:util|uteis)\b|\bde segunda(?:-feira)? a sexta(?:-feira)?\b"
            r"|\b(?:cada|todo|todos os|nos) (?:fim|fins) de semana\b"
            r"|\b(?:a cada|cada|todos os|todas as|todo|toda) (?:[0-9]{1,4} |[a-z]{3,6} )?(?:segundo|minuto|hora|dia|manha|tarde|noite"
            r"|semana|mes|ano|segunda|terca|quarta|quinta|sexta|sabado|domingo)(?:e?s)?(?:-feiras?)?\b"
            r"|\b(?:diariamente|semanalmente|mensalmente)\b|\b(?:nas|as) (?:segundas|tercas|quartas|quintas|sextas)\b"
        ),
        of_month=re.compile(
            r"\b(?:todo|todos os|cada) dias? (?P<day>[0-9]{1,2}|primeiro)(?: (?:do|de|de cada|de todo) mes\b)?(?![0-9:h]| ?(?:h|horas?)\b)"
            r"|\b(?:(?:no|o|todo) )?dia (?P<named>[0-9]{1,2}|primeiro) de (?:cada|todo|todos os) mes(?:es)?\b"
        ),
        working=re.compile(r"\b(?:util|uteis|segunda(?:-feira)? a sexta(?:-feira)?)\b"),
        rhythms={
            "diariamente": "day",
            "semanalmente": "week",
            "mensalmente": "month",
            "fim": "weekday 6,0",
            "fins": "weekday 6,0",
        },
        until=re.compile(r"\bate $"),
        times=_times(_PORTUGUESE, "(?:so |apenas )?", "vezes(?: no total| ao todo)?", "ao|por|cada"),
        vague=re.compile(
            r"\b(?:mais tarde|logo|em breve|daqui a pouco|em (?:alguns|uns) (?:minutos|dias)|em algumas horas"
            r"|(?:na )?(?:proxima semana|semana que vem)|(?:no )?(?:proximo mes|mes que vem))\b"
        ),
        joint=re.compile(r"[\s,]*(?:(?:a|as|de|do|da|em|no|na|e|para)\b[\s,]*){0,2}"),
    )


WORDS: Mapping[Language, TimeWords] = {"en": _english(), "es": _spanish(), "pt": _portuguese()}
