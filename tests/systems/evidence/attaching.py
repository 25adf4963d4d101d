"""A desk for attaching: a simulated Case API, files with their digests, and a relay of `case-api` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from aiohttp import web

import redrive
from redrive.events import Events
from redrive.kit.proof import journal
from redrive.policy import Backoff, Policy
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.consumers import requests_handler
from redrive.systems.evidence.names import ATTACH_REQUEST, ATTACH_REQUESTS, ATTACH_RETRY, FAILED_REQUESTS
from redrive.systems.evidence.recording import recording
from redrive.systems.evidence.settings import DAY_SECONDS, EvidenceSettings
from redrive.systems.evidence.simulators.case_api import CaseApi as SimulatedCaseApi
from redrive.systems.evidence.simulators.faults import Faults
from tests.systems.evidence.conftest import Upload, artifact, attempt, connect, one, upload
from tests.transports.servers import HERE

SECONDS = 40.0
QUICKLY = Backoff(initial_seconds=0.01, multiplier=1, max_seconds=0.01, jitter="none")
_STORED: LiteralString = "UPDATE redrive_evidence.file_job_artifact SET sha256 = %s, file_size_bytes = %s WHERE id = %s"
QUICK = Policy(attempts=2, backoff=QUICKLY, lookups=5, lookup_backoff=QUICKLY)
ANSWER: dict[str, Any] = {"policy": QUICK, "lookup_after_seconds": 0.0, "egress": HERE}


class FileMissing(Exception):
    code = "S3_NOT_FOUND"


@dataclass
class Files:
    """Stored files by key, in small chunks."""

    stored: dict[str, bytes] = field(default_factory=dict)

    async def chunks(self, key: str) -> AsyncIterator[bytes]:
        if key not in self.stored:
            raise FileMissing(key)
        for place in range(0, len(self.stored[key]), 4):
            yield self.stored[key][place : place + 4]


@dataclass
class Desk:
    """ledger: of the simulated Case API."""

    dsn: str
    ledger: Path
    files: Files
    events: Events
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        for name in ("delivered", "retried", "parked"):
            self.events.subscribe(lambda *_: self._heard.set(), f"message.{name}")

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Looks again whenever a message was settled."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._heard.clear()  # before it looks: what is settled meanwhile is looked at again
                if found := await asyncio.to_thread(condition):
                    return found
                await self._heard.wait()

    async def attempted(self, id: UUID, *, times: int = 1) -> Any:
        """The artifact, once so many attempts have an outcome."""

        def look() -> Any:
            with connect(self.dsn) as conn:
                found = artifact(conn, id)
            return found if found.attempt_count >= times else None

        return await self.until(look)

    @property
    def calls(self) -> list[str]:
        """What the Case API was asked and did, in its own words."""
        return [line["log"] for line in self.lines]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return list(journal.read(self.ledger))


def stored_upload(conn: psycopg.Connection[Any], files: Files, *counts: int) -> Upload:
    """An upload whose files are stored, and which is not old."""
    made = upload(conn, *counts, at=None)
    for id in made.files:
        content = f"evidence {id}".encode()
        files.stored[artifact(conn, id).s3_key] = content
        values = (sha256(content).hexdigest(), len(content), id)
        conn.execute(
            "UPDATE redrive_evidence.file_job_artifact SET sha256 = %s, file_size_bytes = %s WHERE id = %s", values
        )
    return made


async def request(dsn: str, topic: str = ATTACH_REQUESTS) -> None:
    """Hand the newest event of a topic to its consumer, as a worker does."""
    event_type = {ATTACH_REQUESTS: ATTACH_REQUEST, FAILED_REQUESTS: ATTACH_RETRY}[topic]
    query = "SELECT body FROM redrive.message WHERE destination = %s ORDER BY id DESC LIMIT 1"
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        (body,) = await (await conn.execute(query, [topic])).fetchone()  # type: ignore[misc]
        event = redrive.Event("event-1", "/redrive/evidence", event_type, bytes(body))
        await requests_handler(event_type, EvidenceSettings())(conn, event)


def tried(conn: psycopg.Connection[Any], id: UUID, code: str | None = None) -> None:
    """An attempt that began and ended now."""
    attempt(conn, id, code, at=datetime.now(UTC))


def retry(conn: psycopg.Connection[Any], ids: Sequence[UUID]) -> None:
    """The scheduler requeues these, and no others, before they are due."""
    done = one(conn, "SELECT * FROM redrive_evidence.schedule_retries_1(p_force => true)")
    assert done.artifacts_scheduled == len(ids)


@asynccontextmanager
async def case_api(ledger: Path, faults: Faults | None = None, **options: Any) -> AsyncIterator[str]:
    """A simulated Case API in this process; its address."""
    simulated = SimulatedCaseApi(ledger, faults or Faults(), **options)
    runner = web.AppRunner(simulated.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def app_of(url: str, files: Files, **options: Any) -> redrive.App:
    """options: of the settings of the Case API."""
    app = redrive.App()
    record = recording(EvidenceSettings(), Random(7))
    app.add(CaseApi(**{**ANSWER, "url": url, **options}).destination(files, record, deadline_seconds=DAY_SECONDS))
    return app


@asynccontextmanager
async def desk(
    dsn: str, tmp_path: Path, *first: str, simulated: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Desk]:
    """first: faults of the first requests. simulated, options: of the simulated Case API, and of ours to it."""
    ledger = tmp_path / "case-api.ledger"
    async with case_api(ledger, Faults(first=first), **(simulated or {})) as url:
        opened = Desk(dsn, ledger, Files(), Events())
        async with app_of(url, opened.files, **options).running(dsn, events=opened.events):
            yield opened
