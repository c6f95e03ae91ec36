"""The time after a customer's message in which WhatsApp carries free text to them.

24 hours, renewed by each message of theirs; taken as five minutes shorter, since a message is on its way for a while.
https://developers.facebook.com/docs/whatsapp/pricing#customer-service-windows
"""

from datetime import datetime, timedelta

OPEN_FOR = timedelta(hours=23, minutes=55)


def closes_at(last_inbound_at: datetime) -> datetime:
    """Return the instant from which free text is no longer sent."""
    return last_inbound_at + OPEN_FOR


def is_open(last_inbound_at: datetime | None, at: datetime) -> bool:
    """Tell whether free text can be sent at `at`; never when the customer has not written yet."""
    return last_inbound_at is not None and at < closes_at(last_inbound_at)
