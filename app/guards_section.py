"""Guards, as they are written: in a booking over the API, and at a cadence's step."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.calls_section import FunctionPath

MOST = 5
"""Guards of one task."""


class NoReplySince(BaseModel, extra="forbid", frozen=True):
    """The customer has not written since it was asked for."""

    guard: Literal["no reply since"]


class TemplateApproved(BaseModel, extra="forbid", frozen=True):
    """A template of the tenant's may be sent, as far as is known."""

    guard: Literal["template approved"]
    template: Annotated[str, Field(pattern=r"^HX[0-9a-fA-F]{32}$")]


class Call(BaseModel, extra="forbid", frozen=True):
    """One of the tenant's functions elsewhere answers `{"proceed": true}`."""

    guard: Literal["call"]
    function: FunctionPath
    if_unknown: Literal["hold", "skip", "send"] = "hold"
    """What becomes of the task where it answers neither yes nor no, in five seconds. Held, it is asked again for a day."""


AnyGuard = Annotated[NoReplySince | TemplateApproved | Call, Field(discriminator="guard")]
Guards = Annotated[list[AnyGuard], Field(max_length=MOST)]
