"""Tasks."""

from alembic import op

revision = "0002"
down_revision = "0001"

UP = """
CREATE TABLE tasks (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    kind TEXT NOT NULL,
    state TEXT DEFAULT 'scheduled' NOT NULL,
    conversation BIGINT,
    channel TEXT,
    reply_to TEXT,
    parent BIGINT,
    payload JSONB DEFAULT '{}' NOT NULL,
    text TEXT,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    booked_for TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    lane BOOLEAN NOT NULL,
    hold TEXT,
    sending BOOLEAN DEFAULT false NOT NULL,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    fence BIGINT DEFAULT 0 NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    worker TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    claimed_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT,
    error TEXT,
    message_seq INTEGER,
    key TEXT,
    subject TEXT,
    idempotency_key TEXT,
    payload_hash BYTEA,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT tasks_pkey PRIMARY KEY (bucket, tenant, id),
    CONSTRAINT tasks_kind_check CHECK (kind in ('turn', 'followup', 'notice', 'function')),
    CONSTRAINT tasks_state_check CHECK (state in ('scheduled', 'firing', 'fired', 'failed', 'uncertain', 'cancelled', 'expired')),
    CONSTRAINT tasks_talk_has_an_origin_check CHECK (kind = 'function' or (conversation is not null and channel is not null)),
    CONSTRAINT tasks_lane_is_a_conversations_check CHECK (not lane or conversation is not null),
    CONSTRAINT tasks_turn_holds_the_lane_check CHECK (kind <> 'turn' or lane),
    CONSTRAINT tasks_lease_while_firing_check CHECK ((state = 'firing') = (lease_until is not null)),
    CONSTRAINT tasks_worker_while_firing_check CHECK ((state = 'firing') = (worker is not null)),
    CONSTRAINT tasks_ended_when_terminal_check CHECK ((state in ('scheduled', 'firing')) = (ended_at is null)),
    CONSTRAINT tasks_only_scheduled_is_held_check CHECK (hold is null or state = 'scheduled'),
    CONSTRAINT tasks_fired_has_an_outcome_check CHECK ((state = 'fired') = (outcome is not null)),
    CONSTRAINT tasks_failure_has_words_check CHECK (state not in ('failed', 'uncertain') or error is not null),
    CONSTRAINT tasks_bucket_tenant_conversation_fkey FOREIGN KEY(bucket, tenant, conversation) REFERENCES conversations (bucket, tenant, id) ON DELETE CASCADE
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX tasks_claimed ON tasks (worker) WHERE lease_until is not null;
CREATE INDEX tasks_due_to_speak ON tasks (due_at, id) WHERE state = 'scheduled' and hold is null and lane;
CREATE INDEX tasks_due_to_work ON tasks (due_at, id) WHERE state = 'scheduled' and hold is null and not lane;
CREATE UNIQUE INDEX tasks_idempotency ON tasks (bucket, tenant, idempotency_key) WHERE idempotency_key is not null;
CREATE INDEX tasks_pending_in_conversation ON tasks (bucket, tenant, conversation, due_at, id) WHERE state in ('scheduled', 'firing');
"""

DOWN = """
drop table tasks;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
