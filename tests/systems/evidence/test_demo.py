"""`redrive evidence demo` tells a story that is true: it ends as it says."""

from __future__ import annotations

import io
import os
from pathlib import Path
from uuid import uuid4

import pytest
from rich.console import Console

from redrive.kit.demo import Demo
from redrive.kit.proof import journal
from redrive.systems.evidence.checking import check
from redrive.systems.evidence.demo import app as demo_app
from redrive.systems.evidence.demo import play
from redrive.systems.evidence.demo.archive import make_archive
from redrive.systems.evidence.names import attachment_key

pytestmark = pytest.mark.req("E-01", "E-06")


def test_the_archive_of_the_story_can_be_uploaded(tmp_path: Path) -> None:
    cases = make_archive(tmp_path / "evidence.zip")
    found = check(tmp_path / "evidence.zip")
    assert [line.case_id for line, _ in found.lines] == [*cases]
    assert found.files == 6


def test_a_story_that_ends_otherwise_is_said_so(tmp_path: Path) -> None:
    twice, missing, right = (uuid4() for _ in range(3))
    ledger = journal.Journal(tmp_path / "case-api.ledger")
    for id in (twice, twice, right):
        ledger.write(log="attached", key=attachment_key(id))
    ledger.close()
    found = play.violations(tmp_path, play.Story(uuid4(), "evidence-001.zip", {twice: 1, missing: 1, right: 1}))
    assert found == [
        "0 mails about evidence-001.zip arrived; it should have been two.",
        f"File {twice} was attached 2 times; it should be 1.",
        f"File {missing} was attached 0 times; it should be 1.",
    ]


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
