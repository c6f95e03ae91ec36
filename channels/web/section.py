"""The `web` section of a tenant's file: where the widget may stand, whom it lets in and for how long, how it looks."""

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, SecretStr, WithJsonSchema

from store.durations import read_duration

_ORIGIN = re.compile(r"https?://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(:[0-9]{1,5})?")
_ON_THIS_MACHINE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
OF_A_FILE = "null"
"""What a browser calls the origin of a file; and of every page that has none, such as a sandboxed frame."""

IDLE = timedelta(days=430)
"""How long a session lives after its last use: what was booked then comes within 400 days, and a month is left to read it."""
ABSOLUTE = timedelta(days=730)
"""How long a session lives in all, with all the tokens that took each other's place."""
SHORTEST = timedelta(minutes=5)
LEAST_SECRET = 32
"""Characters of a secret that signs identities; as RFC 7518, section 3.2, wants it for HS256."""


def _origin(given: str) -> str:
    origin = given.lower().removesuffix("/")
    if given not in ("*", OF_A_FILE) and _ORIGIN.fullmatch(origin) is None:
        raise ValueError('write an origin as a browser does, "https://shop.example", or "*" for any page')
    # A browser leaves the usual port out.
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


def _duration(given: Any) -> Any:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return given
    try:
        return read_duration(given)
    except OverflowError:
        return timedelta.max


def _up_to(most: timedelta) -> AfterValidator:
    def check(span: timedelta) -> timedelta:
        if not SHORTEST <= span <= most:
            raise ValueError(f"write 5 minutes to {most.days} days, such as 30d or 12h")
        return span

    return AfterValidator(check)


def _written(span: timedelta) -> str:
    days, rest = divmod(span, timedelta(days=1))
    return f"{days}d" if not rest else f"{span.total_seconds():g}s"


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"type": ["string", "number"]}),
]


def _secret(given: SecretStr) -> SecretStr:
    if len(given.get_secret_value()) < LEAST_SECRET:
        raise ValueError(f"it must have at least {LEAST_SECRET} characters: make one with `openssl rand -hex 32`")
    if given.get_secret_value().startswith(("-----BEGIN", "ssh-")):
        raise ValueError(
            "it is a key of two halves, and a shared secret is needed: make one with `openssl rand -hex 32`"
        )
    return given


class IdentitySection(BaseModel, extra="forbid", frozen=True):
    """How the tenant's server proves who a visitor is."""

    secrets: Annotated[tuple[Annotated[SecretStr, AfterValidator(_secret)], ...], Field(min_length=1, max_length=2)]
    """What its tokens may be signed with; two while one takes the other's place."""
    required: bool = False
    """Whether only those are let in whose identity is proved."""


class SessionSection(BaseModel, extra="forbid", frozen=True):
    """How long a session lives."""

    idle: Annotated[Duration, _up_to(IDLE)] = IDLE
    """After its last use."""
    absolute: Annotated[Duration, _up_to(ABSOLUTE)] = ABSOLUTE
    """In all."""


class LimitsSection(BaseModel, extra="forbid", frozen=True):
    """How much is taken from one visitor, and from one address."""

    messages_a_minute: Annotated[int, Field(ge=1, le=6000)] = 60
    sessions_an_hour: Annotated[int, Field(ge=1, le=1_000_000)] = 120
    """Opened from one address; of IPv6, from one /64."""


class WebSection(BaseModel, extra="forbid", frozen=True):
    """One tenant's widget."""

    origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """Pages that may embed the widget, as `https://shop.example`; the service's own pages always may, `*` is any, `null` is
    a file. Where none is named, files and pages of this very machine may, to try it."""
    title: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    greeting: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """In the tenant's first language; who speaks another is greeted by the widget."""
    color: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")] | None = None
    """The colour of the launcher, the header and the visitor's own bubbles, as `#1a4fa3`."""
    drafts: bool = True
    """Whether an answer is shown while it is being written; the model is then asked for a stream."""
    identity: IdentitySection | None = None
    session: SessionSection = SessionSection()
    limits: LimitsSection = LimitsSection()

    def admits(self, origin: str) -> bool:
        """Tell whether a page of another host may embed the widget."""
        if not self.origins:
            return origin == OF_A_FILE or _ON_THIS_MACHINE.fullmatch(origin) is not None
        return "*" in self.origins or origin in self.origins

    @property
    def requires_identity(self) -> bool:
        """Whether those whose identity is not proved are refused."""
        return self.identity is not None and self.identity.required


def is_open_to_all(origin: str) -> bool:
    """Tell whether a page comes over the network as it is, so that others can read and change it."""
    return origin.startswith("http://") and _ON_THIS_MACHINE.fullmatch(origin) is None


def ink_on(color: str) -> str:
    """Return white or black, whichever can be read on a colour `#rrggbb`: at least 4.5:1 (WCAG 2.2, 1.4.3).

    White where it suffices; where it does not, black does.
    """
    red, green, blue = (_linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) >= 4.5 else "#000000"


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
