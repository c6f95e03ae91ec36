import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.language import detect, fold

MESSAGES = [
    ("en", "remind me in 10 seconds to call Ana"),
    ("en", "what is pending?"),
    ("en", "cancel the call to Ana"),
    ("en", "hello"),
    ("en", "thanks!"),
    ("en", "Can you check the price and let me know?"),
    ("en", "in half an hour, please"),
    ("en", "DON’T FORGET MY APPOINTMENT"),
    ("en", "tomorrow at 9"),
    ("es", "recuérdame mañana a las 9 que pague el seguro"),
    ("es", "recuerdame manana a las 9 que pague el seguro"),
    ("es", "hola"),
    ("es", "buenos días"),
    ("es", "qué tengo pendiente?"),
    ("es", "que tengo pendiente"),
    ("es", "averigua el precio y me avisas"),
    ("es", "cancela el recordatorio"),
    ("es", "avísame en 5 minutos"),
    ("es", "¿y mi cita?"),
    ("es", "el próximo martes a las 9:30 llamar a Ana"),
    ("es", "gracias"),
    ("pt", "lembre-me em 2 horas de ligar para a Ana"),
    ("pt", "me lembre amanhã às 9h de pagar o seguro"),
    ("pt", "me lembre amanha as 9h de pagar o seguro"),
    ("pt", "obrigado"),
    ("pt", "o que está pendente?"),
    ("pt", "o que tenho pendente"),
    ("pt", "bom dia"),
    ("pt", "olá"),
    ("pt", "verifique o preço e me avise"),
    ("pt", "cancele a ligação para a Ana"),
    ("pt", "não"),
    ("pt", "daqui a 10 minutos"),
]


@pytest.mark.parametrize(("language", "text"), MESSAGES)
def test_a_short_message_is_told_by_its_everyday_words(language: str, text: str) -> None:
    assert detect(text, "none") == language


@pytest.mark.parametrize("text", ["ok", "OK!", "", "   ", "12", "👍", "Ana", "a", "12:30", "ありがとう", "Спасибо"])
def test_what_could_be_any_language_gets_the_default(text: str) -> None:
    assert [detect(text, default) for default in ("en", "es", "pt")] == ["en", "es", "pt"]


def test_a_word_that_two_languages_share_is_not_a_tell() -> None:
    assert detect("minutos", "en") == "en"


@given(st.text())
def test_folding_keeps_every_position(text: str) -> None:
    assert len(fold(text)) == len(text)


def test_folding_takes_accents_and_capitals_away() -> None:
    assert fold("Às 9h, AMANHÃ, Recuérdame, ñandú, İ") == "as 9h, amanha, recuerdame, nandu, i"


@given(st.text())
def test_any_text_has_a_language_or_the_default(text: str) -> None:
    assert detect(text, "none") in {"en", "es", "pt", "none"}


@pytest.mark.parametrize(
    "text", ["ana@example.com", "example.com", "http://example.com/um/de", "www.example.com.br", "a.b@c.org"]
)
def test_an_address_is_of_no_language(text: str) -> None:
    assert detect(text, "en") == "en"
    assert detect(text, "es") == "es"
