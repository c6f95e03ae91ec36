"""What the two stories share: the database, the clock, the tenants as configured now, their channels, their models."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import get_args
from zoneinfo import ZoneInfo

from prometheus_client import CollectorRegistry, Counter, Histogram
from pydantic_ai import Agent

from agent.context import TurnContext, Voice
from agent.language import detect
from agent.models import Models
from agent.servers import Servers
from app.outside import Outside
from app.tenants_file import UNUSABLE, Problem, TenantConfig, TenantFileError, from_stored
from channels.channel import Channel
from channels.message import Accepted, Filled, NotSent, Outcome, Rejected, Unknown
from scheduler.clock import Clock
from scheduler.events import Became
from scheduler.promises import Fate
from scheduler.task import Task
from scheduler.when import known_zone
from store import tenants
from store.conversations import Conversation
from store.database import Database
from store.secrets import SecretBox
from store.signals import Signals
from store.tenants import TenantRow

log = logging.getLogger(__name__)

OLDEST_DUE_LIMIT = 60.0
"""Seconds a task may have been due before the service calls itself unfit."""
FRESH = 2.0
"""Seconds for which a tenant's configuration is used without another look."""


OUTCOMES = {Accepted: "accepted", Rejected: "rejected", NotSent: "not_sent", Unknown: "unknown"}


class Counts:
    """What is counted, for `/metrics`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = Counter(
            "vuelvo_messages_received_total",
            "Messages of customers taken in",
            ["tenant", "channel"],
            registry=self.registry,
        )
        self.ended = Counter(
            "vuelvo_tasks_settled_total",
            "Tasks by how they ended",
            ["tenant", "kind", "state", "outcome"],
            registry=self.registry,
        )
        self.recovered = Counter(
            "vuelvo_tasks_recovered_total",
            "Tasks taken back from workers that died",
            ["tenant", "kind"],
            registry=self.registry,
        )
        self.quarantined = Counter(
            "vuelvo_tasks_quarantined_total",
            "Tasks not performed any more, since worker after worker died of them",
            ["tenant", "kind"],
            registry=self.registry,
        )
        self.lost_leases = Counter(
            "vuelvo_leases_lost_total",
            "Tasks whose claim was another worker's before this one was done with them",
            ["tenant", "kind"],
            registry=self.registry,
        )
        self.sends = Counter(
            "vuelvo_sends_total",
            "Attempts to send one part of a message, by what came of them",
            ["tenant", "channel", "outcome"],
            registry=self.registry,
        )
        self.refused_promises = Counter(
            "vuelvo_promises_refused_total",
            "Replies that promised to come back without a booking, and did not go out",
            ["tenant"],
            registry=self.registry,
        )
        self.over_budget = Counter(
            "vuelvo_over_budget_total",
            "Runs that were held or said in stored words, because the tenant's budget for the day was used up",
            ["tenant"],
            registry=self.registry,
        )
        self.promises = Counter(
            "vuelvo_promises_total",
            "What became of follow-ups that were promised in a conversation, as they ended",
            ["tenant", "became"],
            registry=self.registry,
        )
        self.lateness = Histogram(
            "vuelvo_followup_lateness_seconds",
            "From when a follow-up was booked for to when it was said",
            ["tenant", "channel"],
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600),
            registry=self.registry,
        )

    def know(self, tenant: str, channels: Sequence[str]) -> None:
        """Count from nought what may happen to a tenant, so that its first time can be told from none."""
        for kind in ("turn", "followup"):
            for counter in (self.recovered, self.quarantined, self.lost_leases):
                counter.labels(tenant, kind)
        for channel in channels:
            self.received.labels(tenant, channel)
        self.refused_promises.labels(tenant)
        self.over_budget.labels(tenant)
        for fate in get_args(Fate):
            self.promises.labels(tenant, fate)

    def committed(self, news: Sequence[object]) -> None:
        """Count what tasks have become, by whatever way: every move that ends one tells of it (`Database.on_commit`)."""
        for one in news:
            if not isinstance(one, Became):
                continue
            if one.event == "recovered":
                self.recovered.labels(one.tenant, one.kind).inc()
            else:
                # The guard's name, or a function's result, comes after it: there is no end of those.
                outcome = (one.outcome or "").partition(":")[0]
                self.ended.labels(one.tenant, one.kind, one.event, outcome).inc()
            if one.promise is not None:
                self.promises.labels(one.tenant, one.promise).inc()

    def sent(self, tenant: str, channel: str, outcome: Outcome) -> None:
        """Count an attempt to send one part."""
        self.sends.labels(tenant, channel, OUTCOMES[type(outcome)]).inc()

    def happened(self, event: str, task: Task) -> None:
        """Count what the poller tells of a task."""
        counter = {"lease lost": self.lost_leases, "quarantined": self.quarantined}[event]
        counter.labels(task.tenant, task.kind).inc()


@dataclass(slots=True)
class Service:
    """One process's share of the service."""

    database: Database
    clock: Clock
    signals: Signals
    models: Models
    box: SecretBox
    answering: Agent[TurnContext, str]
    returning: Agent[Voice, str]
    make_channel: Callable[[TenantConfig, str], Channel | None]
    servers: Servers
    outside: Outside
    counts: Counts = field(default_factory=Counts)
    on_heard: Callable[[str, int], None] = lambda tenant, conversation: None
    """Told of each message a customer has written: tenant and conversation."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Tenants that cannot be used as they are stored, each with what is wrong."""
    _tenants: dict[str, tuple[float, int, TenantConfig]] = field(default_factory=dict)
    _channels: dict[tuple[str, str], tuple[object, Channel]] = field(default_factory=dict)
    _retired: list[Channel] = field(default_factory=list)

    async def tenant(self, name: str, *, is_fresh: bool = False) -> TenantConfig | None:
        """Return a tenant as it is configured now, give or take two seconds unless it is to be fresh; None when there is none such.

        Raises WrongKey, TenantFileError when it cannot be used as it is stored.
        """
        known = self._tenants.get(name)
        if known and not is_fresh and time.monotonic() - known[0] < FRESH:
            return known[2]
        async with self.database.autocommit() as connection:
            row = await tenants.find(connection, name)
        if row is None:
            self._tenants.pop(name, None)
            return None
        return self.read(row)

    async def tenant_of(self, task: Task) -> TenantConfig:
        """Return a task's tenant. Raises WrongKey, TenantFileError when it cannot be used, or is not there any more."""
        return await self.tenant_called(task.tenant)

    async def tenant_called(self, name: str) -> TenantConfig:
        """Return a tenant. Raises WrongKey, TenantFileError when it cannot be used, or is not there (any more)."""
        config = await self.tenant(name)
        if config is None:
            raise TenantFileError([Problem(f"tenant {name}", None, "", "it is not configured any more")])
        return config

    def read(self, row: TenantRow) -> TenantConfig:
        """Return a tenant from its row. Raises WrongKey, TenantFileError."""
        known = self._tenants.pop(row.tenant, None)
        try:
            config = known[2] if known and known[1] == row.revision else from_stored(row.config, self.box)
        except UNUSABLE as problem:
            self.complain(row.tenant, problem)
            raise
        self.unusable.pop(row.tenant, None)
        if known is None or known[1] != row.revision:
            self.counts.know(row.tenant, [name for name, section in config.channels if section is not None])
        self._tenants[row.tenant] = (time.monotonic(), row.revision, config)
        return config

    def complain(self, tenant: str, problem: Exception) -> None:
        """Tell the operator, once, of a tenant that cannot be used."""
        if self.unusable.get(tenant) != str(problem):
            self.unusable[tenant] = str(problem)
            log.error(
                "nothing is received for tenant %s, and what it has due waits until its file is applied again: %s",
                tenant,
                problem,
            )

    async def channel(self, tenant: TenantConfig, name: str) -> Channel | None:
        """Return a tenant's sender on a network channel; None when it has none (any more)."""
        section = getattr(tenant.channels, name)
        known = self._channels.get((tenant.tenant, name))
        if known and known[0] == section:
            return known[1]
        if known:
            # Not closed now: what it is sending would be cut off, and nobody would know whether it arrived.
            self._retired.append(self._channels.pop((tenant.tenant, name))[1])
        channel = self.make_channel(tenant, name)
        if channel is not None:
            self._channels[tenant.tenant, name] = (section, channel)
        return channel

    async def close(self) -> None:
        """Close the channels' and the models' connections."""
        await self.models.close()
        for channel in (*self._retired, *(channel for _, channel in self._channels.values())):
            await channel.close()
        self._retired.clear()
        self._channels.clear()


def zone_of(tenant: TenantConfig, conversation: Conversation) -> ZoneInfo:
    """Return the zone in which a customer is told times: their own where it is known, else the tenant's."""
    return known_zone(conversation.time_zone) or ZoneInfo(tenant.time_zone)


def chosen_template(tenant: TenantConfig, id: str, values: Mapping[str, str]) -> Filled:
    """Return a template that the business itself has chosen by its number, as it is handed to a channel."""
    return Filled(id, values, is_whole=True, is_named=id in tenant.step_templates)


def voice_of(tenant: TenantConfig, conversation: Conversation, now: datetime, *, language: str) -> Voice:
    """Return in whose name, to whom, in which language and zone the agent speaks."""
    return Voice(
        tenant=tenant.tenant,
        business=tenant.name,
        section=tenant.agent,
        conversation=conversation.id,
        channel=conversation.channel,
        zone=zone_of(tenant, conversation),
        language=language,
        customer=conversation.name,
        now=now,
    )


def run_of(task: Task) -> str:
    """Return a name for what is done for a task, the same at each attempt; numbers alone come again in another database."""
    return f"{task.id} {task.created_at.astimezone(UTC).isoformat()}"


def language_of(tenant: TenantConfig, conversation: Conversation, words: str) -> str:
    """Return the language to answer in, one of the tenant's: that of the words, else what the channel knows, else the first."""
    known = conversation.language if conversation.language in tenant.languages else tenant.languages[0]
    told = detect(words, known)
    return told if told in tenant.languages else known
