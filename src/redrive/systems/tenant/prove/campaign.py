"""Runs the plan: producers, relays and the subscribers' server as processes, faults while they work, then quiet.

A fault comes when a share of the producers' steps is done, so a slow machine gets the same faults in the same places.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psycopg

from redrive.kit.proof import journal
from redrive.kit.proof.environment import READY_SECONDS, ProofEnvironment
from redrive.kit.proof.processes import Process, Stuck, patience, wait_while_it_moves
from redrive.kit.proof.report import Progress
from redrive.systems import tenant
from redrive.systems.tenant.prove import app, plan
from redrive.systems.tenant.prove.counting import compared
from redrive.systems.tenant.prove.judge import Evidence, Name, Row
from redrive.systems.tenant.prove.plan import Plan
from redrive.systems.tenant.prove.producer import TABLES, WRITER

PRODUCER: Final = "redrive.systems.tenant.prove.producer"
SERVER: Final = "redrive.systems.tenant.prove.server"
PAUSE_SECONDS: Final = 0.03
FAULT_SHARE: Final = 0.6  # of the hostile tenant's requests
FAULTS_UNTIL: Final = 0.9  # of the steps: some come after the last fault
STILL_SECONDS: Final = 30.0  # so long nothing may have moved; longer on a busy machine
LOOK_SECONDS: Final = 0.1
STOP_SECONDS: Final = 30.0
_OPEN: Final = "SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)"
_ENDED: Final = "SELECT count(*) FROM redrive.attempt"
_KNOWN: Final = "SELECT count(*) FROM redrive.relay WHERE pid = %s"
_ROWS: Final = """
SELECT id::text, tenant_id, payload ->> 'name', idempotency_key::text, state, is_processed, processed_at IS NOT NULL,
       retry_count, error, dead_letter
  FROM redrive_tenant.outbox_messages
"""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What runs: tests put one in its place that breaks a promise. app: of the relays. producer: a module."""

    app: str = app.SPEC
    producer: str = PRODUCER


class Campaign:
    """restart: of PostgreSQL; None where it is not ours."""

    def __init__(
        self,
        environment: ProofEnvironment,
        plan: Plan,
        *,
        parts: Parts,
        progress: Progress,
        restart: Callable[[], None] | None,
    ) -> None:
        self._environment, self._plan, self._parts = environment, plan, parts
        self._progress, self._restart = progress, restart
        self._chance = random.Random(f"{plan.seed}/faults")
        self._producers: list[Process] = []
        self._relays: list[Process] = []
        self._ledger = environment.directory / "ledger"
        self.faults: Counter[str] = Counter()
        self.complaints: list[str] = []

    def run(self) -> Evidence:
        with psycopg.connect(self._environment.dsn, autocommit=True) as conn:
            conn.execute(TABLES)
        self._url = self._start_server()
        self._relays = [self._start_relay(number) for number in range(plan.RELAYS)]
        self._producers = [self._start_producer(number) for number in range(plan.PRODUCERS)]
        try:
            self._inject()
            self._until("the producers' steps", lambda: all(one.code is not None for one in self._producers))
            self._until("quiescence", lambda: self._environment.value(_OPEN) == 0)
        except Stuck as stuck:
            self.complaints.append(f"[stuck] {stuck}")
        self._close()
        return self._evidence()

    # processes

    def _start_server(self) -> str:
        settings = {"ledger": str(self._ledger), "seed": self._plan.seed, "fault_share": FAULT_SHARE}
        said = self._environment.processes.start("subscribers", SERVER, settings=settings).said
        if not self._environment.wait(lambda: said.read_text().endswith("\n"), seconds=READY_SECONDS * patience()):
            raise RuntimeError(f"The subscribers' server did not start; see {said}.")
        return said.read_text().splitlines()[0]

    def _start_relay(self, number: int) -> Process:
        return self._environment.relay(f"relay-{number}", app=self._parts.app, environment={app.VARIABLE: self._url})

    def _start_producer(self, number: int) -> Process:
        settings = {
            "steps": [step.printed() for step in self._plan.steps[number]],
            "pause_seconds": PAUSE_SECONDS,
        }
        return self._environment.processes.start(
            f"producer-{number}", self._parts.producer, str(self._log(number)), settings=settings
        )

    def _log(self, number: int) -> Path:
        return self._environment.directory / f"producer-{number}.log"

    def _close(self) -> None:
        """One that has just been started does not know yet how to stop."""
        wait = self._environment.wait
        for relay in self._relays:
            wait(lambda relay=relay: self._has_begun(relay), seconds=STOP_SECONDS)  # type: ignore[misc]
            relay.signal(signal.SIGTERM)
        for relay in self._relays:
            wait(lambda relay=relay: relay.code is not None, seconds=STOP_SECONDS)  # type: ignore[misc]
        for process in (*self._relays, *self._producers):
            if process.code != 0:
                self.complaints.append(f"[processes] {process.name} {process.ending}")

    def _has_begun(self, relay: Process) -> bool:
        return relay.code is not None or self._environment.value(_KNOWN, relay.pid) > 0

    # faults

    def _inject(self) -> None:
        acts: dict[str, Callable[[], None]] = {
            plan.RELAY_KILLED: self._kill_relay,
            plan.PRODUCER_KILLED: self._kill_producer,
            plan.RESTARTED: self._restart or (lambda: None),
        }
        total = sum(len(steps) for steps in self._plan.steps) * FAULTS_UNTIL
        for number, fault in enumerate(self._plan.faults, 1):
            due = int(total * number / (len(self._plan.faults) + 1))
            self._until(f"fault {number}", lambda due=due: self._steps_done() >= due)  # type: ignore[misc]
            acts[fault]()
            self.faults[fault] += 1
            self._progress("faults", number, len(self._plan.faults))

    def _kill_relay(self) -> None:
        number = self._chance.randrange(len(self._relays))
        self._relays[number].end()
        self._relays[number] = self._start_relay(number)

    def _kill_producer(self) -> None:
        """One that has something left to do, if there is one."""
        running = [number for number, one in enumerate(self._producers) if one.code is None]
        number = self._chance.choice(running or range(len(self._producers)))
        self._producers[number].end()
        self._producers[number] = self._start_producer(number)

    def _steps_done(self) -> int:
        found = [self._log(number).read_bytes() for number in range(plan.PRODUCERS) if self._log(number).exists()]
        return sum(said.count(b'"log":"ack"') + said.count(b'"log":"rolled_back"') for said in found)

    def _until(self, what: str, is_done: Callable[[], bool]) -> None:
        wait_while_it_moves(
            what,
            is_done,
            lambda: (self._steps_done(), self._environment.value(_ENDED)),
            ended=self._environment.ended,
            seconds=STILL_SECONDS,
            every_seconds=LOOK_SECONDS,
        )

    # evidence

    def _evidence(self) -> Evidence:
        rows = [Row(*row) for row in self._environment.rows(_ROWS)]
        reaped = self._environment.rows("SELECT DISTINCT message_id::text FROM redrive.attempt WHERE verb = 'reap'")
        self._add_tomorrows()
        return Evidence(
            journals=[list(journal.read(self._log(number))) for number in range(plan.PRODUCERS)],
            domain=self._domain(),
            ledger=list(journal.read(self._ledger)),
            rows=rows,
            reaped=frozenset(id for (id,) in reaped),
            snapshot=compared(self._environment, self._plan.tenants),
            patience=patience(),
            allowed_dead=frozenset((one.tenant, one.name) for one in self._plan.events if one.refused),
        )

    def _domain(self) -> frozenset[Name]:
        found = self._environment.rows("SELECT DISTINCT tenant, name FROM redrive_prove.domain")
        return frozenset((tenant, name) for tenant, name in found)

    def _add_tomorrows(self) -> None:
        """So that the snapshot has a backlog to count while nothing moves."""
        due_at = datetime.now(UTC) + timedelta(days=1)
        with psycopg.connect(self._environment.dsn) as conn:
            for name in self._plan.tenants:
                for number in range(plan.TOMORROW):
                    parts = {"entity": f"tomorrow-{number}", "version": 1}
                    WRITER.add(conn, name, tenant.Event(app.EVENT_TYPE, {}, parts=parts, due_at=due_at))
