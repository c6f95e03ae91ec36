"""Tenants, contacts, conversations, messages, deliveries."""

from alembic import op

revision = "0001"
down_revision = None

UP = """
CREATE TABLE tenants (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    config JSONB NOT NULL,
    revision BIGINT DEFAULT 1 NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (bucket, tenant)
);

CREATE TABLE senders (
    channel TEXT NOT NULL,
    sender TEXT NOT NULL,
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    receiver TEXT,
    receiver_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT senders_pkey PRIMARY KEY (channel, sender),
    CONSTRAINT senders_bucket_tenant_fkey FOREIGN KEY(bucket, tenant) REFERENCES tenants (bucket, tenant) ON DELETE CASCADE
);
CREATE INDEX senders_of_tenant ON senders (bucket, tenant);

CREATE TABLE contacts (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    channel TEXT NOT NULL,
    address TEXT NOT NULL,
    address_key TEXT NOT NULL,
    name TEXT,
    language TEXT,
    time_zone TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT contacts_pkey PRIMARY KEY (bucket, tenant, id),
    CONSTRAINT contacts_of_address UNIQUE (bucket, tenant, channel, address_key),
    CONSTRAINT contacts_bucket_tenant_fkey FOREIGN KEY(bucket, tenant) REFERENCES tenants (bucket, tenant)
);

CREATE TABLE conversations (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    contact BIGINT NOT NULL,
    thread TEXT DEFAULT '' NOT NULL,
    last_seq INTEGER DEFAULT 0 NOT NULL,
    answered_seq INTEGER DEFAULT 0 NOT NULL,
    seen_seq INTEGER DEFAULT 0 NOT NULL,
    last_inbound_at TIMESTAMP WITH TIME ZONE,
    lane_task BIGINT,
    lane_fence BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT conversations_pkey PRIMARY KEY (bucket, tenant, id),
    CONSTRAINT conversations_of_contact UNIQUE (bucket, tenant, contact, thread),
    CONSTRAINT conversations_bucket_tenant_contact_fkey FOREIGN KEY(bucket, tenant, contact) REFERENCES contacts (bucket, tenant, id) ON DELETE CASCADE,
    CONSTRAINT conversations_lane_is_whole_check CHECK ((lane_task is null) = (lane_fence is null))
) WITH (fillfactor = 80);

CREATE TABLE messages (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    conversation BIGINT NOT NULL,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    inbound_key TEXT,
    task BIGINT,
    CONSTRAINT messages_pkey PRIMARY KEY (bucket, tenant, conversation, seq),
    CONSTRAINT messages_role_check CHECK (role in ('customer', 'assistant')),
    CONSTRAINT messages_kind_of_role_check CHECK ((role = 'customer') = (kind = 'message')),
    CONSTRAINT messages_kind_check CHECK (kind in ('message', 'reply', 'followup', 'notice')),
    CONSTRAINT messages_seq_check CHECK (seq > 0),
    CONSTRAINT messages_bucket_tenant_conversation_fkey FOREIGN KEY(bucket, tenant, conversation) REFERENCES conversations (bucket, tenant, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX messages_of_inbound ON messages (bucket, tenant, inbound_key) WHERE inbound_key is not null;

CREATE TABLE deliveries (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    conversation BIGINT NOT NULL,
    task BIGINT NOT NULL,
    part INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    channel TEXT NOT NULL,
    outcome TEXT,
    reason TEXT,
    provider_id TEXT,
    provider_status TEXT,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT deliveries_pkey PRIMARY KEY (bucket, tenant, id),
    CONSTRAINT deliveries_outcome_check CHECK (outcome in ('accepted', 'rejected', 'not_sent', 'unknown')),
    CONSTRAINT deliveries_accepted_has_an_id_check CHECK (outcome <> 'accepted' or provider_id is not null),
    CONSTRAINT deliveries_bucket_tenant_conversation_fkey FOREIGN KEY(bucket, tenant, conversation) REFERENCES conversations (bucket, tenant, id) ON DELETE CASCADE
);
CREATE INDEX deliveries_of_provider_id ON deliveries (bucket, tenant, provider_id) WHERE provider_id is not null;
CREATE INDEX deliveries_of_task ON deliveries (bucket, tenant, task, part);
"""

DOWN = """
drop table deliveries;
drop table messages;
drop table conversations;
drop table contacts;
drop table senders;
drop table tenants;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
