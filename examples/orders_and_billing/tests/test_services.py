"""Both services with their processes; a database each on the server that PGHOST and so on lead to, and a broker."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

RUN = Path(__file__).parents[1] / "run.py"


@pytest.fixture
def databases():
    """The DSN of a new database for each service."""
    names = {service: f"{service}_{secrets.token_hex(4)}" for service in ("orders", "billing")}
    with psycopg.connect("", autocommit=True) as conn:
        server = make_conninfo(conn.info.dsn, password=conn.info.password)
        for name in names.values():
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield {service: make_conninfo(server, dbname=name) for service, name in names.items()}
        for name in names.values():
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_each_order_has_one_invoice_although_a_worker_and_a_relay_are_killed(databases):
    dsns = {f"{service.upper()}_DSN": dsn for service, dsn in databases.items()}
    done = subprocess.run(
        [sys.executable, str(RUN), "60"], env={**os.environ, **dsns}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 orders, each with exactly one invoice" in done.stdout
    assert done.stdout.count("is killed") == 2
    with psycopg.connect(databases["billing"]) as billing:
        (invoices,) = billing.execute("SELECT count(*) FROM invoices").fetchone()
        outcomes = billing.execute("SELECT outcome, count(*) FROM redrive.inbox GROUP BY 1").fetchall()
    assert (invoices, outcomes) == (60, [("processed", 60)])
