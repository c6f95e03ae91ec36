"""How often something recurring comes, in words, and in which zone it is thought of.

What is stored is a schedule's text (`scheduler/recurrence.py`). What is plain is said in words, in English, Spanish and
Portuguese; any other five fields are said as they are.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from scheduler.errors import BadSchedule
from scheduler.find import Found
from scheduler.recurrence import ByCron, read

_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_WORDS: Mapping[str, Mapping[str, Any]] = {
    "en": {
        "weekdays": [
            "every Sunday",
            "every Monday",
            "every Tuesday",
            "every Wednesday",
            "every Thursday",
            "every Friday",
            "every Saturday",
        ],
        "and": " and ",
        "day": "every day",
        "working": "every weekday",
        "weekend": "every Saturday and Sunday",
        "of_month": "on day {day} of every month",
        "of_year": "every year on {month}-{day}",
        "units": {
            "week": ("every week", "every {n} weeks"),
            "day": ("every 24 hours", "every {n} days"),
            "hour": ("every hour", "every {n} hours"),
            "minute": ("every minute", "every {n} minutes"),
            "second": ("every second", "every {n} seconds"),
        },
        "until": "until {until}",
        "times": "{times} more times",
        "once": "one more time",
    },
    "es": {
        "weekdays": [
            "cada domingo",
            "cada lunes",
            "cada martes",
            "cada miércoles",
            "cada jueves",
            "cada viernes",
            "cada sábado",
        ],
        "and": " y ",
        "day": "cada día",
        "working": "de lunes a viernes",
        "weekend": "cada sábado y domingo",
        "of_month": "el día {day} de cada mes",
        "of_year": "cada año el {day}/{month}",
        "units": {
            "week": ("cada semana", "cada {n} semanas"),
            "day": ("cada 24 horas", "cada {n} días"),
            "hour": ("cada hora", "cada {n} horas"),
            "minute": ("cada minuto", "cada {n} minutos"),
            "second": ("cada segundo", "cada {n} segundos"),
        },
        "until": "hasta el {until}",
        "times": "{times} veces más",
        "once": "una vez más",
    },
    "pt": {
        "weekdays": [
            "todo domingo",
            "toda segunda-feira",
            "toda terça-feira",
            "toda quarta-feira",
            "toda quinta-feira",
            "toda sexta-feira",
            "todo sábado",
        ],
        "and": " e ",
        "day": "todos os dias",
        "working": "de segunda a sexta",
        "weekend": "todo sábado e domingo",
        "of_month": "no dia {day} de cada mês",
        "of_year": "todo ano em {day}/{month}",
        "units": {
            "week": ("toda semana", "a cada {n} semanas"),
            "day": ("a cada 24 horas", "a cada {n} dias"),
            "hour": ("a cada hora", "a cada {n} horas"),
            "minute": ("a cada minuto", "a cada {n} minutos"),
            "second": ("a cada segundo", "a cada {n} segundos"),
        },
        "until": "até {until}",
        "times": "mais {times} vezes",
        "once": "mais uma vez",
    },
}
_ONCE_A_DAY = re.compile(r"[0-9]+ [0-9]+ ([0-9]+|\*) ([0-9]+|\*) ([0-9,-]+|\*)")


def how_often(spec: str) -> str:
    """Return a schedule's text without its zone: `0 9 * * 1`, `every 7200s`."""
    return spec.partition(" ")[2] if spec.startswith("TZ=") else spec


def zone_for(found: Found, zone: ZoneInfo) -> ZoneInfo:
    """Return the zone in which a task's times are told: that in which a cron expression is read, else the given one."""
    try:
        rule = read(str(found.payload.get("spec"))) if found.kind == "schedule" else None
    except BadSchedule:
        return zone
    return rule.cron.zone if isinstance(rule, ByCron) else zone


def times_left(payload: Mapping[str, Any]) -> int | None:
    """Return how many times something recurring is still said; None where they are not counted."""
    times = payload.get("times")
    return None if times is None else int(times) - int(payload.get("said", 0))


def in_words(often: str, language: str) -> str:
    """Return how often in words, as far as there are any: "every Monday", "every 2 hours", `*/5 9-17 * * 1`.

    `often` is as `how_often` returns it.
    """
    words = _WORDS.get(language, _WORDS["en"])
    if (seconds := re.fullmatch(r"every ([0-9]+)s", often)) is not None:
        length = int(seconds[1])
        unit, size = next(each for each in _UNITS if length % each[1] == 0)
        one, many = words["units"][unit]
        return str(one if length == size else many.format(n=length // size))
    fields = _ONCE_A_DAY.fullmatch(often)
    if fields is None:
        return often
    day, month, weekday = fields.groups()
    if weekday == "*":
        if day == "*":
            return str(words["day"]) if month == "*" else often
        return str(words["of_month" if month == "*" else "of_year"].format(day=day, month=month))
    if day != "*" or month != "*":
        return often
    if weekday == "1-5":
        return str(words["working"])
    if weekday in ("6,0", "0,6", "6,7"):
        return str(words["weekend"])
    if "-" in weekday or any(int(one) > 7 for one in weekday.split(",") if one) or not all(weekday.split(",")):
        return often
    return str(words["and"].join(words["weekdays"][int(one) % 7] for one in weekday.split(",")))


def rhythm(payload: Mapping[str, Any], language: str) -> str:
    """Return how often something recurring comes and when it ends, in words; `payload` is its row's."""
    end = end_in_words({"until": payload.get("until"), "times_left": times_left(payload)}, language)
    return ", ".join(filter(None, (in_words(how_often(str(payload.get("spec", ""))), language), end)))


def end_in_words(payload: Mapping[str, Any], language: str) -> str:
    """Return when something recurring ends, in words; an empty text where it goes on until it is cancelled.

    `payload` holds `until`, a local date, or how many are left as `times_left`.
    """
    words = _WORDS.get(language, _WORDS["en"])
    if payload.get("until"):
        return str(words["until"].format(until=date.fromisoformat(str(payload["until"]))))
    left = payload.get("times_left")
    if left is None:
        return ""
    return str(words["once"] if left == 1 else words["times"].format(times=left))
