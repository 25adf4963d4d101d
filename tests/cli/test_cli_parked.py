"""`redrive dead`, `held` and `unrecorded`: the worklists and the ways out of them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from redrive.message import ParkReason
from redrive.operate.cli.main import cli
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import NOBODY, Redrive, Shop, cursor
from tests.support import messages as m

REASONS = [reason.value for reason in ParkReason]
ACTS = [
    ("dead", "confirm", "delivered"),
    ("held", "confirm", "delivered"),
    ("held", "deny", "pending"),
    ("unrecorded", "repair", "pending"),
]
DISCARDS = [(reason, "discard", "discarded") for reason in REASONS]


@pytest.mark.req("G-27")
@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_its_own_worklist(look: Redrive, stock: Shop, reason: str) -> None:
    document = look.json(reason, "list")
    assert [item["id"] for item in document["items"]] == [str(stock[reason])]
    assert str(stock[reason]) in look(reason, "list").stdout


@pytest.mark.req("G-15")
def test_the_document_of_a_worklist_keeps_its_keys(look: Redrive, stock: Shop) -> None:
    document = look.json("dead", "list")
    assert list(document) == ["schema", "items", "at", "next", "looked_at"]
    assert (document["schema"], document["items"][0]["reason"]) == ("redrive.parked/v1", "dead")
    assert list(document["items"][0]) == [
        "id", "reason", "tenant", "destination", "kind", "key", "error_class", "stage", "attempt", "spent", "crashes",
        "exhausted", "in_doubt_since", "first_failed_at", "last_failed_at", "parked_at", "text", "stack", "context",
        "kept_answer",
        "version", "workflow", "cause", "ticket", "evidence", "owner", "note", "edited", "escalated", "failure_group",
        "row_version",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--destination", "shop", 1),
        ("--destination", "sms", 0),
        ("--error-class", "HTTP_409", 1),
        ("--error-class", "HTTP_500", 0),
        ("--kind", "order.placed", 1),
        ("--kind", "order.paid", 0),
        ("--tenant", "default", 1),
        ("--tenant", "acme", 0),
    ],
)
def test_a_worklist_is_narrowed_by(look: Redrive, stock: Shop, option: str, value: str, found: int) -> None:
    assert len(look.json("dead", "list", option, value)["items"]) == found


def test_pages_go_over_all_destinations_latest_parked_first(redrive: Redrive, database: str, shop: Shop) -> None:
    async def park_three(store: PostgresStore) -> None:
        for seconds in (1, 3, 2):
            moment = shop.now + timedelta(seconds=seconds)
            await store.pause("shop", actor="test", reason="only these")
            await m.enqueue(store, now=moment, destination=f"place-{seconds}")
            (taken,) = (
                await store.claim(m.WORKER, [ClaimRequest(f"place-{seconds}", 1, 1)], lease_seconds=60, now=moment)
            ).attempts
            await m.settle(store, taken, m.park(), now=moment)

    shop.call(park_three)
    seen: list[str] = []
    before: list[str] = []
    for _ in range(3):
        page = redrive.json("dead", "list", "--limit", "2", *before)
        seen += [item["destination"] for item in page["items"]]
        if page["next"] is None:
            break
        before = ["--before", page["next"]]
    assert seen == ["place-3", "place-2", "place-1", "shop"]


def test_an_empty_worklist_says_so_beside_the_data(redrive: Redrive) -> None:
    result = redrive("held", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing waits for you here" in result.stderr


@pytest.mark.req("G-15")
@pytest.mark.parametrize("reason", REASONS)
def test_show_says_why_it_is_here(look: Redrive, stock: Shop, reason: str) -> None:
    shown = look(reason, "show", stock[reason]).stdout
    record = look.json(reason, "show", stock[reason])["parked"]
    assert record["reason"] == reason
    assert record["error_class"] in shown
    assert f"{reason} happened" in shown
    assert "a.py:1 in b" in shown


@pytest.mark.parametrize("reason", REASONS)
def test_show_of_a_message_that_waits_elsewhere_is_not_found_and_says_where_it_is(
    look: Redrive, stock: Shop, reason: str
) -> None:
    other = REASONS[REASONS.index(reason) - 1]
    result = look(reason, "show", stock[other])
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"is {other}, not {reason}" in result.stderr


@pytest.mark.req("G-27")
@pytest.mark.parametrize(("reason", "act", "then"), ACTS + DISCARDS)
def test_an_act_leads_where_it_should_and_is_kept_with_who_and_why(
    redrive: Redrive, shop: Shop, reason: str, act: str, then: str
) -> None:
    yes = ["--yes"] if act == "discard" else []
    document = redrive.json(reason, act, shop[reason], "--reason", "looked it up", "--actor", "anna", *yes)
    assert document["done"] == 1
    assert shop.state(reason) == then
    acts = redrive.json("messages", "show", shop[reason])["acts"]
    assert [(one["act"], one["actor"], one["reason"]) for one in acts] == [(act, "anna", "looked it up")]


def test_the_document_of_an_act_keeps_its_keys(redrive: Redrive, shop: Shop) -> None:
    document = redrive.json("held", "confirm", shop["held"], "--reason", "in the ledger", "--reference", "TX-1")
    assert list(document) == [
        "schema", "act", "dry_run", "actor", "reason", "done", "asked", "would", "refused", "not_found", "items",
    ]  # fmt: skip
    assert document["schema"] == "redrive.acts/v1"
    assert list(document["items"][0]) == [
        "id", "outcome", "detail", "next", "destination", "kind", "needs_approver",
    ]  # fmt: skip
    timeline = redrive.json("messages", "show", shop["held"])["timeline"]
    assert timeline[-1]["reference"] == "TX-1"


@pytest.mark.req("G-27")
@pytest.mark.parametrize(("reason", "act"), [(reason, act) for reason, act, _ in ACTS + DISCARDS])
def test_an_act_on_a_message_that_waits_for_another_reason_is_refused(
    redrive: Redrive, shop: Shop, reason: str, act: str
) -> None:
    other = REASONS[REASONS.index(reason) - 1]
    yes = ["--yes"] if act == "discard" else []
    result = redrive(reason, act, shop[other], "--reason", "x", *yes)
    assert (result.exit_code, result.stdout) == (5, "")
    assert f"it is {other}; {act} applies to {reason}" in result.stderr
    assert shop.state(other) == f"parked·{other}"


@pytest.mark.parametrize(("reason", "act"), [(reason, act) for reason, act, _ in ACTS + DISCARDS])
def test_a_dry_run_changes_nothing(redrive: Redrive, shop: Shop, reason: str, act: str) -> None:
    result = redrive(reason, act, shop[reason], "--reason", "x", "--dry-run")
    assert result.exit_code == 0
    assert "would" in result.stdout
    assert "nothing was changed" in result.stderr
    assert shop.state(reason) == f"parked·{reason}"


@pytest.mark.parametrize("reason", REASONS)
def test_discard_where_nobody_can_be_asked_needs_yes(redrive: Redrive, shop: Shop, reason: str) -> None:
    result = redrive(reason, "discard", shop[reason], "--reason", "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert shop.state(reason) == f"parked·{reason}"


@pytest.mark.parametrize(("answer", "then"), [("y\n", "discarded"), ("n\n", "parked·dead"), ("\n", "parked·dead")])
def test_on_a_terminal_discard_asks_and_only_yes_goes_on(
    redrive: Redrive, shop: Shop, monkeypatch: pytest.MonkeyPatch, answer: str, then: str
) -> None:
    monkeypatch.setattr("redrive.operate.cli.acts.can_ask", lambda: True)
    arguments = ["dead", "discard", str(shop["dead"]), "--reason", "x", "--dsn", redrive.dsn]
    result = redrive.runner.invoke(cli, arguments, input=answer)
    assert result.exit_code == (0 if then == "discarded" else 1)
    assert "Discard 1 message?" in result.stderr
    assert shop.state("dead") == then


def test_a_reference_belongs_to_one_message(redrive: Redrive, shop: Shop) -> None:
    result = redrive("held", "confirm", shop["held"], NOBODY, "--reference", "TX-1", "--reason", "x")
    assert result.exit_code == 2
    assert shop.state("held") == "parked·held"


POSITIONS = [
    "x",
    cursor("2026-01-01T00:00:00Z", "x"),
    cursor("2026-01-01T00:00:00", NOBODY),
    cursor("x", NOBODY),
    cursor("2026-01-01T00:00:00Z"),
]


@pytest.mark.parametrize("position", POSITIONS)
def test_a_position_that_no_page_printed_is_wrong_usage(nowhere: Redrive, position: str) -> None:
    assert nowhere("dead", "list", "--before", position).exit_code == 2


COMMANDS = [
    *([reason, "list"] for reason in REASONS),
    *([reason, "show", NOBODY] for reason in REASONS),
    *([reason, "discard", NOBODY, "--reason", "x", "--yes"] for reason in REASONS),
    *([reason, act, NOBODY, "--reason", "x"] for reason, act, _ in ACTS),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_unreachable_database_ends_with_seven(nowhere: Redrive, arguments: list[str]) -> None:
    result = nowhere(*arguments, "--json")
    assert (result.exit_code, result.stdout) == (7, "")
    assert json.loads(result.stderr)["code"] == "UNREACHABLE"


@pytest.mark.parametrize("arguments", [one for one in COMMANDS if one[1] != "list"], ids=" ".join)
def test_a_message_that_does_not_exist_ends_with_three(look: Redrive, arguments: list[str]) -> None:
    result = look(*arguments)
    assert (result.exit_code, result.stdout) == (3, "")
