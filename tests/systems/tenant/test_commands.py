"""The commands of the outbox: lists, numbers, health and the rollout check, as a person and a program read them."""

from __future__ import annotations

import json

import psycopg
import pytest

import redrive
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import tenant
from redrive.systems.tenant.check import check
from redrive.systems.tenant.options import OutboxOptions
from redrive.testing import ManualClock
from tests.support.databases import fresh_database
from tests.systems.tenant.conftest import TYPES, Run, delivered_by, published, row

pytestmark = [pytest.mark.req("T-06"), pytest.mark.req("T-12")]


def filled(dsn: str, acme: str) -> None:
    """One delivered, one dead, one that waits."""
    box = tenant.Outbox(TYPES)

    @box.deliver
    async def deliver(event: redrive.Attempt) -> None:
        if event.payload["definition"] == "bad":
            raise redrive.Terminal("GONE", "there is no such subscriber")

    with psycopg.connect(dsn) as conn:
        for entity in ("good", "bad"):
            box.writer.add(conn, acme, published(entity))
        delivered_by(conn, box)
        box.writer.add(conn, acme, published("new"))


def test_the_list_shows_each_status(run: Run, outbox_database: str, acme: str) -> None:
    filled(outbox_database, acme)
    shown = {}
    for status in ("pending", "failed", "processed"):
        result = run("list", "--tenant", acme, "--status", status, "--json")
        assert result.exit_code == 0, result.output
        shown[status] = sorted(one["state"] for one in json.loads(result.stdout)["items"])
    assert shown == {"pending": ["dead", "pending"], "failed": ["dead"], "processed": ["delivered"]}
    text = run("list", "--tenant", acme, "--status", "failed")
    assert "there is no such subscriber" in text.stdout
    assert "Page 1: 1 of 1." in text.stderr
    assert run("list", "--page", "0").exit_code == 2


def test_the_numbers_are_printed_as_table_document_and_prometheus_text(
    run: Run, outbox_database: str, acme: str
) -> None:
    filled(outbox_database, acme)
    found = json.loads(run("metrics", "--tenant", acme, "--json").stdout)
    assert (found["backlogSize"], found["deadLetters"], found["processed"], found["failures"]) == (1, 1, 1, 1)
    assert "outbox_backlog_size 1.0" in run("metrics", "--tenant", acme, "--prometheus").stdout
    assert "dead letters" in run("metrics", "--tenant", acme).stdout


@pytest.mark.req("T-05")
def test_an_event_that_died_before_it_spent_an_attempt_has_failed_too(
    run: Run, outbox_database: str, acme: str
) -> None:
    """Its relay died three times while it was sent alone: no attempt is spent, and a person is needed all the same."""
    box, sent = tenant.Outbox(TYPES), list[object]()
    box.deliver(lambda event: sent.append(event.id))
    with psycopg.connect(outbox_database) as conn:
        added = box.writer.add(conn, acme, published())
        conn.execute("UPDATE redrive.pending SET crashes = 3 WHERE id = %s", [added.id])
        assert added.id in delivered_by(conn, box).parked
    assert added.id not in sent
    (failed,) = json.loads(run("list", "--tenant", acme, "--status", "failed", "--json").stdout)["items"]
    assert (failed["id"], failed["deadLetter"], failed["retryCount"]) == (str(added.id), True, 0)
    assert failed["lastErrorSnippet"] == "CRASHED"
    numbers = json.loads(run("metrics", "--tenant", acme, "--json").stdout)
    assert (numbers["failedPending"], numbers["deadLetters"], numbers["backlogSize"]) == (1, 1, 0)


@pytest.mark.req("T-05", "T-09")
def test_a_failure_that_costs_no_attempt_is_shown_as_a_failure(run: Run, outbox_database: str, acme: str) -> None:
    """With a breaker an attempt that finds the subscriber down is free: RetryCount stays; the failure is shown."""
    box, clock, is_down = tenant.Outbox(TYPES, breaker=True), ManualClock(), [True]

    @box.deliver
    async def deliver(event: redrive.Attempt) -> None:
        if event.tenant == acme and is_down[0]:
            raise redrive.Retryable("DOWN", "nobody answers", destination_down=True)

    with psycopg.connect(outbox_database) as conn:
        added = box.writer.add(conn, acme, published())
        for _ in range(2):
            assert added.id in delivered_by(conn, box, clock).retried
            found = row(conn, added.id)
            assert (found["RetryCount"], found["Error"], found["DeadLetter"]) == (0, "nobody answers", False)
            assert found["NextAttemptAt"] is not None
            clock.advance(60)
    (failed,) = json.loads(run("list", "--tenant", acme, "--status", "failed", "--json").stdout)["items"]
    assert (failed["id"], failed["lastErrorSnippet"]) == (str(added.id), "nobody answers")
    numbers = json.loads(run("metrics", "--tenant", acme, "--json").stdout)
    assert (numbers["failedPending"], numbers["backlogSize"]) == (1, 1)
    is_down[0] = False
    with psycopg.connect(outbox_database) as conn:
        assert added.id in delivered_by(conn, box, clock, to_the_end=True).delivered
        found = row(conn, added.id)
    assert (found["RetryCount"], found["Error"], found["IsProcessed"]) == (0, None, True)


def test_health_says_why_and_ends_with_6_unless_it_is_healthy(run: Run, outbox_database: str, acme: str) -> None:
    well = run("health", "--tenant", acme)
    assert (well.exit_code, "The outbox is healthy." in well.stderr) == (0, True)
    filled(outbox_database, acme)
    ill = run("health", "--tenant", acme, "--json")
    assert ill.exit_code == 6
    assert json.loads(ill.stdout)["verdict"] == "unhealthy"  # one attempt of two failed


async def test_relays_are_well_while_one_that_delivers_events_is_alive(server_dsn: str, template: str) -> None:
    """Also where no event waits: a rollout without a relay is not complete."""
    box, app = tenant.Outbox(TYPES), redrive.App()
    box.deliver(lambda _: None)
    app.include(box.system())
    with fresh_database(server_dsn, template=template) as dsn:
        async with PostgresStore(dsn, connections=1) as store:

            async def relays() -> tuple[bool, str]:
                (found,) = [one for one in await check(store) if one.name == "relays"]
                return found.is_well, found.found

            assert await relays() == (False, "alive for: no outbox; events wait without one: nowhere")
            async with app.running(dsn):
                assert await relays() == (True, "alive for: tenant.events; events wait without one: nowhere")
            assert not (await relays())[0]


def test_check_names_what_is_missing_and_what_helps(run: Run, outbox_database: str, acme: str) -> None:
    with psycopg.connect(outbox_database) as conn:
        redrive.enqueue(conn, "tenant.events", {}, tenant=acme, kind="X")
    result = run("check", "--json")
    items = {one["name"]: one for one in json.loads(result.stdout)["items"]}
    assert result.exit_code == 6
    assert {name: one["is_well"] for name, one in items.items() if name != "health"} == {
        "keys": False,
        "options": False,
        "relays": False,
    }
    assert "OutboxWriter" in items["keys"]["next"]
    assert "tenant.events" in items["relays"]["found"]
    with psycopg.connect(outbox_database) as conn:
        conn.execute("SET ROLE redrive_relay")
        conn.execute(
            "SELECT redrive_tenant.publish_options_1('tenant.events', %s)", [json.dumps(OutboxOptions().documented())]
        )
    items = {one["name"]: one for one in json.loads(run("check", "--json").stdout)["items"]}
    assert items["options"]["is_well"]
    assert "not ok" in run("check").stdout
