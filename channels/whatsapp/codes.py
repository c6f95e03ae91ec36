"""What Twilio's error codes mean for a send.

| the answer                         | outcome                                                |
|------------------------------------|--------------------------------------------------------|
| 5xx, 408                           | Unknown: it may have been taken before the error       |
| a code of the table                | as the table says                                      |
| 429                                | NotSent: not processed, safe to try again              |
| 401, 403, 404                      | Rejected, and so is every other message of this tenant |
| any other 4xx                      | Rejected                                               |
| anything else                      | Unknown                                                |

A message that was taken can fail later, by callback. `remedy` says what is left of it then: as the table says, or, for a
code that it does not have, nothing.

https://www.twilio.com/docs/api/errors
"""

from enum import Enum, auto

from channels.message import NotSent, Outcome, Rejected, Remedy, Unknown


class Kind(Enum):
    """What to do about a code."""

    LATER = auto()
    """Not taken; safe to try again soon."""
    SLOWER = auto()
    """Not taken; the sender is to send nothing for a moment, to anybody."""
    HOURS_LATER = auto()
    """Not taken; the account's count per moving 24 hours is full."""
    FINAL = auto()
    """This message will never go out."""
    TENANT = auto()
    """Nothing will go out until the tenant mends the account or the sender."""


SLOWER = 60.0
"""Seconds for a sender's queue to empty a little; it holds hours of messages when it is full."""
HOURS_LATER = 4 * 3600.0
"""Seconds to wait for a moving day's count to free up; Twilio does not say when it does."""

CODES: dict[int, tuple[Kind, str]] = {
    20003: (Kind.TENANT, "Twilio does not accept the account SID and auth token"),
    20404: (Kind.TENANT, "Twilio does not know this account: the account SID or the API address is wrong"),
    20429: (Kind.LATER, "too many requests to Twilio at a time"),
    21211: (Kind.FINAL, "the customer's address is not valid"),
    21212: (Kind.FINAL, "the sender is not valid"),
    21408: (
        Kind.FINAL,
        "the Twilio account may not send to the customer's region: allow it in Twilio's console, under Geo permissions",
    ),
    21602: (Kind.FINAL, "the message has no text"),
    21603: (Kind.FINAL, "the message has no sender"),
    21606: (Kind.FINAL, "the sender does not belong to the Twilio account"),
    21610: (Kind.FINAL, "the customer has opted out"),
    21611: (Kind.SLOWER, "the sender's queue at Twilio is full"),
    21614: (Kind.FINAL, "the customer's address cannot receive messages"),
    21617: (Kind.FINAL, "the text is too long"),
    21623: (Kind.FINAL, "too many media"),
    21656: (Kind.FINAL, "the template's variables are not valid"),
    21658: (Kind.FINAL, "a variable of the template is too long"),
    30001: (Kind.LATER, "Twilio's queue is full"),
    30500: (Kind.FINAL, "something went wrong at Twilio"),
    63001: (Kind.TENANT, "WhatsApp does not accept the sender's credentials"),
    63002: (Kind.TENANT, "WhatsApp does not know the sender"),
    63003: (Kind.FINAL, "WhatsApp cannot reach the customer's address"),
    63005: (Kind.FINAL, "WhatsApp does not take this content"),
    63007: (Kind.TENANT, "the sender is not a WhatsApp sender of this Twilio account"),
    63008: (Kind.TENANT, "the WhatsApp sender is not set up rightly at Twilio"),
    63010: (Kind.FINAL, "something went wrong at WhatsApp"),
    63012: (Kind.FINAL, "something went wrong at WhatsApp"),
    63013: (
        Kind.FINAL,
        "the content breaks a rule of WhatsApp's, such as an empty place in a template or a line break in one",
    ),
    63014: (Kind.FINAL, "the customer has blocked the sender or opted out"),
    63015: (Kind.FINAL, "the customer has not joined the sandbox"),
    63016: (Kind.FINAL, "more than 24 hours have passed since the customer's last message"),
    63018: (Kind.LATER, "too many messages from this sender, or to this customer"),
    63019: (Kind.FINAL, "a file could not be fetched or sent"),
    63020: (Kind.TENANT, "the WhatsApp sender is not set up at Meta"),
    63021: (Kind.FINAL, "the content is not valid for WhatsApp, or too long"),
    63022: (Kind.TENANT, "the WhatsApp sender has no valid certificate at Meta"),
    63023: (Kind.FINAL, "something went wrong on the way to WhatsApp"),
    63024: (Kind.FINAL, "the customer's address is not on WhatsApp"),
    63027: (Kind.FINAL, "the template is not there in this language: name another in the tenant's file"),
    63028: (Kind.FINAL, "the template has other places than were filled: mend its variables in the tenant's file"),
    63029: (Kind.FINAL, "the template could not be fetched: name another in the tenant's file"),
    63030: (Kind.FINAL, "WhatsApp does not know a parameter of the message"),
    63032: (Kind.FINAL, "Meta keeps messages from this customer for now"),
    63038: (
        Kind.HOURS_LATER,
        "the Twilio account has sent all it may send within 24 hours: ask Twilio for a higher limit",
    ),
    63040: (Kind.FINAL, "Meta has rejected the template: submit another, and name it in the tenant's file"),
    63041: (Kind.FINAL, "Meta has paused the template"),
    63042: (Kind.FINAL, "Meta has disabled the template: submit another, and name it in the tenant's file"),
    63049: (
        Kind.FINAL,
        "Meta withholds the template, as marketing, from this customer: use one of the category utility",
    ),
    63051: (Kind.TENANT, "Meta has locked the WhatsApp business account"),
}


WINDOW_SHUT = 63016
DAY_FULL = 63038
_REMEDIES: dict[int, Remedy] = {
    WINDOW_SHUT: "template",
    # The failure is confirmed, so that another attempt is no second message.
    **dict.fromkeys((30500, 63010, 63012, 63023), "once"),
    **dict.fromkeys((63041, 63049), "later"),
}
_OF_KIND: dict[Kind, Remedy] = {
    Kind.LATER: "later",
    Kind.SLOWER: "later",
    Kind.HOURS_LATER: "later",
    Kind.FINAL: "none",
    Kind.TENANT: "mend",
}
_BLOCKED = (21610, 63014)


def remedy(code: int | None) -> Remedy:
    """Return what is left to do for a message that Twilio took and then failed with this code."""
    if code in _REMEDIES:
        return _REMEDIES[code]
    if code in _BLOCKED:
        return "blocked"
    return _OF_KIND[CODES[code][0]] if code in CODES else "none"


def judge(status: int, code: int | None, said: str, retry_after: float | None) -> Outcome:
    """Return the outcome of a send that Twilio answered with an error: its HTTP status, code, message and Retry-After."""
    if status >= 500 or status == 408:
        return Unknown(f"Twilio failed with HTTP {status}{quoted(code, said)}")
    if code in CODES:
        kind, words = CODES[code]
    elif status == 429:
        kind, words = Kind.LATER, "too many requests to Twilio"
    elif status in (401, 403, 404):
        kind, words = Kind.TENANT, f"Twilio refused the account with HTTP {status}"
    elif 400 <= status < 500:
        kind, words = Kind.FINAL, f"Twilio refused the message with HTTP {status}"
    else:
        return Unknown(f"Twilio answered HTTP {status}, which says nothing about the message{quoted(code, said)}")

    reason = _told(kind, words) + quoted(code, said)
    if kind is Kind.LATER:
        return NotSent(reason, retry_after)
    if kind is Kind.SLOWER:
        return NotSent(reason, max(SLOWER, retry_after or 0))
    if kind is Kind.HOURS_LATER:
        return NotSent(reason, max(HOURS_LATER, retry_after or 0))
    return Rejected(reason, tenant_fault=kind is Kind.TENANT, code=code, is_blocked=code in _BLOCKED)


def judge_failed(code: int | None, said: str) -> Rejected:
    """Return the outcome of a message that Twilio took and then declared failed, with its error code if there is one."""
    kind, words = CODES.get(code or 0, (Kind.FINAL, "Twilio took the message and then failed it"))
    reason = _told(kind, words) + quoted(code, said)
    return Rejected(reason, tenant_fault=kind is Kind.TENANT, code=code, is_blocked=code in _BLOCKED)


def _told(kind: Kind, words: str) -> str:
    return f"{words}; mend that, and apply the tenant's file" if kind is Kind.TENANT else words


def why(code: int | None) -> str | None:
    """Return why a message does not arrive, where Twilio gave a code for it."""
    return None if code is None else judge_failed(code, "").reason


def code_of(value: object) -> int | None:
    """Return Twilio's error code, or None; where it gave none, its library puts the HTTP status in its place."""
    try:
        code = int(str(value))
    except ValueError:
        return None
    return code if code >= 10_000 else None


def quoted(code: int | None, said: str) -> str:
    """Return Twilio's own code and words in brackets, to stand behind ours; empty where it gave neither."""
    detail = ", ".join(part for part in (f"error {code}" if code else "", said) if part)
    return f" (Twilio: {detail})" if detail else ""
