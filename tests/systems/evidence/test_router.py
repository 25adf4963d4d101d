"""Evidence over HTTP by role and tenant, and the console's lists."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.middleware import BODY_BYTES_MAX
from redrive.operate.web.principal import Role
from redrive.system import discover
from redrive.systems.evidence import http_upload
from redrive.systems.evidence.upload_limits import UploadLimits
from redrive.systems.evidence.views import VIEWS
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.evidence.archives import CASE, OTHER, PDF, PNG, zipped
from tests.systems.evidence.conftest import attempt

LINES = f"case_id,files\n{CASE},a.pdf|x/b.png\n{OTHER},\n"
LARGE = PDF + bytes(range(256)) * 2000
ARCHIVE = zipped({"a.pdf": LARGE, "x/b.png": PNG}, LINES, method=0)
JOBS = "/api/v1/evidence/jobs"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are stored; uploads are received in a folder of their own."""
    (tmp_path / "received").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "received"))
    monkeypatch.setenv("EVIDENCE_STORAGE", (tmp_path / "store").as_uri())
    return tmp_path


@pytest.fixture
async def client(evidence: str) -> AsyncIterator[Any]:
    systems = {"evidence": discover()["evidence"]}
    async with asking(create_app(evidence, AuthConfig(origin=ORIGIN), systems=systems)) as client:
        client.house = House(evidence)
        yield client


async def as_(client: Any, role: Role, tenant: str = "*") -> dict[str, str]:
    return bearer(await client.house.token(role, tenant))


async def post(client: Any, who: dict[str, str], data: bytes = ARCHIVE, key: str = "may", **query: str) -> Any:
    headers = {**who, "Idempotency-Key": key, "Content-Type": "application/zip"}
    return await client.post(JOBS, params={"merchant_id": "shop-7", **query}, content=data, headers=headers)


def left(place: Path) -> tuple[int, int]:
    """Files that are stored, and received files that are still there."""
    stored = [one for one in (place / "store").rglob("*") if one.is_file()]
    return len(stored), len(list((place / "received").iterdir()))


@pytest.mark.req("E-01")
async def test_an_archive_beyond_the_bound_of_other_bodies_is_uploaded_once(client: Any, place: Path) -> None:
    assert len(ARCHIVE) > BODY_BYTES_MAX
    operator = await as_(client, Role.OPERATOR)
    first, again = await post(client, operator), await post(client, operator)
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json()["file_job_id"] == again.json()["file_job_id"]
    assert (first.json()["rows"], first.json()["artifacts"]) == (2, 2)
    assert left(place) == (2, 0)
    other = await post(client, operator, zipped())
    assert (other.status_code, other.json()["code"]) == (409, "UPLOAD_CONFLICT")
    assert other.json()["file_job_id"] == first.json()["file_job_id"]


@pytest.mark.req("E-01")
async def test_a_bad_archive_is_refused_with_all_problems_and_leaves_nothing(client: Any, place: Path) -> None:
    bad = await post(client, await as_(client, Role.OPERATOR), zipped({"a.pdf": PDF}, "case_id,files\nx,a.pdf\n"))
    assert (bad.status_code, bad.json()["code"]) == (422, "UPLOAD_REFUSED")
    assert [(one["file"], one["line"], one["rule"]) for one in bad.json()["problems"]] == [
        ("cases.csv", 2, "CASE_ID_INVALID"),
        ("a.pdf", None, "FILE_NOT_MENTIONED"),
    ]
    assert left(place) == (0, 0)


async def test_an_archive_beyond_its_own_bound_is_refused_while_it_comes(
    client: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_upload, "UploadLimits", lambda: UploadLimits(archive_bytes_max=len(ARCHIVE) - 1))
    answer = await post(client, await as_(client, Role.OPERATOR))
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert left(place) == (0, 0)


async def test_two_uploads_at_once_are_enough(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_upload, "_under_way", http_upload.AT_ONCE_MAX)
    answer = await post(client, await as_(client, Role.OPERATOR))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
    monkeypatch.setattr(http_upload, "_under_way", http_upload.AT_ONCE_MAX - 1)
    assert (await post(client, await as_(client, Role.OPERATOR))).status_code == 201


async def test_a_viewer_uploads_and_retries_nothing(client: Any, place: Path) -> None:
    who = await as_(client, Role.VIEWER)
    assert (await post(client, who)).status_code == 403
    headers = {**who, "Idempotency-Key": "x"}
    assert (await client.post(f"{JOBS}/{CASE}/retries", json={"reason": "x"}, headers=headers)).status_code == 403
    assert left(place) == (0, 0)


async def test_without_a_login_or_a_key_nothing_is_uploaded(client: Any, place: Path) -> None:
    assert (await client.post(JOBS, params={"merchant_id": "m"}, content=ARCHIVE)).status_code == 401
    operator = await as_(client, Role.OPERATOR)
    answer = await client.post(JOBS, params={"merchant_id": "m"}, content=ARCHIVE, headers=operator)
    assert answer.status_code == 422
    assert left(place) == (0, 0)


@pytest.mark.req("E-01")
async def test_job_rows_artifacts_timeline_and_lineage_are_read(client: Any, conn: psycopg.Connection[Any]) -> None:
    job = (await post(client, await as_(client, Role.OPERATOR))).json()["file_job_id"]
    viewer = await as_(client, Role.VIEWER)

    async def get(path: str) -> Any:
        answer = await client.get(path, headers=viewer)
        assert answer.status_code == 200, answer.text
        return answer.json()

    listed = await get(f"{JOBS}?limit=1")
    assert (listed["next"], listed["items"][0]["progress"]) == (job, "attaching")
    shown = await get(f"{JOBS}/{job}")
    assert (shown["merchant_id"], shown["idempotency_key"], shown["artifacts"]) == ("shop-7", "may", 2)
    assert "notify" not in str(shown)
    rows = await get(f"{JOBS}/{job}/rows?limit=1")
    assert ([one["row_number"] for one in rows["items"]], rows["next"]) == ([2], "2")
    assert [one["row_number"] for one in (await get(f"{JOBS}/{job}/rows?after=2"))["items"]] == [3]
    files = (await get(f"{JOBS}/{job}/artifacts"))["items"]
    assert [one["file_name"] for one in files] == ["a.pdf", "x/b.png"]
    attempt(conn, UUID(files[0]["artifact_id"]), "503")
    failed = (await get(f"{JOBS}/{job}/artifacts?status=FAILED"))["items"]
    assert [one["attachment_error_code"] for one in failed] == ["503"]
    timeline = [one["what"] for one in (await get(f"{JOBS}/{job}/timeline"))["items"]]
    assert timeline[-1] == "EVIDENCE_ATTACH_REQUEST"
    lineage = await get(f"/api/v1/evidence/artifacts/{files[0]['artifact_id']}/lineage")
    assert lineage["origin"]["archive_name"] == "evidence.zip"
    assert {"attempt 1", "EvidenceArtifactResult"} <= {one["what"] for one in lineage["messages"]}
    of_case = await get(f"/api/v1/evidence/cases/{CASE}/timeline?limit=2")
    rest = await get(f"/api/v1/evidence/cases/{CASE}/timeline?before={of_case['next']}")
    told = [one["what"] for one in [*of_case["items"], *rest["items"]]]
    assert sorted(told) == ["EVIDENCE_ATTACH_REQUEST", "EvidenceArtifactResult", "attempt 1"]


async def test_a_retry_is_asked_for_or_refused(client: Any, conn: psycopg.Connection[Any]) -> None:
    operator = await as_(client, Role.OPERATOR)
    job = (await post(client, operator)).json()["file_job_id"]

    async def retry(id: object, key: str) -> Any:
        headers = {**operator, "Idempotency-Key": key}
        return await client.post(f"{JOBS}/{id}/retries", json={"reason": "it is back"}, headers=headers)

    assert (await retry(job, "1")).json()["reason"] == "nothing_to_retry"
    assert (await retry(uuid4(), "2")).status_code == 404
    files = conn.execute("SELECT id FROM redrive_evidence.file_job_artifact ORDER BY id").fetchall()
    for artifact, code in zip(files, ("503", "CORRUPTED_FILE"), strict=True):
        attempt(conn, artifact.id, code)
    done = await retry(job, "3")
    assert (done.status_code, done.json()) == (200, {"rows": 1, "artifacts": 1})


async def test_a_tenant_neither_sees_nor_changes_what_is_of_another(client: Any) -> None:
    ours, theirs = await as_(client, Role.OPERATOR, "ours"), await as_(client, Role.OPERATOR, "theirs")
    job = (await post(client, ours, tenant="theirs")).json()["file_job_id"]
    artifact = (await client.get(f"{JOBS}/{job}/artifacts", headers=ours)).json()["items"][0]["artifact_id"]
    for path in (f"{JOBS}/{job}", f"{JOBS}/{job}/rows", f"{JOBS}/{job}/artifacts", f"{JOBS}/{job}/timeline"):
        assert (await client.get(path, headers=ours)).status_code == 200
        assert (await client.get(path, headers=theirs)).status_code == 404
    lineage = f"/api/v1/evidence/artifacts/{artifact}/lineage"
    assert (await client.get(lineage, headers=theirs)).status_code == 404
    of_case = f"/api/v1/evidence/cases/{CASE}/timeline"
    assert (await client.get(of_case, headers=ours)).json()["items"] != []
    assert (await client.get(of_case, headers=theirs)).json()["items"] == []
    assert (await client.get(JOBS, headers=theirs)).json()["items"] == []
    headers = {**theirs, "Idempotency-Key": "x"}
    assert (await client.post(f"{JOBS}/{job}/retries", json={"reason": "x"}, headers=headers)).status_code == 404
    assert (await post(client, theirs)).json()["file_job_id"] != job


@pytest.mark.parametrize("name", VIEWS)
async def test_the_console_has_each_list(name: str, client: Any, conn: psycopg.Connection[Any]) -> None:
    job = (await post(client, await as_(client, Role.OPERATOR))).json()["file_job_id"]
    viewer = {**await as_(client, Role.VIEWER), "Accept": "text/html"}
    page = await client.get(f"/systems/evidence/{name}?search={job}", headers=viewer)
    assert (page.status_code, job in page.text) == (200, True), page.text[:2000]
    if name != "jobs":
        page = await client.get(f"/systems/evidence/{name}?search={CASE}", headers=viewer)
        assert job in page.text
    other = await client.get(f"/systems/evidence/{name}?search={uuid4()}", headers=viewer)
    assert job not in other.text
