"""What Alembic runs: the connection is handed in, so that this works under our own lock and never reads a setting."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
