"""`redrive payments demo` tells a story that is true: it ends as it says."""

from __future__ import annotations

import asyncio
import io
import os
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from redrive.kit.demo import Demo
from redrive.operate.toml_destinations import app_from_file
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems.payments.demo import app as demo_app
from redrive.systems.payments.demo import play, story
from redrive.systems.payments.demo.story import COMPANIES, PROFILES, SCENES
from redrive.systems.payments.rails import rails_of
from redrive.systems.payments.validation import checked

URLS = {rail: f"http://127.0.0.1:{port}" for port, rail in enumerate(PROFILES, 9000)}


def test_every_payment_of_the_story_can_be_submitted_and_has_a_rail_and_a_company() -> None:
    assert {scene.participant for scene in SCENES} == set(COMPANIES)
    assert {scene.company.rail for scene in SCENES} == set(PROFILES)
    assert len({checked(story.instruction(scene, 1)).instruction_id for scene in SCENES}) == len(SCENES)


def test_its_settings_file_declares_the_same_rails(tmp_path: Path) -> None:
    play._write_settings(tmp_path, "host=/tmp", URLS)
    assert tomllib.loads((tmp_path / "redrive.toml").read_text())["dsn"] == "host=/tmp"
    declared = {rail.rail_type: rail for rail in rails_of(app_from_file(tmp_path / "redrive.toml"))}
    for rail in story.rails(URLS):
        one = declared[rail.rail_type]
        assert (one.url, one.token_ttl_seconds, one.can_look_up, one.has_statement) == (
            rail.url,
            rail.token_ttl_seconds,
            rail.can_look_up,
            rail.has_statement,
        )


def test_a_story_that_ends_otherwise_is_said_so(tmp_path: Path) -> None:
    stands = {story.instruction_id(scene, 1): {"shown": "pending"} for scene in SCENES}
    found = play.violations(stands, tmp_path, 1)
    assert "salary-ada-1 is pending; it should be delivered." in found
    assert "salary-ada-1 was paid 0 times; it should be 1." in found


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_story_ends_as_it_says_and_the_next_one_is_another(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, demo_app.VARIABLE, "")  # put back in the end
    told = io.StringIO()
    demo = Demo(home=tmp_path, once=True, dsn=database)
    assert play.run(demo, Console(file=told, width=200)) == 0, told.getvalue()
    assert "by reconciliation" in told.getvalue()
    assert play._next_run(database) == 2

    async def conserved() -> object:
        async with PostgresStore(database) as store:
            return await store.rows(
                "SELECT enqueued = pending + leased + parked + closed FROM redrive.conservation", []
            )

    assert asyncio.run(conserved()) == [(True,)]
