"""The `web` section of a tenant's file: where the widget may stand and how it looks."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

_ORIGIN = re.compile(r"https?://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(:[0-9]{1,5})?")


def _origin(given: str) -> str:
    origin = given.lower().removesuffix("/")
    if given != "*" and _ORIGIN.fullmatch(origin) is None:
        raise ValueError('write an origin as a browser does, "https://shop.example", or "*" for any page')
    # A browser leaves the usual port out.
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


class WebSection(BaseModel, extra="forbid", frozen=True):
    """One tenant's widget."""

    origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """Pages that may embed the widget, as `https://shop.example`; the service's own pages always may, `*` is any."""
    title: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    greeting: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    color: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")] | None = None
    """The colour of the launcher, the header and the visitor's own bubbles, as `#1a4fa3`."""
    drafts: bool = True
    """Whether an answer is shown while it is being written; the model is then asked for a stream."""

    def admits(self, origin: str) -> bool:
        """Tell whether a page of another host may embed the widget."""
        return "*" in self.origins or origin in self.origins


def ink_on(color: str) -> str:
    """Return white or black, whichever can be read on a colour `#rrggbb`: at least 4.5:1 (WCAG 2.2, 1.4.3).

    White where it suffices; where it does not, black does.
    """
    red, green, blue = (_linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) >= 4.5 else "#000000"


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
