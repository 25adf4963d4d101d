"""Which messages a request means: by their ids, or all dead letters that a filter selects. Foreign ids are unknown."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Self, TypeVar
from uuid import UUID

from pydantic import StringConstraints, model_validator

from redrive.errors import InvalidValue
from redrive.message import MessageId, ParkReason
from redrive.operate.actions.results import ActResult, not_found
from redrive.operate.api.schemas import Body, Ids, Why, Word
from redrive.operate.desk import workflow
from redrive.operate.desk.groups import find_group
from redrive.operate.web.principal import Principal
from redrive.store.reads.messages import find_messages
from redrive.store.reads.models import ParkedFilter
from redrive.store.runtime.tenant_store import TenantStore

GROUP_DIGITS = 32
Wanted = TypeVar("Wanted", bound=str | None)
GroupId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4,32}$")]


class Filter(Body):
    """At least one of them. group: the beginning of its id; all of it for a caller of one tenant."""

    group: GroupId | None = None
    destination: Word | None = None
    error_class: Word | None = None
    kind: Word | None = None
    tenant: Word | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set or all(value is None for value in self.model_dump().values()):
            raise ValueError("a filter has to say something")
        return self


class Selection(Body):
    """ids or filter, one of the two."""

    ids: Ids | None = None
    filter: Filter | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("name messages by ids or by a filter; one of the two")
        return self


class SelectionWhy(Selection, Why):
    pass


@dataclass(frozen=True)
class Selected:
    """ids: those that the caller may see. missing: the others."""

    ids: Sequence[MessageId]
    missing: Sequence[ActResult]

    async def each(self, step: Callable[[Sequence[MessageId]], Awaitable[list[ActResult]]]) -> list[ActResult]:
        done = await step(self.ids) if self.ids else []
        return [*done, *self.missing]


async def selected(store: TenantStore, principal: Principal, wanted: Selection) -> Selected:
    if wanted.ids is not None:
        return await visible(store, wanted.ids)
    assert wanted.filter is not None
    return Selected(await workflow.select(store, await parked_filter(store, principal, wanted.filter)), ())


async def visible(store: TenantStore, ids: Sequence[UUID]) -> Selected:
    """Those that the caller may see: a verb acts by the id alone, so others must not reach one."""
    wanted = [MessageId(one) for one in dict.fromkeys(ids)]
    found = await find_messages(store, wanted)
    missing = [not_found(one) for one in wanted if one not in found]
    return Selected([one for one in wanted if one in found], missing)


async def parked_filter(store: TenantStore, principal: Principal, given: Filter) -> ParkedFilter:
    fingerprint = await group_of(store, principal, given.group) if given.group else None
    named = given.model_dump(include={"destination", "error_class", "kind"})
    tenant = tenant_of(principal, given.tenant)
    return ParkedFilter(reason=ParkReason.DEAD, failure_group=fingerprint, tenant=tenant, **named)


async def group_of(store: TenantStore, principal: Principal, group: str) -> bytes:
    """A group has no tenant: a caller of one tenant names it in full and is not told whether it exists."""
    if principal.all_tenants:
        return (await find_group(store, group)).fingerprint
    if len(group) != GROUP_DIGITS:
        raise InvalidValue(f"The id of a group has {GROUP_DIGITS} digits; it has {len(group)}.")
    return bytes.fromhex(group)


def tenant_of(principal: Principal, wanted: Wanted) -> Wanted | str:
    """The tenant of a filter: for a caller of one tenant always that one."""
    return wanted if principal.all_tenants else principal.tenant
