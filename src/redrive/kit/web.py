"""What a route in a system's router depends on: the permission that it needs, the store and tenant of its caller."""

from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query

from redrive.kit.statements import Steps
from redrive.operate.api.selecting import tenant_of
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, require
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import Refusal

__all__ = ["CurrentPrincipal", "Permission", "Refusal", "Scope", "ScopedStore", "require", "run_steps"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TenantScope:
    """store: the caller's, limited by row-level security. tenant: the one that the request means; another than the
    caller's own only for a caller with access to all of them."""

    store: ScopedStore
    principal: CurrentPrincipal
    tenant: str


Tenant = Annotated[str, Query(min_length=1, max_length=100, description="The tenant, for callers with access to all.")]


def _scope(store: ScopedStore, principal: CurrentPrincipal, tenant: Tenant = "default") -> TenantScope:
    return TenantScope(store, principal, tenant_of(principal, tenant))


Scope = Annotated[TenantScope, Depends(_scope)]


async def run_steps(store: ScopedStore, steps: Steps[T]) -> T:
    """As `redrive.kit.statements.run`, but each statement is a transaction of its own."""
    try:
        query, values = next(steps)
        while True:
            query, values = steps.send(await store.rows(query, values))
    except StopIteration as done:
        answer: T = done.value
        return answer
