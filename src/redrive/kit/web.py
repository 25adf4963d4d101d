"""Dependencies of a route in a system's router: the principal, the permission it needs, the store of its tenant.

`tenant_of` is the tenant that a request means: another than its own only for a caller with access to all of them.
"""

from typing import Annotated, TypeVar

from fastapi import Query

from redrive.kit.statements import Steps
from redrive.operate.api.selecting import tenant_of
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, require
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import Refusal

__all__ = ["CurrentPrincipal", "Permission", "Refusal", "ScopedStore", "Tenant", "require", "run_steps", "tenant_of"]
Tenant = Annotated[str, Query(min_length=1, max_length=100, description="The tenant, for callers with access to all.")]
T = TypeVar("T")


async def run_steps(store: ScopedStore, steps: Steps[T]) -> T:
    """As `redrive.kit.statements.run`, but each statement is a transaction of its own."""
    try:
        query, values = next(steps)
        while True:
            query, values = steps.send(await store.rows(query, values))
    except StopIteration as done:
        answer: T = done.value
        return answer
