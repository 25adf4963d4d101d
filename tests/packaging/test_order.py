"""The order of a run: long tests do not come last, and nothing that is asked for is left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.order import TESTS, is_left_out, long_ones_early, runs_on_15

WORKERS = 3


class Item:
    """As much of a test as the order depends on."""

    def __init__(self, module: int, number: int, *, long: bool) -> None:
        self.path = Path(f"test_{module}.py")
        self.number = number
        self.long = long

    def get_closest_marker(self, name: str) -> Any:
        return pytest.mark.timeout(600) if self.long and name == "timeout" else None


def suite(seed: int) -> list[Item]:
    """Sixty modules in random order; of every tenth one test is long."""
    modules = random.Random(seed).sample(range(60), 60)
    return [Item(module, number, long=module % 10 == 0 and number == 3) for module in modules for number in range(5)]


def ordered(items: Sequence[Item]) -> list[Item]:
    return cast("list[Item]", long_ones_early(cast("list[pytest.Item]", items), workers=WORKERS))


@pytest.mark.parametrize("seed", range(20))
def test_after_the_last_long_module_of_a_share_there_is_half_of_the_share_to_share(seed: int) -> None:
    items = suite(seed)
    after, size = ordered(items), len(items) // WORKERS
    for start in range(0, len(items), size):
        long = {item.path for item in items[start : start + size] if item.long}
        last = max((place for place in range(start, start + size) if after[place].path in long), default=-1)
        half = [item for item in items[start + size // 2 : start + size] if item.path not in long]
        # The module in the middle of the share began in its first half.
        assert all(after.index(item) > last for item in half if item.path != half[0].path)


@pytest.mark.parametrize("seed", range(20))
def test_every_test_is_there_once_and_those_of_a_module_stay_together(seed: int) -> None:
    items = suite(seed)
    after = ordered(items)
    assert sorted(map(id, after)) == sorted(map(id, items))
    assert len([path for path, _ in groupby(after, key=lambda item: item.path)]) == 60


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_fewer_tests_than_workers_are_kept_in_order(workers: int) -> None:
    items = cast("list[pytest.Item]", [Item(1, 1, long=False), Item(2, 1, long=False)])
    assert long_ones_early(items, workers=workers) == items


def test_only_what_no_test_is_selected_from_is_left_out() -> None:
    modules = set(TESTS.rglob("test_*.py"))
    imported = {path for path in modules if not any(is_left_out(part, "pg15") for part in (path, *path.parents))}
    assert imported == {path for path in modules if runs_on_15(path)}
    assert not any(is_left_out(path, expression) for path in modules for expression in ("", "pg15 or full"))


def test_on_postgresql_15_run_the_verbs_the_migrations_and_a_kill_at_each_step_boundary() -> None:
    by_directory = Counter(path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if runs_on_15(path))
    assert by_directory.keys() == {"conformance", "crash", "desk", "lifecycle", "migration"}
    assert by_directory["crash"] == 1
    for whole in by_directory.keys() - {"crash"}:
        assert by_directory[whole] == len(list((TESTS / whole).rglob("test_*.py"))), whole


def test_no_test_is_marked_for_postgresql_15_one_by_one() -> None:
    mark = "mark." + "pg15"
    found = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if mark in path.read_text("utf-8")]
    assert found == ["conftest.py"]
