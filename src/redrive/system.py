"""A system plugs in as one object (G-30).

A package offers its system by an entry point in the group `redrive.systems`; those that come with Redrive are the
folders of `redrive.systems`. `discover` finds both. The command line adds its commands, `db upgrade` its migrations, a
relay its destinations and duties. The engine knows no system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.errors import OperatorError

if TYPE_CHECKING:
    from redrive.app import Destination, Duty
    from redrive.consume.consumer import Consumer
    from redrive.events import Events

GROUP = "redrive.systems"


@dataclass(frozen=True, kw_only=True)
class View:
    """A list that a system shows in the console, newest first.

    sql: a file with one SELECT that reads no more than it shows, with the parameters `before` (the `position` of the
    last row of the page before, as text, or NULL), `search` (a text or NULL) and `limit`; it obeys
    row-level security. columns: what it returns, with their headings. position: the column to go on behind.
    state: the column that is shown as a state. message: the column with the id of a message of the engine.
    search: what can be searched for, in words; empty: nothing can. nothing: what is said where there is none.
    all_tenants: only for callers with access to all tenants.
    """

    title: str
    lead: str
    sql: Traversable
    columns: Mapping[str, str]
    position: str
    nothing: str
    state: str | None = None
    message: str | None = None
    search: str = ""
    all_tenants: bool = False


def headings(columns: str, **unlike: str) -> dict[str, str]:
    """Columns of a view, with spaces between them, and their headings: `event_type` becomes "Event type", `created_at`
    "Created" and `tenant_id` "Tenant". unlike: headings that say something else."""
    return {name: unlike.get(name) or _heading(name) for name in columns.split()}


def _heading(column: str) -> str:
    return column.removesuffix("_at").removesuffix("_id").replace("_", " ").capitalize()


@dataclass(frozen=True, kw_only=True)
class System:
    """Everything that a system brings.

    migrations: directory with `tables/` and `verbs/` as in redrive/store/sql, run after the engine's; None = no tables.
    consumers: what a worker runs (those of an `App` that declares them); the destination of each one's name is among
    `destinations`.
    cli: a click command or group. router: a function that makes a FastAPI router for the API (called by the console
    only, so that no other program needs its libraries), mounted below router_path (None: /api/v1/ and the system's
    name); each route says what it needs (`redrive.kit.web.require`). streamed: paths of it whose POST reads its body
    itself, without the API's bound and its answer to a repeated Idempotency-Key.
    views: lists that the console shows, by name.
    metrics: by name, in the form of `redrive.operate.observe.catalogue`.
    observe: called with the events of each relay that includes the system. relay_settings: values that its relays use
    where nothing else sets them; of several systems the shortest time and the largest number count.
    demo: plays the story of `redrive <name> demo`, given a `redrive.kit.demo.Demo` and a console. prove: runs
    `redrive prove <name>`; its docstring is the help. prove_options: click options that it takes beside those of every
    proof.
    from_settings: the system as the table of its name in `redrive.toml` declares it, for a relay that no Python names.
    """

    name: str
    migrations: Traversable | None = None
    destinations: Sequence[Destination] = ()
    consumers: Sequence[Consumer] = ()
    duties: Sequence[Duty] = ()
    cli: Any = None
    router: Callable[[], Any] | None = None
    router_path: str | None = None
    streamed: Sequence[str] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    demo: Callable[..., Any] | None = None
    prove: Callable[..., Any] | None = None
    prove_options: Sequence[Callable[..., Any]] = ()
    from_settings: Callable[[Mapping[str, Any], Path], System] | None = None
    observe: Callable[[Events], object] | None = None
    relay_settings: Mapping[str, float] = field(default_factory=dict)


def discover() -> dict[str, System]:
    """The systems that are installed, by name."""
    from importlib.metadata import entry_points  # slow to import, and needed by the command line only

    found = _shipped()
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


def _shipped() -> dict[str, System]:
    """Those beside us, by their folders: without one of them the others are what they were."""
    from importlib import import_module
    from pkgutil import iter_modules

    place = import_module(GROUP).__path__  # by name: nothing of the engine imports a system
    modules = [import_module(f"{GROUP}.{one.name}") for one in iter_modules(place) if one.ispkg]
    return {module.system.name: module.system for module in modules}
