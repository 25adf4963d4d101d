"""Hostile archives: each is refused by its rule, with nothing stored and memory and disk bounded (measured)."""

from __future__ import annotations

import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.systems.evidence.checking import check
from redrive.systems.evidence.problems import UploadRefused
from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.upload_limits import UploadLimits
from redrive.systems.evidence.uploading import Transact, Upload, upload
from tests.systems.evidence.archives import HOSTILE, written, zipped

MIB = 2**20
LIMITS = UploadLimits(members_max=200, file_bytes_max=100 * MIB, total_bytes_max=120 * MIB)
MEMORY_MAX = 8 * MIB


def built(build: Callable[[], bytes]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of the names that these archives repeat
        return build()


def never(_: object) -> None:
    pytest.fail("a refused upload reached the database")


def refused_and_measured(path: Path, store: Path) -> tuple[UploadRefused, int]:
    """The refusal, and the most bytes that Python held meanwhile."""
    storage = storage_of(store.as_uri())
    transact: Transact = never  # type: ignore[assignment]
    tracemalloc.start()
    try:
        with pytest.raises(UploadRefused) as caught:
            upload(transact, storage, Upload(archive=path, merchant_id="shop-7"), limits=LIMITS)
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.req("E-01")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_its_rule_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    rule, build = HOSTILE[name]
    path, store = written(tmp_path, built(build)), tmp_path / "store"
    refusal, peak = refused_and_measured(path, store)
    print(f"{name}: {path.stat().st_size} bytes, {rule}, peak of {peak // 1024} KiB")
    assert rule in {one.rule for one in refusal.problems}, refusal
    assert [one for one in store.rglob("*") if one.is_file()] == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evidence.zip", "store"]
    assert peak < MEMORY_MAX
    assert str(refusal).isprintable()


def test_there_are_at_least_25_of_them_and_a_good_archive_passes(tmp_path: Path) -> None:
    assert len(HOSTILE) >= 25
    assert check(written(tmp_path, zipped()), LIMITS).files == 1


@pytest.mark.req("E-01")
def test_a_refusal_names_file_rule_value_and_bound(tmp_path: Path) -> None:
    _, build = HOSTILE["too many members"]
    with pytest.raises(UploadRefused) as caught:
        check(written(tmp_path, build()), LIMITS)
    assert str(caught.value) == "'evidence.zip': TOO_MANY_MEMBERS: it has 302 members; at most 200 may be."


def test_all_members_that_may_not_be_are_reported_at_once(tmp_path: Path) -> None:
    data = zipped({"../a.pdf": b"", "/b.pdf": b"", "c\\d.pdf": b""})
    with pytest.raises(UploadRefused) as caught:
        check(written(tmp_path, data), LIMITS)
    assert [one.file for one in caught.value.problems] == ["../a.pdf", "/b.pdf", "c\\d.pdf"]


@pytest.mark.parametrize(
    ("bound", "least", "other"),
    [
        ("file_bytes_max", 1000, {}),
        ("total_bytes_max", 1057, {}),
        ("ratio_from_bytes", 1058, {"ratio_max": 3}),
        ("ratio_max", 67, {"ratio_from_bytes": 1}),
        ("members_max", 2, {}),
        ("name_bytes_max", 9, {}),
        ("archive_bytes_max", 274, {}),
    ],
)
def test_an_archive_at_a_bound_passes_and_beyond_it_is_refused(
    bound: str, least: int, other: dict[str, int], tmp_path: Path
) -> None:
    path = written(tmp_path, zipped({"a.pdf": b"%PDF-" + bytes(995)}))
    assert check(path, UploadLimits(**other, **{bound: least})).files == 1
    with pytest.raises(UploadRefused):
        check(path, UploadLimits(**other, **{bound: least - 1}))


def test_an_archive_of_64_bit_records_is_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(65_600):
            archive.writestr(f"x/{number}", b"")
    with pytest.raises(UploadRefused) as caught:
        check(path, LIMITS)
    assert caught.value.problems[0].rule == "TOO_MANY_MEMBERS"
    with pytest.raises(UploadRefused, match="MANIFEST_MISSING"):
        check(path, UploadLimits(members_max=70_000))


def test_an_archive_whose_64_bit_record_repeats_the_other_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As archives between 2 and 4 GB are."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 50)
    path = written(tmp_path, zipped())
    assert b"PK\x06\x06" in path.read_bytes()
    assert check(path, LIMITS).files == 1


def test_a_64_bit_record_that_is_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 50)
    data = bytearray(zipped())
    data[data.index(b"PK\x06\x07") + 8] ^= 1
    with pytest.raises(UploadRefused, match="64-bit end record"):
        check(written(tmp_path, bytes(data)), LIMITS)
