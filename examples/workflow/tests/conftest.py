"""Tables once; each test is a transaction that is rolled back."""

import subprocess
import sys

import psycopg
import pytest
from workflow.database import DSN, create_tables


@pytest.fixture(scope="session")
def schema():
    subprocess.run([sys.executable, "-m", "redrive", "db", "upgrade"], check=True)
    with psycopg.connect(DSN) as conn:
        create_tables(conn)


@pytest.fixture
def conn(schema):
    with psycopg.connect(DSN) as conn:
        conn.execute("SET redrive.tenant = '*'")
        yield conn
        conn.rollback()


@pytest.fixture
def redrive_connection(conn):
    return conn
