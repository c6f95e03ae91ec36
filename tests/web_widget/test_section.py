import itertools
from datetime import timedelta

import pytest
from pydantic import ValidationError

from channels.web.section import WebSection, ink_on, is_open_to_all


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


ANY_MACHINES_OWN = (
    "http://localhost",
    "http://localhost:5173",
    "https://localhost:8443",
    "http://127.0.0.1:8000",
    "http://[::1]:3000",
    "null",
)


def test_a_tenant_that_names_no_origins_can_be_tried_on_this_machine_and_nowhere_else() -> None:
    section = WebSection()
    assert all(section.admits(origin) for origin in ANY_MACHINES_OWN)
    for origin in (
        "https://shop.example",
        "http://localhost.evil.example",
        "http://evil.example:localhost",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.2",
        "file://",
        "",
        "NULL",
        "http://localhost:8000/",
        "http://localhost\n",
    ):
        assert not section.admits(origin)


def test_a_tenant_that_names_origins_means_those_alone() -> None:
    section = WebSection(origins=("https://shop.example",))
    assert [origin for origin in (*ANY_MACHINES_OWN, "https://shop.example") if section.admits(origin)] == [
        "https://shop.example"
    ]
    assert WebSection(origins=("null",)).admits("null")
    assert not WebSection(origins=("null",)).admits("http://localhost")


def test_a_page_that_others_can_read_along_is_known() -> None:
    origins = ("http://shop.example", "https://shop.example", "http://localhost:3000", "*", "null")
    assert [origin for origin in origins if is_open_to_all(origin)] == ["http://shop.example"]


SECRET = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"identity": {}}, "secrets"),
        ({"identity": {"secrets": []}}, "at least 1"),
        ({"identity": {"secrets": [SECRET] * 3}}, "at most 2"),
        ({"identity": {"secrets": ["hunter2"]}}, "at least 32 characters"),
        ({"identity": {"secrets": ["-----BEGIN PUBLIC KEY-----" + SECRET]}}, "shared secret"),
        ({"identity": {"secrets": ["ssh-rsa " + SECRET]}}, "shared secret"),
        ({"session": {"idle": "431d"}}, "430 days"),
        ({"session": {"absolute": "731d"}}, "730 days"),
        ({"session": {"idle": "4m"}}, "5 minutes"),
        ({"session": {"idle": "soon"}}, "write for example"),
        ({"session": {"idle": True}}, "idle"),
        ({"session": {"absolute": "9" * 40 + "d"}}, "730 days"),
        ({"limits": {"messages_a_minute": 0}}, "greater than or equal to 1"),
        ({"limits": {"sessions_an_hour": 0}}, "greater than or equal to 1"),
    ],
)
def test_what_would_not_do_is_refused_and_no_secret_is_repeated(section: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        WebSection.model_validate(section)
    words = str(refused.value.errors(include_input=False, include_context=False))
    assert "hunter2" not in words
    assert SECRET not in words


def test_how_long_a_session_lives_is_stored_as_it_can_be_read_again() -> None:
    for written, span in (("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), (600, timedelta(minutes=10))):
        section = WebSection.model_validate({"session": {"idle": written}})
        assert section.session.idle == span
        assert WebSection.model_validate_json(section.model_dump_json()) == section


@pytest.mark.parametrize("color", ["red", "#12345", "#1234567", "#12345g", "#123456\n"])
def test_what_is_no_colour_is_refused(color: str) -> None:
    with pytest.raises(ValidationError, match="color"):
        WebSection(color=color)
