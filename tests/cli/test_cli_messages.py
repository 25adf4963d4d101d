"""`redrive messages`: lists, one message, cancel and requeue."""

from __future__ import annotations

import json

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import NOBODY, SECRET, Redrive, Shop
from tests.support import messages as m

LISTS = {
    "pending": {"pending", "retrying", "unhandled"},
    "leased": {"leased"},
    "parked": {"dead", "held", "unrecorded"},
    "dead": {"dead"},
    "held": {"held"},
    "unrecorded": {"unrecorded"},
    "closed": {"delivered"},
    "delivered": {"delivered"},
    "expired": set[str](),
    None: {"pending", "retrying", "unhandled", "leased", "dead", "held", "unrecorded", "delivered"},
}


@pytest.mark.parametrize("state", LISTS)
def test_a_list_has_the_messages_of_its_state_and_no_others(look: Redrive, stock: Shop, state: str | None) -> None:
    document = look.json("messages", "list", *(["--state", state] if state else []))
    assert {item["id"] for item in document["items"]} == {str(stock[name]) for name in LISTS[state]}
    assert document["next"] is None


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--destination", "sms", {"unhandled"}),
        ("--destination", "smss", set()),
        ("--kind", "order.placed", set(LISTS[None])),
        ("--kind", "order.paid", set()),
        ("--tenant", "default", set(LISTS[None])),
        ("--tenant", "acme", set()),
        ("--key", "order:delivered", {"delivered"}),
        ("--key", "order:deliver", set()),
    ],
)
def test_a_filter_keeps_what_it_names(look: Redrive, stock: Shop, option: str, value: str, found: set[str]) -> None:
    items = look.json("messages", "list", option, value)["items"]
    assert {item["id"] for item in items} == {str(stock[name]) for name in found}


@pytest.mark.parametrize(("state", "found"), [("dead", 1), ("parked", 1), ("held", 0), ("closed", 0), ("pending", 0)])
def test_a_key_is_found_only_in_the_state_that_is_asked_for(look: Redrive, stock: Shop, state: str, found: int) -> None:
    items = look.json("messages", "list", "--key", "order:dead", "--state", state)["items"]
    assert len(items) == found


def test_pages_follow_each_other_newest_first_without_gap_or_repetition(look: Redrive, stock: Shop) -> None:
    seen: list[str] = []
    before: list[str] = []
    for _ in range(4):
        page = look.json("messages", "list", "--limit", "3", *before)
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        before = ["--before", page["next"]]
    assert seen == sorted(map(str, stock.ids.values()), reverse=True)


def test_a_page_for_people_says_how_to_go_on(look: Redrive, stock: Shop) -> None:
    result = look("messages", "list", "--limit", "3")
    assert len(result.stdout.splitlines()) == 4
    assert "More: the same with --before" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"), [([], "Nothing has been enqueued yet."), (["--kind", "x"], "No message matches.")]
)
def test_an_empty_list_says_so_beside_the_data(redrive: Redrive, arguments: list[str], words: str) -> None:
    result = redrive("messages", "list", *arguments)
    assert (result.exit_code, result.stdout) == (0, "")
    assert words in result.stderr


def test_the_document_of_a_list_keeps_its_keys(look: Redrive, stock: Shop) -> None:
    document = look.json("messages", "list", "--state", "dead")
    assert list(document) == ["schema", "items", "at", "next", "looked_at"]
    assert document["schema"] == "redrive.messages/v1"
    assert list(document["items"][0]) == [
        "id", "tenant", "destination", "kind", "key", "state", "detail", "stage", "version", "priority", "attempt",
        "spent", "due_at", "created_at", "expires_at", "content_type", "body_bytes",
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["pending", "retrying", "leased", "dead", "held", "unrecorded", "delivered"])
def test_show_has_the_envelope_the_state_and_every_attempt(look: Redrive, stock: Shop, state: str) -> None:
    message = look.json("messages", "show", stock[state])
    assert message["view"]["key"] == f"order:{state}"
    assert message["view"]["body_bytes"] > 0
    claims = 0 if state in {"pending", "leased"} else 1
    assert len(message["timeline"]) == claims
    assert (message["worker"] is not None) == (state == "leased")
    result = look("messages", "show", stock[state])
    assert result.exit_code == 0
    assert str(stock[state]) in result.stdout


@pytest.mark.req("G-06")
def test_show_of_a_claim_under_way_says_dispatching_and_who_has_it(look: Redrive, stock: Shop) -> None:
    result = look("messages", "show", stock["leased"])
    assert "DISPATCHING" in result.stdout
    assert "relay-1" in result.stdout


@pytest.mark.req("G-05")
def test_the_timeline_tells_the_whole_story_in_order(redrive: Redrive, shop: Shop) -> None:
    redrive("messages", "requeue", shop["dead"], "--reason", "price list fixed", "--actor", "anna")
    timeline = redrive.json("messages", "show", shop["dead"])["timeline"]
    assert [(entry["verb"], entry["actor"], entry["reason"]) for entry in timeline] == [
        ("settle", None, None),
        ("requeue", "anna", "price list fixed"),
    ]
    shown = redrive("messages", "show", shop["dead"]).stdout
    assert "settle: terminal HTTP_409 → park" in shown
    assert "dead happened" in shown
    assert "requeue by anna: price list fixed" in shown


@pytest.mark.req("G-14")
def test_show_has_the_late_answers_that_were_refused(redrive: Redrive, shop: Shop) -> None:
    async def too_late(store: PostgresStore) -> None:
        taken = (await m.claim_all(store, now=shop.now)).attempts[0]
        assert taken.id == shop["pending"]
        await store.reap(limit=10, worker=m.WORKER, now=shop.now)
        await m.settle(store, taken, m.close(), now=shop.now)

    shop.call(too_late)
    message = redrive.json("messages", "show", shop["pending"])
    assert [late["reference"] for late in message["late_answers"]] == ["ref-1"]
    assert "refused, because the claim had been lost" in redrive("messages", "show", shop["pending"]).stdout
    assert redrive.json("status")["late_answers"] == 1


@pytest.mark.req("G-15")
@pytest.mark.parametrize("noun", ["messages", "dead"])
def test_payload_and_headers_are_hidden_unless_they_are_asked_for(look: Redrive, stock: Shop, noun: str) -> None:
    hidden = [look(noun, "show", stock["dead"]), look(noun, "show", stock["dead"], "--json")]
    assert not any(SECRET in result.output or "x-a" in result.output for result in hidden)
    assert "hidden; --payload" in hidden[0].stdout
    shown = look(noun, "show", stock["dead"], "--payload").stdout
    assert SECRET in shown
    assert "x-a" in shown
    payload = look.json(noun, "show", stock["dead"], "--payload")["payload"]
    assert json.loads(payload["text"])["card"] == SECRET


def test_a_payload_that_is_no_text_is_given_in_base64(redrive: Redrive, shop: Shop) -> None:
    binary = shop.call(lambda store: m.enqueue(store, now=shop.now, body=b"\xff\xfe\x00"))
    payload = redrive.json("messages", "show", binary, "--payload")["payload"]
    assert (payload["text"], payload["base64"]) == (None, "//4A")
    assert "3 bytes that are no text" in redrive("messages", "show", binary, "--payload").stdout


def test_the_document_of_a_message_keeps_its_keys(look: Redrive, stock: Shop) -> None:
    document = look.json("messages", "show", stock["dead"])
    assert document["schema"] == "redrive.message/v1"
    assert list(document) == [
        "schema", "view", "order_by", "sequence", "in_doubt_since", "crashes", "lookups", "cancel_requested",
        "policy_version", "worker", "relay", "claimed_at", "leased_until", "token", "timeline", "late_answers",
        "evidence", "proposals", "acts", "behind", "parked", "payload",
    ]  # fmt: skip
    assert list(document["timeline"][0]) == [
        "attempt", "verb", "stage", "version", "settlement", "answer", "code", "text", "reference", "result", "closed",
        "worker", "actor", "reason", "claimed_at", "completed_at", "latency_ms", "spent", "due_at",
    ]  # fmt: skip


@pytest.mark.req("G-24")
@pytest.mark.parametrize(
    ("name", "words", "then"),
    [("pending", "done", "cancelled"), ("retrying", "done", "cancelled"), ("leased", "not cancelled yet", "leased")],
)
def test_cancel_says_truthfully_what_became_of_it(
    redrive: Redrive, shop: Shop, name: str, words: str, then: str
) -> None:
    result = redrive("messages", "cancel", shop[name], "--reason", "order withdrawn")
    assert result.exit_code == 0
    assert words in result.stdout
    assert ("done" in result.stdout) is (then == "cancelled")
    assert shop.state(name) == then


@pytest.mark.parametrize("name", ["dead", "delivered"])
def test_cancel_is_refused_where_it_does_not_fit(redrive: Redrive, shop: Shop, name: str) -> None:
    result = redrive("messages", "cancel", shop[name], "--reason", "order withdrawn")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "cancel applies to pending or leased" in result.stderr


def test_requeue_of_several_does_what_fits_and_reports_what_does_not(redrive: Redrive, shop: Shop) -> None:
    result = redrive("messages", "requeue", shop["dead"], shop["held"], NOBODY, "--reason", "erp is back", "--json")
    assert result.exit_code == 5
    document = json.loads(result.stdout)
    assert [(item["id"], item["outcome"]) for item in document["items"]] == [
        (str(shop["dead"]), "done"),
        (str(shop["held"]), "refused"),
        (NOBODY, "not_found"),
    ]
    assert (document["done"], document["refused"], document["not_found"]) == (1, 1, 1)
    assert json.loads(result.stderr)["code"] == "ACT_REFUSED"
    assert (shop.state("dead"), shop.state("held")) == ("pending", "parked·held")


def test_a_message_that_is_named_twice_is_acted_on_once(redrive: Redrive, shop: Shop) -> None:
    document = redrive.json("messages", "requeue", shop["dead"], shop["dead"], "--reason", "erp is back")
    assert document["done"] == 1


def test_requeue_by_filter_selects_dead_letters_only(redrive: Redrive, shop: Shop) -> None:
    result = redrive("messages", "requeue", "--destination", "shop", "--reason", "erp is back", "--yes", "--json")
    assert result.exit_code == 0
    assert [item["id"] for item in json.loads(result.stdout)["items"]] == [str(shop["dead"])]
    assert "selects 1 dead letter." in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--error-class", "HTTP_500"], ["--kind", "x"], ["--tenant", "acme"], ["--destination", "sms"]]
)
def test_a_filter_that_matches_nothing_is_not_found_and_changes_nothing(
    redrive: Redrive, shop: Shop, arguments: list[str]
) -> None:
    result = redrive("messages", "requeue", *arguments, "--reason", "x", "--yes")
    assert result.exit_code == 3
    assert shop.state("dead") == "parked·dead"


def test_requeue_by_filter_where_nobody_can_be_asked_needs_yes(redrive: Redrive, shop: Shop) -> None:
    result = redrive("messages", "requeue", "--destination", "shop", "--reason", "erp is back")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert shop.state("dead") == "parked·dead"


def test_requeue_starts_at_the_stage_that_is_named(redrive: Redrive, shop: Shop) -> None:
    redrive("messages", "requeue", shop["dead"], "--stage", "second", "--reason", "first is done")
    assert redrive.json("messages", "show", shop["dead"])["view"]["stage"] == "second"


@pytest.mark.parametrize("act", ["cancel", "requeue"])
def test_a_dry_run_says_what_would_be_done_and_changes_nothing(redrive: Redrive, shop: Shop, act: str) -> None:
    name = {"cancel": "pending", "requeue": "dead"}[act]
    before = shop.state(name)
    document = redrive.json("messages", act, shop[name], "--reason", "x", "--dry-run")
    assert (document["dry_run"], document["would"], document["done"]) == (True, 1, 0)
    assert shop.state(name) == before
    assert redrive.json("messages", "show", shop[name])["acts"] == []


USAGE = {
    "no id": ["messages", "show"],
    "no uuid": ["messages", "show", "order:1"],
    "unknown state": ["messages", "list", "--state", "lost"],
    "limit 0": ["messages", "list", "--limit", "0"],
    "limit 1001": ["messages", "list", "--limit", "1001"],
    "before no id": ["messages", "list", "--before", "x"],
    "no reason": ["messages", "cancel", NOBODY],
    "blank reason": ["messages", "cancel", NOBODY, "--reason", "  "],
    "long reason": ["messages", "cancel", NOBODY, "--reason", "x" * 501],
    "reason with a line end": ["messages", "cancel", NOBODY, "--reason", "a\nb"],
    "blank actor": ["messages", "cancel", NOBODY, "--reason", "x", "--actor", " "],
    "neither id nor filter": ["messages", "requeue", "--reason", "x"],
    "id and filter": ["messages", "requeue", NOBODY, "--kind", "a", "--reason", "x"],
    "unknown option": ["messages", "list", "--colour"],
    "unknown verb": ["messages", "explode"],
    "unknown noun": ["message", "list"],
}


@pytest.mark.req("G-19")
@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_ends_with_two_and_a_sentence_beside_the_data(nowhere: Redrive, case: str) -> None:
    result = nowhere(*USAGE[case])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Wrong usage: ")


COMMANDS = {
    "list": ["messages", "list"],
    "show": ["messages", "show", NOBODY],
    "cancel": ["messages", "cancel", NOBODY, "--reason", "x"],
    "requeue": ["messages", "requeue", NOBODY, "--reason", "x"],
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_an_unreachable_database_ends_with_seven(nowhere: Redrive, verb: str) -> None:
    result = nowhere(*COMMANDS[verb])
    assert (result.exit_code, result.stdout) == (7, "")


@pytest.mark.parametrize("verb", ["show", "cancel", "requeue"])
def test_a_message_that_does_not_exist_ends_with_three(look: Redrive, verb: str) -> None:
    result = look(*COMMANDS[verb])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "redrive messages list" in result.stderr
