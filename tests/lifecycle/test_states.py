"""Every cell of the tables in docs/states.md, tried on PostgreSQL: the answer, and the state that follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from redrive.message import Closed, MessageId, ParkReason, State
from redrive.ports import RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import ORDER_BY, Situation, late_answers, picture, reach
from tests.support.verbs import ACT, VERBS
from tools import state_tables
from tools.state_tables import Cell

# docs/states.md names the verbs of STYLE.md; a verb that a relay knows in several forms has a row for each.
ALL_VERBS: Final = (
    "enqueue, claim, dispatch, settle, complete, hand back, renew, reap, park, requeue, edit, cancel, expire,"
    " skip, confirm, deny, repair, discard, replay, retire"
)
ACTS: Final = ("requeue", "confirm", "deny", "repair", "discard")


def enumerated(table: str) -> list[Any]:
    """One parameter for each cell that says what happens."""
    every = [cell for cell in state_tables.cells(table) if not cell.is_later]
    return [pytest.param(cell, id=f"{cell.row}-{cell.column}") for cell in every]


async def matches(store: PostgresStore, s: Situation, cell: Cell, verb: str) -> None:
    """Apply the verb; the answer and the state that follows are those of the cell, and nothing is lost."""
    before, before_late = await _seen(store, s), await late_answers(store)
    answer = await VERBS[verb](store, s)
    state, now = await _seen(store, s)
    assert answer == cell.answer
    if cell.state is None:
        assert (state, now) == before
    else:
        assert state == cell.state
    assert await late_answers(store) - before_late == (1 if cell.answer == "refused" else 0)
    assert await m.conserved(store)


async def _seen(store: PostgresStore, s: Situation) -> tuple[str, Any]:
    """The state in the words of the page, and everything that is written about the message."""
    message_id = await _id_of(store, s)
    state = await m.state_of(store, message_id)
    return (f"closed·{state}" if state in set(Closed) else state), await picture(store, message_id)


async def _id_of(store: PostgresStore, s: Situation) -> MessageId:
    """The message of the key: an id that nobody had becomes the one that enqueue made."""
    rows = await store.rows("SELECT id FROM redrive.message WHERE key = %s", [s.key])
    return MessageId(rows[0][0]) if rows else s.id


@pytest.mark.req("G-28")
@pytest.mark.parametrize("cell", [p for p in enumerated("states") if p.values[0].row != "retire"])
async def test_verb_in_state_does_what_the_table_says(shared_store: PostgresStore, cell: Cell) -> None:
    situation = await reach(shared_store, cell.column, order_by=ORDER_BY if cell.row == "skip" else None)
    await matches(shared_store, situation, cell, cell.row)


@pytest.mark.req("G-22")
@pytest.mark.req("G-28")
@pytest.mark.parametrize("cell", [p for p in enumerated("states") if p.values[0].row == "retire"])
async def test_retire_in_state_does_what_the_table_says(store: PostgresStore, cell: Cell) -> None:
    situation = await reach(store, cell.column)
    await matches(store, situation, cell, "retire")


@pytest.mark.req("P-11")
@pytest.mark.parametrize("cell", enumerated("evidence"))
async def test_verb_on_a_message_with_evidence_does_what_the_table_says(
    shared_store: PostgresStore, cell: Cell
) -> None:
    situation = await reach(shared_store, cell.column, order_by=ORDER_BY if cell.row == "skip" else None)
    await shared_store.rows(
        "INSERT INTO redrive.evidence (message_id, kind, subject, at) VALUES (%s, 'statement', 'entry', %s)"
        " RETURNING 1",
        [situation.id, situation.now],
    )
    await matches(shared_store, situation, cell, cell.row)


@pytest.mark.req("G-28")
def test_table_has_every_state_and_every_verb() -> None:
    states = {"none", State.PENDING, State.LEASED, State.CLOSED, *(f"parked·{r}" for r in ParkReason)}
    assert set(state_tables.columns("states")) == states
    assert {row.split(" (")[0] for row in state_tables.rows("states")} - {"claim suspect"} == set(ALL_VERBS.split(", "))


@pytest.mark.req("G-28")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("closed", list(Closed))
async def test_nothing_leads_out_of_closed(shared_store: PostgresStore, closed: Closed, act: str) -> None:
    situation = await _closed_as(shared_store, closed)
    before = await picture(shared_store, situation.id)
    assert await m.state_of(shared_store, situation.id) == closed
    assert await VERBS[act](shared_store, situation) == "closed"
    assert await VERBS["cancel"](shared_store, situation) == "already_closed"
    assert await picture(shared_store, situation.id) == before


async def _closed_as(store: PostgresStore, closed: Closed) -> Situation:
    match closed:
        case Closed.DELIVERED:
            return await reach(store, "closed")
        case Closed.DISCARDED:
            situation = await reach(store, "parked·dead")
            await store.discard(situation.id, **ACT, now=situation.now)
        case Closed.CANCELLED:
            situation = await reach(store, "pending")
            await store.cancel(situation.id, now=situation.now)
        case Closed.EXPIRED:
            situation = await reach(store, "pending")
            await VERBS["expire"](store, situation)
        case Closed.SKIPPED:
            situation = await reach(store, "pending", order_by=ORDER_BY)
            await VERBS["skip"](store, situation)
    return situation


# A message under each condition of the second and third table, at 200 seconds.


async def _in_doubt(store: PostgresStore, **values: Any) -> None:
    await m.enqueue(store, key="order:1", **values)
    unknown = m.retry(in_doubt=True)
    await m.settle(store, await m.claim(store), unknown, now=m.at(100))


async def _suspect(store: PostgresStore) -> None:
    await m.enqueue(store, key="order:1")
    await m.claim(store)
    await store.reap(limit=10, now=m.at(100))


async def _answer_kept(store: PostgresStore, **values: Any) -> None:
    message_id = await m.enqueue(store, key="order:1", **values)
    await m.settle(store, await m.claim(store), m.park(ParkReason.UNRECORDED), now=m.at(100))
    await store.repair(message_id, **ACT, now=m.at(100))


async def _paused(store: PostgresStore, **values: Any) -> None:
    await m.enqueue(store, key="order:1", **values)
    await store.pause(m.DESTINATION, **ACT, now=m.START)


async def _resting(store: PostgresStore) -> None:
    await m.enqueue(store, key="order:1")
    await store.pause_until(m.DESTINATION, actor="relay", seconds=900, now=m.START)


async def _breaker(store: PostgresStore, *, seconds: float) -> None:
    """Open for so long."""
    await m.enqueue(store, key="order:1")
    await store.open_breaker(
        m.DESTINATION, claimed_at=m.START, code="X", cool_off_seconds=seconds, cool_off_max_seconds=900, now=m.START
    )


async def _probed(store: PostgresStore) -> None:
    await _breaker(store, seconds=10)
    await _one_in_flight(store, at=m.at(100))


async def _limited(store: PostgresStore, **limits: Any) -> None:
    await m.enqueue(store, key="order:1")
    relay = RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="1", destinations=[m.DESTINATION])
    await store.register(replace(relay, **limits), now=m.START)
    await _one_in_flight(store, at=m.at(199))


async def _one_in_flight(store: PostgresStore, *, at: datetime) -> None:
    """Another message, due earlier."""
    await m.enqueue(store, key="order:0", now=m.START - timedelta(seconds=10))
    await m.claim(store, worker=m.OTHER_WORKER, now=at)


Condition = Callable[[PostgresStore], Awaitable[Any]]
CONDITIONS: Final[dict[str, Condition]] = {
    "pending, not due": lambda store: m.enqueue(store, key="order:1", due_at=m.at(5_000)),
    "pending, destination paused": _paused,
    "pending, destination asked for a rest": _resting,
    "pending, breaker of its destination open": lambda store: _breaker(store, seconds=900),
    "pending, breaker half open, a probe under way": _probed,
    "pending, breaker half open, no probe yet": lambda store: _breaker(store, seconds=10),
    "pending, rate of its destination used up": lambda store: _limited(store, rates={m.DESTINATION: 0.001}),
    "pending, as many in flight as may be": lambda store: _limited(store, concurrency_limits={m.DESTINATION: 1}),
    "pending, in doubt": _in_doubt,
    "pending, suspect": _suspect,
    "pending, expired": lambda store: m.enqueue(store, key="order:1", expires_at=m.at(150)),
    "pending, expired, destination paused": lambda store: _paused(store, expires_at=m.at(150)),
    "pending, expired, in doubt": lambda store: _in_doubt(store, expires_at=m.at(150)),
    "pending, answer kept": _answer_kept,
    "pending, expired, answer kept": lambda store: _answer_kept(store, expires_at=m.at(150)),
}
LEASED_FROM: Final[dict[str, Condition]] = {
    "leased, cancel requested": lambda store: m.enqueue(store, key="order:1"),
    "leased, in doubt": _in_doubt,
    "leased, in doubt, cancel requested": _in_doubt,
    "leased, answer kept, cancel requested": _answer_kept,
}


async def _situation(store: PostgresStore) -> Situation:
    rows = await store.rows("SELECT id FROM redrive.message WHERE key = 'order:1'", [])
    message_id = MessageId(rows[0][0])
    ghost = m.attempt(id=message_id)
    last = (ghost, m.retry())
    return Situation(id=message_id, key="order:1", stale=ghost, held=ghost, last=last, now=m.at(200))


@pytest.mark.req("G-24")
@pytest.mark.req("G-28")
@pytest.mark.parametrize("cell", enumerated("conditions"))
async def test_condition_of_a_pending_message_decides_what_a_verb_does(shared_store: PostgresStore, cell: Cell) -> None:
    await CONDITIONS[cell.row](shared_store)
    await matches(shared_store, await _situation(shared_store), cell, cell.column)


@pytest.mark.req("G-24")
@pytest.mark.req("G-28")
@pytest.mark.parametrize("cell", enumerated("flags"))
async def test_flag_of_a_leased_message_decides_what_a_verb_does(shared_store: PostgresStore, cell: Cell) -> None:
    await LEASED_FROM[cell.row](shared_store)
    held = await m.claim(shared_store, now=m.at(200))
    if "cancel requested" in cell.row:
        await shared_store.cancel(held.id, now=m.at(200))
    await matches(shared_store, replace(await _situation(shared_store), held=held), cell, cell.column)
