"""Orders, and the schema of Redrive."""

import sqlalchemy as sa
from alembic import op

import redrive.alembic

revision, down_revision = "0001", None


def upgrade() -> None:
    redrive.alembic.upgrade(op)
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String, nullable=False),
        sa.Column("item", sa.String, nullable=False),
        schema="public",
    )


def downgrade() -> None:
    op.drop_table("orders", schema="public")  # the schema of Redrive stays: it holds what was promised to be sent
