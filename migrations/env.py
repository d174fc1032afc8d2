"""Run the migrations on the connection of `orchestrator.store.database`."""

from __future__ import annotations

from alembic import context

from orchestrator.store.tables import TableBase

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TableBase.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
