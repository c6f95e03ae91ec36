"""How the web channel is heard: a message is taken in the conversation that its session opens, and so many in a minute.

WebError
├── NotThere   the conversation was another's by the time the message came
└── TooMany    more were written within a minute than are taken
"""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a visitor's message is taken in."""

    conversation: int
    """The one that its session opens: nowhere else, and never in a new one."""
    most_a_minute: int


class WebError(Exception):
    """A visitor's message is not taken in."""


class NotThere(WebError):
    """The conversation went on in another: its visitor has signed in meanwhile."""


class TooMany(WebError):
    """More than are taken within a minute; the next is taken after `retry_after`."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(f"the next is taken after {retry_after}")
        self.retry_after = retry_after
