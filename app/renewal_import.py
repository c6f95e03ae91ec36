"""Taking renewals in, a thousand at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.renewal_files import Broken, Line
from app.renewals import Became, enrol, keys_of
from app.service import Service
from app.tenants_file import TenantConfig
from store import conversations, renewals
from store.renewals import Wanted

AT_A_TIME = 1000


@dataclass(slots=True)
class Report:
    """What became of the lines of a file."""

    became: Counter[Became] = field(default_factory=Counter)
    refused: int = 0
    shown: list[Broken] = field(default_factory=list)
    """Those that were refused, or the first of them."""
    strangers: int = 0
    """Of those that were taken: who has neither agreed nor ever written, so that nothing is sent to them."""


def refuse(lines: Iterable[Line | Broken], report: Report, most: int | None) -> Iterator[Line]:
    """Yield what is a renewal, and note what is refused, `most` of it with why."""
    for line in lines:
        if isinstance(line, Line):
            yield line
            continue
        report.refused += 1
        if most is None or len(report.shown) < most:
            report.shown.append(line)


async def take(
    service: Service,
    tenant: TenantConfig,
    lines: Iterator[Line],
    report: Report,
    by: str,
    told: Callable[[], None] = lambda: None,
) -> None:
    """Enrol what lines are, each thousand in a transaction of its own, and count; `told` is called after each.

    While the database is busy with one thousand the next is made ready: of two at a time no subject is in both. The first goes
    alone: where it is the first of all, the database is then told to look at what it has.
    """

    async def enrolled(some: Sequence[Wanted]) -> None:
        report.became.update(await enrol(service, tenant, some, by))
        report.strangers += await _strangers(service, tenant, some)
        told()

    before: asyncio.Task[None] | None = None
    begun: list[asyncio.Task[None]] = []
    try:
        while some := [line.wanted for line in islice(lines, AT_A_TIME)]:
            begun = [*begun[-1:], asyncio.create_task(enrolled(some))]
            if before is not None:
                await before
            else:
                await begun[-1]
                async with service.database.transaction() as connection:
                    await renewals.analyze_if_new(connection)
            before = begun[-1]
            await asyncio.sleep(0)  # so that it is asked before the next lines are read
    finally:  # whatever stops it, what was begun is counted
        await asyncio.gather(*begun, return_exceptions=True)
    if before is not None:
        await before


async def _strangers(service: Service, tenant: TenantConfig, wanted: Sequence[Wanted]) -> int:
    there = [name for name, section in tenant.channels if section is not None]
    asked = [[pair for pair in keys_of(one.addresses) if pair[0] in there] for one in wanted if not one.agreed]
    async with service.database.autocommit() as connection:
        met = await conversations.known(connection, tenant.tenant, [pair for pairs in asked for pair in pairs])
    return sum(met.isdisjoint(pairs) for pairs in asked)
