"""Compares intents, archive and the rails' statements.

`reconcile` reads on in a rail's statement, judges what is not over on all sides (`redrive.patterns.reconciliation`),
confirms what is parked or waits and was paid all the same, and stores findings. Safe to run twice. After a failover or
a restore the rails stand still until it has found nothing, in a statement that was read late enough
(`redrive/store/sql/verbs/epoch.sql`). SQL: `sql/verbs/reconcile.sql`.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString, cast
from uuid import UUID

import psycopg

from redrive import Duty
from redrive.errors import NotAllowed
from redrive.kit.database import Database, database_duty
from redrive.patterns.reconciliation import Effect, Finding, Item, Late, Page, collect, match
from redrive.systems.payments.rails import Rail
from redrive.systems.payments.statement import Statement, hash_of

DUTY: Final = "payments.reconcile"
# A rail may take so long to write down what it has answered; only then is it missing.
LAG_SECONDS: Final = 60.0
EVERY_SECONDS: Final = 300.0
BATCH: Final = 500


@dataclass(frozen=True, kw_only=True)
class Compared:
    """read: new entries of the statement. confirmed: late successes, now delivered. agreed: payments that are over on
    all sides.

    open: those still under way. acknowledged: how many findings people have acknowledged; they are not among
    `findings`.
    """

    rail_type: str
    read: int = 0
    confirmed: int = 0
    agreed: int = 0
    open: int = 0
    findings: Sequence[Finding] = field(default_factory=list)
    acknowledged: int = 0

    def __str__(self) -> str:
        found = f"{len(self.findings)} findings"
        return f"{self.rail_type}: {self.read} read, {self.agreed} agreed, {self.confirmed} confirmed, {found}"


async def reconcile(
    store: Database, rail: Rail, *, lag_seconds: float = LAG_SECONDS, every_seconds: float = EVERY_SECONDS
) -> Compared:
    """NotAllowed where the login is not a member of redrive_payments. every_seconds: of the duty, for that refusal."""
    try:
        return await _reconcile(store, rail, lag_seconds=lag_seconds)
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotAllowed(
            "This login may not compare the books: only members of redrive_payments may. The duty of a relay does this"
            f" every {every_seconds:g} seconds; by hand it takes a login that is a member of redrive_payments.",
            next="GRANT redrive_payments to the login of the relays, and leave it to the duty",
        ) from error


async def _reconcile(store: Database, rail: Rail, *, lag_seconds: float) -> Compared:
    began = await store.now()
    read = await _read_on(store, rail)
    linked = await store.rows("SELECT redrive_payments.link_strangers_1(%s)", [rail.rail_type])
    findings: list[Finding] = []
    confirmed = agreed = left_open = late = 0
    async for items, effects in _open_payments(store, rail):
        verdict = match(items, effects, complete_until=began - timedelta(seconds=lag_seconds))
        findings += verdict.findings
        agreed += len(verdict.agreed)
        left_open += verdict.open
        late += len(verdict.late)
        confirmed += await _settle(store, rail, verdict.agreed, verdict.late)
    async for strangers in _strangers(store, rail):
        findings += match((), strangers).findings
    acknowledged = await _note(store, rail, findings, began=began, changed=bool(late or linked[0][0]))
    return Compared(
        rail_type=rail.rail_type,
        read=read,
        confirmed=confirmed,
        agreed=agreed,
        open=left_open + late - confirmed,
        findings=[one for one in findings if (one.kind, one.subject) not in acknowledged],
        acknowledged=len(acknowledged),
    )


def duty(rails: Sequence[Rail], *, every_seconds: float, lag_seconds: float) -> Duty:
    """A rail that cannot be read does not stop the others."""

    async def run_once(store: Database) -> str:
        said = []
        failures = []
        for rail in rails:
            try:
                compared = await reconcile(store, rail, lag_seconds=lag_seconds, every_seconds=every_seconds)
                said.append(str(compared))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return "; ".join(said)

    return database_duty(DUTY, run_once, every_seconds=every_seconds)


async def _read_on(store: Database, rail: Rail) -> int:
    statement = Statement(rail)

    async def keep(page: Page) -> str | None:
        rows = await store.rows(
            "SELECT redrive_payments.keep_statement_1(%s, %s::json, NULL, %s)",
            [rail.rail_type, json.dumps(page.entries), rail.statement_is_exclusive],
        )
        return cast("str | None", rows[0][0])

    try:
        rows = await store.rows("SELECT redrive_payments.statement_cursor_1(%s)", [rail.rail_type])
        return await collect(statement.page, keep, after=rows[0][0])
    finally:
        await statement.aclose()


async def _pages(store: Database, rail: Rail, query: LiteralString, after: UUID | int) -> AsyncIterator[Sequence[Any]]:
    """The first column is the position."""
    while rows := await store.rows(query, [rail.rail_type, after, BATCH]):
        yield rows
        after = rows[-1][0]


async def _open_payments(store: Database, rail: Rail) -> AsyncIterator[tuple[list[Item], list[Effect]]]:
    query = "SELECT * FROM redrive_payments.open_payments_1(%s, %s, %s)"
    async for rows in _pages(store, rail, query, UUID(int=0)):
        # After the archive: an effect that is not there yet was not there when the payment was looked at.
        entries = await store.rows("SELECT * FROM redrive_payments.entries_1(%s)", [[row.outbox_id for row in rows]])
        yield [_item(row) for row in rows], [_effect(row, str(row.outbox_id), _hash(row)) for row in entries]


async def _strangers(store: Database, rail: Rail) -> AsyncIterator[list[Effect]]:
    query = "SELECT * FROM redrive_payments.strangers_1(%s, %s, %s)"
    async for rows in _pages(store, rail, query, 0):
        yield [_effect(row, None, {}, instruction_id=row.instruction_id) for row in rows]


async def _settle(store: Database, rail: Rail, agreed: Sequence[str], late: Sequence[Late]) -> int:
    """Returns how many late payments were confirmed."""
    if agreed:
        ids = [UUID(key) for key in agreed]
        await store.rows("SELECT redrive_payments.agree_1(%s, %s)", [rail.rail_type, ids])
    confirmed = 0
    for one in late:
        rows = await store.rows("SELECT redrive_payments.confirm_late_1(%s)", [UUID(one.item.key)])
        confirmed += rows[0][0] == "done"
    return confirmed


async def _note(
    store: Database, rail: Rail, findings: Sequence[Finding], *, began: datetime, changed: bool
) -> set[tuple[str, str]]:
    """Stores the findings; returns those that people have acknowledged."""
    said = json.dumps([asdict(finding) for finding in findings], default=str)
    rows = await store.rows(
        "SELECT redrive_payments.compared_1(%s, %s::json, NULL, %s, %s)::text", [rail.rail_type, said, began, changed]
    )
    return {(kind, subject) for kind, subject in json.loads(rows[0][0])}


def _item(row: Any) -> Item:
    return Item(
        key=str(row.outbox_id),
        terms={"amount": row.amount, "currency": row.currency},
        told=_hash(row),
        tokens=frozenset(map(str, row.tokens)),
        versions={token: {"destination": hash_of(destination)} for token, destination in (row.sent or {}).items()},
        state=row.state,
        in_doubt=row.in_doubt,
        reference=row.reference,
        at=row.at,
        evidence={
            "tenant": row.tenant,
            "instruction_id": row.instruction_id,
            "participant_id": row.participant_id,
            "sequence_id": row.sequence_id,
        },
    )


def _effect(row: Any, key: str | None, told: Mapping[str, str], **evidence: Any) -> Effect:
    return Effect(
        cursor=row.cursor,
        key=key,
        terms={"amount": row.amount, "currency": row.currency, **told},
        reference=row.reference,
        token=row.token,
        evidence={"token": row.token, "effected_at": str(row.effected_at), **evidence},
    )


def _hash(row: Any) -> dict[str, str]:
    return {} if row.destination_hash is None else {"destination": bytes(row.destination_hash).hex()}
