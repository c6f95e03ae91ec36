"""Renewals; and a notice of one is booked before anybody knows in which conversation it will be said."""

from alembic import op

revision = "0013"
down_revision = "0012"

UP = """
CREATE TABLE renewals (
  bucket SMALLINT NOT NULL,
  tenant TEXT NOT NULL,
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  subject TEXT NOT NULL,
  due DATE NOT NULL,
  cadence TEXT NOT NULL,
  addresses JSONB NOT NULL,
  name TEXT,
  language TEXT,
  time_zone TEXT,
  fields JSONB DEFAULT '{}' NOT NULL,
  agreed BOOLEAN DEFAULT false NOT NULL,
  state TEXT DEFAULT 'open' NOT NULL,
  stopped TEXT,
  said TEXT[] DEFAULT '{}' NOT NULL,
  conversation BIGINT,
  spoken_at TIMESTAMPTZ,
  planned_by TEXT NOT NULL,
  plan BIGINT DEFAULT 1 NOT NULL,
  created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
  closed_at TIMESTAMPTZ,
  CONSTRAINT renewals_pkey PRIMARY KEY (bucket, tenant, id),
  CONSTRAINT renewals_state_check CHECK (state in ('open', 'renewed', 'lost', 'withdrawn')),
  CONSTRAINT renewals_closed_when_not_open_check CHECK ((state = 'open') = (closed_at is null)),
  CONSTRAINT renewals_bucket_tenant_fkey FOREIGN KEY (bucket, tenant) REFERENCES tenants (bucket, tenant)
);
CREATE UNIQUE INDEX renewals_open ON renewals (bucket, tenant, subject) WHERE state = 'open';
CREATE INDEX renewals_in_conversation ON renewals (bucket, tenant, conversation)
  WHERE state = 'open' and conversation is not null;
CREATE INDEX tasks_notices ON tasks (bucket, tenant, due_at, id)
  WHERE kind = 'notice' and state in ('scheduled', 'firing');
CREATE TABLE renewal_events (
  bucket SMALLINT NOT NULL,
  tenant TEXT NOT NULL,
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  renewal BIGINT NOT NULL,
  at TIMESTAMPTZ NOT NULL,
  event TEXT NOT NULL,
  by TEXT NOT NULL,
  detail TEXT,
  CONSTRAINT renewal_events_pkey PRIMARY KEY (bucket, tenant, id),
  CONSTRAINT renewal_events_bucket_tenant_renewal_fkey FOREIGN KEY (bucket, tenant, renewal)
    REFERENCES renewals (bucket, tenant, id) ON DELETE CASCADE
);
CREATE INDEX renewal_events_of ON renewal_events (bucket, tenant, renewal, id);
CREATE TABLE usage (
  bucket SMALLINT NOT NULL,
  tenant TEXT NOT NULL,
  day DATE NOT NULL,
  tokens BIGINT DEFAULT 0 NOT NULL,
  messages INTEGER DEFAULT 0 NOT NULL,
  CONSTRAINT usage_pkey PRIMARY KEY (bucket, tenant, day),
  CONSTRAINT usage_bucket_tenant_fkey FOREIGN KEY (bucket, tenant) REFERENCES tenants (bucket, tenant) ON DELETE CASCADE
);
ALTER TABLE tasks DROP CONSTRAINT tasks_talk_has_an_origin_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_talk_has_an_origin_check
  CHECK (kind in ('function', 'schedule', 'notice') and not lane or (conversation is not null and channel is not null));
"""

DOWN = """
drop index tasks_notices;
delete from tasks where kind = 'notice' and conversation is null;
alter table tasks drop constraint tasks_talk_has_an_origin_check;
alter table tasks add constraint tasks_talk_has_an_origin_check
  check (kind in ('function', 'schedule') or (conversation is not null and channel is not null));
drop table usage;
drop table renewal_events;
drop table renewals;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
