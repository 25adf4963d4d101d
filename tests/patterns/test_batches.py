"""Batches: gates are passed once, from a count that sees every member, whoever is reported last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest

import redrive
from redrive.kit.database import open_database
from redrive.kit.statements import Steps
from redrive.patterns.batches import Batches, Gate

TABLES: LiteralString = """
CREATE TABLE import (id uuid PRIMARY KEY, sealed boolean NOT NULL DEFAULT true, gates text[] NOT NULL DEFAULT '{}',
                     done integer NOT NULL DEFAULT 0);
CREATE TABLE line (import_id uuid REFERENCES import, number integer, outcome text, PRIMARY KEY (import_id, number));
"""
BLOCKED: LiteralString = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
Tally = dict[str, Any]
Conn = psycopg.Connection[Any]


class Imports:
    """Two gates: `half` once half of the lines have an outcome, `all` closes the import."""

    def lock(self, id: UUID, *, is_alone: bool) -> Steps[bool]:
        if is_alone:
            rows = yield (
                "SELECT 1 FROM import WHERE id = %s AND sealed AND NOT 'all' = ANY (gates) FOR NO KEY UPDATE",
                (id,),
            )
        else:
            rows = yield "SELECT 1 FROM import WHERE id = %s AND NOT 'all' = ANY (gates) FOR SHARE", (id,)
        return bool(rows)

    def tally(self, id: UUID) -> Steps[Tally]:
        rows = yield (
            """SELECT json_build_object('lines', count(*), 'done', count(outcome),
                                        'late', bool_or(outcome = 'late'))::text
                 FROM line WHERE import_id = %s""",
            (id,),
        )
        found: Tally = json.loads(rows[0][0])
        return found

    def passed(self, id: UUID) -> Steps[frozenset[str]]:
        rows = yield "SELECT gates FROM import WHERE id = %s", (id,)
        return frozenset(rows[0][0])

    def mark(self, id: UUID, gate: str, tally: Tally) -> Steps[None]:
        yield "UPDATE import SET gates = gates || %s::text, done = %s WHERE id = %s", (gate, tally["done"], id)

    def waiting(self, after: UUID | None, limit: int) -> Steps[Sequence[UUID]]:
        rows = yield (
            """SELECT id FROM import WHERE sealed AND NOT 'all' = ANY (gates) AND (%s::uuid IS NULL OR id > %s::uuid)
                ORDER BY id LIMIT %s::integer""",
            (after, after, limit),
        )
        return [row[0] for row in rows]

    def rebuild(self, id: UUID) -> Steps[int]:
        tally = yield from self.tally(id)
        rows = yield "SELECT done FROM import WHERE id = %s", (id,)
        yield "UPDATE import SET done = %s WHERE id = %s", (tally["done"], id)
        return int(rows[0][0] != tally["done"])


def tell(gate: str) -> Any:
    def passed(id: UUID, tally: Tally) -> Steps[None]:
        body = json.dumps({"gate": gate, **tally}).encode()
        yield "SELECT redrive.enqueue_1(%s::text, %s::bytea, %s::text)", ("told", body, f"{gate}:{id}")

    return passed


def give_up(id: UUID, _: Tally) -> Steps[None]:
    yield "UPDATE line SET outcome = 'late' WHERE import_id = %s AND outcome IS NULL", (id,)


BATCHES: Batches[Tally] = Batches(
    "imports",
    source=Imports(),
    gates=[
        Gate(name="half", opens=lambda tally: tally["done"] * 2 >= tally["lines"], passed=tell("half")),
        Gate(name="all", opens=lambda tally: tally["done"] == tally["lines"], passed=tell("all")),
    ],
)


def outcome(id: UUID, number: int) -> Steps[None]:
    yield "UPDATE line SET outcome = 'ok' WHERE import_id = %s AND number = %s", (id, number)


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute(TABLES)
        yield opened


def batch(conn: Conn, lines: int = 2, *, sealed: bool = True) -> UUID:
    id = uuid4()
    conn.execute("INSERT INTO import (id, sealed) VALUES (%s, %s)", (id, sealed))
    conn.execute("INSERT INTO line SELECT %s, n FROM generate_series(1, %s) n", (id, lines))
    return id


def report(conn: Conn, id: UUID, number: int) -> bool:
    with conn.transaction():
        return BATCHES.report(conn, id, outcome(id, number))


def decide(conn: Conn, id: UUID) -> list[str]:
    with conn.transaction():
        return list(BATCHES.decide(conn, id))


def told(conn: Conn) -> list[Any]:
    query = "SELECT convert_from(body, 'UTF8')::json FROM redrive.message WHERE destination = 'told' ORDER BY id"
    return [row[0] for row in conn.execute(query)]


def test_gates_are_passed_in_order_and_once(conn: Conn) -> None:
    id = batch(conn, 4)
    assert decide(conn, id) == []
    for number in (1, 2):
        assert report(conn, id, number)
    assert decide(conn, id) == ["half"]
    assert decide(conn, id) == []
    for number in (3, 4):
        assert report(conn, id, number)
    assert decide(conn, id) == ["all"]
    assert decide(conn, id) == []
    assert [(one["gate"], one["done"]) for one in told(conn)] == [("half", 2), ("all", 4)]


def test_both_gates_may_open_at_once(conn: Conn) -> None:
    id = batch(conn, 1)
    report(conn, id, 1)
    assert decide(conn, id) == ["half", "all"]


def test_nothing_is_decided_before_the_batch_is_sealed(conn: Conn) -> None:
    id = batch(conn, 1, sealed=False)
    report(conn, id, 1)
    assert decide(conn, id) == []
    conn.execute("UPDATE import SET sealed = true")
    assert decide(conn, id) == ["half", "all"]


def test_a_member_of_a_closed_batch_is_late_and_changes_nothing(conn: Conn) -> None:
    id = batch(conn, 1)
    report(conn, id, 1)
    decide(conn, id)
    conn.execute("UPDATE line SET outcome = 'kept'")
    assert report(conn, id, 1) is False
    assert conn.execute("SELECT outcome FROM line").fetchone() == ("kept",)


def _until_blocked_by(conn: Conn, other: Conn, waiting: Future[Any]) -> None:
    """Looks until a connection waits for `other`, or the call that should wait has returned."""
    while not waiting.done() and conn.execute(BLOCKED, (other.info.backend_pid,)).fetchone() is None:
        pass


def test_the_decision_waits_for_a_member_that_is_being_reported_and_sees_it(database: str, conn: Conn) -> None:
    """The last two members at once: the first has not committed when the second is, and the batch is decided."""
    id = batch(conn)
    with psycopg.connect(database) as first, psycopg.connect(database, autocommit=True) as second:
        BATCHES.report(first, id, outcome(id, 1))
        report(second, id, 2)
        with ThreadPoolExecutor(1) as pool:
            decided = pool.submit(decide, second, id)
            _until_blocked_by(conn, first, decided)
            assert not decided.done()
            first.commit()
            assert decided.result() == ["half", "all"]
    assert [one["done"] for one in told(conn)] == [2, 2]


def test_two_deciders_at_once_pass_a_gate_once(database: str, conn: Conn) -> None:
    id = batch(conn, 1)
    report(conn, id, 1)
    with psycopg.connect(database) as first, psycopg.connect(database, autocommit=True) as second:
        assert BATCHES.decide(first, id) == ["half", "all"]
        with ThreadPoolExecutor(1) as pool:
            decided = pool.submit(decide, second, id)
            _until_blocked_by(conn, first, decided)
            first.commit()
            assert decided.result() == []
    assert len(told(conn)) == 2


def test_what_a_gate_does_is_undone_with_its_mark(conn: Conn) -> None:
    id = batch(conn, 1)
    report(conn, id, 1)
    with conn.transaction(force_rollback=True):
        assert BATCHES.decide(conn, id) == ["half", "all"]
    assert told(conn) == []
    assert decide(conn, id) == ["half", "all"]


@pytest.mark.parametrize("is_overdue", [False, True])
def test_a_deadline_gives_up_what_is_open_and_the_gate_is_looked_at_again(conn: Conn, is_overdue: bool) -> None:
    def overdue(_: Tally) -> bool:
        return is_overdue

    gate: Gate[Tally] = Gate(
        name="all",
        opens=lambda tally: tally["done"] == tally["lines"],
        passed=tell("all"),
        is_overdue=overdue,
        expire=give_up,
    )
    batches: Batches[Tally] = Batches("imports", source=Imports(), gates=[gate])
    id = batch(conn)
    report(conn, id, 1)
    with conn.transaction():
        assert batches.decide(conn, id) == (["all"] if is_overdue else [])
    assert [one["late"] for one in told(conn)] == ([True] if is_overdue else [])


def test_roll_ups_are_rebuilt_from_the_members(conn: Conn) -> None:
    id = batch(conn)
    report(conn, id, 1)
    decide(conn, id)
    conn.execute("UPDATE import SET done = 7")
    with conn.transaction():
        assert BATCHES.rebuild(conn, id) == 1
        assert BATCHES.rebuild(conn, id) == 0
    assert conn.execute("SELECT done FROM import").fetchone() == (1,)


async def test_the_duty_decides_every_batch_that_an_event_was_lost_for(database: str, conn: Conn) -> None:
    open_one, ready = batch(conn), [batch(conn, 1) for _ in range(3)]
    for id in ready:
        report(conn, id, 1)
    assert BATCHES.duty().name == "imports.gates"
    async with open_database(database) as opened:
        decided = await BATCHES.decide_all(opened)
    assert (decided.batches, decided.gates) == (4, 6)
    assert str(decided) == "4 open, 6 gates passed"
    assert conn.execute("SELECT gates FROM import WHERE id = %s", (open_one,)).fetchone() == ([],)


async def test_a_batch_that_cannot_be_decided_does_not_keep_the_others(database: str, conn: Conn) -> None:
    ids = sorted(batch(conn, 1) for _ in range(3))
    for id in ids:
        report(conn, id, 1)
    conn.execute(f"ALTER TABLE import ADD CHECK (gates = '{{}}' OR id <> '{ids[0]}')".encode())
    async with open_database(database) as opened:
        with pytest.raises(psycopg.errors.CheckViolation):
            await BATCHES.decide_all(opened)
    found = conn.execute("SELECT id FROM import WHERE 'all' = ANY (gates) ORDER BY id").fetchall()
    assert [row[0] for row in found] == ids[1:]


async def test_an_asynchronous_connection_reports_and_decides(database: str, conn: Conn) -> None:
    id = batch(conn, 1)
    async with await psycopg.AsyncConnection.connect(database) as own:
        assert await BATCHES.areport(own, id, outcome(id, 1))
        await own.commit()
        assert await BATCHES.adecide(own, id) == ["half", "all"]
        await own.commit()
    assert redrive.status(conn, key=f"all:{id}").state == "pending"
