"""Addresses of customers, as other programs and people write them, and as they are kept."""

import re

from channels.web.reach import ANONYMOUS, VERIFIED
from channels.whatsapp import address as whatsapp

CHANNELS = ("web", "telegram", "whatsapp")


class NoAddress(ValueError):
    """What is no address on a channel; the message says how to write one."""


def read_address(channel: str, written: str) -> str:
    """Return the address that is meant: a number with its plus sign, a Telegram chat's number, the id by which a user signs in.

    Raises NoAddress.
    """
    given = written.strip()
    if channel == "whatsapp":
        number = re.sub(r"[ ().-]", "", given.removeprefix("whatsapp:"))
        if re.fullmatch(r"\+[1-9][0-9]{6,14}", number) is None:
            raise NoAddress("write a number of WhatsApp with its plus sign and country, such as +34600000001")
        return f"whatsapp:{number}"
    if channel == "telegram":
        if re.fullmatch(r"-?[0-9]{1,20}", given) is None:
            raise NoAddress("write the number of a chat of Telegram, such as 123456789")
        return given
    if channel != "web":
        raise NoAddress(f"there is no channel {channel[:40]!r}: use {', '.join(CHANNELS)}")
    if not given or "\0" in given or len(given) > 200:
        raise NoAddress("write the id by which the user signs in on your page, 200 characters at most")
    return given if given.startswith((ANONYMOUS, VERIFIED)) else VERIFIED + given


def keys(channel: str, address: str) -> list[str]:
    """Return the keys under which whoever has an address may be known, the first one first."""
    return whatsapp.forms(address) if channel == "whatsapp" else [address]
