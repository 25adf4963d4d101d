"""The tenant outbox: domain events of many tenants, each once by its key, by the names of its document.

    outbox = tenant.Outbox(TYPES)                                            # event types and options, declared once
    outbox.writer.add(conn, "acme", tenant.Event("DefinitionPublished", {…}, parts={"entity": "d-7", "version": 3}))
    app.include(outbox.system())                                             # what a relay runs

Importing this needs no library of an extra.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from redrive import System
from redrive.kit import export
from redrive.kit.parts import later, router_of
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

__all__ = export(  # noqa: PLE0605 - the names are listed once
    __name__,
    {
        "event_types": "Correlation EventType EventTypes TimestampBucket Version",
        "options": "OutboxOptions",
        "outbox": "Outbox",
        "writer": "Added Event OutboxWriter",
    },
    also=["system"],
)

_PROVE: Final = """\
Write and deliver events of many tenants while producers repeat themselves and one tenant's endpoint is hostile.

Several producers add the same events at once, roll back and repeat; relays and producers get kill -9, PostgreSQL is
stopped at once. The hostile endpoint hangs, fails, resets, throttles and trickles. Each committed event must have its
effect once in the subscribers' own ledger, at its own tenant, in order where it has one, or be a dead letter with its
reason. Views and snapshot must agree with the ledger and the tables, and the neighbours of the hostile tenant must
not wait for it; how long they waited is printed. Exit code 1 means that one of these is not so.
"""

system = System(
    name="tenant",
    migrations=files(__name__) / "sql",
    cli=command,
    router=router_of(f"{__name__}.router"),
    router_path="/api/workflow/outbox",
    views=VIEWS,
    demo=later(f"{__name__}.demo.play", "run"),
    prove=later(f"{__name__}.prove.prove", "prove", about=_PROVE),
    from_settings=later(f"{__name__}.toml_outbox", "from_settings"),
)
