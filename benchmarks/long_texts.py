"""Long texts of the kinds that are awkward to cut, each about so many UTF-16 units long."""

from collections.abc import Callable

from channels.message import units


def _lines(line: Callable[[int], str], size: int) -> str:
    found: list[str] = []
    length = number = 0
    while length < size:
        found.append(line(number))
        length += units(found[-1]) + 1
        number += 1
    return "\n".join(found)


def _table(size: int) -> str:
    columns = 12
    head = "|".join(f"column{number}" for number in range(columns))
    rule = "|".join("---" for _ in range(columns))
    row = lambda number: "|" + "|".join(f"cell{number}x{at}" for at in range(columns)) + "|"  # noqa: E731
    return f"|{head}|\n|{rule}|\n{_lines(row, size)}"


def _code(size: int) -> str:
    return f"Look:\n\n```python\n{_lines(lambda number: f'value{number} = call{number}(a, b)  # why', size)}\n```\n\nThat was all."


def _right_to_left(size: int) -> str:
    return _lines(
        lambda number: f"موعدك مع الطبيب رقم{number} يوم الثلاثاء. התור שלך נקבע ליום שלישי, מספר{number}.", size
    )


def _prose(size: int) -> str:
    return _lines(lambda number: f"Mañana número{number} le **confirmo** la cita con la _doctora_. " * 6 + "\n", size)


LONG_TEXTS: dict[str, Callable[[int], str]] = {
    "brackets": lambda size: "[" * size,
    "emoji": lambda size: "😀" * (size // 2),
    "table": _table,
    "code": _code,
    "right to left": _right_to_left,
    "prose": _prose,
}
"""By kind, what gives one of a length in UTF-16 units."""
