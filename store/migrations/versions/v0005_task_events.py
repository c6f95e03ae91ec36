"""The story of each task, and an index of those that need somebody to look at them."""

from alembic import op

revision = "0005"
down_revision = "0004"

UP = """
CREATE TABLE task_events (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    task BIGINT NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    event TEXT NOT NULL,
    fence BIGINT NOT NULL,
    detail TEXT,
    CONSTRAINT task_events_pkey PRIMARY KEY (bucket, tenant, task, id)
);
CREATE INDEX tasks_troubled ON tasks (ended_at) WHERE state in ('failed', 'uncertain');
"""

DOWN = """
drop index tasks_troubled;
drop table task_events;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
