"""The public names for the author of a system (`redrive.System`): import from here, never from the engine's modules.

    statements   a statement of your own on any connection that `redrive.enqueue` takes
    inbox        receive a message of a broker, or defer it to the engine
    database     connections, SQL files, snapshots and duties on your own tables
    group        a command group that imports its commands when they are used, and options of proofs
    parts        router, demo, proof and settings of a system, imported when they are used
    cli          what commands share: --dsn, --json, --tenant, tables, notes, exit codes
    settings     the tables of `redrive.toml` as dataclasses
    transport    answers, lookups and rules of a destination
    metrics      how a metric is declared
    web          dependencies of a FastAPI route: principal, permission, store, tenant
    relay        a relay in this process, and an embedded PostgreSQL: for demos and proofs
    demo         the command, the database and the relay of a story that a person watches
    simulator    the other side of a demo or a proof: a web application in a process of its own
    proof        reports, processes, random histories: for `redrive prove NAME`

With `redrive`, `redrive.errors`, `redrive.transports` and `redrive.patterns` they are all that a system needs, and all
that the systems of this package may import. docs/how-to/write-a-system.md builds one.
"""

from redrive.lazy import export

__all__ = ["export"]
