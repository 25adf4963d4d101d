"""Upload: one job with rows, artifacts, objects and first events, or nothing of all that; each archive once."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

from redrive.errors import InvalidValue, SettingsError
from redrive.kit.database import connected, open_database
from redrive.kit.statements import Steps, run
from redrive.systems.evidence.problems import UploadRefused
from redrive.systems.evidence.storage import Storage, key_of, storage_of
from redrive.systems.evidence.sweep import Swept, check_sweep, sweep
from redrive.systems.evidence.upload_limits import UploadLimits
from redrive.systems.evidence.uploading import Transact, Upload, UploadConflict, Uploaded, upload
from tests.systems.evidence.archives import CASE, HOSTILE, OTHER, PDF, PNG, written, zipped

T = TypeVar("T")
TABLES = ("file_job", "file_job_row", "file_job_artifact", "row_event")
LINES = f"case_id,files\n{CASE},a.pdf|x/b.png\n{OTHER},\n"
FILES = {"a.pdf": PDF, "x/b.png": PNG}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_of((tmp_path / "store").as_uri())


@pytest.fixture
def transact(evidence: str) -> Transact:
    def in_one(steps: Steps[T]) -> T:
        with connected(evidence, name="test") as conn:
            return run(conn, steps)

    return in_one


@pytest.fixture
def asked(tmp_path: Path) -> Upload:
    return Upload(archive=written(tmp_path, zipped(FILES, LINES)), merchant_id="shop-7", idempotency_key="may")


def keys(storage: Storage) -> list[str]:
    return sorted(one.key for one in storage.objects())


def counts(conn: psycopg.Connection[Any]) -> list[int]:
    said = [conn.execute(f"SELECT count(*) AS n FROM redrive_evidence.{table}".encode()).fetchone() for table in TABLES]
    return [row.n for row in said if row]


@pytest.mark.req("E-01")
async def test_an_upload_is_a_job_with_rows_artifacts_objects_and_events(
    conn: psycopg.Connection[Any], transact: Transact, storage: Storage, asked: Upload
) -> None:
    done = upload(transact, storage, asked)
    assert (done.rows, done.artifacts, done.already_existed) == (2, 2, False)
    job = conn.execute("SELECT * FROM redrive_evidence.file_job").fetchone()
    assert job is not None
    archive = asked.archive.read_bytes()
    assert (job.id, job.archive_name, job.archive_sha256) == (
        done.file_job_id,
        "evidence.zip",
        hashlib.sha256(archive).hexdigest(),
    )
    assert (job.archive_size_bytes, job.merchant_id, job.idempotency_key) == (len(archive), "shop-7", "may")
    rows = conn.execute("SELECT * FROM redrive_evidence.file_job_row ORDER BY row_number").fetchall()
    assert [(row.row_number, row.case_id, row.evidence_count, row.evidence_status) for row in rows] == [
        (2, CASE, 2, "PENDING"),
        (3, OTHER, 0, "COMPLETED"),
    ]
    files = conn.execute("SELECT * FROM redrive_evidence.file_job_artifact ORDER BY file_name").fetchall()
    assert [(one.file_name, one.file_type, one.file_size_bytes) for one in files] == [
        ("a.pdf", "application/pdf", len(PDF)),
        ("x/b.png", "image/png", len(PNG)),
    ]
    assert [one.s3_key for one in files] == [key_of(done.file_job_id, one.id) for one in files]
    assert keys(storage) == sorted(one.s3_key for one in files)
    for one, data in zip(files, (PDF, PNG), strict=True):
        assert b"".join([chunk async for chunk in storage.chunks(one.s3_key)]) == data
        assert (one.sha256, one.file_size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    events = conn.execute("SELECT event_type FROM redrive_evidence.row_event").fetchall()
    assert [row.event_type for row in events] == ["EVIDENCE_ATTACH_REQUEST"]


@pytest.mark.req("E-01")
def test_the_same_archive_under_the_same_key_is_one_job(
    conn: psycopg.Connection[Any], transact: Transact, storage: Storage, asked: Upload
) -> None:
    first = upload(transact, storage, asked)
    before, stored = counts(conn), keys(storage)
    again = upload(transact, storage, asked)
    assert again == Uploaded(first.file_job_id, 2, 2, first.archive_sha256, already_existed=True)
    assert (counts(conn), keys(storage)) == (before, stored)


def test_the_key_of_an_upload_is_the_checksum_of_its_archive_unless_given(
    transact: Transact, storage: Storage, tmp_path: Path
) -> None:
    path = written(tmp_path, zipped(FILES, LINES))
    first = upload(transact, storage, Upload(archive=path, merchant_id="shop-7"))
    assert upload(transact, storage, Upload(archive=path, merchant_id="shop-7")).file_job_id == first.file_job_id


def test_another_archive_under_the_same_key_is_refused_and_leaves_nothing(
    conn: psycopg.Connection[Any], transact: Transact, storage: Storage, asked: Upload, tmp_path: Path
) -> None:
    first = upload(transact, storage, asked)
    before, stored = counts(conn), keys(storage)
    other = written(tmp_path, zipped({**FILES, "a.pdf": PDF + b"more"}, LINES), "other.zip")
    with pytest.raises(UploadConflict) as caught:
        upload(transact, storage, Upload(archive=other, merchant_id="shop-7", idempotency_key="may"))
    assert caught.value.file_job_id == first.file_job_id
    assert (counts(conn), keys(storage)) == (before, stored)


@pytest.mark.parametrize("is_same", [True, False])
def test_of_two_uploads_at_once_one_stores_and_the_other_takes_its_objects_back(
    is_same: bool,
    conn: psycopg.Connection[Any],
    transact: Transact,
    storage: Storage,
    asked: Upload,
    tmp_path: Path,
) -> None:
    archive = zipped(FILES if is_same else {**FILES, "a.pdf": PDF + b"more"}, LINES)
    other = Upload(archive=written(tmp_path, archive, "b.zip"), merchant_id="shop-7", idempotency_key="may")
    firsts: list[Uploaded] = []

    def overtaken(steps: Steps[T]) -> T:
        """The other upload happens between our question and our insert."""
        answer = transact(steps)
        if not firsts:
            firsts.append(upload(transact, storage, other))
        return answer

    if is_same:
        done = upload(overtaken, storage, asked)
        assert (done.file_job_id, done.already_existed) == (firsts[0].file_job_id, True)
    else:
        with pytest.raises(UploadConflict):
            upload(overtaken, storage, asked)
    assert counts(conn)[0] == 1
    assert len(keys(storage)) == 2
    assert all(str(firsts[0].file_job_id) in key for key in keys(storage))


@pytest.mark.req("E-01")
@pytest.mark.parametrize("name", ["a wrong checksum", "a symbolic link", "an archive in the archive"])
def test_a_refused_upload_leaves_no_row_and_no_object(
    name: str, conn: psycopg.Connection[Any], transact: Transact, storage: Storage, tmp_path: Path
) -> None:
    path = written(tmp_path, HOSTILE[name][1]())
    with pytest.raises(UploadRefused):
        upload(transact, storage, Upload(archive=path, merchant_id="shop-7"))
    assert counts(conn) == [0, 0, 0, 0]
    assert keys(storage) == []


class Failing:
    """A store whose second file cannot be written, or is interrupted."""

    def __init__(self, error: BaseException, at: int = 2) -> None:
        self.error, self.at, self.calls = error, at, 0

    def put(self) -> Callable[[Storage, str, Any], Any]:
        def put(storage: Storage, key: str, chunks: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            return REAL_PUT(storage, key, chunks)

        return put


REAL_PUT = Storage.put


@pytest.mark.req("E-01")
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk full", "interrupted"])
def test_an_upload_that_fails_between_two_files_leaves_nothing(
    error: BaseException,
    conn: psycopg.Connection[Any],
    transact: Transact,
    storage: Storage,
    asked: Upload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(error)
    monkeypatch.setattr(Storage, "put", failing.put())
    with pytest.raises(type(error)):
        upload(transact, storage, asked)
    assert failing.calls == 2
    assert (counts(conn), keys(storage)) == ([0, 0, 0, 0], [])


def same_crc(data: bytes, wanted: int) -> bytes:
    """The data and four bytes more, so chosen that the CRC-32 is the wanted one: its steps are run backwards."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB8_8320 if value & 1 else 0)  # noqa: PLW2901 - a shift register
        table.append(value)
    state, steps = wanted ^ 0xFFFF_FFFF, []
    for _ in range(4):
        steps.append(next(index for index, value in enumerate(table) if value >> 24 == state >> 24))
        state = (state ^ table[steps[-1]]) << 8 & 0xFFFF_FFFF
    state, ending = zlib.crc32(data) ^ 0xFFFF_FFFF, bytearray()
    for index in reversed(steps):
        ending.append((state ^ index) & 0xFF)
        state = table[index] ^ state >> 8
    return data + bytes(ending)


@pytest.mark.parametrize("rule", ["FILE_DAMAGED", "FILE_CHANGED"])
def test_an_archive_that_changes_between_check_and_storing_is_refused(
    rule: str, conn: psycopg.Connection[Any], transact: Transact, storage: Storage, tmp_path: Path
) -> None:
    before = PDF + bytes(500_000)
    after = PDF + b"\1" + bytes(499_999)
    if rule == "FILE_CHANGED":
        after = same_crc(after[:-4], zlib.crc32(before))
    first, second = (zipped({**FILES, "a.pdf": data}, LINES, method=zipfile.ZIP_STORED) for data in (before, after))
    assert len(first) == len(second)
    path = written(tmp_path, first)

    def changing(steps: Steps[T]) -> T:
        with path.open("r+b") as opened:
            opened.write(second)
        return transact(steps)

    with pytest.raises(UploadRefused) as caught:
        upload(changing, storage, Upload(archive=path, merchant_id="shop-7"))
    assert [one.rule for one in caught.value.problems] == [rule]
    assert (counts(conn), keys(storage)) == ([0, 0, 0, 0], [])


def test_an_upload_that_takes_too_long_is_given_up(
    conn: psycopg.Connection[Any], transact: Transact, storage: Storage, asked: Upload
) -> None:
    times = iter([0.0, 61.0])
    with pytest.raises(UploadRefused, match="UPLOAD_TOO_SLOW"):
        upload(transact, storage, asked, limits=UploadLimits(upload_seconds_max=60), clock=lambda: next(times))
    assert (counts(conn), keys(storage)) == ([0, 0, 0, 0], [])


@pytest.mark.parametrize(
    ("field", "value"),
    [("merchant_id", ""), ("merchant_id", "x" * 201), ("merchant_id", "a\nb"), ("idempotency_key", "x" * 501)],
)
def test_a_field_outside_its_bounds_is_refused(
    field: str, value: str, transact: Transact, storage: Storage, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"merchant_id": "shop-7", field: value}
    with pytest.raises(InvalidValue, match=field):
        upload(transact, storage, Upload(archive=written(tmp_path, zipped()), **values))


def unknown_commit(transact: Transact) -> Callable[[Steps[Any]], Any]:
    """Commits, and loses the answer."""
    asked = []

    def lossy(steps: Steps[Any]) -> Any:
        answer = transact(steps)
        asked.append(answer)
        if len(asked) == 2:
            raise ConnectionError("lost")
        return answer

    return lossy


async def swept(dsn: str, storage: Storage, now: datetime) -> Swept:
    async with open_database(dsn) as database:
        return await sweep(database, storage, now=now)


@pytest.mark.req("E-01")
async def test_objects_of_a_job_stay_although_its_upload_did_not_hear_of_the_commit(
    evidence: str, conn: psycopg.Connection[Any], transact: Transact, storage: Storage, asked: Upload
) -> None:
    lossy: Transact = unknown_commit(transact)
    with pytest.raises(ConnectionError):
        upload(lossy, storage, asked)
    stored = keys(storage)
    assert (counts(conn)[0], len(stored)) == (1, 2)
    assert await swept(evidence, storage, datetime.now(UTC) + timedelta(days=2)) == Swept(0, 0)
    assert keys(storage) == stored
    assert upload(transact, storage, asked).already_existed


@pytest.fixture
def orphan(storage: Storage) -> str:
    key = key_of(UUID(int=1), UUID(int=2))
    storage.put(key, [b"left"])
    return key


@pytest.mark.req("E-01")
async def test_the_sweep_removes_objects_without_a_job_once_they_are_a_day_old(
    evidence: str, transact: Transact, storage: Storage, asked: Upload, orphan: str
) -> None:
    upload(transact, storage, asked)
    storage.put("uploads/foreign/file", [b"x"])
    assert await swept(evidence, storage, datetime.now(UTC) + timedelta(hours=23)) == Swept(0, 0)
    assert orphan in keys(storage)
    assert await swept(evidence, storage, datetime.now(UTC) + timedelta(hours=25)) == Swept(1, 0)
    assert orphan not in keys(storage)
    assert len(keys(storage)) == 3


async def test_the_sweep_uses_the_time_of_the_database(evidence: str, storage: Storage, orphan: str) -> None:
    async with open_database(evidence) as database:
        assert await sweep(database, storage) == Swept(0, 0)
        assert await sweep(database, storage, after=timedelta(seconds=-60)) == Swept(1, 0)


def test_an_upload_ends_long_before_its_objects_are_swept() -> None:
    check_sweep(UploadLimits())
    with pytest.raises(SettingsError, match="upload_seconds_max"):
        check_sweep(UploadLimits(upload_seconds_max=12 * 3600 + 1))
