"""`redrive destinations`: list, pause, resume."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Redrive, Shop

REASON = ["--reason", "stock-taking", "--actor", "anna"]


def test_the_list_has_registered_destinations_and_those_that_only_messages_name(redrive: Redrive, shop: Shop) -> None:
    items = {item["name"]: item for item in redrive.json("destinations", "list")["items"]}
    assert {name: item["handled"] for name, item in items.items()} == {"shop": True, "sms": False}
    assert items["shop"]["parked"] == {"dead": 1, "held": 1, "unrecorded": 1}


def test_the_document_of_the_list_keeps_its_keys(redrive: Redrive, shop: Shop) -> None:
    document = redrive.json("destinations", "list")
    assert list(document) == ["schema", "at", "items"]
    assert document["schema"] == "redrive.destinations/v1"
    assert list(document["items"][0]) == [
        "name", "paused", "pause_reason", "paused_by", "paused_at", "handled", "pending", "leased", "parked",
    ]  # fmt: skip


def test_no_destination_yet_is_said_beside_the_data(redrive: Redrive) -> None:
    result = redrive("destinations", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No destination yet" in result.stderr


@pytest.mark.req("G-25")
def test_pause_and_resume_are_kept_with_who_and_why_and_can_be_repeated(redrive: Redrive, shop: Shop) -> None:
    changes = [
        redrive.json("destinations", verb, "shop", *REASON)["changed"]
        for verb in ("pause", "pause", "resume", "resume")
    ]
    assert changes == [True, False, True, False]
    redrive("destinations", "pause", "sms", *REASON)
    sms = next(item for item in redrive.json("destinations", "list")["items"] if item["name"] == "sms")
    assert (sms["paused"], sms["paused_by"], sms["pause_reason"]) == (True, "anna", "stock-taking")


@pytest.mark.parametrize(
    ("verb", "first", "again"),
    [
        ("pause", "shop is paused.", "shop was paused already; nothing was changed."),
        ("resume", "shop is resumed.", "shop was not paused; nothing was changed."),
    ],
)
def test_what_was_done_is_said_in_a_sentence(redrive: Redrive, shop: Shop, verb: str, first: str, again: str) -> None:
    if verb == "resume":
        redrive("destinations", "pause", "shop", *REASON)
    said = [redrive("destinations", verb, "shop", *REASON).stdout.strip() for _ in range(2)]
    assert said == [first, again]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_dry_run_changes_nothing(redrive: Redrive, shop: Shop, verb: str) -> None:
    if verb == "resume":
        redrive("destinations", "pause", "shop", *REASON)
    before = redrive.json("destinations", "list")["items"]
    document = redrive.json("destinations", verb, "shop", *REASON, "--dry-run")
    assert (document["dry_run"], document["changed"]) == (True, False)
    assert redrive.json("destinations", "list")["items"] == before


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_destination_that_nobody_knows_is_not_found_and_not_made(redrive: Redrive, shop: Shop, verb: str) -> None:
    result = redrive("destinations", verb, "shopp", *REASON)
    assert (result.exit_code, result.stdout) == (3, "")
    assert {item["name"] for item in redrive.json("destinations", "list")["items"]} == {"shop", "sms"}


def test_a_destination_can_be_paused_before_its_first_message(redrive: Redrive, shop: Shop) -> None:
    assert redrive.json("destinations", "pause", "later", "--unseen", *REASON)["changed"]


@pytest.mark.parametrize("verb", [["list"], ["pause", "shop", *REASON], ["resume", "shop", *REASON]])
def test_an_unreachable_database_ends_with_seven(nowhere: Redrive, verb: list[str]) -> None:
    result = nowhere("destinations", *verb)
    assert (result.exit_code, result.stdout) == (7, "")


@pytest.mark.parametrize("arguments", [["pause"], ["pause", "shop"], ["resume", "shop"], ["resume", "shop", "mail"]])
def test_wrong_usage_ends_with_two(nowhere: Redrive, arguments: list[str]) -> None:
    assert nowhere("destinations", *arguments).exit_code == 2
