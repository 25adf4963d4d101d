"""The processes of the proof: simulated rails with a ledger each, and relays."""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redrive.kit.proof.environment import READY_SECONDS, ProofEnvironment
from redrive.kit.proof.processes import Ended, Process
from redrive.systems.payments.prove import app
from redrive.systems.payments.prove.config import RELAYS, Config, RailConfig

SERVER = "redrive.systems.payments.rail.server"
STOP_SECONDS = 20.0
_BUSIEST = """
SELECT r.name FROM redrive.relay r JOIN redrive.lease l USING (worker)
 WHERE r.seen_at > clock_timestamp() - interval '1 second' GROUP BY r.name, r.worker ORDER BY count(*) DESC LIMIT 1
"""


@dataclass
class Scene:
    """Rails and relays of one run. ledgers: by rail type."""

    environment: ProofEnvironment
    config: Config
    name: str
    urls: dict[str, str] = field(default_factory=dict)
    ledgers: dict[str, Path] = field(default_factory=dict)
    _relays: list[Process] = field(default_factory=list)

    def open_rails(self, rails: Sequence[RailConfig], *, seed: int, faults: Mapping[str, float]) -> None:
        started = {rail.rail_type: self._start_rail(rail.rail_type, seed, faults) for rail in rails}
        for rail_type, process in started.items():
            if not self.environment.wait(lambda said=process.said: _address(said), seconds=READY_SECONDS):  # type: ignore[misc]
                raise RuntimeError(f"Rail {rail_type} did not start; see {process.said}.")
            self.urls[rail_type] = _address(process.said)

    def _start_rail(self, rail_type: str, seed: int, faults: Mapping[str, float]) -> Process:
        self.ledgers[rail_type] = self.environment.directory / f"{self.name}-{rail_type}.ledger"
        script = {
            "seed": seed,
            "faults": dict(faults),
            "late_seconds": self.config.late_seconds,
            "retry_after_seconds": self.config.retry_after_seconds,
            "hang_seconds": self.config.hang_seconds,
        }
        settings = {"ledger": str(self.ledgers[rail_type]), "profile": self.config.profile, "script": script}
        return self.environment.processes.start(f"rail-{rail_type}", SERVER, settings=settings)

    def open_relays(self, count: int = RELAYS) -> list[Process]:
        self._relays += [self._start_relay(len(self._relays) + number) for number in range(count)]
        return self._relays

    def kill_busiest_relay(self) -> None:
        """Kills the one that has most in hand; another one takes its place."""
        name = self.environment.value(_BUSIEST)
        number = next((number for number, relay in enumerate(self._relays) if relay.name == name), 0)
        self._relays[number].end()
        with suppress(Ended):
            self._relays[number] = self._start_relay(number)

    def close_relays(self) -> list[str]:
        """Stops them gracefully; returns what did not end as it must."""
        for relay in self._relays:
            # One that has just been started does not know yet how to stop.
            self.environment.wait(lambda relay=relay: self._has_begun(relay), seconds=STOP_SECONDS)  # type: ignore[misc]
            relay.signal(signal.SIGTERM)
        complaints = []
        for relay in self._relays:
            self.environment.wait(lambda relay=relay: relay.code is not None, seconds=STOP_SECONDS)  # type: ignore[misc]
            if relay.code != 0:
                complaints.append(f"Relay {relay.name} {relay.ending}")
            relay.end()
        self._relays = []
        return complaints

    def _has_begun(self, relay: Process) -> bool:
        known = "SELECT count(*) FROM redrive.relay WHERE pid = %s"
        return relay.code is not None or self.environment.value(known, relay.pid) > 0

    def _start_relay(self, number: int) -> Process:
        return self.environment.relay(
            f"{self.name}-relay-{number}", app=app.SPEC, environment=app.environment(self.config, self.urls)
        )


def _address(said: Path) -> str:
    """The first line that a rail prints, once it is whole; else empty."""
    first, newline, _ = said.read_text("utf-8", "replace").partition("\n")
    return first.strip() if newline else ""
