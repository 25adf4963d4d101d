"""The outbox over HTTP, at /api/workflow/outbox; read-only.

Row-level security limits a caller of one tenant to that tenant's events: another one is as if it did not exist.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse, Response

from redrive.kit.web import CurrentPrincipal, Permission, Refusal, ScopedStore, require
from redrive.systems.tenant import reads
from redrive.systems.tenant.documents import EventList, HealthReport, Snapshot
from redrive.systems.tenant.health import judge
from redrive.systems.tenant.prometheus import CONTENT_TYPE, exposition

PAGE_MAX: Final = 1000
PAGE_SIZE_MAX: Final = 200
PAGE_SIZE_DEFAULT: Final = 50

NAME_MAX: Final = 100  # characters of a tenant or an event type


# Taken as text and checked below, so that each refusal is a 400 with its field; the description says what fits.
def _name(description: str, **more: Any) -> Any:
    fits = {"type": "string", "minLength": 1, "maxLength": NAME_MAX}
    return Query(description=description, json_schema_extra=fits, **more)


def _one_of(alias: str, *choices: str) -> Any:
    return Query(alias=alias, description=f"One of {', '.join(choices)}.", json_schema_extra={"enum": [*choices]})


STATUSES: Final = get_args(reads.Status)
FORMATS: Final = ("json", "prometheus")
Tenant = Annotated[str | None, _name("Only this tenant; left out: all that you may see.")]
EventType = Annotated[str | None, _name("Only events of this type.", alias="eventType")]
Status = Annotated[str, _one_of("status", *STATUSES)]
PageNumber = Annotated[str, Query(alias="page", description=f"From 1 to {PAGE_MAX}.")]
PageSize = Annotated[str, Query(alias="pageSize", description=f"From 1 to {PAGE_SIZE_MAX}.")]
Format = Annotated[str, _one_of("format", *FORMATS)]

router = APIRouter()


@router.get("", dependencies=[require(Permission.READ)])
async def list_events(
    store: ScopedStore,
    principal: CurrentPrincipal,
    status: Status = "pending",
    page: PageNumber = "1",
    page_size: PageSize = str(PAGE_SIZE_DEFAULT),
    event_type: EventType = None,
    tenant: Tenant = None,
) -> EventList:
    """Events by where they are, newest first. failed: unprocessed events that failed at least once, dead ones too."""
    number, size = _whole("page", page, PAGE_MAX), _whole("pageSize", page_size, PAGE_SIZE_MAX)
    found = await reads.list_events(
        store,
        status=_choice("status", status, STATUSES),
        tenant=_whose(principal, tenant),
        event_type=_text("eventType", event_type),
        page=number,
        page_size=size,
    )
    return EventList.of(found, page=number, page_size=size)


@router.get("/metrics", response_model=Snapshot, dependencies=[require(Permission.READ)])
async def show_metrics(
    store: ScopedStore, principal: CurrentPrincipal, tenant: Tenant = None, format_: Format = "json"
) -> Snapshot | Response:
    """The numbers of one moment; over the window that the relays' options name."""
    chosen = _choice("format", format_, FORMATS)
    numbers = await reads.numbers(store, tenant=_whose(principal, tenant))
    if chosen == "prometheus":
        return PlainTextResponse(exposition(numbers), media_type=CONTENT_TYPE)
    return Snapshot.of(numbers)


@router.get("/health", dependencies=[require(Permission.READ)])
async def show_health(store: ScopedStore, principal: CurrentPrincipal, tenant: Tenant = None) -> HealthReport:
    """The numbers against the thresholds of the relays' options."""
    options = await reads.published_options(store)
    numbers = await reads.numbers(store, tenant=_whose(principal, tenant), options=options)
    return HealthReport.of(judge(numbers, options))


def _whose(principal: CurrentPrincipal, tenant: str | None) -> str | None:
    """Of a caller with one tenant the database shows only that one; a filter for another finds nothing."""
    named = _text("tenant", tenant)
    return named if named is not None or principal.all_tenants else principal.tenant


def _text(field: str, given: str | None) -> str | None:
    if given is not None and not 1 <= len(given) <= NAME_MAX:
        raise _refusal(field, f"must have 1 to {NAME_MAX} characters")
    return given


def _whole(field: str, given: str, most: int) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 9 and 1 <= int(given) <= most):
        raise _refusal(field, f"must be a whole number from 1 to {most}")
    return int(given)


def _choice(field: str, given: str, choices: tuple[str, ...]) -> Any:
    if given not in choices:
        raise _refusal(field, f"must be one of {', '.join(choices)}")
    return given


def _refusal(field: str, rule: str) -> Refusal:
    return Refusal(400, "INVALID_VALUE", f"{field} {rule}.", errors=[{"field": field, "detail": rule}])
