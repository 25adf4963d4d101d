"""A producer carries nothing: importing it loads the standard library and this package's own words, no driver."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

LIST = "import sys; print(*sys.modules)"


# 78 on Python 3.11, beginning with nothing at all; what a process has already costs no time again.
MODULES_MAX = 90
# Of the standard library, each dearer than all of ours together.
DEAR = {"asyncio", "email", "http", "logging", "multiprocessing", "socket", "ssl", "subprocess", "tempfile", "urllib"}


def imported_by(code: str) -> set[str]:
    """Top-level names of every module that is imported beyond those of a bare start."""
    return {name.split(".")[0] for name in modules_imported_by(code)}


def modules_imported_by(code: str, *flags: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    loaded = []
    for what in ("pass", code):
        command = [sys.executable, *flags, "-c", f"{what}\n{LIST}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        loaded.append(set(done.stdout.split()))
    return loaded[1] - loaded[0]


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    "code",
    [
        "import redrive.produce",
        "import redrive; redrive.enqueue, redrive.enqueue_many, redrive.aenqueue, redrive.key, redrive.NewMessage",
        "from redrive.produce.protocol import prepare; import redrive; prepare(redrive.NewMessage('mail', {'a': 1}))",
    ],
)
def test_importing_the_producer_imports_no_third_party(code: str) -> None:
    assert imported_by(code) - sys.stdlib_module_names == {"redrive"}


def test_importing_the_producer_is_quick_because_it_imports_little() -> None:
    """60 ms at the most is the aim; a time cannot be asserted on a busy machine, the number of modules can."""
    loaded = modules_imported_by("import redrive; redrive.enqueue, redrive.wait, redrive.KeyReused", "-S")
    assert len(loaded) <= MODULES_MAX, sorted(loaded)
    assert {name.split(".")[0] for name in loaded} & DEAR == set()


def test_a_driver_would_be_noticed() -> None:
    assert "psycopg" in imported_by("import redrive.produce.psycopg")


# greenlet comes with SQLAlchemy 2.1 only on request; without it `sqlalchemy.ext.asyncio` cannot be imported.
WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None
import psycopg, redrive, sqlalchemy
from sqlalchemy.orm import Session
engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(sys.argv[1]))
with engine.begin() as conn:
    redrive.enqueue(conn, "mail", {"n": 1})
with Session(engine) as session, session.begin():
    receipt = redrive.enqueue(session, "mail", {"n": 2})
    redrive.status(session, receipt.id)
assert "sqlalchemy.ext.asyncio" not in sys.modules
"""


@pytest.mark.req("G-01")
def test_a_synchronous_sqlalchemy_needs_no_greenlet(database: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", WITHOUT_GREENLET, database]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM redrive.pending").fetchone() == (2,)
