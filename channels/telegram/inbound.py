"""From Telegram's update to `Inbound`: the same for the webhook and for polling."""

import hmac
import re
from collections.abc import Mapping
from typing import Any

from channels.errors import Malformed, Refused
from channels.message import Inbound
from channels.text import clean
from store.blank import is_blank

_UNREADABLE = (
    "photo",
    "voice",
    "audio",
    "video",
    "video_note",
    "animation",
    "document",
    "sticker",
    "venue",
    "location",
    "contact",
    "poll",
    "dice",
    "story",
)
"""What a person sends besides text, by the key under which Telegram puts it; the more telling key first."""

_COMMAND = re.compile(r"/\w+(?:@(\w+))?(?![\w@/])")
_LANGUAGE = re.compile(r"([a-z]{2})(?![a-z])", re.IGNORECASE)


def check_secret(given: str | None, expected: str) -> None:
    """Check the header `X-Telegram-Bot-Api-Secret-Token` of a webhook call, in constant time.

    Raises Refused when it is missing or wrong, and always when none is expected: no secret is not an open door.
    """
    if not expected:
        raise Refused("no webhook secret is set for this bot, so nothing can prove that a call is Telegram's")
    if not hmac.compare_digest((given or "").encode("utf-8", "surrogatepass"), expected.encode()):
        raise Refused("the webhook secret is missing or wrong")


def read_update(update: Mapping[str, Any], tenant: str, bot_id: str, bot_name: str | None = None) -> Inbound:
    """Read one update, as JSON gave it, into a message from a person to this bot.

    `bot_name` is the bot's username, by which a group addresses it. Raises Malformed for everything else: other kinds
    of update, other bots, what is not said to the bot, what holds nothing to read, and what is not an update at all.
    """
    message = _object(update, "message")
    chat, sender = _object(message, "chat"), _object(message, "from")
    kind = chat.get("type")
    if kind not in ("private", "group", "supergroup"):
        raise Malformed("not a private chat or a group")
    if sender.get("is_bot") is not False:
        raise Malformed("not from a person")

    said = _string(message, "text") or _string(message, "caption")
    if kind != "private" and not _is_addressed(message, said, bot_id, bot_name):
        raise Malformed("said in a group, but not to the bot")
    # In private the agent can at least say that it cannot see it.
    unreadable = next((f"[{name}]" for name in _UNREADABLE if kind == "private" and message.get(name)), "")
    text = f"{unreadable} {said}".strip()
    if is_blank(text):
        raise Malformed("nothing to read")

    address = str(_id(chat, "id"))
    language = _LANGUAGE.match(_string(sender, "language_code"))
    return Inbound(
        tenant=tenant,
        channel="telegram",
        address=address,
        address_key=address,
        provider_id=f"{bot_id}:{_id(update, 'update_id')}",
        text=text,
        # In an ordinary group the same key names a thread of replies, to which nothing can be sent.
        thread=str(_id(message, "message_thread_id")) if message.get("is_topic_message") is True else None,
        reply_to=str(_id(message, "message_id")),
        name=f"{_string(sender, 'first_name')} {_string(sender, 'last_name')}".strip() or None,
        language=language[1].lower() if language else None,
    )


def _is_addressed(message: Mapping[str, Any], said: str, bot_id: str, bot_name: str | None) -> bool:
    """Tell whether a group message is said to this bot: by name, as a command, or as a reply to it."""
    command = _COMMAND.match(said)
    if command and (command[1] is None or command[1].lower() == (bot_name or "").lower()):
        return True
    if bot_name and re.search(rf"(?<!\w)@{re.escape(bot_name)}(?!\w)", said, re.IGNORECASE):
        return True
    answered = message.get("reply_to_message")
    # Every message in a topic counts as a reply to the topic's creation, which may have been the bot's.
    if not isinstance(answered, Mapping) or "forum_topic_created" in answered:
        return False
    author = answered.get("from")
    return isinstance(author, Mapping) and str(author.get("id")) == bot_id


def _object(parent: object, key: str) -> Mapping[str, Any]:
    value = parent.get(key) if isinstance(parent, Mapping) else None
    if not isinstance(value, Mapping):
        raise Malformed(f"no {key} in it")
    return value


def _id(parent: Mapping[str, Any], key: str) -> int:
    value = parent.get(key)
    if type(value) is not int or abs(value) >= 2**63:
        raise Malformed(f"{key} is not an id")
    return value


def _string(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return clean(value).strip() if isinstance(value, str) else ""
