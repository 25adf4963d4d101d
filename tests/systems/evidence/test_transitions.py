"""The life of an artifact (E-09): every edge of the one table, every pair that is none, and the same table in SQL."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
import pytest

from redrive.systems.evidence.transitions import STATUSES, TRANSITIONS, UNTRIED, Attachment, Event, Retry, Status, after
from tests.systems.evidence.conftest import every, one, status, upload

Conn = psycopg.Connection[Any]
PAIRS = [Status(*pair) for pair in product(Attachment, Retry)]
EDGES = {(before, then) for (before, _), then in TRANSITIONS.items()}


@pytest.mark.req("E-09")
def test_the_database_has_the_same_edges(conn: Conn) -> None:
    said = {tuple(row) for row in every(conn, "SELECT * FROM redrive_evidence.transitions()")}
    assert said == {(*before, event, *then) for (before, event), then in TRANSITIONS.items()}


@pytest.mark.req("E-09")
def test_every_event_in_every_status_has_the_answer_of_the_table(conn: Conn) -> None:
    query = "SELECT * FROM redrive_evidence.after(%s, %s, %s)"
    for before, event in product(PAIRS, Event):
        wanted = after(before, event)
        if wanted is None:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be"):
                one(conn, query, *before, event)
        else:
            assert tuple(one(conn, query, *before, event)) == wanted


@pytest.mark.req("E-09")
def test_a_change_that_is_no_edge_is_refused_whoever_makes_it(conn: Conn) -> None:
    """All pairs of statuses, by the plain UPDATE of the owner."""
    id = upload(conn, 1).files[0]
    for before, then in product(STATUSES, PAIRS):
        _force(conn, id, before)
        if (before, then) in EDGES or before == then:
            _write(conn, id, then)
            assert status(conn, id) == "/".join(then)
        else:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot become"):
                _write(conn, id, then)


@pytest.mark.req("E-09")
def test_an_artifact_begins_untried() -> None:
    assert UNTRIED == ("PENDING", "PENDING")
    assert {then for _, then in EDGES} | {UNTRIED} == set(STATUSES)


def _force(conn: Conn, id: Any, wanted: Status) -> None:
    """Past the trigger, which a superuser may switch off."""
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        _write(conn, id, wanted)


def _write(conn: Conn, id: Any, wanted: Status) -> None:
    code = "503" if wanted.attachment is Attachment.FAILED else None
    conn.execute(
        "UPDATE redrive_evidence.file_job_artifact SET attachment_status = %s, retry_status = %s, attached_at = now(),"
        " attachment_error_code = %s WHERE id = %s",
        (*wanted, code, id),
    )
