"""A stream lives no longer than its session: signed out, replaced, or no longer let in by the tenant, it is told nothing more."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

LOOK_EVERY = 5.0
"""Seconds for which a stream takes its session for alive."""


async def while_admitted(
    told: AsyncGenerator[str, None], is_admitted: Callable[[], Awaitable[bool]], *, every: float = LOOK_EVERY
) -> AsyncGenerator[str, None]:
    """Hand on what a stream tells until its session is not admitted any more.

    Asked when there is something to tell, and at most every so many seconds: who only listens costs nothing.
    """
    now = asyncio.get_running_loop().time
    asked_at = now()
    async with aclosing(told):
        async for chunk in told:
            if not chunk.startswith(":") and now() - asked_at >= every:
                # Shielded, because a browser that leaves cancels this, and a cancelled read costs a connection.
                if not await asyncio.shield(is_admitted()):
                    return
                asked_at = now()
            yield chunk
