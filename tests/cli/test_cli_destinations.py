"""`redrive destinations`: list, pause, resume. For test see `test_cli_destinations_test.py`."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from redrive.ports import RelayInfo
from tests.cli.conftest import Redrive, Shop
from tests.support import messages as m

REASON = ["--reason", "stock-taking", "--actor", "anna"]


def test_the_list_has_registered_destinations_and_those_that_only_messages_name(redrive: Redrive, shop: Shop) -> None:
    items = {item["name"]: item for item in redrive.json("destinations", "list")["items"]}
    assert {name: item["open"]["handled"] for name, item in items.items()} == {"shop": True, "sms": False}
    assert items["shop"]["open"]["parked"] == {"dead": 1, "held": 1, "unrecorded": 1}


def test_the_document_of_the_list_keeps_its_keys(redrive: Redrive, shop: Shop) -> None:
    document = redrive.json("destinations", "list")
    assert list(document) == ["schema", "at", "items"]
    assert document["schema"] == "redrive.destinations/v1"
    shop_ = document["items"][0]
    assert list(shop_) == ["name", "open", "known", "limit_keys"]
    assert list(shop_["open"]) == [
        "destination", "pending", "due", "retrying", "suspects", "leased", "parked", "oldest_due_seconds", "paused",
        "pause_reason", "paused_until", "breaker", "breaker_until", "breaker_code", "handled",
    ]  # fmt: skip
    assert list(shop_["known"]) == [
        "name", "paused", "pause_reason", "paused_by", "paused_at", "paused_until", "breaker", "breaker_changed_at",
        "breaker_until", "breaker_opened_at", "breaker_trips", "breaker_code", "breaker_probe", "concurrency_limit",
        "rate_per_second",
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
    sms = item(redrive, "sms")["known"]
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
    before = _lasting(redrive)
    document = redrive.json("destinations", verb, "shop", *REASON, "--dry-run")
    assert (document["dry_run"], document["changed"]) == (True, False)
    assert _lasting(redrive) == before


def _lasting(redrive: Redrive) -> list[dict[str, Any]]:
    """The list without ages, which grow."""
    items: list[dict[str, Any]] = redrive.json("destinations", "list")["items"]
    return [{**one, "open": {**one["open"], "oldest_due_seconds": None}} for one in items]


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


def item(redrive: Redrive, name: str = "shop") -> dict[str, Any]:
    return next(one for one in redrive.json("destinations", "list")["items"] if one["name"] == name)


@pytest.mark.req("G-25")
def test_the_list_has_the_limits_over_all_relays(redrive: Redrive, shop: Shop) -> None:
    relay = RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="1", destinations=["shop"])
    limited = replace(relay, rates={"shop": 2.5}, concurrency_limits={"shop": 5})
    shop.call(lambda store: store.register(limited))
    known = item(redrive)["known"]
    assert (known["rate_per_second"], known["concurrency_limit"]) == (2.5, 5)
    assert "2.5/s, 5 in flight" in redrive("destinations", "list").stdout
    assert item(redrive, "sms")["known"] is None


@pytest.mark.req("G-25")
def test_the_list_says_which_breaker_is_open_why_and_until_when(redrive: Redrive, shop: Shop) -> None:
    now = shop.call(lambda store: store.now())
    shop.call(
        lambda store: store.open_breaker(
            "shop", claimed_at=now, code="CONNECTION_REFUSED", cool_off_seconds=600, cool_off_max_seconds=600
        )
    )
    for shown in (item(redrive)["open"], item(redrive)["known"]):
        assert (shown["paused"], shown["breaker"], shown["breaker_code"]) == (False, "open", "CONNECTION_REFUSED")
        assert datetime.fromisoformat(shown["breaker_until"]) - now >= timedelta(seconds=600)
    line = next(line for line in redrive("destinations", "list").stdout.splitlines() if line.startswith("shop"))
    assert re.search(r"shop +open .*Z +.*Z +breaker +CONNECTION_REFUSED", line)


@pytest.mark.req("G-25")
def test_the_list_says_until_when_a_destination_rests(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.pause_until("shop", actor="relay r", seconds=300))
    shown = item(redrive)["known"]
    assert (shown["paused"], shown["pause_reason"], shown["paused_by"]) == (True, "retry_after", "relay r")
    assert shown["paused_until"] is not None


@pytest.mark.req("G-31")
def test_limit_keys_that_rest_or_are_paused_are_listed_and_resumed_one_by_one(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.rest_key("shop", "a.example:443", actor="relay r", seconds=300))
    paused = redrive.json("destinations", "pause", "shop", "--key", "b.example:443", *REASON)
    assert (paused["name"], paused["changed"]) == ("shop/b.example:443", True)
    shown = item(redrive)
    assert not shown["open"]["paused"]
    assert not shown["known"]["paused"]
    assert [(one["key"], one["pause_reason"]) for one in shown["limit_keys"]] == [
        ("a.example:443", "retry_after"),
        ("b.example:443", "stock-taking"),
    ]
    assert item(redrive, "sms")["limit_keys"] == []
    assert re.search(r"shop +b\.example:443 +paused +– +anna +stock-taking", redrive("destinations", "list").stdout)
    for key in ("a.example:443", "b.example:443"):
        assert redrive.json("destinations", "resume", "shop", "--key", key, *REASON)["changed"]
    # What follows a rest is a ramp.
    assert [(one["key"], one["breaker"]) for one in item(redrive)["limit_keys"]] == [("a.example:443", "ramping")]
    assert not redrive.json("destinations", "resume", "shop", "--key", "b.example:443", *REASON)["changed"]


def test_after_a_rest_nothing_of_it_is_shown(redrive: Redrive, shop: Shop) -> None:
    shop.call(lambda store: store.pause_until("shop", actor="relay r", seconds=5, now=shop.now - timedelta(hours=1)))
    shown = item(redrive)["known"]
    assert [shown[key] for key in ("paused", "pause_reason", "paused_by", "paused_at", "paused_until", "breaker")] == [
        False, None, None, None, None, "closed",
    ]  # fmt: skip
    shown = item(redrive)["open"]
    assert [shown[key] for key in ("paused", "pause_reason", "paused_until", "breaker")] == [
        False,
        None,
        None,
        "closed",
    ]


def test_a_server_that_accepts_no_writes_is_said_to_be_one(shop: Shop) -> None:
    """Such as a standby: it can be read, and an act is told why not."""
    options = "-c default_transaction_read_only=on"
    standby = Redrive(psycopg.conninfo.make_conninfo(shop.dsn, options=options))
    assert standby("destinations", "list").exit_code == 0
    result = standby("destinations", "pause", "shop", "--reason", "x")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "accepts no writes: it is a standby, or in maintenance." in result.stderr
