"""What a merchant reads (E-06, E-12), as text, HTML and JSON; and how the notices leave."""

from __future__ import annotations

import asyncio
import json
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

import redrive
from redrive.kit.proof.smtp_server import Fault, SmtpServer
from redrive.kit.proof.smtp_server import serving as mail_serving
from redrive.systems.evidence.notice_destinations import mail_destination, webhook_destination
from redrive.systems.evidence.notices import compose
from redrive.transports.http import Egress
from redrive.transports.smtp import SmtpTransport
from tests.systems.evidence.conftest import attempt, connect, every, upload
from tests.systems.evidence.test_gates import NOTICES, ago, decide, now
from tests.transports.servers import serving

QUICK = redrive.Policy(
    attempts=5, backoff=redrive.Backoff(initial_seconds=0.01, multiplier=1, max_seconds=0.01, jitter="none")
)

TALLY: dict[str, Any] = {
    "file_job_id": "0197a0b2-0000-7000-8000-000000000001",
    "merchant_id": "shop-7",
    "archive_name": "evidence <june>.zip",
    "uploaded_at": "2026-06-03T10:00:00.000000Z",
    "now": "2026-06-03T10:05:00.000000Z",
    "n2_by": "2026-06-04T10:05:00.000000Z",
    "cases": 2,
    "total": 5,
    "attached": 2,
    "recovered": 0,
    "permanent_failed": 2,
    "waiting": 1,
    "errors": [
        {"error_code": "CASE_NOT_FOUND", "error_category": "AUTH", "files": 2, "permanent_failed": 2},
        {"error_code": "503", "error_category": "NETWORK", "files": 1, "permanent_failed": 0},
    ],
    "files": [
        {
            "row_number": 2,
            "case_id": "c-1",
            "file_name": "a.pdf",
            "error_code": "CASE_NOT_FOUND",
            "retry_status": "PERMANENT_FAILED",
        },
        {
            "row_number": 3,
            "case_id": "c-2",
            "file_name": "b<i>.pdf",
            "error_code": "503",
            "retry_status": "RETRY_FAILED",
        },
    ],
}


EXAMPLE: dict[str, Any] = {
    "file_job_id": "0197a0b2-0000-7000-8000-000000000001",
    "merchant_id": "shop-7",
    "archive_name": "may.zip",
    "uploaded_at": "2026-06-03T10:00:00.000000Z",
    "now": "2026-06-03T10:05:00.000000Z",
    "n2_by": "2026-06-04T10:05:00.000000Z",
    "cases": 2,
    "total": 5,
    "attached": 3,
    "recovered": 0,
    "permanent_failed": 1,
    "waiting": 1,
    "errors": [
        {"error_code": "CORRUPTED_FILE", "error_category": "DATA", "files": 1, "permanent_failed": 1},
        {"error_code": "503", "error_category": "NETWORK", "files": 1, "permanent_failed": 0},
    ],
    "files": [
        {
            "row_number": 2,
            "case_id": "7b0e6c52-9a34-4c58-8f0e-5d1f3a2b4c6d",
            "file_name": "receipt.pdf",
            "error_code": "CORRUPTED_FILE",
            "retry_status": "PERMANENT_FAILED",
        },
        {
            "row_number": 3,
            "case_id": "1f6d2a90-55c1-4b7e-9d3a-0c8e7f6a5b4d",
            "file_name": "parcel.jpg",
            "error_code": "503",
            "retry_status": "RETRY_FAILED",
        },
    ],
}


@pytest.mark.req("E-06", "E-12")
def test_n1_tells_the_numbers_and_promises_what_is_retried_and_until_when() -> None:
    notice = compose("N1", TALLY)
    assert notice.subject == "Your evidence upload evidence <june>.zip: 2 of 5 files attached so far"
    assert "1 file will be tried again automatically, until 4 June 2026, 10:05 UTC at the latest." in notice.text
    assert "Files in all:                          5" in notice.text
    assert "Cannot be retried: 2 files (CASE_NOT_FOUND)" in notice.text
    assert "The case does not exist, or was deleted.\nWhat to do: Check the case number" in notice.text
    assert "  line 2, case c-1: a.pdf\n  and 1 more" in notice.text
    assert "Will be tried again: 1 file (503)" in notice.text
    assert "SYSTEM" not in notice.text  # a category is ours, not the merchant's
    assert notice.summary["retried_until"] == TALLY["n2_by"]
    assert "b&lt;i&gt;.pdf" in notice.html
    assert "<june>" not in notice.html


@pytest.mark.req("E-06")
def test_n2_tells_what_was_recovered_and_what_to_do_with_the_rest() -> None:
    rest = {
        **TALLY,
        "attached": 3,
        "recovered": 1,
        "waiting": 0,
        "errors": TALLY["errors"][:1],
        "files": TALLY["files"][:1],
    }
    notice = compose("N2", rest)
    assert notice.subject.endswith("3 of 5 files attached")
    assert "of these, attached by a retry:         1" in notice.text
    assert "This upload is closed: its files are not tried again." in notice.text
    assert "To be tried again" not in notice.text
    assert notice.summary["recovered_by_retry"] == 1
    assert notice.summary["retried_until"] is None
    assert notice.summary["failed_files"][0]["cannot_retry"]


@pytest.mark.req("E-06")
def test_a_merchant_without_a_problem_need_not_do_anything() -> None:
    fine = {
        **TALLY,
        "total": 1,
        "cases": 1,
        "attached": 1,
        "waiting": 0,
        "permanent_failed": 0,
        "errors": [],
        "files": [],
    }
    notice = compose("N2", fine)
    assert notice.subject.endswith("everything is attached")
    assert "with 1 file for 1 case. This is the final result." in notice.text
    assert "You need not do anything." in notice.text
    assert "What to do" not in notice.text


def test_a_line_break_in_the_name_of_an_archive_does_not_reach_the_subject() -> None:
    assert "\n" not in compose("N1", {**TALLY, "archive_name": "a\r\nBcc: everyone@example.org"}).subject


def finished(dsn: str, job: UUID) -> list[str]:
    """Waits until every notice of a job was delivered."""
    with connect(dsn) as conn:
        ids = [row.message_id for row in every(conn, NOTICES, job)]
        return [redrive.wait(conn, id, timeout_seconds=60).state for id in ids]


@pytest.mark.req("E-06", "E-08")
async def test_both_notices_arrive_by_mail_and_at_the_webhook_whatever_fails_first(evidence: str) -> None:
    refusals = iter([503])

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=next(refusals, 200))

    fault = {"RCPT": Fault("451 4.3.0 try again later", times=1)}
    async with serving(answer) as server, mail_serving(SmtpServer(faults=fault)) as mail_server:
        with connect(evidence) as conn:
            uploaded = upload(conn, 2, at=ago(minutes=5), notify_webhook=f"{server.url}/hooks")
            attempt(conn, uploaded.files[0], at=now())
            attempt(conn, uploaded.files[1], "CORRUPTED_FILE", at=now())
            assert decide(conn, uploaded.job) == ["N1", "N2"]
        smtp = SmtpTransport("127.0.0.1", port=mail_server.port, sender="evidence@example.org", tls="none")
        app = redrive.App()
        app.add(mail_destination(smtp, policy=QUICK))
        here = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset({server.port}))
        app.add(webhook_destination(egress=here, policy=QUICK))
        async with app.running(evidence):
            states = await asyncio.to_thread(finished, evidence, uploaded.job)
    assert states == ["delivered"] * 4
    mails = [message_from_bytes(one.body, policy=policy.default) for one in mail_server.mails]
    assert {mail["Subject"] for mail in mails} == {"Your evidence upload evidence.zip: 1 of 2 files attached"}
    assert len(mails) == 2
    last = next(text for mail in mails if "This is the final result." in (text := _text(mail)))
    assert "Cannot be retried: 1 file (CORRUPTED_FILE)" in last
    assert "The file is damaged." in last
    assert {part.get_content_type() for part in mails[0].iter_parts()} == {"text/plain", "text/html"}
    bodies = [json.loads(asked.body) for asked in server.asked]
    assert {body["notice"] for body in bodies} == {"N1", "N2"}
    assert {(body["total"], body["attached"], body["permanent_failed"]) for body in bodies} == {(2, 1, 1)}
    tokens = {
        (body["notice"], asked.headers["Idempotency-Key"]) for asked, body in zip(server.asked, bodies, strict=True)
    }
    assert (len(bodies), len(tokens)) == (3, 2)  # the refused one came again, as the same


def _text(mail: Any) -> str:
    return str(mail.get_body(("plain",)).get_content())


def test_where_a_webhook_may_be_is_bounded() -> None:
    assert webhook_destination(egress=Egress(allow=["10.0.0.0/8"])).name == "evidence.notice.webhook"


@pytest.mark.req("E-06", "E-12")
@pytest.mark.parametrize("name", ["N1", "N2"])
def test_the_example_of_the_docs_is_what_a_merchant_gets(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "attach-evidence.md").read_text(encoding="utf-8")
    rest = {"attached": 4, "recovered": 1, "waiting": 0, "errors": EXAMPLE["errors"][:1], "files": EXAMPLE["files"][:1]}
    notice = compose(name, EXAMPLE if name == "N1" else {**EXAMPLE, **rest})
    assert f"```text\nSubject: {notice.subject}\n\n{notice.text.rstrip()}\n```" in page
