"""What there is of an answer while it is being written."""

from alembic import op

revision = "0010"
down_revision = "0009"

UP = """
CREATE UNLOGGED TABLE drafts (
    bucket SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    conversation BIGINT NOT NULL,
    answers INTEGER NOT NULL,
    text TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (bucket, tenant, conversation),
    FOREIGN KEY (bucket, tenant, conversation) REFERENCES conversations (bucket, tenant, id) ON DELETE CASCADE
);
"""

DOWN = """
DROP TABLE drafts;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
