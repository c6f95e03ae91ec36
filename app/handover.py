"""A person takes a conversation over, says something in it, and gives it back to the agent.

While a person has it the agent says nothing there. A turn that is due is held (`with a person`), with all that the customer
writes meanwhile joining it; what is booked is held too, unless the tenant's file says that it goes on. Held rows can be
cancelled, and go on when the conversation is given back: the turn then answers what nobody has answered.

Looked at where a turn begins and once more when its words are written; where what is booked begins, and at its second door.
So what was written before the person came may still go out, and nothing that was written after.

- A command, or a word of opting out, is answered all the same: no model is asked for that.
- What the person says goes the way of every notice. It answers what the customer has written until then: a turn that would
  answer it too is cancelled, before it speaks or not at all.
"""

from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from app import commands
from app.tenants_file import TenantConfig
from scheduler.book import Booked, Booking, book
from scheduler.cancel import cancel
from scheduler.clock import Clock
from scheduler.find import unsaid_turns
from scheduler.hold import WITH_PERSON, release
from scheduler.task import Task
from store import contacts, conversations, messages
from store.contacts import Stopped
from store.conversations import Conversation

LONGEST_WORDS = 16_000
BY = "a person, who answered"


class NotWithPerson(ValueError):
    """A conversation that is the agent's; the message says what to do."""


def is_by_person(task: Task) -> bool:
    """Tell whether a task says a person's own words."""
    return task.kind == "notice" and bool(task.payload.get("is_by_person"))


def hindered_by(conversation: Conversation, task: Task) -> Stopped | None:
    """Return who has said that what a task says is not to be sent; None where nobody has.

    What a person answers to a customer who has opted out, and has asked something since, was just asked for.
    """
    return None if conversation.stopped == "customer" and is_by_person(task) else conversation.stopped


def waits(tenant: TenantConfig, conversation: Conversation, task: Task) -> bool:
    """Tell whether a task has to wait until a conversation is the agent's again."""
    if conversation.with_person_since is None or is_by_person(task):
        return False
    if task.kind == "turn":
        return "phrase" not in task.payload
    return tenant.handover.booked == "hold"


async def resume(connection: AsyncConnection, clock: Clock, tenant: str, conversation: int) -> bool:
    """Give a conversation back to the agent, and let go on what waited for that; False when it is the agent's already.

    Hint `due` after the commit.
    """
    await contacts.lock(connection, tenant, conversation)  # as whoever takes a message in: else a turn could miss it
    if not await conversations.take_back(connection, tenant, conversation):
        return False
    await release(connection, clock, tenant, WITH_PERSON, conversation=conversation)
    return True


async def reply(
    connection: AsyncConnection, clock: Clock, tenant: TenantConfig, conversation: Conversation, words: str
) -> Booked:
    """Have a person's words said, once, in a conversation that they have taken over. Hint `due` after the commit.

    Raises NotWithPerson; ValueError for words that cannot be said.
    """
    words = words.replace("\0", "").strip()
    if not words or len(words) > LONGEST_WORDS:
        raise ValueError(f"there must be 1 to {LONGEST_WORDS} characters to say, and there are {len(words)}")
    name = tenant.tenant
    await contacts.lock(connection, name, conversation.id)  # before tasks, and these before the conversation
    turns = await unsaid_turns(connection, name, conversation.id)
    await cancel(connection, clock, name, turns, conversation=conversation.id, by=BY)
    found = await conversations.find(connection, name, conversation.id)
    if found is None or found.with_person_since is None:
        raise NotWithPerson(
            f"conversation {conversation.id} is the agent's: vuelvo conversations pause {conversation.id} takes it over"
        )
    _, asked = await messages.to_answer(connection, name, found.id, found.answered_seq, most=1, history=0)
    if found.stopped == "customer" and not asked:
        raise ValueError("the customer has opted out and has asked nothing since: nothing may be sent to them")
    await conversations.mark_answered(connection, name, found.id, found.last_seq)
    language = await commands.last_language(connection, tenant, found)
    said = Booking(
        name,
        "notice",
        timedelta(),
        found.id,
        found.channel,
        payload={"words": words, "language": language, "is_by_person": True},
        lane=True,  # there is nothing to write: what a person says one after another is said in that order
    )
    return await book(connection, clock, said)
