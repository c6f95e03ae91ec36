"""Whether a visitor finds back to what is said in the web channel later: who has signed in does, another's browser forgets.

Safari deletes what scripts have stored after seven days of use without a visit to the page, and with it the session's
token. https://webkit.org/blog/10218/full-third-party-cookie-blocking-and-more/
"""

from datetime import datetime, timedelta

from channels.message import REACHABLE, Reach

REMEMBERED = timedelta(days=7)
ANONYMOUS, VERIFIED = "visitor:", "user:"
"""How the addresses begin of those of whom only the browser is known, and of those whose identity is proved."""

ADVICE = (
    "This visitor is anonymous, and that is further away than their browser is sure to remember this conversation. It is"
    " booked all the same. Tell them that to find the answer here they must open this page in this browser at least once"
    " every {span}{sign_in}."
)


def assess(
    address: str, due: datetime, now: datetime, *, lives_until: datetime | None, idle: timedelta, can_sign_in: bool
) -> Reach:
    """Tell whether a visitor can read at `due` what is said then; `lives_until` is when their session ends whatever they do.

    It is always written, so it is always possible; the advice is what they have to do to find it.
    """
    if not address.startswith(ANONYMOUS):
        return REACHABLE
    sign_in = ", or sign in on this page" if can_sign_in else ""
    if lives_until is not None and due >= lives_until:
        return Reach(
            True,
            advice="This visitor is anonymous, and this conversation closes for their browser on"
            f" {lives_until:%Y-%m-%d}, before that. It is booked all the same. Tell them that they will not find it here"
            f" then{' unless they sign in on this page before that' if can_sign_in else ''}.",
        )
    remembered = min(REMEMBERED, idle)
    if due - now <= remembered:
        return REACHABLE
    span = "week" if remembered == REMEMBERED else _span(remembered)
    return Reach(True, advice=ADVICE.format(span=span, sign_in=sign_in))


def _span(span: timedelta) -> str:
    if span >= timedelta(days=2):
        return f"{span.days} days"
    if span >= timedelta(hours=2):
        return f"{span // timedelta(hours=1)} hours"
    return f"{span // timedelta(minutes=1)} minutes"
