"""Waiting for something that sends no signal of its own: looks often, and fails loudly."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 10) -> None:
    """Return as soon as something holds; raises TimeoutError when it does not within the time."""
    async with asyncio.timeout(seconds):
        while True:
            answer = holds()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)
