"""Sessions of the web widget."""

from alembic import op

revision = "0003"
down_revision = "0002"

UP = """
CREATE TABLE web_sessions (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    token_hash BYTEA NOT NULL,
    conversation BIGINT NOT NULL,
    origin TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    used_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT web_sessions_pkey PRIMARY KEY (bucket, tenant, token_hash),
    CONSTRAINT web_sessions_bucket_tenant_conversation_fkey FOREIGN KEY(bucket, tenant, conversation) REFERENCES conversations (bucket, tenant, id) ON DELETE CASCADE
);
CREATE INDEX web_sessions_of_conversation ON web_sessions (bucket, tenant, conversation);
"""

DOWN = """
drop table web_sessions;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
