import pytest

from channels.whatsapp.address import forms, key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("whatsapp:+5215512345678", "whatsapp:+525512345678"),
        ("whatsapp:+5491123456789", "whatsapp:+541123456789"),
        ("whatsapp:+5541988887777", "whatsapp:+554188887777"),
        ("whatsapp:+5511969999999", "whatsapp:+551169999999"),
        ("+5215512345678", "+525512345678"),
    ],
)
def test_two_forms_of_one_number_have_one_key(one: str, other: str) -> None:
    assert key(one) == key(other) == other
    assert forms(one) == forms(other) == [other, one]


@pytest.mark.parametrize(
    "address",
    [
        "whatsapp:+14155238886",
        "whatsapp:+34612345678",
        "whatsapp:+525512345678",
        "whatsapp:+52155123456",  # a digit short of the second form
        "whatsapp:+521551234567890",
        "whatsapp:+54912345",
        "whatsapp:+5511944443333",  # without its 9 it would be somebody's landline
        "whatsapp:+551144443333",
        "whatsapp:+5215512345678\n",
        "whatsapp:US.5215512345678",
        "telegram:5215512345678",
        "",
    ],
)
def test_any_other_address_is_its_own_key(address: str) -> None:
    assert key(address) == address
    assert address in forms(address)
