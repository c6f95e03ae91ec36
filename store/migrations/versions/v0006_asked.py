"""How often a provider was asked for a lost delivery, and how often it did not have it."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE deliveries ADD COLUMN asked INTEGER NOT NULL DEFAULT 0,"
        " ADD COLUMN not_found INTEGER NOT NULL DEFAULT 0"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE deliveries DROP COLUMN asked, DROP COLUMN not_found")
