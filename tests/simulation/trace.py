"""What happened, in order: kept as values while a schedule runs, written out only when somebody wants to read it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.simulation.loop import SimulationLoop


class Trace:
    """Messages and workers get short names, in the order in which they came up."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._notes: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self._names: dict[UUID, str] = {}

    def name(self, id: UUID, name: str) -> None:
        self._names[id] = name

    def note(self, what: str, *values: Any, who: str | None = None) -> None:
        self._notes.append((self._loop.now, who or self._loop.process.name, what, values))

    def lines(self) -> Iterator[str]:
        for at, who, what, values in self._notes:
            yield " ".join([f"{at:9.4f}", f"{who:<10}", what, *map(self.word, values)])

    def word(self, value: Any) -> str:
        if isinstance(value, UUID):
            return self._names.get(value) or str(value)[:8]
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.word, value))}]"
        return str(value)

    def digest(self) -> str:
        """Two runs with the same one did the same."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()[:16]
