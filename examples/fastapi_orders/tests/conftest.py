"""One transaction for each test, never committed: what the application commits is a savepoint in it."""

import pytest
from alembic import command
from alembic.config import Config
from fastapi.testclient import TestClient
from orders.database import Order, engine, session
from orders.main import app
from sqlalchemy import delete
from sqlalchemy.orm import Session


@pytest.fixture(scope="session")
def schema():
    command.upgrade(Config("alembic.ini"), "head")


@pytest.fixture
def redrive_connection(schema):
    with engine.connect() as connection, connection.begin() as transaction:
        with Session(connection, join_transaction_mode="create_savepoint") as test_session:
            yield test_session
        transaction.rollback()


@pytest.fixture
def client(redrive_connection):
    """Without `with`, so without lifespan: no relay runs beside the test."""

    def of_the_test():
        yield redrive_connection
        redrive_connection.commit()

    app.dependency_overrides[session] = of_the_test
    yield TestClient(app)
    app.dependency_overrides.clear()


@pytest.fixture
def receipts(tmp_path, monkeypatch):
    monkeypatch.setenv("RECEIPTS", str(tmp_path))
    return tmp_path


@pytest.fixture
def cleared(schema):
    """For a test that commits for real: its orders are gone afterwards, whichever test comes next."""
    yield
    with engine.begin() as connection:
        connection.execute(delete(Order))
