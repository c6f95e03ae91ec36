"""An index of all tasks of a conversation."""

from alembic import op

revision = "0004"
down_revision = "0003"

UP = """
CREATE INDEX tasks_of_conversation ON tasks (bucket, tenant, conversation, created_at);
"""

DOWN = """
drop index tasks_of_conversation;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
