import itertools

import pytest
from pydantic import ValidationError

from channels.web.section import WebSection, ink_on


def _contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_on_every_colour() -> None:
    steps = range(0, 256, 15)
    worst = min(
        _contrast(color, ink_on(color))
        for color in (f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in itertools.product(steps, steps, steps))
    )
    assert worst >= 4.5


def test_origins_are_kept_as_a_browser_writes_them() -> None:
    given = ("https://Shop.Example/", "https://shop.example:443", "http://localhost:8080", "http://[::1]:80", "*")
    section = WebSection(origins=given)
    assert section.origins == (
        "https://shop.example",
        "https://shop.example",
        "http://localhost:8080",
        "http://[::1]",
        "*",
    )


@pytest.mark.parametrize(
    "origin", ["shop.example", "https://shop.example/path", "https://*.shop.example", "ftp://a", ""]
)
def test_what_no_browser_would_send_as_an_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="write an origin as a browser does"):
        WebSection(origins=(origin,))


@pytest.mark.parametrize("color", ["red", "#12345", "#1234567", "#12345g", "#123456\n"])
def test_what_is_no_colour_is_refused(color: str) -> None:
    with pytest.raises(ValidationError, match="color"):
        WebSection(color=color)
