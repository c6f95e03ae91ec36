"""A visitor signs in who has written before they did: what was said and what is pending goes along, and nothing stays behind.

Where the user has no conversation yet, the visitor's becomes theirs, and there is nothing to move. This is for the others.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.clock import Clock
from scheduler.move import lock_pending, take_along
from store import merge

WHY = "its visitor has signed in, and it goes on in the user's conversation"


async def bring_along(clock: Clock, connection: AsyncConnection, tenant: str, conversation: int, to: int) -> None:
    """Move a visitor's conversation into the user's; both contacts are locked. Hint `due` after the commit.

    An answer that is being written is written again there: whoever writes it has lost its claim.
    """
    # Twice: what a turn books while it is waited for is not among what the first has seen.
    await lock_pending(connection, tenant, [conversation])
    await lock_pending(connection, tenant, [conversation])
    behind = await merge.lock(connection, tenant, conversation, to)
    await take_along(connection, clock, tenant, conversation, to, behind=behind, why=WHY)
    await merge.merge(
        connection, tenant, conversation, to, behind, known_as=f"web:{conversation}:", to_be_known_as=f"web:{to}:"
    )
