"""A restored, copied or promoted database: noticed by the rail's statement or a relay's memory, and harmless (P-10)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.app import App
from redrive.errors import ActRefused
from redrive.kit.database import connected
from redrive.message import ParkReason
from redrive.patterns.reconciliation import Kind
from redrive.ports import Claimed, RelayInfo
from redrive.produce.payload import canonical_json
from redrive.relay.claiming import claim_checks
from redrive.relay.crash.money_check import MoneyCheck
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments import findings
from redrive.systems.payments.rail.script import Profile
from tests.relay.harness import processing
from tests.support import messages as m
from tests.support.databases import fresh_database
from tests.systems.payments.books import Books
from tests.systems.payments.conftest import IBAN, Run, instruction
from tests.systems.payments.rails import Running, order, post, running

pytestmark = pytest.mark.req("P-10")


@pytest.fixture
async def books(paying: str, tmp_path: Path) -> AsyncIterator[Books]:
    """On a rail that forgets tokens: each request is a payment of its own."""
    async with (
        running(tmp_path / "rail.log", profile=Profile.LOOKUP) as rail,
        PostgresStore(paying, connections=2) as store,
    ):
        yield Books(store, paying, rail)


async def stranger(books: Books, number: int = 1, token: str = "of a row that was lost") -> None:
    """Paid by the database that was lost."""
    await post(
        books.rail.url,
        order(
            token,
            instruction_id=f"{books.participant}/{number}",
            participant_id=books.participant,
            sequence_id=70,
            rail_type=books.rail_type,
        ),
    )


async def test_an_entry_that_is_not_known_here_pauses_the_rail(books: Books) -> None:
    await books.register()
    await stranger(books)
    await books.compare()
    assert await books.paused() == "epoch"
    rows = await books.store.rows(
        "SELECT cause, destination FROM redrive.epoch WHERE destination = %s ORDER BY number", [books.name]
    )
    assert rows == [("statement", books.name)]
    await stranger(books, 2)
    await books.compare()
    assert len(await books.store.rows("SELECT 1 FROM redrive.epoch WHERE destination = %s", [books.name])) == 1


async def test_where_the_statement_lists_what_others_did_an_unknown_entry_pauses_nothing(books: Books) -> None:
    await books.register()
    await stranger(books)
    compared = await books.compare(statement_is_exclusive=False)
    assert [finding.kind for finding in compared.findings] == [Kind.UNEXPLAINED]
    assert await books.paused() is None


@pytest.mark.parametrize("token", ["ours", "of a row that was lost"])
async def test_what_is_submitted_again_and_was_paid_is_held_at_once_and_then_delivered(
    books: Books, token: str, paying: str
) -> None:
    await books.register()
    if token == "ours":  # the same in every database: tenant, instruction and key say it
        key = f"{books.participant}/1"
        seed = f"payment:{len(key)}:{key}:{key}"
        ((found,),) = await books.store.rows("SELECT redrive.token_of(NULL, 'default', %s, 1, 'first')", [seed])
        token = str(found)
    await stranger(books, token=token)
    await books.compare()
    with psycopg.connect(paying) as conn:
        submitted = payments.submit(
            conn,
            payments.Instruction(
                instruction_id=f"{books.participant}/1",
                participant_id=books.participant,
                rail_type=books.rail_type,
                amount="12.34",
                currency="EUR",
                destination={"iban": IBAN},
            ),
        )
        with pytest.raises(payments.PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
            payments.submit(
                conn,
                payments.Instruction(
                    instruction_id=f"{books.participant}/1",
                    idempotency_key="another",
                    participant_id=books.participant,
                    rail_type=books.rail_type,
                    amount="12.34",
                    currency="EUR",
                    destination={"iban": IBAN},
                ),
            )
    assert submitted.state == "parked", "the answer says how it stands"
    assert await m.state_of(books.store, submitted.outbox_id) == "parked·held"
    assert (await books.compare()).confirmed == 1
    assert await m.state_of(books.store, submitted.outbox_id) == "delivered"
    assert await books.paused() == "epoch", "what closed something is not clean"
    await books.compare()
    assert await books.paused() is None
    assert len(books.rail.effects) == 1


async def test_an_entry_that_is_read_while_its_payment_is_submitted_is_linked_by_the_next_comparison(
    books: Books, paying: str
) -> None:
    await books.register()
    await stranger(books)
    with psycopg.connect(paying) as conn:
        id = payments.submit(
            conn,
            payments.Instruction(
                instruction_id=f"{books.participant}/1",
                participant_id=books.participant,
                rail_type=books.rail_type,
                amount="12.34",
                currency="EUR",
                destination={"iban": IBAN},
            ),
        ).outbox_id
        await books.compare()  # does not see what is not committed
        assert await books.paused() == "epoch"
    assert await m.state_of(books.store, id) == "pending"
    await books.compare()
    assert await m.state_of(books.store, id) == "delivered"
    assert len(books.rail.effects) == 1


async def test_the_pause_lasts_until_late_effects_must_have_shown(books: Books) -> None:
    await books.register(effects_within_seconds=3600)
    await books.store.rows(
        "SELECT redrive.begin_epoch('declared', 'ada', 'a test', clock_timestamp(), %s)", [books.name]
    )
    assert await books.kinds() == []
    assert await books.paused() == "epoch"
    await books.register(effects_within_seconds=0)
    assert await books.kinds() == []
    assert await books.paused() is None


async def test_another_amount_is_held_with_its_evidence(books: Books) -> None:
    await books.register()
    id = await books.submit()
    await books.pay(id, amount="99.00")
    assert await books.kinds() == [Kind.DIFFERS]
    assert await m.state_of(books.store, id) == "parked·held"
    assert await books.claimed() == []


async def test_another_account_in_the_statement_is_a_finding(books: Books) -> None:
    await books.register()
    id = await books.submit()
    await books.settle(m.park(ParkReason.HELD))
    entry = {
        **order(await books.token(id), instruction_id=f"{books.participant}/1", participant_id=books.participant),
        "cursor": "1",
        "reference": "R-1",
        "effected_at": 0.0,
        "destination_hash": hashlib.sha256(canonical_json({"iban": "NL91ABNA0417164300"})).hexdigest(),
    }
    await books.store.rows(
        "SELECT redrive_payments.keep_statement_1(%s, %s::json)", [books.rail_type, json.dumps([entry])]
    )
    assert await books.kinds() == [Kind.DIFFERS]
    assert await books.store.rows("SELECT redrive_payments.confirm_late_1(%s)", [id]) == [("refused",)]


async def test_an_entry_stays_what_was_read_and_is_linked_once(books: Books) -> None:
    await books.register()
    await stranger(books)
    await books.compare()
    id = await books.submit()
    for change in ("amount = 1", "outbox_id = gen_random_uuid()", "outbox_id = NULL", "token = 'x'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await books.store.rows(
                f"UPDATE redrive_payments.statement_entry SET {change} WHERE outbox_id = %s RETURNING 1",
                [id],
            )


def acknowledge(dsn: str, rail_type: str, finding: tuple[str, str], actor: str, reference: str = "REV-1") -> None:
    with connected(dsn, name="tests") as conn:
        findings.acknowledge(
            conn,
            rail_type=rail_type,
            kind=finding[0],
            subject=finding[1],
            reference=reference,
            actor=actor,
            reason="the rail took one back",
        )


async def test_a_finding_is_acknowledged_by_two_people_and_opens_again_with_other_evidence(
    books: Books, paying: str
) -> None:
    await books.register()
    id = await books.submit()
    await books.pay(id)
    await books.pay(id)
    assert await books.kinds() == [Kind.TWICE]
    await books.store.rows(
        "SELECT redrive.begin_epoch('declared', 'ada', 'a test', clock_timestamp(), %s)", [books.name]
    )
    double = ("twice", str(id))
    for _ in range(2):
        with pytest.raises(ActRefused, match="a second person"):
            acknowledge(paying, books.rail_type, double, "ada")
    assert await books.kinds() == [Kind.TWICE]
    assert await books.paused() == "epoch"
    with pytest.raises(ActRefused, match="a second person"):
        acknowledge(paying, books.rail_type, double, "ben", reference="REV-2")  # not what ada has seen
    with pytest.raises(ActRefused, match="a second person"):
        acknowledge(paying, books.rail_type, double, "ada")  # what ben proposed has replaced it
    acknowledge(paying, books.rail_type, double, "ben")
    compared = await books.compare()
    assert (list(compared.findings), compared.acknowledged) == ([], 1)
    assert await books.paused() is None
    await books.pay(id)
    assert await books.kinds() == [Kind.TWICE], "a third effect is other evidence"


async def test_the_command_line_lists_findings_and_two_people_acknowledge_one(books: Books, run: Run) -> None:
    await books.register()
    await stranger(books)
    await books.compare()
    (found,) = json.loads(run("findings", "list", "--rail", books.rail_type, "--json").stdout)["items"]
    assert (found["kind"], found["state"]) == ("unexplained", "open")
    named = ("findings", "acknowledge", books.rail_type, "unexplained", found["subject"], "--reference", "REF-1")
    first = run(*named, "--reason", "paid by hand", "--actor", "ada")
    assert first.exit_code != 0
    assert "a second person has to ask too" in first.stderr
    second = run(*named, "--reason", "paid by hand", "--actor", "ben", "--json")
    assert second.exit_code == 0, second.stderr
    (found,) = json.loads(run("findings", "list", "--rail", books.rail_type, "--json").stdout)["items"]
    assert (found["state"], found["acknowledged_by"], found["acknowledged_reference"]) == (
        "acknowledged",
        "ben",
        "REF-1",
    )


@pytest.fixture
def rail_app(tmp_path: Path) -> Callable[[Running], App]:
    """An app with this rail; the books are compared often."""

    def made(rail: Running) -> App:
        app = App()
        app.include(payments.with_rails([rail.rail(has_statement=False)]))
        return app

    return made


async def test_a_dump_put_back_into_the_same_server_is_noticed_and_pays_nothing_twice(
    server_dsn: str, template: str, tmp_path: Path, rail_app: Callable[[Running], App]
) -> None:
    """The rail can neither be asked nor remembers tokens: only what the relay remembers keeps it from paying twice."""
    state = tmp_path / "state"
    async with running(tmp_path / "rail.log", profile=Profile.NEITHER) as rail:
        with fresh_database(server_dsn, template=template) as before:
            with psycopg.connect(before) as conn:
                payments.add_participant(conn, "acme")
                id = payments.submit(conn, instruction("acme")).outbox_id
            async with PostgresStore(before) as store:  # as it is once a relay has run here
                relay = RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="1", destinations=[], money=[])
                await store.register(relay)
            with fresh_database(
                server_dsn, template=str(psycopg.conninfo.conninfo_to_dict(before)["dbname"])
            ) as backup:
                async with processing(before, rail_app(rail), state_directory=state) as seen:
                    await seen.until("message.delivered")
                assert len(rail.effects) == 1
                # The backup is put back: the payment is pending there, as if nothing had happened.
                async with processing(backup, rail_app(rail), state_directory=state) as seen:
                    await seen.that(lambda: bool(seen.of("relay.restored")) or len(rail.effects) > 1, what="either")
                    assert [one["unknown"] for one in seen.of("relay.restored")] == [1]
                    async with PostgresStore(backup) as store:
                        rows = await store.rows("SELECT pause_reason FROM redrive.destination WHERE money", [])
                        assert rows == [("epoch",)]
                        doubt = await store.rows("SELECT id, in_doubt_since IS NOT NULL FROM redrive.pending", [])
                        assert doubt == [(id, True)]
                assert len(rail.effects) == 1


async def test_a_claim_that_made_its_own_connection_sends_nothing_before_the_database_was_asked(
    server_dsn: str, template: str, tmp_path: Path, rail_app: Callable[[Running], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay goes on while the database is put back under it, and its next connection is that of a claim.

    However slow the machine is: no heartbeat asks before that claim has ended, and the claim is not too old to be sent.
    """
    there: list[str] = []
    claim, ask = PostgresStore.claim, MoneyCheck.ask
    no_claim_elsewhere = asyncio.Event()
    no_claim_elsewhere.set()

    async def claim_elsewhere(self: PostgresStore, *values: Any, **named: Any) -> Claimed:
        if there:
            no_claim_elsewhere.clear()
            self._sessions._dsn = there.pop()
            await self._sessions._drop_idle()
            with psycopg.connect(server_dsn, autocommit=True) as conn:  # the one that was replaced is gone
                conn.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            return await claim(self, *values, **named)
        finally:
            no_claim_elsewhere.set()

    async def ask_later(self: MoneyCheck) -> None:
        await no_claim_elsewhere.wait()
        await ask(self)

    monkeypatch.setattr(claim_checks, "FRESH_SECONDS", 60.0)
    monkeypatch.setattr(PostgresStore, "claim", claim_elsewhere)
    monkeypatch.setattr(MoneyCheck, "ask", ask_later)
    async with running(tmp_path / "rail.log", profile=Profile.NEITHER) as rail:
        with fresh_database(server_dsn, template=template) as before:
            async with processing(before, rail_app(rail), state_directory=tmp_path / "state") as seen:
                await seen.until("relay.looked")
            with psycopg.connect(before) as conn:
                payments.add_participant(conn, "acme")
                payments.submit(conn, instruction("acme"))
            name = str(psycopg.conninfo.conninfo_to_dict(before)["dbname"])
            with fresh_database(server_dsn, template=name) as backup:
                async with processing(before, rail_app(rail), state_directory=tmp_path / "state") as seen:
                    await seen.until("message.delivered")
                    there.append(backup)
                    await seen.that(lambda: bool(seen.of("relay.restored")) or len(rail.effects) > 1, what="either")
                assert len(rail.effects) == 1


ENGINE_TABLES = re.compile(r"CREATE (?:UNLOGGED )?TABLE redrive\.(\w+)")
WRITES = re.compile(
    r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?|MERGE\s+INTO)\s+(?:ONLY\s+)?([\w.]+)", re.IGNORECASE
)


def test_no_system_writes_a_table_of_the_engine() -> None:
    """Their lanes, fences and chains are kept by the engine's own functions."""
    source = Path(payments.__file__).parents[2]
    engine = {
        name for file in (source / "store/sql/tables").glob("*.sql") for name in ENGINE_TABLES.findall(file.read_text())
    }
    assert {"pending", "destination", "attempt", "evidence"} <= engine
    files = sorted((source / "systems").rglob("*.sql"))
    assert files
    for file in files:
        text = re.sub(r"--.*", "", file.read_text())
        for _, table in WRITES.findall(re.sub(r"FOR (NO KEY )?UPDATE|DO UPDATE|BEFORE UPDATE|AFTER UPDATE", "", text)):
            if table == "redrive.destination_owner":  # its migration names the destinations that are its own
                continue
            assert not table.startswith("redrive."), (file.name, table)
            # Nor without a schema: the engine's is in the search path too.
            assert table not in engine, (file.name, table)
