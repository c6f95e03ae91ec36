"""Deferred runs are counted and listed; tenants' servers have keys to the API."""

from alembic import op

revision = "0012"
down_revision = "0011"

UP = """
CREATE TABLE api_keys (
  bucket SMALLINT NOT NULL,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  hash BYTEA NOT NULL,
  name TEXT NOT NULL,
  scopes TEXT[] NOT NULL,
  created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
  revoked_at TIMESTAMPTZ,
  CONSTRAINT api_keys_pkey PRIMARY KEY (bucket, tenant, id),
  CONSTRAINT api_keys_bucket_tenant_fkey FOREIGN KEY (bucket, tenant) REFERENCES tenants (bucket, tenant) ON DELETE CASCADE
);
CREATE INDEX tasks_functions ON tasks (bucket, tenant, due_at, id) WHERE kind = 'function' and state in ('scheduled', 'firing');
"""

DOWN = """
drop index tasks_functions;
drop table api_keys;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
