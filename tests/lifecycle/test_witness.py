"""What relays remember of the money that they sent: a database that does not know it was restored (P-10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from redrive.answers import Delivered
from redrive.message import Attempt
from redrive.operate import embedded
from redrive.ports import ClaimRequest, RelayInfo, Sent, Wal
from redrive.relay.crash import witness as remembering
from redrive.relay.crash.witness import Witness
from redrive.store.migrations import migrate
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

pytestmark = pytest.mark.req("P-10")

BANK = "bank"
RELAY = RelayInfo(worker=m.WORKER, name="relay", host="here", pid=1, version="1", destinations=[BANK], money=[BANK])


async def claimed(store: PostgresStore) -> Attempt:
    await store.rows("SELECT redrive.enqueue_1(%s, %s)", [BANK, b"{}"])
    (attempt,) = (await store.claim(m.WORKER, [ClaimRequest(BANK, 1, 1)], lease_seconds=600)).attempts
    return attempt


async def paused(store: PostgresStore) -> str | None:
    (bank,) = await store.heartbeat(m.WORKER)
    return bank.pause_reason


def files(directory: Path) -> list[Path]:
    return list(directory.glob("*.log"))


async def causes(store: PostgresStore) -> list[str]:
    return [row[0] for row in await store.rows("SELECT cause FROM redrive.epoch ORDER BY number", [])]


async def test_what_was_begun_here_is_known_however_it_ended(store: PostgresStore) -> None:
    await store.register(RELAY)
    witness = Witness(store, m.WORKER, directory=None)
    for settlement in (None, m.close(Delivered("r")), m.park(), m.retry()):
        attempt = await claimed(store)
        witness.note(attempt)
        if settlement is not None:
            await store.settle(m.WORKER, [m.outcome(attempt, settlement)])
        assert not (await witness.ask()).restored, settlement
    assert await paused(store) is None


async def test_an_attempt_that_the_database_does_not_know_pauses_money_once(store: PostgresStore) -> None:
    await store.register(RELAY)
    witness = Witness(store, m.WORKER, directory=None)
    attempt = await claimed(store)
    witness.note(replace(attempt, number=attempt.number + 1))  # begun in what was lost
    found = await witness.ask()
    assert (found.restored, found.unknown) == (True, 1)
    assert await paused(store) == "epoch"
    assert not (await witness.ask()).restored, "explained by the epoch that has begun"
    other = Witness(store, m.OTHER_WORKER, directory=None)
    other.note(replace(attempt, number=attempt.number + 1))
    assert not (await other.ask()).restored, "for every relay that remembers it"
    assert await causes(store) == ["server", "witness"]


@pytest.mark.parametrize("handed_back", [False, True])
async def test_a_claim_after_the_restore_is_not_the_attempt_that_is_remembered(
    store: PostgresStore, handed_back: bool
) -> None:
    """It has the same number, because the message waits in the restored database as it did before it was sent."""
    await store.register(RELAY)
    witness = Witness(store, m.WORKER, directory=None)
    attempt = await claimed(store)
    witness.note(replace(attempt, claimed_at=attempt.claimed_at - timedelta(seconds=5)))
    if handed_back:
        assert await store.hand_back(m.WORKER, [attempt.fence])
    assert (await witness.ask()).unknown == 1
    assert await paused(store) == "epoch"


async def test_a_relay_knows_which_claims_it_has_sent(store: PostgresStore) -> None:
    """A claim that is back with a restored database and was sent is not handed back as one that was never begun."""
    witness = Witness(store, m.WORKER, directory=None)
    attempt = await claimed(store)
    assert not witness.has_sent(attempt.fence)
    witness.note(attempt)
    assert witness.has_sent(attempt.fence)
    assert not witness.has_sent(attempt.fence._replace(attempt=attempt.number + 1))


async def test_wal_that_is_behind_what_was_seen_pauses_money(store: PostgresStore) -> None:
    await store.register(RELAY)
    seen = (await store.witness(m.WORKER, kept="memory", remembers=True, sent=[], wal=None)).wal
    ahead = Wal(seen.system_identifier, "FFFFFFFF/0", seen.at)
    elsewhere = Wal(seen.system_identifier + 1, "FFFFFFFF/0", seen.at)
    assert not (await store.witness(m.WORKER, kept="memory", remembers=True, sent=[], wal=elsewhere)).restored
    assert (await store.witness(m.WORKER, kept="memory", remembers=True, sent=[], wal=ahead)).restored
    assert await paused(store) == "epoch"


async def test_messages_of_ranges_that_were_retired_are_not_missed(store: PostgresStore) -> None:
    await store.register(RELAY)
    now = await store.now()
    old = UUID(int=(int((now - timedelta(days=4000)).timestamp() * 1000) << 80) | 7 << 76 | 1 << 63)
    recent = UUID(int=(int(now.timestamp() * 1000) << 80) | 7 << 76 | 1 << 63)
    for id, restored in ((old, False), (recent, True)):
        found = await store.witness(m.WORKER, kept="memory", remembers=True, sent=[Sent(id, 1, now)], wal=None)
        assert found.restored is restored


async def test_a_relay_without_memory_waits_for_a_comparison_or_for_one_that_remembers(store: PostgresStore) -> None:
    before = await store.now()
    note = "SELECT redrive.note_comparison(%s, %s, true, 'reconciliation', 'a test', %s)"
    await store.register(RELAY)
    assert list((await Witness(store, m.WORKER, directory=None).ask()).closed) == [], "no statement was ever compared"
    await store.rows(note, [BANK, before, before])
    await store.rows("DELETE FROM redrive.relay RETURNING 1", [])
    await store.register(RELAY)
    fresh = Witness(store, m.WORKER, directory=None)
    assert list((await fresh.ask()).closed) == [BANK]
    now = await store.now()
    await store.rows(note, [BANK, now, now])
    assert list((await fresh.ask()).closed) == []
    # And one that starts beside it takes its word.
    await store.register(replace(RELAY, worker=m.OTHER_WORKER))
    beside = Witness(store, m.OTHER_WORKER, directory=None)
    assert list((await beside.ask()).closed) == [BANK]
    await fresh.ask()
    assert list((await beside.ask()).closed) == []


async def test_a_file_outlives_its_process_and_a_torn_line_is_left_out(store: PostgresStore, tmp_path: Path) -> None:
    await store.register(RELAY)
    first = Witness(store, m.WORKER, directory=tmp_path)
    await first.ask()
    attempt = await claimed(store)
    first.note(replace(attempt, number=7))
    (path,) = files(tmp_path)
    with path.open("a") as file:
        file.write(f"sent {uuid4()} 1 2026-")
    # Killed here: nothing was closed, and nobody says goodbye.
    beside = Witness(store, m.OTHER_WORKER, directory=tmp_path)
    assert (await beside.ask()).unknown == 1, "it reads what others on this machine remember"
    assert len(files(tmp_path)) == 2, "one that lives keeps its file"
    first.close()
    beside.close()
    Witness(store, m.WORKER, directory=tmp_path)
    next_one = Witness(store, m.WORKER, directory=tmp_path)
    await next_one.ask()
    (left,) = files(tmp_path)
    assert f"sent {attempt.id} 7 " in left.read_text(), "what was left behind is taken over"
    next_one.close()


async def test_after_a_new_connection_a_relay_knows_what_the_others_have_sent(
    store: PostgresStore, tmp_path: Path
) -> None:
    """The database was put back under two relays, and the one that has sent nothing asks first."""
    await store.register(RELAY)
    first, second = (Witness(store, worker, directory=tmp_path) for worker in (m.WORKER, m.OTHER_WORKER))
    await first.ask()
    await second.ask()
    first.note(replace(await claimed(store), number=7))
    assert (await second.ask()).unknown == 0, "on a connection that it knows it asks for its own"
    store._sessions.made += 1
    assert (await second.ask()).unknown == 1
    first.close()
    second.close()


async def test_a_file_stays_small_and_keeps_the_last(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "BYTES_MAX", 64 * 1024)
    await store.register(RELAY)
    witness = Witness(store, m.WORKER, directory=tmp_path)
    await witness.ask()
    attempt = await claimed(store)
    for number in range(1, 3000):
        witness.note(replace(attempt, number=number))
    (path,) = files(tmp_path)
    text = path.read_text()
    assert path.stat().st_size <= 64 * 1024 + 200
    assert f"sent {attempt.id} 2999 " in text
    assert f"sent {attempt.id} 2600 " in text
    witness.close()


async def test_a_directory_that_cannot_be_written_is_told_and_memory_goes_on(
    store: PostgresStore, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    heard: list[str] = []
    await store.register(RELAY)
    witness = Witness(store, m.WORKER, directory=tmp_path / "taken" / "below", on_failure=heard.append)
    await witness.ask()
    assert heard == ["NotADirectoryError"]
    assert await store.rows("SELECT witness FROM redrive.relay", []) == [("memory",)]
    witness.note(replace(await claimed(store), number=9))
    assert (await witness.ask()).restored


@pytest.mark.full
@pytest.mark.own_server
async def test_a_base_copy_started_without_recovery_target_is_noticed(
    crash_server: Callable[..., embedded.Server], tmp_path: Path
) -> None:
    """System identifier and timeline are those of the original; the attempt that came after the copy is not there."""
    import shutil

    server = crash_server()
    migrate.upgrade(server.dsn)
    async with PostgresStore(server.dsn) as store:
        await store.register(RELAY)
    server.stop()
    copy = tmp_path / "copy"
    shutil.copytree(server.data_dir, copy)
    server = crash_server(server.data_dir)
    state = tmp_path / "state"
    async with PostgresStore(server.dsn) as store:
        witness = Witness(store, m.WORKER, directory=state)
        await witness.ask()
        witness.note(await claimed(store))
        witness.close()
    server.stop()
    restored = crash_server(copy)
    async with PostgresStore(restored.dsn) as store:
        await store.register(RELAY)
        assert await causes(store) == ["server"], "the server looks like the same one"
        found = await Witness(store, m.WORKER, directory=state).ask()
        assert (found.restored, found.unknown) == (True, 1)
        assert await paused(store) == "epoch"
