"""Deliveries by template and the providers' codes of failure; contacts who want, or get, nothing more; holds that end by themselves."""

from alembic import op

revision = "0008"
down_revision = "0007"

UP = """
ALTER TABLE deliveries ADD COLUMN template TEXT, ADD COLUMN code INTEGER;
ALTER TABLE contacts ADD COLUMN stopped TEXT,
    ADD CONSTRAINT contacts_stopped_check CHECK (stopped in ('customer', 'provider'));
CREATE INDEX tasks_held_until ON tasks (expires_at)
    WHERE state = 'scheduled' and hold is not null and expires_at is not null;
"""

DOWN = """
DROP INDEX tasks_held_until;
ALTER TABLE contacts DROP COLUMN stopped;
ALTER TABLE deliveries DROP COLUMN template, DROP COLUMN code;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
