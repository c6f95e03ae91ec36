"""The whole service in one process, on a test's database, with a test's clock and model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_ai.models import Model

from app.functions import App
from app.inbox import receive
from app.outside import Outside
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import Running, apply_tenants, running
from channels.message import Inbound, Received
from scheduler import find
from scheduler.clock import Clock, MovableClock
from scheduler.find import Found
from store import messages
from store.database import Database
from store.messages import Message
from tests.support.wait import eventually


def settings(directory: Path, **more: Any) -> Settings:
    """Return settings that come from the test alone."""
    return Settings(data_dir=directory, secret_key=SecretStr("a secret for the tests of the service"), **more)


class House:
    """A running service, and what a test asks of it."""

    def __init__(self, run: Running, tenant: str) -> None:
        self.run, self.service, self.tenant = run, run.service, tenant
        self._ids = 0

    async def says(
        self, text: str, *, channel: str = "web", address: str = "ana", provider_id: str | None = None, **more: Any
    ) -> Received:
        """A customer writes."""
        self._ids += 1
        told = {"tenant": self.tenant, "address_key": address, **more}
        return await receive(
            self.service,
            Inbound(channel=channel, address=address, provider_id=provider_id or f"id-{self._ids}", text=text, **told),
        )

    async def log(self, conversation: int) -> Sequence[Message]:
        """Return what was said in a conversation."""
        async with self.service.database.transaction() as connection:
            return await messages.read(connection, self.tenant, conversation, limit=1000)

    async def heard(self, conversation: int) -> list[str]:
        """Return what the customer was told in a conversation."""
        return [message.text for message in await self.log(conversation) if message.role == "assistant"]

    async def until_heard(self, conversation: int, count: int, seconds: float = 10) -> list[str]:
        """Wait until the customer was told so many things, woken by the service's own hints."""
        with self.service.signals.subscribe(f"message {conversation}") as hints:
            async with asyncio.timeout(seconds):
                while len(told := await self.heard(conversation)) < count:
                    await hints.wait(0.2)
                return told

    async def tasks(self, **chosen: Any) -> Sequence[Found]:
        """Return tasks, those of follow-ups by default."""
        async with self.service.database.transaction() as connection:
            return await find.search(connection, **{"kind": "followup", "limit": 1000, **chosen})

    async def until_state(self, task: int, state: str, seconds: float = 10) -> Found:
        """Wait until a task has come to a state."""
        async with asyncio.timeout(seconds):
            while True:
                async with self.service.database.transaction() as connection:
                    found = await find.get(connection, self.tenant, task)
                if found is not None and found.state == state:
                    return found
                await asyncio.sleep(0.01)

    def wake(self) -> None:
        """Tell the poller that the clock was moved."""
        self.service.signals.hint("due")

    async def goes_by(self, clock: MovableClock, span: timedelta) -> None:
        """Let time pass, and return when the poller has looked at what is due since."""
        clock.move(span)
        poller = self.run.poller
        assert poller is not None
        looked = poller.beat_at
        self.wake()
        await eventually(lambda: poller.beat_at != looked)


@asynccontextmanager
async def a_house(
    database: Database,
    directory: Path,
    model: Model | None = None,
    clock: Clock | None = None,
    *,
    poll: bool = True,
    tenant: str = "acme",
    config: dict[str, Any] | None = None,
    app: App | None = None,
    outside: Outside | None = None,
    **more: Any,
) -> AsyncIterator[House]:
    """Run the service with one tenant (`acme`, in Bogota, speaking English and Spanish)."""
    async with running(
        settings(directory, **more), poll=poll, model=model, clock=clock, database=database, app=app, outside=outside
    ) as run:
        await apply_tenants(run.service, [a_config(tenant, **(config or {}))])
        yield House(run, tenant)


def a_config(tenant: str = "acme", **more: Any) -> TenantConfig:
    """Return a tenant's configuration that says only what matters to the test."""
    usual = {"name": tenant.title(), "time_zone": "America/Bogota", "languages": ["en", "es", "pt"]}
    return TenantConfig.model_validate({"tenant": tenant, **usual, **more})
