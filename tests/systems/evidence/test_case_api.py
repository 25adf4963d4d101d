"""One attempt to attach a file: what the Case API answers, what its own ledger says, and what is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import Absent, CannotTell, Delivered, Found, Policy, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.case_codes import answer_of, error_code_of, found_of
from redrive.systems.evidence.names import ATTACH_RESULTS, FAILED_REQUESTS
from redrive.systems.evidence.taxonomy import Category, category_of, may_retry
from redrive.transports.http.client import Reply
from tests.systems.evidence.attaching import desk, request, retry, stored_upload
from tests.systems.evidence.conftest import artifact, events, every, one, status

Connection = psycopg.Connection[Any]
_PARKED = "SELECT reason, error_class FROM redrive.parked WHERE destination = 'case-api'"


def reply(number: int, body: bytes = b"{}", **headers: str) -> Reply:
    return Reply(number, {name.replace("_", "-"): value for name, value in headers.items()}, body, True)


# the mapping


@pytest.mark.req("E-05")
@pytest.mark.parametrize(
    ("number", "body", "kind", "code", "category"),
    [
        (408, b"{}", Unknown, "408", Category.NETWORK),
        (502, b"{}", Unknown, "502", Category.NETWORK),
        (504, b"<html>", Unknown, "504", Category.NETWORK),
        (500, b'{"code": "ATTACHMENT_API_TIMEOUT"}', Unknown, "ATTACHMENT_API_TIMEOUT", Category.NETWORK),
        (500, b'{"code": "NETWORK_TIMEOUT"}', Unknown, "NETWORK_TIMEOUT", Category.NETWORK),
        (429, b"{}", Retryable, "429", Category.NETWORK),
        (503, b"{}", Retryable, "503", Category.NETWORK),
        (500, b"{}", Retryable, "500", Category.SYSTEM),
        (500, b'{"code": "SYSTEM_ERROR"}', Retryable, "SYSTEM_ERROR", Category.SYSTEM),
        (404, b"{}", Retryable, "404", Category.SYSTEM),
        (418, b'{"code": "TEAPOT"}', Retryable, "418", Category.SYSTEM),
        (404, b'{"code": "CASE_NOT_FOUND"}', Terminal, "CASE_NOT_FOUND", Category.AUTH),
        (410, b'{"code": "CASE_DELETED"}', Terminal, "CASE_NOT_FOUND", Category.AUTH),
        (401, b"{}", Terminal, "401", Category.AUTH),
        (403, b"{}", Terminal, "403", Category.AUTH),
        (403, b'{"code": "UNAUTHORIZED"}', Terminal, "UNAUTHORIZED", Category.AUTH),
        (422, b'{"code": "CORRUPTED_FILE"}', Terminal, "CORRUPTED_FILE", Category.DATA),
        (415, b'{"code": "INVALID_FORMAT"}', Terminal, "INVALID_FORMAT", Category.DATA),
    ],
)
def test_a_reply_is_one_answer_and_one_code_of_the_taxonomy(
    number: int, body: bytes, kind: type[Any], code: str, category: Category
) -> None:
    answer: Any = answer_of(reply(number, body))
    assert type(answer) is kind
    assert (error_code_of(answer.code), category_of(error_code_of(answer.code))) == (code, category)
    assert may_retry(code) == (kind is not Terminal)


def test_an_attachment_without_an_id_is_in_doubt() -> None:
    assert answer_of(reply(201, b'{"attachment_id": "a-1"}')) == Delivered("a-1")
    for body in (b"{}", b"\xff", b"[]", b'{"attachment_id": 7}', b'{"attachment_id": ""}'):
        assert isinstance(answer_of(reply(200, body)), Unknown)


def test_a_rest_that_the_case_api_asks_for_is_kept() -> None:
    answer: Any = answer_of(reply(429, Retry_After="17"))
    assert (type(answer), answer.code, answer.retry_after) == (Retryable, "HTTP_429", "17")


@pytest.mark.parametrize(
    ("number", "body", "kind"),
    [
        (200, b'{"attachment_id": "a-1"}', Found),
        (404, b'{"code": "ATTACHMENT_NOT_FOUND"}', Absent),
        (410, b'{"code": "CASE_DELETED"}', Absent),
        (404, b"<html>not here</html>", CannotTell),
        (200, b"{}", CannotTell),
        (503, b"{}", CannotTell),
        (404, b'{"code": "NO_SUCH_ROUTE"}', CannotTell),
    ],
)
def test_only_the_case_apis_own_word_says_that_a_file_is_not_there(number: int, body: bytes, kind: type) -> None:
    assert type(found_of(reply(number, body))) is kind


def test_a_policy_with_more_than_one_attempt_of_a_message_is_refused() -> None:
    with pytest.raises(InvalidValue, match="it must be 2"):
        CaseApi(url="https://cases.example", policy=Policy(attempts=3))


# what one attempt ends with


@pytest.mark.req("E-02", "E-09", "E-10")
async def test_a_file_is_attached_once_and_recorded_with_its_result(
    evidence: str, conn: Connection, tmp_path: Path
) -> None:
    async with desk(evidence, tmp_path) as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        found = await opened.attempted(made.files[0])
        assert opened.calls == ["request", "attached"]
        assert opened.lines[-1]["key"] == f"evidence:{made.files[0]}"
        assert (found.attachment_status, found.attachment_reference) == ("ATTACHED", "att-1")
    row = one(conn, "SELECT * FROM redrive_evidence.file_job_row WHERE id = %s", made.rows[0])
    assert (row.evidence_status, row.evidence_attached_count) == ("COMPLETED", 1)
    (result,) = events(conn, ATTACH_RESULTS)
    assert (result["status"], result["artifact_id"]) == ("ATTACHED", str(made.files[0]))


@pytest.mark.req("E-02")
@pytest.mark.parametrize("fault", ["lost", "gateway", "garbage", "hang_after"])
async def test_a_file_whose_attachment_is_in_doubt_is_asked_about_and_not_attached_again(
    evidence: str, conn: Connection, tmp_path: Path, fault: str
) -> None:
    async with desk(evidence, tmp_path, fault, simulated={"ignores_keys": True}, timeout_seconds=1.0) as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        found = await opened.attempted(made.files[0])
        assert opened.calls == ["request", "attached", "asked"]
        assert (found.attachment_status, found.attempt_count) == ("ATTACHED", 1)


@pytest.mark.req("E-05", "E-09")
@pytest.mark.parametrize(
    ("fault", "code", "asked"),
    [
        ("reset", "CONNECTION_LOST", True),
        ("hang_before", "ATTACHMENT_API_TIMEOUT", True),
        ("unavailable", "503", False),
        ("throttled", "429", False),
        ("internal", "SYSTEM_ERROR", False),
    ],
)
async def test_a_failed_attempt_calls_once_and_is_recorded_with_its_code(
    evidence: str, conn: Connection, tmp_path: Path, fault: str, code: str, asked: bool
) -> None:
    """What is in doubt has failed once the Case API says that it is not there; no attempt of the engine's follows."""
    async with desk(evidence, tmp_path, fault, simulated={"retry_after": "0"}, timeout_seconds=1.0) as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        found = await opened.attempted(made.files[0])
        assert opened.calls.count("request") == 1
        assert ("asked" in opened.calls) == asked
        assert (found.attachment_error_code, found.is_retryable) == (code, True)
    assert status(conn, made.files[0]) == "FAILED/RETRY_FAILED"
    assert [row.reason for row in every(conn, _PARKED)] == ["dead"]


@pytest.mark.req("E-05")
@pytest.mark.parametrize(("fault", "code"), [("unauthorized", "UNAUTHORIZED"), ("corrupted", "CORRUPTED_FILE")])
async def test_a_permanent_error_ends_the_artifact(
    evidence: str, conn: Connection, tmp_path: Path, fault: str, code: str
) -> None:
    async with desk(evidence, tmp_path, fault) as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        found = await opened.attempted(made.files[0])
        assert (found.attachment_error_code, found.attempt_count) == (code, 1)
    assert status(conn, made.files[0]) == "FAILED/PERMANENT_FAILED"


@pytest.mark.req("E-01", "E-05")
@pytest.mark.parametrize(
    ("change", "code"), [("damage", "CORRUPTED_FILE"), ("cut", "CORRUPTED_FILE"), ("lose", "S3_NOT_FOUND")]
)
async def test_the_stored_file_is_checked_again_before_the_call(
    evidence: str, conn: Connection, tmp_path: Path, change: str, code: str
) -> None:
    async with desk(evidence, tmp_path) as opened:
        made = stored_upload(conn, opened.files, 1)
        key = artifact(conn, made.files[0]).s3_key
        content = opened.files.stored.pop(key)
        if change != "lose":
            opened.files.stored[key] = content[:-1] + (b"" if change == "cut" else b"?")
        await request(evidence)
        found = await opened.attempted(made.files[0])
        assert opened.calls == []
        assert found.attachment_error_code == code
    assert status(conn, made.files[0]) == "FAILED/PERMANENT_FAILED"


# retries


@pytest.mark.req("E-02", "E-03")
async def test_a_retry_asks_first_and_finds_what_an_attempt_attached_that_counted_as_failed(
    evidence: str, conn: Connection, tmp_path: Path
) -> None:
    """The Case API said 500 although it had attached the file, and would attach a second one."""
    async with desk(evidence, tmp_path, "attached_500", simulated={"ignores_keys": True}) as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        assert (await opened.attempted(made.files[0])).attachment_error_code == "500"
        retry(conn, made.files)
        await request(evidence, FAILED_REQUESTS)
        assert status(conn, made.files[0]) == "FAILED/RETRYING"
        await opened.attempted(made.files[0], times=2)
        assert opened.calls == ["request", "attached", "asked"]
    assert status(conn, made.files[0]) == "ATTACHED/RETRY_SUCCESS"


@pytest.mark.req("E-02", "E-04")
async def test_a_retry_of_what_is_not_there_attaches_it_under_the_same_key(
    evidence: str, conn: Connection, tmp_path: Path
) -> None:
    async with desk(evidence, tmp_path, "unavailable", "unavailable") as opened:
        made = stored_upload(conn, opened.files, 1)
        await request(evidence)
        for attempt in (2, 3):
            await opened.attempted(made.files[0], times=attempt - 1)
            retry(conn, made.files)
            await request(evidence, FAILED_REQUESTS)
        await opened.attempted(made.files[0], times=3)
        assert len({line["key"] for line in opened.lines}) == 1
        assert opened.calls.count("attached") == 1
        assert [line["attempt"] for line in opened.lines if line["log"] == "request"] == [1, 2, 3]
    keys = [
        row.key for row in every(conn, "SELECT key FROM redrive.message WHERE destination = 'case-api' ORDER BY id")
    ]
    assert keys == [f"evidence:{made.files[0]}:{number}" for number in (1, 2, 3)]
    assert status(conn, made.files[0]) == "ATTACHED/RETRY_SUCCESS"


# what may not be attempted any more


@pytest.mark.req("E-10")
@pytest.mark.parametrize("gone", ["missing", "deleted"])
async def test_a_case_that_is_gone_ends_its_other_files_without_a_call(
    evidence: str, conn: Connection, tmp_path: Path, gone: str
) -> None:
    """Also those whose messages wait already: they are asked for one after the other here."""
    async with desk(evidence, tmp_path, simulated={"missing": _Missing()}, concurrency=1) as opened:
        made = stored_upload(conn, opened.files, 4)
        await request(evidence)
        for id in made.files:
            await opened.attempted(id)
        assert opened.calls == ["request", "refused"]
    assert {status(conn, id) for id in made.files} == {"FAILED/PERMANENT_FAILED"}
    assert {artifact(conn, id).attachment_error_code for id in made.files} == {"CASE_NOT_FOUND"}


class _Missing(frozenset[str]):
    """No case exists."""

    def __contains__(self, _: object) -> bool:
        return True


@pytest.mark.req("E-06")
@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("UPDATE redrive_evidence.file_job SET n1_sent_at = now() - interval '25 h'", "NOT_ATTEMPTED"),
        ("UPDATE redrive_evidence.file_job SET n1_sent_at = now(), n2_sent_at = now()", "ATTEMPT_OVER"),
        ("UPDATE redrive_evidence.file_job_artifact SET open_attempt = NULL", "ATTEMPT_OVER"),
        ("UPDATE redrive_evidence.artifact_attempt SET message_id = gen_random_uuid()", "ATTEMPT_UNKNOWN"),
    ],
    ids=["late", "closed", "counted", "unknown"],
)
async def test_an_attempt_that_may_not_be_made_any_more_makes_no_call(
    evidence: str, conn: Connection, tmp_path: Path, change: str, answer: str
) -> None:
    async with desk(evidence, tmp_path) as opened:
        stored_upload(conn, opened.files, 1)
        conn.execute("SELECT redrive.pause_1('case-api', 'anna', 'a test')")
        await request(evidence)
        conn.execute(change.encode())
        conn.execute("SELECT redrive.resume_1('case-api', 'anna', 'a test')")
        found = await opened.until(lambda: every(conn, _PARKED))
        assert [(row.reason, row.error_class) for row in found] == [("dead", answer)]
        assert opened.calls == []
