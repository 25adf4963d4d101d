"""From a topic of a real broker to messages of the engine: once, for the artifacts that are to be attempted now."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from nats.js import JetStreamContext

import redrive
from redrive.consume.process import WorkerProcess, run_worker
from redrive.kit.proof.brokers import kafka
from redrive.kit.proof.brokers.nats import NatsServer, missing
from redrive.systems.evidence.bus import CONSUMERS, STREAM, KafkaBus, NatsBus
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.configured import with_evidence
from redrive.systems.evidence.consumers import CATEGORY_TOPICS
from redrive.systems.evidence.names import ATTACH_RESULTS, ATTACH_RETRY, CASE_API, FAILED_REQUESTS, TOPICS
from redrive.systems.evidence.taxonomy import Category
from tests.support.waiting import wait_until
from tests.systems.evidence.attaching import ANSWER, Files, case_api, request, retry, stored_upload, tried
from tests.systems.evidence.conftest import events, every, one, status, upload

Connection = psycopg.Connection[Any]
SECONDS = 60.0
_PUBLISHED = """
SELECT count(*) FROM redrive.attempt WHERE closed = 'delivered' AND starts_with(destination, 'evidence.failed.')
"""
_CLOSED = "SELECT n2_sent_at FROM redrive_evidence.file_job WHERE id = %s"
_NOTICES = "SELECT notice, channel FROM redrive_evidence.notice WHERE file_job_id = %s ORDER BY notice"
_DESTINATIONS = "SELECT DISTINCT destination FROM redrive.message WHERE destination = ANY (%s)"
_TO_CASE_API = "SELECT id, key, tenant, kind FROM redrive.message WHERE destination = 'case-api' ORDER BY key"


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    assert not missing(), missing()
    server = NatsServer(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def app_of(url: str, broker: NatsServer, files: Files, **options: Any) -> redrive.App:
    app, bus = redrive.App(), NatsBus(url=broker.url, ack_wait_seconds=5.0)
    app.include(with_evidence(CaseApi(url=url, **ANSWER), bus, files, **options))
    return app


@asynccontextmanager
async def running(app: redrive.App, dsn: str, *, only: Sequence[str] = ()) -> AsyncIterator[None]:
    """A relay and a worker of the app in this process. only: what the relay does."""
    worker = asyncio.create_task(run_worker(WorkerProcess(app=app, dsn=dsn), signals=False))
    try:
        async with app.running(dsn, only=only):
            yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> Any:
    """What a worker and a relay write together; neither alone says when it is done."""
    found: list[Any] = []

    def look() -> bool:
        found.append(condition())
        return bool(found[-1])

    await asyncio.to_thread(wait_until, look, seconds=SECONDS, what="the relay and the worker")
    return found[-1]


# eligibility, without a broker


@pytest.mark.req("E-02", "E-11")
async def test_an_event_becomes_one_message_for_each_artifact_that_is_untried(evidence: str, conn: Connection) -> None:
    made = upload(conn, 3, at=None)
    await request(evidence)
    found = every(conn, _TO_CASE_API)
    assert [row.key for row in found] == sorted(f"evidence:{id}:1" for id in made.files)
    attempts = every(conn, "SELECT message_id FROM redrive_evidence.artifact_attempt")
    assert {row.message_id for row in attempts} == {row.id for row in found}


@pytest.mark.req("E-02")
async def test_an_event_that_comes_twice_starts_nothing_twice(evidence: str, conn: Connection) -> None:
    """Also where the inbox does not know it: the second one finds the attempts under way."""
    upload(conn, 2, at=None)
    await request(evidence)
    await request(evidence)
    assert len(every(conn, _TO_CASE_API)) == 2


@pytest.mark.req("E-03")
@pytest.mark.seed("000", "Evidence Worker deduplicates already-attached artifacts (idempotency).")
async def test_a_retry_event_names_all_artifacts_and_only_the_failed_and_retryable_are_attempted(
    evidence: str, conn: Connection
) -> None:
    """Attached, permanently failed, retried three times, and one that is not scheduled."""
    made = upload(conn, 4, at=None)
    attached, permanent, failed, waiting = made.files
    for id, code in ((attached, None), (permanent, "CORRUPTED_FILE"), (failed, "503"), (waiting, "503")):
        tried(conn, id, code)
    conn.execute("UPDATE redrive_evidence.file_job_artifact SET next_retry_at = now() WHERE id = %s", (failed,))
    assert one(conn, "SELECT * FROM redrive_evidence.schedule_retries_1()").artifacts_scheduled == 1
    await request(evidence, FAILED_REQUESTS)
    assert [row.key for row in every(conn, _TO_CASE_API)] == [f"evidence:{failed}:2"]
    assert status(conn, failed) == "FAILED/RETRYING"
    headers = every(conn, "SELECT headers FROM redrive.message WHERE destination = 'case-api'")
    assert [row.headers for row in headers] == [{"retry_count": "1"}]
    assert status(conn, waiting) == "FAILED/RETRY_FAILED"


@pytest.mark.req("E-04")
async def test_the_third_failure_is_the_last_attempt(evidence: str, conn: Connection) -> None:
    made = upload(conn, 1, at=None)
    (id,) = made.files
    tried(conn, id, "503")
    for _ in range(2):
        retry(conn, [id])
        tried(conn, id, "503")
    assert status(conn, id) == "FAILED/PERMANENT_FAILED"
    assert one(conn, "SELECT * FROM redrive_evidence.schedule_retries_1(p_force => true)").artifacts_scheduled == 0


# with a broker


@pytest.mark.req("E-02", "E-03", "E-06", "E-08", "E-12")
async def test_files_go_over_the_topics_to_the_case_api_and_both_notices_are_enqueued(
    evidence: str, conn: Connection, nats: NatsServer, tmp_path: Path
) -> None:
    files = Files()
    async with case_api(tmp_path / "ledger") as url:
        app = app_of(url, nats, files)
        await NatsBus(url=nats.url).make_stream()
        made = stored_upload(conn, files, 2, 1)
        async with running(app, evidence):
            await until(lambda: one(conn, _CLOSED, made.job)[0])
    assert {status(conn, id) for id in made.files} == {"ATTACHED/PENDING"}
    notices = every(conn, _NOTICES, made.job)
    assert [tuple(row) for row in notices] == [("N1", "mail"), ("N2", "mail")]


@pytest.mark.req("E-08")
async def test_files_go_over_the_topics_of_kafka(evidence: str, conn: Connection, tmp_path: Path) -> None:
    """Against librdkafka's mock cluster, or the one that REDRIVE_KAFKA_BOOTSTRAP names."""
    cluster, files = kafka.KafkaServer(tmp_path), Files()
    cluster.start()
    try:
        for topic in TOPICS:
            cluster.prepare(topic)
        bus = KafkaBus(
            bootstrap_servers=cluster.bootstrap,
            group=f"evidence-{secrets.token_hex(4)}",
            config=kafka.CONFIG,
            consumer_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 300},
        )
        async with case_api(tmp_path / "ledger") as url:
            app = redrive.App()
            app.include(with_evidence(CaseApi(url=url, **ANSWER), bus, files))
            made = stored_upload(conn, files, 1)
            async with running(app, evidence):
                await until(lambda: one(conn, _CLOSED, made.job)[0])
    finally:
        cluster.stop()
    assert {status(conn, id) for id in made.files} == {"ATTACHED/PENDING"}


@pytest.mark.req("E-10", "E-11")
async def test_an_unknown_schema_version_becomes_a_dead_letter_and_starts_nothing(
    evidence: str, conn: Connection, nats: NatsServer, tmp_path: Path
) -> None:
    made = upload(conn, 1, at=None)
    tried(conn, made.files[0], "503")
    retry(conn, made.files)
    (event,) = events(conn, FAILED_REQUESTS)
    changed = json.dumps({**event, "schema_version": 2}).encode()
    await NatsBus(url=nats.url).make_stream()

    async def publish(js: JetStreamContext) -> None:
        headers = {"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/x", "ce-type": ATTACH_RETRY}
        await js.publish(FAILED_REQUESTS, changed, headers=headers)

    await asyncio.to_thread(nats.ask, publish)
    query = "SELECT reason, error_class FROM redrive.parked WHERE destination = 'evidence.retry'"
    app = app_of("http://127.0.0.1:9", nats, Files())
    async with running(app, evidence, only=[CONSUMERS[FAILED_REQUESTS]]):
        found = await until(lambda: every(conn, query))
    assert [tuple(row) for row in found] == [("dead", "SCHEMA_INVALID")]
    assert status(conn, made.files[0]) == "FAILED/RETRY_SCHEDULED"


@pytest.mark.req("E-10")
async def test_a_failed_result_goes_on_to_the_topic_of_its_category(
    evidence: str, conn: Connection, nats: NatsServer
) -> None:
    made = upload(conn, 2, at=None)
    tried(conn, made.files[0], "CORRUPTED_FILE")
    tried(conn, made.files[1])
    await NatsBus(url=nats.url).make_stream()
    app = app_of("http://127.0.0.1:9", nats, Files(), topics_by_category=True)
    async with running(app, evidence, only=[ATTACH_RESULTS, *CATEGORY_TOPICS.values()]):
        await until(lambda: one(conn, _PUBLISHED)[0])
    topics = every(conn, _DESTINATIONS, [*CATEGORY_TOPICS.values()])
    assert [row.destination for row in topics] == [CATEGORY_TOPICS[Category.DATA]]


@pytest.mark.req("E-02", "E-08")
def test_every_topic_has_a_destination_and_a_consumer() -> None:
    app = redrive.App()
    app.include(with_evidence(CaseApi(url="https://cases.example"), NatsBus(url="nats://127.0.0.1:9"), Files()))
    assert {*TOPICS, CASE_API, *CONSUMERS.values()} <= set(app.destinations)
    assert set(app.consumers) == set(CONSUMERS.values())
    assert app.destinations[CASE_API].rules.in_doubt == "lookup"
    assert STREAM == "EVIDENCE"
