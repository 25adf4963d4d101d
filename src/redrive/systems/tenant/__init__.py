"""The tenant outbox: domain events of many tenants, each once by its key, by the names of its document.

    outbox = tenant.Outbox(TYPES)                                            # event types and options, declared once
    outbox.writer.add(conn, "acme", tenant.Event("DefinitionPublished", {…}, parts={"entity": "d-7", "version": 3}))
    app.include(outbox.system())                                             # what a relay runs

Importing this needs no library of an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive import System
from redrive.kit import loader, modules_of
from redrive.systems.tenant.cli import command
from redrive.systems.tenant.views import VIEWS

if TYPE_CHECKING:
    # isort: off
    # fmt: off
    from redrive.systems.tenant.event_types import (
        Correlation as Correlation, EventType as EventType, EventTypes as EventTypes,
        TimestampBucket as TimestampBucket, Version as Version,
    )
    from redrive.systems.tenant.options import OutboxOptions as OutboxOptions
    from redrive.systems.tenant.outbox import Outbox as Outbox
    from redrive.systems.tenant.writer import Added as Added, Event as Event, OutboxWriter as OutboxWriter
    # fmt: on
    # isort: on

_MODULE_OF = modules_of(
    {
        "redrive.systems.tenant.event_types": "Correlation EventType EventTypes TimestampBucket Version",
        "redrive.systems.tenant.options": "OutboxOptions",
        "redrive.systems.tenant.outbox": "Outbox",
        "redrive.systems.tenant.writer": "Added Event OutboxWriter",
    }
)
__all__ = sorted([*_MODULE_OF, "system"])  # noqa: PLE0605 - the names are listed once
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, _MODULE_OF)


def _from_settings(table: Mapping[str, Any], file: Path) -> System:
    from redrive.systems.tenant.toml_outbox import from_settings

    return from_settings(table, file)


def _demo(**values: Any) -> int:
    """Events of three tenants, told as they happen."""
    from redrive.kit.demo import Demo
    from redrive.systems.tenant.demo.play import run

    console = values.pop("console")
    return run(Demo(**values), console)


def _prove(**values: Any) -> Any:
    """Write and deliver events of many tenants while producers repeat themselves and one tenant's endpoint is hostile.

    Several producers add the same events at once, roll back and repeat; relays and producers get kill -9, PostgreSQL is
    stopped at once. The hostile endpoint hangs, fails, resets, throttles and trickles. Each committed event must have
    its effect once in the subscribers' own ledger, at its own tenant, in order where it has one, or be a dead letter
    with its reason. Views and snapshot must agree with the ledger and the tables, and the neighbours of the hostile
    tenant must not wait for it; how long they waited is printed. Exit code 1 means that one of these is not so.
    """
    from redrive.systems.tenant.prove.prove import prove

    return prove(**values)


def _router() -> Any:
    from redrive.systems.tenant.router import router

    return router


system = System(
    name="tenant",
    migrations=files(__name__) / "sql",
    cli=command,
    router=_router,
    router_path="/api/workflow/outbox",
    views=VIEWS,
    demo=_demo,
    prove=_prove,
    from_settings=_from_settings,
)
