"""One key for the forms in which one person's number arrives."""

import re

# Mexico: +52 1 and +52. Argentina: +54 9 and +54. Brazil: mobile numbers with and without the ninth digit; what is left
# must begin with 6 to 9, since with 2 to 5 it would be somebody's landline.
_TWO_FORMS = (
    (re.compile(r"((?:whatsapp:)?\+52)1?([0-9]{10})"), "1"),
    (re.compile(r"((?:whatsapp:)?\+54)9?([0-9]{10})"), "9"),
    (re.compile(r"((?:whatsapp:)?\+55[1-9][0-9])9?([6-9][0-9]{7})"), "9"),
)


def key(address: str) -> str:
    """Return what every form of this address has in common. For matching only: answers go to the address as it came."""
    return forms(address)[0]


def forms(address: str) -> list[str]:
    """Return every form of this address, its key first."""
    for form, digit in _TWO_FORMS:
        if found := form.fullmatch(address):
            return [found[1] + found[2], found[1] + digit + found[2]]
    return [address]
