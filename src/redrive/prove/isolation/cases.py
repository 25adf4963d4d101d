"""Every case, in the order in which they are run: a function whose docstring begins with the trouble that it makes."""

from typing import Final

from redrive.prove.isolation import on_database, on_relays, on_transports
from redrive.prove.isolation.environment import Case

CASES: Final[dict[str, Case]] = {
    run.__name__.replace("_", "-"): run
    for run in (
        *(on_relays.open_transaction, on_relays.records, on_relays.cancel),
        *(on_relays.threads, on_relays.suspects),
        *(on_transports.limit_keys, on_transports.hostile_peers),
        *(on_database.partitions, on_database.clock, on_relays.rate, on_database.claims, on_database.upkeep),
    )
}
