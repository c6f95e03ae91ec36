"""An index of what has ended in a conversation."""

from alembic import op

revision = "0004"
down_revision = "0003"

UP = """
CREATE INDEX tasks_ended_in_conversation ON tasks (bucket, tenant, conversation, created_at) WHERE ended_at is not null;
"""

DOWN = """
drop index tasks_ended_in_conversation;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
