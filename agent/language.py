"""The three languages: which of them a short message is written in, and how a day is written in each."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal

Language = Literal["en", "es", "pt"]

LANGUAGES: tuple[Language, ...] = ("en", "es", "pt")
MONTHS: Mapping[Language, Sequence[str]] = {
    "en": [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
    "es": [
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "septiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ],
    "pt": [
        "janeiro",
        "fevereiro",
        "março",
        "abril",
        "maio",
        "junho",
        "julho",
        "agosto",
        "setembro",
        "outubro",
        "novembro",
        "dezembro",
    ],
}

_EVERYDAY: dict[Language, str] = {
    "en": """
        the and or to of for with from at on in by is are was be been do does did have has had will would can could
        should i you he she it we they my your his her our their me him us them this that these those what when where
        which who how why not no yes yeah hi hello hey thanks thank please good morning afternoon evening night
        tomorrow today tonight yesterday remind reminder reminders tell let know check cancel pending list show hour
        hours minute minutes second seconds day days week weeks next about any anything everything all now there here
        want need call bye monday tuesday wednesday thursday friday saturday sunday appointment help ask book i'm i'll
        don't it's
    """,
    "es": """
        el la los las un una unos unas y o de del al en con por para sin que es son fue ser esta estan estoy hay he ha
        han yo tu usted ustedes ella nosotros mi mis su sus te le les lo nos esto eso este ese si pero mas muy tambien
        como cuando donde cual quien cuanto hola buen buenos buenas dias tarde tardes noche
        noches gracias favor manana hoy ayer
        pasado recuerdame recuerdeme recordatorio recordatorios avisame aviseme avisas avisa dime digame averigua
        verifica revisa consulta cancela cancele cancelar pendiente pendientes tengo tienes tiene tienen quiero
        quieres necesito puedes puede hora horas minuto minutos segundo segundos dia semana semanas proximo proxima
        viene dentro media lunes martes miercoles jueves viernes sabado domingo llamar cita ayuda todo todos nada
        adios dame muestra borra
    """,
    "pt": """
        o os as um uma uns umas e ou de do da dos das no na nos nas ao aos em com por para pra sem que foi ser esta
        estao estou tem eu voce voces ele ela meu minha meus minhas seu sua seus suas lhe isso isto este esse nao sim
        mas muito tambem como quando onde qual quem quanto ola oi bom boa dia tarde noite obrigado obrigada favor
        amanha hoje ontem depois lembre lembra lembrar lembrete lembretes avise avisa avisar diga diz verifique
        confira verifica cancele cancela cancelar pendente pendentes tenho quero quer preciso pode hora horas minuto
        minutos segundo segundos semana semanas proximo proxima vem daqui meia segunda terca quarta quinta sexta
        sabado domingo feira ligar ligacao reuniao ajuda tudo todos nada tchau mostre mostra apague pendencias
    """,
}
_WORDS = {language: frozenset(words.split()) for language, words in _EVERYDAY.items()}

_TELLS: tuple[tuple[Language, re.Pattern[str]], ...] = (
    ("es", re.compile(r"[ñ¿¡]|ción\b|\bqué\b")),
    ("pt", re.compile(r"[ãõçêôâà]|\bvocê|\bquê\b|ões\b")),
)

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ADDRESS = re.compile(r"\S{0,200}(?:@|://|www\.)\S{0,200}|\b[\w-]{1,60}(?:\.[\w-]{1,60})+\b")
"""An e-mail address or a place on the net, which is of no language."""

LONGEST_LOOK = 2_000
"""How many characters of a message are looked at: a language shows long before that."""


def fold(text: str) -> str:
    """Return the text in small letters without accents, letter for letter, so that positions stay the same."""
    return "".join(_fold_letter(letter) for letter in text)


def detect(text: str, default: str) -> str:
    """Return `en`, `es` or `pt`, whichever a short message is written in, or `default` when that cannot be told.

    Counts everyday words, which the three share more than one thinks, and the letters only one of them has.
    A tie cannot be told.
    """
    head = _ADDRESS.sub(" ", unicodedata.normalize("NFC", text[:LONGEST_LOOK]).lower())
    words = [word.replace("’", "'") for word in _WORD.findall(fold(head))]
    score = {language: sum(word in known for word in words) for language, known in _WORDS.items()}
    for language, tell in _TELLS:
        score[language] += 2 * len(tell.findall(head))
    best = max(score.values())
    leaders = [language for language in LANGUAGES if score[language] == best]
    return leaders[0] if best and len(leaders) == 1 else default


def _fold_letter(letter: str) -> str:
    if letter.isascii():
        return letter.lower()
    return unicodedata.normalize("NFD", letter)[0].lower()[0]


def day_in_words(day: date, language: Language) -> str:
    """Return a day as people write it, with its year: 1 March 2027, 1 de marzo de 2027."""
    month = MONTHS[language][day.month - 1]
    return f"{day.day} {month} {day.year}" if language == "en" else f"{day.day} de {month} de {day.year}"
