"""What a renewal must be to be taken, the same for a line of a file and for the API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache

from app.deferred import BadBooking, check_label, is_storable
from app.notices import named_in
from app.tenants_file import TenantConfig
from channels.web.reach import VERIFIED
from channels.whatsapp.section import SENDER
from scheduler.when import known_zone
from store.renewals import Wanted
from web_widget.identity import LONGEST_USER

CHANNELS = ("whatsapp", "telegram", "web")
LONGEST_NAME = 100
LONGEST_FIELD = 60
"""Characters of a field's name."""
LONGEST_VALUE = 2000
"""Characters of what it says."""
MOST_FIELDS = 100
LONGEST_PAST = timedelta(days=400)
"""A due day further back is taken for a slip of the pen."""
FURTHEST = timedelta(days=30 * 366)
"""And one further ahead."""
OWN = ("name", "due", "subject")
"""What a text's places stand for without a field."""

_BETWEEN = re.compile(r"[\s.\-/\u00a0\u2010-\u2015]|\((?!0\))|(?<!\(0)\)")
_CHAT = re.compile(r"-?[1-9][0-9]{0,18}")
_zone = lru_cache(maxsize=1000)(known_zone)


class BadRenewal(BadBooking):
    """A renewal that cannot be taken; the message says why and the way out, and repeats no address."""


@dataclass(frozen=True, slots=True)
class Given:
    """A renewal as somebody has written it down."""

    subject: str
    due: date
    cadence: str
    channels: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    language: str | None = None
    time_zone: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    agreed: bool = False


class Checker:
    """Holds what is given against a tenant's file and the day it is."""

    def __init__(self, tenant: TenantConfig, today: date) -> None:
        self.tenant = tenant
        self._today = today
        self._places: dict[str, set[str]] = {}

    def check(self, given: Given) -> Wanted:
        """Return what is wanted. Raises BadRenewal."""
        try:
            check_label("subject", given.subject)
        except BadBooking as problem:
            raise BadRenewal(str(problem)) from None
        self._check_cadence(given.cadence)
        self._check_day(given.due)
        _check_text("name", given.name or "", LONGEST_NAME)
        _check_fields(given.fields)
        if given.time_zone is not None and _zone(given.time_zone) is None:
            raise BadRenewal(f"time_zone: {given.time_zone[:40]!r} is no time zone: write one such as America/Bogota")
        wanted = Wanted(
            given.subject,
            given.due,
            given.cadence,
            addresses(given.channels),
            given.name or None,
            self._language(given.language),
            given.time_zone,
            given.fields,
            given.agreed,
        )
        known = {name for name in OWN if name != "name" or given.name} | given.fields.keys()
        if missing := sorted(self.places(given.cadence) - known):
            names = ", ".join(f"{{{name}}}" for name in missing)
            raise BadRenewal(f"the cadence {given.cadence} speaks of {names}, of which nothing is said here")
        return wanted

    def places(self, cadence: str) -> set[str]:
        """Return the places that the texts of a cadence name."""
        if cadence not in self._places:
            steps = self.tenant.cadences[cadence].steps
            texts = [step.about or "" for step in steps]
            texts += [text for step in steps for text in (step.text or {}).values()]
            texts += [text for step in steps for one in (step.template or {}).values() for text in one.values.values()]
            self._places[cadence] = {name for text in texts for name in named_in(text)}
        return self._places[cadence]

    def _check_cadence(self, cadence: str) -> None:
        if cadence not in self.tenant.cadences:
            known = ", ".join(sorted(self.tenant.cadences)) or "none"
            raise BadRenewal(f"there is no cadence {cadence[:40]!r}; there are: {known}")

    def _check_day(self, due: date) -> None:
        if due < self._today - LONGEST_PAST:
            raise BadRenewal(f"due is {due}, more than {LONGEST_PAST.days} days ago: is the year right?")
        if due > self._today + FURTHEST:
            raise BadRenewal(f"due is {due}, more than 30 years ahead: is the year right?")

    def _language(self, given: str | None) -> str | None:
        if given is None:
            return None
        spoken = re.split("[-_]", given.strip().lower())[0]
        if spoken not in self.tenant.languages:
            raise BadRenewal(
                f"language: the tenant does not speak {given[:20]!r}; it speaks {', '.join(self.tenant.languages)}"
            )
        return spoken


def addresses(channels: Mapping[str, str]) -> dict[str, str]:
    """Return addresses as they are written to, by channel. Raises BadRenewal."""
    if not channels:
        raise BadRenewal(f"nothing says where the customer is reached: give one of {', '.join(CHANNELS)}")
    found: dict[str, str] = {}
    for channel, given in channels.items():
        match channel:
            case "whatsapp":
                found[channel] = _number(given)
            case "telegram":
                found[channel] = _chat(given)
            case "web":
                _check_text(channel, given, LONGEST_USER)
                found[channel] = VERIFIED + given
            case _:
                raise BadRenewal(f"there is no channel {channel[:20]!r}: give one of {', '.join(CHANNELS)}")
    return found


def _number(given: str) -> str:
    number = _BETWEEN.sub("", given.removeprefix("whatsapp:"))
    address = f"whatsapp:{re.sub('^00', '+', number)}"
    if SENDER.fullmatch(address) is None:
        raise BadRenewal("whatsapp: write the number with a plus and its country's code, as in +34 600 000 001")
    return address


def _chat(given: str) -> str:
    if _CHAT.fullmatch(given.strip()) is None:
        raise BadRenewal(
            "telegram: write the chat's number: to a name, or a telephone number, no bot can write by itself"
        )
    return given.strip()


def masked(address: str) -> str:
    """Return an address as an operator may be shown it."""
    number = address.partition(":")[2] or address
    return f"{number[:3]}…{number[-2:]}" if len(number) > 7 else "…"


def _check_fields(fields: Mapping[str, str]) -> None:
    if len(fields) > MOST_FIELDS:
        raise BadRenewal(f"it has {len(fields)} fields, and {MOST_FIELDS} are the most: leave some out")
    for name, value in fields.items():
        check_field_name(name)
        _check_text(name, value, LONGEST_VALUE)


def check_field_name(name: str) -> None:
    """Raise BadRenewal for what no field can be called."""
    is_name = 0 < len(name) <= LONGEST_FIELD and name == name.strip() and name.isprintable()
    if not is_name or "{" in name or "}" in name:
        raise BadRenewal(f"a field's name is a text of 1 to {LONGEST_FIELD} characters, on one line and without braces")
    if name in OWN:
        raise BadRenewal(f"the field {name}: texts have that of the renewal itself; call it otherwise")


def _check_text(name: str, value: str, longest: int) -> None:
    if len(value) > longest or not is_storable(value):
        raise BadRenewal(f"{name} is a text of at most {longest:,} characters, without zero bytes")
    if name in CHANNELS and not value:
        raise BadRenewal(f"{name} is empty: leave it out")
