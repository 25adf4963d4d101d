"""One run: uploads come while relays and workers are killed and the broker is restarted; then everything comes to rest.

A kill ends a relay at a step of an attempt, most of them between the Case API's answer and our write: before the settle
transaction, in it before our rows, and before its commit; or it ends a worker anywhere. Each kill has an upload of its
own to meet, an archive that goes the way of every archive. The Case API ignores keys: whatever is sent twice is
attached twice. The relay that sends mail is not killed: a mail server cannot be asked, so a kill there holds a mail for
a person (`redrive prove reviews`).
"""

from __future__ import annotations

import signal
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg

from redrive.kit.proof import failpoints, journal
from redrive.kit.proof.brokers.nats import NatsServer
from redrive.kit.proof.environment import READY_SECONDS, RELAY_LIMITS, ProofEnvironment
from redrive.kit.proof.failpoints import Failpoint
from redrive.kit.proof.fork_server import Child, ForkServer
from redrive.kit.proof.loop_thread import loop_thread
from redrive.kit.proof.processes import patience
from redrive.kit.proof.report import Progress
from redrive.kit.statements import Steps
from redrive.kit.statements import run as run_steps
from redrive.systems.evidence.bus import CONSUMERS, NatsBus
from redrive.systems.evidence.names import CASE_API, NOTICE_MAIL, NOTICE_WEBHOOK, TOPICS
from redrive.systems.evidence.prove import app, processes
from redrive.systems.evidence.prove.plan import Job, Stored
from redrive.systems.evidence.prove.rules import Artifact, Evidence, Rollup
from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.uploading import Upload, upload

T = TypeVar("T")
POINTS: Final = ("settle_one.start", "record.start", "commit.start")
WORKER: Final = "worker"
# The first ones are met by every run, however small.
FIRST: Final = (*POINTS, WORKER)
VICTIMS: Final = (*FIRST, "send.stop", "send.start", "dispatch.start", "claim.stop", "fence.start", "settle_one.stop")
# 8 % of the replies are lost in one way or another after the file was attached.
SHARE: Final = {"lost": 0.05, "gateway": 0.02, "garbage": 0.01, "unavailable": 0.05}
LIMITS: Final = {**RELAY_LIMITS, "lease_seconds": 30.0, "reap_every_seconds": 0.25, "record_timeout_seconds": 10.0}
ATTACHING: Final = (CASE_API, *TOPICS, *CONSUMERS.values())
NOTICES: Final = (NOTICE_MAIL, NOTICE_WEBHOOK)
SECONDS_MAX: Final = 120.0
SECONDS_PER_KILL: Final = 10.0
_CASE_API: Final = "redrive.systems.evidence.simulators.case_api"
_MAIL_SERVER: Final = "redrive.systems.evidence.simulators.mail_server"
_OPEN: Final = """
SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)
     + (SELECT count(*) FROM redrive_evidence.file_job WHERE n2_sent_at IS NULL)
"""
_UPLOADED: Final = """
SELECT file_name, id, file_job_row_id, s3_key FROM redrive_evidence.file_job_artifact WHERE file_job_id = %s
"""
_ATTEMPTS: Final = "SELECT count(*) FROM redrive_evidence.artifact_attempt"
_ARTIFACTS: Final = """
SELECT id, attachment_status, retry_status, attachment_error_code, attempt_count FROM redrive_evidence.file_job_artifact
"""
_ROLLUPS: Final = """
SELECT id, evidence_count, evidence_attached_count, evidence_failed_count, evidence_status
  FROM redrive_evidence.file_job_row
"""
_WRONG: Final = "SELECT coalesce(sum(redrive_evidence.rebuild_rollups_1(id)), 0) FROM redrive_evidence.file_job"
_STOPPED: Final = (
    "SELECT destination, reason, error_class, count(*) FROM redrive.parked WHERE reason <> 'dead' GROUP BY 1, 2, 3"
)


@dataclass
class Campaign:
    """module: has the app of relays and workers; a test puts one there that breaks a promise."""

    environment: ProofEnvironment
    seed: int
    jobs: list[Job]
    progress: Progress
    module: str = "redrive.systems.evidence.prove.app"
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def run(self) -> Evidence:
        place = self.environment.directory
        self._nats = NatsServer(place)
        self._nats.start()
        try:
            self._nats.ask(lambda _: NatsBus(url=self._nats.url).make_stream())
            faults = {"share": SHARE, "seed": self.seed}
            self._ledger, self._url = self._serve("case-api", _CASE_API, "ledger", faults=faults, ignores_keys=True)
            self._mails, port = self._serve("mail", _MAIL_SERVER, "log")
            files = place / "files"
            self._declared = {"url": self._url, "bus": self._nats.url, "port": int(port), "files": str(files)}
            self._forks = ForkServer(processes.MODULE, place / "children.out")
            with loop_thread(self._forks) as self._loop:
                self._run(files)
        finally:
            self._nats.stop()
        return self._evidence()

    def _run(self, files: Path) -> None:
        self._delete_cases()
        notices = self._relay("notices", only=NOTICES)
        worker = self._worker()
        for number in range(len(self.jobs)):
            self.jobs[number] = self._uploaded(self.jobs[number], files)
            if number == len(self.jobs) // 2:
                self._restart_broker()
            worker = self._kill(VICTIMS[number % len(VICTIMS)], number, worker)
            self.progress("kills", number + 1, len(self.jobs))
        relay = self._relay("last", only=ATTACHING)
        if not self._wait(lambda: self.environment.value(_OPEN) == 0):
            self.violations.append(f"[rest] It did not come to rest: {self.environment.counts()}.")
        for child in (worker, relay, notices):
            child.end()

    # what runs

    def _serve(self, name: str, module: str, log: str, **settings: Any) -> tuple[Path, str]:
        path = self.environment.directory / f"{name}.ledger"
        return path, self.environment.server(name, module, **{log: str(path)}, **settings)

    def _relay(self, name: str, *, only: tuple[str, ...], failpoint: Failpoint | None = None) -> Child:
        variables = self._variables()
        if failpoint is not None:
            variables[failpoints.VARIABLE] = str(failpoint)
            variables[failpoints.MARK_VARIABLE] = str(self.environment.mark())
        return self._child("relay", name=name, only=list(only), limits=LIMITS, environment=variables)

    def _worker(self) -> Child:
        return self._child("worker", name="worker", environment=self._variables())

    def _child(self, kind: str, **settings: Any) -> Child:
        pid = self._loop.run(self._forks.start(kind, module=self.module, **settings))
        return Child(pid, self._forks, self._loop)

    def _variables(self) -> dict[str, str]:
        return {"REDRIVE_DSN": self.environment.dsn, **app.environment(self._declared)}

    # what happens

    def _uploaded(self, job: Job, files: Path) -> Job:
        """As `redrive evidence upload` does it. No relay attaches meanwhile, so damage is done before the first
        attempt.
        """

        def transact(steps: Steps[T]) -> T:
            with psycopg.connect(self.environment.dsn) as conn:
                return run_steps(conn, steps)

        asked = Upload(
            archive=job.write(self.environment.directory),
            merchant_id="merchant-7",
            idempotency_key=f"upload {job.number}",
            notify_mail="merchant@example.org",
        )
        done = upload(transact, storage_of(files.as_uri()), asked)
        found = {name: Stored(*ids) for name, *ids in self.environment.rows(_UPLOADED, done.file_job_id)}
        made = job.uploaded(done.file_job_id, found)
        made.damage(files)
        self.counts["uploads"] += 1
        self.counts["rows"] += done.rows
        self.counts["files"] += done.artifacts
        self.counts["files damaged after their upload"] += sum(file.is_corrupted for file in made.files)
        return made

    def _delete_cases(self) -> None:
        for case in [row.case for job in self.jobs for row in job.rows if row.is_deleted]:
            request = urllib.request.Request(f"{self._url}/cases/{case}", method="DELETE")  # noqa: S310 - our own
            with urllib.request.urlopen(request, timeout=READY_SECONDS):  # noqa: S310
                self.counts["cases deleted"] += 1

    def _restart_broker(self) -> None:
        self._nats.stop(signal.SIGTERM)
        self._nats.start()
        self.counts["restarts of NATS"] += 1

    def _kill(self, victim: str, number: int, worker: Child) -> Child:
        """The worker that goes on."""
        if victim == WORKER:
            relay = self._relay(f"relay-{number}", only=ATTACHING)
            before = self.environment.value(_ATTEMPTS)
            if not self._wait(lambda: self.environment.value(_ATTEMPTS) > before):
                self.violations.append("[rest] A worker began no attempt.")
            worker.end()
            self.counts["workers killed"] += 1
            relay.end()  # by a kill as well
            self.counts["relays killed anywhere"] += 1
            return self._worker()
        doomed = self._relay(f"relay-{number}", only=ATTACHING, failpoint=Failpoint(event=victim, nth=1 + number % 7))
        if not self._wait(lambda: doomed.code is not None):
            self.violations.append(f"[rest] A relay did not come to {victim}.")
        self.counts[f"relays killed at {victim}"] += doomed.code == -signal.SIGKILL
        doomed.end()
        return worker

    def _wait(self, condition: Any) -> bool:
        seconds = (SECONDS_MAX + SECONDS_PER_KILL * len(self.jobs)) * patience()
        return self.environment.wait(condition, seconds=seconds, every_seconds=0.1)

    # what is judged

    def _evidence(self) -> Evidence:
        ledger = list(journal.read(self._ledger))
        mails = [line["body"] for line in journal.read(self._mails)]
        for name, log in (("files attached", "attached"), ("questions to the Case API", "asked")):
            self.counts[name] = sum(line["log"] == log for line in ledger)
        self.counts["answers 503"] = sum(line["log"] == "refused" and line["status"] == 503 for line in ledger)
        self.counts["mails received"] = len(mails)
        for destination, reason, error_class, count in self.environment.rows(_STOPPED):
            self.violations.append(f"[rest] {count} messages to {destination} are {reason} with {error_class}.")
        rollups = [Rollup(*row) for row in self.environment.rows(_ROLLUPS)]
        if wrong := self.environment.value(_WRONG):
            self.violations.append(f"[rollups] {wrong} rows differ from a recomputation.")
        return Evidence(
            jobs=self.jobs,
            ledger=ledger,
            mails=mails,
            artifacts=[Artifact(*row) for row in self.environment.rows(_ARTIFACTS)],
            rollups=rollups,
        )
