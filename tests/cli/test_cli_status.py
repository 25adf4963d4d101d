"""`redrive status`: the numbers, who works, and what is said out loud."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import Redrive, Shop
from tests.support.messages import WORKER
from tests.support.workers import BILLING, INFO


@pytest.mark.req("G-29")
def test_status_counts_every_place_where_a_message_can_be(redrive: Redrive, shop: Shop) -> None:
    rows = {row["destination"]: row for row in redrive.json("status")["backlog"]}
    assert rows["shop"] | {"oldest_due_seconds": None} == {
        "destination": "shop",
        "pending": 2,
        "due": 1,
        "retrying": 1,
        "suspects": 0,
        "leased": 1,
        "parked": {"dead": 1, "held": 1, "unrecorded": 1},
        "oldest_due_seconds": None,
        "paused": False,
        "pause_reason": None,
        "paused_until": None,
        "breaker": "closed",
        "breaker_until": None,
        "breaker_code": None,
        "handled": True,
    }
    assert rows["sms"]["oldest_due_seconds"] >= 180
    assert not rows["sms"]["handled"]


@pytest.mark.req("G-29")
def test_status_says_out_loud_which_destination_nobody_handles_and_what_helps(redrive: Redrive, shop: Shop) -> None:
    result = redrive("status")
    assert result.exit_code == 0
    assert "! sms: 1 open message and no live relay handles it" in result.stdout
    assert "redrive relay MODULE:APP" in result.stdout
    assert "NOT HANDLED" in result.stdout


@pytest.mark.req("G-25")
def test_status_says_out_loud_which_destination_is_paused_why_and_what_helps(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.pause("shop", actor="anna", reason="stock-taking"))
    result = redrive("status")
    assert "PAUSED: stock-taking" in result.stdout
    assert "redrive destinations resume shop" in result.stdout


def test_status_without_findings_says_that_nothing_needs_a_person(redrive: Redrive) -> None:
    result = redrive("status", "--fail-on", "findings")
    assert result.exit_code == 0
    assert "Nothing needs a person." in result.stdout


def test_fail_on_findings_ends_with_six_only_when_there_are_any(redrive: Redrive, shop: Shop) -> None:
    assert redrive("status").exit_code == 0
    assert redrive("status", "--fail-on", "findings").exit_code == 6


@pytest.mark.req("G-17")
def test_a_relay_that_was_not_seen_for_a_while_is_stale(redrive: Redrive, shop: Shop) -> None:
    live = redrive.json("status")["relays"][0]
    assert (live["name"], live["live"], live["leases"]) == ("relay-1", True, 1)
    shop.call(lambda store: store.heartbeat(WORKER, now=shop.now - timedelta(seconds=60)))
    stale = redrive.json("status")
    assert not stale["relays"][0]["live"]
    codes = {(finding["code"], finding["subject"]) for finding in stale["findings"]}
    assert {("relay_stale", "relay-1"), ("unhandled", "shop"), ("unhandled", "sms")} <= codes


@pytest.mark.req("G-29")
def test_status_shows_each_consumer_of_each_worker_and_says_which_has_none(redrive: Redrive, shop: Shop) -> None:
    assert "Workers" not in redrive("status").stdout
    away = replace(BILLING, name="mail", is_connected=False, in_hand=0, ended_seconds=None)
    shop.call(lambda store: store.heartbeat_worker(INFO, [BILLING, away], now=shop.now))
    words = redrive("status", dsn=shop.dsn).stdout.split()
    assert {"worker-1", "billing", "connected", "36", "mail", "AWAY", "never"} <= set(words)
    shown = redrive.json("status")
    assert [one["name"] for one in shown["workers"][0]["consumers"]] == ["billing", "mail"]
    shop.call(lambda store: store.heartbeat_worker(INFO, [BILLING], now=shop.now - timedelta(seconds=60)))
    said = redrive("status").stdout
    assert {"lost", "billing"} <= set(said.split())
    assert "! billing: no live worker runs this consumer; the last one was seen" in said
    assert redrive("health", "--strict").exit_code == 6


@pytest.mark.req("G-17")
def test_a_duty_that_has_not_ended_for_long_is_overdue(redrive: Redrive, shop: Shop) -> None:
    async def once(store: PostgresStore, ago: timedelta, name: str) -> None:
        moment = shop.now - ago
        assert await store.begin_duty(name, WORKER, every_seconds=15, now=moment)
        await store.end_duty(name, WORKER, result="0 requeued", now=moment)

    shop.call(lambda store: once(store, timedelta(seconds=110), "reap"))
    shop.call(lambda store: once(store, timedelta(seconds=50), "expire"))
    duties = {duty["name"]: duty["overdue"] for duty in redrive.json("status")["duties"]}
    assert duties == {"reap": True, "expire": False}


def test_the_status_document_keeps_its_keys(redrive: Redrive, shop: Shop) -> None:
    document = redrive.json("status")
    assert document["schema"] == "redrive.status/v1"
    assert list(document) == [
        "schema", "at", "backlog", "relays", "duties", "late_answers", "workers", "consumers", "blocked_keys",
        "keys_looked_at", "counted_max", "lanes_mended", "oldest_holder", "waiting_replays",
        "clock_jumps", "sees_nothing", "findings",
    ]  # fmt: skip
    assert list(document["relays"][0]) == [
        "worker", "name", "host", "pid", "version", "destinations", "started_at", "seen_seconds_ago", "leases", "live",
        "suspects_only", "listener",
    ]  # fmt: skip
    assert list(document["findings"][0]) == ["code", "subject", "detail", "next"]


def test_watch_prints_one_document_a_line_and_stops_after_count(redrive: Redrive, shop: Shop) -> None:
    result = redrive("status", "--watch", "--every", "0.1", "--count", "2", "--json")
    lines = result.stdout.splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["redrive.status/v1"] * 2


@pytest.mark.parametrize("arguments", [["--every", "0"], ["--count", "0"], ["--fail-on", "x"], ["extra"]])
def test_status_refuses_what_it_does_not_know(nowhere: Redrive, arguments: list[str]) -> None:
    result = nowhere("status", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_unreachable_database_ends_with_seven_and_keeps_the_password(nowhere: Redrive) -> None:
    result = nowhere("status")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "PostgreSQL at 127.0.0.1:1, database shop" in result.stderr
    assert "geheim" not in result.output


def test_a_database_without_the_schema_is_refused_with_the_command_that_helps(
    redrive: Redrive, empty_database: str
) -> None:
    result = redrive("status", dsn=empty_database)
    assert result.exit_code == 5
    assert "redrive db upgrade" in result.stderr


def found(redrive: Redrive) -> dict[str, str]:
    """What needs a person, by code: of whom it speaks."""
    return {finding["code"]: finding["subject"] for finding in redrive.json("status")["findings"]}


@pytest.mark.req("G-25")
def test_a_destination_that_does_not_answer_needs_a_person(redrive: Redrive, shop: Shop) -> None:
    now = shop.call(lambda store: store.now())
    values: dict[str, Any] = {"code": "CONNECTION_REFUSED", "cool_off_seconds": 600, "cool_off_max_seconds": 600}
    shop.call(lambda store: store.open_breaker("shop", claimed_at=now, **values))
    assert found(redrive)["down"] == "shop"
    page = redrive("status").stdout
    assert "DOWN: CONNECTION_REFUSED, left alone until" in page
    assert "! shop: does not answer (CONNECTION_REFUSED); 2 messages wait" in page
    assert "→ redrive destinations test shop, once it is up again" in page


@pytest.mark.req("G-25")
def test_a_destination_that_rests_goes_on_by_itself_and_needs_nobody(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.pause_until("shop", actor="relay", seconds=300))
    assert not {"paused", "down"} & set(found(redrive))
    assert "PAUSED: retry_after until" in redrive("status").stdout


@pytest.mark.req("G-25")
@pytest.mark.parametrize(
    ("breaker", "shown", "is_down"),
    [("half_open", "DOWN: X, one is tried", True), ("ramping", "ramping up", False), ("closed", "flows", False)],
)
def test_status_shows_the_breaker_as_it_is(
    redrive: Redrive, shop: Shop, breaker: str, shown: str, is_down: bool
) -> None:
    until = shop.now + timedelta(hours=1) if breaker == "ramping" else None
    query = "UPDATE redrive.destination SET breaker = %s, breaker_until = %s, breaker_code = 'X' RETURNING 1"
    shop.call(lambda store: store.rows(query, [breaker, until]))
    assert shown in redrive("status").stdout
    assert ("down" in found(redrive)) is is_down
