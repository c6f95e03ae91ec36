"""Reads what Twilio posts: a customer's message, or the fate of one of ours. Both are proved by `signature.check` first.

https://www.twilio.com/docs/messaging/guides/webhook-request
"""

from collections.abc import Mapping, Sequence

from channels.errors import Malformed, Refused
from channels.message import Inbound, Status
from channels.text import clean
from channels.whatsapp import address, codes, media
from channels.whatsapp.section import WhatsAppSection
from store.blank import is_blank

ADDRESS_LIMIT = 160
NAME_LIMIT = 80


def read_message(section: WhatsAppSection, tenant: str, form: Sequence[tuple[str, str]]) -> Inbound:
    """Return the customer's message; media and other things without words become a note in brackets.

    Raises Refused when it is for another account or sender, Malformed when it holds no message to answer.
    """
    fields = dict(form)
    _check_account(section, fields)
    status = fields.get("MessageStatus") or fields.get("SmsStatus") or "received"
    if status != "received" and not fields.get("Body"):
        raise Malformed(f"This is the status {status!r} of a message, not a message.")
    if fields.get("To") != section.sender:
        raise Refused("The message is for another sender.")

    provider_id, sender = fields.get("MessageSid"), fields.get("From")
    if not provider_id or not sender or len(sender) > ADDRESS_LIMIT:
        raise Malformed(f"The message has no MessageSid, or no From of at most {ADDRESS_LIMIT} characters.")
    text = _text(fields)
    if is_blank(text):
        raise Malformed("The message holds nothing to read.")
    name = clean(" ".join(fields.get("ProfileName", "").split()))[:NAME_LIMIT]
    return Inbound(
        tenant=tenant,
        channel="whatsapp",
        address=sender,
        address_key=address.key(sender),
        provider_id=provider_id,
        text=text,
        reply_to=provider_id,
        is_tap=bool(fields.get("ButtonPayload") or fields.get("ButtonText")),
        name=None if is_blank(name) else name,
    )


def read_status(section: WhatsAppSection, form: Sequence[tuple[str, str]]) -> Status:
    """Return what a status callback says. Raises Refused for another account, Malformed without an id or a status."""
    fields = dict(form)
    _check_account(section, fields)
    provider_id, status = fields.get("MessageSid"), fields.get("MessageStatus") or fields.get("SmsStatus")
    if not provider_id or not status:
        raise Malformed("The callback has no MessageSid or no MessageStatus.")
    code = fields.get("ErrorCode", "")
    known = code.isascii() and code.isdigit() and code.strip("0")
    number = int(code[:9]) if known else None
    return Status(provider_id, status, codes.why(number), number)


def _check_account(section: WhatsAppSection, fields: Mapping[str, str]) -> None:
    if fields.get("AccountSid") != section.account_sid:
        raise Refused("The request is about another account.")


def _text(fields: Mapping[str, str]) -> str:
    """Return the words, then a note for each thing the agent cannot see, so that it can say so. Nothing is fetched."""
    words = fields.get("Body") or fields.get("ButtonText") or ""
    notes = [
        media.note(fields.get(name.replace("MediaUrl", "MediaContentType"), ""), link)
        for name, link in fields.items()
        if name.startswith("MediaUrl")
    ]
    kind = fields.get("MessageType", "text")
    if is_blank(words) and not notes and kind not in ("", "text"):
        notes = [f"[{kind[:80]}]"]  # a location, a contact card
    return clean("\n".join(notes if is_blank(words) else [words, *notes]))
