"""What each act adds to the outbox, and once the whole with processes."""

import os
import secrets
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from workflow.database import Refused
from workflow.definitions import publish_definition, unpublish_definition
from workflow.instances import decide_gateway, fail_instance, force_cancel_instance, start_instance
from workflow.tasks import cancel_task, claim_task, complete_task, create_task, give_back_task

RUN = Path(__file__).parents[1] / "run.py"


@pytest.fixture
def instance(conn):
    """A running one of acme."""
    id = uuid4()
    publish_definition(conn, "acme", "approval", 1)
    start_instance(conn, "acme", id, "approval", 1)
    return id


def events(conn):
    found = conn.execute("SELECT event_type FROM redrive_tenant.outbox_messages ORDER BY id").fetchall()
    return [event_type for (event_type,) in found]


def test_a_definition_that_is_published_again_after_it_was_withdrawn_is_a_new_event(conn):
    keys = [publish_definition(conn, "acme", "approval", 1).key for _ in range(2)]
    assert unpublish_definition(conn, "acme", "approval", 1).key not in keys
    keys.append(publish_definition(conn, "acme", "approval", 1).key)
    assert keys[0] == keys[1] != keys[2]
    assert events(conn) == ["DefinitionPublished", "DefinitionUnpublished", "DefinitionPublished"]


def test_a_task_that_was_given_back_is_claimed_a_second_time(conn, instance):
    task = uuid4()
    create_task(conn, "acme", task, instance, "approve")
    first = [claim_task(conn, "acme", task, "ada").key for _ in range(2)]
    give_back_task(conn, "acme", task)
    assert first == [first[0]] * 2
    assert claim_task(conn, "acme", task, "bob").key != first[0]
    complete_task(conn, "acme", task)
    with pytest.raises(Refused, match="completed; it cannot become cancelled"):
        cancel_task(conn, "acme", task)
    assert events(conn)[2:] == ["TaskCreated", "TaskClaimed", "TaskClaimed", "TaskCompleted"]


def test_a_gateway_decides_once_a_minute(conn, instance):
    at = datetime(2030, 1, 1, 12, 0, 10, tzinfo=UTC)
    decide = [decide_gateway(conn, "acme", instance, "amount", "high", at.replace(second=s)) for s in (10, 50)]
    assert [one.already_existed for one in decide] == [False, True]
    later = decide_gateway(conn, "acme", instance, "amount", "high", at.replace(minute=1))
    assert not later.already_existed
    assert conn.execute("SELECT count(*) FROM workflow_gateway_decision").fetchone() == (2,)


def test_a_cancelled_instance_cancels_its_tasks_and_the_subscriber_is_told_in_order(conn, instance, redrive_drain):
    done, left = uuid4(), uuid4()
    for task in (done, left):
        create_task(conn, "acme", task, instance, "approve")
    claim_task(conn, "acme", done, "ada")
    complete_task(conn, "acme", done)
    force_cancel_instance(conn, "acme", instance, request="request-1", by="root")
    with pytest.raises(Refused, match="it cannot become failed"):
        fail_instance(conn, "acme", instance, "late")
    life = ["InstanceStarted", "TaskCreated", "TaskCreated", "TaskClaimed", "TaskCompleted", "InstanceForceCancelled"]
    assert events(conn) == ["DefinitionPublished", *life, "TaskCancelled"]
    redrive_drain()
    told = conn.execute(
        "SELECT m.event_type FROM redrive_tenant.outbox_messages m"
        " JOIN subscriber_ledger l ON l.key = m.idempotency_key"
        " WHERE m.order_by = %s ORDER BY l.seen_at",
        [f"instance:{instance}"],
    ).fetchall()
    assert [event_type for (event_type,) in told] == [*life, "TaskCancelled"]


@pytest.fixture
def new_database():
    """Its name; the application commits in it."""
    name = f"workflow_{secrets.token_hex(4)}"
    with psycopg.connect("", autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield name
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_the_subscriber_is_told_each_event_once_although_a_relay_is_killed(new_database):
    environment = {**os.environ, "PGDATABASE": new_database}
    command = [sys.executable, str(RUN), "9"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each told once; a relay was killed." in done.stdout
