"""The two runs with thousands of payments: rails that lose replies and pay late, and a rail that pays too late."""

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg

from redrive.kit.database import open_database
from redrive.kit.proof import journal
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.processes import Ended
from redrive.kit.proof.report import Progress
from redrive.systems import payments
from redrive.systems.payments.prove import app, rules
from redrive.systems.payments.prove.config import (
    BEYOND,
    BEYOND_FAULTS,
    BEYOND_RAIL,
    FAULTS,
    RAILS,
    WITHIN,
    Config,
    Plan,
    beyond_instructions,
    instructions,
)
from redrive.systems.payments.prove.environment import Scene
from redrive.systems.payments.rail.ledger import effects_in
from redrive.systems.payments.rail.script import Fault
from redrive.systems.payments.reconcile import Compared, reconcile
from redrive.systems.payments.validation import Instruction

BATCH = 20
RECONNECT_SECONDS = 0.2
LOOK_SECONDS = 0.2
SECONDS_MAX = 240.0  # at the least; a payment more is some milliseconds more
SECONDS_PER_PAYMENT = 0.15
_CLOSED = "SELECT count(*) FROM redrive.attempt WHERE closed IS NOT NULL"
_OPEN = "SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)"


@dataclass
class _Run:
    """What both runs share."""

    environment: ProofEnvironment
    plan: Plan
    progress: Progress
    config: ClassVar[Config]
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._scene = Scene(self.environment, self.config, name=type(self).__name__.lower())

    def _wait(self, condition: Callable[[], Any], what: str, payments_count: int) -> None:
        seconds = SECONDS_MAX + SECONDS_PER_PAYMENT * payments_count
        if not self.environment.wait(condition, seconds=seconds, every_seconds=LOOK_SECONDS):
            self.violations.append(f"{what} did not end within {seconds:.0f} s.")

    def _is_over(self) -> bool:
        return bool(self.environment.value(_OPEN) == 0)

    def _lines(self) -> list[dict[str, Any]]:
        """What the rails wrote down, by their time."""
        lines = [line for path in self._scene.ledgers.values() for line in journal.read(path)]
        return sorted(lines, key=lambda line: line["effected_at"] if line["log"] == "effect" else line.get("at", 0.0))

    def _reconcile(self) -> list[Compared]:
        """Twice: the first round confirms what was paid late."""

        async def compare() -> list[Compared]:
            async with open_database(self.environment.dsn) as store:
                rails = app.rails(self.config, self._scene.urls)
                return [await reconcile(store, rail, lag_seconds=0) for rail in (*rails, *rails)]

        return asyncio.run(compare())

    def _judge_books(self, compared: Sequence[Compared]) -> None:
        last = compared[len(compared) // 2 :]
        self.counts["late successes confirmed"] = sum(one.confirmed for one in compared)
        found = [finding.sentence for one in last for finding in one.findings]
        self.counts["unexplained in the books"] = len(found)
        self.violations += found[: rules.SHOWN]
        if any(one.open for one in last):
            self.violations.append(f"{sum(one.open for one in last)} payments are not over on all sides.")


@dataclass
class Within(_Run):
    """Ten thousand payments, relays killed, PostgreSQL stopped; each is paid once."""

    config = WITHIN
    restart: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._wanted = instructions(self.plan)
        self._random = random.Random(f"{self.plan.seed}/faults")

    def run(self) -> None:
        self._scene.open_rails(RAILS, seed=self.plan.seed, faults=FAULTS)
        self._scene.open_relays()
        producer = threading.Thread(target=submit_all, args=[self.environment, self._wanted])
        producer.start()
        self._inject()
        producer.join()
        self._wait(lambda: self._closed() and self._is_over(), "The payments", len(self._wanted))
        self.violations += self._scene.close_relays()
        self._judge()

    def _closed(self) -> int:
        done: int = self.environment.value(_CLOSED)
        self.progress("payments", done, len(self._wanted))
        return done

    def _inject(self) -> None:
        """Each fault when its share of the payments is over, so that all of them meet work."""
        kinds = ["relays killed"] * self.plan.kills + ["PostgreSQL stopped at once"] * self.plan.stops
        self._random.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            share = 0.9 * len(self._wanted) * number / (len(kinds) + 1)
            self._wait(lambda share=share: self._closed() >= share, kind, len(self._wanted))  # type: ignore[misc]
            if kind == "relays killed":
                self._scene.kill_busiest_relay()
            else:
                assert self.restart is not None
                self.restart()
            self.counts[kind] += 1
            self.progress(kind, self.counts[kind], kinds.count(kind))

    def _judge(self) -> None:
        lines = self._lines()
        made = effects_in(lines)
        rows = self.environment.rows("SELECT participant_id, sequence_id FROM redrive_payments.intent")
        numbers: dict[str, list[int]] = defaultdict(list)
        for participant, number in rows:
            numbers[participant].append(number)
        self.counts |= Counter({"payments": len(self._wanted), "participants": len(numbers), **rules.counted(lines)})
        self.violations += [
            *rules.paid_once(self._wanted, made),
            *rules.paid_to_the_cent(self._wanted, made),
            *rules.in_order(lines),
            *rules.without_gaps(numbers),
            *rules.asked_before_sent_again(lines),
        ]
        self._judge_state()
        self._judge_books(self._reconcile())

    def _judge_state(self) -> None:
        counts = self.environment.counts()
        self.counts["claims taken back from killed relays"] = self.environment.value(
            "SELECT count(*) FROM redrive.attempt WHERE verb = 'reap'"
        )
        if counts["closed"] != len(self._wanted) or counts["enqueued"] != len(self._wanted):
            self.violations.append(f"It is not quiescent, or not conserved: {counts}.")
        found = self.environment.value("SELECT count(*) FROM redrive_payments.finding")
        if found:
            self.violations.append(f"Reconciliation, which ran all the while, had {found} findings.")


@dataclass
class Beyond(_Run):
    """A rail that forgets tokens pays after its "not found" is believed: held, and never paid twice."""

    config = BEYOND

    def __post_init__(self) -> None:
        super().__post_init__()
        self._wanted = beyond_instructions(self.plan)

    def run(self) -> None:
        self._scene.open_rails([BEYOND_RAIL], seed=self.plan.seed, faults=BEYOND_FAULTS)
        self._scene.open_relays()
        submit_all(self.environment, self._wanted)
        self._wait(self._is_over, "The payments on the second rail", len(self._wanted))
        self._wait(lambda: self._paid() >= len(self._wanted), "The late effects", len(self._wanted))
        self.violations += self._scene.close_relays()
        self._judge()

    def _paid(self) -> int:
        paid = len(effects_in(self._lines()))
        self.progress("late effects", paid, len(self._wanted))
        return paid

    def _judge(self) -> None:
        lines = self._lines()
        late = {line["token"]: line["instruction_id"] for line in lines if line.get("fault") == Fault.LATE}
        found = {late.get(line["token"]) for line in lines if line["log"] == "looked_up" and line["found"]}
        held = {row[0] for row in self.environment.rows(_HELD)}
        made = effects_in(lines)
        self.counts |= Counter({"payments": len(self._wanted), **rules.counted(lines), "held for a person": len(held)})
        self.violations += [*rules.paid_once(self._wanted, made), *rules.paid_to_the_cent(self._wanted, made)]
        self.violations += rules.held_when_too_late(set(late.values()), held=held, found=found)
        compared = self._reconcile()
        self._judge_books(compared)
        if sum(one.confirmed for one in compared) != len(held):
            self.violations.append(f"{len(held)} were held and paid, and not all of them were confirmed.")
        self.violations += rules.paid_once(self._wanted, effects_in(self._lines()))


_HELD = (
    "SELECT i.instruction_id FROM redrive.parked k JOIN redrive_payments.intent i ON i.outbox_id = k.id"
    " WHERE k.reason = 'held' AND k.error_class = 'ABSENT_AFTER_DOUBT'"
)


def submit_all(environment: ProofEnvironment, wanted: Sequence[Instruction]) -> None:
    """A batch whose commit is unknown is submitted again."""
    left = list(wanted)
    while left and not environment.ended.is_set():
        try:
            with psycopg.connect(environment.dsn) as conn:
                for participant in dict.fromkeys(one.participant_id for one in left):
                    payments.add_participant(conn, participant)
                conn.commit()
                while left:
                    for instruction in left[:BATCH]:
                        payments.submit(conn, instruction)
                    conn.commit()
                    del left[:BATCH]
        except psycopg.OperationalError:
            if environment.ended.wait(RECONNECT_SECONDS):
                raise Ended from None
