"""Alembic's environment: your models, and nothing of the schema that Redrive looks after."""

from alembic import context
from orders.database import Base, engine

import redrive.alembic

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_schemas=True,
        include_name=redrive.alembic.include_name,
    )
    with context.begin_transaction():
        context.run_migrations()
