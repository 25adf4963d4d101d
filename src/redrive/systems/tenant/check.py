"""Whether a rollout of the outbox is complete: what of the checklist can be looked up in the database (T-12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from redrive.kit.database import Database, Row, snapshot
from redrive.systems.tenant import reads
from redrive.systems.tenant.health import Verdict, judge
from redrive.systems.tenant.reads import SQL


class Item(NamedTuple):
    """One item of the checklist. found: what was seen. next: what helps, where it is not well."""

    name: str
    is_well: bool
    found: str
    next: str = ""


async def check(database: Database) -> list[Item]:
    async with snapshot(database) as transaction:
        found = (await SQL.read(transaction, "check", {}))[0]
    options = await reads.published_options(database)
    health = judge(await reads.numbers(database, tenant=None, options=options), options)
    reasons = "; ".join(health.reasons) or "nothing has reached a threshold"
    well = health.verdict is Verdict.HEALTHY
    return [
        *_of_tables(found),
        Item("health", well, f"{health.verdict}: {reasons}", "redrive tenant list --status failed"),
    ]


def _of_tables(found: Row) -> Iterator[Item]:
    without, looked_at = found["without_key"], found["looked_at"]
    yield Item(
        "keys",
        without == 0,
        f"{without} of the newest {looked_at} events have no UUID as their key",
        "write events with OutboxWriter, or INSERT into redrive_tenant.outbox_messages",
    )
    yield Item(
        "options",
        bool(found["published"]),
        f"published by relays for: {', '.join(found['published']) or 'no outbox'}",
        "start a relay whose app includes outbox.system()",
    )
    yield Item(
        "relays",
        bool(found["alive"]) and not found["unhandled"],
        f"alive for: {', '.join(found['alive']) or 'no outbox'};"
        f" events wait without one: {', '.join(found['unhandled']) or 'nowhere'}",
        "redrive relay MODULE:APP",
    )
