"""A tenant's budget for a day: what runs that nobody watches may use. A conversation is never held for it."""

import logging
from datetime import date, datetime
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncConnection

from app.service import Service
from app.tenants_file import TenantConfig
from store import usage

log = logging.getLogger(__name__)

USED_UP = "the tenant's budget for the day is used up"


async def used_up(service: Service, tenant: TenantConfig, now: datetime) -> bool:
    """Tell whether no tokens are left of a tenant's day; the operator is told, too."""
    if tenant.budget.tokens_a_day is None:
        return False
    async with service.database.autocommit() as connection:
        used = await usage.of(connection, tenant.tenant, today(tenant, now))
    if used.tokens < tenant.budget.tokens_a_day:
        return False
    service.counts.over_budget.labels(tenant.tenant).inc()
    log.error("the budget of tenant %s for the day is used up: %d tokens", tenant.tenant, used.tokens)
    return True


async def has_said_enough(connection: AsyncConnection, tenant: TenantConfig, now: datetime) -> bool:
    """Tell whether a tenant has said as many notices today as it may."""
    most = tenant.budget.notices_a_day
    return most is not None and (await usage.of(connection, tenant.tenant, today(tenant, now))).messages >= most


def today(tenant: TenantConfig, now: datetime) -> date:
    """Return a tenant's day."""
    return now.astimezone(ZoneInfo(tenant.time_zone)).date()
