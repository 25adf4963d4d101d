"""The two services of this proof: each a database, and the commands of `redrive` that run on it."""

import json
import math
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from redrive.kit.proof import journal
from redrive.kit.proof.environment import RELAY_LIMITS, ProofEnvironment
from redrive.kit.proof.processes import Process
from redrive.prove import config as engine_config
from redrive.prove.brokers import config
from redrive.prove.brokers.judge import Effect
from redrive.prove.brokers.plan import Plan
from redrive.prove.producer import Order

PRODUCERS: Final = 4
# Of what a producer tries, some is rolled back and some was there already.
NEW_SHARE: Final = 0.8
STOP_SECONDS: Final = 60.0
_OPEN: Final = (
    "SELECT (SELECT count(*) FROM redrive.lease) + (SELECT count(*) FROM redrive.pending)"
    " + (SELECT count(*) FROM redrive.parked)"
)


class Service(ProofEnvironment):
    """Its processes reach the broker by a port, and take nothing from the settings of the user."""

    app: str

    def __init__(self, directory: Path, dsn: str, *, app: str, broker: str, port: int) -> None:
        directory.mkdir()
        limits = {f"REDRIVE_{name.upper()}": str(value) for name, value in RELAY_LIMITS.items()}
        own = {
            config.BROKER_VARIABLE: broker,
            config.PORT_VARIABLE: str(port),
            "REDRIVE_STATE_DIRECTORY": str(directory / "state"),
        }
        super().__init__(directory, dsn, variables={**limits, **own})
        self.app = app
        self.complaints: list[str] = []

    def command(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        return self.processes.start(name, "redrive", *arguments, environment=environment)

    def start_relay(self, name: str) -> Process:
        return self.command(name, "relay", self.app, "--name", name, "--log-level", "info", "--log-format", "json")

    def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        if process.wait(STOP_SECONDS) != -signal.SIGKILL:
            self._complain(process)
        process.end()  # the child in which it ran a suspect

    def stop(self, process: Process) -> None:
        """A process that has not begun yet would be ended by the signal, without a stop."""
        self.wait(lambda: process.code is not None or _has_begun(process), seconds=STOP_SECONDS)
        process.signal(signal.SIGTERM)
        self.wait(lambda: process.code is not None, seconds=STOP_SECONDS)
        if process.code != 0:
            self._complain(process)

    def open_messages(self) -> int:
        """Of the engine: in hand, waiting or parked."""
        return int(self.value(_OPEN))

    def _complain(self, process: Process) -> None:
        said = process.said.read_text("utf-8", "replace").strip().splitlines()
        self.complaints.append(
            f"[processes] {process.name} (pid {process.pid}) ended with {process.code}:"
            f" {said[-1] if said else 'no word'}"
        )


class Publisher(Service):
    """Producers and relays."""

    def prepare(self) -> None:
        self.execute(engine_config.TABLES)

    def start_producers(self, plan: Plan) -> list[Process]:
        return [self._start_producer(plan, number) for number in range(PRODUCERS)]

    def _start_producer(self, plan: Plan, number: int) -> Process:
        """One producer writes a key, so that its journal has the order of the key."""
        name = f"producer-{number}"
        order = Order(
            name=name,
            count=math.ceil(plan.messages / PRODUCERS / NEW_SHARE),
            destinations=[config.DESTINATION],
            seed=plan.seed,
            keys=[f"{name}-key-{key}" for key in range(math.ceil(plan.keys / PRODUCERS))],
            all_ordered=True,
        )
        return self.processes.start(name, "redrive.prove.producer", str(self._log(number)), settings=asdict(order))

    def journals(self) -> list[list[journal.Line]]:
        return [list(journal.read(self._log(number))) for number in range(PRODUCERS)]

    def business(self) -> frozenset[str]:
        return frozenset(key for (key,) in self.rows("SELECT key FROM redrive_prove.business"))

    def in_doubt(self) -> int:
        """Sends whose confirm did not come."""
        return int(self.value("SELECT count(*) FROM redrive.attempt WHERE answer = 'unknown'"))

    def _log(self, number: int) -> Path:
        return self.directory / f"producer-{number}.log"


class ConsumerService(Service):
    """A worker, and a relay for what the worker defers."""

    def prepare(self) -> None:
        self.execute(config.EFFECT_TABLE)

    def start_worker(self) -> Process:
        """It logs each event, so that deliveries are counted although it is killed."""
        return self.command(
            config.WORKER,
            *("worker", self.app, "--log-level", "debug", "--log-format", "json"),
            environment={config.ROLE_VARIABLE: config.WORKER},
        )

    def effect_count(self) -> int:
        return int(self.value("SELECT count(*) FROM redrive_prove.effect"))

    def effects(self) -> list[Effect]:
        found = self.rows("SELECT name, order_by FROM redrive_prove.effect ORDER BY number")
        return [Effect(*row) for row in found]

    def deliveries(self) -> Counter[str]:
        """How often a worker received, processed, deferred and recognised an event, by its log."""
        counts: Counter[str] = Counter()
        for path in sorted(self.directory.glob(f"*-{config.WORKER}.out")):
            for line in path.read_bytes().splitlines():
                if b'"consumer.' in line:
                    _count(counts, line)
        return counts


def _has_begun(process: Process) -> bool:
    said = process.said.read_bytes()
    return b"relay.started" in said or b"consumer.started" in said


def _count(counts: Counter[str], line: bytes) -> None:
    try:
        said = json.loads(line)
    except ValueError:
        return  # cut by a kill
    counts[said["event"]] += said.get("count", 1)


def finished(processes: Sequence[Process]) -> bool:
    return all(process.code is not None for process in processes)
