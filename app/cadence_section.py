"""The `hours` and `cadences` sections of a tenant's file: when customers are written to, and what around a due day."""

import re
from collections.abc import Mapping
from datetime import date, time
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, model_validator

from agent.language import Language
from app.guards_section import Guards
from scheduler.cadences import Offset, Past, Step, offset
from scheduler.open_hours import MIDNIGHT, OpenHours, Span

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
AT = time(10)
_SPAN = re.compile(r"([0-2]?\d):([0-5]\d)\s*-\s*([0-2]?\d):([0-5]\d)", re.ASCII)


def _days(given: str) -> str:
    first, dash, last = given.strip().lower().partition("-")
    if first not in DAYS or (dash and last not in DAYS):
        raise ValueError(f"write a day or from one to another, as in mon-fri; days are {', '.join(DAYS)}")
    return given.strip().lower()


def _span(given: str) -> str:
    _read_span(given)
    return given


def _read_span(given: str) -> Span:
    found = _SPAN.fullmatch(given.strip())
    try:
        if found is None:
            raise ValueError
        start = time(int(found[1]), int(found[2]))
        end = MIDNIGHT if (found[3], found[4]) == ("24", "00") else time(int(found[3]), int(found[4]))
        if end <= start:
            raise ValueError
    except ValueError:
        raise ValueError(
            "write from when to when on one day, as in 09:00-18:30; the whole day is 00:00-24:00"
        ) from None
    return start, end


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


Spans = Annotated[
    list[Annotated[str, AfterValidator(_span)]], BeforeValidator(_listed, json_schema_input_type=str | list[str])
]


class HoursSection(BaseModel, extra="forbid", frozen=True):
    """When customers are written to who have not just asked for it, by their own clock."""

    open: Annotated[Mapping[Annotated[str, AfterValidator(_days)], Spans], Field(min_length=1)] | None = None
    """`{mon-fri: "09:00-19:00", sat: ["10:00-14:00"]}`; days that are not named are closed. Without it, always."""
    days_off: Annotated[list[date], Field(max_length=1000)] = []

    @model_validator(mode="after")
    def _opens(self) -> Self:
        named = [day for days in self.open or () for day in _each(days)]
        if twice := sorted({day for day in named if named.count(day) > 1}, key=DAYS.index):
            raise ValueError(f"open names {', '.join(twice)} twice")
        for days, spans in (self.open or {}).items():
            read = sorted(map(_read_span, spans))
            if any(later[0] < earlier[1] for earlier, later in pairwise(read)):
                raise ValueError(f"the hours of {days} overlap")
        if self.open is not None and not any(self.open.values()):
            raise ValueError("open has no hours: nothing would ever be sent")
        return self

    @cached_property
    def hours(self) -> OpenHours:
        """These hours."""
        if self.open is None:
            return OpenHours(days_off=frozenset(self.days_off))
        weekly = {
            DAYS.index(day): sorted(map(_read_span, spans)) for days, spans in self.open.items() for day in _each(days)
        }
        return OpenHours(weekly, frozenset(self.days_off))


def _each(days: str) -> list[str]:
    first, _, last = days.partition("-")
    start, end = DAYS.index(first), DAYS.index(last or first)
    return [DAYS[(start + number) % 7] for number in range((end - start) % 7 + 1)]


def _offset(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool) and given == 0:
        return "0d"
    return given


def _is_offset(given: str) -> str:
    return offset(given).text


def _is_time(given: str) -> str:
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", given, re.ASCII)
    if found is None:
        raise ValueError("write hours and minutes, as in 10:00")
    return f"{int(found[1]):02}:{found[2]}"


LocalTime = Annotated[str, AfterValidator(_is_time)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
TemplateId = Annotated[str, Field(pattern=r"^HX[0-9a-fA-F]{32}$")]
StepName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60, pattern=r"^[^:\x00]+$")]


class TemplateStep(BaseModel, extra="forbid", frozen=True):
    """A template with a renewal's fields in its places."""

    sid: TemplateId
    values: Mapping[Annotated[str, Field(pattern=r"^[1-9][0-9]?$")], str] = {}
    """What stands in each place: `{name}`, `{due}` and the renewal's own fields are filled in."""


class StepSection(BaseModel, extra="forbid", frozen=True):
    """One step: when, and what is said. Of `about`, `text` and `template` there is one; a template may have a text for other channels."""

    offset: Annotated[str, BeforeValidator(_offset, json_schema_input_type=str), AfterValidator(_is_offset)]
    at: LocalTime | None = None
    name: StepName | None = None
    about: Words | None = None
    """What the agent is to write about."""
    text: Mapping[Language, Words] | None = None
    """What is said word for word, by language."""
    template: Mapping[Language, TemplateStep] | None = None
    """What is sent on WhatsApp, by language, however long ago the customer wrote."""
    by_due: bool = False
    """Whether it must not come after the due day: where it is closed then, it comes before."""
    guards: Guards = []

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.about is None) == (self.text is None):
            raise ValueError("write what it is about, for the agent to word, or its text: one of the two")
        if self.by_due and self.when.count > 0:
            raise ValueError("a step after the due day cannot come by the due day")
        return self

    @property
    def when(self) -> Offset:
        """How far from the due day."""
        return offset(self.offset)

    @property
    def called(self) -> str:
        """What it is called."""
        return self.name or self.offset


class CadenceSection(BaseModel, extra="forbid", frozen=True):
    """What customers are told around a day on which something of theirs is due."""

    at: LocalTime = f"{AT:%H:%M}"
    """The local time of each step that names none."""
    past: Past = "skip"
    """What becomes of steps that are past when a renewal is enrolled."""
    stop: list[Literal["replied"]] = ["replied"]
    """What ends it besides what always does: renewed, lost, or the customer opted out."""
    steps: Annotated[list[StepSection], Field(min_length=1, max_length=50)]

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [step.called for step in self.steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two steps are called {twice[0]}: give one another name")
        return self

    @cached_property
    def plan(self) -> list[Step]:
        """Its steps as the scheduler knows them."""
        return [
            Step(step.called, step.when, time.fromisoformat(step.at or self.at), step.by_due) for step in self.steps
        ]

    def step(self, name: str) -> StepSection | None:
        """Return the step of a name."""
        return next((step for step in self.steps if step.called == name), None)


CadenceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]


class BudgetSection(BaseModel, extra="forbid", frozen=True):
    """What may be used in a day of the tenant's by runs that nobody watches. Answers to customers are never held for it."""

    tokens_a_day: Annotated[int, Field(ge=0)] | None = None
    """Of the model. Beyond them reminders are said in their stored words, and what needs a model waits for the next day."""
    notices_a_day: Annotated[int, Field(ge=0)] | None = None
    """Notices of all customers together; those beyond wait for the next day."""


class CapsSection(BaseModel, extra="forbid", frozen=True):
    """How much one customer hears in a day of their own that they have not asked for."""

    notices_a_day: Annotated[int, Field(ge=1, le=100)] = 1
