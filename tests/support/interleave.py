"""Two sessions of one database, and every order in which their steps can be taken."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

Step = Callable[[], Awaitable[None]]


def orders(first: int, second: int) -> Iterator[str]:
    """Every order of so many steps of A and so many of B, as "AABAB"."""
    places = range(first + second)
    for chosen in combinations(places, first):
        yield "".join("A" if place in chosen else "B" for place in places)


ANSWER = 0.001
"""Seconds a statement is given to answer before the server is asked, again and again, whether it waits."""


async def interleave(
    order: str, programs: Mapping[str, Sequence[Step]], is_waiting: Callable[[str], Awaitable[bool]]
) -> None:
    """Take the steps of two programs in this order; `is_waiting` asks the server whether one waits for the other's lock.

    While one waits its further steps wait too, and the other goes on until it has let it go.
    """
    left = {name: deque(steps) for name, steps in programs.items()}
    turns, under_way = list(order), dict[str, asyncio.Future[None]]()
    try:
        while turns:
            name = next((name for name in turns if name not in under_way), None)
            assert name is not None, "they wait for each other"
            turns.remove(name)
            under_way[name] = asyncio.ensure_future(left[name].popleft()())
            for each in sorted(under_way, key=lambda each: each != name):
                if await is_done(under_way[each], partial(is_waiting, each)):
                    await under_way.pop(each)
        assert not under_way, "they wait for each other"
    finally:
        for step in under_way.values():
            step.cancel()
        await asyncio.gather(*under_way.values(), return_exceptions=True)


async def is_done(step: asyncio.Future[None], is_waiting: Callable[[], Awaitable[bool]]) -> bool:
    """Return when a step is done, or waits for what only the other can let go of; tell which."""
    while not (await asyncio.wait([step], timeout=ANSWER))[0]:
        if await is_waiting():
            return False
    return True
