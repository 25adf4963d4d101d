"""Storage: written whole or not at all, hashed on the way and checked again; a directory, memory and S3 (moto)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore

from redrive.errors import SettingsError, Unreachable
from redrive.systems.evidence.storage import PART_BYTES, Storage, StoredFileMissing, key_of, storage_of

KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1", "allow_http": True}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server with the bucket `evidence`."""
    import boto3

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    client.create_bucket(Bucket="evidence")
    client.close()
    try:
        yield address
    finally:
        server.stop()


@pytest.fixture(params=["directory", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "directory":
        return storage_of((tmp_path / "store").as_uri())
    if request.param == "memory":
        return Storage(MemoryStore())
    return storage_of(f"s3://evidence/{uuid4()}", {"endpoint": request.getfixturevalue("s3"), **KEYS})


def new_key() -> str:
    return key_of(uuid4(), uuid4())


async def content(storage: Storage, key: str) -> bytes:
    return b"".join([chunk async for chunk in storage.chunks(key)])


def keys(storage: Storage) -> list[str]:
    return sorted(one.key for one in storage.objects())


@pytest.mark.req("E-01")
@pytest.mark.parametrize("size", [0, 9, PART_BYTES, 2 * PART_BYTES + 1])
async def test_a_file_comes_back_as_it_was_hashed_on_its_way(storage: Storage, size: int) -> None:
    data, key = os.urandom(size), new_key()
    stored = storage.put(key, (data[at : at + 100_000] for at in range(0, size, 100_000)))
    assert (stored.key, stored.size_bytes, stored.sha256) == (key, size, hashlib.sha256(data).hexdigest())
    assert await content(storage, key) == data


async def test_a_file_that_is_not_there_is_missing(storage: Storage) -> None:
    with pytest.raises(StoredFileMissing) as caught:
        await content(storage, new_key())
    assert caught.value.code == "S3_NOT_FOUND"


def test_a_file_that_ends_in_an_error_leaves_no_object(storage: Storage) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(2 * PART_BYTES)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        storage.put(new_key(), broken())
    assert keys(storage) == []
    if storage.root is not None:
        assert [one for one in storage.root.rglob("*") if one.is_file()] == []


def test_objects_are_listed_with_their_upload_and_removed(storage: Storage) -> None:
    job = uuid4()
    kept, removed = key_of(job, uuid4()), key_of(job, uuid4())
    for key in (kept, removed, "uploads/foreign/file", "elsewhere"):
        storage.put(key, [b"x"])
    listed = {one.key: one.file_job_id for one in storage.objects()}
    assert listed == {kept: job, removed: job, "uploads/foreign/file": None}
    storage.remove([removed, removed, new_key()])
    assert keys(storage) == sorted([kept, "uploads/foreign/file"])
    assert all(one.modified_at.tzinfo for one in storage.objects())


def test_a_file_whose_writer_died_is_removed_once_it_is_old(tmp_path: Path) -> None:
    storage = storage_of(tmp_path.as_uri())
    partial = tmp_path / f"{new_key()}#1"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"half")
    now = datetime.now(UTC)
    assert storage.remove_partial(before=now - timedelta(hours=1)) == 0
    assert partial.exists()
    assert storage.remove_partial(before=now + timedelta(hours=1)) == 1
    assert not partial.exists()


@pytest.mark.parametrize("url", ["", "evidence", "http://127.0.0.1/x", "file://host/x", "s3:///x", "file:"])
def test_an_unknown_address_is_refused(url: str) -> None:
    with pytest.raises(SettingsError):
        storage_of(url)


def test_an_unknown_option_is_refused_without_its_value() -> None:
    with pytest.raises(SettingsError) as caught:
        storage_of("s3://evidence", {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_server_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
    away = storage_of("s3://evidence", {"endpoint": "http://127.0.0.1:9", "retry_config": once, **KEYS})
    with pytest.raises(Unreachable) as caught:
        away.put(new_key(), [b"x"])
    assert "test" not in str(caught.value)
