"""`redrive evidence upload|show|lineage|retry`, and the console's lists."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner, Result

import redrive
from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import titled
from tests.systems.evidence.archives import CASE, HOSTILE, OTHER, PDF, PNG, written, zipped
from tests.systems.evidence.conftest import attempt, eligible, record
from tools import documents

Run = Callable[..., Result]
LINES = f"case_id,files\n{CASE},a.pdf|x/b.png\n{OTHER},\n"


@pytest.fixture
def run(evidence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """The command line on the test's database; what it prints with `--json` is compared with its schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVIDENCE_STORAGE", (tmp_path / "store").as_uri())
    printed = output.document

    def document(name: str, values: Any, **options: Any) -> None:
        documents.seen(name, titled(name, values))
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)
    root = logging.getLogger()
    level = root.level
    yield lambda *arguments: CliRunner().invoke(cli, ["--dsn", evidence, "evidence", *map(str, arguments)])
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return written(tmp_path, zipped({"a.pdf": PDF, "x/b.png": PNG}, LINES), "may.zip")


def said(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def uploaded(run: Run, archive: Path) -> UUID:
    done = said(run("upload", archive, "--merchant", "shop-7", "--notify-mail", "ada@example.org", "--json"))
    return UUID(done["file_job_id"])


def files_of(run: Run, job: UUID) -> dict[str, UUID]:
    shown = said(run("show", job, "--artifacts", "--json"))
    return {one["file_name"]: UUID(one["artifact_id"]) for one in shown["artifacts"]}


@pytest.mark.req("E-01")
def test_upload_says_which_job_it_became_and_that_it_was_there_before(run: Run, archive: Path) -> None:
    first = said(run("upload", archive, "--merchant", "shop-7", "--json"))
    assert {name: first[name] for name in ("rows", "artifacts", "already_existed")} == {
        "rows": 2,
        "artifacts": 2,
        "already_existed": False,
    }
    again = run("upload", archive, "--merchant", "shop-7")
    assert again.exit_code == 0
    assert first["file_job_id"] in again.stdout
    assert "It was uploaded before." in again.stderr


@pytest.mark.req("E-01")
@pytest.mark.parametrize("how", ["--check", "--merchant=shop-7"])
def test_a_bad_archive_is_listed_with_file_line_and_rule(
    how: str, run: Run, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    lines = f"case_id,files\nx,a.pdf\n{CASE},=1+1.pdf\n"
    path = written(tmp_path, zipped({"a.pdf": PDF}, lines), "may.zip")
    found = said(run("upload", path, how, "--json", "--report", "problems.csv"), 6)
    assert [(one["file"], one["line"], one["rule"]) for one in found["items"]] == [
        ("cases.csv", 2, "CASE_ID_INVALID"),
        ("cases.csv", 3, "FILE_MISSING"),
        ("a.pdf", None, "FILE_NOT_MENTIONED"),
    ]
    assert found["found"] == 3
    report = (tmp_path / "problems.csv").read_text().splitlines()
    assert report[0] == "file,line,rule,detail"
    assert len(report) == 4
    shown = run("upload", path, how)
    assert shown.exit_code == 6
    assert "CASE_ID_INVALID" in shown.stdout
    assert "Nothing was stored: 3 problems." in shown.stderr
    assert conn.execute("SELECT count(*) FROM redrive_evidence.file_job").fetchone() == (0,)
    assert not list((tmp_path / "store").rglob("*.*"))


def test_check_of_a_good_archive_stores_nothing_and_needs_no_database(archive: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["--dsn", "postgresql://127.0.0.1:9/x", "evidence", "upload", str(archive), "--check"]
    )
    assert result.exit_code == 0
    assert "Nothing is wrong: 2 rows with 2 files." in result.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["may.zip"]


def test_names_of_a_hostile_archive_are_printed_harmlessly(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, zipped({"\x1b[2J\u202e.pdf": PDF}), "may.zip")
    shown = run("upload", path, "--check")
    assert shown.exit_code == 6
    assert "\x1b" not in shown.output
    assert "\u202e" not in shown.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("upload", "may.zip"), 2, "--merchant is missing"),
        (("upload", "none.zip", "--merchant", "m"), 6, "ARCHIVE_UNREADABLE"),
        (("upload", "may.zip", "--merchant", "m", "--storage", "ftp://x"), 2, "The storage has an address"),
        (("upload", "may.zip", "--merchant", "x" * 201), 2, "merchant_id"),
        (("show", str(CASE)), 3, "There is no evidence job"),
        (("lineage", str(CASE)), 3, "There is no artifact"),
        (("retry", str(CASE), "--reason", "because"), 3, "There is no evidence job"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(
    arguments: tuple[str, ...], code: int, words: str, run: Run, archive: Path
) -> None:
    result = run(*arguments)
    assert (result.exit_code, words in result.output) == (code, True), result.output


def test_no_storage_is_named(run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVIDENCE_STORAGE")
    result = run("upload", archive, "--merchant", "shop-7")
    assert result.exit_code == 2
    assert "EVIDENCE_STORAGE" in result.stderr


def test_a_key_that_was_used_for_another_archive_is_refused(run: Run, archive: Path, tmp_path: Path) -> None:
    assert run("upload", archive, "--merchant", "shop-7", "--key", "may").exit_code == 0
    other = written(tmp_path, zipped(), "other.zip")
    result = run("upload", other, "--merchant", "shop-7", "--key", "may")
    assert result.exit_code == 2
    assert "was used for another archive" in result.stderr


@pytest.mark.req("E-01")
def test_show_lists_jobs_and_one_job_with_rows_files_and_timeline(
    run: Run, archive: Path, conn: psycopg.Connection[Any]
) -> None:
    job = uploaded(run, archive)
    attempt(conn, files_of(run, job)["a.pdf"], "503")
    listed = said(run("show", "--limit", 1, "--json"))
    assert listed["next"] == str(job)
    assert [(one["progress"], one["rows"], one["artifacts"], one["failed"]) for one in listed["items"]] == [
        ("attaching", 2, 2, 1)
    ]
    shown = said(run("show", job, "--artifacts", "--timeline", "--json"))
    assert [(one["row_number"], one["evidence_status"]) for one in shown["rows"]] == [(2, "PENDING"), (3, "COMPLETED")]
    assert [(one["what"], one["outcome"]) for one in shown["timeline"]][-1] == ("EVIDENCE_ATTACH_REQUEST", None)
    assert {"attempt 1", "EvidenceArtifactResult"} <= {one["what"] for one in shown["timeline"]}
    text = run("show", job, "--artifacts", "--timeline").stdout
    for word in ("may.zip", "shop-7", str(CASE), "x/b.png", "RETRY_FAILED", "503", "EVIDENCE_ATTACH_REQUEST"):
        assert word in text
    assert str(job) in run("show").stdout


def real_attempt(conn: psycopg.Connection[Any], artifact: UUID, code: str | None) -> UUID:
    """An attempt whose message is one of the engine, which is cancelled: the engine's history has it."""
    number = eligible(conn, [artifact])[artifact]
    with conn.transaction():
        message = redrive.enqueue(conn, "case-api", {"artifact": str(artifact)}, key=f"{artifact}:{number}").id
        conn.execute("SELECT redrive_evidence.begin_attempt_1(%s, %s, %s)", (artifact, number, message))
    conn.execute("SELECT redrive.cancel_1(%s, p_actor => 'ada', p_reason => 'test')", (message,))
    assert record(conn, message, code) == "recorded"
    return message


@pytest.mark.req("E-01")
def test_lineage_goes_from_the_archive_to_the_events(run: Run, archive: Path, conn: psycopg.Connection[Any]) -> None:
    job = uploaded(run, archive)
    artifact = files_of(run, job)["x/b.png"]
    message = real_attempt(conn, artifact, "503")
    shown = said(run("lineage", artifact, "--json"))
    origin = shown["origin"]
    assert (origin["archive_name"], origin["file_job_id"]) == ("may.zip", str(job))
    assert (origin["row_number"], origin["case_id"], origin["file_name"]) == (2, str(CASE), "x/b.png")
    assert origin["s3_key"] == f"uploads/{job}/{artifact}"
    assert [(one["what"], one["outcome"], one["error_code"]) for one in shown["messages"]] == [
        ("EVIDENCE_ATTACH_REQUEST", None, None),
        ("attempt 1", "FAILED", "503"),
        ("EvidenceArtifactResult", "FAILED", "503"),
    ]
    assert [one["state"] for one in shown["messages"]] == ["pending", "cancelled", "pending"]
    assert {(one["message_id"], one["number"], one["verb"]) for one in shown["attempts"]} == {
        (str(message), 1, "cancel")
    }
    text = run("lineage", artifact).stdout
    for word in ("may.zip", "line 2", str(CASE), "x/b.png", "EvidenceArtifactResult", "503", "cancel by ada"):
        assert word in text
    other = run("lineage", files_of(run, job)["a.pdf"]).stdout
    assert "attempt 1" not in other


@pytest.mark.req("E-11")
def test_retry_requeues_what_may_be_tried_again(run: Run, archive: Path, conn: psycopg.Connection[Any]) -> None:
    job = uploaded(run, archive)
    files = files_of(run, job)
    refused = run("retry", job, "--reason", "because")
    assert refused.exit_code == 5
    assert "has attempts left" in refused.stderr
    attempt(conn, files["a.pdf"], "503")
    attempt(conn, files["x/b.png"], "CORRUPTED_FILE")
    done = said(run("retry", job, "--reason", "it is back", "--json"))
    assert (done["rows"], done["artifacts"]) == (1, 1)
    states = {
        one["file_name"]: one["retry_status"] for one in said(run("show", job, "--artifacts", "--json"))["artifacts"]
    }
    assert states == {"a.pdf": "RETRY_SCHEDULED", "x/b.png": "PERMANENT_FAILED"}


@pytest.mark.req("E-11")
def test_the_retries_of_a_case_are_listed(
    run: Run, archive: Path, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """In all its jobs, and of no other case."""
    job = uploaded(run, archive)
    files = files_of(run, job)
    attempt(conn, files["a.pdf"], "CORRUPTED_FILE")
    attempt(conn, files["x/b.png"], "503")
    said(run("retry", job, "--reason", "it is back", "--json"))
    attempt(conn, files["x/b.png"], at=datetime.now(UTC))
    other = zipped({"c.pdf": PDF, "d.pdf": PDF}, f"case_id,files\n{CASE},c.pdf\n{uuid4()},d.pdf\n")
    second = uploaded(run, written(tmp_path, other, "june.zip"))
    listed = said(run("show", "--case", CASE, "--json"))["items"]
    assert sorted((one["what"], one["outcome"] or "", one["file_name"] or "") for one in listed) == [
        ("EVIDENCE_ATTACH_REQUEST", "", ""),
        ("EVIDENCE_ATTACH_REQUEST", "", ""),
        ("EVIDENCE_ATTACH_RETRY", "", ""),
        ("EvidenceArtifactResult", "ATTACHED", "x/b.png"),
        ("EvidenceArtifactResult", "FAILED", "a.pdf"),
        ("EvidenceArtifactResult", "FAILED", "x/b.png"),
        ("attempt 1", "FAILED", "a.pdf"),
        ("attempt 1", "FAILED", "x/b.png"),
        ("attempt 2", "ATTACHED", "x/b.png"),
    ]
    assert {one["file_job_id"] for one in listed} == {str(job), str(second)}
    assert {one["retries"] for one in listed if one["file_name"] == "x/b.png"} == {1}
    page = said(run("show", "--case", CASE, "--limit", 4, "--json"))
    rest = said(run("show", "--case", CASE, "--before", page["next"], "--json"))
    assert [*page["items"], *rest["items"]] == listed
    text = run("show", "--case", CASE).stdout
    for word in ("attempt 2", "EVIDENCE_ATTACH_RETRY", str(second), "x/b.png"):
        assert word in text
    assert run("show", job, "--case", CASE).exit_code == 2
    assert said(run("show", "--case", CASE, "--tenant", "other", "--json"))["items"] == []


def test_commands_of_one_tenant_do_not_show_another(run: Run, archive: Path) -> None:
    job = uploaded(run, archive)
    artifact = files_of(run, job)["a.pdf"]
    assert said(run("show", "--tenant", "other", "--json"))["items"] == []
    assert run("show", job, "--tenant", "other").exit_code == 3
    assert run("lineage", artifact, "--tenant", "other").exit_code == 3
    assert run("retry", job, "--tenant", "other", "--reason", "because").exit_code == 3


def test_a_hostile_archive_is_refused_by_the_command(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, HOSTILE["a bomb by ratio"][1](), "bomb.zip")
    assert said(run("upload", path, "--merchant", "shop-7", "--json"), 6)["items"][0]["rule"] == "COMPRESSION_RATIO"


def test_an_id_that_is_none_is_wrong_usage(run: Run) -> None:
    assert run("show", "x").exit_code == 2
    assert run("show", str(uuid4()), "--limit", "0").exit_code == 2
