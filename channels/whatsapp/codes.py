"""What Twilio's error codes mean for a send.

| the answer                         | outcome                                                |
|------------------------------------|--------------------------------------------------------|
| 5xx, 408                           | Unknown: it may have been taken before the error       |
| a code of the table                | as the table says                                      |
| 429                                | NotSent: not processed, safe to try again              |
| 401, 403, 404                      | Rejected, and so is every other message of this tenant |
| any other 4xx                      | Rejected                                               |
| anything else                      | Unknown                                                |

https://www.twilio.com/docs/api/errors
"""

from enum import Enum, auto

from channels.message import NotSent, Outcome, Rejected, Unknown


class Kind(Enum):
    """What to do about a code."""

    LATER = auto()
    """Not taken; safe to try again soon."""
    HOURS_LATER = auto()
    """Not taken; the account's count per moving 24 hours is full."""
    FINAL = auto()
    """This message will never go out."""
    TENANT = auto()
    """Nothing will go out until the tenant mends the account or the sender."""


HOURS_LATER = 4 * 3600.0
"""Seconds to wait for a moving day's count to free up; Twilio does not say when it does."""

CODES: dict[int, tuple[Kind, str]] = {
    20003: (Kind.TENANT, "Twilio does not accept the account SID and auth token"),
    20404: (Kind.TENANT, "Twilio does not know this account: the account SID or the API address is wrong"),
    20429: (Kind.LATER, "too many requests to Twilio at a time"),
    21211: (Kind.FINAL, "the customer's address is not valid"),
    21212: (Kind.FINAL, "the sender is not valid"),
    21408: (Kind.FINAL, "the Twilio account may not send to the customer's region"),
    21602: (Kind.FINAL, "the message has no text"),
    21603: (Kind.FINAL, "the message has no sender"),
    21606: (Kind.FINAL, "the sender does not belong to the Twilio account"),
    21610: (Kind.FINAL, "the customer has opted out"),
    21611: (Kind.LATER, "the sender's queue at Twilio is full"),
    21614: (Kind.FINAL, "the customer's address cannot receive messages"),
    21617: (Kind.FINAL, "the text is too long"),
    21623: (Kind.FINAL, "too many media"),
    21656: (Kind.FINAL, "the template's variables are not valid"),
    21658: (Kind.FINAL, "a variable of the template is too long"),
    30001: (Kind.LATER, "Twilio's queue is full"),
    63001: (Kind.TENANT, "WhatsApp does not accept the sender's credentials"),
    63002: (Kind.TENANT, "WhatsApp does not know the sender"),
    63003: (Kind.FINAL, "WhatsApp cannot reach the customer's address"),
    63007: (Kind.TENANT, "the sender is not a WhatsApp sender of this Twilio account"),
    63008: (Kind.TENANT, "the WhatsApp sender is not set up rightly at Twilio"),
    63014: (Kind.FINAL, "the customer has blocked the sender or opted out"),
    63015: (Kind.FINAL, "the customer has not joined the sandbox"),
    63016: (Kind.FINAL, "more than 24 hours have passed since the customer's last message"),
    63018: (Kind.LATER, "too many messages from this sender, or to this customer"),
    63020: (Kind.TENANT, "the WhatsApp sender is not set up at Meta"),
    63022: (Kind.TENANT, "the WhatsApp sender has no valid certificate at Meta"),
    63024: (Kind.FINAL, "the customer's address is not on WhatsApp"),
    63038: (Kind.HOURS_LATER, "the Twilio account has sent all it may send within 24 hours"),
    63051: (Kind.TENANT, "Meta has locked the WhatsApp business account"),
}


def judge(status: int, code: int | None, said: str, retry_after: float | None) -> Outcome:
    """Return the outcome of a send that Twilio answered with an error: its HTTP status, code, message and Retry-After."""
    if status >= 500 or status == 408:
        return Unknown(f"Twilio failed with HTTP {status}{_quoted(code, said)}")
    if code in CODES:
        kind, words = CODES[code]
    elif status == 429:
        kind, words = Kind.LATER, "too many requests to Twilio"
    elif status in (401, 403, 404):
        kind, words = Kind.TENANT, f"Twilio refused the account with HTTP {status}"
    elif 400 <= status < 500:
        kind, words = Kind.FINAL, f"Twilio refused the message with HTTP {status}"
    else:
        return Unknown(f"Twilio answered HTTP {status}, which says nothing about the message{_quoted(code, said)}")

    reason = words + _quoted(code, said)
    if kind is Kind.LATER:
        return NotSent(reason, retry_after)
    if kind is Kind.HOURS_LATER:
        return NotSent(reason, max(HOURS_LATER, retry_after or 0))
    return Rejected(reason, tenant_fault=kind is Kind.TENANT)


def judge_failed(code: int | None, said: str) -> Rejected:
    """Return the outcome of a message that Twilio took and then declared failed, with its error code if there is one."""
    kind, words = CODES.get(code or 0, (Kind.FINAL, "Twilio took the message and then failed it"))
    return Rejected(words + _quoted(code, said), tenant_fault=kind is Kind.TENANT)


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


def _quoted(code: int | None, said: str) -> str:
    detail = ", ".join(part for part in (f"error {code}" if code else "", said) if part)
    return f" (Twilio: {detail})" if detail else ""
