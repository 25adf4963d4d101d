"""Planted bugs: what a mutant is, and what becomes of it (F23).

A mutant is one TOML file in `planted/`: what the bug is, which changes plant it (a file, an old text, a new text), and
which test must go red. `judge` applies the changes to a copy of the source and the tests, runs the named test
against a database made from the copy, says `killed`, or why not, and takes the changes back. A text that is no longer
there is an error, so that a mutant cannot die of old age.

    about = "Settle does not look at the attempt number."
    test = "tests/interleavings/test_pairs.py::test_…[suspect]"
    money = true             # a second effect is possible: must always be killed, runs in CI
    quick = true             # runs in CI as well
    full = true              # the test is marked `full`: it needs a broker of the system
    [[change]]
    file = "src/redrive/store/sql/verbs/settle.sql"
    old = "AND x.attempt = i.attempt FOR UPDATE"
    new = "FOR UPDATE"
    times = 2                # how often the old text occurs; 1 if not said
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.mutants.fork_server import ForkServer
from tests.support import databases
from tests.support.scratch import scratch

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Path(__file__).parent / "planted"
COPIED = ("src", "tests", "tools", "pyproject.toml")
KILLED = "killed"
PLUGINS = ("_hypothesis_pytestplugin", "pytest_asyncio.plugin", "pytest_randomly", "pytest_timeout", "xdist.plugin")
SECONDS = 110
TESTS_FAILED = 1


@dataclass(frozen=True)
class Change:
    """times: how often the old text occurs in the file; all occurrences are changed."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Mutant:
    """money: a second effect becomes possible. quick: runs in CI although no money is at stake. full: as its test."""

    name: str
    about: str
    test: str
    changes: tuple[Change, ...]
    money: bool = False
    quick: bool = False
    full: bool = False

    @property
    def in_ci(self) -> bool:
        return self.money or self.quick


def mutants() -> list[Mutant]:
    """All that are planted, by name."""
    return [read(path) for path in sorted(PLANTED.glob("*.toml"))]


def read(path: Path) -> Mutant:
    given = tomllib.loads(path.read_text())
    changes = tuple(Change(**change) for change in given.pop("change"))
    return Mutant(name=path.stem, changes=changes, **given)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the source and the tests, for one mutant after the other."""
    with scratch("redrive-mutants-") as place:
        _copy(place)
        yield place


def judge(mutant: Mutant, server_dsn: str, forks: ForkServer, place: Path) -> str:
    """`killed` when the named test failed; else what happened instead. place: a copy, the same again afterwards."""
    try:
        for change in mutant.changes:
            _plant(place, change)
        try:
            done = _run_test(place, mutant, server_dsn, forks)
        finally:
            _drop_template(place, server_dsn)
    finally:
        _put_back(place, mutant)
    return _verdict(done)


def _copy(place: Path) -> None:
    """With what is compiled already: Python compiles a file again only where its time or size has changed."""
    half_written = shutil.ignore_patterns("*.pyc.*")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=half_written)
        else:
            shutil.copy2(ROOT / name, place / name)


def _put_back(place: Path, mutant: Mutant) -> None:
    """The files as they were, with their times, and without what the run has left."""
    for change in mutant.changes:
        shutil.copy2(ROOT / change.file, place / change.file)
    for left in place.iterdir():
        if left.is_dir() and left.name not in COPIED:
            shutil.rmtree(left)
        elif left.name not in COPIED:
            left.unlink()


def _plant(place: Path, change: Change) -> None:
    path = place / change.file
    text = path.read_text()
    found = text.count(change.old)
    if found != change.times:
        raise LookupError(f"{change.file} has {change.old!r} {found} times; the mutant expects {change.times}.")
    path.write_text(text.replace(change.old, change.new))


def _run_test(place: Path, mutant: Mutant, server_dsn: str, forks: ForkServer) -> subprocess.CompletedProcess[str]:
    arguments = ["-q", "-x", "-rfE", "-n0", "-p", "no:cacheprovider"]
    for plugin in PLUGINS:
        arguments += ["-p", plugin]
    arguments += [*(["--full"] if mutant.full else []), mutant.test]
    variables = {"REDRIVE_TEST_DSN": server_dsn, "PYTHONDONTWRITEBYTECODE": "1"}
    return forks.pytest(place, arguments, variables, seconds=SECONDS)


def _verdict(done: subprocess.CompletedProcess[str]) -> str:
    """A test that fails kills; one that cannot even start (ERROR) says nothing about the bug."""
    failed = re.search(r"^FAILED ", done.stdout, re.MULTILINE)
    error = re.search(r"^ERROR ", done.stdout, re.MULTILINE)
    if done.returncode == TESTS_FAILED and failed and not error:
        return KILLED
    if done.returncode == 0:
        return "survived"
    return f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"


def _drop_template(place: Path, server_dsn: str) -> None:
    """The template of the mutated schema is of no use to anybody else."""
    spec = importlib.util.spec_from_file_location("mutated_databases", place / "tests/support/databases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    digest = module._digest_of_schema()
    if digest == databases._digest_of_schema():
        return  # the bug is not in the schema: this is everybody's
    name = f"redrive_template_{digest}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
