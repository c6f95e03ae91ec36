"""The commands a customer has on Telegram, for which no model is asked.

Only a message that is nothing but such a command counts. Whoever writes more than that, `/cancel the appointment`, is
answered by the model; so are all other commands.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast

Name = Literal["start", "help", "pending", "cancel", "stop"]

MENU: tuple[Name, ...] = ("pending", "cancel", "help", "stop", "start")
"""In the order in which the bot's menu shows them."""

# After /start stands what the link through which somebody came has said (Bot API, deep linking).
_COMMAND = re.compile(
    r"/(?:(start)(?:@\w+)?(?:\s+[A-Za-z0-9_-]{1,64})?|(help|pending|stop)(?:@\w+)?|(cancel)(?:@\w+)?(?:\s+#?([0-9]{1,18}))?)",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it was given."""

    name: Name
    number: int | None = None
    """Which one to cancel."""


def read(text: str) -> Command | None:
    """Return the command that a message is, or None. Whose bot it names is for whoever took the message in to know."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    name = (found[1] or found[2] or found[3]).lower()
    return Command(cast("Name", name), int(found[4]) if found[4] else None)
