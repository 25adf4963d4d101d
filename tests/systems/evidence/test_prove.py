"""`redrive prove evidence`: what its judge finds, that it finds nothing, and what it finds when relays are careless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from email.message import EmailMessage
from typing import Any
from uuid import UUID

import pytest

from redrive.systems.evidence.names import N1, N2, attachment_key
from redrive.systems.evidence.notices import compose
from redrive.systems.evidence.prove.plan import CORRUPTED_SHARE, FILES_OF_ROW, Job, planned
from redrive.systems.evidence.prove.prove import EvidenceReport, prove
from redrive.systems.evidence.prove.rules import Artifact, Evidence, Rollup, judged, read_mail

(JOB,) = planned(seed=7, rows=3, jobs=1)
SABOTAGED = "tests.systems.evidence.sabotaged_case_api"


def plain_job() -> Job:
    """Three rows of five files: one is damaged, the second row's case is deleted."""
    rows = []
    for number, row in enumerate(JOB.rows):
        files = [replace(file, is_corrupted=number == 0 and place == 0) for place, file in enumerate(row.files)]
        rows.append(replace(row, files=files, is_deleted=number == 1))
    return replace(JOB, rows=rows)


PLAIN = plain_job()
FILES = [file.id for file in PLAIN.files]
DAMAGED, GONE, RETRIED, REFUSED, USUAL = FILES[0], FILES[5:10], FILES[1], FILES[2], FILES[3]
ATTACHED = [id for id in FILES if id not in {DAMAGED, REFUSED, *GONE}]


def said(log: str, id: UUID, **other: Any) -> dict[str, Any]:
    return {"log": log, "key": attachment_key(id), **other}


def requested(id: UUID, *, refused: int = 0, attached: bool = True) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for attempt in range(1, refused + 1):
        lines += [said("request", id, attempt=attempt), said("refused", id, attempt=attempt, status=503)]
        lines += [said("asked", id, found=False)]
    last = refused + 1
    return [*lines, said("request", id, attempt=last), said("attached", id, attempt=last)] if attached else lines


def mail(name: str, *, archive: str = PLAIN.archive, **numbers: int) -> str:
    """A notice as it is composed, in a mail."""
    counted = {"total": 15, "attached": 8, "recovered": 1, "permanent_failed": 7, "waiting": 0, "cases": 3, **numbers}
    tally = {
        **counted,
        "file_job_id": str(PLAIN.id),
        "merchant_id": "m",
        "archive_name": archive,
        "errors": [],
        "files": [],
        **dict.fromkeys(("uploaded_at", "now", "n2_by"), "2026-01-01T10:00:00Z"),
    }
    notice, message = compose(name, tally), EmailMessage()
    message["Subject"] = notice.subject
    message.set_content(notice.text)
    message.add_alternative(notice.html, subtype="html")
    return message.as_string()


FIRST = mail(N1, attached=7, waiting=1, permanent_failed=7)
LAST = mail(N2)


def artifact(id: UUID) -> Artifact:
    if id in ATTACHED:
        return Artifact(id, "ATTACHED", "RETRY_SUCCESS" if id == RETRIED else "PENDING", None, 1 + (id == RETRIED))
    code = {DAMAGED: "CORRUPTED_FILE", REFUSED: "503"}.get(id, "CASE_NOT_FOUND")
    return Artifact(id, "FAILED", "PERMANENT_FAILED", code, 3 if id == REFUSED else 1)


def ledger() -> list[dict[str, Any]]:
    lines = [line for id in ATTACHED for line in requested(id, refused=int(id == RETRIED))]
    return [*lines, *requested(REFUSED, refused=3, attached=False)]


ROLLUPS = [
    Rollup(row.id, 5, attached, 5 - attached, status)
    for row, attached, status in zip(PLAIN.rows, (3, 0, 5), ("PARTIALLY_FAILED", "FAILED", "COMPLETED"), strict=True)
]
RIGHT = Evidence(
    jobs=[PLAIN], ledger=ledger(), mails=[FIRST, LAST], artifacts=[artifact(id) for id in FILES], rollups=ROLLUPS
)


def with_artifact(id: UUID, **other: Any) -> Evidence:
    return replace(RIGHT, artifacts=[replace(one, **other) if one.id == id else one for one in RIGHT.artifacts])


def with_mails(*mails: str) -> Evidence:
    return replace(RIGHT, mails=mails)


def with_lines(*lines: dict[str, Any]) -> Evidence:
    return replace(RIGHT, ledger=[*RIGHT.ledger, *lines])


def without(id: UUID) -> Sequence[dict[str, Any]]:
    return [line for line in RIGHT.ledger if line["key"] != attachment_key(id)]


def test_evidence_of_what_is_right_has_no_violation() -> None:
    assert judged(RIGHT) == []


@pytest.mark.parametrize(
    ("rule", "words", "evidence"),
    [
        ("once", "more than once", with_lines(said("attached", USUAL, attempt=1))),
        ("once", "never uploaded", with_lines(said("attached", PLAIN.id, attempt=1))),
        ("classes", "is not in our table", replace(RIGHT, artifacts=RIGHT.artifacts[1:])),
        ("classes", "true is ['CORRUPTED_FILE']", with_artifact(DAMAGED, error_code="503")),
        ("classes", "true is ['CASE_NOT_FOUND']", with_artifact(GONE[0], error_code="NOT_ATTEMPTED")),
        ("classes", "true is nothing", replace(RIGHT, ledger=without(USUAL))),
        (
            "classes",
            "true is nothing",
            replace(RIGHT, ledger=[*without(REFUSED), *requested(REFUSED, refused=2, attached=False)]),
        ),
        ("recorded", "otherwise than the ledger", with_artifact(USUAL, attachment_status="FAILED")),
        ("recorded", "otherwise than the ledger", with_lines(said("attached", DAMAGED, attempt=1))),
        ("recorded", "no final status", with_artifact(REFUSED, retry_status="RETRY_SCHEDULED")),
        ("recorded", "beyond the limit", with_artifact(REFUSED, attempt_count=4)),
        ("asked_first", "without a question", with_lines(said("request", USUAL, attempt=1))),
        ("retried", "without a refused attempt", with_lines(said("request", USUAL, attempt=2))),
        ("retried", "without a refused attempt", with_lines(said("request", RETRIED, attempt=3))),
        ("retried", "beyond the limit", with_lines(said("request", REFUSED, attempt=4))),
        ("retried", "evidence:", with_lines(said("request", REFUSED, attempt=1))),
        ("notices", "had N1;", with_mails(FIRST)),
        ("notices", "had N2, N1;", with_mails(LAST, FIRST)),
        ("notices", "had N1, N1, N2;", with_mails(FIRST, FIRST, LAST)),
        ("notices", "had no mail;", with_mails()),
        ("notices", "no upload", with_mails(FIRST, LAST, mail(N2, archive="evidence-999.zip"))),
        ("notices", "the judge counts", with_mails(FIRST, mail(N2, attached=9, permanent_failed=6))),
        ("notices", "the judge counts", with_mails(FIRST, mail(N2, recovered=0))),
        ("notices", "does not add up", with_mails(mail(N1, attached=7, permanent_failed=7), LAST)),
        ("notices", "attached; the ledger", with_mails(mail(N1, attached=9, permanent_failed=6), LAST)),
        ("notices", "attached; the ledger", with_mails(mail(N1, attached=6, waiting=2, permanent_failed=7), LAST)),
        ("rollups", "it must be", replace(RIGHT, rollups=[replace(ROLLUPS[0], attached=4), *ROLLUPS[1:]])),
        ("rollups", "it must be", replace(RIGHT, rollups=ROLLUPS[1:])),
    ],
)
def test_each_broken_promise_is_a_violation_of_its_rule(rule: str, words: str, evidence: Evidence) -> None:
    assert any(one.startswith(f"[{rule}]") and words in one for one in judged(evidence)), judged(evidence)


def test_a_refusal_that_no_relay_lived_to_keep_is_no_retry() -> None:
    """Its attempt went on at another relay, which asked first; so the notice does not count the file as recovered."""
    interrupted = [said("request", USUAL, attempt=1), said("refused", USUAL, attempt=1, status=503)]
    interrupted.append(said("asked", USUAL, found=False))
    assert judged(replace(RIGHT, ledger=[*interrupted, *RIGHT.ledger])) == []


def test_the_numbers_of_a_notice_are_read_as_a_merchant_reads_them() -> None:
    archive, numbers = read_mail(LAST)
    assert (archive, numbers["Files in all"], numbers["Attached"]) == (PLAIN.archive, 15, 8)
    assert numbers["of these, attached by a retry"] == 1
    assert "of these, attached by a retry" not in read_mail(FIRST)[1]


def test_the_same_seed_plans_the_same_uploads_with_their_shares_of_trouble() -> None:
    first, again = (planned(seed=7, rows=100, jobs=4) for _ in range(2))
    assert first == again != planned(seed=8, rows=100, jobs=4)
    files = [file for job in first for file in job.files]
    assert len(files) == len({file.id for file in files}) == 100 * FILES_OF_ROW
    assert sum(file.is_corrupted for file in files) == 100 * FILES_OF_ROW * CORRUPTED_SHARE
    assert sum(row.is_deleted for job in first for row in job.rows) == 1


def rules_of(report: EvidenceReport) -> set[str]:
    return {sentence.split("]")[0].lstrip("[") for sentence in report.violations}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.req("E-02", "E-05", "E-06", "E-10", "E-12")
def test_files_are_attached_once_and_two_notices_are_true_while_everything_is_killed() -> None:
    report = prove(seed=7, scale=0.05, dsn=None, progress=lambda *_: None)
    assert report.violations == []
    assert report.counts["files"] == 250
    assert report.counts["workers killed"] >= 1
    assert sum(count for name, count in report.counts.items() if name.startswith("relays killed at")) >= 3
    assert report.counts["restarts of NATS"] == 1
    assert report.counts["mails received"] == 2 * report.counts["uploads"]
    assert "evidence-retry.max-attempts" in report.settings


@pytest.mark.full
@pytest.mark.timeout(900)
def test_relays_that_break_each_promise_are_found() -> None:
    report = prove(seed=7, scale=0.02, dsn=None, progress=lambda *_: None, module=SABOTAGED)
    assert {"once", "classes", "recorded", "rollups"} <= rules_of(report)
