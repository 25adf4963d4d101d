"""Compares our rows with the providers' records, once at a time (R-07, R-10, R-12).

For each delivery that is not verified yet the provider is asked by the token. What it has, our row learns, and a
message that is parked or waits is confirmed, not sent. What is marked as sent and is not there violates "send, then
mark": the marks are cleared, the row is counted, and it is sent again with the same token. A provider that cannot be
asked has its kept acceptance for evidence; a row without one is held for a person. SQL: `sql/verbs/reconcile.sql`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from redrive import Absent, Duty, Found
from redrive.kit.database import Database, database_duty
from redrive.patterns.reconciliation import Effect, Item, Kind, Verdict, match
from redrive.systems.reviews.providers import HttpProvider, Provider, Records

DUTY: Final = "reviews.reconcile"
EVERY_SECONDS: Final = 60.0
BATCH: Final = 200
ASKED_IN_VAIN_MAX: Final = 3  # in a row: each may take as long as an attempt
_OPEN: Final = "SELECT * FROM redrive_reviews.open_deliveries_1(%s, %s, %s)"


@dataclass
class Compared:
    """verified: the provider has it, or its acceptance is kept. learned: our row or message did not know. requeued,
    held: marked as sent without a record. asked_in_vain: the provider could not say.
    """

    provider: str
    verified: int = 0
    learned: int = 0
    requeued: int = 0
    held: int = 0
    asked_in_vain: int = 0

    def __str__(self) -> str:
        return (
            f"{self.provider}: {self.verified} verified, {self.learned} learned, {self.requeued} requeued, "
            f"{self.held} held"
        )


def duty(providers: Sequence[Provider], *, every_seconds: float = EVERY_SECONDS) -> Duty:
    async def run_once(store: Database) -> str:
        return "; ".join(map(str, await reconcile_all(store, providers)))

    return database_duty(DUTY, run_once, every_seconds=every_seconds)


async def reconcile_all(store: Database, providers: Sequence[Provider]) -> list[Compared]:
    """Each beside the others: a slow one holds up its own comparison only. All end before an error is raised."""
    done = await asyncio.gather(*(reconcile(store, one) for one in providers), return_exceptions=True)
    found = []
    for one in done:
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return found


async def reconcile(store: Database, provider: Provider) -> Compared:
    """Safe to run twice."""
    compared = Compared(provider.name)
    if isinstance(provider, HttpProvider):
        await _ask_about_all(store, provider, compared)
    else:
        async for rows in _pages(store, provider.name):
            await _require_evidence(store, rows, compared)
    return compared


async def _pages(store: Database, provider: str) -> AsyncIterator[Sequence[Any]]:
    after = None
    while rows := await store.rows(_OPEN, [provider, after, BATCH]):
        yield rows
        after = rows[-1].place


# a provider that can be asked


async def _ask_about_all(store: Database, provider: HttpProvider, compared: Compared) -> None:
    """Until it has not answered so many times in a row; the rest waits for the next comparison."""
    records = Records(provider)
    try:
        async for rows in _pages(store, provider.name):
            await _compare(store, provider, records, rows, compared)
            if records.in_vain >= ASKED_IN_VAIN_MAX:
                return
    finally:
        await records.aclose()


async def _compare(
    store: Database, provider: HttpProvider, records: Records, rows: Sequence[Any], compared: Compared
) -> None:
    """A row is judged by the pattern of all reconciliations; what it says is written here. "Not there" is believed
    neither of what was accepted so recently that it may not show yet, nor of what the provider has forgotten by now.
    """
    now = await store.now()
    items, effects, forgotten = [], [], []
    for row in rows:
        if row.state == "leased":
            continue
        if records.in_vain >= ASKED_IN_VAIN_MAX:
            break
        answer = await records.ask(str(row.token))
        if isinstance(answer, Found):
            effects.append(Effect(cursor=str(row.token), key=str(row.message_id), terms={}, reference=answer.reference))
        elif not isinstance(answer, Absent):
            compared.asked_in_vain += 1
            continue
        elif row.notified_at is not None and row.notified_at < now - timedelta(seconds=provider.token_ttl_seconds):
            forgotten.append(row)
            continue
        items.append(_item(row))
    until = now - timedelta(seconds=provider.lookup_after_seconds)
    await _write(
        store,
        {str(row.message_id): row for row in rows},
        match(items, effects, complete_until=until),
        effects,
        compared,
    )
    await _require_evidence(store, forgotten, compared)


def _item(row: Any) -> Item:
    """A row that is marked as sent counts as delivered, whatever its message is: the mark is what is judged."""
    is_marked = row.notified_at is not None
    return Item(
        key=str(row.message_id),
        terms={},
        state="delivered" if is_marked else row.state,
        reference=row.notification_id if is_marked else None,
        at=row.notified_at,
    )


async def _write(
    store: Database, rows: dict[str, Any], verdict: Verdict, effects: Sequence[Effect], compared: Compared
) -> None:
    there = {one.key: one.reference for one in effects}
    missing = {one.subject for one in verdict.findings if one.kind is Kind.MISSING}
    # What the provider has under another id than ours is verified with the provider's own.
    for key, reference in there.items():
        assert key is not None
        row = rows[key]
        evidence = json.dumps({"by": "reconciliation", "reference": reference})
        query = "SELECT redrive_reviews.verified_1(%s, %s, %s::json)"
        if (await store.rows(query, [row.message_id, reference, evidence]))[0][0] == "done":
            compared.verified += 1
            compared.learned += row.notified_at is None
    for key in missing:
        compared.requeued += await _violated(store, rows[key], "requeued")


async def _violated(store: Database, row: Any, repair: str) -> bool:
    query = "SELECT redrive_reviews.sent_without_record_1(%s, %s, %s)"
    rows = await store.rows(query, [row.message_id, row.notified_at, repair])
    return bool(rows[0][0] == "done")


# a provider that cannot be asked, or not any more


async def _require_evidence(store: Database, rows: Sequence[Any], compared: Compared) -> None:
    """A message that still waits is judged by its own attempt."""
    for row in rows:
        if row.notified_at is None:
            if row.state == "delivered":
                await store.rows("SELECT redrive_reviews.closed_by_person_1(%s, %s)", [row.message_id, row.reference])
                compared.learned += 1
        elif row.has_evidence:
            await store.rows("SELECT redrive_reviews.accepted_is_enough_1(%s)", [row.message_id])
            compared.verified += 1
        elif row.state not in ("pending", "leased"):
            compared.held += await _violated(store, row, "held")
