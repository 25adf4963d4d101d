"""Ordering keys, and how one goes on without its head."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from redrive.operate import cursors, operations
from redrive.operate.actions.table import SKIP
from redrive.operate.api.schemas import READS, After, Key, Limit, Why, Word, changes
from redrive.operate.documents import Listed, listed
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore
from redrive.store.reads.models import KeyFilter, KeyPosition, KeyView

router = APIRouter(tags=["keys"])


class Skip(Why):
    """sequence: the head that was looked at; refused where the key has another one by now."""

    tenant: Word
    order_by: Key
    sequence: Annotated[int, Field(ge=1, lt=2**63)]
    dry_run: bool = False


class Skipped(BaseModel):
    dry_run: bool
    head: KeyView


@router.get("/keys", dependencies=READS)
async def list_keys(
    store: ScopedStore,
    tenant: Word | None = None,
    destination: Word | None = None,
    blocked: bool = False,
    after: After = None,
    limit: Limit = 50,
) -> Listed[KeyView]:
    """Ordering keys with anything open; those first that wait for a person."""
    wanted = KeyFilter(
        tenant=tenant, destination=destination, blocked=blocked, after=cursors.decode(KeyPosition, after), limit=limit
    )
    return listed(await operations.list_keys(store, wanted))


@router.post(SKIP.path, description=SKIP.summary, dependencies=changes(SKIP.permission))
async def skip(store: ScopedStore, principal: CurrentPrincipal, body: Skip) -> Skipped:
    head = await operations.find_head(store, body.tenant, body.order_by, sequence=body.sequence)
    if not body.dry_run:
        await SKIP.call(store, head, body.who(principal))
    return Skipped(dry_run=body.dry_run, head=head)
