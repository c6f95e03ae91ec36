"""Conversations that a person has taken over."""

from alembic import op

revision = "0014"
down_revision = "0013"

UP = """
ALTER TABLE conversations ADD COLUMN with_person_since TIMESTAMPTZ, ADD COLUMN with_person_why TEXT;
CREATE INDEX conversations_with_person ON conversations (bucket, tenant, with_person_since)
  WHERE with_person_since is not null;
"""

DOWN = """
drop index conversations_with_person;
alter table conversations drop column with_person_since, drop column with_person_why;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
