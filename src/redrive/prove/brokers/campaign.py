"""One broker between two services: messages are published under faults, then consumed under faults, then all is quiet.

A fault comes when a share of the messages has gone through, so a slow machine gets the same faults in the same places.
"""

import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.kit.proof.brokers import Server
from redrive.kit.proof.brokers.proxy import Mode, Proxy
from redrive.kit.proof.environment import LOOK_SECONDS
from redrive.kit.proof.loop_thread import LoopThread
from redrive.kit.proof.processes import Process, Stuck, wait_while_it_moves
from redrive.kit.proof.report import Progress
from redrive.prove.brokers import config, plan
from redrive.prove.brokers.judge import Evidence
from redrive.prove.brokers.plan import Plan
from redrive.prove.brokers.services import ConsumerService, Publisher, finished

RELAYS: Final = 2
IDLE_SECONDS: Final = 40.0
LEFT_SECONDS: Final = 0.3  # between two questions to the broker
FAULTS_UNTIL: Final = 0.9  # of the messages: some come after the last fault


@dataclass(kw_only=True)
class Campaign:
    """quiet_seconds: so long nothing may have moved at the end before it is called stuck; longer on a busy machine."""

    plan: Plan
    server: Server
    proxy: Proxy
    loop: LoopThread
    publisher: Publisher
    consumer: ConsumerService
    progress: Progress
    quiet_seconds: float = IDLE_SECONDS
    faults: Counter[str] = field(default_factory=Counter)
    stuck: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.plan.seed}/faults")
        self._relays: list[Process] = []

    def run(self) -> None:
        """Where a phase is stuck its processes are stopped too, so that one that has ended is named."""
        for phase, stop in ((self._publish, self._stop_publishing), (self._consume, self._stop_consuming)):
            try:
                phase()
            except Stuck as stuck:
                self.stuck.append(f"[stuck] {stuck}")
            stop()

    def complaints(self) -> list[str]:
        return [*self.stuck, *self.publisher.complaints, *self.consumer.complaints]

    def evidence(self) -> Evidence:
        left = {
            "messages of the publisher are not delivered": self.publisher.open_messages(),
            "messages wait in the consumer's engine": self.consumer.open_messages(),
            "messages in the broker are not acknowledged": self._left(),
        }
        return Evidence(
            journals=self.publisher.journals(),
            business=self.publisher.business(),
            effects=self.consumer.effects(),
            left=left,
        )

    def counts(self, evidence: Evidence) -> dict[str, int]:
        logged = self.consumer.deliveries()
        return {
            "committed": len(evidence.committed()),
            "effects": len(evidence.effects),
            "sends whose confirm was lost": self.publisher.in_doubt(),
            "deliveries by the broker": logged["consumer.received"],
            "of them absorbed by the inbox": logged["consumer.seen"],
            "of them deferred to the consumer's engine": logged["consumer.deferred"],
        }

    # publishing

    def _publish(self) -> None:
        self._relays = [self.publisher.start_relay(f"relay-{number}") for number in range(RELAYS)]
        producers = self.publisher.start_producers(self.plan)
        acts = {
            plan.CONFIRM_CUT: self._cut_before_the_confirm,
            plan.RELAY_KILLED: self._kill_relay,
            plan.RESTARTED: self._restart,
        }
        self._inject("publishing", self.plan.publishing, acts, self._sent)
        self._until("published", lambda: self._is_published(producers), self._sent)

    def _stop_publishing(self) -> None:
        for relay in self._relays:
            self.publisher.stop(relay)

    def _is_published(self, producers: Sequence[Process]) -> bool:
        return finished(producers) and not self.publisher.open_messages()

    def _sent(self) -> int:
        return self.proxy.messages

    def _cut_before_the_confirm(self) -> None:
        """The broker gets the messages; its next word to this connection is lost, and the connection with it."""
        before = self.proxy.cuts
        self.proxy.mode = Mode.LOSE_REPLY
        try:
            self._until("cut", lambda: self.proxy.cuts > before, self._sent)
        finally:
            self.proxy.mode = Mode.PASS

    def _kill_relay(self) -> None:
        number = self._chance.randrange(RELAYS)
        self.publisher.kill(self._relays[number])
        self._relays[number] = self.publisher.start_relay(f"relay-{number}")

    def _restart(self) -> None:
        self.server.stop(self._chance.choice([signal.SIGTERM, signal.SIGKILL]))
        self.server.start()

    # consuming

    def _consume(self) -> None:
        self._worker = self.consumer.start_worker()
        self._relay = self.consumer.start_relay("consumer-relay")
        acts = {
            plan.WORKER_KILLED: self._kill_worker,
            plan.WORKER_CUT: self._cut,
            plan.CONSUMER_RELAY_KILLED: self._kill_consumer_relay,
            plan.RESTARTED: self._restart,
        }
        committed = len(self.publisher.business())
        self._inject("consuming", self.plan.consuming, acts, self.consumer.effect_count)
        self._until(
            "consumed",
            lambda: self._is_consumed(committed),
            self._moves,
            seconds=self.quiet_seconds,
            every_seconds=LEFT_SECONDS,
        )

    def _stop_consuming(self) -> None:
        self.consumer.stop(self._worker)
        self.consumer.stop(self._relay)

    def _kill_worker(self) -> None:
        self.consumer.kill(self._worker)
        self._worker = self.consumer.start_worker()

    def _kill_consumer_relay(self) -> None:
        self.consumer.kill(self._relay)
        self._relay = self.consumer.start_relay("consumer-relay")

    def _cut(self) -> None:
        self.loop.run(self.proxy.cut())

    def _is_consumed(self, committed: int) -> bool:
        return self.consumer.effect_count() >= committed and not self.consumer.open_messages() and not self._left()

    def _moves(self) -> tuple[int, int, int]:
        return self.consumer.effect_count(), self.consumer.open_messages(), self._left()

    def _left(self) -> int:
        """A broker that has just started may not answer yet."""
        found: list[int] = []

        def asked() -> bool:
            with suppress(Exception):
                found.append(self.server.left(config.PLACE, config.CONSUMER))
            return bool(found)

        if not self.publisher.wait(asked, seconds=IDLE_SECONDS, every_seconds=LEFT_SECONDS):
            raise RuntimeError(f"{self.server.name} did not answer for {IDLE_SECONDS:.0f} s.")
        return found[0]

    # both

    def _inject(
        self, phase: str, faults: Sequence[str], acts: dict[str, Callable[[], None]], gone: Callable[[], int]
    ) -> None:
        """gone: how many messages have gone through."""
        total = self.plan.messages * FAULTS_UNTIL
        for number, fault in enumerate(faults, 1):
            due = int(total * number / len(faults))
            self._until(f"{phase}, fault {number}", lambda due=due: gone() >= due, gone)  # type: ignore[misc]
            acts[fault]()
            self.faults[fault] += 1
            self.progress(f"{self.server.name}: faults while {phase}", number, len(faults))

    def _until(
        self,
        what: str,
        is_done: Callable[[], bool],
        moves: Callable[[], Any],
        *,
        seconds: float = IDLE_SECONDS,
        every_seconds: float = LOOK_SECONDS,
    ) -> None:
        ended = self.publisher.ended
        wait_while_it_moves(what, is_done, moves, ended=ended, seconds=seconds, every_seconds=every_seconds)
