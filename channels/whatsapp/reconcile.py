"""Finding out at Twilio what became of a send whose answer was lost.

A message at Twilio carries nothing of ours to find it by, so it is known by recipient, sender, time and text. Twilio can
filter by the day a message was sent, which one that is queued does not have yet: what is listed is sifted here.
https://www.twilio.com/docs/messaging/api/message-resource#read-multiple-message-resources
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from channels.message import Lost, Status, Unknown
from channels.whatsapp import address, codes

LOOKS = (timedelta(seconds=60), timedelta(minutes=5))
"""When to ask, counted from the beginning of the send: Twilio's list may be behind."""
SLACK = timedelta(seconds=5)
"""By how much Twilio's clock may be behind ours."""
PAGE, PAGES = 100, 5
"""Messages asked for at a time, and how often: these are messages of one sender to one person, the newest first."""


async def search(messages: Any, sender: str, lost: Lost) -> Sequence[Status] | Unknown:
    """Return what may be the lost send, the oldest first; Unknown when there was too much to look through.

    `messages` is the list of twilio's client, and whatever that raises is passed on. A message whose text was taken out
    at Twilio may be it too, after those that have the text.
    """
    since = lost.started_at - SLACK
    found: list[Any] = []
    for to in address.forms(lost.address):
        page = await messages.page_async(to=to, from_=sender, page_size=PAGE)
        for _ in range(PAGES):
            listed = list(page)
            if not all(one.sid and one.date_created for one in listed):
                return Unknown("Twilio's list of messages cannot be read")
            recent = [one for one in listed if one.date_created >= since]
            found += [one for one in recent if one.to == to and one.from_ == sender and _may_be(one, lost)]
            # A message from before does not end it alone: the order is by a time that one may not have yet.
            page = await page.next_page_async() if recent else None
            if page is None:
                break
        else:
            return Unknown(f"Twilio has more than {PAGE * PAGES} messages to this customer since the send began")
    found.sort(key=lambda one: (not one.body, one.date_created))
    return [_status(one) for one in found]


def _status(message: Any) -> Status:
    code = codes.code_of(message.error_code)
    return Status(message.sid, message.status, codes.why(code), code)


def _may_be(message: Any, lost: Lost) -> bool:
    if not message.body:
        return bool(message.num_media == "0")
    if lost.text is not None:
        return _words(message.body) == _words(lost.text)
    # A template's wording is Meta's, so any that is not known to be another delivery's may be it.
    return all(_words(message.body) != _words(other) for other in lost.others)


def _words(text: str | None) -> list[str]:
    """Return what is compared: Twilio may trim what stands around or between the lines."""
    return (text or "").split()
