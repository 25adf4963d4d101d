"""How commands of the desk name dead letters: by their ids, or by a filter that has to say something."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from redrive.message import MessageId, ParkReason
from redrive.operate.cli.context import filter_options, message_ids
from redrive.operate.desk import workflow
from redrive.operate.desk.groups import find_group
from redrive.store.reads.messages import list_parked
from redrive.store.reads.models import ParkedFilter
from redrive.store.runtime.postgres import PostgresStore

FILTERS: Final = ("group", "destination", "error_class", "kind", "tenant")


Body = Callable[..., Any]


def selection(body: Body) -> Body:
    return message_ids(required=False)(filter_options(*FILTERS, word="All")(body))


def split(values: dict[str, Any]) -> tuple[tuple[MessageId, ...], dict[str, str]]:
    """Takes them out of the values; a usage error unless it is one of the two."""
    ids: tuple[MessageId, ...] = values.pop("ids")
    given = {name: value for name in FILTERS if (value := values.pop(name)) is not None}
    if bool(ids) == bool(given):
        raise click.UsageError("Name messages by their ids, or by a filter such as --group; one of the two.")
    return ids, given


async def selected(store: PostgresStore, ids: Sequence[MessageId], given: Mapping[str, str]) -> list[MessageId]:
    if ids:
        return list(dict.fromkeys(ids))
    return await workflow.select(store, await parked_filter(store, ParkReason.DEAD, **given))


async def first_selected(store: PostgresStore, given: Mapping[str, str], *, limit: int) -> list[MessageId]:
    page = await list_parked(store, await parked_filter(store, ParkReason.DEAD, **given, limit=limit))
    if not page.rows:
        raise workflow.no_match()
    return [record.id for record in page.rows]


async def parked_filter(
    store: PostgresStore, reason: ParkReason, /, *, group: str | None = None, **wanted: Any
) -> ParkedFilter:
    """group: the beginning of its id."""
    found = await find_group(store, group) if group else None
    return ParkedFilter(reason=reason, failure_group=found.fingerprint if found else None, **wanted)


async def replay_filter(store: PostgresStore, ids: Sequence[MessageId], given: Mapping[str, str]) -> dict[str, Any]:
    """As the filter of a replay, which is looked up in the database, in one snapshot."""
    if ids:
        return {"ids": [str(id_) for id_ in dict.fromkeys(ids)]}
    return {**given, **({"group": (await find_group(store, given["group"])).id} if "group" in given else {})}
