"""What the offline model says, in English, Spanish and Portuguese. It promises only what a tool has said to be booked."""

from collections.abc import Mapping
from datetime import date, datetime

from agent.language import MONTHS, Language

SENTENCES: Mapping[str, Mapping[Language, str]] = {
    "booked": {
        "en": 'I\'ll remind you {when}: "{about}".',
        "es": 'Te lo recordaré {when}: "{about}".',
        "pt": 'Vou te lembrar {when}: "{about}".',
    },
    "booked without a subject": {
        "en": "I'll write to you {when}.",
        "es": "Te escribiré {when}.",
        "pt": "Vou te avisar {when}.",
    },
    "booked again": {
        "en": 'I\'ll remind you {often}: "{about}". The next one comes {when}.',
        "es": 'Te lo recordaré {often}: "{about}". El próximo llega {when}.',
        "pt": 'Vou te lembrar {often}: "{about}". O próximo chega {when}.',
    },
    "booked again without a subject": {
        "en": "I'll write to you {often}. The next time is {when}.",
        "es": "Te escribiré {often}. La próxima vez, {when}.",
        "pt": "Vou te avisar {often}. A próxima vez, {when}.",
    },
    "no subject": {
        "en": "you asked me to write to you at this time",
        "es": "me pediste que te escribiera a esta hora",
        "pt": "você pediu que eu escrevesse a esta hora",
    },
    "work": {
        "en": "I'm on it; the answer comes here as soon as it is ready.",
        "es": "Estoy en ello; la respuesta llega aquí en cuanto esté lista.",
        "pt": "Estou nisso; a resposta chega aqui assim que estiver pronta.",
    },
    "past": {
        "en": "That time is past (it is now {now}), so nothing was booked. Please name a time to come.",
        "es": "Esa hora ya pasó (ahora: {now}), así que no se programó nada. Dime, por favor, una hora que esté por venir.",
        "pt": "Esse horário já passou (agora: {now}), então nada foi agendado. Diga, por favor, um horário que ainda virá.",
    },
    "refused": {
        "en": "That could not be booked, so nothing was booked. It may not be possible at that time, or not here.",
        "es": "No se pudo programar, así que no se programó nada. Puede que no sea posible a esa hora, o no por aquí.",
        "pt": "Não foi possível agendar, então nada foi agendado. Talvez não seja possível nesse horário, ou não por aqui.",
    },
    "which time": {
        "en": "When? For example “in 10 minutes” or “tomorrow at 9”. Nothing is booked yet.",
        "es": "¿Cuándo? Por ejemplo «en 10 minutos» o «mañana a las 9». Todavía no hay nada programado.",
        "pt": "Quando? Por exemplo “em 10 minutos” ou “amanhã às 9h”. Ainda não há nada agendado.",
    },
    "which hour": {
        "en": "At what time on that day? Nothing is booked yet.",
        "es": "¿A qué hora de ese día? Todavía no hay nada programado.",
        "pt": "A que horas desse dia? Ainda não há nada agendado.",
    },
    "no clock": {
        "en": "I do not know what time it is where you are, so nothing was booked. Say how long from now, for example “in 2 hours”.",
        "es": "No sé qué hora es donde estás, así que no se programó nada. Dime dentro de cuánto, por ejemplo «en 2 horas».",
        "pt": "Não sei que horas são onde você está, então nada foi agendado. Diga daqui a quanto tempo, por exemplo “em 2 horas”.",
    },
    "repeating": {
        "en": "I cannot book it that often, so nothing was booked. Say for example “every Monday at 9” or “every 2 hours”.",
        "es": "No puedo programarlo así, de modo que no se programó nada. Dime por ejemplo «cada lunes a las 9» o «cada 2 horas».",
        "pt": "Não consigo agendar assim, então nada foi agendado. Diga por exemplo “toda segunda às 9h” ou “a cada 2 horas”.",
    },
    "pending": {"en": "Pending here:", "es": "Pendiente aquí:", "pt": "Pendente aqui:"},
    "nothing pending": {
        "en": "Nothing is pending here.",
        "es": "Aquí no hay nada pendiente.",
        "pt": "Não há nada pendente aqui.",
    },
    "notice": {
        "en": "{business} has written to you about {about}, which is due on {day}. That notice is {business}'s own.",
        "es": "{business} te ha escrito sobre {about}, que vence el {day}. Ese aviso es de {business}.",
        "pt": "{business} escreveu para você sobre {about}, que vence em {day}. Esse aviso é de {business}.",
    },
    "cancelled": {"en": 'Cancelled: "{about}".', "es": 'Cancelado: "{about}".', "pt": 'Cancelado: "{about}".'},
    "raced": {
        "en": '"{about}" had already started, so it may still arrive.',
        "es": '"{about}" ya había empezado, así que aún puede llegar.',
        "pt": '"{about}" já tinha começado, então ainda pode chegar.',
    },
    "not cancelled": {
        "en": "That could not be cancelled. Ask me what is pending to see how things stand.",
        "es": "No se pudo cancelar. Pregúntame qué hay pendiente para ver cómo está todo.",
        "pt": "Não foi possível cancelar. Pergunte o que está pendente para ver como está tudo.",
    },
    "no match": {
        "en": "Nothing pending matches that, so nothing was cancelled.",
        "es": "Nada de lo pendiente coincide con eso, así que no se canceló nada.",
        "pt": "Nada do que está pendente corresponde a isso, então nada foi cancelado.",
    },
    "which one": {
        "en": "Which one? Say for example “cancel {id}”.",
        "es": "¿Cuál? Dime por ejemplo «cancela {id}».",
        "pt": "Qual? Diga por exemplo “cancele {id}”.",
    },
    "hello": {"en": "Hello! ", "es": "¡Hola! ", "pt": "Olá! "},
    "who I am": {
        "en": (
            "I'm an offline stand-in without a language model: all I can do is book, list and cancel reminders, for example"
            " “remind me tomorrow at 9 to call Ana”. For real conversation the owner of this assistant connects a model by"
            " setting VUELVO_MODEL (for example `openai:gpt-5-mini` or `anthropic:…`) and the provider's key."
        ),
        "es": (
            "Soy un sustituto sin conexión y sin modelo de lenguaje: solo puedo programar, listar y cancelar recordatorios, por"
            " ejemplo «recuérdame mañana a las 9 llamar a Ana». Para conversar de verdad, el dueño de este asistente conecta un"
            " modelo con VUELVO_MODEL (por ejemplo `openai:gpt-5-mini` o `anthropic:…`) y la clave del proveedor."
        ),
        "pt": (
            "Sou um substituto offline, sem modelo de linguagem: só posso agendar, listar e cancelar lembretes, por exemplo"
            " “me lembre amanhã às 9h de ligar para a Ana”. Para conversar de verdade, o dono deste assistente conecta um modelo"
            " com VUELVO_MODEL (por exemplo `openai:gpt-5-mini` ou `anthropic:…`) e a chave do provedor."
        ),
    },
    "reminder": {"en": "Reminder: {about}", "es": "Recordatorio: {about}", "pt": "Lembrete: {about}"},
    "work due": {
        "en": (
            'You asked me to: "{about}". I\'m an offline stand-in without a language model and cannot look anything up, so this'
            " was not done. The owner of this assistant connects a model by setting VUELVO_MODEL (for example `openai:gpt-5-mini`"
            " or `anthropic:…`) and the provider's key."
        ),
        "es": (
            'Me pediste: "{about}". Soy un sustituto sin conexión y sin modelo de lenguaje y no puedo consultar nada, así que no se'
            " hizo. El dueño de este asistente conecta un modelo con VUELVO_MODEL (por ejemplo `openai:gpt-5-mini` o"
            " `anthropic:…`) y la clave del proveedor."
        ),
        "pt": (
            'Você me pediu: "{about}". Sou um substituto offline, sem modelo de linguagem, e não posso consultar nada, então isso'
            " não foi feito. O dono deste assistente conecta um modelo com VUELVO_MODEL (por exemplo `openai:gpt-5-mini` ou"
            " `anthropic:…`) e a chave do provedor."
        ),
    },
}


def _named(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_WEEKDAYS: Mapping[Language, tuple[str, ...]] = {
    "en": _named("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "es": _named("lunes martes miércoles jueves viernes sábado domingo"),
    "pt": _named("segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo"),
}
_AT: Mapping[Language, tuple[str, str]] = {"en": ("at", "at"), "es": ("a las", "a la"), "pt": ("às", "à")}
"""The word before a clock time, and before one o'clock."""


def say(sentence: str, language: Language, **words: object) -> str:
    """Return one of SENTENCES in a language."""
    return SENTENCES[sentence][language].format(**words)


def say_when(local_time: str, zone: str, language: Language, now: datetime | None, *, with_seconds: bool) -> str:
    """Return a wall time as people say it, with the day unless that is today's, and with its zone.

    `local_time` is what a tool gave, "2026-12-01 09:30" or with seconds; what cannot be read as that is said as it is.
    """
    try:
        at = datetime.fromisoformat(local_time)
    except ValueError:
        return f"{local_time} ({zone})"
    clock = f"{at:%H:%M:%S}" if with_seconds and len(local_time) > len("2026-12-01 09:30") else f"{at:%H:%M}"
    day = _say_day(at.date(), language, now.date() if now else None)
    return f"{day}{_AT[language][at.hour == 1]} {clock} ({zone})"


def _say_day(day: date, language: Language, today: date | None) -> str:
    if day == today:
        return ""
    weekday, month = _WEEKDAYS[language][day.weekday()], MONTHS[language][day.month - 1]
    is_tomorrow = today is not None and (day - today).days == 1
    is_this_year = today is not None and day.year == today.year
    if language == "en":
        date_said = f"{weekday} {day.day} {month}" + ("" if is_this_year else f" {day.year}")
        return f"tomorrow, {date_said}, " if is_tomorrow else f"on {date_said} "
    year = "" if is_this_year else f" de {day.year}"
    if language == "es":
        date_said = f"{weekday} {day.day} de {month}{year}"
        return f"mañana, {date_said}, " if is_tomorrow else f"el {date_said} "
    date_said = f"{weekday}, {day.day} de {month}{year}, "
    return f"amanhã, {date_said}" if is_tomorrow else f"{'no' if day.weekday() > 4 else 'na'} {date_said}"
