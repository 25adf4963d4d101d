"""The tests notice the bugs that they are there for (F23): each planted bug turns the test that it names red."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.fork_server import ForkServer
from tests.mutants.planted import COPIED, KILLED, ROOT, Mutant, copied, judge, mutants

ALL = mutants()


def _as_parameter(mutant: Mutant) -> object:
    return pytest.param(mutant, id=mutant.name, marks=pytest.mark.full if mutant.in_ci else pytest.mark.soak)


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="session")
def copy() -> Iterator[Path]:
    """Of the source and the tests: each planted bug is taken out of it again."""
    with copied() as place:
        yield place


@pytest.mark.req("G-14")
@pytest.mark.parametrize("mutant", [_as_parameter(mutant) for mutant in ALL])
def test_a_planted_bug_is_found_by_the_test_that_names_it(
    mutant: Mutant, server_dsn: str, forks: ForkServer, copy: Path
) -> None:
    assert judge(mutant, server_dsn, forks, copy) == KILLED


def test_what_was_planted_and_what_its_test_left_is_gone_from_the_copy(
    server_dsn: str, forks: ForkServer, copy: Path
) -> None:
    mutant = next(mutant for mutant in ALL if mutant.test.startswith("tests/unit/"))
    file = mutant.changes[0].file
    assert judge(mutant, server_dsn, forks, copy) == KILLED
    assert sorted(path.name for path in copy.iterdir()) == sorted(COPIED)
    assert (copy / file).read_bytes() == (ROOT / file).read_bytes()
    assert (copy / file).stat().st_mtime_ns == (ROOT / file).stat().st_mtime_ns
    whole = replace(mutant, changes=())
    assert judge(whole, server_dsn, forks, copy) == "survived"


def test_ci_tries_every_mutant_about_money_and_at_least_six_others() -> None:
    assert len(ALL) >= 45
    assert sum(mutant.money for mutant in ALL) >= 4
    assert sum(mutant.quick and not mutant.money for mutant in ALL) >= 6
    assert all(mutant.in_ci for mutant in ALL if mutant.money)


def test_the_simulation_by_itself_finds_at_least_five_of_them_in_ci() -> None:
    found_by_it = [mutant for mutant in ALL if mutant.test.startswith("tests/simulation/")]
    assert sum(mutant.in_ci for mutant in found_by_it) >= 5


def test_every_planted_bug_fits_the_source_also_where_only_the_long_run_tries_it() -> None:
    counts = {
        (mutant.name, change.file): ((ROOT / change.file).read_text().count(change.old), change.times)
        for mutant in ALL
        for change in mutant.changes
    }
    assert {where: found for where, found in counts.items() if found[0] != found[1]} == {}
