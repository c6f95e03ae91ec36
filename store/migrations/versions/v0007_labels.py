"""Indexes of the pending tasks by subject and by key."""

from alembic import op

revision = "0007"
down_revision = "0006"

UP = """
CREATE INDEX tasks_subject ON tasks (bucket, tenant, subject, due_at, id) WHERE state in ('scheduled', 'firing') and subject is not null;
CREATE INDEX tasks_key ON tasks (bucket, tenant, key text_pattern_ops) WHERE state in ('scheduled', 'firing') and key is not null;
"""

DOWN = """
drop index tasks_subject;
drop index tasks_key;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
