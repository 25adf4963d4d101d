"""In which order the tests of a run come, and whose modules are worth importing.

pytest-randomly has shuffled modules and the tests in them; `--dist worksteal` gives each worker an equal share of what
results, from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# What must hold on the oldest PostgreSQL too: the verbs, the schema's changes, and a kill at each step boundary.
# Marked by path alone: with `-m pg15` no other module is imported.
PG15 = frozenset({"conformance", "crash/test_failpoints.py", "desk", "lifecycle", "migration"})


def runs_on_15(path: Path) -> bool:
    """Whether the tests of this module run on PostgreSQL 15 as well."""
    return any(path.is_relative_to(TESTS / part) for part in PG15)


def is_left_out(path: Path, markexpr: str) -> bool:
    """Whether none of the tests in or below it can be selected. To import them all takes each worker many seconds."""
    if markexpr != "pg15" or not path.is_relative_to(TESTS) or path == TESTS or path.name == "conftest.py":
        return False
    return not runs_on_15(path) and not any((TESTS / part).is_relative_to(path) for part in PG15)


def long_ones_early(items: Sequence[pytest.Item], *, workers: int) -> list[pytest.Item]:
    """Modules that give their tests a timeout of their own come before all that stood in the second half of a share.

    So a worker that runs a long test leaves others enough to take, and none runs one alone when they have ended. The
    tests of a module stay together, with its fixtures, and long modules do not all run at once.
    """
    size = max(1, len(items) // workers)
    ordered: list[pytest.Item] = []
    for start in range(0, len(items), size):
        ordered += _long_ones_early(items[start : start + size])
    return ordered


def _long_ones_early(share: Sequence[pytest.Item]) -> list[pytest.Item]:
    first: dict[Path, int] = {}
    for place, item in enumerate(share):
        first.setdefault(item.path, place)
    long = {item.path for item in share if item.get_closest_marker("timeout")}
    return sorted(share, key=lambda item: first[item.path] / (2 if item.path in long else 1))
