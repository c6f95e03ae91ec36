"""The words by which a customer wants nothing more, or wants it again."""

import pytest

from channels.optout import OptOutSection, read

NONE = OptOutSection()


@pytest.mark.parametrize(
    "text",
    ["STOP", "stop", " Stop. ", "¡STOP!", "stop all", "Unsubscribe", "BAJA", "baja", "Darme de baja", "ALTO", "parar"],
)
def test_a_message_that_is_only_such_a_word_is_taken_at_its_word(text: str) -> None:
    assert read(text, ("es",), NONE) == "stop"


@pytest.mark.parametrize("text", ["START", "Alta", "¡alta!", "darme de alta", "unstop"])
def test_what_was_stopped_can_be_started_again(text: str) -> None:
    assert read(text, ("es",), NONE) == "start"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "stop it, I will call you tomorrow",
        "no stop",
        "baja la cuota",
        "¿Pueden parar el pago?",
        "стоп",
        "s t o p",
        "stop " * 30,
    ],
)
def test_what_says_more_is_a_message(text: str) -> None:
    assert read(text, ("es",), NONE) is None


def test_only_the_words_of_the_tenants_languages_count() -> None:
    assert read("baja", ("en",), NONE) is None
    assert read("sair", ("es",), NONE) is None
    assert read("sair", ("pt",), NONE) == "stop"


def test_accents_and_width_do_not_matter() -> None:
    assert read("CANCELAR INSCRIÇÃO", ("pt",), NONE) == "stop"
    assert read("cancelar inscric\u0327a\u0303o", ("pt",), NONE) == "stop"
    assert read("ＳＴＯＰ", ("en",), NONE) == "stop"


def test_a_tenant_has_words_of_its_own() -> None:
    own = OptOutSection(stop=("No más",), start=("Vale",))
    assert read("no mas!", ("es",), own) == "stop"
    assert read("VALE", ("es",), own) == "start"
