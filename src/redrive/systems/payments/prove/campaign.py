"""One run of `redrive prove payments`, from the first instruction to the verdict."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from redrive.prove import journal, report
from redrive.prove.campaign import Progress
from redrive.prove.directories import open_place
from redrive.prove.engine import Database, open_database
from redrive.prove.environment import Environment
from redrive.prove.processes import Ended
from redrive.store.migrations import migrate
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.prove import app, rules
from redrive.systems.payments.prove import config as agreed
from redrive.systems.payments.prove.config import BEYOND_TERMS, WITHIN, Config, Plan
from redrive.systems.payments.prove.environment import Scene, engine_terms_of
from redrive.systems.payments.prove.histories import history as random_history
from redrive.systems.payments.prove.history_campaign import (
    HISTORIES,
    Histories,
    histories_of,
    payments_set,
    run_histories,
)
from redrive.systems.payments.prove.history_script import read_script
from redrive.systems.payments.rail.script import Fault
from redrive.systems.payments.reconcile import Compared, reconcile
from redrive.systems.payments.validation import Instruction

BATCH = 20
RECONNECT_SECONDS = 0.2
LOOK_SECONDS = 0.2
SECONDS_MAX = 240.0  # at the least; a payment more is some milliseconds more
SECONDS_PER_PAYMENT = 0.15
BEYOND = "beyond: "
IN_HISTORIES = "histories: "
_CLOSED = "SELECT count(*) FROM redrive.attempt WHERE closed IS NOT NULL"
_OPEN = "SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)"


@dataclass(frozen=True, kw_only=True)
class PaymentsReport:
    """What was done and what was found.

    settings: of both runs. counts: of the first; those of the second begin with `BEYOND`, those of the random histories
    with `IN_HISTORIES`. violations: sentences, and the scripts of histories; none = it holds.
    """

    seed: int
    scale: float
    commit: str | None
    server: str
    seconds: float
    settings: Mapping[str, Mapping[str, Any]]
    counts: Mapping[str, int]
    violations: Sequence[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> Iterator[str]:
        """For people."""
        commit = f", commit {self.commit}" if self.commit else ""
        yield f"redrive prove payments --seed {self.seed} --scale {self.scale:g}{commit}"
        yield f"{self.server}, {self.seconds:.0f} s"
        within = {name: count for name, count in self.counts.items() if not name.startswith((BEYOND, IN_HISTORIES))}
        if within:
            yield from report.table("Rails with token and lookup, late within lookup_after", within)
            yield from report.table("A rail that forgets tokens, late beyond lookup_after", self._of(BEYOND))
        if self._of(IN_HISTORIES):
            yield from report.table("Random histories", self._of(IN_HISTORIES))
        for name, values in self.settings.items():
            yield ""
            yield f"Settings, {name}: " + ", ".join(f"{key} {value}" for key, value in values.items())
        yield ""
        if self.ok:
            yield from self._verdict()
            return
        yield f"{len(self.violations)} violations:"
        yield from (f"  {line}" for sentence in self.violations for line in sentence.splitlines())

    def _of(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): count for name, count in self.counts.items() if name.startswith(prefix)}

    def _verdict(self) -> Iterator[str]:
        if "payments" in self.counts:
            yield "Every instruction has one effect in the rails' ledgers, to the cent, in its participant's order and"
            yield "without gaps; the books agree, nothing is open, and what only a person can judge is held."
        if count := self._of(IN_HISTORIES).get("histories"):
            yield (
                f"No violation in {count} random histories: at 95 % confidence fewer than {min(1.0, 3 / count):.2%} of"
                " such histories pay twice."
            )


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    progress: Progress,
    histories: int | None = None,
    history: int | None = None,
    script: Path | None = None,
) -> PaymentsReport:
    """Run it; the report says what was found.

    histories: how many random ones. history: only the one of this seed. script: only the one that is written there.
    """
    began = time.monotonic()
    alone = read_script(script.read_text("utf-8")) if script else None
    if history is not None:
        alone = random_history(history)
    campaigns = _Campaigns() if alone else _campaigns(seed=seed, scale=scale, dsn=dsn, progress=progress)
    count = max(1, round(HISTORIES * scale)) if histories is None else histories
    wanted = [alone] if alone else histories_of(seed, count)
    told = run_histories(wanted, progress=progress, say=print if alone else None) if wanted else Histories()
    return PaymentsReport(
        seed=seed,
        scale=scale,
        commit=report.commit(),
        server=campaigns.server or told.server,
        seconds=time.monotonic() - began,
        settings=campaigns.settings,
        counts={**campaigns.counts, **_counted(told)},
        violations=[*campaigns.violations, *("\n".join(one.lines()) for one in told.violated)],
    )


@dataclass(frozen=True, kw_only=True)
class _Campaigns:
    """What came of the two runs with thousands of payments."""

    server: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[str] = ()


def _campaigns(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> _Campaigns:
    with open_place() as place, open_database(place, dsn) as database:
        migrate.upgrade(database.dsn, sets=[payments_set()])
        plan = Plan.of(seed=seed, scale=scale, own_server=database.restart is not None)
        with Environment(place, database.dsn, agreed=engine_terms_of(WITHIN)) as stage:
            within = Within(stage, plan, database, progress)
            within.run()
            beyond = Beyond(stage, plan, progress)
            beyond.run()
        return _Campaigns(
            server=database.server,
            settings={"token and lookup": WITHIN.printed(), "lookup only": BEYOND_TERMS.printed()},
            counts={**within.counts, **{f"{BEYOND}{name}": count for name, count in beyond.counts.items()}},
            violations=[*within.violations, *beyond.violations],
        )


def _counted(told: Histories) -> dict[str, int]:
    if not told.count:
        return {}
    counts = {"histories": told.count, "commands": told.commands, **told.abilities}
    counts |= {f"fault: {name}": count for name, count in told.faults.items()}
    counts |= {f"guard: {name}": count for name, count in told.guards.items()}
    counts |= {f"answer: {name}": count for name, count in told.answers.items()}
    return {f"{IN_HISTORIES}{name}": count for name, count in counts.items()}


class _Run:
    """What both runs share: rails, relays, a producer, and the rails' ledgers in the end."""

    def __init__(self, stage: Environment, plan: Plan, progress: Progress, config: Config, *, name: str) -> None:
        self._stage = stage
        self._plan = plan
        self._progress = progress
        self._terms = config
        self._scene = Scene(stage, config, name=name)
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def _wait(self, condition: Callable[[], Any], what: str, payments_count: int) -> None:
        seconds = SECONDS_MAX + SECONDS_PER_PAYMENT * payments_count
        if not self._stage.wait(_seldom(condition), seconds=seconds):
            self.violations.append(f"{what} did not end within {seconds:.0f} s.")

    def _lines(self) -> list[dict[str, Any]]:
        """What the rails wrote down, by their time."""
        lines = [line for path in self._scene.ledgers.values() for line in journal.read(path)]
        return sorted(lines, key=lambda line: line["effected_at"] if line["log"] == "effect" else line.get("at", 0.0))

    def _reconcile(self) -> list[Compared]:
        """Compare the books of all rails; what was paid late is confirmed, and looked at once more."""

        async def compare() -> list[Compared]:
            async with PostgresStore(self._stage.dsn, connections=2) as store:
                rails = app.rails(self._terms, self._scene.urls)
                first = [await reconcile(store, rail, lag_seconds=0) for rail in rails]
                return [*first, *[await reconcile(store, rail, lag_seconds=0) for rail in rails]]

        return asyncio.run(compare())

    def _judge_books(self, compared: Sequence[Compared]) -> None:
        last = compared[len(compared) // 2 :]
        self.counts["late successes confirmed"] = sum(one.confirmed for one in compared)
        found = [finding.sentence for one in last for finding in one.findings]
        self.counts["unexplained in the books"] = len(found)
        self.violations += found[: rules.SHOWN]
        if any(one.open for one in last):
            self.violations.append(f"{sum(one.open for one in last)} payments are not over on all sides.")


class Within(_Run):
    """Ten thousand payments, relays killed, PostgreSQL stopped; each is paid once."""

    def __init__(self, stage: Environment, plan: Plan, database: Database, progress: Progress) -> None:
        super().__init__(stage, plan, progress, WITHIN, name="within")
        self._database = database
        self._wanted = agreed.instructions(plan)
        self._random = random.Random(f"{plan.seed}/faults")

    def run(self) -> None:
        """The table of contents."""
        self._scene.open_rails(agreed.RAILS, seed=self._plan.seed, faults=agreed.FAULTS)
        self._scene.open_relays()
        producer = threading.Thread(target=submit_all, args=[self._stage, self._wanted])
        producer.start()
        self._inject()
        producer.join()
        self._wait(self._is_done, "The payments", len(self._wanted))
        self.violations += self._scene.close_relays()
        self._judge()

    def _is_done(self) -> bool:
        done = self._stage.value(_CLOSED)
        self._progress("payments", done, len(self._wanted))
        return bool(self._stage.value(_OPEN) == 0)

    def _inject(self) -> None:
        """Each fault when its share of the payments is over, so that all of them meet work."""
        kinds = ["relays killed"] * self._plan.kills + ["PostgreSQL stopped at once"] * self._plan.stops
        self._random.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            share = 0.9 * len(self._wanted) * number / (len(kinds) + 1)
            self._wait(lambda share=share: self._done(share), kind, len(self._wanted))  # type: ignore[misc]
            if kind == "relays killed":
                self._scene.kill_busiest_relay()
            else:
                assert self._database.restart is not None
                self._database.restart()
            self.counts[kind] += 1
            self._progress(kind, self.counts[kind], kinds.count(kind))

    def _done(self, share: float) -> bool:
        done = self._stage.value(_CLOSED)
        self._progress("payments", done, len(self._wanted))
        return bool(done >= share)

    def _judge(self) -> None:
        lines = self._lines()
        made = rules.effects(lines)
        rows = self._stage.rows("SELECT participant_id, sequence_id FROM redrive_payments.intent")
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
        counts = self._stage.counts()
        self.counts["claims taken back from killed relays"] = self._stage.value(
            "SELECT count(*) FROM redrive.attempt WHERE verb = 'reap'"
        )
        if counts["closed"] != len(self._wanted) or counts["enqueued"] != len(self._wanted):
            self.violations.append(f"It is not quiescent, or not conserved: {counts}.")
        found = self._stage.value("SELECT count(*) FROM redrive_payments.finding")
        if found:
            self.violations.append(f"Reconciliation, which ran all the while, had {found} findings.")


class Beyond(_Run):
    """A rail that forgets tokens pays after its "not found" is believed: held, and never paid twice."""

    def __init__(self, stage: Environment, plan: Plan, progress: Progress) -> None:
        super().__init__(stage, plan, progress, BEYOND_TERMS, name="beyond")
        self._wanted = agreed.beyond_instructions(plan)

    def run(self) -> None:
        """The table of contents."""
        self._scene.open_rails([agreed.BEYOND_RAIL], seed=self._plan.seed, faults=agreed.BEYOND_FAULTS)
        self._scene.open_relays()
        submit_all(self._stage, self._wanted)
        self._wait(lambda: self._stage.value(_OPEN) == 0, "The payments on the second rail", len(self._wanted))
        self._wait(lambda: self._paid() >= len(self._wanted), "The late effects", len(self._wanted))
        self.violations += self._scene.close_relays()
        self._judge()

    def _paid(self) -> int:
        paid = len(rules.effects(self._lines()))
        self._progress("late effects", paid, len(self._wanted))
        return paid

    def _judge(self) -> None:
        lines = self._lines()
        late = {line["token"]: line["instruction_id"] for line in lines if line.get("fault") == Fault.LATE}
        found = {late.get(line["token"]) for line in lines if line["log"] == "looked_up" and line["found"]}
        held = {row[0] for row in self._stage.rows(_HELD)}
        made = rules.effects(lines)
        self.counts |= Counter({"payments": len(self._wanted), **rules.counted(lines), "held for a person": len(held)})
        self.violations += [*rules.paid_once(self._wanted, made), *rules.paid_to_the_cent(self._wanted, made)]
        self.violations += rules.held_when_too_late(set(late.values()), held=held, found=found)
        compared = self._reconcile()
        self._judge_books(compared)
        if sum(one.confirmed for one in compared) != len(held):
            self.violations.append(f"{len(held)} were held and paid, and not all of them were confirmed.")
        self.violations += rules.paid_once(self._wanted, rules.effects(self._lines()))


_HELD = (
    "SELECT i.instruction_id FROM redrive.parked k JOIN redrive_payments.intent i ON i.outbox_id = k.id"
    " WHERE k.reason = 'held' AND k.error_class = 'ABSENT_AFTER_DOUBT'"
)


def _seldom(condition: Callable[[], Any]) -> Callable[[], Any]:
    """Asked every so often: each question is a connection, and the machine has other things to do."""
    asked_at = 0.0

    def asked() -> Any:
        nonlocal asked_at
        if time.monotonic() < asked_at + LOOK_SECONDS:
            return False
        asked_at = time.monotonic()
        return condition()

    return asked


def submit_all(stage: Environment, wanted: Sequence[Instruction]) -> None:
    """Each batch in a transaction of its own; where nobody knows whether it was committed, it is submitted again."""
    left = list(wanted)
    while left and not stage.ended.is_set():
        try:
            with psycopg.connect(stage.dsn) as conn:
                for participant in dict.fromkeys(one.participant_id for one in left):
                    payments.add_participant(conn, participant)
                conn.commit()
                while left:
                    for instruction in left[:BATCH]:
                        payments.submit(conn, instruction)
                    conn.commit()
                    del left[:BATCH]
        except psycopg.OperationalError:
            if stage.ended.wait(RECONNECT_SECONDS):
                raise Ended from None
