"""Sessions that are rotated, end and are verified; the time at which a follow-up was asked for."""

from alembic import op

revision = "0009"
down_revision = "0008"

UP = """
ALTER TABLE web_sessions
    ADD COLUMN chain BYTEA,
    ADD COLUMN replaces BYTEA,
    ADD COLUMN ends_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN is_verified BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN address BYTEA;
UPDATE web_sessions SET chain = token_hash;
ALTER TABLE web_sessions ALTER COLUMN chain SET NOT NULL;
CREATE INDEX web_sessions_of_chain ON web_sessions (bucket, tenant, chain);
CREATE INDEX web_sessions_of_address ON web_sessions (bucket, tenant, address, created_at) WHERE address is not null;
ALTER TABLE messages ADD COLUMN asked_at TIMESTAMP WITH TIME ZONE;
"""

DOWN = """
ALTER TABLE messages DROP COLUMN asked_at;
DROP INDEX web_sessions_of_address;
DROP INDEX web_sessions_of_chain;
ALTER TABLE web_sessions DROP COLUMN chain, DROP COLUMN replaces, DROP COLUMN ends_at, DROP COLUMN is_verified,
    DROP COLUMN address;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
