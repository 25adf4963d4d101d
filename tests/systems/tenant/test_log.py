"""The worker's log lines: the document's prefixes and fields, of this outbox alone (T-04, T-08)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import redrive
from redrive.events import Events
from redrive.operate import logs
from redrive.systems import tenant
from redrive.systems.tenant.log import WorkerLog
from redrive.systems.tenant.options import OutboxOptions
from redrive.testing import ScriptedTransport
from tests.systems.tenant.conftest import TYPES, outbox, published

pytestmark = [pytest.mark.req("T-04"), pytest.mark.req("T-08")]


Lines = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What was logged so far."""
    caplog.set_level("INFO", logger="redrive.tenant")
    return lambda: caplog.records


def fields(record: logging.LogRecord, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in names)


@pytest.mark.seed("003", "Logs_On_Success_And_Failure")
@pytest.mark.seed("003", "Outbox_Dispatch_Emits_Success_Log")
async def test_a_relay_logs_what_it_fetched_delivered_and_failed(outbox_database: str, acme: str, lines: Lines) -> None:
    box, _ = outbox(redrive.Retryable("BUSY"), None, base_retry_delay_seconds=0.0)
    app, events, delivered = redrive.App(), Events(), asyncio.Event()
    app.include(box.system())
    with psycopg.connect(outbox_database) as conn:
        added = box.writer.add(conn, acme, published())
    events.subscribe(lambda *_: delivered.set(), "message.delivered")
    async with app.running(outbox_database, events=events), asyncio.timeout(60):
        await delivered.wait()
    about = (str(added.id), str(added.key), acme)
    fetched = [one for one in lines() if one.message == "OUTBOX_WORKER_FETCH"]
    assert [one.count for one in fetched] == [1, 1]  # type: ignore[attr-defined]
    (failed,) = [one for one in lines() if one.message == "OUTBOX_WORKER_DISPATCH_FAIL"]
    assert fields(failed, "id", "key", "tenant", "retry", "max") == (*about, 1, 5)
    assert fields(failed, "error_code", "dead_letter", "levelname") == ("BUSY", False, "WARNING")
    (success,) = [one for one in lines() if one.message == "OUTBOX_WORKER_DISPATCH_SUCCESS"]
    assert fields(success, "id", "key", "tenant", "levelname") == (*about, "INFO")
    # As in every other line of a relay: by this one a line gets the trace in which its event was sent.
    assert success.message_id == failed.message_id == about[0]  # type: ignore[attr-defined]


def emit(events: Events, name: str, **values: Any) -> None:
    given = {"id": uuid4(), "destination": "tenant.events", "tenant": "acme", "key": "k", "spent": 1, "code": "X"}
    events.emit(name, **{**given, **values})


def test_an_outcome_that_came_too_late_is_a_skip(lines: Lines) -> None:
    events = Events()
    WorkerLog("tenant.events", OutboxOptions()).subscribe(events)
    late = uuid4()
    emit(events, "message.refused", id=late)
    (line,) = lines()
    assert line.message == "OUTBOX_WORKER_SKIP_PROCESSED"
    assert fields(line, "id", "key", "tenant") == (str(late), "k", "acme")


@pytest.mark.parametrize(("reason", "is_dead"), [("dead", True), ("held", False), ("unrecorded", False)])
def test_a_dead_letter_is_told_from_what_is_held_for_another_reason(lines: Lines, reason: str, is_dead: bool) -> None:
    events = Events()
    WorkerLog("tenant.events", OutboxOptions()).subscribe(events)
    emit(events, "message.parked", reason=reason)
    (line,) = lines()
    assert (line.message, *fields(line, "dead_letter")) == ("OUTBOX_WORKER_DISPATCH_FAIL", is_dead)


@pytest.mark.parametrize(("doubt", "state", "is_dead"), [("hold", "held", False), ("resend", "dead", True)])
async def test_the_log_calls_a_dead_letter_what_the_view_calls_one(
    outbox_database: str, acme: str, lines: Lines, doubt: Any, state: str, is_dead: bool
) -> None:
    box = tenant.Outbox(
        TYPES,
        options=OutboxOptions(max_retries=1),
        transport=ScriptedTransport(redrive.Unknown("LOST")),
        in_doubt=doubt,
    )
    app, events, parked = redrive.App(), Events(), asyncio.Event()
    app.include(box.system())
    with psycopg.connect(outbox_database) as conn:
        added = box.writer.add(conn, acme, published())
    events.subscribe(lambda *_: parked.set(), "message.parked")
    async with app.running(outbox_database, events=events), asyncio.timeout(60):
        await parked.wait()
    query = "SELECT state, dead_letter FROM redrive_tenant.outbox_messages WHERE id = %s"
    with psycopg.connect(outbox_database) as conn:
        assert conn.execute(query, [added.id]).fetchone() == (state, is_dead)
    (line,) = [one for one in lines() if one.message == "OUTBOX_WORKER_DISPATCH_FAIL"]
    assert fields(line, "dead_letter") == (is_dead,)


def test_other_destinations_and_looks_that_found_nothing_are_in_no_line(lines: Lines) -> None:
    events = Events()
    WorkerLog("tenant.events", OutboxOptions()).subscribe(events)
    emit(events, "message.delivered", destination="mail")
    events.emit("claim.stop", count=3, counts={"mail": 3})
    assert lines() == []


@pytest.mark.parametrize(("every", "expected"), [(2, [2, 2]), (5, []), (0, [])])
def test_a_summary_comes_after_so_many_cycles_and_counts_from_the_last(
    lines: Lines, every: int, expected: list[int]
) -> None:
    events = Events()
    WorkerLog("tenant.events", OutboxOptions(summary_every_cycles=every)).subscribe(events)
    for _ in range(4):
        emit(events, "message.delivered")
        emit(events, "message.parked")
        events.emit("claim.stop", counts={"tenant.events": 2})
    said = [one for one in lines() if one.message == "OUTBOX_WORKER_SUMMARY"]
    assert [fields(one, "cycles", "processed", "failed", "skipped") for one in said] == [
        (every, count, count, 0) for count in expected
    ]


def test_the_log_of_a_relay_process_shows_the_fields() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        logs.configure("json", "info", stream=stream)
        events = Events()
        WorkerLog("tenant.events", OutboxOptions()).subscribe(events)
        emit(events, "message.retried", key="0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e")
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    said = json.loads(stream.getvalue().splitlines()[-1])
    assert said["event"] == "OUTBOX_WORKER_DISPATCH_FAIL"
    assert (said["retry"], said["max"], said["tenant"]) == (1, 5, "acme")
    assert said["key"] == "0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e"
    assert said["id"] == said["message_id"] == str(UUID(said["id"]))
