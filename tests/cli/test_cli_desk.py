"""`redrive dead …` and `redrive replay …`: the way of a dead letter as a script goes it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import redrive as product
from redrive.events import Events
from redrive.prove.desk import DeskReport
from redrive.prove.isolation.environment import Figure
from redrive.prove.isolation.prove import Measured
from redrive.prove.isolation.prove import Report as IsolationReport
from redrive.relay.build import SystemClock
from redrive.relay.dispatching.requests import Requests
from redrive.store.runtime.postgres import PostgresStore
from tests.cli.conftest import NOBODY, SECRET, Redrive, Shop
from tests.support import messages as m
from tools import documents

pytestmark = pytest.mark.req("G-16")

WHY = ("--reason", "INC-7", "--actor", "ada")


@contextmanager
def answering(dsn: str) -> Iterator[None]:
    """A relay that answers what is asked of it, and sends nothing."""
    over = threading.Event()

    async def run() -> None:
        app = product.App()
        app.destination(m.DESTINATION)(lambda _: None)
        async with PostgresStore(dsn) as store:
            parts: Any = {"clock": SystemClock(), "random": Random(1), "events": Events()}
            requests = Requests(store, app.destinations, m.WORKER, **parts)
            while not over.is_set():
                await requests.run_once()
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=[run()])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def test_the_whole_way_of_a_dead_letter(shop: Shop, redrive: Redrive) -> None:
    id_ = shop["dead"]
    refused = redrive("dead", "validate", id_, *WHY)
    assert (refused.exit_code, "dead triage" in refused.stderr) == (5, True)
    assert redrive("dead", "triage", id_, "--cause", "data", *WHY).exit_code == 0
    assert redrive("dead", "validate", id_, *WHY).exit_code == 5
    patch = json.dumps([{"op": "replace", "path": "/state", "value": "mended"}])
    shown = redrive.json("dead", "edit", id_, "--patch", patch, "--dry-run", *WHY)
    read = redrive("dead", "edit", id_, "--patch", patch, "--dry-run", *WHY).stdout
    assert read.startswith("--- before\n+++ after\n")
    assert json.loads(shown["after"]["text"])["state"] == "mended"
    assert redrive("dead", "edit", id_, "--patch", patch, *WHY).exit_code == 0
    assert redrive("dead", "remediate", id_, "--ticket", "INC-7", *WHY).exit_code == 0
    with answering(shop.dsn):
        assert redrive("dead", "validate", id_, *WHY).exit_code == 0
    page = redrive("dead", "show", id_).stdout
    assert all(words in page for words in ("workflow", "validated", "INC-7", "version 2"))
    replay = redrive.json("dead", "replay", id_, *WHY)
    assert (replay["status"], replay["messages"]) == ("running", 1)
    shop.call(lambda store: store.run_replay(every_seconds=0.9, limit=10))
    assert shop.state("dead") == "pending"
    early = redrive("dead", "verify", id_, *WHY)
    assert (early.exit_code, "it is pending" in early.stderr) == (5, True)
    shop.call(_deliver)
    shop.call(lambda store: store.rows("UPDATE redrive.replay SET stepped_at = NULL RETURNING 1", []))
    shop.call(lambda store: store.run_replay(every_seconds=0.9, limit=10))
    assert redrive("dead", "verify", id_, *WHY).exit_code == 0
    after = redrive.json("replay", "status", replay["id"], "--items", "--limit", "1")
    assert redrive.json("replay", "status", replay["id"], "--items", "--after", after["next"])["items"] == []
    assert redrive.json("replay", "status", replay["id"], "--items", "--after", "1")["items"] == []
    assert [(item["outcome"], item["verified_by"]) for item in after["items"]] == [("delivered", "ada")]
    acts = redrive.json("audit", "list", "--subject", id_)["items"]
    assert [act["act"] for act in acts] == ["verify", "validate", "remediate", "edit", "triage"]
    assert redrive("audit", "verify").exit_code == 0
    assert SECRET not in json.dumps(acts)


async def _deliver(store: PostgresStore) -> None:
    taken = await m.claim_all(store, now=await store.now())
    for attempt in taken.attempts:
        await m.settle(store, attempt, m.close(), now=await store.now())


def test_a_replay_by_filter_is_looked_at_first_and_asked_for_with_yes(shop: Shop, redrive: Redrive) -> None:
    chosen = ("--error-class", "HTTP_409", *WHY)
    plan = redrive.json("replay", "create", "erp", *chosen, "--dry-run")
    assert (plan["would"], plan["skipped"]) == (0, {"not_validated": 1})
    assert redrive("replay", "create", "erp", *chosen, "--override").exit_code == 2, "nobody can be asked"
    assert redrive("replay", "create", "erp", *chosen, "--yes").exit_code == 5, "nothing was validated"
    made = redrive("replay", "create", "erp", *chosen, "--override", "--yes", "--token", "t-1", "--rate", "2")
    assert (made.exit_code, "2 per second" in made.stdout) == (0, True)
    assert redrive("replay", "create", "erp", *chosen, "--override", "--yes", "--token", "t-1").exit_code == 0
    page = redrive.json("replay", "list", "--limit", "1")
    assert len(page["items"]) == 1
    assert redrive.json("replay", "list", "--before", page["next"])["items"] == []
    assert "No further replay." in redrive("replay", "list", "--before", page["items"][0]["id"]).stderr
    assert redrive("replay", "pause", "erp", *WHY, "--dry-run").exit_code == 0
    assert redrive("replay", "resume", "erp", *WHY, "--dry-run").exit_code == 5, "it was not paused"
    assert redrive("replay", "pause", "erp", *WHY).exit_code == 0
    assert redrive("replay", "resume", "erp", *WHY).exit_code == 0
    assert redrive("replay", "cancel", "erp", *WHY).exit_code == 0
    assert redrive("replay", "resume", "erp", *WHY).exit_code == 5
    assert redrive("replay", "status", "erp", "--items").exit_code == 0
    shop.call(lambda store: store.rows("UPDATE redrive.replay SET stepped_at = NULL RETURNING 1", []))
    shop.call(lambda store: store.run_replay(every_seconds=0.9, limit=10))
    assert redrive.json("replay", "list", "--open")["items"] == []
    assert shop.state("dead") == "parked·dead"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dead", "triage", "--cause", "data"],
        ["dead", "triage", NOBODY, "--destination", "shop", "--cause", "data"],
        ["dead", "triage", NOBODY, "--cause", "bad luck"],
        ["dead", "remediate", NOBODY],
        ["dead", "edit", NOBODY],
        ["dead", "edit", NOBODY, "--approve", "--patch", "[]"],
        ["dead", "edit", NOBODY, "--patch", "no json"],
        ["dead", "edit", NOBODY, "--patch", "@/no/such/file"],
        ["replay", "create", "erp"],
        ["replay", "create", "erp", NOBODY, "--rate", "0"],
        ["replay", "create", "erp", NOBODY, "--canary", "-1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_said_so_and_changes_nothing(look: Redrive, arguments: list[str]) -> None:
    assert look(*arguments, *WHY).exit_code == 2


def test_dead_letters_that_are_not_there(look: Redrive) -> None:
    assert look("dead", "triage", NOBODY, "--cause", "data", *WHY).exit_code == 3
    assert look("dead", "ignore", "--kind", "nothing", *WHY).exit_code == 3
    assert look("replay", "status", "nothing").exit_code == 3


def test_a_copy_of_what_was_discarded(shop: Shop, redrive: Redrive) -> None:
    id_ = shop["dead"]
    assert redrive("messages", "copy", id_, "--key", "again", *WHY).exit_code == 5
    assert redrive("dead", "discard", id_, "--yes", *WHY).exit_code == 0
    copied = redrive.json("messages", "copy", id_, "--key", "again", *WHY)
    assert (copied["of"], copied["key"]) == (str(id_), "again")
    assert str(copied["id"]) in redrive("messages", "copy", id_, "--key", "again", *WHY).stdout


def test_the_document_of_a_proof_keeps_its_keys() -> None:
    report = DeskReport(
        seed=7, scale=1, commit=None, server="x", seconds=1.5, counts={"failures": 5}, violations=["lost"]
    )
    documents.seen("prove_desk", {"schema": "redrive.prove_desk/v1", **report.document()})
    documents.seen("prove_desk", {"schema": "redrive.prove_desk/v1", **replace(report, commit="a").document()})


def test_the_list_of_a_group_has_its_messages_only(look: Redrive, stock: Shop) -> None:
    groups = look.json("groups", "list")["items"]
    group = next(one["id"] for one in groups if one["error_class"] == "HTTP_409")
    assert [one["id"] for one in look.json("dead", "list", "--group", group[:12])["items"]] == [str(stock["dead"])]
    assert look.json("held", "list", "--group", group)["items"] == []


@pytest.mark.req("G-31")
def test_the_report_of_an_isolation_proof_says_what_is_beyond_its_bound(look: Redrive) -> None:
    within = Figure(what="delay", measured=1.5, unit="ms", bound=2)
    report = IsolationReport(
        commit=None, server="x", cases=[Measured(case="one", title="One.", seconds=1, figures=[within])]
    )
    figures = [replace(within, measured=3.0), replace(within, bound=None)]
    beyond = replace(report, commit="a", cases=[replace(report.cases[0], figures=figures)])
    assert (report.ok, beyond.ok) == (True, False)
    assert any("NOT within 2 ms" in line for line in beyond.lines())
    for one in (report, beyond):
        documents.seen("prove_isolation", {"schema": "redrive.prove_isolation/v1", **one.document()})
    refused = look("prove", "isolation", "nothing")
    assert refused.exit_code == 2
    assert "open-transaction" in refused.stderr
