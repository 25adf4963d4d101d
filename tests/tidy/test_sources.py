"""Rules of the house that a reader cannot be expected to check by eye."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "redrive"
EDGE = {"process.py", "build.py", "suspect_child.py"}  # where the real clock and real randomness come in
ENGINE = [
    path
    for part in ("relay", "recover", "store", "produce")
    for path in sorted((SOURCE / part).rglob("*.py"))
    if path.name not in EDGE
]
WORDS = [
    *(SOURCE / f"{name}.py" for name in ("message", "answers", "policy", "events", "redact", "errors")),
    *sorted((SOURCE / "ports").glob("*.py")),
]
FORBIDDEN_CALLS = {
    "time.time",
    "time.monotonic",
    "datetime.now",
    "datetime.utcnow",
    "uuid.uuid4",
    "random.random",
    "uuid4",
}


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", [*WORDS, *ENGINE], ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_engine_reads_no_clock_and_draws_no_random_number_of_its_own(path: Path) -> None:
    taken = {call for call in calls(path) if call in FORBIDDEN_CALLS}
    if path.name.startswith("migrat"):
        taken -= {"time.monotonic"}  # a migrator waits for locks in real time
    assert taken == set()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_module_says_what_it_promises(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said
    assert "TODO" not in said


@pytest.mark.parametrize("path", sorted((SOURCE / "store" / "sql").rglob("*.sql")), ids=lambda path: path.name)
def test_every_sql_file_opens_with_what_it_promises(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if not line.startswith("-- redrive:"))
    assert first.startswith("-- ")


def test_every_verb_is_a_versioned_security_definer_function_with_a_fixed_search_path() -> None:
    for path in sorted((SOURCE / "store" / "sql" / "verbs").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        for name, head in re.findall(r"REPLACE FUNCTION redrive\.(\w+_\d+)\((.*?) AS \$body", text, re.DOTALL):
            assert "SECURITY DEFINER SET search_path = redrive, pg_temp" in head, f"{path.name}: {name}"
            assert "LANGUAGE plpgsql" in head, f"{path.name}: {name}"


def tracked_texts() -> Iterator[tuple[Path, str]]:
    kinds = {".py", ".sql", ".md", ".toml", ".txt", ".in", ".sh", ".yml", ".cfg", ""}
    skipped = {".git", ".environment", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"}
    for path in ROOT.rglob("*"):
        if path.is_file() and path.suffix in kinds and not skipped & set(path.parts):
            yield path, path.read_text(encoding="utf-8", errors="ignore")


def test_no_registry_host_machine_path_or_secret_is_in_the_repository() -> None:
    hosts = re.compile(r"https?://[^\s\"')>]*(?:pypi|pythonhosted|debian\.org|npmjs)")
    paths = re.compile(r"(?<![A-Za-z0-9._-])/(?:home|root|work)/[a-z]")
    secrets = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|AKIA[0-9A-Z]{16}")
    here = Path(__file__)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in tracked_texts()
        if path != here
        for pattern in (hosts, paths, secrets)
        for match in pattern.finditer(text)
    ]
    assert found == []
