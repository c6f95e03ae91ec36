"""Who is handed what: the one place that knows everybody.

`running` brings a process's share of the service up in order, and down in the opposite order.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic_ai.models import Model

from agent.followup import returning_agent
from agent.models import Models
from agent.servers import Servers
from agent.turn import answering_agent
from app import application, followups, inbox, notices, recurring, tenants_file
from app.database import open_database, when_it_can_be_used
from app.deferred import CALLED, Deferred, needs_of, offers
from app.engine import engine_of
from app.functions import App
from app.outside import Outside
from app.public import client_maker
from app.retention import delete_old
from app.runs import Functions
from app.service import Service
from app.settings import Settings, secret_key
from app.simulated import Simulated
from app.speak import pause
from app.tenants_file import UNUSABLE, TenantConfig
from channels.channel import Channel
from channels.telegram.outbound import TelegramChannel
from channels.whatsapp.outbound import WhatsAppChannel
from scheduler.clock import Clock
from scheduler.hold import CHANNEL_PAUSED, TOPIC_GONE, WITH_PERSON, release
from scheduler.operate import need_instead
from scheduler.poller import DUE, Poller
from scheduler.scheduled import Scheduler
from scheduler.settle import End
from scheduler.task import Task
from store import tenants
from store.database import Database, is_distributed
from store.migrate import migrate
from store.secrets import SecretBox, WrongKey
from store.signals import Signals, notify

log = logging.getLogger(__name__)

APPLIED = "tenants applied"
"""The topic on which it is hinted that a tenant's file was applied, changed or not."""

DEMO = Path(__file__).with_name("demo_tenant.yaml")


@dataclass(slots=True)
class Running:
    """A process's share of the service while it runs."""

    service: Service
    settings: Settings
    poller: Poller | None
    functions: Functions
    stopping: asyncio.Event


def performer(
    service: Service, scheduler: Scheduler | None = None, functions: Functions | None = None
) -> Callable[[Task], Awaitable[End | None]]:
    """Return what the poller is handed: each kind of task goes to its story, unless its tenant cannot be used."""

    async def perform(task: Task) -> End | None:
        try:
            if task.kind == "function" and functions is not None:
                return await functions.run(task)
            if task.kind == "turn":
                await inbox.answer(service, task)
            elif task.kind == "schedule" and "about" in task.payload:
                await recurring.come_again(service, task)
            elif task.kind == "schedule" and scheduler is not None:
                await scheduler.perform(task)
            elif notices.is_of_renewal(task) and not task.lane:
                await notices.give_notice(service, task)
            else:
                await followups.come_back(service, task)
        except UNUSABLE as problem:
            service.complain(task.tenant, problem)
            async with service.database.transaction() as connection:
                await pause(service, connection, task, None)
        return None

    return perform


def channel_maker(settings: Settings, clock: Clock) -> Callable[[TenantConfig, str], Channel | None]:
    """Return what makes a tenant's sender on a network channel, pointed where the settings say, paced by the clock."""

    def make(tenant: TenantConfig, name: str) -> Channel | None:
        if name == "telegram" and tenant.channels.telegram is not None:
            return TelegramChannel(tenant.channels.telegram, settings.telegram_api_url, clock=clock.steady)
        if name == "whatsapp" and tenant.channels.whatsapp is not None:
            public = settings.public_url

            def status_url(delivery: int) -> str:
                return f"{public}/hooks/whatsapp/{tenant.tenant}/status/{delivery}"

            return WhatsAppChannel(
                tenant.channels.whatsapp,
                settings.twilio_api_url,
                status_url if public is not None else None,
                clock=clock.steady,
            )
        return None

    return make


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    poll: bool = True,
    load_app: bool = False,
    is_patient: bool = True,
    any_key: bool = False,
    model: Model | None = None,
    clock: Clock | None = None,
    database: Database | None = None,
    app: App | None = None,
    outside: Outside | None = None,
) -> AsyncIterator[Running]:
    """Bring the service up: database, schema, demo tenant, hints, and (with `poll`) the poller.

    The developer's application is loaded for the poller, or where `load_app` asks for its functions.

    While the database cannot be used, a patient caller waits; for another that is an end. With `any_key` the tenants may
    be sealed with another secret key than ours.

    Raises ApplicationError, UnknownModel, WrongKey, DatabaseDown, EmbeddedServerError, or alembic.util.CommandError for a database newer than this code.
    """
    async with contextlib.AsyncExitStack() as stack:
        if database is None:
            database = await stack.enter_async_context(open_database(settings, is_patient=is_patient))
        begin = partial(when_it_can_be_used, database, is_patient=is_patient)
        await begin(partial(migrate, database))
        app = app or application.load(settings.app if poll or load_app else None)
        scheduler = app.scheduler
        outside = outside or Outside()
        stack.callback(outside.close)
        service = await stack.enter_async_context(_service(settings, database, model, clock or Clock(), outside))
        if not any_key:
            await begin(partial(check_key, service))
        await begin(partial(write_demo_tenant, service))
        engine = engine_of(service, settings.poll_interval)
        assert engine.send is not None
        if settings.defer_dev and (poll or load_app):
            deferred: Deferred = Simulated(database, service.clock)
        else:
            deferred = Deferred(database, service.clock, service.signals)
        functions = Functions(app, service, deferred, engine.send, settings.deployment)
        poller = None
        if poll:
            poller = Poller(
                database,
                service.clock,
                service.signals,
                performer(service, scheduler, functions),
                interval=settings.poll_interval,
                lease=settings.lease,
                count=service.counts.happened,
                by_bucket=await begin(partial(is_distributed, database)),
                also_delete=partial(delete_old, service),
                offers=lambda: scheduler.offers | offers(app.functions, settings.deployment),
                on_lost=scheduler.lose,
            )
            await begin(partial(scheduler.start, engine))
            service.on_heard = scheduler.heard
            poller.start()
            stack.push_async_callback(poller.stop)
            stack.push_async_callback(scheduler.stop)
        stopping = asyncio.Event()
        stack.callback(stopping.set)
        yield Running(service, settings, poller, functions, stopping)


@asynccontextmanager
async def _service(
    settings: Settings, database: Database, model: Model | None, clock: Clock, outside: Outside
) -> AsyncIterator[Service]:
    signals = Signals(database)
    models = Models(model or settings.model)
    models.find()  # a name that leads nowhere is told now, not at the first message
    service = Service(
        database=database,
        clock=clock,
        signals=signals,
        models=models,
        box=SecretBox(secret_key(settings)),
        answering=answering_agent(),
        returning=returning_agent(),
        make_channel=channel_maker(settings, clock),
        servers=Servers(client_maker(outside), outside.call),
        outside=outside,
    )
    database.on_commit = service.counts.committed
    await signals.start()
    try:
        yield service
    finally:
        await service.close()
        await signals.stop()


async def apply_tenants(service: Service, configs: list[TenantConfig]) -> dict[str, list[str] | None]:
    """Store tenants, all or none; return for each what was taken away, in words, or None where nothing changed.

    What waited for a channel may go on, and a bot that was refused is asked again.

    Raises SenderTaken when a bot or number is another tenant's.
    """
    changed: dict[str, list[str] | None] = {}
    async with service.database.transaction() as connection:
        for config in configs:
            stored = tenants_file.to_stored(config, service.box)
            before = await tenants.find(connection, config.tenant)
            is_changed = await tenants.apply(connection, config.tenant, stored, tenants_file.senders(config))
            gone = tenants_file.taken_away(before.config, stored) if before else []
            changed[config.tenant] = gone if is_changed else None
            await release(connection, service.clock, config.tenant, CHANNEL_PAUSED, TOPIC_GONE, WITH_PERSON)
            # What is called elsewhere from now on any worker can call, also where none has a function of that path any more.
            await need_instead(connection, config.tenant, [needs_of(path) for path in config.functions], CALLED)
        await notify(connection, [DUE, APPLIED])  # a command ends before a hint of its own is told to others
    for topic in (DUE, APPLIED):
        service.signals.hint(topic)
    return changed


async def check_key(service: Service) -> None:
    """Raise WrongKey when all that the stored tenants hold sealed was sealed with other keys than ours."""
    async with service.database.transaction() as connection:
        theirs = await tenants.key_ids(connection)
    if theirs and service.box.key_id not in theirs:
        raise WrongKey(
            f"the secret key is not the one with which the stored tenants were sealed (its id is {service.box.key_id}, "
            f"theirs {', '.join(sorted(theirs))}): set VUELVO_SECRET_KEY to that one, or put secret.key back into the data "
            "directory; if it is lost, apply the tenants' files again with vuelvo tenants apply"
        )


async def write_demo_tenant(service: Service) -> None:
    """Write the demo tenant into an installation that has no tenant yet."""
    async with service.database.transaction() as connection:
        if await tenants.find_all(connection):
            return
    await apply_tenants(service, tenants_file.load_file(DEMO, {}))


def new_receiver_name() -> str:
    """Return a name under which this process holds the right to receive for a bot."""
    return secrets.token_hex(8)
