"""Seam S8: a system plugs in as one object, and out again by not being there (G-30).

A package offers its system by an entry point in the group `redrive.systems`; `discover` finds them. The command line
adds its commands, `db upgrade` its migrations, a relay its destinations and duties. The engine knows no system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from redrive.errors import OperatorError

if TYPE_CHECKING:
    from redrive.app import Destination, Duty

GROUP = "redrive.systems"


@dataclass(frozen=True, kw_only=True)
class System:
    """Everything that a system brings.

    migrations: directory with `tables/` and `verbs/` as in redrive/store/sql, run after the engine's; None = no tables.
    cli: a click command or group. router: an ASGI router for the console. metrics, views: names to declarations.
    demo, prove: callables behind `redrive <name> demo` and `redrive prove <name>`.
    """

    name: str
    migrations: Traversable | None = None
    destinations: Sequence[Destination] = ()
    duties: Sequence[Duty] = ()
    cli: Any = None
    router: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, Any] = field(default_factory=dict)
    demo: Callable[..., Any] | None = None
    prove: Callable[..., Any] | None = None


def discover() -> dict[str, System]:
    """The systems that are installed, by name."""
    from importlib.metadata import entry_points  # slow to import, and needed by the command line only

    found: dict[str, System] = {}
    for point in entry_points(group=GROUP):
        system = point.load()
        if not isinstance(system, System):
            raise OperatorError(
                f"Entry point {point.name!r} of {GROUP} is a {type(system).__name__}, not a redrive.System."
            )
        if system.name in found:
            raise OperatorError(f"Two installed packages offer a system named {system.name!r}.")
        found[system.name] = system
    return found
