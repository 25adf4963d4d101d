"""The database is where PGHOST, PGUSER, … lead to, as for psql."""

import os
from collections.abc import Iterator

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

DSN = f"dbname={os.environ.get('PGDATABASE', 'orders')}"  # for the relay; libpq adds the rest
engine = create_engine("postgresql+psycopg://", connect_args={"dbname": os.environ.get("PGDATABASE", "orders")})


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    item: Mapped[str]


def session() -> Iterator[Session]:
    """One transaction for each request."""
    with Session(engine) as session, session.begin():
        yield session
