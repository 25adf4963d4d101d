"""The suites of the example applications, each run as its own team would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psycopg
import pytest

from tests.support.doors import parts_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIBPQ = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}


def run(example: str, dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    parts = parts_of(dsn)
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "DJANGO_", "PYTEST_"))
        },
        **{variable: str(parts[part]) for part, variable in LIBPQ.items() if part in parts},
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    place = EXAMPLES / example
    return subprocess.run([sys.executable, *words], cwd=place, env=environment, capture_output=True, text=True)


def plugin() -> tuple[str, ...]:
    """As it is where the package is installed; in this tree it has to be named."""
    names = {point.name for point in metadata.entry_points(group="pytest11")}
    return () if "redrive" in names else ("-p", "redrive.testing.plugin")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", ["django_shop", "fastapi_orders", "orders_and_billing", "plain_mailer", "workflow"])
def test_the_suite_of_the_example_passes(example: str, empty_database: str) -> None:
    done = run(example, empty_database, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_the_django_shop_is_whole_and_its_relay_starts_and_stops(empty_database: str) -> None:
    """Migrated and checked; `manage.py redrive relay` in a process of its own delivers until SIGTERM."""
    done = run("django_shop", empty_database, "-c", RELAY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Thank you for ordering tea." in done.stdout
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("SELECT state FROM redrive.messages").fetchall() == [("delivered",)]


# A new project; a customer orders, and stops the relay when the order is confirmed.
RELAY = """
import os, signal, subprocess, sys, time
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("check", databases=["default"], fail_level="WARNING")
call_command("makemigrations", check_changes=True, verbosity=0)
from shop.models import Order
from shop.orders import place_order
relay = subprocess.Popen([sys.executable, "manage.py", "redrive", "relay"])
order = place_order("ada@example.com", "tea")
try:
    for _ in range(600):
        order.refresh_from_db()
        if order.confirmed_at:
            break
        time.sleep(0.05)
finally:
    relay.send_signal(signal.SIGTERM)
sys.exit(relay.wait(30))
"""
