import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.whatsapp.markup import convert


@pytest.mark.parametrize(
    ("markdown", "whatsapp"),
    [
        ("**Precio:** 20 €", "*Precio:* 20 €"),
        ("__Precio__", "*Precio*"),
        ("*quizá* o _tal vez_", "_quizá_ o _tal vez_"),
        ("***las dos***", "*_las dos_*"),
        ("**fuera _dentro_ fuera**", "*fuera _dentro_ fuera*"),
        ("~~antes~~", "~antes~"),
        ("2*3*4 y 2**3 y snake_case_name y a * b * c", "2*3*4 y 2**3 y snake_case_name y a * b * c"),
        ("**abierto", "**abierto"),
        ("* uno\n* **dos**\n  + tres\n- cuatro\n1. cinco", "- uno\n- *dos*\n  - tres\n- cuatro\n1. cinco"),
        ("# Título", "*Título*"),
        ("## Tu **póliza** ##", "*Tu póliza*"),
        ("# C#", "*C#*"),
        ("#etiqueta", "#etiqueta"),
        ("# ", "# "),
        ("[la web](https://a.example/b_c_d)", "la web: https://a.example/b_c_d"),
        ("[x](https://a.example/b_(c))", "x: https://a.example/b_(c)"),
        ('[x](https://a.example "título")', "x: https://a.example"),
        ("[**x**](<https://a.example>).", "*x*: https://a.example."),
        ("![foto](https://a.example/f.png)", "foto: https://a.example/f.png"),
        ("[https://a.example](https://a.example)", "https://a.example"),
        ("[ana@a.example](mailto:ana@a.example)", "ana@a.example"),
        ("<https://a.example/x_y_z>", "https://a.example/x_y_z"),
        ("https://a.example/_x_/*y*", "https://a.example/_x_/_y_"),
        ("**https://a.example**", "*https://a.example*"),
        ("`**no**` y ```_no_```", "`**no**` y ```_no_```"),
        ("```python\na = **b**\n```\n**sí**", "```\na = **b**\n```\n*sí*"),
        ("~~~\n```\n~~~~", "```\n```\n```"),
        ("```\nabierto", "```\nabierto\n```"),
        (r"\*no\* 5\_000 C:\dir", r"*no* 5_000 C:\dir"),
        ("> cita\n\n| a | b |", "> cita\n\n| a | b |"),
        ("una\r\n\r\ndos", "una\n\ndos"),
        ("", ""),
    ],
)
def test_markdown_becomes_whatsapps_markup(markdown: str, whatsapp: str) -> None:
    assert convert(markdown) == whatsapp


@given(st.text(st.sampled_from("ab *_~`[]()<>\\#!-+\n👋"), max_size=80))
def test_no_word_is_lost_in_conversion(text: str) -> None:
    def letters(text: str) -> str:
        return "".join(letter for letter in text if letter.isalnum() or letter == "👋")

    # What follows an opening fence names a language, and is left out on purpose.
    spoken = "\n".join(line for line in text.split("\n") if not line.strip().startswith(("```", "~~~")))
    assert letters(convert(spoken)) == letters(spoken)


@pytest.mark.parametrize(
    "unit",
    [
        "**a ",
        "*a **b ",
        "_a __b ~~c ",
        "[",
        "[a](",
        "[a](b(c",
        '[a](b "',
        "<https://a",
        "`",
        "``a",
        "# ",
        "!",
        ". ",
        "\\",
        "\n",
        " ",
        "a",
        "👋",
        "*",
        "```\n",
        "https://a~~",
    ],
)
def test_a_long_text_takes_time_in_proportion(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length] + "x"
        began = time.process_time()
        convert(text)
        return time.process_time() - began

    assert seconds(200_000) < 40 * max(min(seconds(20_000) for _ in range(2)), 0.01)
