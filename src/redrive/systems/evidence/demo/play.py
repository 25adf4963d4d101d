"""Runs the demo: NATS, a simulated Case API, a mail server, a relay and a worker here, and the mails as received."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email import message_from_string, policy
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from redrive.kit.demo import Demo, StoryRelay, exit_code, relay_beside, simulated, what_next, with_database
from redrive.kit.proof import journal
from redrive.kit.proof.brokers.nats import NatsServer
from redrive.kit.relay import WorkerProcess, run_worker
from redrive.kit.statements import Steps
from redrive.kit.statements import run as run_steps
from redrive.systems.evidence.bus import NatsBus
from redrive.systems.evidence.demo import app as demo_app
from redrive.systems.evidence.demo.archive import make_archive
from redrive.systems.evidence.names import attachment_key
from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.uploading import Upload, upload

T = TypeVar("T")
CASE_API: Final = "redrive.systems.evidence.simulators.case_api"
MAIL_SERVER: Final = "redrive.systems.evidence.simulators.mail_server"
FIRST_FAULTS: Final = ("lost", "unavailable")
LOOK_SECONDS: Final = 0.3
SECONDS_MAX: Final = 120.0
PANEL_COLUMNS: Final = 100
_FILES: Final = """
SELECT id, case_id, s3_key FROM redrive_evidence.file_job_artifact WHERE file_job_id = %s ORDER BY id
"""
_JOBS: Final = "SELECT count(*) FROM redrive_evidence.file_job"


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 where a file was not attached exactly once, or the notices are not two."""
    return with_database(demo, console, lambda dsn: _with_database(demo, dsn, console))


def _with_database(demo: Demo, dsn: str, console: Console) -> int:
    nats = NatsServer(demo.home)
    nats.start()
    try:
        case_api = {"ledger": str(demo.home / "case-api.ledger"), "faults": {"first": FIRST_FAULTS}}
        mail = {"log": str(demo.home / "mail.log")}
        with simulated(CASE_API, case_api) as url, simulated(MAIL_SERVER, mail) as port:
            where = {"url": url, "port": int(port), "bus": nats.url, "storage": f"file://{demo.home / 'files'}"}
            os.environ[demo_app.VARIABLE] = json.dumps(where)
            return asyncio.run(_play(demo, dsn, where, console))
    finally:
        nats.stop()


async def _play(demo: Demo, dsn: str, where: dict[str, Any], console: Console) -> int:
    await NatsBus(url=where["bus"]).make_stream()
    (demo.home / "redrive.toml").write_text(f"dsn = {json.dumps(dsn)}\n", encoding="utf-8")
    story = await asyncio.to_thread(_upload, demo.home, dsn, where)
    _introduce(console, demo.home, story)
    app = demo_app.made()
    async with relay_beside(console, app, spec=demo_app.SPEC, dsn=dsn, name="evidence demo") as relay:
        worker = asyncio.create_task(run_worker(WorkerProcess(app=app, dsn=dsn), signals=False))
        try:
            await _told(console, demo.home, story, relay)
            _what_next(demo.home, console, story)
            await relay.go_on(demo)
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
    return exit_code(demo, console, violations(demo.home, story))


@dataclass(frozen=True)
class Story:
    """wanted: how often each file of the upload has to be attached in the end."""

    job: UUID
    archive: str
    wanted: Mapping[UUID, int]


def _upload(home: Path, dsn: str, where: dict[str, Any]) -> Story:
    """As `redrive evidence upload` does it; then the second case is deleted, and a stored file of the third damaged."""
    with psycopg.connect(dsn) as conn:
        (count,) = conn.execute(_JOBS).fetchone() or (0,)
    path = home / f"evidence-{count + 1:03}.zip"
    _, gone, damaged = make_archive(path)

    def transact(steps: Steps[T]) -> T:
        with psycopg.connect(dsn) as conn:
            return run_steps(conn, steps)

    storage = storage_of(where["storage"])
    done = upload(transact, storage, Upload(archive=path, merchant_id="shop-7", notify_mail="merchant@example.org"))
    with psycopg.connect(dsn) as conn:
        files = conn.execute(_FILES, [done.file_job_id]).fetchall()
    request = urllib.request.Request(f"{where['url']}/cases/{gone}", method="DELETE")  # noqa: S310 - our own
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
    bad = next(key for _, case, key in files if case == damaged)
    storage.put(bad, [b"not what was uploaded"])
    return Story(done.file_job_id, path.name, {id: int(case != gone and key != bad) for id, case, key in files})


def _introduce(console: Console, home: Path, story: Story) -> None:
    console.print(f"The merchant's archive: {home / story.archive}, six files for three cases.", style="dim")
    console.print(
        "The Case API loses its first reply and says 503 to the next request; case 2 was deleted, and the stored copy "
        "of a file of case 3 is damaged. A retry comes after four seconds here, instead of five minutes.",
        style="dim",
    )


async def _told(console: Console, home: Path, story: Story, relay: StoryRelay) -> None:
    """Each mail as it arrives, until both are there."""
    shown = 0
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while shown < 2 and not relay.ended.is_set() and asyncio.get_running_loop().time() < deadline:
        for subject, text in mails(home, story)[shown:]:
            title = Text(f"N{shown + 1} · {subject}")
            console.print(Panel(Text(text.rstrip()), title=title, title_align="left", width=PANEL_COLUMNS))
            shown += 1
        await relay.pause(LOOK_SECONDS)


def _what_next(home: Path, console: Console, story: Story) -> None:
    """Commands that find the database by the settings file beside its data."""
    show = ("evidence", "show", str(story.job), "--artifacts")
    lineage = ("evidence", "lineage", str(next(iter(story.wanted))))
    what_next(home, console, "What became of each file, and the way of one of them:", show, lineage)


def mails(home: Path, story: Story) -> Sequence[tuple[str, str]]:
    """Subject and text of those about the archive, as the server received them."""
    found = []
    for line in journal.read(home / "mail.log"):
        mail = message_from_string(line["body"], policy=policy.default)
        body = mail.get_body(("plain",))
        if story.archive in str(mail["Subject"]):
            found.append((str(mail["Subject"]), body.get_content() if body is not None else ""))
    return found


def violations(home: Path, story: Story) -> list[str]:
    count = len(mails(home, story))
    found = [] if count == 2 else [f"{count} mails about {story.archive} arrived; it should have been two."]
    lines = [line for line in journal.read(home / "case-api.ledger") if line["log"] == "attached"]
    for id, wanted in story.wanted.items():
        times = sum(line["key"] == attachment_key(id) for line in lines)
        if times != wanted:
            found.append(f"File {id} was attached {times} times; it should be {wanted}.")
    return found
