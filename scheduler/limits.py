"""Limits: how many deferred runs a tenant may have booked at a time, and how far ahead.

What counts is active, scheduled or firing; what has ended does not. Whoever books holds the tenant's row until it has
committed, so that two who book at the same moment do not both take the last place.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from scheduler.when import LONGEST_LEAD
from store.database import bucket_of, sql

MOST_ACTIVE = 1_000
"""Deferred runs that one tenant may have booked at a time, unless it is given another limit."""
MOST_LEAD = timedelta(days=3650)
"""The furthest that any tenant may be allowed to book ahead."""


class LimitsSection(BaseModel, extra="forbid", frozen=True):
    """What one tenant's servers may book: the `limits` of its file."""

    active: Annotated[int, Field(ge=0, le=1_000_000)] = MOST_ACTIVE
    """Deferred runs that are scheduled or firing at a time."""
    lead_days: Annotated[int, Field(ge=1, le=MOST_LEAD.days)] = LONGEST_LEAD.days
    """Days ahead for which one may be booked."""

    @property
    def lead(self) -> timedelta:
        """How far ahead one may be booked."""
        return timedelta(days=self.lead_days)


# Not a full lock: whatever only names the tenant goes on.
HOLD = """
select tenant from tenants
 where bucket = any(cast(:buckets as smallint[])) and tenant = any(cast(:tenants as text[]))
 order by bucket, tenant
   for no key update
"""
COUNT = """
select tenant, count(*) as active from tasks
 where bucket = any(cast(:buckets as smallint[])) and tenant = any(cast(:tenants as text[]))
   and kind = 'function' and state in ('scheduled', 'firing')
 group by tenant
"""
KNOWN = """
select t.tenant, t.idempotency_key
  from unnest(cast(:buckets as smallint[]), cast(:tenants as text[]), cast(:keys as text[])) as k (bucket, tenant, key)
  join tasks t on t.bucket = k.bucket and t.tenant = k.tenant and t.idempotency_key = k.key
"""


async def active(connection: AsyncConnection, tenants: Sequence[str]) -> dict[str, int]:
    """Hold these tenants until the transaction ends, and return how many deferred runs each has booked."""
    each = sorted(set(tenants))
    given = {"buckets": [bucket_of(tenant) for tenant in each], "tenants": each}
    await connection.execute(sql(HOLD), given)
    counts = {row.tenant: int(row.active) for row in await connection.execute(sql(COUNT), given)}
    return {tenant: counts.get(tenant, 0) for tenant in each}


async def known(connection: AsyncConnection, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of these (tenant, idempotency key) have booked something already."""
    given = {
        "buckets": [bucket_of(tenant) for tenant, _ in keys],
        "tenants": [tenant for tenant, _ in keys],
        "keys": [key for _, key in keys],
    }
    return {(row.tenant, row.idempotency_key) for row in await connection.execute(sql(KNOWN), given)}
