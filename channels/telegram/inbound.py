"""From Telegram's update to `Inbound`, `Membership` or `Moved`: the same for the webhook and for polling."""

import hmac
import re
from collections.abc import Mapping
from typing import Any, cast

from channels.errors import Malformed, Refused
from channels.message import Inbound, Incoming, Membership, Moved
from channels.text import clean
from store.blank import is_blank

ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "my_chat_member",
    "business_connection",
    "business_message",
    "edited_business_message",
    "stopped_message_generation",
)
"""The kinds of update that are asked for, in a webhook and in polling alike. What an edit says is not read, and nothing we
send has buttons; they are acknowledged and passed over, as is every kind that Telegram adds one day."""

LARGEST = 1024 * 1024
"""Bytes of an update that are read. A text of 4,096 letters, six bytes each as Telegram writes them, with a mark on every
other, and the like once more in the message that it answers, make half of it. What is not accepted comes again, and keeps
waiting what comes behind it in its chat."""

_CHATS = ("private", "group", "supergroup")
_CONNECTION = re.compile(r"[!-~]{1,200}")

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


def read_update(update: Mapping[str, Any], tenant: str, bot_id: str, bot_name: str | None = None) -> Incoming:
    """Read one update, as JSON gave it: a message from a person to this bot, or word of a chat that lets it in or not, or moves.

    `bot_name` is the bot's username, by which a group addresses it. A message's `thread` is a topic's number,
    `direct:ID` in the direct messages of a channel, or `business:ID` in a chat of a business that has connected the bot
    to its own account. Raises Malformed for everything else: other kinds of update, other bots, what is not said to the
    bot, what holds nothing to read, and what is not an update at all.
    """
    if isinstance(update, Mapping) and "my_chat_member" in update:
        return _read_membership(_object(update, "my_chat_member"), tenant)
    is_business = isinstance(update, Mapping) and "business_message" in update
    message = _object(update, "business_message" if is_business else "message")
    chat = _object(message, "chat")
    if not is_business and ("migrate_to_chat_id" in message or "migrate_from_chat_id" in message):
        return _read_move(message, chat, tenant)
    sender = _object(message, "from")
    kind = chat.get("type")
    if kind not in _CHATS:
        raise Malformed("not a private chat or a group")
    address = str(_id(chat, "id"))
    is_alone = kind == "private" or chat.get("is_direct_messages") is True
    # In a group a person may speak as the group itself or as a channel, and an account of Telegram's own stands for them.
    has_mask = not is_alone and isinstance(message.get("sender_chat"), Mapping)
    # What a channel says comes into its group as if from a person.
    if message.get("is_automatic_forward") is True or not (has_mask or sender.get("is_bot") is False):
        raise Malformed("not from a person")
    thread = _business(message, address) if is_business else _thread(message, chat)

    said = _string(message, "text") or _string(message, "caption")
    if not is_alone and not _is_addressed(message, said, bot_id, bot_name):
        raise Malformed("said in a group, but not to the bot")
    # Where nobody else listens the agent can at least say that it cannot see it.
    unreadable = next((f"[{name}]" for name in _UNREADABLE if is_alone and message.get(name)), "")
    text = f"{unreadable} {said}".strip()
    if is_blank(text):
        raise Malformed("nothing to read")

    known = {} if has_mask else sender
    language = _LANGUAGE.match(_string(known, "language_code"))
    return Inbound(
        tenant=tenant,
        channel="telegram",
        address=address,
        # A channel's direct messages are one chat, in which every customer has a topic of their own.
        address_key=f"{address} {thread}" if chat.get("is_direct_messages") is True else address,
        # An update's number can be given to another one, after a week without any; hardly that with the message's as well.
        provider_id=f"{bot_id}:{_id(update, 'update_id')}:{_natural(message, 'message_id')}",
        text=text,
        thread=thread,
        reply_to=str(_natural(message, "message_id")),
        name=f"{_string(known, 'first_name')} {_string(known, 'last_name')}".strip() or None,
        language=language[1].lower() if language else None,
    )


def is_id(value: object) -> bool:
    """Tell whether a value is a number such as Telegram gives to chats, messages and updates: whole, of 64 bits."""
    return type(value) is int and abs(value) < 2**63


def _read_membership(member: Mapping[str, Any], tenant: str) -> Membership:
    chat, now = _object(member, "chat"), _object(member, "new_chat_member")
    if chat.get("type") not in _CHATS:
        raise Malformed("not a private chat or a group")
    status = now.get("status")
    if status in ("left", "kicked"):
        is_in = False
    elif status in ("creator", "administrator", "member"):
        is_in = True
    elif status == "restricted":
        is_in = now.get("is_member") is True and now.get("can_send_messages") is True
    else:
        raise Malformed("no status that is known")
    return Membership(tenant, "telegram", str(_id(chat, "id")), is_in)


def _read_move(message: Mapping[str, Any], chat: Mapping[str, Any], tenant: str) -> Moved:
    """Read word of a group that became a supergroup, which is told once in each of the two."""
    here = _id(chat, "id")
    if "migrate_to_chat_id" in message:
        old, new = here, _id(message, "migrate_to_chat_id")
    else:
        old, new = _id(message, "migrate_from_chat_id"), here
    if old >= 0 or new >= 0:
        raise Malformed("not a group that moved")
    return Moved(tenant, "telegram", str(old), str(new))


def _business(message: Mapping[str, Any], address: str) -> str:
    """Return the thread of a message in a business's own chat, written by its customer."""
    connection = _string(message, "business_connection_id")
    if _CONNECTION.fullmatch(connection) is None:
        raise Malformed("no business connection to answer by")
    # What the business itself writes there, by hand or through a bot, comes as an update too.
    if str(_id(_object(message, "from"), "id")) != address:
        raise Malformed("said by the business, not to it")
    return f"business:{connection}"


def _thread(message: Mapping[str, Any], chat: Mapping[str, Any]) -> str | None:
    if chat.get("is_direct_messages") is True:
        topic = _object(message, "direct_messages_topic")
        user = topic.get("user")
        if message.get("sender_chat") or (isinstance(user, Mapping) and user.get("id") != message["from"].get("id")):
            raise Malformed("said by the channel, not to it")
        return f"direct:{_natural(topic, 'topic_id')}"
    # In an ordinary group the same key names a thread of replies, to which nothing can be sent.
    return str(_natural(message, "message_thread_id")) if message.get("is_topic_message") is True else None


def _is_addressed(message: Mapping[str, Any], said: str, bot_id: str, bot_name: str | None) -> bool:
    """Tell whether a group message is said to this bot: by name, as a command, or as a reply to it."""
    command = _COMMAND.match(said)
    if command and (command[1] is None or command[1].lower() == (bot_name or "").lower()):
        return True
    if bot_name and re.search(rf"(?<!\w)@{re.escape(bot_name)}(?!\w)", said, re.IGNORECASE):
        return True
    if command and command[1]:  # another bot's, whatever it is a reply to
        return False
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
    if not is_id(value):
        raise Malformed(f"{key} is not an id")
    return cast("int", value)


def _natural(parent: Mapping[str, Any], key: str) -> int:
    value = _id(parent, key)
    if value < 0:
        raise Malformed(f"{key} is not an id")
    return value


def _string(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return clean(value).strip() if isinstance(value, str) else ""
