"""The service and one tenant, for a command that is about that tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.cli.run import fail
from app.service import Service
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import running


@asynccontextmanager
async def of_tenant(settings: Settings, name: str) -> AsyncIterator[tuple[Service, TenantConfig]]:
    """Give both, with nothing performed meanwhile; a tenant that there is not ends the command with one line."""
    async with running(settings, poll=False, is_patient=False) as house:
        tenant = await house.service.tenant(name)
        if tenant is None:
            fail(f"there is no tenant {name!r}: see vuelvo tenants list", 2)
        yield house.service, tenant
