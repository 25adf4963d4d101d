"""`redrive evidence demo` tells a story that is true: it ends as it says."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from redrive.kit.demo import Demo
from redrive.kit.proof import journal
from redrive.systems.evidence.demo import app as demo_app
from redrive.systems.evidence.demo import play
from redrive.systems.evidence.demo.archive import make_archive
from redrive.systems.evidence.names import attachment_key

pytestmark = pytest.mark.req("E-01", "E-06")


def test_the_archive_of_the_story_has_a_csv_and_the_files_that_it_names(tmp_path: Path) -> None:
    path, job = make_archive(tmp_path, 1)
    with zipfile.ZipFile(path) as archive:
        header, *lines = archive.read("cases.csv").decode().split()
        named = [name for line in lines for name in line.split(",")[1].split("|")]
        assert header == "case_id,files"
        assert sorted([*named, "cases.csv"]) == sorted(archive.namelist())
        assert [archive.read(name) for name in named] == [file.content for file in job.files]
    assert [row.is_deleted for row in job.rows] == [False, True, False]
    assert sum(file.is_corrupted for file in job.files) == 1


def test_a_story_that_ends_otherwise_is_said_so(tmp_path: Path) -> None:
    _, job = make_archive(tmp_path, 1)
    first, *_ = job.files
    ledger = journal.Journal(tmp_path / "case-api.ledger")
    for _ in range(2):
        ledger.write(log="attached", key=attachment_key(first.id))
    ledger.close()
    found = play.violations(tmp_path, job)
    assert "0 mails about evidence-001.zip arrived; it should have been two." in found
    assert f"File {first.id} was attached 2 times; it should be 1." in found
    assert len(found) == 4  # the two others that should be attached


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_story_ends_as_it_says_and_the_next_one_is_another(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, demo_app.VARIABLE, "")  # put back in the end
    demo = Demo(home=tmp_path, once=True, dsn=database)
    for number in (1, 2):
        told = io.StringIO()
        assert play.run(demo, Console(file=told, width=200)) == 0, told.getvalue()
        for words in (
            f"evidence-{number:03}.zip",
            "N1",
            "N2",
            "attached by a retry:         1",
            "CASE_NOT_FOUND",
            "CORRUPTED_FILE",
        ):
            assert words in told.getvalue(), words
