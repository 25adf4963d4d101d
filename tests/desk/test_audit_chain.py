"""The audit verifies; whatever was changed behind the trigger is found (D2: edit, delete, reorder one row)."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidValue
from redrive.operate.desk.audit import Head, verify
from redrive.store.reads import desk
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

pytestmark = pytest.mark.req("G-16")

SWAP = "UPDATE redrive.operator_action SET id = CASE id WHEN 3 THEN -4 ELSE -3 END WHERE id IN (3, 4);"
TAMPERINGS = {
    "actor": "UPDATE redrive.operator_action SET actor = 'eve' WHERE id = 3",
    "reason": "UPDATE redrive.operator_action SET reason = 'another' WHERE id = 1",
    "before": """UPDATE redrive.operator_action SET before = '{"reason": "x"}' WHERE id = 4""",
    "hash": "UPDATE redrive.operator_action SET hash = sha256(hash) WHERE id = 5",
    "time": "UPDATE redrive.operator_action SET at = at + interval '1 microsecond' WHERE id = 2",
    "actor, and the hash made to fit": """UPDATE redrive.operator_action SET actor = 'eve', hash =
        redrive.action_hash(id, at, 'eve', act, subject, reason, before, after, previous_hash) WHERE id = 3""",
    "first deleted": "DELETE FROM redrive.operator_action WHERE id = 1",
    "one deleted": "DELETE FROM redrive.operator_action WHERE id = 3",
    "reordered": f"{SWAP} UPDATE redrive.operator_action SET id = -id WHERE id < 0",
    "one inserted": """INSERT INTO redrive.operator_action
        SELECT 0, at, 'eve', act, subject, reason, before, after, '', hash FROM redrive.operator_action WHERE id = 1""",
    "renumbered after a deletion": """DELETE FROM redrive.operator_action WHERE id = 2;
        UPDATE redrive.operator_action SET id = -(id - 1) WHERE id > 2;
        UPDATE redrive.operator_action SET id = -id WHERE id < 0""",
}


async def acts(store: PostgresStore, count: int = 6, *, actor: str = "ada") -> None:
    for number in range(count):
        verb = store.resume if number % 2 else store.pause
        await verb(m.DESTINATION, actor=actor, reason=f'reason "{number}" ä', now=m.at(number))


async def tamper(store: PostgresStore, statements: str) -> None:
    async with store.connection() as conn, conn.transaction():
        await conn.execute("SET LOCAL session_replication_role = replica")
        await conn.execute(statements.encode())


async def test_an_untouched_audit_verifies(store: PostgresStore) -> None:
    assert (await verify(store)).checked == 0
    await acts(store)
    verified = await verify(store)
    assert (verified.intact, verified.checked, str(verified.head).partition(":")[0]) == (True, 6, "6")


@pytest.mark.parametrize("change", TAMPERINGS)
async def test_tampering_is_found(store: PostgresStore, change: str) -> None:
    await acts(store)
    await tamper(store, TAMPERINGS[change])
    assert not (await verify(store)).intact


async def test_a_chain_is_walked_over_windows(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "CHAIN_WINDOW", 2)
    await acts(store)
    assert (await verify(store)).intact
    await tamper(store, TAMPERINGS["one deleted"])
    assert [fault.id for fault in (await verify(store)).faults] == [3]


async def test_an_end_that_was_cut_off_shows_against_a_noted_head(store: PostgresStore) -> None:
    await acts(store)
    noted = (await verify(store)).head
    assert noted is not None
    assert (await verify(store, noted=noted)).intact
    await tamper(store, "DELETE FROM redrive.operator_action WHERE id > 4")
    assert (await verify(store)).intact, "no chain can show this by itself"
    assert not (await verify(store, noted=noted)).intact


async def test_an_audit_that_was_written_anew_shows_against_a_noted_head(store: PostgresStore) -> None:
    await acts(store, 2)
    noted = (await verify(store)).head
    await tamper(store, "DELETE FROM redrive.operator_action")
    await acts(store, 4, actor="eve")
    assert (await verify(store)).intact
    assert not (await verify(store, noted=noted)).intact


@pytest.mark.req("G-19")
@pytest.mark.parametrize("text", ["", "x", "1", "1:zz", "one:00"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) if text != "1" else pytest.raises(AssertionError):
        assert Head.parse(text).hash
