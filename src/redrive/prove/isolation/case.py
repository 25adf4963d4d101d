"""What a case of this proof is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redrive.prove.isolation.environment import CaseEnvironment


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number. bound: what it may be at most; None = it is shown for comparison only."""

    what: str
    measured: float
    unit: str
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.measured <= self.bound


@dataclass(frozen=True, kw_only=True)
class Case:
    """name: what the command line takes. title: one sentence, the trouble that is made."""

    name: str
    title: str
    run: Callable[[CaseEnvironment], list[Figure]]
