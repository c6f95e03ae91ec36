"""The task: a row that says what to do at a time. Its states, and the moves that are lawful:

    (booked)   -> scheduled
    scheduled  -> firing      claim.py: due, not held; a task with `lane` takes its conversation's lane along
    scheduled  -> cancelled   cancel.py
    scheduled  -> expired     recovery.py: held until it was not worth saying any more
    firing     -> scheduled   settle.py: the text is written and waits for its turn to speak; a retry; a hold;
                              recovery.py: the worker died
    firing     -> cancelled   settle.py: a cancel was requested before anything left the house
    firing     -> expired     settle.py: not worth saying any more
    firing     -> fired       settle.py: delivered, or skipped by a guard that is named
    firing     -> failed      settle.py: for good; the error says why
    firing     -> uncertain   settle.py: a send was begun and nobody can tell whether it went out
    firing     -> scheduled   schedules.py: a schedule waits for its next slot
    cancelled, fired, failed  -> scheduled        schedules.py: a schedule is registered again
    failed     -> scheduled, cancelled            operate.py: retried, or discarded, by somebody; recalled by the provider's word
    uncertain  -> fired, failed, scheduled        operate.py: settled by somebody; resumed by the provider's word
    fired      -> scheduled, failed               operate.py: the provider has said that it did not arrive after all
    fired, cancelled, expired -> (deleted)        retention.py: long after

A firing task passes two doors. At first nothing has left the house. `sending` is committed, with a delivery row, before
a provider is called; whoever finds a dead task behind that door must not simply send again.

`due_at` is when the task may next be claimed; a retry or a hold moves it. `booked_for` is what was promised and never
moves: lateness is measured from it. Of a schedule it is the slot that comes next.

`needs` names what a worker must have to perform the task, such as the handler of a schedule; workers say what they offer.
Most tasks need nothing.

`lane` says that the task speaks when claimed, and so needs its conversation's lane. A turn does from the start. A
follow-up is claimed twice: first without the lane, to be written, however long that takes; then, with its text kept on
the row, with the lane, to be said.

Every claim raises `fence` by one. Whatever a worker commits names the fence it claimed with; if the row's is another by
then, nothing is changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Row,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from store.database import bucket_of, metadata

Kind = Literal["turn", "followup", "notice", "function", "schedule"]
State = Literal["scheduled", "firing", "fired", "failed", "uncertain", "cancelled", "expired"]
Pool = Literal["speak", "timed", "background", "application"]
"""What a claimed task needs a slot for: to say something, to write what was promised for a time, to work with no time promised,
to run what is a developer's."""
OWN = "(app)"
"""The tenant of schedules that are nobody's but the operator's own: no tenant can be called that."""
ACTIVE = ("scheduled", "firing")
TROUBLED = ("failed", "uncertain")
"""What waits for an operator."""

tasks = Table(
    "tasks",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'scheduled'")),
    Column("conversation", BigInteger),
    # Where the request came from, and so where its answer goes: the conversation's channel.
    Column("channel", Text),
    # The customer's message to answer, in the provider's own words; the address is the conversation's.
    Column("reply_to", Text),
    # The task in whose run this one was booked.
    Column("parent", BigInteger),
    Column("payload", JSONB, nullable=False, server_default=text("'{}'")),
    # What will be said, kept before it is sent so that a second attempt does not pay the model again.
    Column("text", Text),
    Column("due_at", DateTime(timezone=True), nullable=False),
    Column("booked_for", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("lane", Boolean, nullable=False),
    Column("hold", Text),
    Column("sending", Boolean, nullable=False, server_default=text("false")),
    # What a worker must have to perform it.
    Column("needs", Text),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("worker", Text),
    Column("lease_until", DateTime(timezone=True)),
    Column("claimed_at", DateTime(timezone=True)),
    Column("outcome", Text),
    Column("error", Text),
    # The message of the conversation that this task became.
    Column("message_seq", Integer),
    Column("key", Text),
    Column("subject", Text),
    Column("idempotency_key", Text),
    Column("payload_hash", LargeBinary),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("kind in ('turn', 'followup', 'notice', 'function', 'schedule')", name="kind"),
    CheckConstraint(
        "state in ('scheduled', 'firing', 'fired', 'failed', 'uncertain', 'cancelled', 'expired')", name="state"
    ),
    CheckConstraint(
        "kind in ('function', 'schedule', 'notice') and not lane or (conversation is not null and channel is not null)",
        name="talk_has_an_origin",
    ),
    CheckConstraint("needs is null or not lane", name="no_lane_with_needs"),
    CheckConstraint("not lane or conversation is not null", name="lane_is_a_conversations"),
    CheckConstraint("kind <> 'turn' or lane", name="turn_holds_the_lane"),
    CheckConstraint("(state = 'firing') = (lease_until is not null)", name="lease_while_firing"),
    CheckConstraint("(state = 'firing') = (worker is not null)", name="worker_while_firing"),
    CheckConstraint("(state in ('scheduled', 'firing')) = (ended_at is null)", name="ended_when_terminal"),
    CheckConstraint("hold is null or state = 'scheduled'", name="only_scheduled_is_held"),
    CheckConstraint("(state = 'fired') = (outcome is not null)", name="fired_has_an_outcome"),
    CheckConstraint("state not in ('failed', 'uncertain') or error is not null", name="failure_has_words"),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    # What is due to be said, and what is due to be written: one index a question, future and finished rows aside.
    Index(
        "tasks_due_to_speak",
        "due_at",
        "id",
        postgresql_where=text("state = 'scheduled' and hold is null and lane"),
    ),
    Index(
        "tasks_due_timed",
        "due_at",
        "id",
        postgresql_where=text(
            "state = 'scheduled' and hold is null and not lane and needs is null and booked_for > created_at"
        ),
    ),
    Index(
        "tasks_due_background",
        "due_at",
        "id",
        postgresql_where=text(
            "state = 'scheduled' and hold is null and not lane and needs is null and booked_for <= created_at"
        ),
    ),
    Index(
        "tasks_due_with_needs",
        "due_at",
        "id",
        postgresql_where=text("state = 'scheduled' and hold is null and needs is not null"),
    ),
    # A tenant's deferred runs: counted at each booking, and listed.
    Index(
        "tasks_functions",
        "bucket",
        "tenant",
        "due_at",
        "id",
        postgresql_where=text("kind = 'function' and state in ('scheduled', 'firing')"),
    ),
    # A tenant's notices, in the order in which they will be said.
    Index(
        "tasks_notices",
        "bucket",
        "tenant",
        "due_at",
        "id",
        postgresql_where=text("kind = 'notice' and state in ('scheduled', 'firing')"),
    ),
    Index("tasks_schedules", "bucket", "tenant", "key", postgresql_where=text("kind = 'schedule'")),
    # Whose claims are alive. The predicate is not "state = 'firing'", or the planner would settle tasks through this
    # index, which is full of dead entries, instead of the primary key. Not on lease_until, so that a renewal stays
    # on its page.
    Index("tasks_claimed", "worker", postgresql_where=text("lease_until is not null")),
    Index(
        "tasks_pending_in_conversation",
        "bucket",
        "tenant",
        "conversation",
        "due_at",
        "id",
        postgresql_where=text("state in ('scheduled', 'firing')"),
    ),
    # What its messages led to. Not of all states, or the planner would take it for the pending ones too.
    Index(
        "tasks_ended_in_conversation",
        "bucket",
        "tenant",
        "conversation",
        "created_at",
        postgresql_where=text("ended_at is not null"),
    ),
    # What is pending under a label; what has none is in neither.
    Index(
        "tasks_subject",
        "bucket",
        "tenant",
        "subject",
        "due_at",
        "id",
        postgresql_where=text("state in ('scheduled', 'firing') and subject is not null"),
    ),
    Index(
        "tasks_key",
        "bucket",
        "tenant",
        "key",
        postgresql_ops={"key": "text_pattern_ops"},
        postgresql_where=text("state in ('scheduled', 'firing') and key is not null"),
    ),
    # What waits for something other than time, but not for ever.
    Index(
        "tasks_held_until",
        "expires_at",
        postgresql_where=text("state = 'scheduled' and hold is not null and expires_at is not null"),
    ),
    # What an operator looks for, whoever's it is.
    Index("tasks_troubled", "ended_at", postgresql_where=text("state in ('failed', 'uncertain')")),
    Index(
        "tasks_idempotency",
        "bucket",
        "tenant",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key is not null"),
    ),
    postgresql_with={
        "fillfactor": "80",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_cost_delay": "0",
        "autovacuum_analyze_scale_factor": "0.05",
    },
)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A task as a worker holds it, under one claim."""

    tenant: str
    id: int
    kind: Kind
    conversation: int | None
    channel: str | None
    reply_to: str | None
    parent: int | None
    payload: Mapping[str, Any]
    text: str | None
    due_at: datetime
    booked_for: datetime
    created_at: datetime
    expires_at: datetime | None
    lane: bool
    sending: bool
    fence: int
    attempt: int
    key: str | None
    subject: str | None
    message_seq: int | None
    """The message that it is taken for already: it was said before, or may have been."""
    needs: str | None
    claimed_at: datetime
    """When it was claimed, by the clock that decides what is due: the present, for whoever performs it."""

    @property
    def pool(self) -> Pool:
        """Which slots it is performed in."""
        if self.lane:
            return "speak"
        if self.needs is not None:
            return "application"
        return "timed" if self.booked_for > self.created_at else "background"

    @property
    def lease(self) -> timedelta | None:
        """How long its claim lasts without a sign of life, where that is its own matter."""
        seconds = self.payload.get("lease") if self.kind == "schedule" else None
        return None if seconds is None else timedelta(seconds=seconds)

    @property
    def bucket(self) -> int:
        """The bucket of its tenant."""
        return bucket_of(self.tenant)


CLAIMED = (
    "tenant, id, kind, conversation, channel, reply_to, parent, payload, text, due_at, booked_for, created_at, expires_at,"
    " lane, sending, fence, attempt, key, subject, message_seq, needs, claimed_at"
)
"""The columns of a Task, in order."""


def task_of(row: Row[Any]) -> Task:
    """Make a Task of a row that has the columns of CLAIMED."""
    return Task(*tuple(row))
