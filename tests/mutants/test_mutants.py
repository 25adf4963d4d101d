"""The tests notice the bugs that they are there for (F23): each planted bug turns the test that it names red."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mutants.fork_server import ForkServer
from tests.mutants.planted import KILLED, Mutant, judge, mutants

ALL = mutants()


def _as_parameter(mutant: Mutant) -> object:
    return pytest.param(mutant, id=mutant.name, marks=pytest.mark.full if mutant.in_ci else pytest.mark.soak)


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.mark.req("G-14")
@pytest.mark.parametrize("mutant", [_as_parameter(mutant) for mutant in ALL])
def test_a_planted_bug_is_found_by_the_test_that_names_it(mutant: Mutant, server_dsn: str, forks: ForkServer) -> None:
    assert judge(mutant, server_dsn, forks) == KILLED


def test_ci_tries_every_mutant_about_money_and_at_least_six_others() -> None:
    assert len(ALL) >= 45
    assert sum(mutant.money for mutant in ALL) >= 4
    assert sum(mutant.quick and not mutant.money for mutant in ALL) >= 6
    assert all(mutant.in_ci for mutant in ALL if mutant.money)


def test_the_simulation_by_itself_finds_at_least_five_of_them_in_ci() -> None:
    found_by_it = [mutant for mutant in ALL if mutant.test.startswith("tests/simulation/")]
    assert sum(mutant.in_ci for mutant in found_by_it) >= 5
