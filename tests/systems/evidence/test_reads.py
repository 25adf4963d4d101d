"""What people and metrics read does not grow with what other jobs have left behind: no read looks at a whole table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from tests.systems.evidence.conftest import Upload, upload

Conn = psycopg.Connection[Any]
READS = files("redrive.systems.evidence") / "sql" / "reads"
# An attempt and a result for each file, as a message each.
ATTEMPTS = """
INSERT INTO redrive_evidence.artifact_attempt (message_id, artifact_id, file_job_id, tenant, number, begun_at)
SELECT gen_random_uuid(), id, file_job_id, tenant, 1, now() FROM redrive_evidence.file_job_artifact
"""
RESULTS = """
INSERT INTO redrive_evidence.artifact_event
    (message_id, artifact_id, file_job_id, tenant, event_type, status, occurred_at)
SELECT gen_random_uuid(), id, file_job_id, tenant, 'EvidenceArtifactResult', 'FAILED', now()
  FROM redrive_evidence.file_job_artifact
"""
LARGE = ("artifact_attempt", "artifact_event", "row_event", "file_job_row", "file_job_artifact")


@pytest.fixture
def crowded(conn: Conn) -> Upload:
    """The last of twenty uploads with 200 files each."""
    uploads = [upload(conn, *[5] * 40) for _ in range(20)]
    for statement in (ATTEMPTS, RESULTS):
        conn.execute(statement.encode())
    conn.execute("VACUUM ANALYZE")
    return uploads[-1]


@pytest.mark.req("E-01", "E-11")
@pytest.mark.parametrize("name", ["timeline", "case", "lineage", "lineage_messages", "rows", "artifacts"])
def test_a_read_of_one_job_case_or_file_looks_at_no_whole_table(name: str, conn: Conn, crowded: Upload) -> None:
    named = {
        "tenant": "default",
        "file_job_id": crowded.job,
        "case_id": crowded.cases[0],
        "artifact_id": crowded.files[0],
        **dict.fromkeys(("before", "file_job_row_id", "status")),
        "after": 0 if name == "rows" else None,
        "limit": 100,
    }
    # Tables of a test are small enough to be read whole; this asks whether there is another way.
    for way in ("seqscan", "hashjoin", "mergejoin"):
        conn.execute(f"SET enable_{way} = off".encode())
    query = (READS / f"{name}.sql").read_text(encoding="utf-8")
    (plan,) = conn.execute(f"EXPLAIN (FORMAT json) {query}".encode(), named).fetchone()  # type: ignore[misc]
    assert _scanned(plan[0]["Plan"]) == set(), json.dumps(plan)


def _scanned(plan: Mapping[str, Any]) -> set[str]:
    """Large tables that are read from one end to the other, also by an index."""
    is_whole = plan["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan") and "Index Cond" not in plan
    found = {plan["Relation Name"]} & set(LARGE) if is_whole else set[str]()
    return found.union(*(_scanned(part) for part in plan.get("Plans", ())))
