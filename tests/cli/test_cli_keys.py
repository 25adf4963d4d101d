"""`redrive keys`: which ordering keys do not go on and why, skipping a head; and what other commands say about keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from redrive.answers import Terminal
from redrive.errors import ActRefused
from redrive.message import MessageId, ParkReason
from redrive.operate import cursors, operations
from redrive.store.reads import models
from redrive.store.reads.models import KeyGroup, KeyPosition
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.cli.conftest import NOBODY, Redrive, Shop, cursor
from tests.cli.test_cli_basics import process
from tests.support import messages as m
from tests.support.databases import fresh_database

pytestmark = pytest.mark.req("G-07")

HALTED = ["dead", "held", "unrecorded"]
WAITING = ["retrying", "not_due", "paused", "breaker_open", "suspect"]
FLOWING = ["in_flight", "ready"]
BEHIND = {"dead": 2, "in_flight": 1, "not_due": 1}
WHY = ("--reason", "cancelled by phone")


@pytest.fixture
def lanes(database: str) -> Shop:
    """An ordering key in every state, named for it; `ready` is of the tenant acme."""
    return _lanes(database)


@pytest.fixture(scope="module")
def shown(server_dsn: str, template: str) -> Iterator[Shop]:
    """The same, made once: for tests that only look."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield _lanes(dsn)


@pytest.fixture
def look(shown: Shop) -> Redrive:
    return Redrive(shown.dsn)


def _lanes(dsn: str) -> Shop:
    now = datetime.now(UTC)
    return Shop(dsn=dsn, ids=asyncio.run(_make(dsn, now)), now=now)


async def _make(dsn: str, now: datetime) -> dict[str, MessageId]:
    ids: dict[str, MessageId] = {}
    async with PostgresStore(dsn) as store:
        for state, settlement in {
            "dead": m.park(answer=Terminal("HTTP_409"), error_class="HTTP_409"),
            "held": m.park(ParkReason.HELD),
            "unrecorded": m.park(ParkReason.UNRECORDED),
            "retrying": m.retry(delay_seconds=600.0),
        }.items():
            ids[state] = await m.enqueue(store, now=now, order_by=state)
            await m.settle(store, await m.claim(store, now=now), settlement, now=now)
        ids["not_due"] = await m.enqueue(store, now=now, order_by="not_due", due_at=now + timedelta(hours=1))
        ids["paused"] = await m.enqueue(store, now=now, order_by="paused", destination="erp")
        await store.pause("erp", actor="anna", reason="maintenance", now=now)
        ids["breaker_open"] = await m.enqueue(store, now=now, order_by="breaker_open", destination="bank")
        down: dict[str, Any] = {"code": "CONNECTION_REFUSED", "cool_off_seconds": 600.0, "cool_off_max_seconds": 600.0}
        await store.open_breaker("bank", claimed_at=now, **down, now=now)
        ids["suspect"] = await m.enqueue(store, now=now, order_by="suspect")
        await m.claim(store, now=now, worker=m.OTHER_WORKER)
        await store.reap(limit=10, worker=m.OTHER_WORKER, now=now)
        ids["in_flight"] = await m.enqueue(store, now=now, order_by="in_flight")
        await m.claim(store, now=now)
        ids["ready"] = await m.enqueue(store, now=now, order_by="ready", tenant="acme")
        for state, count in BEHIND.items():
            for n in range(count):
                ids[f"{state}+{n + 1}"] = await m.enqueue(store, now=now, order_by=state)
    return ids


# list


def test_keys_that_wait_for_a_person_come_first_then_those_that_wait_for_a_time(look: Redrive, shown: Shop) -> None:
    document = look.json("keys", "list")
    assert [item["state"] for item in document["items"]] == [*HALTED, *WAITING, *FLOWING]
    assert [item["order_by"] for item in document["items"]] == [*HALTED, *WAITING, *FLOWING]
    assert [item["head"] for item in document["items"]] == [str(shown[s]) for s in (*HALTED, *WAITING, *FLOWING)]
    assert {item["order_by"] for item in document["items"] if item["blocked"]} == {*HALTED, *WAITING}
    assert {item["order_by"]: item["waiting"] for item in document["items"] if item["waiting"]} == BEHIND
    assert {item["sequence"] for item in document["items"]} == {1}
    assert (document["schema"], document["next"], document["looked_at"]) == ("redrive.keys/v1", None, None)


def test_a_key_says_since_when_it_is_so_and_until_when(look: Redrive, shown: Shop) -> None:
    items = {item["order_by"]: item for item in look.json("keys", "list")["items"]}
    assert {datetime.fromisoformat(item["since"]) for item in items.values()} == {shown.now}
    due = {name: datetime.fromisoformat(item["due_at"]) - shown.now for name, item in items.items() if item["due_at"]}
    assert due == {"retrying": timedelta(seconds=600), "not_due": timedelta(hours=1)}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--blocked"], [*HALTED, *WAITING]),
        (["--tenant", "acme"], ["ready"]),
        (["--tenant", "acme", "--blocked"], []),
        (["--tenant", "nobody"], []),
        (["--destination", "erp"], ["paused"]),
        (["--destination", "erpp"], []),
    ],
)
def test_a_filter_keeps_the_keys_that_it_names(look: Redrive, arguments: list[str], found: list[str]) -> None:
    assert [item["order_by"] for item in look.json("keys", "list", *arguments)["items"]] == found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9])
def test_pages_of_keys_follow_each_other_without_gap_or_repetition(look: Redrive, limit: int) -> None:
    assert _all_pages(look, "--limit", str(limit)) == [*HALTED, *WAITING, *FLOWING]
    assert _all_pages(look, "--limit", str(limit), "--blocked") == [*HALTED, *WAITING]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_walk_that_ends_at_its_window_says_so_and_where_to_go_on(
    look: Redrive, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "KEYS_WINDOW", window)
    page = look.json("keys", "list")
    assert page["looked_at"] == window
    assert _all_pages(look) == [*HALTED, *WAITING, *FLOWING]
    assert f"Looked at {window} keys only." in look("keys", "list").stderr


def _all_pages(redrive: Redrive, *arguments: str) -> list[str]:
    seen: list[str] = []
    after: list[str] = []
    for _ in range(30):
        page = redrive.json("keys", "list", *arguments, *after)
        seen += [item["order_by"] for item in page["items"]]
        if page["next"] is None:
            return seen
        after = ["--after", page["next"]]
    raise AssertionError("the pages do not end")


def test_the_list_for_people_has_a_line_for_each_key_and_says_how_to_go_on(look: Redrive, shown: Shop) -> None:
    result = look("keys", "list", "--limit", "5")
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert lines[1].split()[:5] == ["default", "dead", "1", "dead", "shop"]
    assert lines[1].split()[-2:] == ["2", str(shown["dead"])]
    assert "not due" in lines[5]
    following = look.json("keys", "list", "--limit", "5")["next"]
    position = cursors.decode(KeyPosition, following)
    assert position is not None
    assert position.group is KeyGroup.WAITING
    assert f"More: the same with --after {following}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "No ordering key has anything open."),
        (["--blocked"], "No ordering key is blocked."),
        (["--tenant", "x"], "No ordering key matches."),
    ],
)
def test_an_empty_list_of_keys_says_so_beside_the_data(redrive: Redrive, arguments: list[str], words: str) -> None:
    result = redrive("keys", "list", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{words}\n")


def test_what_waits_behind_a_head_is_counted_up_to_a_thousand(redrive: Redrive, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        many = "SELECT redrive.enqueue_1('shop', '{}', p_order_by => 'long') FROM generate_series(1, 1002)"
        connection.execute(many)
    assert redrive.json("keys", "list")["items"][0]["waiting"] == 1000
    assert " 1,000+ " in redrive("keys", "list").stdout
    assert "1,001 wait behind it" in redrive("keys", "skip", "default", "long", "--dry-run", *WHY).stdout


# skip


@pytest.mark.parametrize("state", [*HALTED, *WAITING, "ready"])
def test_skip_closes_the_head_whatever_blocks_it_and_the_key_goes_on(lanes: Shop, state: str) -> None:
    tenant = "acme" if state == "ready" else "default"
    redrive = Redrive(lanes.dsn)
    document = redrive.json("keys", "skip", tenant, state, "--yes", *WHY)
    assert (document["schema"], document["skipped"]) == ("redrive.key_skip/v1", True)
    assert document["key"]["head"] == str(lanes[state])
    assert lanes.state(state) == "skipped"
    (act,) = redrive.json("messages", "show", lanes[state])["acts"]
    assert (act["act"], act["reason"]) == ("skip", "cancelled by phone")


def test_after_a_skip_the_next_one_is_the_head_and_is_claimed(lanes: Shop) -> None:
    assert Redrive(lanes.dsn)("keys", "skip", "default", "dead", "--yes", *WHY).exit_code == 0
    taken = lanes.call(lambda store: m.claim_all(store, now=datetime.now(UTC)))
    assert lanes["dead+1"] in {attempt.id for attempt in taken.attempts}


def test_a_dry_run_of_skip_shows_the_head_and_what_waits_and_changes_nothing(lanes: Shop) -> None:
    redrive = Redrive(lanes.dsn)
    result = redrive("keys", "skip", "default", "dead", "--dry-run", *WHY)
    assert result.exit_code == 0
    assert result.stdout == (
        f"Would close number 1 of dead: message {lanes['dead']} to shop, dead; 2 wait behind it.\n"
    )
    assert "nothing was changed" in result.stderr
    document = redrive.json("keys", "skip", "default", "dead", "--dry-run", *WHY)
    assert (document["dry_run"], document["skipped"], document["key"]["waiting"]) == (True, False, 2)
    assert lanes.state("dead") == "parked·dead"


def test_what_may_have_been_delivered_is_said_before_it_is_skipped(look: Redrive) -> None:
    assert "It may have been delivered." in look("keys", "skip", "default", "held", "--dry-run", *WHY).stdout
    assert "may have" not in look("keys", "skip", "default", "dead", "--dry-run", *WHY).stdout


def test_a_head_of_another_number_is_not_skipped(lanes: Shop) -> None:
    result = Redrive(lanes.dsn)("keys", "skip", "default", "dead", "--sequence", "2", "--yes", *WHY)
    assert (result.exit_code, result.stdout) == (5, "")
    assert "its head is number 1, not 2" in result.stderr
    assert lanes.state("dead") == "parked·dead"
    assert Redrive(lanes.dsn)("keys", "skip", "default", "dead", "--sequence", "1", "--yes", *WHY).exit_code == 0


def test_a_key_that_went_on_since_it_was_looked_at_is_left_alone(lanes: Shop) -> None:
    async def race(store: PostgresStore) -> None:
        seen = await operations.find_head(store, "default", "dead")
        await store.skip("default", "dead", actor="otto", reason="quicker")
        with pytest.raises(ActRefused, match="another one by now"):
            await operations.skip(store, seen, Who(actor="anna", reason="slower"))

    lanes.call(race)
    assert (lanes.state("dead"), lanes.state("dead+1")) == ("skipped", "pending")


@pytest.mark.parametrize(
    ("key", "exit_code", "words"),
    [("in_flight", 5, "is being sent just now"), ("done", 5, "nothing of it waits"), ("nokey", 3, "no ordering key")],
)
def test_a_key_without_a_head_to_skip_is_refused(lanes: Shop, key: str, exit_code: int, words: str) -> None:
    async def deliver(store: PostgresStore) -> None:
        await m.enqueue(store, order_by="done", destination="sms", now=lanes.now)
        rows = await store.rows("SELECT id FROM redrive.pending WHERE destination = 'sms'", [])
        await store.cancel(rows[0][0])

    lanes.call(deliver)
    for more in ([], ["--dry-run"]):
        result = Redrive(lanes.dsn)("keys", "skip", "default", key, "--yes", *more, *WHY)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert words in result.stderr
    assert lanes.state("in_flight") == "leased"


def test_skip_where_nobody_can_be_asked_needs_yes(lanes: Shop) -> None:
    result = Redrive(lanes.dsn)("keys", "skip", "default", "dead", *WHY)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--yes" in result.stderr
    assert lanes.state("dead") == "parked·dead"


def test_a_process_of_its_own_lists_and_skips_and_data_are_alone_on_stdout(lanes: Shop) -> None:
    listed = process("keys", "list", "--blocked", "--json", dsn=lanes.dsn)
    assert (listed.returncode, listed.stderr) == (0, "")
    head = json.loads(listed.stdout)["items"][0]
    guard = ("--sequence", head["sequence"])
    skipped = process("keys", "skip", head["tenant"], head["order_by"], *guard, "--yes", *WHY, dsn=lanes.dsn)
    assert (skipped.returncode, skipped.stderr) == (0, "")
    assert skipped.stdout.startswith(f"Closed number 1 of dead: message {lanes['dead']}")
    again = process("keys", "skip", head["tenant"], head["order_by"], *guard, "--yes", *WHY, dsn=lanes.dsn)
    assert (again.returncode, again.stdout) == (5, "")
    assert "its head is number 2, not 1" in again.stderr


USAGE = {
    "no key": ["keys", "skip", "default", *WHY],
    "no reason": ["keys", "skip", "default", "dead"],
    "sequence 0": ["keys", "skip", "default", "dead", "--sequence", "0", *WHY],
    "limit 1001": ["keys", "list", "--limit", "1001"],
    "no position": ["keys", "list", "--after", "7"],
    "unknown group": ["keys", "list", "--after", cursor("lost", 7)],
    "no lane": ["keys", "list", "--after", cursor("halted", "x")],
    "lane too large": ["keys", "list", "--after", cursor("halted", 2**63)],
    "half a position": ["keys", "list", "--after", cursor("halted")],
}


@pytest.mark.req("G-19")
@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_of_keys_ends_with_two_and_a_sentence(nowhere: Redrive, case: str) -> None:
    result = nowhere(*USAGE[case])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Wrong usage: ")


# who may


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_operator", "redrive_auditor"])
def test_a_reader_sees_the_keys_of_its_tenant_only(lanes: Shop, restricted: str, role: str) -> None:
    reader = _login(lanes, restricted, role, tenant="acme")
    assert [item["order_by"] for item in reader.json("keys", "list")["items"]] == ["ready"]
    assert reader.json("status")["blocked_keys"] == dict.fromkeys([*HALTED, *WAITING], 0)
    with psycopg.connect(reader.dsn) as connection:
        assert connection.execute("SELECT order_by FROM redrive.stream").fetchall() == [("ready",)]


def test_an_operator_skips_and_a_viewer_may_not(lanes: Shop, restricted: str) -> None:
    viewer = _login(lanes, restricted, "redrive_viewer")
    assert viewer("keys", "skip", "default", "dead", "--dry-run", *WHY).exit_code == 0
    result = viewer("keys", "skip", "default", "dead", "--yes", *WHY)
    assert (result.exit_code, result.stdout) == (4, "")
    assert lanes.state("dead") == "parked·dead"
    operator = _login(lanes, restricted, "redrive_operator")
    assert operator("keys", "skip", "default", "dead", "--yes", *WHY).exit_code == 0


def _login(shop: Shop, name: str, role: str, *, tenant: str = "*") -> Redrive:
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f'GRANT {role} TO "{name}"'.encode())
        connection.execute(f"ALTER ROLE \"{name}\" SET redrive.tenant = '{tenant}'".encode())
    return Redrive(psycopg.conninfo.make_conninfo(shop.dsn, user=name))


# what other commands say about keys


def test_status_counts_blocked_keys_by_what_blocks_them(look: Redrive) -> None:
    document = look.json("status")
    assert document["blocked_keys"] == dict.fromkeys([*HALTED, *WAITING], 1)
    assert (document["keys_looked_at"], document["lanes_mended"]) == (None, 0)
    (finding,) = [finding for finding in document["findings"] if finding["code"] == "keys_halted"]
    assert (finding["detail"], finding["next"]) == (
        "3 keys wait behind a parked message",
        "redrive keys list --blocked",
    )
    text = look("status").stdout
    assert "Ordering keys that are blocked: 8 (1 dead, 1 held, 1 unrecorded, 1 retrying, 1 not due," in text
    assert "Lanes mended so far: 0" in text


def test_status_says_when_it_did_not_look_at_all_keys(look: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "KEYS_WINDOW", 4)
    assert look.json("status")["keys_looked_at"] == 4
    assert ", of the 4 looked at" in look("status").stdout


@pytest.mark.req("G-20")
def test_status_says_when_it_did_not_count_all_rows(look: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look.json("status")["counted_max"] is None
    monkeypatch.setattr(models, "COUNTED_MAX", 3)
    document = look.json("status")
    assert document["counted_max"] == 3
    assert sum(one["pending"] for one in document["backlog"]) == 3
    assert "More than 3 rows: the counts above are lower bounds." in look("status").stdout


def test_status_says_how_many_lanes_had_to_be_mended(lanes: Shop) -> None:
    async def forget(store: PostgresStore) -> int:
        await store.rows("WITH lost AS (DELETE FROM redrive.lane_wake) SELECT 1", [])
        return (await store.mend_lanes(lanes=10)).mended

    redrive = Redrive(lanes.dsn)
    assert lanes.call(forget) == 5  # ready, and those that wait for a time; not the suspect's
    assert redrive.json("status")["lanes_mended"] == 5
    assert "Lanes mended so far: 5" in redrive("status").stdout


def test_a_message_that_waits_behind_its_head_says_behind_which(look: Redrive, shown: Shop) -> None:
    message = look.json("messages", "show", shown["dead+2"])
    assert (message["order_by"], message["sequence"]) == ("dead", 3)
    assert (message["behind"]["head"], message["behind"]["state"]) == (str(shown["dead"]), "dead")
    text = look("messages", "show", shown["not_due+1"]).stdout
    assert "ordered by    not_due, number 2" in text
    assert f"waits behind  {shown['not_due']}, number 1, which is not due" in text


@pytest.mark.parametrize("name", ["ready", "dead", "in_flight", "suspect"])
def test_a_head_waits_behind_nothing(look: Redrive, shown: Shop, name: str) -> None:
    assert look.json("messages", "show", shown[name])["behind"] is None
    assert "waits behind" not in look("messages", "show", shown[name]).stdout


# requeue out of order


@pytest.fixture
def moved_on(database: str) -> Shop:
    """A dead message whose key went on without it: number 2 delivered, number 3 waits."""

    async def make() -> dict[str, MessageId]:
        async with PostgresStore(database) as store:
            ids = {"dead": await m.enqueue(store, now=now, order_by="a")}
            await m.settle(store, await m.claim(store, now=now), m.park(halts=False), now=now)
            ids["delivered"] = await m.enqueue(store, now=now, order_by="a")
            await m.settle(store, await m.claim(store, now=now), m.close(), now=now)
            ids["waiting"] = await m.enqueue(store, now=now, order_by="a")
            return ids

    now = datetime.now(UTC)
    return Shop(dsn=database, ids=asyncio.run(make()), now=now)


def test_requeue_into_a_key_that_went_on_is_refused_and_says_how_many_went_out(moved_on: Shop) -> None:
    redrive = Redrive(moved_on.dsn)
    for more in ([], ["--dry-run"]):
        result = redrive("messages", "requeue", moved_on["dead"], *more, *WHY)
        assert (result.exit_code, result.stdout) == (5, "")
        assert "1 later message of its ordering key went out or ended without it" in result.stderr
        assert "--out-of-order" in result.stderr
    assert moved_on.state("dead") == "parked·dead"


def test_requeue_out_of_order_says_so_and_goes_before_all_that_still_wait(moved_on: Shop) -> None:
    redrive = Redrive(moved_on.dsn)
    document = redrive.json("messages", "requeue", moved_on["dead"], "--out-of-order", "--dry-run", *WHY)
    assert (document["would"], document["done"]) == (1, 0)
    assert "before all that still wait; 1 later message" in document["items"][0]["detail"]
    assert moved_on.state("dead") == "parked·dead"
    assert redrive("messages", "requeue", moved_on["dead"], "--out-of-order", *WHY).exit_code == 0
    taken = moved_on.call(lambda store: m.claim(store, now=datetime.now(UTC)))
    assert taken.id == moved_on["dead"]


def test_a_dead_head_that_halts_its_key_is_requeued_without_more_ado(lanes: Shop) -> None:
    assert Redrive(lanes.dsn)("messages", "requeue", lanes["dead"], *WHY).exit_code == 0
    assert lanes.state("dead") == "pending"


def test_in_bulk_only_what_is_out_of_order_is_refused(moved_on: Shop) -> None:
    async def plain(store: PostgresStore) -> MessageId:
        now = moved_on.now
        dead = await m.enqueue(store, now=now)
        taken = (await m.claim_all(store, now=now)).attempts
        (attempt,) = [one for one in taken if one.id == dead]
        await m.settle(store, attempt, m.park(), now=now)
        return dead

    dead = moved_on.call(plain)
    result = Redrive(moved_on.dsn)("messages", "requeue", dead, moved_on["dead"], NOBODY, "--json", *WHY)
    assert result.exit_code == 5
    outcomes = [item["outcome"] for item in json.loads(result.stdout)["items"]]
    assert outcomes == ["done", "refused", "not_found"]
