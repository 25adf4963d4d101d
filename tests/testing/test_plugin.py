"""The fixtures for pytest, in runs of pytest of their own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOP = """
import redrive

app = redrive.App()
sent = []


@app.destination("mail", policy=redrive.Policy(attempts=3))
def send(message):
    sent.append(message.payload)
"""
CONFTEST = """
import psycopg
import pytest

@pytest.fixture
def redrive_connection():
    with psycopg.connect({dsn!r}) as connection:
        yield connection
        connection.rollback()
"""
TESTS = """
import pytest
import redrive
import shop
from redrive import Delivered, Retryable
from redrive.testing import assert_parked


def test_drain(redrive_connection, redrive_drain):
    redrive.enqueue(redrive_connection, "mail", 1)
    assert len(redrive_drain().delivered) == 1
    assert shop.sent.pop() == 1


def test_clock(redrive_connection, redrive_clock, redrive_script, redrive_drain):
    mail = redrive_script("mail", Retryable("BUSY"), Delivered())
    redrive.enqueue(redrive_connection, "mail", 1)
    assert redrive_drain().delivered == []
    redrive_clock.advance(86_400)
    assert len(redrive_drain().delivered) == 1
    assert [attempt.number for attempt in mail.sent] == [1, 2]


def test_dead(redrive_connection, redrive_script, redrive_drain):
    redrive_script("mail", *[Retryable("BUSY")] * 3)
    redrive.enqueue(redrive_connection, "mail", 1)
    redrive_drain(to_the_end=True)
    assert_parked(redrive_connection, "mail", "BUSY")


def test_inline(redrive_connection, redrive_inline):
    redrive.enqueue(redrive_connection, "mail", 2)
    assert shop.sent.pop() == 2
    assert len(redrive_inline.delivered) == 1


def test_script_left_over(redrive_script):
    redrive_script("mail", Delivered())


def test_app_is_as_before(redrive_app):
    assert redrive_app is not shop.app
    assert redrive_app.destinations == shop.app.destinations
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, database: str) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP, test_shop=TESTS)
    pytester.makeconftest(CONFTEST.format(dsn=database))
    pytester.makeini("[pytest]\nredrive_app = shop:app\npythonpath = .\n")
    return pytester


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    others = ("xdist", "randomly", "asyncio", "timeout", "hypothesispytest", "django")
    quiet = [word for name in others for word in ("-p", f"no:{name}")]
    return pytester.runpytest_inprocess("-p", "redrive.testing.plugin", *quiet, *arguments)


def test_the_fixtures_drain_move_time_script_destinations_and_deliver_inline(suite: pytest.Pytester) -> None:
    result = run(suite)
    result.assert_outcomes(passed=6, errors=1)  # a script that was left over, at the end of its test
    result.stdout.fnmatch_lines(["*1 steps of the script were not taken*"])


def test_who_has_not_said_where_app_and_connection_are_is_told_how(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_app(redrive_app): ...\n\ndef test_connection(redrive_connection): ...\n",
    )
    result = run(pytester)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*redrive_app = shop:app*", "*Define a fixture `redrive_connection`*"])


def test_loading_it_imports_nothing_of_the_engine_and_no_third_party_module() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import redrive.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": "src"}, cwd=ROOT
    )
    assert done.stdout.split() == ["redrive", "redrive.lazy", "redrive.testing", "redrive.testing.plugin"], done.stderr


def test_the_wheel_names_the_plugin_so_that_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"redrive": "redrive.testing.plugin"}
