"""The environment of `redrive prove engine` and of the crash tests: the kit's, with an observer and producers."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from redrive.kit.proof.environment import LOOK_SECONDS, READY_SECONDS, ProofEnvironment
from redrive.kit.proof.processes import Ended, Process, patience
from redrive.prove import checker, client, config
from redrive.prove.evidence import Evidence, gather
from redrive.prove.producer import Order, produce
from redrive.prove.script import Script, quiet

_OPEN: Final = """
SELECT (SELECT count(*) FROM redrive.lease)
     + (SELECT count(*) FROM redrive.pending p
         WHERE NOT EXISTS (SELECT FROM redrive.parked k WHERE k.lane = p.lane AND k.halts AND k.sequence < p.sequence))
"""


class Environment(ProofEnvironment):
    """log: what the observer saw."""

    app = "redrive.prove.app:app"

    def __init__(
        self, directory: Path, dsn: str, *, config: config.Config = config.DEFAULT, wire: str | None = None
    ) -> None:
        self.config = config
        self.log = directory / "observer.log"
        self.socket = directory / "observer"
        variables = {client.SOCKET_VARIABLE: str(self.socket)}
        super().__init__(directory, dsn, wire=wire, limits=config.relay_limits(), variables=variables)
        self._producers: list[Path] = []

    def prepare(self) -> None:
        """The application's own tables."""
        self.execute(config.TABLES)

    def observe(self, script: Script | None = None) -> Process:
        """Start the destination, or start it again on its own log; returns when it listens."""
        self.socket.unlink(missing_ok=True)
        settings = {"script": asdict(script or quiet()), "remembers": self.config.lookups}
        process = self.processes.start(
            "observer", "redrive.prove.observer", str(self.socket), str(self.log), settings=settings
        )
        if not self.wait(self.socket.exists, seconds=READY_SECONDS):
            raise RuntimeError(f"The observer did not start; see {process.said}.")
        return process

    def produce(self, order: Order) -> Process:
        log = self.directory / f"producer-{order.name}.log"
        self._producers.append(log)
        return self.processes.start(
            f"producer-{order.name}", "redrive.prove.producer", str(log), settings=asdict(order)
        )

    def enqueue(self, order: Order) -> None:
        """The same in this process, which no fault kills."""
        log = self.directory / f"producer-{order.name}.log"
        self._producers.append(log)
        produce(self.dsn, log, order, durable=False)

    def settle_down(self, *, seconds: float) -> bool:
        """Whether it became quiet, before no attempt had ended for `seconds`, or ten times that was over."""
        began = moved = time.monotonic()
        ended = -1
        while not self.is_quiet():
            count = self.value("SELECT count(*) FROM redrive.attempt")
            now = time.monotonic()
            if count != ended:
                ended, moved = count, now
            if now > moved + seconds * patience() or now > began + 10 * seconds * patience():
                return False
            if self.ended.wait(LOOK_SECONDS):
                raise Ended
        return True

    def is_quiet(self) -> bool:
        """Nothing is in hand, and what is pending waits behind a head that waits for an operator."""
        return bool(self.value(_OPEN) == 0)

    def evidence(self) -> Evidence:
        return gather(self.dsn, observer=self.log, producers=self._producers)

    def verdict(self) -> checker.Verdict:
        return checker.check(self.evidence(), self.config)
