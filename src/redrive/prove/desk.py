"""`redrive prove desk`: thousands of failures of four causes, taken back by the desk while relays are killed.

The observer's log is the witness: each message is sent once more and no more, in the order of its key. Then the
audit has to verify, and one changed row has to be found.
"""

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final

import psycopg

from redrive.kit.proof.journal import Line, read
from redrive.kit.proof.processes import Ended, Process
from redrive.kit.proof.proving import proving
from redrive.kit.proof.report import Progress, ProofReport
from redrive.message import MessageId, NewMessage, ParkReason
from redrive.operate.actions.results import ActResult, Outcome
from redrive.operate.desk import audit, groups, replays, workflow
from redrive.operate.desk.causes import Cause, likely_cause
from redrive.produce.api import enqueue_many
from redrive.prove import desk_app
from redrive.prove.environment import Environment
from redrive.store.reads.models import GroupFilter, GroupView, ParkedFilter
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

FAILURES: Final = 5000  # at scale 1
KILLS: Final = 40
RELAYS: Final = 2
KEYS: Final = 5  # ordering keys of each cause; half of its messages have one
CANARY: Final = 5
APP: Final = "redrive.prove.desk_app:app"
EXPECTED: Final = {"SCHEMA_INVALID": Cause.DATA, "HTTP_503": Cause.TRANSIENT, "HTTP_401": Cause.AUTH_CONFIG,
                   "UNPRICED": Cause.CODE_DEFECT}  # fmt: skip
PATCH: Final = [{"op": "add", "path": "/currency", "value": "EUR"}]
ADA: Final = Who(actor="ada", reason="INC-7")
STEP_SECONDS: Final = 300.0


class DeskReport(ProofReport):
    proof = "desk"

    def verdict(self) -> Iterator[str]:
        yield "Each was sent once more and no more, in the order of its key."
        yield "The audit verifies, and one changed row is found."


def prove(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> DeskReport:
    with proving(Environment, seed=seed, scale=scale, dsn=dsn) as run:
        proof = _Proof(environment=run.environment, seed=seed, scale=scale, progress=progress)
        asyncio.run(proof.run())
        return DeskReport(**run.facts(), counts=dict(proof.counts), violations=proof.violations)


@dataclass(kw_only=True)
class _Proof:
    environment: Environment
    seed: int
    scale: float
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._failures = max(80, int(FAILURES * self.scale))
        self._kills = max(4, int(KILLS * self.scale))
        self._relays: list[Process] = []
        self._mended = False

    async def run(self) -> None:
        self.environment.observe()
        async with PostgresStore(self.environment.dsn) as store:
            self._enqueue()
            with self._running():
                await self._wait("failures", "SELECT count(*) FROM redrive.parked", self._failures)
            found = await self._grouped(store)
            self._mended = True
            with self._running(), self._killing():
                for group in found:
                    await self._prepare(store, group)
                await self._replay(store, found)
            await self._verified(store)
            self._check_sends()
            await self._check_audit(store)

    def _enqueue(self) -> None:
        """Four causes, mixed; half of the messages have an ordering key of their cause."""
        causes = list(Cause)
        messages = [
            NewMessage(
                desk_app.DESTINATION,
                {"cause": (cause := causes[number % 4]).value, "number": number},
                kind="order.placed",
                order_by=f"{cause}-{number // 8 % KEYS}" if number // 4 % 2 else None,
            )
            for number in range(self._failures)
        ]
        with psycopg.connect(self.environment.dsn) as conn:
            for start in range(0, len(messages), 500):
                enqueue_many(conn, messages[start : start + 500])
                conn.commit()

    async def _grouped(self, store: PostgresStore) -> Sequence[GroupView]:
        found = (await groups.list_groups(store, GroupFilter(limit=100))).rows
        self.counts |= Counter({"failures": self._failures, "failure groups": len(found)})
        if sorted(group.error_class for group in found) != sorted(EXPECTED):
            self.violations.append(f"{len(EXPECTED)} causes are {len(found)} groups.")
        if sum(group.seen for group in found) != self._failures:
            self.violations.append(f"{self._failures} failures were counted as {sum(g.seen for g in found)}.")
        names = [group.error_class for group in found]
        wrong = [name for name in names if likely_cause(name).cause != EXPECTED.get(name)]
        if wrong:
            self.violations.append(f"The likely cause of {', '.join(wrong)} is another one.")
        return found

    async def _prepare(self, store: PostgresStore, group: GroupView) -> None:
        """Triage, remediate, validate; a replay before that must be refused."""
        wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=group.fingerprint)
        ids = await workflow.select(store, wanted)
        cause = EXPECTED[group.error_class]
        plan = await replays.plan(store, self._wanted(group))
        if plan.verdicts.get("would"):
            self.violations.append(f"{plan.verdicts['would']} messages could be replayed before anything was done.")
        self._done("triaged", await workflow.triage(store, ids, cause, ADA))
        if cause is Cause.DATA:
            self._done("edited", await workflow.edit(store, ids, PATCH, ADA))
        else:
            self._done("remediated", await workflow.remediate(store, ids, ADA, evidence="release 2.4 is live"))
        await self._validate(store, ids)

    async def _validate(self, store: PostgresStore, ids: Sequence[MessageId]) -> None:
        """A relay that is killed leaves its requests to the next one; after two such answers it is asked for again."""
        deadline = time.monotonic() + STEP_SECONDS
        left = list(ids)
        while left and time.monotonic() < deadline:
            results = await workflow.validate(store, left, ADA, seconds=20)
            left = [result.id for result in results if result.outcome is not Outcome.DONE]
            self.counts["validated"] += len(results) - len(left)
        if left:
            self.violations.append(f"{len(left)} messages were not validated in {STEP_SECONDS:.0f} s.")

    async def _replay(self, store: PostgresStore, found: Sequence[GroupView]) -> None:
        """All groups at once, each asked for twice."""
        for group in found:
            first, again = [await replays.create(store, self._wanted(group)) for _ in range(2)]
            if first.id != again.id:
                self.violations.append("One token has made two replays.")
        await self._wait("replays", "SELECT count(*) FROM redrive.replay WHERE finished_at IS NOT NULL", len(found))
        for replay in (await replays.list_replays(store)).rows:
            self.counts["replays"] += 1
            self.counts["delivered by replays"] += replay.delivered
            if (replay.status, replay.delivered) != ("done", replay.messages):
                self.violations.append(
                    f"Replay {replay.name} is {replay.status}, {replay.delivered} of {replay.messages} arrived."
                )

    def _wanted(self, group: GroupView) -> replays.NewReplay:
        return replays.NewReplay(
            name=group.error_class,
            filter={"group": group.id},
            actor=ADA.actor,
            reason=ADA.reason,
            request_key=group.id,
            rate_per_second=max(20.0, self._failures / 60),
            canary=CANARY,
            out_of_order=True,
        )

    async def _verified(self, store: PostgresStore) -> None:
        rows = await store.rows("SELECT message_id FROM redrive.replay_item WHERE outcome = 'delivered'", [])
        if rows:
            self._done(
                "verified", await workflow.verify(store, [row[0] for row in rows], Who(actor="grace", reason="seen"))
            )
        open_ones = self.environment.value("SELECT count(*) FROM redrive.messages WHERE state <> 'delivered'")
        if open_ones:
            self.violations.append(f"{open_ones} messages are not delivered.")

    def _check_sends(self) -> None:
        lines = list(read(self.environment.log))
        rows = self.environment.rows("SELECT id::text, lane, sequence FROM redrive.message WHERE lane IS NOT NULL")
        places = {id_: (lane, sequence) for id_, lane, sequence in rows}
        self.counts["sends"] = sum(map(_is_send, lines))
        self.counts["ordering keys"] = len({lane for lane, _ in places.values()})
        self.violations += sending_violations(lines, places)

    async def _check_audit(self, store: PostgresStore) -> None:
        before = await audit.verify(store)
        self.counts["audited acts"] = before.checked
        if not before.intact:
            self.violations.append(f"The audit does not verify: {before.faults[0].what}.")
        with psycopg.connect(self.environment.dsn) as conn:
            conn.execute("SET session_replication_role = replica")
            middle = max(before.checked // 2, 1)
            conn.execute("UPDATE redrive.operator_action SET actor = 'eve' WHERE id = %s", [middle])
        after = await audit.verify(store)
        if [fault.id for fault in after.faults] != [middle]:
            self.violations.append("One row of the audit was changed, and verify did not notice.")

    # relays

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._relays = [self._start(number) for number in range(RELAYS)]
        try:
            yield
        finally:
            for relay in self._relays:
                relay.signal(signal.SIGTERM)
            for relay in self._relays:
                with suppress(Exception):
                    relay.wait(20.0)
                relay.end()

    def _start(self, number: int) -> Process:
        environment = {desk_app.MENDED_VARIABLE: "1"} if self._mended else {}
        return self.environment.relay(f"relay-{number}", app=APP, environment=environment)

    @contextmanager
    def _killing(self) -> Iterator[None]:
        """Kill one relay after the other, and start it again."""
        over = Event()
        thread = Thread(target=self._kill, args=[over])
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30.0)

    def _kill(self, over: Event) -> None:
        while self.counts["relays killed"] < self._kills and not over.wait(self._random.uniform(0.5, 2.0)):
            number = self._random.randrange(RELAYS)
            self._relays[number].end()
            self.counts["relays killed"] += 1
            self.progress("relays killed", self.counts["relays killed"], self._kills)
            with suppress(Ended):
                self._relays[number] = self._start(number)

    async def _wait(self, what: str, query: Any, total: int) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while (done := self.environment.value(query)) < total:
            self.progress(what, done, total)
            if time.monotonic() > deadline:
                self.violations.append(f"Only {done} of {total} {what} after {STEP_SECONDS:.0f} s.")
                return
            await asyncio.sleep(0.1)

    def _done(self, what: str, results: Sequence[ActResult]) -> None:
        done = sum(result.outcome is Outcome.DONE for result in results)
        self.counts[what] += done
        if done < len(results):
            first = next(result for result in results if result.outcome is not Outcome.DONE)
            self.violations.append(f"{len(results) - done} messages were not {what}: {first.detail}.")


def sending_violations(lines: Sequence[Line], places: Mapping[str, tuple[int, int]]) -> list[str]:
    """Nothing was sent before it was mended, so "once more" is once. places: lane and number of each ordered
    message."""
    found: list[str] = []
    sends = [line for line in lines if _is_send(line)]
    twice = [id_ for id_, count in Counter(line["id"] for line in sends).items() if count > 1]
    if twice:
        found.append(f"{len(twice)} messages were sent more than once more, such as {twice[0]}.")
    if any(count > 1 for count in Counter(line["token"] for line in lines if line["log"] == "effect").values()):
        found.append("A message had two effects.")
    orders: dict[int, list[int]] = defaultdict(list)
    for line in sends:
        if line["id"] in places:
            lane, sequence = places[line["id"]]
            orders[lane].append(sequence)
    broken = sum(order != sorted(order) for order in orders.values())
    if broken:
        found.append(f"The order of {broken} ordering keys was broken.")
    return found


def _is_send(line: Line) -> bool:
    return bool(line["log"] == "request" and line["call"] == "send")
