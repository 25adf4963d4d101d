"""Every case, in the order in which they are run: a module whose docstring begins with the trouble that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from redrive.prove.isolation import (
    cancel,
    claims,
    clock,
    hostile_peers,
    limit_keys,
    open_transaction,
    partitions,
    rate,
    suspects,
    upkeep,
)
from redrive.prove.isolation.environment import CaseEnvironment, Figure


@dataclass(frozen=True, kw_only=True)
class Case:
    """name: what the command line takes. title: one sentence."""

    name: str
    title: str
    run: Callable[[CaseEnvironment], list[Figure]]


def _case(module: ModuleType) -> Case:
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    return Case(name=name, title=(module.__doc__ or "").partition("\n")[0], run=module.run)


CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in map(
        _case,
        (open_transaction, cancel, suspects, limit_keys, hostile_peers, partitions, clock, rate, claims, upkeep),
    )
}
