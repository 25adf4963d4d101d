"""PostgreSQL behind the port `redrive.ports.Store`.

Each verb is one method in `verbs/` that calls one SQL function in a transaction of its own; only `settle_one` has
several statements, because the user's `record` runs between them.
"""

from redrive.store.runtime.verbs.acts import PostgresActs
from redrive.store.runtime.verbs.claims import PostgresClaims
from redrive.store.runtime.verbs.clock import PostgresClock
from redrive.store.runtime.verbs.destinations import PostgresDestinations
from redrive.store.runtime.verbs.duties import PostgresDuties
from redrive.store.runtime.verbs.limit_keys import PostgresLimitKeys
from redrive.store.runtime.verbs.relays import PostgresRelays
from redrive.store.runtime.verbs.workers import PostgresWorkers


class PostgresStore(
    PostgresClaims,
    PostgresDestinations,
    PostgresLimitKeys,
    PostgresRelays,
    PostgresWorkers,
    PostgresDuties,
    PostgresClock,
    PostgresActs,
):
    """One database. Open it with `async with`."""
